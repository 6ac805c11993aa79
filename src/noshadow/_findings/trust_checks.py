"""Checks on how far the record scores can be trusted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from noshadow._findings.audited import why_unscored
from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable, skipped
from noshadow._findings.rule import rule
from noshadow._known.audited import Audited
from noshadow.limits import CROWDED, DOUBTFUL_CONDITION, FAR_FROM_MINIMUM, FAR_OFF, NONLINEAR_HEAD, ROUNDING_TOLERANCE
from noshadow.sizing import ENOUGH_FOR_TWO, SIZED_RECORDS

_AGAIN = "Run the audit again with this version."


@rule(
    "NS020",
    "far-from-minimum",
    "medium",
    found_when="stationarity ≥ {stationarity}",
    next_step="Trust the order of the records more than the size of their scores; train longer, or pass the training's own weight decay.",
    limits={"stationarity": FAR_FROM_MINIMUM},
)
def far_from_minimum(audit: Audited, limits: Limits) -> Outcome:
    """NS020: what is left of the gradient at the trained parameters."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome) or "stationarity" not in scores:
        return scores if isinstance(scores, Outcome) else _not_kept("the left-over gradient")
    value = scores["stationarity"]
    if value is None:  # stored for infinity, which JSON does not have
        return Outcome("found", "The left-over gradient is infinitely many times a typical record's: every record is fitted exactly.")
    sentence = f"The left-over gradient of the scored layers is {value:.3g} times one typical record's; the scores assume 0."
    found = judged(value >= limits["stationarity"], value, sentence)
    return replace(found, next_step=_towards_a_minimum(audit, scores)) if found.status == "found" else found


def _towards_a_minimum(audit: Audited, scores: Mapping[str, Any]) -> str | None:
    """What to do where the estimator itself says its λ; None: as the rule says."""
    if _damping_kind(scores) != "estimator":
        return None
    if "other_records" in audit.provenance.get("inputs", {}):
        return (
            "λ is the estimator's own and its solver had converged: look whether these are the records, targets and weights "
            "(sample_weight=) that it was fitted on."
        )
    return (
        "Trust the order of the records more than the size of their scores; fit for longer (max_iter, tol), or look whether these are "
        "the records, targets and weights of the fit."
    )


@rule(
    "NS021",
    "damping-unknown",
    "low",
    found_when="the damping λ was not given and could not be read from the model",
    next_step="Pass weight_decay= (or damping=) as the training had it.",
)
def damping_unknown(audit: Audited, _: Limits) -> Outcome:
    """NS021: whether the scores use the training's own λ."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome):
        return scores
    if "damping_source" not in scores or "damping_used" not in scores:
        return _not_kept("the source of the damping")
    kind, used = _damping_kind(scores), float(scores["damping_used"])
    words = {
        "automatic": "The training's λ is unknown, and one was chosen from the curvature",
        "substitute": "The training had no weight decay, the scores need one, and it was chosen from the curvature",
    }
    return judged(kind == "automatic", used, f"{words.get(kind, 'The damping is known')}: λ = {used:.3g}.")


@rule(
    "NS022",
    "ill-conditioned",
    "medium",
    found_when="condition > {condition}, jitter > {jitter}, or rounding moved the riskiest records by > {rounding} of their scores",
    next_step="Raise the damping, or drop collinear features.",
    limits={"condition": DOUBTFUL_CONDITION, "jitter": 0.0, "rounding": ROUNDING_TOLERANCE},
)
def ill_conditioned(audit: Audited, limits: Limits) -> Outcome:
    """NS022: whether the factorisation was a sound one."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome):
        return scores
    if "condition" not in scores or "jitter" not in scores:
        return _not_kept("the condition of the curvature")
    condition, jitter = float(scores["condition"]), float(scores["jitter"])
    sentence = f"The factored curvature has condition {condition:.1e} and needed jitter {jitter:.3g}"
    rounding = float(scores.get("precision_error") or 0.0)
    if rounding > limits["rounding"]:
        sentence += f"; rounding moved the riskiest records by up to {rounding:.2g} of their scores"
    unsound = condition > limits["condition"] or jitter > limits["jitter"] or rounding > limits["rounding"]
    return judged(unsound, condition, f"{sentence}.")


