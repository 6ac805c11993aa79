"""No advice that cannot be followed: what a message recommends exists in the function or command that it names at its start.

Here every text of the source is read with everybody who can say it; `test_advice_provoked.py` makes the errors happen.
"""

import ast
import functools
import re
from dataclasses import dataclass, replace

import pytest

from advised import FILLED, commands, public, wrong_advice
from noshadow import errors
from owners import RAISED, SPOKEN, owner_expression, owners, speakers
from source_tree import Scope, callee, mentions, program, reached

# Owners that are not public: functions for our benchmarks (`noshadow._lood`), parts of public things whose errors say what is broken in
# them, functions of `noshadow.views` for whoever adds a family, and "", whose errors are caught where they are raised.
INTERNAL = {
    *("left_out_outputs", "out_of_bag_outputs", "register_reader", "stage_outputs"),
    *("kernel_flatness", "least_stationary_record", "likelihood_ratio_auc", "likelihood_ratio_tpr", "query_lood", "self_query_gradient"),
    *("fitted_curve", "TnrCurve", "collect_outputs", "weights_sha256", "load_loss_traces", "loss_trace_iqr", "collate_fn", ""),
}
# (module, owner) → arguments that the walk thinks `owner` advises there, and why it cannot.
NEVER = {
    ("noshadow.scores.network.problem", "generalized_leverage"): {"outputs"},  # always asks for all outputs, which need no hard labels
    ("noshadow.scores.network.problem", "network_influence"): {"outputs"},
    ("noshadow.views.chosen_output", "audit_signals"): {"output"},  # takes arrays: no model runs
    ("noshadow.views.head", "audit_signals"): {"layer"},
}
# Functions that raise the message of another again, with a word on where.
SAYS_AGAIN = {"head"}
# Only such texts can advise; who says the others need not be followed.
MAY_ADVISE = re.compile(r"[=_(]|--|\bns\.|noshadow|[Pp]ass |[Rr]aise |[Ll]ower |[Ss]et ")
# What these say, an audit says.
SPEAKS_FOR = {"findings": "audit", "sequence_scores": "audit"}


@dataclass(frozen=True)
class Text:
    """A text of the source as one of its speakers says it."""

    place: str
    owner: str
    said: str


@dataclass(frozen=True)
class Around:
    """What stands around a string: its function, the call that says it, the constant that it is, and tests of the owner."""

    scope: Scope
    call: ast.Call | None = None
    constant: str = ""
    tests: tuple = ()


def _docstrings(tree):
    holders = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body)
    return {id(node.body[0].value) for node in holders if isinstance(node.body[0], ast.Expr)}


def _strings(node, around, inner, skipped):
    """All strings with a space in them under a node, each with what stands around it."""
    for child in ast.iter_child_nodes(node):
        here = replace(around, scope=inner[id(child)]) if id(child) in inner else around
        if isinstance(child, ast.Call) and callee(child) in SPOKEN | RAISED:
            here = replace(here, call=child)
        if isinstance(child, ast.Assign) and here.scope.outer is None and isinstance(child.targets[0], ast.Name):
            here = replace(here, constant=child.targets[0].id)
        if isinstance(node, ast.IfExp) and child is not node.test and ast.unparse(node.test).startswith("owner "):
            here = replace(here, tests=(*here.tests, (ast.unparse(node.test), child is node.body)))
        part = isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)
        if isinstance(child, ast.JoinedStr | ast.Constant) and id(child) not in skipped and not part and " " in _said(child, ""):
            yield child, here
        yield from _strings(child, here, inner, skipped)


def _said(node, owner):
    """The text with what `errors` puts in for this owner; other values are checked where they are written, and are FILLED here."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = []
    for part in node.values:
        value = part.value
        if isinstance(value, ast.Call) and callee(value) in {"advice", "its_place"}:
            parts.append(getattr(errors, callee(value))(owner, *(one.value for one in value.args[1:])))
        else:
            parts.append(value if isinstance(part, ast.Constant) else FILLED)
    return "".join(parts)


@functools.cache
def texts():
    """Every text of the source, once for each owner that can say it; those that nobody says to a caller have the owner ""."""
    made, found = program(), []
    inner = {id(scope.node): scope for scope in made.functions.values()}
    for module, top in made.modules.items():
        if module == "noshadow.errors":
            continue  # its templates are filled in below, for every owner
        for node, around in (
            one for one in _strings(top.node, Around(top), inner, _docstrings(top.node)) if MAY_ADVISE.search(_said(one[0], "audit"))
        ):
            said_by = {SPEAKS_FOR.get(owner, owner) for owner in _speakers(around) or {""} if _can_say(owner, around)}
            found += [Text(f"{module}:{node.lineno}", owner, _said(node, owner)) for owner in said_by]
    return found


@functools.cache
def _speakers(around):
    spoken = None if around.call is None else owner_expression(around.call)
    if spoken is not None:
        return owners(around.scope, spoken)
    if around.scope.module.startswith("noshadow._findings"):
        return frozenset({"findings"})
    if around.scope.outer is not None:
        return speakers(around.scope)
    using = mentions(around.scope.module, around.constant) if around.constant else []
    return frozenset(owner for one in using for owner in speakers(one) if one in reached(owner))


def _can_say(owner, around):
    """Whether an owner's function comes to where the text is said."""
    if any(bool(eval(test, {"owner": owner})) != expected for test, expected in around.tests):
        return False
    return owner not in public() or around.scope.outer is None or around.scope in reached(owner)


