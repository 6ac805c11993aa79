"""Read language models of transformers: sequence losses, what the head saw, what tokens were told.

Importing this module imports no transformers.
"""

import hashlib
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from noshadow.arguments import BATCH_SIZE, MAX_MEMORY, PROGRESS
from noshadow.checks import Array, NotApplicable, named_in_errors, refuse
from noshadow.progress import tracked
from noshadow.views.adapters import model_inside, require_adapters_in_layers, without_adapters
from noshadow.views.causal_lm import is_causal_lm
from noshadow.views.seq2seq_lm import is_language_model
from noshadow.views.token_features import TokenHead, TokenStore, token_store
from noshadow.views.token_logits import require_causal, require_within_context, vocabulary_of, window_rule, windows_read
from noshadow.views.token_pairs import decoder_shift, known_pairs, token_pairs
from noshadow.views.token_sequences import TokenSequences, Vocabulary, known_sequences, token_sequences
from noshadow.views.token_statistics import StatisticsStore, TokenStatistics, negative_log_likelihood, statistics_store
from noshadow.views.token_windows import Window, token_windows, window_batches
from noshadow.views.undisturbed import undisturbed
from noshadow.views.view import Settings


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
        statistics: what the model says of each scored token, where asked for.
        sequences: what was read, without padding, where statistics were asked for; another model
            reads the very same when it is given as `data`.
    """

    loss: Array
    tokens: Array
    windows: Array
    context: int | None
    stride: int | None
    ids: Array
    data_sha256: str
    digests: tuple[bytes, ...]
    statistics: TokenStatistics | None = None
    sequences: TokenSequences | None = None

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
    statistics: bool = False,
    adapters: bool = True,
) -> SequenceLosses:
    """Compute the mean negative log-likelihood per token of every sequence, in nats.

    ℓ_i = −(1/|S_i|) Σ_{t ∈ S_i} log p(x_t | the tokens before it), S_i the tokens of sequence i but
    for the first (nothing predicts it), padding, and those labelled −100. A sequence longer than
    the context C is read in windows of C tokens that advance by the stride s, the last one moved
    back to end with the sequence; each window scores the tokens that none before it has, so that
    every token is scored once and all but the first C see at least C − s tokens before them.

    A sequence-to-sequence model is asked for its answers: S_i are the tokens of answer i, each from
    the text and the tokens of the answer before it, and nothing is read in windows.

    Args:
        model: a causal language model of transformers, e.g. GPT2LMHeadModel, or a sequence-to-
            sequence one, e.g. T5ForConditionalGeneration; with adapters of PEFT or without.
        data: a list of token-id sequences, an integer array (n, length), a dict with `input_ids`
            (and `attention_mask`, `labels`), or a map-style Dataset whose items are sequences or
            such dicts. Padding may be on either side; without a mask, the model's pad token at the
            ends is padding. Labels repeat `input_ids` or are −100. For a sequence-to-sequence model
            `labels` are the answers, or items are pairs (text, answer).
        context: C ≥ 2, at most what the model has; None: what the model has.
        stride: 1 ≤ s < C; None: ⌈C/2⌉.
        batch_size: windows in one forward pass; fewer where their logits would exceed half a
            gigabyte.
        device: where to run; the model returns to its own device afterwards. None: where it is.
        progress: draw a bar on a terminal. argument: named in error messages.
        statistics: also keep what the model says of each scored token, 17 bytes each.
        adapters: False reads the model with its adapters switched off, and puts them back.

    Returns:
        SequenceLosses with n entries in the data's own order.

    Raises:
        InputError: not such a language model; sequences that are empty, of one token, not of the
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
        noshadow.errors.InputError: sequence_losses: model must be a language model of transformers; got an object of type str.
    """  # noqa: W505 - doctest compares the message on one line
    settings = Settings(batch_size=batch_size, device=device, progress=progress)
    how: dict[str, Any] = {"statistics": statistics, "adapters": adapters}
    return _read(model, data, context, stride, settings, argument, max_memory=None, **how)[0]


def sequence_features(
    model: object,
    data: object,
    *,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
    argument: str = "data",
    max_memory: float = MAX_MEMORY,
    statistics: bool = False,
) -> tuple[SequenceLosses, TokenHead | NotApplicable]:
    """Read the losses of every sequence and the output head in one pass.

    The head comes with its inputs where each scored token was predicted.

    Args:
        model, data, batch_size, device, progress, argument, statistics: as in `sequence_losses`.
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
    return _read(model, data, None, None, settings, argument, max_memory=max_memory, statistics=statistics)


