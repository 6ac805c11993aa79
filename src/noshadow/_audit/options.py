"""What the caller of an audit asked for, checked before any work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noshadow.checks import TASKS, refuse, require_choice, require_number, require_whole, whole_seed
from noshadow.outcomes import FUNCTION, OBJECTS
from noshadow.output_scale import SCALES
from noshadow.traces import GivenTraces


def source_of(train_fn: object) -> str:
    """Whether the caller said how a model like the audited one is trained."""
    return FUNCTION if callable(train_fn) else OBJECTS


@dataclass(frozen=True)
class Options:
    """What the caller asked for, apart from model and data; recorded in the audit as given."""

    task: str
    damping: float | str
    weight_decay: float | None
    fpr: float | str
    seed: int
    progress: bool
    call: str  # "audit" or "audit_signals", for the stamp
    layers: str | int = "last"
    output_scale: str = "auto"
    score_options: Mapping[str, Any] = field(default_factory=dict)
    source: str = OBJECTS  # one of `outcomes.SOURCES_OF_MODELS`

    def __post_init__(self) -> None:
        """Check the options before any work, and keep them as plain numbers that JSON holds."""
        require_choice(self.task, ("auto", *TASKS), "task")
        require_choice(self.output_scale, SCALES, "output_scale")
        plain: dict[str, Any] = {"seed": whole_seed(self.seed)}
        if not _is_auto(self.damping):
            plain["damping"] = require_number(self.damping, "damping", low=0.0)
        if self.weight_decay is not None:
            plain["weight_decay"] = require_number(self.weight_decay, "weight_decay", low=0.0)
        if isinstance(self.layers, str):
            require_choice(self.layers, ("last", "all"), "layers")
        else:
            plain["layers"] = require_whole(self.layers, "layers", low=1)
        if not _is_auto(self.fpr):
            plain["fpr"] = require_number(self.fpr, "fpr", low=0.0, high=1.0, low_open=True, high_open=True)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @property
    def resampling(self) -> dict[str, Any]:
        """How rates are measured: their level and the seed of their intervals."""
        return {"fpr": self.fpr, "seed": self.seed}

    def refuse_score_options(self, reason: str) -> None:
        """Refuse options for scores that do not exist.

        So nothing that was asked for vanishes silently.
        """
        if self.score_options:
            got = ", ".join(self.score_options)
            refuse("score_options", "be left out where there are no record scores", f"{got} ({reason})")


@dataclass(frozen=True, eq=False)
class GivenColumns:
    """What the caller said about the records, beside their data."""

    ids: Sequence[object] | None = None
    groups: Sequence[object] | None = None
    test_groups: Sequence[object] | None = None
    loss_traces: GivenTraces | None = None


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"
