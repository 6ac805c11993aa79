"""How much a trained model gives away of secrets: their exposure, in bits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.canaries.forms import Canaries
from noshadow.canaries.ranks import Standing, chance_bits, exact_standing, extrapolated_standings, sampled_standing
from noshadow.checks import Array, named_in_errors, refuse, require_choice, require_number, require_whole, whole_seed
from noshadow.progress import tracked
from noshadow.views import is_causal_lm, is_language_model, sequence_losses

METHODS = ("auto", "exact", "sampled", "extrapolated")
ENUMERATED = 16_384  # secrets that "auto" compares one by one
LEAST_DRAWN = 50
MOST_ENUMERATED = 10**8
AT_ONCE = 2048  # fillings that are held as sequences
# Nats, as a share of a secret's own: one sequence in two batches.
SAME = 1e-6
FIT_DOUBTED = 0.1  # p-value below which the paper's own test would doubt the fit


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """What a model gives away of each canary.

    Attributes:
        table: one row per canary: `loss`, −log p of the whole secret in nats; `rank` among |R| with
            `rank_low`, `rank_high`; `exposure_bits` = log₂|R| − log₂ rank with
            `exposure_bits_low`, `exposure_bits_high`.
        method: "exact", "sampled" or "extrapolated". space: |R| that each was compared within.
        compared: fillings that were run for each canary. level: of the intervals.
        chance_bits: mean exposure of secrets that the model has not seen, 1.44 for a large |R|.
        p_value: chance that secrets which no model has seen have as large a mean exposure; None for
            "extrapolated", which is no rank.
        fit_p_value: of the test of the fitted skew-normal; None for other methods.
        notes: sentences a reader must see.
    """

    table: pd.DataFrame
    method: str
    space: int
    compared: int
    level: float
    chance_bits: float
    p_value: float | None
    fit_p_value: float | None
    notes: tuple[str, ...]


@named_in_errors
def score(
    model: object,
    canaries: Canaries,
    *,
    method: str = "auto",
    draws: int = 4096,
    level: float = 0.95,
    resamples: int = 400,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    seed: int = 0,
) -> CanaryScores:
    """Exposure of canaries in a causal language model, in bits.

    With R the possible secrets and P(s) = −log p(s) the model's log-perplexity of the whole
    sequence, rank(s) = |{r ∈ R: P(r) ≤ P(s)}| and exposure = log₂|R| − log₂ rank(s): by how many
    bits the model shortens a search for the secret. A model that never saw it has 1.44 bits in the
    mean; the largest value is log₂|R|, a secret that is guessed first. The other canaries, which
    may have been trained on too, are left out of R.

    Args:
        model: a causal language model of transformers. canaries: as `make` drew them.
        method: "exact" runs all of R; "sampled" draws from R: the share of draws that the model
            does not like less, with its Clopper–Pearson interval; "extrapolated" fits a skew-normal
            to the draws' log-perplexities and reads its tail, beyond 1/draws; "auto": exact up to
            16,384 secrets, sampled beyond.
        draws: fillings drawn, ≥ 50. level: coverage of intervals.
        resamples: bootstrap resamples of the fit. seed: of draws and resamples.
        batch_size, device, progress: as in `sequence_losses`.

    Returns:
        CanaryScores. The unit is bits, as in the definition; losses are in nats.

    Raises:
        InputError: not such a model or canaries; tokens that the model does not have; every
            possible secret is a canary.

    Exact when: "exact". "sampled" cannot exceed log₂(draws + 1) bits: its interval reaches to
        log₂|R| where no draw was better. Approximates: "extrapolated", which takes the
        log-perplexities for skew-normal (`fit_p_value`).
    Cost: one forward pass over |R| or `draws` sequences, for each setting of the context slots;
        memory of one block of them.
    Reference: Carlini et al. 2019 (arXiv 1802.08232).

    Example:
        >>> import noshadow as ns
        >>> ns.canaries.score(None, "a secret")
        Traceback (most recent call last):
        noshadow.errors.InputError: score: canaries must be what canaries.make returned; got str.
    """
    if not isinstance(canaries, Canaries):
        refuse("canaries", "be what canaries.make returned", type(canaries).__name__)
    if is_language_model(model) and not is_causal_lm(model):
        refuse("model", "be a causal language model of transformers", f"the sequence-to-sequence {type(model).__name__}")
    require_choice(method, METHODS, "method")
    share = require_number(level, "level", low=0.0, high=1.0, low_open=True, high_open=True)
    wanted = require_whole(draws, "draws", low=LEAST_DRAWN)
    whole_seed(seed), require_whole(resamples, "resamples", low=2)
    chosen = method if method != "auto" else "exact" if canaries.space <= ENUMERATED else "sampled"
    if chosen == "exact" and canaries.space > MOST_ENUMERATED:
        refuse("method", f"be 'sampled' or 'extrapolated' for more than {MOST_ENUMERATED:,} secrets", f"'exact' for {canaries.space:,}")
    reading: dict[str, Any] = {"batch_size": batch_size, "device": device}
    groups = _groups(canaries)
    if max(map(len, groups)) >= canaries.space:
        refuse("canaries", "leave possible secrets to compare them with", f"all {canaries.space} as canaries", "Make fewer of them.")
    own = _perplexities(model, list(canaries.sequences), "canaries", reading)
    run = _Run(model, canaries, chosen, wanted, seed, reading)
    others = [_compared(run, group, number, len(groups), progress) for number, group in enumerate(groups)]
    ordered, doubt = _standings(own, groups, others, run, level=share, resamples=resamples)
    table = _table(own, ordered)
    # Of a uniform rank log(|R|/rank) is below an exponential variable, their sum below a Gamma one.
    in_nats = math.log(2) * float(table["exposure_bits"].sum())
    p_value = None if chosen == "extrapolated" else float(stats.gamma.sf(in_nats, len(table)))
    notes = _notes(ordered, doubt, chosen, wanted, canaries.space)
    return CanaryScores(table, chosen, canaries.space, len(others[0]), share, chance_bits(canaries.space), p_value, doubt, notes)


def _standings(
    own: Array, groups: list[list[int]], others: list[Array], run: "_Run", *, level: float, resamples: int
) -> tuple[list[Standing], float | None]:
    """The standing of every canary among the fillings that its group is compared with.

    Beside it stands the least p-value of the fits, None where nothing is fitted.
    """
    standings: dict[int, Standing] = {}
    fits = []
    for group, held in zip(groups, others, strict=True):
        # The other canaries of the group may have been trained on, and are no fillings.
        space = run.canaries.space - len(group) + 1
        if run.method == "extrapolated":
            found, fit = extrapolated_standings(own[group], held, space, level, resamples, run.seed)
            fits.append(fit)
        else:
            found = [_counted(own[row], held, space, None if run.method == "exact" else level) for row in group]
        standings |= dict(zip(group, found, strict=True))
    return [standings[row] for row in range(len(own))], min(fits, default=None)


def _counted(value: float, others: Array, space: int, level: float | None) -> Standing:
    """The standing of a secret by the others that the model does not like less.

    They are all others where no level is given, and draws from them else.
    """
    not_worse = int((others <= value + SAME * max(abs(value), 1.0)).sum())
    return exact_standing(not_worse, space) if level is None else sampled_standing(not_worse, len(others), space, level)


def _table(losses: Array, standings: list[Standing]) -> pd.DataFrame:
    ends = {"low": 0, "high": 1}
    columns: dict[str, Any] = {"loss": losses, "rank": [one.rank for one in standings]}
    columns |= {f"rank_{name}": [one.rank_interval[end] for one in standings] for name, end in ends.items()}
    columns |= {"exposure_bits": [one.bits for one in standings]}
    columns |= {f"exposure_bits_{name}": [one.bits_interval[end] for one in standings] for name, end in ends.items()}
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


@dataclass(frozen=True, eq=False)
class _Run:
    """What stays the same while fillings are run."""

    model: object
    canaries: Canaries
    method: str
    draws: int
    seed: int
    reading: dict[str, Any]


def _perplexities(model: object, sequences: list[Array], argument: str, reading: dict[str, Any]) -> Array:
    """−log p of whole sequences, in nats."""
    found = sequence_losses(model, sequences, progress=False, argument=argument, **reading)
    return found.loss * found.tokens


def _groups(canaries: Canaries) -> list[list[int]]:
    """Canaries that share what is no secret, and so are compared with the same fillings."""
    held: dict[tuple[int, ...], list[int]] = {}
    for row, filling in enumerate(canaries.fillings):
        held.setdefault(tuple(filling[~canaries.form.secret].tolist()), []).append(row)
    return list(held.values())


def _compared(run: _Run, group: list[int], number: int, groups: int, progress: bool) -> Array:
    """Log-perplexities of the fillings that a group of canaries is compared with."""
    canaries = run.canaries
    blocks = _all_fillings(canaries, group) if run.method == "exact" else _drawn_fillings(canaries, group, run.draws, [run.seed, number])
    total = -(-(canaries.space if run.method == "exact" else run.draws) // AT_ONCE)
    label = "Secrets" if groups == 1 else f"Secrets, context {number + 1} of {groups}"
    first = int(canaries.sequences[group[0]][0])
    held = []
    for block in tracked(blocks, label, total=total, show=progress):
        sequences = [canaries.form.tokens(filling) for filling in block]
        if any(int(tokens[0]) != first for tokens in sequences):
            refuse("canaries", "begin with one token", "secrets that differ in their first token", "Begin the form with fixed text.")
        held.append(_perplexities(run.model, sequences, "canaries", run.reading))
    return np.concatenate(held)


def _all_fillings(canaries: Canaries, group: list[int]) -> Iterator[Array]:
    """Every filling with the group's context but the canaries themselves, in blocks."""
    secret = canaries.form.secret
    sizes = [len(slot.options) for slot in canaries.form.slots if slot.secret]
    for start in range(0, canaries.space, AT_ONCE):
        numbers = np.arange(start, min(start + AT_ONCE, canaries.space))
        block = np.repeat(canaries.fillings[group[:1]], len(numbers), axis=0)
        block[:, secret] = np.column_stack(np.unravel_index(numbers, sizes))
        kept = _others(block, canaries.fillings[group])
        if len(kept):
            yield kept


