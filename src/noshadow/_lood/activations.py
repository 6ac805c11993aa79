"""Gaussian expectations of activations.

They are E[φ(u)φ(v)] for centred (u, v) with variances p, q and covariance c.

Every form gives the value and its three slopes. By Gaussian integration by parts the slopes are
expectations themselves,

    ∂/∂c E[φ(u)φ(v)] = E[φ′(u)φ′(v)],    ∂/∂p E[φ(u)φ(v)] = ½E[φ″(u)φ(v)],

and stay finite at u = v, where the angle between two records, arccos(c/√(pq)), has an infinite
derivative. c is clipped to [−√(pq), √(pq)] for the value, which only undoes rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal, hessenberg
from torch import Tensor
from torch.autograd.function import once_differentiable

from noshadow.checks import Array

Slopes = tuple[Tensor, Tensor, Tensor]
# Two records whose correlation is this close to 1 differ by rounding: their slopes are those of u =
# v.
_COINCIDENT = 16 * float(np.finfo(np.float64).eps)
# Numbers in a block of pairs.
_PART_NUMBERS = 1 << 16
_SQRT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class Activation:
    """One activation's expectation.

    Attributes:
        value: (p, q, c) → E[φ(u)φ(v)]; the three broadcast.
        slopes: (p, q, c) → derivatives with respect to p, q and c.
        costly: whether a value takes a microsecond, so that large kernels are better interpolated.
        bounded: whether |φ| ≤ 1.
    """

    value: Callable[[Tensor, Tensor, Tensor], Tensor]
    slopes: Callable[[Tensor, Tensor, Tensor], Slopes]
    costly: bool = False
    bounded: bool = False


class _Expectation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, c: Tensor, activation: Activation) -> Tensor:
        ctx.save_for_backward(p, q, c)
        ctx.activation = activation
        result = torch.empty_like(c)
        for part in _parts(c):
            part(result).copy_(activation.value(part(p), part(q), part(c)))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        p, q, c = ctx.saved_tensors
        by_p, by_q, by_c = torch.zeros_like(p), torch.zeros_like(q), torch.empty_like(c)
        for part in _parts(c):
            gradient = part(gradients[0])
            slopes = ctx.activation.slopes(part(p), part(q), _snapped(part(p), part(q), part(c)))
            part(by_p).add_((gradient * slopes[0]).sum_to_size(part(p).shape))
            part(by_q).add_((gradient * slopes[1]).sum_to_size(part(q).shape))
            part(by_c).copy_(gradient * slopes[2])
        return by_p, by_q, by_c, None


def _parts(c: Tensor) -> list[Callable[[Tensor], Tensor]]:
    """Views of blocks along the first axis that keep temporaries in the caches.

    A tensor with one row there belongs to all blocks.
    """
    length = max(_PART_NUMBERS * len(c) // max(c.numel(), 1), 1)

    def view(start: int) -> Callable[[Tensor], Tensor]:
        return lambda tensor: tensor[start : start + length] if len(tensor) == len(c) else tensor

    return [view(start) for start in range(0, len(c), length)]


def expectation(activation: Activation, p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    """E[φ(u)φ(v)] of the shape of c, differentiable once in p, q and c.

    p and q broadcast against c.
    """
    return _Expectation.apply(p, q, c, activation)  # type: ignore[no-any-return, no-untyped-call]


def _snapped(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    scale = (p * q).sqrt()
    return torch.where(scale - c <= _COINCIDENT * scale, scale, c)


def _clipped(p: Tensor, q: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """√(pq), c within ±√(pq), and pq − c² without cancellation."""
    scale = (p * q).sqrt()
    c = torch.clamp(c, -scale, scale)
    return scale, c, (scale - c).mul_(scale + c)


def _relu_value(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    # Arc-cosine kernel of order one; π − θ as an arctangent of (√(pq − c²), −c) keeps its digits
    # near θ = 0 and θ = π.
    _, c, determinant = _clipped(p, q, c)
    sine = determinant.sqrt_()
    return torch.atan2(sine, -c).mul_(c).add_(sine).div_(2 * math.pi)


def _relu_slopes(p: Tensor, q: Tensor, c: Tensor) -> Slopes:
    _, c, determinant = _clipped(p, q, c)
    sine = determinant.sqrt_()
    # A record of variance zero sits at the tip of a cone: no derivative there, and zero is as good
    # as any.
    by_p, by_q = (torch.where(v > 0, sine / (4 * math.pi * v), 0.0) for v in (p, q))
    return by_p, by_q, torch.atan2(sine, -c).div_(2 * math.pi)


def _gelu_value(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    # φ = xΦ(x). Integrating by parts in u leaves E[ΦΦ], an arcsine, and two Gaussian integrals;
    # with Δ = (1 + p)(1 + q) − c²: 2π E = c·(π/2 + arcsin(c/√((1 + p)(1 + q)))) + (pq − c² + c²/(1
    # + p) + c²/(1 + q))/√Δ.
    _, c, determinant = _clipped(p, q, c)
    root = (1 + p + q + determinant).sqrt_()
    rest = determinant.addcmul_(c * c, 1 / (1 + p) + 1 / (1 + q)).div_(root)
    return torch.atan2(root, -c).mul_(c).add_(rest).div_(2 * math.pi)


def _gelu_slopes(p: Tensor, q: Tensor, c: Tensor) -> Slopes:
    _, c, determinant = _clipped(p, q, c)
    square, delta = c * c, 1 + p + q + determinant
    scale = 1 / (2 * math.pi * delta.sqrt())
    shrink = 1 / (1 + p) + 1 / (1 + q)
    ratio = (determinant + square * shrink) / delta

    def by_variance(own: Tensor, other: Tensor) -> Tensor:
        return scale * (other - square / (1 + own) ** 2 - square / (2 * (1 + own)) - ratio * (1 + other) / 2)

    by_c = torch.atan2(delta.sqrt(), -c) / (2 * math.pi) + c * scale * (2 * shrink - 1 + ratio)
    return by_variance(p, q), by_variance(q, p), by_c


def _erf_sum(rule: Callable[[], tuple[Array, Array]]) -> tuple[Callable[..., Tensor], Callable[..., Slopes]]:
    """Forms of φ(x) = Σ wⱼ erf(bⱼx): a double sum of arcsines."""

    def value(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
        scales, weights = rule()
        _, c, _ = _clipped(p, q, c)
        total = torch.zeros_like(c)
        cosines = [math.sqrt(2) * b / (1 + 2 * b * b * q).sqrt() for b in scales]
        for b, weight in zip(scales, weights, strict=True):
            part = c * (math.sqrt(2) * b / (1 + 2 * b * b * p).sqrt())
            for cosine, other in zip(cosines, weights, strict=True):
                total.add_((part * cosine).clamp_(-1, 1).asin_(), alpha=2 / math.pi * weight * other)
        return total

    def slopes(p: Tensor, q: Tensor, c: Tensor) -> Slopes:
        scales, weights = rule()
        _, c, determinant = _clipped(p, q, c)
        by_p, by_q, by_c = (torch.zeros_like(c) for _ in range(3))
        for b, weight in zip(scales, weights, strict=True):
            for other_b, other in zip(scales, weights, strict=True):
                inside = 1 + 2 * b * b * p + 2 * other_b**2 * q + 4 * (b * other_b) ** 2 * determinant
                term = inside.rsqrt_().mul_(4 / math.pi * weight * other * b * other_b)
                by_c += term
                term *= c
                by_p -= term * (b * b / (1 + 2 * b * b * p))
                by_q -= term * (other_b**2 / (1 + 2 * other_b**2 * q))
        return by_p, by_q, by_c

    return value, slopes


def _one_erf() -> tuple[Array, Array]:
    return np.ones(1), np.ones(1)


@lru_cache(maxsize=1)
def _tanh_as_erfs(terms: int = 10) -> tuple[Array, Array]:
    """Scales b and weights w with tanh x = Σ w erf(bx) to 2e-8 everywhere.

    Gaussian expectations follow to 1e-11.

    tanh is a mixture of erf(x/(√2 K)) over K of Kolmogorov's law (Andrews and Mallows 1974). A fine
    trapezoid rule in log K is exact to rounding; the Gauss rule of that discrete measure
    (eigenvalues of its Jacobi matrix) needs few terms.
    """
    log_k = np.arange(-50, 41) * 0.05
    k = np.exp(log_k)[:, None]
    odd, j = np.arange(1, 16, 2) * math.pi / 2, np.arange(1, 20)
    small = math.sqrt(2 * math.pi) * (np.exp(-(odd**2) / (2 * k * k)) * (odd**2 / k**4 - 1 / k**2)).sum(1)
    large = 8 * ((-1.0) ** (j - 1) * j**2 * k * np.exp(-2 * j**2 * k * k)).sum(1)
    mass = np.where(k[:, 0] < 1, small, large) * k[:, 0]
    # Householder's reduction of the nodes, bordered by the roots of their masses, keeps the first
    # unit vector: Jacobi's matrix remains.
    bordered = np.diag(np.concatenate([[0.0], log_k]))
    bordered[0, 1:] = bordered[1:, 0] = np.sqrt(mass / mass.sum())
    jacobi = hessenberg(bordered)[1 : terms + 1, 1 : terms + 1]
    nodes, vectors = eigh_tridiagonal(jacobi.diagonal(), jacobi.diagonal(-1))
    return np.exp(-nodes) * _SQRT_HALF, vectors[0] ** 2


@lru_cache(maxsize=64)
def _legendre(nodes: int) -> list[tuple[float, float]]:
    """Gauss–Legendre rule on (0, 1)."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return [((1 + float(x)) / 2, float(w) / 2) for x, w in zip(places, weights, strict=True)]


