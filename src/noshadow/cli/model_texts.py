"""A language model in a folder and its texts in files, as the Target of `noshadow audit`."""

from pathlib import Path

from noshadow._audit import Target
from noshadow._audit.given_language_models import require_same_tokenizer
from noshadow.checks import refuse
from noshadow.cli.model_tables import Files
from noshadow.cli.targets import base_of
from noshadow.model_files import TextColumns, read_language_folder, read_texts


def texts_target(files: Files, base: str | None, option: str = "--train") -> tuple[Target, object]:
    """The Target of a language model's folder and two files of texts, and its base.

    The base of adapters is the model below them, which is inside of the model: None stands for it.
    Where adapters changed it, it is read from its folder a second time.

    Args:
        files: what was given. base: of the command line, the folder below adapters, or the base of
            a whole model. option: that named the training texts. Test texts may be left out here.

    Raises:
        InputError: as `read_language_folder` and `read_texts`; options of other models.
    """
    assert files.model is not None and files.train is not None
    for name in ("drop", "module", "trust"):
        if getattr(files, name):
            refuse(f"--{name}", "be left out with the folder of a language model", f"'{files.model}'")
    below = Path(base) if base is not None and Path(base).is_dir() else None
    held = read_language_folder(files.model, below)
    require_same_tokenizer(held.tokenizer, held.base_tokenizer, "--base")
    if held.pairs and files.target is None:
        refuse("--target", "name the column of the answers of a sequence-to-sequence model", "none")
    if not held.pairs and files.target is not None:
        hint = "It predicts each token of a text: name the texts with --text."
        refuse("--target", "be left out with a causal language model", f"'{files.target}'", hint)
    columns = TextColumns(files.text, files.target, files.id, files.group)
    train, test = (
        None if path is None else read_texts(path, held.tokenizer, columns, pairs=held.pairs, option=name)
        for path, name in ((files.train, option), (files.test, "--test"))
    )
    assert train is not None
    target = Target(
        held.model,
        train.sequences,
        None if test is None else test.sequences,
        ids=train.ids,
        groups=train.groups,
        test_groups=None if test is None else test.groups,
        tokenizer=held.tokenizer,
    )
    if held.has_adapters:
        return target, held.base
    return target, None if base is None else base_of(base)
