"""The page of a leave-one-out audit: its numbers are the table's, hostile text stays text, nothing is fetched."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow.checks import InputError
from noshadow.report.charts import WIDE
from noshadow.report.lood_charts import MOST_POINTS, leak_map, scatter_chart, sweep_chart

VOID = {"meta", "br"}
X, Y = load_digits(return_X_y=True)
X, Y = X[:80] / 16, Y[:80]
HOSTILE = "<script>alert(1)</script>\"'&\u202e"
IDS = [HOSTILE + str(i) for i in range(80)]


class Page(HTMLParser):
    """Tags with their attributes and all text; every element is closed where it was opened."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.open, self.data = [], "", [], {}
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag == "data":
            holder = next((a["id"] for _, a in reversed(self.open) if "id" in a), None)
            self.data.setdefault(holder, []).append(float(dict(attrs)["value"]))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data if not self.open or self.open[-1][0] != "style" else ""

    def classed(self, tag, name):
        return [attributes for found, attributes in self.tags if found == tag and name in attributes.get("class", "").split()]


@pytest.fixture(scope="module")
def found():
    model = LogisticRegression(max_iter=500).fit(X[:60], Y[:60])
    audit = ns.audit(model, (X[:60], Y[:60]), (X[60:], Y[60:]), ids=IDS[:60], progress=False)
    return ns.lood_audit(X, Y, ids=IDS, audit=audit, sweep_activations=["relu", "erf"], sweep_depths=[1, 2, 3], progress=False)


@pytest.fixture(scope="module")
def plain():
    return ns.lood_audit(X, Y)


@pytest.fixture(scope="module")
def html(found, tmp_path_factory):
    return ns.write_lood_report(found, tmp_path_factory.mktemp("page") / "lood.html").read_text(encoding="utf-8")


def test_the_page_says_how_much_who_and_how_sure(found, html):
    page = Page(html)
    words = " ".join(page.text.split())
    assert page.data["kl-median"] == [found.summary["kl"]["median"]]
    assert page.data["auc-median"] == [found.summary["auc"]["median"]]
    assert page.data["tpr-median"] == [found.summary["tpr"]["median"]]
    assert f"right {found.summary['auc']['median'] * 100:.2g} in 100 times about whether the median record" in words
    assert "a fully connected relu network of infinite width with 2 hidden layers" in words and "σ² = 0.1" in words
    assert "a model, not a measurement" in words and "This page is itself sensitive" in words
    (main,) = [row for row in found.joined["agreement"] if (row["score"], row["compared"]) == ("audit_shift", "kl")]
    assert page.data["sure"] == [main["spearman"]]
    assert "20 of 80 records have no partner in the audit" in words


def test_the_table_holds_the_riskiest_records_in_order(found, html):
    page = Page(html)
    top = found.records.sort_values("rank").head(20)
    for place, row in enumerate(top.itertuples(), start=1):
        assert page.data[f"rank-{place}"] == [row.kl, row.auc, row.tpr, row.mean_distance, row.loo_variance]
    numbers = re.findall(r"alert\(1\)</script>\"'&⟨U\+202E⟩(\d+)", page.text.split("The first 20 of 80 records by KL")[1])
    assert numbers == [identifier.removeprefix(HOSTILE) for identifier in top["id"]]


def test_the_kernel_matrix_is_described(found, html):
    page, held = Page(html), found.conditioning
    assert page.data["smallest"] + page.data["largest"] == [held["smallest_eigenvalue"], held["largest_eigenvalue"]]
    assert page.data["condition"] == [held["condition"]] and page.data["dof"] == [held["effective_dof"]]
    assert page.data["flatness"] == [held["distance"]]


