"""Heads with hardly any damping and records that are all but interpolated, against 60 digits: right to many digits, or said not to be."""

import mpmath
import numpy as np
import pytest

import noshadow as ns

NAMES = ("leverage", "influence", "newton", "loo", "shift")
# λC_ii is known to eps times the condition of the kernel, here below 1e4.
TOLERANCE = 1e-10


def rows_of(features, fit_intercept):
    return np.column_stack([features, np.ones(len(features))]) if fit_intercept else features


def exact_inverse(design, curvatures, penalties):
    """(Σ_j W_j ⊗ g̃_jg̃_jᵀ + I ⊗ diag(penalties))⁻¹ for given k × k curvatures, and the k × kd maps of each record."""
    n, d = design.shape
    k = curvatures[0].rows
    total = mpmath.zeros(k * d, k * d)
    maps = []
    for j in range(n):
        lift = mpmath.zeros(k, k * d)
        for a in range(k):
            for c in range(d):
                lift[a, a * d + c] = mpmath.mpf(float(design[j, c]))
        maps.append(lift)
        total += lift.T * curvatures[j] * lift
    for a in range(k):
        for c in range(d):
            total[a * d + c, a * d + c] += penalties[c]
    return mpmath.inverse(total), maps


def softmax_oracle(features, logits, soft, damping, *, fit_intercept, penalize_intercept, weight):
    """The columns by their definitions, in an orthonormal basis of contrasts between the classes."""
    design, (n, m) = rows_of(features, fit_intercept), logits.shape
    basis = mpmath.matrix(np.linalg.qr(np.eye(m)[:, 1:] - 1 / m)[0].tolist())
    # Orthonormal to 60 digits: one step of Gram–Schmidt on what float64 gave.
    for a in range(m - 1):
        column = basis[:, a] - mpmath.matrix([sum(basis[c, a] for c in range(m)) / m] * m)
        for b in range(a):
            column -= basis[:, b] * (basis[:, b].T * column)[0]
        basis[:, a] = column / mpmath.norm(column)
    penalties = [mpmath.mpf(damping)] * design.shape[1]
    if fit_intercept and not penalize_intercept:
        penalties[-1] = mpmath.mpf(0)
    probabilities, curvatures = [], []
    for i in range(n):
        raw = [mpmath.exp(mpmath.mpf(float(f))) for f in logits[i]]
        p = [r / sum(raw) for r in raw]
        probabilities.append(p)
        full = mpmath.matrix(m, m)
        for a in range(m):
            for b in range(m):
                full[a, b] = weight[i] * ((p[a] if a == b else 0) - p[a] * p[b])
        curvatures.append(basis.T * full * basis)
    inverse, maps = exact_inverse(design, curvatures, penalties)
    found = {name: np.empty(n) for name in NAMES}
    for i in range(n):
        own = maps[i] * inverse * maps[i].T
        residual = mpmath.matrix([weight[i] * (probabilities[i][c] - mpmath.mpf(float(soft[i, c]))) for c in range(m)])
        along = basis.T * residual
        step = basis * (own * mpmath.lu_solve(mpmath.eye(m - 1) - curvatures[i] * own, along))
        before = [mpmath.mpf(float(f)) for f in logits[i]]
        after = [f + s for f, s in zip(before, step, strict=True)]
        label = int(soft[i].argmax())

        def log_p(values):
            total = mpmath.log(sum(map(mpmath.exp, values)))
            return [v - total for v in values]

        def margin(values, label=label):
            return values[label] - mpmath.log(sum(mpmath.exp(v) for c, v in enumerate(values) if c != label))

        image = curvatures[i] * own
        found["leverage"][i] = sum(image[a, a] for a in range(m - 1))
        found["influence"][i] = (along.T * own * along)[0]
        found["newton"][i] = (residual.T * step)[0]
        pairs = zip(soft[i], log_p(before), log_p(after), strict=True)
        found["loo"][i] = weight[i] * sum(mpmath.mpf(float(y)) * (b - a) for y, b, a in pairs)
        found["shift"][i] = margin(before) - margin(after)
    return found


def wide_head(seed, *, n=9, d=14, m=3):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) + 1.0
    logits = features @ rng.normal(size=(d, m)) / 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    labels[:m] = np.arange(m)
    return features, logits, labels, rng


@pytest.mark.parametrize(
    ("fit_intercept", "penalize_intercept", "weighted", "soft"),
    [(True, True, False, False), (True, False, False, False), (False, True, True, False), (True, False, True, True)],
)
def test_softmax_with_more_features_than_records(fit_intercept, penalize_intercept, weighted, soft):
    """Off by up to 44 % before: 1 − h was a difference of two numbers near one."""
    features, logits, labels, rng = wide_head(3)
    weight = rng.uniform(0.5, 2.0, len(labels)) if weighted else None
    targets = 0.9 * np.eye(3)[labels] + 0.1 / 3 if soft else labels
    bias = {"fit_intercept": fit_intercept, "penalize_intercept": penalize_intercept}
    scores = ns.record_scores(features, logits, targets, task="classification", damping=1e-10, sample_weight=weight, **bias)
    with mpmath.workdps(60):
        rows = targets / targets.sum(1, keepdims=True) if soft else np.eye(3)[labels]
        truth = softmax_oracle(features, logits, rows, 1e-10, weight=np.ones(len(labels)) if weight is None else weight, **bias)
    finite = np.isfinite(scores.shift)
    assert finite.sum() > len(labels) / 2 and truth["shift"][finite].max() > 1e8
    for name in NAMES:
        found = getattr(scores, name)
        np.testing.assert_allclose(found[finite], truth[name][finite], rtol=TOLERANCE, err_msg=name)
    # +inf by convention where no more than 1e-11 is left, as `newton` says
    assert (truth["newton"][~finite] > 1e9).all()
    assert any("solved over the records" in note for note in scores.notes)


