"""One meaning a word: an argument that many public functions share is the same thing, of the same kind, everywhere."""

import importlib
import inspect
import json
import types
import typing
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import noshadow as ns
from noshadow.arguments import BATCH_SIZE, MAX_MEMORY, PROGRESS, renamed
from noshadow.errors import named_in_errors

PAGE = (Path(__file__).parents[1] / "docs" / "words.md").read_text()
RNG = np.random.default_rng(0)
MEMBERS, OTHERS = RNG.exponential(0.3, 400), RNG.exponential(1.0, 400)


@dataclass(frozen=True)
class Word:
    """What an argument or a field of a result is, of which kinds it may be, and the defaults it may have."""

    meaning: str
    kinds: frozenset
    defaults: frozenset


def word(meaning, kinds, *defaults):
    return Word(meaning, frozenset(kinds.split()), frozenset(defaults))


WORDS = {
    "level": word("coverage of an interval, in (0, 1)", "float", 0.95, 0.9),
    "fpr": word("false-positive rate of an attack, in (0, 1)", "float str Sequence NoneType object", "auto", 1e-3, None),
    "fnr": word("false-negative rate of an attack, in (0, 1)", "float NoneType"),
    "fprs": word("several false-positive rates", "Sequence", ()),
    "references": word("what reference models say: a `References`, or their margins (K, n)", "References object", None),
    "reference_models": word(
        "number K of reference models of an attack, or the folder of a set", "int str Path References NoneType", 64, None
    ),
    "models": word("number of reference models in a set", "int", 64),
    "progress": word("draw bars in a terminal or notebook", "bool", PROGRESS),
    "batch_size": word("records that go through a model at once", "int", BATCH_SIZE),
    "max_memory": word("bytes that matrices may take", "float NoneType", MAX_MEMORY),
    "seed": word("whole number ≥ 0 that everything random starts from", "int", 0),
    "resamples": word("number of bootstrap resamples", "int", 400, 500, 1000, 2000),
}
# A kernel of any size is made where the machine holds it.
OTHER_DEFAULTS = {("noshadow.nngp_kernel", "max_memory"): None}
# Other words for the same things.
NOT_USED = {
    "coverage",
    "levels",
    "confidence",
    "n_models",
    "n_references",
    "memory",
    "memory_limit",
    "verbose",
    "random_state",
    "n_bootstrap",
}


def callables():
    """Every public function, class and public method, by its name."""
    for room in ("noshadow", "noshadow.reference", "noshadow.attacks", "noshadow.canaries", "noshadow.metrics", "noshadow.theory"):
        module = importlib.import_module(room)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{room}.{name}", found
            elif inspect.isclass(found) and not issubclass(found, BaseException):
                yield f"{room}.{name}", found
                methods = ((method, getattr(value, "__func__", value)) for method, value in vars(found).items())
                yield from (
                    (f"{room}.{name}.{method}", value) for method, value in methods if method[0] != "_" and inspect.isfunction(value)
                )


def kinds(annotation):
    """The names of the types that an annotation allows, bounds left aside."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return frozenset().union(*map(kinds, typing.get_args(annotation)))
    if typing.get_origin(annotation) is typing.Annotated:
        return kinds(typing.get_args(annotation)[0])
    return frozenset({(typing.get_origin(annotation) or annotation).__name__})


PARAMETERS = [(name, one) for name, found in callables() for one in inspect.signature(found).parameters.values()]
OCCURRENCES = [(name, one) for name, one in PARAMETERS if one.name in WORDS]


@pytest.mark.parametrize(("name", "one"), OCCURRENCES, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_shared_word_has_one_kind_and_one_default(name, one):
    stated = WORDS[one.name]
    assert kinds(one.annotation) <= stated.kinds, f"{one.name} is {stated.meaning}"
    # Fields of results, and arguments that the caller must choose, have none.
    allowed = stated.defaults | {OTHER_DEFAULTS[name, one.name]} if (name, one.name) in OTHER_DEFAULTS else stated.defaults
    assert one.default is one.empty or one.default in allowed, f"{one.name}={one.default!r}"
    assert not (isinstance(one.default, bool) and one.name != "progress")


def test_every_word_of_the_table_is_in_use_and_no_other_word_for_it_is():
    assert {one.name for _, one in OCCURRENCES} == set(WORDS)
    assert not {(name, one.name) for name, one in PARAMETERS if one.name in NOT_USED}
    assert len(OCCURRENCES) > 100


def test_the_page_of_words_is_this_table():
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    assert {row[0].strip("| `"): row[1] for row in rows[: len(WORDS)]} == {name: one.meaning for name, one in WORDS.items()}


@named_in_errors
@renamed(old="new", width="height", depth="width")
def measured(size, height=0, *, new=1, width=2):
    return size, height, new, width


def told(call):
    """What a call gives, and the deprecation that it is told, at the line of the caller."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = call()
    assert all(one.category is DeprecationWarning and one.filename == __file__ for one in seen) and len(seen) <= 1
    return found, str(seen[0].message) if seen else None


