"""What a model and its two splits are turned into before any score is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import Array, refuse
from noshadow.outcomes import Absent, Damping
from noshadow.signals import Signals


@dataclass(frozen=True, eq=False)
class View:
    """Signals of both splits, and what the model itself says about how it was trained.

    Attributes:
        train: signals of the training records, in the data's own order.
        test: signals of records the model has not seen; may hold none.
        task: "auto", or the task the caller named or the model settles.
        head: the linear layer that was read, for people; None when the model has none.
        fit_intercept: whether the head has a bias.
        penalize_intercept: whether the training's penalty λ also acts on the bias.
        penalty: λ of the training on the sum scale (Σ over records + λI), or why it is unknown.
            `damping` is its value, None when unknown; `damping_source` says where it comes from, or
            why it is unknown.
        sample_weight: (n,) weights of the training records, or None when all weigh the same.
        class_names: names of classes 0 … m − 1, or None.
        not_applicable: why record scores do not exist for this model, or None.
        notes: sentences a reader of the results needs to know.
        weights_sha256: hex digest of the trained parameters (of a pipeline: of its last step).
        inputs: facts about how model and data were read that findings are drawn from, by name;
            JSON-ready.
    """

    train: Signals
    test: Signals
    task: str
    head: str | None
    fit_intercept: bool
    penalize_intercept: bool
    penalty: Damping | Absent
    sample_weight: Array | None
    class_names: tuple[str, ...] | None
    not_applicable: str | None
    notes: tuple[str, ...]
    weights_sha256: str
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def damping(self) -> float | None:
        """λ of the training, None when unknown."""
        return self.penalty.value if isinstance(self.penalty, Damping) else None

    @property
    def damping_source(self) -> str:
        """Where λ comes from, or why it is unknown, in one sentence."""
        return self.penalty.sentence if isinstance(self.penalty, Damping) else self.penalty.reason


@dataclass(frozen=True)
class Settings:
    """How to run over the data, and which function error messages name."""

    layer: str = "auto"
    batch_size: int = BATCH_SIZE
    device: object = None
    progress: bool = PROGRESS
    seed: int = 0
    output: str | int = "auto"

    def __post_init__(self) -> None:
        named = isinstance(self.output, str) and self.output != ""
        if not named and (isinstance(self.output, bool) or not isinstance(self.output, int) or self.output < 0):
            refuse("output", "be 'auto', the name of an output or its position from 0", repr(self.output))
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, int) or self.batch_size < 1:
            refuse("batch_size", "be a whole number ≥ 1", repr(self.batch_size))


def no_records(like: Signals) -> Signals:
    """Signals of length 0 with the columns of another split."""
    features = None if like.features is None else like.features[:0]
    return Signals(features, like.outputs[:0], like.targets[:0])
