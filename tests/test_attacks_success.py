import numpy as np
import pytest
from scipy.stats import beta, ncx2, norm
from sklearn.metrics import roc_auc_score, roc_curve
from statsmodels.stats.proportion import confint_proportions_2indep

from noshadow.attacks import AttackSuccess, attack_success, lira_scores, loss_scores, memorization, rmia_scores
from noshadow.attacks import thresholds as thresholds_module
from noshadow.attacks.lira import model_lira_scores
from noshadow.attacks.moments import side_moments
from noshadow.attacks.ratio_test import ratio_test_rate
from noshadow.attacks.rmia import model_rmia_scores
from noshadow.attacks.thresholds import best_thresholds, score_sample
from noshadow.checks import InputError, NumericalError
from noshadow.metrics import clopper_pearson


def plan(r, n, rng, spare=1):
    """Membership with each record IN for half the models, give or take `spare`."""
    return np.stack([rng.permutation(np.arange(r) < r // 2 + rng.integers(-spare, spare + 1)) for _ in range(n)], axis=1)


def simulated(r=10, n=40, queries=None, seed=0):
    rng = np.random.default_rng(seed)
    member = plan(r, n, rng)
    shape = (n,) if queries is None else (n, queries)
    lift = member if queries is None else member[:, :, None]
    return 3 * rng.normal(size=shape) + rng.gamma(2.0, size=shape) * rng.normal(size=(r, *shape)) + lift, member


def probabilities(r=10, n=40, seed=0):
    signals, member = simulated(r, n, seed=seed)
    return 1 / (1 + np.exp(-signals)), member


def scores_by_deletion(reference, member, attack, **options):
    """Scores (r, n) of each model with its row literally deleted from the references."""
    scores = []
    for t in range(len(reference)):
        others = np.arange(len(reference)) != t
        if attack == "lira":
            scores.append(lira_scores(reference[t], reference[others], member[others], **options))
        elif attack == "rmia":
            z = ~member[t]
            rows, known = reference[others], member[others]
            scores.append(rmia_scores(reference[t], rows, known, reference[t][z], rows[:, z], population_membership=known[:, z], **options))
        else:
            scores.append(-reference[t])
    return np.array(scores)


def balanced_accuracy(scores, member, threshold):
    return (np.mean(scores[member] > threshold) + np.mean(scores[~member] <= threshold)) / 2


def exhaustive_threshold(scores, member, model):
    """The first of all pooled scores of the other models with the best balanced accuracy over them."""
    others = np.arange(len(scores)) != model
    candidates = np.unique(scores[others])
    return candidates[np.argmax([balanced_accuracy(scores[others], member[others], c) for c in candidates])]


def success_by_definition(scores, member, thresholds):
    called = scores > np.asarray(thresholds)[:, None]
    return np.array([(called[m, i].mean() + 1 - called[~m, i].mean()) / 2 for i, m in enumerate(member.T)])


@pytest.mark.parametrize("queries", [None, 2])
@pytest.mark.parametrize("center", ["mean", "median"])
@pytest.mark.parametrize("variance", ["record", "global"])
@pytest.mark.parametrize("variant, tail", [("online", "cdf"), ("offline", "cdf"), ("offline", "logcdf"), ("offline", "pdf")])
def test_lira_without_a_model_is_lira_with_its_row_deleted(variant, tail, variance, center, queries):
    reference, member = simulated(queries=queries)
    reference[3, 5] = 1e7  # deleting it leaves 1e-14 of the record's sum of squares
    reference[:, 6] = np.round(reference[:, 6])
    signals = reference[None] if queries is None else np.moveaxis(reference, 2, 0)
    sides = side_moments(signals, member, sides=(True, False), median=center == "median")
    options = {"variant": variant, "variance": variance, "tail": tail}
    expected = scores_by_deletion(reference, member, "lira", center=center, **options)
    for t in range(len(reference)):
        found = model_lira_scores(signals, member, sides, t, floor=0.0, **options)
        # Closed-form deletion keeps ten digits where it is used.
        np.testing.assert_allclose(found, expected[t], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_rmia_without_a_model_is_rmia_with_its_row_deleted(variant):
    reference, member = probabilities()
    reference[:, 3] = 0.0
    reference[np.flatnonzero(member[:, 3])[:2], 3] = 0.5, 0.25
    reference[np.flatnonzero(~member[:, 3])[:2], 3] = 0.5, 1e-9
    reference[:, 4] = 1.0
    sides = side_moments(reference[None], member, sides=(True, False), median=False)
    expected = scores_by_deletion(reference, member, "rmia", variant=variant, gamma=1.3, a=0.4)
    for t in range(len(reference)):
        found = model_rmia_scores(reference[None], member, sides, t, variant=variant, gamma=1.3, a=0.4)
        np.testing.assert_array_equal(found, expected[t])


CASES = [
    ("lira", {"variant": "online", "variance": "record"}),
    ("lira", {"variant": "online", "variance": "global", "center": "median", "floor": 1.0}),
    ("lira", {"variant": "offline", "variance": "record", "tail": "logcdf"}),
    ("lira", {"variant": "offline", "variance": "global", "tail": "cdf"}),
    ("rmia", {"variant": "online", "gamma": 1.2}),
    ("rmia", {"variant": "offline", "gamma": 1.0, "a": 0.6}),
    ("loss", {}),
]


@pytest.mark.parametrize("attack, options", CASES)
def test_success_is_its_definition_on_scores_by_deletion(attack, options):
    reference, member = simulated(n=60) if attack == "lira" else probabilities(n=60)
    reference = -np.log(reference) if attack == "loss" else reference
    scores = scores_by_deletion(reference, member, attack, **options)
    own = attack == "lira" and options["variant"] == "online"
    thresholds = np.zeros(10) if own else [exhaustive_threshold(scores, member, t) for t in range(10)]
    found = attack_success(reference, member, attack=attack, fprs=(0.1, 0.5), **options)
    assert isinstance(found, AttackSuccess)
    # Thresholds are scores, equal to rounding; the decisions of scores that far apart are the same.
    np.testing.assert_allclose(found.thresholds, thresholds, rtol=1e-9)
    nudged = np.asarray(thresholds) + 1e-8 * (not own)
    # Halves of ratios of whole counts.
    np.testing.assert_allclose(found.success, success_by_definition(scores, member, nudged), rtol=0, atol=1e-15)
    for t in range(10):
        # Ratios of the same counts; sklearn's area is a sum of trapezoids.
        assert found.model_auc[t] == pytest.approx(roc_auc_score(member[t], scores[t]), abs=1e-12)
        fprs, tprs, _ = roc_curve(member[t], scores[t], drop_intermediate=False)
        expected = [tprs[fprs <= level + 1e-12].max() for level in (0.1, 0.5)]
        np.testing.assert_allclose(found.model_tpr[t], expected, atol=1e-12)
    assert found.settings == found.settings | options | {"attack": attack, "fprs": (0.1, 0.5), "fpr": 1e-3}
    assert found.variance == options.get("variance", "global")


@pytest.mark.parametrize("decimals", [None, 1])
def test_thresholds_come_within_a_thousandth_of_the_exhaustive_best(decimals):
    rng = np.random.default_rng(3)
    r, n = 4, 24_000  # about three times more scores a class than are kept
    member = plan(r, n, rng, spare=0)
    losses = rng.gamma(2.0, size=(r, n)) * np.where(member, 1.0, 1.3)
    losses = losses if decimals is None else losses.round(decimals)
    found = attack_success(losses, member, attack="loss")
    for t in range(r):
        others = np.arange(r) != t
        pooled, labels = -losses[others].ravel(), member[others].ravel()
        fprs, tprs, _ = roc_curve(labels, pooled, drop_intermediate=False)
        best = (1 + (tprs - fprs).max()) / 2
        reached = balanced_accuracy(pooled, labels, found.thresholds[t])
        assert best - 1e-3 <= reached <= best + 1e-12
        assert best > 0.53


def test_thresholds_resolve_a_rare_class(monkeypatch):
    monkeypatch.setattr(thresholds_module, "KEPT", 2000)
    rng = np.random.default_rng(0)
    members = [rng.normal(6.0, 0.5, 40) for _ in range(5)]
    others = [rng.normal(0.0, 1.0, 50_000) for _ in range(5)]
    found = best_thresholds([score_sample(s) for s in members], [score_sample(s) for s in others])
    for t in range(5):
        pooled = np.concatenate(members[:t] + members[t + 1 :] + others[:t] + others[t + 1 :])
        labels = np.arange(len(pooled)) < 4 * 40
        fprs, tprs, _ = roc_curve(labels, pooled, drop_intermediate=False)
        # 1/KEPT by thinning and 1/KEPT by the grid.
        assert balanced_accuracy(pooled, labels, found[t]) >= (1 + (tprs - fprs).max()) / 2 - 2 / 2000


@pytest.mark.parametrize("sign", [1, -1])  # an attack that works, and one whose best threshold is at an end
def test_the_threshold_of_a_model_ignores_its_own_scores(sign):
    chances, member = probabilities(n=80)
    losses = -sign * chances
    base = attack_success(losses, member, attack="loss").thresholds
    for move in (5.0, -5.0):
        moved = losses.copy()
        moved[2] += move
        changed = attack_success(moved, member, attack="loss").thresholds
        assert changed[2] == base[2]
    moved = losses + 5.0
    moved[2] = losses[2]
    assert attack_success(moved, member, attack="loss").thresholds[2] == pytest.approx(base[2] - 5.0, abs=1e-12)


@pytest.mark.parametrize("separation", [1.0, 3.0])
@pytest.mark.parametrize("variance", ["record", "global"])
def test_success_of_gaussians_is_the_textbook_value(separation, variance):
    rng = np.random.default_rng(1)
    r, n = 128, 600
    member = plan(r, n, rng)
    found = attack_success(4 * rng.normal(size=n) + rng.normal(size=(r, n)) + separation * member, member, variance=variance, fpr=0.05)
    # 76,800 decisions: standard error 0.002; estimating μ and s from 64 models a side costs up to 0.01 of success.
    assert found.success.mean() == pytest.approx(norm.cdf(separation / 2), abs=0.012)
    # Standard error of one d′ about 0.2, over 600 records 0.01; ddof = 0 lifts it by 1/128 with own variances.
    assert found.d_prime.mean() == pytest.approx(separation, rel=0.03)
    assert found.tpr.mean() == pytest.approx(norm.sf(norm.isf(0.05) - separation), abs=0.02)
    inside = (found.interval[:, 0] <= norm.cdf(separation / 2)) & (norm.cdf(separation / 2) <= found.interval[:, 1])
    assert inside.mean() > 0.93


@pytest.mark.parametrize(
    "attack, options",
    [
        ("lira", {"variance": "record"}),
        ("lira", {"variance": "global"}),
        ("lira", {"variance": "record", "center": "median"}),
        ("lira", {"variant": "offline", "variance": "record"}),
        ("rmia", {"gamma": 1.0}),
        ("rmia", {"variant": "offline", "gamma": 1.0}),
        ("loss", {}),
    ],
)
def test_pure_noise_is_a_coin(attack, options):
    rng = np.random.default_rng(2)
    r, n = 24, 3000
    member = plan(r, n, rng, spare=0)
    reference = rng.beta(2, 2, size=(r, n)) if attack == "rmia" else rng.gamma(5.0, size=n) + rng.normal(size=(r, n))
    found = attack_success(reference, member, attack=attack, **options)
    # 72,000 decisions: standard error 0.002. Online LiRA with the attacked model among its references gives 0.57 to 0.60;
    # 11 models on its own side against 12 on the other cost a few thousandths.
    assert found.success.mean() == pytest.approx(0.5, abs=0.012)
    assert found.model_auc.mean() == pytest.approx(0.5, abs=0.012)


@pytest.mark.parametrize("attack", ["lira", "rmia", "loss"])
@pytest.mark.parametrize("variance", ["record", "global"])
@pytest.mark.parametrize("center", ["mean", "median"])
@pytest.mark.parametrize("direction", ["larger", "either"])
def test_separation_of_one_query_is_its_formula(attack, variance, center, direction):
    reference, member = simulated(r=11, n=15) if attack == "lira" else probabilities(r=11, n=15)
    found = attack_success(reference, member, attack=attack, variance=variance, center=center, direction=direction, fpr=0.01, floor=0.02)
    values = -reference if attack == "loss" else reference
    sides = [[values[member[:, i] == inside, i] for i in range(15)] for inside in (True, False)]
    place = np.mean if center == "mean" else np.median
    pooled = [np.sqrt(np.mean(np.concatenate([x - x.mean() for x in side]) ** 2)) for side in sides]
    for i in range(15):
        mu_in, mu_out = (place(side[i]) for side in sides)
        s_in, s_out = (max(side[i].std() if variance == "record" else pool, 0.02) for side, pool in zip(sides, pooled, strict=True))
        d = (mu_in - mu_out) / np.sqrt((s_in**2 + s_out**2) / 2)
        if direction == "either" and mu_in < mu_out:
            mu_in, mu_out, d = -mu_in, -mu_out, -d
        assert found.d_prime[i] == pytest.approx(d, rel=1e-10)
        if attack == "lira":
            assert found.tpr[i] == pytest.approx(by_chi_squares(mu_in - mu_out, s_in, s_out, 0.01), rel=1e-6)
        else:
            assert found.tpr[i] == pytest.approx(norm.sf(mu_out + s_out * norm.isf(0.01), mu_in, s_in), rel=1e-9)
    assert found.fpr == 0.01


def by_chi_squares(gap, s_in, s_out, fpr):
    """The most powerful test by its parabola: the squared distance from its centre is a non-central χ² on either side."""
    centre = gap / (1 - (s_in / s_out) ** 2)
    away = [((centre - mean) / width) ** 2 for mean, width in ((0.0, s_out), (gap, s_in))]
    if s_in < s_out:
        return ncx2.cdf(ncx2.ppf(fpr, 1, away[0]) * (s_out / s_in) ** 2, 1, away[1])
    return ncx2.sf(ncx2.isf(fpr, 1, away[0]) * (s_out / s_in) ** 2, 1, away[1])


def by_sorting(gap, s_in, s_out, fpr):
    """The most powerful test without its formula: cells of a fine grid in the order of their likelihood ratio, until `fpr` is spent."""
    reach = 40 * max(s_in, s_out)
    edges = np.linspace(-reach, reach + abs(gap), 400_001)
    middles = (edges[1:] + edges[:-1]) / 2
    order = np.argsort(norm.logpdf(middles, 0, s_out) - norm.logpdf(middles, abs(gap), s_in), kind="stable")
    spent = np.cumsum(np.diff(norm.cdf(edges, 0, s_out))[order])
    return float(np.diff(norm.cdf(edges, abs(gap), s_in))[order][spent <= fpr].sum())


@pytest.mark.parametrize("gap", [0.0, 0.3, -2.0, 6.0])
@pytest.mark.parametrize("width", [0.1, 0.7, 0.9999, 1.0, 1.0001, 1.6, 8.0])
@pytest.mark.parametrize("fpr", [1e-3, 0.05])
def test_the_rate_of_liras_test_is_that_of_the_most_powerful_test(gap, width, fpr):
    """By sorting cells; one cell at the threshold, up to 2e-3 standard deviations wide, is worth up to 1e-3 of the rate."""
    scale = 3.0
    (found,) = ratio_test_rate(np.array([gap * scale]), np.array([width * scale]), np.array([scale]), fpr)
    assert found == pytest.approx(by_sorting(gap * scale, width * scale, scale, fpr), abs=2e-3)
    # Never below the threshold on the statistic itself, and that threshold where the spreads are equal.
    threshold = norm.sf(norm.isf(fpr), abs(gap), width)
    assert found >= threshold - 1e-12 and (width != 1.0 or found == pytest.approx(threshold, rel=1e-12))


def test_the_rate_of_liras_test_in_simulation():
    """A narrow side with the record: a threshold finds nearly nobody there, and the ratio does."""
    rng = np.random.default_rng(5)
    inside, outside = rng.normal(0.1, 0.09, 400_000), rng.normal(0.0, 0.64, 4_000_000)
    ratio = [norm.logpdf(x, 0.1, 0.09) - norm.logpdf(x, 0.0, 0.64) for x in (inside, outside)]
    measured = float((ratio[0] > np.quantile(ratio[1], 0.99)).mean())
    (found,) = ratio_test_rate(np.array([0.1]), np.array([0.09]), np.array([0.64]), 0.01)
    # 40,000 false alarms place the threshold within half a per cent of its rate.
    assert found == pytest.approx(measured, rel=0.02) and found > 0.05 > norm.sf(norm.isf(0.01) * 0.64, 0.1, 0.09)


def test_the_rate_of_liras_test_far_from_everything():
    rates = ratio_test_rate(np.array([1e6, 0.0, 5.0, 0.0]), np.array([1.0, 1e-6, 1e6, 0.0]), np.array([1.0, 1.0, 1.0, 0.0]), 1e-3)
    np.testing.assert_allclose(rates, [1.0, 1.0, 1.0, 1e-3], atol=1e-5)


@pytest.mark.parametrize("direction", ["larger", "either"])
def test_separation_of_several_queries_adds_squares(direction):
    reference, member = simulated(queries=3)
    found = attack_success(reference, member, direction=direction, fpr=0.1)
    each = np.array([attack_success(reference[:, :, q], member).d_prime for q in range(3)])
    expected = np.sign(each.sum(0)) * np.sqrt((each**2).sum(0))
    assert (expected < 0).any()
    expected = np.abs(expected) if direction == "either" else expected
    np.testing.assert_allclose(found.d_prime, expected, rtol=1e-12)
    np.testing.assert_allclose(found.tpr, norm.cdf(expected - norm.isf(0.1)), rtol=1e-10)


def test_losses_without_spread_have_limits_for_separation():
    rng = np.random.default_rng(0)
    member = plan(8, 5, rng, spare=0)
    losses = rng.gamma(2.0, size=(8, 5))
    losses[:, 0] = 0.5
    losses[:, 1] = np.where(member[:, 1], 0.0, 1.0)
    losses[:, 2] = np.where(member[:, 2], 1.0, 0.0)
    losses[:, 3] = np.where(member[:, 3], 0.0, losses[:, 3])
    found = attack_success(losses, member, attack="loss", variance="record", fpr=0.02)
    np.testing.assert_array_equal(found.d_prime[:3], [0.0, np.inf, -np.inf])
    np.testing.assert_array_equal(found.tpr[:3], [0.02, 1.0, 0.0])
    assert np.isfinite(found.d_prime[3])
    assert found.tpr[3] in (0.0, 1.0)


def test_intervals_are_binomial_with_the_effective_trials():
    reference, member = simulated(r=16, n=200, seed=4)
    reference[:, :5] += 1000 * member[:, :5]
    reference[:, 5:10] = np.where(member[:, 5:10], -1.0, 1.0) * np.arange(1, 17)[:, None] ** 3
    found = attack_success(reference, member, variance="record", level=0.9)
    assert (found.success[:5] == 1).all()
    assert found.success.min() < 0.2
    balanced = 0
    for i in range(200):
        k_in, k_out = member[:, i].sum(), (~member[:, i]).sum()
        trials = 4 * k_in * k_out / (k_in + k_out)
        hits = found.success[i] * trials
        low = beta.ppf(0.05, hits, trials - hits + 1) if hits else 0.0
        high = beta.ppf(0.95, hits + 1, trials - hits) if found.success[i] < 1 else 1.0
        np.testing.assert_allclose(found.interval[i], (low, high), rtol=1e-9)
        assert 0 <= low <= found.success[i] <= high <= 1
        if k_in == k_out:
            balanced += 1
            np.testing.assert_allclose(found.interval[i], clopper_pearson(round(hits), 16, level=0.9), rtol=1e-9)
    assert balanced > 20


@pytest.mark.parametrize("attack", ["lira", "rmia", "loss"])
def test_order_of_records_and_models_does_not_matter(attack):
    reference, member = simulated() if attack == "lira" else probabilities()
    rng = np.random.default_rng(9)
    records, models = rng.permutation(40), rng.permutation(10)
    options = {"attack": attack, "variant": "offline", "fprs": (0.1,), "gamma": 1.1}
    found = attack_success(reference, member, **options)
    again = attack_success(reference[models][:, records], member[models][:, records], **options)
    for name in ("success", "interval", "d_prime", "tpr"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name)[records], rtol=1e-9, err_msg=name)
    for name in ("thresholds", "model_auc", "model_tpr"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name)[models], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("r, chosen", [(63, "global"), (64, "record")])
def test_auto_variance_counts_the_attacked_model(r, chosen):
    reference, member = simulated(r=r, n=20)
    found = attack_success(reference, member)
    expected = attack_success(reference, member, variance=chosen)
    assert found.variance == chosen
    assert found.settings["variance"] == "auto"
    np.testing.assert_array_equal(found.model_auc, expected.model_auc)
    np.testing.assert_array_equal(found.d_prime, expected.d_prime)


def test_float32_memory_map_gives_the_same_and_is_left_alone(tmp_path):
    reference, member = simulated()
    stored = np.memmap(tmp_path / "signals", dtype=np.float32, mode="w+", shape=reference.shape)
    stored[:] = reference
    stored.flush()
    read = np.memmap(tmp_path / "signals", dtype=np.float32, mode="r", shape=reference.shape)
    found = attack_success(read, member)
    expected = attack_success(np.asarray(read, dtype=np.float64), member)
    np.testing.assert_array_equal(found.success, expected.success)
    np.testing.assert_array_equal(found.d_prime, expected.d_prime)


def test_two_models_a_side_are_enough_with_global_variance():
    reference, member = simulated(r=4, n=50)
    member[:] = np.array([True, True, False, False])[:, None] ^ (np.arange(50) % 2 == 0)
    found = attack_success(reference, member)
    assert np.isfinite(found.success).all()
    np.testing.assert_allclose(
        found.success, success_by_definition(one_model_a_side(reference, member), member, np.zeros(4)), rtol=0, atol=1e-15
    )


def one_model_a_side(reference, member):
    """Log-ratios of each of four models given the three others, two a side: the side it left has one model and no spread of its own."""
    scores = np.empty(reference.shape)
    for t in range(4):
        others = np.arange(4) != t
        sides = [np.ma.masked_array(reference[others], mask=member[others] != inside) for inside in (True, False)]
        centers = [side.mean(0).data for side in sides]
        widths = [np.sqrt(((side - center) ** 2).sum() / side.count()) for side, center in zip(sides, centers, strict=True)]
        scores[t] = norm.logpdf(reference[t], centers[0], widths[0]) - norm.logpdf(reference[t], centers[1], widths[1])
    return scores


@pytest.mark.parametrize(
    "change, message",
    [
        ({"membership": lambda m: m.astype(int)}, r"membership must be boolean; got dtype int64. Pass membership.astype\(bool\)"),
        ({"membership": lambda m: m[:, :-1]}, r"membership must have .* shape \(10, 40\); got shape \(10, 39\)"),
        ({"reference": lambda x: np.where(np.arange(40) == 7, np.nan, x)}, r"reference must be finite; got 10 .* first at index \(0, 7\)"),
        (
            {"membership": lambda m: m & (np.arange(40) != 3)},
            r"every record IN for at least 2 models; got 1 .*\(1 never IN\), the first at index 3 with 0",
        ),
        (
            {"membership": lambda m: m | (np.arange(40) > 37)},
            r"every record OUT for at least 2 models; got 2 .*\(2 never OUT\), the first at index 38",
        ),
        (
            {"membership": lambda m: np.where(np.arange(40) == 8, np.arange(10)[:, None] < 2, m), "variance": "record"},
            "every record IN for at least 3 models; got 1 records with fewer .* index 8 with 2. Pass variance='global', which needs 2",
        ),
        (
            {"membership": lambda m: m & (np.arange(10)[:, None] != 5)},
            "give every model members and non-members; got 1 models without, the first model 5",
        ),
        (
            {"reference": lambda x: 0 * x + 1, "variance": "record"},
            "40 records with standard deviation 0 over their IN models, the first at index 0",
        ),
        (
            {"reference": lambda x: x[:, :, None], "attack": "loss"},
            r"reference must be a 2-dimensional array with entries; got shape \(10, 40, 1\)",
        ),
        ({"attack": "rmia"}, r"reference must lie in \[0, 1e\+100\]; got -"),
        ({"reference": lambda x: np.abs(x) + 1, "attack": "rmia", "variant": "offline"}, r"reference must lie in \[0, 1\]; got "),
        ({"attack": "shokri"}, "attack must be one of 'lira', 'rmia', 'loss'; got 'shokri'"),
        ({"variant": "both"}, "variant must be one of 'online', 'offline'; got 'both'"),
        ({"variance": "own"}, "variance must be one of 'auto', 'record', 'global'; got 'own'"),
        ({"center": "mode"}, "center must be one of 'mean', 'median'; got 'mode'"),
        ({"tail": "sf"}, "tail must be one of 'cdf', 'logcdf', 'pdf'; got 'sf'"),
        ({"direction": "smaller"}, "direction must be one of 'larger', 'either'; got 'smaller'"),
        ({"fpr": 0.0}, "fpr must be a number > 0 and < 1; got 0"),
        ({"fpr": 1.0}, "fpr must be a number > 0 and < 1; got 1"),
        ({"level": 1.0}, "level must be a number > 0 and < 1; got 1"),
        ({"floor": -1.0}, "floor must be a number ≥ 0; got -1"),
        ({"gamma": -1.0}, "gamma must be a number > 0"),
        ({"a": 2.0}, "a must be a number ≥ 0 and ≤ 1; got 2"),
        ({"fprs": (0.5, 0.01)}, r"fprs must be at least 0.0\d+, the smallest rate that \d+ non-members resolve; got 0.01"),
        (
            {"membership": lambda m: m | ((np.arange(10)[:, None] == 3) & (np.arange(40) > 1)), "fprs": (0.2,), "variance": "global"},
            r"fprs must be at least (0.5|1.0), the smallest rate that [12] non-members resolve; got 0.2",
        ),
        ({"fprs": (0.5, -0.1)}, "fprs must be a number > 0 and ≤ 1; got -0.1"),
        ({"fprs": 0.1}, "fprs must be a sequence of false-positive rates; got 0.1"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    arguments = dict(zip(("reference", "membership"), simulated(), strict=True))
    for name, value in change.items():
        arguments[name] = value(arguments[name]) if callable(value) else value
    with pytest.raises(InputError, match=rf"^attack_success: .*{message}"):
        attack_success(**arguments)


def test_a_record_flat_without_the_attacked_model_is_refused_by_model():
    reference, member = simulated()
    reference[:, 4] = np.arange(10.0)
    inside = np.flatnonzero(member[:, 4])
    reference[inside, 4] = 1.0
    reference[inside[1], 4] = 2.0
    message = f"1 records with standard deviation 0 over the IN models other than model {inside[1]}, the first at index 4"
    with pytest.raises(InputError, match=message):
        attack_success(reference, member, variance="record")
    assert np.isfinite(attack_success(reference, member, variance="record", floor=0.1).success).all()


def test_a_record_impossible_without_the_attacked_model_is_refused_by_model():
    reference, member = probabilities()
    reference[:, 4] = 0.0
    reference[6, 4] = 0.7
    with pytest.raises(InputError, match=r"1 records with p\(x\) = 0 without model 6, the first at index 4"):
        attack_success(reference, member, attack="rmia")


def test_scores_beyond_float64_are_a_numerical_error():
    reference, member = simulated()
    reference *= 1e-90
    reference[3, 4] = 1e99
    with pytest.raises(NumericalError, match="attack_success: 1 scores are beyond float64, the first at index 4"):
        attack_success(reference, member, variance="record")


def test_loss_scores_are_negated_losses():
    losses = np.array([0.0, 0.5, 2.0], dtype=np.float32)
    found = loss_scores(losses)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [0.0, -0.5, -2.0])
    np.testing.assert_array_equal(loss_scores([[1, 2], [3, 4]]), [[-1.0, -2.0], [-3.0, -4.0]])
    with pytest.raises(InputError, match="loss_scores: losses must be finite; got 1 NaN or infinite values, the first at index 1"):
        loss_scores([0.0, np.nan])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_memorization_is_the_difference_of_shares_with_newcombes_interval(level):
    rng = np.random.default_rng(5)
    r, n = 21, 30
    member = plan(r, n, rng, spare=3)
    correct = rng.random((r, n)) < np.where(member, 0.9, 0.4)
    correct[:, 0], correct[:, 1] = member[:, 0], ~member[:, 1]
    found = memorization(correct, member, level=level)
    assert found.level == level
    for i in range(n):
        inside = [bool(correct[t, i]) for t in range(r) if member[t, i]]
        outside = [bool(correct[t, i]) for t in range(r) if not member[t, i]]
        # Counts are whole: only the last rounding differs.
        assert found.estimate[i] == pytest.approx(sum(inside) / len(inside) - sum(outside) / len(outside), abs=1e-15)
        expected = confint_proportions_2indep(
            sum(inside), len(inside), sum(outside), len(outside), method="newcomb", compare="diff", alpha=1 - level
        )
        np.testing.assert_allclose(found.interval[i], expected, atol=1e-12)
    assert found.estimate[0] == 1
    assert found.estimate[1] == -1
    assert found.interval[0, 1] == 1
    assert found.interval[1, 0] == -1


@pytest.mark.parametrize(
    "correct, member, options, message",
    [
        (np.ones((3, 2)), np.ones((3, 2), bool), {}, r"correct must be boolean; got dtype float64. Pass correct.astype\(bool\)"),
        (np.ones(3, bool), np.ones(3, bool), {}, r"correct must be a 2-dimensional array with entries; got shape \(3,\)"),
        (np.ones((3, 2), bool), np.ones((3, 2), int), {}, "membership must be boolean; got dtype int64"),
        (np.ones((3, 2), bool), np.ones((2, 2), bool), {}, r"membership must have .* of correct, shape \(3, 2\); got shape \(2, 2\)"),
        (np.ones((2, 2), bool), np.array([[1, 1], [0, 1]], bool), {}, "every record OUT for at least 1 model; got 1 .* index 1 with 0"),
        (np.ones((2, 2), bool), np.array([[0, 1], [0, 0]], bool), {}, "every record IN for at least 1 model; got 1 .* index 0 with 0"),
        (np.ones((2, 2), bool), np.eye(2, dtype=bool), {"level": 0.0}, "level must be a number > 0 and < 1; got 0"),
    ],
)
def test_memorization_refuses_bad_input(correct, member, options, message):
    with pytest.raises(InputError, match=rf"^memorization: .*{message}"):
        memorization(correct, member, **options)
