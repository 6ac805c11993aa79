"""Sources of evidence about the same records, on one scale, weighed together.

An audit gathers what each source knows as a `Source` and calls `weighed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from noshadow._exposure.basis import basis_of
from noshadow._exposure.entry import answered
from noshadow._exposure.inputs import Given, given, within_reach
from noshadow._exposure.mixed_model import fitted_model
from noshadow._exposure.orders import free_order, mean_score, order_of
from noshadow._exposure.posterior import expected_levels, posterior_of
from noshadow._exposure.result import Exposure
from noshadow._exposure.rules import CHOSEN, FREE_ORDER, Rules
from noshadow._exposure.sizes import sizes_of
from noshadow._exposure.sufficient import sides_of, sums_of
from noshadow.checks import Array, whole_seed
from noshadow.sizing import LEAST_TEST_RECORDS

# How models came to be. Reference models are trained as the audited one was, each on a draw of its
# own. Folds share most of their records with each other and with the audited training. A base is
# what that training started from.
REFERENCES, FOLDS, ORIGIN = "references", "folds", "base"
NO_SCALE = (
    "the sources cannot be put on the audited model's scale: that takes {least} test records that neither had, and there are {count}. "
    "Give more test records."
)


@dataclass(frozen=True, eq=False)
class Source:
    """What one source of evidence knows about n audited records.

    Attributes:
        name: of the source, as evidence of an audit.
        covariates: name → (n,) numbers of which only the order counts, larger or smaller = riskier.
        margins: (K, n) margins of the records under other models (signed residuals in a
            regression), NaN where unknown; on the scale of those models.
        membership: (K, n) whether that model was trained on that record.
        test_margins: (K, t) margins of the audit's test records under the same models, NaN where a
            model was trained on that record.
        early: the models were stopped early. Their level without the record counts as a covariate,
            their slope does not.
        trainings: what the source cost, in trainings of the audited model.
        role: how the models came to be, which decides what rests on their margins (`parted`).
    """

    name: str
    covariates: Mapping[str, Array] = field(default_factory=dict)
    margins: Array | None = None
    membership: Array | None = None
    test_margins: Array | None = None
    early: bool = False
    trainings: float = 0.0
    role: str = REFERENCES

    @property
    def observed(self) -> bool:
        """Whether it has margins of models that were trained to the end."""
        return self.margins is not None and not self.early


@dataclass(frozen=True, eq=False)
class Parted:
    """Sources with margins, by what rests on them.

    Attributes:
        rows: whose margins are observations of the mixed model.
        aside: whose level without the record is a covariate, and nothing else.
    """

    rows: tuple[Source, ...]
    aside: tuple[Source, ...]


@dataclass(frozen=True)
class Line:
    """The line y → offset + slope · y from a source's margins to the audited model's."""

    offset: float
    slope: float
    records: int


def weighed(
    margins: Array,
    test_margins: Array,
    sources: Sequence[Source],
    *,
    free: Mapping[str, Array] | None = None,
    direction: str = "larger",
    level: float = 0.9,
    seed: int = 0,
    rules: Rules = CHOSEN,
) -> Exposure:
    """Weigh what all sources know about each record.

    Margins of models trained to the end are observations of the mixed model of `exposure`, each
    source first put on the audited model's scale by a line through test records; which ones, says
    `parted`. Models that were stopped early give their level without the record as a covariate.
    Everything else is a covariate.

    Args:
        margins: (n,) of the audited model on its training records. test_margins: (t,) on its test
            records.
        sources: what is known beyond the final weights.
        free: name → (n,) columns of the final weights. direction, level, seed: as in `exposure`.
        rules: what no formula decides; others than those chosen are for benchmarks.

    Returns:
        Exposure; order only where a source could not be put on the audited model's scale.

    Cost: as `exposure`, and a fit of the mixed model for each source that was stopped early.
    """
    known, parts = dict(free or {}), parted(sources, test_margins)
    for source in sources:
        known |= source.covariates
    known |= {source.name: mean_without(source, direction) for source in parts.aside}
    early = [source for source in sources if source.early]
    levels = {source.name: level_without(source, margins, known, direction) for source in early}
    known |= levels
    if not parts.rows:
        return _by_order(margins, known, levels, direction, level)
    lines = [line_to(source, test_margins) for source in parts.rows]
    rows, inside = _stacked(parts.rows, lines)
    whole_seed(seed)
    arguments = replace(given(margins, known, rows, inside, direction, level), counted=_counted(parts.rows))
    found = answered(arguments, rules)
    unscaled = [line.records for line in lines if line.records < LEAST_TEST_RECORDS]
    if not unscaled:
        return found
    reason = NO_SCALE.format(least=LEAST_TEST_RECORDS, count=min(unscaled))
    return replace(found, interval=np.full_like(found.interval, np.nan), order_only=True, reason=reason)


def parted(sources: Sequence[Source], test_margins: Array) -> Parted:
    """Decide what rests on which margins.

    Where reference models on the audited model's scale identify sizes, their margins alone are
    observations: what sets a base, folds or models of an unknown scale apart from the audited
    training would pass for a spread from model to model, and their level without the record is a
    covariate. Elsewhere all are observations, of an order only. A base is one as long as nothing
    else has margins: it is no draw of the trainings that the others are draws of.

    Args:
        sources: all of them. test_margins: (t,) of the audited model.
    """
    full = [source for source in sources if source.observed]
    lines = {source.name: line_to(source, test_margins) for source in full}
    references = [source for source in full if source.role == REFERENCES and lines[source.name].records >= LEAST_TEST_RECORDS]
    if references and not sizes_of(*_stacked(references, [lines[source.name] for source in references])).order_only:
        rows = references
    else:
        others = [source for source in sources if source.margins is not None and source.role != ORIGIN]
        rows = [source for source in full if not others or source.role != ORIGIN]
    return Parted(tuple(rows), tuple(source for source in full if source not in rows))


def mean_without(source: Source, direction: str) -> Array:
    """Mean (n,) of the margins of a source's models without the record, NaN where it has none.

    Of the sizes of signed residuals.
    """
    assert source.margins is not None and source.membership is not None
    outside = np.where(source.membership, np.nan, np.abs(source.margins) if direction == "either" else source.margins)
    held = (~np.isnan(outside)).sum(0)
    mean: Array = np.where(held > 0, np.nansum(outside, 0) / np.maximum(held, 1), np.nan)
    return mean


def line_to(source: Source, test_margins: Array) -> Line:
    """The line from a source's margins to the audited model's, through test records.

    slope = sd(audited) / sd(source), offset = mean(audited) − slope · mean(source), over all pairs
    of a model and a test record that it was not trained on. Both margins carry the noise of a
    training, so this is the line of equal standing (the standardised major axis): a regression of
    one on the other would shrink the source's differences by their correlation. The identity where
    fewer than LEAST_TEST_RECORDS test records are known; the caller then gives order only.

    Exact when: the source's models differ from the audited one by a line and by noise of the same
        share. Cost: O(Kt).
    """
    theirs = source.test_margins
    if theirs is None or theirs.shape[1] == 0:
        return Line(0.0, 1.0, 0)
    seen = ~np.isnan(theirs)
    count = int(seen.any(0).sum())
    own = np.broadcast_to(test_margins, theirs.shape)[seen]
    if count < LEAST_TEST_RECORDS or theirs[seen].std() == 0 or own.std() == 0:
        return Line(0.0, 1.0, min(count, LEAST_TEST_RECORDS - 1))
    slope = float(own.std() / theirs[seen].std())
    return Line(float(own.mean() - slope * theirs[seen].mean()), slope, count)


def level_without(source: Source, margins: Array, covariates: Mapping[str, Array], direction: str) -> Array:
    """Posterior mean (n,) of a record's level under the source's models without it.

    Few margins per record are shrunk to what the audited margin and the covariates predict, by the
    mixed model of `exposure`. The level of a regression is that of the residual's size, negative.

    Args:
        source: with margins. margins: (n,) of the audited model. covariates: name → (n,).
        direction: as in `exposure`.
    """
    assert source.margins is not None and source.membership is not None
    near, _ = within_reach(Given(margins, {}, source.margins, source.membership, direction, 0.9, ()), CHOSEN.reach)
    rows = -np.abs(near.references) if direction == "either" else near.references
    sides, basis = sides_of(rows, source.membership), basis_of({"margins": margins} | dict(covariates), len(margins))
    fitted = fitted_model(sums_of(sides, basis), float(np.nanstd(rows)) or 1.0)
    found: Array = posterior_of(sides, expected_levels(basis, fitted), fitted.slopes, fitted.variances[:, None]).levels[0]
    return found


def _stacked(sources: Sequence[Source], lines: Sequence[Line]) -> tuple[Array, Array]:
    """Margins (K, n) of all models on the audited model's scale, and their membership."""
    rows = [line.offset + line.slope * source.margins for source, line in zip(sources, lines, strict=True) if source.margins is not None]
    return np.vstack(rows), np.vstack([source.membership for source in sources if source.membership is not None])


def _counted(sources: Sequence[Source]) -> Array:
    """Which rows (K,) are margins of reference models, on which sizes rest."""
    return np.repeat(
        [source.role == REFERENCES for source in sources], [len(source.margins) for source in sources if source.margins is not None]
    )


def _by_order(margins: Array, known: Mapping[str, Array], levels: Mapping[str, Array], direction: str, level: float) -> Exposure:
    """The order without a margin of any finished model.

    Free columns and levels of short references each count as the normal score of their ranks, the
    free columns together as one. A single one ranks by itself.
    """
    free = {name: known[name] for name in FREE_ORDER if name in known}
    single = {f"−level without the record ({name})": -values for name, values in levels.items()} | free
    if not single:
        size = np.abs(margins) if direction == "either" else -margins
        return order_of(size, "|residual|" if direction == "either" else "−margin", direction, level)
    if len(single) == 1:
        ((name, values),) = single.items()
        return order_of(np.where(np.isnan(values), -np.inf, values), name, direction, level)
    together = free_order(known)
    orders = [-values for values in levels.values()] + ([] if together is None else [together])
    return order_of(mean_score(orders), f"mean rank of {', '.join(single)}", direction, level)
