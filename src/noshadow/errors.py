"""The exceptions of this package, the one sentence they are raised with, and whom it names.

Every message is one sentence of the form "function: argument must rule; got value. Next step."
The function is the one that the user called: public functions are `named_in_errors`, and of those
that run inside of each other the outermost is named. So nobody hands a name down.
Nothing heavy is imported here: the command line starts with it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The name that messages start with, and whether a public function called below keeps it.
_SPEAKER: ContextVar[tuple[str, bool]] = ContextVar("noshadow_speaker", default=("", False))
_CONSTRUCTORS = (".__init__", ".__post_init__")
_GENERATORS = 0x20 | 0x80 | 0x200  # flags of a code object: generator, coroutine, both


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


# Options of the record scores, and the functions that hand them on instead of having them; options
# of trainings, and the functions that train where they are asked to; choices of the attacks, and
# the functions that take them as AttackOptions. Tests hold them against the signatures.
SCORE_OPTIONS = frozenset(
    {"method", "refine", "precision", "block_size", "max_memory", "outputs", "dimension", "unvectorised", "class_basis", "columns"}
)
HAND_ON = frozenset({"audit", "audit_signals"})
TRAINING_OPTIONS = ("workers", "threads", "backend", "address", "attempts", "engine", "stack", "settings")
TRAIN_ON_REQUEST = frozenset({"audit"})
ATTACK_CHOICES = frozenset({"variant", "variance", "center", "floor", "gamma", "a", "statistic"})
RUN_ATTACKS = frozenset({"ground_truth", "with_ground_truth"})


def named_in_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Name a public function in every message that is raised while it runs.

    The name is that of the function, "LossTraces.record" for a method, or the class for its
    constructor. A function that runs inside of another public one leaves that one's name in place.

    Raises:
        TypeError: `function` is a generator or a coroutine, whose body runs after the call.
    """
    name = function.__qualname__
    for constructor in _CONSTRUCTORS:
        name = name.removesuffix(constructor)
    return _running_as(name, function, kept=True)


def named_as(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Name a function, as `named_in_errors` does, by the public function that it stands in for."""
    return lambda function: _running_as(name, function, kept=True)


def named_command(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Name a command of the command line in messages that no public function raises.

    A public function that the command calls names itself: its advice is about its arguments.
    """
    return lambda function: _running_as(name, function, kept=False)


def _running_as(name: str, function: Callable[P, T], *, kept: bool) -> Callable[P, T]:
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & _GENERATORS:
        raise TypeError(f"{name} runs after it is called: name the function that walks it instead.")

    @functools.wraps(function)
    def running(*args: P.args, **kwargs: P.kwargs) -> T:
        if _SPEAKER.get()[1]:
            return function(*args, **kwargs)
        before = _SPEAKER.set((name, kept))
        try:
            return function(*args, **kwargs)
        finally:
            _SPEAKER.reset(before)

    return running


@contextmanager
def speaking_for(name: str) -> Iterator[None]:
    """Name a function whose work goes on in another process or thread: see `called`."""
    before = _SPEAKER.set((name, bool(name)))
    try:
        yield
    finally:
        _SPEAKER.reset(before)


@contextmanager
def open_to_names() -> Iterator[None]:
    """Run code of the user: a public function that it calls names itself.

    What is refused without one still names the function that runs the code. No generator may be
    suspended in here, since its caller would lose the name.
    """
    before = _SPEAKER.set((called(), False))
    try:
        yield
    finally:
        _SPEAKER.reset(before)


def called() -> str:
    """The public function or command that the user called; "" where none is running."""
    return _SPEAKER.get()[0]


def said(text: str) -> str:
    """The text behind the name of the function that was called.

    Where none is running, as in a test of an inner function, the text stands alone.
    """
    return f"{called()}: {text}" if called() else text


def unnamed(error: Exception) -> str:
    """What an error says behind the name of the called function, for the middle of a sentence."""
    return str(error).removeprefix(f"{called()}: ")


def advice(name: str, value: object) -> str:
    """How the called function is given an option of the scores, of a training, or of the attacks.

    This is "name='value'", or inside of what the function hands on to them. `...` stands for any
    value.
    """
    given = "…" if value is ... else repr(value)
    if called() in RUN_ATTACKS and name in ATTACK_CHOICES:
        return f"options=AttackOptions({name}={given})"
    if called() in TRAIN_ON_REQUEST and name in TRAINING_OPTIONS:
        return f"training_options={{{name!r}: {given}}} (--training-option {name}={value})"
    return f"score_options={{{name!r}: {given}}} (--score-option {name}={value})" if _hands_on(name) else f"{name}={given}"


def its_place(name: str) -> str:
    """Where an option of the scores is given, in brackets after its name.

    The text is empty where the option is an argument of the called function itself.
    """
    return f" (score_options={{{name!r}: …}}, --score-option {name}=…)" if _hands_on(name) else ""


def _hands_on(name: str) -> bool:
    return called() in HAND_ON and name in SCORE_OPTIONS


def refuse(argument: str, rule: str, got: object, hint: str = "") -> NoReturn:
    """Raise an InputError of one sentence, which names the called function."""
    tail = f" {hint}" if hint else ""
    raise InputError(said(f"{argument} must {rule}; got {got}.{tail}"))