def test_an_old_name_works_and_warns_once():
    assert told(lambda: measured(5, old=7)) == ((5, 0, 7, 2), "measured: old is now called new; the old name will go in a later version.")
    assert told(lambda: measured(5, 6, new=7, width=8)) == ((5, 6, 7, 8), None)
    assert measured.__name__ == "measured" and list(inspect.signature(measured).parameters) == ["size", "height", "new", "width"]


def test_a_name_that_moved_to_another_argument_is_understood_by_what_stands_beside_it():
    found, words = told(lambda: measured(5, width=8, depth=9))
    assert found == (5, 8, 1, 9) and "width is now called height and depth is now called width" in words
    assert told(lambda: measured(5, 8, width=9)) == ((5, 8, 1, 9), None)
    assert told(lambda: measured(5, height=8, width=9)) == ((5, 8, 1, 9), None)


@pytest.mark.parametrize("given", [{"new": 1, "old": 2}, {"height": 1, "width": 2, "depth": 3}])
def test_an_old_name_beside_its_new_one_is_refused(given):
    with pytest.raises(ns.InputError, match=r"^measured: \w+ must be given once; got it and its old name \w+\. Leave the old name out\.$"):
        measured(5, **given)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (
            lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, 1e-3, level=0.5),
            lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, level=1e-3, coverage=0.5),
        ),
        (lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, fnr=1e-3), lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, level=1e-3)),
        (lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, 1e-3, level=0.5), lambda: ns.extrapolated_tnr(MEMBERS, OTHERS, 1e-3, coverage=0.5)),
        (
            lambda: ns.extrapolated_tpr(-MEMBERS, -OTHERS, 1e-3, level=0.5),
            lambda: ns.extrapolated_tpr(-MEMBERS, -OTHERS, 1e-3, coverage=0.5),
        ),
        (lambda: ns.nngp_kernel([[1.0]], depth=1, max_memory=1e9), lambda: ns.nngp_kernel([[1.0]], depth=1, memory_limit=1e9)),
        (lambda: ns.model_risk(MEMBERS, OTHERS, reference_models=8), lambda: ns.model_risk(MEMBERS, OTHERS, references=8)),
    ],
    ids=["both", "fnr", "coverage", "tpr", "max_memory", "reference_models"],
)
def test_renamed_arguments_of_the_package_give_the_same_numbers(new, old):
    assert told(new)[1] is None
    found, words = told(old)
    assert found == new() and "is now called" in words


def test_renamed_attributes_can_be_read_by_their_old_names():
    rate = ns.extrapolated_tnr(MEMBERS, OTHERS, 1e-3, level=0.5)
    (group, _) = ns.group_risk(MEMBERS, OTHERS, ["a", "b"] * 200, ["a", "b"] * 200, resamples=100)
    risk = ns.model_risk(MEMBERS, OTHERS, reference_models=8, resamples=100)
    pairs = ((rate, "level", rate.error_rate), (group, "level", group.fnr), (risk, "references", 8))
    for result, old, value in pairs:
        found, words = told(lambda result=result, old=old: getattr(result, old))
        assert found == value and words.startswith(f"{type(result).__name__}: {old} is now called ")


def test_files_keep_their_words():
    risk = ns.model_risk(MEMBERS, OTHERS, reference_models=8, resamples=100)
    (group, _) = ns.group_risk(MEMBERS, OTHERS, ["a", "b"] * 200, ["a", "b"] * 200, resamples=100)
    assert risk.to_dict()["references"] == 8 and "reference_models" not in risk.to_dict()
    assert group.to_dict()["level"] == group.fnr and "fnr" not in group.to_dict()
    for result in (risk, group):
        written = json.loads(json.dumps(result.to_dict()))
        assert type(result).from_dict(written) == result
        with pytest.raises(ns.InputError, match=r"reference_models|fnr"):
            type(result).from_dict(written | {"reference_models" if result is risk else "fnr": 8})


def test_a_renamed_function_is_found_by_its_old_name():
    x = np.arange(6.0)[:, None]
    found, words = told(lambda: ns.leverage_matrices)
    assert found is ns.last_layer_leverage and "leverage_matrices is now called last_layer_leverage" in words
    assert "leverage_matrices" not in ns.__all__ and "leverage_matrices" not in dir(ns)
    gls = found(x, np.hstack([x, 3 - x]), np.array([1, 1, 1, 0, 0, 0]), damping=1.0, records=[2])
    assert type(gls) is ns.GeneralizedLeverage and gls.matrix.shape == (1, 2, 2)
