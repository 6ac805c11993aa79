"""Who speaks: the functions that a message of src/noshadow can name at its start, found by following `owner` through every call.

The owner of a message is a literal, a constant, an argument or a field; arguments and fields are followed to all calls that fill
them. What cannot be followed is UNKNOWN, and the tests refuse it.
"""

import ast
import functools

from source_tree import HANDING, callee, home, mentions, program, target_of

UNKNOWN = "?"
RAISED = {"InputError", "NotApplicable", "NumericalError"}
SPOKEN = {"refuse", "advice", "its_place"}


@functools.cache
def owners(scope, expression):
    """Literals that an expression for an owner can be."""
    found, seen, waiting = set(), set(), [(scope, expression)]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            literals, further = _step(*one)
            found |= literals
            waiting += further
    return frozenset(found)


@functools.cache
def _step(scope, node):
    """The literals that an expression is, and the expressions, each in its scope, that it takes its value from."""
    if isinstance(node, ast.Constant):
        return ({node.value} if isinstance(node.value, str) else set()), []
    if isinstance(node, ast.IfExp):
        return set(), [(scope, node.body), (scope, node.orelse)]
    if isinstance(node, ast.Name):
        return _named(scope, node.id)
    if isinstance(node, ast.Attribute) and node.attr == "owner":
        kinds = [name for name in _kinds(scope, node.value) if name in program().owned]
        found = [one for name in kinds for one in _field(name)]
        return (set() if found else {UNKNOWN}), found
    return {UNKNOWN}, []


def _named(scope, name):
    while scope is not None:
        if any(one.arg == name for one in scope.parameters):
            return _argument(scope, name)
        if name in scope.words:
            return set(), [(scope, value) for value in scope.words[name]]
        if scope.outer is None:
            place = home(scope.module, name)
            return ({UNKNOWN}, []) if place in {None, (scope.module, name)} else _named(program().modules[place[0]], place[1])
        scope = scope.outer
    return {UNKNOWN}, []


@functools.cache
def _argument(scope, name):
    """What all calls of a function give one of its arguments."""
    position = [one.arg for one in scope.parameters].index(name) - bool(scope.inside)
    default, module = scope.default(name), program().modules[scope.module]
    literals, further = set(), [(module, default)] if default is not None and _is_public(scope) else []
    for caller, call in _calls_of(scope):
        given = _given(caller, call, name, position)
        if given is not None:
            further.append(given)
        elif default is not None:
            further.append((module, default))
        else:
            literals.add(UNKNOWN)
    return literals, further


def _is_public(scope):
    place = program().modules["noshadow"].words["_HOMES"][0]
    return any(key.value == scope.name for key in place.keys)


def _given(caller, call, name, position):
    """The expression, in its scope, that a call gives for an argument: by name, by place, or in a dictionary after **."""
    for word in call.keywords:
        if word.arg == name:
            return caller, word.value
        if word.arg is None and (found := _spread(caller, word.value, name)) is not None:
            return found
    places = call.args[1:] if callee(call) in HANDING else call.args
    starred = any(isinstance(one, ast.Starred) for one in places[: position + 1])
    return (caller, places[position]) if 0 <= position < len(places) and not starred else None


def _spread(scope, node, name):
    """The value under a key of a dictionary that is written out in the function."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                return scope, value
    if isinstance(node, ast.Call) and callee(node) == "dict":
        return next(((scope, word.value) for word in node.keywords if word.arg == name), None)
    if isinstance(node, ast.Name):
        while scope is not None:
            found = (_spread(scope, value, name) for value in scope.words.get(node.id, []))
            if (first := next(filter(None, found), None)) is not None:
                return first
            scope = scope.outer
    return None


@functools.cache
def _calls_of(scope):
    """Calls of a function, by its name as the caller's module knows it; a method is known by its name alone."""
    name = scope.inside if scope.name == "__init__" else scope.name
    return [(caller, call) for caller, call in program().calls.get(name, []) if _calls(caller, target_of(call), scope)]


def _calls(caller, target, scope):
    if scope.inside:
        return isinstance(target, ast.Attribute) != (scope.name == "__init__")
    if isinstance(target, ast.Attribute):
        held = program().imports[caller.module].get(target.value.id) if isinstance(target.value, ast.Name) else None
        return held is not None and home(".".join(held), scope.name) == (scope.module, scope.name)
    if scope.outer.outer is not None:
        return caller.module == scope.module
    return home(caller.module, scope.name) == (scope.module, scope.name)


def _kinds(scope, node):
    """Classes that an expression may be of: from annotations, constructors and annotated results."""
    if isinstance(node, ast.Attribute):
        held = _kinds(scope, node.value)
        assigned = [one for name in held for one in program().attributes.get((name, node.attr), [])]
        stated = {word for name in held for word in _words(program().classes.get(name, {}).get(node.attr))}
        return stated | {word for one in assigned for word in _kinds(*one)}
    if isinstance(node, ast.Call):
        made = home(scope.module, callee(node)) if isinstance(node.func, ast.Name) else None
        function = program().functions.get(made)
        return set(_words(function.node.returns)) if function else {callee(node)}
    if not isinstance(node, ast.Name):
        return set()
    while scope is not None:
        if node.id == "self" and scope.inside:
            return {scope.inside}
        for one in scope.parameters:
            if one.arg == node.id:
                return set(_words(one.annotation))
        if node.id in scope.words:
            return {word for value in scope.words[node.id] for word in _kinds(scope, value)}
        scope = scope.outer
    return set()


def _words(annotation):
    if annotation is None:
        return []
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval")
    return [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]


@functools.cache
def _field(name):
    """What every construction of a class gives its field `owner`."""
    found = []
    for scope, position, default in program().owned[name]:
        calls = [(caller, call) for caller, call in program().calls.get(name, []) if _origin(caller.module, name) == scope.module]
        found += [_given(caller, call, "owner", position) or (scope, default) for caller, call in calls]
    return [one for one in found if one[1] is not None]


def _origin(module, name):
    """The module that a name comes from, through all that hand it on."""
    while name in program().imports.get(module, {}):
        module, name = program().imports[module][name]
    return module


@functools.cache
def speakers(scope):
    """All owners that a function can speak for: those it names, else those of the functions that mention it."""
    found, seen, waiting = set(), set(), [scope]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            named = _named_owners(one)
            found |= named
            waiting += [] if named else mentions(one.module, one.name)
    return frozenset(found)


@functools.cache
def _named_owners(scope):
    named = set()
    for node in ast.walk(scope.node):
        handed = isinstance(node, ast.Name) and node.id in {"owner", "OWNER"} and isinstance(node.ctx, ast.Load)
        if handed or (isinstance(node, ast.Attribute) and node.attr == "owner"):
            named |= owners(scope, node)
        elif isinstance(node, ast.Call) and (spoken := owner_expression(node)) is not None:
            named |= owners(scope, spoken)
    return named


def owner_expression(call):
    """The expression for the owner in a call that speaks to the user; None in any other call."""
    name = callee(call)
    if name in SPOKEN and call.args:
        return call.args[0]
    if name in RAISED and call.args and isinstance(call.args[0], ast.JoinedStr):
        first = call.args[0].values[0]
        return first.value if isinstance(first, ast.FormattedValue) else ast.Constant(first.value.partition(":")[0])
    if name in RAISED and call.args and isinstance(call.args[0], ast.Constant) and ": " in call.args[0].value:
        return ast.Constant(call.args[0].value.partition(":")[0])
    return None
