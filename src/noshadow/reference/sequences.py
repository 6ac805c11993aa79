"""Sequences of a language model as the records of a reference experiment, and what a model says."""

import hashlib

import numpy as np

from noshadow.checks import Array, as_array, refuse
from noshadow.columns import LANGUAGE_MODEL
from noshadow.outcomes import not_applicable
from noshadow.reference.pool import Pool, Split, pool_of, splits_given
from noshadow.views import is_language_model, sequence_losses, sequences_of
from noshadow.views.row_names import repeats_among

RETURNED = "return a language model of transformers, or the losses of all sequences in nats per token"
NO_CLASS = not_applicable("a sequence has no correct class")
NO_OUTPUTS = not_applicable("a language model has one output per token, and no attack model is trained on them")


def is_of_sequences(model: object) -> bool:
    """Whether the records of a target are sequences: it is a language model."""
    return is_language_model(model)


def sequence_pool(model: object, train: object, test: object, *, pool: str, ids: object) -> Pool:
    """Read and hash the sequences; models are trained on halves of them.

    Args:
        model: the target, whose vocabulary says what is a token and what pads.
        train, test, pool, ids: as in `record_pool`; data as `sequence_losses` takes it.

    Returns:
        Pool whose splits are TokenSequences, read once: what workers get has no padding.

    Cost: one pass over the data; memory that of the tokens.
    """
    digest = hashlib.sha256()
    splits, found = [], []
    for argument, data in zip(("train", "test"), splits_given(train, test, pool), strict=False):
        read = sequences_of(model, data, argument)
        digest.update(f"|{argument}|".encode() + b"".join(read.digests()))
        splits.append(read)
        tokens = np.array([int(counts.sum()) for counts in read.counts])
        # Rows that a Subset takes twice have names made up for one split: they would clash.
        names = None if read.rows is None or repeats_among(read.rows) else read.rows
        found.append(Split(tokens, names, ()))
    return pool_of(tuple(splits), found, ids, digest.hexdigest(), sequences=True)


def require_sequence_task(task: str, keep: dict[str, object]) -> None:
    """Refuse options of `train_references` that have no meaning for sequences.

    Args:
        task: as given. keep: name → value of options that must be left out.
    """
    if task not in ("auto", LANGUAGE_MODEL):
        refuse("task", f"be 'auto' or '{LANGUAGE_MODEL}' with a language model", repr(task))
    for name, value in keep.items():
        if value:
            refuse(name, "be left out with a language model, whose records are sequences", repr(value))


def sequence_arrays(model: object, pool: Pool, *, batch_size: int, device: object) -> dict[str, Array]:
    """What one model says of every sequence of a pool: `loss` and `statistic` = −loss, (n,).

    The loss is the mean negative log-likelihood per scored token, in nats, of `sequence_losses`.
    """
    losses = sequence_pool_losses(model, pool, batch_size=batch_size, device=device)
    return {"statistic": -losses, "loss": losses}


def sequence_pool_losses(model: object, pool: Pool, *, batch_size: int, device: object) -> Array:
    """Loss of every sequence of a pool under a model, or as given; float64 (n,)."""
    if not is_language_model(model):
        return _given_losses(model, len(pool))
    parts = [
        sequence_losses(model, split, batch_size=batch_size, device=device, progress=False, argument=argument).loss
        for argument, split in zip(("train", "test"), pool.splits, strict=False)
    ]
    return np.concatenate(parts)


def _given_losses(value: object, n: int) -> Array:
    if not isinstance(value, (np.ndarray, list, tuple)) and not hasattr(value, "detach"):
        refuse("train_fn", RETURNED, f"an object of type {type(value).__name__}")
    losses = as_array(value, "losses returned by train_fn")
    if losses.shape != (n,) or losses.dtype.kind != "f":
        refuse("train_fn", f"{RETURNED} ({n},), members or not", f"an array of shape {losses.shape} of {losses.dtype}")
    if not np.isfinite(losses).all() or float(losses.min()) < 0:
        refuse("train_fn", RETURNED, "losses that are negative or not finite")
    return losses.astype(np.float64)
