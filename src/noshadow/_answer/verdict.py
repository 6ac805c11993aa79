"""One verdict per audit, by what the interval of the best known rate leaves out."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noshadow._findings import finding_of, most_severe, undermining_findings
from noshadow._known import (
    ENOUGH_MODELS,
    KnownRate,
    WorstRecord,
    base_left_out,
    best_known,
    per_thousand,
    per_thousand_between,
    worst_record,
)
from noshadow._known.audited import Audited
from noshadow.figures import Finding
from noshadow.limits import STRONG_TIMES

# An interval that reaches one member in ten cannot carry "no sign of leakage".
FAR_REACHING = 0.1
# Records of a split below which nothing seen is no sign: an attack that finds FAR_REACHING of the
# people finds nobody among n of them with the chance (1 − FAR_REACHING)ⁿ, 5 % at this number.
FEWEST_RECORDS = math.ceil(math.log(0.05) / math.log(1 - FAR_REACHING))
# Where the rate is read off the losses of both splits, these records are all that it rests on.
_OF_THE_SPLITS = ("losses", "predicted")
# The finding of losses that tell members from others on average.
GIVEN_AWAY = "NS002"
LANGUAGE_MODEL = "language-model"


@dataclass(frozen=True)
class _Seen:
    """What the conditions of the levels are asked about."""

    known: KnownRate
    worst: WorstRecord | None
    average: bool
    fewest: float
    tail_alone: bool


@dataclass(frozen=True)
class Level:
    """One row of the table of verdicts.

    Attributes:
        name: of the level. title: what a reader sees. holds: the condition, of the best known rate,
            the most exposed record, whether the losses give the average member away (NS002), the
            records of the smaller split that the rate rests on, and whether the rate is the loss
            tail of a language model, which says little. condition: the same in words. why: the
            reason for the line.
    """

    name: str
    title: str
    holds: Callable[["_Seen"], bool]
    condition: str
    why: str


def _guess_left_out(known: KnownRate) -> bool:
    return known.interval is not None and known.interval[0] > known.fpr


def _many_times_a_guess(known: KnownRate) -> bool:
    return known.rate is not None and known.rate > STRONG_TIMES * known.fpr


def _worst_stands_out(known: KnownRate, worst: WorstRecord | None) -> bool:
    # By the record's own interval: that of the largest rate lies far above a guess on clean data,
    # too ("alarm" in benchmarks/results/largest_rate.json).
    own = None if worst is None or worst.source != "exposure" else worst.own_interval
    return own is not None and own[0] > STRONG_TIMES * known.fpr


def _surely_stands_out(known: KnownRate, worst: WorstRecord | None) -> bool:
    # With fewer models some record of many stands out by chance, most where a model has few
    # parameters ("stands_out" in benchmarks/results/few_parameters.json).
    return known.trainings >= ENOUGH_MODELS and _worst_stands_out(known, worst)


def _reaches_far(known: KnownRate) -> bool:
    return known.interval is None or known.interval[1] > max(FAR_REACHING, STRONG_TIMES * known.fpr)


def _too_coarse(known: KnownRate) -> bool:
    return STRONG_TIMES * known.fpr >= 1


# The first row that holds is the verdict. A guess recognises a share `fpr` of the members.
LEVELS = (
    Level(
        "unknown",
        "Not known",
        lambda seen: seen.known.rate is None,
        "nothing is known about an attack's rate",
        "without records that the model has not seen nothing can be compared",
    ),
    Level(
        "strong",
        "Strong leakage",
        lambda seen: _guess_left_out(seen.known) and _many_times_a_guess(seen.known),
        f"the interval leaves a guess out, and the rate is more than {STRONG_TIMES:g} times a guess",
        "an accusation is then right more than ten times as often as chance makes it: the line of finding NS001",
    ),
    Level(
        "some",
        "Some leakage",
        lambda seen: _guess_left_out(seen.known) or _surely_stands_out(seen.known, seen.worst) or seen.average,
        f"the interval leaves a guess out, or that of the most exposed record, by {ENOUGH_MODELS} reference models or more, lies above "
        f"{STRONG_TIMES:g} times a guess, or the losses give the average member away (NS002)",
        "a rate near a guess protects neither the one person who is found every time nor a crowd that is found too often",
    ),
    Level(
        "unknown",
        "Not known: too few records",
        lambda seen: seen.fewest < FEWEST_RECORDS,
        f"the rate is read off fewer than {FEWEST_RECORDS} records of a split",
        f"an attack that finds {per_thousand(FAR_REACHING)} finds nobody among so few with a chance above 5 %",
    ),
    Level(
        "unknown",
        "Not known: the level is too coarse",
        lambda seen: _too_coarse(seen.known),
        f"a guess finds {per_thousand(1 / STRONG_TIMES)} or more",
        f"no rate can be {STRONG_TIMES:g} times such a guess: strong leakage could not show",
    ),
    Level(
        "unknown",
        "Not known: the answer is too uncertain",
        lambda seen: _many_times_a_guess(seen.known) or _reaches_far(seen.known) or _worst_stands_out(seen.known, seen.worst),
        f"the interval holds a guess, and the rate is more than {STRONG_TIMES:g} times one, or the interval reaches "
        f"{per_thousand(FAR_REACHING)}, or the most exposed record stands out by fewer than {ENOUGH_MODELS} reference models",
        "such an interval holds both no leakage and strong leakage, and no sign of one is no proof of the other",
    ),
    Level(
        "unknown",
        "Not known: losses alone say little of a language model",
        lambda seen: seen.tail_alone,
        "the interval holds a guess, and nothing but the tail of a language model's losses is known",
        "texts differ in how hard they are by far more than by having been seen: a fine-tune whose comparison with its base finds many "
        "shows no sign of it there",
    ),
    Level(
        "none",
        "No sign of leakage",
        lambda *_: True,
        "the interval holds a guess and ends near it",
        "the attack does not do better than chance, as far as these records can show",
    ),
)


@dataclass(frozen=True)
class Verdict:
    """The answer in one word, one title and one sentence.

    Attributes:
        level: "none", "some", "strong" or "unknown". title: the level for a reader.
        sentence: what is known in people per thousand, beside what a guess would find.
        known: the rate behind it.
        remedy: where no figure of the audit answers, what would; "" elsewhere.
    """

    level: str
    title: str
    sentence: str
    known: KnownRate
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The verdict in plain JSON types, without what it rests on."""
        return {"level": self.level, "title": self.title, "sentence": self.sentence}


