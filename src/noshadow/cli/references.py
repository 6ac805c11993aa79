"""Commands around reference models.

They train them, show how far they are, and run the attacks they carry.
"""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from noshadow.cli.options import Json, Quiet, app
from noshadow.errors import InputError, named_command, said
from noshadow.visible import visible

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Reference models: the real attacks beside the cheap scores.\n\n"
    "[bold]train[/bold] trains models like yours on random halves of the records (stop it when you like, run it again to go on), "
    "[bold]status[/bold] says how far it is, [bold]score[/bold] runs LiRA, RMIA, Shokri and LOSS and adds what they find to an audit.",
)
app.add_typer(commands, name="reference")

Folder = Annotated[Path, typer.Argument(help="A folder that `noshadow reference train` wrote.")]


class Backend(str, Enum):
    """Where training runs."""

    loky = "loky"
    ray = "ray"
    dask = "dask"


class Engine(str, Enum):
    """How models are trained."""

    auto = "auto"
    one_by_one = "one-by-one"
    vectorised = "vectorised"


class Pool(str, Enum):
    """Records of the pool; each reference model is trained on a part of them."""

    all = "all"
    train = "train"


class Queries(str, Enum):
    """Views of a record that the attacks see."""

    plain = "plain"
    mirror = "mirror"


class Variant(str, Enum):
    """Whether models trained on a record are used."""

    online = "online"
    offline = "offline"


class Variance(str, Enum):
    """LiRA's standard deviations."""

    auto = "auto"
    record = "record"
    whole = "global"


class Statistic(str, Enum):
    """What LiRA looks at."""

    auto = "auto"
    loss = "loss"


class Center(str, Enum):
    """LiRA's centres."""

    mean = "mean"
    median = "median"


