"""Read what a caller hands to `audit(…, loss_traces=)`.

It is read once and matched to the records of the audit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noshadow.checks import Array, numeric_array, refuse, require_same_length
from noshadow.traces.best import best_recording
from noshadow.traces.files import checked_test_traces, read_traces
from noshadow.traces.recorder import LossTraces


@dataclass(frozen=True, eq=False)
class GivenTraces:
    """Losses (n, recordings), the ids of their rows, and losses of unseen records.

    The ids are None when rows are matched by position. Losses of unseen records (t, recordings)
    are None when none were recorded.
    """

    losses: Array
    ids: Array | None
    test_losses: Array | None = None

    @property
    def best(self) -> int | None:
        """The recording with the lowest mean loss on unseen records; None without such losses."""
        return None if self.test_losses is None else best_recording(self.test_losses)

    def in_order_of(self, ids: Array, owner: str) -> Array:
        """The rows of the losses in the order of these record ids, (n, recordings).

        Args:
            ids: (n,) unique ids of the training records.
            owner: the function named in error messages.

        Raises:
            InputError: another number of records, or a record that has no trace.
        """
        require_same_length(owner, train=ids, loss_traces=self.losses)
        if self.ids is None:
            return self.losses
        rows = {name: row for row, name in enumerate(self.ids.tolist())}
        wanted = ids.tolist()
        missing = next((row for row, name in enumerate(wanted) if name not in rows), None)
        if missing is not None:
            known = set(wanted)
            other = next(name for name in rows if name not in known)
            refuse(
                owner,
                "loss_traces",
                "have the ids of the training records",
                f"no trace of record {wanted[missing]!r} (row {missing}), and one of {other!r}",
                "Give both the same ids=, or pass the array of losses alone to match rows by position.",
            )
        matched: Array = self.losses[[rows[name] for name in wanted]]
        return matched


def given_traces(loss_traces: object, owner: str) -> GivenTraces | None:
    """Traces from an array (n, recordings), a LossTraces or the path of its file; None stays None.

    A tuple of two such arrays is the losses of the training records and of unseen ones.

    Raises:
        InputError: the file or the array cannot be read.
    """
    if loss_traces is None:
        return None
    if isinstance(loss_traces, LossTraces):
        return GivenTraces(loss_traces.array, loss_traces.ids, loss_traces.test_array)
    if isinstance(loss_traces, (str, Path)):
        return GivenTraces(*read_traces(loss_traces))
    unseen = None
    if isinstance(loss_traces, tuple) and len(loss_traces) == 2 and all(np.ndim(part) == 2 for part in loss_traces):
        loss_traces, unseen = loss_traces
    losses = numeric_array(loss_traces, owner, "loss_traces", ndim=2)
    return GivenTraces(losses, None, checked_test_traces(unseen, losses, owner))
