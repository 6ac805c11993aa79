"""The record table in files for others: meanings beside it, nothing that runs, and the same numbers when it is read back."""

import csv
import json
import math
import os
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import noshadow as ns
from fixed_audits import AUDITS, WEIGHED
from noshadow.columns import column
from noshadow.errors import InputError
from noshadow.record_files.harmless_text import harmless_cell, original_cell
from noshadow.storage.json_text import parsed_json

DANGEROUS = [
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1",
    "\u00a0=1",
    "\ufeff=1",
    "\x00=1",
    "＝1",
    "'=1",
    "\tx",
    "\rx",
]
HARMLESS = ["anna", "a=b", "1-2", 'é, "quoted"; x', "<script>alert(1)</script>", "line\nbreak", "", " plain", "007", "a'b", "名前"]


@pytest.fixture(scope="module")
def audits():
    return {name: made() for name, made in (AUDITS | WEIGHED).items()}


@pytest.fixture(scope="module")
def hostile(audits):
    """An audit whose ids, labels and groups try to run, with missing, infinite, negative and tiny numbers."""
    audit = audits["signals_classes_in_groups_with_traces"]
    texts = [*DANGEROUS, *HARMLESS]
    ids = [texts[row] if row < len(texts) else f"id {row}" for row in range(len(audit.records))]
    loss = audit.records["loss"].to_numpy(copy=True)
    influence = audit.records["influence"].to_numpy(copy=True)
    loss[:3], influence[:4] = [math.inf, 5e-324, 0.1 + 0.2], [math.nan, -math.inf, -1.5, 1.7976931348623157e308]
    table = audit.records.assign(id=ids, group=ids, label=ids, loss=loss, influence=influence)
    return replace(audit, records=table)


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbers(column_of):
    return [float(value) for value in column_of]


# Spreadsheets


def test_cells_that_could_run_get_an_apostrophe_and_lose_it_again():
    for text in DANGEROUS:
        assert harmless_cell(text) == "'" + text
    for text in HARMLESS:
        assert harmless_cell(text) == text
    for text in [*DANGEROUS, *HARMLESS, "''", "'"]:
        assert original_cell(harmless_cell(text)) == text
    assert len({harmless_cell(text) for text in (*DANGEROUS, *("'" + text for text in DANGEROUS))}) == 2 * len(DANGEROUS)


def test_no_text_of_a_csv_begins_like_a_formula_and_numbers_stay_numbers(hostile, tmp_path):
    path, beside = ns.write_records(hostile, tmp_path / "records.csv", order="row")
    rows = read_csv(path)
    for name in ("id", "label", "group"):
        cells = [row[name] for row in rows]
        assert not any(cell.strip().startswith(("=", "+", "-", "@", "＝")) or cell.startswith(("\t", "\r", "\n", "\x00")) for cell in cells)
        assert [original_cell(cell) for cell in cells] == list(hostile.records[name])
    assert "-inf" in [row["influence"] for row in rows] and "-1.5" in [row["influence"] for row in rows]
    assert not any(row[field].startswith(("=", "+", "-", "@")) for row in read_csv(beside) for field in row)


def test_pandas_reads_the_csv_back_as_it_was(hostile, tmp_path):
    path, _ = ns.write_records(hostile, tmp_path / "records.csv", order="row")
    table = pd.read_csv(path, dtype={name: str for name in ("id", "label", "group")}, keep_default_na=False, na_values={"influence": [""]})
    for name in hostile.records:
        if hostile.records[name].dtype.kind in "biuf":
            np.testing.assert_array_equal(table[name].to_numpy(), hostile.records[name].to_numpy(), err_msg=name)
        else:
            assert [original_cell(cell) for cell in table[name]] == list(hostile.records[name])


