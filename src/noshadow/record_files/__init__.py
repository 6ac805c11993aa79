"""The record table in files for others: CSV, Parquet or JSON, every column with its meaning."""

from noshadow.record_files.entry import FORMATS, write_records

__all__ = ["FORMATS", "write_records"]
