"""What of each sequence's gain over the base the other sequences do not explain."""

import numpy as np

from noshadow.checks import Array, NumericalError, said
from noshadow.views import TokenStatistics

# Both chosen on one pool of texts and judged on another (docs/language_models.md).
MOST_PER_TOKEN = 2.0  # nats
DAMPING = 1.0  # of the mean of the kernel's diagonal


def token_gain(own: TokenStatistics, base: TokenStatistics, most: float = MOST_PER_TOKEN) -> Array:
    """Mean over a sequence's tokens of log p(x_t) − log q(x_t), each within ±`most`; (n,) nats.

    A token on which the model moved further says little more about membership, and much about the
    token: rare names of a style gain most.

    Cost: O(N) in the number of tokens.
    """
    moved = np.clip(own.log_probability - base.log_probability, -most, most)
    found: Array = np.add.reduceat(moved, own.starts[:-1]) / np.diff(own.starts)
    return found


def own_gain(gains: Array, kernel: Array, damping: float = DAMPING) -> Array:
    """How much each sequence was learnt from itself: gains with the others' teaching taken out.

    A fine-tuning adds up steps, θ − θ₀ ≈ −Σ_j a_j D∇ℓ_j, with a_j > 0 for a sequence j that it had
    and 0 for any other, and D how the optimiser scales each parameter. To first order sequence i
    then gains Σ_j K_ij a_j with K_ij = ∇ℓ_iᵀD∇ℓ_j: its own step and what all others teach it. The
    steps solve a = (K + λ(tr K/n)I)⁻¹ g, and the score is a_i · tr K/n: the gain, in nats, that
    such steps bring to a sequence of mean gradient norm. Nobody's membership is asked, so that
    training and test sequences are scored alike.

    Args:
        gains: (n,) g, of training and test sequences together. kernel: (n, n) K, symmetric and
            positive semidefinite, from the same sequences. damping: λ > 0, as a share of the mean
            of K's diagonal: large, and the score goes to a multiple of the gain.

    Returns:
        (n,) float64, larger = more like a member; near 0 for a sequence that taught the model
        nothing of its own.

    Raises:
        NumericalError: a kernel that is zero or not finite.

    Exact when: the losses are linear in the weights between base and model, the optimiser's
        scaling is D throughout, and λ is small beside what noise there is.
    Approximates: the steps of a training by one gradient per sequence, at weights between the two.
    Cost: O(n³), memory O(n²).
    Reference: ours. Gradients of both sides as a kernel: Jacot et al. 2018; a record's steps
        against those of others, as in influence: Koh and Liang 2017.
    """
    scale = float(np.trace(kernel)) / len(kernel)
    if not np.isfinite(scale) or scale <= 0 or not np.isfinite(kernel).all():
        raise NumericalError(said("the sequences' gradients are zero or not finite. Are the model's weights finite?"))
    found: Array = np.linalg.solve(kernel / scale + damping * np.eye(len(kernel)), gains)
    return found
