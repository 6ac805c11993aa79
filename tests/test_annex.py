"""The annex for a reviewer: every kind of audit has one, page and JSON agree with the audit, and nobody is named unasked."""

import ast
import html
import inspect
import json
import os
import re
import shlex
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from advised import commands
from browser import chromium, opened_page
from fixed_audits import AUDITS, WEIGHED
from noshadow._annex import ANNEX_FORM, annex_content
from noshadow._annex.attacks import STATUSES
from noshadow._annex.figures import FIGURES
from noshadow._annex.setting import LONGEST_TEXT, MOST_ENTRIES, without_contents
from noshadow._answer import best_known, verdict, worst_record
from noshadow._findings import findings
from noshadow._known import own_fpr
from noshadow.errors import InputError
from noshadow.results import ANNEX, files_of
from noshadow.storage.digests import file_sha256
from noshadow.storage.forms import Keys, require_form
from noshadow.storage.json_text import parsed_json

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e\"'&"
DOCS = Path(__file__).parents[1] / "docs"


class Page(HTMLParser):
    """Figures by their place in the JSON, all text, and all tags."""

    def __init__(self, text):
        super().__init__()
        self.figures, self.tags, self.words, self.at = {}, [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "data":
            held = dict(attrs)
            self.at = held["data-figure"]
            self.figures.setdefault(self.at, []).append([held["value"], ""])

    def handle_endtag(self, tag):
        self.at = None if tag == "data" else self.at

    def handle_data(self, data):
        self.words.append(data)
        if self.at is not None:
            self.figures[self.at][-1][1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def audits():
    return {name: made() for name, made in (AUDITS | WEIGHED).items()}


@pytest.fixture(scope="module")
def written(audits, tmp_path_factory):
    """Name → (page, JSON) of every kind of audit, from its folder."""
    found = {}
    for name, audit in audits.items():
        folder = audit.save(tmp_path_factory.mktemp("annex") / name)
        page, data = ns.write_annex(ns.load(folder), folder / ANNEX[0], folder=folder)
        found[name] = page, data
    return found


def named(audit, name="only"):
    """The audit with ids that can be told from any other word."""
    ids = [f"patient-{name}-{row}" for row in range(len(audit.records))]
    return replace(audit, records=audit.records.assign(id=ids), findings=None)


def at(content, key):
    for part in key.split("."):
        content = content[int(part)] if isinstance(content, list) else content[part]
    return content


# Every kind of audit


def test_every_kind_of_audit_has_an_annex_of_the_declared_form(written):
    for name, (page, data) in written.items():
        content = parsed_json(data.read_bytes())
        require_form(content, ANNEX_FORM, name)
        assert content["annex_format"] == 1
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        assert b"NaN" not in data.read_bytes() and b"Infinity" not in data.read_bytes()


def test_page_and_json_say_the_same_figures(written):
    for name, (page, data) in written.items():
        content, read = json.loads(data.read_text()), Page(page.read_text(encoding="utf-8"))
        for key, shown in read.figures.items():
            value = at(content, key)
            exact = " ".join(map(repr, value)) if isinstance(value, list) else repr(value)
            assert {got for got, _ in shown} == {exact}, (name, key)
            assert len({text for _, text in shown}) == 1, (name, key)
        # Whatever is known is shown, with its interval.
        known, worst = content["results"]["best_known"], content["results"]["worst_record"]
        wanted = {"results.best_known.rate": known["rate"], "results.best_known.interval": known["interval"]}
        wanted |= {} if worst is None else {"results.worst_record.rate": worst["rate"], "results.worst_record.interval": worst["interval"]}
        for place, figure in enumerate(content["results"]["figures"]):
            wanted[f"results.figures.{place}.value"] = figure["value"]
        for place, attack in enumerate(content["results"]["measured_attacks"]):
            wanted[f"results.measured_attacks.{place}.auc"] = attack["auc"]
            for rate in range(len(attack["rates"])):
                wanted[f"results.measured_attacks.{place}.rates.{rate}.tpr"] = attack["rates"][rate]["tpr"]
        for kind in ("classes", "groups"):
            for place, row in enumerate(content["results"][kind]["rows"]):
                wanted[f"results.{kind}.rows.{place}.auc"] = row["auc"]
        missing = [key for key, value in wanted.items() if value is not None and key not in read.figures]
        assert not missing, name


def test_figures_are_those_of_the_audit(audits, written):
    for name, audit in audits.items():
        results, known, worst = json.loads(written[name][1].read_text())["results"], best_known(audit), worst_record(audit)
        assert results["verdict"] == verdict(audit).to_dict()
        assert results["best_known"] == json.loads(json.dumps(known.to_dict()))
        assert (results["worst_record"] is None) == (worst is None)
        if worst is not None:
            ends = None if worst.interval is None else list(worst.interval)
            assert [results["worst_record"][key] for key in ("rate", "interval", "source")] == [worst.rate, ends, worst.source]
            assert results["records"]["largest"] == worst.rate
            # LiRA's rates of single records are read at 0.001, whatever the audit's own level is.
            level = 1e-3 if worst.source == "measured" else own_fpr(audit)
            assert results["worst_record"]["fpr"] == results["records"]["guess"] == level
            rates = audit.records[results["records"]["column"]]
            assert results["records"]["above_ten_guesses"] == int((rates > 10 * results["records"]["guess"]).sum())
        figures = {row["name"]: row for row in results["figures"]}
        if audit.model_risk is not None:
            assert figures["auc"]["value"] == audit.model_risk.auc and figures["auc"]["interval"] == list(audit.model_risk.auc_interval)
            assert figures["tnr"]["value"] == audit.model_risk.tnr
            assert figures["predicted_tpr"]["value"] == audit.model_risk.predicted_tpr
        drawn = findings(audit) if audit.findings is None else audit.findings
        found = [finding for finding in drawn if finding.status == "found"]
        assert {row["code"] for row in results["findings"]["found"]} == {finding.code for finding in found}
        assert sum(results["findings"]["counts"].values()) == len(drawn) == len(found) + len(results["findings"]["others"])
        assert [row["group"] for row in results["classes"]["rows"]] == [row.group for row in audit.class_risk]
        assert [row["auc"] for row in results["groups"]["rows"]] == [row.auc for row in audit.group_risk]


def test_the_page_is_one_file_that_runs_nothing(written):
    for page, _ in written.values():
        read = Page(page.read_text(encoding="utf-8"))
        assert {tag for tag, _ in read.tags}.isdisjoint({"script", "img", "link", "iframe", "object"})
        policy = next(held["content"] for tag, held in read.tags if tag == "meta" and held.get("http-equiv") == "Content-Security-Policy")
        assert policy == "default-src 'none'; style-src 'unsafe-inline'"
        targets = {held["href"] for tag, held in read.tags if tag == "a"}
        ids = [held["id"] for _, held in read.tags if "id" in held]
        assert len(set(ids)) == len(ids)
        assert all(target.startswith("https://") or target[1:] in ids for target in targets)


def test_the_same_folder_gives_the_same_bytes(written, tmp_path):
    page, data = written["with_attacks"]
    again = ns.write_annex(ns.load(page.parent), tmp_path / "again.html", folder=page.parent)
    assert [path.read_bytes() for path in again] == [page.read_bytes(), data.read_bytes()]


# Sections


def test_attacks_run_and_not_run_are_named_with_a_reason(audits, written):
    for name, audit in audits.items():
        rows = {row["name"]: row for row in json.loads(written[name][1].read_text())["attacks"]}
        text = Page(written[name][0].read_text(encoding="utf-8")).text
        assert all(row["status"] in STATUSES and row["why"] and row["does"] for row in rows.values())
        for never in ("Attribute inference", "Model inversion", "Reconstruction", "Regurgitation", "Exfiltration"):
            assert rows[never]["status"] == "not run" and never in text
        assert rows["Loss threshold"]["status"] == ("not run" if audit.model_risk is None else "run")
        for attack in ("LiRA", "RMIA", "Shokri"):
            measured = audit.ground_truth is not None
            assert (rows[attack]["status"] == "run") == measured, name
            assert measured or "reference" in rows[attack]["why"] or "calibration" in rows[attack]["why"]
            assert " ".join(rows[attack]["why"].split()) in text
        assert (rows["Exposure of each record"]["status"] == "estimated") == ("attack_rate" in audit.records)
        assert (rows["Leave-one-out distinguishability"]["status"] == "estimated") == ("lood_auc" in audit.records)


def test_an_audit_without_test_records_says_why_nothing_was_run(audits, tmp_path):
    missing = {"model_risk": "not applicable: there are no test records"}
    alone = replace(audits["ridge"], model_risk=None, nonmember_losses=np.empty(0), not_applicable=missing, findings=None)
    content = annex_content(alone)
    rows = {row["name"]: row for row in content["attacks"]}
    assert rows["Loss threshold"]["status"] == "not run" and "test" in rows["Loss threshold"]["why"]
    assert content["results"]["best_known"]["rate"] is None and content["results"]["figures"] == []
    page, _ = ns.write_annex(alone, tmp_path / "a.html")
    assert "not known" in Page(page.read_text(encoding="utf-8")).text


def test_what_was_measured_goes_before_what_was_predicted(audits, tmp_path):
    audit = audits["with_attacks"]
    risk = replace(
        audit.model_risk, predicted_tpr=0.9, predicted_tpr_interval=(0.8, 0.95), in_calibration_domain=True, prediction_level=0.9
    )
    page, data = ns.write_annex(replace(audit, model_risk=risk), tmp_path / "a.html")
    content, text = json.loads(data.read_text()), Page(page.read_text(encoding="utf-8")).text
    assert content["results"]["best_known"]["source"] == "measured" != "predicted"
    assert text.index("measured with reference models") < text.index("predicted by a calibration")
    assert text.index("Attacks as measured") < text.index("Predicted attack rate")
    assert "16 models of the same kind" in next(row["assumed"] for row in content["threat_model"] if row["aspect"] == "has")


def test_the_threat_model_follows_from_what_was_run(audits):
    def told(name, aspect):
        return next(row["assumed"] for row in annex_content(audits[name])["threat_model"] if row["aspect"] == aspect)

    assert "its true value" in told("ridge", "knows") and "every token" in told("language_model", "knows")
    assert "prediction" in told("ridge", "asks") and "every class" in told("module_last_layer", "asks")
    assert "64 models" in told("logistic_regression_with_a_rate", "has") and "predicted" in told("logistic_regression_with_a_rate", "has")
    assert "law of each record" in told("with_drawn_references", "has")
    assert "some records that were not in the training data" in told("module_last_layer", "has")
    assert "models of its own" in told("module_last_layer", "does not have")
    assert "models of its own" not in told("with_attacks", "does not have")
    assert "25 in 1,000" in told("module_last_layer", "accepts")


def test_limits_of_this_audit_are_those_that_it_gives_rise_to(audits):
    def topics(name, of="this audit"):
        return {row["topic"]: row["sentence"] for row in annex_content(audits[name])["limits"] if row["of"] == of}

    assert "attacks" not in topics("with_attacks") and "No attack with reference models" in topics("ridge")["attacks"]
    assert "order" in topics("with_folds")["single records"] or "order of the records" in topics("with_folds")["single records"]
    assert "largest of many" in topics("with_drawn_references")["single records"]
    assert "unlike the setups" in topics("with_drawn_references")["calibration"]
    assert "models like the setups" in topics("logistic_regression_with_a_rate")["calibration"]
    assert "groups" in topics("ridge") and "groups" not in topics("signals_classes_in_groups_with_traces")
    for name in audits:
        words = " ".join(topics(name, "every audit").values())
        assert all(
            word in words for word in ("attribute inference", "reconstruction", "Stronger ones", "Another training", "differential privacy")
        )


def test_a_finding_that_undermines_all_stands_first_among_the_limits(audits):
    audit = audits["module_last_layer"]
    again = {"records": 40, "changed": 40, "size": 0.5, "sources": ["model"]}
    provenance = audit.provenance | {"inputs": audit.provenance["inputs"] | {"run_again": {"train": again, "test": again}}}
    limits = annex_content(replace(audit, provenance=provenance, findings=None))["limits"]
    assert limits[0]["topic"] == "trust in the figures" and "NS040" in limits[0]["sentence"]


def test_no_compliance_is_claimed(written):
    for page, data in written.values():
        content, text = json.loads(data.read_text()), Page(page.read_text(encoding="utf-8")).text
        assert "no declaration that a model is anonymous, compliant" in content["about"]["disclaimer"]
        assert text.index("No claim of compliance") < text.index("Threat model")
        assert not re.search(r"\b(is|are|we|fully) (GDPR[- ])?compliant\b", text)
        sections = {
            section
            for rows in ("dpia", "edpb_opinion_28_2024", "research_environment")
            for row in content["for_readers"][rows]
            for section in row["sections"]
        }
        assert sections <= {held["id"] for _, held in Page(page.read_text(encoding="utf-8")).tags if "id" in held}


# How to make it again


def test_the_call_has_the_arguments_of_the_function_and_their_values(audits):
    for name, audit in audits.items():
        text = annex_content(audit)["reproduction"]["call"]
        call = ast.parse(text.replace("…", "...")).body[0].value
        function = getattr(ns, call.func.attr)
        accepted = set(inspect.signature(function).parameters)
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        assert set(given) <= accepted, name
        for argument, value in audit.provenance["arguments"].items():
            if argument in given:
                assert ast.literal_eval(given[argument]) == value, (name, argument)
        assert {"fpr", "seed", "damping", "task"} <= set(given), name
        assert ("groups" in given) == ("group" in audit.records) and ("folds" in given) == (name == "with_folds")
        assert ("loss_traces" in given) == (name.startswith("signals_") and "traces" in name)  # boosted trees keep their own
        assert ("checkpoint" in given) == (name == "with_earlier_states")
        assert ("base" in given) == ("base_loss" in audit.records)


def test_the_commands_exist_with_their_options(audits):
    for audit in audits.values():
        for line in annex_content(audit)["reproduction"]["commands"]:
            words = shlex.split(line)
            command = " ".join(words[1:3]) if words[1] == "reference" else words[1]
            assert {word for word in words if word.startswith("--")} <= set(commands()[command])
    assert "--folds 2" in annex_content(audits["with_folds"])["reproduction"]["commands"][0]
    assert "--fpr 0.01" in annex_content(audits["logistic_regression_with_a_rate"])["reproduction"]["commands"][0]
    assert "--models 16" in annex_content(audits["with_attacks"])["reproduction"]["commands"][1]


def test_files_of_the_folder_are_listed_with_their_digests(written):
    page, data = written["ridge"]
    listed = json.loads(data.read_text())["reproduction"]["files"]
    assert listed == {name: file_sha256(page.parent / name) for name in ("audit.json", "records.parquet", "losses.npz")}
    text = Page(page.read_text(encoding="utf-8")).text
    assert all(digest in text for digest in listed.values())
    hashes = json.loads((page.parent / "audit.json").read_text())["provenance"]["hashes"]
    assert all(digest in text for part in ("train", "test") for digest in hashes[part].values())


def test_a_folder_of_another_audit_is_refused(written, audits, tmp_path):
    with pytest.raises(InputError, match="write_annex: folder must hold an audit that is the given one"):
        ns.write_annex(audits["forest"], tmp_path / "a.html", folder=written["ridge"][0].parent)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"write_annex: folder must hold an audit \(audit.json\)"):
        ns.write_annex(audits["forest"], tmp_path / "a.html", folder=tmp_path)


def test_an_audit_in_memory_has_no_files(audits, tmp_path):
    page, data = ns.write_annex(audits["ridge"], tmp_path / "a.html")
    assert json.loads(data.read_text())["reproduction"]["files"] is None
    assert "made from an audit in memory" in Page(page.read_text(encoding="utf-8")).text
    folder = audits["ridge"].save(tmp_path / "audit")
    assert set(files_of(folder, audits["ridge"].manifest())) == {"audit.json", "records.parquet", "losses.npz"}


# Who is named


def test_no_record_is_named_unless_asked_for(audits, tmp_path):
    spoken = 0
    for name, audit in audits.items():
        one = named(audit, name)
        inputs = one.provenance.get("inputs", {}) | {"ids_in_both": {"count": 2, "first": [f"patient-{name}-0", f"patient-{name}-1"]}}
        inputs["ids"] = {"train": "given", "test": "given"}
        copies = {"records": 2, "groups": 1, "largest": 2, "first_ids": [f"patient-{name}-2"]}
        one = replace(
            one, provenance=one.provenance | {"inputs": inputs, "splits": {"shared_with_test": 0, "copies": copies, "reason": None}}
        )
        page, data = ns.write_annex(one, tmp_path / f"{name}.html")
        assert "patient-" not in page.read_text(encoding="utf-8") + data.read_text(), name
        page, data = ns.write_annex(one, tmp_path / f"{name}.html", show_ids=True)
        content, text = json.loads(data.read_text()), page.read_text(encoding="utf-8")
        assert content["about"]["shows_ids"] and "It names records by their ids" in Page(text).text
        listed = [row["ids"] for row in content["results"]["findings"]["found"]]
        spoken += sum(map(len, listed))
        assert all(identifier in text for ids in listed for identifier in ids)
        if content["results"]["worst_record"] is not None:
            assert content["results"]["worst_record"]["id"] == worst_record(one).id and worst_record(one).id in text
    assert spoken > len(audits)


def test_what_a_training_function_was_called_with_is_not_told(audits):
    """The plan of reference models names the training function with its arguments, which may be the data."""
    audit = audits["with_attacks"]
    assert "array(" in json.dumps(audit.ground_truth.provenance)  # else this test shows nothing
    content = annex_content(audit)
    assert content["parameters"]["reference_models"]["training_function"] == "fixed_audits._fitted"
    assert "array(" not in json.dumps(content)
    long = "x" * (LONGEST_TEXT + 1)
    assert long not in without_contents({"a": [long]})["a"][0] and "SHA-256" in without_contents(long)
    assert without_contents(list(range(MOST_ENTRIES + 1))) == f"{MOST_ENTRIES + 1} values, not shown"
    assert without_contents({"b": [1, None, "c"]}) == {"b": [1, None, "c"]}


def test_hostile_ids_labels_groups_and_sentences_stay_text(audits, tmp_path):
    audit = audits["signals_classes_in_groups_with_traces"]
    ids = [f"{HOSTILE}{row}" for row in range(len(audit.records))]
    groups = tuple(replace(row, group=HOSTILE) for row in audit.group_risk)
    hostile = replace(
        audit,
        records=audit.records.assign(id=ids, group=HOSTILE),
        class_risk=tuple(replace(row, group=HOSTILE) for row in audit.class_risk),
        group_risk=groups,
        notes=(HOSTILE,),
        not_applicable=audit.not_applicable | {"attack_rate": HOSTILE},
        provenance=audit.provenance | {"head": HOSTILE, "arguments": audit.provenance["arguments"] | {"task": HOSTILE}},
        findings=None,
    )
    page, data = ns.write_annex(hostile, tmp_path / "a.html", show_ids=True)
    text = page.read_text(encoding="utf-8")
    assert not {tag for tag, _ in Page(text).tags} & {"script", "img"}
    assert "\x1b" not in text and "\u202e" not in text and "⟨U+001B⟩" in text
    assert html.escape("<script>alert(1)</script>", quote=False) in text
    assert json.loads(data.read_text())["results"]["groups"]["rows"][0]["group"] == HOSTILE


def test_small_groups_are_counted(audits):
    audit = audits["signals_classes_in_groups_with_traces"]
    rows = (replace(audit.group_risk[0], n_members=9), replace(audit.group_risk[1], n_members=10))
    groups = annex_content(replace(audit, group_risk=rows))["results"]["groups"]
    assert groups["small"] == 1


# Files


def test_only_the_owner_can_read_it_and_it_is_replaced_whole(audits, tmp_path):
    before = os.umask(0)
    try:
        page, data = ns.write_annex(audits["ridge"], tmp_path / "a.html")
        page.chmod(0o644)
        ns.write_annex(audits["forest"], page)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (page, data)} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]
    assert "RandomForestClassifier" in data.read_text()


