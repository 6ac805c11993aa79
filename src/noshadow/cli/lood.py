"""The command for the time before training: lood."""

import json
import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noshadow.checks import InputError
from noshadow.cli.options import Json, Quiet, app
from noshadow.cli.printing import harmless, sentence
from noshadow.lood import data_arrays, lood_audit, with_lood
from noshadow.report import architecture, write_lood_report, write_report
from noshadow.results import LOOD, Audit, LoodAudit, load, require_writable_folder

SWEEP_ACTIVATIONS = "relu,gelu,tanh,elu,erf"
SWEEP_DEPTHS = "1-10"


class Kernel(str, Enum):
    """Kernels the command line offers."""

    fc = "fc"
    conv = "conv"
    rbf = "rbf"
    laplace = "laplace"


class Activation(str, Enum):
    """Activations of network kernels."""

    relu = "relu"
    gelu = "gelu"
    erf = "erf"
    tanh = "tanh"
    elu = "elu"


class Normalize(str, Enum):
    """How inputs are scaled."""

    none = "none"
    standardize = "standardize"
    unit = "unit"


@app.command(epilog="Example: noshadow lood data.npz --out leak --depth 3 --activation gelu --sweep")
def lood(
    data: Annotated[Path, typer.Argument(help="data.npz with x (n, …), y (integer labels or numbers) and, if you like, ids.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write: lood.json, records.parquet, lood.html.")],
    kernel: Annotated[
        Kernel, typer.Option("--kernel", help="fc, conv: networks of infinite width; rbf, laplace: need --length-scale.")
    ] = Kernel.fc,
    depth: Annotated[int | None, typer.Option("--depth", help="Hidden layers of a network; default 2.")] = None,
    activation: Annotated[Activation | None, typer.Option("--activation", help="Of a network; default relu.")] = None,
    weight_variance: Annotated[
        float | None, typer.Option("--weight-variance", help="Variance of a layer's weights times its fan-in; default 2.")
    ] = None,
    bias_variance: Annotated[float | None, typer.Option("--bias-variance", help="Variance of a layer's biases; default 0.")] = None,
    noise: Annotated[float, typer.Option("--noise", help="Variance σ² of the noise on the targets, > 0.")] = 0.1,
    length_scale: Annotated[float | None, typer.Option("--length-scale", help="Of rbf and laplace, in units of the inputs.")] = None,
    image_shape: Annotated[
        str | None, typer.Option("--image-shape", help="For conv: channels,height,width; default: the shape of x's records.")
    ] = None,
    filter_size: Annotated[int | None, typer.Option("--filter-size", help="For conv: side of the filters; default 3.")] = None,
    normalize: Annotated[
        Normalize,
        typer.Option(
            "--normalize",
            help="standardize: each feature less its mean, divided by its standard deviation over all records; "
            "unit: each record divided by the root of the mean square of its numbers; none: as given.",
        ),
    ] = Normalize.none,
    fpr: Annotated[float, typer.Option("--fpr", help="False-positive rate of the column tpr.")] = 1e-3,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also compare activations and depths; every pair costs as much as one run.")
    ] = False,
    sweep_activations: Annotated[
        str | None, typer.Option("--sweep-activations", help=f"With --sweep; default {SWEEP_ACTIVATIONS}.")
    ] = None,
    sweep_depths: Annotated[
        str | None, typer.Option("--sweep-depths", help=f"With --sweep: a range or a list (2,4,8); default {SWEEP_DEPTHS}.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Folder of `noshadow audit`: joined by id and compared; its report gets a section on it.")
    ] = None,
    max_memory: Annotated[float, typer.Option("--max-memory", help="Gigabytes that n × n matrices may take (17 n² bytes).")] = 8.0,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that this command wrote.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Before training: how much would this data set leak about each of its records through this architecture?

    Under the Gaussian process that a network becomes at infinite width, every record is left out in turn, all from one factorisation:
    how far apart the answers with and without it are (kl, mean_distance), and how well an attack tells them apart (auc, tpr).
    No network is trained. The folder holds record ids: as sensitive as the data.
    """
    require_writable_folder(out, overwrite=force, owner="lood", kind=LOOD)
    if not sweep and (sweep_activations is not None or sweep_depths is not None):
        raise InputError("lood: --sweep-activations and --sweep-depths must come with --sweep; got them alone.")
    started = time.perf_counter()
    audited = None if audit is None else _writable_audit(audit, out)
    x, y, ids = data_arrays(data)
    found = lood_audit(
        x,
        y,
        ids=ids,
        kernel=kernel.value,
        depth=depth,
        activation=None if activation is None else activation.value,
        weight_variance=weight_variance,
        bias_variance=bias_variance,
        length_scale=length_scale,
        image_shape=None if image_shape is None else _shape(image_shape),
        filter_size=filter_size,
        noise=noise,
        fpr=fpr,
        normalize=normalize.value,
        sweep_activations=[name.strip() for name in (sweep_activations or SWEEP_ACTIVATIONS).split(",")] if sweep else [],
        sweep_depths=_depths(sweep_depths or SWEEP_DEPTHS) if sweep else [],
        audit=audited,
        max_memory=max_memory * 1e9,
        progress=not quiet,
    )
    page = write_lood_report(found, found.save(out, overwrite=force) / LOOD.page)
    section = None if audited is None or audit is None else _add(found, audited, audit)
    if as_json:
        typer.echo(json.dumps(_summary(found, page, section), allow_nan=False))
    elif not quiet:
        _print(found, page, section, time.perf_counter() - started)


def _writable_audit(folder: Path, out: Path) -> Audit:
    """The audit of a folder that may be replaced, so that a long run does not end in a refusal."""
    audited = load(folder)
    if folder.resolve() in out.resolve().parents:
        raise InputError(f"lood: --out must lie outside of the audit folder, which is replaced whole; got '{out}' inside '{folder}'.")
    require_writable_folder(folder, overwrite=True, owner="lood")
    return audited


def _add(found: LoodAudit, audited: Audit, folder: Path) -> Path:
    """The report of the audit, written anew with a section on what was found."""
    added = with_lood(audited, found)
    return write_report(added, added.save(folder, overwrite=True) / "report.html")


def _shape(text: str) -> tuple[int, int, int]:
    sizes = text.replace("x", ",").split(",")
    if len(sizes) != 3 or not all(size.strip().isdecimal() for size in sizes):
        raise InputError(f"lood: --image-shape must be channels,height,width, such as 3,32,32; got '{text}'.")
    channels, height, width = map(int, sizes)
    return channels, height, width


def _depths(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    parts = (first, last) if dash else text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or (dash and int(first) > int(last)):
        raise InputError(f"lood: --sweep-depths must be a range such as 1-10 or a list such as 2,4,8; got '{text}'.")
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in parts]


def _summary(found: LoodAudit, page: Path, section: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    manifest = found.manifest()
    shown = found.records.nsmallest(5, "rank")
    return {name: manifest[name] for name in ("kernel", "noise", "fpr", "summary", "conditioning", "sweep", "joined", "notes")} | {
        "most_exposed": [
            {"rank": int(rank), "id": str(identifier), "kl": float(kl), "auc": float(auc)}
            for rank, identifier, kl, auc in zip(shown["rank"], shown["id"], shown["kl"], shown["auc"], strict=True)
        ],
        "folder": str(page.parent),
        "report": str(page),
        "audit_report": None if section is None else str(section),
    }


def _print(found: LoodAudit, page: Path, section: Path | None, seconds: float) -> None:
    console = Console(highlight=False, soft_wrap=True)
    kl, auc = found.summary["kl"], found.summary["auc"]
    console.print(f"Under {harmless(architecture(found.kernel))}, noise {found.noise:g}:")
    console.print(f"KL: median [bold]{kl['median']:.3g}[/bold], largest [bold]{kl['max']:.3g}[/bold] nats")
    console.print(f"Attack AUC: median [bold]{auc['median']:.3f}[/bold], largest [bold]{auc['max']:.3f}[/bold]  (0.5 is a coin toss)")
    names = [name for name in ("rank", "id", "target", "kl", "mean_distance", "auc", "tpr", "audit_rank") if name in found.records]
    table = Table(title="Records that would leak most, by kl", title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in found.records.nsmallest(5, "rank")[names].itertuples(index=False):
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else harmless(value) for value in row))
    console.print(table)
    main = next((row for row in found.joined["agreement"] if row["score"] == found.joined["score"]), None) if found.joined else None
    if main is not None and main["spearman"] is not None:
        ends = f"95 % interval {main['low']:.3f}–{main['high']:.3f}"
        console.print(f"Spearman of kl with the audit's {harmless(main['score'])}: [bold]{main['spearman']:.3f}[/bold]  ({ends})")
    for note in found.notes:
        console.print(f"Note: {sentence(harmless(note))}")
    if section is not None:
        console.print(f"Added to the audit: {harmless(section)}")
    console.print(f"Report: {harmless(page)}  ({seconds:.1f} s)")
