"""The report page: its numbers are the audit's, hostile text stays text, every kind of audit has a page."""

import base64
import hashlib
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy.stats import percentileofscore
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge

import noshadow as ns
from noshadow._answer import next_action, per_thousand, verdict
from noshadow.checks import InputError
from noshadow.report.first_screen import command_lines
from noshadow.report.formats import number, out_of_a_hundred, people_between
from noshadow.report.rendering import page_script
from noshadow.results import Audit
from noshadow.tail import model_risk

VOID = {"meta", "img", "line", "rect", "polygon", "polyline", "circle", "path", "br"}
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
# Positions are rounded to a hundredth of a drawing unit; an axis is at least 250 units long.
POSITION = 0.011
BUDGETS = (1900, 1700)


class Node:
    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children, self.pieces = tag, attributes, [], []

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()

    def all(self, tag=None, **attributes):
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [node for node in self.walk() if (tag is None or node.tag == tag) and node.has(wanted)]

    def has(self, wanted):
        classes = (self.attributes.get("class") or "").split()
        return all(value in classes if name == "class" else self.attributes.get(name) == value for name, value in wanted.items())

    def one(self, tag=None, **attributes):
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self):
        return " ".join("".join(piece if isinstance(piece, str) else piece.raw for piece in self.pieces).split())

    @property
    def raw(self):
        return "".join(piece if isinstance(piece, str) else piece.raw for piece in self.pieces)


