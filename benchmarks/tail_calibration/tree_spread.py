"""Candidates of a denominator that do not ship: how far a record's margin moves when others leave, from the audited model alone."""

import numpy as np

from noshadow.losses import record_losses, record_margins
from noshadow.scores.trees.left_out import before_round, left_out, tree_change
from noshadow.views.readers import reader_of
from noshadow.views.view import Settings


def rounds_of(model, x, y):
    """The rounds of a boosted model on its training records."""
    return reader_of(model).boosted(model, (x, y), weights=None, settings=Settings())


def both_outputs(training, raw):
    """Logits (n, m) of raw outputs; a lone one is the logit of class 1."""
    logits = raw * training.logit_scale
    return logits if logits.shape[1] > 1 else np.concatenate([np.zeros_like(logits), logits], axis=1)


def slopes(training):
    """(n, m) what a step of each raw output moves a record's margin by, to first order: (1[c = y] − p_c)/(1 − p_y)."""
    logits, labels = both_outputs(training, training.margins), training.targets.astype(np.int64)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    own = np.zeros_like(p)
    own[np.arange(len(p)), labels] = 1.0
    found = np.where(own > 0, 1.0, -p / np.maximum((p * (1 - own)).sum(1, keepdims=True), np.finfo(float).tiny))
    return (found if training.margins.shape[1] > 1 else found[:, 1:]) * training.logit_scale


def movements(training):
    """(n, n) what leaving record j out of its leaves moves record i's margin by, the trees' structure fixed.

    Σ_c φ'_c(i) Σ_t 1[leaf_t(i) = leaf_t(j)] δ_{t,j} over the trees t of output c, with δ_{t,j} the change of j's own leaf in round t and
    φ'_c the slope of the margin. The diagonal is what `shift` is made of.
    """
    margins = np.broadcast_to(training.start, training.margins.shape).astype(training.margin_dtype)
    moved, slope = np.zeros((len(margins), len(margins)), dtype=np.float32), slopes(training).astype(np.float32)
    for one in training.rounds():
        state = before_round(training, margins.copy(), one)
        for tree in one.trees:
            change, k = tree_change(training, tree, state).fall.astype(np.float32), tree.output
            order = np.argsort(tree.leaves, kind="stable")
            for rows in np.split(order, np.flatnonzero(np.diff(tree.leaves[order])) + 1):
                moved[np.ix_(rows, rows)] += slope[rows, k][:, None] * change[rows][None, :]
            margins[:, k] += tree.values[tree.leaves].astype(training.margin_dtype)
    return moved


def spread_and_parts(model, x, y):
    """Arrays (n,) of an audited model: the jackknife's variance of each margin, and the two parts of `yielding_shift`."""
    training = rounds_of(model, x, y)
    raw, without = (both_outputs(training, outputs) for outputs in (training.margins, training.margins - left_out(training).yielding))
    labels = training.targets.astype(np.int64)
    fall = record_margins(raw, labels, "classification") - record_margins(without, labels, "classification")
    variance = (movements(training).astype(np.float64) ** 2).sum(1)
    return {"jackknife_variance": variance, "yielding_fall": fall, "yielding_loss": record_losses(without, labels, "classification")}
