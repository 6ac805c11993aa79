"""Records of results: what an audit found, as frozen values that go to JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from noshadow.arguments import renamed_attribute
from noshadow.checks import named_in_errors, refuse
from noshadow.storage.forms import Count, Level, Share, Size, require_form

Interval = tuple[float, float]


@dataclass(frozen=True)
class TnrCurve:
    """True-negative rate of the loss attack over false-negative rates.

    Each tuple holds one entry per rate.

    Attributes:
        levels: false-negative rates, ascending.
        tnr: true-negative rate at each level.
        low: lower ends of the pointwise intervals.
        high: upper ends.
    """

    levels: tuple[Level, ...]
    tnr: tuple[Share, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @named_in_errors
    def __post_init__(self) -> None:
        lengths = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(lengths.values())) > 1:
            refuse("levels, tnr, low and high", "have one length", f"{lengths}")
        for field in fields(self):
            for value in getattr(self, field.name):
                _require_finite_number(value, field.name)


@dataclass(frozen=True)
class ModelRisk:
    """How exposed a model is as a whole. Larger = riskier.

    The figures are measured from member and non-member losses.

    Every `*_interval` is a (low, high) percentile-bootstrap interval at `interval_level`; None
    where its value is None.

    Attributes:
        fpr: false-positive rate of the attack in question, and the false-negative rate at which
            `tnr` is read.
        tnr: share of non-members whose loss exceeds `threshold`.
        threshold: smallest member loss that at most a share `fpr` of member losses exceed.
        auc: probability that a member's loss is below a non-member's, ties counted half.
        predicted_tpr: predicted true-positive rate of a reference-model attack at `fpr`; None
            without a calibration. Its interval is a prediction interval at the calibration's level.
        in_calibration_domain: whether the model resembles the setups behind the prediction; None
            without one.
        reason: one sentence on why there is a prediction or none.
        loss_gap: mean non-member loss − mean member loss.
        accuracy_gap: member accuracy − non-member accuracy; None when correctness was not given.
        ks: Kolmogorov–Smirnov distance of the two loss samples.
        wasserstein: Wasserstein-1 distance of the two loss samples, in units of the loss.
        n_members, n_nonmembers: sample sizes.
        curve: `tnr` over a range of levels.
        resamples, interval_level, seed: how the intervals were drawn.
        reference_models: number of reference models of the attack that `predicted_tpr` is about;
            "references" in files.
        calibration: name of the calibration behind it. predicted_from: what it read.
            prediction_level: coverage of `predicted_tpr_interval`. predicted_attack: the attack
            whose rate is predicted ("LiRA", "the stronger of LiRA and RMIA"); None without one and
            in older folders.
        extrapolated: TNR at levels below 1/n_members, from a fitted generalised Pareto tail; None
            when the records are too few to fit one or the losses show no tail. An extrapolation,
            not a measurement.
        notes: what looks wrong about the two samples, in sentences.
    """

    fpr: Level
    tnr: Share
    tnr_interval: Interval
    threshold: float
    auc: Share
    auc_interval: Interval
    predicted_tpr: Share | None
    predicted_tpr_interval: Interval | None
    in_calibration_domain: bool | None
    reason: str
    loss_gap: float
    loss_gap_interval: Interval
    accuracy_gap: float | None
    accuracy_gap_interval: Interval | None
    member_accuracy: Share | None
    nonmember_accuracy: Share | None
    ks: Share
    ks_interval: Interval
    wasserstein: Size
    wasserstein_interval: Interval
    n_members: Count
    n_nonmembers: Count
    curve: TnrCurve
    resamples: Count
    interval_level: Level
    seed: Count
    reference_models: Count | None = None
    calibration: str | None = None
    predicted_from: str | None = None
    prediction_level: Level | None = None
    extrapolated: TnrCurve | None = None
    notes: tuple[str, ...] = ()
    predicted_attack: str | None = None

    references = renamed_attribute("references", "reference_models")

    @named_in_errors
    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _NOT_NUMBERS or (value is None and field.name in _MAY_BE_NONE):
                continue
            if field.name.endswith("_interval"):
                _require_interval(value, field.name)
            else:
                _require_finite_number(value, field.name)

    @named_in_errors
    def to_dict(self) -> dict[str, Any]:
        """Return the record in plain JSON types.

        These are numbers (never NaN or infinity), text, lists, dictionaries and None.
        """
        return {_IN_FILES.get(field.name, field.name): _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    @named_in_errors
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelRisk":
        """The record that `to_dict` wrote.

        Raises:
            InputError: a field is missing, unknown or not of its kind.
        """
        _require_keys(data, cls, "data")
        named = {word: name for name, word in _IN_FILES.items()}
        data = {named.get(word, word): value for word, value in data.items()}
        require_form(data, cls, "model_risk", "Written by another version?")
        given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        for name in ("curve", "extrapolated"):
            if name == "curve" or data.get(name) is not None:
                _require_keys(data[name], TnrCurve, name)
                given[name] = TnrCurve(**{column: tuple(values) for column, values in data[name].items()})
        return cls(**given)


# Fields that files know by an older word: folders of all versions hold the same keys.
_IN_FILES = {"reference_models": "references"}
_NOT_NUMBERS = frozenset(
    {"reason", "in_calibration_domain", "curve", "calibration", "predicted_from", "predicted_attack", "extrapolated", "notes"}
)
_MAY_BE_NONE = frozenset(
    {
        "predicted_tpr",
        "predicted_tpr_interval",
        "accuracy_gap",
        "accuracy_gap_interval",
        "member_accuracy",
        "nonmember_accuracy",
        "reference_models",
        "prediction_level",
    }
)


def _plain(value: Any) -> Any:
    if isinstance(value, TnrCurve):
        return {field.name: list(getattr(value, field.name)) for field in fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _require_keys(data: object, record: type, argument: str) -> None:
    if not isinstance(data, Mapping):
        refuse(argument, "be a dictionary", type(data).__name__)
    known = {_IN_FILES.get(field.name, field.name) for field in fields(record)}
    # Fields with a default came later: an older folder does not have them.
    needed = {_IN_FILES.get(field.name, field.name) for field in fields(record) if field.default is MISSING}
    missing, unknown = sorted(needed - set(data)), sorted(set(data) - known)
    if missing or unknown:
        got = "; ".join(f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names)
        refuse(argument, f"hold exactly the fields of {record.__name__}", got, "Written by another version?")


def _require_interval(value: object, name: str) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        refuse(name, "be a (low, high) pair", repr(value))
    for end in value:
        _require_finite_number(end, name)
    if value[0] > value[1]:
        refuse(name, "have low ≤ high", repr(value))


def _require_finite_number(value: object, name: str) -> None:
    # NumPy scalars are refused too: they would not survive strict JSON.
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        refuse(name, "be a finite Python number", repr(value))
