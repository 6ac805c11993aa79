"""exposure(): one rank and one number with an interval for each record.

It weighs the evidence about both sides of the record.
"""

from noshadow._exposure.entry import exposure
from noshadow._exposure.result import Exposure
from noshadow._exposure.sources import Source, line_to, weighed

__all__ = ["Exposure", "Source", "exposure", "line_to", "weighed"]
