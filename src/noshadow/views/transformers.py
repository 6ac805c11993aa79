"""Read causal language models of transformers: sequence losses, and what the head saw.

Importing this module imports no transformers.
"""

import hashlib
import inspect
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.arguments import BATCH_SIZE, MAX_MEMORY, PROGRESS
from noshadow.checks import Array, NotApplicable, named_in_errors, refuse, require_whole, users_code
from noshadow.progress import tracked
from noshadow.views.causal_lm import is_causal_lm
from noshadow.views.token_features import TokenHead, TokenStore, token_store
from noshadow.views.token_sequences import TokenSequences, Vocabulary, token_sequences
from noshadow.views.token_windows import Window, token_windows, window_batches
from noshadow.views.undisturbed import undisturbed
from noshadow.views.view import Settings

NUMBERS_AT_ONCE = 2**22  # of the float64 copy whose log-softmax is taken
PROBE_TOKENS = 16
# relative: attention sums a longer row in another order, and half-precision models keep three
# digits
SAME_LOGITS = 1e-3


@dataclass(frozen=True, eq=False)
class SequenceLosses:
    """Mean negative log-likelihood of every sequence under a language model.

    Attributes:
        loss: (n,) float64, nats a scored token.
        tokens: (n,) int64, tokens scored: all but the first, padding and those labelled −100.
        windows: (n,) int64, forward passes behind the loss: 1 unless the sequence is longer than
            the context.
        context: tokens a window holds at most; None when the model has no limit and none was given.
        stride: tokens by which windows advance.
        ids: (n,) row numbers in the data set behind Subsets.
        data_sha256: hex digest of all tokens, and of which count, in row order.
        digests: of each sequence.
    """

    loss: Array
    tokens: Array
    windows: Array
    context: int | None
    stride: int | None
    ids: Array
    data_sha256: str
    digests: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.loss)


@named_in_errors
def sequence_losses(
    model: object,
    data: object,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    argument: str = "data",
) -> SequenceLosses:
    """Compute the mean negative log-likelihood per token of every sequence, in nats.

    ℓ_i = −(1/|S_i|) Σ_{t ∈ S_i} log p(x_t | the tokens before it), S_i the tokens of sequence i but
    for the first (nothing predicts it), padding, and those labelled −100. A sequence longer than
    the context C is read in windows of C tokens that advance by the stride s, the last one moved
    back to end with the sequence; each window scores the tokens that none before it has, so that
    every token is scored once and all but the first C see at least C − s tokens before them.

    Args:
        model: a causal language model of transformers, e.g. GPT2LMHeadModel.
        data: a list of token-id sequences, an integer array (n, length), a dict with `input_ids`
            (and `attention_mask`, `labels`), or a map-style Dataset whose items are sequences or
            such dicts. Padding may be on either side; without a mask, the model's pad token at the
            ends is padding. Labels repeat `input_ids` or are −100.
        context: C ≥ 2, at most what the model has; None: what the model has.
        stride: 1 ≤ s < C; None: ⌈C/2⌉.
        batch_size: windows in one forward pass; fewer where their logits would exceed half a
            gigabyte.
        device: where to run; the model returns to its own device afterwards. None: where it is.
        progress: draw a bar on a terminal. argument: named in error messages.

    Returns:
        SequenceLosses with n entries in the data's own order.

    Raises:
        InputError: not a causal language model; sequences that are empty, of one token, not of the
            vocabulary or masked in between; a loss that is not finite (how many, and the first
            sequence).

    Exact when: always to rounding; log-probabilities are summed in float64 from the model's own
        logits.
    Cost: one forward pass over the tokens, about C/s as many for long sequences; memory of one
        batch of logits.
    Reference: [TAIL] §5.3.

    Example:
        >>> sequence_losses("gpt2", [[1, 2, 3]])
        Traceback (most recent call last):
        noshadow.errors.InputError: sequence_losses: model must be a causal language model of transformers; got an object of type str.
    """  # noqa: W505 - doctest compares the message on one line
    settings = Settings(batch_size=batch_size, device=device, progress=progress)
    return _read(model, data, context, stride, settings, argument, max_memory=None)[0]


