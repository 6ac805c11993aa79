"""Estimators of scikit-learn in skops files, whose types are looked at before anything is made."""

import io
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noshadow.checks import refuse
from noshadow.model_files.held import HeldModel, needed
from noshadow.model_files.sound_estimators import require_sound_estimator
from noshadow.storage.numpy_files import require_honest
from noshadow.storage.reasons import one_kind_of_error
from noshadow.visible import visible

# Parts of scikit-learn's own estimators that skops leaves to us: plain holders of arrays and
# numbers, and trees, which `require_sound_estimator` looks through.
KNOWN = frozenset(
    f"sklearn.{name}"
    for name in (
        "calibration._CalibratedClassifier",
        "calibration._SigmoidCalibration",
        "ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "gaussian_process.kernels.ConstantKernel",
        "gaussian_process.kernels.DotProduct",
        "gaussian_process.kernels.Matern",
        "gaussian_process.kernels.Product",
        "gaussian_process.kernels.RBF",
        "gaussian_process.kernels.RationalQuadratic",
        "gaussian_process.kernels.Sum",
        "gaussian_process.kernels.WhiteKernel",
        "metrics._dist_metrics.EuclideanDistance64",
        "metrics._dist_metrics.ManhattanDistance64",
        "metrics._scorer._PassthroughScorer",
        "model_selection._split.KFold",
        "model_selection._split.StratifiedKFold",
        "neighbors._ball_tree.BallTree",
        "neighbors._kd_tree.KDTree",
        "neural_network._stochastic_optimizers.AdamOptimizer",
        "neural_network._stochastic_optimizers.SGDOptimizer",
        "tree._tree.Tree",
        "utils._bunch.Bunch",
        "utils.validation.check_array",
    )
) | {"collections.OrderedDict", "functools.partial", "numpy.dtype"}


def skops_model(path: Path, trust: Sequence[str], argument: str) -> HeldModel:
    """The estimator of a skops file, with the names and classes it was fitted with.

    Raises:
        InputError: it asks for a type that is neither known nor in `trust`. ValueError: it is no
            such file, or holds a tree that cannot be walked. OSError: as the system gives it.
    """
    skops = needed("skops.io", "files")
    with one_kind_of_error():
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            require_honest(archive.infolist(), len(content))
        asked = [str(name) for name in skops.get_untrusted_types(data=content)]
    strange = [name for name in asked if name not in KNOWN and name not in trust]
    if strange:
        named = ", ".join(visible(name) for name in strange)
        flags = " ".join(f"--trust {shlex.quote(visible(name))}" for name in strange)
        hint = f"Types run code of their own: once you know them, pass trust={strange!r} ({flags})."
        refuse(argument, "ask for known types only", f"'{path}' with {named}", hint)
    with one_kind_of_error():
        model = skops.loads(content, trusted=asked)
        require_sound_estimator(model)
        names, classes = getattr(model, "feature_names_in_", None), getattr(model, "classes_", None)
        return HeldModel(
            model,
            columns=None if names is None else tuple(map(str, names)),
            classes=None if classes is None or isinstance(classes, list) else tuple(classes.tolist()),
            texts=_text_columns(model),
        )


def _text_columns(model: Any) -> frozenset[str | int]:
    """Columns that encoders at the front of a model know as text."""
    inner = getattr(model, "best_estimator_", model)
    first = inner.steps[0][1] if hasattr(inner, "steps") else inner
    names = getattr(model, "feature_names_in_", None)
    places = getattr(first, "_transformer_to_input_indices", None)
    fitted = [(step, places[name]) for name, step, _ in first.transformers_ if name in places] if places else [(first, None)]
    found: set[int] = set()
    for step, own in fitted:
        for part in [one for _, one in step.steps] if hasattr(step, "steps") else [step]:
            categories = getattr(part, "categories_", None)
            if isinstance(categories, list) and (own is None or len(own) == len(categories)):
                texts = [place for place, values in enumerate(categories) if len(values) and all(isinstance(one, str) for one in values)]
                found |= set(texts) if own is None else {int(own[place]) for place in texts}
    return frozenset(found if names is None else (str(names[place]) for place in found))
