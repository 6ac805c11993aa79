"""Notes that a reader must know before trusting an audit and that no finding states."""

from torch import nn

from noshadow.results import ModelRisk
from noshadow.scores.result import RecordScores


def risk_notes(risk: ModelRisk | None) -> tuple[str, ...]:
    """What looks wrong about the two loss samples, as parts of a list of notes."""
    return () if risk is None else tuple(f"{note[:1].lower()}{note[1:].rstrip('.')}" for note in risk.notes)


def damping_note(damping: float | str, scores: RecordScores | None) -> tuple[str, ...]:
    """Say that a damping was given for nothing: no score of this model has one."""
    if scores is not None or isinstance(damping, str):
        return ()
    return (f"damping={damping:g} was given and nothing uses it: no score of this model has a damping",)


def deeper_notes(model: object, task: str, layers: str | int) -> tuple[str, ...]:
    """Say when the layers before the last would say more.

    That is so in regressions, where all layers found the exposed records far better.
    """
    if task != "regression" or layers != "last" or not isinstance(model, nn.Module):
        return ()
    trainable = [module for module in model.modules() if any(p.requires_grad for p in module.parameters(recurse=False))]
    if len(trainable) < 2:
        return ()
    return ("only the last layer was scored: for regression networks all layers together rank the exposed records better (layers='all')",)
