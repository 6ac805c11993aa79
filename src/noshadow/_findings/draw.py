"""Every rule held against an audit."""

from collections.abc import Iterable

import numpy as np

from noshadow._findings.outcome import Outcome
from noshadow._findings.registry import RULES, UNDERMINED_BELOW, UNDERMINING
from noshadow._findings.rule import Rule
from noshadow._known.audited import Audited
from noshadow.checks import Array, named_in_errors, refuse
from noshadow.figures import SEVERITIES, Finding

_EXAMPLES = 10


@named_in_errors
def findings(audit: Audited) -> tuple[Finding, ...]:
    """Draw coded statements about an audit, one for every rule.

    A statement is found, passed, not applicable or skipped, with the reason.

    They are drawn from what the audit holds and by this version's rules; `audit.findings` are those
    of the version that wrote it.

    Args:
        audit: what `noshadow.audit` returned or `noshadow.load` read.

    Returns:
        One Finding a rule, in the order of codes.

    Raises:
        InputError: `audit` is not an Audit.

    Exact when: always; the rules are thresholds on figures of the audit, listed in
        docs/findings.md.
    Cost: O(n log n) in the number of records.

    Example:
        >>> import noshadow as ns
        >>> audit = ns.audit_signals(
        ...     ns.Signals(None, [0.1, 0.4], [0.0, 0.5]), ns.Signals(None, [0.3, 0.2], [0.9, 1.0])
        ... )
        >>> [(f.code, f.status) for f in ns.findings(audit)][:3]
        [('NS001', 'not applicable'), ('NS002', 'found'), ('NS003', 'not applicable')]
    """
    return tuple(_finding(audit, rule, outcome) for rule, outcome in _outcomes(audit))


def undermining_findings(audit: Audited) -> tuple[Finding, ...]:
    """Those of `findings` that would put every figure of the audit in doubt.

    Cost: that of these rules alone, which read facts and walk over no records.
    """
    rules = tuple(rule for rule in RULES if rule.code in UNDERMINING)
    drawn = (_finding(audit, rule, outcome) for rule, outcome in _outcomes(audit, rules))
    return tuple(finding for finding in drawn if finding.status != "found" or casts_doubt(finding))


def casts_doubt(finding: Finding) -> bool:
    """Whether a finding that was found puts every other figure in doubt."""
    below = UNDERMINED_BELOW.get(finding.code)
    return finding.code in UNDERMINING and (below is None or finding.figure is None or finding.figure < below)


def finding_of(audit: Audited, code: str) -> Finding:
    """Draw one rule of an audit, by its code."""
    ((rule, outcome),) = _outcomes(audit, (rule for rule in RULES if rule.code == code))
    return _finding(audit, rule, outcome)


def flagged_records(audit: Audited) -> dict[str, Array]:
    """Find the rows of `audit.records` that each found statement speaks of.

    The result maps code → row numbers, riskiest first where they are ranked.
    """
    return {rule.code: outcome.rows for rule, outcome in _outcomes(audit) if outcome.status == "found" and outcome.rows is not None}


def most_severe(drawn: Iterable[Finding]) -> list[Finding]:
    """Sort what was found by severity, the most severe first.

    Among equally severe findings, those that put the figures themselves in doubt go first, then the
    order of codes counts.
    """
    found = [finding for finding in drawn if finding.status == "found"]
    return sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code not in UNDERMINING, finding.code))


def _outcomes(audit: Audited, rules: Iterable[Rule] = RULES) -> list[tuple[Rule, Outcome]]:
    if not isinstance(audit, Audited):
        refuse("audit", "be an Audit", type(audit).__name__, "Read a folder with noshadow.load first.")
    return [(rule, rule.check(audit, rule.limits)) for rule in rules]


def _finding(audit: Audited, rule: Rule, outcome: Outcome) -> Finding:
    ids, count = outcome.examples, None if outcome.rows is None else len(outcome.rows)
    if outcome.rows is not None:
        ids = tuple(str(identifier) for identifier in np.asarray(audit.records["id"])[outcome.rows[:_EXAMPLES]])
    found_step = rule.next_step if outcome.status == "found" else ""
    return Finding(
        code=rule.code,
        name=rule.name,
        status=outcome.status,
        severity=rule.severity,
        rule=rule.words,
        figure=outcome.figure,
        sentence=outcome.sentence,
        next_step=found_step if outcome.next_step is None else outcome.next_step,
        anchor=rule.anchor,
        limits=dict(rule.limits),
        records=ids,
        count=count,
    )