class Tree(HTMLParser):
    """A tree that insists on every element being closed where it was opened."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.root = Node("root", {})
        self.open = [self.root]
        self.feed(html)
        self.close()
        assert self.open == [self.root]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        self.open[-1].pieces.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].pieces.append(data)


def page_of(audit, folder):
    path = ns.write_report(audit, folder / "report.html")
    assert path == folder / "report.html"
    return Tree(path.read_text(encoding="utf-8")).root


def handmade(members, nonmembers, *, ids=None, fpr="auto", **changes):
    """An audit from two loss samples alone, ranked by a made-up score."""
    members, nonmembers = np.asarray(members, dtype=float), np.asarray(nonmembers, dtype=float)
    n = len(members)
    score = np.random.default_rng(1).permutation(n) + 0.5
    records = pd.DataFrame({"id": range(n) if ids is None else ids, "target": np.arange(n) % 2, "loss": members})
    records = records.assign(leverage=score / (2 * n), shift=score, rank=(n - np.argsort(np.argsort(score))))
    fields = {
        "records": records,
        "model_risk": model_risk(members, nonmembers, fpr=fpr, resamples=100) if len(nonmembers) else None,
        "member_losses": members,
        "nonmember_losses": nonmembers,
        "task": "classification",
        "ranked_by": "shift",
        "provenance": {"class_names": ["cat", "dog"]},
        "timings": {"created": "2026-01-02T03:04:05+00:00"},
    }
    return Audit(**(fields | changes))


def sample(seed=0, n=300, outside=250):
    rng = np.random.default_rng(seed)
    return rng.lognormal(-6, 2, n), rng.lognormal(-5, 2.5, outside)


@pytest.fixture(scope="module")
def classified():
    """A real softmax audit with groups, traces, names and accuracy."""
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(240, 5)), rng.integers(0, 3, 240)
    outputs = features @ rng.normal(size=(5, 3)) + 2 * np.eye(3)[labels]
    train, test = (ns.Signals(features[s], outputs[s], labels[s]) for s in (slice(120), slice(120, None)))
    ids, groups = [f"person-{i}" for i in range(120)], [f"ward {i % 4}" for i in range(120)]
    traces = np.column_stack([rng.random((120, 3)), ns.audit_signals(train, test, progress=False).records["loss"]])
    audit = ns.audit_signals(train, test, ids=ids, groups=groups, loss_traces=traces, progress=False)
    return replace(audit, provenance=audit.provenance | {"class_names": ["ash", "birch", "cedar"]})


def regression(outputs, *, rows=(40, 40), seed=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(rows), 4))
    y = x @ rng.normal(size=(4, outputs)) + rng.normal(size=(sum(rows), outputs))
    y = y[:, 0] if outputs == 1 else y
    inside, outside = slice(rows[0]), slice(rows[0], None)
    return ns.audit(Ridge(alpha=1.0).fit(x[inside], y[inside]), (x[inside], y[inside]), (x[outside], y[outside]), progress=False)


def shown(root, identity):
    return root.one(id=identity).one("data")


def test_headline_figures_are_the_audits(classified, tmp_path):
    root, risk = page_of(classified, tmp_path), classified.model_risk
    for identity, value, ends in (
        ("tnr", risk.tnr, risk.tnr_interval),
        ("auc", risk.auc, risk.auc_interval),
        ("loss-gap", risk.loss_gap, risk.loss_gap_interval),
        ("accuracy-gap", risk.accuracy_gap, risk.accuracy_gap_interval),
    ):
        figure = shown(root, identity)
        assert float(figure.attributes["value"]) == value
        card = next(node for node in root.all(class_="card") if figure in node.all("data"))
        text = card.one(class_="interval").text.replace("−", "-")
        assert text.startswith("95 % interval")
        if identity == "tnr":  # people in a thousand
            assert figure.text == per_thousand(value) and text == f"95 % interval {people_between(ends)}"
            continue
        assert float(figure.text.replace("−", "-")) == pytest.approx(value, rel=5e-3)  # three significant digits
        assert [float(end) for end in text.removeprefix("95 % interval").split(" to ")] == pytest.approx(ends, rel=5e-3)
    # Without a prediction the reason stands where the answer comes from, and nothing is said twice.
    assert risk.predicted_tpr is None and not root.all(id="predicted-tpr")
    assert verdict(classified).known.reason in root.one(id="reason").text


def test_the_band_says_what_is_known(tmp_path):
    # τ = 0.3: one of four members (5.0) and three of four non-members lie above it.
    audit = handmade([0.1, 0.2, 0.3, 5.0], [0.2, 0.4, 2.0, 6.0])
    root, found = page_of(audit, tmp_path), verdict(audit)
    band = root.one(id="verdict")
    assert band.has({"class": found.level}) and root.one("h1").text == found.title and found.sentence in band.text
    assert "750 in 1,000" in band.text and "a guess rules out 250 in 1,000" in band.text
    assert "Above τ lie 1 of 4 members and 3 of 4 non-members." in root.text and "τ = 0.3" in root.text


def test_the_band_of_a_model_that_gives_nothing_away(tmp_path):
    # The splits' losses are alike but at their upper end, where members reach a little further.
    members, nonmembers = np.linspace(0.1, 1, 50), np.linspace(0.1, 0.95, 50)
    root = page_of(handmade(members, nonmembers), tmp_path)
    assert root.one("h1").text == "No sign of leakage" and root.one(class_="mark").text == "✓"
    assert "rule out 0 in 1,000 people" in root.one(id="verdict").text and "a guess rules out 20 in 1,000" in root.one(id="verdict").text
    assert "The loss attack may do no better than a guess" in root.text


@pytest.mark.parametrize(("rate", "high"), [(0.0, 0.0), (0.0004, 0.01), (0.0614, 0.12), (0.5, 0.5), (1.0, 1.0)])
def test_a_thousand_people_are_drawn_to_scale(rate, high, tmp_path):
    audit = handmade(*sample())
    risk = replace(audit.model_risk, predicted_tpr=rate, predicted_tpr_interval=(0.0, high), in_calibration_domain=True)
    root = page_of(replace(audit, model_risk=risk), tmp_path)
    attack, guess = root.all("svg", class_="people-grid")
    cell = 36.0  # 1,000 cells of 6 × 6

    def area(chart, kind):
        return sum(float(bar.attributes["width"]) * float(bar.attributes["height"]) for bar in chart.all("rect", class_=kind)) / cell

    def expected(share):
        return max(round(1000 * share), 1) if share else 0

    assert area(attack, "solid") == expected(rate) and area(attack, "pale") == expected(max(rate, high))
    assert area(guess, "solid") == expected(risk.fpr)
    assert attack.one("desc").text == per_thousand(rate) and guess.one("desc").text == per_thousand(risk.fpr)


def test_the_records_own_rates_are_drawn_and_the_worst_named(tmp_path):
    audit = handmade(*sample())
    rates = np.r_[np.full(299, 0.01), 0.83]
    columns = {"predicted_tpr": rates, "predicted_tpr_low": rates / 2, "predicted_tpr_high": np.minimum(1.1 * rates, 1)}
    columns["rank"] = np.r_[np.arange(2, 301), 1]  # the rank names who stands first
    risk = replace(audit.model_risk, in_calibration_domain=True)
    root = page_of(replace(audit, model_risk=risk, records=audit.records.assign(**columns)), tmp_path)
    first = root.one(class_="riskiest").all("li")[0]
    assert first.one("bdi").text == "299" and "830 in 1,000" in first.text and "415 to 913 in 1,000" in first.text
    chart = root.one("svg", class_="exposure-chart")
    bars = chart.all("rect")
    assert len(bars) == 2 and "the most exposed: 830 in 1,000" in chart.one("desc").text
    mark = float(re.match(r"M([\d.]+) ", chart.one("path", class_="worst").attributes["d"])[1])
    assert mark == pytest.approx(46 + 0.83 * 544, abs=POSITION)
    assert float(bars[1].attributes["x"]) <= mark <= float(bars[1].attributes["x"]) + float(bars[1].attributes["width"]) + 1


def test_an_order_that_all_columns_share_is_said_and_not_tabled(tmp_path):
    audit = handmade(*sample())
    alike = audit.records.assign(loss=audit.records["shift"], leverage=audit.records["shift"] / 1e3)
    root = page_of(replace(audit, records=alike), tmp_path)
    assert not root.all("table", class_="matrix") and "All 3 columns put the records in nearly the same order" in root.text
    assert page_of(audit, tmp_path).all("table", class_="matrix")
    # Ends of an interval are no witnesses: they neither make a table nor stand in one.
    ends = {"predicted_tpr": alike["shift"] / 1e3, "predicted_tpr_low": 0.0, "predicted_tpr_high": np.linspace(0, 1, len(alike))}
    rated = page_of(replace(audit, records=alike.assign(**ends)), tmp_path)
    assert not rated.all("table", class_="matrix") and "All 4 columns" in rated.text


def test_codes_of_findings_are_links_that_work_from_the_file(classified, tmp_path):
    root = page_of(classified, tmp_path)
    drawn = classified.findings
    identities = {node.attributes.get("id") for node in root.walk()}
    assert {f"rule-{finding.code.lower()}" for finding in drawn} <= identities
    found = [finding.code for finding in drawn if finding.status == "found"]
    links = [node.attributes["href"] for item in root.all("li", class_="finding") for node in item.all("a")]
    assert found and sorted(links) == sorted(f"#rule-{code.lower()}" for code in found)


# Words of the page before its first screen was drawn (3,081 and 2,795).
@pytest.mark.parametrize(("name", "budget"), [("classified", BUDGETS[0]), ("regression", BUDGETS[1])])
def test_the_page_stays_within_its_words(name, budget, classified, tmp_path):
    root = page_of(classified if name == "classified" else regression(1), tmp_path)
    assert len(re.findall(r"[^\W\d_]{2,}", root.one("main").raw)) <= budget


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "noshadow audit package.module:function --out new-audit --reference-models 4",
            [["noshadow audit", "package.module:function", "--out new-audit", "--reference-models 4"]],
        ),
        (
            "noshadow reference train f --out references && noshadow reference score references --audit a",
            [["noshadow reference train f", "--out references", "&&"], ["noshadow reference score references", "--audit a"]],
        ),
        ("noshadow gate a-b --quiet --max-tpr 0.01", [["noshadow gate", "a-b", "--quiet", "--max-tpr 0.01"]]),
    ],
)
def test_a_command_breaks_between_its_parts_only(command, lines):
    made = command_lines(command)
    assert made == lines and " ".join(part for line in made for part in line) == command


def test_hashes_come_last(classified, tmp_path):
    html = (page_of(classified, tmp_path), (tmp_path / "report.html").read_text(encoding="utf-8"))[1]
    order = [
        html.index(f'id="{name}"') for name in ("verdict", "picture", "who", "next", "sure", "people", "why", "do", "tested", "origin")
    ]
    assert order == sorted(order)
    assert html.index(classified.provenance["hashes"]["train"]["data"]) > html.index("Versions</caption>") > order[-1]


def test_first_screen_names_the_riskiest_and_warns(classified, tmp_path):
    root = page_of(classified, tmp_path)
    first = classified.records.sort_values("rank")["id"].head(3).tolist()
    assert [item.text for item in root.one(class_="riskiest").all("li")] == first
    assert "It shows record ids, never record contents" in root.one(class_="sensitive").text
    facts = root.one(class_="kicker").text
    assert "120 records in training, 120 outside" in facts and "classification" in facts
    text = " ".join(table.text for table in root.all("table", class_="pairs"))
    assert "given as arrays" in text and classified.provenance["hashes"]["train"]["data"] in text
    # The parser of this test drops spaces beside an escaped "&&".
    assert root.one(class_="command").text.replace(" ", "") == next_action(classified).command.replace(" ", "")
    stamp = classified.timings["created"]
    assert f"{stamp[:10]} {stamp[11:19]} UTC" in root.one(class_="kicker").text


def test_table_holds_the_top_records_in_rank_order(classified, tmp_path):
    root = page_of(classified, tmp_path)
    table, expected = root.one("table", class_="records"), classified.records.sort_values("rank").head(20)
    rows = table.one("tbody").all("tr")
    assert [row.one("th").text for row in rows] == expected["id"].tolist()
    names = [cell.text for cell in table.one("thead").all("th")]
    assert names == ["rank", "id", "label", "group", "shift", "loss", "leverage", "margin_leverage", "lt_iqr"]
    for row, (_, record) in zip(rows, expected.iterrows(), strict=True):
        cells = row.all("td")
        assert [cell.text for cell in cells[:3]] == [str(record["rank"]), ["ash", "birch", "cedar"][record["target"]], record["group"]]
        for name, cell in zip(names[4:], cells[3:], strict=True):
            assert float(cell.one("data").attributes["value"]) == record[name]
            percentile = percentileofscore(classified.records[name], record[name], kind="weak")
            assert float(cell.one("small").text) == math.floor(percentile * 10 + 1e-9) / 10


def test_ranking_is_explained_in_plain_words(classified, tmp_path):
    assert "how far the attack’s own statistic falls when the record is left out" in page_of(classified, tmp_path).text
    assert "when the record is left out, here the prediction error’s rise in size" in page_of(regression(1), tmp_path).text


def tick_values(chart, axis):
    """Positions and values of an axis's ticks, read off the drawing."""
    group = chart.one("g", class_=axis)
    return [(float(text.attributes[axis]), as_number(text.text)) for text in group.all("text")]


