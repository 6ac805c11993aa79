"""Models that a caller hands in beside the audited one, as objects, state dicts or files."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from noshadow.checks import InputError, refuse, said
from noshadow.storage.pretrained_folders import architectures, holds_model, pretrained
from noshadow.storage.reasons import reason_of
from noshadow.storage.sharded_weights import holds_weights, weights_of_folder
from noshadow.storage.weight_files import SUFFIXES, state_of, weights_in
from noshadow.views import AdaptersOff, adapters_of, model_inside, readable_models, reader_of, trained_beside

# What wrappers put before every name: data-parallel training, torch.compile, Lightning modules.
WRAPPERS = ("module.", "_orig_mod.", "model.")
MOST_NAMED = 3
# Vocabularies may differ by added tokens and by padding to round numbers, and by no more.
ADDED_SHARE, ADDED_TOKENS = 0.01, 8
OWN_HEAD = "Give {}= an earlier checkpoint or fine-tune with a trained head for the same labels."
SEQUENCES = "classifiers and regressions have one so far."


def models_given(value: object, audited: object, argument: str) -> tuple[object, ...]:
    """One model or several, as `model_given` takes them; none where nothing was given."""
    if value is None:
        return ()
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        refuse(argument, "be a model or a list of models", "an empty list", "Leave it out.")
    return tuple(model_given(one, audited, argument) for one in several)


def base_of(value: object, audited: object) -> tuple[tuple[object, ...], tuple[str, ...]]:
    """The base of a classifier or regression, or none, and what a reader must know of it.

    Where none is given, adapters of PEFT that can be switched off leave the base. A head that was
    trained beside them is then untrained, and a model with such a head has no margins to compare.
    """
    if value is not None:
        return (model_given(value, audited, "base"),), ()
    held = adapters_of(audited)
    if held is None or not held.active or not isinstance(audited, nn.Module):
        return (), ()
    beside = trained_beside(audited)
    lost = held.lost or (f"'{beside}' was trained beside its adapters, and without them the model has an untrained one" if beside else "")
    if lost:
        return (), (f"the base was not read: {lost}. {OWN_HEAD.format('base')}",)
    return (AdaptersOff(audited),), ("the base is the audited model with its adapters switched off: no second copy was made",)


def model_given(value: object, audited: object, argument: str) -> object:
    """A model that can be read: itself, or a copy of the audited module with other weights.

    Args:
        value: a model, a state dict, the path of a file of weights, or a folder of
            `save_pretrained`, which beside adapters is a model of its own. audited: the model under
            audit, which is never changed. argument: named in error messages.

    Raises:
        InputError: a file that cannot be read, weights that do not fit, or no model.
    """
    if isinstance(value, (str, Path)) and adapters_of(audited) is not None and holds_model(Path(value)):
        value = _beside_adapters(Path(value), audited, argument)
    elif isinstance(value, (str, Path)):
        value = _weights(Path(value), argument)
    if isinstance(value, Mapping):
        return _with_weights(value, audited, argument)
    reader = reader_of(value)
    if reader is None:
        got = f"an object of type {type(value).__name__}"
        refuse(argument, f"be {readable_models()}, a state dict or the path of its file", got)
    if _head_of(audited) == "classes" and _head_of(value) == "others":
        got = f"{type(value).__name__}, which has none"
        refuse(argument, "have a head of its own for the classes of the audited model", got, OWN_HEAD.format(argument))
    if reader.form == "sequences":
        refuse(argument, "be a classifier or a regression", f"the language model {type(value).__name__}", f"Only {SEQUENCES}")
    sizes = [_tokens_of(one) for one in (audited, value)]
    if sizes[0] is not None and sizes[1] is not None:
        require_vocabulary_alike((sizes[0], sizes[1]), value, argument)
    return value


def require_vocabulary_alike(sizes: tuple[int, int], other: object, argument: str) -> None:
    """Refuse a model whose vocabulary is no other size of the audited one's: (audited, other)."""
    if abs(sizes[0] - sizes[1]) > max(ADDED_SHARE * max(sizes), ADDED_TOKENS):
        got = f"{sizes[1]:,} tokens ({type(model_inside(other)).__name__})"
        hint = "Another tokenizer gives the same numbers to other tokens: give the model that the fine-tuning started from."
        refuse(argument, f"have the audited model's vocabulary of {sizes[0]:,} tokens", got, hint)


