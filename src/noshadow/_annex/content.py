"""The whole annex as one dictionary in plain JSON types."""

from collections.abc import Mapping
from typing import Any

from noshadow import __version__
from noshadow._annex.attacks import attack_rows
from noshadow._annex.limitations import limitations
from noshadow._annex.outcome import outcome
from noshadow._annex.readers import DISCLAIMER, tables_for_readers
from noshadow._annex.reproduction import reproduction
from noshadow._annex.setting import data_and_dates, parameters
from noshadow._annex.threat_model import threat_model
from noshadow.results import Audit

# Of the annex itself: raised when a key changes its meaning or goes.
FORMAT = 1


def annex_content(audit: Audit, *, files: Mapping[str, str] | None = None, show_ids: bool = False) -> dict[str, Any]:
    """Gather what a reviewer is told: plain JSON types, no NaN, no ids unless asked for.

    Args:
        audit: the audit. files: name → SHA-256 of the files of its folder.
        show_ids: name the most exposed record, and those that findings speak of.

    Exact when: always; every figure is one that the audit holds.
    Cost: O(n log n) in the number of records.
    """
    return {
        "annex_format": FORMAT,
        "about": {
            "title": "Evidence on membership inference",
            "audited_with": f"noshadow {audit.provenance.get('versions', {}).get('noshadow', 'of an unknown version')}",
            "written_with": f"noshadow {__version__}",
            "disclaimer": DISCLAIMER,
            "shows_ids": show_ids,
            "shows_contents": False,
        },
        "threat_model": threat_model(audit),
        "attacks": attack_rows(audit),
        "data": data_and_dates(audit),
        "parameters": parameters(audit),
        "results": outcome(audit, show_ids),
        "limits": limitations(audit),
        "reproduction": reproduction(audit, files),
        "for_readers": tables_for_readers(),
    }
