"""Brute-force Gaussian-process deletion and textbook kernels. Independent of the package's algebra."""

import numpy as np
import torch


def rbf(a, b):
    return torch.exp(-((a[:, None] - b[None]) ** 2).sum(2) / 2)


def linear(a, b):
    return a @ b.T


def arc_cosine(a, b):
    """Kernel of a wide relu layer without biases: grows with its inputs, so K(x, x) is not constant."""
    norms = a.norm(dim=1)[:, None] * b.norm(dim=1)
    cosine = (a @ b.T / norms).clamp(-1 + 1e-15, 1 - 1e-15)
    angle = torch.arccos(cosine)
    return norms * (torch.sin(angle) + (np.pi - angle) * cosine) / np.pi


def numpy_rbf(x, z=None):
    z = x if z is None else z
    return np.exp(-((x[:, None] - z[None]) ** 2).sum(2) / 2)


def posterior(k_rows, k_train, k_query, y, noise):
    """Mean (q, C) and covariance (q, q) at queries: kernel query × train, train × train, query × query."""
    inverse = np.linalg.inv(k_train + noise * np.eye(len(k_train)))
    return k_rows @ inverse @ y, k_query - k_rows @ inverse @ k_rows.T


def brute_force(kernel, x, y, group, queries, noise):
    """Refit without the group, refit with it, and compare the two joint Gaussians by the definitions."""
    y = y[:, None] if y.ndim == 1 else y
    kept = np.delete(np.arange(len(x)), group)
    to_x, among, at = (np.asarray(kernel(a, b)) for a, b in ((queries, x), (x, x), (queries, queries)))
    mean, cov = posterior(to_x[:, kept], among[np.ix_(kept, kept)], at, y[kept], noise)
    mean_with, cov_with = posterior(to_x, among, at, y, noise)
    gap, inverse = mean - mean_with, np.linalg.inv(cov_with)
    logs = np.linalg.slogdet(cov_with)[1] - np.linalg.slogdet(cov)[1]
    outputs, q = y.shape[1], len(queries)
    kl = 0.5 * (outputs * (logs - q + np.trace(inverse @ cov)) + np.trace(gap.T @ inverse @ gap))
    return {"kl": kl, "mean_distance": 0.5 * (gap**2).sum(), "loo": (mean, cov), "full": (mean_with, cov_with)}
