"""Estimators around an nn.Module, as skorch makes them: read as the module that they hold.

A pipeline that ends in one is read as that module, on what its steps make of a table (X, y).
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from noshadow.checks import refuse, users_code
from noshadow.signals import Signals
from noshadow.views.estimator_family import last_step
from noshadow.views.reader import NETWORK, Reader, Transform
from noshadow.views.torch import MODULE
from noshadow.views.view import Settings, View

PIPELINE = "a pipeline that ends in an estimator around an nn.Module"


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


def _ends_in_module(model: object) -> bool:
    last = last_step(model)[1]
    return last is not model and module_in(last) is not last


def _inside(model: object) -> Any:
    return module_in(last_step(model)[1])


def _through_steps(model: object, data: object, argument: str, transform: Transform | None = None) -> object:
    """The table (X, y) as the last step of a pipeline sees its inputs."""
    if data is None:
        return None
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        hint = "Or audit the module itself, on what the steps make of the inputs."
        refuse(argument, f"be (X, y) for {PIPELINE}", type(data).__name__, hint)
    X, y = data
    if len(y) == 0:
        return X, y
    if transform is not None:
        with users_code("queries must accept the data's inputs"):
            X = transform(X)
    with users_code(f"model must accept {argument} X"):
        for step in last_step(model)[0]:
            X = step.transform(X)
    return X, y


def _view(model: Any, train: object, test: object, **how: Any) -> View:
    seen: View = MODULE.view(_inside(model), _through_steps(model, train, "train"), _through_steps(model, test, "test"), **how)  # type: ignore[operator]
    return seen


def _signals(model: Any, data: object, *, settings: Settings) -> Signals:
    found: Signals = MODULE.signals(_inside(model), _through_steps(model, data, "data"), settings=settings)  # type: ignore[operator]
    return found


def _outputs(model: Any, data: object, *, task: str, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    made = _through_steps(model, data, "data", transform)
    found: tuple[Signals, str] = MODULE.outputs(_inside(model), made, task=task, transform=None, settings=settings)  # type: ignore[operator]
    return found


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
PIPED_MODULE = Reader(
    name="nn.Module in a pipeline",
    form="table",
    reads=_ends_in_module,
    family=lambda _: NETWORK,
    view=_view,
    signals=_signals,
    outputs=_outputs,
    weights_sha256=lambda model, outputs: MODULE.weights_sha256(_inside(model), outputs),
    open_scale=True,
)
