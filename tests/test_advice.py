"""No advice that cannot be followed: what a message recommends exists in the function or command that it names at its start.

Here every text of the source is read with everybody who can say it; `test_advice_provoked.py` makes the errors happen.
"""

import ast
import functools
import importlib
import re
from dataclasses import dataclass, replace

import pytest

from advised import FILLED, commands, public, wrong_advice
from noshadow import errors
from source_tree import Scope, callee, mentions, program
from speakers import SPOKEN, below, carriers, is_public, named, reached, speakers

# Named, and not public: functions for our benchmarks (`noshadow._lood`), parts of public things whose errors say what is broken in them,
# and functions of `noshadow.views` for whoever adds a family.
INTERNAL = {
    *("out_of_bag_outputs", "register_reader", "stage_outputs", "collect_outputs", "load_loss_traces", "loss_trace_iqr", "TnrCurve"),
    "left_out_outputs",
    *(
        "flatness_bound",
        "kernel_flatness",
        "least_stationary_record",
        "likelihood_ratio_auc",
        "likelihood_ratio_tpr",
        "query_lood",
        "self_query_gradient",
    ),
    *("posterior_of", "early_trace_mean"),
}
# (module, owner) → arguments that the walk thinks `owner` advises there, and why it cannot.
NEVER = {
    ("noshadow.scores.network.problem", "generalized_leverage"): {"outputs"},  # always asks for all outputs, which need no hard labels
    ("noshadow.scores.network.problem", "network_influence"): {"outputs"},
    ("noshadow.views.chosen_output", "audit_signals"): {"output"},  # takes arrays: no model runs
    ("noshadow.views.head", "audit_signals"): {"layer"},
    ("noshadow.views.chosen_output", "sharded_record_scores"): {"output"},  # its workers carry out its own jobs, which read arrays
    ("noshadow.views.head", "sharded_record_scores"): {"layer"},
    ("noshadow.views.head", "train_references"): {"layer"},  # reads outputs alone, which need no head
    ("noshadow.views.torch", "LossTraces.record"): {"layers"},  # why there are no scores is said by an audit alone
    ("noshadow.views.torch", "LossTraces.lightning_callback"): {"layers"},
    ("noshadow.views.torch", "LossTraces.transformers_callback"): {"layers"},
    ("noshadow.attacks.success", "ground_truth"): {"fprs"},  # hands on a sequence
    ("noshadow.attacks.success", "with_ground_truth"): {"fprs"},
    ("noshadow.checks", "ground_truth"): {"task"},  # its references were stored with one task that fits their outputs
    ("noshadow.checks", "with_ground_truth"): {"task"},
    ("noshadow.tail.pareto", "audit"): {"scale"},  # a model's risk asks on the scale of losses
    ("noshadow.tail.pareto", "audit_signals"): {"scale"},
    ("noshadow.tail.pareto", "model_risk"): {"scale"},
    ("noshadow.tail.risk", "audit"): {"scores"},  # takes the shipped calibration, which reads losses alone
    ("noshadow.tail.risk", "audit_signals"): {"scores"},
    ("noshadow._lood.networks", "lood_audit"): {"architecture"},  # reads the shape off x, or asks for it itself
    ("noshadow._exposure.odd_rows", "audit"): {"margins"},  # hands on margins of its own making
    ("noshadow._exposure.odd_rows", "audit_signals"): {"margins"},
    ("noshadow._exposure.odd_rows", "reference score"): {"margins"},  # reads margins that the set recorded
    ("noshadow.attacks.lira", "audit"): {"floor", "variance", "variant"},  # attacks with four models by one spread; what fails is a reason
    ("noshadow.attacks.moments", "audit"): {"floor", "variance"},
    ("noshadow.reference.pool", "audit"): {"pool"},  # takes the pool "train" itself where there are no test records
    ("noshadow.reference.queries", "audit"): {"queries"},  # asks none
    ("noshadow.reference.recipe", "audit"): {"betas", "momentum"},  # stops a Recipe that was checked when it was made
    ("noshadow.reference.schedules", "audit"): {"schedule"},
    ("noshadow.reference.training", "audit"): {"design"},  # gives no fraction with folds
}
# Only such texts can advise; who says the others need not be followed.
MAY_ADVISE = re.compile(r"[=_(]|--|\bns\.|noshadow|[Pp]ass |[Rr]aise |[Ll]ower |[Ss]et ")


@dataclass(frozen=True)
class Text:
    """A text of the source as one of its speakers says it."""

    place: str
    owner: str
    said: str


