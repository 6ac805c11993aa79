"""The table of record columns in docs/audit.md, from the registry."""

from noshadow.columns import COLUMNS, TASKS

SHORT = {"regression": "regression", "classification": "classes", "binary": "one logit", "language-model": "sequences"}


def column_lines():
    """One row per column: name, what it says, who writes it, and the tasks that have it."""
    lines = ["| column | what it says | from | tasks |", "|---|---|---|---|"]
    for column in COLUMNS:
        name = f"`{column.name}0`, `{column.name}1`, …" if column.numbered else f"`{column.name}`"
        said = column.meaning.format(unit="nats (regression: squared error)", at_level="")
        own = "".join(f"; {SHORT[task]}: {text.format(unit='nats', at_level='')}" for task, text in column.by_task.items())
        tasks = "all" if column.tasks == TASKS else ", ".join(SHORT[task] for task in column.tasks)
        lines.append(f"| {name} | {said}{own} | {column.source} | {tasks} |")
    return [*lines, ""]
