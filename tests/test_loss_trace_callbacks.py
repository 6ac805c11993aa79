"""LossTraces under the real Lightning and transformers: what they record is what a loop by hand gives."""

import copy
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import noshadow as ns
from extras import extra

N, D, CLASSES = 37, 5, 3


def classification_data():
    rng = np.random.default_rng(0)
    return torch.tensor(rng.normal(size=(N, D)), dtype=torch.float32), torch.tensor(rng.integers(0, CLASSES, N))


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def losses_by_hand(model, x, y):
    """Cross-entropies of torch itself, in eval mode on a copy."""
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        return F.cross_entropy(twin(x).double(), y, reduction="none").numpy()


# Lightning's own: torch deprecated a class it uses, and it advises on workers where a machine has many cores.
LIGHTNING_WARNINGS = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


def with_lightning(function):
    for mark in LIGHTNING_WARNINGS:
        function = mark(function)
    return function


def lightning_module(lightning, model, *, with_forward=True):
    class Training(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model
            self.checked = 0

        def training_step(self, batch, _):
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, *_):
            self.checked += 1

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.2)

    if with_forward:
        Training.forward = lambda self, x: self.model(x)
    return Training()


def lightning_trainer(lightning, callback, epochs):
    return lightning.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        callbacks=[callback],
    )


def training_loader(x, y):
    return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(4))


def validation_loader(x, y):
    # Iterating over a loader draws a seed; from a generator of its own, dropout of the training is as in the loop by hand.
    return DataLoader(TensorDataset(x, y), batch_size=16, generator=torch.Generator())


@with_lightning
@pytest.mark.parametrize(
    ("package", "attribute"), [("lightning.pytorch", None), ("lightning.pytorch", "model"), ("pytorch_lightning", None)]
)
def test_lightning_records_what_a_loop_by_hand_gives(package, attribute, monkeypatch):
    lightning = extra(package)
    other = {"lightning.pytorch": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}[package]
    monkeypatch.delitem(sys.modules, other, raising=False)
    x, y = classification_data()
    by_hand = network()
    optimiser = torch.optim.SGD(by_hand.parameters(), lr=0.2)
    loader = training_loader(x, y)
    expected = [losses_by_hand(by_hand, x, y)]
    torch.manual_seed(5)
    for _ in range(3):
        for inputs, labels in loader:
            by_hand.train()
            optimiser.zero_grad()
            F.cross_entropy(by_hand(inputs), labels).backward()
            optimiser.step()
        expected.append(losses_by_hand(by_hand, x, y))

    traces = ns.LossTraces((x, y))
    callback = traces.lightning_callback(module_attribute=attribute)
    assert isinstance(callback, lightning.Callback)
    module = lightning_module(lightning, network(), with_forward=attribute is None)
    torch.manual_seed(5)
    lightning_trainer(lightning, callback, 3).fit(module, training_loader(x, y), validation_loader(x, y))
    assert module.checked > 3 * 3, "validation and the sanity check ran, and added no recordings"
    # The same float32 operations in the same order, dropout included; batches of 256 for the recordings.
    np.testing.assert_allclose(traces.array, np.stack(expected, 1), rtol=1e-5, atol=1e-6)


@with_lightning
def test_a_training_in_two_fits_has_one_column_an_epoch():
    lightning = extra("lightning.pytorch")
    x, y = classification_data()
    traces, module = ns.LossTraces((x, y)), lightning_module(lightning, network())
    for _ in range(2):
        lightning_trainer(lightning, traces.lightning_callback(), 2).fit(module, training_loader(x, y), validation_loader(x, y))
    assert len(traces) == 1 + 2 + 2


