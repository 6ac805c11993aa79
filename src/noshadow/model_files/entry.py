"""`load_model`: a trained model from a file, none of whose formats can run code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from noshadow.checks import InputError, named_in_errors, refuse, said
from noshadow.model_files.boosted_files import catboost_model, lightgbm_model, xgboost_model
from noshadow.model_files.held import HeldModel
from noshadow.model_files.onnx_files import onnx_file
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
OBJECTS = (".pkl", ".joblib", ".pt", ".pth", ".ckpt", ".sav", ".cloudpickle")
MARKS = tuple(bytes([0x80, version]) for version in range(2, 6))  # how serialised Python objects begin


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
    return read_model(Path(path), module=module, trust=trust).model


def read_model(path: Path, *, module: nn.Module | None, trust: Sequence[str]) -> HeldModel:
    """The model of a file with what it says about its tables; arguments as in `load_model`."""
    if not path.is_file():
        refuse("path", "be a file that exists", f"'{path}'")
    with path.open("rb") as file:
        begins = file.read(2)
    if path.suffix in OBJECTS or begins in MARKS:
        hint = (
            "Opening one runs whatever code it holds. Convert it where it was made: skops.io.dump(model, 'm.skops'), "
            "model.save_model('m.json') of XGBoost, booster.save_model('m.txt') of LightGBM, torch.onnx.export, or "
            "safetensors.torch.save_file(model.state_dict(), 'm.safetensors')."
        )
        refuse("path", "be no file of serialised Python objects", f"'{path}'", hint)
    if path.suffix not in SUFFIXES:
        refuse("path", f"end in {', '.join(SUFFIXES)}", f"'{path}'")
    if (module is None) == (path.suffix == ".safetensors"):
        if module is None:
            refuse("module", "come with weights in .safetensors", "none", "Pass module=… (--module package.module:build).")
        refuse("module", "come with weights in .safetensors only", f"'{path}'", "Leave it out.")
    if trust and path.suffix != ".skops":
        refuse("trust", "come with a .skops file", f"'{path}'", "No other format makes types by name.")
    try:
        if module is not None:
            return _with_weights(module, path)
        return skops_model(path, trust) if path.suffix == ".skops" else READERS[path.suffix](path)
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(said(f"path must be a whole {path.suffix} file of a model; got '{path}' ({reason_of(error)}).")) from error


def _with_weights(module: nn.Module, path: Path) -> HeldModel:
    if not isinstance(module, nn.Module):
        refuse("module", "be an nn.Module", type(module).__name__)
    try:
        module.load_state_dict(weights_in(path), strict=True)
    except RuntimeError as error:
        # The first line only says for which class it failed.
        lines = [line.strip() for line in str(error).splitlines()]
        refuse("module", "have exactly the weights of the file", " ".join(lines[1:3]).rstrip(".") or lines[0])
    return HeldModel(module.eval(), module=True)
