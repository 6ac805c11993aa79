"""Margins and losses of votes: shares of B parts, which may be exactly 0 or 1."""

import numpy as np
from scipy.special import expit

from noshadow.checks import Array

# Name of the fact how many parts of a model vote, in what audits and files of models say of it.
VOTES = "votes"


def vote_margins(shares: Array, parts: int) -> Array:
    """log((k + ½)/(B − k + ½)) of k = B·share votes for the record's class, (n,).

    Two shares are brought to the same number B of votes, whatever they were counted over, so that
    a unanimous vote of few parts is no further out than one of many.

    Args:
        shares: (n,) in [0, 1]. parts: B ≥ 1.
    """
    votes = parts * shares
    margins: Array = np.log((votes + 0.5) / (parts - votes + 0.5))
    return margins


def vote_shares(margins: Array, parts: int) -> Array:
    """The shares whose `vote_margins` of B parts these are: (σ(φ)(B + 1) − ½)/B; shapes as given.

    Exact: `vote_margins(vote_shares(φ, B), B)` is φ to rounding. NaN stays.
    """
    shares: Array = np.clip((expit(margins) * (parts + 1) - 0.5) / parts, 0.0, 1.0)
    return shares


def margins_in_votes(margins: Array, parts: int) -> Array:
    """Log-odds of shares of votes, clipped where a share is 0 or 1, as margins of B votes.

    Shapes as given; NaN stays. Models of any number of parts come to the scale of B parts.
    """
    return vote_margins(expit(margins), parts)


def vote_losses(shares: Array, parts: int) -> Array:
    """log(1 + e^−margin) = −log((k + ½)/(B + 1)), (n,) nats: finite without any vote."""
    losses: Array = -np.log((parts * shares + 0.5) / (parts + 1))
    return losses


def one_vote(parts: int) -> float:
    """What one vote of B moves the margin of an even vote by, to first order: 4/(B + 1)."""
    return 4 / (parts + 1)
