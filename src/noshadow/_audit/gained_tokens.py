"""What is being memorised: the tokens on which a fine-tuned language model left its base."""

from typing import Any

import numpy as np

from noshadow._audit.language_base import base_given, read_base
from noshadow.arguments import BATCH_SIZE, PROGRESS
from noshadow.checks import NotApplicable, named_in_errors, refuse, users_code
from noshadow.results import TokenGains
from noshadow.views import sequence_losses


@named_in_errors
def token_gains(
    model: object,
    data: object,
    *,
    base: object = None,
    tokenizer: object = None,
    batch_size: int = BATCH_SIZE,
    device: object = None,
    progress: bool = PROGRESS,
) -> TokenGains:
    """What a language model gained over its base on each token, log p(x_t) − log q(x_t) in nats.

    Their mean over a sequence is its `base_gain`. A secret that was learned by heart stands out: a
    few tokens carry the gain, while style and common words gain a little everywhere. Hand the
    result to `write_report(audit, path, show_records=…)` to see it for the most exposed sequences.

    Args:
        model: the fine-tuned language model. data: its training sequences, as in `sequence_losses`.
        base: the model it started from, as in `audit`; may be left out where adapters of PEFT can
            be switched off.
        tokenizer: of the model, for texts instead of token ids.
        batch_size, device, progress: as in `sequence_losses`.

    Returns:
        TokenGains of all scored tokens. It holds the texts: it is as sensitive as they are.

    Raises:
        InputError: no base is given and none can be made, or a model or data that cannot be read.

    Exact when: always to rounding. Cost: one forward pass of each model; 33 bytes a token.
    Reference: the difference behind `base_gain` (Carlini et al. 2021), token by token.

    Example:
        >>> import noshadow as ns
        >>> ns.token_gains("gpt2", [[1, 2, 3]])
        Traceback (most recent call last):
        noshadow.errors.InputError: token_gains: model must be a language model of transformers; got an object of type str.
    """  # noqa: W505 - doctest compares the message on one line
    reading: dict[str, Any] = {"batch_size": batch_size, "device": device, "progress": progress}
    own = sequence_losses(model, data, argument="data", statistics=True, **reading)
    origin = base_given(base, model, tokenizer)
    below = origin if isinstance(origin, NotApplicable) else read_base(origin, model, own, None, reading)
    if isinstance(below, NotApplicable):
        refuse("base", "be the model that the fine-tuning started from", f"none ({below})")
    assert own.statistics is not None and below.train.statistics is not None and own.sequences is not None
    scored = zip(own.sequences.tokens, own.sequences.counts, strict=True)
    tokens = np.concatenate([ids[counts] for ids, counts in scored])
    gain = own.statistics.log_probability - below.train.statistics.log_probability
    return TokenGains(tokens, _texts(tokens, tokenizer), gain, own.statistics.log_probability, own.statistics.starts)


def _texts(tokens: Any, tokenizer: Any) -> tuple[str, ...] | None:
    """Each token as a text, asked of the tokenizer once per different token."""
    if tokenizer is None:
        return None
    different, places = np.unique(tokens, return_inverse=True)
    with users_code("tokenizer must decode every token"):
        told = [str(tokenizer.decode([int(token)])) for token in different]
    return tuple(told[place] for place in places)
