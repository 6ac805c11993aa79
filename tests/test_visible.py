"""Text of others: what is not seen or steers a terminal is written as codes, on the terminal, in pages and in sentences."""

import base64
import gzip
import io
import json
import re
import sys
import unicodedata

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import noshadow as ns
from noshadow.cli.printing import harmless, print_audit
from noshadow.report.formats import shown
from noshadow.visible import visible

# A colour, a cleared screen, a link, a title, a return to the start of the line, a direction, a joiner, an invisible tag, a filler.
HOSTILE = "a\x1b[31m\x1b[2J\x1b]8;;http://x\x07\x9b1mb\r\u202ecd\u2066\u200b\u200d\u2060\ufeff\u061c\u00ad\U000e0041\u3164"
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\u3164\ufeff\U000e0041]")
# Arabic, Kaithi and Syriac signs that Unicode calls format characters, and that are seen.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}


def test_every_control_and_format_character_is_written_as_a_code():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") and number not in SEEN:
            assert visible(character) == f"⟨U+{number:04X}⟩"
        elif kind[0] in "LNPS" and number not in (0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0):
            assert visible(character) == character


def test_plain_text_stays_and_line_breaks_on_request():
    for text in ("anna", "Ærøskøbing", "Łódź 名前 ❤️", "1.26\u202f×\u202f10⁻⁸", "100 %"):
        assert visible(text) == text
    assert visible("a\nb\tc", keep="\n") == "a\nb⟨U+0009⟩c" and visible(7) == "7"


def test_ids_that_look_alike_are_told_apart():
    assert len({visible(name) for name in ("anna", "anna\u200b", "an\u200dna", "anna\u2060", "\ufeffanna", "\u202eanna")}) == 6
    assert shown("anna\u200b") == "anna⟨U+200B⟩" and harmless("[red]\x1b") == "\\[red]⟨U+001B⟩"


@pytest.fixture(scope="module")
def audit():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 3)), rng.integers(0, 3, 240)
    outputs = x @ rng.normal(size=(3, 3)) + np.eye(3)[y]
    train, test = (ns.Signals(x[part], outputs[part], y[part]) for part in (slice(0, 120), slice(120, None)))
    first = ns.audit_signals(train, test)
    # The group of the riskiest tenth, so that a finding names it.
    groups = [f"{HOSTILE} ward" if rank <= 12 else "others" for rank in first.records["rank"]]
    return ns.audit_signals(train, test, ids=[f"{HOSTILE}{i}" for i in range(120)], groups=groups)


def test_nothing_unseen_reaches_a_terminal(audit, tmp_path):
    assert any(finding.code == "NS012" and finding.status == "found" for finding in audit.findings)
    for is_terminal in (False, True):
        out = io.StringIO()
        print_audit(
            audit, tmp_path / f"{HOSTILE[:12]}.html", 1.0, Console(file=out, force_terminal=is_terminal, width=4000, color_system=None)
        )
        assert "⟨U+202E⟩" in out.getvalue() and "⟨U+200B⟩" in out.getvalue() and "⟨U+001B⟩[2J" in out.getvalue()
        assert not UNSEEN.search(out.getvalue())


def test_sentences_of_findings_show_it(audit):
    (found,) = [finding for finding in audit.findings if finding.code == "NS012"]
    assert "⟨U+001B⟩" in found.sentence and not UNSEEN.search(found.sentence)


def embedded(html):
    """The head of the compressed record table."""
    text = re.search(r'<script[^>]*type="[^"]*"[^>]*>([A-Za-z0-9_=-]{100,})</script>', html)[1]
    content = gzip.decompress(base64.urlsafe_b64decode(text))
    return json.loads(content[4 : 4 + int.from_bytes(content[:4], "little")])


def test_pages_show_it(audit, tmp_path):
    page = ns.write_report(audit, tmp_path / "report.html", show_records=[f"note {HOSTILE}"] * 120).read_text(encoding="utf-8")
    assert "⟨U+202E⟩" in page and not UNSEEN.search(page)
    head = embedded(page)
    for held in (head["ids"], head["groups"], head["contents"]["items"]):
        assert not UNSEEN.search(json.dumps(held, ensure_ascii=False)) and "⟨U+200B⟩" in json.dumps(held, ensure_ascii=False)
    other = ns.audit_signals(
        ns.Signals(None, np.linspace(-1, 1, 30), np.zeros(30), [f"{HOSTILE}{i}" for i in range(30)]),
        ns.Signals(None, np.ones(30), np.zeros(30)),
        task="regression",
    )
    compared = ns.write_comparison(ns.compare(audit, other), tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert not UNSEEN.search(compared)
    rng = np.random.default_rng(0)
    leak = ns.lood_audit(rng.normal(size=(12, 2)), rng.integers(0, 2, 12), ids=[f"{HOSTILE}{i}" for i in range(12)], progress=False)
    shown_leak = ns.write_lood_report(leak, tmp_path / "lood.html").read_text(encoding="utf-8")
    assert "⟨U+202E⟩" in shown_leak and not UNSEEN.search(shown_leak)


def test_movers_of_a_comparison_show_it(audit, tmp_path):
    ranks = audit.records["rank"].to_numpy()[::-1].copy()
    moved = ns.compare(audit, type(audit)(**{**vars(audit), "records": audit.records.assign(rank=ranks)}))
    assert moved.entered
    page = ns.write_comparison(moved, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "⟨U+202E⟩" in page and not UNSEEN.search(page)


def test_errors_of_the_command_show_it(run, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        f"{s}_{k}": v for s in ("train", "test") for k, v in (("outputs", rng.normal(size=(40, 2))), ("targets", rng.integers(0, 2, 40)))
    }
    np.savez(tmp_path / "s.npz", **arrays, train_ids=[HOSTILE] * 40)
    code, out, err = run("audit", "s.npz", "--out", "a")
    assert (code, out) == (2, "") and "⟨U+202E⟩" in err and not UNSEEN.search(err) and err.count("\n") == 1
    code, out, err = run("gate", f"no{HOSTILE}", "--max-auc", "1", "--traceback")
    assert (code, out) == (2, "") and "Traceback" in err and "⟨U+202E⟩" in err and not UNSEEN.search(err)
    code, out, err = run("audit", f"no{HOSTILE}.npz", f"--{HOSTILE}")
    assert (code, out) == (2, "") and not UNSEEN.search(err)


def test_errors_about_contents_show_it(run, audit, tmp_path):
    audit.save(tmp_path / "a")
    pd.DataFrame({"id": [f"{HOSTILE} no {i}" for i in range(120)], "age": 1}).to_parquet(tmp_path / "c.parquet")
    code, out, err = run("report", "a", "--show-records", "c.parquet")
    assert (code, out) == (2, "") and not UNSEEN.search(err) and "⟨U+202E⟩" in err
