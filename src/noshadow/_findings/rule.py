"""A rule: everything about one finding in one entry, written above its check."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noshadow._findings.outcome import Limits, Outcome
from noshadow._known.audited import Audited

Check = Callable[[Audited, Limits], Outcome]


@dataclass(frozen=True, eq=False)
class Rule:
    """What is looked at, when it is found, and what to do then.

    Attributes:
        code, name, severity: as in `Finding`.
        condition: when it is found, with {names} for its limits. limits: thresholds by name.
        next_step: what to do when it is found.
        check: holds an audit against the limits, and says what came out.
        undermines: whether every other figure is in doubt when it is found; pages and terminals
            show it first. undermines_below: the figure from which on it is found and casts no
            doubt; None: it always does.
    """

    code: str
    name: str
    severity: str
    condition: str
    next_step: str
    limits: Limits
    check: Check
    undermines: bool = False
    undermines_below: float | None = None

    @property
    def words(self) -> str:
        """The condition with its thresholds filled in."""
        return self.condition.format(
            **{name: f"{value:g}" if value.is_integer() else f"{value:.3g}" for name, value in self.limits.items()}
        )

    @property
    def anchor(self) -> str:
        """Where the documentation explains it."""
        return f"findings.md#{self.code.lower()}"


def rule(
    code: str,
    name: str,
    severity: str,
    *,
    found_when: str,
    next_step: str,
    limits: Mapping[str, float] | None = None,
    undermines: bool = False,
    undermines_below: float | None = None,
) -> Callable[[Check], Rule]:
    """Turn a check into its rule. Arguments as in `Rule`; `found_when` is its condition."""

    def declared(check: Check) -> Rule:
        thresholds = {limit: float(value) for limit, value in (limits or {}).items()}
        return Rule(code, name, severity, found_when, next_step, thresholds, check, undermines, undermines_below)

    return declared
