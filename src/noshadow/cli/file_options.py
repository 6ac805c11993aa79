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
        ".safetensors (with --module); or the folder of a language model of transformers, or of adapters of PEFT. Files of serialised "
        "Python objects are refused.",
        "FILE|FOLDER",
    ),
]
TrainTable = Annotated[
    Path | None,
    _option("--train", "Table of the training records, .csv or .parquet; texts of a language model also as .jsonl or .txt.", "FILE"),
]
TestTable = Annotated[Path | None, _option("--test", "Table of records the model has not seen, in the same form.", "FILE")]
TargetColumn = Annotated[
    str | None, _option("--target", "Column that the model predicts; the answers of a sequence-to-sequence model.", "COLUMN")
]
TextColumn = Annotated[
    str | None,
    _option("--text", "For a language model: column of the texts; default 'text', or token ids in 'input_ids'.", "COLUMN"),
]
IdColumn = Annotated[str | None, _option("--id", "Column that names the records; never given to the model.", "COLUMN")]
GroupColumn = Annotated[str | None, _option("--group", "Column of groups to compare; never given to the model.", "COLUMN")]
Drop = Annotated[list[str] | None, _option("--drop", "Further column that is not for the model; repeatable.", "COLUMN")]
Module = Annotated[
    str | None, _option("--module", "For .safetensors: package.module:build, which returns the nn.Module.", "MODULE:FUNCTION")
]
Trust = Annotated[list[str] | None, _option("--trust", "Type beyond scikit-learn's that a .skops file may make; repeatable.", "TYPE")]
