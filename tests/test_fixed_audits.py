"""Record tables of a fixed set of audits stay what they were: bytes on the machine that stored them, figures elsewhere.

`python tests/test_fixed_audits.py` stores them anew, which only a change of numbers may do; the changelog then says so.
"""

import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from fixed_audits import AUDITS

STORED = Path(__file__).parent / "data" / "fixed_audits.json"
ROWS = 12  # of each table whose figures are kept
PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "pandas", "pyarrow")


def processor():
    """The processor by all that it says of itself: machines rent out several generations under one name ("AMD EPYC")."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor()
    told = dict(map(str.strip, line.partition(":")[::2]) for line in path.read_text().split("\n\n")[0].splitlines())
    flags = hashlib.sha256(" ".join(sorted(told.get("flags", "").split())).encode()).hexdigest()[:12]
    return " · ".join([*(told.get(name, "?") for name in ("model name", "cpu family", "model", "stepping")), flags])


def environment():
    """What decides the last bits: versions, and the processor, whose instructions decide the order of sums."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {"processor": processor()}


def described(made):
    """One audit's table, made with one thread: more of them sum in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            audit = made()
    finally:
        torch.set_num_threads(before)
    table = audit.records
    columns = {
        str(name): {"dtype": str(table[name].dtype), "first": [repr(value) for value in table[name].tolist()[:ROWS]]}
        for name in table.columns
    }
    digest = hashlib.sha256(audit.records.to_parquet(index=False)).hexdigest()
    return {"sha256": digest, "ranked_by": audit.ranked_by, "columns": columns}


def stored():
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("name", AUDITS)
def test_the_record_table_is_what_it_was(name):
    before, now = stored()["audits"][name], described(AUDITS[name])
    assert list(now["columns"]) == list(before["columns"]) and now["ranked_by"] == before["ranked_by"]
    for column, kept in before["columns"].items():
        found = now["columns"][column]
        assert found["dtype"] == kept["dtype"], column
        if found["dtype"].startswith("float"):
            # Other processors sum in another order; the worst condition here is about 1e4, estimators stop at 1e-10.
            ours, theirs = (np.array([float(text) for text in entry["first"]]) for entry in (found, kept))
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9, err_msg=column)
        elif column != "rank":
            assert found["first"] == kept["first"], column
    if stored()["environment"] == environment():
        assert now["sha256"] == before["sha256"]


def test_every_audit_is_stored():
    assert list(stored()["audits"]) == list(AUDITS)


if __name__ == "__main__":
    audits = {name: described(made) for name, made in AUDITS.items()}
    STORED.write_text(json.dumps({"environment": environment(), "audits": audits}, indent=1) + "\n")
