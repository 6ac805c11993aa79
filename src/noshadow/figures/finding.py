"""Finding: one coded statement about an audit, as a frozen value that goes to JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from noshadow.checks import named_in_errors, refuse, require_choice
from noshadow.storage.forms import Count, require_form

STATUSES = ("found", "passed", "not applicable", "skipped")
SEVERITIES = ("high", "medium", "low")


@dataclass(frozen=True)
class Finding:
    """One coded statement: which rule was looked at, what came out, and what to do.

    Attributes:
        code: NS001 …, never reused. name: the same in words, e.g. "train-test-overlap".
        status: "found"; "passed"; "not applicable", the question does not arise here; "skipped", it
            does, and the audit does not hold what the answer needs. The sentence says why.
        severity: "high", "medium" or "low", how much a found one matters.
        rule: the condition in words, with its thresholds. limits: the thresholds by name.
        figure: the number that was held against the rule, None where there is none.
        sentence: what came out, in plain words. next_step: what to do, empty when there is nothing.
        anchor: where the documentation explains it.
        records: up to ten ids of records it speaks of, riskiest first. count: how many there are,
            None when it is not about records.
    """

    code: str
    name: str
    status: str
    severity: str
    rule: str
    figure: float | None
    sentence: str
    next_step: str
    anchor: str
    limits: dict[str, float] = field(default_factory=dict)
    records: tuple[str, ...] = ()
    count: Count | None = None

    @named_in_errors
    def __post_init__(self) -> None:
        require_choice(self.status, STATUSES, "status")
        require_choice(self.severity, SEVERITIES, "severity")
        for name, value in (("figure", self.figure), ("count", self.count), *self.limits.items()):
            # NumPy scalars and infinities would not survive strict JSON.
            if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
                refuse(name, "be a finite Python number or None", repr(value))

    def to_dict(self) -> dict[str, Any]:
        """The finding in plain JSON types."""
        return asdict(self) | {"records": list(self.records)}

    @classmethod
    @named_in_errors
    def from_dict(cls, data: Mapping[str, Any]) -> "Finding":
        """The finding that `to_dict` wrote.

        Raises:
            InputError: fields are missing or unknown.
        """
        known = {f.name for f in fields(cls)}
        if not isinstance(data, Mapping) or set(data) != known:
            apart = sorted(set(data) ^ known) if isinstance(data, Mapping) else type(data).__name__
            refuse("data", "hold exactly the fields of Finding", f"{apart}", "Written by another version?")
        require_form(data, cls, "data", "Written by another version?")
        return cls(**(dict(data) | {"records": tuple(data["records"])}))
