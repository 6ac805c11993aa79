"""Models in ONNX: outputs as onnxruntime gives them, exact scores where the graph ends in a linear layer; files that point elsewhere."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import noshadow as ns
from extras import extra
from noshadow import InputError
from noshadow.views import collect_signals, model_family

RNG = np.random.default_rng(0)
N, D, M = 60, 4, 3
X = RNG.normal(size=(2 * N, D)).astype(np.float32)
Y = (X @ RNG.normal(size=(D, M)) + RNG.normal(size=(2 * N, M))).argmax(1)
W1, B1 = RNG.normal(size=(D, 5)).astype(np.float32), RNG.normal(size=5).astype(np.float32)
W2, B2 = RNG.normal(size=(5, M)).astype(np.float32), RNG.normal(size=M).astype(np.float32)
HIDDEN = np.maximum(X @ W1 + B1, 0)
LOGITS = HIDDEN @ W2 + B2
SPLITS = (X[:N], Y[:N]), (X[N:], Y[N:])
# Sums of five float32 products, in another order than ours.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

BODY = [("MatMul", ["x", "W1"], ["a"], {}), ("Add", ["a", "B1"], ["b"], {}), ("Relu", ["b"], ["h"], {})]
GEMM = [("Gemm", ["h", "W2", "B2"], ["z"], {})]
MATMUL = [("MatMul", ["h", "W2"], ["m"], {}), ("Add", ["m", "B2"], ["z"], {})]


def graph(nodes, outputs=("z",), *, inputs=(("x", (None, D)),), opset=17, ir=8, weights=None, functions=(), kinds=None):
    """A ModelProto of nodes (operator, inputs, outputs, attributes)."""
    onnx = extra("onnx")
    helper, tensors = onnx.helper, {"W1": W1, "B1": B1, "W2": W2, "B2": B2} | (weights or {})
    made = []
    for operator, given, gives, attributes in nodes:
        domain, _, name = operator.rpartition("/")
        made.append(helper.make_node(name, given, gives, domain=domain, **attributes))
    used = {name for _, given, _, _ in nodes for name in given}
    kinds = kinds or {}
    infos = []
    for name in outputs:
        kind = kinds.get(name, onnx.TensorProto.FLOAT)
        infos.append(
            helper.make_tensor_value_info(name, kind, (None,) * (1 if name == "label" else 2))
            if kind != "map"
            else _maps(helper, onnx, name)
        )
    held = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), shape) for name, shape in inputs],
        infos,
        [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items() if name in used],
    )
    domains = {operator.rpartition("/")[0] for operator, *_ in nodes} - {""}
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain, 3 if domain == "ai.onnx.ml" else 1) for domain in sorted(domains)),
    ]
    return helper.make_model(held, opset_imports=opsets, ir_version=ir, functions=list(functions))


def _maps(helper, onnx, name):
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(onnx.TensorProto.STRING, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, []))
    )
    return helper.make_value_info(name, kind)


@pytest.fixture
def stored(tmp_path):
    """A model of nodes, written and read again."""
    extra("onnxruntime")

    def call(*args, **kwargs):
        extra("onnx").save(graph(*args, **kwargs), tmp_path / "m.onnx")
        return ns.load_model(tmp_path / "m.onnx")

    return call


def torch_net():
    net = nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Linear(5, M))
    with torch.no_grad():
        for layer, weight, bias in ((net[0], W1, B1), (net[2], W2, B2)):
            layer.weight.copy_(torch.tensor(weight.T))
            layer.bias.copy_(torch.tensor(bias))
    return net


def audited(model, **options):
    return ns.audit(model, *SPLITS, progress=False, **options)


def require_same_scores(found, expected):
    assert found.ranked_by == expected.ranked_by == "shift"
    assert list(found.records.columns) == list(expected.records.columns)
    pd.testing.assert_frame_equal(found.records.drop(columns="rank"), expected.records.drop(columns="rank"), **CLOSE)


@pytest.mark.parametrize("ending", [GEMM, MATMUL], ids=["Gemm", "MatMul + Add"])
def test_a_linear_ending_is_scored_as_the_module_is(stored, ending):
    model = stored(BODY + ending)
    found = audited(model, weight_decay=1e-2)
    require_same_scores(found, audited(torch_net(), weight_decay=1e-2))
    assert found.provenance["head"].endswith("(5 → 3, with bias)") and model_family(model) == "network"
    signals = collect_signals(model, SPLITS[0])
    np.testing.assert_allclose(signals.features, HIDDEN[:N], **CLOSE)
    np.testing.assert_allclose(signals.outputs, LOGITS[:N], **CLOSE)


def test_what_torch_exports_is_scored_as_the_module_is(tmp_path):
    extra("onnx"), extra("onnxruntime")
    net = torch_net().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter that needs no further package
        axes = {"x": {0: "records"}, "logits": {0: "records"}}
        torch.onnx.export(
            net,
            (torch.tensor(X[:2]),),
            str(tmp_path / "m.onnx"),
            dynamo=False,
            input_names=["x"],
            output_names=["logits"],
            dynamic_axes=axes,
        )
    found = audited(ns.load_model(tmp_path / "m.onnx"), weight_decay=1e-2)
    require_same_scores(found, audited(net, weight_decay=1e-2))


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([("Softmax", ["z"], ["p"], {})], ("p",)),
        ([("Softmax", ["z"], ["p"], {"axis": 1})], ("p",)),
        ([("LogSoftmax", ["z"], ["p"], {"axis": -1})], ("p",)),
        ([("Softmax", ["z"], ["s"], {}), ("Cast", ["s"], ["p"], {"to": 11})], ("p",)),
        ([("Softmax", ["z"], ["s"], {}), ("Identity", ["s"], ["p"], {})], ("p",)),
        ([("Softmax", ["z"], ["p"], {}), ("ArgMax", ["p"], ["label"], {"axis": 1, "keepdims": 0})], ("label", "p")),
        ([("ArgMax", ["z"], ["label"], {"axis": 1, "keepdims": 0})], ("label",)),
        ([("Softmax", ["z"], ["p"], {})], ("z", "p")),
    ],
    ids=["softmax", "axis", "log", "cast", "identity", "label and softmax", "label alone", "logits and softmax"],
)
def test_what_follows_the_logits_is_seen_through(stored, nodes, outputs):
    model = stored(BODY + GEMM + nodes, outputs, kinds={"label": 7, "p": 11} if nodes[-1][0] == "Cast" else {"label": 7})
    require_same_scores(audited(model, weight_decay=1e-2), audited(torch_net(), weight_decay=1e-2))


def test_labels_of_a_zipmap_name_the_classes(stored):
    names = ["ill", "old", "well"]
    nodes = [("Softmax", ["z"], ["p"], {}), ("ai.onnx.ml/ZipMap", ["p"], ["maps"], {"classlabels_strings": names})]
    model = stored(BODY + GEMM + nodes, ("maps",), kinds={"maps": "map"})
    splits = [(x, np.array(names)[y]) for x, y in SPLITS]
    found = ns.audit(model, *splits, weight_decay=1e-2, progress=False)
    expected = audited(torch_net(), weight_decay=1e-2)
    np.testing.assert_allclose(found.records["shift"], expected.records["shift"], **CLOSE)
    assert set(found.records["label"]) == set(names)
    with pytest.raises(InputError, match=r"audit: train y must hold labels the model knows \('ill', 'old', 'well'\); got 0 at index"):
        ns.audit(model, (X[:N], np.zeros(N, int)), None, progress=False)


def test_one_logit_behind_a_sigmoid(stored):
    weights = {"W3": W2[:, :1].copy(), "B3": B2[:1].copy()}
    nodes = [("Gemm", ["h", "W3", "B3"], ["z"], {}), ("Sigmoid", ["z"], ["p"], {})]
    y = (LOGITS[:, 0] + RNG.normal(size=2 * N) > 0).astype(int)
    model = stored(BODY + nodes, ("p",), weights=weights)
    found = ns.audit(model, (X[:N], y[:N]), (X[N:], y[N:]), weight_decay=1e-2, progress=False)
    net = torch_net()
    net[2] = nn.Linear(5, 1)
    with torch.no_grad():
        net[2].weight.copy_(torch.tensor(weights["W3"].T))
        net[2].bias.copy_(torch.tensor(weights["B3"]))
    expected = ns.audit(net, (X[:N], y[:N]), (X[N:], y[N:]), weight_decay=1e-2, task="binary", progress=False)
    require_same_scores(found, expected)
    with pytest.raises(InputError, match=r"model must give its raw output in a regression; got a sigmoid"):
        ns.audit(model, (X[:N], y[:N].astype(float)), None, task="regression", progress=False)


def test_a_regression(stored):
    weights = {"W3": W2[:, :1].copy()}
    y = (LOGITS[:, 0] + RNG.normal(size=2 * N)).astype(np.float64)
    found = ns.audit(
        stored([*BODY, ("MatMul", ["h", "W3"], ["z"], {})], weights=weights), (X[:N], y[:N]), (X[N:], y[N:]), damping=1.0, progress=False
    )
    assert found.provenance["head"].endswith("(5 → 1, without bias)")
    train, test = (ns.Signals(HIDDEN[rows], (HIDDEN @ W2[:, :1])[rows], y[rows]) for rows in (slice(0, N), slice(N, 2 * N)))
    expected = ns.audit_signals(train, test, damping=1.0, fit_intercept=False, progress=False)
    np.testing.assert_allclose(found.records["shift"], expected.records["shift"], **CLOSE)


def test_weights_may_be_computed_from_weights(stored):
    nodes = [("Transpose", ["T2"], ["W"], {}), ("Constant", [], ["b"], {"value_floats": B2.tolist()}), ("Gemm", ["h", "W", "b"], ["z"], {})]
    model = stored([*BODY[:1], ("Add", ["a", "B1"], ["c"], {}), ("Relu", ["c"], ["h"], {}), *nodes], weights={"T2": W2.T.copy()})
    require_same_scores(audited(model, weight_decay=1e-2), audited(torch_net(), weight_decay=1e-2))


@pytest.mark.parametrize(
    ("nodes", "opset"),
    [
        ([*GEMM[:0], ("Gemm", ["h", "W2", "B2"], ["y"], {}), ("Relu", ["y"], ["z"], {})], 17),
        ([("Gemm", ["h", "W2", "B2"], ["z"], {"alpha": 2.0})], 17),
        ([("Gemm", ["h", "W2", "B2"], ["z"], {"beta": 0.5})], 17),
        ([("Gemm", ["h", "W2", "B2"], ["y"], {}), ("Softmax", ["y"], ["s"], {}), ("Softmax", ["s"], ["z"], {})], 17),
    ],
    ids=["behind the layer", "alpha", "beta", "softmax of a softmax"],
)
def test_other_endings_have_no_head_and_keep_their_outputs(stored, nodes, opset):
    """What is not the layer itself is not scored as if it were."""
    model = stored(BODY + nodes, opset=opset)
    session = extra("onnxruntime").InferenceSession(model.proto.SerializeToString())
    found = audited(model, output_scale="logits")
    assert found.provenance["head"] == "none was read" and "shift" not in found.records
    assert "does not end in Gemm" in str(found.evidence)
    said = session.run(None, {"x": X[:N]})[0]
    if nodes[-1][0] != "Softmax":
        losses = np.log(np.exp(said.astype(np.float64)).sum(1)) - said[np.arange(N), Y[:N]]
        np.testing.assert_allclose(found.records["loss"], losses, **CLOSE)


def test_a_softmax_over_the_records_is_not_seen_through(stored):
    model = stored([*BODY, *GEMM, ("Softmax", ["z"], ["p"], {"axis": 0})], ("p",))
    assert collect_signals(model, SPLITS[0]).features is None


def test_a_function_that_is_called_gemm_is_none(tmp_path, stored):
    helper = extra("onnx").helper
    body = [
        helper.make_node("MatMul", ["a", "b"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["s"]),
        helper.make_node("Tanh", ["s"], ["o"]),
    ]
    one = helper.make_function("own", "Gemm", ["a", "b", "c"], ["o"], body, [helper.make_opsetid("", 17)])
    model = stored([*BODY, ("own/Gemm", ["h", "W2", "B2"], ["z"], {})], functions=[one])
    signals = collect_signals(model, SPLITS[0])
    assert signals.features is None
    np.testing.assert_allclose(signals.outputs, np.tanh(LOGITS[:N]), **CLOSE)
    # Nor may a function take the place of a standard operator.
    one.domain = ""
    with pytest.raises(InputError, match=r"a function in the place of the standard's operator Gemm"):
        stored(BODY + GEMM, functions=[one])


def test_several_outputs_are_chosen_by_name_or_position(stored):
    nodes = [*BODY, *GEMM, ("Gemm", ["x", "W4"], ["w"], {})]
    model = stored(nodes, ("w", "z"), weights={"W4": np.ones((D, M), np.float32)})
    with pytest.raises(InputError, match=r"audit: output must name one of the model's outputs; got 'auto' for w, z"):
        audited(model)
    for output in ("z", 1, "1"):
        require_same_scores(audited(model, output=output, weight_decay=1e-2), audited(torch_net(), weight_decay=1e-2))
    for output in ("q", 2, "2"):
        with pytest.raises(InputError, match=r"audit: output must be one of the model's outputs \(w, z\); got"):
            audited(model, output=output)


def test_columns_of_a_table_for_several_inputs(stored, tmp_path, run):
    names = ["age", "weight", "pressure", "iron"]
    nodes = [("Concat", names, ["x"], {"axis": 1}), *BODY, *GEMM]
    stored(nodes, inputs=[(name, (None, 1)) for name in names])
    for name, rows in (("train", slice(0, N)), ("test", slice(N, 2 * N))):
        pd.DataFrame(X[rows].astype(np.float64), columns=names)[names[::-1]].assign(y=Y[rows]).to_csv(tmp_path / f"{name}.csv", index=False)
    files = ("--model", "m.onnx", "--train", "train.csv", "--test", "test.csv", "--target", "y")
    assert run("audit", *files, "--weight-decay", "0.01", "--out", "a", "--quiet") == (0, "", "")
    require_same_scores(ns.load("a"), audited(torch_net(), weight_decay=1e-2))
    model = ns.load_model("m.onnx")
    with pytest.raises(InputError, match=r"train X must be a table with the columns age, weight, pressure, iron; got ndarray"):
        audited(model)
    with pytest.raises(InputError, match=r"train X must have the columns that the model takes; got none of iron"):
        ns.audit(model, (pd.DataFrame(X[:N, :3], columns=names[:3]), Y[:N]), None)


def test_string_labels_and_outputs_on_the_command_line(stored, tmp_path, run):
    names = ["ill", "old", "well"]
    nodes = [
        ("Softmax", ["z"], ["p"], {}),
        ("ArgMax", ["p"], ["label"], {"axis": 1, "keepdims": 0}),
        ("ai.onnx.ml/ZipMap", ["p"], ["maps"], {"classlabels_strings": names}),
    ]
    stored(BODY + GEMM + nodes, ("label", "maps"), kinds={"maps": "map", "label": 7})
    for name, rows in (("train", slice(0, N)), ("test", slice(N, 2 * N))):
        pd.DataFrame(X[rows], columns=list("abcd")).assign(y=np.array(names)[Y[rows]]).to_parquet(tmp_path / f"{name}.parquet")
    files = ("--model", "m.onnx", "--train", "train.parquet", "--test", "test.parquet", "--target", "y")
    assert run("audit", *files, "--weight-decay", "0.01", "--out", "a", "--quiet", "--output", "1") == (0, "", "")
    np.testing.assert_allclose(ns.load("a").records["shift"], audited(torch_net(), weight_decay=1e-2).records["shift"], **CLOSE)


def test_batches_of_a_fixed_size_are_filled_up(stored):
    model = stored(BODY + GEMM, inputs=(("x", (7, D)),))
    np.testing.assert_allclose(collect_signals(model, SPLITS[0]).outputs, LOGITS[:N], **CLOSE)


def test_inputs_that_do_not_fit_are_refused(stored):
    model = stored(BODY + GEMM)
    for wrong, says in (
        (X[:N, :3], r"train X must have the shape \(.*4\) that the model takes; got shape \(60, 3\)"),
        (np.full((N, D), "x"), r"train X must hold what the input 'x' takes, tensor\(float\); got could not convert"),
        (np.where(np.arange(D) == 1, np.nan, X[:N]), r"model\(train X\) must be finite"),
    ):
        with pytest.raises(InputError, match=says):
            ns.audit(model, (wrong, Y[:N]), None)
    for options, says in (
        ({"layer": "h"}, "layer must be 'auto' for a model in ONNX"),
        ({"layers": "all"}, "layers must be 'last' for a model that is no nn.Module"),
    ):
        with pytest.raises(InputError, match=says):
            audited(model, **options)
    with pytest.raises(InputError, match=r"train y must hold numbers, since the ONNX file names no classes"):
        ns.audit(model, (X[:N], np.array(["a", "b", "c"])[Y[:N]]), None)


def external(tmp_path, location, *, there="weights.bin", offset="0", length=None, content=None):
    """A model whose W2 stands in another file."""
    onnx = extra("onnx")
    proto = graph(BODY + GEMM)
    tensor = next(one for one in proto.graph.initializer if one.name == "W2")
    raw = tensor.raw_data
    if there:
        (tmp_path / there).write_bytes(raw if content is None else content)
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in (("location", location), ("offset", offset), ("length", str(len(raw)) if length is None else length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_weights_beside_the_model(tmp_path):
    model = ns.load_model(external(tmp_path, "weights.bin"))
    require_same_scores(audited(model, weight_decay=1e-2), audited(torch_net(), weight_decay=1e-2))


def test_weights_elsewhere_are_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(W2.tobytes())
    (tmp_path / "inside" / "link.bin").symlink_to(secret)
    (tmp_path / "inside" / "up").symlink_to(tmp_path)
    for location in ("../secret.bin", str(secret), "link.bin", "up/secret.bin", "", ".", "absent.bin"):
        path = external(tmp_path / "inside", location, there=None)
        with pytest.raises(
            InputError, match=r"load_model: path must be a whole .onnx file of a model; got .*which is no file in the model's folder"
        ):
            ns.load_model(path)


@pytest.mark.parametrize(("offset", "length"), [("8", None), ("0", "10000"), ("-1", None), ("x", None), ("0", "-5")])
def test_weights_that_claim_more_than_there_is_are_refused(tmp_path, offset, length):
    with pytest.raises(InputError, match=r"path must be a whole .onnx file of a model"):
        ns.load_model(external(tmp_path, "weights.bin", offset=offset, length=length))


def test_weights_in_hidden_places_are_refused(tmp_path):
    """A sparse tensor's parts are not read by the library, which onnxruntime would look for in the working directory."""
    onnx = extra("onnx")
    proto = graph(BODY + GEMM)
    held = proto.graph.sparse_initializer.add()
    held.dims.extend([1])
    held.values.name = "S"
    held.values.data_type, held.values.data_location = 1, 1
    held.values.dims.extend([1])
    entry = held.values.external_data.add()
    entry.key, entry.value = "location", "/etc/hostname"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"the weights 'S' in '/etc/hostname', which is no file in the model's folder"):
        ns.load_model(tmp_path / "m.onnx")


