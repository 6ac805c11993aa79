"""Callbacks that record while a trainer runs.

Their classes are made when asked for, so that no framework is imported before.
"""

import importlib
import sys
from typing import Any, Protocol

from noshadow.checks import InputError, refuse, said, speaking_for

# Their forward is a collective call of all processes: rank zero alone would wait for ever.
SHARDED_STRATEGIES = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


class Recorder(Protocol):
    """What a callback needs of LossTraces."""

    def __len__(self) -> int: ...

    def record(self, model: object) -> None:
        """Add the loss of every record under the model as it is now."""


def lightning_callback(traces: Recorder, module_attribute: str | None) -> Any:
    """A Callback of the installed Lightning; arguments as in `LossTraces.lightning_callback`."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    # Both names may be installed, with classes of their own: the one already in use is the user's.
    names.sort(key=lambda name: name not in sys.modules)
    base = _framework_class(names, "Callback", "lightning")

    def record(trainer: Any, module: Any) -> None:
        strategy = type(trainer.strategy).__name__
        # Lightning calls this long after the call that made it, when nobody is named any more.
        with speaking_for("LossTraces.lightning_callback"):
            if strategy in SHARDED_STRATEGIES:
                _refuse_sharded(strategy)
            if trainer.is_global_zero and module_attribute is not None:
                module = _submodule(module, module_attribute)
        if trainer.is_global_zero:
            traces.record(module)

    def on_train_start(_: object, trainer: Any, module: Any) -> None:
        if len(traces) == 0:
            record(trainer, module)

    def on_train_epoch_end(_: object, trainer: Any, module: Any) -> None:
        record(trainer, module)

    return type("LossTracesCallback", (base,), {"on_train_start": on_train_start, "on_train_epoch_end": on_train_epoch_end})()


def transformers_callback(traces: Recorder) -> Any:
    """A TrainerCallback; as in `LossTraces.transformers_callback`."""
    base = _framework_class(["transformers"], "TrainerCallback", "transformers")

    def record(args: Any, state: Any, model: Any) -> None:
        if args.fsdp or args.deepspeed:
            with speaking_for("LossTraces.transformers_callback"):
                _refuse_sharded("FSDP" if args.fsdp else "DeepSpeed")
        if state.is_world_process_zero:
            traces.record(model)

    def on_train_begin(_: object, args: Any, state: Any, control: object, *, model: Any, **__: object) -> None:
        if len(traces) == 0:
            record(args, state, model)

    def on_epoch_end(_: object, args: Any, state: Any, control: object, *, model: Any, **__: object) -> None:
        record(args, state, model)

    return type("LossTracesCallback", (base,), {"on_train_begin": on_train_begin, "on_epoch_end": on_epoch_end})()


def _framework_class(modules: list[str], name: str, extra: str) -> type:
    reasons = []
    for module in modules:
        try:
            found: type = getattr(importlib.import_module(module), name)
        except ImportError as error:
            reasons.append(str(error).splitlines()[0].rstrip("."))
        else:
            return found
    raise InputError(said(f"{extra} must be installed; got {'; '.join(reasons)}. Run pip install noshadow[{extra}]."))


def _submodule(module: Any, name: str) -> Any:
    try:
        return module.get_submodule(name)
    except AttributeError as error:
        held = ", ".join(child for child, _ in module.named_children()) or "none"
        raise InputError(said(f"module_attribute must name a sub-module; got {name!r} (sub-modules: {held}).")) from error


def _refuse_sharded(strategy: str) -> None:
    refuse("trainer", "keep a whole model in each process", strategy, "Gather the losses yourself and append them.")
