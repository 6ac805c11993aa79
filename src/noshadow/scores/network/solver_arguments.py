"""Arguments of the scores that are solved iteratively, checked once."""

from dataclasses import dataclass

from noshadow.checks import refuse, require_choice, require_number, require_whole, whole_seed
from noshadow.outcomes import Damping
from noshadow.scores.network.curvature_products import CURVATURES, PRECISIONS
from noshadow.scores.network.problem import NetworkProblem
from noshadow.weight_decay import training_damping

SCALES = ("sum", "mean")


@dataclass(frozen=True)
class Solver:
    """How the systems are solved; see `generalized_leverage`."""

    tolerance: float
    max_iterations: int
    curvature: str
    precision: str
    preconditioner_rank: int | str
    max_memory: float
    seed: int
    progress: bool


def checked_solver(
    tolerance: float, max_iterations: int, curvature: str, precision: str, rank: int | str, max_memory: float, seed: int, progress: bool
) -> Solver:
    """The settings of a solver; see `generalized_leverage` for the rules."""
    require_choice(curvature, CURVATURES, "curvature")
    require_choice(precision, tuple(PRECISIONS), "precision")
    return Solver(
        tolerance=require_number(tolerance, "tolerance", low=0.0, low_open=True, high=1.0, high_open=True),
        max_iterations=require_whole(max_iterations, "max_iterations", low=1),
        curvature=curvature,
        precision=precision,
        preconditioner_rank=_rank(rank),
        max_memory=require_number(max_memory, "max_memory", low=0.0, low_open=True),
        seed=whole_seed(seed),
        progress=progress,
    )


def _rank(rank: int | str) -> int | str:
    return rank if isinstance(rank, str) and rank == "auto" else require_whole(rank, "preconditioner_rank", low=0)


@dataclass(frozen=True)
class AskedDamping:
    """λ as asked for: its number on a scale, or None for the training's own."""

    number: float | None
    scale: str
    weight_decay: float | None


def checked_damping(damping: float | str, scale: str, weight_decay: float | None) -> AskedDamping:
    """Damping and weight decay as given: one of them, as a number ≥ 0."""
    require_choice(scale, SCALES, "damping_scale")
    if isinstance(damping, str) and damping == "auto":
        if weight_decay is None:
            refuse("damping", "be a number, or 'auto' beside the training's weight_decay", "'auto' and no weight_decay")
        return AskedDamping(None, scale, require_number(weight_decay, "weight_decay", low=0.0))
    if weight_decay is not None:
        refuse("weight_decay", "be left out when damping is a number", f"{weight_decay!r}", "Pass damping='auto' to use it.")
    return AskedDamping(require_number(damping, "damping", low=0.0), scale, None)


def sum_damping(asked: AskedDamping, problem: NetworkProblem) -> tuple[float, str]:
    """λ on the sum over records, and one sentence on where it comes from."""
    n, m = problem.outputs.shape
    if asked.number is None:
        known = training_damping(asked.weight_decay, problem.task, n, m)
        assert isinstance(known, Damping)
        return known.value, known.sentence
    if asked.scale == "sum":
        return asked.number, "given"
    share = n / 2 if problem.task == "regression" else float(n)
    return share * asked.number, f"{share:g} × {asked.number:g}, given beside the Hessian of the mean loss over {n} records"
