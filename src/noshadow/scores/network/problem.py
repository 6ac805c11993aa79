"""The parts of a network's Gauss–Newton problem besides its Jacobian.

These are outputs, residuals and curvature weights.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noshadow.blocks import block_tensor
from noshadow.checks import (
    Array,
    advice,
    numeric_array,
    refuse,
    require_choice,
    require_output_columns,
    require_squarable,
    require_two_classes,
    require_weights,
    resolved_task,
)
from noshadow.losses import hard_labels, record_margins, task_targets
from noshadow.scores.baselines import block_residuals
from noshadow.signals import Signals
from noshadow.views.loading import Batch, Records
from noshadow.views.network import Network, naming_the_module
from noshadow.views.torch import require_fitting_task, require_logits
from noshadow.views.walk import Said, collected, walked

OUTPUTS = ("auto", "margin", "all")
# Weights below this change nothing that float64 can show; above zero they let h/w stay a ratio of
# numbers.
SMALLEST_WEIGHT = 1e-100


@dataclass(frozen=True, eq=False)
class NetworkProblem:
    """The trained outputs of a network on its n records, and which of them are differentiated.

    Attributes:
        outputs: (n, m) float64. targets: as `task_targets` returns them. task: resolved.
        sample_weight: (n,) s or None.
        kind: "margin" (one number φ per record), "softmax" (all m logits) or "regression" (all q
            outputs).
        batch_size: records in one pass.
    """

    outputs: Array
    targets: Array
    task: str
    sample_weight: Array | None
    kind: str
    batch_size: int

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def columns(self) -> int:
        """Numbers differentiated per record, c."""
        return 1 if self.kind == "margin" else int(self.outputs.shape[1])

    def weights(self) -> Array:
        """Sample weights (n,), ones where none were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    def cotangents(self, start: int, stop: int) -> Tensor:
        """Directions in output space that are differentiated, (b, c, m)."""
        m = self.outputs.shape[1]
        if self.kind != "margin":
            return torch.eye(m, dtype=torch.float64).expand(stop - start, m, m)
        if self.task == "binary":
            return torch.ones((stop - start, 1, 1), dtype=torch.float64)
        logits = block_tensor(self.outputs, start, stop)
        labels = block_tensor(hard_labels(self.targets), start, stop)[:, None]
        others = torch.softmax(logits.scatter(1, labels, -torch.inf), 1)
        return (-others).scatter(1, labels, 1.0)[:, None, :]

    def one_logit(self) -> tuple[Array, Array]:
        """The one number per record that is differentiated, and its target.

        These are φ and 1 for a softmax, z and y for a single logit.
        """
        if self.task == "binary":
            return self.outputs[:, 0], self.targets
        return record_margins(self.outputs, self.targets, self.task), np.ones(len(self))

    def margin_weights(self) -> Array:
        """w = s·p(1 − p) (n,) of that logit, never quite zero."""
        logit = torch.from_numpy(self.one_logit()[0])
        curvature: Array = (torch.sigmoid(logit) * torch.sigmoid(-logit)).numpy() * self.weights()
        return np.maximum(curvature, SMALLEST_WEIGHT)


def network_problem(
    network: Network, records: Records, *, task: str, outputs: str, sample_weight: object, batch_size: int, progress: bool
) -> NetworkProblem:
    """Run the network over its records once and settle task, targets and what is differentiated.

    Args:
        task: as in `audit`. outputs: "margin", "all" or "auto" (margin for classification, all for
            regression).

    Raises:
        InputError: outputs are not finite, targets do not fit, or a margin is asked of a regression
            or of soft labels.
    """
    require_choice(outputs, OUTPUTS, "outputs")
    if network.unvectorised == "loop":
        batch_size = 1  # what a record gives may depend on who else is in its batch
    values, given = _collected(network, records, batch_size, progress)
    if len(values) < 2:
        refuse("train", "have at least 2 records", len(values))
    settled = resolved_task(task, values, given)
    if network.head is not None:
        require_fitting_task(network.head, settled)
    else:
        require_logits(Signals(None, values, given), settled)
    require_output_columns(values, settled)
    targets = task_targets(values, given, settled)
    if settled != "regression":
        require_two_classes(hard_labels(targets) if settled == "classification" else targets > 0.5)
    if settled == "regression" and outputs == "margin":
        refuse("outputs", "be 'all' for a regression", "'margin'", "A margin needs classes.")
    soft = settled == "classification" and targets.ndim == 2
    if soft and outputs == "margin":
        refuse("targets", "be hard labels for the problem of the margin", "soft labels", f"Pass {advice('outputs', 'all')}.")
    if settled == "regression":
        kind = "regression"
    else:
        kind = "softmax" if settled == "classification" and (outputs == "all" or soft) else "margin"
    weight = None if sample_weight is None else require_weights(sample_weight, len(values))
    return NetworkProblem(values, targets, settled, weight, kind, batch_size)


def _collected(network: Network, records: Records, batch_size: int, progress: bool) -> tuple[Array, Array]:
    def run(batch: Batch, size: int) -> Said:
        with naming_the_module(network):
            found = network.outputs(network.parameters, *network.inputs(batch)).cpu()
        if len(found) != size:
            refuse("model", "give one row of outputs per record", f"{len(found)} rows for {size} records")
        return Said(found)

    steps = walked(records, batch_size, argument="train", run=run, progress=progress)
    found = collected(steps, records.count)
    outputs = numeric_array(found.outputs, "outputs", ndim=2)
    require_squarable(outputs, "outputs")
    return outputs, numeric_array(found.targets, "targets", ndim=(1, 2))


def residuals(problem: NetworkProblem, start: int, stop: int) -> Tensor:
    """∂ℓ/∂output of a block with its sample weights, (b, m)."""
    block = block_residuals(block_tensor(problem.outputs, start, stop), block_tensor(problem.targets, start, stop), problem.task)
    return block * torch.from_numpy(problem.weights()[start:stop])[:, None]


def stationarity(network: Network, records: Records, problem: NetworkProblem, *, damping: float, gradient_norms: Array) -> float:
    """‖Σ_j ∇ℓ_j + λθ‖ over the chosen layers relative to a typical record's gradient norm.

    It is 0 at a minimum.

    Cost: one backward pass over the records.
    """
    total = {name: torch.zeros_like(tensor) for name, tensor in network.parameters.items()}
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in network.parameters.items()}
    for step in walked(records, problem.batch_size, argument="train"):
        args, kwargs = network.inputs(step.inputs)
        along = residuals(problem, step.start, step.stop).to(network.device)
        with naming_the_module(network), torch.enable_grad():
            directed = (network.outputs(leaves, args, kwargs) * along).sum()
            parts = torch.autograd.grad(directed, list(leaves.values()), allow_unused=True)
        for name, part in zip(leaves, parts, strict=True):
            if part is not None:
                total[name] += part
    # λ stands beside JᵀJ, half the squared loss' curvature
    penalty = damping * (2.0 if problem.task == "regression" else 1.0)
    left_over = sum(float(((total[name] + penalty * value) ** 2).sum()) for name, value in network.parameters.items()) ** 0.5
    typical = float(np.sqrt((gradient_norms**2).mean()))
    return left_over / typical if typical > 0 else (np.inf if left_over > 0 else 0.0)
