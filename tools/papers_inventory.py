"""The table of docs/papers.md that says of every figure and table of the four papers whether and where it was made again."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
INVENTORY = ROOT / "benchmarks" / "papers" / "inventory.json"


def inventory_lines():
    rows = json.loads(INVENTORY.read_text())["rows"]
    counts = {status: sum(row["status"] == status for row in rows) for status in ("re-made", "in part", "not made")}
    lines = [
        f"Of {len(rows)} figures and tables {counts['re-made']} are made again, {counts['in part']} in part, {counts['not made']} not. *Again* links to where; *differs* says how ours differ, or why there is none.",
        "",
        "| in the paper | what it shows | again | differs |",
        "|---|---|---|---|",
    ]
    return [*lines, *(inventory_row(row) for row in rows), ""]


def inventory_row(row):
    """One row; the status is the first link, further places follow."""
    places = [place.removeprefix("papers.md") if place.startswith("papers.md#") else place for place in row["where"]]
    first, *others = [f"[{row['status']}]({places[0]})", *(f"[and]({place})" for place in places[1:])] if places else [row["status"]]
    return f"| [{row['paper']}] {row['item']} | {row['shows']} | {' '.join([first, *others])} | {row['differs']} |"
