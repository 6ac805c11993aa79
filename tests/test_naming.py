"""Messages name the function that the user called: of public functions inside of each other the outermost one."""

import ast
import inspect
import pickle
import threading
import timeit
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import noshadow as ns
from advised import public
from naming_work import NamingJob, NamingTask
from noshadow import errors
from noshadow.checks import users_code
from noshadow.errors import called, named_as, named_command, named_in_errors, open_to_names, refuse, said, speaking_for, unnamed
from noshadow.views import EstimatorFamily, estimator_reader, register_reader
from noshadow.workers import Wording, WorkerOptions, ready_workers, surviving_results
from source_tree import PACKAGE, callee, program

X, Y = np.random.default_rng(4).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 3


@named_in_errors
def inner(x):
    """Refuse whatever comes."""
    refuse("x", "be nothing", x)


@named_in_errors
def outer(x, *, run=inner):
    return run(x)


class Holder:
    @named_in_errors
    def __init__(self, x=None):
        if x is not None:
            refuse("x", "be None", x)

    @named_in_errors
    def method(self):
        return called()

    @classmethod
    @named_in_errors
    def made(cls):
        return called()

    @property
    @named_in_errors
    def held(self):
        return called()


@named_command("reference train")
def command(run):
    return run()


def message(call, *given, **named):
    with pytest.raises(ns.InputError) as caught:
        call(*given, **named)
    return str(caught.value)


def test_a_message_names_the_function_that_was_called_and_the_outermost_of_several():
    assert message(inner, 3) == "inner: x must be nothing; got 3."
    assert message(outer, 3) == "outer: x must be nothing; got 3."
    assert message(refuse, "x", "be nothing", 3, "Leave it out.") == "x must be nothing; got 3. Leave it out."
    assert (said("too much"), called()) == ("too much", "")


def test_methods_and_constructors_are_named_by_their_class():
    assert message(Holder, 3) == "Holder: x must be None; got 3."
    assert (Holder().method(), Holder.made(), Holder().held) == ("Holder.method", "Holder.made", "Holder.held")
    assert outer(3, run=lambda x: Holder().method()) == "outer"


def test_the_name_goes_when_the_function_ends_however_it_ends():
    for _ in range(2):
        assert message(outer, 3).startswith("outer: ") and called() == ""
    with pytest.raises(ZeroDivisionError):
        outer(3, run=lambda x: 1 / 0)
    assert called() == "" and outer(3, run=lambda x: called()) == "outer" and called() == ""


def test_a_caught_error_leaves_the_name_of_the_function_that_caught_it():
    def caught(x):
        inside = message(inner, x)
        return called(), inside, unnamed(ns.InputError(inside))

    assert outer(3, run=caught) == ("outer", "outer: x must be nothing; got 3.", "x must be nothing; got 3.")
    assert unnamed(ns.InputError("inner: too much")) == "inner: too much"


def test_a_command_is_named_until_it_calls_a_public_function():
    assert command(called) == "reference train" and command(lambda: message(inner, 3)).startswith("inner: ")
    assert message(command, lambda: refuse("--out", "be new", "old")) == "reference train: --out must be new; got old."
    assert outer(0, run=lambda x: command(called)) == "outer"


def test_a_function_can_stand_in_for_a_public_one():
    standing = named_as("audit")(lambda: message(inner, 3))
    assert standing().startswith("audit: ") and outer(0, run=lambda x: standing()).startswith("outer: ")


@pytest.mark.parametrize("opened", [open_to_names, lambda: users_code("model must run")], ids=["open", "users_code"])
def test_a_public_function_that_users_code_calls_names_itself(opened):
    def running(x):
        with opened():
            own = message(inner, x), message(refuse, "x", "be nothing", x)
        return *own, message(inner, x)

    assert [text.partition(":")[0] for text in outer(3, run=running)] == ["inner", "outer", "outer"]
    assert called() == ""


def test_users_code_that_fails_is_told_with_the_name_of_the_function_that_ran_it():
    def running(x):
        with users_code("model must run"):
            raise KeyError("weights\nof layer 3")

    assert message(outer, 3, run=running) == "outer: model must run; got KeyError ('weights\\nof layer 3')."


def test_a_model_that_audits_itself_names_what_it_calls():
    class Nosy(torch.nn.Linear):
        def forward(self, x):
            ns.rbf_kernel(np.zeros(3), length_scale=1.0)

    assert message(ns.audit, Nosy(3, 3), (X, Y), (X, Y), progress=False).startswith("rbf_kernel: ")


def test_a_training_that_calls_public_functions_is_told_under_their_names(tmp_path):
    def train(rows, seed):
        ns.metrics.auc([], [1.0])

    told = message(ns.reference.train_references, tmp_path / "r", train, (X, Y), (X, Y), models=4, workers=1, progress=False)
    assert told.startswith("train_references: train_fn must train every model") and "(model 0: auc: " in told


