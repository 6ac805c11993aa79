"""Cells of text that no spreadsheet takes for a formula, and back."""

import re

# A spreadsheet takes a cell for a formula that begins with = + - or @, also in full width, with
# white space or controls before it or not; a tab, a line end or a NUL at the beginning is dropped
# by some, so that what follows begins the cell. An apostrophe is what marks such cells here.
_ACTIVE = re.compile("^(?:[\\s\\x00-\\x20\\x7f\\ufeff\\u200b]*[=+\\-@＝＋－＠]|[\\t\\r\\n\\x00'])")
MARK = "'"


def harmless_cell(text: str) -> str:
    """Put one apostrophe before a text that a spreadsheet might run, or that begins with one.

    Example:
        >>> harmless_cell("=1+1"), harmless_cell("  @x"), harmless_cell("'quoted"), harmless_cell("a=b")
        ("'=1+1", "'  @x", "''quoted", 'a=b')
    """  # noqa: W505 - one line of a doctest
    return MARK + text if _ACTIVE.match(text) else text


def original_cell(cell: str) -> str:
    """The text that `harmless_cell` was given: a cell without the apostrophe at its beginning.

    Example:
        >>> [original_cell(harmless_cell(text)) for text in ("=1+1", "'quoted", "plain")]
        ['=1+1', "'quoted", 'plain']
    """
    return cell.removeprefix(MARK)
