"""One forward pass of a language model over windows of tokens, and what a model says of itself."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import Array, refuse, require_whole, users_code
from noshadow.views.few_bits import has_packed_layers
from noshadow.views.token_sequences import TokenSequences, Vocabulary
from noshadow.views.token_windows import Window

PROBE_TOKENS = 16
# relative: attention sums a longer row in another order, and half-precision models keep three
# digits
SAME_LOGITS = 1e-3
# where activations are rounded by a scale that all tokens share, which the last one may set
ROUNDED_LOGITS = 0.03


def context_of(model: Any) -> int | None:
    """How many tokens a model reads at most; None where it sets no limit."""
    held = getattr(_text_config(model), "max_position_embeddings", None)
    return held if isinstance(held, int) and held > 1 else None


def window_rule(model: Any, context: int | None, stride: int | None) -> tuple[int | None, int | None]:
    """Length of windows and the step between them, as asked for or by what the model holds."""
    limit = context_of(model)
    length = limit if context is None else require_whole(context, "context", low=2)
    if limit is not None and length is not None and length > limit:
        refuse("context", f"be at most the model's {limit} tokens", length)
    if stride is None:
        return length, None if length is None else -(-length // 2)
    step = require_whole(stride, "stride", low=1)
    if length is None or step >= length:
        refuse("stride", "be less than the context", f"{step} with a context of {length}")
    return length, step


def require_within_context(sequences: TokenSequences, model: Any, argument: str) -> None:
    """Refuse texts and answers beyond the positions of a sequence-to-sequence model.

    An answer depends on the whole of its text, so that windows would change both.
    """
    limit = context_of(model)
    for what, parts, more in (("text", sequences.sources or (), 0), ("answer", sequences.tokens, 1)):
        lengths = np.array([len(part) - more for part in parts])
        if limit is not None and len(lengths) and lengths.max() > limit:
            got = f"{lengths.max()} in record {lengths.argmax()}"
            refuse(argument, f"hold no {what} of more than the model's {limit} tokens", got, "Cut it as the training did.")


def vocabulary_of(model: Any) -> Vocabulary:
    """What a model says about its tokens."""
    config = _text_config(model)
    pad = getattr(config, "pad_token_id", None)
    ends = [getattr(config, name, None) for name in ("eos_token_id", "bos_token_id")]
    text = {token for end in ends if end is not None for token in (end if isinstance(end, (list, tuple)) else (end,))}
    # Padded embeddings may hold rows that the head does not: such a token could be read, not
    # predicted.
    held = (_rows_of(layer) for layer in (model.get_input_embeddings(), model.get_output_embeddings()))
    size = min(rows for rows in held if rows is not None)
    return Vocabulary(size, pad if isinstance(pad, int) and 0 <= pad < size else None, pad in text)


def _rows_of(layer: Any) -> int | None:
    """Rows of a layer's weight, which layers in few bits unpack when they are asked for it."""
    weight = getattr(layer, "weight", None)
    held = weight() if callable(weight) else weight
    return None if held is None else len(held)


def require_causal(model: Any, sequences: TokenSequences, vocabulary: Vocabulary, device: torch.device) -> None:
    """Refuse a model that is not causal.

    Another last token must leave the logits before it as they are; BERT-like models without
    is_decoder fail this.
    """
    longest = max(range(len(sequences)), key=lambda number: len(sequences.tokens[number]))
    ids = torch.from_numpy(sequences.tokens[longest][:PROBE_TOKENS].copy())
    other = ids.clone()
    other[-1] = (other[-1] + 1) % vocabulary.size
    source = None if sequences.sources is None else [sequences.sources[longest]]
    before, after = (window_logits(model, [row], source, device)[0, : len(ids) - 1].float() for row in (ids, other))
    if vocabulary.size < 2 or not bool(torch.isfinite(before).all()):
        return  # not finite: the losses will be refused with their numbers
    tolerated = ROUNDED_LOGITS if has_packed_layers(model) else SAME_LOGITS
    if float((before - after).abs().max()) > tolerated * float(before.abs().max()):
        got = f"a {type(model).__name__} whose predictions depend on later tokens"
        refuse("model", "predict each token from those before it", got, "Set is_decoder=True in its configuration?")


def windows_read(
    model: Any, sequences: TokenSequences, windows: Sequence[Window], device: torch.device
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each window its token ids, the places in it that are scored, and its logits: one pass.

    Row t of the logits (longest, vocabulary) is what the model expects at place t + 1.
    """
    rows = [torch.from_numpy(sequences.tokens[w.sequence][w.start : w.stop].copy()) for w in windows]
    scored = [torch.from_numpy(sequences.counts[w.sequence][w.first : w.stop].copy()) for w in windows]
    places = [w.first - w.start + torch.nonzero(counts)[:, 0] for w, counts in zip(windows, scored, strict=True)]
    sources = None if sequences.sources is None else [sequences.sources[w.sequence] for w in windows]
    # Nobody reads the last token of an answer, and a decoder may have no place for it.
    logits = window_logits(model, rows if sources is None else [row[:-1] for row in rows], sources, device)
    return list(zip(rows, places, logits, strict=True))


def window_logits(model: Any, rows: Sequence[Tensor], sources: Sequence[Array] | None, device: torch.device) -> Tensor:
    """(b, longest, vocabulary), rows padded on the right, where no token sees the padding.

    With sources, rows are what a decoder reads while the encoder reads its source.
    """
    ids, mask = _padded(rows)
    # A cache of keys and values is of no use here and can be larger than the logits.
    given: dict[str, Any] = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    if sources is None:
        given |= {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
    else:
        texts, shown = _padded([torch.from_numpy(source) for source in sources])
        given |= {"input_ids": texts.to(device), "attention_mask": shown.to(device), "decoder_input_ids": ids.to(device)}
    with users_code("model must run on token ids and their attention mask"):
        logits: Tensor = model(**given).logits
    if logits.shape[:2] != ids.shape:
        refuse("model", "give one row of logits a token", f"shape {tuple(logits.shape)} for {tuple(ids.shape)} tokens")
    return logits


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    ids = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


def _text_config(model: Any) -> Any:
    """The part of the configuration that speaks of text, in models that also see or hear."""
    return model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
