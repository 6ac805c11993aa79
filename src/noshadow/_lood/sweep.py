"""Leave-one-out distinguishability over activations and depths: which architecture would leak less."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from noshadow._lood.activations import ACTIVATIONS
from noshadow._lood.kernel_choice import NETWORKS, KernelChoice
from noshadow._lood.posterior import lood_scores
from noshadow._lood.theory import kernel_flatness
from noshadow.checks import Array, InputError, refuse, require_choice, require_whole
from noshadow.progress import tracked

Cell = tuple[str, int]


def sweep_cells(activations: Sequence[str], depths: Sequence[int], kernel: KernelChoice, owner: str) -> list[Cell]:
    """Every pair of an activation and a depth, in the order given; none when neither is given.

    Raises:
        InputError: only one of the two is given, names or depths are unknown or repeated, or the kernel is no network.
    """
    names, layers = list(activations), list(depths)
    if not names and not layers:
        return []
    if not names or not layers:
        refuse(owner, "sweep_activations and sweep_depths", "be given together", "one of them")
    if kernel.name not in NETWORKS:
        refuse(owner, "kernel", f"be one of {', '.join(NETWORKS)} for a sweep", f"'{kernel.name}'", "It has no activation and no depth.")
    for name in names:
        require_choice(name, tuple(ACTIVATIONS), owner, "sweep_activations")
    whole = [require_whole(depth, owner, "sweep_depths", low=0) for depth in layers]
    for argument, values in (("sweep_activations", names), ("sweep_depths", whole)):
        if len(set(values)) < len(values):
            refuse(owner, argument, "name each value once", f"{values}")
    return [(name, depth) for name in names for depth in whole]


def sweep_rows(
    x: torch.Tensor, y: Array, cells: Sequence[Cell], kernel: KernelChoice, *, noise: float, fpr: float, max_memory: float, progress: bool
) -> tuple[dict[str, Any], ...]:
    """One row a cell: mean, median and largest kl, mean auc, flatness of the kernel and condition, or the reason why there is none.

    Cost: one kernel and one factorisation a cell; one kernel is held at a time.
    """
    return tuple(
        {"activation": name, "depth": depth}
        | _cell(x, y, kernel.with_options(activation=name, depth=depth), noise=noise, fpr=fpr, max_memory=max_memory)
        for name, depth in tracked(cells, "Activations and depths", show=progress)
    )


def _cell(x: torch.Tensor, y: Array, kernel: KernelChoice, *, noise: float, fpr: float, max_memory: float) -> dict[str, Any]:
    try:
        matrix = kernel.matrix(x)
        scores = lood_scores(matrix, y, noise=noise, fpr=fpr, max_memory=max_memory)
    except InputError as error:
        # A kernel that explodes or degenerates at one depth is an answer about that depth, not the end of the sweep.
        return dict.fromkeys(("kl_mean", "kl_median", "kl_max", "auc_mean", "constant", "distance", "relative", "condition")) | {
            "reason": str(error)
        }
    flat = kernel_flatness(matrix)
    return {
        "kl_mean": float(scores.kl.mean()),
        "kl_median": float(np.median(scores.kl)),
        "kl_max": float(scores.kl.max()),
        "auc_mean": float(scores.auc.mean()),
        "constant": flat.constant,
        "distance": flat.distance,
        "relative": flat.relative if np.isfinite(flat.relative) else None,
        "condition": float(f"{scores.condition:.3g}"),
        "reason": None,
    }
