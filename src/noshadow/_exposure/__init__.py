"""exposure(): evidence about both sides of each record, weighed into one rank and one number with an interval."""

from noshadow._exposure.entry import exposure
from noshadow._exposure.result import Exposure

__all__ = ["Exposure", "exposure"]
