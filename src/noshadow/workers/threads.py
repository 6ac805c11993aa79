"""A task's share of its process: alone in it, with a fixed number of threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

# A worker process may run tasks in several threads (Dask); torch's and NumPy's random states and
# thread counts are the process's.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def alone_in_process(threads: int) -> Iterator[None]:
    """Run alone in this process, with this many threads for torch and BLAS.

    No other task runs meanwhile, and threads are as before afterwards.
    """
    with _ONE_AT_A_TIME, threadpool_limits(limits=threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
