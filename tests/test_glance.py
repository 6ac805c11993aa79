"""An audit shows itself: in a shell, in a notebook, as text, as a picture; without ids unless they are asked for."""

import functools
import importlib
import inspect
import io
import re
import sys
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import fixed_audits
import noshadow as ns
from extras import extra
from noshadow._answer import next_action, per_thousand, per_thousand_between, verdict, worst_record
from noshadow._findings import RULES, UNDERMINING, findings, most_severe, undermining_findings
from noshadow._glance.lines import BRIEF_LINES
from noshadow.checks import InputError
from noshadow.cli.printing import print_audit

NAMES = (
    "with_attacks",
    "signals_regression",
    "signals_several_outputs",
    "signals_classes_in_groups_with_traces",
    "signals_without_features",
    "logistic_regression_with_a_rate",
    "forest",
)
VOID = {"path", "line", "rect"}
TAGS = "div style span p figure svg text figcaption strong table caption thead tbody tr th td code"
HOSTILE = '"><script>alert(1)</script>[/red]\x1b[2J\u202e{{ 7 * 7 }}'


@functools.cache
def audited(name):
    return getattr(fixed_audits, name)()


def renamed(audit, ids):
    """The audit with other ids, its findings drawn anew."""
    other = replace(audit, records=audit.records.assign(id=ids))
    return replace(other, findings=findings(other))


def exposed():
    """An audit whose records have a rate of their own, with an interval."""
    audit = audited("signals_regression")
    rates = np.linspace(0.01, 0.9, len(audit.records))
    columns = {"exposure": 3 * rates, "attack_rate": rates, "attack_rate_low": rates / 2, "attack_rate_high": np.minimum(2 * rates, 1)}
    return replace(audit, records=audit.records.assign(**columns))


def unranked():
    audit = audited("signals_regression")
    absent = {"rank": "the folder is of an old version", "model_risk": "no test records"}
    bare = audit.records.drop(columns=[name for name in audit.records if name == "rank" or name.startswith("predicted")])
    return replace(audit, records=bare, ranked_by=None, model_risk=None, not_applicable=absent, findings=None)


@functools.cache
def every():
    return {name: audited(name) for name in NAMES} | {"exposed": exposed(), "unranked": unranked()}


CASES = pytest.mark.parametrize("name", [*NAMES, "exposed", "unranked"])


