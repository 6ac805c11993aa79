"""Secrets of a known form, put into training data to see how much of them a model gives away.

`make` draws them, `insert` puts them into a training set, `score` says how far a trained model
prefers them over what they might have been. `choose` and `mislabel` make canaries of records.
"""

from noshadow.canaries.chosen import choose, mislabel
from noshadow.canaries.forms import Canaries, make
from noshadow.canaries.insertion import Inserted, insert
from noshadow.canaries.scoring import CanaryScores, score

__all__ = ["Canaries", "CanaryScores", "Inserted", "choose", "insert", "make", "mislabel", "score"]
