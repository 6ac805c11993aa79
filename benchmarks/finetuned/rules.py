"""Ways to weigh the base beside a few reference models; one is chosen on the Shakespeare pool and judged on the reviews."""

import numpy as np

from noshadow._exposure import Source, weighed
from noshadow._exposure.orders import mean_score


def _covariates(names):
    def source(columns, member):
        return [Source("base model", covariates={name: columns[name][member] for name in names})]

    return source


def _margins(columns, member):
    """The base as one more model without every sequence."""
    base = -columns["base_loss"]
    none = np.zeros((1, int(member.sum())), bool)
    return [Source("base model", margins=base[member][None], membership=none, test_margins=base[~member][None])]


# Name → what the base is to the mixed model of `exposure`.
RULES = {
    "exposure": lambda columns, member: [],
    "exposure_gain": _covariates(("base_gain",)),
    "exposure_all": _covariates(("base_gain", "error_zone", "window_votes")),
    "exposure_margin": _margins,
}


def exposure_scores(columns, margins, inside, target, rows, suffix):
    """Scores of the target's members by each rule, and by the mean rank of the gain and plain exposure: name → (m,)."""
    member = inside[target]
    outside = np.where(inside[rows][:, ~member], np.nan, margins[rows][:, ~member])
    few = Source("few references", margins=margins[rows][:, member], membership=inside[rows][:, member], test_margins=outside)
    own = margins[target]
    found = {name: weighed(own[member], own[~member], [*rule(columns, member), few]).score for name, rule in RULES.items()}
    found["mean_rank"] = mean_score([found["exposure"], columns["base_gain"][member]])
    return {f"{name}{suffix}": score for name, score in found.items()}
