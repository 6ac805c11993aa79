"""What rules and answers read of an audit."""

from typing import Any, Protocol, runtime_checkable

import pandas as pd

from noshadow.checks import Array
from noshadow.figures import EvidenceEntry, GroundTruth, GroupRisk, MeasuredAttack, ModelRisk


@runtime_checkable
class Audited(Protocol):
    """The fields of `noshadow.results.Audit` that rules and answers are drawn from.

    Both stand below the audit, so that an audit that gains evidence draws them anew.
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

    @property
    def evidence(self) -> tuple[EvidenceEntry, ...]: ...

    @property
    def sequence_attacks(self) -> tuple[MeasuredAttack, ...]: ...
