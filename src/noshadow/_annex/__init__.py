"""What a reviewer is told of an audit: one dictionary, of which JSON and page are made."""

from noshadow._annex.content import FORMAT, annex_content
from noshadow._annex.form import ANNEX_FORM

__all__ = ["ANNEX_FORM", "FORMAT", "annex_content"]
