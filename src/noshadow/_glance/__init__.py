"""An audit at one glance: lines of text, a fragment of HTML, a picture, the riskiest records."""

from noshadow._glance.fragment import Glance, glance
from noshadow._glance.lines import (
    TOP_RECORDS,
    Line,
    brief_text,
    drawn,
    ended,
    figure_lines,
    no_rates,
    note_lines,
    record_lines,
    records_title,
    summary_text,
    verdict_lines,
)
from noshadow._glance.picture import MARKS, exposure_chart, people_grids, rated_by
from noshadow._glance.plot import exposure_plot
from noshadow._glance.records import label_text, record_cells, top_table
from noshadow._glance.rendering import escaping_templates
from noshadow._glance.scales import LogScale, decade_label, decade_ticks, plain_axis

__all__ = [
    "MARKS",
    "TOP_RECORDS",
    "Glance",
    "Line",
    "LogScale",
    "brief_text",
    "decade_label",
    "decade_ticks",
    "drawn",
    "ended",
    "escaping_templates",
    "exposure_chart",
    "exposure_plot",
    "figure_lines",
    "glance",
    "label_text",
    "no_rates",
    "note_lines",
    "people_grids",
    "plain_axis",
    "rated_by",
    "record_cells",
    "record_lines",
    "records_title",
    "summary_text",
    "top_table",
    "verdict_lines",
]
