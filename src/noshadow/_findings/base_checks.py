"""Checks on the base of a fine-tuned language model: whether it can stand for "never saw it"."""

import math

from noshadow._findings.outcome import Limits, Outcome, judged, not_applicable, skipped
from noshadow._findings.rule import rule
from noshadow._known import base_stamp, nats_above_a_guess, tells_splits_apart
from noshadow._known.audited import Audited
from noshadow.limits import BASE_DISTANCE, BASE_NATS

_NO_BASE = "no base model was compared with this one"


@rule(
    "NS031",
    "base-tells-splits-apart",
    "high",
    found_when="the loss AUC of the base is further than {distance} from 0.5, and its interval leaves 0.5 out",
    next_step=(
        "Draw training and test texts from one source, and take test texts that the base has not seen: else every comparison of the two "
        "splits measures where texts come from, not whether they were trained on."
    ),
    # A test of equal distributions: members and non-members of one source differ by chance alone.
    limits={"distance": BASE_DISTANCE},
)
def base_tells_splits_apart(audit: Audited, limits: Limits) -> Outcome:
    """NS031: whether a model that was trained on neither split knows one of them better."""
    stamp = base_stamp(audit)
    if stamp is None:
        return not_applicable(_NO_BASE)
    if stamp.get("auc") is None or stamp.get("auc_interval") is None:
        return skipped("there are no test sequences to compare", "Give test texts that neither model has seen.")
    value, (low, high) = float(stamp["auc"]), (float(end) for end in stamp["auc_interval"])
    sentence = f"The base alone tells training from test texts with an AUC of {value:.3f} (95 % interval {low:.3f} to {high:.3f})"
    if not tells_splits_apart(stamp, limits["distance"]):
        return judged(False, value, f"{sentence}; 0.5 is what it should be.")
    better = "training texts, or they are simpler" if value > 0.5 else "test texts, or they are simpler"
    sentence += f", although it was trained on neither: it has seen the {better}"
    return judged(True, value, f"{sentence}.")


@rule(
    "NS032",
    "base-worse-than-a-guess",
    "high",
    found_when="the base's mean loss on test texts exceeds the logarithm of the number of tokens by more than {nats} nats",
    next_step="Give the model that the fine-tuning started from, with the tokenizer of the audited model.",
    limits={"nats": BASE_NATS},
)
def base_worse_than_a_guess(audit: Audited, limits: Limits) -> Outcome:
    """NS032: whether the base knows the tokens of these texts at all."""
    stamp = base_stamp(audit)
    if stamp is None:
        return not_applicable(_NO_BASE)
    loss, size = stamp.get("test_loss"), stamp.get("vocabulary")
    if size is None or loss is None:
        return skipped("there are no test sequences to compare", "Give test texts that neither model has seen.")
    above = nats_above_a_guess(stamp)
    assert above is not None
    sentence = (
        f"The base's mean loss on test texts is {float(loss):.3g} nats, and a guess among {int(size):,} tokens costs {math.log(size):.3g}"
    )
    found = above > limits["nats"]
    return judged(found, above, f"{sentence}{': most likely it was trained with another tokenizer' if found else ''}.")