def _nodes_needed(p: Tensor, q: Tensor) -> int:
    """Number of nodes for the sharpest transition among the pairs, of width 1/√variance.

    Beyond 2e4 the transition is a vanishing part of the whole.
    """
    steepest = math.sqrt(max(float(p.max()), float(q.max()))) if p.numel() and q.numel() else 0.0
    return min(16 + 8 * math.ceil(0.4 * steepest), 512)


@dataclass(frozen=True)
class _EluTerms:
    """What the value and slopes of elu share.

    These are the standard deviations s and t, the angle θ and integrals over (0, θ).
    """

    s: Tensor
    t: Tensor
    scale: Tensor
    c: Tensor
    angle: Tensor

    def erfcx(self, x: Tensor) -> Tensor:
        scaled: Tensor = torch.special.erfcx(x * _SQRT_HALF)
        return scaled

    def nodes(self, p: Tensor, q: Tensor) -> Any:
        """The nodes of the integrals and the terms of the integrands there.

        These are weight/2π, x = √(pq)(cos ψ − cos θ), expm1(−x), g(s sin ψ) and g(t sin ψ) with
        g(y) = √(π/2) y erfcx(y/√2).
        """
        for at, weight in _legendre(_nodes_needed(p, q)):
            x = 2 * self.scale * (self.angle * ((1 - at) / 2)).sin_() * (self.angle * ((1 + at) / 2)).sin_()
            sine = (self.angle * at).sin_()
            g, h = ((v := d * sine) * self.erfcx(v) * math.sqrt(math.pi / 2) for d in (self.s, self.t))
            yield self.angle * (weight / (2 * math.pi)), x, torch.expm1(-x), g, h


