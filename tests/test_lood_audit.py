"""lood_audit: its figures against refits, its scaling, map, sweep, join and folder, and what it refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import noshadow as ns
from lood_oracles import brute_force
from noshadow._lood.critical import critical_weights
from noshadow._lood.data_set import plane
from noshadow.checks import InputError

DIGITS, LABELS = load_digits(return_X_y=True)
X, Y = DIGITS[:40] / 16, LABELS[:40]
COLUMNS = ["id", "target", "kl", "mean_distance", "loo_variance", "auc", "tpr", "leverage", "map_1", "map_2", "rank"]


@pytest.fixture(scope="module")
def found():
    return ns.lood_audit(X, Y, ids=[f"scan {i}" for i in range(40)], depth=1, noise=0.2, fpr=0.01)


@pytest.fixture(scope="module")
def trained():
    """An audit of a model trained on the first 30 of the same records."""
    model = LogisticRegression(max_iter=500).fit(X[:30], Y[:30])
    return ns.audit(model, (X[:30], Y[:30]), (X[30:], Y[30:]), ids=[f"scan {i}" for i in range(30)], progress=False)


# Figures


def test_every_record_is_what_refitting_without_it_says(found):
    def kernel(a, b):
        return ns.nngp_kernel(a, b, depth=1)

    assert list(found.records.columns) == COLUMNS
    for i in range(0, 40, 5):
        refit = brute_force(kernel, X, np.eye(10)[Y], [i], X[[i]], 0.2)
        row = found.records.loc[i]
        # Two explicit inverses of matrices of condition 1e3 on the oracle's side.
        np.testing.assert_allclose([row.kl, row.mean_distance], [refit["kl"], refit["mean_distance"]], rtol=1e-9)
        np.testing.assert_allclose(row.loo_variance, refit["loo"][1][0, 0], rtol=1e-9)


def test_rank_1_is_the_largest_kl_and_the_summary_is_the_tables(found):
    by_rank = found.records.sort_values("rank")
    assert by_rank["rank"].tolist() == list(range(1, 41))
    assert (np.diff(by_rank["kl"]) <= 0).all()
    for name in ("kl", "mean_distance", "auc", "tpr"):
        values = found.records[name].to_numpy()
        expected = {"mean": values.mean(), "median": np.median(values), "quantile_90": np.quantile(values, 0.9), "max": values.max()}
        assert found.summary[name] == pytest.approx(expected, rel=1e-12)
    assert found.summary["kl_share_of_riskiest_tenth"] == pytest.approx(by_rank["kl"][:4].sum() / by_rank["kl"].sum())
    assert (found.summary["records"], found.summary["outputs"], found.fpr) == (40, 10, 0.01)
    assert found.records["tpr"].min() >= 0.01


@pytest.mark.parametrize("n", [40, 120])
def test_conditioning_is_that_of_the_kernel_matrix(n):
    held = ns.lood_audit(DIGITS[:n] / 16, LABELS[:n], depth=1, noise=0.2).conditioning
    matrix = ns.nngp_kernel(DIGITS[:n] / 16, depth=1).numpy()
    values = np.linalg.eigvalsh(matrix)
    # Three digits are kept; the smallest eigenvalue is a Lanczos estimate from above.
    assert held["largest_eigenvalue"] == pytest.approx(values[-1], rel=5e-3)
    assert values[0] * 0.995 < held["smallest_eigenvalue"] < values[0] * 1.1
    assert held["condition"] == pytest.approx((values[-1] + 0.2) / (values[0] + 0.2), rel=1e-2)
    assert held["effective_dof"] == pytest.approx((values / (values + 0.2)).sum(), rel=1e-9)
    middle = (matrix.min() + matrix.max()) / 2
    assert (held["constant"], held["distance"]) == pytest.approx((middle, np.abs(matrix - middle).max()))
    assert held["entries"] == [matrix.min(), matrix.max()]


def test_the_order_of_records_does_not_matter(found):
    order = np.random.default_rng(3).permutation(40)
    shuffled = ns.lood_audit(X[order], Y[order], depth=1, noise=0.2, fpr=0.01)
    np.testing.assert_allclose(shuffled.records["kl"], found.records["kl"].to_numpy()[order], rtol=1e-9)


def test_inputs_are_left_alone_and_equal_runs_are_equal():
    x, y = X.copy(), Y.copy()
    runs = [ns.lood_audit(x, y, normalize="standardize").manifest() for _ in range(2)]
    assert (x == X).all() and (y == Y).all()
    first, second = ({name: value for name, value in run.items() if name != "timings"} for run in runs)
    assert first["provenance"] == second["provenance"] and first["kernel"] == second["kernel"]
    assert first["summary"]["kl"] == pytest.approx(second["summary"]["kl"], rel=1e-12)


# Kernels and scaling


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({"kernel": "rbf", "length_scale": 2.0}, lambda x: ns.rbf_kernel(x, length_scale=2.0)),
        ({"kernel": "laplace", "length_scale": 3.0}, lambda x: ns.laplace_kernel(x, length_scale=3.0)),
        (
            {"depth": np.int64(3), "activation": "gelu", "weight_variance": 1.5, "bias_variance": 0.1},
            lambda x: ns.nngp_kernel(x, depth=3, activation="gelu", weight_variance=1.5, bias_variance=0.1),
        ),
        (
            {"kernel": "conv", "depth": 1, "image_shape": (1, 8, 8), "filter_size": 2},
            lambda x: ns.nngp_kernel(x, depth=1, architecture="conv", image_shape=(1, 8, 8), filter_size=2),
        ),
    ],
)
def test_each_kernel_is_the_librarys(options, kernel):
    table = ns.lood_audit(X, Y, **options).records
    np.testing.assert_allclose(table["kl"], ns.lood_scores(kernel(X), np.eye(10)[Y], noise=0.1).kl, rtol=1e-12)


def test_the_shape_of_images_is_read_off_the_records():
    images = X[:12].reshape(-1, 1, 8, 8)
    labels = np.arange(12) % 2
    stored = ns.lood_audit(images, labels, kernel="conv", depth=1)
    assert stored.kernel == {
        "name": "conv",
        "depth": 1,
        "activation": "relu",
        "weight_variance": 2.0,
        "bias_variance": 0.0,
        "filter_size": 3,
        "image_shape": [1, 8, 8],
    }
    flat = ns.lood_audit(X[:12], labels, kernel="conv", depth=1, image_shape=(1, 8, 8))
    np.testing.assert_allclose(stored.records["kl"], flat.records["kl"], rtol=1e-12)


def test_scaling_is_exactly_what_it_says():
    x, y = load_breast_cancer(return_X_y=True)
    x, y = np.column_stack([x[:50], np.full(50, 7.3)]), y[:50]

    def kl(inputs, **options):
        return ns.lood_audit(inputs, y, **options).records["kl"]

    np.testing.assert_allclose(kl(x, normalize="standardize"), kl(StandardScaler().fit_transform(x)), rtol=1e-8)
    sizes = np.sqrt((x**2).mean(1, keepdims=True))
    np.testing.assert_allclose(kl(x, normalize="unit"), kl(x / sizes), rtol=1e-8)
    assert not np.allclose(kl(x), kl(x, normalize="unit"))


@pytest.mark.parametrize("shape", [(30, 5), (200, 90)])  # a full and a truncated decomposition
def test_the_map_is_the_principal_plane(shape):
    x = np.random.default_rng(5).normal(size=shape) * np.linspace(3, 1, shape[1])
    oracle = PCA(2, svd_solver="full").fit(x)
    positions, shares = plane(torch.from_numpy(x))
    np.testing.assert_allclose(np.abs(positions), np.abs(oracle.transform(x)), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(shares, oracle.explained_variance_ratio_, rtol=1e-8)


def test_data_without_a_plane_have_a_map_all_the_same():
    line = ns.lood_audit(np.arange(4.0)[:, None] + 1, [0.0, 1.0, -1.0, 0.0], kernel="rbf", length_scale=1.0)
    assert (line.records["map_2"] == 0).all() and line.provenance["map"]["variance_shares"] == [pytest.approx(1.0), 0.0]
    point = ns.lood_audit(np.ones((3, 2)), [0, 1, 1], kernel="rbf", length_scale=1.0)
    assert (point.records[["map_1", "map_2"]] == 0).all(axis=None)


def test_targets_of_every_kind_keep_their_columns():
    values = np.random.default_rng(1).normal(size=(40, 2))
    assert ns.lood_audit(X, values[:, 0]).provenance["targets"] == {"kind": "numbers, as given", "outputs": 1}
    assert list(ns.lood_audit(X, values).records.columns[:3]) == ["id", "target_0", "target_1"]
    assert ns.lood_audit(X, Y % 2 == 0).provenance["targets"] == {"kind": "labels, as one-hot columns", "outputs": 2}


# Notes


@pytest.mark.parametrize(
    ("x", "y", "options", "note"),
    [
        (np.vstack([X, X[:3]]), np.r_[Y, Y[:3]], {}, "6 records have an exact copy in the data"),
        (X, Y, {"normalize": "standardize"}, "that leaving a record out would change the scaling too is not counted"),
        (X, Y + 50.5, {}, "targets were not centred"),
        (X * 1e3, Y, {}, "far above the noise 0.1"),
        (X - X.mean(0), Y, {"depth": 0}, "Proposition 6.1 says nothing"),
    ],
)
def test_what_a_reader_must_know_is_said(x, y, options, note):
    x = np.vstack([x, -x]) if "Proposition" in note else x
    y = np.r_[y, y] if "Proposition" in note else y
    assert [n for n in ns.lood_audit(x, y, **options).notes if note in n]


def test_a_bad_condition_is_said():
    x = np.linspace(0, 1, 60)[:, None]
    found = ns.lood_audit(x, np.sin(x[:, 0]), kernel="rbf", length_scale=1.0, noise=1e-10)
    assert found.conditioning["condition"] > 1e10
    assert [n for n in found.notes if "rounding may reach" in n]


# Sweep


@pytest.mark.parametrize("sweep_noise", ["relative", "absolute"])
def test_a_sweep_is_many_runs(sweep_noise):
    options = {"sweep_activations": ["relu", "tanh"], "sweep_depths": range(1, 3), "sweep_noise": sweep_noise, "progress": False}
    swept = ns.lood_audit(X, Y, depth=4, bias_variance=0.1, **options)
    assert [(row["activation"], row["depth"]) for row in swept.sweep] == [("relu", 1), ("relu", 2), ("tanh", 1), ("tanh", 2)]
    share = 0.1 / float(ns.nngp_kernel(X, depth=4, bias_variance=0.1).diagonal().mean())
    noise = {"relative_noise": share} if sweep_noise == "relative" else {}
    for row in swept.sweep:
        single = ns.lood_audit(X, Y, depth=row["depth"], activation=row["activation"], bias_variance=0.1, **noise)
        assert row["noise"] == pytest.approx(single.noise, rel=1e-12)
        assert row["mean_distance_max"] == pytest.approx(single.summary["mean_distance"]["max"], rel=1e-12)
        assert row["bound"] == pytest.approx(single.conditioning["bound"], rel=1e-12)
        assert row["kl_mean"] == pytest.approx(single.summary["kl"]["mean"], rel=1e-12)
        assert row["kl_max"] == pytest.approx(single.summary["kl"]["max"], rel=1e-12)
        assert row["distance"] == single.conditioning["distance"] and row["reason"] is None


def test_relative_noise_undoes_the_scale_of_the_kernel():
    """A kernel three times as large with the same share of noise and targets √3 times as large is the same problem."""
    once = ns.lood_audit(X, Y, depth=0, relative_noise=0.05, progress=False)
    scaled = ns.lood_audit(X, np.sqrt(3) * np.eye(Y.max() + 1)[Y], depth=0, weight_variance=6.0, relative_noise=0.05, progress=False)
    assert scaled.noise == pytest.approx(3 * once.noise, rel=1e-12)
    # Equal problems in other units: only rounding differs.
    np.testing.assert_allclose(scaled.records["kl"], once.records["kl"], rtol=1e-9)


def test_critical_weights_follow_the_activation_through_a_sweep():
    swept = ns.lood_audit(X, Y, weights="critical", activation="tanh", sweep_activations=["relu", "erf"], sweep_depths=[2], progress=False)
    weight, bias = critical_weights("tanh")
    assert (swept.kernel["weight_variance"], swept.kernel["bias_variance"]) == (weight, bias)
    for row in swept.sweep:
        weight, bias = critical_weights(row["activation"])
        matrix = ns.nngp_kernel(X, depth=2, activation=row["activation"], weight_variance=weight, bias_variance=bias)
        assert row["mean_diagonal"] == pytest.approx(float(matrix.diagonal().mean()), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": 0.1, "relative_noise": 0.1}, "noise must be given, or relative_noise in its place; got both"),
        ({"relative_noise": 0.0}, "relative_noise must"),
        ({"weights": "critical", "weight_variance": 2.0}, "weights must be given without weight_variance"),
        ({"weights": "calm"}, "weights must be one of 'critical'"),
        ({"weights": "critical", "kernel": "rbf", "length_scale": 1.0}, "weights must come with a kernel that has them"),
        ({"sweep_noise": "same"}, "sweep_noise must be one of 'relative', 'absolute'"),
    ],
)
def test_noise_and_weights_are_refused_in_one_sentence(options, words):
    with pytest.raises(InputError, match=re.escape(words)):
        ns.lood_audit(X, Y, **options)


def test_a_cell_without_figures_says_why():
    swept = ns.lood_audit(X, Y, depth=0, weight_variance=1e60, sweep_activations=["relu"], sweep_depths=[0, 3], progress=False, noise=1e60)
    fine, failed = swept.sweep
    assert fine["kl_mean"] > 0 and fine["reason"] is None
    assert failed["kl_mean"] is None and failed["reason"].startswith("x and weight_variance must keep every variance")


# Join


def test_an_audit_is_joined_by_id_and_the_rest_is_counted(found, trained):
    joined = ns.lood_audit(X, Y, ids=[f"scan {i}" for i in range(40)], depth=1, noise=0.2, audit=trained)
    table, held = joined.records, joined.joined
    assert (held["matched"], held["unmatched"], held["unmatched_in_audit"], held["differing_targets"]) == (30, 10, 0, 0)
    assert [n for n in joined.notes if "10 of 40 records have no partner in the audit" in n]
    by_id = trained.records.set_index("id")
    for name in ("rank", "shift", "loss"):
        ours = table.loc[:29, f"audit_{name}"].to_numpy(dtype=float)
        np.testing.assert_array_equal(ours, by_id.loc[table["id"][:30], name])
        assert table.loc[30:, f"audit_{name}"].isna().all()
    (row,) = [row for row in held["agreement"] if (row["score"], row["compared"]) == ("audit_shift", "kl")]
    expected = table.loc[:29, "kl"].rank().corr(table.loc[:29, "audit_shift"].rank())
    assert row["spearman"] == pytest.approx(expected) and row["low"] <= row["spearman"] <= row["high"] and row["records"] == 30
    np.testing.assert_array_equal(table[COLUMNS[2:5]], found.records[COLUMNS[2:5]])


def test_ids_match_as_text_and_row_numbers_raise_a_question(trained):
    numbered = replace(trained, records=trained.records.assign(id=range(30)))
    joined = ns.lood_audit(X, Y, audit=numbered)
    assert joined.joined["matched"] == 30
    assert [n for n in joined.notes if "matched by row number" in n]
    named = ns.lood_audit(X, Y, ids=[str(i) for i in range(40)], audit=numbered)
    assert named.joined["matched"] == 30 and not [n for n in named.notes if "matched by row number" in n]


def test_other_targets_under_the_same_id_are_refused(trained):
    other = replace(trained, records=trained.records.assign(target=(trained.records["target"] + 1) % 10))
    with pytest.raises(
        InputError, match=r"audit must have the targets of the data .*; got another target for 30 of 30 records, the first 'scan 0'"
    ):
        ns.lood_audit(X, Y, ids=[f"scan {i}" for i in range(40)], audit=other)


def test_few_or_constant_scores_have_no_correlation(trained):
    records = trained.records.head(2)
    few = ns.lood_audit(X, Y, ids=[f"scan {i}" for i in range(40)], audit=replace(trained, records=records))
    assert all(row["spearman"] is None and "too few" in row["note"] for row in few.joined["agreement"])
    flat = replace(trained, records=trained.records.assign(shift=1.0))
    rows = ns.lood_audit(X, Y, ids=[f"scan {i}" for i in range(40)], audit=flat).joined["agreement"]
    assert all(row["spearman"] is None and row["note"] for row in rows if row["score"] == "audit_shift")


def test_audits_that_cannot_be_joined_are_refused(trained):
    with pytest.raises(InputError, match=r"audit must share record ids with the data; got 'a0', … beside 'scan 0', …\. Give both"):
        ns.lood_audit(X, Y, ids=[f"a{i}" for i in range(40)], audit=trained)
    with pytest.raises(InputError, match=r"audit must be an Audit; got str. Read a folder with noshadow.load first"):
        ns.lood_audit(X, Y, audit="folder")


# Folder


def test_a_folder_reads_back_as_it_was(found, trained, tmp_path):
    ids = [f"scan {i}" for i in range(40)]
    joined = ns.lood_audit(X, Y, ids=ids, audit=trained, sweep_activations=["erf"], sweep_depths=[1], progress=False)
    for place, original in enumerate((found, joined)):
        back = ns.load_lood(original.save(tmp_path / str(place)))
        assert json.dumps(back.manifest(), sort_keys=True) == json.dumps(original.manifest(), sort_keys=True)
        pd.testing.assert_frame_equal(back.records, original.records)
    assert {path.name for path in (tmp_path / "0").iterdir()} == {"lood.json", "records.parquet"}


def test_folders_are_kept_apart_and_never_half_replaced(found, trained, tmp_path):
    leak, audit = found.save(tmp_path / "leak"), trained.save(tmp_path / "audit")
    with pytest.raises(InputError, match=r"LoodAudit.save: folder must not exist yet"):
        found.save(leak)
    found.save(leak, overwrite=True)
    with pytest.raises(InputError, match=r"hold a leave-one-out audit and nothing else; got .* with audit.json, losses.npz"):
        found.save(audit, overwrite=True)
    with pytest.raises(InputError, match=r"hold an audit and nothing else; got .* with lood.json"):
        trained.save(leak, overwrite=True)
    with pytest.raises(InputError, match=r"load_lood: folder must hold a leave-one-out audit \(lood.json\)"):
        ns.load_lood(audit)
    (leak / "records.parquet").write_bytes(b"other")
    with pytest.raises(InputError, match=r"records.parquet missing or altered. Run noshadow lood again"):
        ns.load_lood(leak)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit", "leak"]


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.where(X[3, 4] == X, np.nan, X)}, "lood_audit: x must be finite; got [0-9,]+ NaN or infinite values, the first at index"),
        ({"x": X[:, 0]}, r"x must have one row a record and at least one feature; got shape \(40,\)"),
        ({"x": X[:39]}, "lood_audit: x and y must have one row per record; got lengths x 39, y 40"),
        ({"x": X.astype(str)}, "x must be numeric; got dtype"),
        ({"x": X * 1e200}, r"x must stay within ±1e\+100"),
        ({"x": X[:1], "y": Y[:1]}, "x must hold at least 2 records; got 1"),
        ({"y": Y + 1}, "y must cover every label 0 … C − 1 when integer; got no record with label 0"),
        ({"y": Y.astype(str)}, "y must be numeric"),
        ({"y": np.full(40, np.inf)}, "y must be finite; got 40 NaN or infinite values"),
        ({"y": np.zeros((40, 2, 2))}, "y must be 1-dimensional or 2-dimensional"),
        ({"ids": ["a"] * 40}, "lood_audit: ids must be unique; got 'a' 40 times"),
        ({"ids": range(39)}, "records and ids must have one row per record; got lengths records 40, ids 39"),
        ({"noise": 0.0}, "lood_audit: noise must be a number > 0; got 0"),
        ({"noise": -1}, "noise must be a number > 0; got -1"),
        ({"fpr": 1.0}, "fpr must be a number > 0 and < 1; got 1"),
        ({"kernel": "ntk"}, "kernel must be one of 'fc', 'conv', 'rbf', 'laplace'; got 'ntk'"),
        ({"normalize": "robust"}, "normalize must be one of 'none', 'standardize', 'unit'; got 'robust'"),
        ({"x": np.vstack([X[:39], np.zeros(64)]), "normalize": "unit"}, "x must hold no record of zeros .*; got one at index 39"),
        ({"kernel": "rbf"}, r"length_scale must be given for kernel 'rbf'; got none. The median distance between records is \d"),
        ({"kernel": "rbf", "length_scale": 1.0, "depth": 2}, r"depth must come with a kernel that has it \(fc, conv\); got kernel 'rbf'"),
        ({"length_scale": 1.0}, r"length_scale must come with a kernel that has it \(rbf, laplace\); got kernel 'fc'"),
        ({"image_shape": (1, 8, 8)}, r"image_shape must come with a kernel that has it \(conv\)"),
        ({"kernel": "conv"}, r"image_shape must be given for kernel 'conv' when x is not \(n, channels, height, width\)"),
        ({"kernel": "conv", "image_shape": (3, 8, 8)}, r"have records of image_shape \(3, 8, 8\)"),
        ({"depth": -1}, "depth must be a whole number ≥ 0; got -1"),
        ({"activation": "swish"}, "activation must be one of 'relu'"),
        ({"max_memory": 1e4}, r"40 records must fit in max_memory \(1e-05 GB\); got a need of 2.72e-05 GB. .* noshadow.lood_bounds"),
        ({"sweep_depths": [1]}, "sweep_activations and sweep_depths must be given together"),
        ({"sweep_activations": ["relu", "relu"], "sweep_depths": [1]}, "sweep_activations must name each value once"),
        ({"sweep_activations": ["relu"], "sweep_depths": [1.5]}, "sweep_depths must be a whole number"),
        ({"sweep_activations": ["cos"], "sweep_depths": [1]}, "sweep_activations must be one of 'relu'"),
        (
            {"sweep_activations": ["relu"], "sweep_depths": [1], "kernel": "rbf", "length_scale": 1.0},
            "kernel must be one of fc, conv for a sweep; got 'rbf'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, message):
    with pytest.raises(InputError, match=message) as refused:
        ns.lood_audit(**({"x": X, "y": Y} | changes))
    assert "\n" not in str(refused.value)
