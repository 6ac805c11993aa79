"""Texts of records from files, a sequence a row, as the model's own tokenizer reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from noshadow.checks import InputError, refuse, said
from noshadow.storage.json_text import parsed_json
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

SUFFIXES = (".jsonl", ".parquet", ".csv", ".txt")
TEXT, TOKENS = "text", "input_ids"
MOST_NAMED = 10


@dataclass(frozen=True)
class TextColumns:
    """Columns of a table of texts: the text, the answer to it, ids and groups; None without."""

    text: str | None = None
    answer: str | None = None
    id: str | None = None
    group: str | None = None


@dataclass(frozen=True, eq=False)
class Texts:
    """One split of texts.

    Attributes:
        sequences: what `audit` takes of a language model: token ids, or pairs of token ids of a
            text and its answer.
        ids, groups: (n,) of the records; None where no column was named.
    """

    sequences: list[Any]
    ids: Sequence[object] | None
    groups: Sequence[object] | None


def read_texts(path: Path, tokenizer: Any, columns: TextColumns, *, pairs: bool, option: str) -> Texts:
    """Read the texts of one split and turn them into tokens.

    A row is a sequence. The tokenizer adds the special tokens that it adds by itself, and cuts
    nothing off. Rows that hold token ids (a column input_ids) are taken as they are.

    Args:
        path: .jsonl (one object a line), .parquet, .csv, or .txt (a text a line, empty ones left
            out). tokenizer: of the model. columns: names; the text's is "text" by default.
        pairs: whether the model answers texts, and `columns.answer` is wanted.
        option: named in error messages, such as "--train".

    Raises:
        InputError: no such file or column, or a row without a text.
    """
    table = _table(path, option)
    held = [str(name) for name in table.columns]
    named = {"--text": columns.text, "--target": columns.answer, "--id": columns.id, "--group": columns.group}
    absent = [f"{name} {column!r}" for name, column in named.items() if column is not None and column not in held]
    if absent:
        refuse(option, "have the columns that were named", f"none for {', '.join(absent)} among {', '.join(held[:MOST_NAMED])}")
    if not len(table):
        refuse(option, "hold at least one text", "none")
    first = _tokens(table, columns.text, tokenizer, option)
    ids = None if columns.id is None else table[columns.id].tolist()
    groups = None if columns.group is None else list(map(str, table[columns.group]))
    if not pairs:
        return Texts(first, ids, groups)
    assert columns.answer is not None
    return Texts(list(zip(first, _encoded(table[columns.answer], tokenizer, columns.answer, option), strict=True)), ids, groups)


def _tokens(table: pd.DataFrame, text: str | None, tokenizer: Any, option: str) -> list[Any]:
    """Token ids of each row: of its text, or as given."""
    held = [str(name) for name in table.columns]
    if text is None and TEXT not in held and TOKENS in held:
        return [list(map(int, row)) for row in table[TOKENS]]
    name = TEXT if text is None else text
    if name not in held:
        hint = "Name the column of the texts: --text COLUMN."
        refuse(option, f"have a column '{TEXT}' or '{TOKENS}'", ", ".join(held[:MOST_NAMED]), hint)
    return _encoded(table[name], tokenizer, name, option)


def _encoded(column: Any, tokenizer: Any, name: str, option: str) -> list[Any]:
    texts = column.tolist()
    wrong = [row for row, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if wrong:
        got = f"{len(wrong)} rows without a text in '{name}', row {wrong[0]} first"
        refuse(option, "have a text in each row", got, "Leave such rows out.")
    # Without a warning about texts that are longer than the context: they are read in windows.
    found: list[Any] = tokenizer(texts, truncation=False, verbose=False)["input_ids"]
    return found


def _table(path: Path, option: str) -> pd.DataFrame:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        refuse(option, f"end in {', '.join(SUFFIXES)} for a language model", f"'{path}'")
    if not path.is_file():
        refuse(option, "be a file that exists", f"'{path}'")
    try:
        with one_kind_of_error():
            return _read(path, suffix)
    except (ValueError, OSError) as error:
        raise InputError(said(f"{option} must be a readable {suffix} file; got '{path}' ({reason_of(error)}).")) from error


def _read(path: Path, suffix: str) -> pd.DataFrame:
    found: pd.DataFrame
    if suffix == ".parquet":
        found = parquet_table(path).reset_index(drop=True)
    elif suffix == ".csv":
        found = pd.read_csv(path, dtype=str, keep_default_na=False)
    else:
        lines = [line.rstrip("\r") for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
        rows = [_row(line, number) for number, line in enumerate(lines, 1)] if suffix == ".jsonl" else [{TEXT: line} for line in lines]
        found = pd.DataFrame(rows)
    return found


def _row(line: str, number: int) -> dict[str, Any]:
    try:
        found = parsed_json(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {reason_of(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"line {number} is no object")
    return found
