"""What a family of models can give: one `Reader` per family, made in the family's own file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from noshadow.checks import Array, NotApplicable
from noshadow.signals import Signals
from noshadow.views.boosted import Boosted
from noshadow.views.leaf_counts import LeafCounts
from noshadow.views.view import Settings, View

# Names that the shipped calibration knows; other families go by names of their own.
LINEAR, NETWORK = "linear", "network"
NO_STAGES = NotApplicable("the model keeps no stages of its training")
NO_ROUNDS = NotApplicable("the model is no sum of boosted trees")
NO_BAGS = NotApplicable("no part of the model is known to be trained without a record")

NOT_LEFT_OUT = NotApplicable("what the model would say without a record is known by training it again only")

Form = Literal["batches", "table", "sequences"]
Transform = Callable[[Any], Any]


class OtherRecords(NotApplicable):
    """The model contradicts the records that it is said to be fitted on."""


@dataclass(frozen=True, eq=False)
class OutOfBag:
    """What those parts of a model that were trained without a record say of it.

    Attributes:
        outputs: (n, m) their mean, on the scale of the model's outputs; NaN where there is none.
        parts: (n,) how many of them there are per record.
        whole: how many parts the model has.
    """

    outputs: Array
    parts: Array
    whole: int


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What a model would say of each training record had it been fitted without that record.

    Attributes:
        outputs: (n, m) on the scale of the model's outputs; NaN where no other record determines
            an answer.
        how: what stays fixed when a record leaves, in words: one sentence without a full stop.
        notes: sentences a reader must see.
        leaves: how many training records share the leaves of its trees; None without trees.
        parts: how many trees voted; 1 for models that are no forest.
    """

    outputs: Array
    how: str
    notes: tuple[str, ...] = ()
    leaves: LeafCounts | None = None
    parts: int = 1


class ViewOf(Protocol):
    """Both splits with head, penalty and digest; arguments as in `view`."""

    def __call__(  # noqa: D102
        self, model: Any, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings
    ) -> View: ...


class SignalsOf(Protocol):
    """Features and outputs of one split; arguments as in `collect_signals`."""

    def __call__(self, model: Any, data: object, *, settings: Settings) -> Signals: ...  # noqa: D102


class OutputsOf(Protocol):
    """Outputs of one split, and the task they settle; arguments as in `collect_outputs`."""

    def __call__(  # noqa: D102
        self, model: Any, data: object, *, task: str, transform: Transform | None, settings: Settings
    ) -> tuple[Signals, str]: ...


class StagesOf(Protocol):
    """Outputs (n, m) of one split after each stage of the training, on the scale of `outputs`."""

    def __call__(self, model: Any, data: object, *, settings: Settings) -> Iterator[Array]: ...  # noqa: D102


class OutOfBagOf(Protocol):
    """What the parts trained without a record say of it; `data` are the training records."""

    def __call__(self, model: Any, data: object, *, settings: Settings) -> OutOfBag: ...  # noqa: D102


class BoostedOf(Protocol):
    """Rounds of the training of a boosted model; `data` are the training records."""

    def __call__(self, model: Any, data: object, *, weights: Array | None, settings: Settings) -> Boosted: ...  # noqa: D102


class LeftOutOf(Protocol):
    """What the model would say of each training record without it; `data` are these records."""

    def __call__(self, model: Any, data: object, *, sample_weight: Array | None, settings: Settings) -> LeftOut: ...  # noqa: D102


@dataclass(frozen=True, eq=False, kw_only=True)
class Reader:
    """What one family of models can give, as functions of a model and of data as users hold them.

    What a family cannot give is a `NotApplicable` whose sentence says why. Estimators that read a
    table (X, y) need not fill this in: `estimator_reader` makes it from functions of the fitted
    model.

    Attributes:
        name: of the family, in words; unique in the list of readers.
        form: how records reach the model: "batches" (an nn.Module), "table" (X, y) or "sequences".
        reads: whether a model is of this family. It must not fail, whatever it is given.
        family: model → the name that calibrations know, e.g. "linear" or "network".
        view: outputs, features, head and penalty of both splits.
        signals: features and outputs of one split.
        outputs: outputs of one split.
        weights_sha256: (model, outputs) → hex digest of the trained parameters.
        history: outputs after each stage of the training.
        out_of_bag: outputs of the parts that were trained without each record.
        boosted: the rounds of the training of a boosted model, with the leaf of each record.
        left_out: outputs for each record of the model without it, where no training is needed.
        votes: model → how many of its parts vote for a class; 0 where its outputs are no votes.
        open_scale: whether a classifier's outputs may be logits or probabilities, as far as the
            reader knows.
    """

    name: str
    form: Form
    reads: Callable[[object], bool]
    family: Callable[[Any], str]
    view: ViewOf | NotApplicable
    signals: SignalsOf | NotApplicable
    outputs: OutputsOf | NotApplicable
    weights_sha256: Callable[[Any, Array], str]
    history: StagesOf | NotApplicable = NO_STAGES
    out_of_bag: OutOfBagOf | NotApplicable = NO_BAGS
    boosted: BoostedOf | NotApplicable = NO_ROUNDS
    left_out: LeftOutOf | NotApplicable = NOT_LEFT_OUT
    votes: Callable[[Any], int] = lambda model: 0
    open_scale: bool = False
