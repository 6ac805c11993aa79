"""An audit as a fragment of HTML for a notebook: verdict, picture, the riskiest records."""

from dataclasses import dataclass, field
from typing import Any

from noshadow._answer import next_action, verdict
from noshadow._findings import most_severe
from noshadow._glance.lines import drawn, summary_text
from noshadow._glance.picture import MARKS, exposure_chart, people_grids
from noshadow._glance.records import record_cells
from noshadow._glance.rendering import escaping_templates
from noshadow._glance.told import Told
from noshadow.formats import number, sentence


@dataclass(frozen=True, repr=False)
class Glance:
    """An audit at one glance: HTML where a notebook shows it, text elsewhere.

    Attributes:
        html: a fragment without scripts that needs nothing beside it. text: the same in lines.
    """

    html: str = field(repr=False)
    text: str

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def glance(audit: Told, *, show_ids: bool, top: int) -> Glance:
    """The audit for people.

    Args:
        audit: what to show. show_ids: whether records are named. top: how many of the riskiest
            records are listed.

    Cost: O(n log n) in the number of records.
    """
    content = _content(audit, show_ids=show_ids, top=top)
    html = escaping_templates("noshadow._glance").get_template("glance.html.j2").render(content)
    return Glance(html, summary_text(audit, show_ids=show_ids))


def _content(audit: Told, *, show_ids: bool, top: int) -> dict[str, Any]:
    """Everything that the template shows, as text, plain numbers, lists and dictionaries."""
    found, action = verdict(audit), next_action(audit)
    known = found.known
    names, rows = ([], []) if audit.ranked_by is None else record_cells(audit, top, show_ids=show_ids)
    return {
        "level": found.level,
        "mark": MARKS[found.level],
        "title": found.title,
        "sentence": sentence(found.sentence),
        "reason": "" if known.reason == found.sentence else sentence(known.reason),
        "ruled_out": known.source == "losses",
        "grids": [] if known.rate is None else people_grids(known),
        "exposure": exposure_chart(audit),
        "names": names,
        "rows": rows,
        "ranked_by": audit.ranked_by,
        "unranked": sentence(audit.not_applicable.get("rank", "the audit holds no record scores")),
        "show_ids": show_ids,
        "members": number(len(audit.records)),
        "nonmembers": number(len(audit.nonmember_losses)),
        "task": audit.task,
        "findings": [{"code": one.code, "name": one.name, "severity": one.severity} for one in most_severe(drawn(audit))],
        "action": {"sentence": sentence(action.sentence), "command": action.command},
    }
