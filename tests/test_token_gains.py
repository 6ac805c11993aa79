"""The tokens on which a language model left its base: against plain loops, and on the page."""

import importlib
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import noshadow as ns
from browser import chromium
from extras import extra
from noshadow.checks import InputError
from noshadow.cli import app
from noshadow.report.shown_tokens import MOST_TOKENS, token_items
from test_report import Tree
from test_report_data import unpacked
from tiny_language_models import gpt2, ragged, token_losses_by_hand

HOSTILE = "</script><img src=x onerror=alert(1)>"
LENGTHS = (5, 16, 2, 9, 12, 16, 3, 8)


class Words:
    """A tokenizer whose tokens are words, one of them hostile."""

    def decode(self, tokens, skip_special_tokens=False):
        return "".join(HOSTILE if token == 7 else f" w{token}" for token in tokens)

    def __call__(self, text):
        raise NotImplementedError


@pytest.fixture(scope="module")
def case():
    extra("transformers")
    base, model = gpt2(seed=1), gpt2(seed=1)
    train = ragged(LENGTHS, seed=2)
    train[1][3] = 7
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(6):
        loss = sum(model(input_ids=torch.tensor([list(text)]), labels=torch.tensor([list(text)])).loss for text in train)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    audit = ns.audit(model, train, ragged((16,) * 6, seed=3), base=base, progress=False)
    return model, base, train, audit


def test_gains_are_differences_token_by_token(case):
    model, base, train, audit = case
    found = ns.token_gains(model, train, base=base, progress=False)
    assert len(found) == len(train) and found.texts is None
    for number, text in enumerate(train):
        part = slice(found.starts[number], found.starts[number + 1])
        by_hand = token_losses_by_hand(base, list(text)) - token_losses_by_hand(model, list(text))
        # float32 logits of order one
        np.testing.assert_allclose(found.gain[part], by_hand, atol=1e-5)
        assert found.tokens[part].tolist() == list(text)[1:]
        assert found.gain[part].mean() == pytest.approx(audit.records["base_gain"][number], abs=1e-9)
    np.testing.assert_allclose(found.loss, audit.records["loss"], rtol=1e-9)


def test_carriers_are_the_fewest_that_make_up_half():
    gains = np.array([0.1, 3.0, -5.0, 0.2, 2.5, -1.0, -2.0])
    found = ns.TokenGains(np.arange(7), None, gains, np.zeros(7), np.array([0, 5, 7]))
    assert found.carriers(0).tolist() == [1]
    assert found.carriers(1).tolist() == []
    even = ns.TokenGains(np.arange(4), None, np.ones(4), np.zeros(4), np.array([0, 4]))
    assert len(even.carriers(0)) == 2


def test_the_page_shows_tokens_only_when_handed_over(case, tmp_path):
    model, base, train, audit = case
    audit.save(tmp_path / "folder")
    for file in (tmp_path / "folder").iterdir():
        assert HOSTILE.encode() not in file.read_bytes()
    plain = ns.write_report(audit, tmp_path / "plain.html").read_text(encoding="utf-8")
    assert 'class="gains"' not in plain and "never record contents" in plain
    gains = ns.token_gains(model, train, base=base, tokenizer=Words(), progress=False)
    text = ns.write_report(audit, tmp_path / "shown.html", show_records=gains).read_text(encoding="utf-8")
    assert HOSTILE not in text and "It shows the contents of training records" in text
    root = Tree(text).root
    held = unpacked(root.one(id="record-data").raw)[0]["contents"]
    assert held["kind"] == "tokens" and len(held["items"]) == len(train)
    order = audit.records.sort_values("rank").index.to_numpy()
    for item, number in zip(held["items"], order, strict=True):
        assert len(item["tokens"]) == len(train[number]) - 1
        part = gains.gain[gains.starts[number] : gains.starts[number + 1]]
        assert [shade for _, shade in item["tokens"]] == [int((g >= np.log([2, 5, 20, 100])).sum()) for g in part]
    assert len(re.findall('<p class="gains">', text)) == len(train)
    # The hostile token is there, as text.
    assert any(HOSTILE[:8] in word for item in held["items"] for word, _ in item["tokens"])


def test_ids_stand_in_for_texts_without_a_tokenizer(case, tmp_path):
    model, base, train, audit = case
    gains = ns.token_gains(model, train, base=base, progress=False)
    text = ns.write_report(audit, tmp_path / "a.html", show_records=gains, show_top=2).read_text(encoding="utf-8")
    assert len(re.findall('<p class="gains">', text)) == 2


