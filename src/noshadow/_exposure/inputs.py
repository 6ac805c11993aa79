"""Arguments of `exposure`, checked once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from noshadow._exposure.odd_rows import require_other_margins
from noshadow.checks import Array, as_array, numeric_array, refuse, require_choice, require_finite, require_number

DIRECTIONS = ("larger", "either")
MOST_MODELS = 4096
LEAST_RECORDS = 20
# At least this share of the records needs a margin of a model without them: less says nothing about
# that side.
LEAST_OUT = 0.25
SCALES_APART = 10.0
ROBUST_WIDTH = 3.2897  # distance of the 5 % and 95 % quantiles of a standard normal


@dataclass(frozen=True, eq=False)
class Given:
    """Margins (n,), covariates by name, references and membership (K, n).

    Signed statistics are all turned to the side of the margin.

    Attributes:
        counted: (K,) which references tell sizes; None: all.
    """

    margins: Array
    covariates: Mapping[str, Array]
    references: Array
    membership: Array
    direction: str
    level: float
    notes: tuple[str, ...]
    counted: Array | None = None

    @property
    def turned(self) -> "Given":
        """For "either", every statistic times the sign of the audited model's own.

        Both signs are then one problem.
        """
        if self.direction == "larger":
            return self
        sign = np.where(self.margins < 0, -1.0, 1.0)
        return replace(self, margins=self.margins * sign, references=self.references * sign)


def within_reach(arguments: Given, reach: float) -> tuple[Given, float]:
    """The same arguments with margins beyond `reach` drawn in to it, and the share of these.

    The reach is counted from the median in robust standard deviations, (q95 − q5)/3.29 of all
    margins together. Networks give a few records margins that are far from all others and differ
    wildly between models; squares of these would decide every variance of the model.
    """
    together = np.concatenate([arguments.margins[None], arguments.references])
    low, middle, high = np.nanquantile(together, (0.05, 0.5, 0.95))
    half = reach * (high - low) / ROBUST_WIDTH
    if not half > 0:
        return arguments, 0.0
    share = float(np.mean(np.abs(together - middle) > half))
    own, rows = (np.clip(values, middle - half, middle + half) for values in (arguments.margins, arguments.references))
    return replace(arguments, margins=own, references=rows), share


def given(margins: object, covariates: object, references: object, membership: object, direction: object, level: object) -> Given:
    """All arguments as arrays that fit together; notes on what is odd but allowed."""
    require_choice(direction, DIRECTIONS, "direction")
    coverage = require_number(level, "level", low=0, high=1, low_open=True, high_open=True)
    own = numeric_array(margins, "margins", ndim=1).astype(np.float64)
    n = len(own)
    if n < LEAST_RECORDS:
        refuse("margins", f"hold at least {LEAST_RECORDS} records", n, "Fewer cannot be told apart from noise.")
    named = _covariates(covariates, n)
    if (references is None) != (membership is None):
        refuse("references and membership", "be given together", "one of the two")
    if references is None:
        return Given(own, named, np.empty((0, n)), np.empty((0, n), dtype=bool), str(direction), coverage, ())
    rows, inside = _references(references, membership, n)
    notes = _odd_rows(rows, inside, own, str(direction))
    return Given(own, named, rows, inside, str(direction), coverage, notes)


def _covariates(covariates: object, n: int) -> dict[str, Array]:
    if covariates is None:
        return {}
    if not isinstance(covariates, Mapping):
        refuse("covariates", "be a dict of name → one number per record", type(covariates).__name__)
    found = {}
    for name, values in covariates.items():
        array = as_array(values, f"covariates[{name!r}]")
        if array.shape != (n,) or array.dtype.kind not in "biuf":
            got = f"shape {array.shape}, dtype {array.dtype}"
            refuse(f"covariates[{name!r}]", f"be {n} numbers, one per record", got, "Missing values are NaN.")
        found[str(name)] = array.astype(np.float64)
    return found


def _references(references: object, membership: object, n: int) -> tuple[Array, Array]:
    rows = as_array(references, "references")
    inside = as_array(membership, "membership")
    if rows.ndim != 2 or rows.shape[1] != n or rows.dtype.kind not in "biuf":
        refuse("references", f"be (models, {n}) margins", f"shape {rows.shape}, dtype {rows.dtype}")
    if inside.dtype.kind != "b" or inside.shape != rows.shape:
        refuse("membership", f"be {rows.shape} booleans, one for each margin", f"shape {inside.shape}, dtype {inside.dtype}")
    if len(rows) > MOST_MODELS:
        refuse("references", f"hold at most {MOST_MODELS} models", len(rows))
    values = rows.astype(np.float64)
    require_finite(np.where(np.isnan(values), 0.0, values), "references")
    if len(values) and np.isnan(values).all(1).any():
        refuse("references", "hold margins of every model", f"none of model {int(np.isnan(values).all(1).argmax())}")
    return values, inside


def _odd_rows(rows: Array, inside: Array, own: Array, direction: str) -> tuple[str, ...]:
    """Refuse references that are no margins of other models.

    Notes name those that are far from the audited model's scale.
    """
    for model, row in enumerate(rows):
        require_other_margins(row, own, model, direction)
    share = float((~inside & ~np.isnan(rows)).any(0).mean()) if len(rows) else 1.0
    if share < LEAST_OUT:
        rule = f"leave at least {LEAST_OUT:.0%} of the records out of some model"
        refuse("membership", rule, f"one for {share:.0%} of them", "Without that side there is nothing to compare with.")
    wide = [_spread(row) for row in (own, *rows)]
    ratio = max((w / wide[0] if wide[0] > 0 else 1.0 for w in wide[1:]), default=1.0)
    if max(ratio, 1 / ratio if ratio > 0 else np.inf) > SCALES_APART and len(rows):
        return (f"A reference's margins spread {ratio:.3g} times as widely as the audited model's: are they on one scale?",)
    return ()


def _spread(row: Array) -> float:
    low, high = np.nanquantile(row, (0.25, 0.75))
    return float(high - low)
