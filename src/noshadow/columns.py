"""Every column that a record table may hold, once: what it is, who writes it, how it is read.

A new column is one entry here, in the place it has in the table. Rooms ask for columns by what
they are (`named(source="scores")`), never by lists of their own.
"""

import re
from collections.abc import Container
from dataclasses import dataclass, field

LANGUAGE_MODEL = "language-model"
TASKS = ("regression", "classification", "binary", LANGUAGE_MODEL)
_CLASSIFIERS = ("classification", "binary")
_LAST_LAYER = ("regression", *_CLASSIFIERS)
_SEQUENCES = (LANGUAGE_MODEL,)


@dataclass(frozen=True)
class Column:
    """One column of a record table. Larger is riskier wherever `score` is set.

    Attributes:
        name: in `records.parquet`. A number after `_` may follow where `numbered` is set.
        title: in tables for people.
        meaning: one sentence without a full stop. `{unit}` stands for the loss's unit,
            `{at_level}` for the false-positive rate where one is known.
        unit: "share", "nats", "deviations", …; "" where a number has none.
        source: which evidence writes it.
        tasks: that have it.
        kind: "number", "share" (between 0 and 1), "text", "flag" or "count".
        score: it is a guess at who is exposed, and is compared with what attacks measured.
        truth: it is what attacks measured; scores are compared with it.
        ranks: its place among the columns that a rank may follow, the first that is there; 0 where
            none may. ranks_beside: a column that must be there too.
        predicts: its quantiles may be predictors of a calibration.
        page: its place among the figures that a page shows first; 0 where it is not among them.
        by_task: a meaning of its own in some task.
        numbered: there is one column for each output.
    """

    name: str
    title: str
    meaning: str
    source: str
    unit: str = ""
    tasks: tuple[str, ...] = TASKS
    kind: str = "number"
    score: bool = False
    truth: bool = False
    ranks: int = 0
    ranks_beside: str = ""
    predicts: bool = False
    page: int = 0
    by_task: dict[str, str] = field(default_factory=dict)
    numbered: bool = False


_ATTACK = "measured with reference models: how often {attack} tells whether a model was trained on the record; 0.5 is a coin toss"

