"""`Target`: a model, its data and how it was trained, and what it asks of an audit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from noshadow._audit.score_options import joined_options
from noshadow.checks import refuse
from noshadow.reference import References

_DATA = ("model", "train", "test")
# Options of one value each, which may be said twice if both say the same.
_AGREEING = ("task", "weight_decay", "output", "output_scale")


@dataclass(frozen=True, eq=False)
class Target:
    """A model, its data and how it was trained, for `noshadow.audit` and the commands.

    A `package.module:function` hands it to `noshadow audit`.

    Attributes: as the arguments of `audit`; `train_fn(indices, seed) -> model` is for `noshadow
        reference train`, too.
    """

    model: object
    train: object
    test: object
    task: str = "auto"
    weight_decay: float | None = None
    ids: Sequence[object] | None = None
    groups: Sequence[object] | None = None
    loss_traces: object = None
    train_fn: Callable[..., object] | None = None
    test_groups: Sequence[object] | None = None
    output: str | int = "auto"
    output_scale: str = "auto"
    score_options: Mapping[str, Any] | None = None
    checkpoint: object = None
    out_of_fold: object = None
    base: object = None
    folds: int | None = None
    reference_models: int | str | Path | References | None = None
    short_references: int | None = None
    stop: float | int | None = None
    work: str | Path | None = None
    training_options: Mapping[str, Any] | None = None
    tokenizer: object = None


def stated_by(target: Target, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `audit` that a target and the call beside it state together.

    Options complete what the target states and may not contradict it.

    Args:
        target: what was given as the model. asked: every argument of the call, by name.

    Raises:
        InputError: the call has data beside the target, or an option that the target states too.
    """
    for name in ("train", "test"):
        if asked[name] is not ...:
            refuse(name, "be left out beside a Target, which has its own", type(asked[name]).__name__)
    if isinstance(target.model, Target):
        refuse("the Target's model", "be a model", "another Target")
    stated = dict(asked) | {name: getattr(target, name) for name in _DATA}
    for field in (field for field in fields(Target) if field.name not in _DATA):
        stated[field.name] = _from_one_place(field.name, getattr(target, field.name), asked[field.name], field.default)
    return stated


def _from_one_place(name: str, held: Any, asked: Any, left_open: Any) -> Any:
    """What the target or the call says; `left_open` is the value of who says nothing."""
    if name == "score_options":
        return joined_options(held, asked)
    if _is(asked, left_open) or _is(held, left_open):
        return held if _is(asked, left_open) else asked
    if name not in _AGREEING:
        got = f"'{asked}'" if isinstance(asked, (str, int, float, Path)) else type(asked).__name__
        refuse(name, "come from one place", f"{got} beside that of the Target", "Leave one of the two out.")
    if asked != held:
        refuse(name, f"agree with the Target's {held!r}", repr(asked), "Leave one of the two out.")
    return held


def _is(value: Any, left_open: Any) -> bool:
    """Whether a value is the one that says nothing; arrays are compared with nothing."""
    return value is None if left_open is None else isinstance(value, str) and value == left_open
