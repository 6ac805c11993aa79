"""Sentences of docs/lood.md's summary that stored figures decide: what agrees best, where the attack is strongest, how often a record is rebuilt."""

import textwrap
from collections import Counter

from lood_network_tables import SHOWN_DEEP, TITLES
from lood_query_tables import percent

SPOKEN = {
    "kl_0.1": "the process's KL",
    "gp_auc_0.1": "the process's own attack AUC",
    "distance_0.1": "the change of the process's mean",
    "influence": "the damped influence function",
    "tracin": "TracIn",
}
# Kinds whose agreement the page's tables show.
JUDGED = tuple(name for name in TITLES if name != "networks_gelu_fitted")
FAR = 2  # standard errors
LETTERS_A_LINE = 98


def lood_quotes(figures):
    """What docs/lood.md quotes in its list, by the figure's name there."""
    networks = {name: figures[name] for name in TITLES}
    found = {
        "lood_agreement": agreement_words({name: networks[name] for name in JUDGED}),
        "lood_peaks": peak_words(networks),
        "lood_rebuilt": rebuilt_words(figures["gap"], figures["one_start"]),
    }
    return {name: "\n  ".join(textwrap.wrap(words, LETTERS_A_LINE, break_on_hyphens=False)) for name, words in found.items()}


def agreement_words(networks):
    """Which estimate agrees best and least with what leave-one-out training shows, over kinds of networks; noise of the process 0.1."""
    best = {truth: tally(networks, (truth,), max) for truth in ("prediction_change", "auc")}
    least = tally(networks, tuple(best), min)
    rows = [entry["correlations"][truth] for entry in networks.values() for truth in best]
    better = sum(row["kl_0.1"]["spearman"]["value"] > row["tracin"]["spearman"]["value"] for row in rows)
    return " ".join(
        (
            leading(
                best["prediction_change"], f"agrees best with the networks' prediction change in {{}} of {len(networks)} kinds of networks"
            ),
            leading(best["auc"], "agrees best with the attack in {}"),
            f"The process's KL agrees better than TracIn in {share(better, len(rows))} comparisons.",
            leading(least, f"agrees least in {share(least[0][1], len(rows))}"),
        )
    )


def share(count, total):
    return f"all {total}" if count == total else f"{count} of {total}"


def tally(networks, truths, chosen):
    """How often each estimate has the largest or smallest rank correlation."""
    rows = [entry["correlations"][truth] for entry in networks.values() for truth in truths]
    return Counter(chosen(SHOWN_DEEP, key=lambda name, row=row: row[name]["spearman"]["value"]) for row in rows).most_common()


def leading(found, words):
    """The most frequent estimate in words, the others in brackets."""
    (first, count), *others = found
    spoken = f"{SPOKEN[first]} {words.format(count)}"
    rest = ", ".join(f"{SPOKEN[name]} in {times}" for name, times in others)
    return f"{spoken[0].upper()}{spoken[1:]}{f' ({rest})' if rest else ''}."


def peak_words(networks):
    """Where along random directions the attack on trained networks is strongest."""
    found = {TITLES[name]: entry["perturbed"] for name, entry in networks.items()}
    places = {title: strongest(entry) for title, entry in found.items()}
    beside = [f"{title}: {place:+g}" for title, place in places.items() if place]
    errors = {title: entry["peak_deviation"] / len(entry["peaks"]) ** 0.5 for title, entry in found.items()}
    apart = [
        f"{title}: {entry['peak_mean']:+.1f}, standard error {errors[title]:.1f}"
        for title, entry in found.items()
        if abs(entry["peak_mean"]) > FAR * errors[title]
    ]
    over, falls = ([entry[key] for entry in found.values()] for key in ("largest_over_record", "at_ends"))
    return " ".join(
        (
            f"The attack's AUC in the mean over records is largest at the record for {len(found) - len(beside)} of {len(found)} kinds of networks{bracketed(beside)}, and",
            f"{min(falls):.2f} to {max(falls):.2f} smaller fifty grey levels away. Single records differ: the largest AUC of each is {min(over):.3f} to {max(over):.3f} above that at the record in the mean,",
            f"and its mean place lies more than two standard errors from the record for {len(apart) or 'none'} of the {len(found)}{bracketed(apart)}.",
        )
    )


def strongest(entry):
    """Size of the perturbation at which the mean curve is largest."""
    return entry["sizes"][max(range(len(entry["sizes"])), key=entry["mean_curve"].__getitem__)]


def bracketed(found):
    return f" ({'; '.join(found)})" if found else ""


def rebuilt_words(gap, one_start):
    """How often ascents from random pixels get to the record."""
    starts = gap["restarts"]
    return (
        f"At depth 2 a single ascent from random pixels reaches 90 % of the record's own KL in {percent(gap['one_start_reaches_90_percent'])} of the cases; the best of {starts} "
        f"reaches it for {percent(gap['reached_90_percent']['value'])} of {len(gap['cells'])} records and rebuilds {percent(gap['rebuilt']['value'])} (cosine above 0.95). "
        f"At depth {one_start['depth']} a single ascent reaches it for {percent(one_start['reached_90_percent']['value'])} of {len(one_start['cosine'])} "
        f"and rebuilds {percent(one_start['rebuilt']['value'])}."
    )
