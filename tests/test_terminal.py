"""What commands print fits the terminal, whatever its width, and nothing is cut."""

import fcntl
import functools
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import fixed_audits
import noshadow as ns
from noshadow._answer import next_action, per_thousand, per_thousand_between, verdict
from noshadow.cli import comparison_printing, lood_run, printing, reference_run
from noshadow.cli.printing import print_table
from noshadow.formats import number
from test_cli_compare import read_to_the_end

WIDTHS = pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
IDS = {
    "long": lambda i: f"{'x' * 196}{i:04d}",
    "wide": lambda i: f"{'記録' * 20}{i}",
    "with spaces": lambda i: f"a person with many names and a number, {i:03d}",
    "markup": lambda i: f"[bold red]{i}[/]",
}
NAMED = pytest.mark.parametrize("ids", sorted(IDS))
FRAME = "│┃╭╰┏┡└├"


@functools.cache
def attacked():
    return fixed_audits.with_attacks()


@functools.cache
def leaking(ids):
    data = fixed_audits._data("classes")[0]
    return ns.lood_audit(*data, depth=1, noise=0.2, ids=[IDS[ids](i) for i in range(40)], progress=False)


def named(ids):
    return replace(attacked(), records=attacked().records.assign(id=[IDS[ids](i) for i in range(40)]))


def cells(text):
    """Columns of a terminal that a text takes, by Unicode's own table of widths."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def folded(text):
    """The text without spaces and frames: folding moves letters to other lines, and loses none."""
    return re.sub(rf"[\s{FRAME}─━┃╮╯┓┩┘┤┴┳╇┬┼━╇│]", "", text)


@pytest.fixture
def screen(monkeypatch):
    """What a printer writes to a terminal of some width, without colours."""

    def written(printer, width, *given, terminal=True):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=terminal, highlight=False, soft_wrap=True, color_system=None)
        for module in (printing, reference_run, lood_run, comparison_printing):
            monkeypatch.setattr(module, "plain_console", lambda: console)
        printer(*given)
        return file.getvalue()

    return written


def fits(text, width):
    framed = [line for line in text.splitlines() if line.startswith(tuple(FRAME))]
    assert all(cells(line) <= width for line in framed), max(framed, key=cells)
    assert "…" not in text.replace("… and", "")
    return framed


def ids_told(text):
    """Ids in the second column of a table, put together again from its lines, or those of a list's lines; without spaces."""
    table = [line.strip("│").split("│") for line in text[text.index("by ") :].splitlines() if line.startswith("│")]
    if not table:
        behind = (line.partition(" id ")[2] for line in text.splitlines() if " id " in line)
        return [folded(re.split(", (?:label|target) ", rest)[0]) for rest in behind]
    found = []
    for cells_of_line in table:
        if cells_of_line[0].strip():
            found.append("")
        found[-1] += folded(cells_of_line[1])
    return found


@WIDTHS
@NAMED
def test_an_audit_fits_and_names_its_records_in_full(screen, width, ids):
    audit = named(ids)
    text = screen(printing.print_audit, width, audit, Path("a/report.html"), 1.0)
    fits(text, width)
    assert ids_told(text[text.index("Most exposed records, by") :]) == [folded(identifier) for identifier in audit.top(5)["id"]]
    panel = folded(text)
    for sentence in (verdict(audit).title, verdict(audit).sentence, next_action(audit).command):
        assert folded(sentence) in panel


@WIDTHS
@NAMED
def test_lood_fits_and_names_its_records_in_full(screen, width, ids):
    text = screen(lood_run.print_lood, width, leaking(ids), Path("a/lood.html"), None, 1.0)
    framed = fits(text, width)
    assert bool(framed) == (width >= 8 * 7)
    assert ids_told(text) == [folded(identifier) for identifier in leaking(ids).records.nsmallest(5, "rank")["id"]]