def as_number(label):
    if re.fullmatch(r"10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", label):
        return 10.0 ** int(label[2:].translate(SUPERSCRIPTS))
    return float(label.replace(",", ""))


def x_reader(chart):
    (x0, v0), *_, (x1, v1) = tick_values(chart, "x")
    slope = (math.log10(v1) - math.log10(v0)) / (x1 - x0)
    return lambda x: 10 ** (math.log10(v0) + slope * (x - x0)), abs(slope)


def y_reader(chart):
    ticks = [(y - 4, value) for y, value in tick_values(chart, "y")]  # labels sit 4 units below their tick
    (y0, v0), *_, (y1, v1) = ticks
    return lambda y: v0 + (y - y0) * (v1 - v0) / (y1 - y0), abs((v1 - v0) / (y1 - y0))


def points_of(node):
    return [tuple(map(float, pair.split(","))) for pair in node.attributes["points"].split()]


@pytest.mark.parametrize("seed", range(4))
def test_threshold_stands_where_the_axis_says(seed, tmp_path):
    audit = handmade(*sample(seed), fpr=0.02 * (seed + 1))
    charts = page_of(audit, tmp_path).all("svg", class_="loss-chart")
    assert len(charts) == 2
    for chart in charts:
        value_at, decades_per_unit = x_reader(chart)
        mark = chart.one("line", class_="threshold")
        distance = math.log10(value_at(float(mark.attributes["x1"]))) - math.log10(audit.model_risk.threshold)
        assert abs(distance) < 3 * POSITION * decades_per_unit  # the mark and both ticks are rounded
        assert mark.attributes["x1"] == mark.attributes["x2"]
        assert chart.one("text", class_="threshold-label").text == f"τ = {number(audit.model_risk.threshold)}"


