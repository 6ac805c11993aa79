"""Calibrations fitted to setups where the attack was run.

They are judged on data sets they have not seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from noshadow.checks import Array, NumericalError, named_in_errors, refuse, require_choice, require_number, said
from noshadow.results import Calibration, CalibrationCell
from noshadow.results.calibration import WITH_FACTOR
from noshadow.tail.forms import FORMS, as_read, fitted_coefficients, predicted_rates

LEAST_SETUPS, LEAST_SETS = 6, 3
GUARDS = ("skewness", "auc_excess")
SEVERAL = ("linear", *WITH_FACTOR)  # forms of more than one predictor
REQUIRED = ("setup", "data_set", "fpr", "references", "tpr")


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one cell.

    It holds predictors (n, p), measured TPR (n,), setup and data set of each row, and weights that
    sum to one per setup.
    """

    x: Array
    y: Array
    setup: Array
    data_set: Array

    @property
    def weights(self) -> Array:
        _, place, counts = np.unique(self.setup, return_inverse=True, return_counts=True)
        weights: Array = 1.0 / counts[place]
        return weights

    def where(self, chosen: Array) -> "_Rows":
        return _Rows(self.x[chosen], self.y[chosen], self.setup[chosen], self.data_set[chosen])

    def by_setup(self) -> "_Rows":
        """One row per setup: means."""
        names, first, place = np.unique(self.setup, return_index=True, return_inverse=True)
        counts = np.bincount(place)
        x = np.stack([np.bincount(place, weights=column) / counts for column in self.x.T], axis=1)
        return _Rows(x, np.bincount(place, weights=self.y) / counts, names, self.data_set[first])


@named_in_errors
def fit_calibration(
    table: object,
    *,
    predictors: Sequence[str] = ("margin_shift_0.1",),
    form: str = "linear",
    level: float = 0.9,
    offset: float = 0.02,
    attack: str = "LiRA",
    name: str = "own",
) -> Calibration:
    """A calibration fitted to setups where the attack was run, for `model_risk(calibration=…)`.

    One curve for each false-positive rate and number of references in the table, by least squares
    over setups (every setup counts once, however many rows it has). The prediction interval comes
    from the errors on data sets that were left out: for each row of a left-out data set (y −
    ŷ)/(ŷ + offset), of which the (1 ∓ level)/2 quantiles, every setup counting once.

    Args:
        table: DataFrame, or whatever pandas makes one of; one row per model (or setup): `setup`,
            `data_set` (names), `fpr`, `references` (number of reference models), `tpr` (measured)
            and a column for each predictor. A column `family` names the kind of each setup's
            models; models of other families are then not predicted.
        predictors: columns to predict from, by the names of `risk_predictors`; more than one with
            form "linear", "power" or "factors" only.
        form: "linear", "exponential", "quadratic", "power" or "factors". The last is fitted to
            log(rate + 0.002), so that errors count as factors and not as numbers.
        level: coverage of the prediction interval, in (0, 1).
        offset: rate added to a prediction before its error is taken relative to it, > 0: where
            errors stop shrinking.
        attack: name of the attack whose rates `tpr` holds. name: stamped into predictions.

    Returns:
        Calibration; `cells[…].quality` says how well it did in sample and on data sets left out.

    Raises:
        InputError: columns missing or not finite, rates outside [0, 1], fewer than 6 setups or 3
            data sets.
    Cost: O(data sets²) small least-squares fits.
    Reference: [TAIL] §5, Tables 1–2 (the forms); Barber et al. 2021 (cross-conformal intervals).
    """
    require_choice(form, FORMS, "form")
    if not _is_name(attack):
        refuse("attack", "be a name", repr(attack))
    columns = (predictors,) if isinstance(predictors, str) else tuple(predictors)
    if not columns or (form not in SEVERAL and len(columns) > 1):
        refuse("predictors", "be one column, or several with form='linear', 'power' or 'factors'", repr(columns))
    frame = _checked_table(table, columns)
    require_number(level, "level", low=0, high=1, low_open=True, high_open=True)
    require_number(offset, "offset", low=0, high=1, low_open=True)
    cells = []
    for fpr, references in sorted(set(zip(frame["fpr"].astype(float), frame["references"].astype(int), strict=True))):
        part = frame[(frame["fpr"] == fpr) & (frame["references"] == references)]
        rows = _rows(part, columns, form, f"fpr {fpr:g} and {references} references")
        cells.append(_cell(rows, fpr, references, form, level, offset))
    watched = [column for column in dict.fromkeys((*columns, *GUARDS)) if column in frame]
    means = frame.groupby("setup")[watched].mean()
    return Calibration(
        name=name,
        predictors=columns,
        form=form,
        cells=tuple(cells),
        domain={column: (float(means[column].min()), float(means[column].max())) for column in watched},
        level=level,
        offset=offset,
        setups=_setup_rows(frame, columns),
        families=tuple(sorted(set(frame["family"]))) if "family" in frame else (),
        attack=attack,
    )


