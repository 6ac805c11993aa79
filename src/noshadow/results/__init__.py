"""The answer and its folder: Audit, ModelRisk, the record table, the audit folder format."""

from noshadow.results.audit_record import Audit, load
from noshadow.results.calibration import Calibration, CalibrationCell
from noshadow.results.finding import Finding
from noshadow.results.folder import require_writable_folder, write_file
from noshadow.results.ground_truth import GroundTruth, MeasuredAttack, MeasuredRate
from noshadow.results.group_risk import GroupRisk
from noshadow.results.lood_record import LOOD, LoodAudit, load_lood
from noshadow.results.model_risk import Interval, ModelRisk, TnrCurve

__all__ = [
    "LOOD",
    "Audit",
    "Calibration",
    "CalibrationCell",
    "Finding",
    "GroundTruth",
    "GroupRisk",
    "Interval",
    "LoodAudit",
    "MeasuredAttack",
    "MeasuredRate",
    "ModelRisk",
    "TnrCurve",
    "load",
    "load_lood",
    "require_writable_folder",
    "write_file",
]