@rule(
    "NS023",
    "head-not-linear",
    "high",
    found_when="head residual > {residual}",
    next_step="The outputs are no linear function of these features: name the right layer with layer= (--layer).",
    limits={"residual": NONLINEAR_HEAD},
)
def head_not_linear(audit: Audited, limits: Limits) -> Outcome:
    """NS023: whether the outputs come from the features by a linear layer."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome):
        return scores
    if "head_residual" not in scores:
        return _not_kept("the residual of the head")
    if scores["head_residual"] is None:
        return not_applicable("several layers were scored together, and no head is assumed")
    residual = float(scores["head_residual"])
    return judged(
        residual > limits["residual"], residual, f"A share of {residual:.2g} of the outputs is no linear function of the features."
    )


@rule(
    "NS024",
    "approximate-scores",
    "low",
    found_when="estimated relative error of the ranking score > {error}",
    next_step="Trust the order of the records more than the size of their scores, or score fewer layers exactly (layers='last').",
    limits={"error": 0.1},
)
def approximate_scores(audit: Audited, limits: Limits) -> Outcome:
    """NS024: the measured error of scores that were approximated."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome):
        return scores
    method, errors = scores.get("method"), scores.get("errors")
    if method is None or errors is None:
        return _not_kept("how the scores were computed")
    if method in ("exact", "dual"):
        return not_applicable(f"the scores are computed in closed form (method '{method}')")
    score = _scored_by(audit, errors)
    if score not in errors:
        return skipped(f"no error of {score} was measured", "Score a part of the records exactly and compare.")
    error = float(errors[score])
    sentence = f"{score} is approximated (method '{method}'); its measured relative error is {error:.2g}."
    return judged(error > limits["error"], error, sentence)


@rule(
    "NS025",
    "crowded-projection",
    "high",
    found_when=(
        "effective degrees of freedom > {share} of the dimensions that gradients were projected to, or estimated relative error of the "
        "ranking score > {error}"
    ),
    next_step=(
        "Score fewer layers (layers=), raise score_options={'dimension': …}, or take score_options={'method': 'dual'} with the "
        "'max_memory' it needs (--score-option)."
    ),
    limits={"share": CROWDED, "error": FAR_OFF},
)
def crowded_projection(audit: Audited, limits: Limits) -> Outcome:
    """NS025: whether projected gradients have room for what the layers can do."""
    scores = _diagnostics(audit)
    if isinstance(scores, Outcome):
        return scores
    if scores.get("method") is None:
        return _not_kept("how the scores were computed")
    if scores["method"] != "projected":
        return not_applicable(f"no gradients were projected (method '{scores['method']}')")
    dimensions, parameters, dof = (scores.get(name) for name in ("dimensions", "parameters", "effective_dof"))
    if dimensions is None or dof is None:
        return _not_kept("the dimensions of the projection")
    if parameters is not None and dimensions >= parameters:
        return not_applicable("every parameter has a dimension of its own")
    share = float(dof) / float(dimensions)
    sentence = f"{float(dof):,.0f} effective degrees of freedom use {share:.0%} of {int(dimensions):,} projected dimensions"
    score = _scored_by(audit, scores.get("errors") or {})
    error = (scores.get("errors") or {}).get(score)
    crowded = share > limits["share"] or (error is not None and error > limits["error"])
    if crowded:
        size = "" if error is None else f" (relative error of {score} about {error:.2g})"
        sentence += f", so that scores are far too small{size}"
    return judged(crowded, share, f"{sentence}.")


