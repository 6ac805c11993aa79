"""Family: causal language models of transformers. Importing this imports no transformers."""

import sys

from noshadow.checks import NotApplicable
from noshadow.views.reader import NETWORK, Reader
from noshadow.views.torch import weights_sha256

NO_ROWS = NotApplicable("Its losses are those of sequence_losses, and audit takes it as it is.")


def is_causal_lm(model: object) -> bool:
    """Tell whether this is one of the causal language models of transformers.

    Such a model can only exist once transformers has been imported.
    """
    base = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", None)
    known = getattr(sys.modules.get("transformers.models.auto.modeling_auto"), "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", {})
    if base is None or not isinstance(model, base):
        return False
    names = {name for value in known.values() for name in ((value,) if isinstance(value, str) else value)}
    lineage = {cls.__name__ for cls in type(model).__mro__}
    return bool(lineage & names) or any(name.endswith("ForCausalLM") for name in lineage)


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