@pytest.mark.parametrize("members", [sample(5)[0], np.r_[np.zeros(40), 1e-30, 3e-8, sample(6)[0]]])
def test_histogram_heights_are_shares(members, tmp_path):
    audit = handmade(members, sample(7)[1])
    for chart in page_of(audit, tmp_path).all("svg", class_="loss-chart"):
        value_at, _ = x_reader(chart)
        share_at, share_per_unit = y_reader(chart)
        for name, losses in (("members", audit.member_losses), ("nonmembers", audit.nonmember_losses)):
            steps = points_of(chart.one("polygon", class_=name))[1:-1]
            edges = np.array([value_at(steps[0][0]), *(value_at(x) for x, _ in steps[1::2])])
            shares = np.array([share_at(y) for _, y in steps[::2]])
            # A loss next to an edge may fall on either side of an edge read off rounded positions.
            near = np.abs(np.log10(losses[losses > 0])[:, None] - np.log10(edges)).min(1) < 1e-3
            expected = np.histogram(losses, edges)[0] / len(losses)
            assert np.abs(shares - expected).sum() < 3 * POSITION * share_per_unit * len(shares) + 2 * near.sum() / len(losses)
            bars = chart.all("rect", class_=name)
            tiny = sum(float(bar.attributes["height"]) * share_per_unit for bar in bars)
            assert tiny == pytest.approx(1 - shares.sum(), abs=3 * POSITION * share_per_unit * len(shares))
            assert tiny == pytest.approx((losses < edges[0] * 0.999).mean(), abs=POSITION * share_per_unit + 1e-12)


