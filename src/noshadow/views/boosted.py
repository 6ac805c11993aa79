"""What a boosted model keeps of its training: round by round, which leaf each record fell into.

A family of boosted models fills in `Boosted`; `noshadow.scores.trees` reads it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

from noshadow.checks import Array

# Losses whose leaf values are a Newton step; `scores/trees/objectives.py` has their formulas.
SQUARED, SOFTMAX, EXPONENTIAL, POISSON, GAMMA = "squared", "softmax", "exponential", "poisson", "gamma"
# One loss, whose gradients three libraries round in three ways.
LOGISTIC, LOGISTIC_OF_P, LOGISTIC_OF_G = "logistic", "logistic of p", "logistic of g"


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree of one round, as the training records went through it.

    Attributes:
        leaves: (n,) number of the node that each training record ends in.
        values: (nodes,) what the model adds to the output there, learning rate included and
            `Boosted.start` not.
        rate: learning rate of this tree, times constants that the library puts before its step.
        parents: (nodes,) number of each node's parent, −1 for the root. None where a leaf without
            records keeps its place with the step 0, as in symmetric trees.
        output: which output of the model it adds to.
        inside: (n,) whether the record's gradient was in its leaves, where each tree of a round
            took records of its own; None where the round says it.
    """

    leaves: Array
    values: Array
    rate: float
    parents: Array | None = None
    output: int = 0
    inside: Array | None = None


@dataclass(frozen=True, eq=False)
class Round:
    """The trees that were fitted to one set of gradients, and the records they were fitted to.

    Attributes:
        trees: at least one per output.
        inside: (n,) whether the record's gradient was in the leaves; None where all were.
        drawn: of rounds that chose records by their gradients: gradients and curvatures (n, m) →
            (n,) factor before both of each record, 0 for those not taken. Asked once per round, in
            the order of the rounds.
    """

    trees: tuple[Tree, ...]
    inside: Array | None = None
    drawn: Callable[[Array, Array], Array] | None = None


@dataclass(frozen=True, eq=False)
class LeafRule:
    """How the library makes a leaf's step of the sums G and H of its gradients and curvatures.

    step = −rate · sign(G) · max(|G| − l1, 0) / (H + l2), at most `most` in size before the rate.

    Attributes:
        l1, l2: penalties on a leaf's value. most: largest step before the rate; 0 for no limit.
        least: denominators up to this give the step 0. steps: how many such steps are added up in
            each leaf before the rate, each from the gradients that the last one left.
        newton: whether H sums curvatures; else it sums weights.
        all_classes: whether G is a vector and H a matrix over the classes of softmax, and all
            values of a leaf are solved for at once; the trees of a round share their leaves then.
    """

    l1: float = 0.0
    l2: float = 0.0
    most: float = 0.0
    least: float = 0.0
    steps: int = 1
    newton: bool = True
    all_classes: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Boosted:
    """The training of a boosted model, as far as the model keeps it.

    Attributes:
        library: its name, for people.
        rounds: makes an iterator over the rounds of the model, in their order.
        count: how many rounds there are.
        start: (m,) or (n, m) raw outputs before the first round.
        margins: (n, m) the model's own raw outputs after the last round.
        objective: name of the loss. curvature: factor that the library puts before its curvatures.
        curvature_floor: least curvature of a record.
        targets: (n,) numbers of classes or values. weights: (n,) of the records, classes' included.
        rule: how a leaf's value is made.
        margin_dtype, gradient_dtype: precision in which the library keeps them.
        logit_scale: raw outputs times this are log-odds.
        notes: sentences a reader of the scores needs to know.
        unread: what of the model bends leaf values and is not read, in words; "" for nothing known.
            Leaves that cannot be rebuilt then need not mean that the records are others.
    """

    library: str
    rounds: Callable[[], Iterator[Round]]
    count: int
    start: Array
    margins: Array
    objective: str
    targets: Array
    weights: Array | None = None
    curvature: float = 1.0
    curvature_floor: float = 0.0
    rule: LeafRule = field(default_factory=LeafRule)
    margin_dtype: Any = np.float64
    gradient_dtype: Any = np.float64
    logit_scale: float = 1.0
    notes: tuple[str, ...] = ()
    unread: str = ""


def held_out_note(count: int) -> tuple[str, ...]:
    """Say how many records the model held out to stop its training early; nothing for none."""
    if count == 0:
        return ()
    return (f"{count} training records were held out to stop the training early: no leaf was fitted to them, and their scores are 0",)


def class_weighted(last: Any, targets: Array, weights: Array | None) -> Array | None:
    """Weights of the records times those of their classes, as an estimator's `class_weight` has it.

    Args:
        last: the estimator. targets: (n,) numbers of classes. weights: (n,) given to `fit`, or
            None.
    """
    by_class = getattr(last, "class_weight", None)
    if by_class is None:
        return weights
    if isinstance(by_class, dict):
        by_class = {number: by_class[label] for number, label in enumerate(last.classes_.tolist()) if label in by_class}
    found: Array = compute_sample_weight(by_class, targets.astype(np.int64))
    return found if weights is None else found * weights
