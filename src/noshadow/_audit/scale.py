"""Outputs as logits before anything is scored, and what they were."""

from dataclasses import replace

from noshadow.checks import refuse, require_output_columns, resolved_task
from noshadow.output_scale import Part, logits_of, raised_note, settled_scale
from noshadow.signals import Signals
from noshadow.views import View


def in_logits(seen: View, output_scale: str) -> View:
    """Return the same view with logits for outputs.

    `inputs["output_scale"]` holds what the outputs were, what settled it, and how many entries were
    raised off 0.

    Raises:
        InputError: outputs that could be logits or probabilities, or that are not what
            `output_scale` says.
    """
    task = resolved_task(seen.task, seen.train.outputs, seen.train.targets)
    require_output_columns(seen.train.outputs, task)
    splits = (seen.train, seen.test)
    scale = settled_scale([Part(split.outputs, split.targets, split.features) for split in splits], task, output_scale)
    entries, raised = sum(split.outputs.size for split in splits), 0
    if scale.given == "probabilities":
        changed, raised = logits_of([split.outputs for split in splits], task)
        train, test = (Signals(split.features, new, split.targets, split.ids) for split, new in zip(splits, changed, strict=True))
        seen = replace(seen, train=train, test=test, notes=(*seen.notes, raised_note(raised, entries)))
    fact = {"given": scale.given, "settled_by": scale.settled_by, "raised": raised, "entries": entries}
    return replace(seen, inputs=dict(seen.inputs) | {"output_scale": fact})


def model_in_logits(seen: View, output_scale: str, *, is_module: bool) -> View:
    """Return the view of a model with logits for outputs.

    What a head or an estimator gave needs no reading; other outputs do.

    Raises:
        InputError: as `in_logits`; a scale named for an estimator, whose own outputs are read.
    """
    if not is_module and output_scale != "auto":
        hint = "Its own decision function or probabilities are read."
        refuse("output_scale", "be 'auto' for a scikit-learn estimator", repr(output_scale), hint)
    from_head = seen.not_applicable is None
    return seen if output_scale == "auto" and (from_head or not is_module) else in_logits(seen, output_scale)
