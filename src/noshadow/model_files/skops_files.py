"""Estimators of scikit-learn in skops files, whose types are looked at before anything is made."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from noshadow.checks import refuse
from noshadow.model_files.held import HeldModel, needed
from noshadow.storage.numpy_files import require_honest
from noshadow.storage.reasons import one_kind_of_error
from noshadow.visible import visible

# Parts of scikit-learn's own estimators that hold arrays and numbers; skops leaves them to us.
KNOWN = frozenset(
    {
        "collections.OrderedDict",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
    }
)


def skops_model(path: Path, trust: Sequence[str]) -> HeldModel:
    """The estimator of a skops file, with the names and classes it was fitted with.

    Raises:
        InputError: it asks for a type that is neither known nor in `trust`. ValueError: it is no
            such file. OSError: as the system gives it.
    """
    skops = needed("skops.io", "files")
    with one_kind_of_error():
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            require_honest(archive.infolist(), os.fstat(file.fileno()).st_size)
        asked = [str(name) for name in skops.get_untrusted_types(file=path)]
    strange = [name for name in asked if name not in KNOWN and name not in trust]
    if strange:
        named = ", ".join(visible(name) for name in strange)
        flags = " ".join(f"--trust {visible(name)}" for name in strange)
        hint = f"Types run code of their own: once you know them, pass trust={strange!r} ({flags})."
        refuse("path", "ask for known types only", f"'{path}' with {named}", hint)
    with one_kind_of_error():
        model = skops.load(path, trusted=asked)
    names, classes = getattr(model, "feature_names_in_", None), getattr(model, "classes_", None)
    return HeldModel(
        model,
        columns=None if names is None else tuple(map(str, names)),
        classes=None if classes is None or isinstance(classes, list) else tuple(classes.tolist()),
    )
