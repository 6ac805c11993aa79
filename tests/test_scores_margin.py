"""Margin leverage with float32 products: its error is measured, and float64 takes over where that is too much."""

import numpy as np
import pytest
import torch

import noshadow as ns
import oracles
from noshadow.scores.last_layer import margin, softmax_solver
from noshadow.scores.last_layer.curvature import SoftmaxProblem
from noshadow.scores.last_layer.design import of_records, whitened_design, with_kept_rows
from noshadow.scores.last_layer.margin import margin_leverages


def head(n=400, d=9, m=4, *, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) + 0.3
    logits = scale * features @ rng.normal(size=(d, m))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return features, logits, labels


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_float32_products_keep_the_measured_digits(scale, penalize_intercept):
    data = head(scale=scale)
    how = {"damping": 1e-2, "penalize_intercept": penalize_intercept}
    mixed, exact = (ns.record_scores(*data, precision=precision, **how) for precision in ("mixed", "float64"))
    if penalize_intercept:
        dense = oracles.dense_margin_leverage(oracles.with_bias(data[0]), data[1], data[2], 1e-2)
        np.testing.assert_allclose(exact.margin_leverage, dense, rtol=1e-9)
    largest = np.argsort(-exact.margin_leverage)[:5]
    off = np.abs(mixed.margin_leverage / exact.margin_leverage - 1)
    # Single precision in products that are not larger than what comes out of them.
    assert 0 < off[largest].max() < 1e-4
    # Measured to first order on the largest; the other columns' error may be larger still.
    assert off[largest].max() <= 1.01 * mixed.precision_error + 1e-12


def test_the_measured_error_is_that_of_the_largest_leverages():
    features, logits, labels = head(scale=2.0)
    design = whitened_design(features, fit_intercept=True, penalize_intercept=True)
    problem = SoftmaxProblem(design, logits, labels, None, 1e-2)
    found = margin_leverages(problem, dtype=torch.float32, block_size=64, progress=False)
    exact = margin_leverages(problem, block_size=None, progress=False)
    assert exact.error is None
    largest = np.argsort(-found.values)[:5]
    off = np.abs(found.values[largest] / exact.values[largest] - 1).max()
    assert found.error == pytest.approx(off, rel=1e-2, abs=1e-9)


def test_a_wrong_curvature_shows_in_the_error(monkeypatch):
    """What float32 might do at its worst: an inverse off by a thousandth, which the check in float64 must see."""
    real = margin.contrast_inverse

    def off(*arguments, dtype, **options):
        found = real(*arguments, dtype=dtype, **options)
        found.inverse.matrix[:] *= 1.001 if dtype == torch.float32 else 1.0
        return found

    monkeypatch.setattr(margin, "contrast_inverse", off)
    monkeypatch.setattr(softmax_solver, "MIXED_FROM_FLOPS", 0.0)
    data = head()
    scores = ns.record_scores(*data, damping=1e-2, columns=["margin_leverage"])
    assert any("margin leverages by" in note and "redone in float64" in note for note in scores.notes)
    monkeypatch.undo()
    np.testing.assert_allclose(
        scores.margin_leverage, ns.record_scores(*data, damping=1e-2, precision="float64").margin_leverage, rtol=1e-9
    )


def test_audits_of_large_heads_have_the_column_in_the_others_precision(monkeypatch):
    monkeypatch.setattr(softmax_solver, "MIXED_FROM_FLOPS", 0.0)
    asked = []
    real = softmax_solver.margin_leverages
    monkeypatch.setattr(softmax_solver, "margin_leverages", lambda *a, **k: asked.append(k.get("dtype")) or real(*a, **k))
    features, logits, labels = head()
    audit = ns.audit_signals(
        ns.Signals(features[:300], logits[:300], labels[:300]),
        ns.Signals(features[300:], logits[300:], labels[300:]),
        damping=1.0,
        progress=False,
    )
    assert "margin_leverage" in audit.records and asked == [torch.float32]
    assert audit.provenance["scores"]["precision"] == "mixed" and audit.provenance["scores"]["precision_error"] < 1e-4


def test_kept_rows_are_the_rows_of_the_features():
    rng = np.random.default_rng(3)
    features = rng.normal(5.0, 3.0, size=(70, 4)).astype(np.float32)
    design = whitened_design(features, fit_intercept=True, penalize_intercept=True)
    kept = with_kept_rows(design)
    assert kept.kept is not None and kept.kept.shape == (5, 70)
    # Both are float64 products rounded once; these differ in the order of their sums.
    torch.testing.assert_close(kept.rows(11, 31, torch.float32), design.rows(11, 31, torch.float32), rtol=1e-6, atol=1e-6)
    assert torch.equal(kept.rows(11, 31, torch.float64), design.rows(11, 31, torch.float64))
    chosen = of_records(kept, np.array([60, 2]))
    torch.testing.assert_close(chosen.rows(0, 2, torch.float32), kept.rows(0, 70, torch.float32)[:, [60, 2]], rtol=1e-6, atol=1e-6)
    assert with_kept_rows(design, limit=4 * 5 * 70 - 1) is design
