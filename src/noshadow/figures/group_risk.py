"""GroupRisk: how exposed one class or group of records is, beside the others."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from noshadow.arguments import renamed_attribute
from noshadow.checks import named_in_errors, refuse
from noshadow.figures.model_risk import Interval
from noshadow.storage.forms import Count, Share, require_form

# Fields that files know by an older word: folders of all versions hold the same keys.
_IN_FILES = {"fnr": "level"}


@dataclass(frozen=True)
class GroupRisk:
    """Loss-attack risk within one group of records. Larger = riskier.

    Attributes:
        group: its name. n_members, n_nonmembers: its records on each side.
        auc: probability that a member's loss is below a non-member's, both of this group; None with
            too few records.
        auc_difference: `auc` − that of all other records. auc_p: two-sided, adjusted by Holm over
            all tests of the table.
        fnr: false-negative rate that `tnr` is read at, one for all groups; "level" in files.
        tnr: share of the group's non-members above the group's own threshold. tnr_difference,
            tnr_p: likewise.
        riskier: an adjusted p below 1 − the interval level, on the risky side, in `auc` or `tnr`.
        reason: why figures are missing; None when they are there.
        *_interval: (low, high) at the table's level.
    """

    group: str
    n_members: Count
    n_nonmembers: Count
    auc: Share | None
    auc_interval: Interval | None
    auc_difference: float | None
    auc_p: Share | None
    fnr: Share | None
    tnr: Share | None
    tnr_interval: Interval | None
    tnr_difference: float | None
    tnr_p: Share | None
    riskier: bool
    reason: str | None = None

    level = renamed_attribute("level", "fnr")

    def to_dict(self) -> dict[str, Any]:
        """The record in plain JSON types."""
        values = {_IN_FILES.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    @named_in_errors
    def from_dict(cls, data: Mapping[str, Any]) -> "GroupRisk":
        """The record that `to_dict` wrote.

        Raises:
            InputError: a field is missing or unknown.
        """
        known = {_IN_FILES.get(field.name, field.name) for field in fields(cls)}
        if not isinstance(data, Mapping) or not known - {"reason"} <= set(data) <= known:
            if not isinstance(data, Mapping):
                refuse("data", "be a dictionary", type(data).__name__)
            refuse("data", "hold exactly its fields", f"{sorted(set(data) ^ known)} missing or unknown")
        named = {word: name for name, word in _IN_FILES.items()}
        data = {named.get(word, word): value for word, value in data.items()}
        require_form(data, cls, "data", "Written by another version?")
        given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        return cls(**given)
