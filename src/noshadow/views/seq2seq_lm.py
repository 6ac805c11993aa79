"""Family: sequence-to-sequence models of transformers that read and write text."""

from typing import Any

from noshadow.views.adapters import model_inside
from noshadow.views.causal_lm import NO_ROWS, is_causal_lm, model_names, pretrained_lineage
from noshadow.views.reader import NETWORK, Reader
from noshadow.views.torch import weights_sha256


def is_seq2seq_lm(model: object) -> bool:
    """Tell whether this is a sequence-to-sequence model of transformers, or such with adapters.

    It is one that encodes token ids and predicts the tokens of an answer one by one: T5, BART.
    """
    lineage = pretrained_lineage(model)
    if not lineage or is_causal_lm(model):
        return False
    inside: Any = model_inside(model)
    reads_text = bool(inside.config.is_encoder_decoder) and inside.main_input_name == "input_ids"
    return reads_text and bool(lineage & model_names("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"))


def is_language_model(model: object) -> bool:
    """Tell whether a model is audited by the losses of its sequences."""
    return is_causal_lm(model) or is_seq2seq_lm(model)


SEQ2SEQ_LM = Reader(
    name="sequence-to-sequence model",
    form="sequences",
    reads=is_seq2seq_lm,
    family=lambda _: NETWORK,
    view=NO_ROWS,
    signals=NO_ROWS,
    outputs=NO_ROWS,
    weights_sha256=lambda model, _: weights_sha256(model),
)
