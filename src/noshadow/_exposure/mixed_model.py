"""The mixed model behind exposure.

It has a level and a slope in membership for each record, with a 2 × 2 covariance.

y_ki = f(x_i) + a_i + m_ki (g(x_i) + b_i) + σ ε_ki: record i under model k, m = 1 if the model was
trained on it, (a_i, b_i) ~ N(0, T), f and g linear in a basis of the record's covariates with
Gaussian priors on their coefficients, σ one number per side.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from noshadow._exposure.sufficient import Sums
from noshadow.checks import Array, NumericalError, said

# Rows (1, m) of the two sides, OUT first: the design of (a, b), and of (f, g).
SIDES = np.array([[1.0, 0.0], [1.0, 1.0]])
# Logarithms of standard deviations, relative to the margins: e^±30 is beyond any data.
BOUNDS = (-30.0, 30.0)
# Weak priors in units of the margins' spread: they decide only what the data leave open (one model
# alone cannot tell a record's own level from noise). Half of the spread is noise, a record's level
# and slope move against each other, coefficients are a tenth of the spread.
START = np.array([np.log(0.5), np.log(0.5), np.log(0.5), -0.25, np.log(0.4), np.log(0.3), np.log(0.1)])
WIDTHS = np.array([1.0, 1.0, 1.0, 0.5, 1.0, 2.0, 2.0])


@dataclass(frozen=True, eq=False)
class Fitted:
    """Estimates of the mixed model.

    Attributes:
        variances: (2,) σ² of the OUT and the IN side. slopes: (2, 2) T, covariance of (a, b).
        coefficients: (2, p) of f and of g. uncertainty: (2, p, 2, p) their posterior covariance.
        deviance: minus twice the logarithm of the (penalised) likelihood. converged: whether the
            optimiser says so.
        around: pairs (σ² of both sides, T) that stand for how far these are uncertain: their mean
            square distance is the posterior's.
    """

    variances: Array
    slopes: Array
    coefficients: Array
    uncertainty: Array
    deviance: float
    converged: bool
    around: tuple[tuple[Array, Array], ...]


@dataclass(frozen=True)
class Form:
    """Variants of the fit that oracles are compared with.

    These are one spread for both sides, and flat priors (maximum likelihood).
    """

    common_spread: bool = False
    flat: bool = False


def fitted_model(sums: Sums, scale: float, form: Form | None = None) -> Fitted:
    """Variances and coefficients that maximise the marginal likelihood of all margins.

    They are found by L-BFGS over at most seven numbers.

    The likelihood needs only the sums by pattern, so that its cost, O(Jp² + p³), does not grow with
    the number of records.

    Args:
        sums: of all records. scale: standard deviation of the margins, the unit of the weak priors.
        form: variants for oracles; by default a spread per side and priors.
    """
    shape = form or Form()
    problem = _Problem(sums, scale, shape)
    start = START[: 5 if shape.flat else 7]
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8 * max(1.0, float(sums.records.sum()))}
    search: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "options": options}
    # A step beyond the numbers that exist ends in an error below, not in a warning.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        try:
            found = minimize(problem.objective, start, **search)
        except (ValueError, np.linalg.LinAlgError):
            found = _within_bounds(problem, start, search)
    if not np.isfinite(found.fun):
        raise NumericalError(said("the likelihood of the margins is not finite. Are they on very different scales?"))
    return problem.estimates(found.x, float(found.fun), bool(found.success))


def _within_bounds(problem: "_Problem", start: Array, search: dict[str, Any]) -> Any:
    """The same search where margins have next to no spread; elsewhere bounds move last digits."""
    bounds = [(None, None) if place == 3 else BOUNDS for place in range(len(start))]
    try:
        return minimize(problem.objective, start, bounds=bounds, **search)
    except (ValueError, np.linalg.LinAlgError) as error:
        same = "margins of the models differ by a constant and next to nothing else, so that no spread can be told"
        raise NumericalError(said(f"{same}. Are these other models? Leave out copies of one.")) from error


@dataclass(frozen=True, eq=False)
class _Solved:
    """The solution at given variances.

    It holds the deviance, the coefficients (2p,), their posterior covariance (2p, 2p) and the
    weights (J, 2, 2) of the patterns.
    """

    deviance: float
    theta: Array
    covariance: Array
    weights: Array


class _Problem:
    """The likelihood as a function of seven numbers.

    It holds the sums, which every evaluation reads.
    """

    def __init__(self, sums: Sums, scale: float, form: Form) -> None:
        self.sums, self.scale, self.form = sums, scale, form
        self.width = sums.gram.shape[1]

    def variances(self, numbers: Array) -> tuple[Array, Array]:
        """σ² of both sides and T from logarithms of standard deviations and a Cholesky factor."""
        out, inside = numbers[0], numbers[0] if self.form.common_spread else numbers[1]
        noise = self.scale**2 * np.exp(2 * np.array([out, inside]))
        factor = self.factor(numbers)
        return noise, factor @ factor.T

    def factor(self, numbers: Array) -> Array:
        """Cholesky factor of T."""
        return self.scale * np.array([[np.exp(numbers[2]), 0.0], [numbers[3], np.exp(numbers[4])]])

    def penalty(self, numbers: Array) -> Array:
        """(2p,) prior precision of the coefficients of f and g; 0 for the two constants."""
        if self.form.flat:
            return np.zeros(2 * self.width)
        each = np.repeat(np.exp(-2 * numbers[5:7]) / self.scale**2, self.width)
        each[[0, self.width]] = 0.0
        return each

    def objective(self, numbers: Array) -> tuple[float, Array]:
        """Deviance with the weak priors, and its slope in the numbers."""
        at = self.solved(numbers)
        if self.form.flat:
            return at.deviance, self.slope(numbers, at)
        away = (numbers - START) / WIDTHS
        return at.deviance + float(away @ away), self.slope(numbers, at) + 2 * away / WIDTHS

    def solved(self, numbers: Array) -> "_Solved":
        """Deviance and coefficients at the given numbers."""
        sums, (noise, slopes), penalty = self.sums, self.variances(numbers), self.penalty(numbers)
        weights, log_det = _pattern_weights(sums.counts, noise, slopes)
        tilted = SIDES.T @ weights  # Dᵀ W of every pattern
        normal = self._over_patterns(tilted @ SIDES)
        right = np.einsum("jrt,jta->ra", tilted, sums.cross).reshape(-1)
        factor = cho_factor(normal + np.diag(penalty + 1e-12 * np.diag(normal).max()), lower=True)
        theta = cho_solve(factor, right)
        between = float((weights * sums.products).sum() - theta @ right)
        deviance = float(sums.records @ log_det + (sums.free * np.log(noise)).sum() + (sums.within / noise).sum()) + between
        if not self.form.flat:
            inner = penalty > 0
            deviance += 2 * float(np.log(np.diag(factor[0])).sum()) - float(np.log(penalty[inner]).sum())
        return _Solved(deviance, theta, cho_solve(factor, np.eye(2 * self.width)), weights)

    def slope(self, numbers: Array, at: "_Solved") -> Array:
        """Derivative of the deviance in the numbers.

        The coefficients are at their optimum and do not move the deviance.
        """
        sums, noise = self.sums, self.variances(numbers)[0]
        theta = at.theta.reshape(2, self.width)
        fits = SIDES @ theta  # coefficients of the OUT and the IN level
        crossed = np.einsum("sa,jta->jst", fits, sums.cross)
        squares = sums.products - crossed - crossed.transpose(0, 2, 1) + fits @ (sums.gram @ fits.T)
        if not self.form.flat:
            covariance = at.covariance.reshape(2, self.width, 2, self.width).transpose(0, 2, 1, 3).reshape(4, -1)
            squares = squares + SIDES @ (sums.gram.reshape(len(sums.gram), -1) @ covariance.T).reshape(-1, 2, 2) @ SIDES.T
        by_variance = sums.records[:, None, None] * at.weights - at.weights @ squares @ at.weights
        by_noise = np.einsum("jss,js->s", by_variance, 1 / np.maximum(sums.counts, 1)) + sums.free / noise - sums.within / noise**2
        by_factor = 2 * SIDES.T @ by_variance.sum(0) @ SIDES @ self.factor(numbers)
        parts = [2 * by_noise * noise, [by_factor[0, 0] * np.exp(numbers[2]) * self.scale, by_factor[1, 0] * self.scale]]
        parts += [[by_factor[1, 1] * np.exp(numbers[4]) * self.scale]]
        if self.form.common_spread:
            parts[0] = np.array([parts[0][0] + parts[0][1], 0.0])
        if not self.form.flat:
            penalty = self.penalty(numbers)
            moved = penalty * (at.theta**2 + np.diag(at.covariance)) - (penalty > 0)
            parts.append(-2 * moved.reshape(2, -1).sum(1))
        return np.concatenate(parts)

    def _over_patterns(self, weights: Array) -> Array:
        """Σ_j weights_j ⊗ gram_j, (2p, 2p), for weights (J, 2, 2)."""
        summed = weights.reshape(len(weights), 4).T @ self.sums.gram.reshape(len(weights), -1)
        normal: Array = summed.reshape(2, 2, self.width, self.width).transpose(0, 2, 1, 3).reshape(2 * self.width, -1)
        return normal

    def estimates(self, numbers: Array, deviance: float, converged: bool) -> Fitted:
        """Everything at the optimum."""
        at, (noise, slopes) = self.solved(numbers), self.variances(numbers)
        covariance = at.covariance.reshape(2, self.width, 2, self.width)
        return Fitted(noise, slopes, at.theta.reshape(2, self.width), covariance, deviance, converged, self.around(numbers))

    def around(self, numbers: Array) -> tuple[tuple[Array, Array], ...]:
        """Variances at the sigma points of the Laplace approximation.

        The points lie √5 standard deviations along five conjugate directions.
        """
        # Central differences of the deviance's slope, 1e-4 to either side.
        columns = [(self.objective(numbers + step)[1] - self.objective(numbers - step)[1]) / 2e-4 for step in 1e-4 * np.eye(len(numbers))]
        # Halved twice: the symmetric part, and of half the deviance, which is −log likelihood.
        curvature = np.array(columns + np.transpose(columns)) / 4
        values, vectors = np.linalg.eigh(curvature)
        # A direction that the margins say nothing about must not get an infinite variance.
        covariance = (vectors / np.maximum(values, 1e-3)) @ vectors.T
        root = np.linalg.cholesky(covariance[:5, :5] + 1e-12 * np.eye(5)) * np.sqrt(5.0)
        points = [numbers + sign * np.concatenate([column, np.zeros(len(numbers) - 5)]) for column in root.T for sign in (1.0, -1.0)]
        return tuple(self.variances(point) for point in points)


def _pattern_weights(counts: Array, noise: Array, slopes: Array) -> tuple[Array, Array]:
    """Inverse covariance (J, 2, 2) of the two side means of a record, with log-determinant.

    Both are over the sides that a pattern has.
    """
    spread = SIDES @ slopes @ SIDES.T
    present = counts > 0
    variance = spread[None] + np.einsum("js,st->jst", noise / np.maximum(counts, 1), np.eye(2))
    # A side without models is cut out: variance 1, no covariance, and afterwards no weight.
    both = present[:, :, None] & present[:, None, :]
    variance = np.where(both, variance, np.eye(2))
    determinant = variance[:, 0, 0] * variance[:, 1, 1] - variance[:, 0, 1] ** 2
    flipped = np.stack([np.stack([variance[:, 1, 1], -variance[:, 0, 1]], 1), np.stack([-variance[:, 0, 1], variance[:, 0, 0]], 1)], 1)
    return np.where(both, flipped / determinant[:, None, None], 0.0), np.log(determinant)
