"""Checks on the model as a whole, on its two splits, and on the reference models beside it."""

from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable, skipped
from noshadow._findings.rule import rule
from noshadow._known import KnownRate, best_known, per_thousand, per_thousand_between
from noshadow._known.audited import Audited
from noshadow.figures import Interval, ModelRisk
from noshadow.limits import FEW_MEMBERS, LARGEST_Z, STRONG_TIMES, SWAPPED_AUC
from noshadow.metrics import error_budget
from noshadow.outcomes import Absent

# Sources of models that were trained to the end for an audit.
_TRAINED = ("few references", "folds", "reference models")
_GIVE_TEST = "Audit with records the model has not seen."
_AGAIN = "Run the audit again with this version."
# Upper end of the AUC's interval below which members' losses are larger beyond any chance.
SURELY_SWAPPED = 0.45


@rule(
    "NS001",
    "model-risk",
    "high",
    found_when=(
        "the attack's rate at FPR α as it is best known (measured, by exposure, compared with a base, predicted, or the loss attack's "
        "TNR at FNR α) > {times}·α, "
        "and the lower end of its interval > α"
    ),
    next_step="Regularise, stop earlier, remove duplicates or train with differential privacy, and compare the two audits.",
    limits={"times": STRONG_TIMES},
)
def model_risk_rate(audit: Audited, limits: Limits) -> Outcome:
    """NS001: how far the attack beats a guess at the level asked.

    It counts where the interval excludes a guess.
    """
    known = best_known(audit)
    if known.rate is None:
        return _no_risk(audit)
    limit = limits["times"] * known.fpr
    if limit >= 1:
        return not_applicable(f"where a guess finds {per_thousand(known.fpr)} no rate can be {limits['times']:g} times a guess")
    doubt = "" if known.rate <= limit or _excludes(known.interval, known.fpr) else " The interval includes a guess."
    ends = ""
    if known.interval is not None and known.interval_level is not None:
        ends = f" ({100 * known.interval_level:g} % interval {per_thousand_between(known.interval)})"
    times = f"{known.rate / known.fpr:.3g} times a guess, which is {per_thousand(known.fpr)}"
    sentence = f"{_attack_in_words(known, known.rate)}{ends}: {times}.{doubt}"
    return judged(known.rate > limit and not doubt, known.rate, sentence)


@rule(
    "NS002",
    "loss-auc",
    "high",
    found_when="loss AUC > {auc}, and the lower end of its interval > {guess}",
    next_step="The average member is given away, not only a few: regularise or stop earlier, and compare the two audits.",
    limits={"auc": 0.6, "guess": 0.5},
)
def average_auc(audit: Audited, limits: Limits) -> Outcome:
    """NS002: whether the average member is given away."""
    risk = audit.model_risk
    if risk is None:
        return _no_risk(audit)
    beyond = risk.auc > limits["auc"]
    doubt = " The interval includes a coin toss." if beyond and not _excludes(risk.auc_interval, limits["guess"]) else ""
    sentence = f"A member's loss is below a non-member's with probability {risk.auc:.3g}{_between(risk.auc_interval, risk)}.{doubt}"
    return judged(beyond and not doubt, risk.auc, sentence)


@rule(
    "NS003",
    "calibration-domain",
    "medium",
    found_when="the model lies outside the set-ups behind its predicted TPR",
    next_step="Read the TNR, which is measured, instead of the prediction, or measure the attack with reference models.",
)
def calibration_domain(audit: Audited, _: Limits) -> Outcome:
    """NS003: whether the prediction speaks of models like this one."""
    risk = audit.model_risk
    if risk is None:
        return _no_risk(audit)
    if best_known(audit).source == "measured":
        return not_applicable("the rate was measured with reference models, which goes before any prediction")
    if risk.predicted_tpr is None:
        return not_applicable(f"there is no predicted rate ({risk.reason.removesuffix('.')})")
    where = "like" if risk.in_calibration_domain else "unlike"
    sentence = f"The model is {where} the set-ups that its predicted rate was calibrated on. {risk.reason.removesuffix('.')}."
    return judged(not risk.in_calibration_domain, risk.predicted_tpr or 0.0, sentence)


