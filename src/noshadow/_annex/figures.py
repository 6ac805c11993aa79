"""Named figures of an annex: each is one function of an audit, and one line of `FIGURES`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from noshadow._known import PRIORS, accusations, best_known, per_thousand, retraining
from noshadow.outcomes import Absent
from noshadow.results import Audit, Interval, ModelRisk


@dataclass(frozen=True)
class NamedFigure:
    """One figure with everything that a reader needs to judge it.

    Attributes:
        name: for machines. title: for people.
        value: None where it does not exist, and then `reason` says why.
        interval: (low, high) at `interval_level`; None where there is none.
        unit: "share" (of people, shown in a thousand), "probability", "nats", …
        source: "measured", "exposure", "predicted" or "losses", as in `KnownRate`.
        meaning: one sentence without a full stop. reason: where it comes from, or why it is absent.
    """

    name: str
    title: str
    value: float | None
    interval: Interval | None
    interval_level: float | None
    unit: str
    source: str
    meaning: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The figure in plain JSON types."""
        return asdict(self) | {"interval": None if self.interval is None else list(self.interval)}


def named_figures(audit: Audit) -> list[dict[str, Any]]:
    """Every figure of the list that applies to the audit, in the order of the list."""
    made = (figure(audit) for figure in FIGURES)
    return [figure.to_dict() for figure in made if figure is not None]


def _predicted_tpr(audit: Audit) -> NamedFigure | None:
    risk = audit.model_risk
    if risk is None:
        return None
    of = f" of {risk.predicted_attack}" if risk.predicted_attack else ""
    return NamedFigure(
        name="predicted_tpr",
        title=f"Predicted attack rate{of}",
        value=risk.predicted_tpr,
        interval=risk.predicted_tpr_interval,
        interval_level=risk.prediction_level or risk.interval_level,
        unit="share",
        source="predicted",
        meaning=f"share of members that an attack with reference models is predicted to recognise at the level {risk.fpr:.3g}",
        reason=risk.reason,
    )


def _loss_tnr(audit: Audit) -> NamedFigure | None:
    meaning = "share of non-members that the loss attack rules out while it misses a share of members equal to the audit's level"
    return _of_losses(audit.model_risk, "tnr", "Ruled out by the loss attack", "share", meaning)


def _loss_auc(audit: Audit) -> NamedFigure | None:
    meaning = "chance that a member's loss is below a non-member's; 0.5 is a coin toss"
    return _of_losses(audit.model_risk, "auc", "AUC of the loss attack", "probability", meaning)


def _accuracy_gap(audit: Audit) -> NamedFigure | None:
    meaning = "accuracy on training records minus accuracy on test records"
    return _of_losses(audit.model_risk, "accuracy_gap", "Accuracy gap", "difference of shares", meaning)


def _loss_gap(audit: Audit) -> NamedFigure | None:
    unit = "squared error" if audit.task == "regression" else "nats"
    return _of_losses(audit.model_risk, "loss_gap", "Loss gap", unit, "mean loss of test records minus mean loss of training records")


def _of_losses(risk: ModelRisk | None, name: str, title: str, unit: str, meaning: str) -> NamedFigure | None:
    if risk is None or getattr(risk, name) is None:
        return None
    counted = f"{risk.n_members:,} training and {risk.n_nonmembers:,} test records"
    reason = f"From {counted}; {risk.resamples:,} bootstrap resamples, seed {risk.seed}."
    ends = getattr(risk, f"{name}_interval")
    return NamedFigure(name, title, getattr(risk, name), ends, risk.interval_level, unit, "losses", meaning, reason)


def _accusation(prior: float) -> Callable[[Audit], NamedFigure | None]:
    """The figure of accusations where a share `prior` of those asked about is in the data."""

    def figure(audit: Audit) -> NamedFigure | None:
        known = best_known(audit)
        found = next(iter(accusations(known, (prior,))), None)
        if found is None:
            return None
        asked = f"{per_thousand(prior)} people asked about"
        return NamedFigure(
            name=f"accusation_precision_{prior:g}",
            title=f"Right accusations, where {asked} are in the data",
            value=found.precision,
            interval=found.interval,
            interval_level=known.interval_level,
            unit="share",
            source=known.source,
            meaning=f"share of the attack's accusations that are right, where {asked} were in the training data; a guess has that share",
            reason=known.reason,
        )

    return figure


def _flagged_again(audit: Audit) -> NamedFigure | None:
    found = retraining(audit)
    if isinstance(found, Absent):
        return None
    value, low, high = found.flagged_again
    return NamedFigure(
        name="flagged_again",
        title="Flagged again after a retraining",
        value=value,
        interval=(low, high),
        interval_level=found.level,
        unit="share",
        source="exposure",
        meaning="share of the records that an attack flags in one training which it flags in the next, too",
        reason=f"From {found.draws:,} draws, seed {found.seed}; where the model of exposure does not hold, the interval is too short.",
    )


# A further figure is one function and one line.
FIGURES: tuple[Callable[[Audit], NamedFigure | None], ...] = (
    _predicted_tpr,
    _loss_tnr,
    _loss_auc,
    _accuracy_gap,
    _loss_gap,
    *(_accusation(prior) for prior in PRIORS),
    _flagged_again,
)
