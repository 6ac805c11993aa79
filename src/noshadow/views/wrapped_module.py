"""Estimators around an nn.Module, as skorch makes them: read as the module that they hold."""

from collections.abc import Callable
from typing import Any

from torch import nn

from noshadow.views.reader import NETWORK, Reader
from noshadow.views.torch import MODULE


def module_in(model: object) -> Any:
    """The fitted module of an estimator that keeps it as `module_`; any other model as it is.

    Read from the object's own attributes, so that no property of a stranger is run.
    """
    held = getattr(model, "__dict__", {}).get("module_")
    return held if isinstance(held, nn.Module) and not isinstance(model, nn.Module) else model


def _of_module(function: Any) -> Callable[..., Any]:
    def asked(model: object, *rest: Any, **how: Any) -> Any:
        return function(module_in(model), *rest, **how)

    return asked


# Targets are numbers of classes, as the module's own training has them.
WRAPPED_MODULE = Reader(
    name="nn.Module in an estimator",
    form="batches",
    reads=lambda model: module_in(model) is not model,
    family=lambda _: NETWORK,
    view=_of_module(MODULE.view),
    signals=_of_module(MODULE.signals),
    outputs=_of_module(MODULE.outputs),
    weights_sha256=_of_module(MODULE.weights_sha256),
)
