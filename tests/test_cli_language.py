"""`noshadow audit` on folders of language models and adapters: the same figures as from Python, and refusals in one sentence."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import noshadow as ns
from extras import extra
from language_base_models import chains, pretrained, t5, trained, with_lora
from noshadow.cli import app
from noshadow.model_files import TextColumns, read_texts
from tiny_language_models import VOCABULARY

TRAIN, TEST = chains(40, seed=2), chains(40, seed=3)


def words(tokens):
    return " ".join(f"w{token}" for token in tokens)


@pytest.fixture(scope="module")
def tokenizer():
    tokenizers, transformers = extra("tokenizers"), extra("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.fixture(scope="module")
def place(tmp_path_factory, tokenizer):
    """Folders `base`, `adapters` on it and `merged`; texts as JSON lines, plain lines and a Parquet table of tokens."""
    transformers = extra("transformers")
    folder = tmp_path_factory.mktemp("folders")
    pretrained().save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    tuned = trained(with_lora(transformers.AutoModelForCausalLM.from_pretrained(folder / "base")), TRAIN, epochs=10, rate=1e-2)
    tuned.save_pretrained(folder / "adapters", save_embedding_layers=False)
    config = json.loads((folder / "adapters" / "adapter_config.json").read_text())
    (folder / "adapters" / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "../base"}))
    for name, texts in (("train", TRAIN), ("test", TEST)):
        rows = [{"client": f"c{number}", "text": words(text)} for number, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.txt").write_text("".join(words(text) + "\n" for text in texts))
        pd.DataFrame({"input_ids": texts}).to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def from_python(place, tokenizer):
    transformers, peft = extra("transformers"), extra("peft")
    model = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(place / "base"), place / "adapters")
    return ns.audit(model, TRAIN, TEST, tokenizer=tokenizer, progress=False)


def run(place, out, *options):
    return CliRunner().invoke(
        app, ["audit", "--out", str(out), *(str(place / o) if (place / o).exists() else o for o in options), "--quiet"]
    )


@pytest.mark.parametrize(("kind", "ids"), [("jsonl", ("--id", "client")), ("txt", ()), ("parquet", ())])
def test_adapters_in_a_folder_are_audited_in_one_command(place, from_python, tmp_path, kind, ids):
    ran = run(place, tmp_path / "audit", "--model", "adapters", "--train", f"train.{kind}", "--test", f"test.{kind}", *ids)
    assert ran.exit_code == 0, ran.output
    found = ns.load(tmp_path / "audit")
    assert list(found.records.columns) == list(from_python.records.columns) and found.ranked_by == "influence"
    for name in ("loss", "base_loss", "base_gain", "window_votes", "zlib_ratio", "influence"):
        # Another process's sums in float32.
        np.testing.assert_allclose(found.records[name], from_python.records[name], rtol=1e-4, atol=1e-5)
    assert found.records["id"].iloc[3] == ("c3" if ids else 3)


def test_a_whole_model_takes_its_base_from_a_folder_and_says_so_without(place, from_python, tokenizer, tmp_path):
    transformers, peft = extra("transformers"), extra("peft")
    below = transformers.AutoModelForCausalLM.from_pretrained(place / "base")
    peft.PeftModel.from_pretrained(below, place / "adapters").merge_and_unload().save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    merged = ("--model", str(tmp_path / "merged"), "--train", "train.txt", "--test", "test.txt")
    ran = run(place, tmp_path / "with", *merged, "--base", "base")
    assert ran.exit_code == 0, ran.output
    found = ns.load(tmp_path / "with")
    # Weights that were merged are rounded once more.
    np.testing.assert_allclose(found.records["base_gain"], from_python.records["base_gain"], atol=1e-4)
    assert run(place, tmp_path / "without", *merged).exit_code == 0
    alone = ns.load(tmp_path / "without")
    assert "merged and unloaded leave no trace" in alone.not_applicable["base_gain"]


def test_adapters_that_changed_the_model_below_them_have_it_read_from_its_folder(place, tmp_path):
    """Biases are changed in place, and no switch gives them back; the folder is there."""
    transformers = extra("transformers")
    below = transformers.AutoModelForCausalLM.from_pretrained(place / "base")
    expected = ns.sequence_losses(below, TRAIN, progress=False).loss
    tuned = trained(with_lora(below, bias="all"), TRAIN, epochs=3, rate=1e-2)
    tuned.save_pretrained(tmp_path / "biased", save_embedding_layers=False)
    options = ("--model", str(tmp_path / "biased"), "--base", "base", "--train", "train.txt", "--test", "test.txt")
    ran = run(place, tmp_path / "audit", *options)
    assert ran.exit_code == 0, ran.output
    np.testing.assert_allclose(ns.load(tmp_path / "audit").records["base_loss"], expected, rtol=1e-5)


def test_adapters_in_half_precision_are_read(place, tmp_path):
    safetensors = extra("safetensors.torch")
    half = Path(changed(place, tmp_path / "half")) / "adapter_model.safetensors"
    safetensors.save_file({name: held.bfloat16() for name, held in safetensors.load_file(half).items()}, half, {"format": "pt"})
    options = ("--base", "base", "--train", "train.txt", "--test", "test.txt")
    ran = run(place, tmp_path / "audit", "--model", str(half.parent), *options)
    assert ran.exit_code == 0, ran.output
    assert "base_gain" in ns.load(tmp_path / "audit").records


def test_adapters_with_another_tokenizer_than_their_base_are_refused(place, tokenizer, tmp_path):
    tokenizers, transformers = extra("tokenizers"), extra("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": VOCABULARY - 1 - n for n in range(VOCABULARY)}, unk_token="w0"))
    own = changed(place, tmp_path / "own")
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(own)
    ran = run(place, tmp_path / "out", "--model", own, "--base", "base", "--train", "train.txt", "--test", "test.txt")
    assert "--base must have the audited model's tokenizer; got 22 numbers that name other tokens" in str(ran.exception)
    tokenizer.save_pretrained(own)
    assert run(place, tmp_path / "out", "--model", own, "--base", "base", "--train", "train.txt", "--test", "test.txt").exit_code == 0


def test_answers_of_a_sequence_to_sequence_model_have_a_column(place, tokenizer, tmp_path):
    t5().save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    for name, texts in (("a", TRAIN), ("b", TEST)):
        rows = [{"question": words(text[:5]), "reply": words(text[5:9])} for text in texts[:12]]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--model", str(tmp_path / "t5"), "--train", str(tmp_path / "a.jsonl"), "--test", str(tmp_path / "b.jsonl"))
    ran = run(place, tmp_path / "audit", *options, "--text", "question", "--target", "reply")
    assert ran.exit_code == 0, ran.output
    assert (ns.load(tmp_path / "audit").records["tokens"] == 4).all()
    assert "answers of a sequence-to-sequence model" in str(run(place, tmp_path / "no", *options, "--text", "question").exception)


def changed(place, made, **fields):
    """A copy of the adapters whose adapter_config.json says something else."""
    made.mkdir()
    for file in (place / "adapters").iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    config = json.loads((made / "adapter_config.json").read_text())
    (made / "adapter_config.json").write_text(json.dumps(config | fields))
    return str(made)


def test_folders_and_texts_that_cannot_be_read_are_refused(place, tmp_path):
    transformers = extra("transformers")
    lost = changed(place, tmp_path / "lost", base_model_name_or_path="meta/llama")
    small = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    for kind, name in ((transformers.GPT2LMHeadModel, "narrow"), (transformers.GPT2ForSequenceClassification, "classifier")):
        kind(small).save_pretrained(tmp_path / name)
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text((place / "base" / "config.json").read_text())
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"no weights")
    (tmp_path / "one.txt").write_text("w1 w2\nw3\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "w1"}\nnothing\n')
    (tmp_path / "empty.jsonl").write_text('{"text": "w1 w2"}\n{"text": " "}\n')
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    plain = ("--train", "train.txt", "--test", "test.txt")
    here = str(tmp_path)
    cases = (
        (("--model", lost, *plain), "Nothing is downloaded: pass --base FOLDER"),
        (("--model", lost, "--base", f"{here}/narrow", *plain), "--model must hold adapters that fit"),
        (("--model", f"{here}/classifier", *plain), "of GPT2ForSequenceClassification"),
        (("--model", f"{here}/pickled", *plain), "weights in .safetensors"),
        (("--model", f"{here}/narrow", *plain), "tokenizer.save_pretrained"),
        (("--model", f"{here}/nowhere", *plain), "a file or a folder that exists"),
        (("--model", "adapters", "--train", "train.txt"), "got none for --test"),
        (("--model", "adapters", "--train", f"{here}/one.txt", "--test", "test.txt"), "the first sequence 1 (one token)"),
        (("--model", "adapters", "--train", f"{here}/bad.jsonl", "--test", "test.txt"), "line 2"),
        (("--model", "adapters", "--train", f"{here}/empty.jsonl", "--test", "test.txt"), "row 1 first"),
        (("--model", "adapters", "--train", f"{here}/other.csv", "--test", "test.txt"), "--text COLUMN"),
        (("--model", "adapters", *plain, "--target", "y"), "--target must be left out"),
        (("--model", "adapters", *plain, "--drop", "y"), "--drop must be left out"),
        (("--model", "adapters", *plain, "--text", "body"), "none for --text 'body'"),
        (("--model", "adapters", *plain, "--folds", "3"), "A file cannot be trained again"),
    )
    for options, told in cases:
        ran = run(place, tmp_path / "out", *options)
        assert ran.exit_code != 0 and told in str(ran.exception), (options, ran.output)
        assert not (tmp_path / "out").exists()


def test_adapters_that_have_no_place_in_the_base_are_not_dropped_in_silence(place, tmp_path):
    wrong = changed(place, tmp_path / "wrong", target_modules=["c_fc"])
    ran = run(place, tmp_path / "out", "--model", wrong, "--base", "base", "--train", "train.txt", "--test", "test.txt")
    assert ran.exit_code != 0 and "weights have no place in this base" in str(ran.exception)


def test_what_peft_warns_of_while_it_reads_is_not_shown(place, tmp_path):
    """Adapters of layer norms are read and checked here; peft says of them "proceed at your own risk"."""
    transformers, peft = extra("transformers"), extra("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(place / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = peft.get_peft_model(base, peft.LNTuningConfig(task_type="CAUSAL_LM", target_modules=["ln_1"]))
    trained(tuned, TRAIN, epochs=2, rate=1e-2).save_pretrained(tmp_path / "norms", save_embedding_layers=False)
    how = ("--model", str(tmp_path / "norms"), "--base", "base", "--train", "train.txt", "--test", "test.txt")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run(place, tmp_path / "out", *how).exit_code == 0
    assert not [one for one in told if "at your own risk" in str(one.message)]


def test_a_merged_model_is_told_to_want_its_base(place, tmp_path):
    files = {"--model": "base", "--train": "train.jsonl", "--test": "test.jsonl"}
    options = [part for option, name in files.items() for part in (option, str(place / name))]
    ran = CliRunner().invoke(app, ["audit", "--out", str(tmp_path / "out"), *options])
    assert ran.exit_code == 0, ran.output
    told = " ".join(ran.stdout.split())
    assert "Note: nothing was compared with a base" in told and "merged and unloaded leave no trace: give the model before" in told
    assert "No sign of leakage" not in told and "--base FOLDER" in told


def test_a_page_shows_the_tokens_of_a_folder_and_its_texts(place, tmp_path):
    """After the one-command audit nothing but another function could say what is memorised."""
    how = ("--model", "adapters", "--train", "train.jsonl", "--test", "test.jsonl", "--id", "client")
    assert run(place, tmp_path / "audit", *how).exit_code == 0

    def shown(*options):
        out = tmp_path / "page.html"
        ran = CliRunner().invoke(app, ["report", str(tmp_path / "audit"), "--out", str(out), *map(str, options)])
        return ran, out.read_text(encoding="utf-8") if out.exists() else ""

    ran, page = shown("--show-records", place / "train.jsonl", "--model", place / "adapters", "--id", "client")
    assert ran.exit_code == 0, ran.output
    assert page.count('<p class="gains">') == 20 and "w3" in page  # as many as a page holds without its table
    whole = run(place, tmp_path / "audit", "--model", "base", *how[2:], "--force")
    assert whole.exit_code == 0, whole.output
    ran, _ = shown("--show-records", place / "train.jsonl", "--model", place / "base")
    assert "report: --base must be the model that the fine-tuning started from; got none" in str(ran.exception)
    ran, _ = shown("--show-records", place / "train.jsonl", "--model", place / "train.txt")
    assert "--model must be the folder of the audited language model" in str(ran.exception)


def test_texts_are_what_the_tokenizer_makes_of_them(place, tokenizer):
    found = read_texts(place / "train.jsonl", tokenizer, TextColumns(id="client"), pairs=False, option="--train")
    assert found.sequences == TRAIN and found.ids[:2] == ["c0", "c1"] and found.groups is None


def texts_in(path, rows, tokenizer, **columns):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return read_texts(path, tokenizer, TextColumns(**columns), pairs="answer" in columns, option="--train")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"input_ids": "[1, 2]"}, r"in each row of 'input_ids'; got '\[1, 2\]' in row 1\. Write \.jsonl or \.parquet"),
        ({"input_ids": None}, "got nothing in row 1"),
        ({"client": "c1"}, "got nothing in row 1"),
        ({"input_ids": [1, 2.7]}, "got 2.7 in row 1"),
        ({"input_ids": [1, True]}, "got True in row 1"),
        ({"input_ids": [1, "2"]}, "got 2 in row 1"),
    ],
)
def test_token_ids_are_whole_numbers_or_are_refused(tokenizer, tmp_path, row, told):
    """Others were an error in noshadow itself, or cut to whole numbers in silence."""
    with pytest.raises(ns.InputError, match=told):
        texts_in(tmp_path / "ids.jsonl", [{"input_ids": [1, 2]}, row], tokenizer)


def test_token_ids_in_a_table_of_texts_are_refused(tokenizer, tmp_path):
    path = tmp_path / "ids.csv"
    pd.DataFrame({"input_ids": TRAIN[:3]}).to_csv(path, index=False)
    with pytest.raises(ns.InputError, match=r"--train must hold a list of whole numbers in each row of 'input_ids'; got .* in row 0"):
        read_texts(path, tokenizer, TextColumns(), pairs=False, option="--train")


def test_labels_say_which_tokens_count(place, tokenizer, tmp_path, from_python):
    """An instruction tune is audited on its answers, as from Python."""
    labels = [[-100] * 6 + row[6:] for row in TRAIN]
    rows = [{"input_ids": row, "labels": own} for row, own in zip(TRAIN, labels, strict=True)]
    assert texts_in(tmp_path / "a.jsonl", rows, tokenizer).sequences == rows
    pd.DataFrame({"input_ids": TRAIN, "labels": labels}).to_parquet(tmp_path / "a.parquet")
    for train in ("a.jsonl", "a.parquet"):
        ran = run(place, tmp_path / train.replace(".", "-"), "--model", "adapters", "--train", str(tmp_path / train), "--test", "test.txt")
        assert ran.exit_code == 0, ran.output
        assert (ns.load(tmp_path / train.replace(".", "-")).records["tokens"] == len(TRAIN[0]) - 6).all()
    texts = [{"text": words(row), "labels": own} for row, own in zip(TRAIN, labels, strict=True)]
    with pytest.raises(ns.InputError, match=r"must hold labels of tokens beside input_ids alone; got some beside the texts in 'text'"):
        texts_in(tmp_path / "b.jsonl", texts, tokenizer)
    classes = [{"text": words(row), "labels": 1} for row in TRAIN]  # what a text is about is no label of a token
    assert texts_in(tmp_path / "c.jsonl", classes, tokenizer).sequences == TRAIN


def test_answers_may_be_tokens(tokenizer, tmp_path):
    rows = [{"input_ids": row, "reply": row[:3]} for row in TRAIN]
    assert texts_in(tmp_path / "a.jsonl", rows, tokenizer, answer="reply").sequences == [(row, row[:3]) for row in TRAIN]


def test_lines_and_rows_are_counted_as_they_stand(tokenizer, tmp_path):
    with pytest.raises(ns.InputError, match=r"line 4\b"):
        texts_in(tmp_path / "a.jsonl", ['{"text": "w1"}', "", "", "nothing"], tokenizer)
    with pytest.raises(ns.InputError, match="got 1 row without a text in 'text', row 1 first"):
        texts_in(tmp_path / "b.jsonl", [{"text": "w1"}, {"text": ""}], tokenizer)
