"""`lood_audit`: what a data set would leak about every record through an architecture."""

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse.linalg import eigsh

from noshadow._lood.architectures import SWEEP_NOISES, KernelChoice, kernel_choice, sweep_cells, sweep_rows
from noshadow._lood.data_set import NORMALIZATIONS, DataSet, copies, data_set, normalized, plane
from noshadow._lood.inputs import Noise, asked_noise, require_memory
from noshadow._lood.join import joined_with
from noshadow._lood.scores import LoodScores, lood_scores
from noshadow._lood.theory import flatness_bound, kernel_flatness
from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.checks import Array, named_in_errors, require_choice, require_number
from noshadow.results import Audit, LoodAudit
from noshadow.storage.versions import NUMERICS, versions_of

_SUMMARISED = ("kl", "mean_distance", "auc", "tpr")
_DEFAULT_NOISE = 0.1
_DENSE = 64
_ILL_CONDITIONED = 1e10
_LARGE = 1e4
_TINY = float(np.finfo(np.float64).eps)


@named_in_errors
def lood_audit(
    x: object,
    y: object,
    *,
    ids: object = None,
    kernel: str = "fc",
    depth: int | None = None,
    activation: str | None = None,
    weight_variance: float | None = None,
    bias_variance: float | None = None,
    weights: str | None = None,
    length_scale: float | None = None,
    image_shape: tuple[int, int, int] | None = None,
    filter_size: int | None = None,
    noise: float | None = None,
    relative_noise: float | None = None,
    fpr: float = 1e-3,
    normalize: str = "none",
    sweep_activations: Sequence[str] = (),
    sweep_depths: Sequence[int] = (),
    sweep_noise: str = "relative",
    audit: Audit | None = None,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
) -> LoodAudit:
    """How much a data set would leak about each of its records through an architecture.

    The answer is known before any network is trained.

    Every record is queried at itself: kl, mean_distance, loo_variance, auc and tpr of `lood_scores`
    under the kernel of the architecture. Rank 1 is the largest kl.

    Args:
        x: (n, …) inputs, n ≥ 2. y: (n,) integer labels 0 … C − 1 (one-hot columns), or (n,) or (n,
            C) floats, not centred by us.
        ids: (n,) unique integers or text; row numbers when None.
        kernel: "fc" or "conv", networks of infinite width, "rbf" or "laplace".
        depth: hidden layers of a network, 2 when None. activation: "relu" (when None), "gelu",
            "erf", "tanh" or "elu".
        weight_variance: of a layer's weights times its fan-in, 2 when None. bias_variance: of its
            biases, 0 when None. weights: "critical" for both as `critical_weights` gives them for
            the activation, in the sweep for each activation its own; None for the two numbers.
        length_scale: of "rbf" and "laplace", required there, in the units of the inputs.
        image_shape: (channels, height, width) for "conv"; read off x when that is (n, channels,
            height, width).
        filter_size: side of the filters of "conv", 3 when None.
        noise: variance σ² > 0 of the observation noise, 0.1 when neither kind is given.
            relative_noise: σ² as a share of the kernel's mean diagonal, in its place.
        fpr: false-positive rate of `tpr`, in (0, 1).
        normalize: "none"; "standardize": each feature less its mean over all records and divided by
            its standard deviation over them (constant features become 0); "unit": each record
            divided by the root of the mean square of its numbers.
        sweep_activations, sweep_depths: architectures to compare, every pair; the other options as
            above. Both or neither. sweep_noise: "relative", every architecture with the share of
            its own mean diagonal that the noise is of the chosen kernel's, or "absolute", σ² the
            same for all, which compares the sizes of the kernels too.
        audit: an audit of a trained model on these records, joined by id.
        max_memory: bytes that the kernel matrix and its factor may take. progress: a bar for the
            sweep, on a terminal.

    Returns:
        LoodAudit.

    Raises:
        InputError: an argument breaks a rule, an option does not belong to the kernel, or n × n
            matrices would not fit.

    Exact when: for the Gaussian process, up to rounding, which grows with the condition. About a
        trained network of finite width it is a model, not a measurement.
    Cost: that of the kernel and ⅔n³ flops; two n × n float64 matrices and one of bytes. The sweep
        repeats it for every cell.
    Reference: [LOOD] Definition C.3, Props. 6.1 and G.1.

    Example:
        >>> import noshadow as ns
        >>> x, names = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.1]], ["alone", "twin", "other twin"]
        >>> found = ns.lood_audit(x, [0, 1, 1], ids=names)
        >>> found.records.nsmallest(1, "rank")["id"].tolist()
        ['alone']
    """
    arguments = {name: value for name, value in locals().items() if name not in ("x", "y", "ids", "audit", "progress")}
    data = data_set(x, y, ids)
    given = ("depth", "activation", "weight_variance", "bias_variance", "weights", "length_scale", "image_shape", "filter_size")
    require_choice(normalize, tuple(NORMALIZATIONS), "normalize")
    require_choice(sweep_noise, SWEEP_NOISES, "sweep_noise")
    rows = normalized(data.x, normalize)
    choice = kernel_choice(kernel, {name: arguments[name] for name in given}, rows)
    cells = sweep_cells(sweep_activations, sweep_depths, choice)
    asked = asked_noise(_DEFAULT_NOISE if noise is None and relative_noise is None else noise, relative_noise)
    rate = require_number(fpr, "fpr", low=0, high=1, low_open=True, high_open=True)
    hint = "Pass fewer records, raise max_memory, or bound chosen records with noshadow.lood_bounds, which holds no n × n matrix."
    require_memory(17.0 * len(rows) ** 2, max_memory, len(rows), hint)
    scores, conditioning, seconds = _scored(rows, data.y, choice, noise=asked, fpr=rate, max_memory=max_memory)
    started = time.perf_counter()
    positions, shares = plane(rows)
    mapped = time.perf_counter()
    share = scores.noise / conditioning["mean_diagonal"] if conditioning["mean_diagonal"] > 0 else None
    swept = Noise(share, relative=True) if sweep_noise == "relative" and share is not None else Noise(scores.noise, relative=False)
    sweep = sweep_rows(rows, data.y, cells, choice, noise=swept, fpr=rate, max_memory=max_memory, progress=progress)
    found = LoodAudit(
        records=_table(data, scores, positions),
        kernel=choice.described(),
        noise=scores.noise,
        fpr=rate,
        summary=_summary(scores),
        conditioning=conditioning,
        sweep=sweep,
        notes=_notes(data, normalize, conditioning, scores.noise),
        provenance=_provenance(data, arguments, normalize, shares),
        timings={"created": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        | seconds
        | {"map_seconds": mapped - started, "sweep_seconds": time.perf_counter() - mapped},
    )
    return found if audit is None else joined_with(found, audit)


def _scored(
    x: torch.Tensor, y: Array, kernel: KernelChoice, *, noise: Noise, fpr: float, max_memory: float
) -> tuple[LoodScores, dict[str, Any], dict[str, float]]:
    """Scores, conditioning and seconds; the kernel matrix does not outlive the call."""
    started = time.perf_counter()
    matrix = kernel.matrix(x)
    built = time.perf_counter()
    diagonal = float(matrix.diagonal().mean())
    sigma2 = noise.noise_variance(diagonal)
    scores = lood_scores(matrix, y, noise=sigma2, fpr=fpr, max_memory=max_memory)
    flat, largest = kernel_flatness(matrix), _largest_eigenvalue(matrix)
    # Estimates: their last digits depend on where arrays lie in memory, three are the same in every
    # run.
    estimates = {
        "largest_eigenvalue": largest,
        "smallest_eigenvalue": scores.smallest_eigenvalue,
        "condition": (largest + sigma2) / (scores.smallest_eigenvalue + sigma2),
        "condition_1_norm": scores.condition,
    }
    conditioning = {name: float(f"{value:.3g}") for name, value in estimates.items()} | {
        "effective_dof": float(scores.leverage.sum()),
        "diagonal": [float(matrix.diagonal().min()), float(matrix.diagonal().max())],
        "mean_diagonal": diagonal,
        "entries": [float(matrix.min()), float(matrix.max())],
        "constant": flat.constant,
        "distance": flat.distance,
        "relative": flat.relative if np.isfinite(flat.relative) else None,
        "bound": flatness_bound(matrix, y, noise=sigma2),
    }
    return scores, conditioning, {"kernel_seconds": built - started, "scores_seconds": time.perf_counter() - built}


def _largest_eigenvalue(matrix: Array) -> float:
    if len(matrix) <= _DENSE:
        return float(np.linalg.eigvalsh(matrix)[-1])
    return float(eigsh(matrix, k=1, which="LA", tol=1e-6, v0=np.ones(len(matrix)), return_eigenvectors=False)[0])


def _table(data: DataSet, scores: LoodScores, positions: Array) -> pd.DataFrame:
    given = data.targets[:, None] if data.targets.ndim == 1 else data.targets
    names = ["target"] if given.shape[1] == 1 else [f"target_{k}" for k in range(given.shape[1])]
    rank = np.empty(len(data.ids), dtype=np.int64)
    rank[np.argsort(-scores.kl, kind="stable")] = np.arange(1, len(rank) + 1)
    columns: dict[str, Array] = {"id": data.ids} | dict(zip(names, given.T, strict=True))
    columns |= {name: getattr(scores, name) for name in ("kl", "mean_distance", "loo_variance", "auc", "tpr", "leverage")}
    table: pd.DataFrame = pd.DataFrame(columns | {"map_1": positions[:, 0], "map_2": positions[:, 1], "rank": rank})
    return table


def _summary(scores: LoodScores) -> dict[str, Any]:
    n, outputs = scores.loo_mean.shape
    found: dict[str, Any] = {"records": n, "outputs": outputs}
    for name in _SUMMARISED:
        values = getattr(scores, name)
        figures = {"mean": values.mean(), "median": np.median(values), "quantile_90": np.quantile(values, 0.9), "max": values.max()}
        found[name] = {key: float(value) for key, value in figures.items()}
    riskiest, total = np.sort(scores.kl)[-max(n // 10, 1) :].sum(), scores.kl.sum()
    return found | {"riskiest_tenth": max(n // 10, 1), "kl_share_of_riskiest_tenth": float(riskiest / total) if total > 0 else None}


def _notes(data: DataSet, normalize: str, conditioning: dict[str, Any], noise: float) -> tuple[str, ...]:
    notes = []
    if conditioning["diagonal"][1] > _LARGE * noise:
        notes.append(
            f"the prior variance of a prediction reaches {conditioning['diagonal'][1]:.3g}, far above the noise {noise:g}: with inputs "
            "on this scale the process follows every record; normalize the inputs?"
        )
    if conditioning["condition"] > _ILL_CONDITIONED:
        error = conditioning["condition"] * _TINY
        notes.append(
            f"K + noise·I has condition {conditioning['condition']:.2g}, so that rounding may reach a share of {error:.1g}; raise the noise"
        )
    if normalize == "standardize":
        notes.append("features were standardized over all records: that leaving a record out would change the scaling too is not counted")
    values = data.targets.dtype.kind == "f"
    off = np.abs(data.y.mean(0)) > data.y.std(0)
    if values and off.any():
        notes.append("targets were not centred, and the Gaussian process expects 0 where it knows nothing: subtract their mean?")
    twins = copies(data.x, data.y)
    if twins:
        notes.append(f"{twins} records have an exact copy in the data; copies hide each other, so that leaving out one of them shows less")
    if conditioning["constant"] == 0:
        notes.append("the constant nearest to the kernel matrix is 0, for which Proposition 6.1 says nothing")
    return tuple(notes)


def _provenance(data: DataSet, arguments: dict[str, Any], normalize: str, shares: tuple[float, float]) -> dict[str, Any]:
    plain = {name: _plain(value) for name, value in arguments.items()}
    labels = data.targets.ndim == 1 and data.targets.dtype.kind in "biu"
    return {
        "arguments": plain,
        "inputs": {"shape": list(data.x.shape), "normalization": NORMALIZATIONS[normalize]},
        "targets": {"kind": "labels, as one-hot columns" if labels else "numbers, as given", "outputs": data.y.shape[1]},
        "ids_given": data.has_ids,
        "map": {"method": "first two principal components of the scaled inputs", "variance_shares": list(shares)},
        "hashes": data.hashes,
        "versions": versions_of(*NUMERICS),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, (str, int, float)) else [_plain(entry) for entry in value]