def test_curve_is_the_audits(classified, tmp_path):
    curve, risk = classified.model_risk.curve, classified.model_risk
    for chart in page_of(classified, tmp_path).all("svg", class_="curve-chart"):
        level_at, decades_per_unit = x_reader(chart)
        rate_at, rate_per_unit = y_reader(chart)
        off = {"rel": 4 * decades_per_unit * POSITION * math.log(10)}, {"abs": 3 * POSITION * rate_per_unit}
        line = points_of(chart.one("polyline", class_="tnr"))
        assert [level_at(x) for x, _ in line] == pytest.approx(curve.levels, **off[0])
        assert [rate_at(y) for _, y in line] == pytest.approx(curve.tnr, **off[1])
        band = [rate_at(y) for _, y in points_of(chart.one("polygon", class_="band"))]
        assert band == pytest.approx([*curve.high, *curve.low[::-1]], **off[1])
        guess = points_of(chart.one("polyline", class_="guess"))
        assert [rate_at(y) for _, y in guess] == pytest.approx([level_at(x) for x, _ in guess], rel=0.01, abs=3 * POSITION * rate_per_unit)
        dot = chart.one("circle", class_="chosen").attributes
        assert level_at(float(dot["cx"])) == pytest.approx(risk.fpr, **off[0])
        assert rate_at(float(dot["cy"])) == pytest.approx(risk.tnr, **off[1])


HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "a & b &lt; c",
    "{{ 7 * 7 }}{% raw %}",
    "</style></title></svg><b>",
    "x" * 10_000,
]


def test_hostile_text_stays_text(tmp_path):
    ids = [*HOSTILE, *(f"id {i}" for i in range(14))]
    audit = handmade(*sample(1, n=20), ids=ids)
    audit = replace(
        audit,
        records=audit.records.assign(group=HOSTILE[0]),
        provenance={"class_names": [HOSTILE[0], HOSTILE[1]], "head": HOSTILE[4], "arguments": {HOSTILE[0]: HOSTILE[1]}},
        not_applicable={HOSTILE[0]: HOSTILE[1]},
        notes=(HOSTILE[0],),
        timings={"created": HOSTILE[0]},
    )
    root = page_of(audit, tmp_path)
    assert not {node.tag for node in root.walk()} & {"img", "b", "iframe", "object", "link", "base", "form"}
    held, own = root.all("script")
    assert held.attributes == {"type": "text/plain", "id": "record-data"} and re.fullmatch(r"[\w=-]+", held.raw)
    assert own.raw == page_script()["text"] and "alert" not in own.raw
    hashed = base64.b64encode(hashlib.sha256(own.raw.encode()).digest()).decode()
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert policy.endswith(f"script-src 'sha256-{hashed}'") and "script-src 'unsafe" not in policy
    assert not [name for node in root.walk() for name in node.attributes if name.startswith("on")]
    table = root.one("table", class_="records")
    assert {row.text for row in table.one("tbody").all("th")} == set(ids)
    assert {row.all("td")[1].text for row in table.one("tbody").all("tr")} == set(HOSTILE[:2])
    assert all(cell.one("bdi").has({"class": "id"}) for cell in table.one("tbody").all("th"))
    missing = next(section for section in root.all("section") if section.has({"aria-labelledby": "missing"}))
    assert HOSTILE[0] in missing.one("dt").text and HOSTILE[1] in missing.one("dd").text and HOSTILE[0] in missing.one("li").text


