"""Candidates of a denominator that do not ship: how far a record's margin moves when others leave, from the audited model alone."""

import numpy as np

from noshadow.losses import record_losses, record_margins
from noshadow.scores.trees.left_out import before_round, left_out, tree_change
from noshadow.views.readers import reader_of
from noshadow.views.view import Settings


def rounds_of(model, x, y):
    """The rounds of a boosted model on its training records."""
    return reader_of(model).boosted(model, (x, y), weights=None, settings=Settings())


def movements(training):
    """(n, n) what leaving record j out of its leaves moves record i's raw output by, its trees' structure fixed; two classes.

    Σ_t 1[leaf_t(i) = leaf_t(j)] δ_{t,j}, with δ_{t,j} the change of j's own leaf in round t. The diagonal is what `shift` is made of.
    """
    margins = np.broadcast_to(training.start, training.margins.shape).astype(training.margin_dtype)
    assert margins.shape[1] == 1
    moved = np.zeros((len(margins), len(margins)), dtype=np.float32)
    for one in training.rounds():
        state = before_round(training, margins.copy(), one)
        for tree in one.trees:
            change = tree_change(training, tree, state).fall.astype(np.float32)
            order = np.argsort(tree.leaves, kind="stable")
            for rows in np.split(order, np.flatnonzero(np.diff(tree.leaves[order])) + 1):
                moved[np.ix_(rows, rows)] += change[rows][None, :]
            margins[:, 0] += tree.values[tree.leaves].astype(training.margin_dtype)
    return moved * training.logit_scale


def spread_and_parts(model, x, y):
    """Arrays (n,) of an audited model of two classes: the jackknife's variance of each margin, and the two parts of `yielding_shift`."""
    training = rounds_of(model, x, y)
    raw = training.margins * training.logit_scale
    without = (training.margins - left_out(training).yielding) * training.logit_scale
    both = [record_margins(outputs, y.astype(float), "binary") for outputs in (raw, without)]
    return {
        "jackknife_variance": (movements(training).astype(np.float64) ** 2).sum(1),
        "yielding_fall": both[0] - both[1],
        "yielding_loss": record_losses(without, y.astype(float), "binary"),
    }
