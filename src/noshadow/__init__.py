"""noshadow: how exposed are the people in the training data of the model you just trained?"""

from noshadow.checks import InputError, NotApplicable, NumericalError
from noshadow.scores.last_layer import record_scores
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals

__version__ = "0.1.0"

__all__ = ["InputError", "NotApplicable", "NumericalError", "RecordScores", "Signals", "record_scores"]