def test_functions_of_a_registered_family_that_call_public_ones_are_told_under_their_names(monkeypatch):
    monkeypatch.setattr("noshadow.views.readers._registered", [])
    settled = {"task": lambda model: "classification", "classes": lambda model: np.arange(3)}
    family = EstimatorFamily(name="mine", reads=lambda model: model == "mine", outputs=lambda *given: ns.metrics.auc([], [1.0]), **settled)
    register_reader(estimator_reader(family))
    assert message(ns.audit, "mine", (X, Y), (X, Y), progress=False).startswith("auc: ")
    assert message(ns.audit, "mine", (X, Y[:3]), (X, Y), progress=False).startswith("audit: ")


def test_generators_are_not_named_and_do_not_leak_one():
    def steps():
        yield called()
        yield called()

    with pytest.raises(TypeError, match="steps runs after it is called: name the function that walks it instead"):
        named_in_errors(steps)
    walk = outer(0, run=lambda x: steps())
    assert (next(walk), called(), outer(0, run=lambda x: next(walk)), called()) == ("", "", "outer", "")


def test_no_generator_of_the_package_is_suspended_while_it_holds_a_name():
    """A context manager of `errors` around a `yield` would hand its name to whoever walks the generator."""
    for scope in program().functions.values():
        marked = any(isinstance(one, ast.Name) and one.id == "contextmanager" for one in scope.node.decorator_list)
        blocks = [node for node in ast.walk(scope.node) if isinstance(node, ast.With) and not marked]
        for block in blocks:
            held = {callee(one) for item in block.items for one in ast.walk(item) if isinstance(one, ast.Call)}
            yields = [one for part in block.body for one in ast.walk(part) if isinstance(one, ast.Yield | ast.YieldFrom)]
            assert not (yields and held & {"open_to_names", "users_code", "speaking_for"}), f"{scope.module}:{block.lineno}"


def test_threads_have_names_of_their_own():
    met = threading.Barrier(2, timeout=20)

    def together(x):
        met.wait()
        return message(inner, x)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(outer, 1, run=together), pool.submit(Holder.made.__func__, Holder)
        met.wait()
        assert first.result().startswith("outer: ") and second.result() == "Holder.made"


def test_a_thread_that_is_handed_the_name_says_it():
    def handed(name):
        with speaking_for(name):
            return message(inner, 3), called()

    def spread(x):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(called).result(), pool.submit(handed, called()).result()

    assert outer(0, run=spread) == ("", ("outer: x must be nothing; got 3.", "outer"))
    assert handed("")[0].startswith("inner: ")


def carried(workers):
    options, wording = WorkerOptions("loky", workers, 1, None, 2), Wording("tasks", "name", "named", "task")
    with ready_workers(options, wording) as ready:
        results = surviving_results(ready, NamingJob(), [NamingTask(number) for number in range(3)], attempts=2, wording=wording)
        return dict(results)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_names_the_function_that_was_called(workers):
    found = outer(workers, run=carried)
    assert found == dict.fromkeys(range(3), "outer: x must be nothing; got 3.")
    assert carried(workers) == dict.fromkeys(range(3), "refusing: x must be nothing; got 3.")


def test_workers_of_sharded_scores_name_them(tmp_path):
    bad = X.copy()
    bad[20, 1] = np.nan
    told = message(ns.sharded_record_scores, bad, X, Y, workers=2, shards=3)
    assert told.startswith("sharded_record_scores: features must be finite")


def test_signatures_docstrings_and_pickles_are_those_of_the_function():
    assert inner.__doc__ == "Refuse whatever comes." and list(inspect.signature(outer).parameters) == ["x", "run"]
    assert inspect.unwrap(inner) is inner.__wrapped__ and pickle.loads(pickle.dumps(outer)) is outer
    assert list(inspect.signature(ns.audit).parameters)[:3] == ["model", "train", "test"] and ns.audit.__module__ == "noshadow._audit.entry"


def test_a_public_function_costs_a_microsecond_more():
    """A call of ours takes microseconds at the least; the limit has room for a busy machine, and the best of many runs is taken."""

    def plain(x):
        return x

    marked = named_in_errors(plain)
    own, other = (min(timeit.repeat("one(0)", number=2000, repeat=30, globals={"one": one})) / 2000 for one in (marked, plain))
    assert own - other < 5e-6


def test_no_function_hands_a_name_down():
    """Nobody has an argument, a field or a constant for whom messages speak for: `errors` knows."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            words = {getattr(node, field, None) for field in ("id", "arg", "attr")} & {"owner", "OWNER"}
            assert not words, f"{path.name}:{node.lineno}"


def test_the_names_of_public_functions_are_those_they_are_called_by():
    for name, thing in public().items():
        if inspect.isfunction(thing) and thing.__code__.co_filename == errors.__file__:
            assert thing.__qualname__ == name
