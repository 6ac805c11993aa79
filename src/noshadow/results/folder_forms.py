"""Declare what `audit.json` and `lood.json` must look like inside.

Digests prove that a folder is whole, not that it is one of ours.
"""

from typing import Any

from noshadow.figures import MeasuredAttack
from noshadow.outcomes import SOURCES_OF_MODELS
from noshadow.storage.forms import Count, Keys, Level, OneOf, Share, Size, Such

# Forms of what is read by name; whatever else stands beside it is kept as it is.
_NUMBER = float | None
_TEXT = str | None
_HASHES = Keys(optional={"train": dict[str, str], "test": dict[str, str], "weights": _TEXT})
_RECORDS = Keys({"count": Count, "columns": list[str]})
_TIMINGS = dict[str, str | float | None]
_SCORES = Keys(
    optional={
        "damping_used": Size,
        "damping_source": str,
        "damping_kind": str,
        "effective_dof": float,
        "rank": Count,
        "condition": float,
        "jitter": Size,
        "stationarity": OneOf(None, Size),
        "head_residual": OneOf(None, Size),
        "precision": str,
        "precision_error": _NUMBER,
        "method": str,
        "parameters": OneOf(None, Count),
        "errors": dict[str, float],
        "layers": list[str],
    }
)
_COPIES = Keys({"records": Count, "groups": Count, "largest": Count, "first_ids": list[str]})
_TWINS = Keys({"records": Count, "looked": Count, "of": Count, "dimension": Size, "ratio": Share, "first_ids": list[str]})
_NEAR_TEXTS = Keys({"records": Count, "looked": Count, "of": Count, "similarity": Share, "first_ids": list[str]})
_NEAR = Keys(
    {"features": OneOf(None, _TWINS), "inputs": OneOf(None, _TWINS), "reasons": dict[str, str]}, {"sequences": OneOf(None, _NEAR_TEXTS)}
)
_KERNEL = OneOf(
    Keys({"name": OneOf("fc", "conv"), "depth": Count, "activation": str}, {"filter_size": Count}),
    Keys({"name": OneOf("rbf", "laplace"), "length_scale": Size}),
)
_AGREEMENT = Such(
    Keys({"score": str, "compared": str, "spearman": _NUMBER, "low": _NUMBER, "high": _NUMBER, "note": _TEXT}),
    "have both ends of its interval or none",
    lambda row: (row["low"] is None) == (row["high"] is None),
)
_AGREEMENTS = Such([_AGREEMENT], "compare every score with kl, mean_distance and auc", lambda rows: _is_whole(rows))
_MATCHED = {"matched": Count, "unmatched": Count, "unmatched_in_audit": Count, "differing_targets": OneOf(None, Count)}
_LOOD = Keys(
    _MATCHED
    | {"kernel": _KERNEL, "noise": Size, "agreement": _AGREEMENTS, "notes": list[str], "hashes": dict[str, Any], "normalization": str}
)
_AGAIN = Keys({"records": Count, "changed": Count, "size": Size, "sources": [OneOf("data", "model", "batch")]})
# Facts of the reading that findings are drawn from.
_INPUTS = Keys(
    optional={
        "ids_in_both": OneOf(None, Keys({"count": Count, "first": list[Any]})),
        "run_again": OneOf(None, Keys(optional={"train": _AGAIN, "test": _AGAIN})),
        "repeated_rows": OneOf(None, Keys(optional={"train": Count, "test": Count})),
        "output_scale": OneOf(None, Keys({"given": str, "raised": Count, "entries": Count})),
        "closed_form": str,
        "votes": Count,
        "other_records": str,
        "weights_digest_of": str,
        "solver_leaves": Size,
        "alone_in_leaves": Keys({"records": Count, "of": Count, "trees": Count, "first": list[Count]}),
        "leaves": Keys(
            {"trees": Count, "leaves": Count, "leaves_of_a_tree": Size, "deepest": Count, "depth": Size, "by_size": list[Count]}
        ),
        "head_outputs": OneOf(
            None,
            Keys(
                {"differing": Count, "records": Count, "ending": _TEXT, "layer": str, "largest": OneOf(None, Size), "used": str}
                | {"train_rows": list[Count]}
            ),
        ),
    }
)
AUDIT_FORM = Keys(
    {
        "task": str,
        "ranked_by": _TEXT,
        "records": _RECORDS,
        "model_risk": OneOf(None, dict[str, Any]),
        "not_applicable": dict[str, str],
        "notes": list[str],
        "provenance": Keys(
            optional={
                "arguments": dict[str, Any],
                "source": OneOf(*SOURCES_OF_MODELS),
                "inputs": _INPUTS,
                "head": _TEXT,
                "class_names": list[str] | None,
                "hashes": _HASHES,
                "versions": dict[str, str],
                "scores": OneOf(None, _SCORES),
                "splits": Keys(
                    {"shared_with_test": OneOf(None, Count), "copies": OneOf(None, _COPIES), "reason": _TEXT},
                    {"near": OneOf(None, _NEAR)},
                ),
                "lood": OneOf(None, _LOOD),
            }
        ),
        "timings": _TIMINGS,
    },
    {
        "ground_truth": OneOf(None, dict[str, Any]),
        "findings": OneOf(None, list[dict[str, Any]]),
        "class_risk": list[dict[str, Any]],
        "group_risk": list[dict[str, Any]],
        "sequence_attacks": [MeasuredAttack],
        "evidence": list[dict[str, Any]],
    },
)

