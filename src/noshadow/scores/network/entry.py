"""`network_scores`: leave-one-out scores over many layers of a trained module.

They come from one factorisation.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from noshadow.arguments import BATCH_SIZE, MAX_MEMORY, PROGRESS
from noshadow.checks import Array, advice, its_place, named_in_errors, refuse, require_number, require_whole
from noshadow.limits import CROWDED, DOUBTFUL_CONDITION, FAR_FROM_MINIMUM, FAR_OFF
from noshadow.losses import record_losses
from noshadow.metrics.agreement import rank_correlation
from noshadow.outcomes import Damping, Note, not_applicable
from noshadow.scores.baselines import record_entropies
from noshadow.scores.last_layer.entry import ASSUME_MINIMUM, interpolation_note, jitter_note
from noshadow.scores.network.dual import DualColumns, dual_bytes
from noshadow.scores.network.problem import network_problem, stationarity
from noshadow.scores.network.projected import ProjectedColumns
from noshadow.scores.network.solver import (
    NetworkSettings,
    PreparedNetwork,
    network_damping,
    network_gradient_norms,
    prepared_network,
    solved_network,
)
from noshadow.scores.result import RecordScores
from noshadow.views.network import network_view

NO_LEVERAGE = "the margin is one number a record; pass {how} for the leverage over all logits"
NO_MARGIN = "all logits are scored; pass {how} for margin_leverage"
NO_CLASSES = not_applicable("a regression predicts no class probabilities")


@named_in_errors
def network_scores(
    model: object,
    train: object,
    *,
    task: str = "auto",
    layers: str | int = "all",
    damping: float | str = "auto",
    weight_decay: float | None = None,
    method: str = "auto",
    outputs: str = "auto",
    dimension: int = 2048,
    layer: str = "auto",
    output: str | int = "auto",
    sample_weight: object = None,
    unvectorised: str = "refuse",
    batch_size: int = BATCH_SIZE,
    device: object = None,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> RecordScores:
    """Compute leave-one-out scores of every training record over many layers.

    The scores take one Gauss–Newton step without the record.

    With J the Jacobian (n × p) of one output per record, K = JJᵀ, K_w = w^½Kw^½ and C = (K_w +
    λI)⁻¹: h_i = [K_wC]_ii = 1 − λC_ii, q_i = h_i/w_i. Regression (w = 1): leverage h and the gaps
    of `record_scores` with this h. Classification: the output is the margin φ = log p_y − log
    Σ_{c≠y} p_c, whose loss is softplus(−φ) exactly, w = p_y(1 − p_y): margin_leverage h, influence
    (1 − p_y)²q, newton (1 − p_y)²q/(1 − h), shift (1 − p_y)q/(1 − h), loo the loss at φ − shift
    minus the loss. With outputs="all", and for several outputs of a regression, the nm × nm problem
    of all outputs is solved instead: H_ii = J_i𝓗⁻¹J_iᵀ is then m × m and the columns are those of
    `record_scores`.

    Args:
        model: any nn.Module with one row of outputs per record, run in eval mode; frozen parameters
            are left out.
        train: its training records, (X, y), a map-style Dataset or a DataLoader.
        task: "auto", "regression", "classification" or "binary".
        layers: "last", "all", or the number k of last layers with trainable parameters, in the
            order in which they run.
        damping: λ > 0 on the sum over records, or "auto": that of `weight_decay`, else 10⁻⁶ of the
            mean curvature.
        weight_decay: of the training objective mean(loss) + (wd/2)‖θ‖².
        method: "dual" (exact, n² numbers twice), "projected" (approximate, any n) or "auto" (dual
            where it fits).
        outputs: "margin", "all" or "auto" (margin for hard labels, all otherwise).
        dimension: of the projected gradients. layer: name of the nn.Linear whose output counts;
            "auto": the model's own output.
        output: of a model that returns several tensors, the name or position of its output, or
            "auto"; as in `audit`.
        sample_weight: (n,) ≥ 0, scales each record's loss, gradient and curvature.
        unvectorised: "refuse" models that torch.func cannot run over many records at once, or
            "loop" over records.
        batch_size: records in one pass. device: where to run. max_memory: bytes for the kernel and
            its inverse.
        progress: draw bars on a terminal. seed: of the projections and of data transforms.

    Returns:
        RecordScores with `layers`, `parameters` and `method`; under "projected", `dimensions`, and
        `errors` holds the relative error of each column: the larger of how far two independent
        projections differ and of what half the dimensions lack (at most 1: nothing is known of the
        size then).

    Raises:
        InputError: an argument breaks a rule, the kernel would not fit, or torch.func cannot run
            the model (which module).
        NumericalError: the factorisation failed.

    Exact when: (dual) the network is linear in the chosen parameters around the trained ones and at
        a minimum; for layers="last" of a regression it is the exact refit. Approximates: retraining
        without the record.
    Cost: dual: the kernel, n²(Σ (d_in + d_out) of linear layers + other parameters) flops (of a
        lookup table its width for every two records that share a row) and a backward pass, then n³;
        projected: a backward pass and 8·n·D² flops.
    Reference: ours; the dual of the Gauss–Newton problem behind [RET] Eq. (8), over all layers.

    Example:
        >>> import torch, noshadow as ns
        >>> x = torch.linspace(-1, 1, 12)[:, None]
        >>> hidden, head = torch.nn.Linear(1, 4), torch.nn.Linear(4, 1)
        >>> model = torch.nn.Sequential(hidden, torch.nn.Tanh(), head)
        >>> scores = ns.network_scores(model, (x, x[:, 0] ** 2), damping=0.1)
        >>> scores.parameters, scores.method, bool((scores.leverage < 1).all())
        (13, 'dual', True)
    """
    started = time.perf_counter()
    settings = NetworkSettings(method, dimension, max_memory, seed)
    require_whole(batch_size, "batch_size", low=1)
    _require_damping(damping)
    how: dict[str, Any] = {"unvectorised": unvectorised, "batch_size": batch_size, "device": device, "seed": seed}
    with network_view(model, train, layers=layers, layer=layer, output=output, **how) as (network, records):
        problem = network_problem(
            network, records, task=task, outputs=outputs, sample_weight=sample_weight, batch_size=batch_size, progress=progress
        )
        prepared = prepared_network(network, records, problem, settings, progress=progress)
        settled = network_damping(damping, weight_decay, prepared)
        solved = solved_network(prepared, settled.value)
        norms = network_gradient_norms(prepared)
        slack = stationarity(network, records, problem, damping=settled.value, gradient_norms=norms)
    return _result(prepared, solved, gradient_norm=norms, slack=slack, damping=settled, started=started)


@named_in_errors
def damping_sweep(
    model: object,
    train: object,
    *,
    factors: Sequence[float] = (0.01, 0.1, 1.0, 10.0, 100.0),
    weight_decay: float | None = None,
    damping: float | str = "auto",
    task: str = "auto",
    layers: str | int = "all",
    method: str = "auto",
    outputs: str = "auto",
    output: str | int = "auto",
    dimension: int = 2048,
    layer: str = "auto",
    unvectorised: str = "refuse",
    batch_size: int = BATCH_SIZE,
    device: object = None,
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> pd.DataFrame:
    """Effective degrees of freedom and order of the records for several dampings.

    The damping moves around the training's own λ.

    Args:
        factors: multiples of λ, each > 0. Others as in `network_scores`.

    Returns:
        One row per factor: factor, damping, effective_dof (Σ leverage), largest_leverage,
        interpolated (records with leverage 1), condition (of the factored matrix: beyond 1e12
        numbers lose their digits), spearman (order of `shift` against factor 1).

    Cost: one kernel or projection for all factors, and one factorisation per factor.

    Example:
        >>> import torch, noshadow as ns
        >>> x = torch.linspace(-1, 1, 12)[:, None]
        >>> model, train = torch.nn.Linear(1, 1), (x, x[:, 0] ** 2)
        >>> table = ns.damping_sweep(model, train, weight_decay=0.1, factors=(1.0, 10.0))
        >>> bool(table.effective_dof.is_monotonic_decreasing)
        True
    """
    if not isinstance(factors, (Sequence, np.ndarray)) or isinstance(factors, str) or not len(factors):
        refuse("factors", "be a list of at least one number", repr(factors))
    steps = [require_number(factor, "factors", low=0.0, low_open=True) for factor in factors]
    settings = NetworkSettings(method, dimension, max_memory, seed)
    require_whole(batch_size, "batch_size", low=1)
    _require_damping(damping)
    how: dict[str, Any] = {"unvectorised": unvectorised, "batch_size": batch_size, "device": device, "seed": seed}
    with network_view(model, train, layers=layers, layer=layer, output=output, **how) as (network, records):
        problem = network_problem(
            network, records, task=task, outputs=outputs, sample_weight=None, batch_size=batch_size, progress=progress
        )
        prepared = prepared_network(network, records, problem, settings, progress=progress)
    base = network_damping(damping, weight_decay, prepared).value
    found = {factor: solved_network(prepared, factor * base) for factor in dict.fromkeys((1.0, *steps))}
    centre = found[1.0].columns["shift"]
    table: pd.DataFrame = pd.DataFrame([_sweep_row(factor, base, found[factor], centre) for factor in steps])
    return table


def _sweep_row(factor: float, base: float, solved: DualColumns | ProjectedColumns, centre: Array) -> dict[str, Any]:
    leverage = solved.columns["margin_leverage" if "margin_leverage" in solved.columns else "leverage"]
    return {
        "factor": factor,
        "damping": factor * base,
        "effective_dof": solved.dof,
        "largest_leverage": float(leverage.max()),
        "interpolated": int(np.isinf(solved.columns["newton"]).sum()),
        "condition": solved.condition,
        "spearman": rank_correlation(solved.columns["shift"], centre),
    }


def _require_damping(damping: float | str) -> None:
    if not (isinstance(damping, str) and damping == "auto"):
        require_number(damping, "damping", low=0.0, low_open=True)


def _result(
    prepared: PreparedNetwork,
    solved: DualColumns | ProjectedColumns,
    *,
    gradient_norm: Array,
    slack: float,
    damping: Damping,
    started: float,
) -> RecordScores:
    problem, network = prepared.problem, prepared.network
    columns: dict[str, Any] = dict(solved.columns)
    columns["loss"] = problem.weights() * record_losses(problem.outputs, problem.targets, problem.task)
    columns["gradient_norm"] = gradient_norm
    if problem.task != "regression":
        columns["entropy"] = record_entropies(problem.outputs, problem.task)
    return RecordScores(
        task=problem.task,
        damping=damping,
        effective_dof=solved.dof,
        rank=min(len(problem) * problem.columns, network.size),
        condition=solved.condition,
        jitter=solved.jitter,
        stationarity=slack,
        head_residual=None,
        precision="float64",
        precision_error=None,
        seconds=time.perf_counter() - started,
        notes=prepared.notes + _notes(prepared, solved, slack),
        not_applicable=_absent(problem.kind, problem.task),
        method=prepared.method,
        layers=tuple(layer.name for layer in network.layers),
        parameters=network.size,
        errors=solved.errors if isinstance(solved, ProjectedColumns) else {},
        dimensions=None if prepared.features is None else prepared.features.draws[0].shape[1],
        **columns,
    )


def _absent(kind: str, task: str) -> dict[str, str]:
    if kind == "regression":
        return dict.fromkeys(("entropy", "margin_leverage"), NO_CLASSES)
    if kind == "softmax":
        return {"margin_leverage": not_applicable(NO_MARGIN.format(how=advice("outputs", "margin")))}
    if task != "classification":
        return {}
    return {"leverage": not_applicable(NO_LEVERAGE.format(how=advice("outputs", "all")))}


def _notes(prepared: PreparedNetwork, solved: DualColumns | ProjectedColumns, slack: float) -> tuple[str, ...]:
    notes: list[str] = []
    interpolated = int(np.isinf(solved.columns["newton"]).sum())
    if interpolated:
        notes.append(interpolation_note(interpolated))
    if solved.jitter > 0:
        notes.append(jitter_note(solved.jitter))
    if solved.condition > DOUBTFUL_CONDITION:
        words = f"the damped kernel is nearly singular (condition {solved.condition:.0e})"
        notes.append(Note(f"{words}: raise the damping", "NS022"))
    if slack >= FAR_FROM_MINIMUM:
        words = f"(left-over gradient {slack:.2g} times one typical record's): {ASSUME_MINIMUM}"
        notes.append(Note(f"the layers are not at a minimum of their objective {words}", "NS020"))
    if isinstance(solved, ProjectedColumns):
        assert prepared.features is not None
        width = prepared.features.draws[0].shape[1]
        notes.append(
            f"gradients of {prepared.network.size:,} parameters were projected to {width:,} dimensions: two independent projections "
            f"order the records by shift with Spearman {solved.rank_agreement['shift']:.3f}"
        )
        error = solved.errors["shift"]
        if width < prepared.network.size and (solved.dof > CROWDED * width or error > FAR_OFF):
            need = dual_bytes(len(prepared.problem) * prepared.problem.columns) / 1e9
            words = (
                f"{solved.dof:.0f} effective degrees of freedom crowd {width:,} projected dimensions: scores are too small (relative error "
                f"of shift about {error:.2f}); raise dimension{its_place('dimension')}, or take "
                f"{advice('method', 'dual')} ({need:.1f} GB)"
            )
            notes.append(Note(words, "NS025"))
    return tuple(notes)
