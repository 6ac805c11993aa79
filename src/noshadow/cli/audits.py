"""The command line: parse, call, write. Exit 0 fine, 1 a gate said no, 2 wrong input, 3 a numerical failure."""

import contextlib
import importlib
import importlib.metadata
import json
import sys
import time
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from noshadow.audit import Target, audit_signals, audit_target
from noshadow.checks import InputError, NumericalError
from noshadow.demo import demo_audit
from noshadow.report import write_report
from noshadow.results import Audit, load, require_writable_folder
from noshadow.signals import SUFFIXES, load_splits

# click's UsageError, wherever the installed typer keeps it.
USAGE_ERROR: type[BaseException] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How exposed are the people in the training data of the model you just trained?\n\n"
    "Start with [bold]noshadow demo --out demo-audit[/bold], then audit your own model with [bold]noshadow audit[/bold].",
    epilog="Exit codes: 0 fine · 1 a gate said no · 2 the input is wrong · 3 a numerical failure.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"noshadow {importlib.metadata.version('noshadow')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options before any command."""


class Task(str, Enum):
    """Tasks the command line offers."""

    auto = "auto"
    regression = "regression"
    classification = "classification"
    binary = "binary"


Out = Annotated[Path, typer.Option("--out", help="Folder to write: audit.json, records.parquet, losses.npz, report.html.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an audit that is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of training (demo) and bootstrap intervals.")]


@app.command(epilog="Example: noshadow demo --out demo-audit")
def demo(out: Out = Path("demo-audit"), force: Force = False, seed: Seed = 0, quiet: Quiet = False, as_json: Json = False) -> None:
    """Train a small network on half of scikit-learn's digits, audit it and write the report. Takes seconds."""
    _finish(lambda: demo_audit(seed=seed, progress=not quiet), out, force=force, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: noshadow audit signals.npz --out my-audit  ·  noshadow audit package.module:function --out my-audit")
def audit(
    what: Annotated[str, typer.Argument(help="signals.npz, signals.safetensors, or package.module:function returning noshadow.Target.")],
    out: Out,
    task: Annotated[Task, typer.Option("--task", help="What the model predicts; inferred where that is not a guess.")] = Task.auto,
    fpr: Annotated[float | None, typer.Option("--fpr", help="False-positive level of the attack; default max(1e-3, 1/n).")] = None,
    layers: Annotated[str, typer.Option("--layers", help="Layers to score: 'last'.")] = "last",
    layer: Annotated[str, typer.Option("--layer", help="For functions: name of the head to use instead of the one found.")] = "auto",
    damping: Annotated[float | None, typer.Option("--damping", help="λ on the sum over records; default: the training's own.")] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay", help="Weight decay of the training, gives λ.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="For files: whether the head has a bias.")] = True,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Audit a trained model, from a file of signals or from a function that builds it.

    A file holds the arrays train_features, train_outputs, train_targets, test_features, test_outputs, test_targets (optional:
    train_ids, test_ids, loss_traces). A function takes no arguments and returns noshadow.Target(model, train, test, …).
    """
    options: dict[str, Any] = {
        "task": task.value,
        "fpr": "auto" if fpr is None else fpr,
        "damping": "auto" if damping is None else damping,
        "weight_decay": weight_decay,
        "progress": not quiet,
        "seed": seed,
    }

    def run() -> Audit:
        if ":" in what and Path(what).suffix not in SUFFIXES:
            if not intercept:
                raise InputError(f"audit: --no-intercept must come with a file of signals; got '{what}'. The model's own head is read.")
            return audit_target(_target(what), layers=layers, layer=layer, **options)
        if layer != "auto":
            raise InputError(f"audit: --layer must come with a module:function; got '{what}'. A file holds one layer's signals.")
        if layers != "last":
            raise InputError(f"audit: --layers must be 'last' for a file of signals; got '{layers}'. Pass a module:function.")
        train, test, traces = load_splits(what)
        return audit_signals(train, test, loss_traces=traces, fit_intercept=intercept, **options)

    _finish(run, out, force=force, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: noshadow report my-audit")
def report(folder: Annotated[Path, typer.Argument(help="An audit folder.")], quiet: Quiet = False) -> None:
    """Rebuild report.html from an audit folder; model and data are not needed."""
    path = write_report(load(folder), folder / "report.html")
    if not quiet:
        typer.echo(path)


@app.command(epilog="Example: noshadow gate my-audit --max-tnr 0.05 --max-auc 0.6")
def gate(
    folder: Annotated[Path, typer.Argument(help="An audit folder.")],
    max_predicted_tpr: Annotated[
        float | None,
        typer.Option("--max-predicted-tpr", help="Limit on the model's predicted attack TPR (no audit of this version holds it)."),
    ] = None,
    max_tnr: Annotated[float | None, typer.Option("--max-tnr", help="Limit on the loss attack's TNR.")] = None,
    max_auc: Annotated[float | None, typer.Option("--max-auc", help="Limit on the loss attack's AUC.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Exit 1 when the audit exceeds a limit, 2 when a limit asks for a figure it does not have. For pipelines.

    The figure itself is compared, not the end of its interval; a figure equal to its limit passes.
    """
    limits = {"predicted_tpr": max_predicted_tpr, "tnr": max_tnr, "auc": max_auc}
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    if not asked:
        raise InputError("gate: at least one limit must be given; got none. Pass --max-tnr, --max-auc or --max-predicted-tpr.")
    outside = {name: limit for name, limit in asked.items() if not 0 <= limit <= 1}
    if outside:
        raise InputError(f"gate: limits must be fractions between 0 and 1; got {outside}.")
    audited = load(folder)
    rows = [_checked(audited, name, limit) for name, limit in asked.items()]
    if as_json:
        typer.echo(json.dumps({"passed": all(row["passed"] for row in rows), "limits": rows}))
    elif not quiet:
        for row in rows:
            ends = "–".join(f"{end:.4g}" for end in row["interval"])
            typer.echo(f"{'pass' if row['passed'] else 'FAIL'}  {row['figure']} = {row['value']:.4g} ({ends}), limit {row['limit']:g}")
    raise typer.Exit(0 if all(row["passed"] for row in rows) else 1)


def main() -> None:
    """Run a command and turn the house's exceptions into exit codes and one sentence."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except USAGE_ERROR as error:
        _fail(f"{error.format_message().removesuffix('.')}. Try --help.", 2)  # type: ignore[attr-defined]
    except InputError as error:
        _fail(error, 2)
    except NumericalError as error:
        _fail(error, 3)
    except typer.Abort:
        _fail("stopped.", 130)


def _fail(error: Exception | str, code: int) -> None:
    print(f"noshadow: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(code)


def _checked(audited: Audit, name: str, limit: float) -> dict[str, Any]:
    value = None if audited.model_risk is None else getattr(audited.model_risk, name)
    if value is None:
        reason = audited.not_applicable.get("model_risk") or (audited.model_risk.reason if audited.model_risk else "")
        raise InputError(f"gate: the audit must hold {name} for --max-{name.replace('_', '-')}; got none ({reason}). Drop that limit.")
    low, high = getattr(audited.model_risk, f"{name}_interval") or (None, None)
    return {"figure": name, "value": value, "interval": [low, high], "limit": limit, "passed": value <= limit}


def _target(what: str) -> Target:
    module_name, _, function_name = what.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    # What the user's code prints is not the result: it may not mix with --json on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            function = getattr(importlib.import_module(module_name), function_name)
        except (Exception, SystemExit) as error:
            raise InputError(f"audit: '{what}' must be importable from here; got {_story(error)}. Give package.module:function.") from error
        try:
            made = function()
        except (Exception, SystemExit) as error:
            raise InputError(f"audit: '{what}' must return a noshadow.Target; it raised {_story(error)}.") from error
    if not isinstance(made, Target):
        raise InputError(f"audit: '{what}' must return a noshadow.Target; got {type(made).__name__}. Return Target(model, train, test).")
    return made


def _story(error: BaseException) -> str:
    """What went wrong and, in the user's code, where, in one clause."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if last.filename == __file__ or "importlib" in last.filename else f" (line {last.lineno} of {Path(last.filename).name})"
    return f"{type(error).__name__}: {error}".removesuffix(".") + where


def _finish(run: Callable[[], Audit], out: Path, *, force: bool, quiet: bool, as_json: bool) -> None:
    """Refuse a bad folder before any work, then audit, save, write the report and say the answer."""
    require_writable_folder(out, overwrite=force, owner="audit")
    started = time.perf_counter()
    audited = run()
    folder = audited.save(out, overwrite=force)
    page = write_report(audited, folder / "report.html")
    if as_json:
        typer.echo(json.dumps(_summary(audited, page), allow_nan=False))
    elif not quiet:
        _print(audited, page, time.perf_counter() - started)


def _summary(audited: Audit, page: Path) -> dict[str, Any]:
    manifest = audited.manifest()
    kept = ("task", "ranked_by", "records", "model_risk", "not_applicable", "notes")
    shown = [] if audited.ranked_by is None else audited.records.nsmallest(5, "rank")[["rank", "id"]].to_dict("records")
    return {name: manifest[name] for name in kept} | {
        "most_exposed": [{"rank": int(row["rank"]), "id": str(row["id"])} for row in shown],
        "scores": audited.provenance.get("scores"),
        "folder": str(page.parent),
        "report": str(page),
    }


def _print(audited: Audit, page: Path, seconds: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    risk = audited.model_risk
    if risk is None:
        console.print(f"Model risk: {_harmless(audited.not_applicable['model_risk'])}")
    else:
        low, high = risk.tnr_interval
        console.print(f"Loss-tail TNR at level {risk.fpr:g}: [bold]{risk.tnr:.3f}[/bold]  (95 % interval {low:.3f}–{high:.3f})")
        console.print(f"Loss AUC: [bold]{risk.auc:.3f}[/bold]  (95 % interval {risk.auc_interval[0]:.3f}–{risk.auc_interval[1]:.3f})")
    if audited.ranked_by is None:
        console.print(f"Record scores: {_harmless(audited.not_applicable['rank'])}")
    else:
        table = Table(title=f"Most exposed records, by {audited.ranked_by}", title_justify="left")
        named = "label" if "label" in audited.records else "target"
        shown = [c for c in ("rank", "id", named, "loss", "leverage", audited.ranked_by) if c in audited.records]
        for name in shown:
            table.add_column(name, justify="right")
        for row in audited.records.nsmallest(5, "rank")[shown].itertuples(index=False):
            table.add_row(*(f"{value:.4g}" if isinstance(value, float) else _harmless(value) for value in row))
        console.print(table)
    for note in audited.notes:
        console.print(f"Note: {_harmless(note).removesuffix('.')}.")
    console.print(f"Report: {_harmless(page)}  ({seconds:.1f} s)")


def _harmless(value: object) -> str:
    """Text of others without rich's markup or a terminal's control characters."""
    return escape("".join(c if c.isprintable() else "�" for c in str(value)))
