import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from noshadow import group_risk
from noshadow.checks import InputError
from noshadow.metrics import loss_auc, tnr_at_fnr
from noshadow.results import GroupRisk
from noshadow.tail.groups import _auc, _flagged


def two_groups(n=600, *, seed=0, scale=0.05):
    rng = np.random.default_rng(seed)
    names = np.where(rng.random(2 * n) < 0.5, "young", "old")
    members = rng.exponential(np.where(names[:n] == "old", scale, 0.7))
    return members, rng.exponential(size=n), names[:n], names[n:]


def test_values_are_those_of_the_group_alone():
    members, nonmembers, own, other = two_groups()
    for row in group_risk(members, nonmembers, own, other):
        inside, outside = members[own == row.group], nonmembers[other == row.group]
        assert row.auc == pytest.approx(loss_auc(inside, outside), abs=1e-12)
        assert row.tnr == tnr_at_fnr(inside, outside, row.fnr)
        rest = loss_auc(members[own != row.group], nonmembers[other != row.group])
        assert row.auc_difference == pytest.approx(row.auc - rest, abs=1e-12)
        assert row.auc_interval[0] < row.auc < row.auc_interval[1]


def test_the_exposed_group_is_flagged_and_comes_first():
    rows = group_risk(*two_groups())
    assert [(row.group, row.riskier) for row in rows] == [("old", True), ("young", False)]


def test_equal_groups_are_hardly_ever_flagged():
    """Ten groups of 200, nothing between them: nominal 5 % over the whole table."""
    flagged = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        losses = rng.exponential(0.5, 2000), rng.exponential(1.0, 2000)
        rows = group_risk(*losses, rng.integers(0, 10, 2000), rng.integers(0, 10, 2000), resamples=100, seed=seed)
        flagged += any(min(row.auc_p, row.tnr_p) < 0.05 for row in rows)
    # 5 to 8 % in longer runs; more than 11 of 60 would have a chance below 1 % at 8 %.
    assert flagged <= 11


def test_delong_error_equals_the_spread_over_repetitions():
    def draw(seed):
        rng = np.random.default_rng(seed)
        return np.sort(rng.exponential(0.6, 80)), np.sort(rng.exponential(1, 120))

    found = np.array([_auc(*draw(seed)) for seed in range(400)])
    # Relative error of a standard deviation from 400 draws: 1/√800 = 0.035.
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.12)


def test_adjusted_values_equal_statsmodels():
    rng = np.random.default_rng(1)
    blank = group_risk(*two_groups(n=200))[0]
    values = rng.random((7, 2)) ** 4
    rows = [replace(blank, group=str(i), auc_p=a, tnr_p=b) for i, (a, b) in enumerate(values.tolist())]
    expected = multipletests(values.ravel(), method="holm")[1]
    found = list(itertools.chain.from_iterable((row.auc_p, row.tnr_p) for row in _flagged(rows, 0.05)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_small_groups_are_listed_with_the_reason():
    members, nonmembers, own, other = two_groups()
    own = own.copy()
    own[:5] = "few"
    *judged, last = group_risk(members, nonmembers, own, other)
    assert last.group == "few" and last.auc is None and not last.riskier
    assert "needs 20 members" in last.reason and "has 5 and 0" in last.reason
    assert all(row.reason is None for row in judged)


def test_it_survives_json():
    for row in group_risk(*two_groups()):
        assert GroupRisk.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_bad_groups_are_refused():
    members, nonmembers, own, other = two_groups(n=100)
    with pytest.raises(InputError, match=r"group_risk: member_groups must name at least two groups; got 1"):
        group_risk(members, nonmembers, ["a"] * 100, ["a"] * 100)
    with pytest.raises(InputError, match=r"group_risk: .*nonmember_groups"):
        group_risk(members, nonmembers, own, other[:-1])
    with pytest.raises(InputError, match=r"member_groups must be one name a record"):
        group_risk(members, nonmembers, "old", other)
    with pytest.raises(InputError, match=r"member_losses must hold losses ≥ 0"):
        group_risk(members - 5, nonmembers, own, other)
    with pytest.raises(InputError, match=r"GroupRisk.from_dict: data must hold exactly its fields"):
        GroupRisk.from_dict({"group": "a"})


def test_numbers_and_missing_names_mean_the_same_on_both_sides():
    members, nonmembers, _, _ = two_groups(n=400)
    numbers = np.arange(400) % 2
    assert {row.group for row in group_risk(members, nonmembers, numbers, numbers.astype(float))} == {"0", "1"}
    gone = group_risk(members, nonmembers, ["x", None] * 200, ["x", float("nan")] * 200)
    assert {row.group for row in gone} == {"x", "(missing)"} and all(row.reason is None for row in gone)
    with pytest.raises(InputError, match=r"member_groups must hold one name a record"):
        group_risk(members, nonmembers, np.zeros((400, 2)), numbers)