# Every format says the same


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_every_kind_of_audit_is_written_with_meanings(audits, tmp_path, kind):
    for name, audit in audits.items():
        written = ns.write_records(audit, tmp_path / f"{name}.{kind}")
        assert written[0].name == f"{name}.{kind}" and len(written) == (2 if kind == "csv" else 1)
        told, columns, ranks = _read(written, kind)
        assert columns == list(audit.records.columns), name
        assert ranks == list(range(1, len(audit.records) + 1))
        for field in told:
            entry = column(field["name"])
            assert field["title"] == entry.title and field["source"] == entry.source and field["kind"] == entry.kind
            assert field["meaning"] and "{" not in field["meaning"]
        losses = next(field for field in told if field["name"] == "loss")
        assert losses["unit"] == ("squared error" if audit.task == "regression" else "nats")
        rates = [field["meaning"] for field in told if field["name"] in ("attack_rate", "predicted_tpr")]
        assert all("false-positive rate of" in words for words in rates)


def _read(written, kind):
    if kind == "csv":
        rows = read_csv(written[0])
        return read_csv(written[1]), list(rows[0]), [int(row["rank"]) for row in rows]
    if kind == "parquet":
        table = pq.read_table(written[0])
        told = [{"name": f.name} | {key.decode(): value.decode() for key, value in f.metadata.items()} for f in table.schema]
        return told, table.column_names, table["rank"].to_pylist()
    content = parsed_json(written[0].read_bytes())
    return content["columns"], list(content["rows"][0]), [row["rank"] for row in content["rows"]]


def test_json_is_strict_and_says_missing_and_infinite(hostile, tmp_path):
    (path,) = ns.write_records(hostile, tmp_path / "records.json", order="row")
    content = parsed_json(path.read_bytes())
    rows = content["rows"]
    assert [row["id"] for row in rows] == list(hostile.records["id"])  # no spreadsheet reads JSON: texts as they are
    assert [rows[0]["influence"], rows[1]["influence"], rows[0]["loss"]] == [None, "-inf", "inf"]
    assert [rows[1]["loss"], rows[2]["loss"], rows[2]["influence"]] == [5e-324, 0.1 + 0.2, -1.5]
    finite = np.isfinite(hostile.records["shift"])
    assert [row["shift"] for row, kept in zip(rows, finite, strict=True) if kept] == hostile.records["shift"][finite].tolist()
    assert {key: content[key] for key in ("export_format", "order", "records", "of", "task")} == {
        "export_format": 1,
        "order": "row",
        "records": 40,
        "of": 40,
        "task": "classification",
    }


def test_parquet_keeps_infinite_values_and_marks_missing_ones(hostile, tmp_path):
    (path,) = ns.write_records(hostile, tmp_path / "records.parquet", order="row")
    table = pq.read_table(path)
    assert table["influence"].null_count == 1 and table["influence"].to_pylist()[1] == -math.inf
    assert table["id"].to_pylist() == list(hostile.records["id"])
    assert json.loads(table.schema.metadata[b"noshadow"])["ranked_by"] == hostile.ranked_by
    pd.testing.assert_series_equal(pd.read_parquet(path)["shift"], hostile.records["shift"])


def test_more_rows_than_a_block_are_all_there(audits, tmp_path, monkeypatch):
    audit = audits["ridge"]
    whole = ns.write_records(audit, tmp_path / "whole.json")[0].read_bytes()
    monkeypatch.setattr("noshadow.record_files.formats.BLOCK", 7)
    assert ns.write_records(audit, tmp_path / "blocks.json")[0].read_bytes() == whole


# Which rows, and in which order


def test_order_and_top(audits, tmp_path):
    audit = audits["module_last_layer"]
    ranked = audit.records.sort_values("rank")

    def ids(**chosen):
        path, _ = ns.write_records(audit, tmp_path / "a.csv", overwrite=True, **chosen)
        return [int(row["id"]) for row in read_csv(path)]

    assert ids() == ranked["id"].tolist() and ids(order="row") == audit.records["id"].tolist()
    assert ids(top=3) == ranked["id"].tolist()[:3]
    assert ids(order="row", top=3) == sorted(ranked["id"].tolist()[:3])
    assert ids(top=10_000) == ranked["id"].tolist()


def test_an_audit_without_ranks_is_written_by_row_only(audits, tmp_path):
    unranked = replace(audits["ridge"], records=audits["ridge"].records.drop(columns="rank"), ranked_by=None)
    for chosen in ({}, {"order": "row", "top": 3}):
        with pytest.raises(InputError, match="write_records: order and top must come with ranked records"):
            ns.write_records(unranked, tmp_path / "a.csv", **chosen)
    assert len(read_csv(ns.write_records(unranked, tmp_path / "a.csv", order="row")[0])) == 40