def test_other_models_and_sequences_are_refused(case, tmp_path):
    model, base, train, audit = case
    other = ns.token_gains(base, train, base=model, progress=False)
    with pytest.raises(InputError, match="be of the audited model and its training sequences"):
        ns.write_report(audit, tmp_path / "a.html", show_records=other)
    with pytest.raises(InputError, match="one entry for each of the audit's 8 records"):
        ns.write_report(audit, tmp_path / "a.html", show_records=ns.token_gains(model, train[:3], base=base, progress=False))
    turned = ns.token_gains(model, train[::-1], base=base, progress=False)
    with pytest.raises(InputError, match="Pass show_ids="):
        ns.write_report(audit, tmp_path / "a.html", show_records=turned)
    ns.write_report(audit, tmp_path / "a.html", show_records=turned, show_ids=range(len(train))[::-1])
    with pytest.raises(InputError, match="token_gains: base must be the model"):
        ns.token_gains(model, train, progress=False)


def test_gains_over_another_base_than_the_audits_are_refused(case, tmp_path):
    """The page took them: its tokens would have carried what another base did not know."""
    model, _, train, audit = case
    over_another = ns.token_gains(model, train, base=gpt2(seed=4), progress=False)
    with pytest.raises(InputError, match="be gains over the base of the audit; got losses of a base that differ"):
        ns.write_report(audit, tmp_path / "a.html", show_records=over_another)
    without = ns.audit(model, train, None, progress=False)  # an audit that read no base has nothing to hold them against
    assert 'class="gains"' in ns.write_report(without, tmp_path / "b.html", show_records=over_another).read_text(encoding="utf-8")


def test_long_sequences_are_cut_to_where_the_gain_is(case):
    gain = np.zeros(500)
    gain[400:410] = 5.0
    found = ns.TokenGains(np.arange(500), None, gain, np.zeros(500), np.array([0, 500]))
    (item,) = token_items(found, np.array([0]))
    assert len(item["tokens"]) == MOST_TOKENS + 2 and item["tokens"][0][0] == "… "
    assert sum(shade == 4 for _, shade in item["tokens"]) == 10
    assert "5 of 500 tokens" in item["told"] and "«400»" in item["told"]


def test_the_command_shows_tokens_of_a_target(case, tmp_path, monkeypatch):
    model, base, train, audit = case
    audit.save(tmp_path / "folder")
    (tmp_path / "given_target.py").write_text("import noshadow as ns\nheld = None\n\ndef target():\n    return held\n")
    monkeypatch.syspath_prepend(tmp_path)
    given_target = importlib.import_module("given_target")
    given_target.held = ns.Target(model, train, None, base=base)
    out = tmp_path / "page.html"
    made = CliRunner().invoke(app, ["report", str(tmp_path / "folder"), "--show-records", "given_target:target", "--out", str(out)])
    assert made.exit_code == 0, made.output
    assert 'class="gains"' in out.read_text(encoding="utf-8")


def test_the_command_takes_the_base_beside_a_target_without_one(case, tmp_path, monkeypatch):
    model, base, train, audit = case
    audit.save(tmp_path / "folder")
    (tmp_path / "bare_target.py").write_text(
        "import noshadow as ns\nheld = base = None\n\ndef target():\n    return held\n\ndef origin():\n    return base\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = importlib.import_module("bare_target")
    given.held, given.base = ns.Target(model, train, None), base
    out = tmp_path / "page.html"
    options = ["report", str(tmp_path / "folder"), "--show-records", "bare_target:target", "--out", str(out)]
    refused = CliRunner().invoke(app, options)
    assert "report: --base must be the model that the fine-tuning started from; got none" in str(refused.exception)
    assert "Pass --base FOLDER" in str(refused.exception) and not out.exists()
    made = CliRunner().invoke(app, [*options, "--base", "bare_target:origin"])
    assert made.exit_code == 0, made.output
    assert 'class="gains"' in out.read_text(encoding="utf-8")
    for options, told in (
        (["--base", "bare_target:origin"], "must come with --show-records FILE; got them without"),
        (["--show-records", "bare_target:target", "--model", str(tmp_path)], "--model must be left out beside a function"),
        (["--show-records", "texts.txt", "--base", "bare_target:origin"], "--base must come with --model FOLDER and a file of texts"),
    ):
        assert told in str(CliRunner().invoke(app, ["report", str(tmp_path / "folder"), *options]).exception)


def test_a_browser_shades_tokens_and_runs_none(case, tmp_path):
    model, base, train, audit = case
    gains = ns.token_gains(model, train, base=base, tokenizer=Words(), progress=False)
    path = ns.write_report(audit, tmp_path / "shown.html", show_records=gains)
    with chromium() as browser:
        page = browser.new_page()
        errors, dialogs = [], []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        page.goto(path.as_uri())
        page.locator(".explorer-table td.content details").first.wait_for(state="attached")
        assert page.locator(".explorer-table td.content .gains").count() == len(train)
        shaded = int((gains.gain >= np.log(2)).sum())
        assert page.locator(".explorer-table .gains span").count() == shaded > 0
        assert page.locator(".contents .gains span").count() == shaded
        assert page.locator("img").count() == 0 and errors == [] and dialogs == []
        assert HOSTILE in "".join(page.locator(".explorer-table .gains").all_text_contents())
