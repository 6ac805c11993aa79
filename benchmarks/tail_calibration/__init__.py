"""Calibration of the loss tail on real attacks."""
