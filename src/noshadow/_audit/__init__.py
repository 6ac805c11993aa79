"""audit(): view, score, gather."""

from noshadow._audit.arrays import audit_signals
from noshadow._audit.entry import audit
from noshadow._audit.gained_tokens import token_gains
from noshadow._audit.references import reference_columns
from noshadow._audit.target import Target
from noshadow._audit.with_references import with_references

__all__ = ["Target", "audit", "audit_signals", "reference_columns", "token_gains", "with_references"]
