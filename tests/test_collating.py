"""A batch is trusted only when every record stands at its own place in it, whatever a collate_fn does."""

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from noshadow.views.collating import collated


def items(count, width=2):
    values = torch.arange(count * width, dtype=torch.float32).reshape(count, width)
    return [(row, number % 2) for number, row in enumerate(values)]


def reordering(places):
    """A collate_fn that gives a batch of len(places) records in that order, and any other batch as it comes."""
    return lambda rows: default_collate([rows[k] for k in places] if len(rows) == len(places) else rows)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 16, 17, 23])
def test_no_two_records_of_a_batch_can_change_places_unseen(count):
    assert collated(items(count), collate=default_collate).alone is None
    for i, j in combinations(range(count), 2):
        places = list(range(count))
        places[i], places[j] = j, i
        found = collated(items(count), collate=reordering(places))
        assert found.alone is not None and len(found.alone) == count == found.records
        assert [float(x[0, 0]) for x, _ in found.alone] == [2.0 * k for k in range(count)]


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_order_but_their_own_is_trusted(data):
    count = data.draw(st.integers(2, 40))
    keys = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    rows = [((torch.tensor([float(number)]), key), 0) for number, key in enumerate(keys)]

    def sorting(batch):
        batch.sort(key=lambda row: row[0][1])  # in place and stable, as people write it
        return default_collate([(x, y) for (x, _), y in batch])

    found = collated(rows, collate=sorting)
    assert (found.alone is None) == (keys == sorted(keys))


@pytest.mark.parametrize("count", [5, 20])
def test_functions_that_draw_leave_the_states_that_one_call_leaves(count):
    def drawing(rows):
        torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
        return default_collate(rows)

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    with torch.random.fork_rng():
        before = random.getstate(), np.random.get_state()  # noqa: NPY002
        torch.manual_seed(1)
        drawing(items(count))
        expected = states()
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.manual_seed(1)
        assert collated(items(count), collate=drawing).alone is None
        assert states() == expected


def flat(rows):
    """Sequences laid end to end, with the place where each starts: right in any order, and not to be compared row by row."""
    starts = torch.tensor([0, *[len(x) for x, _ in rows]]).cumsum(0)[:-1]
    return torch.cat([x for x, _ in rows]), starts, torch.tensor([y for _, y in rows])


@pytest.mark.parametrize(
    ("collate", "trusted"),
    [
        (default_collate, True),
        (lambda rows: tuple(zip(*rows, strict=True)), True),
        (lambda rows: {"x": [x for x, _ in rows], "y": np.array([y for _, y in rows]), "longest": 7, "names": None}, True),
        (lambda rows: (default_collate(rows)[0], [str(y) for _, y in rows]), True),
        (lambda rows: (default_collate(rows)[0].T, default_collate(rows)[1]), True),
        (lambda rows: (default_collate(rows)[0] * float("nan"), default_collate(rows)[1]), True),
        (lambda rows: (default_collate(rows)[0].to_sparse(), default_collate(rows)[1]), False),
        (lambda rows: (default_collate(rows)[0] - default_collate(rows)[0].mean(0), default_collate(rows)[1]), False),
        (lambda rows: (default_collate(rows)[0] + torch.rand(()), default_collate(rows)[1]), False),
        (lambda rows: (default_collate(rows)[0], default_collate(rows)[1].flip(0)), False),
        (lambda rows: (default_collate(rows)[0], 0), False),
        (flat, False),
    ],
)
def test_what_is_trusted(collate, trusted):
    found = collated(items(11, width=3), collate=collate)
    assert (found.alone is None) == trusted and found.trouble == ""


def test_forms_that_nobody_reads_are_left_to_the_reader():
    found = collated(items(5), collate=lambda rows: torch.stack([x for x, _ in rows]))
    assert found.alone is None and found.whole.shape == (5, 2)


def test_trouble_with_single_records_is_kept_for_a_sentence():
    def in_pairs(rows):
        _first, _second, *_ = rows
        return default_collate(rows[::-1])

    found = collated(items(4), collate=in_pairs)
    assert found.alone == () and found.trouble.startswith("ValueError: not enough values to unpack")
