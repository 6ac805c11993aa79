"""What a message advises, and whether it can be followed: read from the sentence and held against signatures and commands."""

import functools
import inspect
import re
from pathlib import Path

import tomllib
import typer

import noshadow as ns
from noshadow.cli import app
from noshadow.errors import SCORE_OPTIONS, TRAINING_OPTIONS
from source_tree import program

ROOMS = ("attacks", "canaries", "metrics", "reference", "theory")
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Functions of others that messages name, and the word after "noshadow" where it is a sentence and no command.
FOREIGN_CALLS = {"reset_index", "record", "kernel", "label", "log", "max", "train_fn"}
# Arguments and options of torch, transformers, scikit-learn and Dask that messages name.
FOREIGN_ARGUMENTS = {"requires_grad", "is_decoder", "multi_class", "data_sample_strategy", "multi_strategy", "norm"}
FOREIGN_OPTIONS = {"--nthreads"}
# Columns of tables that share their name with a function of ours.
COLUMNS = {"data_set"}
# Stands in a text of the source for a value that is known when it is said only.
FILLED = "⟨⟩"
# Classes that users build themselves.
BUILT = {"LossTraces", "Recipe", "Signals", "Target"}
PROSE = {"itself", "reads"}
VERBS = r"(?:[Pp]ass|[Rr]aise|[Ll]ower|[Ss]et)"


@functools.cache
def public():
    """Name as messages say it → public callable: functions, classes and their public methods."""
    found = {}
    for room in (ns, *(getattr(ns, name) for name in ROOMS)):
        for name in room.__all__:
            thing = getattr(room, name)
            if callable(thing):
                found[name] = thing
            if inspect.isclass(thing):
                found |= {f"{name}.{key}": method for key in vars(thing) if not key.startswith("_") and (method := _method(thing, key))}
    return found


def _method(thing, key):
    """A method of a class, or the function behind a property of it; None for any other attribute."""
    held = getattr(thing, key)
    held = held.fget if isinstance(held, property) else held.func if isinstance(held, functools.cached_property) else held
    return held if callable(held) else None


@functools.cache
def commands():
    """Command as it is typed → its options."""

    def walked(command, path):
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                yield from walked(inner, (*path, name))
        else:
            yield " ".join(path), {word for one in command.params for word in (*one.opts, *one.secondary_opts)} | {"--help"}

    top = typer.main.get_command(app)
    everywhere = {word for one in top.params for word in one.opts}
    return {name: options | everywhere for name, options in walked(top, ())}


@functools.cache
def arguments(name):
    """Argument names of a public callable; a method has those of its class too, whose name is said before its own."""
    held = frozenset(inspect.signature(public()[name]).parameters) - {"self"}
    return held | (arguments(name.partition(".")[0]) if "." in name else frozenset())


@functools.cache
def every_argument():
    """Argument names of all that a user calls; the fields of results are words like "count"."""
    asked = [name for name, thing in public().items() if inspect.isfunction(thing) or name in BUILT]
    return frozenset().union(*map(arguments, asked))


def owner_of(message):
    """The function or command that a message names at its start."""
    return message.partition(":")[0]


@functools.cache
def wrong_advice(owner, text):
    """Everything that `text`, said by `owner`, advises and that is not there; empty where all can be followed."""
    if owner not in public() and owner not in commands():
        return [f"{owner} is neither a public function nor a command"]
    wrong = [*_wrong_names(text)]
    text, typed = _without_commands(text)
    wrong += [f"no {word} in noshadow {command}" for command, words in typed for word in words if word not in commands()[command]]
    text, calls = _without_calls(text)
    wrong += [problem for call in calls for problem in _wrong_call(*call)]
    text, handed = _without_handed_on(text)
    wrong += [f"{name} is no option of the scores" for name in handed if name not in SCORE_OPTIONS]
    text, trained = _without_handed_on(text, "training_options", "--training-option")
    wrong += [f"{name} is no option of a training" for name in trained if name not in TRAINING_OPTIONS]
    held = arguments(owner) if owner in public() else frozenset()
    options = commands().get(owner, frozenset())
    asked = {word.removeprefix("--").replace("-", "_") for word in options}
    wrong += [f"{owner} has no argument {name}" for name in recommended(text) if name not in held | asked]
    known = options or frozenset().union(*commands().values())
    return wrong + [f"no {word} in {owner}" for word in _options(text) if word not in known]