@commands.command(epilog="Example: noshadow reference train package.module:function --out references --models 64")
@named_command("reference train")
def train(
    what: Annotated[str, typer.Argument(help="package.module:function returning noshadow.Target(model, train, test, train_fn=…).")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the set; an unfinished one is resumed.")],
    models: Annotated[
        int, typer.Option("--models", min=4, help="Number of reference models: 64 is usual, 16 the least for a noise ceiling.")
    ] = 64,
    fraction: Annotated[float, typer.Option("--fraction", help="Share of the records each model is trained on.")] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the plan and of every model.")] = 0,
    pool: Annotated[Pool, typer.Option("--pool", help="Train on halves of train and test together, or of train only.")] = Pool.all,
    engine: Annotated[Engine, typer.Option("--engine", help="'vectorised' needs a Recipe for train_fn.")] = Engine.auto,
    audited: Annotated[
        int, typer.Option("--audited", min=0, help="Reference models to audit too, at most a quarter: intervals over models.")
    ] = 8,
    queries: Annotated[Queries, typer.Option("--queries", help="'mirror' also records mirrored images.")] = Queries.plain,
    traces: Annotated[bool, typer.Option("--traces", help="Record the losses after every epoch (LT-IQR).")] = False,
    outputs: Annotated[bool, typer.Option("--outputs/--no-outputs", help="Keep raw outputs; Shokri's attack needs them.")] = True,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes; default one a core.")] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of each model's training.")] = 1,
    backend: Annotated[Backend, typer.Option("--backend", help="This machine (loky), or a Ray or Dask cluster.")] = Backend.loky,
    address: Annotated[str | None, typer.Option("--address", help="Of the Ray or Dask cluster.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train reference models with the target's own training function, train_fn(indices, seed).

    The indices are rows of train followed by test. Every finished model is on disk at once: stop
    and run again as you like.
    """
    from noshadow.cli.reference_run import columns_of, print_status
    from noshadow.cli.targets import target_of
    from noshadow.reference import mirrored, train_references

    target = target_of(what)
    if target.train_fn is None:
        raise InputError(
            said(
                f"'{what}' must return a Target with train_fn; got none. "
                "Give Target(…, train_fn=f) where f(indices, seed) trains a model on those rows."
            )
        )
    trained = train_references(
        out,
        target.train_fn,
        target.train,
        None if pool is Pool.train else target.test,
        model=target.model,
        ids=target.ids,
        task=target.task,
        output=target.output,
        output_scale=target.output_scale,
        models=models,
        fraction=fraction,
        seed=seed,
        pool=pool.value,
        engine=engine.value,
        workers=workers,
        threads=threads,
        backend=backend.value,
        address=address,
        traces=traces,
        keep_outputs=outputs,
        queries=(mirrored,) if queries is Queries.mirror else (),
        extra=columns_of(target, pool is Pool.train),
        extra_models=min(audited, models // 4),
        progress=not quiet,
    )
    print_status(out, quiet=quiet, as_json=as_json)
    started = (
        () if backend is Backend.loky or address else (f"No --address was given: a {backend.value} cluster was started here for this run.",)
    )
    for note in () if quiet or as_json else (*trained.notes, *started):
        typer.echo(f"Note: {visible(note)}")


@commands.command("status", epilog="Example: noshadow reference status references")
@named_command("reference status")
def show_status(folder: Folder, as_json: Json = False) -> None:
    """Say how many models are done, which failed and why, and how long the rest will take."""
    from noshadow.cli.reference_run import print_status

    print_status(folder, quiet=False, as_json=as_json)


@commands.command(epilog="Example: noshadow reference score references --audit my-audit")
@named_command("reference score")
def score(
    folder: Folder,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Audit folder of the target: gets the ground truth and a new report.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write one row a record to this .parquet or .csv file.")] = None,
    fpr: Annotated[list[float] | None, typer.Option("--fpr", help="False-positive rates to measure TPR at; repeatable.")] = None,
    variant: Annotated[Variant, typer.Option("--variant", help="Use models trained with the record, or only without.")] = Variant.online,
    variance: Annotated[Variance, typer.Option("--variance", help="LiRA: per record, pooled, or by the number of models.")] = Variance.auto,
    center: Annotated[Center, typer.Option("--center", help="LiRA: centre of the distributions.")] = Center.mean,
    floor: Annotated[
        float, typer.Option("--floor", min=0.0, help="LiRA: least standard deviation, for models with few distinct outputs.")
    ] = 0.0,
    statistic: Annotated[
        Statistic, typer.Option("--statistic", help="LiRA in a regression: the signed residual, from both sides, or the loss.")
    ] = Statistic.auto,
    gamma: Annotated[
        float | None, typer.Option("--gamma", help="RMIA: factor by which a record must beat others; default 2, and 1 for sequences.")
    ] = None,
    shokri: Annotated[bool, typer.Option("--shokri/--no-shokri", help="Also train Shokri's attack classifiers.")] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of intervals and of Shokri's classifiers.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack the target and every reference model, and compare the audit's scores with the attacks.

    With --audit, columns lira_success, lira_d, rmia_success (…) and the agreement table are added
    to the audit and its report, rates are measured at the audit's own false-positive rate, too, and
    the records are ranked by their exposure to all reference models.
    """
    from noshadow._audit import with_references
    from noshadow._glance import verdict_lines
    from noshadow.cli.finishing import written_again
    from noshadow.cli.printing import answer
    from noshadow.cli.reference_run import print_truth, write_table
    from noshadow.reference import AttackOptions, ground_truth, load_references
    from noshadow.results import load

    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise InputError(said(f"--out must end in .parquet or .csv; got '{out}'."))
    lira: dict[str, Any] = {"center": center.value, "floor": floor, "statistic": statistic.value}
    options = AttackOptions(variant.value, variance.value, gamma=gamma, shokri=shokri, seed=seed, **lira)
    references, audited = load_references(folder), None if audit is None else load(audit)
    chosen: dict[str, Any] = {"fpr": fpr or None, "options": options, "progress": not quiet}
    if audited is not None and audit is not None:
        audited = with_references(audited, references, **chosen)
        assert audited.ground_truth is not None
        truth, table = audited.ground_truth, audited.records
        written_again(audited, audit)
    else:
        truth, table = ground_truth(references, **chosen)
    write_table(table, out)
    if as_json:
        typer.echo(json.dumps(truth.to_dict() | ({} if audited is None else answer(audited)), allow_nan=False))
    elif not quiet:
        print_truth(truth, references, audit, () if audited is None else verdict_lines(audited, show_ids=True))