_FIGURES = Keys({"mean": float, "median": float, "quantile_90": float, "max": float})
_SHARES = Keys({"mean": Share, "median": Share, "quantile_90": Share, "max": Share})
_SUMMARY = Keys(
    {"records": Count, "outputs": Count, "kl": _FIGURES, "mean_distance": _FIGURES, "auc": _SHARES, "tpr": _SHARES}
    | {"riskiest_tenth": Count, "kl_share_of_riskiest_tenth": OneOf(None, Share)}
)
_CONDITIONING = Keys(
    dict.fromkeys(("largest_eigenvalue", "smallest_eigenvalue", "condition", "condition_1_norm", "effective_dof"), float)
    | {"constant": float, "distance": float, "relative": _NUMBER, "diagonal": tuple[float, float], "entries": tuple[float, float]},
    # Folders of earlier versions have neither.
    {"mean_diagonal": float, "bound": _NUMBER},
)
_SWEPT = dict.fromkeys(("kl_mean", "kl_median", "kl_max", "auc_mean", "constant", "distance", "relative", "condition"), _NUMBER)
_SWEPT_SINCE = dict.fromkeys(("noise", "mean_diagonal", "mean_distance_max", "bound"), _NUMBER)
LOOD_FORM = Keys(
    {
        "kernel": _KERNEL,
        "noise": Size,
        "fpr": Level,
        "records": _RECORDS,
        "summary": _SUMMARY,
        "conditioning": _CONDITIONING,
        "sweep": [Keys(_SWEPT | {"activation": str, "depth": Count, "reason": _TEXT}, _SWEPT_SINCE)],
        "joined": OneOf(None, Keys(_MATCHED | {"ranked_by": _TEXT, "score": str, "agreement": _AGREEMENTS, "hashes": dict[str, Any]})),
        "notes": list[str],
        "provenance": Keys(
            {
                "arguments": dict[str, Any],
                "inputs": Keys({"shape": list[Count], "normalization": str}),
                "targets": Keys({"kind": str, "outputs": Count}),
                "ids_given": bool,
                "map": Keys({"variance_shares": tuple[Share, Share]}),
                "hashes": Keys({"x": str, "y": str, "row_order": str}),
                "versions": dict[str, str],
            }
        ),
        "timings": _TIMINGS,
    }
)


def _is_whole(rows: list[dict[str, Any]]) -> bool:
    """Tell whether each score is compared once with each quantity of a leave-one-out audit.

    These quantities are the three that such an audit ranks by.
    """
    pairs = [(row["score"], row["compared"]) for row in rows]
    wanted = {(score, name) for score, _ in pairs for name in ("kl", "mean_distance", "auc")}
    return len(pairs) == len(wanted) and set(pairs) == wanted