COLUMNS = (
    Column("id", "id", "which record it is, as given or by row number", "identity", kind="text"),
    Column("target", "target", "the record's class or value", "identity", tasks=_LAST_LAYER),
    Column("target_", "target", "the record's value for one of several outputs", "identity", tasks=("regression",), numbered=True),
    Column("label", "label", "the name of the record's class", "identity", tasks=_CLASSIFIERS, kind="text"),
    Column("group", "group", "the group that the record was said to belong to", "identity", kind="text"),
    Column("tokens", "tokens", "how many of the sequence's tokens were scored", "identity", tasks=("language-model",), kind="count"),
    Column(
        "loss",
        "loss",
        "how wrong the model is on the record, in {unit}",
        "losses",
        unit="nats",
        score=True,
        ranks=8,
        page=1,
        by_task={"language-model": "mean negative log-likelihood of the sequence's tokens, in {unit}"},
    ),
    Column(
        "entropy",
        "entropy",
        "how undecided the model is about the record, in nats, whatever its label",
        "losses",
        unit="nats",
        tasks=_CLASSIFIERS,
        score=True,
    ),
    Column(
        "gradient_norm",
        "gradient norm",
        "size of the gradient of the record's loss in the scored layers",
        "scores",
        score=True,
    ),
    Column(
        "leverage",
        "leverage",
        "how far the scored layers, or the leaves of trees, bend towards this one record; 0 is not at all",
        "scores",
        score=True,
        predicts=True,
        page=4,
    ),
    Column(
        "influence",
        "influence",
        "how much the record's loss would rise had it been left out, to first order",
        "scores",
        score=True,
        ranks=7,
    ),
    Column(
        "newton",
        "Newton step",
        "how much the record's loss would rise had it been left out, by one Newton step",
        "scores",
        tasks=_LAST_LAYER,
        score=True,
    ),
    Column(
        "loo",
        "leave-one-out gap",
        "how much the record's loss would rise had it been left out",
        "scores",
        tasks=_LAST_LAYER,
        score=True,
        ranks=1,
        ranks_beside="left_out_loss",
        predicts=True,
        page=6,
    ),
    Column(
        "shift",
        "shift",
        "how far the attack's own statistic falls when the record is left out",
        "scores",
        tasks=_LAST_LAYER,
        score=True,
        ranks=5,
        predicts=True,
        page=5,
        by_task={
            "regression": "how far the attack's own statistic falls when the record is left out, here the prediction error's rise in size"
        },
    ),
    Column(
        "margin_leverage",
        "margin leverage",
        "leverage on the margin between the record's class and the others; between 0 and 1",
        "scores",
        tasks=_CLASSIFIERS,
        score=True,
        predicts=True,
        page=7,
    ),
    Column(
        "exact",
        "exact",
        "whether this record's gaps were solved exactly, where a head is too big to factor",
        "scores",
        tasks=_CLASSIFIERS,
        kind="flag",
    ),
    Column(
        "leaf_size",
        "leaf size",
        "how many training records share the record's leaf, itself counted: the harmonic mean over the "
        "trees that were fitted to it, ∞ where none was",
        "leaves",
        unit="records",
        tasks=_LAST_LAYER,
        page=18,
    ),
    Column(
        "yielding_shift",
        "yielding shift",
        "how far the attack's own statistic falls, and how wrong boosted trees would then be, when the record is left out and the splits "
        "that it paid for give way: the geometric mean of both, which orders records and has no size of its own",
        "leaves",
        tasks=_CLASSIFIERS,
        score=True,
        ranks=4,
        page=23,
    ),
    Column(
        "predicted_tpr",
        "predicted rate",
        "how often LiRA with 64 reference models is predicted to recognise the record{at_level}: the model's predicted rate, dealt out by "
        "rank as it was in the setups of the calibration. It describes one attack and is never a guarantee",
        "rates",
        unit="share",
        tasks=_LAST_LAYER,
        kind="share",
        score=True,
        page=8,
        by_task={
            "regression": "a prediction under Gaussian-linear assumptions: how often the likelihood-ratio test of its residual "
            "would recognise the record as a member{at_level}. It describes one attack, so under these assumptions it is a lower bound on "
            "exposure, never a guarantee"
        },
    ),
    Column(
        "predicted_tpr_low",
        "predicted rate, low",
        "lower end of the predicted rate",
        "rates",
        unit="share",
        tasks=_CLASSIFIERS,
        kind="share",
    ),
    Column(
        "predicted_tpr_high",
        "predicted rate, high",
        "upper end of the predicted rate",
        "rates",
        unit="share",
        tasks=_CLASSIFIERS,
        kind="share",
    ),
    Column(
        "lt_iqr",
        "trace IQR",
        "how much the record's loss moved during training, between the quartiles of its loss trace",
        "traces",
        unit="nats",
        score=True,
        page=9,
    ),
    Column(
        "early_loss",
        "early loss",
        "mean loss of the record up to the recording with the lowest loss on unseen records, in {unit}",
        "traces",
        unit="nats",
        score=True,
    ),
    Column(
        "checkpoint_loss",
        "earlier loss",
        "how wrong an earlier checkpoint of the same training is on the record, in {unit}",
        "checkpoints",
        unit="nats",
        tasks=_LAST_LAYER,
        score=True,
        page=11,
    ),
    Column(
        "checkpoint_shift",
        "earlier shift",
        "how far the attack's own statistic falls at an earlier checkpoint when the record is left out there",
        "checkpoints",
        tasks=_LAST_LAYER,
        score=True,
    ),
    Column(
        "left_out_loss",
        "loss left out",
        "how wrong the trees would be about the record had it been left out of their leaves, in nats",
        "left out",
        unit="nats",
        tasks=_CLASSIFIERS,
        score=True,
        ranks=3,
        page=16,
    ),
    Column(
        "out_of_bag_loss",
        "out-of-bag loss",
        "how wrong those parts of the model are about the record that were trained without it, in {unit}",
        "out of bag",
        unit="nats",
        tasks=_LAST_LAYER,
        score=True,
        ranks=6,
        page=17,
    ),
    Column(
        "out_of_fold_loss",
        "out-of-fold loss",
        "how wrong the cross-validation model that was not trained on the record is about it, in {unit}",
        "out-of-fold outputs",
        unit="nats",
        tasks=_LAST_LAYER,
        score=True,
        page=10,
    ),
    Column(
        "fold_loss",
        "loss without its fold",
        "how wrong the model that was trained without the record's fold is about it, in {unit}",
        "folds",
        unit="nats",
        tasks=_LAST_LAYER,
        score=True,
    ),
    Column(
        "base_loss",
        "base model's loss",
        "how wrong the model that the training started from is on the record, in {unit}",
        "base model",
        unit="nats",
        score=True,
        page=12,
        by_task={
            "language-model": "mean negative log-likelihood of the sequence's tokens under the model that the training started from, "
            "in {unit}"
        },
    ),
    Column(
        "base_gain",
        "gain over the base",
        "how much less the model's loss on the sequence is than its base's, in nats: larger where training on it may be the reason",
        "base model",
        unit="nats",
        tasks=_SEQUENCES,
        score=True,
        page=19,
    ),
    Column(
        "own_gain",
        "gain from itself",
        "the part of the gain over the base that the other sequences do not explain, by the gradients of all of them, in nats: near 0 "
        "where training on others would have done the same",
        "base model",
        unit="nats",
        tasks=_SEQUENCES,
        score=True,
        page=20,
    ),
    Column(
        "error_zone",
        "error zone",
        "where the model puts another token first: which share of all moves of the token's log-probability away from the base goes up "
        "(EZ-MIA); 0.5 is balance",
        "base model",
        unit="share",
        tasks=_SEQUENCES,
        kind="share",
        score=True,
        page=21,
    ),
    Column(
        "window_votes",
        "window votes",
        "in which share of windows of 2 to 40 tokens the model's loss is below its base's (WBC)",
        "base model",
        unit="share",
        tasks=_SEQUENCES,
        kind="share",
        score=True,
        page=22,
    ),
    Column(
        "min_k",
        "Min-K %",
        "mean log-probability of the least probable fifth of the sequence's tokens: larger where nothing in it surprises the model",
        "tokens",
        unit="nats",
        tasks=_SEQUENCES,
        score=True,
    ),
    Column(
        "min_k_plus",
        "Min-K %++",
        "the same of tokens measured against all others the model could have expected there, in standard deviations",
        "tokens",
        unit="deviations",
        tasks=_SEQUENCES,
        score=True,
    ),
    Column(
        "copies",
        "copies",
        "how many training sequences are this one, word for word or nearly (half of their runs of five tokens), itself counted",
        "duplicates",
        tasks=_SEQUENCES,
        kind="count",
    ),
    Column(
        "zlib_ratio",
        "zlib ratio",
        "minus the loss over the bytes that zlib needs for the text: larger where a text is easier for the model than for zlib",
        "tokens",
        unit="nats",
        tasks=_SEQUENCES,
        score=True,
    ),
    Column(
        "exposure_score",
        "exposure score",
        "all evidence about the record weighed together, for the order of the records alone",
        "exposure",
        score=True,
        ranks=2,
    ),
    Column(
        "exposure",
        "exposure",
        "all evidence weighed together: distance between the attack's statistic with and without the record, in standard deviations (d′)",
        "exposure",
        unit="deviations",
        tasks=_LAST_LAYER,
        score=True,
        page=2,
    ),
    Column("exposure_low", "exposure, low", "lower end of the exposure's 90 % interval", "exposure", unit="deviations", tasks=_LAST_LAYER),
    Column(
        "exposure_high", "exposure, high", "upper end of the exposure's 90 % interval", "exposure", unit="deviations", tasks=_LAST_LAYER
    ),
    Column(
        "attack_rate",
        "attack rate",
        "all evidence weighed together: how often an attack that knows the statistic's law with and without the record would recognise "
        "it{at_level}",
        "exposure",
        unit="share",
        tasks=_LAST_LAYER,
        kind="share",
        page=3,
    ),
    Column(
        "attack_rate_low",
        "attack rate, low",
        "lower end of the attack rate's 90 % interval",
        "exposure",
        unit="share",
        tasks=_LAST_LAYER,
        kind="share",
    ),
    Column(
        "attack_rate_high",
        "attack rate, high",
        "upper end of the attack rate's 90 % interval",
        "exposure",
        unit="share",
        tasks=_LAST_LAYER,
        kind="share",
    ),
    Column("rank", "rank", "place by exposure, 1 is the riskiest", "rank", kind="count"),
    Column(
        "lira_success", "LiRA success", _ATTACK.format(attack="LiRA"), "reference models", unit="share", kind="share", truth=True, page=13
    ),
    Column(
        "lira_d",
        "LiRA d′",
        "measured with reference models: distance between LiRA's statistic with and without the record, in standard deviations",
        "reference models",
        unit="deviations",
        truth=True,
        page=14,
    ),
    Column(
        "lira_tpr",
        "LiRA rate",
        "measured with reference models: how often LiRA's test finds the record at a false-positive rate of 0.001, by fitted Gaussians",
        "reference models",
        unit="share",
        kind="share",
    ),
    Column(
        "rmia_success", "RMIA success", _ATTACK.format(attack="RMIA"), "reference models", unit="share", kind="share", truth=True, page=15
    ),
    Column(
        "out_loss",
        "loss without it",
        "measured with reference models: mean loss under models that were not trained on the record",
        "reference models",
        unit="nats",
    ),
    Column(
        "shokri_success",
        "Shokri success",
        _ATTACK.format(attack="Shokri's attack classifier"),
        "reference models",
        unit="share",
        kind="share",
        truth=True,
        tasks=_CLASSIFIERS,
    ),
    Column(
        "memorization",
        "memorisation",
        "measured with reference models: how much more often models trained on the record get its class right",
        "reference models",
        unit="share",
        tasks=_CLASSIFIERS,
    ),
    Column(
        "lood_kl",
        "distinguishability",
        "before training, under the network's Gaussian process: divergence between the answers with and without the record, at the record",
        "lood",
        unit="nats",
        tasks=_LAST_LAYER,
    ),
    Column(
        "lood_mean_distance",
        "mean distance",
        "before training: half the squared distance between the mean answers with and without the record",
        "lood",
        tasks=_LAST_LAYER,
    ),
    Column(
        "lood_auc",
        "best attack's AUC",
        "before training: chance that the best attack tells the answers with and without the record apart; 0.5 is a coin toss",
        "lood",
        unit="share",
        tasks=_LAST_LAYER,
        kind="share",
    ),
)
_BY_NAME = {column.name: column for column in COLUMNS}
_NUMBERED = {column.name: column for column in COLUMNS if column.numbered}


