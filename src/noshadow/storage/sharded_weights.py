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
WHOLE_NUMBERS = ("I", "U")  # I8, U16, …
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
    with one_kind_of_error():
        return {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The one file of a folder's weights, or the several of its index (`require_shards`).

    Raises:
        ValueError, OSError: as `require_shards`, or a folder without either.
    """
    if not holds_weights(folder):
        raise ValueError(f"it holds neither {WHOLE} nor {INDEX}")
    return (folder / WHOLE,) if (folder / WHOLE).is_file() else require_shards(folder)


def whole_numbers_in(files: tuple[Path, ...]) -> set[str]:
    """Names of the tensors that files hold as whole numbers; headers are read, no tensor is.

    Raises:
        ValueError, OSError: a file that is none or cannot be read.
    """
    found: set[str] = set()
    for file in files:
        with one_kind_of_error(), safe_open(file, framework="pt") as there:
            names = there.keys()
            found |= {name for name in names if there.get_slice(name).get_dtype().startswith(WHOLE_NUMBERS)}
    return found


def require_shards(folder: Path) -> tuple[Path, ...]:
    """The files that a folder's index names, after each was found to hold what is said of it.

    Headers are read, and held against the bytes behind them; no tensor is. Files are beside the
    index: names that lead elsewhere are refused.

    Raises:
        ValueError: an index in another form, a file that is none, or a tensor that is not where the
            index says, or elsewhere, too. OSError: a file that cannot be read.
    """
    placed = _places(folder)
    for file, names in placed.items():
        try:
            with one_kind_of_error(), safe_open(folder / file, framework="pt") as there:
                held = set(there.keys())
        except ValueError as error:
            raise ValueError(f"{file}: {reason_of(error)}") from error
        lost, more = sorted(names - held), sorted(held - names)
        if lost:
            raise ValueError(f"{INDEX} says that {file} holds {', '.join(lost[:MOST_NAMED])}, and it does not")
        if more:
            # Readers take what is there, and of a tensor in two files the last.
            raise ValueError(f"{file} holds {', '.join(more[:MOST_NAMED])}, which {INDEX} does not place there")
    return tuple(folder / file for file in placed)


def _places(folder: Path) -> dict[str, set[str]]:
    """File name → names of its tensors, as the index has them."""
    found = parsed_json((folder / INDEX).read_bytes())
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(file, str) for file in places.values()):
        raise ValueError(f"{INDEX} without a weight_map of names to files")
    if not isinstance(found.get("metadata"), dict):
        raise ValueError(f"{INDEX} without metadata")
    placed: dict[str, set[str]] = {}
    for name, file in sorted(places.items()):
        placed.setdefault(file, set()).add(name)
    for file in placed:
        if Path(file).name != file or not file.endswith(SUFFIX):
            raise ValueError(f"{INDEX} names '{file[:60]}', which is no {SUFFIX} file beside it")
        if not (folder / file).is_file():
            raise ValueError(f"{INDEX} names '{file}', which is not there")
    return placed