def left_out_predictions(table: object, predictors: Sequence[str], form: str) -> pd.DataFrame:
    """Predict each setup from the other data sets, for one attack per table.

    Columns: setup, data_set, tpr, predicted.

    Raises:
        InputError: as `fit_calibration`.
    """
    columns = tuple(predictors)
    rows = _rows(_checked_table(table, columns), columns, form, "the table").by_setup()
    predicted = _left_out(rows, rows, form)
    found: pd.DataFrame = pd.DataFrame({"setup": rows.setup, "data_set": rows.data_set, "tpr": rows.y, "predicted": predicted})
    return found


def _checked_table(table: object, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        frame: pd.DataFrame = pd.DataFrame(table)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        refuse("table", "be a DataFrame or rows of one", f"{type(table).__name__} ({error})")
    missing = [column for column in (*REQUIRED, *columns) if column not in frame]
    if missing:
        refuse("table", f"have the columns {', '.join((*REQUIRED, *columns))}", f"none named {', '.join(missing)}")
    unnamed = frame[["setup", "data_set"]].isna().to_numpy().any(axis=1)
    if unnamed.any():
        refuse("table", "name a setup and a data set in every row", f"{int(unnamed.sum())} rows without, the first {int(unnamed.argmax())}")
    if "family" in frame and not (
        frame.groupby("setup")["family"].nunique(dropna=False).eq(1).all() and frame["family"].map(_is_name).all()
    ):
        refuse("table", "name one family in all rows of a setup", "several, or none")
    guards = [column for column in GUARDS if column in frame]
    numbers = list(dict.fromkeys(("fpr", "references", "tpr", *columns, *guards)))
    frame = frame.assign(**{column: pd.to_numeric(frame[column], errors="coerce") for column in numbers})
    for column in numbers:
        values = frame[column]
        bad = ~np.isfinite(values.to_numpy(dtype=np.float64))
        if bad.any():
            got = f"{int(bad.sum())} that are not, the first in row {int(bad.argmax())}"
            refuse("table", f"hold finite numbers in {column!r}", got)
    if not frame["tpr"].between(0, 1).all():
        refuse("table", "hold rates in [0, 1] in 'tpr'", f"{frame['tpr'].min():g} … {frame['tpr'].max():g}")
    if not frame["fpr"].between(0, 1, inclusive="neither").all():
        refuse("table", "hold rates strictly between 0 and 1 in 'fpr'", f"{frame['fpr'].min():g} … {frame['fpr'].max():g}")
    counts = frame["references"]
    if not ((counts >= 1) & (counts == counts.round())).all():
        refuse("table", "hold whole numbers ≥ 1 in 'references'", f"{counts.min():g} … {counts.max():g}")
    attacks = set(zip(frame["fpr"], frame["references"], strict=True))
    if len(attacks) != frame["fpr"].nunique() * frame["references"].nunique():
        rule = "hold every number of references at every false-positive rate, between which predictions are interpolated"
        refuse("table", rule, f"{len(attacks)} of {frame['fpr'].nunique() * frame['references'].nunique()} pairs")
    checked: pd.DataFrame = frame
    return checked


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _rows(frame: pd.DataFrame, columns: tuple[str, ...], form: str, which: str) -> _Rows:
    setups, sets = frame["setup"].nunique(), frame["data_set"].nunique()
    if setups < LEAST_SETUPS or sets < LEAST_SETS:
        rule = f"hold at least {LEAST_SETUPS} setups on {LEAST_SETS} data sets for {which}"
        refuse("table", rule, f"{setups} on {sets}", "Run the attack on more of them.")
    x = as_read(form, columns, frame[list(columns)].to_numpy(dtype=np.float64))
    return _Rows(x, frame["tpr"].to_numpy(dtype=np.float64), frame["setup"].to_numpy(str), frame["data_set"].to_numpy(str))


def _left_out(fit: _Rows, judged: _Rows, form: str) -> Array:
    """Predictions of `judged` rows, each from the `fit` rows of other data sets."""
    predicted = np.full(len(judged.y), np.nan)
    for data_set in np.unique(judged.data_set):
        kept = fit.where(fit.data_set != data_set)
        own = judged.data_set == data_set
        predicted[own] = predicted_rates(form, fitted_coefficients(form, kept.x, kept.y, kept.weights), judged.x[own])
    if np.isnan(predicted).any():
        raise NumericalError(said(f"{int(np.isnan(predicted).sum())} predictions of left-out setups are not numbers."))
    return predicted


def _error_quantiles(rows: _Rows, form: str, level: float, offset: float) -> tuple[float, float]:
    """Quantiles of the relative errors of left-out data sets, each setup counting once."""
    means = rows.by_setup()
    predicted = _left_out(means, rows, form)
    errors = (rows.y - predicted) / (predicted + offset)
    setups = len(means.y)
    # No correction for the finite number of setups: errors of curves fitted without a whole data
    # set are larger than those of the final one, and the coverage on data sets left out is reported
    # beside it.
    low = (1 - level) / 2
    order = np.argsort(errors, kind="stable")
    share = np.cumsum(rows.weights[order]) / setups
    ends = [errors[order[min(int(np.searchsorted(share, at)), len(order) - 1)]] for at in (low, 1 - low)]
    return float(min(ends[0], 0.0)), float(max(ends[1], 0.0))


def interval_ends(predicted: Array, low: float, high: float, offset: float) -> tuple[Array, Array]:
    """Ends of the prediction interval, within [0, 1]."""
    scale = predicted + offset
    return np.clip(predicted + low * scale, 0.0, 1.0), np.clip(predicted + high * scale, 0.0, 1.0)


def _cell(rows: _Rows, fpr: float, references: int, form: str, level: float, offset: float) -> CalibrationCell:
    means = rows.by_setup()
    coefficients = fitted_coefficients(form, means.x, means.y, means.weights)
    low, high = _error_quantiles(rows, form, level, offset)
    quality = {f"in_sample_{key}": value for key, value in fit_quality(means.y, predicted_rates(form, coefficients, means.x)).items()}
    quality |= {f"left_out_{key}": value for key, value in fit_quality(means.y, _left_out(means, means, form)).items()}
    quality |= _left_out_coverage(rows, form, level, offset) | {"setups": float(len(means.y))}
    return CalibrationCell(fpr, references, coefficients, low, high, quality)


def fit_quality(measured: Array, predicted: Array) -> dict[str, float]:
    """R² (1 − squared errors over those of the mean), RMSE and MAE."""
    errors = measured - predicted
    spread = float(((measured - measured.mean()) ** 2).sum())
    return {
        "r2": 1 - float((errors**2).sum()) / spread if spread > 0 else 0.0,
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae": float(np.abs(errors).mean()),
    }


def _left_out_coverage(rows: _Rows, form: str, level: float, offset: float) -> dict[str, float]:
    """Share of setups whose rate lies in the interval made from other data sets alone.

    This needs four data sets.
    """
    sets = np.unique(rows.data_set)
    if len(sets) <= LEAST_SETS:
        return {}
    inside, widths = np.zeros(len(rows.y)), np.zeros(len(rows.y))
    for data_set in sets:
        kept, own = rows.where(rows.data_set != data_set), rows.data_set == data_set
        means = kept.by_setup()
        low, high = _error_quantiles(kept, form, level, offset)
        predicted = predicted_rates(form, fitted_coefficients(form, means.x, means.y, means.weights), rows.x[own])
        ends = interval_ends(predicted, low, high, offset)
        inside[own], widths[own] = (rows.y[own] >= ends[0]) & (rows.y[own] <= ends[1]), ends[1] - ends[0]
    weights = rows.weights / rows.weights.sum()
    return {"left_out_coverage": float(weights @ inside), "left_out_width": float(weights @ widths)}


def _setup_rows(frame: pd.DataFrame, columns: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    rows = []
    for setup, part in frame.groupby("setup", sort=True):
        means = part[list(columns)].mean()
        attacks = sorted(set(zip(part["fpr"].astype(float), part["references"].astype(int), strict=True)))
        rates = [(fpr, k, part["tpr"][(part["fpr"] == fpr) & (part["references"] == k)].mean()) for fpr, k in attacks]
        rows.append(
            {
                "setup": str(setup),
                "data_set": str(part["data_set"].iloc[0]),
                **({"family": str(part["family"].iloc[0])} if "family" in part else {}),
                **{column: float(f"{means[column]:.4g}") for column in columns},
                "tpr": [{"fpr": fpr, "references": k, "tpr": float(f"{rate:.4g}")} for fpr, k, rate in rates],
            }
        )
    return tuple(rows)
