"""Limits of `noshadow gate` held against an audit."""

from collections.abc import Callable, Iterable
from typing import Any

from noshadow._answer import KnownRate, best_known, in_doubt, per_thousand, verdict, worst_record
from noshadow.checks import InputError, said
from noshadow.results import Audit

Row = dict[str, Any]
_DROP = "Drop that limit."
_MEASURE = (
    "Limit what is best known with --max-tpr, or measure it: run noshadow reference train for the model, then noshadow reference score "
    "references --audit my-audit."
)
_RATES = "Run noshadow audit package.module:function --out my-audit --reference-models 4, or measure with noshadow reference score."
_TEST = "Audit again with test records."


def require_an_answer(audited: Audit, asked: Iterable[str]) -> None:
    """Refuse limits on figures that answer nothing, whatever they are.

    Figures in doubt pass no limit at all. Too few records and too coarse a level are no answer to
    how much is best known (`tpr`); whoever limits another figure has asked for that one.
    """
    found = verdict(audited)
    if found.remedy and (in_doubt(audited) is not None or "tpr" in asked):
        title = found.title[:1].lower() + found.title[1:]
        raise InputError(said(f"the audit must hold figures that answer; got '{title}'. {found.sentence} {found.remedy}"))


def checked(audited: Audit, name: str, limit: float) -> Row:
    """Hold a figure against its limit.

    Args:
        audited: the audit. name: a key of `LIMITS`. limit: a fraction.

    Returns:
        The figure, its value, interval and limit, whether it passed, and where it comes from.

    Raises:
        InputError: the audit does not hold the figure; the message says how to measure it.
    """
    found = LIMITS[name](audited, name)
    return {"figure": name, **found, "limit": limit, "passed": found["value"] <= limit}


def lines(rows: Iterable[Row]) -> list[str]:
    """One line a limit, and which were exceeded.

    Figures are fractions, as limits are, so that both can be compared; rates of people are also
    given in a thousand.
    """
    told, rows = [], list(rows)
    for row in rows:
        ends = "no interval" if None in row["interval"] else "–".join(f"{end:.4g}" for end in row["interval"])
        hint = " (outside of the calibration: a hint)" if row.get("outside_calibration") else ""
        whence = f"; {per_thousand(row['value'])}. {row['reason']}" if "reason" in row else ""
        told.append(f"{_mark(row)}  {row['figure']} = {row['value']:.4g} ({ends}), limit {row['limit']:g}{hint}{whence}")
    failed = [f"{row['figure']} {row['value']:.4g} > {row['limit']:g}" for row in rows if not row["passed"]]
    if failed:
        told.append(f"{len(failed)} of {len(rows)} {'limit' if len(rows) == 1 else 'limits'} exceeded: {', '.join(failed)}")
    return told


def _mark(row: Row) -> str:
    return "pass" if row["passed"] else "FAIL"


def _of_the_losses(audited: Audit, name: str) -> Row:
    risk = audited.model_risk
    if risk is None:
        raise _not_held(name, audited.not_applicable.get("model_risk", "no model-level risk"), _TEST)
    return {"value": getattr(risk, name), "interval": list(getattr(risk, f"{name}_interval"))}


def _predicted(audited: Audit, name: str) -> Row:
    risk = audited.model_risk
    if risk is None or risk.predicted_tpr is None:
        raise _not_held(name, audited.not_applicable.get("model_risk") or (risk.reason if risk else ""), _DROP)
    ends = [None, None] if risk.predicted_tpr_interval is None else list(risk.predicted_tpr_interval)
    return {"value": risk.predicted_tpr, "interval": ends, "outside_calibration": not risk.in_calibration_domain}


def _best_known(audited: Audit, name: str) -> Row:
    known = best_known(audited)
    if known.rate is None:
        raise _not_held(name, known.reason, _TEST)
    return _row(known)


def _measured(audited: Audit, name: str) -> Row:
    known = best_known(audited)
    if known.source != "measured":
        raise _not_held(name, "no attack was run with reference models", _MEASURE)
    return _row(known)


def _of_the_worst_record(audited: Audit, name: str) -> Row:
    worst = worst_record(audited)
    if worst is None:
        raise _not_held(name, "no record has a rate of its own", _RATES)
    ends = [None, None] if worst.interval is None else list(worst.interval)
    return {"value": worst.rate, "interval": ends, "source": worst.source, "drawn": worst.drawn, "reason": worst.reason}


def _row(known: KnownRate) -> Row:
    ends = [None, None] if known.interval is None else list(known.interval)
    return {"value": known.rate, "interval": ends, "source": known.source, "attack": known.attack, "fpr": known.fpr, "reason": known.reason}


def _not_held(name: str, why: str, hint: str) -> InputError:
    return InputError(said(f"the audit must hold {name} for --max-{name.replace('_', '-')}; got none ({why.rstrip('.')}). {hint}"))


# Figure of a limit → how it is read from an audit, in the order of the output.
LIMITS: dict[str, Callable[[Audit, str], Row]] = {
    "tpr": _best_known,
    "measured_tpr": _measured,
    "predicted_tpr": _predicted,
    "record_rate": _of_the_worst_record,
    "tnr": _of_the_losses,
    "auc": _of_the_losses,
}
