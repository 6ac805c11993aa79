"""What rules read of an audit."""

from typing import Any, Protocol, runtime_checkable

import pandas as pd

from noshadow.checks import Array
from noshadow.figures import GroundTruth, GroupRisk, ModelRisk
from noshadow.outcomes import Absent


@runtime_checkable
class Audited(Protocol):
    """The fields of `noshadow.results.Audit` that rules are held against.

    The rules stand below the audit, so that an audit that gains evidence draws its findings anew.
    """

    @property
    def records(self) -> pd.DataFrame: ...

    @property
    def model_risk(self) -> ModelRisk | None: ...

    @property
    def member_losses(self) -> Array: ...

    @property
    def nonmember_losses(self) -> Array: ...

    @property
    def task(self) -> str: ...

    @property
    def ranked_by(self) -> str | None: ...

    @property
    def not_applicable(self) -> dict[str, str]: ...

    @property
    def provenance(self) -> dict[str, Any]: ...

    @property
    def ground_truth(self) -> GroundTruth | None: ...

    @property
    def class_risk(self) -> tuple[GroupRisk, ...]: ...

    @property
    def group_risk(self) -> tuple[GroupRisk, ...]: ...


def why_unscored(audit: Audited) -> Absent:
    """Why nothing better than the loss orders the records."""
    first = ("rank", "influence") if audit.task == "language-model" else ("rank", "shift")
    reasons = (audit.not_applicable.get(name) for name in first)
    return Absent.of(next((reason for reason in reasons if reason), "the audit holds no record scores"))
