"""What the architecture leaks before training, in the report of an audit: its numbers are the join's, absent means no section."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import noshadow as ns
from noshadow._lood import join as joining
from noshadow._lood import with_lood
from noshadow.checks import InputError
from noshadow.report.lood_section import lood_section
from test_report import page_of

X, Y = load_digits(return_X_y=True)
X, Y = X[:90] / 16, Y[:90]
IDS = [f"<b>scan</b> {i}" for i in range(90)]
COLUMNS = ["lood_kl", "lood_mean_distance", "lood_auc"]


@pytest.fixture(scope="module")
def audit():
    """Of a model trained on the first 60 records."""
    model = LogisticRegression(max_iter=500).fit(X[:60], Y[:60])
    return ns.audit(model, (X[:60], Y[:60]), (X[60:], Y[60:]), ids=IDS[:60], progress=False)


@pytest.fixture(scope="module")
def found():
    """Of records 10 to 89: ten of the audit's records are not among them."""
    return ns.lood_audit(X[10:], Y[10:], ids=IDS[10:], depth=1)


@pytest.fixture(scope="module")
def added(audit, found):
    return with_lood(audit, found)


def section_of(root):
    (found,) = [node for node in root.all("section") if node.has({"aria-labelledby": "lood"})]
    return found


# Join


def test_columns_are_matched_by_id_and_the_rest_is_missing(audit, found, added):
    ours = found.records.set_index("id")
    for name in COLUMNS:
        column = added.records.set_index("id")[name]
        assert column.iloc[:10].isna().all()
        np.testing.assert_array_equal(column.iloc[10:], ours.loc[IDS[10:60], name.removeprefix("lood_")])
    pd.testing.assert_frame_equal(added.records.drop(columns=COLUMNS), audit.records)
    held = added.provenance["lood"]
    assert (held["matched"], held["unmatched"], held["unmatched_in_audit"], held["differing_targets"]) == (50, 30, 10, 0)
    assert held["kernel"] == found.kernel and held["noise"] == found.noise and held["hashes"] == found.provenance["hashes"]
    for row in held["agreement"]:
        both = added.records[added.records["lood_kl"].notna()]
        expected = spearmanr(both[row["score"]], both[f"lood_{row['compared']}"]).statistic
        assert row["spearman"] == pytest.approx(expected, abs=1e-12) and row["low"] <= row["spearman"] <= row["high"]
    assert not [row for row in held["agreement"] if row["score"].startswith(("lood", "audit", "target"))]


def test_the_folder_keeps_it_and_a_second_join_replaces_it(audit, found, added, tmp_path):
    back = ns.load(added.save(tmp_path / "audit"))
    pd.testing.assert_frame_equal(back.records, added.records)
    assert back.provenance["lood"] == added.provenance["lood"]
    other = ns.lood_audit(X[10:], Y[10:], ids=IDS[10:], depth=3, noise=0.5)
    again = with_lood(back, other)
    assert list(again.records.columns) == list(added.records.columns)
    np.testing.assert_array_equal(again.records["lood_kl"].iloc[10:], other.records["kl"].iloc[:50])
    assert again.provenance["lood"]["noise"] == 0.5
    assert {row["score"] for row in again.provenance["lood"]["agreement"]} == {
        row["score"] for row in added.provenance["lood"]["agreement"]
    }


def test_a_comparison_is_reused_only_with_its_own_audit(audit, found, added, monkeypatch):
    joined = joining.joined_with(found, audit)
    other = replace(audit, records=audit.records.assign(shift=audit.records["shift"].to_numpy()[::-1]))
    expected = with_lood(other, found).provenance["lood"]["agreement"]
    assert with_lood(other, joined).provenance["lood"] == with_lood(other, found).provenance["lood"]
    assert expected != added.provenance["lood"]["agreement"]
    twice = joining.joined_with(joined, audit)
    assert twice.notes == joined.notes and twice.joined == joined.joined
    monkeypatch.setattr(joining, "joined_with", lambda *_: pytest.fail("compared again"))
    assert with_lood(audit, joined).provenance["lood"] == added.provenance["lood"]