def _drawn_fillings(canaries: Canaries, group: list[int], draws: int, seed: list[int]) -> Iterator[Array]:
    """Fillings drawn uniformly, with replacement, from all but the canaries, in blocks."""
    rng, secret = np.random.default_rng(seed), canaries.form.secret
    sizes = [len(slot.options) for slot in canaries.form.slots if slot.secret]
    left = draws
    while left:
        block = np.repeat(canaries.fillings[group[:1]], min(left, AT_ONCE), axis=0)
        block[:, secret] = rng.integers(0, sizes, (len(block), len(sizes)))
        kept = _others(block, canaries.fillings[group])
        left -= len(kept)
        if len(kept):
            yield kept


def _others(block: Array, own: Array) -> Array:
    """The fillings of a block that are none of the canaries'."""
    kept: Array = block[~(block[:, None] == own[None]).all(2).any(1)]
    return kept


def _notes(standings: list[Standing], fit: float | None, method: str, draws: int, space: int) -> tuple[str, ...]:
    notes = []
    if fit is not None and fit < FIT_DOUBTED:
        notes.append(f"the log-perplexities are not skew-normal (Kolmogorov–Smirnov p = {fit:.2g}): extrapolated exposures may be far off")
    if fit is not None and any(one.rank <= 1 for one in standings):
        notes.append("an extrapolated exposure beyond log₂|R| was set to it: no secret is guessed before the first guess")
    unbeaten = sum(one.rank_interval[0] <= 1 for one in standings) if method == "sampled" else 0
    if unbeaten:
        most = math.log2(min(draws + 1, space))
        notes.append(
            f"the model likes {unbeaten} of {len(standings)} secrets better than all {draws:,} draws: exposures beyond {most:.1f} bits "
            "cannot be told from so few"
        )
    return tuple(notes)
