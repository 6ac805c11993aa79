"""Scores of records from what a model says with and without each of them: no curvature, no λ."""
