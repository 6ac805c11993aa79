"""The answer and its folder: Audit, ModelRisk, the record table, the audit folder format."""

from noshadow.results.audit_record import Audit, load
from noshadow.results.folder import require_writable_folder, write_file
from noshadow.results.ground_truth import GroundTruth, MeasuredAttack, MeasuredRate
from noshadow.results.model_risk import Interval, ModelRisk, TnrCurve

__all__ = [
    "Audit",
    "GroundTruth",
    "Interval",
    "MeasuredAttack",
    "MeasuredRate",
    "ModelRisk",
    "TnrCurve",
    "load",
    "require_writable_folder",
    "write_file",
]
