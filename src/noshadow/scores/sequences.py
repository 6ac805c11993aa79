"""Record scores of sequences under a language model.

They use EK-FAC of the output head over all tokens of the sequences.

A record is a sequence and its loss the mean over its T_i scored tokens, ℓ_i = (1/T_i) Σ_t ℓ_t. With
h̃ the input of the head (1 appended when it has a bias), δ_t = p_t − y_t and W_t = diag(p_t) −
p_tp_tᵀ, that loss has over the head's (m, d) parameters the gradient G_i = (1/T_i) Σ_t δ_th̃_tᵀ and
the Gauss–Newton curvature (1/T_i) Σ_t W_t ⊗ h̃_th̃_tᵀ, so that every sequence weighs the same,
however long, and λ stands beside a sum over sequences as it does beside a sum over records
elsewhere:

    𝓗 = Σ_i (1/T_i) Σ_t W_t ⊗ h̃_th̃_tᵀ + λI ≈ diag(Λ) in the basis u_b ⊗ u_a,
    Λ_ab = Σ_i (1/T_i) Σ_t (u_bᵀW_tu_b)(u_aᵀh̃_t)² + λ.

u_a are eigenvectors of Σ h̃h̃ᵀ, u_b those of Σ W_t. A vocabulary too large for an (m, m) matrix
takes the tokens themselves as u_b: the diagonal is as exact there, the basis a little worse.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from noshadow.arguments import MAX_MEMORY, PROGRESS
from noshadow.blocks import block_length, blocks
from noshadow.checks import Array, NotApplicable, require_choice, require_number
from noshadow.columns import LANGUAGE_MODEL
from noshadow.limits import FAR_FROM_MINIMUM
from noshadow.outcomes import Damping, Note
from noshadow.progress import tracked
from noshadow.scores.baselines import block_residuals
from noshadow.scores.last_layer.ekfac import class_variances, contrast_eigenvectors
from noshadow.scores.result import RecordScores
from noshadow.views import TokenHead
from noshadow.weight_decay import SEQUENCES, training_damping

TASK = LANGUAGE_MODEL
SCORED = ("gradient_norm", "leverage", "influence")
RELATIVE_DAMPING = 0.1
NO_CURVATURE = 1e-12  # of the curvature of a head that is unsure of everything
MOST_FLOPS = 5e13  # for eigenvectors over classes: about twenty minutes of one core


@dataclass(frozen=True, eq=False)
class TokenProblem:
    """Rows h̃ of all tokens with the weight 1/T_i of each, and the head's parameters.

    The parameters Θ (m, d) give the logits of the tokens.
    """

    head: TokenHead
    parameters: torch.Tensor
    weights: Array

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """h̃ of some tokens, (b, d) float64."""
        rows = torch.from_numpy(self.head.features[start:stop].astype(np.float64))
        return rows if self.head.bias is None else torch.cat([rows, torch.ones((len(rows), 1), dtype=torch.float64)], 1)

    def probabilities(self, rows: torch.Tensor) -> torch.Tensor:
        """p of some tokens, (b, m)."""
        return torch.softmax(rows @ self.parameters.T, 1)

    def weight(self, start: int, stop: int) -> torch.Tensor:
        """1/T_i of some tokens, (b, 1)."""
        return torch.from_numpy(self.weights[start:stop])[:, None]


@dataclass(frozen=True, eq=False)
class TokenCurvature:
    """Σ_i (1/T_i) Σ_t W_t ⊗ h̃h̃ᵀ, diagonal in a product of two bases.

    features: (d, d), u_a in columns. classes: (m, m−1), u_b in columns, or None when they are the
    tokens themselves. eigenvalues: (d, m−1) or (d, m), Λ without λ. rank: numerical rank of the
    features.
    """

    features: torch.Tensor
    classes: torch.Tensor | None
    eigenvalues: torch.Tensor
    rank: int

    def shares(self, probabilities: torch.Tensor) -> torch.Tensor:
        """u_bᵀWu_b of each token."""
        return token_variances(probabilities) if self.classes is None else class_variances(probabilities, self.classes)


def sequence_score_bytes(vocabulary: int, width: int, class_basis: str) -> int:
    """Memory, in bytes, that the scores of sequences need.

    It counts head, gradient and eigenvalues in float64, and what finds the eigenvectors of classes;
    blocks of tokens come on top.
    """
    return 8 * (8 * vocabulary * width + (7 * vocabulary**2 if class_basis == "eigenvectors" else 0))


def sequence_scores(
    head: TokenHead,
    *,
    damping: float | str = "auto",
    weight_decay: float | None = None,
    class_basis: str = "auto",
    max_memory: float = MAX_MEMORY,
    progress: bool = PROGRESS,
) -> RecordScores:
    """Influence, leverage and gradient norm of every sequence, by EK-FAC.

    They are taken over the output head of a language model.

    influence_i = Σ_ab (u_bᵀG_iu_a)²/Λ_ab ≈ g_iᵀ𝓗⁻¹g_i; leverage_i = (1/T_i) Σ_t Σ_ab
    (u_bᵀW_tu_b)(u_aᵀh̃_t)²/Λ_ab, the sequence's part of the effective degrees of freedom;
    gradient_norm_i = ‖G_i‖. For tied weights G_i is the gradient through the head only.

    Args:
        head: of a model, with its inputs at the scored tokens.
        damping: λ > 0 on the sum over sequences; "auto": n·weight_decay, else 0.1 of the mean
            eigenvalue of the curvature.
        weight_decay: ≥ 0, of a training objective mean over sequences + (wd/2)‖θ‖².
        class_basis: "eigenvectors" of Σ W_t; "tokens"; "auto": eigenvectors where they fit and take
            some twenty minutes of one core at most, else tokens, with a note.
        max_memory: bytes for head, gradient, eigenvalues and eigenvectors. progress: draw bars on a
            terminal.

    Returns:
        RecordScores with leverage, influence (≥ 0) and gradient_norm, (n,) each; method "ekfac" or
        "ekfac-tokens".

    Raises:
        InputError: damping is not > 0, weight_decay not ≥ 0. NotApplicable: not even the gradient
            of one sequence fits (how much it needs), or no λ is known and the head is so sure of
            every token that it has no curvature to take one from.

    Exact when: gradient_norm always; the others when 𝓗 is diagonal in the basis, for instance when
        all W_t are equal and u_b are their eigenvectors. Approximates: 𝓗⁻¹, and with it what
            refitting the head without the sequence would do.
    Cost: N tokens and n sequences: N·m(8m + 8d) + 2m²·Σ min(T_i, d) + 25m³ flops with eigenvectors,
        10N·md with tokens. Memory 8md and 7m² numbers.
    Reference: [RET] Props. B.3–B.4 for influence and [GLS] Prop. C.2 for leverage, summed over
        tokens (ours); George et al. 2018 for EK-FAC; Grosse et al. 2023 for 0.1 of the mean
        eigenvalue.
    """
    started = time.perf_counter()
    require_choice(class_basis, ("auto", "eigenvectors", "tokens"), "class_basis")
    if not isinstance(damping, str):
        damping = require_number(damping, "damping", low=0.0, low_open=True)
    if weight_decay is not None:
        weight_decay = require_number(weight_decay, "weight_decay", low=0.0)
    problem = _problem(head)
    n, (m, d) = len(head.starts) - 1, problem.parameters.shape
    basis, notes = _affordable_basis(problem, class_basis, max_memory)
    curvature = token_curvature(problem, basis, progress=progress)
    mean = float(curvature.eigenvalues.sum()) / max((m - 1) * d, 1)
    settled = _resolved_damping(damping, weight_decay, n, mean)
    value = settled.value
    if not settled.is_trained:
        _require_curvature(problem, mean)
    columns, total = _columns(problem, curvature, value, progress=progress)
    centred = problem.parameters - problem.parameters.mean(0)
    left_over = float((total + (value if settled.is_trained else 0.0) * (centred @ curvature.features)).norm())
    typical = float(np.sqrt((columns["gradient_norm"] ** 2).mean()))
    stationarity = left_over / typical if typical > 0 else 0.0
    return RecordScores(
        task=TASK,
        damping=settled,
        effective_dof=float((curvature.eigenvalues / (curvature.eigenvalues + value)).sum()),
        rank=curvature.rank,
        condition=1.0,  # diagonal in its basis: nothing was factored
        jitter=0.0,
        stationarity=stationarity,
        head_residual=head.residual,
        precision="float64",
        precision_error=None,
        seconds=time.perf_counter() - started,
        notes=(*notes, *_fit_notes(head, stationarity)),
        not_applicable={},
        method="ekfac" if basis == "eigenvectors" else "ekfac-tokens",
        parameters=problem.parameters.numel(),
        gradient_norm=columns["gradient_norm"],
        leverage=columns["leverage"],
        influence=columns["influence"],
    )


def token_variances(probabilities: torch.Tensor) -> torch.Tensor:
    """p(1 − p) of each class, (b, m).

    1 − p of the most probable class is taken as the sum of the others, so that nothing cancels.
    """
    top = probabilities.argmax(1, keepdim=True)
    others = probabilities.scatter(1, top, 0.0)
    spare = others.sum(1, keepdim=True)
    return (others * (1 - others)).scatter(1, top, spare * probabilities.gather(1, top))


def token_curvature(problem: TokenProblem, class_basis: str, *, progress: bool = False) -> TokenCurvature:
    """Both bases and the diagonal of the undamped curvature in them.

    This takes three passes over the tokens, or two with class_basis "tokens".
    """
    (m, d), tokens = problem.parameters.shape, len(problem.weights)
    moments, spread = torch.zeros((d, d), dtype=torch.float64), torch.zeros((0, 0), dtype=torch.float64)
    for start, stop in blocks(tokens, block_length(3 * d)):
        rows = problem.rows(start, stop)
        moments += (rows * problem.weight(start, stop)).T @ rows
    lengths, features = torch.linalg.eigh(moments)
    rank = int((lengths > d * torch.finfo(torch.float64).eps * lengths.max()).sum())
    if class_basis == "eigenvectors":
        spread = torch.zeros((m, m), dtype=torch.float64)
        for start, stop in tracked(blocks(tokens, block_length(3 * m)), "classes", show=progress):
            probabilities = problem.probabilities(problem.rows(start, stop))
            weighted = probabilities * problem.weight(start, stop)
            spread.diagonal().add_(weighted.sum(0))
            spread -= weighted.T @ probabilities
    frame = TokenCurvature(features, contrast_eigenvectors(spread) if len(spread) else None, torch.empty(0), rank)
    eigenvalues = torch.zeros((d, m - 1 if len(spread) else m), dtype=torch.float64)
    for start, stop in tracked(blocks(tokens, block_length(8 * m + 3 * d)), "eigenvalues", show=progress):
        rows = problem.rows(start, stop)
        eigenvalues += ((rows @ features) ** 2).T @ (frame.shares(problem.probabilities(rows)) * problem.weight(start, stop))
    return TokenCurvature(features, frame.classes, eigenvalues.clamp(min=0.0), rank)


def _problem(head: TokenHead) -> TokenProblem:
    weight = head.weight if head.bias is None else np.concatenate([head.weight, head.bias[:, None]], 1)
    lengths = np.diff(head.starts)
    return TokenProblem(head, torch.from_numpy(weight.astype(np.float64)), np.repeat(1.0 / lengths, lengths))


def _affordable_basis(problem: TokenProblem, asked: str, max_memory: float) -> tuple[str, tuple[str, ...]]:
    (m, d), lengths = problem.parameters.shape, np.diff(problem.head.starts)
    need = {name: sequence_score_bytes(m, d, name) for name in ("eigenvectors", "tokens")}
    flops = 25.0 * m**3 + 8.0 * m**2 * len(problem.weights) + 2.0 * m**2 * np.minimum(lengths, d).sum()
    fits = need["eigenvectors"] <= max_memory and flops <= MOST_FLOPS
    chosen = asked if asked != "auto" else "eigenvectors" if fits else "tokens"
    if need[chosen] > max_memory:
        raise NotApplicable(
            f"EK-FAC of a head of {m:,} tokens × {d:,} features needs {need[chosen] / 1e9:.3g} GB, "
            f"more than the {max_memory / 1e9:.3g} GB allowed"
        )
    if chosen == asked or chosen == "eigenvectors":
        return chosen, ()
    return chosen, (
        f"eigenvectors over a vocabulary of {m:,} tokens would take {need['eigenvectors'] / 1e9:.3g} GB and {flops:.1g} operations: "
        "EK-FAC keeps the diagonal over tokens instead",
    )


def _require_curvature(problem: TokenProblem, mean: float) -> None:
    """Refuse a head with next to no curvature, of which the automatic λ is a share."""
    (m, d), tokens = problem.parameters.shape, len(problem.weights)
    size = sum(float((problem.rows(*ends) ** 2 * problem.weight(*ends)).sum()) for ends in blocks(tokens, block_length(2 * d))) / d
    if mean <= NO_CURVATURE * size / max(m, 1):
        raise NotApplicable(
            "the output head has no curvature to take a damping λ from, being sure of every token or without inputs; "
            "pass damping= or weight_decay="
        )


def _resolved_damping(damping: float | str, weight_decay: float | None, n: int, mean: float) -> Damping:
    """λ and where it comes from."""
    if not isinstance(damping, str):
        return Damping(damping, "given", "given")
    if damping != "auto":
        require_number(damping, "damping", low=0.0, low_open=True)
    if weight_decay:
        known = training_damping(weight_decay, TASK, n, 1, averaged=SEQUENCES)
        assert isinstance(known, Damping)
        return known
    rule = f"{RELATIVE_DAMPING:g} × the mean eigenvalue of the curvature"
    if weight_decay is None:
        return Damping(RELATIVE_DAMPING * mean, "automatic", f"automatic: {rule} (training's own λ unknown)")
    reason = "the training had no weight decay, and EK-FAC needs λ > 0"
    return Damping(RELATIVE_DAMPING * mean, "substitute", f"automatic: {rule} ({reason})")


def _columns(problem: TokenProblem, curvature: TokenCurvature, damping: float, *, progress: bool) -> tuple[dict[str, Array], torch.Tensor]:
    """The columns of every sequence, and Σ_i G_i in the basis of features, (m, d)."""
    starts, (m, d) = problem.head.starts, problem.parameters.shape
    n = len(starts) - 1
    inverse = (curvature.eigenvalues + damping).reciprocal()
    columns = {"leverage": _leverages(problem, curvature, inverse, progress=progress)}
    columns |= {"gradient_norm": np.empty(n), "influence": np.empty(n)}
    total, size = torch.zeros((m, d), dtype=torch.float64), block_length(4 * m + 3 * d)
    for i in tracked(range(n), "sequences", show=progress):
        gradient, within = torch.zeros((m, d), dtype=torch.float64), None
        # Over eigenvectors of classes the residuals of a short sequence are fewer rows to turn than
        # its gradient.
        short = curvature.classes is not None and starts[i + 1] - starts[i] < d
        for first, last in blocks(int(starts[i + 1] - starts[i]), size):
            start, stop = int(starts[i]) + first, int(starts[i]) + last
            rows, labels = problem.rows(start, stop), torch.from_numpy(problem.head.labels[start:stop])
            residuals = block_residuals(rows @ problem.parameters.T, labels, "classification") * problem.weight(start, stop)
            turned = rows @ curvature.features
            gradient.addmm_(residuals.T, turned)
            if short and curvature.classes is not None:
                part = (residuals @ curvature.classes).T @ turned
                within = part if within is None else within + part
        if within is None:
            within = gradient if curvature.classes is None else curvature.classes.T @ gradient
        columns["gradient_norm"][i] = float(gradient.norm())
        columns["influence"][i] = float((within.T**2 * inverse).sum())
        total += gradient
    return columns, total


def _leverages(problem: TokenProblem, curvature: TokenCurvature, inverse: torch.Tensor, *, progress: bool) -> Array:
    """(n,) Σ over a sequence's tokens of their part of the effective degrees of freedom."""
    parts = np.empty(len(problem.weights))
    for start, stop in tracked(
        blocks(len(parts), block_length(8 * len(problem.parameters) + 4 * len(inverse))), "leverages", show=progress
    ):
        rows = problem.rows(start, stop)
        shares = curvature.shares(problem.probabilities(rows)) * problem.weight(start, stop)
        parts[start:stop] = (shares * ((rows @ curvature.features) ** 2 @ inverse)).sum(1).numpy()
    leverages: Array = np.add.reduceat(parts, problem.head.starts[:-1]).clip(min=0.0)
    return leverages


def _fit_notes(head: TokenHead, stationarity: float) -> tuple[str, ...]:
    notes = []
    if head.tied:
        notes.append(
            "the output head shares its weights with the input embedding: scores see what a sequence does to them as the head only"
        )
    if stationarity >= FAR_FROM_MINIMUM:
        words = (
            f"the head is not at a minimum of its objective (its left-over gradient is {stationarity:.2g} times one typical sequence's): "
            "influence assumes one, and its order is more reliable than its size"
        )
        notes.append(Note(words, "NS020"))
    return tuple(notes)
