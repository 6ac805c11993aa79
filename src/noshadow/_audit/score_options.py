"""Check options of the record scores that an audit hands on.

The module lists which options there are, and refuses others.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from noshadow.checks import refuse
from noshadow.scores.last_layer.entry import record_scores
from noshadow.scores.network.entry import network_scores
from noshadow.scores.sequences import sequence_scores

HEAD, NETWORK, SEQUENCES = "record_scores", "network_scores", "sequence_scores"
ROUTES: dict[str, Callable[..., Any]] = {HEAD: record_scores, NETWORK: network_scores, SEQUENCES: sequence_scores}
# What an audit settles itself, by its own arguments or from the model and the data.
SETTLED = frozenset(
    {"features", "outputs", "targets", "head", "model", "train", "task", "layers", "layer", "damping", "damping_source", "weight_decay"}
    | {
        "fit_intercept",
        "penalize_intercept",
        "sample_weight",
        "output",
        "output_scale",
        "columns",
        "batch_size",
        "device",
        "progress",
        "seed",
    }
)
# Of a head `outputs` are the logits; of a network it is the choice between the margin and all of
# them. Of a head `columns` is "auto" or "all".
OPEN = {NETWORK: {"outputs"}, HEAD: {"columns"}}


def option_names(route: str) -> tuple[str, ...]:
    """Names of the options that may be handed on to a route."""
    held = inspect.signature(ROUTES[route]).parameters
    return tuple(name for name in held if name not in SETTLED - OPEN.get(route, set()))


def checked_score_options(given: object, route: str) -> dict[str, Any]:
    """The options given, as plain values that JSON holds.

    Raises:
        InputError: not a dictionary, a name that the route does not have (those it has are listed),
            or a value that is not plain.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        refuse("score_options", "be a dictionary of options", type(given).__name__)
    known = option_names(route)
    for name, value in given.items():
        if name not in known:
            own = f"{name} is an argument of its own here." if name in SETTLED else ""
            refuse("score_options", f"name options of {route} ({', '.join(known)})", repr(name), own)
        if not isinstance(value, (str, int, float, np.integer, np.floating)) and value is not None:
            refuse(f"score_options[{name!r}]", "be a number or text", type(value).__name__)
    return {str(name): value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


def head_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keep the options that belong to the last layer's scores.

    They serve models audited beside the one that the options were given for.
    """
    return {name: value for name, value in (given or {}).items() if name in option_names(HEAD)}


def joined_options(stated: Mapping[str, Any] | None, asked: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a Target and of the command together; one name with two values is refused."""
    for name, value in (asked or {}).items():
        if stated and name in stated and stated[name] != value:
            got = f"{value!r}"
            refuse(f"score option {name}", f"agree with the Target's {stated[name]!r}", got, "Leave one of the two out.")
    return dict(stated or {}) | dict(asked or {})
