"""Record contents in the report: pictures against another decoder, matching by id, every refusal, hostile text stays text."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import noshadow as ns
from noshadow.checks import InputError
from noshadow.report.contents import shown_contents
from noshadow.report.thumbnails import LONGEST_SIDE
from test_report import HOSTILE, Tree, handmade, page_of, sample
from test_report_data import unpacked

N = 30
RNG = np.random.default_rng(5)
BYTES = RNG.integers(0, 256, (N, 9, 7, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def audit():
    return handmade(*sample(0, n=N), ids=[f"p{i}" for i in range(N)])


@pytest.fixture
def written(audit, tmp_path):
    """The page with contents: its tree, and the head of what the script reads."""

    def write(contents, **options):
        path = ns.write_report(audit, tmp_path / "a.html", show_records=contents, **options)
        root = Tree(path.read_text(encoding="utf-8")).root
        return root, unpacked(root.one(id="record-data").raw)[0]["contents"]

    return write


def riskiest(audit):
    return audit.records.sort_values("rank").index.to_numpy()


def pixels(item):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(item))))


# Images


@pytest.mark.parametrize(
    "given",
    [
        BYTES,
        np.moveaxis(BYTES, 3, 1),
        torch.from_numpy(BYTES),
        BYTES.astype(np.int64),
        (BYTES / 255).astype(np.float32),
        BYTES.tolist(),
    ],
)
def test_pictures_are_the_records_pixel_for_pixel(given, audit, written):
    root, held = written(given)
    assert held["kind"] == "images" and len(held["items"]) == N
    for item, row in zip(held["items"], riskiest(audit), strict=True):
        assert np.array_equal(pixels(item), BYTES[row])
    shown = root.one("ol", class_="contents").all("img")
    assert [node.attributes["src"] for node in shown] == [f"data:image/png;base64,{item}" for item in held["items"][:20]]
    assert "stretched" not in root.text and "made smaller" not in root.text


@pytest.mark.parametrize("given", [BYTES[..., 0], BYTES[..., :1], BYTES[..., 0][:, None]])
def test_one_channel_is_grey(given, audit):
    items = shown_contents(given, audit).items
    assert np.array_equal(pixels(items[0]), BYTES[riskiest(audit)[0], ..., 0])


def test_truth_values_are_black_and_white(audit):
    made = shown_contents(BYTES[..., 0] > 127, audit)
    assert np.array_equal(pixels(made.items[0]), 255 * (BYTES[riskiest(audit)[0], ..., 0] > 127)) and made.notes == []


@pytest.mark.parametrize("scale", [lambda x: x / 51.0 - 2.5, lambda x: x.astype(int) * 10])
def test_other_numbers_are_stretched_over_all_images_and_the_page_says_so(scale, audit, written):
    values = scale(BYTES[..., 0])
    root, held = written(values)
    low, high = values.min(), values.max()
    expected = np.round(255 * (values[riskiest(audit)[0]] - low) / (high - low))
    assert np.array_equal(pixels(held["items"][0]), expected)
    assert "Pixel values were stretched" in root.one(id="contents-shown").text
    constant = shown_contents(np.full((N, 2, 2), -3.0), audit)
    assert (pixels(constant.items[0]) == 0).all()


def test_large_images_become_means_of_blocks(audit, written):
    blocks = RNG.integers(0, 256, (N, 4, LONGEST_SIDE), dtype=np.uint8)
    root, held = written(np.kron(blocks, np.ones((1, 3, 3), dtype=np.uint8)))
    assert np.array_equal(pixels(held["items"][0]), blocks[riskiest(audit)[0]])
    assert f"a side of more than {LONGEST_SIDE} pixels are made smaller" in root.text
    odd = RNG.integers(0, 256, (N, 131, 257), dtype=np.uint8)
    small = pixels(shown_contents(odd, audit).items[0])
    assert small.shape == (49, LONGEST_SIDE)
    # Blocks of a row and a column more or less: means of the whole stay within a grey level.
    assert small.mean() == pytest.approx(odd[riskiest(audit)[0]].mean(), abs=1)


# Texts and rows


def test_texts_are_cut_and_keep_their_lines(audit, written):
    texts = [f"note {i}\r\nsecond\tline" for i in range(N)]
    first = riskiest(audit)[0]
    texts[first] = "x" * 600
    root, held = written(texts)
    assert held["items"][0] == "x" * 500 + "…" and "Texts are cut after 500 characters" in root.one(id="contents-shown").text
    assert held["items"][1] == f"note {riskiest(audit)[1]}\nsecond    line"
    for same in (np.array(texts), pd.Series(texts, index=range(5, 5 + N)), tuple(texts), pd.DataFrame({"note": texts})):
        assert shown_contents(same, audit).items == held["items"]
    assert shown_contents([text[:20] for text in texts], audit).notes == []


def test_rows_have_names_and_values(audit, written):
    table = pd.DataFrame({"age": range(N), "height": [1.23456789] * N, "note": [None, *["y" * 200] * (N - 1)], "flag": [True] * N})
    _, held = written(table)
    row = riskiest(audit)[0]
    note = "missing" if row == 0 else "y" * 100 + "…"
    assert held["kind"] == "rows"
    assert held["items"][0] == [["age", str(row)], ["height", "1.23457"], ["note", note], ["flag", "True"]]
    made = shown_contents(np.full((N, 60), np.nan), audit)
    assert (
        len(made.items[0]) == 50 and made.items[0][3] == ("column 3", "missing") and made.notes == ["Of 60 columns the first 50 are shown."]
    )


# Which records


def test_only_the_riskiest_have_contents_and_the_page_says_how_many(audit, written):
    root, held = written(BYTES, show_top=7)
    assert len(held["items"]) == 7 and len(root.one("ol", class_="contents").all("li")) == 7
    assert "Contents of the 7 highest-ranked records are shown" in root.text
    assert "the images of the 7 highest-ranked records" in root.one(class_="sensitive").text
    assert root.one(id="with-contents") and "never record contents" not in root.text
    large = handmade(*sample(0, n=150))
    assert len(shown_contents([str(i) for i in range(150)], large).items) == 100


def test_ids_decide_and_not_the_order(audit, written):
    order = RNG.permutation(N)
    expected = written(BYTES)[1]["items"]
    ids = [f"p{i}" for i in order]
    assert written(BYTES[order], show_ids=ids)[1]["items"] == expected
    assert written(BYTES[order], show_ids=np.array(ids))[1]["items"] == expected
    table = pd.DataFrame({"age": order, "id": ids})
    assert [row[0][1] for row in written(table)[1]["items"]] == [str(row) for row in riskiest(audit)]
    # Ids in an index, named or those of the audit, count as well; a Series of texts may carry them.
    expected_rows = [str(row) for row in riskiest(audit)]
    named = pd.DataFrame({"age": order}, index=pd.Index(ids, name="id"))
    for indexed in (named, named.rename_axis(None)):
        assert [row[0][1] for row in written(indexed)[1]["items"]] == expected_rows
        assert written(indexed["age"].astype(str))[1]["items"] == expected_rows
    numbered = handmade(*sample(0, n=N))
    made = shown_contents([f"text {i}" for i in order], numbered, ids=[str(i) for i in order])
    assert made.items == [f"text {row}" for row in riskiest(numbered)]


def test_without_ranks_the_highest_losses_are_shown(audit):
    unranked = replace(audit, records=audit.records[["id", "target", "loss"]], ranked_by=None)
    made = shown_contents([f"t{i}" for i in range(N)], unranked, top=3)
    assert made.items == [f"t{i}" for i in np.argsort(-audit.records["loss"].to_numpy(), kind="stable")[:3]]


def test_a_page_without_contents_says_so_and_may_load_no_image(audit, written, tmp_path):
    root = page_of(audit, tmp_path)
    assert "never record contents" in root.one(class_="sensitive").text and not root.all(id="with-contents")
    assert not root.all("img") and not root.all(class_="contents") and "img-src" not in policy(root)
    assert "img-src data:" in policy(written(BYTES)[0]) and "img-src" not in policy(written(["text"] * N)[0])
    assert "default-src 'none'" in policy(written(BYTES)[0])
    plain = ns.write_report(audit, tmp_path / "b.html", show_records=False).read_bytes()
    assert plain == (tmp_path / "report.html").read_bytes()


def policy(root):
    return root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]


def test_contents_never_reach_the_folder(audit, tmp_path):
    folder = audit.save(tmp_path / "audit")
    ns.write_report(ns.load(folder), tmp_path / "a.html", show_records=["SECRET WORDS"] * N)
    assert not [path for path in folder.iterdir() if b"SECRET" in path.read_bytes()]


def test_hostile_contents_stay_text(audit, written):
    texts = [*HOSTILE, "a\u202eb\x00", *["plain"] * (N - len(HOSTILE) - 1)]
    root, held = written(texts)
    assert not {node.tag for node in root.walk()} & {"b", "iframe", "img"} and len(root.all("script")) == 2
    assert set(held["items"]) == {*HOSTILE[:-1], "x" * 500 + "…", "a⟨U+202E⟩b⟨U+0000⟩", "plain"}
    listed = root.one("ol", class_="contents").all("li")
    assert len(listed) == 20 and all(item in node.raw for item, node in zip(held["items"], listed, strict=False))
    rows, _ = written(pd.DataFrame({HOSTILE[0]: [HOSTILE[1]] * N, "other": 1}))
    assert HOSTILE[0] in rows.one("ol", class_="contents").text and not {node.tag for node in rows.walk()} & {"b", "img"}
    assert not [name for node in rows.walk() for name in node.attributes if name.startswith("on")]


# Refusals

KINDS = r"show_records must be images \(n, h, w\), \(n, h, w, 3\) or \(n, 3, h, w\), n texts, or a table of n rows; got "


@pytest.mark.parametrize(
    ("given", "options", "match"),
    [
        (True, {}, KINDS + "bool. An audit holds no contents: hand them over"),
        ("all", {}, KINDS + "str"),
        ({"p0": "text"}, {}, KINDS + "dict"),
        (0, {}, KINDS + "int"),
        (np.zeros(N), {}, KINDS + r"shape \(30,\)"),
        (np.zeros((N, 2, 2, 3, 1)), {}, KINDS + "shape"),
        (np.zeros((N, 0)), {}, KINDS + "shape"),
        (["text"], {}, "show_records must hold one entry for each of the audit's 30 records; got 1. Hand over the training data whole"),
        (BYTES[1:], {}, "one entry for each of the audit's 30 records; got 29"),
        (["text", None] * 15, {}, "show_records must hold texts only; got NoneType at index 1"),
        (np.zeros((N, 3, 5, 3)), {}, r"images in show_records must have 1 or 3 channels in their second or their last axis, not in both"),
        (np.zeros((N, 5, 5, 4)), {}, r"channels in their second or their last axis, not in both; got shape \(30, 5, 5, 4\)"),
        (np.zeros((N, 0, 5)), {}, "images in show_records must have at least one pixel"),
        (np.full((N, 2, 2), np.nan), {}, "images in show_records must be finite; got 120 NaN"),
        (np.full((N, 2, 2), 1e200), {}, "images in show_records must stay within"),
        (np.zeros((N, 2, 2), dtype=complex), {}, "images in show_records must be of bytes, integers or floats; got dtype complex128"),
        (pd.DataFrame({"id": range(N)}), {}, "show_records must have a column beside 'id'; got none"),
        (
            pd.DataFrame({"id": range(N), "a": 1}),
            {"show_ids": range(N)},
            "show_ids must be None for a table with ids of its own; got range",
        ),
        (pd.DataFrame({"ID": range(N), "a": 1}), {}, "show_records must call its column of ids 'id'; got 'ID'. Rename it"),
        (
            pd.DataFrame({"a": range(N)}, index=range(5, N + 5)).sample(frac=1, random_state=0),
            {},
            r"have an index of row numbers or of the audit's ids; got one from '\d+'. Call the index 'id' if it holds the ids",
        ),
        (BYTES, {"show_ids": "p0"}, "show_ids must be a sequence of record ids; got str"),
        (BYTES, {"show_ids": ["p0"]}, "show_records and show_ids must have one row per record; got lengths show_records 30, show_ids 1"),
        (BYTES, {"show_ids": ["p0"] * N}, "ids of the contents must be unique; got 'p0' 30 times"),
        (
            BYTES,
            {"show_ids": [f"q{i}" for i in range(N)]},
            "ids of the contents must be the audit's; got 30 that the audit does not know, such as 'q0' where it has 'p0'. Hand over",
        ),
        (pd.DataFrame({"id": range(N), "a": 1}), {}, "ids of the contents must be the audit's; got 30 that the audit does not know"),
        (BYTES, {"show_top": 0}, "show_top must be a whole number ≥ 1; got 0"),
        (None, {"show_ids": ["p0"]}, "show_ids must come with show_records; got ids alone"),
    ],
)
def test_what_is_no_contents_is_refused_in_one_sentence(given, options, match, audit, tmp_path):
    with pytest.raises(InputError, match=match) as refused:
        ns.write_report(audit, tmp_path / "a.html", show_records=given, **options)
    assert str(refused.value).startswith("write_report: ") and not re.search(r"\n", str(refused.value))
    assert not list(tmp_path.iterdir())


NO_CONTENTS = {"0-d": np.array(3.0), "bytes": np.zeros((4, 2), "V4"), "fields": np.zeros((4, 2), [("a", "f8")])}


@pytest.mark.parametrize("contents", NO_CONTENTS.values(), ids=NO_CONTENTS)
def test_arrays_that_are_no_contents_are_refused(audit, tmp_path, contents):
    with pytest.raises(InputError, match="write_report: show_records must be images"):
        ns.write_report(audit, tmp_path / "r.html", show_records=contents)


def test_ids_without_a_row_are_refused(audit, tmp_path):
    with pytest.raises(InputError, match=r"write_report: show_ids must be a sequence of record ids; got shape \(\)"):
        ns.write_report(audit, tmp_path / "r.html", show_records=["text"] * len(audit.records), show_ids=np.array(3))
