"""What the page embeds: numbers rounded, records in order, findings as bits; and the parts drawn without a script."""

import base64
import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import noshadow as ns
from noshadow._findings import flagged_records
from noshadow.report import record_data as held
from noshadow.report.group_bars import groups_section
from noshadow.report.page import page
from noshadow.report.score_agreement import spearman_matrix
from noshadow.report.tail_chart import tail_section
from noshadow.results import Audit, GroundTruth, GroupRisk, MeasuredAttack, MeasuredRate, TnrCurve
from noshadow.tail import model_risk

# Twelve bits after the point, rounded: half a unit in the last of them.
ROUNDING = 2.0**-13


def audit_of(n=200, *, seed=0, ids=None, **columns):
    rng = np.random.default_rng(seed)
    loss, outside = rng.lognormal(-6, 2, n), rng.lognormal(-5, 2.5, 300)
    score = loss * rng.lognormal(0, 1, n)
    table = pd.DataFrame({"id": [f"p{i}" for i in range(n)] if ids is None else ids, "target": rng.integers(0, 3, n), "loss": loss})
    table = table.assign(leverage=score / (1 + score), shift=score, **columns, rank=np.argsort(np.argsort(-score, kind="stable")) + 1)
    risk = model_risk(loss[:2000], outside, resamples=100)
    fields = {"provenance": {"class_names": ["ash", "birch", "cedar"]}, "timings": {"created": "2026-01-02T03:04:05+00:00"}}
    return Audit(table, risk, loss, outside, "classification", "shift", **fields)


def unpacked(text):
    """The table as the script reads it, written anew."""
    content = gzip.decompress(base64.urlsafe_b64decode(text))
    length = int.from_bytes(content[:4], "little")
    head = json.loads(content[4 : 4 + length])
    n = head["records"]
    planes = np.frombuffer(content[4 + length :], np.uint8).reshape(-1, 4, n)
    words = [sum(plane[k].astype(np.uint32) << np.uint32(8 * k) for k in range(4)) for plane in planes]
    columns = {"rank": words.pop(0)}
    for name in ("labels", "groups"):
        if head[name] is not None:
            columns[name] = np.array(head[name], dtype=object)[words.pop(0)]
    columns["flags"] = words.pop(0)
    assert len(words) == len(head["numbers"])
    columns |= {name: (word.astype("<u8") << np.uint64(32)).view("<f8") for name, word in zip(head["numbers"], words, strict=True)}
    return head, columns


def test_records_come_in_the_order_of_their_ranks_with_rounded_numbers():
    rng = np.random.default_rng(1)
    wide = np.r_[
        np.inf, -np.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, -1e-300, rng.normal(size=193) * 10.0 ** rng.integers(-200, 200, 193)
    ]
    audit = audit_of(wide=wide, group=[f"ward {i % 5}" for i in range(200)])
    head, columns = unpacked(held.record_data(audit).text)
    table = audit.records.sort_values("rank")
    assert head["ids"] == table["id"].tolist() and columns["rank"].tolist() == list(range(1, 201))
    assert columns["labels"].tolist() == [["ash", "birch", "cedar"][t] for t in table["target"]]
    assert columns["groups"].tolist() == table["group"].tolist()
    assert head["numbers"] == ["shift", "loss", "leverage", "wide"] and head["threshold"] == audit.model_risk.threshold
    for name in head["numbers"]:
        exact = table[name].to_numpy()
        finite = np.isfinite(exact)
        assert np.array_equal(columns[name][~finite], exact[~finite])
        # Below the normal numbers there are fewer bits to keep.
        assert np.allclose(columns[name][finite], exact[finite], rtol=ROUNDING, atol=2.0**-1022)


def test_missing_numbers_stay_missing():
    _, columns = unpacked(held.record_data(audit_of(lira_d=np.where(np.arange(200) % 3, np.nan, 1.5))).text)
    assert np.isnan(columns["lira_d"]).sum() == 133 and set(columns["lira_d"][~np.isnan(columns["lira_d"])]) == {1.5}


