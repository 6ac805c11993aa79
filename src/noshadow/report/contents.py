"""Read the record contents that the user hands to the page.

They are recognised, matched to the audit's records, and cut to what is shown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from noshadow.arguments import SHOW_TOP
from noshadow.checks import Array, as_array, refuse, require_same_length, require_whole
from noshadow.report.formats import number, shown
from noshadow.report.record_data import risk_order
from noshadow.report.shown_tokens import NOTES, require_audited, token_items
from noshadow.report.thumbnails import LONGEST_SIDE, black_and_white, channels_last, thumbnail
from noshadow.results import Audit, TokenGains

ARGUMENT = "show_records"
MOST_CHARACTERS = 500
MOST_FIELDS = 50
_LONGEST_FIELD = 100
_ID = "id"
_RULE = "be images (n, h, w), (n, h, w, 3) or (n, 3, h, w), n texts, or a table of n rows"
_SEVERAL = {"images": "images", "texts": "texts", "rows": "table rows", "tokens": "tokens with what the model gained on them"}


@dataclass(frozen=True)
class ShownContents:
    """Contents of the riskiest records, ready for the page.

    Attributes:
        kind: "images", "texts", "rows" or "tokens".
        items: one per record, riskiest first: base64 of a PNG, a text, a list of (name, value)
            pairs, or a sentence beside (text, shade) pairs.
        ranks, ids: of the same records, as text.
        notes: sentences on how they were scaled and cut.
    """

    kind: str
    items: list[Any]
    ranks: list[str]
    ids: list[str]
    notes: list[str]

    @property
    def words(self) -> str:
        """What the items are, in the plural."""
        return _SEVERAL[self.kind]


def shown_contents(given: object, audit: Audit, *, ids: object = None, top: int = SHOW_TOP) -> ShownContents:
    """Contents of the `top` riskiest records, by rank or else by loss.

    Args:
        given: an array of images, a sequence of texts, a 2-dimensional array, a DataFrame or
            TokenGains; one entry for each record of the audit. A DataFrame with an `id` column, an
            index of that name or the audit's ids as its index is matched by them; one with a single
            column of text beside it holds texts.
        audit: whose records they are. top: how many to show.
        ids: ids of the entries; None means the order of the audit's record table, or the
            DataFrame's own `id` column.

    Raises:
        InputError: not contents, another number of entries than records, ids that are not the
            audit's.
    """
    most = require_whole(top, "show_top", low=1)
    given, ids = _without_ids(given, ids, audit)
    kind, values = ("tokens", given) if isinstance(given, TokenGains) else _recognised(given)
    places = _places(ids, len(values), audit)
    if isinstance(values, TokenGains):
        require_audited(values, places, audit)
    order = risk_order(audit)[:most]
    items, notes = _items(kind, values, places[order])
    table = audit.records.iloc[order]
    ranks = table["rank"] if "rank" in table else range(1, len(table) + 1)
    return ShownContents(kind, items, [number(int(rank)) for rank in ranks], [str(identifier) for identifier in table["id"]], notes)


def _without_ids(given: object, ids: object, audit: Audit) -> tuple[object, object]:
    """Take the ids of a table or Series apart from the rest.

    Ids are a column `id`, an index of that name, or an index that holds the audit's ids.

    Contents under the wrong person are worse than none: what may hold ids and cannot be matched is
    refused.
    """
    if not isinstance(given, (pd.DataFrame, pd.Series)):
        return given, ids
    named = isinstance(given, pd.DataFrame) and _ID in given
    if named or given.index.name == _ID:
        if ids is not None:
            refuse("show_ids", "be None for a table with ids of its own", type(ids).__name__, "Leave one of the two out.")
        return (given.drop(columns=_ID), given[_ID]) if isinstance(given, pd.DataFrame) and named else (given, given.index)
    if ids is not None:
        return given, ids
    names = [str(name) for name in given.columns] if isinstance(given, pd.DataFrame) else []
    alike = next((name for name in names if name.strip().lower() in (_ID, "ids")), None)
    if alike is not None:
        refuse(ARGUMENT, f"call its column of ids '{_ID}'", f"'{_cut(alike, _LONGEST_FIELD)}'", "Rename it, or pass show_ids=.")
    if isinstance(given.index, pd.RangeIndex) or not len(given):
        return given, None
    if set(map(str, given.index)) != set(map(str, audit.records["id"])):
        got = f"one from '{_cut(str(given.index[0]), _LONGEST_FIELD)}'"
        hint = f"Call the index '{_ID}' if it holds the ids; reset_index(drop=True) if the order is that of the training data."
        refuse(ARGUMENT, "have an index of row numbers or of the audit's ids", got, hint)
    return given, given.index


def _recognised(given: Any) -> tuple[str, Any]:
    """Recognise which of the three kinds of contents it is, and return its values.

    They are images with their channels last, a list of texts, or a table.
    """
    if isinstance(given, pd.DataFrame):
        if given.shape[1] == 0:
            refuse(ARGUMENT, "have a column beside 'id'", "none")
        texts = [given[name] for name in given.columns[:1] if given.shape[1] == 1 and _are_texts(given[name])]
        return ("texts", texts[0].tolist()) if texts else ("rows", given)
    listed = isinstance(given, (list, tuple, pd.Series)) or (isinstance(given, np.ndarray) and given.ndim > 0)
    if listed and len(given) and isinstance(_first(given), str):
        texts = list(given)
        odd = next((place for place, text in enumerate(texts) if not isinstance(text, str)), None)
        if odd is not None:
            refuse(ARGUMENT, "hold texts only", f"{type(texts[odd]).__name__} at index {odd}")
        return "texts", texts
    if isinstance(given, (bool, str, bytes, dict, set)):
        refuse(ARGUMENT, _RULE, type(given).__name__, "An audit holds no contents: hand them over.")
    array = as_array(given, ARGUMENT)
    if array.dtype.kind == "V":
        refuse(ARGUMENT, _RULE, f"dtype {array.dtype}")
    if array.ndim == 2 and array.shape[1]:
        return "rows", pd.DataFrame(array, columns=[f"column {k}" for k in range(array.shape[1])])
    if array.ndim not in (3, 4):
        got = f"shape {array.shape}" if array.ndim else type(given).__name__
        refuse(ARGUMENT, _RULE, got, "An audit holds no contents: hand them over.")
    return "images", channels_last(array, ARGUMENT)


def _first(given: Any) -> object:
    return given.iloc[0] if isinstance(given, pd.Series) else given[0]


def _are_texts(column: pd.Series) -> bool:
    return len(column) > 0 and all(isinstance(value, str) for value in column)


def _places(ids: Any, count: int, audit: Audit) -> Array:
    """Where the contents of each record of the audit stand."""
    n = len(audit.records)
    if count != n:
        refuse(ARGUMENT, f"hold one entry for each of the audit's {n} records", f"{count}", "Hand over the training data whole.")
    if ids is None:
        return np.arange(n)
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and ids.ndim != 1):
        got = f"shape {ids.shape}" if isinstance(ids, np.ndarray) else type(ids).__name__
        refuse("show_ids", "be a sequence of record ids", got)
    names = [str(identifier) for identifier in ids]
    require_same_length(show_records=range(count), show_ids=names)
    place_of = {name: place for place, name in enumerate(names)}
    if len(place_of) < n:
        name, times = Counter(names).most_common(1)[0]
        refuse("ids of the contents", "be unique", f"'{_cut(name, _LONGEST_FIELD)}' {times} times")
    wanted = [str(identifier) for identifier in audit.records["id"]]
    unknown = sorted(set(names) - set(wanted))
    if unknown:
        examples = [_cut(name, _LONGEST_FIELD) for name in (unknown[0], wanted[0])]
        got = f"{len(unknown)} that the audit does not know, such as '{examples[0]}' where it has '{examples[1]}'"
        refuse("ids of the contents", "be the audit's", got, "Hand over the records that the model was trained on.")
    return np.array([place_of[name] for name in wanted], dtype=np.int64)


def _items(kind: str, values: Any, places: Array) -> tuple[list[Any], list[str]]:
    if kind == "tokens":
        return token_items(values, places), list(NOTES)
    if kind == "images":
        return _image_items(values, places)
    return _text_items(values, places) if kind == "texts" else _row_items(values, places)


def _image_items(images: Array, places: Array) -> tuple[list[str], list[str]]:
    black, white = black_and_white(images)
    large = max(images.shape[1:3]) > LONGEST_SIDE
    notes = [f"Images with a side of more than {LONGEST_SIDE} pixels are made smaller."] if large else []
    if (black, white) not in ((0.0, 255.0), (0.0, 1.0)):
        ends = f"{number(black)}, the smallest over all images handed over, is black, and {number(white)}, the largest, is white"
        notes.append(f"Pixel values were stretched: {ends}; colours may differ from the originals.")
    return [thumbnail(images[place], black, white) for place in places], notes


def _text_items(texts: Sequence[str], places: Array) -> tuple[list[str], list[str]]:
    chosen = [texts[place].replace("\r\n", "\n") for place in places]
    notes = [f"Texts are cut after {MOST_CHARACTERS} characters."] if any(len(text) > MOST_CHARACTERS for text in chosen) else []
    return [_spelled(_cut(text, MOST_CHARACTERS)) for text in chosen], notes


def _row_items(table: pd.DataFrame, places: Array) -> tuple[list[list[tuple[str, str]]], list[str]]:
    names = [_spelled(_cut(str(name), _LONGEST_FIELD)) for name in table.columns[:MOST_FIELDS]]
    rows = table.iloc[places, :MOST_FIELDS]
    written = [[_field(value) for value in row] for row in rows.itertuples(index=False, name=None)]
    notes = [f"Of {table.shape[1]} columns the first {MOST_FIELDS} are shown."] if table.shape[1] > MOST_FIELDS else []
    if any(len(text) > _LONGEST_FIELD for row in written for text in row):
        notes.append(f"Values are cut after {_LONGEST_FIELD} characters.")
    return [[(name, _spelled(_cut(text, _LONGEST_FIELD))) for name, text in zip(names, row, strict=True)] for row in written], notes


def _field(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "missing" if np.isnan(value) else f"{value:.6g}"
    return "missing" if value is None or value is pd.NA or value is pd.NaT else str(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _spelled(text: str) -> str:
    """Spell out characters that a page cannot hold, but for line breaks and tabs."""
    return "\n".join(str(shown(line)) for line in text.replace("\t", "    ").split("\n"))