def test_other_things_are_refused(audit, found):
    with pytest.raises(InputError, match=r"with_lood: found must be a LoodAudit; got str\. Read a folder with noshadow\.load_lood first"):
        with_lood(audit, "leak")
    with pytest.raises(InputError, match=r"audit must be an Audit; got str"):
        with_lood("audit", found)
    with pytest.raises(InputError, match=r"audit must share record ids with the data"):
        with_lood(replace(audit, records=audit.records.assign(id=range(60))), found)


# Page


def test_the_section_holds_the_joins_numbers(added, tmp_path):
    root = page_of(added, tmp_path)
    section, held = section_of(root), added.provenance["lood"]
    main = next(row for row in held["agreement"] if (row["score"], row["compared"]) == ("shift", "kl"))
    assert float(root.one(id="lood-spearman").one("data").attributes["value"]) == main["spearman"]
    known = added.records.dropna(subset=COLUMNS)
    for name, figure in zip(COLUMNS, section.one(class_="small-charts").all("figure"), strict=True):
        values = known[name]
        shown = [float(node.attributes["value"]) for node in figure.one("figcaption").all("data")]
        assert shown == [values.median(), np.quantile(values, 0.9), values.max()]
    assert "a fully connected relu network of infinite width with 1 hidden layer" in section.text
    assert "50 of the audit’s 60 records have these figures" in section.text and "have no partner in the audit" in section.text
    tables = {table.one("caption").text.split(" ")[0]: table for table in section.all("table")}
    top = known.sort_values("lood_kl", ascending=False).head(10)
    rows = tables["The"].one("tbody").all("tr")
    assert [row.one("th").text for row in rows] == top["id"].tolist()
    assert [row.all("td")[0].text for row in rows] == [str(rank) for rank in top["rank"]]
    assert [float(row.all("data")[0].attributes["value"]) for row in rows] == top["lood_kl"].tolist()
    cells = {row.one("th").text: row.all("data") for row in tables["Spearman"].one("tbody").all("tr")}
    assert {(score, k): float(cell.attributes["value"]) for score, row in cells.items() for k, cell in enumerate(row)} == {
        (row["score"], ["kl", "mean_distance", "auc"].index(row["compared"])): row["spearman"] for row in held["agreement"]
    }
    with_kl = [float(row[0].attributes["value"]) for row in cells.values()]
    assert with_kl == sorted(with_kl, reverse=True)
    assert [len(chart.all("circle")) for chart in section.all("svg", class_="scatter")] == [50, 50]
    assert not root.all("b") and len({node.attributes["id"] for node in root.walk() if "id" in node.attributes}) == len(
        [node for node in root.walk() if "id" in node.attributes]
    )
    pairs = " ".join(table.text for table in root.all("table", class_="pairs"))
    assert "Leave-one-out distinguishability" in pairs and held["hashes"]["x"] in pairs
    assert "lood_kl" in " ".join(term.text for term in root.one(class_="glossary").all("dt"))


def test_without_it_there_is_no_section(audit, tmp_path):
    root = page_of(audit, tmp_path)
    assert lood_section(audit) is None and "before training" not in root.text and "lood" not in root.one("main").text


def test_few_matches_and_unranked_audits_have_a_page(audit, found, tmp_path):
    few = with_lood(replace(audit, records=audit.records.iloc[9:11]), found)
    assert "2 of the audit’s" not in section_of(page_of(few, tmp_path)).text
    assert "1 records have it, too few to rank" in section_of(page_of(few, tmp_path)).text
    by_loss = replace(audit, records=audit.records[["id", "target", "loss"]], ranked_by=None, not_applicable={"rank": "no scores"})
    section = section_of(page_of(with_lood(by_loss, found), tmp_path))
    # Every audit that gains evidence ranks its records, by the loss where there is nothing else.
    assert "with the audit’s loss" in section.text and "rank in the audit" in section.text
