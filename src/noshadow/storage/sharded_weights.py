"""Weights of a folder in one .safetensors file, or in several that are held against their index.

`save_pretrained` writes model.safetensors, or model-00001-of-0000n.safetensors and so on with
model.safetensors.index.json, which says in which file each tensor is.
"""

from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from noshadow.storage.json_text import parsed_json
from noshadow.storage.reasons import one_kind_of_error, reason_of

WHOLE, INDEX, SUFFIX = "model.safetensors", "model.safetensors.index.json", ".safetensors"
MOST_NAMED = 3


def holds_weights(folder: Path) -> bool:
    """Whether a folder holds the weights of a model under the names that save_pretrained gives."""
    return (folder / WHOLE).is_file() or (folder / INDEX).is_file()


def weights_of_folder(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder by name, in memory.

    Raises:
        ValueError: files that are none, or not those that their index names. OSError: as the system
            gives it.
    """
    files = (folder / WHOLE,) if (folder / WHOLE).is_file() else require_shards(folder)
    with one_kind_of_error():
        return {name: tensor for file in files for name, tensor in load_file(file).items()}


def require_shards(folder: Path) -> tuple[Path, ...]:
    """The files that a folder's index names, after each was found to hold what is said of it.

    Headers are read, and held against the bytes behind them; no tensor is. Files are beside the
    index: names that lead elsewhere are refused.

    Raises:
        ValueError: an index in another form, a file that is none, or a tensor that is not where the
            index says. OSError: a file that cannot be read.
    """
    placed = _places(folder)
    for file, names in placed.items():
        try:
            with one_kind_of_error(), safe_open(folder / file, framework="pt") as there:
                lost = sorted(names - set(there.keys()))
        except ValueError as error:
            raise ValueError(f"{file}: {reason_of(error)}") from error
        if lost:
            raise ValueError(f"{INDEX} says that {file} holds {', '.join(lost[:MOST_NAMED])}, and it does not")
    return tuple(folder / file for file in placed)


def _places(folder: Path) -> dict[str, set[str]]:
    """File name → names of its tensors, as the index has them."""
    found = parsed_json((folder / INDEX).read_bytes())
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(file, str) for file in places.values()):
        raise ValueError(f"{INDEX} without a weight_map of names to files")
    placed: dict[str, set[str]] = {}
    for name, file in sorted(places.items()):
        placed.setdefault(file, set()).add(name)
    for file in placed:
        if Path(file).name != file or not file.endswith(SUFFIX):
            raise ValueError(f"{INDEX} names '{file[:60]}', which is no {SUFFIX} file beside it")
        if not (folder / file).is_file():
            raise ValueError(f"{INDEX} names '{file}', which is not there")
    return placed