def test_an_annex_is_refused_where_it_would_do_harm(audits, tmp_path):
    folder = audits["ridge"].save(tmp_path / "audit")
    before = (folder / "audit.json").read_bytes()
    with pytest.raises(InputError, match="write_annex: path must be beside no JSON file of the same name but an annex"):
        ns.write_annex(audits["ridge"], folder / "audit.html", folder=folder)
    assert (folder / "audit.json").read_bytes() == before and not (folder / "audit.html").exists()
    with pytest.raises(InputError, match=r"write_annex: path must end in \.html; got"):
        ns.write_annex(audits["ridge"], tmp_path / "a.json")
    with pytest.raises(InputError, match="write_annex: audit must be an Audit; got dict"):
        ns.write_annex({}, tmp_path / "a.html")
    with pytest.raises(InputError, match="write_annex: path must be writable"):
        ns.write_annex(audits["ridge"], tmp_path / "missing" / "a.html")
    (tmp_path / "old.json").write_text('{"annex_format": 0}')
    ns.write_annex(audits["ridge"], tmp_path / "old.html")  # of an older format: replaced


# In a browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("name", ["with_attacks", "signals_classes_in_groups_with_traces", "forest"])
def test_the_page_is_readable_on_every_screen_and_on_paper(browser, written, name):
    page = opened_page(browser, written[name][0], ready=False, viewport={"width": 1200, "height": 800})
    assert page.trouble == []
    for seen in (".verdict", ".key-figures", ".disclaimer"):  # without scrolling
        box = page.locator(seen).bounding_box()
        assert box["y"] + box["height"] <= 800, seen
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == 1200
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 40))"
    assert page.evaluate(cut) == []
    narrow = opened_page(browser, written[name][0], ready=False, viewport={"width": 360, "height": 700})
    assert narrow.evaluate(width) == 360
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4", prefer_css_page_size=True)))
    assert 5 <= pages <= 16


