"""What a reviewer asks beyond the rate: is an accusation right, and does a flag last."""

from typing import Any

from noshadow._answer import Accusation, accusations, best_known, per_thousand, per_thousand_between, retraining
from noshadow.outcomes import Absent
from noshadow.report.formats import number, sentence
from noshadow.results import Audit

_IN_WORDS = {0.01: "one in a hundred", 0.1: "one in ten", 0.5: "every other one"}


def reviewed_section(audit: Audit) -> dict[str, Any]:
    """Accusations at usual priors and flags after a retraining, as text."""
    again = retraining(audit)
    told = {"accusations": [_row(one) for one in accusations(best_known(audit))]}
    if isinstance(again, Absent):
        return told | {"retraining": None, "retraining_absent": sentence(f"Not known, because {again.reason}")}
    shares = {"again": again.flagged_again, "flagged": again.top_flagged, "overlap": again.top_overlap}
    words = {name: f"{per_thousand(share)} ({per_thousand_between((low, high))})" for name, (share, low, high) in shares.items()}
    top = f"{number(again.top_records)} record{'' if again.top_records == 1 else 's'}"
    return told | {"retraining": words | {"top": top, "level": f"{100 * again.level:g}\u202f%"}}


def _row(one: Accusation) -> dict[str, str]:
    return {
        "prior": _IN_WORDS.get(one.prior, per_thousand(one.prior)),
        "guess": per_thousand(one.guess),
        "people": per_thousand(one.precision),
        "between": "" if one.interval is None else per_thousand_between(one.interval),
    }