@with_lightning
@pytest.mark.parametrize("attribute", [None, "model"])
def test_lightning_keeps_the_state_of_the_lowest_loss_on_unseen_records(attribute, tmp_path):
    lightning = extra("lightning.pytorch")
    x, y = classification_data()
    unseen = x[:20] + 0.3, y[:20].flip(0)
    module = lightning_module(lightning, network())
    path, states = tmp_path / "best.safetensors", []

    class KeepWeights(lightning.Callback):
        def on_train_start(self, _, module):
            states.append(copy.deepcopy((module if attribute is None else module.model).state_dict()))

        on_train_epoch_end = on_train_start

    traces = ns.LossTraces((x, y), test=unseen, checkpoint=path)
    for epochs in (3, 2):  # the second fit resumes with a recorder that holds recordings: no further start
        trainer = lightning_trainer(lightning, traces.lightning_callback(module_attribute=attribute), epochs)
        trainer.callbacks.append(KeepWeights())
        trainer.fit(module, training_loader(x, y), validation_loader(x, y))
    del states[4]  # the start of the second fit
    expected = []
    for state in states:
        twin = copy.deepcopy(module if attribute is None else module.model)
        twin.load_state_dict(state)
        expected.append(losses_by_hand(twin, *unseen))
    # float32 logits in eval mode, batches of 20 here and there.
    np.testing.assert_allclose(traces.test_array, np.stack(expected, 1), rtol=1e-5, atol=1e-6)
    assert traces.best_epoch == np.stack(expected, 1).mean(0).argmin() and len(traces) == 6
    kept = load_file(path)
    assert kept.keys() == states[traces.best_epoch].keys()
    assert all(torch.equal(value, kept[name]) for name, value in states[traces.best_epoch].items())


@with_lightning
def test_a_lightning_module_without_the_attribute_or_a_forward_is_refused():
    lightning = extra("lightning.pytorch")
    x, y = classification_data()
    module = lightning_module(lightning, network(), with_forward=False)
    traces = ns.LossTraces((x, y))
    for attribute, message in (
        ("nett", r"module_attribute must name a sub-module; got 'nett' \(sub-modules: model\)"),
        (None, r"LossTraces.record: model must accept .*; got NotImplementedError"),
    ):
        trainer = lightning_trainer(lightning, traces.lightning_callback(module_attribute=attribute), 1)
        with pytest.raises(ns.InputError, match=message):
            trainer.fit(module, training_loader(x, y), validation_loader(x, y))


def test_lightning_records_on_rank_zero_only_and_refuses_sharded_models():
    extra("lightning.pytorch")
    traces = ns.LossTraces(classification_data())
    callback, model = traces.lightning_callback(), network()
    plain, sharded = type("DDPStrategy", (), {})(), type("FSDPStrategy", (), {})()
    callback.on_train_start(SimpleNamespace(strategy=plain, is_global_zero=False), model)
    callback.on_train_epoch_end(SimpleNamespace(strategy=plain, is_global_zero=False), model)
    assert len(traces) == 0
    callback.on_train_start(SimpleNamespace(strategy=plain, is_global_zero=True), model)
    assert len(traces) == 1
    for zero in (False, True):
        with pytest.raises(ns.InputError, match="lightning_callback: trainer must keep a whole model in each process; got FSDPStrategy"):
            callback.on_train_epoch_end(SimpleNamespace(strategy=sharded, is_global_zero=zero), model)


def tokens(n=20, length=6, labels=3):
    rng = np.random.default_rng(0)
    rows = [
        {
            "input_ids": torch.tensor(rng.integers(1, 30, length)),
            "attention_mask": torch.tensor([1] * 4 + [i % 2] * (length - 4)),
            "labels": i % labels,
        }
        for i in range(n)
    ]
    return rows, {key: torch.stack([row[key] for row in rows]) for key in ("input_ids", "attention_mask")}, torch.arange(n) % labels


def tiny_bert(transformers):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=30,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=8,
                num_labels=3,
            )
        )


def trained_by_transformers(transformers, rows, callback, folder):
    model = tiny_bert(transformers)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=5,
        learning_rate=0.05,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[callback]).train()
    return model


def test_transformers_records_the_losses_of_each_epochs_weights(tmp_path):
    transformers = extra("transformers")
    rows, inputs, labels = tokens()
    kept = []

    class KeepWeights(transformers.TrainerCallback):
        def on_train_begin(self, *_, model, **__):
            kept.append(copy.deepcopy(model.state_dict()))

        on_epoch_end = on_train_begin

    trained_by_transformers(transformers, rows, KeepWeights(), tmp_path)
    traces = ns.LossTraces(rows, batch_size=7)
    model = trained_by_transformers(transformers, rows, traces.transformers_callback(), tmp_path)
    expected = []
    for weights in kept:
        twin = tiny_bert(transformers).eval()
        twin.load_state_dict(weights)
        with torch.no_grad():
            expected.append(F.cross_entropy(twin(**inputs).logits.double(), labels, reduction="none").numpy())
    assert traces.array.shape == (20, 3)
    # The weights of a training without recorder, dropout and shuffling included; float32 logits, other batches.
    np.testing.assert_allclose(traces.array, np.stack(expected, 1), rtol=1e-5, atol=1e-6)
    assert np.abs(np.diff(traces.array, axis=1)).max() > 1e-2
    audited = ns.audit(model, rows, None, batch_size=7, loss_traces=traces, progress=False).records
    np.testing.assert_array_equal(audited["loss"], traces.array[:, 2])
    frame = pd.DataFrame(traces.array)
    # Differences of two quantiles: rounding of float64 only.
    expected = frame.quantile(0.75, axis=1) - frame.quantile(0.25, axis=1)
    np.testing.assert_allclose(audited["lt_iqr"], expected, rtol=1e-12, atol=1e-15)


