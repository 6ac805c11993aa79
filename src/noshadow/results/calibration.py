"""Calibration: how an attack's true-positive rate follows what models show without one.

It was fitted over setups where both were measured.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noshadow.checks import InputError, named_in_errors, refuse, said
from noshadow.figures.model_risk import Interval
from noshadow.storage.json_text import parsed_json

FORMAT = 1
FORMS = ("linear", "exponential", "quadratic", "power", "factors")
WITH_FACTOR = ("power", "factors")  # a factor beside one coefficient a predictor


@dataclass(frozen=True)
class CalibrationCell:
    """The curve of one false-positive rate and one number of reference models.

    Attributes:
        fpr, references: which attack.
        coefficients: of the form, see `Calibration.form`.
        low, high: quantiles of the relative errors (y − ŷ)/(ŷ + offset) of data sets left out; the
            prediction interval is ŷ + (ŷ + offset) · (low, high).
        quality: R², RMSE, MAE in sample and leaving data sets out, coverage of the interval leaving
            data sets out, number of setups.
    """

    fpr: float
    references: int
    coefficients: tuple[float, ...]
    low: float
    high: float
    quality: dict[str, float]


@dataclass(frozen=True)
class Calibration:
    """Curves from what a model shows to the TPR of a reference-model attack.

    With them come the errors they made on unseen data sets.

    Attributes:
        name: of the calibration, stamped into every prediction.
        predictors: names of what the curve reads, see docs/calibration.md.
        form: "linear" Σ a_k x_k, "exponential" a (e^{bx} − 1), "quadratic" a x + b x², "power" a
            Π x_k^{b_k} or "factors" a Π z_k^{b_k} − 0.002, where z_k is x_k kept away from 0.
        cells: one curve for each false-positive rate and number of reference models.
        domain: lowest and highest value of each predictor, and of guards such as "skewness", among
            the setups.
        level: coverage of the prediction interval. offset: of the relative errors, a rate.
        setups: one dictionary per setup: its name, data set, family, predictors and measured rates.
        families: of models among the setups, e.g. "linear" and "network"; none when they were not
            named, and then every model counts as one of them.
        attack: the one whose rates were measured, "LiRA", or in words which of several.
    """

    name: str
    predictors: tuple[str, ...]
    form: str
    cells: tuple[CalibrationCell, ...]
    domain: dict[str, Interval]
    level: float
    offset: float
    setups: tuple[dict[str, Any], ...]
    families: tuple[str, ...] = ()
    attack: str = "LiRA"

    def save(self, path: str | Path) -> Path:
        """Write the calibration as strict JSON."""
        target = Path(path)
        content = {"format": FORMAT, **asdict(self)}
        target.write_text(json.dumps(content, allow_nan=False, separators=(",", ":")).replace("},{", "},\n{") + "\n", encoding="utf8")
        return target

    @classmethod
    @named_in_errors
    def load(cls, path: str | Path) -> "Calibration":
        """The calibration that `save` wrote.

        Raises:
            InputError: no such file, not a calibration, or of another version.
        """
        try:
            content = parsed_json(Path(path).read_bytes())
        except FileNotFoundError as error:
            raise InputError(said(f"path must be a file; got {path}. Write one with Calibration.save.")) from error
        except (OSError, TypeError) as error:
            raise InputError(said(f"path must be a readable file; got {path} ({error}).")) from error
        except ValueError as error:
            raise InputError(said(f"path must hold JSON; got {path} ({error}).")) from error
        return cls.from_dict(content)

    @classmethod
    @named_in_errors
    def from_dict(cls, content: object) -> "Calibration":
        """The calibration of the dictionary in a file.

        Raises:
            InputError: not a calibration, or of another version.
        """
        if not isinstance(content, Mapping) or "cells" not in content:
            refuse("content", "be a calibration", type(content).__name__)
        if content.get("format") != FORMAT:
            refuse("format", f"be {FORMAT}", repr(content.get("format")), "Written by another version of noshadow?")
        given = {name: value for name, value in content.items() if name != "format"}
        try:
            cells = tuple(CalibrationCell(**{**cell, "coefficients": tuple(cell["coefficients"])}) for cell in given["cells"])
            domain = {name: (float(low), float(high)) for name, (low, high) in given["domain"].items()}
            named = {name: tuple(given.get(name, ())) for name in ("predictors", "setups", "families")}
            made = cls(**(given | {"cells": cells, "domain": domain} | named))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(said(f"content must hold the fields of a calibration; got {error}.")) from error
        numbers = [value for cell in cells for value in (cell.fpr, cell.references, *cell.coefficients, cell.low, cell.high)]
        numbers += [made.level, made.offset, *(end for ends in domain.values() for end in ends)]
        if not cells or not all(type(value) in (int, float) and math.isfinite(value) for value in numbers):
            refuse("cells", "hold finite numbers", f"{len(cells)} cells")
        if not all(isinstance(family, str) and family for family in made.families):
            refuse("families", "be names", repr(made.families))
        if not isinstance(made.attack, str) or not made.attack:
            refuse("attack", "be a name", repr(made.attack))
        needed = {"linear": len(made.predictors)} | dict.fromkeys(WITH_FACTOR, 1 + len(made.predictors))
        if made.form not in FORMS or any(len(cell.coefficients) != needed.get(made.form, 2) for cell in cells):
            refuse("form", f"be one of {', '.join(FORMS)} with its number of coefficients", repr(made.form))
        return made
