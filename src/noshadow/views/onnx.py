"""Models in ONNX: the outputs of any framework, and exact scores where they end in a linear layer.

onnxruntime runs them. What enters the last Gemm, or MatMul + Add, becomes an output of the graph.
"""

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from noshadow.checks import ONE_LABEL, Array, InputError, as_array, numeric_array, refuse, resolved_task, said, users_code
from noshadow.outcomes import Absent
from noshadow.signals import Signals
from noshadow.views.estimator_tables import class_numbers
from noshadow.views.onnx_graph import Ending, ends_linear, found_ending
from noshadow.views.pairing import paired_targets
from noshadow.views.reader import NETWORK, Reader, Transform
from noshadow.views.repeated import compared, sampled_groups
from noshadow.views.row_names import index_ids, index_names, name_facts
from noshadow.views.view import Settings, View, no_records
from noshadow.weight_decay import training_damping

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}
HEADLESS = "the ONNX graph does not end in Gemm or MatMul + Add, so no layer's inputs can be read; record scores need them"


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model in ONNX whose file was checked; `noshadow.load_model` makes it.

    Attributes:
        proto: the ModelProto, with all of its weights in it; never changed.
        sha256: hex digest of the proto.
    """

    proto: Any
    sha256: str


@dataclass(frozen=True, eq=False)
class Running:
    """An ONNX model made ready to run: its session, and the tensors that are asked for."""

    session: Any
    ending: Ending


def running(model: OnnxModel, output: str | int) -> Running:
    """The session of a model whose only outputs are its logits and what enters its last layer."""
    ending = found_ending(model.proto.graph, output)
    changed = type(model.proto)()
    changed.CopyFrom(model.proto)
    del changed.graph.output[:]
    given = {one.name for one in changed.graph.input}
    for name in (ending.logits, ending.features):
        # An input of the graph cannot be its output too: it is known without running anything.
        if name is not None and name not in given:
            changed.graph.output.add().name = name
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level, options.use_deterministic_compute = 4, True
    try:
        session = runtime.InferenceSession(changed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has one exception type for each of its codes
        reason = str(error).splitlines()[0]
        raise InputError(said(f"model must be a graph that onnxruntime runs; got {type(error).__name__} ({reason}).")) from error
    return Running(session, ending)


def _view(model: OnnxModel, train: object, test: object, *, task: str, weight_decay: float | None, settings: Settings) -> View:
    _require_defaults(settings)
    run = running(model, settings.output)
    X, seen, notes = _signals(run, train, "train", settings)
    again = {"train": _run_again(run, X, seen, "train", settings)}
    names, unseen = {"train": index_names(X), "test": None}, no_records(seen)
    if test is not None and len(_pair(test, run, "test")[1]):
        X_test, unseen, more = _signals(run, test, "test", settings)
        again["test"] = _run_again(run, X_test, unseen, "test", settings)
        names["test"], notes = index_names(X_test), (*notes, *more)
    headless = seen.features is None
    if headless and weight_decay is not None:
        refuse("weight_decay", "be None where the ONNX graph ends in no linear layer", repr(weight_decay))
    settled = task
    if run.ending.kind or weight_decay is not None:
        settled = resolved_task(task, seen.outputs, seen.targets)
        _require_fitting_task(run.ending, settled, seen.outputs.shape[1])
    return View(
        train=seen,
        test=unseen,
        task=settled,
        head=None if headless else _described(run.ending, seen),
        fit_intercept=headless or run.ending.bias,
        penalize_intercept=not headless,
        penalty=Absent("not available", "The model has no linear head to damp.")
        if headless
        else training_damping(weight_decay, settled, *seen.outputs.shape),
        sample_weight=None,
        class_names=None if run.ending.classes is None else tuple(map(str, run.ending.classes)),
        not_applicable=HEADLESS if headless else None,
        notes=notes,
        weights_sha256=model.sha256,
        inputs=name_facts(names) | {"run_again": again},
    )


def _one_split(model: OnnxModel, data: object, *, settings: Settings) -> Signals:
    _require_defaults(settings)
    return _signals(running(model, settings.output), data, "data", settings)[1]


def _outputs(model: OnnxModel, data: object, *, task: str, transform: Transform | None, settings: Settings) -> tuple[Signals, str]:
    run = running(model, settings.output)
    X, y, _ = _pair(data, run, "data")
    if transform is not None:
        with users_code("queries must accept the data's inputs"):
            X = transform(X)
    _, outputs = _answered(run, X, len(y), "data", settings)
    settled = {"softmax": "classification", "log_softmax": "classification", "sigmoid": "binary", "": task}[run.ending.kind]
    return Signals(None, outputs, y, index_ids(X)), settled


def _require_defaults(settings: Settings) -> None:
    for argument, value, rest in (("layer", settings.layer, "auto"), ("device", settings.device, None)):
        if value != rest:
            refuse(argument, f"be {rest!r} for a model in ONNX", repr(value))


def _require_fitting_task(ending: Ending, task: str, outputs: int) -> None:
    if ending.kind and task == "regression":
        refuse("model", "give its raw output in a regression", f"a {ending.kind}", "For probabilities pass task='binary'.")
    if ending.kind == "sigmoid" and outputs > 1:
        refuse("model", "predict one label per record", f"a sigmoid of {outputs} outputs", ONE_LABEL)


def _pair(data: object, run: Running, argument: str) -> tuple[Any, Array, tuple[str, ...]]:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        refuse(argument, "be (X, y) for a model in ONNX", type(data).__name__)
    X, y = (as_array(part, argument) if isinstance(part, Tensor) else part for part in data)
    y, notes = paired_targets(X, y, argument)
    labels, classes = np.asarray(y), run.ending.classes
    if classes is not None:
        return X, class_numbers(labels, np.asarray(classes, dtype=object), argument), notes
    if labels.dtype.kind not in "biuf":
        got = f"values of type {labels.dtype}"
        refuse(f"{argument} y", "hold numbers, since the ONNX file names no classes", got, "Number them as the model does, from 0.")
    return X, numeric_array(labels, f"{argument} y", ndim=(1, 2)), notes


def _signals(run: Running, data: object, argument: str, settings: Settings) -> tuple[Any, Signals, tuple[str, ...]]:
    X, y, notes = _pair(data, run, argument)
    if len(y) == 0:
        refuse(argument, "hold at least one record", "none")
    features, outputs = _answered(run, X, len(y), argument, settings)
    return X, Signals(features, outputs, y, index_ids(X)), notes


def _answered(run: Running, X: Any, rows: int, argument: str, settings: Settings) -> tuple[Array | None, Array]:
    """What enters the last layer (n, d), None without one, and the outputs (n, m)."""
    fed = _fed(run.session, X, rows, argument)
    first = run.session.get_inputs()[0].shape[:1]
    fixed = first[0] if first and isinstance(first[0], int) else None
    size = fixed or settings.batch_size
    found: dict[str, list[Array]] = {}
    for start in range(0, rows, size):
        part = {name: values[start : start + size] for name, values in fed.items()}
        count = min(size, rows - start)
        if fixed and count < fixed:  # the last batch is filled up with its own last record
            part = {name: np.concatenate([values, values[-1:].repeat(fixed - count, axis=0)]) for name, values in part.items()}
        with users_code(f"model must accept {argument} X"):
            values = run.session.run(None, part)
        for name, value in zip((one.name for one in run.session.get_outputs()), values, strict=True):
            found.setdefault(name, []).append(np.asarray(value)[:count])
    tensors = {name: np.concatenate(parts) for name, parts in found.items()}
    outputs = numeric_array(tensors[run.ending.logits], f"model({argument} X)", ndim=(1, 2))
    if len(outputs) != rows:
        refuse(f"model({argument} X)", f"have one row for each of {rows} records", f"shape {outputs.shape}")
    features = tensors.get(run.ending.features or "", fed.get(run.ending.features or ""))
    # A layer that every token or pixel passes has no single row per record.
    features = features if features is not None and features.ndim == 2 and len(features) == rows else None
    return features, outputs


def _fed(session: Any, X: Any, rows: int, argument: str) -> Mapping[str, Array]:
    """X as the inputs of the graph: one array, or a column of a table for each of several."""
    inputs = session.get_inputs()
    if len(inputs) == 1:
        return {inputs[0].name: _as_input(X.to_numpy() if hasattr(X, "to_numpy") else X, inputs[0], rows, argument)}
    if not hasattr(X, "columns"):
        refuse(f"{argument} X", f"be a table with the columns {', '.join(one.name for one in inputs)}", type(X).__name__)
    missing = [one.name for one in inputs if one.name not in X.columns]
    if missing or len(X.columns) != len(inputs):
        got = f"none of {', '.join(missing)}" if missing else f"{len(X.columns)} columns for {len(inputs)} inputs"
        refuse(f"{argument} X", "have the columns that the model takes", got)
    return {one.name: _as_input(X[one.name].to_numpy()[:, None], one, rows, argument) for one in inputs}


def _as_input(values: Any, wanted: Any, rows: int, argument: str) -> Array:
    if wanted.type not in DTYPES:
        refuse("model", f"take inputs of {', '.join(DTYPES)}", f"'{wanted.name}' of {wanted.type}")
    rule = f"hold what the input '{wanted.name}' takes, {wanted.type}"
    try:
        array = np.asarray(values)
        array = array.astype(str).astype(object) if wanted.type == "tensor(string)" else array.astype(DTYPES[wanted.type])
    except (ValueError, TypeError) as error:
        refuse(f"{argument} X", rule, str(error).rstrip("."))
    shape = tuple(wanted.shape[1:])
    if array.shape[1:] != shape and array.ndim == 2 and all(isinstance(size, int) for size in shape) and len(shape) > 1:
        if int(np.prod(shape)) != array.shape[1]:
            refuse(f"{argument} X", f"have {int(np.prod(shape))} columns for inputs of shape {shape}", f"shape {array.shape}")
        array = array.reshape(rows, *shape)
    if array.ndim != len(wanted.shape) or any(
        isinstance(size, int) and size != have for size, have in zip(shape, array.shape[1:], strict=True)
    ):
        refuse(f"{argument} X", f"have the shape {tuple(wanted.shape)} that the model takes", f"shape {array.shape}")
    return np.ascontiguousarray(array)


def _run_again(run: Running, X: Any, seen: Signals, argument: str, settings: Settings) -> dict[str, Any]:
    """Compare some records with themselves after they are predicted again among other records."""
    rows, outputs = [], []
    for group in sampled_groups(len(seen), settings.batch_size):
        part = X.iloc[group] if hasattr(X, "iloc") else np.asarray(X)[group]
        runs = [_answered(run, part, len(group), argument, settings)[1] for _ in range(2)]
        outputs.append([one.reshape(len(group), -1) for one in runs])
        rows += group
    targets = seen.targets[np.array(rows)]
    first, second = (Signals(None, np.concatenate(part), targets) for part in zip(*outputs, strict=True))
    return compared(seen, np.array(rows), first, second, rounding=float(np.finfo(seen.outputs.dtype).eps))


def _described(ending: Ending, signals: Signals) -> str:
    assert signals.features is not None
    bias = "with" if ending.bias else "without"
    return f"{ending.layer} ({signals.features.shape[1]} → {signals.outputs.shape[1]}, {bias} bias)"


def onnx_model(proto: Any) -> OnnxModel:
    """The model of a parsed and checked ModelProto."""
    return OnnxModel(proto, hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest())


ONNX = Reader(
    name="ONNX",
    form="table",
    reads=lambda model: isinstance(model, OnnxModel),
    family=lambda model: NETWORK if ends_linear(model.proto.graph) else "ONNX",
    view=_view,
    signals=_one_split,
    outputs=_outputs,
    weights_sha256=lambda model, outputs: model.sha256,
    open_scale=True,
)
