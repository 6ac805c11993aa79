"""Folders of transformers and PEFT: read from local files alone, with nothing run or unpickled."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open

from noshadow.storage.json_text import parsed_json
from noshadow.storage.reasons import one_kind_of_error
from noshadow.storage.sharded_weights import INDEX, WHOLE, weight_files, whole_numbers_in

CONFIG, ADAPTERS, ADAPTER_WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")
MOST_NAMED = 3
OTHER_WEIGHTS = "transformers_weights"  # in config.json
DISTRIBUTED = "shard-*-model-*.safetensors"
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# What peft puts before the names of the base's layers in a file of adapters.
_PREFIX = "base_model.model."


def holds_model(folder: Path) -> bool:
    """Whether a folder holds a whole model with its weights in .safetensors."""
    return (folder / CONFIG).is_file() and any(folder.glob("*.safetensors")) and not holds_adapters(folder)


def holds_adapters(folder: Path) -> bool:
    """Whether a folder holds adapters of PEFT, and not the model below them."""
    return (folder / ADAPTERS).is_file() and not any(folder.glob("model*.safetensors"))


def architectures(folder: Path) -> tuple[str, ...]:
    """Names of the classes that a folder's config.json says the model is of.

    Raises:
        ValueError, OSError: a file that cannot be read.
    """
    found = parsed_json((folder / CONFIG).read_bytes())
    named = found.get("architectures") if isinstance(found, dict) else None
    return tuple(map(str, named)) if isinstance(named, list) else ()


def architectures_for(kind: str) -> set[str]:
    """Names of the classes that transformers lists for one of its kinds of models."""
    listed = getattr(importlib.import_module("transformers.models.auto.modeling_auto"), kind)
    return {name for value in listed.values() for name in ((value,) if isinstance(value, str) else value)}


def base_named(folder: Path) -> str | None:
    """What the adapters of a folder say that they were trained on: a folder or a model's name.

    Raises:
        ValueError, OSError: a file that cannot be read.
    """
    found = parsed_json((folder / ADAPTERS).read_bytes())
    named = found.get("base_model_name_or_path") if isinstance(found, dict) else None
    return named if isinstance(named, str) and named else None


def pretrained(folder: Path, kind: str) -> Any:
    """The whole model of a folder, in evaluation mode.

    Args:
        folder: with config.json and weights in .safetensors, in one file or in several with an
            index. kind: of transformers' AutoModelFor….

    Raises:
        ValueError, OSError: a folder that cannot be read, or without some of the model's weights.
        ImportError: a package that it needs.
    """
    transformers = importlib.import_module("transformers")
    files = _known_files(folder)
    with one_kind_of_error(), _without_bars():
        read = getattr(transformers, kind).from_pretrained
        # Its own refusal of other shapes names none of them.
        how = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
        made, told = read(folder, **how, **_LOCAL)
    # transformers draws at random what a folder lacks, and only says so.
    lost, other = sorted(told["missing_keys"]), sorted(str(name) for name, *_ in told["mismatched_keys"])
    if lost:
        raise ValueError(f"{len(lost)} of the model's weights are in none of its files: {', '.join(lost[:MOST_NAMED])}")
    if other:
        raise ValueError(f"{len(other)} weights have other shapes than {CONFIG} says: {', '.join(other[:MOST_NAMED])}")
    if getattr(made.config, "quantization_config", None) is None:
        # They would be taken for weights by their value.
        rounded = sorted(whole_numbers_in(files) & {name for name, _ in made.named_parameters()})
        if rounded:
            got = f"{len(rounded)} weights are whole numbers and {CONFIG} has no quantization_config: {', '.join(rounded[:MOST_NAMED])}"
            raise ValueError(got)
    return made.eval()


def _known_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder's weights, where transformers reads these and no others.

    It follows a file name in config.json, to another index and from there anywhere, prefers pieces
    of a distributed training, and switches on adapters that lie beside the model.
    """
    config = parsed_json((folder / CONFIG).read_bytes())
    named = config.get(OTHER_WEIGHTS) if isinstance(config, dict) else None
    if named is not None:
        raise ValueError(f"{CONFIG} names other files of weights ({OTHER_WEIGHTS}: {str(named)[:60]!r}) than {WHOLE} and {INDEX}")
    if any(folder.glob(DISTRIBUTED)):
        raise ValueError(f"it holds pieces of a distributed training ({DISTRIBUTED}): write the whole model with save_pretrained")
    if (folder / ADAPTERS).is_file():
        raise ValueError(f"it holds a whole model and adapters ({ADAPTERS}): put the adapters into a folder of their own")
    return weight_files(folder)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers from drawing its own bars, which it also does in pipes."""
    logging = importlib.import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def with_adapters(base: Any, folder: Path) -> Any:
    """The base with the adapters of a folder in its layers, in evaluation mode; no copy is made.

    Raises:
        ValueError, OSError: no weights in .safetensors, weights that do not fit the base or that
            it has no place for.
    """
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ValueError(f"no {ADAPTER_WEIGHTS}")
    peft = importlib.import_module("peft")
    with one_kind_of_error():
        try:
            # What peft warns of (unusual layers, weights without a place) is checked below.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                made = peft.PeftModel.from_pretrained(base, folder, local_files_only=True)
        except RuntimeError as error:
            # The first line only says for which class it failed.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise ValueError(lines[min(1, len(lines) - 1)]) from error
        with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as file:
            names = set(file.keys())
        # Of embeddings peft would ask the network whether they were changed.
        placed = set(peft.get_peft_model_state_dict(made, save_embedding_layers=False))
        # peft leaves out in silence what finds no place.
        lost = sorted(name.removeprefix(_PREFIX) for name in (placed - names) | (names - placed - set(made.state_dict())))
        if lost:
            raise ValueError(f"{len(lost)} weights have no place in this base, or none in the file: {', '.join(lost[:MOST_NAMED])}")
        return made.eval()


def tokenizer_in(folder: Path) -> Any:
    """The tokenizer of a folder; None where it has none.

    Raises:
        ValueError, OSError: files that cannot be read.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return None
    transformers = importlib.import_module("transformers")
    with one_kind_of_error():
        return transformers.AutoTokenizer.from_pretrained(folder, **_LOCAL)
