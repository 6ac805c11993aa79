"""The tokens that carry what a language model gained over its base, for the riskiest sequences."""

import math
from typing import Any

import numpy as np

from noshadow.checks import Array, refuse
from noshadow.report.formats import number, shown
from noshadow.results import Audit, TokenGains

MOST_TOKENS = 120
MOST_CARRIERS = 12
TIMES = (2, 5, 20, 100)  # as probable as under the base: the four shades
LONGEST_TOKEN = 60
# Of a loss, which two passes round differently (another order of sums, half precision).
SAME_LOSS = 1e-2
_SHADES = f"{', '.join(map(str, TIMES[:-1]))} or {TIMES[-1]}"
NOTES = (f"A token is shaded where the model finds it at least {_SHADES} times as probable as its base does.",)


def require_audited(gains: TokenGains, places: Array, audit: Audit) -> None:
    """Refuse tokens of another model, of other sequences or over another base than the audit's.

    Their losses are not those of the audit.
    """
    apart = _apart(gains.loss[places], audit.records["loss"])
    if apart:
        got = f"losses that differ from the audit's by up to {apart:.2g}"
        refuse("show_records", "be of the audited model and its training sequences", got, "Pass show_ids= if their order differs.")
    apart = _apart(gains.base_loss[places], audit.records["base_loss"]) if "base_loss" in audit.records else 0.0
    if apart:
        got = f"losses of a base that differ from those of the audit's by up to {apart:.2g}"
        refuse("show_records", "be gains over the base of the audit", got, "Give the base that the audit was given.")


def _apart(losses: Array, column: Any) -> float:
    """By how much losses differ from a column of the table; 0 where rounding explains it."""
    known = np.asarray(column, dtype=np.float64)
    apart = np.abs(losses - known)
    return float(apart.max()) if bool((apart > SAME_LOSS * np.maximum(np.abs(known), 1.0)).any()) else 0.0


def token_items(gains: TokenGains, places: Array) -> list[dict[str, Any]]:
    """For each place: what carries the gain in one sentence, and (text, shade) of each token."""
    return [_item(gains, int(place)) for place in places]


def _item(gains: TokenGains, sequence: int) -> dict[str, Any]:
    words = [_spelled(word) for word in gains.words(sequence)]
    part = gains.gain[gains.starts[sequence] : gains.starts[sequence + 1]]
    shades = np.searchsorted(np.log(TIMES), part, side="right")
    window = _window(part)
    tokens = [[word if gains.texts is not None else f"{word} ", int(shade)] for word, shade in zip(words, shades, strict=True)][window]
    before, after = window.start > 0, window.stop < len(part)
    tokens = [*([["… ", 0]] if before else []), *tokens, *([[" …", 0]] if after else [])]
    return {"told": _told(part, words, gains.carriers(sequence)), "tokens": tokens}


def _told(gains: Array, words: list[str], carriers: Array) -> str:
    if not len(carriers):
        return f"None of its {number(len(words))} tokens is more probable than under the base."
    rises = float(np.maximum(gains, 0.0).sum())
    first = carriers[np.sort(np.argsort(-gains[carriers], kind="stable")[:MOST_CARRIERS])]
    named = " ".join(f"«{words[place].strip() or words[place]}»" for place in first)
    more = "" if len(first) == len(carriers) else f" and {number(len(carriers) - len(first))} more"
    largest = f"{number(float(f'{math.exp(min(float(gains.max()), 600.0)):.2g}'))} times as probable"
    half = f"Half of a rise of {number(float(f'{rises:.3g}'))} nats over the base is in {len(carriers)} of {len(words)} tokens"
    return f"{half} (the largest {largest}): {named}{more}"


def _window(gains: Array) -> slice:
    """The stretch of at most MOST_TOKENS tokens with the largest sum of rises."""
    if len(gains) <= MOST_TOKENS:
        return slice(0, len(gains))
    sums = np.concatenate([[0.0], np.cumsum(np.maximum(gains, 0.0))])
    start = int(np.argmax(sums[MOST_TOKENS:] - sums[:-MOST_TOKENS]))
    return slice(start, start + MOST_TOKENS)


def _spelled(word: str) -> str:
    """A token as a page can hold it, line breaks kept."""
    cut = word if len(word) <= LONGEST_TOKEN else word[:LONGEST_TOKEN] + "…"
    return "\n".join(str(shown(line)) for line in cut.replace("\r\n", "\n").replace("\t", "    ").split("\n"))
