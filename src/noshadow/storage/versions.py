"""Versions of what made a file, for its stamp."""

import importlib.metadata
import platform

# The packages whose versions can move a number.
NUMERICS = ("noshadow", "torch", "numpy", "scipy", "pandas")


def versions_of(*packages: str) -> dict[str, str]:
    """Package → its installed version, and Python's own under "python"."""
    return {name: importlib.metadata.version(name) for name in packages} | {"python": platform.python_version()}