@WIDTHS
def test_attacks_and_their_agreement_fit(screen, width):
    truth = attacked().ground_truth
    references = type("References", (), {"folder": Path("references")})
    text = screen(reference_run.print_truth, width, truth, references, None)
    fits(text, width)
    for row in truth.attacks:
        assert row.attack in text
        for rate in row.rates:
            assert width < 100 or per_thousand(rate.tpr) in text
    assert width < 100 or "margin_leverage" in text


@WIDTHS
def test_a_comparison_fits(screen, width):
    text = screen(comparison_printing.print_comparison, width, ns.compare(attacked(), named("long")), None)
    framed = fits(text, width)
    assert bool(framed) == (width >= 8 * 4) and "within noise" in re.sub(r"[\s│]+", " ", text)


def test_rates_are_people_in_a_thousand_and_numbers_those_of_the_page(screen):
    truth, references = attacked().ground_truth, type("References", (), {"folder": Path("references")})
    told = screen(reference_run.print_truth, 200, truth, references, None, terminal=False)
    first = truth.attacks[0]
    for rate in first.rates:
        assert f"TPR at FPR {number(rate.fpr)} {per_thousand(rate.tpr)} ({per_thousand_between((rate.low, rate.high))})" in told
    assert f"AUC {number(first.auc, padded=True)} ({number(first.auc_interval[0], padded=True)} to " in told
    risk = attacked().model_risk
    said = attacked().summary()
    assert (
        f"Loss-tail TNR at level {number(risk.fpr)}: {per_thousand(risk.tnr)}  (95 % interval {per_thousand_between(risk.tnr_interval)})"
        in said
    )
    low, high = (number(end, padded=True) for end in risk.auc_interval)
    assert f"Loss AUC: {number(risk.auc, padded=True)}  (95 % interval {low} to {high})" in said
    leak = screen(lood_run.print_lood, 200, leaking("long"), Path("a"), None, 1.0, terminal=False)
    row = leaking("long").records.nsmallest(1, "rank").iloc[0]
    assert f"kl {number(float(row.kl), padded=True)}, mean_distance {number(float(row.mean_distance), padded=True)}, auc " in leak


def test_a_comparison_speaks_of_people_and_of_their_change(screen):
    first = attacked()
    second = replace(first, model_risk=replace(first.model_risk, tnr=0.1, auc=0.52))
    found = ns.compare(first, second)
    told = screen(comparison_printing.print_comparison, 200, found, None, terminal=False)
    change = next(change for change in found.changes if change.name == "tnr")
    assert f"{per_thousand(change.before)} → {per_thousand(change.after)}, " in told and "0 in 1,000 (−" in told
    assert "loss AUC: 0.604 → " in told


def test_a_pipe_gets_rows_as_whole_lines_without_empty_cells(screen):
    rows = [["1", "a " * 100, ""], ["2", "[red]b", "c"]]
    printer = functools.partial(print_table, "Some rows", ("rank", "id", "more"), rows)
    file = io.StringIO()
    printer(Console(file=file, width=20, force_terminal=False, soft_wrap=True))
    assert file.getvalue().splitlines() == ["Some rows:", f"  rank 1, id {'a ' * 100}", "  rank 2, id [red]b, more c"]


@pytest.mark.parametrize("columns", [60, 100])
def test_a_real_terminal_of_its_own_width(tmp_path, columns):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    train, test = (ns.Signals(x[part], x[part], y[part]) for part in (slice(40), slice(40, 80)))
    audit = ns.audit_signals(train, test, ids=[IDS["wide"](i) for i in range(40)], progress=False)
    audit.save(tmp_path / "audit")
    code = (
        "import noshadow as ns; from pathlib import Path; from noshadow.cli.printing import print_audit; "
        "print_audit(ns.load('audit'), Path('report.html'), 1.0)"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    try:
        content = re.sub(r"\x1b\[[0-9;]*m", "", read_to_the_end(ours, process).decode())
        assert process.wait(60) == 0
    finally:
        os.close(ours)
    framed = fits(content, columns)
    assert cells(framed[0]) == columns and max(map(cells, framed)) == columns
    assert ids_told(content[content.index("Most exposed records, by") :]) == audit.top(5)["id"].tolist()