def test_hostile_ids_stay_text_and_nothing_is_fetched(html):
    page = Page(html)
    assert not [tag for tag, _ in page.tags if tag in ("script", "img", "iframe", "link", "object")]
    assert "<script>alert(1)</script>" in page.text and "<script>" not in html and "\u202e" not in html
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?:|url\(|@import", html)
    assert "default-src 'none'" in html


def test_links_lead_somewhere_and_ids_are_used_once(html):
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        named = [*attributes.get("aria-labelledby", "").split(), attributes.get("href", "#")[1:]]
        assert all(name in ids for name in named if name)


def test_the_map_draws_every_record_where_it_is(found, html):
    drawn = [a for a in Page(html).classed("circle", "step-0")]
    drawn += [a for step in range(1, 6) for a in Page(html).classed("circle", f"step-{step}")]
    assert len(drawn) == len(X) + 6  # and one a step in the legend
    table = found.records
    chart = leak_map(table["map_1"].to_numpy(), table["map_2"].to_numpy(), table["kl"].to_numpy(), list(table["id"]), named=3)
    last = chart["points"][-1]  # the riskiest is on top
    riskiest = table["kl"].to_numpy().argmax()
    assert (last["id"], last["rank"], last["step"]) == (table["id"][riskiest], 1, 5)
    order = np.argsort(table["kl"].to_numpy(), kind="stable")
    xs = np.array([point["x"] for point in chart["points"]])
    assert np.corrcoef(xs, table["map_1"].to_numpy()[order])[0, 1] > 0.999999
    ys = np.array([point["y"] for point in chart["points"]])
    assert np.corrcoef(ys, table["map_2"].to_numpy()[order])[0, 1] < -0.999999
    steps = np.array([point["step"] for point in chart["points"]])
    assert (np.diff(steps) >= 0).all() and len(set(steps)) > 2


def test_of_many_records_the_riskiest_are_drawn_first():
    rng = np.random.default_rng(0)
    kl = rng.lognormal(size=20_000)
    chart = leak_map(rng.normal(size=20_000), rng.normal(size=20_000), kl, [str(i) for i in range(20_000)], named=20)
    assert len(chart["points"]) <= MOST_POINTS and not chart["all"]
    ids = {point["id"] for point in chart["points"]}
    assert {str(i) for i in np.argsort(-kl)[:20]} <= ids


@pytest.mark.parametrize("kl", [np.zeros(5), np.ones(5), np.array([0.0, 1.0, 1.0, 1.0, 1.0]), np.array([0.0, 0.0, 1e-300, 2.0, 3.0])])
def test_unusual_leaks_have_a_map(kl):
    chart = leak_map(np.zeros(5), np.arange(5.0), kl, list("abcde"), named=5)
    assert len(chart["points"]) == 5
    assert all(0 <= point["step"] < len(chart["ranges"]) for point in chart["points"])


def test_a_scatter_keeps_the_order_and_counts_what_it_cannot_draw():
    kl = np.array([1e-3, 1e-2, 1e-1, 0.0, 1.0])
    chart = scatter_chart(kl, np.array([-1.0, 0.0, 2.0, 1.0, np.inf]))
    assert chart["undrawn"] == 2 and not chart["log"]
    xs, ys = zip(*chart["points"], strict=True)
    assert list(xs) == sorted(xs) and list(ys) == sorted(ys, reverse=True)
    assert scatter_chart(kl, kl + 1.0)["log"]
    assert scatter_chart(np.zeros(3), np.ones(3)) is None
    assert scatter_chart(np.ones(3), np.zeros(3))["y_ticks"]


def test_the_sweep_is_drawn_and_listed(found, html, plain, tmp_path):
    page = Page(html)
    assert len(page.classed("svg", "sweep-chart")) == 6  # three charts, wide and narrow
    words = " ".join(page.text.split())
    best = min(found.sweep, key=lambda row: row["kl_mean"])
    assert f"for {best['activation']} with depth {best['depth']}, and largest" in words
    lines = sweep_chart(found.sweep, "kl_mean", WIDE)["lines"]
    assert [(line["name"], len(line["points"])) for line in lines] == [("relu", 3), ("erf", 3)]
    without = Page(ns.write_lood_report(plain, tmp_path / "lood.html").read_text())
    assert not without.classed("svg", "sweep-chart") and "Beside an audit" not in without.text


def test_a_cell_without_figures_shows_its_reason(found, tmp_path):
    blank = dict.fromkeys(found.sweep[0]) | {"activation": "erf", "depth": 9, "reason": "the variance is <too> large"}
    for sweep in ((*found.sweep, blank), (blank,)):
        page = Page(ns.write_lood_report(replace(found, sweep=sweep), tmp_path / "lood.html").read_text())
        assert "The variance is <too> large." in page.text


def test_pages_of_all_kinds_of_targets_and_kernels(tmp_path):
    rng = np.random.default_rng(2)
    for targets, options in (
        (rng.normal(size=80), {"kernel": "rbf", "length_scale": 2.0}),
        (rng.normal(size=(80, 9)), {"normalize": "unit"}),
        (Y, {"kernel": "conv", "image_shape": (1, 8, 8), "depth": 1}),
    ):
        found = ns.lood_audit(X, targets, **options)
        words = " ".join(Page(ns.write_lood_report(found, tmp_path / "lood.html").read_text()).text.split())
        assert ("3 further target columns" in words) == (targets.ndim == 2)
        assert ("RBF kernel of length scale 2" in words) == ("length_scale" in options)
    two = ns.lood_audit([[1.0], [2.0]], [0.0, 1.0])
    Page(ns.write_lood_report(two, tmp_path / "lood.html").read_text())
    same = ns.lood_audit(np.zeros((4, 2)), [0.0, 1.0, 0.0, 1.0])  # a relu network without biases says 0 there: no leak at all
    assert (same.records["kl"] == 0).all()
    Page(ns.write_lood_report(same, tmp_path / "lood.html").read_text())


def test_the_page_follows_from_the_folder(found, tmp_path):
    first = ns.write_lood_report(found, tmp_path / "lood.html").read_bytes()
    back = ns.load_lood(found.save(tmp_path / "leak"))
    assert ns.write_lood_report(back, tmp_path / "lood.html").read_bytes() == first


def test_other_things_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"write_lood_report: found must be a LoodAudit; got str. Read a folder with"):
        ns.write_lood_report("leak", tmp_path / "lood.html")
