"""Texts of records from files, a sequence a row, as the model's own tokenizer reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import InputError, refuse, said
from noshadow.storage.json_text import parsed_json
from noshadow.storage.parquet_files import parquet_table
from noshadow.storage.reasons import one_kind_of_error, reason_of

SUFFIXES = (".jsonl", ".parquet", ".csv", ".txt")
TEXT, TOKENS, LABELS = "text", "input_ids", "labels"
BESIDE_TOKENS = ("attention_mask", LABELS)
MOST_NAMED = 10
MOST_SHOWN = 40


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
        sequences: what `audit` takes of a language model: token ids, dicts of them with mask or
            labels, or pairs of token ids of a text and its answer.
        ids, groups: (n,) of the records; None where no column was named.
    """

    sequences: list[Any]
    ids: Sequence[object] | None
    groups: Sequence[object] | None


def read_texts(path: Path, tokenizer: Any, columns: TextColumns, *, pairs: bool, option: str) -> Texts:
    """Read the texts of one split and turn them into tokens.

    A row is a sequence. The tokenizer adds the special tokens that it adds by itself, and cuts
    nothing off. Rows that hold token ids (a column input_ids) are taken as they are, with
    attention_mask and labels where the table has them, as from Python.

    Args:
        path: .jsonl (one object a line), .parquet, .csv, or .txt (a text a line, empty ones left
            out). tokenizer: of the model. columns: names; the text's is "text" by default.
        pairs: whether the model answers texts, and `columns.answer` is wanted.
        option: named in error messages, such as "--train".

    Raises:
        InputError: no such file or column, a row without a text, token ids that are no whole
            numbers, or labels of tokens beside texts.
    """
    table = _table(path, option)
    held = [str(name) for name in table.columns]
    named = {"--text": columns.text, "--target": columns.answer, "--id": columns.id, "--group": columns.group}
    absent = [f"{name} {column!r}" for name, column in named.items() if column is not None and column not in held]
    if absent:
        refuse(option, "have the columns that were named", f"none for {', '.join(absent)} among {', '.join(held[:MOST_NAMED])}")
    if not len(table):
        refuse(option, "hold at least one text", "none")
    first = _tokens(table, columns.text, tokenizer, option, pairs=pairs)
    ids = None if columns.id is None else table[columns.id].tolist()
    groups = None if columns.group is None else list(map(str, table[columns.group]))
    if not pairs:
        return Texts(first, ids, groups)
    assert columns.answer is not None
    answers = table[columns.answer]
    tokens = all(map(_is_row, answers))
    second = _whole(answers, columns.answer, option) if tokens else _encoded(answers, tokenizer, columns.answer, option)
    return Texts(list(zip(first, second, strict=True)), ids, groups)


def _tokens(table: pd.DataFrame, text: str | None, tokenizer: Any, option: str, *, pairs: bool) -> list[Any]:
    """Token ids of each row: of its text, or as given with what stands beside them."""
    held = [str(name) for name in table.columns]
    if text is None and TEXT not in held and TOKENS in held:
        beside = [] if pairs else [name for name in BESIDE_TOKENS if name in held]
        found = {name: _whole(table[name], name, option) for name in (TOKENS, *beside)}
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)] if beside else found[TOKENS]
    name = TEXT if text is None else text
    if name not in held:
        hint = "Name the column of the texts: --text COLUMN."
        refuse(option, f"have a column '{TEXT}' or '{TOKENS}'", ", ".join(held[:MOST_NAMED]), hint)
    if LABELS in held and any(map(_is_row, table[LABELS])):
        hint = f"Leave '{name}' out and write {TOKENS} as the training saw them: prompts are then left out as {LABELS} say."
        refuse(option, f"hold {LABELS} of tokens beside {TOKENS} alone", f"some beside the texts in '{name}'", hint)
    return _encoded(table[name], tokenizer, name, option)


def _is_row(value: object) -> bool:
    return isinstance(value, (list, np.ndarray))


def _whole(column: Any, name: str, option: str) -> list[list[int]]:
    """Rows of whole numbers, as they are: nothing is read out of a text, and nothing is rounded."""
    rows = column.tolist()
    for number, row in enumerate(rows):
        if not _is_row(row):
            got = "nothing" if row is None or (isinstance(row, float) and np.isnan(row)) else f"'{row}'"[:MOST_SHOWN]
            refuse(option, f"hold a list of whole numbers in each row of '{name}'", f"{got} in row {number}", "Write .jsonl or .parquet.")
        odd = next((one for one in row if isinstance(one, (bool, np.bool_)) or not isinstance(one, (int, np.integer))), None)
        if odd is not None:
            refuse(option, f"hold a list of whole numbers in each row of '{name}'", f"{str(odd)[:MOST_SHOWN]} in row {number}")
    return [list(map(int, row)) for row in rows]


def _encoded(column: Any, tokenizer: Any, name: str, option: str) -> list[Any]:
    texts = column.tolist()
    wrong = [row for row, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if wrong:
        got = f"{len(wrong)} {'row' if len(wrong) == 1 else 'rows'} without a text in '{name}', row {wrong[0]} first"
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
        lines = enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1)
        filled = [(number, line.rstrip("\r")) for number, line in lines if line.strip()]
        rows = [_row(line, number) for number, line in filled] if suffix == ".jsonl" else [{TEXT: line} for _, line in filled]
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
