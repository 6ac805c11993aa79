"""The registry of columns: every column written is in it, and every column in it is written."""

import re

import pandas as pd
import pytest

from fixed_audits import AUDITS, WEIGHED
from noshadow.columns import COLUMNS, TASKS, column, is_target, meaning, named, page_order


@pytest.fixture(scope="module")
def audits():
    return {name: made() for name, made in (AUDITS | WEIGHED).items()}


def test_every_column_written_is_registered_for_its_task_and_in_order(audits):
    order = [entry.name for entry in COLUMNS]
    for name, audit in audits.items():
        entries = [column(str(written)) for written in audit.records.columns]
        assert None not in entries, name
        assert all(audit.task in entry.tasks for entry in entries), name
        # Evidence that was added later stands behind the rank, in the registry as in the table.
        places = [order.index(entry.name) for entry in entries if not entry.numbered]
        assert places == sorted(places), name


def test_every_registered_column_is_written_by_some_audit(audits):
    written = {column(str(name)).name for audit in audits.values() for name in audit.records.columns}
    assert {entry.name for entry in COLUMNS} == written
    tasks = {entry.name: set() for entry in COLUMNS}
    for audit in audits.values():
        for name in audit.records.columns:
            tasks[column(str(name)).name].add(audit.task)
    assert all(found for found in tasks.values())


def test_what_is_said_of_a_column_is_true_of_its_values(audits):
    for audit in audits.values():
        for name in audit.records.columns:
            values, entry = audit.records[name], column(str(name))
            if entry.kind == "share":
                assert values.dropna().between(0, 1).all(), name
            if entry.kind == "flag":
                assert values.dtype == bool
            if entry.kind == "count":
                assert pd.api.types.is_integer_dtype(values) and (values >= 0).all()
            if entry.score or entry.truth:
                assert values.dtype == "float64", name
        assert audit.ranked_by is None or column(audit.ranked_by).ranks


def test_entries_are_whole():
    names = [entry.name for entry in COLUMNS]
    assert len(set(names)) == len(names)
    pages = [entry.page for entry in COLUMNS if entry.page]
    assert sorted(pages) == list(range(1, len(pages) + 1)) == [column(name).page for name in page_order()]
    for entry in COLUMNS:
        assert set(entry.tasks) <= set(TASKS) and set(entry.by_task) <= set(entry.tasks)
        assert not (entry.score and entry.truth) and (entry.score or not entry.ranks)
        assert entry.kind in ("number", "share", "text", "flag", "count") and (entry.kind == "share") <= (entry.unit == "share")
        for task in entry.tasks:
            said = meaning(entry.name if not entry.numbered else f"{entry.name}0", task, unit="nats", at_level=" here")
            assert said and not said.endswith(".") and not re.search("[{}]", said)


def test_columns_by_name():
    assert column("target_12").name == "target_" and column("target_") is None and column("lira_d2") is None
    assert [name for name in ("target", "target_0", "target_x", "tokens") if is_target(name)] == ["target", "target_0"]
    assert column("nobody") is None and meaning("nobody", "regression") is None
    assert named(source="lood") == ("lood_kl", "lood_mean_distance", "lood_auc")
    assert named(truth=True) == ("lira_success", "lira_d", "rmia_success", "shokri_success")
