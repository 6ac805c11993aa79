"""audit(): view, score, gather."""

from noshadow.audit.entry import Target, audit, audit_signals, audit_target

__all__ = ["Target", "audit", "audit_signals", "audit_target"]
