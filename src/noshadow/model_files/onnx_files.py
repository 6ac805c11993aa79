"""ONNX files: what they claim and where they point is checked before onnxruntime sees them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noshadow.model_files.held import HeldModel, needed
from noshadow.storage.reasons import one_kind_of_error
from noshadow.views.onnx import onnx_model, running

# Operators of the standard, and those that onnxruntime brings itself.
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
EXTERNAL = 1  # TensorProto.EXTERNAL
LARGEST = 2**31 - 1  # bytes of a protobuf message


def onnx_file(path: Path) -> HeldModel:
    """The model of an .onnx file, weights beside it included.

    Raises:
        ValueError: it is no such file, points outside of its folder, asks for operators beyond the
            standard, or has more than 2 GB of weights. OSError: as the system gives it.
    """
    onnx = needed("onnx", "files")
    needed("onnxruntime", "files")
    with one_kind_of_error():
        if path.stat().st_size > LARGEST:
            raise ValueError("more than 2 GB in one message")
        proto = onnx.load_model(str(path), load_external_data=False)
        _require_known_operators(proto)
        _require_own_folder(proto, path.parent.resolve())
        onnx.load_external_data_for_model(proto, str(path.parent.resolve()))
        onnx.checker.check_model(proto)
    model = onnx_model(proto)
    run = running(model, "auto") if len(proto.graph.output) == 1 else None
    return HeldModel(model, None if run is None else run.columns, None if run is None else run.ending.classes)


def _graphs(proto: Any) -> Iterator[Any]:
    """The graph, functions of the file, and graphs inside of their nodes."""
    waiting = [proto.graph, *proto.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += list(attribute.graphs)


def _require_known_operators(proto: Any) -> None:
    own = {(function.domain, function.name) for function in proto.functions}
    for graph in _graphs(proto):
        for node in graph.node:
            if node.domain not in DOMAINS and (node.domain, node.op_type) not in own:
                raise ValueError(f"the operator {node.op_type} of '{node.domain}', which is none of the standard's")


def _require_own_folder(proto: Any, folder: Path) -> None:
    """Refuse weights outside of the model's folder, or that claim more than there is."""
    total = 0
    for tensor in _tensors(proto):
        if tensor.data_location != EXTERNAL:
            continue
        facts = {entry.key: entry.value for entry in tensor.external_data}
        place = (folder / facts.get("location", "")).resolve()
        if not place.is_relative_to(folder) or not place.is_file():
            raise ValueError(f"the weights '{tensor.name}' in '{facts.get('location', '')}', which is no file in the model's folder")
        size, first = place.stat().st_size, int(facts.get("offset", 0))
        length = int(facts.get("length", max(0, size - first)))
        if first < 0 or length < 0 or first + length > size:
            raise ValueError(f"the weights '{tensor.name}' claim {length} bytes from {first} where {size} are there")
        total += length
    if total > LARGEST:
        raise ValueError("more than 2 GB of weights beside it")


def _tensors(proto: Any) -> Iterator[Any]:
    for graph in _graphs(proto):
        yield from getattr(graph, "initializer", ())
        for node in graph.node:
            for attribute in node.attribute:
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors
