"""The arrays every exact score starts from, checked once."""

from dataclasses import dataclass

from noshadow.checks import (
    Array,
    floating,
    numeric_array,
    refuse,
    require_output_columns,
    require_same_length,
    require_squarable,
    require_two_classes,
    require_weights,
    resolved_task,
)
from noshadow.losses import hard_labels, task_targets
from noshadow.output_scale import Part, logits_of, raised_note, settled_scale


@dataclass(frozen=True, eq=False)
class HeadInputs:
    """A head seen through its arrays.

    It holds (n, d−1) features, (n, m) outputs (logits of a classifier), targets as the task wants
    them, weights or None, and notes on how they were read.
    """

    features: Array
    outputs: Array
    targets: Array
    sample_weight: Array | None
    task: str
    notes: tuple[str, ...] = ()


def head_inputs(
    features: object, outputs: object, targets: object, *, task: str, sample_weight: object, output_scale: str = "auto"
) -> HeadInputs:
    """Check features, outputs, targets and weights of a head against each other and the task.

    Raises:
        InputError: not finite, of different lengths, fewer than two records or classes, or not what
            the task or `output_scale` wants.
    """
    x, out, raw = plain_arrays(features, outputs, targets)
    n = require_same_length(features=x, outputs=out, targets=raw)
    if n < 2:
        refuse("features", "have at least 2 records", n)
    task = resolved_task(task, out, raw)
    require_output_columns(out, task)
    y = task_targets(out, raw, task)
    if task != "regression":
        require_two_classes(hard_labels(y) if task == "classification" else y > 0.5)
    weight = None if sample_weight is None else require_weights(sample_weight, n)
    if settled_scale([Part(out, raw, x)], task, output_scale).given == "probabilities":
        (out,), raised = logits_of([out], task)
        return HeadInputs(x, out, y, weight, task, (raised_note(raised, out.size),))
    return HeadInputs(x, out, y, weight, task)


def plain_arrays(features: object, outputs: object, targets: object) -> tuple[Array, Array, Array]:
    """Read features (n, d−1), outputs (n, m) and targets as they were given.

    All must be numeric, finite, and small enough to be squared.
    """
    x = floating(numeric_array(features, "features", ndim=2))
    given = floating(numeric_array(outputs, "outputs", ndim=(1, 2)))
    out = given[:, None] if given.ndim == 1 else given
    raw = numeric_array(targets, "targets", ndim=(1, 2))
    for name, array in (("features", x), ("outputs", out), ("targets", raw)):
        require_squarable(array, name)
    return x, out, raw