def test_hostile_text_does_nothing_in_a_browser(browser, audits, tmp_path):
    audit = audits["signals_classes_in_groups_with_traces"]
    groups = tuple(replace(row, group=f"{HOSTILE}{row.group}") for row in audit.group_risk)
    path, _ = ns.write_annex(replace(audit, group_risk=groups, notes=(HOSTILE,)), tmp_path / "a.html", show_ids=True)
    page = opened_page(browser, path, ready=False)
    assert page.trouble == [] and page.locator("script, img").count() == 0
    assert "<script>alert(1)</script>" in page.locator("main").inner_text()


# The command


def test_the_command_writes_it_beside_the_report(audits, run, tmp_path):
    folder = audits["module_last_layer"].save(tmp_path / "audit")
    code, out, err = run("report", "audit", "--annex")
    assert (code, err) == (0, "") and out.split() == ["audit/report.html", "audit/annex.html", "audit/annex.json"]
    assert {path.name for path in folder.iterdir()} == {"audit.json", "records.parquet", "losses.npz", "report.html", *ANNEX}
    content = json.loads((folder / "annex.json").read_text())
    assert content["reproduction"]["files"]["audit.json"] == file_sha256(folder / "audit.json") and not content["about"]["shows_ids"]
    first = (folder / "annex.html").read_bytes()
    assert run("report", "audit", "--annex", "--quiet") == (0, "", "") and (folder / "annex.html").read_bytes() == first
    assert run("report", "audit", "--annex", "--show-ids", "--out", "page.html")[0] == 0
    assert json.loads((tmp_path / "annex.json").read_text())["about"]["shows_ids"]
    assert ns.load(folder).task == "classification"


