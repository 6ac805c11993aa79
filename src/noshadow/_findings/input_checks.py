"""Checks on how model and data were read: what `audit.provenance["inputs"]` holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable, skipped
from noshadow._findings.rule import rule
from noshadow._known.audited import Audited
from noshadow.limits import IMMATERIAL

_AGAIN = "Run the audit again with this version."
_SPLITS = {"train": "training", "test": "test"}
_SOURCES = {
    "data": "what the data set gives differs between two readings (random augmentation, mixup, noise)",
    "model": "the model gives the same inputs other outputs at each run (dropout or noise that eval() does not switch off)",
    "batch": "outputs depend on the batch a record is in (batch statistics in eval mode, padding that is not masked)",
}


@rule(
    "NS008",
    "ids-in-both-splits",
    "medium",
    found_when="more than {ids} ids are in both splits, where both have ids that say who is who",
    next_step="If they are the same people, take them out of one split and audit again: as it is the model risk is understated.",
    limits={"ids": 0.0},
)
def ids_in_both_splits(audit: Audited, limits: Limits) -> Outcome:
    """NS008: ids that training and test records share."""
    shared = _fact(audit, "ids_in_both", "whether ids are in both splits")
    if isinstance(shared, Outcome):
        return shared
    if shared is None:
        return not_applicable("ids of both splits that say who is who were not given (row numbers do not)")
    count = int(shared["count"])
    found = judged(count > limits["ids"], count, f"{count} ids of test records are also ids of training records.")
    return Outcome(found.status, found.sentence, found.figure, examples=tuple(map(str, shared["first"])) if count else ())


@rule(
    "NS040",
    "random-records",
    "high",
    found_when="outputs of a record change by > {share} of their spread (and by more than rounding) when it is read and run again",
    next_step=(
        "Audit without random augmentation and with a model whose eval() switches all randomness and batch statistics off: as it is no "
        "loss, score or rank belongs to its record."
    ),
    limits={"share": IMMATERIAL},
    undermines=True,
)
def random_records(audit: Audited, _: Limits) -> Outcome:
    """NS040: whether the outputs are a function of the record."""
    again = _fact(audit, "run_again", "what came of reading records twice")
    if isinstance(again, Outcome):
        return again
    if not again:
        reading = "sequences are not run twice" if audit.task == "language-model" else "no model was run: its outputs were given"
        return not_applicable(reading)
    again = {name: again[name] for name in _SPLITS if name in again}  # JSON sorts them otherwise
    if not any(int(split["changed"]) for split in again.values()):
        looked = " and ".join(f"{split['records']} {_SPLITS[name]}" for name, split in again.items())
        return judged(False, 0.0, f"{looked} records were read and run twice, with the same outputs.")
    told = [
        f"{split['changed']} of {split['records']} {_SPLITS[name]} records, by {float(split['size']):.2g} of the outputs' spread"
        for name, split in again.items()
        if split["changed"]
    ]
    sources = dict.fromkeys(source for split in again.values() for source in split["sources"])
    causes = "; ".join(_SOURCES[source] for source in sources)
    sentence = f"Read and run twice, the outputs change for {' and for '.join(told)}: {causes}."
    return judged(True, max(float(split["size"]) for split in again.values()), sentence)


@rule(
    "NS041",
    "repeated-rows",
    "low",
    found_when="more than {records} records are of a row of the data that was taken before",
    next_step="Take each row once: copies hide one another, and a person who is there twice leaves twice.",
    limits={"records": 0.0},
)
def repeated_rows(audit: Audited, limits: Limits) -> Outcome:
    """NS041: rows of the data that were taken more than once."""
    repeats = _fact(audit, "repeated_rows", "how often rows were taken")
    if isinstance(repeats, Outcome):
        return repeats
    if repeats is None:
        return not_applicable("the records were given as arrays, and no rows were chosen")
    train, test = (int(repeats.get(split, 0)) for split in _SPLITS)
    named = " (ids 17, 17#2, 17#3, …)" if train + test else ""
    sentence = f"{train} training and {test} test records are of a row that was taken before{named}."
    return judged(train + test > limits["records"], train + test, sentence)


@rule(
    "NS042",
    "probabilities-given",
    "medium",
    found_when="the outputs of a classifier were given as probabilities",
    next_step="Give logits, or logarithms of probabilities that were never rounded (log_softmax in float64), and audit again.",
)
def probabilities_given(audit: Audited, _: Limits) -> Outcome:
    """NS042: whether logits had to be made from probabilities."""
    if audit.task not in ("classification", "binary"):
        return not_applicable("outputs of this task are neither logits nor probabilities")
    fact = audit.provenance.get("inputs", {}).get("output_scale")
    if fact is None:
        if audit.provenance.get("arguments", {}).get("call") == "audit_signals":
            return skipped("the version that wrote this audit did not look at the scale of the outputs", _AGAIN)
        return not_applicable("the outputs were read from the model itself")
    if fact["given"] != "probabilities":
        return judged(False, 0, f"The outputs are {fact['given']}.")
    sentence = (
        "The outputs are probabilities, and their logarithms were taken as logits: losses are the model's own, but near p = 1 rounding "
        f"hides what sets well-fitted records apart ({fact['raised']} of {fact['entries']} entries were rounded to 0 or 1)."
    )
    return judged(True, fact["raised"], sentence)


@rule(
    "NS043",
    "outputs-not-of-the-head",
    "high",
    found_when="more than {records} records get another output from the model than from its head",
    next_step=(
        "Find out what follows the last Linear (a clamp, a ReLU, a temperature, an abstention), and score through it with layers='all' "
        "(--layers all) or the head by itself with layer= (--layer)."
    ),
    limits={"records": 0.0},
)
def outputs_not_of_the_head(audit: Audited, limits: Limits) -> Outcome:
    """NS043: whether the model returns what its head gives, for every record."""
    facts = _fact(audit, "head_outputs", "whether outputs are those of the head")
    if isinstance(facts, Outcome):
        return facts
    if facts is None:
        return not_applicable("no head of a module was read")
    differing, records = int(facts["differing"]), int(facts["records"])
    name = f"{facts['ending']} of '{facts['layer']}'" if facts["ending"] else f"'{facts['layer']}'"
    if differing <= limits["records"]:
        return judged(False, differing, f"The outputs of all {records} records are those of {name}.")
    size = "" if facts["largest"] is None else f" by up to {facts['largest']:.3g}"
    used = (
        f"The audit is of that layer, as asked for: layer={facts['layer']!r}."
        if facts["used"] == "layer"
        else "Losses are of the model's own."
    )
    sentence = f"The outputs of {differing} of {records} records differ from {name}{size}. {used}"
    ids = np.asarray(audit.records["id"])[np.array(facts["train_rows"], dtype=np.int64)]
    return Outcome("found", sentence, float(differing), examples=tuple(map(str, ids)))


@rule(
    "NS044",
    "other-training-records",
    "high",
    found_when="the model contradicts the records that it is said to be fitted on",
    next_step="Audit with the very records of the fit, in their order, and with the sample_weight= that it had.",
    undermines=True,
)
def other_training_records(audit: Audited, _: Limits) -> Outcome:
    """NS044: whether the model was fitted on the records that were given as its own."""
    inputs = audit.provenance.get("inputs", {})
    if "other_records" in inputs:
        told = str(inputs["other_records"])
        return judged(True, 1, f"{told[:1].upper()}{told[1:].rstrip('.')}.")
    if "solver_leaves" in inputs:
        return judged(False, 0, "The gradient that is left over on these records is no other than that of the fit's own.")
    if "closed_form" not in inputs and "leaves" not in inputs:
        return not_applicable("nothing in this model says which records it was fitted on")
    return judged(False, 0, "Made again from its training records, the model says the same.")


def _fact(audit: Audited, name: str, what: str) -> Mapping[str, Any] | Outcome | None:
    """Return a fact of the reading, or None where that reading has no such fact.

    Audits that hold no facts at all give an outcome.
    """
    inputs: Mapping[str, Any] | None = audit.provenance.get("inputs")
    return skipped(f"this audit does not hold {what}", _AGAIN) if inputs is None else inputs.get(name)
