"""Leave-one-out distinguishability of a data set under Gaussian processes.

Networks of infinite width are among these processes.
"""

from noshadow._lood.audit import lood_audit
from noshadow._lood.critical import critical_weights
from noshadow._lood.data_set import data_arrays
from noshadow._lood.factor import Posterior, posterior_of
from noshadow._lood.groups import LoodResult, lood
from noshadow._lood.iterative import LoodBounds, lood_bounds
from noshadow._lood.join import with_lood
from noshadow._lood.kernels import laplace_kernel, nngp_kernel, rbf_kernel
from noshadow._lood.query import QueryResult, optimal_query, query_lood
from noshadow._lood.scores import LoodScores, lood_scores
from noshadow._lood.theory import (
    KernelFlatness,
    LeastStationary,
    flatness_bound,
    kernel_flatness,
    least_stationary_record,
    self_query_gradient,
)

__all__ = [
    "KernelFlatness",
    "LeastStationary",
    "LoodBounds",
    "LoodResult",
    "LoodScores",
    "Posterior",
    "QueryResult",
    "critical_weights",
    "data_arrays",
    "flatness_bound",
    "kernel_flatness",
    "laplace_kernel",
    "least_stationary_record",
    "lood",
    "lood_audit",
    "lood_bounds",
    "lood_scores",
    "nngp_kernel",
    "optimal_query",
    "posterior_of",
    "query_lood",
    "rbf_kernel",
    "self_query_gradient",
    "with_lood",
]
