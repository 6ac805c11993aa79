"""Adapters of PEFT inside a model: which are on, and the same model with all of them off.

Importing this module imports no peft: such a model can only exist once peft has been imported.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from noshadow.checks import refuse

# Where peft keeps the classes that its adapters are made of, in the versions that are supported.
_LAYERS = (("peft.tuners.tuners_utils", "BaseTunerLayer"),)
_WRAPPERS = (("peft.utils.other", "AuxiliaryTrainingWrapper"), ("peft.utils.other", "ModulesToSaveWrapper"))
MERGED = "its adapters are merged into its weights"
# Ways of peft to begin adapters that leave the weights below without what the adapters hold.
TAKEN_OUT = ("pissa", "olora", "corda", "lora_ga", "loftq")


@dataclass(frozen=True)
class Adapters:
    """What a model's adapters are.

    Attributes:
        names: of all adapters. active: of those that are on.
        lost: why the model with its adapters off is not its base; "" where it is.
    """

    names: tuple[str, ...]
    active: tuple[str, ...]
    lost: str


def model_inside(model: object) -> object:
    """The model of transformers inside a PeftModel, with its adapters in place; else the model."""
    wrapped = _peft_model(model)
    inside: object = model if wrapped is None else wrapped.get_base_model()
    return inside


def require_adapters_in_layers(model: object, argument: str) -> None:
    """Refuse a PeftModel whose prompts were learnt: they stand outside of the model that is read.

    Raises:
        InputError: the active adapters are prompts.
    """
    wrapped = _peft_model(model)
    for name in () if wrapped is None else _listed(wrapped.active_adapters):
        config = wrapped.peft_config[name]
        if config.is_prompt_learning or getattr(config, "is_adaption_prompt", False):
            got = f"learnt prompts ({getattr(config.peft_type, 'value', config.peft_type)})"
            refuse(argument, "carry what it learnt in its layers", got, "Adapters such as LoRA are read.")


def adapters_of(model: object) -> Adapters | None:
    """The adapters in a model's layers; None for a model without any."""
    if not isinstance(model, nn.Module):
        return None
    layers = _layers(model)
    if not layers:
        return None
    names = sorted({name for layer in layers for name in _held(layer)})
    active = sorted({name for layer in layers if not layer.disable_adapters for name in _listed(layer.active_adapters)})
    return Adapters(tuple(names), tuple(active), _lost(model, layers, names, active))


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Switch all adapters off while the block runs; afterwards everything is as it was.

    peft switches the gradients of adapters off and on with them, so these flags are put back, too.
    """
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    switched: list[Any] = [part for part in (*_layers(model), *_wrappers(model)) if not part.disable_adapters]
    try:
        for part in switched:
            part.enable_adapters(False)
        yield
    finally:
        for part in switched:
            part.enable_adapters(True)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


class AdaptersOff(nn.Module):
    """A model as it answers with its adapters switched off; no second copy of its weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model without its adapters, and put them back."""
        with without_adapters(self.model):
            return self.model(*args, **kwargs)


def trained_beside(model: nn.Module) -> str:
    """The first module that was trained whole beside the adapters, such as a head; "" for none.

    With the adapters off it is what it was before training, or what training made of it: in
    neither case the model is then one that somebody used.
    """
    wrappers, adapted = set(_wrappers(model)), {id(p) for layer in _layers(model) for p in layer.parameters()}
    whole = next((name for name, module in model.named_modules() if module in wrappers), "")
    free = (name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in adapted)
    return whole or next((name.rpartition(".")[0] for name in free), "")


def _peft_model(model: object) -> Any:
    kind = _known("peft.peft_model", "PeftModel")
    return model if kind is not None and isinstance(model, kind) else None


def _lost(model: Any, layers: list[Any], held: list[str], active: list[str]) -> str:
    if any(layer.merged for layer in layers):
        return MERGED
    configs = getattr(model, "peft_config", None)
    configs = configs if isinstance(configs, Mapping) else {}
    trained = {str(getattr(configs.get(name), "bias", "none")) for name in active} - {"none"}
    if trained:
        return f"its adapters were trained together with biases ('{sorted(trained)[0]}'), which were changed in place"
    starts = (str(getattr(configs.get(name), "init_lora_weights", "")).lower() for name in held)
    taken = next((start for start in starts if start.startswith(TAKEN_OUT)), None)
    return "" if taken is None else f"its adapters began ('{taken}') with a part of the weights below them, which was taken out of these"


def _layers(model: nn.Module) -> list[Any]:
    return _parts(model, _LAYERS)


def _wrappers(model: nn.Module) -> list[Any]:
    """Modules that are kept whole beside adapters, and tokens that are trained by themselves."""
    return _parts(model, _WRAPPERS)


def _parts(model: nn.Module, places: tuple[tuple[str, str], ...]) -> list[Any]:
    kinds = tuple(kind for kind in (_known(*place) for place in places) if kind is not None)
    return [module for module in model.modules() if isinstance(module, kinds)] if kinds else []


def _held(layer: Any) -> set[str]:
    return {str(name) for kind in layer.adapter_layer_names for name in getattr(layer, kind, {})}


def _listed(names: Any) -> tuple[str, ...]:
    found = names() if callable(names) else names
    return (found,) if isinstance(found, str) else tuple(found)


def _known(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None
