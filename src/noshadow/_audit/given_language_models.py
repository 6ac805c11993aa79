"""The base of a language model as people hand it over: an object, weights, or a folder on disk."""

from collections.abc import Mapping
from pathlib import Path

from noshadow._audit.given_models import model_given, require_vocabulary_alike
from noshadow.checks import InputError, NotApplicable, refuse, said
from noshadow.storage.pretrained_folders import CONFIG, holds_adapters, holds_model, pretrained, tokenizer_in
from noshadow.storage.reasons import reason_of
from noshadow.storage.weight_files import SUFFIXES
from noshadow.views import adapters_of, is_causal_lm, is_language_model, model_inside, vocabulary_of

MOST_NAMED = 3


def language_model_given(value: object, audited: object, argument: str) -> tuple[object, object | None]:
    """A language model that can be read beside the audited one, and its tokenizer where it has one.

    Args:
        value: the model; a state dict or the path of a file of weights of the audited model's kind;
            or a folder of `save_pretrained`, whose weights are read from .safetensors alone.
        audited: the model under audit. argument: named in error messages.

    Raises:
        InputError: nothing that can be read, or a model of another kind or vocabulary.
    """
    made, tokenizer = value, None
    if isinstance(value, (str, Path)) and Path(value).suffix not in SUFFIXES:
        made, tokenizer = _from_folder(Path(value), audited, argument)
    elif isinstance(value, (str, Path, Mapping)):
        if adapters_of(audited) is not None:
            hint = "Leave it out: the model with its adapters off is read by itself."
            refuse(argument, "be a model beside one with adapters", "weights alone", hint)
        made = model_given(value, audited, argument)
    if not is_language_model(made):
        got = f"an object of type {type(made).__name__}"
        refuse(argument, "be a language model of transformers, its weights or its folder", got)
    if model_inside(made) is model_inside(audited):
        held = adapters_of(audited)
        # peft puts adapters into the very module that it is given, which is then no base.
        inside = argument == "base" and held is not None and not held.lost
        before = "Give the model before it was fine-tuned."
        hint = "Leave it out: the model with its adapters off is read by itself." if inside else before
        refuse(argument, "be another model", "the audited model itself", hint)
    _require_alike(made, audited, argument)
    return made, tokenizer


def language_models_given(value: object, audited: object, argument: str) -> tuple[object, ...]:
    """One language model or several, as `language_model_given` takes them; none for None."""
    if value is None:
        return ()
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        refuse(argument, "be a model or a list of models", "an empty list", "Leave it out.")
    return tuple(language_model_given(one, audited, argument)[0] for one in several)


def require_tokenizer(tokenizer: object) -> None:
    """Refuse what cannot turn tokens into text."""
    if not callable(getattr(tokenizer, "decode", None)):
        got = f"an object of type {type(tokenizer).__name__}"
        refuse("tokenizer", "be a tokenizer with decode, as AutoTokenizer gives", got)


def require_same_tokenizer(own: object | None, others: object | None, argument: str) -> None:
    """Refuse a base whose tokenizer gives the same numbers to other tokens.

    Tokens that were added to either may have other names: chat formats take reserved ones.
    """
    if own is None or others is None or not all(callable(getattr(one, "get_vocab", None)) for one in (own, others)):
        return
    mine, theirs = (one.get_vocab() for one in (own, others))  # type: ignore[attr-defined]
    named = {number: token for token, number in theirs.items()}
    added = {number for one in (own, others) for number in getattr(one, "added_tokens_decoder", {})}
    moved = [
        f"{number} is {token!r} and {named[number]!r}"
        for token, number in mine.items()
        if number not in added and named.get(number, token) != token
    ]
    if moved:
        got = f"{len(moved)} numbers that name other tokens ({', '.join(sorted(moved)[:MOST_NAMED])})"
        refuse(argument, "have the audited model's tokenizer", got, "Give the model that the fine-tuning started from.")


def _require_alike(base: object, audited: object, argument: str) -> None:
    words = {True: "causal", False: "sequence-to-sequence"}
    kinds = [words[is_causal_lm(one)] for one in (audited, base)]
    if kinds[0] != kinds[1]:
        refuse(argument, f"be a {kinds[0]} model as the audited one is", f"a {kinds[1]} one ({type(base).__name__})")
    sizes = [vocabulary_of(model_inside(one)).size for one in (audited, base)]
    require_vocabulary_alike((sizes[0], sizes[1]), base, argument)


def _from_folder(folder: Path, audited: object, argument: str) -> tuple[object, object | None]:
    """The model of a folder, read without network and without running or unpickling anything."""
    if not folder.is_dir():
        refuse(argument, f"be a folder that exists, or a file that ends in {', '.join(SUFFIXES)}", f"'{folder}'")
    if holds_adapters(folder):
        hint = "Give the folder of the model below them, or audit a PeftModel, whose base is read by itself."
        refuse(argument, "be a folder of a whole model", f"'{folder}', which holds adapters alone", hint)
    if not holds_model(folder):
        hint = "Write one with model.save_pretrained(folder, safe_serialization=True)."
        refuse(argument, f"be a folder with {CONFIG} and weights in .safetensors", f"'{folder}'", hint)
    try:
        made = pretrained(folder, "AutoModelForCausalLM" if is_causal_lm(audited) else "AutoModelForSeq2SeqLM")
    except (OSError, ValueError, ImportError) as error:
        raise InputError(said(f"{argument} must be a folder of a language model; got '{folder}' ({reason_of(error)}).")) from error
    try:
        return made, tokenizer_in(folder)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(said(f"{argument} must have a tokenizer that can be read; got '{folder}' ({reason_of(error)}).")) from error


def why_no_base(audited: object) -> NotApplicable | None:
    """Why a model given without a base has none; None where its adapters can be switched off."""
    held = adapters_of(audited)
    if held is None:
        return NotApplicable(
            "no base model was given (base=), and the model has no adapters to switch off; adapters that were merged and unloaded "
            "leave no trace"
        )
    if held.lost:
        return NotApplicable(f"{held.lost}, so that switching them off does not give the base: give it (base=)")
    if not held.active:
        return NotApplicable("the model's adapters are switched off, so that its base is what was audited")
    return None