@rule(
    "NS004",
    "overfit-gap",
    "medium",
    found_when="accuracy gap > {accuracy_gap}; regression: loss gap > {loss_share} of the mean loss outside",
    next_step="The model has learned its records rather than the task: more data, weight decay, augmentation or fewer epochs.",
    limits={"accuracy_gap": 0.1, "loss_share": 0.5},
)
def overfit_gap(audit: Audited, limits: Limits) -> Outcome:
    """NS004: how much better the model does on its own records."""
    risk = audit.model_risk
    if risk is None:
        return _no_risk(audit)
    if risk.accuracy_gap is not None:
        ends = _between(risk.accuracy_gap_interval, risk)
        sentence = f"Accuracy is {risk.accuracy_gap:.3g} higher on the training records than outside{ends}."
        return judged(risk.accuracy_gap > limits["accuracy_gap"], risk.accuracy_gap, sentence)
    outside = float(audit.nonmember_losses.mean()) if len(audit.nonmember_losses) else 0.0
    if outside <= 0:
        return not_applicable("the mean loss outside is not positive, so a gap has no scale")
    share = risk.loss_gap / outside
    return judged(
        share > limits["loss_share"], share, f"The mean loss is a share of {share:.3g} lower on the training records than outside."
    )


@rule(
    "NS005",
    "splits-swapped",
    "high",
    found_when="upper end of the interval of the loss AUC < {auc}",
    next_step="Check that train and test are not exchanged, and that the test records are drawn like the training records.",
    limits={"auc": SWAPPED_AUC},
    # A 95 % interval ends below ½ for one clean model in forty, and so far below for none.
    undermines=True,
    undermines_below=SURELY_SWAPPED,
)
def splits_swapped(audit: Audited, limits: Limits) -> Outcome:
    """NS005: members with larger losses than non-members."""
    risk = audit.model_risk
    if risk is None:
        return _no_risk(audit)
    high = risk.auc_interval[1]
    found = high < limits["auc"]
    words = "Members have larger losses than non-members" if found else "Members do not have clearly larger losses than non-members"
    return judged(found, high, f"{words}: the interval of the loss AUC ends at {high:.3g}.")


@rule(
    "NS006",
    "sample-too-small",
    "medium",
    found_when="fewer than {members} members may exceed τ at the level α, or a split holds fewer than {records} records",
    next_step="Give more records of the split that has too few, or ask for a larger level with fpr= (--fpr).",
    limits={"members": FEW_MEMBERS, "records": 50.0},
)
def sample_too_small(audit: Audited, limits: Limits) -> Outcome:
    """NS006: on how many records the threshold and the rates rest."""
    risk = audit.model_risk
    if risk is None:
        return _no_risk(audit)
    allowed = error_budget(risk.fpr, risk.n_members)
    few, fewest = allowed < limits["members"], min(risk.n_members, risk.n_nonmembers)
    tail = ", too few for the interval of TNR to be trusted" if few else ""
    sentence = (
        f"At a level of {per_thousand(risk.fpr)}, {allowed} of {risk.n_members} members may lie above the threshold τ: its place rests on "
        f"so many{tail}."
    )
    if fewest < limits["records"]:
        split = "test" if risk.n_nonmembers == fewest else "training"
        sentence += f" With {fewest} {split} record{'' if fewest == 1 else 's'} rates and the AUC are known to about a tenth at best."
    return judged(few or fewest < limits["records"], allowed if few or fewest >= limits["records"] else fewest, sentence)


@rule(
    "NS007",
    "train-test-overlap",
    "high",
    found_when="more than {records} test records have the features and target of a training record",
    next_step="Take those records out of one split and audit again: as it is the model risk is understated.",
    limits={"records": 0.0},
)
def train_test_overlap(audit: Audited, limits: Limits) -> Outcome:
    """NS007: test records that look like training records."""
    if not len(audit.nonmember_losses):
        return not_applicable("there is no test split")
    counts = audit.provenance.get("splits")
    if counts is None:
        return skipped("the version that wrote this audit did not keep the count", _AGAIN)
    shared = counts["shared_with_test"]
    if shared is None:
        return skipped(f"records cannot be told apart ({counts['reason']})", "Give features that differ between records.")
    total = len(audit.nonmember_losses)
    what = "test records have the features and target of a training record"
    if audit.task == "language-model":
        what = "test sequences are also training sequences, token by token"
    whole = " If they are the same records, the model risk means nothing." if shared == total else ""
    return judged(shared > limits["records"], shared, f"{shared} of {total} {what}.{whole}")