def sequence_features(
    model: object,
    data: object,
    *,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    argument: str = "data",
    max_memory: float = MAX_MEMORY,
) -> tuple[SequenceLosses, TokenHead | NotApplicable]:
    """Read the losses of every sequence and the output head in one pass.

    The head comes with its inputs where each scored token was predicted.

    Args:
        model, data, batch_size, device, progress, argument: as in `sequence_losses`.
        max_memory: bytes the head's inputs may take.

    Returns:
        (SequenceLosses, TokenHead), or in place of the second why the head could not be read: the
        model names none, it is no Linear, the logits are not its output, or its inputs would take
        too much memory. The losses are there all the same.

    Raises:
        InputError: as in `sequence_losses`.

    Cost: that of `sequence_losses`, and the memory of tokens × features.
    """
    settings = Settings(batch_size=batch_size, device=device, progress=progress)
    return _read(model, data, None, None, settings, argument, max_memory=max_memory)


def _read(
    model: object, data: object, context: int | None, stride: int | None, settings: Settings, argument: str, *, max_memory: float | None
) -> tuple[SequenceLosses, TokenHead | NotApplicable]:
    """Read losses and, with `max_memory`, features.

    Windows are the same whether or not features are kept.
    """
    if not is_causal_lm(model):
        refuse("model", "be a causal language model of transformers", f"an object of type {type(model).__name__}")
    assert isinstance(model, nn.Module)
    length, step = _window_rule(model, context, stride)
    vocabulary = _vocabulary(model)
    sequences = token_sequences(data, vocabulary, argument)
    windows = token_windows(sequences, length, step)
    store = NotApplicable("not asked for") if max_memory is None else token_store(model, sequences, max_memory)
    with undisturbed(model, settings) as where:
        _require_causal(model, sequences, vocabulary, where)
        sums = _summed_losses(model, sequences, windows, vocabulary, where, settings, argument, store)
    tokens = np.array([int(count.sum()) for count in sequences.counts])
    losses = sums / tokens
    _require_finite_losses(losses, argument)
    digests = sequences.digests()
    found = SequenceLosses(
        loss=losses,
        tokens=tokens,
        windows=np.bincount([window.sequence for window in windows], minlength=len(losses)),
        context=length,
        stride=step,
        ids=np.arange(len(losses)) if sequences.rows is None else sequences.rows,
        data_sha256=hashlib.sha256(b"".join(digests)).hexdigest(),
        digests=tuple(digests),
    )
    return found, store.found() if isinstance(store, TokenStore) else store


