"""LossTraces: the losses of every record while a model is being trained, and their file."""

from noshadow.traces.files import load_loss_traces
from noshadow.traces.given import GivenTraces, given_traces
from noshadow.traces.recorder import LossTraces

__all__ = ["GivenTraces", "LossTraces", "given_traces", "load_loss_traces"]
