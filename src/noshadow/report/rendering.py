"""Templates → bytes of a page, everything escaped."""

import functools
from collections.abc import Mapping
from typing import Any

import jinja2

from noshadow.report.formats import shown


def rendered(template: str, content: Mapping[str, Any]) -> bytes:
    """Render the page of a template, UTF-8.

    Text is escaped wherever it comes from, and a name without content is an error.
    """
    return _environment().get_template(template).render(content).encode()


@functools.cache
def _environment() -> jinja2.Environment:
    """Make the environment once, since compiling the templates takes longer than a page."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("noshadow.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def flat_rows(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested dictionaries as (name, text) pairs, in the order of names."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(content.items()):
        words = str(name).replace("_", " ")
        if isinstance(value, Mapping):
            rows += [(f"{words}, {inner}", text) for inner, text in flat_rows(value)]
        else:
            rows.append((words, "none" if value is None else str(value)))
    return rows
