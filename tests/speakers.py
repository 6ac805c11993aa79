"""Who speaks: the public functions and commands that a text of src/noshadow can name at its start, found by following calls.

A public function is named in all that runs below it. A command, and a function that runs the user's code, is named until a public
function is called. Methods are known by the class that annotations and constructors tell, else by their name alone.
"""

import ast
import functools
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from source_tree import callee, home, kinds, program, words_of

ROOMS = ("attacks", "canaries", "metrics", "reference", "theory")
SPOKEN = {"refuse", "said"}
CONSTRUCTORS = ("__init__", "__post_init__")
# Blocks in which a public function that is called names itself.
OPEN = {"open_to_names", "users_code"}
# Names of methods that say nothing about whose they are.
ANYBODYS = frozenset().union(*map(dir, (list, dict, str, set, tuple, Path, np.ndarray, torch.Tensor, torch.nn.Module, pd.DataFrame)))


@functools.cache
def named():
    """Name as messages say it → functions that carry it: those under `named_in_errors` or `named_as`, and commands."""
    found = {}
    for scope in program().functions.values():
        for mark in scope.node.decorator_list:
            if isinstance(mark, ast.Name) and mark.id == "named_in_errors":
                own = "" if scope.name in CONSTRUCTORS else scope.name
                found.setdefault(".".join(filter(None, (scope.inside, own))), []).append(scope)
            elif isinstance(mark, ast.Call) and callee(mark) in {"named_as", "named_command"}:
                found.setdefault(mark.args[0].value, []).append(scope)
    return found


def is_public(scope):
    """Whether a function is named even where a command or the user's code calls it."""
    marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in scope.node.decorator_list)
    return any(isinstance(mark, ast.Name) and mark.id in {"named_in_errors", "named_as"} for mark in marks)


@functools.cache
def reached(name):
    """All functions that can run below a named function while messages start with its name."""
    found = set()
    waiting = [(scope, is_public(scope)) for scope in named()[name]]
    while waiting:
        one = waiting.pop()
        if one not in found and (one[0], True) not in found:
            found.add(one)
            scope, kept = one
            for below, in_the_open in _below(scope):
                still = kept and not in_the_open
                if still or not is_public(below):
                    waiting.append((below, still))
    return frozenset(scope for scope, _ in found)


@functools.cache
def speakers(scope):
    """Names that a message of a function can start with."""
    return frozenset(name for name in named() if scope in reached(name))


def carriers(name):
    """The function of a public name ("lood_bounds", "LossTraces.record"), or the constructor of a class."""
    first, _, method = name.partition(".")
    made = program()
    if method:
        return [one for one in [made.functions.get((first, method))] if one is not None]
    own = [scope for scope in _behind("noshadow", first) if scope.name in (first, *CONSTRUCTORS)]
    return own or [scope for room in ROOMS for scope in _behind(f"noshadow.{room}", first)]


@functools.cache
def below(scope):
    """All functions that can run below a function, whoever is named."""
    found, waiting = set(), [scope]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [used for used, _ in _below(one)]
    return found


@functools.cache
def _below(scope):
    """Functions that a function uses, each with whether it does so where the user's code may run."""
    found, waiting = set(), [(node, False) for node in _ran(scope.node)]
    while waiting:
        node, in_the_open = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            waiting += [(one, in_the_open) for one in _ran(node)]
            continue
        found |= {(below, in_the_open) for below in _used(scope, node)}
        if isinstance(node, ast.Call) and _is_table(callee(node)):
            waiting += [(one, in_the_open) for one in node.args]
            continue
        if isinstance(node, ast.With) and any(
            isinstance(one, ast.Call) and callee(one) in OPEN for item in node.items for one in ast.walk(item)
        ):
            waiting += [(one.context_expr, in_the_open) for one in node.items] + [(one, True) for one in node.body]
        elif isinstance(node, ast.AnnAssign):
            waiting += [(node.value, in_the_open)] if node.value is not None else []
        else:
            waiting += [(one, in_the_open) for one in ast.iter_child_nodes(node)]
    return frozenset(found)


def _ran(function):
    """What runs of a definition: its body and its defaults, not its annotations."""
    return [*function.body, *function.args.defaults, *filter(None, function.args.kw_defaults), *function.decorator_list]


def _used(scope, node):
    made = program()
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return _behind(scope.module, node.id)
    if not isinstance(node, ast.Attribute):
        return set()
    held = made.imports[scope.module].get(node.value.id, ()) if isinstance(node.value, ast.Name) else ()
    if ".".join(held) in made.modules:
        return _behind(".".join(held), node.attr)
    return _methods(node.attr, frozenset(kinds(scope, node.value)))


@functools.cache
def _behind(module, name, seen=()):
    """Functions behind a name: itself, the constructor of a class, or all that a constant is made of."""
    made, place = program(), home(module, name)
    if place is None or place in seen:
        return set()
    if place in made.functions:
        return {made.functions[place]}
    if place[1] in made.classes:
        return {scope for one in (place[1], *_bases(place[1])) for key in CONSTRUCTORS if (scope := made.functions.get((one, key)))}
    top = made.modules.get(place[0])
    values = [] if top is None else top.words.get(place[1], [])
    return {
        one
        for value in values
        for node in _walked(value)
        for one in (_behind(place[0], node.id, (*seen, place)) if isinstance(node, ast.Name) else _used(top, node))
    }


def _walked(node):
    """All nodes of an expression, but for what a table of functions is made of: each of these is used by its field's name."""
    yield node
    inner = node.args if isinstance(node, ast.Call) and _is_table(callee(node)) else ast.iter_child_nodes(node)
    for one in inner:
        yield from _walked(one)


@functools.cache
def _is_table(name):
    """Whether a class holds functions, such as a reader of a model family."""
    return any("Callable" in words_of(one) for one in program().classes.get(name, {}).values())


@functools.cache
def _methods(name, held):
    """Methods of a name, of the classes that are held or, where nothing tells, of all."""
    made = program()
    ours = {one for one in held if one in made.classes}
    if not ours or any("Protocol" in made.bases[one] for one in ours):
        return set() if not ours and (held or name in ANYBODYS) else set(made.methods.get(name, []))
    family = ours | {above for one in ours for above in _bases(one)} | {one for one in made.bases if _bases(one) & ours}
    handed = [(scope, value) for kind, scope, value in made.handed.get(name, []) if kind in family and _is_table(kind)]
    handed += [(made.modules[module], value) for module, kind, value in made.defaults.get(name, []) if kind in family and _is_table(kind)]
    given = {one for scope, value in handed for node in ast.walk(value) for one in _used(scope, node)}
    return given | {made.functions[one, name] for one in family if (one, name) in made.functions}


@functools.cache
def _bases(name):
    above = program().bases.get(name, set())
    return frozenset(above).union(*(_bases(one) for one in above if one != name))
