"""A preconditioner for C + λI from the products of C with a few random vectors."""

from collections.abc import Callable

import torch
from torch import Tensor

from noshadow.scores.network.curvature_products import Product

# Sketched curvature below this share of the largest is rounding: of products in single and in
# double precision.
ROUNDING = {"float32": 1e-5, "float64": 1e-12}
# A sketch worth two steps of the solves it speeds up, and no more than this.
LARGEST_RANK = 128
SMALLEST_RANK = 8
STEPS = 2


def sketch_rank(asked: int | str, *, columns: int, size: int, memory: float) -> int:
    """Number of random vectors of the sketch.

    It is as asked for; "auto" sets it by the number of right-hand sides and the room for four
    copies.
    """
    if not isinstance(asked, str):
        return min(asked, size)
    rank = min(LARGEST_RANK, STEPS * columns, size, int(memory / (4 * 8 * size)))
    return rank if rank >= SMALLEST_RANK else 0


def nystrom_preconditioner(
    product: Product, *, size: int, rank: int, damping: float, precision: str, seed: int, device: torch.device
) -> Callable[[Tensor], Tensor] | None:
    """X ↦ P⁻¹X with P ≈ C + λI on the directions in which C is largest; None if C vanishes.

    On all other directions the map is the identity.

    With Ω random and orthonormal, C ≈ CΩᵀ(ΩCΩᵀ)⁺ΩC = UΛUᵀ, and P⁻¹ = (Λ_min + λ)U(Λ + λ)⁻¹Uᵀ + (I −
    UUᵀ). P is positive definite whatever the sketch missed, so it changes how fast a solve ends and
    not where.

    Args:
        product: V ↦ VC, C positive semidefinite. size: p. rank: random vectors, ≤ p.
        damping: λ ≥ 0. precision: of the product. seed: of the random vectors.

    Cost: one product with `rank` vectors, and 6·p·rank² flops.
    """
    draw = torch.Generator().manual_seed(seed)
    random = torch.randn((size, rank), generator=draw, dtype=torch.float64).to(device)
    along = torch.linalg.qr(random)[0].T.contiguous()
    image = product(along)
    core = along @ image.T
    values, vectors = torch.linalg.eigh((core + core.T) / 2)
    kept = values > ROUNDING[precision] * values[-1].clamp(min=0.0)
    if not bool(kept.any()):
        return None
    _, roots, basis = torch.linalg.svd((vectors[:, kept] / values[kept].sqrt()).T @ image, full_matrices=False)
    found = roots**2
    shrink = (found[-1] + damping) / (found + damping) - 1
    return lambda vectors: vectors + ((vectors @ basis.T) * shrink) @ basis
