"""Audit → one self-contained HTML file."""

from noshadow.report.page import write_report

__all__ = ["write_report"]
