"""The score columns of a reference model on the records it was trained on: an audit of each, for intervals over models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from torch import nn

from noshadow._audit.entry import Target, audit
from noshadow._audit.gather import Options, audit_view, weight_decay_damping
from noshadow._audit.score_options import head_options
from noshadow.checks import Array, resolved_task
from noshadow.columns import named
from noshadow.results import Audit
from noshadow.signals import Signals
from noshadow.views import view


def reference_columns(target: Target, model: object, rows: Array, *, train_only: bool = False, seed: int = 0) -> dict[str, Array]:
    """Score columns that an audit of a reference model finds on its own training records, each (len(rows),).

    Args:
        target: data, task and weight decay of the target. model: the reference model.
        rows: its training records, as rows of the target's train followed by its test split.
        train_only: the pool is the target's train split alone. seed: of data transforms.

    Returns:
        Name → column, e.g. loss, leverage, shift; none for a model that was given as bare outputs.
    """
    unseen = None if train_only else target.test
    if isinstance(model, BaseEstimator):
        audited = _audited_estimator(target, model, unseen, rows, seed)
    elif isinstance(model, nn.Module):
        audited = _audited_module(target, model, unseen, rows, seed)
    else:
        return {}
    return {name: audited.records[name].to_numpy(np.float64) for name in named(score=True) if name in audited.records}


def _audited_module(target: Target, model: nn.Module, unseen: object, rows: Array, seed: int) -> Audit:
    seen = view(model, target.train, unseen, task=target.task, output=target.output, progress=False, seed=seed, owner="audit")
    pool = [split for split in (seen.train, seen.test) if len(split)]
    # The inputs of a head that did not run for some record are not known.
    held = [name for name in ("features", "outputs", "targets") if all(getattr(split, name) is not None for split in pool)]
    parts: dict[str, Any] = {name: np.concatenate([getattr(split, name) for split in pool])[rows] for name in held}
    chosen, decay = Signals(**({"features": None} | parts)), target.weight_decay
    task = resolved_task(seen.task, chosen.outputs, chosen.targets, "audit")
    seen = replace(
        seen,
        train=chosen,
        test=Signals(chosen.features[:0] if chosen.features is not None else None, chosen.outputs[:0], chosen.targets[:0]),
        task=task,
        damping=None if decay is None else weight_decay_damping(decay, len(rows), chosen.outputs.shape[1], task),
        damping_source="" if decay is None else f"weight_decay={decay:g} of the training objective",
        inputs={},  # facts about splits that are mixed here
    )
    options = Options(target.task, "auto", decay, "auto", seed, False, "audit", score_options=head_options(target.score_options))
    return audit_view(seen, options, ids=None, groups=None, loss_traces=None, signal_seconds=0.0)


def _audited_estimator(target: Target, model: BaseEstimator, unseen: object, rows: Array, seed: int) -> Audit:
    splits: list[Any] = [target.train] if unseen is None else [target.train, unseen]
    first = len(splits[0][1])
    places = [rows[rows < first], rows[rows >= first] - first]
    chosen = [tuple(_rows(part, place) for part in split) for split, place in zip(splits, places, strict=False) if len(place)]
    records = tuple(_joined([split[k] for split in chosen]) for k in range(2))
    handed_on = head_options(target.score_options)
    return audit(
        model, records, None, task=target.task, weight_decay=target.weight_decay, score_options=handed_on, progress=False, seed=seed
    )


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
