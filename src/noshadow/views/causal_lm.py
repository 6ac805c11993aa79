"""Family: causal language models of transformers. Importing this imports no transformers."""

import sys

from noshadow.checks import NotApplicable
from noshadow.views.adapters import model_inside
from noshadow.views.reader import NETWORK, Reader
from noshadow.views.torch import weights_sha256

NO_ROWS = NotApplicable("Its losses are those of sequence_losses, and audit takes it as it is.")


def is_causal_lm(model: object) -> bool:
    """Tell whether this is one of the causal language models of transformers.

    Adapters of PEFT are looked through. Such a model can only exist once transformers has been
    imported.
    """
    names = model_names("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
    lineage = pretrained_lineage(model)
    return bool(lineage & names) or any(name.endswith("ForCausalLM") for name in lineage)


def pretrained_lineage(model: object) -> set[str]:
    """Names of the classes of a model of transformers, adapters looked through; else none."""
    base = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", None)
    inside = model_inside(model)
    return {cls.__name__ for cls in type(inside).__mro__} if base is not None and isinstance(inside, base) else set()


def model_names(mapping: str) -> set[str]:
    """Names of the classes that one of the mappings of transformers lists."""
    known = getattr(sys.modules.get("transformers.models.auto.modeling_auto"), mapping, {})
    return {name for value in known.values() for name in ((value,) if isinstance(value, str) else value)}


CAUSAL_LM = Reader(
    name="language model",
    form="sequences",
    reads=is_causal_lm,
    family=lambda _: NETWORK,
    view=NO_ROWS,
    signals=NO_ROWS,
    outputs=NO_ROWS,
    weights_sha256=lambda model, _: weights_sha256(model),
)
