"""`load_model`: a trained model from a file, none of whose formats can run code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from noshadow.checks import InputError, named_in_errors, refuse, said
from noshadow.model_files.boosted_files import catboost_model, lightgbm_model, xgboost_model
from noshadow.model_files.held import HeldModel
from noshadow.model_files.onnx_files import onnx_file
from noshadow.model_files.serialised import SUFFIXES as OBJECTS
from noshadow.model_files.serialised import holds_objects
from noshadow.model_files.skops_files import skops_model
from noshadow.storage.reasons import reason_of
from noshadow.storage.weight_files import weights_in

READERS: dict[str, Callable[[Path], HeldModel]] = {
    ".json": xgboost_model,
    ".ubj": xgboost_model,
    ".txt": lightgbm_model,
    ".lgb": lightgbm_model,
    ".cbm": catboost_model,
    ".onnx": onnx_file,
}
SUFFIXES = (".skops", *READERS, ".safetensors")
CONVERT = (
    "Opening one runs whatever code it holds. Convert it where it was made: skops.io.dump(model, 'm.skops'), "
    "model.save_model('m.json') of XGBoost, booster.save_model('m.txt') of LightGBM, model.save_model('m.cbm') of CatBoost, "
    "torch.onnx.export, or safetensors.torch.save_file(model.state_dict(), 'm.safetensors')."
)


@named_in_errors
def load_model(path: str | Path, *, module: nn.Module | None = None, trust: Sequence[str] = ()) -> Any:
    """A trained model from a file, as `audit` takes it; nothing in the file is run.

    Args:
        path: .skops (scikit-learn), .json or .ubj (XGBoost), .txt or .lgb (LightGBM), .cbm
            (CatBoost), .onnx (any framework; what enters its last Gemm or MatMul + Add is read, so
            that records are scored exactly), or .safetensors (weights of `module`).
        module: for .safetensors, the module that the weights belong to; it is given them.
        trust: names of types beyond scikit-learn's own that a skops file may make.

    Returns:
        An estimator, a booster, an ONNX model or the module in evaluation mode.

    Raises:
        InputError: no such file, one that holds Python objects, one that is damaged or is not what
            its suffix says, types that are not known, or weights that do not fit the module.

    Cost: reading the file once or twice.
    """
    if isinstance(trust, str):
        refuse("trust", "be a sequence of names", repr(trust), f"Pass trust=[{trust!r}].")
    return read_model(Path(path), module=module, trust=trust, prefix="").model


def read_model(path: Path, *, module: nn.Module | None, trust: Sequence[str], prefix: str = "--") -> HeldModel:
    """The model of a file with what it says about its tables.

    Args:
        path, module, trust: as in `load_model`.
        prefix: "--" where they are options of the command line, whose messages name them so.
    """
    argument, suffix = "--model" if prefix else "path", path.suffix.lower()
    if not path.is_file():
        refuse(argument, "be a file that exists", f"'{path}'")
    _require_given(argument, path, suffix, module, trust, prefix)
    try:
        if module is not None:
            return _with_weights(module, path, f"{prefix}module")
        return skops_model(path, trust, argument) if suffix == ".skops" else READERS[suffix](path)
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(said(f"{argument} must be a whole {suffix} file of a model; got '{path}' ({reason_of(error)}).")) from error


def _require_given(argument: str, path: Path, suffix: str, module: object, trust: Sequence[str], prefix: str) -> None:
    """Refuse files that hold Python objects, unknown suffixes, and what does not go with them."""
    try:
        objects = suffix in OBJECTS or holds_objects(path)
    except OSError as error:
        raise InputError(said(f"{argument} must be a readable file; got '{path}' ({reason_of(error)}).")) from error
    if objects:
        refuse(argument, "be no file of serialised Python objects", f"'{path}'", CONVERT)
    if suffix not in SUFFIXES:
        refuse(argument, f"end in {', '.join(SUFFIXES)}", f"'{path}'")
    if module is None and suffix == ".safetensors":
        hint = "Pass --module package.module:build." if prefix else "Pass module=…, an nn.Module of the same layers."
        refuse(f"{prefix}module", "come with weights in .safetensors", "none", hint)
    if module is not None and suffix != ".safetensors":
        refuse(f"{prefix}module", "come with weights in .safetensors only", f"'{path}'", "Leave it out.")
    if trust and suffix != ".skops":
        refuse(f"{prefix}trust", "come with a .skops file", f"'{path}'", "No other format makes types by name.")


def _with_weights(module: nn.Module, path: Path, argument: str) -> HeldModel:
    if not isinstance(module, nn.Module):
        refuse(argument, "be an nn.Module", type(module).__name__)
    try:
        module.load_state_dict(weights_in(path), strict=True)
    except RuntimeError as error:
        # The first line only says for which class it failed.
        lines = [line.strip() for line in str(error).splitlines()]
        refuse(argument, "have exactly the weights of the file", " ".join(lines[1:3]).rstrip(".") or lines[0])
    return HeldModel(module.eval(), module=True)
