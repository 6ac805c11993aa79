"""Thresholds that more than one room draws a line at.

A finding holds its figure against one of them. The function that made the figure warns by the same
one when it is called without an audit. Thresholds that only a finding uses stand in its rule.
"""

# What is left of the gradient of the scored layers, in units of a typical record's.
FAR_FROM_MINIMUM = 1.0
# Of the factored curvature: about twelve of sixteen digits are lost.
DOUBTFUL_CONDITION = 1e12
# Share of their scores by which rounding moved the riskiest records.
ROUNDING_TOLERANCE = 1e-4
# Share of the outputs that is no linear function of the features.
NONLINEAR_HEAD = 1e-3
# Effective degrees of freedom per projected dimension: beyond it, scores are half of what they
# should be, and less.
CROWDED = 0.25
# Relative error of a projected score beyond which its size says nothing.
FAR_OFF = 0.5
# Upper end of the interval of the loss AUC below which members have the larger losses.
SWAPPED_AUC = 0.5
# Members allowed above τ from which the interval of TNR covers about what it claims
# (benchmarks/tnr_coverage.py).
FEW_MEMBERS = 5
# Deviations of the reference models' mean losses.
LARGEST_Z = 4.0
# Share of the outputs' spread by which a record may change when it is read and run again.
IMMATERIAL = 1e-3
# Distance of a base's loss AUC from 0.5, and nats of its loss above those of a guess: beyond them
# it cannot stand for a model that has seen neither split.
BASE_DISTANCE = 0.05
BASE_NATS = 0.5
# Times a guess: a rate above it is strong, where its interval leaves a guess out.
STRONG_TIMES = 10.0
# Reference models from which each record has a spread of its own in LiRA: about half of them per
# side. With fewer, one spread serves all records.
OWN_SPREAD_MODELS = 64