def test_transformers_keep_the_state_of_the_lowest_loss_on_unseen_records(tmp_path):
    transformers = extra("transformers")
    rows, _, _ = tokens()
    unseen = [row | {"labels": (row["labels"] + number // 5) % 3} for number, row in enumerate(rows)]
    traces = ns.LossTraces(rows, batch_size=7, test=unseen, checkpoint=tmp_path / "best.safetensors")
    trained_by_transformers(transformers, rows, traces.transformers_callback(), tmp_path / "run")
    plain = ns.LossTraces(rows, batch_size=7)
    trained_by_transformers(transformers, rows, plain.transformers_callback(), tmp_path / "run")
    np.testing.assert_array_equal(traces.array, plain.array)  # the training did not notice
    fresh = tiny_bert(transformers)
    fresh.load_state_dict(load_file(tmp_path / "best.safetensors"))
    again = ns.LossTraces(rows, batch_size=7, test=unseen)
    again.record(fresh)
    assert traces.test_array.shape == (20, 3) and len(set(traces.test_array.mean(0))) == 3
    # The same weights in the same batches: to the last digit.
    np.testing.assert_array_equal(again.test_array[:, 0], traces.test_array[:, traces.best_epoch])
    np.testing.assert_array_equal(again.test_array[:, 0].mean(), traces.test_array.T.copy().mean(1).min())


def test_transformers_that_pool_the_logits_of_tokens_are_recorded():
    transformers = extra("transformers")
    rows, inputs, labels = tokens()
    config = transformers.GPT2Config(vocab_size=30, n_positions=8, n_embd=8, n_layer=1, n_head=2, num_labels=3, pad_token_id=0)
    model = transformers.GPT2ForSequenceClassification(config)
    traces = ns.LossTraces(DataLoader(rows, batch_size=3, shuffle=True, collate_fn=transformers.default_data_collator), batch_size=7)
    traces.record(model)
    with torch.no_grad():
        expected = F.cross_entropy(model.eval()(**inputs).logits.double(), labels, reduction="none")
    np.testing.assert_allclose(traces.array[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_transformers_records_on_process_zero_only_and_refuses_sharded_models():
    extra("transformers")
    traces = ns.LossTraces(classification_data())
    callback, model = traces.transformers_callback(), network()
    whole, other = SimpleNamespace(fsdp=None, deepspeed=None), SimpleNamespace(is_world_process_zero=False)
    callback.on_train_begin(whole, other, None, model=model, optimizer=None)
    callback.on_epoch_end(whole, other, None, model=model)
    assert len(traces) == 0
    first = SimpleNamespace(is_world_process_zero=True)
    for _ in range(2):
        callback.on_train_begin(whole, first, None, model=model)
    assert len(traces) == 1
    for sharded, name in (({"fsdp": True, "deepspeed": None}, "FSDP"), ({"fsdp": [], "deepspeed": {"stage": 3}}, "DeepSpeed")):
        with pytest.raises(ns.InputError, match=f"transformers_callback: trainer must keep a whole model in each process; got {name}"):
            callback.on_epoch_end(SimpleNamespace(**sharded), other, None, model=model)


@pytest.mark.parametrize(
    ("method", "missing", "message"),
    [
        (
            "lightning_callback",
            ["lightning.pytorch", "pytorch_lightning"],
            r"lightning must be installed; got .*Run pip install noshadow\[lightning\]",
        ),
        ("transformers_callback", ["transformers"], r"transformers must be installed; got .*Run pip install noshadow\[transformers\]"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(method, missing, message, monkeypatch):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ns.InputError, match=f"^LossTraces.{method}: {message}"):
        getattr(ns.LossTraces(), method)()
