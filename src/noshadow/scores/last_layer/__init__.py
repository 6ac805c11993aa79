"""Scores of records from the last layer, exact."""