def test_long_ids_are_cut_by_style_only(tmp_path):
    root = page_of(handmade(*sample(1, n=20), ids=["y" * 10_000, *map(str, range(19))]), tmp_path)
    rule = re.search(r"^\.id \{([^}]*)\}", root.one("style").raw, re.MULTILINE)[1]
    assert all(part in rule for part in ("max-width", "overflow: hidden", "text-overflow: ellipsis", "white-space: nowrap"))
    assert "Long ids are cut short on screen" in root.text
    assert "Long ids are cut short on screen" not in page_of(handmade(*sample(1, n=20)), tmp_path).text


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a\u202eb", "a⟨U+202E⟩b"), ("nul\x00\n", "nul⟨U+0000⟩⟨U+000A⟩"), ("half \ud800", "half ⟨U+D800⟩"), ("zero\u200b", "zero⟨U+200B⟩")],
)
def test_characters_that_deceive_or_break_a_page_are_spelled_out(given, expected, tmp_path):
    root = page_of(handmade([0.1, 0.2], [0.1, 0.3], ids=pd.Series([given, "plain"], dtype=object)), tmp_path)
    assert {row.text for row in root.one("table", class_="records").one("tbody").all("th")} == {expected, "plain"}


def test_page_asks_the_network_for_nothing(classified, tmp_path):
    root = page_of(classified, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    loading = {"src", "srcset", "action", "data", "poster", "xlink:href"}
    assert not [node.tag for node in root.walk() if loading & set(node.attributes)]
    targets = [node.attributes["href"] for node in root.walk() if "href" in node.attributes]
    identities = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert targets and all(target.startswith("#") and target[1:] in identities for target in targets)
    assert "default-src 'none'" in root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]


def test_page_is_sound_and_small(classified, tmp_path):
    root = page_of(classified, tmp_path)
    identities = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert len(identities) == len(set(identities))
    references = [name for node in root.walk() for name in node.attributes.get("aria-labelledby", "").split()]
    assert references and set(references) <= set(identities)
    assert len(root.all("main")) == len(root.all("h1")) == 1
    for table in root.all("table"):
        assert len(table.all("caption")) == 1
        assert all(cell.attributes.get("scope") in ("col", "row") for cell in table.all("th"))
    for chart in root.all("svg"):
        assert chart.attributes["role"] == "img" and chart.one("title").text and chart.one("desc").text
    assert (tmp_path / "report.html").stat().st_size < 200_000


def test_same_audit_same_bytes_also_from_its_folder(classified, tmp_path):
    first = ns.write_report(classified, tmp_path / "a.html").read_bytes()
    assert ns.write_report(classified, tmp_path / "b.html").read_bytes() == first
    read_back = ns.load(classified.save(tmp_path / "folder"))
    assert ns.write_report(read_back, tmp_path / "c.html").read_bytes() == first


def test_audit_is_left_as_it_was(classified, tmp_path):
    records, losses = classified.records.copy(), classified.member_losses.copy()
    ns.write_report(classified, tmp_path / "a.html")
    pd.testing.assert_frame_equal(classified.records, records)
    assert np.array_equal(classified.member_losses, losses)


