"""λ of a weight decay: one number and one sentence, whoever asks."""

import numpy as np
import pytest
import torch

import noshadow as ns
from noshadow.weight_decay import SEQUENCES, UNKNOWN, training_damping


def test_ridge_with_lambda_minimises_what_mse_loss_with_weight_decay_does():
    # The mean over n·q squared errors + (wd/2)‖W‖² has the minimum of ‖Y − XW‖² + λ‖W‖².
    # 1e-12 is the rounding of a 4 × 4 solve.
    rng = np.random.default_rng(0)
    x, y, decay = torch.from_numpy(rng.normal(size=(30, 4))), torch.from_numpy(rng.normal(size=(30, 3))), 0.3
    damping = training_damping(decay, "regression", 30, 3).value
    weights = torch.linalg.solve(x.T @ x + damping * torch.eye(4, dtype=torch.float64), x.T @ y).requires_grad_()
    (torch.nn.functional.mse_loss(x @ weights, y) + decay / 2 * (weights**2).sum()).backward()
    assert float(weights.grad.abs().max()) < 1e-12


def test_a_classifiers_mean_loss_is_counted_over_records():
    assert training_damping(0.25, "classification", 40, 3).value == training_damping(0.25, "binary", 40, 1).value == 10.0
    assert training_damping(None, "classification", 40, 3).reason == UNKNOWN
    assert SEQUENCES in training_damping(0.25, "language-model", 40, 1, averaged=SEQUENCES).sentence


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_module_and_its_signals_have_one_damping_and_one_sentence(task):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(3, 2).double(), torch.randn(40, 3, dtype=torch.float64)
    y = torch.randn(40, 2, dtype=torch.float64) if task == "regression" else torch.randint(0, 2, (40,))
    half = ns.Signals(x.numpy(), model(x).detach().numpy(), y.numpy())
    whole = ns.audit(model, (x, y), (x, y), task=task, weight_decay=0.01, progress=False).provenance["scores"]
    arrays = ns.audit_signals(half, half, task=task, weight_decay=0.01).provenance["scores"]
    assert whole["damping_used"] == arrays["damping_used"]
    assert whole["damping_source"] == arrays["damping_source"] == training_damping(0.01, task, 40, 2).sentence
