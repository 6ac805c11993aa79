"""How exposed each record is, drawn by matplotlib."""

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from noshadow._answer import KnownRate, per_thousand, per_thousand_between, verdict
from noshadow._glance.picture import BINS, exposures
from noshadow._glance.told import Told
from noshadow.checks import refuse
from noshadow.errors import InputError, said
from noshadow.formats import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Blue, orange and grey that people with colour blindness tell apart, on light and dark paper.
_RECORDS, _ATTACK, _GUESS = "#3b8fc9", "#d9691e", "#808080"


def exposure_plot(audit: Told, ax: "Axes | None") -> "Axes":
    """Draw how many records have which exposure, beside the model's rate and a guess.

    Args:
        audit: what to draw. ax: where; None for a new figure of pyplot.

    Raises:
        InputError: matplotlib is not installed, `ax` is none of its Axes, or the audit holds
            neither rates nor scores that differ.
    """
    found = exposures(audit)
    if found is None:
        refuse("the audit", "hold rates or scores of its records that differ", "none", "Its summary says what it holds.")
    drawn_in = _new_axes() if ax is None else ax
    if not hasattr(drawn_in, "stairs"):
        refuse("ax", "be one of matplotlib's Axes", type(ax).__name__, "Pass one, such as plt.subplots()[1].")
    low, high = found.axis()
    edges = np.linspace(0, 1000, BINS + 1) if found.are_rates else np.logspace(low, high, BINS + 1)
    values = 1000 * found.values if found.are_rates else np.maximum(found.values, edges[0])
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    drawn_in.stairs(counts, edges, fill=True, color=_RECORDS, label=f"{number(len(values))} records")
    # The colour of the words, which a dark style makes light.
    drawn_in.axvline(float(values.max()), color=drawn_in.xaxis.label.get_color(), linewidth=1.5, label=found.worst)
    judged = verdict(audit)
    if found.are_rates:
        _mark_rates(drawn_in, judged.known)
    else:
        drawn_in.set_xscale("log")
    drawn_in.set_yscale("symlog", linthresh=1)
    drawn_in.set_xlim(edges[0], edges[-1])
    drawn_in.set_ylim(0, 2 * max(int(counts.max()), 1))
    drawn_in.set_xlabel(found.title)
    drawn_in.set_ylabel("records")
    drawn_in.set_title(judged.title)
    drawn_in.legend()
    return drawn_in


def _mark_rates(ax: Any, known: KnownRate) -> None:
    """The model's own rate with its interval, and what a guess finds, on an axis of rates."""
    ax.axvline(1000 * known.fpr, color=_GUESS, linestyle="--", label=f"a guess: {per_thousand(known.fpr)}")
    if known.rate is None or known.source == "losses":
        return
    between = "" if known.interval is None else f" ({per_thousand_between(known.interval)})"
    ax.axvline(1000 * known.rate, color=_ATTACK, label=f"all records, {known.source}: {per_thousand(known.rate)}{between}")
    if known.interval is not None:
        ax.axvspan(1000 * known.interval[0], 1000 * known.interval[1], color=_ATTACK, alpha=0.2, linewidth=0)


def _new_axes() -> "Axes":
    """Axes of a new figure of pyplot, which a notebook or `plt.show()` then shows."""
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise InputError(said(f"matplotlib must be installed; got {error}. Run pip install noshadow[plot].")) from error
    return pyplot.subplots(figsize=(8, 4), layout="constrained")[1]  # type: ignore[no-any-return]
