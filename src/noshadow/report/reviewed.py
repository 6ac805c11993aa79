"""What a reviewer asks beyond the rate: is an accusation right, and does a flag last."""

from typing import Any

from noshadow._answer import Accusation, accusations, best_known, per_thousand, per_thousand_between, retraining
from noshadow.outcomes import Absent
from noshadow.report.formats import number
from noshadow.results import Audit

UNIT = " in 1,000"
_IN_WORDS = {0.01: "one in a hundred", 0.1: "one in ten", 0.5: "every other one"}


def reviewed_section(audit: Audit) -> dict[str, Any]:
    """Accusations at usual priors and flags after a retraining, as text.

    A page without trained models says nothing of retrainings; `--json` has the reason.
    """
    again = retraining(audit)
    told = {"accusations": [_row(one) for one in accusations(best_known(audit))]}
    if isinstance(again, Absent):
        return told | {"retraining": None}
    shares = {"again": again.flagged_again, "flagged": again.top_flagged, "overlap": again.top_overlap}
    words = {name: f"{per_thousand(share)} ({per_thousand_between((low, high))})" for name, (share, low, high) in shares.items()}
    top = f"{number(again.top_records)} record{'' if again.top_records == 1 else 's'}"
    return told | {"retraining": words | {"top": top, "level": f"{100 * again.level:g}\u202f%"}}


def _row(one: Accusation) -> dict[str, str]:
    return {
        "prior": _IN_WORDS.get(one.prior, per_thousand(one.prior)),
        # The table's caption has the unit.
        "guess": per_thousand(one.guess).removesuffix(UNIT),
        "people": per_thousand(one.precision).removesuffix(UNIT),
        "between": "" if one.interval is None else per_thousand_between(one.interval).removesuffix(UNIT),
    }
