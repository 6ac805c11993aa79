"""How loss and margin change when a record's own logits move.

The changes have full relative precision for any logits and any step.

Everything is log Σ_c q_c e^{u_c} for probabilities q and moves u measured against the label's own:
neither the loss before nor the loss after is formed, so that nothing cancels when both are tiny,
and nothing overflows when one is huge.
"""

import torch
import torch.nn.functional as F

# Between these, log(1 + t) is taken from t; beyond, the logarithm is of order one and may be taken
# as it is.
LEAST_CHANGE, LARGEST_CHANGE = -0.5, 1.0


def log_mean_exp(log_weights: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """log Σ_c q_c e^{u_c} of weights that sum to one, (b, m) and (b, m) → (b,).

    With t = Σ_c q_c(e^{u_c} − 1), each term to its last digits: log1p(t) where t is small, log Σ
    e^{log q_c + u_c} elsewhere.

    Args:
        log_weights: log q, −inf where q is zero. steps: u; infinite ones may be given.

    Exact when: all steps have one sign: to a few 1e-16·max(1, |log q|, |u|), relative. Steps of
        both signs may cancel in t, and the error is relative to the larger side then.
    """
    absent = torch.isneginf(log_weights)
    reached = torch.where(absent, log_weights, log_weights + steps)
    weights = log_weights.exp()
    # e^u may overflow where q·e^u does not
    terms = torch.where(steps > 1.0, reached.exp() - weights, weights * torch.expm1(steps.clamp(max=1.0)))
    change = torch.where(absent, torch.zeros_like(terms), terms).sum(1)
    near = (change > LEAST_CHANGE) & (change < LARGEST_CHANGE)
    return torch.where(near, torch.log1p(torch.where(near, change, torch.zeros_like(change))), torch.logsumexp(reached, 1))


def logit_loss_changes(logits: torch.Tensor, targets: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """ℓ(z + s) − ℓ(z) of one-logit records, (b,) each: log(p·e^{(1−y)s} + (1 − p)·e^{−ys})."""
    log_weights = torch.stack([F.logsigmoid(logits), F.logsigmoid(-logits)], 1)
    own, other = (torch.where(share == 0, torch.zeros_like(steps), share * steps) for share in (1 - targets, targets))
    return log_mean_exp(log_weights, torch.stack([own, -other], 1))


def softmax_loss_changes(logits: torch.Tensor, targets: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """ℓ(f + move) − ℓ(f) of softmax records, (b,).

    This is log Σ_c p_c e^{u_c} with u_c = move_c − Σ_k y_k move_k.

    Args:
        logits: (b, m). targets: (b,) labels or (b, m) rows of probabilities. moves: (b, m).
    """
    expected = moves.gather(1, targets[:, None]) if targets.ndim == 1 else (targets * moves).sum(1, keepdim=True)
    return log_mean_exp(torch.log_softmax(logits, 1), moves - expected)


def margin_falls(logits: torch.Tensor, labels: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """φ(f) − φ(f + move) with φ = f_y − log Σ_{c≠y} e^{f_c}, (b,).

    This is log Σ_{c≠y} r_c e^{move_c − move_y}, where r is the softmax over c ≠ y.
    """
    return log_mean_exp(log_others(logits, labels), moves - moves.gather(1, labels[:, None]))


def log_others(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probabilities among the classes other than the label, −inf at the label, (b, m)."""
    return torch.log_softmax(logits.scatter(1, labels[:, None], -torch.inf), 1)
