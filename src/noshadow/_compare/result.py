"""What a comparison of two audits hands back: frozen values that go to JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from noshadow.results import Finding, Interval


@dataclass(frozen=True)
class Change:
    """One model-level figure in both audits.

    Attributes:
        name: "measured_tpr", "attack_rate", "compared_tpr" or "predicted_tpr"; "tnr"; "auc".
        label: the same in words, with its level.
        before, after: the figure in the first and the second audit; None where that audit does not
            hold it.
        difference: after − before. interval: of the difference, None where there is none.
        more_than_noise: whether the interval leaves out zero; None without an interval.
        method: how the interval was obtained, or why there is none.
    """

    name: str
    label: str
    before: float | None
    after: float | None
    difference: float | None
    interval: Interval | None
    more_than_noise: bool | None
    method: str


@dataclass(frozen=True)
class Mover:
    """A record that is among the top of one audit only.

    A rank is None where the record is not in that audit.
    """

    id: str
    rank_before: int | None
    rank_after: int | None


@dataclass(frozen=True)
class Comparison:
    """Two audits side by side; "before" is the first, "after" the second.

    Attributes:
        verdict: one sentence on the change in model risk.
        changes: model-level figures, most telling first.
        differences: what differs between the audits (hashes, sizes, level, task, …): name →
            [before, after].
        shared, only_before, only_after: how many training record ids are in both and in one only.
        same_records: whether shared ids name the same records, so that ranks can be compared.
        same_tests: whether both were tested on the same records.
        top: share of the records called the top, here 0.01; top_before and top_after: how many that
            is.
        entered, left: records that are in the top after and not before, and the other way round,
            riskiest first.
        rank_correlation: Spearman correlation of the ranking scores over shared records, None where
            there is none.
        gained, lost: statements found after and not before, and the other way round, by this
            version's rules.
        kept: codes of the statements found in both.
        not_applicable: what could not be compared, with the reason.
        notes: sentences a reader must see.
        level: coverage of the intervals. seed: of the bootstrap.
        provenance: when each audit was made, and its hashes (JSON-ready).
    """

    verdict: str
    changes: tuple[Change, ...]
    differences: dict[str, list[Any]]
    shared: int
    only_before: int
    only_after: int
    same_records: bool
    same_tests: bool
    top: float
    top_before: int
    top_after: int
    entered: tuple[Mover, ...]
    left: tuple[Mover, ...]
    rank_correlation: float | None
    gained: tuple[Finding, ...]
    lost: tuple[Finding, ...]
    kept: tuple[str, ...]
    not_applicable: dict[str, str]
    notes: tuple[str, ...]
    level: float
    seed: int
    provenance: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The comparison in plain JSON types."""
        lists = ("changes", "entered", "left", "kept", "notes")
        plain = asdict(self)
        for change in plain["changes"]:
            change["interval"] = None if change["interval"] is None else list(change["interval"])
        findings = {name: [finding.to_dict() for finding in getattr(self, name)] for name in ("gained", "lost")}
        return plain | {name: list(plain[name]) for name in lists} | findings
