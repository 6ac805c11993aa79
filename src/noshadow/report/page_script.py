"""The page's own script and its hash: the only one that the page's security policy lets run."""

import base64
import hashlib
from importlib import resources

from markupsafe import Markup

_PARTS = ("theme.js", "records_data.js", "records_contents.js", "records_table.js", "records_map.js", "records_explorer.js")


def page_script() -> dict[str, Markup]:
    """The script as one text, and its SHA-256 in the form of a Content-Security-Policy."""
    folder = resources.files("noshadow.report") / "templates"
    parts = [(folder / name).read_text(encoding="utf8") for name in _PARTS]
    text = '\n(() => {\n"use strict";\n' + "".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    # Both are the package's own words; no text of an audit is in them.
    return {"text": Markup(text), "hash": Markup(f"sha256-{digest}")}