def test_columns_of_whole_numbers_are_told_apart():
    counts = np.arange(200) % 5 + 1.0
    head, _ = unpacked(held.record_data(audit_of(leaf_size=counts, near=np.where(counts > 4, np.nan, counts), half=counts / 2)).text)
    assert head["whole"] == ["leaf_size", "near"]
    assert unpacked(held.record_data(audit_of(nothing=np.full(200, np.nan))).text)[0]["whole"] == []


def test_findings_are_bits_of_the_records_they_speak_of():
    audit = audit_of(400)
    head, columns = unpacked(held.record_data(audit).text)
    expected = flagged_records(audit)
    assert expected and [(entry["code"], entry["records"]) for entry in head["findings"]] == [
        (code, len(rows)) for code, rows in expected.items()
    ]
    for bit, rows in enumerate(expected.values()):
        flagged = {identifier for identifier, flag in zip(head["ids"], columns["flags"], strict=True) if flag >> bit & 1}
        assert flagged == set(audit.records["id"].iloc[rows])


def test_what_does_not_fit_is_left_out_and_told(monkeypatch, tmp_path):
    monkeypatch.setattr(held, "MOST_RECORDS", 50)
    monkeypatch.setattr(held, "MOST_COLUMNS", 4)
    monkeypatch.setattr(held, "_ID_CHARACTERS", 500)
    audit = audit_of(ids=["x" * 60 + str(i) for i in range(200)], newton=np.ones(200), influence=np.ones(200))
    made = held.record_data(audit)
    head, _ = unpacked(made.text)
    assert (made.records, made.left_out, made.hidden, made.cut_ids) == (50, 150, ("influence",), 40)
    assert len(head["ids"]) == 50 and {len(identifier) for identifier in head["ids"]} == {40}
    html = ns.write_report(audit, tmp_path / "a.html").read_text(encoding="utf8")
    assert "150 more are in <code>records.parquet</code>" in html and "the columns influence" in html
    assert "Ids longer than 40 characters are cut" in html


def test_a_thousand_records_fit_in_three_megabytes_and_a_hundred_thousand_in_eight(tmp_path):
    rng = np.random.default_rng(0)

    def noise(n, columns=15):
        return {f"column_{k}": rng.lognormal(size=n) for k in range(columns)}

    # Random hexadecimal ids and columns of noise: nothing for the compression to find.
    small = audit_of(1000, ids=[rng.bytes(20).hex() for _ in range(1000)], **noise(1000))
    assert ns.write_report(small, tmp_path / "a.html").stat().st_size < 3_000_000
    large = audit_of(100_000, ids=[rng.bytes(20).hex() for _ in range(100_000)], **noise(100_000))
    made = held.record_data(large)
    assert len(made.text) < 7_850_000
    assert len(made.measures) == held.MOST_COLUMNS


def test_spearman_matrix_is_scipys():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.integers(0, 5, 60).astype(float), "b": rng.normal(size=60), "c": rng.normal(size=60), "same": 1.0})
    table["d"] = table["a"] + table["b"]
    made = spearman_matrix(table)
    names = ["a", "b", "c", "d"]
    places = [table.columns.get_loc(name) for name in names]
    assert made[np.ix_(places, places)] == pytest.approx(np.asarray(spearmanr(table[names]).statistic), abs=1e-12)
    assert np.isnan(made[table.columns.get_loc("same")]).all()
    holes = table.assign(b=table["b"].where(table.index % 4 > 0))
    both = holes["b"].notna()
    expected = spearmanr(holes["b"][both], holes["c"][both]).statistic
    assert spearman_matrix(holes)[1, 2] == pytest.approx(expected, abs=1e-12)


