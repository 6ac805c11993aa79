"""State where an audit comes from, ready for JSON.

The stamps hold arguments, head, diagnostics, hashes, versions and times.
"""

from datetime import datetime, timezone
from typing import Any

import numpy as np

from noshadow._audit.options import Options
from noshadow._audit.settled import Settled
from noshadow.scores.result import RecordScores
from noshadow.signals import Signals
from noshadow.storage.digests import sha256
from noshadow.storage.versions import NUMERICS, versions_of

PACKAGES = (*NUMERICS, "scikit-learn")  # what an audit's figures depend on
_DIAGNOSTICS = (
    "damping_used",
    "damping_source",
    "effective_dof",
    "rank",
    "condition",
    "jitter",
    "stationarity",
    "head_residual",
    "precision",
    "precision_error",
    "method",
    "parameters",
    "dimensions",
    "errors",
)


def provenance(found: Settled, options: Options, scores: RecordScores | None) -> dict[str, Any]:
    """Collect what says where an audit comes from.

    These are arguments, facts of the reading, head, class names, hashes, versions and the solver's
    diagnostics.
    """
    seen = found.seen
    stamp: dict[str, Any] = {
        "arguments": asked(options) | {"output_scale": options.output_scale},
        "source": options.source,
        "inputs": dict(seen.inputs),
        "head": seen.head or ("given as arrays" if seen.not_applicable is None else "none was read"),
        "class_names": None if seen.class_names is None else list(seen.class_names),
        "hashes": {"train": _hashes(seen.train), "test": _hashes(seen.test), "weights": seen.weights_sha256 or None},
        "versions": versions_of(*PACKAGES),
    }
    if scores is not None:
        stamp["scores"] = score_stamp(scores) | {"fit_intercept": seen.fit_intercept, "penalize_intercept": seen.penalize_intercept}
    return stamp


def asked(options: Options) -> dict[str, Any]:
    """The arguments that every audit has."""
    common = {name: getattr(options, name) for name in ("task", "damping", "weight_decay", "fpr", "seed", "layers")}
    return common | {"score_options": dict(options.score_options), "call": options.call}


def score_stamp(scores: RecordScores) -> dict[str, Any]:
    """How the scores were obtained."""
    stamp = {name: getattr(scores, name) for name in _DIAGNOSTICS} | {"damping_kind": scores.damping.kind}
    stamp["layers"] = list(scores.layers)
    # Infinite when every record is fitted exactly under a penalty; JSON has no infinity, the
    # findings say it.
    stamp["stationarity"] = scores.stationarity if np.isfinite(scores.stationarity) else None
    # An estimate whose last digits depend on where the arrays lie in memory: three digits are the
    # same in every run.
    stamp["condition"] = float(f"{scores.condition:.3g}")
    return stamp


def timings(signals: float, scores: float, risk: float) -> dict[str, Any]:
    """When the audit was made, and the seconds of its stages."""
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "signals_seconds": signals,
        "scores_seconds": scores,
        "risk_seconds": risk,
    }


def _hashes(split: Signals) -> dict[str, str]:
    """Compute the digests of a split.

    The digest of the targets says nothing about the model, so two audits of the same records share
    it.
    """
    targets = np.ascontiguousarray(split.targets, dtype=np.float64)
    return split.sha256() | {"targets": sha256(f"{targets.shape}".encode(), targets.tobytes())}
