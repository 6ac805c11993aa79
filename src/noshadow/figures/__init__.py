"""What an audit found, as frozen values that go to JSON and back."""

from noshadow.figures.evidence import Evidence, EvidenceEntry
from noshadow.figures.finding import SEVERITIES, Finding
from noshadow.figures.ground_truth import GroundTruth, MeasuredAttack, MeasuredRate, attack_from_dict
from noshadow.figures.group_risk import GroupRisk
from noshadow.figures.model_risk import Interval, ModelRisk, TnrCurve
from noshadow.figures.record_rates import LargestRate, Retraining
from noshadow.figures.token_gains import TokenGains

__all__ = [
    "SEVERITIES",
    "Evidence",
    "EvidenceEntry",
    "Finding",
    "GroundTruth",
    "GroupRisk",
    "Interval",
    "LargestRate",
    "MeasuredAttack",
    "MeasuredRate",
    "ModelRisk",
    "Retraining",
    "TnrCurve",
    "TokenGains",
    "attack_from_dict",
]