def _window_rule(model: Any, context: int | None, stride: int | None) -> tuple[int | None, int | None]:
    held = getattr(_text_config(model), "max_position_embeddings", None)
    limit = held if isinstance(held, int) and held > 1 else None
    length = limit if context is None else require_whole(context, "context", low=2)
    if limit is not None and length is not None and length > limit:
        refuse("context", f"be at most the model's {limit} tokens", length)
    if stride is None:
        return length, None if length is None else -(-length // 2)
    step = require_whole(stride, "stride", low=1)
    if length is None or step >= length:
        refuse("stride", "be less than the context", f"{step} with a context of {length}")
    return length, step


def _require_finite_losses(losses: Array, argument: str) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        got = f"{int(bad.sum())} NaN or infinite among those of {len(losses)} sequences of {argument}, the first at sequence {bad.argmax()}"
        refuse("model", "give finite losses", got, "Are its weights finite?")


def _text_config(model: Any) -> Any:
    """The part of the configuration that speaks of text, in models that also see or hear."""
    return model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config


def _vocabulary(model: Any) -> Vocabulary:
    config = _text_config(model)
    pad = getattr(config, "pad_token_id", None)
    ends = [getattr(config, name, None) for name in ("eos_token_id", "bos_token_id")]
    text = {token for end in ends if end is not None for token in (end if isinstance(end, (list, tuple)) else (end,))}
    # Padded embeddings may hold rows that the head does not: such a token could be read, not
    # predicted.
    head = getattr(model.get_output_embeddings(), "weight", None)
    size = min(len(weight) for weight in (model.get_input_embeddings().weight, head) if weight is not None)
    return Vocabulary(size, pad if isinstance(pad, int) and 0 <= pad < size else None, pad in text)


def _require_causal(model: Any, sequences: TokenSequences, vocabulary: Vocabulary, device: torch.device) -> None:
    """Refuse a model that is not causal.

    Another last token must leave the logits before it as they are; BERT-like models without
    is_decoder fail this.
    """
    ids = torch.from_numpy(max(sequences.tokens, key=len)[:PROBE_TOKENS].copy())
    other = ids.clone()
    other[-1] = (other[-1] + 1) % vocabulary.size
    before, after = (_logits(model, [row], device)[0, :-1].float() for row in (ids, other))
    if vocabulary.size < 2 or not bool(torch.isfinite(before).all()):
        return  # not finite: the losses will be refused with their numbers
    if float((before - after).abs().max()) > SAME_LOGITS * float(before.abs().max()):
        got = f"a {type(model).__name__} whose predictions depend on later tokens"
        refuse("model", "predict each token from those before it", got, "Set is_decoder=True in its configuration?")


def _summed_losses(
    model: Any,
    sequences: TokenSequences,
    windows: Sequence[Window],
    vocabulary: Vocabulary,
    device: torch.device,
    settings: Settings,
    argument: str,
    store: TokenStore | NotApplicable,
) -> Array:
    """Sum −log p over the scored tokens of each sequence, (n,).

    What the head saw there goes into the store.
    """
    sums = np.zeros(len(sequences))
    batches = list(window_batches(windows, settings.batch_size, vocabulary.size))
    kept = store if isinstance(store, TokenStore) else None
    hooked = nullcontext() if kept is None else kept.listening()
    with hooked, closing(tracked(batches, f"Reading {argument}", show=settings.progress)) as steps:  # type: ignore[type-var]
        for batch in steps:
            rows = [torch.from_numpy(sequences.tokens[w.sequence][w.start : w.stop].copy()) for w in batch]
            logits = _logits(model, rows, device)
            for number, (window, ids, row) in enumerate(zip(batch, rows, logits, strict=True)):
                counts = torch.from_numpy(sequences.counts[window.sequence][window.first : window.stop].copy())
                places = window.first - window.start + torch.nonzero(counts)[:, 0]
                sums[window.sequence] += _negative_log_likelihood(row, places, ids)
                if kept is not None:
                    kept.keep(number, window.sequence, window.start, places, ids, row)
    return sums


def _logits(model: Any, rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """(b, longest, vocabulary), rows padded on the right, where no token sees the padding."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    # A cache of keys and values is of no use here and can be larger than the logits.
    cache = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    with users_code("model must run on token ids and their attention mask"):
        logits: Tensor = model(input_ids=ids.to(device), attention_mask=mask.to(device), **cache).logits
    if logits.shape[:2] != ids.shape:
        refuse("model", "give one row of logits a token", f"shape {tuple(logits.shape)} for {tuple(ids.shape)} tokens")
    return logits


def _negative_log_likelihood(logits: Tensor, places: Tensor, ids: Tensor) -> float:
    """Σ −log p of the tokens at `places`, each from the logits one place before it."""
    # Apple's GPUs have no float64
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    total = 0.0
    for part in torch.split(places, max(NUMBERS_AT_ONCE // logits.shape[1], 1)):
        values = logits[(part - 1).to(logits.device)].to(wide)
        own = values.gather(1, ids[part].to(logits.device)[:, None])[:, 0]
        total += float((values.logsumexp(1) - own).sum())
    return total
