"""The syntax trees of src/noshadow as the tests of its messages read them: functions, classes, imports, calls and who reaches whom."""

import ast
import functools
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "noshadow"
ROOMS = ("noshadow", "noshadow.attacks", "noshadow.metrics", "noshadow.reference", "noshadow.theory")
# Calls that call what they are given.
HANDING = {"partial", "delayed"}


@dataclass(eq=False)
class Scope:
    """A function (or a module, where `node` is the module) with the scope around it."""

    module: str
    name: str
    node: ast.AST
    outer: "Scope | None" = None
    inside: str = ""  # the class whose method it is
    words: dict = field(default_factory=dict)  # local name → expressions assigned to it

    @property
    def parameters(self):
        if not isinstance(self.node, ast.FunctionDef):
            return []
        given = self.node.args
        return [*given.posonlyargs, *given.args, *given.kwonlyargs]

    def default(self, name):
        given = self.node.args
        places = [*given.posonlyargs, *given.args]
        padded = [None] * (len(places) - len(given.defaults)) + given.defaults
        both = dict(zip((one.arg for one in places), padded, strict=True))
        return (both | dict(zip((one.arg for one in given.kwonlyargs), given.kw_defaults, strict=True))).get(name)


@dataclass
class Program:
    """All scopes, classes with their fields, and imports of the package."""

    modules: dict
    functions: dict  # (module, name) → Scope; methods by (class, name)
    methods: dict  # name → Scopes
    classes: dict  # class → field → annotation
    owned: dict  # class with a field `owner` → (scope, place of the field, its default) of all of that name
    imports: dict  # module → local name → (module, name)
    attributes: dict  # (class, attribute) → (Scope, expression) that methods assign to it
    calls: dict  # name of what is called → (Scope, ast.Call)


@functools.cache
def program():
    found = Program({}, {}, {}, {}, {}, {}, {}, {})
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text())
        found.modules[module] = Scope(module, "", tree)
        found.imports[module] = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("noshadow")
            for alias in node.names
        }
        _read(tree, found.modules[module], "", found)
    return found


def _read(node, scope, inside, found):
    """Every scope, class, assignment and call under a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            held = {
                one.target.id: one.annotation for one in child.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            found.classes.setdefault(child.name, {}).update(held)
            if "owner" in held:
                stated = [one for one in child.body if isinstance(one, ast.AnnAssign) and one.target.id == "owner"]
                found.owned.setdefault(child.name, []).append((scope, list(held).index("owner"), stated[0].value))
            _read(child, scope, child.name, found)
        elif isinstance(child, ast.FunctionDef):
            made = Scope(scope.module, child.name, child, scope, inside)
            if inside:
                found.functions[inside, child.name] = made
                found.methods.setdefault(child.name, []).append(made)
            else:
                found.functions.setdefault((scope.module, child.name), made)
            for outside in (*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)):
                _read(ast.Expr(outside), scope, inside, found)
            for statement in child.body:
                _read(ast.Module([statement], []), made, "", found)
        else:
            if isinstance(child, ast.Assign):
                for target in child.targets:
                    _assign(target, child.value, scope, found)
            elif isinstance(child, ast.AnnAssign | ast.NamedExpr) and child.value is not None:
                _assign(child.target, child.value, scope, found)
            elif isinstance(child, ast.Call):
                target = target_of(child)
                name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
                found.calls.setdefault(name, []).append((scope, child))
            _read(child, scope, inside, found)


def _assign(target, value, scope, found):
    if isinstance(target, ast.Name):
        scope.words.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        found.attributes.setdefault((scope.inside, target.attr), []).append((scope, value))
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, part in zip(target.elts, value.elts, strict=True):
            _assign(one, part, scope, found)


@functools.cache
def home(module, name, seen=()):
    """(module, name) where a name that a module uses is defined; None where it is not ours."""
    made = program()
    if (module, name) in made.functions or name in made.modules.get(module, Scope("", "", None)).words or (module, name) in seen:
        return module, name
    if name in made.imports.get(module, {}):
        return home(*made.imports[module][name], seen=(*seen, (module, name)))
    return (module, name) if name in made.classes else None


def target_of(call):
    """What a call calls; `partial` and `delayed` call what they are given."""
    return call.args[0] if callee(call) in HANDING and call.args else call.func


def callee(call):
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


@functools.cache
def reached(name):
    """All functions that can run below a public callable ("lood_bounds", "LossTraces.record") or, for any other name, a command."""
    made, public = program(), [module for module in program().modules if module in ROOMS]
    first, _, method = name.partition(".")
    waiting = [made.functions[first, method]] if (first, method) in made.functions else []
    waiting += _methods_of().get(first, []) if not method else []
    for module in public if not waiting else ():
        waiting += [scope for scope in [made.functions.get(home(module, name))] if scope is not None]
    waiting = waiting or [scope for scope in made.functions.values() if scope.module.startswith("noshadow.cli")]
    found = set()
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _below(one)
    return found


@functools.cache
def _methods_of():
    found = {}
    for (holder, _), scope in program().functions.items():
        if scope.inside:
            found.setdefault(holder, []).append(scope)
    return found


@functools.cache
def _below(scope):
    """Functions that a function names, methods of classes that it names, and methods that it calls by their name."""
    made, found = program(), []
    nodes = list(ast.walk(scope.node))
    for name in {node.id for node in nodes if isinstance(node, ast.Name)}:
        place = home(scope.module, name)
        found += [made.functions[place]] if place in made.functions else _methods_of().get(name, [])
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += made.methods.get(node.func.attr, [])
            held = made.imports[scope.module].get(node.func.value.id) if isinstance(node.func.value, ast.Name) else None
            found += [made.functions[place]] if held and (place := home(".".join(held), node.func.attr)) in made.functions else []
    return found


@functools.cache
def mentions(module, name):
    """Functions that use a name of a module."""
    ours = (module, name) in program().functions or name in program().modules[module].words
    users = _users().get(name, [])
    return [scope for scope in users if scope.name != name and (not ours or home(scope.module, name) == (module, name))]


@functools.cache
def _users():
    """Name → functions in which it stands."""
    found = {}
    for scope in program().functions.values():
        inside = [node for statement in scope.node.body for node in ast.walk(statement)]
        names = {node.id for node in inside if isinstance(node, ast.Name)} | {
            node.attr for node in inside if isinstance(node, ast.Attribute)
        }
        for name in names:
            found.setdefault(name, []).append(scope)
    return found