def test_operators_beyond_the_standard_are_refused(stored):
    with pytest.raises(InputError, match=r"the operator Shell of 'evil', which is none of the standard's"):
        stored([*BODY, *GEMM, ("evil/Shell", ["z"], ["q"], {})], ("q",))
    # In a branch, too.
    helper, onnx = extra("onnx").helper, extra("onnx")
    inner = helper.make_graph(
        [helper.make_node("Shell", [], ["i"], domain="evil")], "b", [], [helper.make_tensor_value_info("i", 1, (None,))]
    )
    condition = onnx.numpy_helper.from_array(np.array(True), "c")
    nodes = [("Constant", [], ["c"], {"value": condition}), ("If", ["c"], ["q"], {"then_branch": inner, "else_branch": inner})]
    with pytest.raises(InputError, match=r"the operator Shell of 'evil'"):
        stored([*BODY, *GEMM, *nodes], ("q",))


def test_graphs_that_do_not_run_are_one_sentence(stored):
    """Shapes that do not fit are found by onnxruntime alone."""
    with pytest.raises(InputError, match=r"^audit: model must (be a graph that onnxruntime runs|accept train X); got") as caught:
        audited(stored([*BODY, ("Gemm", ["h", "W1", "B2"], ["z"], {})]))
    assert "\n" not in str(caught.value)


def test_models_stand_beside_each_other_by_their_digest(stored, tmp_path):
    first = stored(BODY + GEMM)
    assert re.fullmatch(r"[0-9a-f]{64}", first.sha256) and ns.load_model(tmp_path / "m.onnx").sha256 == first.sha256
    assert stored(BODY + MATMUL).sha256 != first.sha256
    assert first.sha256 in str(audited(first).provenance)
