"""The command for the time before training: lood."""

import json
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from noshadow.arguments import MAX_MEMORY
from noshadow.cli.options import Json, Quiet, app
from noshadow.errors import InputError, named_command, said

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


class Weights(str, Enum):
    """Weights of network kernels by name."""

    critical = "critical"


class SweepNoise(str, Enum):
    """What stays the same over the architectures of a sweep."""

    relative = "relative"
    absolute = "absolute"


@app.command(epilog="Example: noshadow lood data.npz --out leak --depth 3 --activation gelu --sweep")
@named_command("lood")
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
    weights: Annotated[
        Weights | None,
        typer.Option("--weights", help="critical: both variances on the edge of chaos, for each activation its own; in their place."),
    ] = None,
    noise: Annotated[float | None, typer.Option("--noise", help="Variance σ² of the noise on the targets, > 0; default 0.1.")] = None,
    relative_noise: Annotated[
        float | None, typer.Option("--relative-noise", help="The same as a share of the kernel's mean diagonal, in its place.")
    ] = None,
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
    sweep_noise: Annotated[
        SweepNoise,
        typer.Option(
            "--sweep-noise",
            help="With --sweep: relative, the same share of every kernel's mean diagonal; absolute, the same variance for all.",
        ),
    ] = SweepNoise.relative,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Folder of `noshadow audit`: joined by id and compared; its report gets a section on it.")
    ] = None,
    max_memory: Annotated[float, typer.Option("--max-memory", help="Gigabytes that n × n matrices may take (17 n² bytes).")] = MAX_MEMORY
    / 1e9,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that this command wrote.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Before training: how much would this architecture leak about each record of a data set?

    Under the Gaussian process that a network becomes at infinite width, every record is left out in
    turn, all from one factorisation: how far apart the answers with and without it are (kl,
    mean_distance), and how well an attack tells them apart (auc, tpr). No network is trained. The
    folder holds record ids: as sensitive as the data.
    """
    from noshadow._lood import data_arrays, lood_audit
    from noshadow.cli.lood_run import image_sizes, listed_depths, lood_summary, print_lood, with_section, writable_audit
    from noshadow.report import write_lood_report
    from noshadow.results import LOOD, require_writable_folder

    require_writable_folder(out, overwrite=force, kind=LOOD)
    if not sweep and (sweep_activations is not None or sweep_depths is not None or sweep_noise != SweepNoise.relative):
        raise InputError(said("--sweep-activations, --sweep-depths and --sweep-noise must come with --sweep; got them alone."))
    started = time.perf_counter()
    audited = None if audit is None else writable_audit(audit, out)
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
        weights=None if weights is None else weights.value,
        length_scale=length_scale,
        image_shape=None if image_shape is None else image_sizes(image_shape),
        filter_size=filter_size,
        noise=noise,
        relative_noise=relative_noise,
        fpr=fpr,
        normalize=normalize.value,
        sweep_activations=[name.strip() for name in (sweep_activations or SWEEP_ACTIVATIONS).split(",")] if sweep else [],
        sweep_depths=listed_depths(sweep_depths or SWEEP_DEPTHS) if sweep else [],
        sweep_noise=sweep_noise.value,
        audit=audited,
        max_memory=max_memory * 1e9,
        progress=not quiet,
    )
    page = write_lood_report(found, found.save(out, overwrite=force) / LOOD.page)
    section = None if audited is None or audit is None else with_section(found, audited, audit)
    if as_json:
        typer.echo(json.dumps(lood_summary(found, page, section), allow_nan=False))
    elif not quiet:
        print_lood(found, page, section, time.perf_counter() - started)
