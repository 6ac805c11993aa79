"""Commands around one audit: demo, audit, report, gate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noshadow.cli.options import Force, Json, Out, OutputScale, Quiet, Seed, TaskChoice, app, named_values
from noshadow.errors import InputError
from noshadow.visible import visible

if TYPE_CHECKING:
    from noshadow.results import Audit


@app.command(epilog="Example: noshadow demo --out demo-audit")
def demo(out: Out = Path("demo-audit"), force: Force = False, seed: Seed = 0, quiet: Quiet = False, as_json: Json = False) -> None:
    """Train a small network on half of scikit-learn's digits, audit it and write the report.

    This takes seconds.
    """
    from noshadow.cli.finishing import finished
    from noshadow.demo import demo_audit

    finished(lambda: demo_audit(seed=seed, progress=not quiet), out, "demo", force=force, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: noshadow audit signals.npz --out my-audit  ·  noshadow audit package.module:function --out my-audit")
def audit(
    what: Annotated[str, typer.Argument(help="signals.npz, signals.safetensors, or package.module:function returning noshadow.Target.")],
    out: Out,
    task: Annotated[
        TaskChoice, typer.Option("--task", help="What the model predicts; inferred where that is not a guess.")
    ] = TaskChoice.auto,
    fpr: Annotated[float | None, typer.Option("--fpr", help="False-positive rate of the attack; default max(1e-3, 1/n).")] = None,
    layers: Annotated[
        str, typer.Option("--layers", help="For functions: 'last' (exact), 'all', or how many last layers to score together.")
    ] = "last",
    layer: Annotated[str, typer.Option("--layer", help="For functions: name of the head to use instead of the one found.")] = "auto",
    output: Annotated[
        str,
        typer.Option("--output", help="For functions: name or position of the output of a model that returns several tensors."),
    ] = "auto",
    damping: Annotated[float | None, typer.Option("--damping", help="λ on the sum over records; default: the training's own.")] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay", help="Weight decay of the training, gives λ.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="For files: whether the head has a bias.")] = True,
    output_scale: Annotated[
        OutputScale, typer.Option("--output-scale", help="What a classifier's outputs are; recognised where that is not a guess.")
    ] = OutputScale.auto,
    family: Annotated[
        str,
        typer.Option(
            "--family", help="For files: kind of model, 'linear' or 'network' to have the attack's rate predicted; default from features."
        ),
    ] = "auto",
    loss_traces: Annotated[
        Path | None, typer.Option("--loss-traces", exists=True, dir_okay=False, help="File of LossTraces.save; adds lt_iqr.")
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            "--checkpoint",
            exists=True,
            dir_okay=False,
            help="Weights from earlier in the training (.safetensors, .pt of a state dict), best those with the lowest loss on unseen "
            "records: they show who was learnt by heart later. Beside a file of signals, another such file; repeatable.",
        ),
    ] = None,
    out_of_fold: Annotated[
        Path | None,
        typer.Option(
            "--out-of-fold",
            exists=True,
            dir_okay=False,
            help="Outputs of cross_val_predict on the training records (.npy, .npz, .csv, .parquet; a column id is matched): what models "
            "without the record say about it.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            help="Model that a fine-tuned one started from: package.module:function returning it, or its weights (.safetensors, .pt). "
            "Beside a file of signals, another such file.",
        ),
    ] = None,
    score_option: Annotated[
        list[str] | None,
        typer.Option(
            "--score-option",
            metavar="NAME=VALUE",
            help="Option of the scores: --score-option max_memory=3e10 or, with --layers, --score-option unvectorised=loop; repeatable.",
        ),
    ] = None,
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Audit a trained model, from a file of signals or from a function that builds it.

    A file holds the arrays train_features, train_outputs, train_targets, test_features,
    test_outputs, test_targets (optional: train_ids, test_ids, loss_traces). A function takes no
    arguments and returns noshadow.Target(model, train, test, …).
    """
    from noshadow._audit import audit_signals, audit_target
    from noshadow.cli.finishing import finished
    from noshadow.cli.targets import base_of, target_of
    from noshadow.signals import load_splits
    from noshadow.storage.array_files import SUFFIXES

    options: dict[str, Any] = {
        "task": task.value,
        "fpr": "auto" if fpr is None else fpr,
        "damping": "auto" if damping is None else damping,
        "weight_decay": weight_decay,
        "output_scale": output_scale.value,
        "score_options": named_values(score_option or [], "audit", "--score-option"),
        "checkpoint": checkpoint or None,
        "out_of_fold": out_of_fold,
        "progress": not quiet,
        "seed": seed,
    }

    def run() -> "Audit":
        if ":" in what and Path(what).suffix not in SUFFIXES:
            if not intercept:
                raise InputError(f"audit: --no-intercept must come with a file of signals; got '{what}'. The model's own head is read.")
            if family != "auto":
                raise InputError(f"audit: --family must come with a file of signals; got '{what}'. The model itself shows it.")
            return audit_target(
                target_of(what, "audit"),
                layers=int(layers) if layers.isdigit() else layers,
                layer=layer,
                output=output,
                loss_traces=loss_traces,
                base=None if base is None else base_of(base, "audit"),
                **options,
            )
        if layer != "auto":
            raise InputError(f"audit: --layer must come with a module:function; got '{what}'. A file holds one layer's signals.")
        if output != "auto":
            raise InputError(f"audit: --output must come with a module:function; got '{what}'. A file holds one output's signals.")
        if layers != "last":
            raise InputError(f"audit: --layers must be 'last' for a file of signals; got '{layers}'. Pass a module:function.")
        train, test, held = load_splits(what)
        if held is not None and loss_traces is not None:
            raise InputError(f"audit: --loss-traces must come with a file that holds none; got '{what}' with its own. Leave one out.")
        how: dict[str, Any] = {"loss_traces": loss_traces if held is None else held, "fit_intercept": intercept, "family": family}
        return audit_signals(train, test, base=base, **how, **options)

    finished(run, out, "audit", force=force, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: noshadow report my-audit  ·  noshadow report my-audit --show-records images.npy --out for-review.html")
def report(
    folder: Annotated[Path, typer.Argument(help="An audit folder, or one that `noshadow lood` wrote.")],
    show_records: Annotated[
        str | None,
        typer.Option(
            "--show-records",
            metavar="FILE",
            help="Show contents of the riskiest records from FILE, which holds all training records: images (.npy; .npz with images and, "
            "if you like, ids), texts (.txt, one a line), rows or a column of texts (.csv, .parquet; matched by a column id), or "
            "package.module:function returning them. Without ids the order is that of the training data.",
        ),
    ] = None,
    show_top: Annotated[
        int | None, typer.Option("--show-top", help="Of how many of the riskiest records contents are shown; default 100.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default report.html in the folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Rebuild report.html from an audit folder, or lood.html from a folder of lood.

    Model and data are not needed.

    A page with record contents is as sensitive as the data, and says so; without --show-records it
    is rebuilt without them.
    """
    from noshadow.report import TOP, write_lood_report, write_report
    from noshadow.results import LOOD, load, load_lood

    if (folder / LOOD.manifest).is_file():
        if show_records is not None:
            raise InputError(f"report: --show-records must come with an audit folder; got '{folder}', which noshadow lood wrote.")
        path = write_lood_report(load_lood(folder), out or folder / LOOD.page)
    else:
        audited = load(folder)
        contents = ids = None
        if show_records is not None:
            from noshadow.cli.contents import contents_of

            contents, ids = contents_of(show_records, audited)
        path = write_report(
            audited, out or folder / "report.html", show_records=contents, show_ids=ids, show_top=TOP if show_top is None else show_top
        )
    if not quiet:
        typer.echo(visible(path))


@app.command(epilog="Example: noshadow gate my-audit --max-tnr 0.05 --max-auc 0.6")
def gate(
    folder: Annotated[Path, typer.Argument(help="An audit folder.")],
    max_predicted_tpr: Annotated[
        float | None,
        typer.Option("--max-predicted-tpr", help="Limit on the model's predicted attack TPR, where the audit holds one."),
    ] = None,
    max_tnr: Annotated[float | None, typer.Option("--max-tnr", help="Limit on the loss attack's TNR.")] = None,
    max_auc: Annotated[float | None, typer.Option("--max-auc", help="Limit on the loss attack's AUC.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Exit 1 when the audit exceeds a limit, 2 when a limit asks for a figure it does not have.

    This is for pipelines.

    The figure itself is compared, not the end of its interval; a figure equal to its limit passes.
    """
    from noshadow.cli.gating import checked
    from noshadow.results import load

    limits = {"predicted_tpr": max_predicted_tpr, "tnr": max_tnr, "auc": max_auc}
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    if not asked:
        raise InputError("gate: at least one limit must be given; got none. Pass --max-tnr, --max-auc or --max-predicted-tpr.")
    outside = {name: limit for name, limit in asked.items() if not 0 <= limit <= 1}
    if outside:
        raise InputError(f"gate: limits must be fractions between 0 and 1; got {outside}.")
    audited = load(folder)
    rows = [checked(audited, name, limit) for name, limit in asked.items()]
    if as_json:
        typer.echo(json.dumps({"passed": all(row["passed"] for row in rows), "limits": rows}))
    elif not quiet:
        for row in rows:
            ends = "no interval" if None in row["interval"] else "–".join(f"{end:.4g}" for end in row["interval"])
            hint = " (outside of the calibration: a hint)" if row.get("outside_calibration") else ""
            typer.echo(
                f"{'pass' if row['passed'] else 'FAIL'}  {row['figure']} = {row['value']:.4g} ({ends}), limit {row['limit']:g}{hint}"
            )
        failed = [f"{row['figure']} {row['value']:.4g} > {row['limit']:g}" for row in rows if not row["passed"]]
        if failed:
            typer.echo(f"{len(failed)} of {len(rows)} {'limit' if len(rows) == 1 else 'limits'} exceeded: {', '.join(failed)}")
    raise typer.Exit(0 if all(row["passed"] for row in rows) else 1)
