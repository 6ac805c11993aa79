"""Docstrings as the API page shows them: the house's own sections become paragraphs, and two entries on one line become two."""

import re
from textwrap import indent

import griffe

# Sections that Google style does not know: a parser would turn them into boxes with their first line as the title.
_SECTIONS = re.compile(r"^(Exact when|Exact|Approximates|Cost|Reference): *(.*(?:\n +.*)*)$", flags=re.MULTILINE)
_BARE_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", flags=re.MULTILINE)


class HouseSections(griffe.Extension):
    """Rewrites docstrings after they were read and before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of one class or function."""
        if obj.docstring is None or not (obj.is_function or obj.is_class):
            return
        text = re.sub(r"(?<=\.) (?=Approximates: )", "\n", obj.docstring.value)
        text = _SECTIONS.sub(lambda found: f"\n**{found[1]}:** {' '.join(found[2].split())}\n", text)
        text = _BARE_EXAMPLE.sub(lambda found: "Examples:\n" + indent(found[0], "    "), text)
        text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
        text = _with_plain_underscores(text)
        obj.docstring.value = _one_entry_a_line(text, [*_names(obj), "InputError", "NumericalError", "NotApplicable"])


def _with_plain_underscores(text: str) -> str:
    """Markdown takes `_` beside a letter it does not know, `g̃_i` or `Σ_j`, for the start of italics; code is left alone."""
    lines, section = [], ""
    for line in text.splitlines():
        section = line if re.fullmatch(r"[A-Z][a-z]+:", line) else section
        code = section == "Examples:" or (section == "" and line.startswith("    "))
        parts = line.split("`")
        parts[::2] = [re.sub(r"(?<![A-Za-z0-9*])_|_(?![A-Za-z0-9])", r"\\_", part) for part in parts[::2]]
        lines.append(line if code else "`".join(parts))
    return "\n".join(lines)


def _names(obj: griffe.Object) -> list[str]:
    """Arguments of a function, or attributes and constructor arguments of a class."""
    if obj.is_function:
        return [parameter.name for parameter in obj.parameters]
    return [*obj.members, *(parameter.name for parameter in getattr(obj.members.get("__init__"), "parameters", ()))]


def _one_entry_a_line(text: str, names: list[str]) -> str:
    """`a: first. b: second.` as two entries, and `a, b: both.` as one for each name."""
    text = re.sub(r"^(    \w+(?:, \w+)+,)\n +", r"\1 ", text, flags=re.MULTILINE)
    known = "|".join(map(re.escape, names))
    text = re.sub(rf"(?<=[.;]) (?=(?:{known}): )", "\n    ", text)
    return re.sub(r"^    (\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", _entry_for_each, text, flags=re.MULTILINE)


def _entry_for_each(entry: re.Match[str]) -> str:
    return "\n".join(f"    {name}: {entry[2]}" for name in entry[1].split(", "))
