"""The exceptions of this package, and the one sentence they are raised with.

Every message is one sentence of the form "function: argument must rule; got value. Next step."
Nothing heavy is imported here: the command line starts with it.
"""

from typing import NoReturn


class InputError(ValueError):
    """An argument breaks a rule; the message says which, what came and what to do.

    The message is one line, whatever names and reasons it quotes.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(" ".join(str(message).splitlines()))


class DoesNotFit(InputError):
    """Record scores need more memory than they may take.

    `reason` says the same as the rest of a sentence. An audit that was not asked for a method by
    name gives it as the reason for leaving the scores out, and keeps the rest.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NumericalError(RuntimeError):
    """A computation failed, and no fallback value was put in its place."""


class NotApplicable(Exception):
    """A requested quantity does not exist for this model or data; the message says why."""


# Options of the record scores, and the functions that hand them on instead of having them: tests
# hold both against the signatures.
SCORE_OPTIONS = frozenset(
    {"method", "refine", "precision", "block_size", "max_memory", "outputs", "dimension", "unvectorised", "class_basis", "columns"}
)
HAND_ON = frozenset({"audit", "audit_signals"})


def advice(owner: str, name: str, value: object) -> str:
    """How `owner` is given an option of the scores.

    This is "name='value'", or inside of `score_options` where `owner` hands them on.
    """
    return f"{name}={value!r}" if not _hands_on(owner, name) else f"score_options={{{name!r}: {value!r}}} (--score-option {name}={value})"


def its_place(owner: str, name: str) -> str:
    """Where an option of the scores is given, in brackets after its name.

    The text is empty where the option is an argument of `owner` itself.
    """
    return f" (score_options={{{name!r}: …}}, --score-option {name}=…)" if _hands_on(owner, name) else ""


def _hands_on(owner: str, name: str) -> bool:
    return owner in HAND_ON and name in SCORE_OPTIONS


def refuse(owner: str, argument: str, rule: str, got: object, hint: str = "") -> NoReturn:
    """Raise an InputError of one sentence."""
    tail = f" {hint}" if hint else ""
    raise InputError(f"{owner}: {argument} must {rule}; got {got}.{tail}")