def test_a_folder_with_an_annex_can_be_replaced_and_the_annex_goes_with_it(audits, tmp_path):
    folder = audits["ridge"].save(tmp_path / "audit")
    ns.write_annex(audits["ridge"], folder / "annex.html", folder=folder)
    (folder / ".annex.json.partial-7").write_text("")  # of a killed run
    audits["forest"].save(folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == ["audit.json", "losses.npz", "records.parquet"]
    (folder / "annex.txt").write_text("")
    with pytest.raises(InputError, match=r"and nothing else; got .*annex\.txt"):
        audits["forest"].save(folder, overwrite=True)


def test_evidence_that_is_added_writes_the_annex_anew(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = x @ np.ones(3)
    ns.audit_signals(ns.Signals(x[:20], x[:20].sum(1), y[:20]), ns.Signals(x[20:], x[20:].sum(1), y[20:]), progress=False).save("audit")
    np.savez("data.npz", x=x[:20], y=y[:20])
    assert run("report", "audit", "--annex")[0] == 0
    before = json.loads(Path("audit/annex.json").read_text())
    code, _, err = run("lood", "data.npz", "--out", "leak", "--audit", "audit", "--quiet")
    assert (code, err) == (0, "")
    after = json.loads(Path("audit/annex.json").read_text())
    status = [[row["status"] for row in content["attacks"] if row["name"].startswith("Leave-one-out")] for content in (before, after)]
    assert status == [["not run"], ["estimated"]]
    assert after["reproduction"]["files"]["audit.json"] == file_sha256(Path("audit/audit.json"))


def test_wrong_requests_exit_with_2(audits, run, tmp_path):
    audits["ridge"].save(tmp_path / "audit")
    code, _, err = run("report", "audit", "--show-ids")
    assert (
        code == 2 and err == "noshadow: report: --show-ids must come with --annex; got it alone. The report itself always names records.\n"
    )
    np.savez("data.npz", x=np.eye(4), y=np.arange(4.0))
    assert run("lood", "data.npz", "--out", "leak", "--quiet")[0] == 0
    code, _, err = run("report", "leak", "--annex")
    assert code == 2 and "--annex must come with an audit folder" in err
    assert run("report", "nowhere", "--annex")[0] == 2


# What the documentation says


def test_the_documentation_lists_every_key_and_every_figure(audits):
    text = (DOCS / "how-to" / "reviewer.md").read_text()
    assert isinstance(ANNEX_FORM, Keys)
    for key, form in ANNEX_FORM.needed.items():
        assert f"`{key}`" in text
        for inner in form.needed if isinstance(form, Keys) else ():
            assert f"`{inner}`" in text, f"{key}.{inner}"
    for figure in FIGURES:
        made = [found for audit in audits.values() if (found := figure(audit)) is not None]
        assert made and f"`{made[0].name}`" in text