def recommended(text):
    """Arguments that a text without calls recommends: `name=…`, and a name of ours after a verb ("raise max_memory", "lower lr").

    `name=` before a value that is filled in says how things are ("n=100"), unless a verb asks for it, and so does "when name=value".
    """
    named = re.findall(rf"(?<![\w.'-])(?<!when )([a-z]\w*)=(?!=|{FILLED})", text) + re.findall(rf"\b{VERBS} ([a-z]\w*)=", text)
    asked = re.findall(rf"\b{VERBS} (?:the )?([a-z]\w+)\b(?!=)", text)
    return {*named, *(word for word in asked if word in every_argument())} - FOREIGN_ARGUMENTS


def _options(text):
    return {word for word, rest in re.findall(rf"(?<![\w-])(--[a-z-]+)({FILLED})?", text) if not rest} - FOREIGN_OPTIONS


def _without_commands(text):
    """Commands that are written out with their options, and the text without them."""
    named = "|".join(sorted(commands(), key=len, reverse=True))
    pattern = rf"\bnoshadow ({named})\b((?: (?!noshadow)[^ ·)(]+)*)"
    return re.sub(pattern, " ", text), [(command, _options(rest)) for command, rest in re.findall(pattern, text)]


def _without_calls(text):
    pattern = r"(?<![\w.…⟩])([A-Za-z_][A-Za-z_0-9.]+)\(([^()]*)\)"
    return re.sub(pattern, " ", text), re.findall(pattern, text)


def _wrong_call(name, inner):
    short = re.sub(r"^(ns|noshadow)\.", "", name)
    keywords = re.findall(r"\b([a-z_]\w*)=(?!=)", inner)
    if name in FOREIGN_CALLS or ("." in name and short == name) or not (keywords or re.search(r"[a-z…]", inner)):
        return
    if short not in public():
        yield f"{name}(…) is not public"
        return
    yield from (f"{name} has no argument {word}" for word in keywords if word not in arguments(short))


def _without_handed_on(text, argument="score_options", option="--score-option"):
    quoted = [name for group in re.findall(rf"{argument}=\{{([^}}]*)\}}", text) for name in re.findall(r"'(\w+)':", group)]
    typed = re.findall(rf"{option} (\w+)=\S*", text)
    text = re.sub(rf"(\w+) \({argument}=\{{'\1': …\}}", f"({argument}=", text)
    text = re.sub(rf"{argument}=\{{[^}}]*\}}", f"{argument}=", text)
    return re.sub(rf"{option} \w+=[^\s)]*", option, text), quoted + typed


def _wrong_names(text):
    """Dotted names, commands and extras that are not there."""
    for word in re.findall(r"\b(?:ns|noshadow)\.([A-Za-z_][\w.]*\w)", text):
        first, *rest = word.split(".")
        if first not in ns.__all__ or not functools.reduce(lambda held, key: held and getattr(held, key, None), rest, getattr(ns, first)):
            yield f"noshadow.{word} is not public"
    for words in re.findall(r"\bnoshadow ([a-z]+(?: [a-z]+)?)", text):
        first = words.split()[0]
        if first not in PROSE and words not in commands() and first not in commands():
            yield f"noshadow {words} is no command"
    yield from (f"{word} is not public" for word in re.findall(r"(?<![\w.])[a-z]+(?:_[a-z]+)+\b", text) if word in _private())
    yield from (f"there is no extra {name}" for name in re.findall(r"noshadow\[(\w+)\]", text) if name not in _extras())


@functools.cache
def _private():
    return {name for _, name in program().functions} - {*public(), *every_argument(), *FOREIGN_CALLS, *COLUMNS}


@functools.cache
def _extras():
    return frozenset(tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"])
