"""Models that a caller hands in beside the audited one, as objects, state dicts or files."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from noshadow.checks import InputError, refuse
from noshadow.storage.reasons import reason_of
from noshadow.storage.weight_files import SUFFIXES, state_of, weights_in
from noshadow.views import readable_models, reader_of

# What wrappers put before every name: data-parallel training, torch.compile, Lightning modules.
WRAPPERS = ("module.", "_orig_mod.", "model.")
MOST_NAMED = 3
SEQUENCES = "classifiers and regressions have one so far."


def models_given(value: object, audited: object, owner: str, argument: str) -> tuple[object, ...]:
    """One model or several, as `model_given` takes them; none where nothing was given."""
    if value is None:
        return ()
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        refuse(owner, argument, "be a model or a list of models", "an empty list", "Leave it out.")
    return tuple(model_given(one, audited, owner, argument) for one in several)


def model_given(value: object, audited: object, owner: str, argument: str) -> object:
    """A model that can be read: itself, or a copy of the audited module with other weights.

    Args:
        value: a model, a state dict, or the path of a file of weights. audited: the model under
            audit, which is never changed. owner, argument: named in error messages.

    Raises:
        InputError: a file that cannot be read, weights that do not fit, or no model.
    """
    if isinstance(value, (str, Path)):
        value = _weights(Path(value), owner, argument)
    if isinstance(value, Mapping):
        return _with_weights(value, audited, owner, argument)
    reader = reader_of(value)
    if reader is None:
        got = f"an object of type {type(value).__name__}"
        refuse(owner, argument, f"be {readable_models()}, a state dict or the path of its file", got)
    if reader.form == "sequences":
        refuse(owner, argument, "be a classifier or a regression", f"the language model {type(value).__name__}", f"Only {SEQUENCES}")
    return value


def _weights(path: Path, owner: str, argument: str) -> dict[str, Tensor]:
    if path.suffix not in SUFFIXES:
        refuse(owner, argument, f"end in {', '.join(SUFFIXES)}", f"'{path}'", "Estimators are handed over as objects.")
    if not path.is_file():
        refuse(owner, argument, "be a file that exists", f"'{path}'")
    try:
        return weights_in(path)
    except (ValueError, OSError) as error:
        hint = "Save it with torch.save(model.state_dict(), path)."
        raise InputError(f"{owner}: {argument} must be a file of weights; got '{path}' ({reason_of(error)}). {hint}") from error


def _with_weights(given: Mapping[str, object], audited: object, owner: str, argument: str) -> nn.Module:
    """A copy of the audited module with these weights."""
    if not isinstance(audited, nn.Module):
        got = f"weights beside {type(audited).__name__}"
        refuse(owner, argument, "be a fitted estimator where the model is none of torch", got)
    try:
        state = state_of(given)
    except ValueError as error:
        raise InputError(f"{owner}: {argument} must be a state dict; got one that is none ({error}).") from error
    own = {name: value for name, value in audited.state_dict().items() if isinstance(value, Tensor)}
    state = _unwrapped(state, set(own))
    _require_fitting(state, own, owner, argument)
    made = copy.deepcopy(audited)
    made.load_state_dict(state, strict=False)
    return made


def _unwrapped(state: dict[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    """The state without a wrapper's prefix, where all names then are the module's own."""
    for prefix in WRAPPERS:
        if set(state) != names and {f"{prefix}{name}" for name in names} == set(state):
            return {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _require_fitting(state: Mapping[str, Tensor], own: Mapping[str, Tensor], owner: str, argument: str) -> None:
    missing, unknown = [name for name in own if name not in state], [name for name in state if name not in own]
    shapes = [
        f"{name} of shape {tuple(state[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    parts = [f"{word} {_first(names)}" for word, names in (("without", missing), ("with unknown", unknown), ("with", shapes)) if names]
    if parts:
        got = f"weights {' and '.join(parts)}"
        refuse(owner, argument, "have the parameters of the audited model", got, "Give a checkpoint of the same architecture.")


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
