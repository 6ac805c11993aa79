"""A language model in a folder: a whole one, or adapters of PEFT and the model below them.

Folders are those that `save_pretrained` writes. Weights are read from .safetensors alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noshadow.checks import InputError, refuse, said
from noshadow.storage.pretrained_folders import (
    ADAPTERS,
    CONFIG,
    architectures,
    architectures_for,
    base_named,
    holds_adapters,
    holds_model,
    pretrained,
    tokenizer_in,
    with_adapters,
)
from noshadow.storage.reasons import reason_of
from noshadow.views import adapters_of

WRITE = "Write one with model.save_pretrained(folder, safe_serialization=True)."
CAUSAL, ANSWERS = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
_PACKAGES = "It takes the packages of pip install noshadow[transformers], and peft for adapters."


@dataclass(frozen=True, eq=False)
class LanguageModelFolder:
    """A language model from a folder.

    Attributes:
        model: in evaluation mode; with adapters, a PeftModel, whose base is itself with these off.
        tokenizer: of the folder, or of the one below its adapters.
        pairs: whether it answers texts (sequence-to-sequence).
        has_adapters: whether it is adapters on a model of another folder.
        base: the folder below adapters that switching off does not give back; None elsewhere.
        base_tokenizer: of the folder below adapters, where it has one of its own.
    """

    model: Any
    tokenizer: Any
    pairs: bool
    has_adapters: bool
    base: Path | None
    base_tokenizer: Any


def read_language_folder(folder: Path, base: Path | None) -> LanguageModelFolder:
    """The language model of a folder, from local files alone.

    Args:
        folder: with config.json and .safetensors, or with adapter_config.json and adapters.
        base: the folder below adapters; None for the one that the adapters name.

    Raises:
        InputError: no such folder, weights in another form, a model that is no language model, or
            adapters whose base is not here or does not fit.
    """
    if not holds_adapters(folder) and not holds_model(folder):
        rule = f"be a folder with {CONFIG} or {ADAPTERS}, and weights in .safetensors"
        refuse("--model", rule, f"'{folder}'", WRITE)
    below = _base_folder(folder, base) if holds_adapters(folder) else folder
    option = "--model" if below == folder else "--base"
    pairs = _answers_texts(below, option)
    model = _read(lambda: pretrained(below, ANSWERS if pairs else CAUSAL), below, option, "be a folder of a language model")
    if below != folder:
        model = _read(lambda: with_adapters(model, folder), folder, "--model", f"hold adapters that fit '{below}'")
    places = dict.fromkeys((folder, below))
    found = [_read(lambda place=place: tokenizer_in(place), place, option, "have a tokenizer that can be read") for place in places]
    tokenizer = next((one for one in found if one is not None), None)
    if tokenizer is None:
        hint = "Write it there with tokenizer.save_pretrained(folder)."
        refuse("--model", "be a folder with the model's tokenizer (tokenizer.json)", f"'{folder}' without", hint)
    on_other = below != folder
    adapters = adapters_of(model)
    lost = on_other and adapters is not None and bool(adapters.lost)
    return LanguageModelFolder(model, tokenizer, pairs, on_other, below if lost else None, found[-1] if on_other else None)


def _base_folder(folder: Path, base: Path | None) -> Path:
    """The folder of the model below adapters: as given, or as the adapters name it."""
    named = None if base is not None else _read(lambda: base_named(folder), folder, "--model", "hold adapters that can be read")
    # A relative name is one beside the adapters, or beside where the command runs.
    places = [Path(base)] if base is not None else [] if named is None else [folder / named, Path(named)]
    found = next((place for place in places if holds_model(place)), None)
    if found is None:
        got = f"'{base}'" if base is not None else f"'{folder}', whose adapters name {named!r}"
        hint = "Nothing is downloaded: pass --base FOLDER, the model before it was fine-tuned, with its weights in .safetensors."
        refuse("--base" if base is not None else "--model", "be, or name, a folder of a whole model below the adapters", got, hint)
    return found


def _answers_texts(folder: Path, option: str) -> bool:
    """Whether the model of a folder answers texts; what is no language model is refused."""
    names = _read(lambda: architectures(folder), folder, option, f"hold a {CONFIG} that can be read")
    kinds = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
    answers, causal = (_read(lambda kind=kind: architectures_for(kind), folder, option, "be readable") for kind in kinds)
    if any(name in answers for name in names):
        return True
    if names and not any(name in causal or name.endswith("ForCausalLM") for name in names):
        hint = "Other models of transformers are audited from Python, or by WHAT as package.module:function."
        refuse(option, "be a folder of a language model", f"'{folder}' of {', '.join(names)}", hint)
    return False


def _read(how: Any, folder: Path, option: str, rule: str) -> Any:
    try:
        return how()
    except ImportError as error:
        raise InputError(said(f"{option} must {rule}; got '{folder}' ({reason_of(error)}). {_PACKAGES}")) from error
    except (OSError, ValueError) as error:
        raise InputError(said(f"{option} must {rule}; got '{folder}' ({reason_of(error)}).")) from error
