"""Whether a solved, convex fit contradicts the records that it is said to be fitted on."""

import numpy as np

from noshadow._audit.settled import Settled
from noshadow.scores.result import RecordScores

# The gradient left over on n strangers is about √n of one record's: it is their random sum. This
# share of it, and so many times what the solver leaves, is beyond every fit that was tried on its
# own records (breast cancer, wine, digits and noise, C from 0.001 to ∞), and below every one on
# other records of the same source.
SHARE_OF_STRANGERS = 0.3
TIMES_THE_SOLVER = 20.0


def contradicted_by_gradient(found: Settled, scores: RecordScores | None) -> str | None:
    """Why these are most likely not the records of the fit; None where nothing says so.

    At the minimum of a convex objective whose λ is known the gradients of the very records of the
    fit cancel, up to what the solver leaves. Other records, targets or weights leave a gradient of
    their own.
    """
    leaves = found.seen.inputs.get("solver_leaves")
    if leaves is None or scores is None or scores.damping.kind != "estimator" or scores.gradient_norm is None:
        return None
    typical = float(np.sqrt((scores.gradient_norm**2).mean()))
    n, left = len(scores.gradient_norm), scores.stationarity
    if not left > SHARE_OF_STRANGERS * np.sqrt(n) or not left * typical / n > TIMES_THE_SOLVER * leaves:
        return None
    return (
        f"the solver had converged, and on these records a gradient of {left:.3g} times one typical record's is left over: probably these "
        "are not the records, targets or weights that the model was fitted on"
    )
