import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noshadow.attacks import inputs, rmia, rmia_scores
from noshadow.checks import InputError, NumericalError


def simulated(r=6, n=15, nz=20, seed=0):
    rng = np.random.default_rng(seed)
    member = np.stack([rng.permutation(np.arange(r) < r // 2 + rng.integers(-1, 2)) for _ in range(n)], axis=1)
    known = np.stack([rng.permutation(np.arange(r) < r // 2) for _ in range(nz)], axis=1)
    return {
        "target": rng.beta(3, 1, n),
        "reference": rng.beta(1.5, 1, (r, n)),
        "membership": member,
        "population_target": rng.beta(1.5, 1, nz),
        "population_reference": rng.beta(1.5, 1, (r, nz)),
    }, known


def naive_prior(reference, member, i, variant, a):
    inside = [reference[t, i] for t in range(len(reference)) if member[t, i]]
    outside = [reference[t, i] for t in range(len(reference)) if not member[t, i]]
    if variant == "offline":
        return ((1 + a) * np.mean(outside) + (1 - a)) / 2
    if not inside or not outside:
        return np.mean(inside + outside)
    return (np.mean(inside) + np.mean(outside)) / 2


def naive_rmia(target, reference, membership, population_target, population_reference, *, known, gamma, variant, a):
    """The definition as a double loop over records and population."""
    scores = []
    for i in range(len(target)):
        ratio_x = target[i] / naive_prior(reference, membership, i, variant, a)
        beaten = 0
        for z in range(len(population_target)):
            ratio_z = population_target[z] / naive_prior(population_reference, known, z, variant, a)
            beaten += ratio_x > 0 if ratio_z == 0 else ratio_x / ratio_z > gamma
        scores.append(beaten / len(population_target))
    return np.array(scores)


@pytest.mark.parametrize("variant, a", [("online", 0.3), ("offline", 0.3), ("offline", 1.0), ("offline", 0.0)])
@pytest.mark.parametrize("gamma", [1.0, 1.2, 2.0])
@pytest.mark.parametrize("population_is_known", [False, True])
def test_scores_are_the_double_loop(variant, a, gamma, population_is_known):
    arguments, known = simulated()
    member = known if population_is_known else np.zeros_like(known)
    found = rmia_scores(**arguments, gamma=gamma, variant=variant, a=a, population_membership=known if population_is_known else None)
    # Shares of whole counts: equal unless a ratio lies within rounding of γ, which random ones do not.
    np.testing.assert_array_equal(found, naive_rmia(**arguments, known=member, gamma=gamma, variant=variant, a=a))
    assert len(np.unique(found)) > 3


def test_population_records_with_one_side_only_get_the_mean_of_that_side():
    arguments, known = simulated()
    known[:, :5] = True
    known[:, 5:9] = False
    found = rmia_scores(**arguments, gamma=1.1, population_membership=known)
    np.testing.assert_array_equal(found, naive_rmia(**arguments, known=known, gamma=1.1, variant="online", a=0.3))


def exact_halves(target, population):
    """Every prior is exactly ½, so that ratios are exactly twice the probabilities."""
    r, member = 2, np.array([[True] * len(target), [False] * len(target)])
    return target, np.full((r, len(target)), 0.5), member, population, np.full((r, len(population)), 0.5)


def test_the_test_is_strict_also_at_zero():
    found = rmia_scores(*exact_halves([0.0, 0.25, 0.5, 0.75], [0.0, 0.0, 0.25, 0.5]), gamma=1.0)
    np.testing.assert_array_equal(found, [0.0, 0.5, 0.75, 1.0])
    found = rmia_scores(*exact_halves([0.0, 0.25, 0.5, 0.75], [0.0, 0.0, 0.25, 0.5]), gamma=2.0)
    np.testing.assert_array_equal(found, [0.0, 0.5, 0.5, 0.75])


ties = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]), min_size=1, max_size=12)


@given(ties, ties, st.sampled_from([0.5, 1.0, 2.0, 4.0]))
def test_ties_and_zeros_count_as_in_every_pair(target, population, gamma):
    found = rmia_scores(*exact_halves(target, population), gamma=gamma)
    pairs = np.array(target)[:, None] > gamma * np.array(population)[None]
    np.testing.assert_array_equal(found, pairs.sum(1) / len(population))


@given(st.integers(0, 2**32 - 1), st.sampled_from(["online", "offline"]))
def test_order_of_records_population_and_models_does_not_matter(seed, variant):
    arguments, known = simulated(seed=seed)
    rng = np.random.default_rng(seed)
    records, models, population = rng.permutation(15), rng.permutation(6), rng.permutation(20)
    shuffled = {
        "target": arguments["target"][records],
        "reference": arguments["reference"][models][:, records],
        "membership": arguments["membership"][models][:, records],
        "population_target": arguments["population_target"][population],
        "population_reference": arguments["population_reference"][models][:, population],
    }
    found = rmia_scores(**arguments, variant=variant, gamma=1.1, population_membership=known)
    again = rmia_scores(**shuffled, variant=variant, gamma=1.1, population_membership=known[models][:, population])
    np.testing.assert_array_equal(again, found[records])


def test_scores_do_not_depend_on_blocks_precision_of_storage_or_scale(monkeypatch):
    arguments, _ = simulated(n=300, nz=200)
    arguments = {name: a if a.dtype == bool else a.astype(np.float32) for name, a in arguments.items()}
    found = rmia_scores(**arguments)
    # Densities have a unit; powers of two scale without rounding.
    scaled = {name: a if a.dtype == bool else a * np.float32(1024) for name, a in arguments.items()}
    np.testing.assert_array_equal(rmia_scores(**scaled), found)
    for module in (inputs, rmia):
        monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 64)
    np.testing.assert_array_equal(rmia_scores(**{k: a if a.dtype == bool else a.astype(np.float64) for k, a in arguments.items()}), found)


def test_a_model_fitted_to_its_members_is_found_out():
    arguments, _ = simulated(n=400, nz=400, seed=1)
    arguments["reference"] = arguments["reference"] * 0.5 + 0.4 * arguments["membership"]
    half = np.arange(400) < 200
    arguments["target"] = np.where(half, 0.9, 0.2)
    found = rmia_scores(**arguments, gamma=1.0)
    assert found[half].mean() > 0.6 > 0.4 > found[~half].mean()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"membership": lambda m: m.astype(np.int8)}, r"membership must be boolean; got dtype int8. Pass membership.astype\(bool\)"),
        ({"membership": lambda m: m[:-1]}, r"membership must have one entry .* shape \(6, 15\); got shape \(5, 15\)"),
        ({"target": lambda p: p[:-1]}, r"target must have the records of reference, shape \(15,\); got shape \(14,\)"),
        ({"reference": lambda p: p[:, :, None]}, r"reference must be a 2-dimensional array with entries; got shape \(6, 15, 1\)"),
        ({"population_reference": lambda p: p[:-1]}, r"population_reference must have .* shape \(6, 20\); got shape \(5, 20\)"),
        ({"population_target": lambda p: p[:-1]}, r"population_reference must have .* shape \(6, 19\); got shape \(6, 20\)"),
        ({"population_target": np.empty(0)}, r"population_target must be .* with entries; got shape \(0,\)"),
        ({"population_membership": np.zeros((6, 20))}, "population_membership must be boolean; got dtype float64"),
        ({"population_membership": np.zeros((6, 19), dtype=bool)}, r"population_membership must have .* got shape \(6, 19\)"),
        (
            {"population_membership": np.arange(120).reshape(6, 20) % 20 == 3, "variant": "offline"},
            r"population_membership must hold every record OUT for at least 1 model; got 1 records .*\(1 never OUT\), the first at index 3",
        ),
        ({"target": lambda p: np.r_[p[:4], np.nan, p[5:]]}, "target must be finite; got 1 NaN or infinite values, the first at index 4"),
        ({"reference": lambda p: np.where(np.arange(15) == 2, np.inf, p)}, r"reference must be finite; got 6 .* first at index \(0, 2\)"),
        ({"reference": lambda p: p - 0.5}, r"reference must lie in \[0, 1e\+100\]; got -0.\d+ at index \(\d, \d+\)"),
        ({"target": lambda p: p + 1, "variant": "offline"}, r"target must lie in \[0, 1\]; got 1.* Offline RMIA needs probabilities"),
        ({"population_target": lambda p: p + 1, "variant": "offline"}, r"population_target must lie in \[0, 1\]"),
        (
            {"reference": lambda p: np.where(np.isin(np.arange(15), [3, 7]), 0.0, p)},
            r"reference must give every record a probability > 0 under some model; got 2 records with p\(x\) = 0, the first at index 3",
        ),
        (
            {"population_reference": lambda p: np.where(np.arange(20) == 5, 0.0, p)},
            r"population_reference must give every record a probability > 0 .* got 1 records with p\(x\) = 0, the first at index 5",
        ),
        (
            {"membership": lambda m: m & (np.arange(15) != 1)},
            r"every record IN for at least 1 model; got 1 .* index 1 with 0\. Pass variant='offline'",
        ),
        (
            {"membership": lambda m: m | (np.arange(15) == 1), "variant": "offline"},
            "every record OUT for at least 1 model; got 1 .* index 1 with 0",
        ),
        ({"gamma": 0.0}, r"gamma must be a number > 0 .*; got 0"),
        ({"a": 1.5}, "a must be a number ≥ 0 and ≤ 1; got 1.5"),
        ({"variant": "half"}, "variant must be one of 'online', 'offline'; got 'half'"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    arguments, _ = simulated()
    for name, value in change.items():
        arguments[name] = value(arguments[name]) if callable(value) else value
    with pytest.raises(InputError, match=rf"^rmia_scores: .*{message}"):
        rmia_scores(**arguments)


def test_offline_needs_no_in_model_and_takes_zeros_where_a_is_below_one():
    arguments, _ = simulated()
    arguments["membership"][:, 4] = False
    arguments["reference"][:, 6] = 0.0
    assert np.isfinite(rmia_scores(**arguments, variant="offline")).all()


def test_a_ratio_beyond_float64_is_a_numerical_error():
    arguments, _ = simulated()
    arguments["reference"][:, 2] = 1e-310
    arguments["target"][2] = 1e10
    with pytest.raises(NumericalError, match=r"rmia_scores: 1 ratios p\(x\|θ\)/p\(x\) are beyond float64, the first at index 2"):
        rmia_scores(**arguments)