class Page(HTMLParser):
    """Tags, attributes and text of a fragment; a tag that is not closed is an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words, self.rows = [], [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open += [tag]
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@CASES
def test_repr_is_the_answer_in_at_most_twenty_lines(name):
    audit = every()[name]
    text = repr(audit)
    assert len(text.splitlines()) <= BRIEF_LINES == 20
    told = re.sub(r"\s+", " ", text)
    found, action = verdict(audit), next_action(audit)
    assert text.splitlines()[0] == f"Audit: {found.title}" and str(audit) == text
    assert found.sentence in told and told.count(found.known.reason) == 1 and f"{action.sentence} {action.command}" in told
    assert f"{len(audit.records)} training, {len(audit.nonmember_losses)} test; {audit.task}" in told
    assert ("not ranked" if audit.ranked_by is None else f"ranked by {audit.ranked_by}") in told
    for finding in most_severe(findings(audit))[:8]:
        assert f"{finding.code} {finding.name} ({finding.severity})" in told
    assert '.top() the riskiest, .summary(), .plot(), .report("report.html") the page, .save("folder")' in told


def test_repr_gives_the_rate_its_interval_and_its_source():
    audit = audited("with_attacks")
    known, told = verdict(audit).known, re.sub(r"\s+", " ", repr(audit))
    assert known.source == "measured" and known.attack in told
    assert per_thousand(known.rate) in told and per_thousand_between(known.interval) in told


def test_a_rate_stays_with_its_unit_and_what_is_too_long_for_twenty_lines_is_not_cut():
    assert all(not re.search(r"(^|\s)in$", line) for audit in every().values() for line in repr(audit).splitlines())
    long = " ".join(["a reason that goes on and on"] * 80)
    audit = replace(unranked(), not_applicable={"rank": "none", "model_risk": long})
    assert long in repr(audit) and len(repr(audit).splitlines()) <= BRIEF_LINES


@CASES
def test_no_id_is_shown_unless_it_is_asked_for(name):
    audit = every()[name]
    ids = [f"Patient-{i:04d}-Ünïq" for i in range(len(audit.records))]
    secret = renamed(audit, ids)
    shown = (repr(secret), str(secret), f"{secret}", secret._repr_html_(), secret.show().text, repr(secret.show()), secret.summary())
    for text in shown:
        assert "Patient-" not in text and not any(i in text for i in ids)
    if audit.ranked_by is None:
        return
    first = secret.records.nsmallest(10, "rank")["id"].tolist()
    assert [i for i in ids if i in secret.show(show_ids=True).html] == sorted(first)
    assert secret.show(show_ids=True, top=3).html.count("Patient-") == 3
    assert first[0] in secret.summary(show_ids=True) and first[0] in repr(secret.show(show_ids=True))
    assert secret.top(4)["id"].tolist() == first[:4]


def test_ids_of_the_most_exposed_record_and_of_findings_are_not_shown_either():
    audit = exposed()
    secret = renamed(audit, [f"Patient-{i:04d}" for i in range(len(audit.records))])
    assert worst_record(secret).id in secret.summary(show_ids=True)
    assert "Most exposed record: recognised by 900 in 1,000 attacks" in secret.summary() and "Patient-" not in secret.summary()
    forest = renamed(audited("forest"), [f"Patient-{i:04d}" for i in range(40)])
    assert any(finding.records for finding in forest.findings) and "Patient-" not in forest.summary() + forest._repr_html_()


@CASES
def test_summary_is_what_the_command_prints(name):
    audit = every()[name]
    file = io.StringIO()
    print_audit(audit, Path("a/report.html"), 1.0, Console(file=file, highlight=False, soft_wrap=True))
    *printed, last = file.getvalue().splitlines()
    assert printed == audit.summary(show_ids=True).splitlines() and last.startswith("Report: a/report.html")
    assert isinstance(audit.summary(), str) and len(audit.summary().splitlines()) == len(printed)


@CASES
def test_html_has_verdict_picture_and_the_top_ten(name):
    audit = every()[name]
    page = Page(audit._repr_html_())
    found, action = verdict(audit), next_action(audit)
    assert found.title in page.text and action.command in page.text
    assert page.text.count(re.sub(r"\s+", " ", found.sentence)[:60]) == 1
    drawn = (0 if found.known.rate is None else 2) + (audit.ranked_by is not None)
    assert page.tags.count("svg") == drawn
    if audit.ranked_by is None:
        assert "Records are not ranked. The folder is of an old version." in page.text and "table" not in page.tags
        return
    assert len(page.rows) == 11 and "id" not in page.rows[0] and [row[0] for row in page.rows[1:]] == [str(k) for k in range(1, 11)]
    assert [row[0] for row in Page(audit.show(top=3).html).rows] == ["rank", "1", "2", "3"]
    for finding in most_severe(findings(audit)):
        assert f"{finding.code} {finding.name} ({finding.severity})" in page.text


@CASES
def test_html_is_self_contained_scoped_and_without_scripts(name):
    html = every()[name].show(show_ids=True).html
    page = Page(html)
    assert set(page.tags) <= {*VOID, *TAGS.split()}
    names = {attribute for attribute, _ in page.attributes}
    assert not {"id", "src", "href", "style"} & names and not any(attribute.startswith("on") for attribute in names)
    assert "http" not in html and "url(" not in html and "@import" not in html and "xlink" not in html
    css = re.search(r"<style>(.*?)</style>", html, flags=re.DOTALL)[1]
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{", css) for part in rule.split(",")]
    assert selectors and all(selector.startswith(".noshadow-glance") for selector in selectors)
    # Text takes the notebook's colour, so that it is read on light and dark paper.
    assert not re.search(r"(?<![-\w])(color|background-color)\s*:(?!\s*inherit)", css) and "fill: currentColor" in css


def test_hostile_ids_labels_and_names_are_text():
    audit = audited("logistic_regression_with_a_rate")
    assert set(audit.records["label"]) == {"ill", "well"}
    audit = replace(audit, records=audit.records.assign(label=HOSTILE))
    audit = renamed(audit, [f"{HOSTILE}{i}" for i in range(len(audit.records))])
    audit = replace(audit, notes=(HOSTILE,), not_applicable={**audit.not_applicable, "shift": HOSTILE})
    for html in (audit._repr_html_(), audit.show(show_ids=True).html):
        page = Page(html)
        assert "script" not in page.tags and "\x1b" not in html and "\u202e" not in html
        assert "&lt;script&gt;" in html and "{{ 7 * 7 }}" in html and "⟨U+001B⟩[2J" in html
    for text in (audit.summary(show_ids=True), repr(audit), audit.show(show_ids=True).text):
        assert "\x1b" not in text and "\u202e" not in text
    assert "[/red]" in audit.summary(show_ids=True) and "⟨U+202E⟩" in audit.summary(show_ids=True)


def test_top_is_a_table_in_rank_order_with_what_matters():
    audit = audited("logistic_regression_with_a_rate")
    table = audit.top()
    assert len(table) == 20 and table["rank"].tolist() == list(range(1, 21)) and table.index.tolist() == list(range(20))
    assert list(table.columns) == ["rank", "id", "label", "loss", "predicted_tpr", "predicted_tpr_low", "predicted_tpr_high", "shift"]
    whole = audit.records.set_index("id").loc[table["id"], "shift"]
    np.testing.assert_array_equal(whole.to_numpy(), table["shift"].to_numpy())
    assert len(audit.top(10**6)) == len(audit.records) and len(audit.top(np.int64(3))) == 3
    grouped = audited("signals_classes_in_groups_with_traces").top(2)
    assert {"group", "target", "loss", audited("signals_classes_in_groups_with_traces").ranked_by} <= set(grouped.columns)
    assert {"target_0", "target_2"} <= set(audited("signals_several_outputs").top(1).columns)
    assert list(exposed().top(1).columns)[-4:] == ["attack_rate", "attack_rate_low", "attack_rate_high", "exposure"]
    table.loc[0, "loss"] = -1.0
    assert (audit.records["loss"] >= 0).all()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", None, True])
def test_how_many_records_is_a_whole_number_above_zero(wrong):
    with pytest.raises(InputError, match=r"^Audit\.top: count must"):
        audited("forest").top(wrong)
    with pytest.raises(InputError, match=r"^Audit\.show: top must"):
        audited("forest").show(top=wrong)


def test_what_is_not_ranked_has_no_top_and_no_picture():
    with pytest.raises(InputError, match=r"^Audit\.top: the audit must rank its records; got none .*the folder is of an old version"):
        unranked().top()
    with pytest.raises(InputError, match=r"^Audit\.plot: the audit must hold rates or scores of its records that differ; got none"):
        unranked().plot()


def test_cells_are_written_as_on_the_page():
    names, row = (Page(exposed().show(show_ids=True, top=1).html).rows)[:2]
    assert names == ["rank", "id", "target", "loss", "exposure", "attack_rate"]
    told = dict(zip(names, row, strict=True))
    first = exposed().records.nsmallest(1, "rank").iloc[0]
    assert (
        told["attack_rate"]
        == f"{per_thousand(first.attack_rate)} ({per_thousand_between((first.attack_rate_low, first.attack_rate_high))})"
    )
    assert re.fullmatch(r"[0-9.,]{4,5}", told["loss"])
    labels = Page(audited("logistic_regression_with_a_rate")._repr_html_()).rows
    assert labels[0][1] == "label" and {row[1] for row in labels[1:]} <= {"ill", "well"}


def test_a_rate_that_a_record_lacks_reads_not_known():
    audit = exposed()
    lacking = audit.records["attack_rate"].where(audit.records["rank"] > 1)
    audit = replace(audit, records=audit.records.assign(attack_rate=lacking))
    rows = Page(audit.show(top=2).html).rows
    assert rows[1][-1] == "not known" and "in 1,000" in rows[2][-1]


def test_report_is_write_report_by_its_public_name(tmp_path):
    audit = audited("forest")
    own, public = inspect.signature(ns.Audit.report).parameters, inspect.signature(ns.write_report).parameters
    assert list(own)[1:] == list(public)[1:]
    assert all(own[name].default == public[name].default and own[name].kind == public[name].kind for name in list(own)[1:])
    texts = [f"text {i}" for i in range(len(audit.records))]
    given = {"show_records": texts, "show_ids": audit.records["id"].tolist()[::-1], "show_top": 3}
    written = audit.report(tmp_path / "a.html", **given)
    assert written == tmp_path / "a.html"
    assert written.read_bytes() == ns.write_report(audit, tmp_path / "b.html", **given).read_bytes()
    with pytest.raises(InputError, match=r"^Audit\.report: show_ids must come with show_records"):
        audit.report(tmp_path / "c.html", show_ids=True)


def test_showing_changes_nothing():
    audit = audited("forest")
    before = {field.name: getattr(audit, field.name) for field in fields(audit)}
    columns = audit.records.copy()
    repr(audit), audit._repr_html_(), audit.summary(), audit.top(), audit.show()
    assert all(getattr(audit, name) is value for name, value in before.items()) and audit.records.equals(columns)


def test_a_folder_read_back_shows_the_same(tmp_path):
    for name in ("with_attacks", "forest"):
        audit = audited(name)
        again = ns.load(audit.save(tmp_path / name))
        assert (repr(again), again.summary(), again._repr_html_()) == (repr(audit), audit.summary(), audit._repr_html_())


@CASES
def test_the_verdicts_own_findings_are_those_of_all_rules(name):
    drawn = [finding for finding in findings(every()[name]) if finding.code in UNDERMINING]
    assert list(undermining_findings(every()[name])) == drawn and len(drawn) == len(UNDERMINING) < len(RULES)


@pytest.fixture
def pyplot():
    matplotlib = extra("matplotlib")
    matplotlib.use("Agg")
    found = importlib.import_module("matplotlib.pyplot")
    yield found
    found.close("all")


def test_plot_draws_every_record_and_marks_the_worst_the_model_and_a_guess(pyplot):
    audit = audited("logistic_regression_with_a_rate")
    ax = audit.plot()
    known, rates = verdict(audit).known, audit.records["predicted_tpr"].to_numpy()
    (bars,) = ax.patches[:1]
    assert bars.get_data().values.sum() == len(audit.records)
    marks = [line.get_xdata()[0] for line in ax.lines]
    assert marks == pytest.approx([1000 * rates.max(), 1000 * known.fpr, 1000 * known.rate])
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert told[1] == f"most exposed: {per_thousand(rates.max())}" and told[2] == f"a guess: {per_thousand(known.fpr)}"
    assert per_thousand_between(known.interval) in told[3]
    assert (ax.get_title(), ax.get_xlim()) == (verdict(audit).title, (0.0, 1000.0)) and "in 1,000" in ax.get_xlabel()
    assert pyplot.get_fignums()


def test_plot_of_scores_is_logarithmic_and_takes_axes(pyplot):
    audit = audited("forest")
    figure, axes = pyplot.subplots(1, 2)
    opened = pyplot.get_fignums()  # those of other tests, too
    assert audit.plot(ax=axes[1]) is axes[1] and not axes[0].has_data() and pyplot.get_fignums() == opened
    assert axes[1].get_xscale() == "log" and audit.ranked_by in axes[1].get_xlabel() and len(axes[1].lines) == 1
    assert axes[1].patches[0].get_data().values.sum() == (audit.records[audit.ranked_by] > 0).sum()
    figure.savefig(io.BytesIO())
    with pytest.raises(InputError, match=r"^Audit\.plot: ax must be one of matplotlib's Axes; got Figure"):
        audit.plot(ax=figure)


def test_without_matplotlib_plot_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"^Audit\.plot: matplotlib must be installed; got .*Run pip install noshadow\[plot\]\.$"):
        audited("forest").plot()
