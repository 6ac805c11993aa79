"""Audit or Comparison → one self-contained HTML file."""

from noshadow.report.annex import write_annex
from noshadow.report.comparison import write_comparison
from noshadow.report.lood_page import architecture, write_lood_report
from noshadow.report.page import write_report

__all__ = ["architecture", "write_annex", "write_comparison", "write_lood_report", "write_report"]
