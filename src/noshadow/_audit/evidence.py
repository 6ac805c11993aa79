"""Gather what one model says about its records, source by source.

The sources are losses, record scores and predicted rates.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from noshadow import theory
from noshadow._audit.options import Options
from noshadow._audit.risks import classified_rates
from noshadow._audit.settled import Settled
from noshadow.checks import Array, DoesNotFit, NotApplicable, advice, require_choice, unnamed
from noshadow.columns import column, named
from noshadow.outcomes import TOO_LARGE, Absent, Damping, not_applicable, uncoded
from noshadow.results import Evidence, ModelRisk
from noshadow.scores.baselines import record_entropies
from noshadow.scores.last_layer.entry import record_scores
from noshadow.scores.result import RecordScores
from noshadow.scores.trees.boosting import LeafScores

RECORD_COLUMNS = named(source="scores", score=True)
NO_ENTROPY = not_applicable("a regression predicts no class probabilities")
UNEQUAL_WEIGHTS = not_applicable("the Gaussian theory has equal weights, and this head was trained with sample weights")
# Records × classes × features² from which margin leverage is on request: some two seconds.
MOST_MARGIN_WORK = 1e10
NO_LINEAR_THEORY = not_applicable("the Gaussian theory is that of a linear head, and this model is a sum of trees")
NO_TREE_CURVE = "the curve that deals the model's rate out over records was made from heads, and this model is a sum of trees"


class Contradicted(Absent):
    """Scores that do not exist because the model contradicts the records it was fitted on."""


Scores = RecordScores | LeafScores | Absent
LayeredScores = Callable[[str], Scores]


def loss_evidence(found: Settled) -> Evidence:
    """Each record's loss, and its entropy where classes are predicted."""
    columns = {"loss": found.losses[0]}
    if found.task == "regression":
        return Evidence("losses", columns, absent={"entropy": NO_ENTROPY})
    return Evidence("losses", columns | {"entropy": record_entropies(found.train.outputs, found.task)})


def scored(found: Settled, options: Options, layered: LayeredScores | None) -> Scores:
    """Score records by the last layer, or by `layered` over more layers or over trees.

    The result is a reason where the model has no scores.
    """
    if layered is not None:
        return layered(found.task)
    if found.seen.not_applicable is not None:
        options.refuse_score_options(found.seen.not_applicable)
        return not_applicable(found.seen.not_applicable)
    try:
        return _head_scores(found, options)
    except DoesNotFit as error:
        if options.score_options.get("method", "auto") != "auto":
            raise  # asked for by name
        return Absent(TOO_LARGE, error.reason)


def _head_scores(found: Settled, options: Options) -> RecordScores:
    seen, train = found.seen, found.train
    chosen = dict(options.score_options)
    asked = chosen.pop("columns", "auto")
    require_choice(asked, ("auto", "all"), "score_options['columns']")
    # Half as long again for a column that ranks nothing: on a large softmax head it is on request.
    n, m, d = len(train), train.outputs.shape[1], 0 if train.features is None else train.features.shape[1]
    on_request = asked == "auto" and found.task == "classification" and n * m * d**2 > MOST_MARGIN_WORK
    known = options.damping == "auto" and isinstance(seen.penalty, Damping)
    scores = record_scores(
        train.features,
        train.outputs,
        train.targets,
        task=found.task,
        damping=seen.penalty if known else options.damping,
        fit_intercept=seen.fit_intercept,
        penalize_intercept=seen.penalize_intercept,
        sample_weight=seen.sample_weight,
        columns=[name for name in RECORD_COLUMNS if name != "margin_leverage" or not on_request],
        output_scale="auto" if found.task == "regression" else "logits",  # they are by now
        progress=options.progress,
        **chosen,
    )
    if not on_request:
        return scores
    size = f"a head of {n} records × {m} classes × {d} features"
    left_out = not_applicable(f"left out for {size}; pass {advice('columns', 'all')} for it")
    return replace(scores, not_applicable=scores.not_applicable | {"margin_leverage": left_out})


def score_evidence(scores: Scores) -> Evidence:
    """Record scores as columns; the reason for each where there are none."""
    if isinstance(scores, Absent):
        return Evidence("scores", absent=dict.fromkeys((*RECORD_COLUMNS, "rank"), scores))
    if isinstance(scores, LeafScores):
        why = not_applicable(f"the method '{scores.method}' does not give it")
        left: dict[str, str] = {name: why for name in RECORD_COLUMNS if name not in scores.columns}
        return Evidence("scores", scores.columns, left, scores.notes, {"method": scores.method, "layers": []} | scores.facts)
    columns = {name: values for name, values in scores.columns().items() if name in RECORD_COLUMNS}
    columns |= {} if scores.exact is None else {"exact": scores.exact}
    # A column that a method does not compute is said to be absent, whoever adds it to the registry.
    applying = [name for name in RECORD_COLUMNS if (entry := column(name)) is not None and scores.task in entry.tasks]
    missing: dict[str, str] = {
        name: not_applicable(f"the method '{scores.method}' does not give it") for name in applying if name not in columns
    }
    stamp = {"method": scores.method, "layers": list(scores.layers)}
    return Evidence("scores", columns, missing | dict(scores.not_applicable), uncoded(scores.notes), stamp)


def rate_evidence(found: Settled, options: Options, scores: Scores, risk: ModelRisk | None) -> Evidence:
    """How often an attack is predicted to recognise each record.

    A regression's rates follow from theory; a classifier's are its predicted rate dealt out by
    rank.
    """
    if isinstance(scores, Absent):
        absent: dict[str, str] = {"predicted_tpr": scores} if found.task == "regression" else {}
        return Evidence("rates", absent=absent)
    if isinstance(scores, LeafScores):
        why = NO_LINEAR_THEORY if found.task == "regression" else Absent("not calibrated here", NO_TREE_CURVE)
        return Evidence("rates", absent={"predicted_tpr": why})
    if found.task != "regression":
        return Evidence("rates", *classified_rates(scores, risk, options.layers))
    if found.seen.sample_weight is not None:
        return Evidence("rates", absent={"predicted_tpr": UNEQUAL_WEIGHTS})
    level = options.fpr if risk is None else risk.fpr
    return Evidence("rates", *_gaussian_rates(scores, found.targets - found.train.outputs, level))


def _gaussian_rates(scores: RecordScores, residuals: Array, fpr: float | str) -> tuple[dict[str, Array], dict[str, str]]:
    """Plug-in TPR of the likelihood-ratio test of each record's residual.

    No attack on the residual does better in the theory, which needs n − dof > 2.
    """
    n, q = residuals.shape
    # n records resolve no rate below 1/n.
    level = max(1e-3, 1 / n) if isinstance(fpr, str) else fpr
    squares = (residuals**2).sum(1)
    spare = n - scores.effective_dof
    if spare <= 2:
        return {}, {"predicted_tpr": not_applicable(f"the Gaussian theory needs n − dof > 2; this head has {spare:.3g}")}
    assert scores.leverage is not None
    try:
        values = theory.predicted_tpr(
            level,
            scores.leverage,
            np.sqrt(squares),
            noise_variance=float(squares.sum()) / (spare * q),
            n=n,
            dof=scores.effective_dof,
            outputs=q,
            statistic="residual",
        )
    except NotApplicable as reason:
        return {}, {"predicted_tpr": not_applicable(unnamed(reason))}
    return {"predicted_tpr": values}, {}
