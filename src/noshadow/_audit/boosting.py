"""Scores of a boosted model's records by its leaves."""

from typing import Any

from noshadow._audit.evidence import Contradicted, LayeredScores
from noshadow._audit.options import Options
from noshadow.checks import NotApplicable
from noshadow.outcomes import Absent, not_applicable
from noshadow.scores.trees.boosting import LeafScores, boosting_scores
from noshadow.views import OtherRecords, Reader, View
from noshadow.views.view import Settings

NO_OPTIONS = "scores of boosted trees have no options"


def leaf_scores(reader: Reader, model: Any, train: object, seen: View, options: Options) -> LayeredScores | None:
    """Scores of a boosted model's records for the settled task; None for any other model.

    A model whose leaves cannot be rebuilt gets the reason in their place.
    """
    rounds_of = reader.boosted
    if isinstance(rounds_of, NotApplicable):
        return None

    def scores(task: str) -> LeafScores | Absent:
        options.refuse_score_options(NO_OPTIONS)
        try:
            return boosting_scores(rounds_of(model, train, weights=seen.sample_weight, settings=Settings()))
        except OtherRecords as reason:
            return Contradicted("not applicable", str(reason))
        except NotApplicable as reason:
            return not_applicable(reason)

    return scores
