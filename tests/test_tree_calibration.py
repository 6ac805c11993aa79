"""Forests and boosting have calibrations of their own: files, domain, and what audits carry."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import noshadow as ns
from extras import extra
from noshadow import Calibration, model_risk
from noshadow.checks import InputError
from noshadow.columns import ranking_order
from noshadow.tail.calibration import fit_quality
from noshadow.tail.forms import predicted_rates
from noshadow.tail.prediction import calibration_for, shipped_calibration

X, Y = make_classification(2400, 20, n_informative=6, flip_y=0.2, random_state=0)
IN, OUT = (X[:1200], Y[:1200]), (X[1200:], Y[1200:])
FAMILIES = {
    "forest": ("ExtraTreesClassifier", "RandomForestClassifier"),
    "boosting": ("GradientBoostingClassifier", "HistGradientBoostingClassifier", "LightGBM", "XGBoost"),
}
STRONGER = "the stronger of LiRA and RMIA"


def audited(model):
    return ns.audit(model.fit(*IN), IN, OUT, progress=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_shipped_files_hold_what_they_say(name, tmp_path):
    """Stored curves give the stored quality on the stored setups: nobody edited one without the other."""
    made = shipped_calibration(name)
    assert made.families == FAMILIES[name] and made.attack == STRONGER
    assert len(made.setups) >= 12 and len({row["data_set"] for row in made.setups}) >= 5
    assert {(cell.fpr, cell.references) for cell in made.cells} == {(fpr, k) for fpr in (1e-3, 1e-2) for k in (4, 16, 64)}
    x = np.array([[row[predictor] for predictor in made.predictors] for row in made.setups])
    for cell in made.cells:
        where = cell.fpr, cell.references
        measured = [rate["tpr"] for row in made.setups for rate in row["tpr"] if (rate["fpr"], rate["references"]) == where]
        found = fit_quality(np.array(measured), predicted_rates(made.form, cell.coefficients, x))
        assert found["rmse"] == pytest.approx(cell.quality["in_sample_rmse"], abs=2e-3)  # four digits of the predictors are stored
        # A calibration ships where data sets left out are predicted far better than by the mean.
        assert cell.quality["left_out_r2"] > 0.5 and 0.8 <= cell.quality["left_out_coverage"] <= 0.95
    assert Calibration.load(made.save(tmp_path / "again.json")) == made


def test_every_family_has_one_calibration_at_most():
    for name, families in FAMILIES.items():
        assert all(calibration_for(family) == shipped_calibration(name) for family in families)
    assert calibration_for(None) == calibration_for("network") == shipped_calibration()
    assert shipped_calibration().attack == "LiRA"
    assert calibration_for("CatBoost") is None and calibration_for("RandomForestRegressor") is None


@pytest.mark.parametrize(
    ("model", "calibration"),
    [
        (RandomForestClassifier(100, random_state=0), "forest-1"),
        (HistGradientBoostingClassifier(max_iter=60, random_state=0), "boosting-1"),
    ],
    ids=["forest", "boosting"],
)
def test_audits_of_trees_carry_a_rate_its_interval_and_the_attack(model, calibration, tmp_path):
    audit = audited(model)
    risk = audit.model_risk
    low, high = risk.predicted_tpr_interval
    assert risk.fpr <= risk.predicted_tpr <= 1 and 0 <= low < risk.predicted_tpr < high <= 1
    assert (risk.calibration, risk.predicted_attack, risk.in_calibration_domain) == (calibration, STRONGER, True)
    assert risk.reason.startswith(f"Rate of {STRONGER}, predicted from ") and "this model is like them" in risk.reason
    held = ns.load(audit.save(tmp_path / "audit"))
    assert held.model_risk == risk


def test_the_rate_of_a_forest_is_its_own_curve_and_not_that_of_networks():
    audit = audited(RandomForestClassifier(100, random_state=0))
    losses = audit.member_losses, audit.nonmember_losses
    made = shipped_calibration("forest")
    shown = ns.risk_predictors(*losses)
    (cell,) = [cell for cell in made.cells if (cell.fpr, cell.references) == (1e-3, 64)]
    expected = predicted_rates(made.form, cell.coefficients, np.array([[shown[name] for name in made.predictors]]))[0]
    assert audit.model_risk.predicted_tpr == pytest.approx(expected, rel=1e-12)
    assert model_risk(*losses, family="RandomForestClassifier", resamples=100).predicted_tpr == pytest.approx(expected, rel=1e-12)
    vouched = model_risk(*losses, resamples=100)
    assert vouched.predicted_attack in (None, "LiRA") and vouched.predicted_tpr != audit.model_risk.predicted_tpr


@pytest.mark.parametrize(
    "model",
    [RandomForestClassifier(100, max_depth=1, random_state=0), GradientBoostingClassifier(n_estimators=60, max_depth=1, random_state=0)],
    ids=["stumps", "boosted stumps"],
)
def test_the_domain_flags_an_unlike_model(model):
    risk = audited(model).model_risk
    assert risk.predicted_tpr is not None and risk.in_calibration_domain is False and "take it as a hint" in risk.reason


@pytest.mark.parametrize(
    ("library", "kind", "options", "family"),
    [
        ("xgboost", "XGBClassifier", {"booster": "dart"}, "XGBoost with booster='dart'"),
        ("xgboost", "XGBClassifier", {"booster": "gblinear"}, "XGBoost with booster='gblinear'"),
        ("xgboost", "XGBRFClassifier", {}, "XGBoost with parallel trees"),
        ("lightgbm", "LGBMClassifier", {"boosting_type": "dart", "verbose": -1}, "LightGBM with boosting='dart'"),
        (
            "lightgbm",
            "LGBMClassifier",
            {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1, "verbose": -1},
            "LightGBM with boosting='rf'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_what_no_setup_was_like_is_a_family_of_its_own(library, kind, options, family):
    """A linear booster or a forest of XGBoost once got the rate of boosted trees."""
    audit = audited(getattr(extra(library), kind)(n_estimators=5, n_jobs=1, **options))
    assert audit.provenance["inputs"]["family"] == family
    assert audit.model_risk.predicted_tpr is None and f"another family ({family})" in audit.model_risk.reason


def test_an_unknown_family_has_no_rate_and_no_attack():
    risk = audited(KNeighborsClassifier(5)).model_risk
    assert risk.predicted_tpr is risk.predicted_tpr_interval is risk.predicted_attack is risk.calibration is None
    assert "forests with bootstrap and boosted trees, and this model is of another family (KNeighborsClassifier)" in risk.reason


def test_an_attack_is_a_name():
    with pytest.raises(InputError, match=r"fit_calibration: attack must be a name; got ''"):
        ns.fit_calibration([], attack="")
    with pytest.raises(InputError, match=r"attack must be a name; got 3"):
        Calibration.from_dict(
            {"format": 1} | {**vars(shipped_calibration("forest")), "cells": [vars(shipped_calibration("forest").cells[0])], "attack": 3}
        )


def test_the_rise_of_the_loss_ranks_where_trees_say_what_they_were_without_the_record():
    """`loo` exists for many models; it goes first for forests that classify alone."""
    forest, head = ranking_order(["loo", "shift", "left_out_loss"]), ranking_order(["loo", "shift"])
    assert forest.index("loo") < forest.index("left_out_loss") < forest.index("shift") and "loo" not in head
    audit = audited(RandomForestClassifier(100, max_depth=6, random_state=0))
    order = audit.records.sort_values("rank")
    assert audit.ranked_by == "loo" and order["loo"].is_monotonic_decreasing