@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_one_output_with_more_features_than_records(task, penalize_intercept):
    features, logits, _, rng = wide_head(4)
    n, damping = len(features), 1e-9
    outputs = logits[:, 0]
    targets = (np.arange(n) % 2) if task == "binary" else outputs + rng.normal(size=n)
    how = {"task": task, "damping": damping, "penalize_intercept": penalize_intercept}
    scores = ns.record_scores(features, outputs, targets, **how)
    with mpmath.workdps(60):
        p = [1 / (1 + mpmath.exp(-mpmath.mpf(float(z)))) for z in outputs]
        curvatures = [mpmath.matrix([[v * (1 - v) if task == "binary" else 1]]) for v in p]
        penalties = [mpmath.mpf(damping)] * features.shape[1] + [mpmath.mpf(damping if penalize_intercept else 0)]
        inverse, maps = exact_inverse(rows_of(features, True), curvatures, penalties)
        for i in range(n):
            q = (maps[i] * inverse * maps[i].T)[0]
            h = curvatures[i][0] * q
            error = p[i] - int(targets[i]) if task == "binary" else mpmath.mpf(float(targets[i])) - mpmath.mpf(float(outputs[i]))
            shift = abs(error) * q / (1 - h)
            assert float(scores.shift[i]) == pytest.approx(float(shift), rel=TOLERANCE)
            newton = error**2 * q / (1 - h) * (1 if task == "binary" else 2)
            assert float(scores.newton[i]) == pytest.approx(float(newton), rel=TOLERANCE)


def saturated_head(seed):
    """More records than dimensions, but logits so large that few of them count: 1 − h stays a difference of numbers near one."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(30, 6)) + 1.0
    logits = features @ rng.normal(size=(6, 3)) * 10.0
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    labels[:3] = range(3)
    return features, logits, labels


@pytest.mark.parametrize("seed", range(6))
def test_what_rounding_took_is_measured_said_and_found(seed):
    features, logits, labels = saturated_head(seed)
    how = {"damping": 1e-10, "penalize_intercept": True}
    scores = ns.record_scores(features, logits, labels, **how)
    with mpmath.workdps(60):
        ones = np.ones(len(labels))
        truth = softmax_oracle(features, logits, np.eye(3)[labels], 1e-10, fit_intercept=True, penalize_intercept=True, weight=ones)
    finite = np.isfinite(scores.newton)
    off = max(np.abs(getattr(scores, name)[finite] / truth[name][finite] - 1).max() for name in ("newton", "shift"))
    assert off > 1e-6
    # Measured to first order: the truth within a factor of two, or no digit left.
    assert off / 2 <= scores.precision_error <= max(2 * off, 1e-9)
    said = any("rounding in float64 moved" in note for note in scores.notes)
    split = ns.Signals(features, logits, labels)
    (found,) = (f for f in ns.audit_signals(split, split, damping=1e-10, progress=False).findings if f.code == "NS022")
    assert said == (found.status == "found") == (scores.precision_error > 1e-4)


def test_one_output_says_so_too():
    """For one output the error is bounded: eps·condition/(1 − h)."""
    rng = np.random.default_rng(5)
    features = np.column_stack([rng.normal(size=(60, 4)), np.zeros(60)])
    features[7, 4] = 1.0
    logits = np.where(np.arange(60) == 7, 1.0, 12.0) * rng.normal(size=60)
    labels = (np.arange(60) % 2).astype(np.int64)
    calm, doubtful = (ns.record_scores(features, logits, labels, damping=damping) for damping in (1e-3, 2e-11))
    assert calm.precision_error is None and not any("nearly interpolated" in note for note in calm.notes)
    assert np.isfinite(doubtful.shift[7]) and 1e-7 < doubtful.precision_error <= 1.0
    with mpmath.workdps(60):
        p = [1 / (1 + mpmath.exp(-mpmath.mpf(float(z)))) for z in logits]
        curvatures = [mpmath.matrix([[v * (1 - v)]]) for v in p]
        inverse, maps = exact_inverse(rows_of(features, True), curvatures, [mpmath.mpf(2e-11)] * 6)
        q = (maps[7] * inverse * maps[7].T)[0]
        shift = abs(p[7] - int(labels[7])) * q / (1 - curvatures[7][0] * q)
    assert abs(doubtful.shift[7] / float(shift) - 1) <= doubtful.precision_error


def test_ordinary_heads_are_solved_over_their_weights():
    """Same numbers as ever where nothing is doubtful: no extra pass, no note."""
    features, logits, labels, _ = wide_head(3, n=40, d=6)
    scores = ns.record_scores(features, logits, labels, damping=1e-3)
    assert scores.precision_error is None and not any("over the records" in note for note in scores.notes)


def test_sharded_heads_measure_it_too(tmp_path):
    features, logits, labels = saturated_head(1)
    for name, array in (("features", features), ("outputs", logits), ("targets", labels)):
        np.save(tmp_path / f"{name}.npy", array)
    paths = [tmp_path / f"{name}.npy" for name in ("features", "outputs", "targets")]
    sharded = ns.sharded_record_scores(*paths, damping=1e-10, shards=3, workers=1)
    assert sharded.precision_error == pytest.approx(ns.record_scores(features, logits, labels, damping=1e-10).precision_error, rel=0.5)
    assert any("rounding in float64 moved" in note for note in sharded.notes)
