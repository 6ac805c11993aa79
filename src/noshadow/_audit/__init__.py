"""audit(): view, score, gather."""

from noshadow._audit.arrays import audit_signals
from noshadow._audit.entry import Target, audit, audit_target
from noshadow._audit.references import reference_columns
from noshadow._audit.with_references import with_references

__all__ = ["Target", "audit", "audit_signals", "audit_target", "reference_columns", "with_references"]
