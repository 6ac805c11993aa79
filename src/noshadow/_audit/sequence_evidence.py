"""What is known about sequences beyond a head's scores: tokens, the base, and both as attacks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noshadow._audit.language_base import ReadBase
from noshadow._audit.other_models import BASE
from noshadow.checks import Array, NotApplicable, users_code
from noshadow.columns import named
from noshadow.metrics import auc, auc_interval, error_budget
from noshadow.outcomes import Absent, not_applicable
from noshadow.reference.target_attacks import measured_attack
from noshadow.results import Evidence, MeasuredAttack
from noshadow.scores.token_scores import ALONE, LEAST_ERRORS, NOTHING_SAID, WITH_BASE, zlib_ratio
from noshadow.views import SequenceLosses

TOKENS = "tokens"
LEVELS = (1e-2, 1e-3)
NO_TOKENIZER = not_applicable("zlib compresses text, and tokens become text by the model's tokenizer: give it (tokenizer=)")


def texts_of(read: SequenceLosses | None, tokenizer: Any) -> list[str] | None:
    """The texts of sequences by the model's tokenizer; of pairs, the answers."""
    if read is None or tokenizer is None or read.sequences is None:
        return None
    first = 0 if read.sequences.sources is None else 1
    with users_code("tokenizer must decode the tokens of every sequence"):
        return [str(tokenizer.decode(tokens[first:].tolist(), skip_special_tokens=True)) for tokens in read.sequences.tokens]


def token_columns(read: SequenceLosses, texts: Sequence[str] | None) -> dict[str, Array]:
    """Columns of the audited model alone: name → (n,)."""
    assert read.statistics is not None
    found = {name: column(read.statistics) for name, column in ALONE.items()}
    return found | ({} if texts is None else {"zlib_ratio": zlib_ratio(read.loss, texts)})


def base_columns(read: SequenceLosses, base: SequenceLosses) -> dict[str, Array]:
    """Columns of the audited model beside its base: name → (n,).

    The gain over the base is −(1/T) Σ log q(x_t) + (1/T) Σ log p(x_t), its loss minus the model's.
    """
    assert read.statistics is not None and base.statistics is not None
    found = {"base_loss": base.loss, "base_gain": base.loss - read.loss}
    return found | {name: column(read.statistics, base.statistics) for name, column in WITH_BASE.items()}


def token_evidence(columns: dict[str, Array]) -> Evidence:
    """Evidence of the audited model's own tokens."""
    return Evidence(TOKENS, columns, absent={} if "zlib_ratio" in columns else {"zlib_ratio": NO_TOKENIZER})


def base_evidence(
    columns: Mapping[str, Array], base: ReadBase | NotApplicable, test_columns: Mapping[str, Array], own: object = None
) -> Evidence:
    """Evidence of the base: its losses, and how the model moved away from it.

    Args:
        columns, test_columns: of both splits. base: what was read, or why nothing was. own: why
            `own_gain` is not among the columns, where it is not.
    """
    if isinstance(base, NotApplicable):
        return Evidence(BASE, absent=dict.fromkeys(named(source=BASE), not_applicable(base)))
    stamp = base.stamp | _base_as_attack(columns, test_columns)
    absent: dict[str, str] = {"own_gain": not_applicable(own)} if isinstance(own, NotApplicable) else {}
    notes = (*base.notes, *_silent(columns["error_zone"]))
    return Evidence(BASE, dict(columns), absent=absent, notes=notes, stamp=stamp, seconds=base.seconds)


def sequence_attacks(
    columns: Mapping[str, Array], test_columns: Mapping[str, Array], *, own: float | None, seed: int
) -> tuple[MeasuredAttack, ...]:
    """Each column as an attack on training against test sequences: AUC and rates with intervals.

    Args:
        columns, test_columns: name → (n,) of both splits, `loss` among them, whose minus is the
            attack. own: the audit's false-positive rate, measured beside 0.01 and 0.001. Levels
            that the test sequences do not resolve are left out. seed: of the intervals.

    Cost: O(n log n) a column.
    """
    count = len(test_columns["loss"])
    if count < 2:
        return ()
    levels = sorted({*LEVELS, *(() if own is None else (own,))}, reverse=True)
    resolved = [level for level in levels if error_budget(level, count) > 0]
    scores = {name: (columns[name], test_columns[name]) for name in columns if name not in ("loss", "base_loss")}
    scores["loss"] = (-columns["loss"], -test_columns["loss"])
    return tuple(measured_attack(name, *pair, resolved, seed) for name, pair in scores.items())


def attacks_absent(count: int) -> dict[str, Absent]:
    """Why sequences were not attacked, where they were not."""
    why = "there are no test sequences" if count == 0 else "one test sequence is too few"
    return {} if count > 1 else {"sequence_attacks": not_applicable(why)}


def _base_as_attack(columns: Mapping[str, Array], test_columns: Mapping[str, Array]) -> dict[str, Any]:
    """How well the base, which was trained on neither split, tells the two apart."""
    if len(test_columns.get("base_loss", ())) < 2:
        return {"auc": None, "auc_interval": None}
    pair = (-columns["base_loss"], -test_columns["base_loss"])
    return {"auc": auc(*pair), "auc_interval": list(auc_interval(*pair))}


def _silent(values: Array) -> tuple[str, ...]:
    silent = int((values == NOTHING_SAID).sum())
    if not silent:
        return ()
    why = f"the model puts another token first fewer than {LEAST_ERRORS} times there, or moves are in balance"
    return (f"the error zone says nothing about {silent} of {len(np.atleast_1d(values))} sequences (0.5): {why}",)