def test_tail_shows_the_records_that_lira_finds_without_themselves():
    rng = np.random.default_rng(0)
    rates, without = rng.random(200), rng.lognormal(1, 1, 200)
    audit = audit_of(lira_tpr=rates, out_loss=without)
    section = tail_section(audit)
    found = without[rates > 0.5]
    assert section["found"] == str(len(found)) and section["names"] == ["members", "nonmembers", "found"]
    assert float(section["found_above"]) == pytest.approx((found > audit.model_risk.threshold).mean(), rel=5e-3)
    chart = section["charts"][0]
    lowest = math.log10(0.1) * (len(chart["y_ticks"]) - 1)
    share_at = lambda y: 10 ** (lowest * (y - chart["top"]) / (chart["bottom"] - chart["top"]))  # noqa: E731
    for line, losses in zip(chart["lines"], (audit.member_losses, audit.nonmember_losses, found), strict=True):
        steps = [run[k] for run in line["runs"] for k in range(1, len(run) - 1, 2)]
        # Shares read off the drawing sum to one but for zeros and the rounding of positions.
        assert sum(share_at(y) for _, y in steps) == pytest.approx(1, abs=0.02), line["name"]
        assert len(losses)
    assert tail_section(audit_of())["found"] is None


def test_extrapolation_prediction_and_measurement_stand_in_the_curve(tmp_path):
    audit = audit_of()
    beyond = TnrCurve((1e-5, 1e-4), (0.01, 0.02), (0.005, 0.01), (0.02, 0.03))
    rate = MeasuredRate(audit.model_risk.fpr, 0.3, 0.25, 0.35)
    truth = GroundTruth(8, 200, 0.5, {}, (MeasuredAttack("LiRA", "target", 0.7, (0.6, 0.8), (rate,), 1),), (), (), 1)
    known = {"predicted_tpr": 0.2, "predicted_tpr_interval": (0.1, 0.28), "in_calibration_domain": True, "reference_models": 64}
    risk = replace(audit.model_risk, extrapolated=beyond, **known)
    content = page(replace(audit, model_risk=risk, ground_truth=truth))
    for chart in content["curve"]:
        assert len(chart["beyond"]["line"]) == 2 and len(chart["marks"]["predicted"]) == len(chart["marks"]["measured"]) == 1
        assert chart["marks"]["predicted"][0]["at"][1] > chart["marks"]["measured"][0]["at"][1]
    (row,) = content["predicted"]["rows"]
    assert row["covered"] is False and row["measured"]["exact"] == "0.3"
    html = ns.write_report(replace(audit, model_risk=risk, ground_truth=truth), tmp_path / "a.html").read_text(encoding="utf8")
    # What was measured on the model is the headline; the prediction stands below it.
    assert "recognises 300 in 1,000 people in the training data" in html
    assert 'id="predicted-tpr"' not in html and '<data value="0.2">200</data> <small>100 to 280</small>' in html
    assert "an extrapolation, not a measurement" in html and 'class="beyond"' in html
    outside = replace(risk, in_calibration_domain=False)
    html = ns.write_report(replace(audit, model_risk=outside), tmp_path / "b.html").read_text(encoding="utf8")
    assert "is predicted to recognise" not in html and "lies outside the setups" in html


def test_classes_and_groups_are_rows_with_flags_and_reasons(tmp_path):
    rows = [
        GroupRisk(f"ward <{k}>", 10, 12, 0.5 + k / 100, (0.4, 0.7), 0.1, 0.01, 0.1, 0.2, (0.1, 0.3), 0.1, 0.02, k > 20)
        for k in range(24, 0, -1)
    ]
    rows.append(GroupRisk("tiny", 1, 0, None, None, None, None, None, None, None, None, None, False, "too few records"))
    audit = replace(audit_of(), group_risk=tuple(rows), not_applicable={"class_risk": "not applicable: no classes"})
    classes, groups = groups_section(audit)
    assert classes["rows"] == [] and classes["absent"] == "Not applicable: no classes."
    assert (len(groups["rows"]), len(groups["rest"]), groups["flagged"], groups["total"]) == (20, 5, "4", "25")
    assert groups["rows"][0]["bar"]["at"] == pytest.approx(200 * 0.74) and groups["rest"][-1]["reason"] == "Too few records."
    html = ns.write_report(audit, tmp_path / "a.html").read_text(encoding="utf8")
    assert "ward &lt;24&gt;" in html and "<24>" not in html and html.count('class="flag"') == 4
