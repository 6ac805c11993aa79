"""Linear algebra that reports when it needed a rescue.

It has scaled SPD inverses, forms over pairs of rows, and conjugate gradients.
"""

from noshadow.linalg.iterative import IterativeSolution, batched_cg
from noshadow.linalg.pairs import PairForms, pair_form_values, pair_forms, pair_gram, pair_products, vech_offsets
from noshadow.linalg.spd import (
    SpdInverse,
    batched_spd_solve,
    cholesky_condition,
    cholesky_in_place,
    cholesky_inverse,
    one_norm,
    spd_inverse,
)

__all__ = [
    "IterativeSolution",
    "PairForms",
    "SpdInverse",
    "batched_cg",
    "batched_spd_solve",
    "cholesky_condition",
    "cholesky_in_place",
    "cholesky_inverse",
    "one_norm",
    "pair_form_values",
    "pair_forms",
    "pair_gram",
    "pair_products",
    "spd_inverse",
    "vech_offsets",
]
