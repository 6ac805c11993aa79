"""The answer and its folder: Audit, ModelRisk, the record table, the audit folder format."""

from noshadow.figures import (
    Evidence,
    EvidenceEntry,
    Finding,
    GroundTruth,
    GroupRisk,
    Interval,
    MeasuredAttack,
    MeasuredRate,
    ModelRisk,
    TnrCurve,
    TokenGains,
)
from noshadow.results.audit_record import Audit, require_audit
from noshadow.results.calibration import Calibration, CalibrationCell
from noshadow.results.folder import ANNEX, files_of, require_writable_folder, write_file
from noshadow.results.lood_record import LOOD, LoodAudit, load_lood
from noshadow.results.opening import load

__all__ = [
    "ANNEX",
    "LOOD",
    "Audit",
    "Calibration",
    "CalibrationCell",
    "Evidence",
    "EvidenceEntry",
    "Finding",
    "GroundTruth",
    "GroupRisk",
    "Interval",
    "LoodAudit",
    "MeasuredAttack",
    "MeasuredRate",
    "ModelRisk",
    "TnrCurve",
    "TokenGains",
    "files_of",
    "load",
    "load_lood",
    "require_audit",
    "require_writable_folder",
    "write_file",
]
