"""ONNX files: what they claim and where they point is checked before onnxruntime sees them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noshadow.model_files.held import HeldModel, needed
from noshadow.storage.reasons import one_kind_of_error
from noshadow.views.onnx import onnx_model
from noshadow.views.onnx_graph import known_classes, table_inputs

# Operators of the standard, and those that onnxruntime brings itself.
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
EXTERNAL, STRING = 1, 8  # TensorProto.EXTERNAL, TensorProto.STRING
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
        proto = onnx.load_model(str(path), format="protobuf", load_external_data=False)
        _require_known_operators(proto)
        _require_own_folder(proto, path.parent.resolve())
        onnx.load_external_data_for_model(proto, str(path.parent.resolve()))
        if any(tensor.data_location == EXTERNAL for tensor in _tensors(proto)):
            raise ValueError("weights beside it in a place where they are not read")
        onnx.checker.check_model(proto)
        inputs = table_inputs(proto.graph)
    texts = frozenset(one.name for one in inputs if one.type.tensor_type.elem_type == STRING)
    several = len(inputs) > 1
    return HeldModel(
        onnx_model(proto),
        tuple(one.name for one in inputs) if several else None,
        known_classes(proto.graph),
        texts=texts if several else frozenset(),
    )


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
    hidden = next((name for domain, name in own if domain in DOMAINS), None)
    if hidden is not None:
        raise ValueError(f"a function in the place of the standard's operator {hidden}")
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


def _tensors(message: Any) -> Iterator[Any]:
    """All tensors anywhere in a message."""
    waiting = [message]
    while waiting:
        one = waiting.pop()
        if one.DESCRIPTOR.name == "TensorProto":
            yield one
            continue
        for field, value in one.ListFields():
            if field.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else list(value)