def test_infinite_scores(tmp_path):
    audit = handmade(*sample(2, n=30))
    shift = audit.records["shift"].where(audit.records["rank"] > 2, np.inf)
    root = page_of(replace(audit, records=audit.records.assign(shift=shift)), tmp_path)
    cells = [row.one("td", class_="ranking") for row in root.one("table", class_="records").one("tbody").all("tr")]
    assert [cell.one("data").text for cell in cells[:2]] == ["∞", "∞"] and cells[2].one("data").text != "∞"
    assert [cell.one("small").text for cell in cells[:3]] == ["100.0", "100.0", "93.3"]
    assert "∞" in root.one(id="infinite").text
    assert not page_of(audit, tmp_path).all(id="infinite")


def test_regression_page(tmp_path):
    audit = regression(1)
    root = page_of(audit, tmp_path)
    names = [cell.text for cell in root.one("table", class_="records").one("thead").all("th")]
    assert names == ["rank", "id", "target", "shift", "loss", "leverage", "predicted_tpr"]
    assert "a prediction under Gaussian-linear assumptions" in root.text and "lower bound" in root.text
    assert "loss (squared error)" in root.text and "loss (nats)" not in root.text
    assert not root.all(id="accuracy-gap")


def test_several_outputs(tmp_path):
    root = page_of(regression(3), tmp_path)
    names = [cell.text for cell in root.one("table", class_="records").one("thead").all("th")]
    assert names[2:5] == ["target_0", "target_1", "target_2"] and "further target columns" not in root.text
    many = page_of(regression(8), tmp_path)
    assert "2 further target columns are in records.parquet" in many.text


