"""A candidate that does not ship: which labels the others in a record's leaves have."""

import numpy as np

from noshadow.views.readers import reader_of
from noshadow.views.view import Settings


def other_labels(model, x, y):
    """(n,) share of the other training records in a record's leaves that have another label, mean over the trees of its class.

    A guess at how wrong a model without the record would be. Raises NotApplicable where a model's rounds are not read.
    """
    training = reader_of(model).boosted(model, (x, y), weights=None, settings=Settings())
    agreeing, trees = np.zeros(len(y)), np.zeros(len(y))
    for one in training.rounds():
        for tree in one.trees:
            # One tree per round speaks for both classes of two.
            concerned = np.ones(len(y), bool) if training.margins.shape[1] == 1 else y == tree.output
            held = np.bincount(tree.leaves, minlength=len(tree.values))[tree.leaves]
            for label in np.unique(y[concerned]):
                rows = (y == label) & concerned
                same = np.bincount(tree.leaves[y == label], minlength=len(tree.values))[tree.leaves]
                agreeing[rows] += ((same - 1) / np.maximum(held - 1, 1))[rows]
            trees += concerned
    return 1 - agreeing / np.maximum(trees, 1)
