"""One verdict per audit, by what the interval of the best known rate leaves out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noshadow._findings import finding_of, most_severe, undermining_findings
from noshadow._known import KnownRate, WorstRecord, base_left_out, best_known, per_thousand, per_thousand_between, worst_record
from noshadow._known.audited import Audited
from noshadow.figures import Finding
from noshadow.limits import STRONG_TIMES

# An interval that reaches one member in ten cannot carry "no sign of leakage".
FAR_REACHING = 0.1
# The finding of losses that tell members from others on average.
GIVEN_AWAY = "NS002"
LANGUAGE_MODEL = "language-model"


@dataclass(frozen=True)
class Level:
    """One row of the table of verdicts.

    Attributes:
        name: of the level. title: what a reader sees. holds: the condition, of the best known rate,
            the most exposed record, whether the losses give the average member away (NS002), and
            whether the rate is the loss tail of a language model, which says little.
            condition: the same in words. why: the reason for the line.
    """

    name: str
    title: str
    holds: Callable[[KnownRate, WorstRecord | None, bool, bool], bool]
    condition: str
    why: str


def _guess_left_out(known: KnownRate) -> bool:
    return known.interval is not None and known.interval[0] > known.fpr


def _many_times_a_guess(known: KnownRate) -> bool:
    return known.rate is not None and known.rate > STRONG_TIMES * known.fpr


def _worst_stands_out(known: KnownRate, worst: WorstRecord | None) -> bool:
    # By the record's own interval: where few models were trained, that of the largest rate lies far
    # above a guess on clean data, too ("alarm" in benchmarks/results/largest_rate.json).
    own = None if worst is None or worst.source != "exposure" else worst.own_interval
    return own is not None and own[0] > STRONG_TIMES * known.fpr


def _reaches_far(known: KnownRate) -> bool:
    return known.interval is None or known.interval[1] > max(FAR_REACHING, STRONG_TIMES * known.fpr)


# The first row that holds is the verdict. A guess recognises a share `fpr` of the members.
LEVELS = (
    Level(
        "unknown",
        "Not known",
        lambda known, *_: known.rate is None,
        "nothing is known about an attack's rate",
        "without records that the model has not seen nothing can be compared",
    ),
    Level(
        "strong",
        "Strong leakage",
        lambda known, *_: _guess_left_out(known) and _many_times_a_guess(known),
        f"the interval leaves a guess out, and the rate is more than {STRONG_TIMES:g} times a guess",
        "an accusation is then right more than ten times as often as chance makes it: the line of finding NS001",
    ),
    Level(
        "some",
        "Some leakage",
        lambda known, worst, average, _: _guess_left_out(known) or _worst_stands_out(known, worst) or average,
        f"the interval leaves a guess out, or that of the most exposed record lies above {STRONG_TIMES:g} times a guess, or the losses "
        "give the average member away (NS002)",
        "a rate near a guess protects neither the one person who is found every time nor a crowd that is found too often",
    ),
    Level(
        "unknown",
        "Not known: the answer is too uncertain",
        lambda known, *_: _many_times_a_guess(known) or _reaches_far(known),
        f"the interval holds a guess, and the rate is more than {STRONG_TIMES:g} times one or the interval reaches "
        f"{per_thousand(FAR_REACHING)}",
        "such an interval holds both no leakage and strong leakage, and no sign of one is no proof of the other",
    ),
    Level(
        "unknown",
        "Not known: losses alone say little of a language model",
        lambda *given: given[-1],
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
    """

    level: str
    title: str
    sentence: str
    known: KnownRate

    def to_dict(self) -> dict[str, Any]:
        """The verdict in plain JSON types, without what it rests on."""
        return {"level": self.level, "title": self.title, "sentence": self.sentence}


def verdict(audit: Audited) -> Verdict:
    """Judge an audit by the best that is known: no sign of leakage, some, strong, or not known.

    The conditions and their reasons are the rows of `LEVELS`. Where a finding puts all figures in
    doubt (NS040, NS044), the verdict is that nothing is known, and its sentence is the finding's.

    Args:
        audit: an Audit, or whatever has its fields.

    Cost: O(n) in the number of records.
    """
    known, worst = best_known(audit), worst_record(audit)
    doubt = in_doubt(audit)
    if doubt is not None:
        return Verdict("unknown", "Not known: the figures are in doubt", doubt.sentence, known)
    average = given_away(audit)
    tail = known.source == "losses" and audit.task == LANGUAGE_MODEL
    level = next(row for row in LEVELS if row.holds(known, worst, average, tail))
    sentence, unfit = _sentence(known), base_left_out(audit)
    if known.source == "losses" and unfit is not None:
        sentence += f" {unfit[:1].upper()}{unfit[1:]}."
    if level.name == "some" and not _guess_left_out(known):
        if worst is not None and _worst_stands_out(known, worst):
            sentence += f" The most exposed record is recognised by {per_thousand(worst.rate)} attacks."
        elif average and audit.model_risk is not None:
            pairs = per_thousand(audit.model_risk.auc)
            sentence += f" Of a member and a non-member, the loss tells which is which for {pairs} pairs; a coin for 500."
    return Verdict(level.name, level.title, sentence, known)


def given_away(audit: Audited) -> bool:
    """Whether losses give the average member away (NS002), and no trained models answer."""
    return best_known(audit).source in ("losses", "compared") and finding_of(audit, GIVEN_AWAY).status == "found"


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
