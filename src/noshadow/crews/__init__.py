"""Crews: numbered tasks on this machine, a Ray or a Dask cluster, all through joblib; lost workers cost their tasks, not the run."""

from noshadow.crews.backends import BACKENDS, crew, surviving_results
from noshadow.crews.ready import Crew, Job, Task, Wording
from noshadow.crews.threads import alone_in_process

__all__ = ["BACKENDS", "Crew", "Job", "Task", "Wording", "alone_in_process", "crew", "surviving_results"]
