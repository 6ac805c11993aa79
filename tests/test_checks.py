"""One rule per function: what passes is returned as it came, what does not is named in one sentence."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noshadow import checks
from noshadow.checks import InputError
from noshadow.errors import speaking_for


def speaking_as_f(function, *args, **kwargs):
    with speaking_for("f"):
        return function(*args, **kwargs)


def refused(match, function, *args, **kwargs):
    with pytest.raises(InputError, match=match) as caught:
        speaking_as_f(function, *args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("f: ")
    return message


def test_a_refusal_is_one_sentence_with_an_optional_next_step():
    with pytest.raises(ValueError) as caught:
        speaking_as_f(checks.refuse, "x", "be > 0", -1, "Try 1.")
    assert str(caught.value) == "f: x must be > 0; got -1. Try 1."
    with pytest.raises(InputError) as caught:
        speaking_as_f(checks.refuse, "x", "be > 0", -1)
    assert str(caught.value) == "f: x must be > 0; got -1."


@pytest.mark.parametrize("value", [[1, 2], (1.0, 2.0), np.arange(3), torch.arange(3), torch.ones(2, requires_grad=True)])
def test_arrays_come_from_whatever_numpy_or_torch_accept(value):
    expected = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    np.testing.assert_array_equal(checks.as_array(value, "x"), expected)


def test_arrays_are_not_copied():
    array, tensor = np.ones(3), torch.ones(3)
    assert checks.as_array(array, "x") is array
    assert np.shares_memory(checks.as_array(tensor, "x"), tensor.numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_tensors_become_float32(dtype):
    array = checks.as_array(torch.tensor([0.5, 2.0], dtype=dtype), "x")
    assert array.dtype == np.float32 and array.tolist() == [0.5, 2.0]


def test_ragged_rows_and_python_objects_are_refused():
    refused("x must be a plain array; got rows of unequal length", checks.as_array, [[1.0], [1.0, 2.0]], "x")
    refused("x must be a plain numeric array; got an array of Python objects", checks.as_array, [1, None], "x")


@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_non_finite_values_are_counted_and_located(rows, columns, data):
    array = np.zeros((rows, columns))
    places = data.draw(st.sets(st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1)), min_size=1))
    for place in places:
        array[place] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    expected = f"{len(places)} NaN or infinite values, the first at index {min(places)}."
    with pytest.raises(InputError, match=re.escape(expected)):
        checks.require_finite(array, "x", block=2)  # blocks shorter than the array: counts and places add up over them


def test_the_first_bad_index_of_a_vector_is_a_number():
    refused(
        "x must be finite; got 2 NaN or infinite values, the first at index 3.",
        checks.require_finite,
        np.array([0, 0, 0, np.nan, np.inf]),
        "x",
    )
    checks.require_finite(np.arange(3), "x")
    checks.require_finite(np.empty((0, 2)), "x")


def test_numbers_too_large_to_square_are_refused():
    array = np.zeros((3, 2))
    array[2, 1] = -1e200
    refused(r"x must stay within ±1e.100; got -1e.200 at index \(2, 1\)", checks.require_squarable, array, "x")
    refused("got 1e.101 at index 1.", checks.require_squarable, np.array([0.0, 1e101]), "x")
    for fine in (np.array([1e100, -1e100]), np.empty((0, 2)), np.array([True]), np.array([2**63], np.uint64)):
        checks.require_squarable(fine, "x")


def test_numeric_arrays_have_an_allowed_number_of_dimensions_and_a_numeric_dtype():
    assert checks.numeric_array([1, 2], "x", ndim=(1, 2)).tolist() == [1, 2]
    refused(r"x must be 2-dimensional; got shape \(3,\)", checks.numeric_array, [1, 2, 3], "x", ndim=2)
    refused(r"x must be 1-dimensional or 2-dimensional; got shape \(\)", checks.numeric_array, 1.0, "x", ndim=(1, 2))
    refused("x must be numeric; got dtype <U1", checks.numeric_array, ["a"], "x", ndim=1)
    refused("x must be numeric; got dtype complex128", checks.numeric_array, [1j], "x", ndim=1)


def test_lengths_are_compared_and_all_named():
    assert checks.require_same_length(a=np.ones(3), b=None, c=[1, 2, 3]) == 3
    refused("a and c must have one row per record; got lengths a 3, c 2", checks.require_same_length, a=np.ones(3), b=None, c=[1, 2])


def test_choices_are_listed():
    checks.require_choice("a", ("a", "b"), "x")
    refused("x must be one of 'a', 'b'; got 'c'", checks.require_choice, "c", ("a", "b"), "x")


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_numbers_in_an_interval_become_floats(value):
    number = checks.require_number(value, "x", low=0, high=1)
    assert type(number) is float and number == value


@pytest.mark.parametrize(
    ("value", "ends", "rule"),
    [
        (-0.1, {"low": 0}, "be a number ≥ 0; got -0.1"),
        (0, {"low": 0, "low_open": True}, "be a number > 0; got 0"),
        (1, {"low": 0, "high": 1, "high_open": True}, "be a number ≥ 0 and < 1; got 1"),
        (2, {"low": 0, "high": 1}, "be a number ≥ 0 and ≤ 1; got 2"),
        (np.inf, {"low": 0}, "be a number ≥ 0; got inf"),
        (np.nan, {"low": 0}, "be a number ≥ 0; got nan"),
        (True, {"low": 0}, "be a number ≥ 0; got True"),
        ("1", {"low": 0}, "be a number ≥ 0; got '1'"),
        (None, {"low": 0}, "be a number ≥ 0; got None"),
    ],
)
def test_numbers_outside_an_interval_are_refused(value, ends, rule):
    refused(re.escape(f"x must {rule}."), checks.require_number, value, "x", **ends)


def test_seeds_are_whole_numbers():
    assert checks.whole_seed(np.int64(3)) == 3 and type(checks.whole_seed(np.int64(3))) is int
    for value in (-1, 2**63, 0.5, True, None, "0"):
        refused(f"seed must be a whole number ≥ 0 and < 2⁶³; got {value!r}", checks.whole_seed, value)


ONE, TWO = np.zeros((4, 1)), np.zeros((4, 2))
SOFT = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("outputs", "targets", "task"),
    [
        (TWO, [0, 1, 1, 0], "classification"),
        (TWO, [True, False, True, True], "classification"),
        (ONE, [0, 1, 1, 0], "binary"),
        (ONE, [0.1, 1.0, 1.0, 0.0], "regression"),
        (TWO, [[0.1, 2.0], [1.0, 3.0], [1.0, 0.0], [0.0, 0.5]], "regression"),
    ],
)
def test_the_task_is_inferred_where_that_is_not_a_guess(outputs, targets, task):
    assert checks.resolved_task("auto", outputs, np.asarray(targets)) == task


@pytest.mark.parametrize(
    ("outputs", "targets", "match"),
    [
        (ONE, [0.0, 1.0, 1.0, 0.0], "one output meets targets 0.0 and 1.0"),
        (TWO, SOFT, "target rows sum to one"),
        (ONE, [0, 1, 2, 0], "integer targets do not settle it"),
    ],
)
def test_the_task_is_asked_for_where_a_guess_could_be_wrong(outputs, targets, match):
    refused(f"task must be named when {match}; got 'auto'. Pass task=", checks.resolved_task, "auto", outputs, np.asarray(targets))


@pytest.mark.parametrize("kind", [float, int, bool])
def test_columns_of_zeros_and_ones_are_several_labels(kind):
    labels = np.array([[0, 1], [1, 1], [0, 0], [1, 0]]).astype(kind)
    refused("targets must be one label per record; got 2 columns of 0 and 1. Multi-label", checks.resolved_task, "auto", TWO, labels)
    assert checks.resolved_task("regression", TWO, labels) == "regression"


def test_a_named_task_is_taken_and_an_unknown_one_refused():
    assert checks.resolved_task("regression", ONE, np.array([0, 1, 1, 0])) == "regression"
    match = "task must be one of 'auto', 'regression', 'classification', 'binary'; got 'ranking'"
    refused(match, checks.resolved_task, "ranking", ONE, np.zeros(4))


def test_output_columns_fit_the_task():
    checks.require_output_columns(TWO, "classification")
    checks.require_output_columns(ONE, "binary")
    checks.require_output_columns(ONE, "regression")
    refused("outputs must have at least 2 columns in classification", checks.require_output_columns, ONE, "classification")
    refused(r"outputs must have one column in a binary task; got shape \(4, 2\)", checks.require_output_columns, TWO, "binary")


def test_labels_come_back_as_int64():
    for given_labels in (np.array([0, 2, 1], np.uint8), np.array([[0], [2], [1]])):
        labels = checks.class_targets(given_labels, 3)
        assert labels.dtype == np.int64 and labels.tolist() == [0, 2, 1]
    assert checks.class_targets(np.array([True, False]), 2).tolist() == [1, 0]
    assert len(checks.class_targets(np.empty(0, np.int64), 2)) == 0


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        (np.array([0, 1, 3, 5]), "targets must be < 3, the number of outputs; got label 5 at index 3"),
        (np.array([0, 1, -2, 1]), "targets must be ≥ 0; got label -2 at index 2"),
        (np.array([0.0, 1.0, 2.0]), "targets must be integers in classification; got dtype float64. Cast the labels"),
        (np.zeros((2, 4)), r"targets must have one column per output \(3\); got shape \(2, 4\)"),
        (
            np.array([[1, 0, 0], [1, 0, 1]]),
            "rows of probabilities that sum to one; got row 1 with sum 2. Multi-label heads are not supported",
        ),
        (np.array([[1, 0, 0], [0, 0, 0]]), "got row 1 with sum 0. Multi-label"),
        (np.array([[1.5, -0.5, 0.0]]), "got row 0 with sum 1. Multi-label"),
    ],
)
def test_labels_and_soft_rows_that_fit_no_class_are_refused(targets, match):
    refused(match, checks.class_targets, targets, 3)


def test_soft_rows_pass_in_float64():
    soft = checks.class_targets(SOFT.astype(np.float32), 2)
    assert soft.dtype == np.float64
    np.testing.assert_allclose(soft, SOFT, atol=1e-7)  # float32 rounding of the input


def test_integer_labels_are_one_dimensional():
    refused("targets must be 1-dimensional labels", checks.integer_labels, np.zeros((2, 2), int), 2)


def test_binary_targets_are_probabilities_of_one_label():
    for targets in (np.array([0, 1]), np.array([[0.0], [1.0]]), np.array([False, True])):
        values = checks.binary_targets(targets)
        assert values.dtype == np.float64 and values.tolist() == [0.0, 1.0]
    refused("targets must be 0, 1 or a probability in a binary task; got 2 at index 1", checks.binary_targets, np.array([0, 2]))
    refused("got -1 at index 0", checks.binary_targets, np.array([-1, 1]))
    refused(r"targets must be 1-dimensional beside one output; got shape \(2, 2\). Multi-label", checks.binary_targets, np.zeros((2, 2)))


def test_two_classes_are_required():
    checks.require_two_classes(np.array([0, 1]))
    refused("targets must hold at least two classes; got only class 3", checks.require_two_classes, np.array([3, 3]))


def test_regression_targets_have_the_shape_of_the_outputs():
    assert checks.regression_targets(np.array([1, 2, 3, 4]), ONE).shape == (4, 1)
    assert checks.regression_targets(TWO, TWO).shape == (4, 2)
    refused(r"targets must have the shape of the outputs \(4, 1\); got \(4, 2\)", checks.regression_targets, TWO, ONE)
    # Float labels beside several outputs look like a regression: the sentence says what a classification needs.
    refused("Labels of a classification must be integers", checks.regression_targets, np.zeros(4), TWO)
