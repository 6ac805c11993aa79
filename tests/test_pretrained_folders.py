"""Folders of models that say one thing and hold another: each is refused in one sentence before its weights are used."""

import json

import pytest
import torch

import noshadow as ns
from extras import extra
from language_base_models import chains, with_lora
from noshadow.storage.pretrained_folders import pretrained
from noshadow.storage.sharded_weights import weights_of_folder
from tiny_language_models import gpt2

INDEX = "model.safetensors.index.json"
ROWS = chains(4, seed=1)


def changed(folder, file, change):
    """Change the tensors of one file."""
    safetensors = extra("safetensors.torch")
    safetensors.save_file(change(safetensors.load_file(folder / file)), folder / file, {"format": "pt"})


def configured(folder, **fields):
    held = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(held | fields))


@pytest.fixture
def folder(tmp_path):
    gpt2().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def parts(tmp_path):
    gpt2().save_pretrained(tmp_path / "parts", max_shard_size="4KB")
    return tmp_path / "parts"


def refused(folder, words):
    with pytest.raises(ValueError, match=words):
        pretrained(folder, "AutoModelForCausalLM")
    with pytest.raises(ns.InputError, match=f"base must be a folder of a language model; got .*{words}"):
        ns.audit(gpt2(seed=1), ROWS, ROWS, base=folder, progress=False)


def test_a_tensor_in_two_files_is_refused(parts):
    """Readers take the last: the base would be another one than its index says."""
    index = json.loads((parts / INDEX).read_text())["weight_map"]
    files = sorted(set(index.values()))
    name = next(name for name, file in index.items() if file == files[0])
    held = gpt2(seed=5).state_dict()[name].clone()
    changed(parts, files[-1], lambda tensors: tensors | {name: held})
    refused(parts, f"{files[-1]} holds {name}, which {INDEX} does not place there")
    with pytest.raises(ValueError, match="does not place there"):
        weights_of_folder(parts)


def test_an_index_without_metadata_is_refused(parts):
    index = json.loads((parts / INDEX).read_text())
    (parts / INDEX).write_text(json.dumps({"weight_map": index["weight_map"]}))
    refused(parts, f"{INDEX} without metadata")


def test_weights_under_a_name_from_the_configuration_are_refused(folder, tmp_path):
    """transformers follows it to another index, and from there to any file, pickles among them."""
    torch.save(gpt2(seed=5).state_dict(), tmp_path / "away.bin")
    places = dict.fromkeys(gpt2().state_dict(), "../away.bin")
    (folder / "other.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    configured(folder, transformers_weights="other.safetensors.index.json")
    refused(folder, "config.json names other files of weights")


def test_adapters_beside_a_whole_model_are_refused(folder):
    """transformers would switch them on, and the base would be another fine-tune."""
    with_lora(gpt2()).save_pretrained(folder, save_embedding_layers=False)
    refused(folder, "it holds a whole model and adapters")


def test_pieces_of_a_distributed_training_are_refused(folder):
    (folder / "shard-00001-model-00001-of-00001.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    refused(folder, "pieces of a distributed training")


def test_a_folder_whose_weights_have_another_name_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    refused(folder, f"it holds neither model.safetensors nor {INDEX}")


def test_weights_of_other_shapes_than_the_configuration_says_are_named(folder):
    configured(folder, n_positions=8)
    refused(folder, "1 weights have other shapes than config.json says: transformer.wpe.weight")


def test_rounded_weights_without_their_scale_are_refused(folder, tmp_path):
    """8-bit weights whose quantization_config is gone would be taken by their value."""
    model, name = gpt2(seed=1), "transformer.h.0.mlp.c_fc.weight"
    changed(folder, "model.safetensors", lambda tensors: tensors | {name: (tensors[name] * 100).to(torch.int8)})
    refused(folder, f"1 weights are whole numbers and config.json has no quantization_config: {name}")
    with pytest.raises(ns.InputError, match=rf"base must have the parameters of the audited model; got weights with {name} of torch.int8"):
        ns.audit(model, ROWS, ROWS, base=folder / "model.safetensors", progress=False)


@pytest.mark.parametrize("tied", [True, False])
def test_a_file_holds_tied_weights_once(folder, tied):
    """save_pretrained leaves lm_head.weight out where it is the embedding: the file is whole all the same."""
    base, model = gpt2(), gpt2(seed=1)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        with pytest.raises(ns.InputError, match=r"got weights without lm_head.weight"):
            ns.audit(model, ROWS, ROWS, base=folder / "model.safetensors", progress=False)
        return
    found = ns.audit(model, ROWS, ROWS, base=folder / "model.safetensors", progress=False)
    assert found.records["base_loss"].tolist() == ns.sequence_losses(base, ROWS, progress=False).loss.tolist()