# Files


def test_nothing_is_overwritten_unasked_and_only_the_owner_reads_it(audits, tmp_path):
    before = os.umask(0)
    try:
        written = ns.write_records(audits["ridge"], tmp_path / "a.csv")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert [path.name for path in written] == ["a.csv", "a.columns.csv"]
    held = written[0].read_bytes()
    with pytest.raises(InputError, match=r"write_records: path must not exist yet; got .*a\.csv"):
        ns.write_records(audits["forest"], tmp_path / "a.csv")
    written[0].unlink()
    with pytest.raises(InputError, match=r"got .*a\.columns\.csv"):
        ns.write_records(audits["forest"], tmp_path / "a.csv")
    assert not written[0].exists()
    ns.write_records(audits["ridge"], tmp_path / "a.csv", overwrite=True)
    assert written[0].read_bytes() == held
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.columns.csv", "a.csv"]


def test_wrong_requests_are_refused(audits, tmp_path):
    audit = audits["ridge"]
    for path, chosen, words in (
        ("a.txt", {}, r"path must end in \.csv or \.parquet or \.json; got '.*a\.txt'"),
        ("a.csv", {"format": "json"}, r"path must end in \.json; got"),
        ("a.csv", {"format": "excel"}, "format must be one of"),
        ("a.csv", {"order": "loss"}, "order must be one of"),
        ("a.csv", {"top": 0}, "top must be"),
        ("missing/a.csv", {}, "path must be writable"),
    ):
        with pytest.raises(InputError, match=f"write_records: {words}"):
            ns.write_records(audit, tmp_path / path, **chosen)
    with pytest.raises(InputError, match="write_records: audit must be an Audit"):
        ns.write_records("audit", tmp_path / "a.csv")
    halves = pd.Series([f"\ud800{row}" for row in range(len(audit.records))], dtype=object)
    half = replace(audit, records=audit.records.assign(id=halves))
    for suffix in ("csv", "parquet", "json"):
        with pytest.raises(InputError, match="must be text that UTF-8 can hold"):
            ns.write_records(half, tmp_path / f"a.{suffix}")
    assert not list(tmp_path.iterdir())


# The command


def test_the_command(audits, run, tmp_path):
    audits["with_attacks"].save(tmp_path / "audit")
    code, out, err = run("export", "audit", "--format", "csv", "--top", "5")
    assert (code, err) == (0, "") and out.split() == [str(tmp_path / "audit.csv"), str(tmp_path / "audit.columns.csv")]
    assert len(read_csv(tmp_path / "audit.csv")) == 5
    for chosen in (("--format", "json", "--out", "x.json"), ("--out", "x.parquet", "--order", "row")):
        assert run("export", "audit", *chosen, "--quiet") == (0, "", "")
    assert parsed_json((tmp_path / "x.json").read_bytes())["records"] == 40
    assert pq.read_table(tmp_path / "x.parquet")["id"].to_pylist() == audits["with_attacks"].records["id"].tolist()
    assert ns.load(tmp_path / "audit").task == "classification"  # the folder is untouched


def test_the_command_refuses_with_2(audits, run, tmp_path):
    audits["ridge"].save(tmp_path / "audit")
    assert run("export", "audit")[0] == 0
    code, _, err = run("export", "audit")
    assert code == 2 and "path must not exist yet" in err and "--force" in err
    assert run("export", "audit", "--force")[0] == 0
    code, _, err = run("export", "audit", "--out", "audit/records.csv")
    assert code == 2 and "--out must lie outside of the audit folder" in err
    assert run("export", "nowhere")[0] == 2
    assert run("export", "audit", "--format", "xls")[0] == 2
    assert run("export", "audit", "--out", "a.csv", "--format", "json")[0] == 2
    assert run("export", "audit", "--out", "a.csv", "--top", "0")[0] == 2


def test_a_hostile_folder_name_does_not_steer_the_terminal(audits, run, tmp_path):
    audits["ridge"].save(tmp_path / "au\x1b[31mdit")
    code, out, _ = run("export", "au\x1b[31mdit")
    assert code == 0 and "\x1b" not in out and "⟨U+001B⟩" in out
