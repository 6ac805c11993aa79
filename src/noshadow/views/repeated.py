"""Tell whether a model's outputs are a function of the record.

Some records are read and run again, and compared.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noshadow.checks import Array
from noshadow.limits import IMMATERIAL
from noshadow.signals import Signals
from noshadow.views.batch import Batch
from noshadow.views.collating import same_values
from noshadow.views.loading import Records

# Records read again: enough to meet an augmentation that changes one record in twenty with a chance
# of 0.96.
SAMPLED = 64
# Of the spread of the outputs: a change below it moves no figure that an audit prints.
# Another batch is summed in another order: up to 11 roundings of the largest output were measured,
# in networks of 1 to 30 layers.
ROUNDINGS = 16
# Digits that float32 products keep beyond the CPU (TF32), and where torch was allowed to round
# them.
COARSE = {"highest": 2.0**-10, "high": 2.0**-10, "medium": 2.0**-8}

Collect = Callable[[Records, int], Signals]


def run_again(model: nn.Module, records: Records, seen: Signals, collect: Collect, *, batch_size: int, seed: int) -> dict[str, Any]:
    """Measure how outputs and targets of up to 64 records change when they are read once more.

    They are read in other batches and after other random draws.

    A change counts above 1e-3 of the outputs' spread (root mean square around the columns' means)
    plus 16 roundings of the largest output, in the coarsest precision that any module computed in:
    rounding in batches of another size stays far below both, a dropout or an augmentation far
    above.

    Args:
        model: as `collect` runs it. records: the split. seen: its signals.
        collect: (records, seed) → Signals, exactly as `seen` was collected.
        batch_size: most records in a batch. seed: of the audit; other seeds are used here.

    Returns:
        For JSON: `records` looked at, how many `changed`, the `size` of the change (root mean
            square of the outputs' change over their
        spread), and its `sources`: "data" (inputs or targets differ between two readings), "model"
        (outputs of the same inputs in the same batches differ between two runs), "batch" (neither,
        so outputs depend on the batch a record is in).

    Cost: two readings and two forward passes of at most 64 records.
    """
    groups = sampled_groups(records.count, batch_size)
    count = sum(map(len, groups))
    readings = list(records.chosen([*groups, *groups]))
    first, second = ([batch for group in half for batch in group] for half in (readings[: len(groups)], readings[len(groups) :]))
    with _precisions(model) as met:
        run = collect(_fixed(records, first, count), seed + 1)
    rerun = collect(_fixed(records, first, count), seed + 2)
    found = compared(seen, np.concatenate([np.array(group) for group in groups]), run, rerun, rounding=max(met, default=0.0))
    redrawn = bool(found["changed"]) and not same_values(_contents(first), _contents(second))
    kept = [source for source in found["sources"] if source == "model" or not redrawn]
    return found | {"sources": (["data"] if redrawn else []) + kept}


def compared(seen: Signals, rows: Array, run: Signals, rerun: Signals, *, rounding: float) -> dict[str, Any]:
    """Compare as `run_again` does, for records `rows` whose inputs the model was given twice.

    Nothing is said of the data here.

    Args:
        seen: of all records. run: of `rows`, in other batches. rerun: the same as `run`, once more.
        rounding: unit of the coarsest precision at work.
    """
    spread, largest = _spread(seen.outputs), float(np.abs(seen.outputs).max(initial=0.0))
    change = np.abs(run.outputs.astype(np.float64) - seen.outputs[rows])
    # Labels are themselves or others; other targets may be rounded, as outputs are.
    slack = IMMATERIAL * _spread(seen.targets) if seen.targets.dtype.kind == "f" else 0.0
    relabelled = np.abs(run.targets.astype(np.float64) - seen.targets[rows]) > slack
    changed = (change > IMMATERIAL * spread + ROUNDINGS * rounding * largest).any(1) | relabelled.reshape(len(rows), -1).any(1)
    found: dict[str, Any] = {"records": len(rows), "changed": int(changed.sum()), "size": 0.0, "sources": []}
    if not changed.any():
        return found
    differs = bool((np.abs(rerun.outputs.astype(np.float64) - run.outputs) > IMMATERIAL * spread).any())
    return found | {"size": float(np.sqrt((change**2).mean()) / (spread or 1.0)), "sources": ["model" if differs else "batch"]}


def sampled_groups(count: int, batch_size: int) -> list[list[int]]:
    """Choose up to 64 of `count` places, in groups of at most `batch_size`.

    Each group is spread over all the places.

    A group holds at least two records where there are enough: batch statistics of one record do not
    exist.
    """
    places = np.linspace(0, count - 1, min(SAMPLED, count)).round().astype(np.int64)
    most = max(1, min(batch_size, len(places) if len(places) < 4 else (len(places) + 1) // 2))
    groups = -(-len(places) // most)
    return [places[start::groups].tolist() for start in range(groups)]


def _fixed(records: Records, batches: list[Batch], count: int) -> Records:
    """Return records that give these batches, whatever batch size is asked for."""
    return replace(records, count=count, batches=lambda _: iter(batches), names=None)


def _contents(batches: list[Batch]) -> list[Any]:
    return [(batch.args, dict(batch.kwargs), batch.target) for batch in batches]


def _spread(values: Array) -> float:
    centred = values - values.mean(0, dtype=np.float64)
    return float(np.sqrt((centred**2).mean()))


@contextmanager
def _precisions(model: nn.Module) -> Iterator[set[float]]:
    """Collect rounding units of the floating tensors that modules give while the block runs."""
    met: set[float] = set()
    allowed = torch.get_float32_matmul_precision()

    def note(_: object, __: object, output: object) -> None:
        for tensor in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                rough = tensor.dtype == torch.float32 and (allowed != "highest" or tensor.device.type != "cpu")
                met.add(COARSE[allowed] if rough else torch.finfo(tensor.dtype).eps)

    hooks = [module.register_forward_hook(note) for module in model.modules()]
    try:
        yield met
    finally:
        for hook in hooks:
            hook.remove()
