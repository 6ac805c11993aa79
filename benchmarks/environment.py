"""Where a benchmark ran: stored beside its figures."""

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ("noshadow", "torch", "numpy", "scipy", "scikit-learn")


def environment():
    """CPU, cores, threads and versions; nothing that names a machine."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
