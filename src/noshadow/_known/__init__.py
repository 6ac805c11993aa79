"""What is best known about an attack on an audited model, and on its most exposed record."""

from noshadow._known.accusation import PRIORS, Accusation, accusations
from noshadow._known.bases import TELLS_APART, base_left_out, base_stamp, nats_above_a_guess, splits_differ, tells_splits_apart
from noshadow._known.circular import circular_columns, exposure_rests_on
from noshadow._known.needed import models_on_halves, needed_references, trained_models, weighed_entry
from noshadow._known.rate import DECLARED, SOURCES, KnownRate, best_known, declared_attack, is_level, own_fpr
from noshadow._known.together import largest_rate, retraining
from noshadow._known.words import per_thousand, per_thousand_between, per_thousand_more
from noshadow._known.worst import ENOUGH_MODELS, WorstRecord, worst_record

__all__ = [
    "DECLARED",
    "ENOUGH_MODELS",
    "PRIORS",
    "SOURCES",
    "TELLS_APART",
    "Accusation",
    "KnownRate",
    "WorstRecord",
    "accusations",
    "base_left_out",
    "base_stamp",
    "best_known",
    "circular_columns",
    "declared_attack",
    "exposure_rests_on",
    "is_level",
    "largest_rate",
    "models_on_halves",
    "nats_above_a_guess",
    "needed_references",
    "own_fpr",
    "per_thousand",
    "per_thousand_between",
    "per_thousand_more",
    "retraining",
    "splits_differ",
    "tells_splits_apart",
    "trained_models",
    "weighed_entry",
    "worst_record",
]