@rule(
    "NS009",
    "members-in-both-splits",
    "high",
    found_when="> {share} of the test records are training records, beyond the share of training records that have a copy among themselves",
    next_step="Audit with test records that the model has not seen: take those that it was trained on out of the test split.",
    # Members among the non-members shrink every rate's distance from a guess by their own share:
    # beyond a half, most of it is gone.
    limits={"share": 0.5},
    undermines=True,
)
def members_in_both_splits(audit: Audited, limits: Limits) -> Outcome:
    """NS009: whether members are compared with members."""
    if not len(audit.nonmember_losses):
        return not_applicable("there is no test split")
    counts = audit.provenance.get("splits")
    if counts is None or counts["shared_with_test"] is None:
        return skipped("nobody counted which test records are training records", "Give features that differ between records.")
    shared, total = int(counts["shared_with_test"]), len(audit.nonmember_losses)
    # In a table of few values strangers look alike, too: as often as training records do.
    by_chance = 0.0 if counts.get("copies") is None else counts["copies"]["records"] / max(len(audit.member_losses), 1)
    beyond = shared / total - by_chance
    if beyond <= limits["share"]:
        return judged(False, beyond, f"At most {shared} of {total} test records are training records; the others are strangers.")
    chance = f", where {per_thousand(by_chance)} would be so by chance" if by_chance else ""
    sentence = (
        f"{shared} of {total} test records are training records{chance}: members are compared with themselves, and no attack could tell "
        "them apart."
    )
    return judged(True, beyond, sentence)


@rule(
    "NS030",
    "target-unlike-references",
    "high",
    found_when="a mean loss of the target is > {deviations} deviations from the reference models' and outside their range",
    next_step="Train the reference models as the target was trained (epochs, learning rate, augmentation, number of records).",
    limits={"deviations": LARGEST_Z},
)
def target_unlike_references(audit: Audited, limits: Limits) -> Outcome:
    """NS030: whether the target was trained as its reference models were."""
    truth = audit.ground_truth
    if truth is None:
        return not_applicable("no reference models were scored for this audit")
    if truth.parity is None:
        return skipped("the reference set holds no target model", "Train the set with the target's model.")
    compared = [truth.parity[kind] for kind in ("member", "nonmember") if truth.parity[kind] is not None]
    farthest = max(abs(float(values["z"])) for values in compared)
    return judged(bool(truth.parity["outlying"]), farthest, str(truth.parity["sentence"]))


@rule(
    "NS033",
    "rows-not-heeded",
    "high",
    found_when=(
        "the loss attack tells the audited model's records from others beyond chance, and not those of the models that were trained for "
        "this audit"
    ),
    next_step=(
        "Let train_fn train on the rows that indices names, and only on these, as the audited model was trained; and draw train and test "
        "from one source."
    ),
)
def rows_not_heeded(audit: Audited, _: Limits) -> Outcome:
    """NS033: whether models trained for the audit know their own records better than others."""
    asked = [(entry.source, entry.stamp) for entry in audit.evidence if entry.source in _TRAINED]
    if not asked:
        return not_applicable("no models were trained for this audit")
    held = [(source, stamp["own_records"]) for source, stamp in asked if "own_records" in stamp]
    if not held:
        return skipped("the version that wrote this audit did not keep what these models know of their own records", _AGAIN)
    judged_ones = [(source, told) for source, told in held if told is not None]
    if not judged_ones:
        return not_applicable("the losses do not tell the audited model's records from others, or no other model had a part of them")
    source, worst = min(judged_ones, key=lambda pair: (not pair[1]["unmoved"], float(pair[1]["auc"])))
    theirs, own, found = float(worst["auc"]), float(worst["audited_auc"]), bool(worst["unmoved"])
    sentence = (
        f"The loss tells the records of {source} from others with an AUC of {theirs:.3f}, and those of the audited model with {own:.3f}"
    )
    why = ": train_fn may not heed its indices, or train and test differ in kind. Every record would seem safe, so that no sizes are told"
    return judged(found, theirs, f"{sentence}{why if found else ''}.")


def _no_risk(audit: Audited) -> Outcome:
    reason = Absent.of(audit.not_applicable.get("model_risk", "the audit holds no model-level risk")).reason
    return skipped(reason.removesuffix("."), _GIVE_TEST)


def _excludes(ends: Interval | None, guess: float) -> bool:
    """Tell whether an interval lies above a guess; without one the answer is yes."""
    return ends is None or ends[0] > guess


def _between(ends: Interval | None, risk: ModelRisk) -> str:
    """The interval in brackets, at the level of measured figures."""
    return "" if ends is None else f" ({100 * risk.interval_level:g} % interval {ends[0]:.3g} to {ends[1]:.3g})"


def _attack_in_words(known: KnownRate, rate: float) -> str:
    """What an attack does at its false-positive rate, by the best source there is."""
    if known.source == "losses":
        return f"The loss attack rules out {per_thousand(rate)} non-members while it misses at most {per_thousand(known.fpr)} members"
    who = {
        "measured": f"{known.attack} with {known.trainings} reference models was measured",
        "compared": "A comparison with the base model was measured",
        "exposure": "An attack that trains models like this one is estimated",
        "predicted": "A reference-model attack is predicted",
    }[known.source]
    of = "" if known.attacked in (None, "target") else ", in the mean over the reference models"
    return f"{who} to recognise {per_thousand(rate)} members{of}"
