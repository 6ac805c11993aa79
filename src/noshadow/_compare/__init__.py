"""compare(): what changed between two audits, and whether it is more than noise."""

from noshadow._compare.entry import compare
from noshadow._compare.result import Change, Comparison, Mover
from noshadow._compare.words import difference_words, figure_words, interval_words

__all__ = ["Change", "Comparison", "Mover", "compare", "difference_words", "figure_words", "interval_words"]