def sequences_of(model: object, data: object, argument: str) -> TokenSequences:
    """Sequences as `sequence_losses` reads them with this model, without running it.

    Args:
        model: a language model, whose vocabulary says what is a token and what pads.
        data: as `sequence_losses` takes it. argument: named in error messages.

    Raises:
        InputError: as `sequence_losses` about its data.
    """
    inside = model_inside(model)
    return _sequences(inside, data, vocabulary_of(inside), None, None, argument)[0]


def _read(
    model: object,
    data: object,
    context: int | None,
    stride: int | None,
    settings: Settings,
    argument: str,
    *,
    max_memory: float | None,
    statistics: bool = False,
    adapters: bool = True,
) -> tuple[SequenceLosses, TokenHead | NotApplicable]:
    """Read losses and, with `max_memory`, features.

    Windows are the same whether or not features are kept.
    """
    if not is_language_model(model):
        got = f"an object of type {type(model).__name__}"
        refuse("model", "be a language model of transformers", got)
    require_adapters_in_layers(model, "model")
    inside = model_inside(model)
    assert isinstance(inside, nn.Module)
    vocabulary = vocabulary_of(inside)
    sequences, length, step = _sequences(inside, data, vocabulary, context, stride, argument)
    windows = token_windows(sequences, length, step)
    store = NotApplicable("not asked for") if max_memory is None else token_store(inside, sequences, max_memory)
    told = statistics_store(sequences) if statistics else None
    with undisturbed(inside, settings) as where, nullcontext() if adapters else without_adapters(inside):
        require_causal(inside, sequences, vocabulary, where)
        sums = _summed_losses(inside, sequences, windows, vocabulary.size, where, settings, argument, store, told)
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
        statistics=None if told is None else told.found,
        sequences=sequences if statistics else None,
    )
    return found, store.found() if isinstance(store, TokenStore) else store


def _sequences(
    model: Any, data: object, vocabulary: Vocabulary, context: int | None, stride: int | None, argument: str
) -> tuple[TokenSequences, int | None, int | None]:
    """The sequences, and the length and step of windows; an answer to a text is read whole."""
    if is_causal_lm(model):
        length, step = window_rule(model, context, stride)
        if isinstance(data, TokenSequences):
            return known_sequences(data, vocabulary, argument), length, step
        return token_sequences(data, vocabulary, argument), length, step
    if context is not None or stride is not None:
        refuse("context", "be left out for a sequence-to-sequence model, whose answers are read whole", f"{context} (stride {stride})")
    shift = decoder_shift(model)
    if isinstance(data, TokenSequences):
        pairs = known_pairs(data, vocabulary, shift, argument)
    else:
        pairs = token_pairs(data, vocabulary, shift, argument)
    require_within_context(pairs, model, argument)
    return pairs, None, None


def _require_finite_losses(losses: Array, argument: str) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        got = f"{int(bad.sum())} NaN or infinite among those of {len(losses)} sequences of {argument}, the first at sequence {bad.argmax()}"
        refuse("model", "give finite losses", got, "Are its weights finite?")


def _summed_losses(
    model: Any,
    sequences: TokenSequences,
    windows: Sequence[Window],
    vocabulary: int,
    device: torch.device,
    settings: Settings,
    argument: str,
    store: TokenStore | NotApplicable,
    told: StatisticsStore | None,
) -> Array:
    """Sum −log p over the scored tokens of each sequence, (n,).

    What the head saw there, and what the model says of each token, go into their stores.
    """
    sums = np.zeros(len(sequences))
    batches = list(window_batches(windows, settings.batch_size, vocabulary))
    kept = store if isinstance(store, TokenStore) else None
    hooked = nullcontext() if kept is None else kept.listening()
    with hooked, closing(tracked(batches, f"Reading {argument}", show=settings.progress)) as steps:  # type: ignore[type-var]
        for batch in steps:
            read = windows_read(model, sequences, batch, device)
            for number, (window, (ids, places, row)) in enumerate(zip(batch, read, strict=True)):
                loss, said_of = negative_log_likelihood(row, places, ids, statistics=told is not None)
                sums[window.sequence] += loss
                if told is not None and said_of is not None:
                    told.keep(window.sequence, window.start, places, said_of)
                if kept is not None:
                    kept.keep(number, window.sequence, window.start, places, ids, row)
    return sums
