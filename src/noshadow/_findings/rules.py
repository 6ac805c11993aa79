"""The table of rules: every threshold of every finding stands here, and docs/findings.md explains each."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rule:
    """What is looked at, when it is found, and what to do then.

    Attributes:
        code, name, severity: as in `Finding`.
        condition: when it is found, with {names} for its limits. limits: thresholds by name.
        next_step: what to do when it is found.
        undermines: whether every other figure is in doubt when it is found; pages and terminals show it first.
    """

    code: str
    name: str
    severity: str
    condition: str
    next_step: str
    limits: dict[str, float] = field(default_factory=dict)
    undermines: bool = False

    @property
    def words(self) -> str:
        """The condition with its thresholds filled in."""
        return self.condition.format(**{name: f"{value:g}" for name, value in self.limits.items()})

    @property
    def anchor(self) -> str:
        """Where the documentation explains it."""
        return f"findings.md#{self.code.lower()}"


RULES = (
    Rule(
        "NS001",
        "model-risk",
        "high",
        "predicted attack TPR at FPR α (without one for models like this: the loss attack's TNR at FNR α) > {times}·α, and the lower end "
        "of its interval > α",
        "Regularise, stop earlier, remove duplicates or train with differential privacy, and compare the two audits.",
        {"times": 10.0},
    ),
    Rule(
        "NS002",
        "loss-auc",
        "high",
        "loss AUC > {auc}, and the lower end of its interval > {guess}",
        "The average member is given away, not only a few: regularise or stop earlier, and compare the two audits.",
        {"auc": 0.6, "guess": 0.5},
    ),
    Rule(
        "NS003",
        "calibration-domain",
        "medium",
        "the model lies outside the set-ups behind its predicted TPR",
        "Read the TNR, which is measured, instead of the prediction, or measure the attack with reference models.",
    ),
    Rule(
        "NS004",
        "overfit-gap",
        "medium",
        "accuracy gap > {accuracy_gap}; regression: loss gap > {loss_share} of the mean loss outside",
        "The model has learned its records rather than the task: more data, weight decay, augmentation or fewer epochs.",
        {"accuracy_gap": 0.1, "loss_share": 0.5},
    ),
    Rule(
        "NS005",
        "splits-swapped",
        "high",
        "upper end of the interval of the loss AUC < {auc}",
        "Check that train and test are not exchanged, and that the test records are drawn like the training records.",
        {"auc": 0.5},
    ),
    Rule(
        "NS006",
        "sample-too-small",
        "medium",
        "fewer than {members} members may exceed τ at the level α, or a split holds fewer than {records} records",
        "Give more records of the split that has too few, or ask for a larger level with fpr= (--fpr).",
        {"members": 5.0, "records": 50.0},
    ),
    Rule(
        "NS007",
        "train-test-overlap",
        "high",
        "more than {records} test records have the features and target of a training record",
        "Take those records out of one split and audit again: as it is the model risk is understated.",
        {"records": 0.0},
    ),
    Rule(
        "NS008",
        "ids-in-both-splits",
        "medium",
        "more than {ids} ids are in both splits, where both have ids that say who is who",
        "If they are the same people, take them out of one split and audit again: as it is the model risk is understated.",
        {"ids": 0.0},
    ),
    Rule(
        "NS010",
        "few-records-dominate",
        "medium",
        "the top {top} of the records hold > {share} of the sum of the score",
        "Look these records up first: rare, wrong or extreme ones can be checked by hand. Removing them exposes others: audit again.",
        {"top": 0.01, "share": 0.2, "least_records": 100.0},
    ),
    Rule(
        "NS011",
        "class-bears-risk",
        "medium",
        "a class has > {lift} times its share among the top {top} of the records, with chance p < {chance} over all classes",
        "Collect more records of that class, or say in the report that its members are the exposed ones.",
        {"lift": 2.0, "top": 0.05, "chance": 0.01, "least_records": 100.0},
    ),
    Rule(
        "NS012",
        "group-bears-risk",
        "high",
        "a group has > {lift} times its share among the top {top} of the records, with chance p < {chance} over all groups",
        "An average hides these people: collect more records of the group, or protect everybody with differential privacy.",
        {"lift": 2.0, "top": 0.05, "chance": 0.01, "least_records": 100.0},
    ),
    Rule(
        "NS013",
        "duplicates-share-leverage",
        "low",
        "> {share} of the training records have another one with the same features and target",
        "Copies hide one another: each looks safe, since the others stay when one leaves. Remove copies and audit again.",
        {"share": 0.001},
    ),
    Rule(
        "NS014",
        "interpolated-records",
        "high",
        "more than {records} records have an infinite score",
        "The model fits these records by themselves alone: regularise, or remove features that single them out.",
        {"records": 0.0},
    ),
    Rule(
        "NS015",
        "label-suspects",
        "medium",
        "more than {records} of the top {top} (at least {least}) records have a loss > {nats} (regression: > {times} times the mean loss) "
        "and a leverage among the top {leverage}",
        "Check the labels of these records: the model disagrees with them and yet depends on them.",
        {"records": 0.0, "top": 0.01, "least": 10.0, "nats": 0.6931471805599453, "times": 9.0, "leverage": 0.1},
    ),
    Rule(
        "NS020",
        "far-from-minimum",
        "medium",
        "stationarity ≥ {stationarity}",
        "Trust the order of the records more than the size of their scores; train longer, or pass the training's own weight decay.",
        {"stationarity": 1.0},
    ),
    Rule(
        "NS021",
        "damping-unknown",
        "low",
        "the damping λ was not given and could not be read from the model",
        "Pass weight_decay= (or damping=) as the training had it.",
    ),
    Rule(
        "NS022",
        "ill-conditioned",
        "medium",
        "condition > {condition}, jitter > {jitter}, or rounding moved the riskiest records by > {rounding} of their scores",
        "Raise the damping, or drop collinear features.",
        {"condition": 1e12, "jitter": 0.0, "rounding": 1e-4},
    ),
    Rule(
        "NS023",
        "head-not-linear",
        "high",
        "head residual > {residual}",
        "The outputs are no linear function of these features: name the right layer with layer= (--layer).",
        {"residual": 0.001},
    ),
    Rule(
        "NS024",
        "approximate-scores",
        "low",
        "estimated relative error of the ranking score > {error}",
        "Trust the order of the records more than the size of their scores, or score fewer layers exactly (layers='last').",
        {"error": 0.1},
    ),
    Rule(
        "NS025",
        "crowded-projection",
        "high",
        "effective degrees of freedom > {share} of the dimensions that gradients were projected to, or estimated relative error of the "
        "ranking score > {error}",
        "Score fewer layers (layers=), or call network_scores with method='dual' and the max_memory it needs, or with a larger dimension.",
        {"share": 0.25, "error": 0.5},
    ),
    Rule(
        "NS030",
        "target-unlike-references",
        "high",
        "a mean loss of the target is > {deviations} deviations from the reference models' and outside their range",
        "Train the reference models as the target was trained (epochs, learning rate, augmentation, number of records).",
        {"deviations": 4.0},
    ),
    Rule(
        "NS040",
        "random-records",
        "high",
        "outputs of a record change by > {share} of their spread (and by more than rounding) when it is read and run again",
        "Audit without random augmentation and with a model whose eval() switches all randomness and batch statistics off: as it is no "
        "loss, score or rank belongs to its record.",
        {"share": 0.001},
        undermines=True,
    ),
    Rule(
        "NS041",
        "repeated-rows",
        "low",
        "more than {records} records are of a row of the data that was taken before",
        "Take each row once: copies hide one another, and a person who is there twice leaves twice.",
        {"records": 0.0},
    ),
    Rule(
        "NS042",
        "probabilities-given",
        "medium",
        "the outputs of a classifier were given as probabilities",
        "Give logits, or logarithms of probabilities that were never rounded (log_softmax in float64), and audit again.",
    ),
    Rule(
        "NS043",
        "outputs-not-of-the-head",
        "high",
        "more than {records} records get another output from the model than from its head",
        "Find out what follows the last Linear (a clamp, a ReLU, a temperature, an abstention), and score through it with layers='all' "
        "(--layers all) or the head by itself with layer= (--layer).",
        {"records": 0.0},
    ),
)
UNDERMINING = frozenset(rule.code for rule in RULES if rule.undermines)
