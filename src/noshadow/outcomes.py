"""Facts that rooms hand on as types: where λ comes from, what is absent, what has a code."""

from collections.abc import Iterable
from dataclasses import dataclass

TOO_LARGE = "does not fit"
# Where an audit had its model from: objects of Python that say how another is trained, or do not;
# model files; arrays.
FUNCTION, OBJECTS, FILES, ARRAYS = SOURCES_OF_MODELS = ("function", "objects", "files", "arrays")
ABSENCES = ("not applicable", "not available", "not calibrated here", TOO_LARGE)


@dataclass(frozen=True)
class Damping:
    """λ on the sum over records, and where it comes from.

    Attributes:
        value: λ ≥ 0.
        kind: "given" (by the caller), "weight_decay" (of the training objective), "estimator" (its
            own penalty), "automatic" (the training's λ is unknown, and a share of the curvature
            stands in for it) or "substitute" (the training had none, the method needs one, and a
            share of the curvature stands in for it).
        sentence: the same for people.
    """

    value: float
    kind: str
    sentence: str

    @property
    def is_trained(self) -> bool:
        """Whether λ is that of the training, as far as anybody knows."""
        return self.kind not in ("automatic", "substitute")


class Absent(str):
    """Why something does not exist: the text "kind: reason" that `not_applicable` holds.

    Attributes:
        kind: one of `ABSENCES`. reason: one sentence without the kind before it.

    Example:
        >>> Absent("not applicable", "a regression has no classes")
        'not applicable: a regression has no classes'
    """

    kind: str
    reason: str

    def __new__(cls, kind: str, reason: str) -> "Absent":
        """Make the text, which is made nowhere else."""
        made = super().__new__(cls, f"{kind}: {reason}")
        made.kind, made.reason = kind, reason
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.kind, self.reason

    @classmethod
    def of(cls, text: str) -> "Absent":
        """Read the text of a file back; text without a kind before it is a reason by itself."""
        if isinstance(text, cls):
            return text
        kind, colon, reason = text.partition(": ")
        return cls(kind, reason) if colon and kind in ABSENCES else cls("not applicable", text)


def not_applicable(reason: object) -> Absent:
    """Say why a question does not arise."""
    return Absent("not applicable", str(reason))


class Note(str):
    """A sentence for whoever calls a function by itself; an audit states it as the finding `code`.

    Plain text is a note that no finding says.
    """

    code: str

    def __new__(cls, text: str, code: str) -> "Note":
        """The sentence with its code."""
        made = super().__new__(cls, text)
        made.code = code
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.code


def uncoded(notes: Iterable[str]) -> tuple[str, ...]:
    """The notes that no finding says."""
    return tuple(note for note in notes if not isinstance(note, Note))
