"""Scores of the last layer for records in shards."""
