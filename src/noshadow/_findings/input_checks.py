"""Checks on how model and data were read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable
from noshadow.results import Audit


def outputs_not_of_the_head(audit: Audit, limits: Limits) -> Outcome:
    """NS043: whether the model returns what its head gives, for every record."""
    facts = _facts(audit, "head_outputs")
    if facts is None:
        return not_applicable("no head of a module was read")
    differing, records = int(facts["differing"]), int(facts["records"])
    name = f"{facts['ending']} of '{facts['layer']}'" if facts["ending"] else f"'{facts['layer']}'"
    if differing <= limits["records"]:
        return judged(False, differing, f"The outputs of all {records} records are those of {name}.")
    size = "" if facts["largest"] is None else f" by up to {facts['largest']:.3g}"
    used = (
        f"The audit is of that layer, as asked for: layer={facts['layer']!r}."
        if facts["used"] == "layer"
        else "Losses are of the model's own."
    )
    sentence = f"The outputs of {differing} of {records} records differ from {name}{size}. {used}"
    ids = np.asarray(audit.records["id"])[np.array(facts["train_rows"], dtype=np.int64)]
    return Outcome("found", sentence, float(differing), examples=tuple(map(str, ids)))


def _facts(audit: Audit, name: str) -> Mapping[str, Any] | None:
    """What an audit holds under a name about how its inputs were read; None where it does not."""
    facts: Mapping[str, Any] | None = audit.provenance.get("inputs", {}).get(name)
    return facts
