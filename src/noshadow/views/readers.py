"""The list of readers: which family a model belongs to, and how others add theirs."""

import hashlib

import numpy as np

from noshadow.checks import Array, named_in_errors, refuse
from noshadow.views.catboost import CATBOOST
from noshadow.views.causal_lm import CAUSAL_LM
from noshadow.views.lightgbm import LIGHTGBM
from noshadow.views.onnx import ONNX
from noshadow.views.plain_function import PLAIN_FUNCTION
from noshadow.views.reader import Reader
from noshadow.views.seq2seq_lm import SEQ2SEQ_LM
from noshadow.views.sklearn_any import ANY_ESTIMATOR
from noshadow.views.sklearn_bagging import BAGGING
from noshadow.views.sklearn_bayes import CATEGORICAL_BAYES, COUNTING_BAYES, GAUSSIAN_BAYES
from noshadow.views.sklearn_boosting import BOOSTING
from noshadow.views.sklearn_decisions import DECISIONS, RIDGE_CLASSIFIER
from noshadow.views.sklearn_discriminants import LINEAR_DISCRIMINANT, QUADRATIC_DISCRIMINANT
from noshadow.views.sklearn_kernels import GAUSSIAN_PROCESS, KERNEL_RIDGE
from noshadow.views.sklearn_laplace import GAUSSIAN_PROCESS_CLASSIFIER
from noshadow.views.sklearn_linear import LEAST_SQUARES, LOGISTIC_REGRESSION, RIDGE, STOCHASTIC_GRADIENT
from noshadow.views.sklearn_linear_svc import LINEAR_SVC
from noshadow.views.sklearn_mlp import PERCEPTRON
from noshadow.views.sklearn_neighbours import NEIGHBOURS
from noshadow.views.sklearn_newton import AGAINST_THE_REST, LOG_LINKED
from noshadow.views.sklearn_sparse import ACTIVE_SET, BAYESIAN_RIDGE, HUBER, PATH, PURSUIT, RELEVANCE
from noshadow.views.sklearn_trees import FOREST, TREE
from noshadow.views.torch import MODULE
from noshadow.views.wrapped_module import PIPED_MODULE, WRAPPED_MODULE
from noshadow.views.xgboost import XGBOOST

# The first that reads a model has it: special families stand before general ones.
READERS = (
    CAUSAL_LM,
    SEQ2SEQ_LM,
    MODULE,
    WRAPPED_MODULE,
    PIPED_MODULE,
    AGAINST_THE_REST,
    LOGISTIC_REGRESSION,
    LEAST_SQUARES,
    RIDGE,
    RIDGE_CLASSIFIER,
    STOCHASTIC_GRADIENT,
    LINEAR_SVC,
    PERCEPTRON,
    FOREST,
    TREE,
    BAGGING,
    BOOSTING,
    XGBOOST,
    LIGHTGBM,
    CATBOOST,
    NEIGHBOURS,
    GAUSSIAN_BAYES,
    COUNTING_BAYES,
    CATEGORICAL_BAYES,
    LINEAR_DISCRIMINANT,
    QUADRATIC_DISCRIMINANT,
    KERNEL_RIDGE,
    GAUSSIAN_PROCESS,
    GAUSSIAN_PROCESS_CLASSIFIER,
    ACTIVE_SET,
    BAYESIAN_RIDGE,
    HUBER,
    RELEVANCE,
    PATH,
    PURSUIT,
    LOG_LINKED,
    DECISIONS,
    ANY_ESTIMATOR,
    ONNX,
    PLAIN_FUNCTION,
)

_registered: list[Reader] = []


@named_in_errors
def register_reader(reader: Reader) -> None:
    """Let `audit` and all other functions that take a model read one more family.

    A registered reader is asked before those of the house, the latest first. It is known to this
    process only: where other processes train or read models, register it in the module that they
    import.

    Args:
        reader: made by `estimator_reader`, or a `Reader` of your own.

    Raises:
        InputError: not a Reader, or a reader of that name is in the list.
    """
    if not isinstance(reader, Reader):
        refuse("reader", "be a Reader", type(reader).__name__, "Make one with noshadow.views.estimator_reader.")
    if reader.name in {one.name for one in (*_registered, *READERS)}:
        refuse("reader", "have a name of its own", f"{reader.name!r} a second time")
    _registered.insert(0, reader)


def reader_of(model: object) -> Reader | None:
    """The reader of a model's family; None for what no family reads."""
    return next((reader for reader in (*_registered, *READERS) if reader.reads(model)), None)


def readable_models() -> str:
    """What can be read, in words: for error messages."""
    more = "".join(f", or a model of the family {reader.name!r}" for reader in _registered)
    return f"an nn.Module, a fitted scikit-learn estimator or a function predict(X){more}"


def model_family(model: object) -> str | None:
    """Family of a model, by the names that calibrations know.

    "network" (nn.Module, multi-layer perceptron), "linear" (logistic regression), else what its
    reader calls it: the estimator's own name. A pipeline or a search is what it ends in. None for
    anything that no reader reads.
    """
    reader = reader_of(model)
    return None if reader is None else reader.family(model)


def voting_parts(model: object) -> int | None:
    """How many parts of a model vote for a class, by its reader.

    0 where it is known that its outputs are no votes, and None where that is not known: of
    functions, and of outputs in the place of a model.
    """
    reader = reader_of(model)
    return None if reader is None or reader.open_scale else reader.votes(model)


def weights_sha256(model: object, outputs: Array) -> str:
    """Return the hex digest of the trained parameters, as in `View`.

    It is the digest of the outputs where there are no parameters to read.
    """
    reader = reader_of(model)
    if reader is None:
        return hashlib.sha256(np.ascontiguousarray(outputs).data).hexdigest()
    return reader.weights_sha256(model, outputs)
