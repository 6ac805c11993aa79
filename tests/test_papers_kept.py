"""benchmarks/papers/kept.py: a set of reference models goes through small files and is trained further."""

import functools
import json

import numpy as np
import pytest
import torch
from benchmarks.papers import networks
from benchmarks.papers.kept import keep, restore
from torch import nn

from noshadow.reference import Recipe, load_references, train_references

RECORDS, MODELS, TARGETS = 60, 12, 2


@pytest.fixture(scope="module")
def recipe():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(RECORDS, 5)), rng.integers(0, 3, RECORDS)
    return Recipe(functools.partial(nn.Linear, 5, 3), x, y, epochs=4, batch_size=8, lr=0.1)


def columns(model, indices, seed):
    """Two columns over the members: one with ties."""
    return {"first": np.sin(np.arange(len(indices)) * seed), "tied": np.arange(len(indices)) // 3}


def trained(recipe, folder, module):
    half = RECORDS // 2
    x, y = recipe.x.numpy(), recipe.y.numpy()
    given = {"models": MODELS, "engine": "one-by-one", "keep_outputs": False, "extra": columns, "extra_models": TARGETS}
    return train_references(
        folder / "references", recipe, (x[:half], y[:half]), (x[half:], y[half:]), model=module, progress=False, workers=1, **given
    )


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    module = recipe(np.arange(RECORDS // 2), 7)
    return module, folder, trained(recipe, folder, module)


def test_margins_come_back_to_half_precision_and_columns_in_their_order(whole, tmp_path):
    _, folder, references = whole
    assert keep(folder, tmp_path / "kept") == list(range(MODELS))
    again = load_references(restore(tmp_path / "kept", tmp_path / "again"))
    np.testing.assert_array_equal(np.asarray(again.membership), np.asarray(references.membership))
    np.testing.assert_array_equal(again.plan.seeds, references.plan.seeds)
    np.testing.assert_array_equal(again.ids, references.ids)
    # Half precision has eleven binary digits.
    np.testing.assert_allclose(again.statistic, references.statistic, rtol=2**-11, atol=1e-7)
    np.testing.assert_allclose(again.loss, references.loss, rtol=0.01, atol=1e-3)
    np.testing.assert_array_equal(again.correct, references.correct)
    np.testing.assert_allclose(again.target.statistic, references.target.statistic, rtol=2**-11, atol=1e-7)
    for target in range(TARGETS):
        for name, values in references.extra(target).items():
            order, held = np.argsort(values, kind="stable"), np.asarray(again.extra(target)[name])
            np.testing.assert_array_equal(np.argsort(held, kind="stable"), order)
            # Ties stay ties, and nothing else is one.
            np.testing.assert_array_equal(np.diff(held[order]) == 0, np.diff(np.asarray(values)[order]) == 0)


def test_what_is_missing_is_trained_and_nothing_else(whole, recipe, tmp_path):
    module, folder, references = whole
    kept = tmp_path / "kept"
    keep(folder, kept)
    for number in (3, 6):
        (kept / "models" / f"{number:05d}.npz").unlink()
    restored = restore(kept, tmp_path / "again") / "models"
    before = {path.name: path.stat().st_mtime_ns for path in restored.iterdir()}
    assert set(before) == {f"{number:05d}.safetensors" for number in range(MODELS)} - {"00003.safetensors", "00006.safetensors"}
    again = trained(recipe, tmp_path / "again", module)
    assert before == {path.name: path.stat().st_mtime_ns for path in restored.iterdir() if path.name in before}
    np.testing.assert_array_equal(again.statistic[3], references.statistic[3])
    assert keep(tmp_path / "again", kept) == list(range(MODELS))


def test_the_first_models_are_a_set_of_their_own(whole, tmp_path):
    _, folder, references = whole
    keep(folder, tmp_path / "kept")
    half = load_references(restore(tmp_path / "kept", tmp_path / "half", MODELS // 2))
    assert half.plan.models == MODELS // 2
    np.testing.assert_array_equal(np.asarray(half.membership), np.asarray(references.membership)[: MODELS // 2])
    # The plan is balanced within each half of the models.
    assert set(np.asarray(half.membership).sum(0)) == {MODELS // 4}
    np.testing.assert_allclose(half.statistic, references.statistic[: MODELS // 2], rtol=2**-11, atol=1e-7)
    assert json.loads((half.folder / "plan.json").read_text())["plan"]["models"] == MODELS // 2


def test_training_in_half_precision_is_the_same_network_in_eval_mode():
    torch.manual_seed(0)
    plain = networks.convolutional(3, (4, 8), 16, 5, side=8)
    torch.manual_seed(0)
    half = networks.convolutional(3, (4, 8), 16, 5, side=8, half=True)
    x = torch.randn(6, 3, 8, 8)
    torch.testing.assert_close(half.eval()(x), plain.eval()(x), rtol=0, atol=0)
    trained, exact = half.train()(x), plain(x)
    assert trained.dtype == torch.float32
    # bfloat16 has eight binary digits: close, and not the same.
    torch.testing.assert_close(trained, exact, rtol=0.1, atol=0.05)
    assert not torch.equal(trained, exact)
