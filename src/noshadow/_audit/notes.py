"""What a reader must know about the splits and the damping before trusting an audit."""

from torch import nn

from noshadow.metrics import error_budget
from noshadow.results import ModelRisk
from noshadow.scores.result import RecordScores


def split_notes(shared: int | None, unseen: int, risk: ModelRisk | None) -> tuple[str, ...]:
    """What looks wrong with the two splits (`shared` of the `unseen` test records look like training records), and what makes the TNR
    interval too short.
    """
    notes = []
    if unseen and shared == unseen:
        notes.append(
            "every test record has the features and target of a training record: if they are the same records, the model risk means nothing"
        )
    elif shared:
        notes.append(
            f"{shared} of {unseen} test records have the features and target of a training record: "
            "if they are the same records, the risk is understated"
        )
    if risk is not None and risk.auc_interval[1] < 0.5 and not risk.notes:
        notes.append("members have larger losses than non-members (loss AUC below 0.5): are the two splits swapped?")
    notes += [] if risk is None else [f"{note[:1].lower()}{note[1:].rstrip('.')}" for note in risk.notes]
    if risk is not None and error_budget(risk.fpr, risk.n_members) <= 1:
        notes.append("the interval of TNR rests on one member's loss and is too short: more members or a larger level would help")
    return tuple(notes)


def deeper_notes(model: object, task: str, layers: str | int) -> tuple[str, ...]:
    """Said when the layers before the last would say more: in regressions, where all layers found the exposed records far better."""
    if task != "regression" or layers != "last" or not isinstance(model, nn.Module):
        return ()
    trainable = [module for module in model.modules() if any(p.requires_grad for p in module.parameters(recurse=False))]
    if len(trainable) < 2:
        return ()
    return ("only the last layer was scored: for regression networks all layers together rank the exposed records better (layers='all')",)


def damping_notes(scores: RecordScores | None) -> tuple[str, ...]:
    """Said when nobody told us how the training was regularised."""
    if scores is None or not scores.damping_source.startswith("automatic"):
        return ()
    return ("the damping λ of the training is unknown, so a tiny one was taken: pass weight_decay= (or damping=) as the training had it",)
