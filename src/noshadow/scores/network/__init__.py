"""Scores of records over many layers."""