def column(name: str) -> Column | None:
    """Find the entry of a column; None for a column nobody registered.

    A column numbered by its output is found, too.
    """
    if name in _BY_NAME and not _BY_NAME[name].numbered:
        return _BY_NAME[name]
    return _NUMBERED.get(re.sub(r"\d+$", "", name)) if name[-1:].isdigit() else None


def named(**wanted: object) -> tuple[str, ...]:
    """Names of the columns whose fields are all as wanted, in the order of the table.

    Example:
        >>> named(source="identity", kind="text")
        ('id', 'label', 'group')
    """
    return tuple(c.name for c in COLUMNS if all(getattr(c, key) == value for key, value in wanted.items()))


def page_order() -> tuple[str, ...]:
    """Names of the figures that a page shows first, in its order."""
    return tuple(c.name for c in sorted(COLUMNS, key=lambda c: c.page) if c.page)


def ranking_order(held: Container[str] = ()) -> tuple[str, ...]:
    """Names of the columns that a rank may follow, the preferred one first.

    `exposure_score` is there where something beyond the final weights is known. Forests that
    classify are those with `left_out_loss`: where `held`, the columns of a table, has it, the rise
    of the loss (`loo`) goes before both. That was chosen on three data sets and found more on three
    others, more than exposure with two references and more than LiRA with thirty
    (benchmarks/tail_calibration/tree_measure.py). Forests that regress are ranked by
    `shift` (benchmarks/forests.py). Boosted classifiers have `yielding_shift`, chosen and judged on
    the data sets of the order of forests. Otherwise `shift` ranks best against measured attacks
    (benchmarks/which_layers.py); sequences have none, and there `influence` does
    (benchmarks/language_models.py), with a base model too: the gain over it orders members against
    what attacks find (benchmarks/finetuned). The loss ranks where nothing else is known, and a
    finding says how little that is.
    """
    return tuple(c.name for c in sorted(COLUMNS, key=lambda c: c.ranks) if c.ranks and (not c.ranks_beside or c.ranks_beside in held))


def is_target(name: str) -> bool:
    """Whether a column holds targets."""
    found = column(name)
    return found is not None and found.name in ("target", "target_")


def meaning(name: str, task: str, *, unit: str = "nats", at_level: str = "") -> str | None:
    """Say in one sentence without its full stop what a column means.

    The result is None for a column nobody registered.
    """
    found = column(name)
    return None if found is None else found.by_task.get(task, found.meaning).format(unit=unit, at_level=at_level)
