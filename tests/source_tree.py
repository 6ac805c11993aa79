"""The syntax trees of src/noshadow as the tests of its messages read them: functions, classes and imports."""

import ast
import functools
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "noshadow"


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


@dataclass
class Program:
    """All scopes, classes with their fields, and imports of the package."""

    modules: dict
    functions: dict  # (module, name) → Scope; methods by (class, name)
    methods: dict  # name → Scopes
    classes: dict  # class → field → annotation
    bases: dict  # class → names of its bases
    imports: dict  # module → local name → (module, name)
    attributes: dict  # (class, attribute) → (Scope, expression) that methods assign to it
    defaults: dict  # name of a field → (module, class, expression) that it is without
    handed: dict  # name of a field → (class, Scope, expression) that constructors are handed for it


@functools.cache
def program():
    found = Program({}, {}, {}, {}, {}, {}, {}, {}, {})
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
            for one in child.body:
                if isinstance(one, ast.AnnAssign) and one.value is not None:
                    found.defaults.setdefault(one.target.id, []).append((scope.module, child.name, one.value))
            found.bases.setdefault(child.name, set()).update(word for base in child.bases for word in words_of(base))
            _read(child, scope, child.name, found)
        elif isinstance(child, ast.FunctionDef) and any(isinstance(one, ast.Name) and one.id == "overload" for one in child.decorator_list):
            continue  # says a signature, and does nothing
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
                for word in child.keywords:
                    found.handed.setdefault(word.arg, []).append((callee(child), scope, word.value))
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


def callee(call):
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def kinds(scope, node, seen=()):
    """Classes that an expression may be of: from annotations, constructors and annotated results; empty where nothing says so."""
    if node in seen:
        return set()
    seen = (*seen, node)
    if isinstance(node, ast.Attribute):
        held = kinds(scope, node.value, seen)
        assigned = [one for name in held for one in program().attributes.get((name, node.attr), [])]
        stated = {word for name in held for word in words_of(program().classes.get(name, {}).get(node.attr))}
        return stated | {word for one in assigned for word in kinds(*one, seen)}
    if isinstance(node, ast.Call):
        made = home(scope.module, callee(node)) if isinstance(node.func, ast.Name) else None
        function = program().functions.get(made)
        return set(words_of(function.node.returns)) if function else {callee(node)}
    if not isinstance(node, ast.Name):
        return set()
    while scope is not None:
        if node.id in {"self", "cls"} and scope.inside:
            return {scope.inside}
        for one in scope.parameters:
            if one.arg == node.id:
                return set(words_of(one.annotation))
        if node.id in scope.words:
            return {word for value in scope.words[node.id] for word in kinds(scope, value, seen)}
        scope = scope.outer
    return set()


def words_of(annotation):
    """Names that stand in an annotation."""
    if annotation is None:
        return []
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval")
    return [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]


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
