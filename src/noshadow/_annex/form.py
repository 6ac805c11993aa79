"""What `annex.json` must look like inside; the documentation lists the same keys."""

from typing import Any

from noshadow._annex.attacks import STATUSES
from noshadow.storage.forms import Count, Keys, Level, OneOf, Share

_NUMBER = float | None
_TEXT = str | None
_ENDS = OneOf(None, tuple[float, float])
_SHARES = OneOf(None, tuple[Share, Share])
_ROW_FOR_READERS = Keys({"source": str, "asks": str, "sections": list[str], "here": str, "not_here": str})
_GROUPS = Keys(
    {
        "rows": [
            Keys(
                {"group": str, "n_members": Count, "n_nonmembers": Count, "auc": OneOf(None, Share), "auc_interval": _ENDS}
                | {"tnr": OneOf(None, Share), "tnr_interval": _ENDS, "riskier": bool, "reason": _TEXT}
            )
        ],
        "small": Count,
        "riskier": Count,
        "absent": _TEXT,
    }
)
_KNOWN = Keys(
    {"fpr": Level, "rate": OneOf(None, Share), "interval": _SHARES, "interval_level": OneOf(None, Level), "source": str, "attack": _TEXT}
    | {"trainings": Count, "reason": str, "attacked": _TEXT}
)
_FIGURE = Keys(
    dict.fromkeys(("name", "title", "unit", "source", "meaning", "reason"), str)
    | {"value": _NUMBER, "interval": _ENDS, "interval_level": OneOf(None, Level)}
)
_MEASURED = Keys(
    {"attack": str, "attacked": str, "models": Count, "auc": Share, "auc_interval": tuple[float, float]}
    | {"rates": [Keys({"fpr": Level, "tpr": Share, "interval": tuple[float, float]})]}
)
_FINDINGS = Keys(
    {
        "counts": Keys({"found": Count, "passed": Count, "not_applicable": Count, "skipped": Count}),
        "found": [
            Keys(
                dict.fromkeys(("code", "name", "severity", "sentence", "rule", "next_step"), str)
                | {"figure": _NUMBER, "records": OneOf(None, Count)},
                {"ids": list[str]},
            )
        ],
        "others": [Keys(dict.fromkeys(("code", "name", "status", "sentence"), str))],
    }
)
_RESULTS = Keys(
    {
        "verdict": Keys({"level": str, "title": str, "sentence": str}),
        "best_known": _KNOWN,
        "worst_record": OneOf(
            None, Keys({"rate": Share, "interval": _SHARES, "source": str, "rank": OneOf(None, Count), "fpr": Level}, {"id": str})
        ),
        "records": OneOf(
            None,
            Keys(
                {"column": str, "source": str, "rated": Count, "guess": Level, "above_ten_guesses": Count, "mean": Share, "largest": Share}
                | {"quantiles": dict[str, Share]}
            ),
        ),
        "measured_attacks": [_MEASURED],
        "figures": [_FIGURE],
        "findings": _FINDINGS,
        "classes": _GROUPS,
        "groups": _GROUPS,
        "next_action": Keys({"sentence": str, "command": str}),
        "notes": list[str],
    }
)
ANNEX_FORM = Keys(
    {
        "annex_format": Count,
        "about": Keys(
            {"title": str, "audited_with": str, "written_with": str, "disclaimer": str, "shows_ids": bool, "shows_contents": bool}
        ),
        "threat_model": [Keys({"aspect": str, "assumed": str, "follows_from": str})],
        "attacks": [Keys({"name": str, "family": str, "status": OneOf(*STATUSES), "does": str, "why": str, "edpb_paragraph": str})],
        "data": dict[str, Any],
        "parameters": dict[str, Any],
        "results": _RESULTS,
        "limits": [Keys({"topic": str, "sentence": str, "of": OneOf("this audit", "every audit")})],
        "reproduction": Keys(
            {"who": str, "needs": list[str], "call": str, "commands": list[str], "check": str, "versions": dict[str, str]}
            | {"hashes": dict[str, Any], "files": OneOf(None, dict[str, str])}
        ),
        "for_readers": Keys(
            {"dpia": [_ROW_FOR_READERS], "edpb_opinion_28_2024": [_ROW_FOR_READERS], "research_environment": [_ROW_FOR_READERS]}
            | {"sources": [Keys({"name": str, "title": str, "where": str})], "to_complete": list[str]}
        ),
    }
)
