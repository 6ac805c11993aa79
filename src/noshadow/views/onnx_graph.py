"""The end of an ONNX graph: which tensor a model answers with, and the linear layer behind it.

Graphs are read as the library `onnx` parsed them; nothing is run here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from noshadow.checks import refuse

# What may stand between the last linear layer and an output, and what it makes of logits.
ENDINGS = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Sigmoid": "sigmoid"}
PASSED = ("Identity", "ZipMap", "ArgMax", "Cast", *ENDINGS)
STANDARD = ("", "ai.onnx")
ZIP = "ai.onnx.ml"
FLOATS = (1, 10, 11)  # TensorProto.FLOAT, FLOAT16, DOUBLE
MOST_PASSED = 16


@dataclass(frozen=True)
class Ending:
    """Where a model's answer comes from.

    Attributes:
        output: the graph's own output that was followed.
        logits: the tensor that is read for outputs.
        features: the tensor that enters the linear layer behind `logits`; None without one.
        bias: whether that layer has a bias.
        layer: that layer in words.
        kind: "softmax", "log_softmax" or "sigmoid", which followed the logits, or "".
        classes: the labels of classes 0 … m − 1 that a ZipMap holds, or None.
        decided: whether an ArgMax followed, so that the output itself is a class.
    """

    output: str
    logits: str
    features: str | None = None
    bias: bool = False
    layer: str = ""
    kind: str = ""
    classes: tuple[Any, ...] | None = None
    decided: bool = False


def found_ending(graph: Any, output: str | int) -> Ending:
    """Follow the outputs of a graph back to the layer that gives them.

    Args:
        graph: a GraphProto. output: name or position of the output that is meant, or "auto" for
            the only one that holds numbers; outputs of one layer, such as logits and their
            softmax, count as one.

    Raises:
        InputError: no such output, or several that may be meant.
    """
    names = [one.name for one in graph.output]
    makers, weights = _makers(graph), _weights(graph)
    if output != "auto":
        # A name goes before a position, which the command line gives as text.
        place = int(output) if str(output).isdigit() and output not in names else None
        name = output if place is None else names[place] if place < len(names) else None
        if name not in names:
            refuse("output", f"be one of the model's outputs ({', '.join(names)})", repr(output))
        return _followed(str(name), makers, weights)
    endings = [_followed(name, makers, weights) for name in names]
    kinds = {one.name: one.type.tensor_type.elem_type for one in graph.output}
    # A class that was decided on, or text, is no answer that a loss can be taken of.
    numbers = [one for one in endings if one.features or kinds[one.output] in FLOATS or (one.classes is not None and not one.decided)]
    different = {one.logits: one for one in sorted(numbers, key=lambda one: one.classes is not None)}
    if not different:
        hint = "Export the model with its probabilities or logits."
        refuse("model", "give logits, probabilities or predictions", f"the outputs {', '.join(names)}", hint)
    if len(different) > 1:
        refuse("output", "name one of the model's outputs", f"'auto' for {', '.join(one.output for one in different.values())}")
    found = next(iter(different.values()))
    # Labels may hang on one output and the softmax on another.
    kind = next((one.kind for one in numbers if one.kind), "")
    return replace(found, kind=kind)


def ends_linear(graph: Any) -> bool:
    """Whether any output of a graph comes from a linear layer."""
    makers, weights = _makers(graph), _weights(graph)
    return any(_followed(one.name, makers, weights).features for one in graph.output)


def known_classes(graph: Any) -> tuple[Any, ...] | None:
    """The labels of the classes that the outputs of a graph name; None where none or several do."""
    makers, weights = _makers(graph), _weights(graph)
    found = {ending.classes for ending in (_followed(one.name, makers, weights) for one in graph.output)} - {None}
    return found.pop() if len(found) == 1 else None


def table_inputs(graph: Any) -> list[Any]:
    """Inputs of a graph that come from the data, and not from its own weights."""
    held = {one.name for one in graph.initializer}
    return [one for one in graph.input if one.name not in held]


def _makers(graph: Any) -> dict[str, Any]:
    return {name: node for node in graph.node for name in node.output if name}


def _weights(graph: Any) -> set[str]:
    """Tensors that are the same for all records: weights, and what is made of nothing else."""
    found = {one.name for one in graph.initializer}
    for node in graph.node:  # a graph's nodes stand behind those whose outputs they take
        if not any(one.type in (5, 10) for one in node.attribute) and all(name in found or not name for name in node.input):
            found |= set(node.output)
    return found


def _passed(node: Any) -> bool:
    """Whether the logits stand unchanged before a node, in their rows and columns."""
    if node.op_type not in PASSED or node.domain not in (STANDARD if node.op_type != "ZipMap" else (ZIP,)):
        return False
    if node.op_type == "Cast":
        return _attribute(node, "to", 0) in FLOATS
    # Rows are records: what is taken over all records together is nobody's own.
    rest = 0 if node.op_type == "ArgMax" else -1
    return node.op_type in ("Identity", "ZipMap", "Sigmoid") or _attribute(node, "axis", rest) in (-1, 1)


def _followed(output: str, makers: Mapping[str, Any], weights: set[str]) -> Ending:
    here = Ending(output, output)
    tensor = output
    for _ in range(MOST_PASSED):
        node = makers.get(tensor)
        if node is None or not _passed(node):
            break
        if here.kind and node.op_type in ENDINGS:
            break  # a softmax of a softmax has no logits behind it
        here = replace(
            here,
            kind=ENDINGS.get(node.op_type, here.kind),
            decided=here.decided or node.op_type == "ArgMax",
            classes=_labels(node) if node.op_type == "ZipMap" else here.classes,
        )
        tensor = node.input[0]
    here = replace(here, logits=tensor)
    node = makers.get(tensor)
    return here if node is None or node.domain not in STANDARD else _behind(node, here, makers, weights)


def _behind(node: Any, here: Ending, makers: Mapping[str, Any], weights: set[str]) -> Ending:
    """The ending with the linear layer that gives its logits, if one does."""
    if node.op_type == "Gemm" and node.input[1] in weights and not _attribute(node, "transA", 0) and _attribute(node, "alpha", 1.0) == 1:
        biased = len(node.input) > 2 and node.input[2] != ""
        if biased and (node.input[2] not in weights or _attribute(node, "beta", 1.0) != 1):
            return here
        return replace(here, features=node.input[0], bias=biased, layer=f"Gemm {_title(node)}")
    if node.op_type == "MatMul" and node.input[1] in weights and node.input[0] not in weights:
        return replace(here, features=node.input[0], layer=f"MatMul {_title(node)}")
    if node.op_type == "Add" and any(name in weights for name in node.input):
        inner = next((makers[name] for name in node.input if name in makers and name not in weights), None)
        if inner is not None and inner.op_type == "MatMul" and inner.domain in STANDARD and inner.input[1] in weights:
            return replace(here, features=inner.input[0], bias=True, layer=f"MatMul + Add {_title(inner)}")
    return here


def _title(node: Any) -> str:
    return f"'{node.name}'" if node.name else f"to '{node.output[0]}'"


def _attribute(node: Any, name: str, rest: float) -> float:
    return next((one.i if one.type == 2 else one.f for one in node.attribute if one.name == name), rest)


def _labels(node: Any) -> tuple[Any, ...] | None:
    for one in node.attribute:
        if one.name == "classlabels_int64s" and one.ints:
            return tuple(one.ints)
        if one.name == "classlabels_strings" and one.strings:
            return tuple(text.decode("utf-8", "replace") for text in one.strings)
    return None