def _wrong(text):
    allowed = {f"{text.owner} has no argument {name}" for name in NEVER.get((text.place.partition(":")[0], text.owner), ())}
    return [problem for problem in wrong_advice(text.owner, text.said) if problem not in allowed]


def _of_public():
    return [text for text in texts() if text.owner in public() or text.owner in commands()]


def test_whatever_a_text_advises_exists_where_it_is_said():
    wrong = {(text.place, problem, text.said) for text in _of_public() for problem in _wrong(text)}
    assert not wrong, "\n".join(f"{place}: {problem}: {said}" for place, problem, said in sorted(wrong))


def test_the_walk_hears_who_is_known_to_speak():
    """What the walk must find, so that it cannot pass by finding nothing."""
    heard = {(text.owner, text.said) for text in texts()}
    for owner in ("audit", "audit_signals", "record_scores", "train_references", "LossTraces.record", "network_influence"):
        assert (owner, "Pass task='binary' or task='regression'.") in heard, owner
    assert ("lood_scores", "Check the kernel, or raise the noise if this is rounding.") in heard
    assert not any(owner == "lood" and "task=" in said for owner, said in heard)
    looped = {owner: said for owner, said in heard if "to go record by record" in said and "torch.func" in said}
    assert "score_options={'unvectorised': 'loop'}" in looped["audit"] and "unvectorised='loop'" in looped["network_influence"]
    assert len(_of_public()) > 1000


def test_every_exception_of_the_source_that_cannot_advise_is_still_needed():
    found = {}
    for text in _of_public():
        for problem in wrong_advice(text.owner, text.said):
            place = text.place.partition(":")[0], text.owner
            found.setdefault(place, set()).add(problem.rpartition(" ")[2])
    assert found == NEVER


def test_every_message_names_a_public_function_or_a_command():
    made = program()
    named = {}
    for scope, call in (one for calls in made.calls.values() for one in calls if speaks(one[1]) and one[0].name not in SAYS_AGAIN):
        for owner in owners(scope, owner_expression(call)):
            named.setdefault(owner, f"{scope.module}:{call.lineno}")
    unknown = set(named) - {*public(), *commands(), *SPEAKS_FOR, *INTERNAL}
    assert not unknown, {name: named[name] for name in unknown}
    assert set(named) >= INTERNAL - {"fitted_curve"}


def speaks(call):
    return callee(call) == "refuse" or (callee(call) in RAISED - {"NotApplicable"} and owner_expression(call) is not None)


@pytest.mark.parametrize(
    ("owner", "said", "problem"),
    [
        ("audit", "Pass unvectorised='loop'.", "audit has no argument unvectorised"),
        ("audit", "Raise max_memory.", "audit has no argument max_memory"),
        ("lood_bounds", "Raise the damping.", "lood_bounds has no argument damping"),
        ("lood", "See noshadow.lood.lood_bounds.", "noshadow.lood.lood_bounds is not public"),
        ("lood", "See ns.posterior.", "noshadow.posterior is not public"),
        ("lood", "Make it with posterior_of.", "posterior_of is not public"),
        ("gate", "Pass --min-tnr.", "no --min-tnr in gate"),
        ("audit", "Run noshadow gate my-audit --seed 3.", "no --seed in noshadow gate"),
        ("audit", "Run noshadow check first.", "noshadow check first is no command"),
        ("audit", "Run pip install noshadow[rays].", "there is no extra rays"),
        ("audit", "Take record_scores(layers='all').", "record_scores has no argument layers"),
        ("audit", "Pass score_options={'layers': 'all'}.", "layers is no option of the scores"),
        ("somebody", "Pass x=1.", "somebody is neither a public function nor a command"),
    ],
)
def test_advice_that_cannot_be_followed_is_found(owner, said, problem):
    assert problem in wrong_advice(owner, said)


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("audit", f"Pass {errors.advice('audit', 'unvectorised', 'loop')}, or raise max_memory{errors.its_place('audit', 'max_memory')}."),
        ("record_scores", f"Raise max_memory{errors.its_place('record_scores', 'max_memory')}."),
        ("LossTraces.record", "Pass task='binary'."),
        ("audit", "Read a folder with noshadow.load first, or run noshadow reference score references --audit my-audit."),
        ("gate", "Pass --max-tnr, --max-auc or --max-predicted-tpr."),
    ],
)
def test_advice_that_can_be_followed_is_not(owner, said):
    assert wrong_advice(owner, said) == []
