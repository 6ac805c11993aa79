"""Figures about all records' rates together: the largest of them, and what a retraining keeps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from noshadow.figures.model_risk import Interval
from noshadow.storage.forms import Count, Keys, Level, Share, Such, require_form

# A share with both ends of its interval.
Between = tuple[float, float, float]

_ENDS = Such(tuple[Share, Share], "begin with the smaller end", lambda ends: ends[0] <= ends[1])
_BETWEEN = Such(tuple[Share, Share, Share], "hold a share within its interval", lambda three: three[1] <= three[0] <= three[2])
LARGEST_FORM = Keys(
    {"fpr": Level, "median": Share, "mean": Share, "interval": _ENDS, "level": Level, "records": Count, "draws": Count, "seed": int}
)
RETRAINING_FORM = Keys(
    {"fpr": Level, "flagged_again": _BETWEEN, "top_flagged": _BETWEEN, "top_overlap": _BETWEEN, "top": Level, "top_records": Count}
    | {"level": Level, "draws": Count, "seed": int}
)


@dataclass(frozen=True)
class LargestRate:
    """Posterior of the largest of all records' true rates.

    Attributes:
        fpr: false-positive rate of the attack. median, mean: of the largest rate.
        interval: central, at `level`. level: its coverage under the model.
        records: among how many. draws, seed: how it was drawn.
    """

    fpr: float
    median: float
    mean: float
    interval: Interval
    level: float
    records: int
    draws: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The figure in plain JSON types."""
        return asdict(self) | {"interval": list(self.interval)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LargestRate":
        """The figure that `to_dict` wrote.

        Raises:
            InputError: fields are missing or of another kind.
        """
        require_form(data, LARGEST_FORM, "largest_rate", "Written by another version?")
        held = {field.name: data[field.name] for field in fields(cls)}
        return cls(**held | {"interval": tuple(data["interval"])})


@dataclass(frozen=True)
class Retraining:
    """What becomes of records' flags when the model is trained again; (median, low, high) each.

    Attributes:
        fpr: false-positive rate of the flags.
        flagged_again: share of the records flagged in one training that the next flags again.
        top_flagged: share of trainings that flag a record of today's top, in the mean over these.
        top_overlap: share of one training's top that is in the next one's top.
        top: share of the records that is the top. top_records: how many these are.
        level: coverage of the intervals under the model. draws, seed: how they were drawn.
    """

    fpr: float
    flagged_again: Between
    top_flagged: Between
    top_overlap: Between
    top: float
    top_records: int
    level: float
    draws: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """The figures in plain JSON types."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Retraining":
        """The figures that `to_dict` wrote.

        Raises:
            InputError: fields are missing or of another kind.
        """
        require_form(data, RETRAINING_FORM, "retraining", "Written by another version?")
        held: dict[str, Any] = {field.name: data[field.name] for field in fields(cls)}
        tuples: dict[str, Any] = {name: tuple(value) for name, value in held.items() if isinstance(value, list)}
        return cls(**held | tuples)