@dataclass(frozen=True)
class Around:
    """What stands around a string: its function, the constant that it is, and tests of who was called."""

    scope: Scope
    constant: str = ""
    tests: tuple = ()


def _docstrings(tree):
    holders = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body)
    return {id(node.body[0].value) for node in holders if isinstance(node.body[0], ast.Expr)}


def _strings(node, around, inner, skipped):
    """All strings with a space in them under a node, each with what stands around it."""
    for child in ast.iter_child_nodes(node):
        here = replace(around, scope=inner[id(child)]) if id(child) in inner else around
        if isinstance(child, ast.Assign) and here.scope.outer is None and isinstance(child.targets[0], ast.Name):
            here = replace(here, constant=child.targets[0].id)
        if isinstance(node, ast.IfExp) and child is not node.test and "called()" in ast.unparse(node.test):
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
            with errors.speaking_for(owner):
                parts.append(getattr(errors, callee(value))(*(getattr(one, "value", FILLED) for one in value.args)))
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
            said_by = {owner for owner in _speakers(around) or {""} if _can_say(owner, around)}
            found += [Text(f"{module}:{node.lineno}", owner, _said(node, owner)) for owner in said_by]
    return found


@functools.cache
def _speakers(around):
    """Who says a text: whoever reaches its function, or a function that uses the constant; an audit says its findings."""
    if around.scope.module.startswith("noshadow._findings"):
        return frozenset({"audit"})
    if around.scope.outer is not None:
        return speakers(around.scope)
    using = mentions(around.scope.module, around.constant) if around.constant else []
    return frozenset(owner for one in using for owner in speakers(one))


def _can_say(owner, around):
    """Whether an owner passes the tests of who was called that stand around a text."""
    held = vars(importlib.import_module(around.scope.module))
    return all(bool(eval(test, held | {"called": lambda: owner})) == expected for test, expected in around.tests)


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
    assert set(named()) - {*public(), *commands()} == INTERNAL
    nameless = {f"{one.module}:{one.name}" for one in program().functions.values() if speaks(one) and not speakers(one)}
    assert not nameless - {"noshadow.errors:refuse", "noshadow.errors:said"}


def test_every_public_function_that_can_refuse_is_named():
    """A function without the name would start its messages with an argument, or with the function that it calls."""
    refusing = {one for one in program().functions.values() if speaks(one)}
    nobodys = [one for name in public() for one in carriers(name) if not is_public(one) and refusing & below(one)]
    assert not nobodys, [(one.module, one.inside, one.name) for one in nobodys]
    assert set(commands()) <= set(named())


def test_the_walk_stops_where_a_command_calls_a_public_function_and_where_users_code_does():
    assert not any(one.module == "noshadow.views.head" for one in reached("gate") | reached("reference train"))
    assert any(one.module == "noshadow.cli.targets" for one in reached("reference train"))
    trained = {(one.inside, one.name) for one in reached("train_references")}
    assert ("Recipe", "train_many") not in trained and ("", "_models") in trained


def speaks(scope):
    return any(isinstance(node, ast.Call) and callee(node) in SPOKEN for node in ast.walk(scope.node))


@pytest.mark.parametrize(
    ("owner", "said", "problem"),
    [
        ("audit", "Pass unvectorised='loop'.", "audit has no argument unvectorised"),
        ("audit", "Raise max_memory.", "audit has no argument max_memory"),
        ("ground_truth", "Pass floor=….", "ground_truth has no argument floor"),
        ("ground_truth", "Pass options=AttackOptions(level=…).", "AttackOptions has no argument level"),
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


def told(owner, function, *given):
    with errors.speaking_for(owner):
        return function(*given)


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("audit", f"Pass {told('audit', errors.advice, 'unvectorised', 'loop')}."),
        ("audit", f"Raise max_memory{told('audit', errors.its_place, 'max_memory')}."),
        ("ground_truth", f"Pass {told('ground_truth', errors.advice, 'floor', ...)}."),
        ("record_scores", f"Raise max_memory{told('record_scores', errors.its_place, 'max_memory')}."),
        ("LossTraces.record", "Pass task='binary'."),
        ("audit", "Read a folder with noshadow.load first, or run noshadow reference score references --audit my-audit."),
        ("gate", "Pass --max-tnr, --max-auc or --max-predicted-tpr."),
    ],
)
def test_advice_that_can_be_followed_is_not(owner, said):
    assert wrong_advice(owner, said) == []
