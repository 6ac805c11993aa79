"""Options of `noshadow audit` for a model and its tables in files."""

from pathlib import Path
from typing import Annotated

import typer

PANEL = "From files"


def _option(name: str, text: str, metavar: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=text, rich_help_panel=PANEL)
    return found


ModelFile = Annotated[
    Path | None,
    _option(
        "--model",
        "Trained model: .skops (scikit-learn), .json/.ubj (XGBoost), .txt (LightGBM), .cbm (CatBoost), .onnx (any framework) or "
        ".safetensors (with --module). Files of serialised Python objects are refused.",
        "FILE",
    ),
]
TrainTable = Annotated[Path | None, _option("--train", "Table of the training records, .csv or .parquet.", "FILE")]
TestTable = Annotated[Path | None, _option("--test", "Table of records the model has not seen, .csv or .parquet.", "FILE")]
TargetColumn = Annotated[str | None, _option("--target", "Column that the model predicts.", "COLUMN")]
IdColumn = Annotated[str | None, _option("--id", "Column that names the records; never given to the model.", "COLUMN")]
GroupColumn = Annotated[str | None, _option("--group", "Column of groups to compare; never given to the model.", "COLUMN")]
Drop = Annotated[list[str] | None, _option("--drop", "Further column that is not for the model; repeatable.", "COLUMN")]
Module = Annotated[
    str | None, _option("--module", "For .safetensors: package.module:build, which returns the nn.Module.", "MODULE:FUNCTION")
]
Trust = Annotated[list[str] | None, _option("--trust", "Type beyond scikit-learn's that a .skops file may make; repeatable.", "TYPE")]