def _elu_terms(p: Tensor, q: Tensor, c: Tensor) -> _EluTerms:
    scale, c, determinant = _clipped(p, q, c)
    return _EluTerms(p.sqrt(), q.sqrt(), scale, c, torch.atan2(determinant.sqrt_(), c))


def _elu_value(p: Tensor, q: Tensor, c: Tensor) -> Tensor:
    # φ‴ = φ″ − δ, so F = E[φφ] solves F‴ − F″ = r in c, r a Gaussian density at 0 less two
    # one-dimensional Gaussian integrals of φ″. Solved backwards from c = √(pq), where all is in
    # closed form and the solution decays; c = √(pq) cos ψ smooths r.
    terms = _elu_terms(p, q, c)
    together = terms.erfcx(terms.s + terms.t)
    drop = terms.scale - terms.c
    total = terms.scale / 2 + (together - terms.erfcx(terms.s) - terms.erfcx(terms.t) + 1) / 2
    total = total - drop * (1 + together) / 2 + together / 2 * (torch.expm1(-drop) + drop)
    for weight, x, decay, g, h in terms.nodes(p, q):
        total -= weight * (decay + x) * (1 - g - h)
    return total


def _elu_slopes(p: Tensor, q: Tensor, c: Tensor) -> Slopes:
    terms = _elu_terms(p, q, c)
    together = terms.erfcx(terms.s + terms.t)
    falling = together / 2 * torch.expm1(terms.c - terms.scale)
    bend = 2 * (terms.angle / 2).sin().square() / (2 * math.sqrt(2 * math.pi))
    by_c = (1 + together) / 2 + falling
    by_p = (together - terms.erfcx(terms.s)) / 2 + falling + terms.t * bend
    by_q = (together - terms.erfcx(terms.t)) / 2 + falling + terms.s * bend
    for weight, x, decay, g, h in terms.nodes(p, q):
        both = 1 - g - h
        by_c -= weight * decay * both
        common = (decay + x) * both
        by_p -= weight * (common + (x - 1) * h)
        by_q -= weight * (common + (x - 1) * g)
    return by_p / 2, by_q / 2, by_c


ACTIVATIONS = {
    "relu": Activation(_relu_value, _relu_slopes),
    "gelu": Activation(_gelu_value, _gelu_slopes),
    "erf": Activation(*_erf_sum(_one_erf), bounded=True),
    "tanh": Activation(*_erf_sum(_tanh_as_erfs), costly=True, bounded=True),
    "elu": Activation(_elu_value, _elu_slopes, costly=True),
}
