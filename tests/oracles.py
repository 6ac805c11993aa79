"""Slow, dense, obvious versions of the quantities under test. Independent of the package's algebra."""

import numpy as np
import torch
from scipy.special import expit, log_softmax, logsumexp, softmax


def with_bias(features):
    return np.column_stack([features, np.ones(len(features))])


def margin(logits, label):
    others = np.delete(logits, label)
    return logits[label] - logsumexp(others)


def dense_softmax_curvature(design, logits, penalty_diagonal, sample_weight=None):
    """Σ_j s_j W_j ⊗ g̃_jg̃_jᵀ + diag(penalty) as an (md, md) matrix, by the definition."""
    n, m = logits.shape
    weight = np.ones(n) if sample_weight is None else sample_weight
    total = np.kron(np.eye(m), np.diag(penalty_diagonal))
    for j in range(n):
        p = softmax(logits[j])
        total += weight[j] * np.kron(np.diag(p) - np.outer(p, p), np.outer(design[j], design[j]))
    return total


def autograd_softmax_curvature(design, theta, targets, penalty_diagonal):
    """Hessian of Σ cross-entropy + ½θᵀPθ with respect to vec(θ) (class-major), by torch autograd."""
    x = torch.tensor(design)
    m = theta.shape[1]

    def objective(flat):
        head = flat.view(m, -1).T
        logits = x @ head
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum")
        return loss + 0.5 * (torch.tensor(penalty_diagonal)[:, None] * head**2).sum()

    flat = torch.tensor(np.ascontiguousarray(theta.T)).flatten()
    return torch.autograd.functional.hessian(objective, flat).numpy()


def softmax_columns(design, logits, targets, curvature, sample_weight=None):
    """Every classification column from a dense curvature (pseudo-inverse), record by record."""
    n, m = logits.shape
    soft = np.eye(m)[targets] if targets.ndim == 1 else targets
    weight = np.ones(n) if sample_weight is None else sample_weight
    inverse = np.linalg.pinv(curvature, hermitian=True)
    out = {k: np.empty(n) for k in ("loss", "gradient_norm", "entropy", "leverage", "influence", "newton", "loo", "shift")}
    for i in range(n):
        p = softmax(logits[i])
        s = weight[i]
        w = s * (np.diag(p) - np.outer(p, p))
        g = s * (p - soft[i])
        lift = np.kron(np.eye(m), design[i])
        h = lift @ inverse @ lift.T
        step = h @ np.linalg.solve(np.eye(m) - w @ h, g)
        label = int(soft[i].argmax())
        moved = logits[i] + step
        out["loss"][i] = -s * soft[i] @ log_softmax(logits[i])
        out["gradient_norm"][i] = np.linalg.norm(g) * np.linalg.norm(design[i])
        out["entropy"][i] = -(p * np.log(p)).sum()
        out["leverage"][i] = np.trace(w @ h)
        out["influence"][i] = g @ h @ g
        out["newton"][i] = g @ step
        out["loo"][i] = -s * soft[i] @ (log_softmax(moved) - log_softmax(logits[i]))
        out["shift"][i] = margin(logits[i], label) - margin(moved, label)
    return out


def dense_margin_leverage(design, logits, labels, damping):
    """w_i x_iᵀ(Σ w x xᵀ + λI)⁻¹x_i with x = ∂φ/∂f ⊗ g̃ built explicitly."""
    n, d = design.shape
    m = logits.shape[1]
    x, w = np.empty((n, m * d)), np.empty(n)
    for i in range(n):
        others = logits[i].copy()
        others[labels[i]] = -np.inf
        slope = -softmax(others)
        slope[labels[i]] = 1.0
        x[i] = np.kron(slope, design[i])
        w[i] = expit(margin(logits[i], labels[i])) * expit(-margin(logits[i], labels[i]))
    curvature = (x * w[:, None]).T @ x + damping * np.eye(m * d)
    return w * np.einsum("ij,ij->i", x @ np.linalg.inv(curvature), x)


def ridge_refit(design, targets, penalty_diagonal, sample_weight=None):
    """argmin Σ s‖y − Gθ‖² + θᵀPθ, by QR of the stacked problem (no normal equations)."""
    s = np.ones(len(design)) if sample_weight is None else sample_weight
    root = np.sqrt(s).reshape((-1,) + (1,) * (targets.ndim - 1))
    left = np.vstack([design * np.sqrt(s)[:, None], np.diag(np.sqrt(penalty_diagonal))])
    right = np.concatenate([targets * root, np.zeros((len(penalty_diagonal), *targets.shape[1:]))])
    return np.linalg.lstsq(left, right, rcond=None)[0]


def softmax_refit(design, soft_targets, penalty_diagonal, start=None, sample_weight=None, steps=60):
    """Minimise Σ s·CE + ½θᵀPθ by damped Newton to machine precision; returns θ (d, m)."""
    n, d = design.shape
    m = soft_targets.shape[1]
    s = np.ones(n) if sample_weight is None else sample_weight
    theta = np.zeros((d, m)) if start is None else start.copy()

    def objective(head):
        return -(s[:, None] * soft_targets * log_softmax(design @ head, axis=1)).sum() + 0.5 * (penalty_diagonal[:, None] * head**2).sum()

    for _ in range(steps):
        p = softmax(design @ theta, axis=1)
        gradient = design.T @ (s[:, None] * (p * soft_targets.sum(1, keepdims=True) - soft_targets)) + penalty_diagonal[:, None] * theta
        curvature = dense_softmax_curvature(design, design @ theta, penalty_diagonal, s * soft_targets.sum(1))
        move = (np.linalg.pinv(curvature, hermitian=True) @ gradient.T.flatten()).reshape(m, d).T
        rate = 1.0
        while objective(theta - rate * move) > objective(theta) + 1e-12 and rate > 1e-6:
            rate /= 2
        theta = theta - rate * move
        if np.abs(gradient).max() < 1e-11:
            break
    return theta
