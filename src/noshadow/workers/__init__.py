"""Workers of this machine, a Ray or a Dask cluster carry out numbered tasks.

A lost worker costs its task, not the run.
"""

from noshadow.workers.backends import BACKENDS, ready_workers, surviving_results
from noshadow.workers.ready import ReadyWorkers, Wording, WorkerJob, WorkerOptions, WorkerTask, alone_in_process

__all__ = [
    "BACKENDS",
    "ReadyWorkers",
    "Wording",
    "WorkerJob",
    "WorkerOptions",
    "WorkerTask",
    "alone_in_process",
    "ready_workers",
    "surviving_results",
]