def test_empty_test_split(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(0, 2, 30)
    signals = ns.Signals(x, x[:, :2], y)
    audit = ns.audit_signals(signals, ns.Signals(x[:0], x[:0, :2], y[:0]), progress=False)
    root = page_of(audit, tmp_path)
    assert root.one("h1").text == "Not known"
    assert "the test split is empty" in root.one("header").text
    assert not root.all("svg", class_="curve-chart") and not root.all(id="tnr") and not root.all(class_="threshold")
    assert len(root.all("polygon", class_="members")) == 2 and not root.all(class_="nonmembers")
    assert len(root.one("table", class_="records").one("tbody").all("tr")) == 20


def test_model_without_record_scores(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    forest = RandomForestClassifier(5, random_state=0).fit(x[:40], y[:40])
    root = page_of(ns.audit(forest, (x[:40], y[:40]), (x[40:], y[40:]), progress=False), tmp_path)
    assert "left_out_loss" in root.text and len(root.one("table", class_="records").one("tbody").all("tr")) == 20
    assert not root.all("table", class_="diagnostics")
    assert float(shown(root, "tnr").attributes["value"]) >= 0
    missing = next(section for section in root.all("section") if section.has({"aria-labelledby": "missing"}))
    assert {"leverage", "newton"} <= set(missing.one("dl").all("dt")[0].text.split(", "))


@pytest.mark.parametrize("value", [0.3, 1.0, 0.0, 5e-324, 1e99])
def test_all_losses_equal(value, tmp_path):
    root = page_of(handmade([value] * 10, [value] * 12), tmp_path)
    assert shown(root, "tnr").attributes["value"] == "0.0" and shown(root, "auc").attributes["value"] == "0.5"
    for chart in root.all("svg", class_="loss-chart"):
        assert bool(chart.all("rect")) == (value == 0)
        left, right = (float(chart.one("line", class_="threshold").attributes[end]) for end in ("x1", "x2"))
        assert 0 < left == right <= float(chart.attributes["viewbox"].split()[2])


def test_zero_losses_have_their_own_bin_and_threshold_beside_it(tmp_path):
    root = page_of(handmade([0.0] * 30, [0.0] * 10 + [0.5, 2.0] * 5), tmp_path)
    for chart in root.all("svg", class_="loss-chart"):
        assert chart.one("text", class_="tiny").text == "0"
        mark = float(chart.one("line", class_="threshold").attributes["x1"])
        bars = [float(bar.attributes["x"]) + float(bar.attributes["width"]) for bar in chart.all("rect")]
        first = min(x for x, _ in tick_values(chart, "x"))
        assert max(bars) < mark < first
    assert "losses of exactly zero: 1,000 in 1,000 members, 500 in 1,000 non-members" in root.text


def test_infinite_losses_are_counted_not_drawn(tmp_path):
    root = page_of(handmade([0.1, 0.2, np.inf], []), tmp_path)
    assert "1 losses that are not finite are not drawn" in root.text


@pytest.mark.parametrize(("fpr", "one", "few"), [(0.01, True, False), (0.0199, True, False), (0.03, False, True), (0.05, False, False)])
def test_an_interval_that_rests_on_one_record_is_called_too_short(fpr, one, few, tmp_path):
    root = page_of(handmade(*sample(0, n=100, outside=100), fpr=fpr), tmp_path)
    assert bool(root.all(id="rests-on-one")) == one and bool(root.all(id="rests-on-few")) == few
    assert ("rests on a single record" in root.text and "clearly less often than it says" in root.text) == one


def test_a_predicted_rate_is_shown_where_there_is_one(tmp_path):
    audit = handmade(*sample())
    risk = replace(
        audit.model_risk,
        predicted_tpr=0.125,
        predicted_tpr_interval=(0.1, 0.15),
        in_calibration_domain=False,
        reason="From a calibration.",
    )
    root = page_of(replace(audit, model_risk=risk), tmp_path)
    assert shown(root, "predicted-tpr").attributes["value"] == "0.125"
    assert "100 to 150 in 1,000" in root.text and "From a calibration." in root.text and "lies outside the setups" in root.text


def test_diagnostics_and_provenance(classified, tmp_path):
    root = page_of(classified, tmp_path)
    scores = classified.provenance["scores"]
    rows = {row.one("th").text: row.all("td") for row in root.one("table", class_="diagnostics").one("tbody").all("tr")}
    for name, key in (
        ("damping λ", "damping_used"),
        ("effective degrees of freedom", "effective_dof"),
        ("rank", "rank"),
        ("condition", "condition"),
        ("jitter", "jitter"),
        ("stationarity", "stationarity"),
        ("head residual", "head_residual"),
    ):
        assert float(rows[name][0].one("data").attributes["value"]) == scores[key]
    assert rows["precision error"][0].text == "not measured" and rows["precision"][0].text == scores["precision"]
    assert scores["damping_source"].rstrip(".")[1:] in rows["damping λ"][1].text
    text = " ".join(table.text for table in root.all("table", class_="pairs"))
    hashes, versions = classified.provenance["hashes"], classified.provenance["versions"]
    assert all(value in text for value in (*hashes["train"].values(), *hashes["test"].values(), *versions.values()))
    assert classified.timings["created"] in text and "audit_signals" in text


@pytest.mark.parametrize(("value", "words"), [(0.4, "Below 1: smaller than one typical record"), (3.0, "that they have not reached")])
def test_stationarity_is_judged_against_one_record(value, words, tmp_path, classified):
    provenance = classified.provenance | {"scores": classified.provenance["scores"] | {"stationarity": value}}
    root = page_of(replace(classified, provenance=provenance), tmp_path)
    assert words in root.one("table", class_="diagnostics").text
    assert ("trust the order of the records more than the size of their scores" in root.text) == (value >= 1)


def test_glossary_explains_the_words(classified, tmp_path):
    terms = " ".join(term.text for term in page_of(classified, tmp_path).one(class_="glossary").all("dt"))
    assert all(word in terms for word in ("TNR", "FNR", "AUC", "τ", "leverage", "shift", "loo", "nats"))


def test_wrong_audit_and_unwritable_path(classified, tmp_path):
    with pytest.raises(InputError, match=r"write_report: audit must be an Audit; got dict\. Read a folder"):
        ns.write_report({}, tmp_path / "a.html")
    with pytest.raises(InputError, match="write_report: path must be writable"):
        ns.write_report(classified, tmp_path / "missing" / "a.html")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (999.4, "999"),
        (999.7, "1,000"),
        (-0.0123, "−0.0123"),
        (1.0, "1"),
        (123456.0, "123,456"),
        (1e-4, "0.0001"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_read_well(value, text):
    assert number(value) == text


def test_shares_in_words():
    assert out_of_a_hundred(1.0) == "100 in 100" and out_of_a_hundred(0.999) == "99.9 in 100"