def verdict(audit: Audited) -> Verdict:
    """Judge an audit by the best that is known: no sign of leakage, some, strong, or not known.

    The conditions and their reasons are the rows of `LEVELS`. Where a finding puts all figures in
    doubt (`Rule.undermines`), the verdict is that nothing is known, and its sentence is that of
    the finding.

    Args:
        audit: an Audit, or whatever has its fields.

    Cost: O(n) in the number of records.
    """
    known, worst = best_known(audit), worst_record(audit)
    doubt = in_doubt(audit)
    if doubt is not None:
        return Verdict("unknown", "Not known: the figures are in doubt", doubt.sentence, known, doubt.next_step)
    (fewest, split), average = _smaller_split(audit, known), given_away(audit)
    seen = _Seen(known, worst, average, fewest, known.source == "losses" and audit.task == LANGUAGE_MODEL)
    level = next(row for row in LEVELS if row.holds(seen))
    sentence, unfit = _sentence(known), base_left_out(audit)
    if known.source == "losses" and unfit is not None:
        sentence += f" {unfit[:1].upper()}{unfit[1:]}."
    if level.name == "unknown" and known.rate is not None and fewest < FEWEST_RECORDS:
        chance = f"{100 * (1 - FAR_REACHING) ** fewest:.0f} %"
        few = f"An attack that finds {per_thousand(FAR_REACHING)} finds nobody among {fewest:g} {split} records with a chance of {chance}."
        remedy = f"Audit with at least {FEWEST_RECORDS} records of each split; of {split} records there are {fewest:g}."
        return Verdict(level.name, level.title, f"{few} {sentence}", known, remedy)
    if level.name == "unknown" and known.rate is not None and _too_coarse(known):
        remedy = f"Audit at a smaller false-positive rate than {per_thousand(1 / STRONG_TIMES)}, and with more records where it needs them."
        return Verdict(level.name, level.title, sentence, known, remedy)
    if level.name == "some" and not _guess_left_out(known):
        if worst is not None and _surely_stands_out(known, worst):
            sentence += f" {_named(worst)} is recognised by {per_thousand(worst.rate)} attacks."
        elif average and audit.model_risk is not None:
            pairs = per_thousand(audit.model_risk.auc)
            sentence += f" Of a member and a non-member, the loss tells which is which for {pairs} pairs; a coin for 500."
    elif level.name == "unknown" and worst is not None and _worst_stands_out(known, worst):
        sentence += (
            f" {_named(worst)} is estimated at {per_thousand(worst.rate)} attacks, which so few models also say of records that do "
            f"not leak: {ENOUGH_MODELS} tell."
        )
    return Verdict(level.name, level.title, sentence, known)


def _named(worst: WorstRecord) -> str:
    return "The most exposed record" if worst.first_id == worst.id else "The record with the largest rate"


def given_away(audit: Audited) -> bool:
    """Whether losses give the average member away (NS002), and no trained models answer."""
    return best_known(audit).source in ("losses", "compared") and finding_of(audit, GIVEN_AWAY).status == "found"


def _smaller_split(audit: Audited, known: KnownRate) -> tuple[float, str]:
    """Records of the smaller split and its name, where the rate rests on the two splits alone."""
    risk = audit.model_risk
    if risk is None or known.source not in _OF_THE_SPLITS:
        return math.inf, ""
    return min((float(risk.n_members), "training"), (float(risk.n_nonmembers), "test"))


def in_doubt(audit: Audited) -> Finding | None:
    """The finding that puts every figure of the audit in doubt, where there is one."""
    return next(iter(most_severe(undermining_findings(audit))), None)


def _sentence(known: KnownRate) -> str:
    if known.rate is None:
        return known.reason
    rate, guess = per_thousand(known.rate), per_thousand(known.fpr)
    level = "" if known.interval_level is None else f"{100 * known.interval_level:g} % "
    between = "" if known.interval is None else f" ({level}interval {per_thousand_between(known.interval)})"
    if known.source == "losses":
        return (
            f"From the losses alone an attacker can rule out {rate} people who were not in the training data{between}; "
            f"a guess rules out {guess}."
        )
    who = {
        "measured": f"The strongest attack tried, {known.attack} with {known.trainings} reference models, recognises",
        "compared": "An attacker who compares the model with its base recognises",
        "exposure": "An attacker who trains models like this one is estimated to recognise",
        "predicted": "An attacker who trains models like this one is predicted to recognise",
    }[known.source]
    where = "" if known.attacked in (None, "target") else ", in the mean over reference models"
    return f"{who} {rate} people in the training data{between}{where}; a guess recognises {guess}."
