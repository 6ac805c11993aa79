"""One limit of `noshadow gate` held against an audit."""

from typing import Any

from noshadow.checks import InputError, said
from noshadow.results import Audit


def checked(audited: Audit, name: str, limit: float) -> dict[str, Any]:
    """Return the figure, its interval, the limit and whether it passed.

    An audit without the figure is refused.
    """
    value = None if audited.model_risk is None else getattr(audited.model_risk, name)
    if value is None:
        reason = audited.not_applicable.get("model_risk") or (audited.model_risk.reason if audited.model_risk else "")
        raise InputError(
            said(f"the audit must hold {name} for --max-{name.replace('_', '-')}; got none ({reason.rstrip('.')}). Drop that limit.")
        )
    low, high = getattr(audited.model_risk, f"{name}_interval") or (None, None)
    found = {"figure": name, "value": value, "interval": [low, high], "limit": limit, "passed": value <= limit}
    if name == "predicted_tpr":
        found["outside_calibration"] = audited.model_risk is None or not audited.model_risk.in_calibration_domain
    return found
