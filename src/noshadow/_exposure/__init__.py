"""exposure(): one rank and one number with an interval for each record.

It weighs the evidence about both sides of the record.
"""

from noshadow._exposure.entry import exposure
from noshadow._exposure.largest import largest_rate
from noshadow._exposure.prices import Step, mean_width, stepwise, width_with
from noshadow._exposure.result import Exposure
from noshadow._exposure.retraining import retraining
from noshadow._exposure.sources import Source, line_to, parted, weighed

__all__ = [
    "Exposure",
    "Source",
    "Step",
    "exposure",
    "largest_rate",
    "line_to",
    "mean_width",
    "parted",
    "retraining",
    "stepwise",
    "weighed",
    "width_with",
]
