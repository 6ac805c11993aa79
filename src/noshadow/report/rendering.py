"""Templates → bytes of a page, everything escaped, with the one script that may run in it."""

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from markupsafe import Markup

from noshadow._glance import escaping_templates

_SCRIPTS = ("theme.js", "records_data.js", "records_contents.js", "records_table.js", "records_map.js", "records_explorer.js")


def rendered(template: str, content: Mapping[str, Any]) -> bytes:
    """Render the page of a template, UTF-8.

    Text is escaped wherever it comes from, and a name without content is an error.
    """
    return escaping_templates("noshadow.report").get_template(template).render(content).encode()


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


def page_script() -> dict[str, Markup]:
    """The page's own script as one text, and its SHA-256 for the Content-Security-Policy.

    It is the only script that the policy lets run.
    """
    folder = resources.files("noshadow.report") / "templates"
    parts = [(folder / name).read_text(encoding="utf8") for name in _SCRIPTS]
    text = '\n(() => {\n"use strict";\n' + "".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    # Both are the package's own words; no text of an audit is in them.
    return {"text": Markup(text), "hash": Markup(f"sha256-{digest}")}
