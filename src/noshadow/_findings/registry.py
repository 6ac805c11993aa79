"""All rules in the order of their codes, gathered from the files that declare them."""

from noshadow._findings import base_checks, input_checks, model_checks, record_checks, tree_checks, trust_checks
from noshadow._findings.rule import Rule

_HOMES = (model_checks, base_checks, record_checks, tree_checks, trust_checks, input_checks)
_DECLARED = (value for home in _HOMES for value in vars(home).values() if isinstance(value, Rule))
RULES = tuple(sorted(_DECLARED, key=lambda declared: declared.code))
UNDERMINED_BELOW = {declared.code: declared.undermines_below for declared in RULES if declared.undermines}
UNDERMINING = frozenset(declared.code for declared in RULES if declared.undermines)