@rule(
    "NS026",
    "trace-past-interpolation",
    "low",
    found_when="for half of the recordings the members' mean loss is < {share} of what it was at the best recording",
    next_step=(
        "Trust early_loss more than lt_iqr here, and train the next model with LossTraces(…, test=…, checkpoint=…), which keeps its state "
        "at the best recording for audit(…, checkpoint=…)."
    ),
    # Chosen on eight small trainings on digits and on Gaussian classes, a run that is not stored:
    # down to a twentieth LT-IQR lost at most 0.06 of its best recall, below it 0.07 to 0.25 (two
    # trainings). A best recording that comes early did no harm by itself.
    limits={"share": 0.05},
)
def trace_past_interpolation(audit: Audited, limits: Limits) -> Outcome:
    """NS026: how long a training went on after its members were known by heart."""
    traced = audit.provenance.get("inputs", {}).get("loss_traces")
    if traced is None:
        return not_applicable("no loss traces were given")
    if "rounds" in traced:
        return not_applicable("the trace is that of a boosted model's own rounds, which no recorder made longer")
    if "recordings" not in traced:
        return _not_kept("the course of the training")
    if traced["best_recording"] is None:
        return skipped("the loss traces hold no losses of unseen records", "Record the next training with LossTraces(…, test=…).")
    best, recordings, course = int(traced["best_recording"]), int(traced["recordings"]), traced["train_loss"]
    if course["best"] <= 0:
        return not_applicable("the members' mean loss at the best recording is not above 0")
    left = float(course["median"]) / float(course["best"])
    sentence = (
        f"The lowest loss on unseen records is at recording {best + 1} of {recordings}; for half of all recordings the members' mean loss "
        f"is at most {left:.2g} of what it was there"
    )
    diluted = left < limits["share"]
    return judged(diluted, left, f"{sentence}{', which dilutes lt_iqr' if diluted else ''}.")


@rule(
    "NS027",
    "ranked-by-loss",
    "medium",
    found_when="the records are ranked by their loss alone",
    next_step=(
        "Give what cross-validation says of each record (out_of_fold=, from cross_val_predict), or have models trained without it: "
        "audit(…, folds=2, train_fn=…) costs one training, reference_models=2 two. Reference models also give rates with intervals: four "
        f"of them from {SIZED_RECORDS} training records on, two from {ENOUGH_FOR_TWO:,} on, unless the model is a forest, whose votes give "
        "an order alone."
    ),
)
def ranked_by_loss(audit: Audited, _: Limits) -> Outcome:
    """NS027: whether anything but the loss orders the records."""
    if audit.ranked_by is None:
        return skipped("this audit does not rank its records", _AGAIN)
    if audit.ranked_by != "loss":
        return judged(False, 0, f"The records are ranked by {audit.ranked_by}.")
    why = why_unscored(audit).reason.removesuffix(".")
    sentence = (
        "The records are ranked by their loss alone, which says how well the model does on a record and not what it would do without it: "
        f"a record that was learnt by heart has a small one. Nothing better is known, because {why}."
    )
    return judged(True, 1, sentence)


def _scored_by(audit: Audited, errors: Mapping[str, Any]) -> str | None:
    """The ranking score of the final weights: `shift` is what the exposure weighs of them."""
    return "shift" if audit.ranked_by == "exposure_score" and "shift" in errors else audit.ranked_by


def _damping_kind(scores: Mapping[str, Any]) -> str:
    """Where λ comes from. Older folders have no kind; their sentence begins with "automatic"."""
    kind = scores.get("damping_kind")
    return str(kind) if kind is not None else "automatic" if str(scores["damping_source"]).startswith("automatic") else "given"


def _diagnostics(audit: Audited) -> Mapping[str, Any] | Outcome:
    """The solver's figures; an outcome that says why there are none."""
    scores: Mapping[str, Any] | None = audit.provenance.get("scores")
    if scores is not None:
        return scores
    if audit.ranked_by in (None, "loss"):
        return not_applicable("there are no record scores to trust or not")
    inputs = audit.provenance.get("inputs", {})
    if "leaves" in inputs or "rounds" in (inputs.get("loss_traces") or {}):
        return not_applicable("the scores are read from the model's trees, and no solver gave them")
    if "closed_form" in inputs or str(audit.ranked_by).endswith("_loss"):
        return not_applicable("the scores are what the model says without each record, and no solver gave them")
    return _not_kept("the solver's diagnostics")


def _not_kept(what: str) -> Outcome:
    return skipped(f"this audit does not hold {what}", _AGAIN)
