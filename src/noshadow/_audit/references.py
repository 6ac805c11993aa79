"""Compute the score columns of a reference model on the records it was trained on.

They serve intervals over models.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from noshadow._audit.boosting import leaf_scores
from noshadow._audit.gather import score_columns
from noshadow._audit.options import Options
from noshadow._audit.score_options import head_options
from noshadow._audit.sequence_evidence import texts_of, token_columns
from noshadow._audit.target import Target
from noshadow._audit.without_records import without_records
from noshadow.checks import Array, NotApplicable, named_as, resolved_task
from noshadow.scores.sequences import SCORED, sequence_scores
from noshadow.signals import Signals
from noshadow.views import View, reader_of, sequence_features, sequences_of, view
from noshadow.views.token_sequences import chosen_sequences
from noshadow.weight_decay import training_damping


@named_as("audit")
def reference_columns(target: Target, model: object, rows: Array, *, train_only: bool = False, seed: int = 0) -> dict[str, Array]:
    """Compute the score columns that an audit of a reference model finds on its training records.

    Each column is (len(rows),).

    Args:
        target: data, task and weight decay of the target. model: the reference model.
        rows: its training records, as rows of the target's train followed by its test split.
        train_only: the pool is the target's train split alone. seed: of data transforms.

    Returns:
        Name → column, e.g. loss, leverage, shift; none for a model that was given as bare outputs.
    """
    unseen = None if train_only else target.test
    reader = reader_of(model)
    if reader is None:
        return {}
    if reader.form == "sequences":
        return _of_sequences(target, model, unseen, rows)
    options = Options(
        target.task, "auto", target.weight_decay, "auto", seed, False, "audit", score_options=head_options(target.score_options)
    )
    if reader.form != "table":
        return score_columns(_seen_module(target, model, unseen, rows, seed), options)
    records = _table_rows(target, unseen, rows)
    how: dict[str, Any] = {"task": target.task, "weight_decay": target.weight_decay, "progress": False, "seed": seed}
    seen = view(model, records, None, **how)
    # Options are those of heads, and trees have none.
    trees = leaf_scores(reader, model, records, seen, replace(options, score_options={}))
    beside = partial(without_records, reader, model, records)
    return score_columns(seen, options, layered_scores=trees, beside=beside)


def _of_sequences(target: Target, model: object, unseen: object, rows: Array) -> dict[str, Array]:
    """Columns of a language model and its output head on the sequences it was trained on."""
    pool = [sequences_of(model, data, name) for name, data in (("train", target.train), ("test", unseen)) if data is not None]
    chosen = chosen_sequences(pool, rows)
    read, head = sequence_features(model, chosen, progress=False, argument="train", statistics=True)
    found = {"loss": read.loss} | token_columns(read, texts_of(read, target.tokenizer))
    if isinstance(head, NotApplicable):
        return found
    scores = sequence_scores(head, weight_decay=target.weight_decay, progress=False)
    return found | {name: getattr(scores, name) for name in SCORED}


def _seen_module(target: Target, model: object, unseen: object, rows: Array, seed: int) -> View:
    seen = view(model, target.train, unseen, task=target.task, output=target.output, progress=False, seed=seed)
    pool = [split for split in (seen.train, seen.test) if len(split)]
    # The inputs of a head that did not run for some record are not known.
    held = [name for name in ("features", "outputs", "targets") if all(getattr(split, name) is not None for split in pool)]
    parts: dict[str, Any] = {name: np.concatenate([getattr(split, name) for split in pool])[rows] for name in held}
    chosen, decay = Signals(**({"features": None} | parts)), target.weight_decay
    task = resolved_task(seen.task, chosen.outputs, chosen.targets)
    return replace(
        seen,
        train=chosen,
        test=Signals(chosen.features[:0] if chosen.features is not None else None, chosen.outputs[:0], chosen.targets[:0]),
        task=task,
        penalty=training_damping(decay, task, len(rows), chosen.outputs.shape[1]),
        inputs={},  # facts about splits that are mixed here
    )


def _table_rows(target: Target, unseen: object, rows: Array) -> tuple[Any, Any]:
    """The records (X, y) of some rows of the pool."""
    splits: list[Any] = [target.train] if unseen is None else [target.train, unseen]
    first = len(splits[0][1])
    places = [rows[rows < first], rows[rows >= first] - first]
    chosen = [tuple(_rows(part, place) for part in split) for split, place in zip(splits, places, strict=False) if len(place)]
    first, second = (_joined([split[k] for split in chosen]) for k in range(2))
    return first, second


def _rows(part: Any, places: Array) -> Any:
    if isinstance(part, (pd.DataFrame, pd.Series)):
        return part.iloc[places]
    if sparse.issparse(part):
        return part.tocsr()[places]
    return part[torch.from_numpy(places)] if isinstance(part, torch.Tensor) else np.asarray(part)[places]


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], (pd.DataFrame, pd.Series)):
        return pd.concat(parts)
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts)
    return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else np.concatenate([np.asarray(part) for part in parts])