def _tokens_of(model: object) -> int | None:
    """How many tokens a model of transformers reads; None where it reads none."""
    inside = model_inside(model)
    layer = inside.get_input_embeddings() if hasattr(inside, "config") and hasattr(inside, "get_input_embeddings") else None
    return layer.num_embeddings if isinstance(layer, nn.Embedding) else None


def _beside_adapters(folder: Path, audited: object, argument: str) -> object:
    """The model of a folder, of the class of the model that has the adapters."""
    kind = type(model_inside(audited)).__name__
    try:
        named = architectures(folder)
        made = pretrained(folder, kind) if kind in named else None
    except (OSError, ValueError, ImportError, AttributeError) as error:
        raise InputError(said(f"{argument} must be a folder of a {kind}; got '{folder}' ({reason_of(error)}).")) from error
    if made is None:
        refuse(argument, f"be a folder of a {kind}", f"'{folder}' of {', '.join(named) or 'no class'}", OWN_HEAD.format(argument))
    return made


def _head_of(model: object) -> str:
    """What the head of a model of transformers is for, by its class; "" for other models."""
    inside = model_inside(model)
    if not hasattr(inside, "config"):
        return ""
    return "classes" if type(inside).__name__.endswith("Classification") else "others"


def _weights(path: Path, argument: str) -> dict[str, Tensor]:
    in_folder = path.is_dir() and holds_weights(path)
    if not in_folder and path.suffix not in SUFFIXES:
        refuse(argument, f"end in {', '.join(SUFFIXES)}", f"'{path}'", "Estimators are handed over as objects.")
    if not in_folder and not path.is_file():
        refuse(argument, "be a file that exists", f"'{path}'")
    try:
        return weights_of_folder(path) if in_folder else weights_in(path)
    except (ValueError, OSError) as error:
        hint = "Save it with torch.save(model.state_dict(), path)."
        raise InputError(said(f"{argument} must be a file of weights; got '{path}' ({reason_of(error)}). {hint}")) from error


def _with_weights(given: Mapping[str, object], audited: object, argument: str) -> nn.Module:
    """A copy of the audited module with these weights."""
    if not isinstance(audited, nn.Module):
        got = f"weights beside {type(audited).__name__}"
        refuse(argument, "be a fitted estimator where the model is none of torch", got)
    try:
        state = state_of(given)
    except ValueError as error:
        raise InputError(said(f"{argument} must be a state dict; got one that is none ({error}).")) from error
    own = {name: value for name, value in audited.state_dict().items() if isinstance(value, Tensor)}
    state = _with_tied(_unwrapped(state, set(own)), audited)
    _require_fitting(state, own, argument)
    made = copy.deepcopy(audited)
    made.load_state_dict(state, strict=False)
    return made


def _unwrapped(state: dict[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    """The state without a wrapper's prefix, where all names then are the module's own."""
    for prefix in WRAPPERS:
        if set(state) != names and {f"{prefix}{name}" for name in names} == set(state):
            return {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _with_tied(state: dict[str, Tensor], audited: nn.Module) -> dict[str, Tensor]:
    """The state with each weight under all the names that the audited module has for it.

    save_pretrained writes a weight that two layers share once, under one of them.
    """
    names: dict[int, list[str]] = {}
    for name, tensor in audited.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    held = (([name for name in group if name in state], group) for group in names.values())
    return state | {name: state[known[0]] for known, group in held if known for name in group if name not in state}


def _require_fitting(state: Mapping[str, Tensor], own: Mapping[str, Tensor], argument: str) -> None:
    missing, unknown = [name for name in own if name not in state], [name for name in state if name not in own]
    shapes = [
        f"{name} of shape {tuple(state[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    # load_state_dict would take rounded weights by their value.
    kinds = [
        f"{name} of {state[name].dtype} for {own[name].dtype}"
        for name in own
        if name in state and state[name].is_floating_point() != own[name].is_floating_point()
    ]
    told = (("without", missing), ("with unknown", unknown), ("with", shapes), ("with", kinds))
    parts = [f"{word} {_first(names)}" for word, names in told if names]
    if parts:
        got = f"weights {' and '.join(parts)}"
        refuse(argument, "have the parameters of the audited model", got, "Give a checkpoint of the same architecture, with its head.")


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
