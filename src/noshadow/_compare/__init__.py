"""compare(): what changed between two audits, and whether it is more than noise."""

from noshadow._compare.entry import compare
from noshadow._compare.result import Change, Comparison, Mover

__all__ = ["Change", "Comparison", "Mover", "compare"]
