"""Commands around one audit: demo, audit, gate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noshadow.cli.file_options import Drop, GroupColumn, IdColumn, ModelFile, Module, TargetColumn, TestTable, TextColumn, TrainTable, Trust
from noshadow.cli.options import Force, Json, Out, OutputScale, Quiet, Seed, TaskChoice, app, named_values
from noshadow.cli.trained_options import (
    Folds,
    ReferenceModels,
    ShortReferences,
    Stop,
    TrainingOption,
    Work,
    require_nothing_trained,
    training_arguments,
)
from noshadow.errors import InputError, named_command, said
from noshadow.visible import visible

if TYPE_CHECKING:
    from noshadow.results import Audit


@app.command(epilog="Example: noshadow demo --out demo-audit")
@named_command("demo")
def demo(out: Out = Path("demo-audit"), force: Force = False, seed: Seed = 0, quiet: Quiet = False, as_json: Json = False) -> None:
    """Train a small network on half of scikit-learn's digits, audit it and write the report.

    This takes seconds.
    """
    from noshadow.cli.finishing import finished
    from noshadow.demo import demo_audit

    finished(lambda: demo_audit(seed=seed, progress=not quiet), out, force=force, quiet=quiet, as_json=as_json)


@app.command(
    epilog="Example: noshadow audit signals.npz --out my-audit  ·  noshadow audit package.module:function --out my-audit  ·  "
    "noshadow audit --model m.onnx --train a.parquet --test b.csv --target y --id patient --out my-audit  ·  "
    "noshadow audit --model adapters --train a.jsonl --test b.jsonl --out my-audit"
)
@named_command("audit")
def audit(
    out: Out,
    what: Annotated[
        str | None,
        typer.Argument(help="signals.npz, signals.safetensors, or package.module:function returning noshadow.Target; or pass --model."),
    ] = None,
    model_file: ModelFile = None,
    train_table: TrainTable = None,
    test_table: TestTable = None,
    target_column: TargetColumn = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    group_column: GroupColumn = None,
    drop: Drop = None,
    module: Module = None,
    trust: Trust = None,
    task: Annotated[
        TaskChoice, typer.Option("--task", help="What the model predicts; inferred where that is not a guess.")
    ] = TaskChoice.auto,
    fpr: Annotated[float | None, typer.Option("--fpr", help="False-positive rate of the attack; default max(1e-3, 1/n).")] = None,
    layers: Annotated[
        str, typer.Option("--layers", help="For functions and --module: 'last' (exact), 'all', or how many last layers to score together.")
    ] = "last",
    layer: Annotated[
        str, typer.Option("--layer", help="For functions and --module: name of the head to use instead of the one found.")
    ] = "auto",
    output: Annotated[
        str,
        typer.Option("--output", help="Name or position of the output of a model that returns several tensors."),
    ] = "auto",
    damping: Annotated[float | None, typer.Option("--damping", help="λ on the sum over records; default: the training's own.")] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay", help="Weight decay of the training, gives λ.")] = None,
    intercept: Annotated[
        bool, typer.Option("--intercept/--no-intercept", help="For files of signals: whether the head has a bias.")
    ] = True,
    output_scale: Annotated[
        OutputScale, typer.Option("--output-scale", help="What a classifier's outputs are; recognised where that is not a guess.")
    ] = OutputScale.auto,
    family: Annotated[
        str,
        typer.Option(
            "--family",
            help="For files of signals: kind of model, 'linear' or 'network' to have the attack's rate predicted; default from features.",
        ),
    ] = "auto",
    loss_traces: Annotated[
        Path | None, typer.Option("--loss-traces", exists=True, dir_okay=False, help="File of LossTraces.save; adds lt_iqr and early_loss.")
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
            help="Model that a fine-tuned one started from: package.module:function returning it, its weights (.safetensors, .pt) or, for "
            "a language model, its folder. Beside a file of signals, another such file.",
        ),
    ] = None,
    folds: Folds = None,
    reference_models: ReferenceModels = None,
    short_references: ShortReferences = None,
    stop: Stop = None,
    work: Work = None,
    training_option: TrainingOption = None,
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
    """Audit a trained model: its file and tables, a file of signals, or a function that builds it.

    --model, --train, --test and --target read a model and two tables, without any Python. Columns
    named by --target, --id, --group and --drop never reach the model. The folder of a language
    model, or of adapters of PEFT, is audited on texts: --model FOLDER --train a.jsonl --test
    b.jsonl. Nothing is downloaded.

    A file holds the arrays train_features, train_outputs, train_targets, test_features,
    test_outputs, test_targets (optional: train_ids, test_ids, loss_traces). A function takes no
    arguments and returns noshadow.Target(model, train, test, …).
    """
    from noshadow._audit import audit as audit_target
    from noshadow._audit import audit_signals
    from noshadow.cli.finishing import finished
    from noshadow.cli.model_tables import Files, files_target, of_files, other_model, require_one_source, require_untrained
    from noshadow.cli.model_texts import texts_target
    from noshadow.cli.targets import base_of, target_of
    from noshadow.signals import load_splits
    from noshadow.storage.array_files import SUFFIXES

    options: dict[str, Any] = {
        "task": task.value,
        "fpr": "auto" if fpr is None else fpr,
        "damping": "auto" if damping is None else damping,
        "weight_decay": weight_decay,
        "output_scale": output_scale.value,
        "score_options": named_values(score_option or [], "--score-option"),
        "checkpoint": checkpoint or None,
        "out_of_fold": out_of_fold,
        "progress": not quiet,
        "seed": seed,
    }
    trainings = training_arguments(
        folds=folds,
        reference_models=reference_models,
        short_references=short_references,
        stop=stop,
        work=work,
        training_option=training_option,
    )

    files = Files(
        model=model_file,
        train=train_table,
        test=test_table,
        target=target_column,
        text=text_column,
        id=id_column,
        group=group_column,
        drop=drop or (),
        module=module,
        trust=trust or (),
    )
    require_one_source(what, files)

    def run_files() -> "Audit":
        require_untrained(trainings)
        if not intercept or family != "auto":
            raise InputError(
                said("--no-intercept and --family must come with a file of signals; got --model. The model itself shows them.")
            )
        how: dict[str, Any] = {"layers": int(layers) if layers.isdigit() else layers, "layer": layer, "output": output}
        if files.of_language_model:
            target, origin = texts_target(files, base)
            return of_files(audit_target(target, loss_traces=loss_traces, base=origin, **how, **trainings, **options))
        options["checkpoint"] = [other_model(path) for path in checkpoint] if checkpoint else None
        origin = None if base is None else base_of(base) if ":" in base else other_model(Path(base))
        return of_files(audit_target(files_target(files), loss_traces=loss_traces, base=origin, **how, **trainings, **options))

    def run() -> "Audit":
        if what is None:
            return run_files()
        if ":" in what and Path(what).suffix not in SUFFIXES:
            if not intercept:
                raise InputError(said(f"--no-intercept must come with a file of signals; got '{what}'. The model's own head is read."))
            if family != "auto":
                raise InputError(said(f"--family must come with a file of signals; got '{what}'. The model itself shows it."))
            target = target_of(what)
            # Beside the audit, whose own folder is written whole when everything is known.
            trainings["work"] = out.with_name(f"{out.name}-work") if (work, target.work) == (None, None) else work
            return audit_target(
                target,
                layers=int(layers) if layers.isdigit() else layers,
                layer=layer,
                output=output,
                loss_traces=loss_traces,
                base=None if base is None else base_of(base),
                **trainings,
                **options,
            )
        require_nothing_trained(trainings, what)
        if layer != "auto":
            raise InputError(said(f"--layer must come with a module:function; got '{what}'. A file holds one layer's signals."))
        if output != "auto":
            raise InputError(said(f"--output must come with a module:function; got '{what}'. A file holds one output's signals."))
        if layers != "last":
            raise InputError(said(f"--layers must be 'last' for a file of signals; got '{layers}'. Pass a module:function."))
        train, test, held = load_splits(what)
        if held is not None and loss_traces is not None:
            raise InputError(said(f"--loss-traces must come with a file that holds none; got '{what}' with its own. Leave one out."))
        how: dict[str, Any] = {"loss_traces": loss_traces if held is None else held, "fit_intercept": intercept, "family": family}
        return audit_signals(train, test, base=base, **how, **options)

    finished(run, out, force=force, quiet=quiet, as_json=as_json)


@app.command(epilog="Example: noshadow gate my-audit --max-tpr 0.05 --max-record-rate 0.5")
@named_command("gate")
def gate(
    folder: Annotated[Path, typer.Argument(help="An audit folder.")],
    max_tpr: Annotated[
        float | None,
        typer.Option(
            "--max-tpr", help="Limit on the attack's rate as it is best known: measured, by exposure, predicted or by the losses alone."
        ),
    ] = None,
    max_measured_tpr: Annotated[
        float | None, typer.Option("--max-measured-tpr", help="Limit on the stronger attack's TPR as reference models measured it.")
    ] = None,
    max_predicted_tpr: Annotated[
        float | None,
        typer.Option("--max-predicted-tpr", help="Limit on the model's predicted attack TPR, where the audit holds one."),
    ] = None,
    max_record_rate: Annotated[
        float | None, typer.Option("--max-record-rate", help="Limit on the attack's rate on the most exposed record.")
    ] = None,
    max_tnr: Annotated[float | None, typer.Option("--max-tnr", help="Limit on the loss attack's TNR.")] = None,
    max_auc: Annotated[float | None, typer.Option("--max-auc", help="Limit on the loss attack's AUC.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Exit 1 when the audit exceeds a limit, 2 when its figures are missing or in doubt.

    This is for pipelines.

    The figure itself is compared, not the end of its interval; a figure equal to its limit passes.
    """
    from noshadow.cli.gating import LIMITS, checked, lines, require_an_answer
    from noshadow.results import load

    given = (max_tpr, max_measured_tpr, max_predicted_tpr, max_record_rate, max_tnr, max_auc)
    asked = {name: limit for name, limit in zip(LIMITS, given, strict=True) if limit is not None}
    if not asked:
        raise InputError(said("at least one limit must be given; got none. Pass --max-tpr, --max-record-rate, --max-tnr or --max-auc."))
    outside = {name: limit for name, limit in asked.items() if not 0 <= limit <= 1}
    if outside:
        raise InputError(said(f"limits must be fractions between 0 and 1; got {outside}."))
    audited = load(folder)
    require_an_answer(audited, asked)
    rows = [checked(audited, name, limit) for name, limit in asked.items()]
    if as_json:
        typer.echo(json.dumps({"passed": all(row["passed"] for row in rows), "limits": rows}))
    elif not quiet:
        for line in lines(rows):
            typer.echo(visible(line))
    raise typer.Exit(0 if all(row["passed"] for row in rows) else 1)
