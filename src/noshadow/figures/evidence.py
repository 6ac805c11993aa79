"""Evidence: what one source says about every record of an audit."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from noshadow.checks import Array, as_array, named_in_errors, refuse
from noshadow.columns import column, is_target
from noshadow.figures.record_rates import LARGEST_FORM, RETRAINING_FORM
from noshadow.storage.digests import arrays_sha256, sha256
from noshadow.storage.forms import Keys, require_form

# Facts of a stamp that figures are read from; whatever else stands beside them is kept as it is.
_STAMP = Keys(optional={"largest_rate": LARGEST_FORM, "retraining": RETRAINING_FORM})
_FORM = Keys({"source": str, "columns": list[str], "absent": dict[str, str], "notes": list[str], "stamp": _STAMP, "digest": str})


@dataclass(frozen=True)
class EvidenceEntry:
    """What an audit keeps of evidence beside its columns: who wrote them, and how.

    Attributes:
        source: who wrote the columns, e.g. "scores", "traces" or "reference models".
        columns: names of what it wrote into the record table.
        absent: what it could not give, with the reason.
        notes: sentences a reader must see.
        stamp: arguments and other facts about how it was made (JSON-ready).
        digest: SHA-256 of the columns' names and values.
    """

    source: str
    columns: tuple[str, ...]
    absent: dict[str, str]
    notes: tuple[str, ...]
    stamp: dict[str, Any]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """The entry in plain JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EvidenceEntry":
        """The entry that `to_dict` wrote.

        Raises:
            InputError: fields are missing or of another kind.
        """
        require_form(data, _FORM, "evidence", "Written by another version?")
        held = {name: tuple(data[name]) for name in ("columns", "notes")}
        return cls(**({name: data[name] for name in ("source", "absent", "stamp", "digest")} | held))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Columns that one source has for every record of an audit; `Audit.with_evidence` adds them.

    Attributes:
        source: who says it; evidence of the same source replaces what it wrote before.
        columns: name → (n,) numbers in the order of the audit's records. Every name is one of
            `noshadow.columns`, whose entry says what it means.
        absent: what the source could not give, with the reason.
        notes: sentences a reader must see.
        stamp: arguments and other facts about how it was made (JSON-ready).
        seconds: what it took; kept among the audit's timings. None where it is timed elsewhere.

    Raises:
        InputError: a column that nobody registered, that identifies records, or of another length.
    """

    source: str
    columns: dict[str, Array] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stamp: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    @named_in_errors
    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source:
            refuse("source", "be a name", repr(self.source))
        held = {name: as_array(values, name) for name, values in self.columns.items()}
        for name, values in held.items():
            if column(name) is None or is_target(name) or name in ("id", "rank"):
                hint = "docs/audit.md lists the columns that a record table may hold."
                refuse("columns", "be registered, and no identity or rank", f"'{name}'", hint)
            if values.ndim != 1 or values.dtype.kind not in "biuf":
                refuse(name, "be one number per record", f"shape {values.shape} of {values.dtype}")
        lengths = {name: len(values) for name, values in held.items()}
        if len(set(lengths.values())) > 1:
            refuse("columns", "have one length", f"{lengths}")
        object.__setattr__(self, "columns", held)

    def entry(self) -> EvidenceEntry:
        """What an audit keeps of it beside the columns."""
        digest = sha256("\n".join(self.columns).encode(), arrays_sha256(*self.columns.values()).encode())
        return EvidenceEntry(self.source, tuple(self.columns), dict(self.absent), self.notes, dict(self.stamp), digest)
