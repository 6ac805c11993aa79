"""Write docs/benchmarks.md, the measured parts of docs/scaling.md, docs/language_models.md, docs/calibration.md, docs/papers.md and docs/exposure.md, and the marked figures of other pages from benchmarks/results/*.json.

`python tools/render_benchmarks.py` writes; `--check` fails when a page does not say what the JSON says.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from audit_tables import audit_section
from boosting_tables import boosting_section, speed_section
from column_table import column_lines
from ekfac_tables import ekfac_section
from exposure_picture import recall_picture
from exposure_tables import exposure_section
from few_parameters_tables import few_parameters_section
from finetuned_tables import cost_section, finetuned_section
from forest_tables import forest_section
from language_tables import language_section
from largest_tables import largest_section
from layer_tables import network_section, record_tpr_section, which_layers_section
from lood_pictures import lood_pictures
from lood_quotes import lood_quotes
from lood_tables import lood_section, measured_section
from own_gain_tables import intervals_section, own_gain_section, predictors_section
from papers_disclosed import statistic_figures
from papers_inventory import inventory_lines
from papers_peers_picture import peers_picture
from papers_pictures import papers_pictures
from papers_proof import proof_lines
from papers_tables import BESIDE_THE_SETTINGS, papers_section
from papers_uses import canary_figures
from render_scaling import generated
from tail_judged_tables import judged_section
from tail_pictures import tail_pictures
from tail_published_tables import published_section
from tail_tables import calibration_section
from tail_why_tables import again_figures, again_section, demo_figures, demo_section, why_section
from tree_tables import leaves_section, ranking_section, tree_calibration_section, tried_section

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
SCALING = ROOT / "docs" / "scaling.md"
LANGUAGE = ROOT / "docs" / "language_models.md"
CANARIES = ROOT / "docs" / "how-to" / "canaries.md"
LOOD = ROOT / "docs" / "lood.md"
CHARTS = ROOT / "docs" / "images" / "lood"
CALIBRATION = ROOT / "docs" / "calibration.md"
CALIBRATION_CHARTS = ROOT / "docs" / "images" / "calibration"
TREES = ROOT / "docs" / "trees.md"
PAPERS = ROOT / "docs" / "papers.md"
PAPERS_CHARTS = ROOT / "docs" / "images" / "papers"
README = ROOT / "README.md"
AUDIT = ROOT / "docs" / "audit.md"
EXPOSURE = ROOT / "docs" / "exposure.md"
EXPOSURE_CHARTS = ROOT / "docs" / "images" / "exposure"
REPORT_PICTURES = ROOT / "docs" / "images" / "report"
COLUMNS = ("leverage", "influence", "newton", "loo", "shift")


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def where_stored(name, section):
    """A section whose figures take long to measure: left out until they are there."""
    return section(stored(name)) if (RESULTS / f"{name}.json").exists() else []


def machine(environment):
    versions = environment["versions"]
    cores, threads = environment["cores"], environment["torch_threads"]
    return f"{environment['cpu']}, {cores} cores, {threads} threads, Python {environment['python']}, torch {versions['torch']}"


def ideal_section(cases):
    lines = [
        "## Speed against the ideal",
        "",
        "All columns but `margin_leverage` of a softmax head against the two float32 matrix products that the arithmetic cannot avoid (pairs of classes × records ×",
        "pairs of features, there and back), with operands at hand, measured in the same run. d counts the bias. Goal: a ratio of at most 2.5. *Aligned* is the",
        "same product with both sides rounded up to a multiple of 64, where this machine's BLAS is faster: a stricter ideal.",
        "",
        "| n | d | m | ideal, s | all columns, s | **ratio** | aligned ideal, s | ratio to it | float64 throughout, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        lines.append(
            f"| {case['n']:,} | {case['d']} | {case['m']} | {case['ideal_seconds']:.1f} | {case['seconds']:.1f} | **{case['ratio']:.2f}** "
            f"| {case['aligned_ideal_seconds']:.1f} | {case['ratio_to_aligned_ideal']:.2f} | {case['float64_seconds']:.1f} |"
        )
    lines += [
        "",
        "What float32 products did to the scores, against float64: the largest relative error among the riskiest 5 % of each column, and how many",
        "records entered or left the top 1 % without being within 1e-3 of its edge. *Measured* is what the run itself reported.",
        "",
        "| n, d, m | " + " | ".join(COLUMNS) + " | top-1 % changes | measured |",
        "|---|" + "---|" * (len(COLUMNS) + 2),
    ]
    for case in cases:
        errors = " | ".join(f"{case['largest_relative_error_top_5_percent'][c]:.0e}" for c in COLUMNS)
        changes = sum(case["top_1_percent_differs_beyond_error"].values())
        lines.append(f"| {case['n']:,}, {case['d']}, {case['m']} | {errors} | {changes} | {case['precision_error']:.0e} |")
    return [*lines, ""]


def streaming_section(case):
    lines = [
        "## A million records",
        "",
        f"d = {case['d']}, m = {case['m']}, every column; peak memory above the inputs, one process a size. Goal: at most 2 GB, time linear in n.",
        "",
        "| n | seconds | µs a record | peak above inputs, MB |",
        "|---|---|---|---|",
    ]
    for row in case["rows"]:
        per_record, peak = 1e6 * row["seconds"] / row["n"], row["peak_bytes_above_inputs"] / 1e6
        lines.append(f"| {row['n']:,} | {row['seconds']:.1f} | {per_record:.1f} | {peak:.0f} |")
    return [*lines, "", f"Slowest over fastest time a record: {case['slowest_over_fastest_seconds_per_record']:.2f}.", ""]


def peer_section(case):
    lines = [
        "## Against the plain way and a peer",
        "",
        f"Self-influence of all n = {case['n']:,} records of a head with d = {case['d']}, m = {case['m']}, float64, on the same machine in one run. The plain way is",
        "an autograd Hessian, an autograd gradient and a dense solve a record; the peer is dattri's `IFAttributorExplicit.self_attribute`, whose",
        "values agree with ours after its mean-loss scaling.",
        "",
        f"Ours: {case['seconds_influence']:.3f} s for influence, {case['seconds_all_columns']:.3f} s for all columns.",
        "",
        "| way | seconds | speed-up, influence alone | speed-up, all our columns | largest relative difference |",
        "|---|---|---|---|---|",
    ]
    for name, label in (("autograd_dense", "autograd + dense solve"), ("dattri_explicit", "dattri explicit")):
        row = case[name]
        lines.append(
            f"| {label} | {row['seconds']:.1f} | {row['speed_up_influence']:,.0f} × | {row['speed_up_all_columns']:,.0f} × "
            f"| {row['largest_relative_difference']:.0e} |"
        )
    return [*lines, ""]


def refit_section(table):
    lines = [
        "## Against true leave-one-out refits",
        "",
        "Multinomial logistic regression on principal components of scikit-learn's digits (classes 0–4), fitted to convergence, then refitted n times",
        "with one record left out. Median relative error of each score as an estimate of the true rise in the record's loss, over all records and over",
        "the riskiest tenth.",
        "",
        "| n | influence | newton | loo | influence, top tenth | newton, top tenth | loo, top tenth |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table["rows"]:
        cells = [f"{row[s][kind]:.4f}" for kind in ("median", "median_top_tenth") for s in ("influence", "newton", "loo")]
        lines.append(f"| {row['n']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def training_section(cases):
    optimizers = {"sgd_momentum": "SGD, momentum", "adam": "Adam"}
    lines = [
        "## Training reference models",
        "",
        f"{cases['batch_128']['models']} three-layer networks 768 → h → h → 10, each on 5,000 of 10,000 records, float32: milliseconds per model and epoch of the plain",
        "loop and of `Recipe.train_many`, on the same two cores in one run: one process with two threads, or two processes with one thread each. *Gain* compares like",
        "with like in one process (the loop as people write it), and the better of both ways with the better loop. Goal: 3.",
        "",
        "| h | optimiser | batch | loop, 2 threads | loop, 2 processes | at once, 2 threads | at once, 2 processes | **gain, one process** | gain, best against best |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in [row for name in ("batch_128", "batch_64_256") if name in cases for row in cases[name]["results"]]:
        ms = row["milliseconds_per_model_epoch"]
        names = ("one_by_one_two_threads", "one_by_one_two_processes", "at_once_two_threads", "at_once_two_processes")
        cells = " | ".join(f"{ms[name]:.0f}" for name in names)
        lines.append(
            f"| {row['width']} | {optimizers[row['optimizer']]} | {row['batch_size']} | {cells} "
            f"| **{row['speed_up_over_two_threads']:.1f}** | {row['speed_up_over_the_better_loop']:.1f} |"
        )
    lines += [
        "",
        "The gain comes from what a step costs beside its arithmetic, so it falls as networks grow: wide ones are bound by the same matrix products either way.",
        "Stacked convolutions become grouped ones, which CPU kernels run no faster, so they are trained one after the other.",
        "",
    ]
    if "convolutions" in cases:
        rows = cases["convolutions"]["results"]
        slower = ", ".join(f"{row['stacked_over_one_by_one_seconds']:.1f} × with {row['channels']} channels" for row in rows)
        lines += [f"Forced into stacks, convolutions take {slower} of the time of the plain loop.", ""]
    return lines


def attack_section(cases):
    names = {
        "lira_mean": "`lira_scores`, mean, per-record variance",
        "lira_median": "`lira_scores`, median",
        "lira_offline": "`lira_scores`, offline",
        "success_lira": "`attack_success`, LiRA: every model attacked with the others",
        "success_lira_median": "`attack_success`, LiRA, median",
        "success_lira_offline": "`attack_success`, LiRA, offline",
        "success_rmia": "`attack_success`, RMIA",
        "success_loss": "`attack_success`, LOSS",
    }
    any_case = cases["lira_mean"]
    lines = [
        "## Attacks on a million records",
        "",
        f"{any_case['records']:,} records × {any_case['models']} reference models in float64 ({any_case['input_bytes'] / 1e9:.1f} GB of signals and membership), one process a case; memory above those inputs.",
        "Goal: `lira_scores` within 60 s and without a second copy. Seconds are wall time; cases without CPU time were measured beside other work and read high.",
        "",
        "| | seconds | CPU seconds | peak above inputs, MB |",
        "|---|---|---|---|",
    ]
    for name, label in names.items():
        if name in cases:
            cpu = f"{cases[name]['cpu_seconds']:.0f}" if "cpu_seconds" in cases[name] else "not measured"
            lines.append(f"| {label} | {cases[name]['seconds']:.0f} | {cpu} | {cases[name]['peak_bytes_above_input'] / 1e6:.0f} |")
    return [*lines, ""]


def page():
    scores, refits = stored("last_layer"), stored("loo_refits")
    lines = [
        "# Benchmarks",
        "",
        "Made from `benchmarks/results/*.json` by `tools/render_benchmarks.py`; run them with `make benchmarks`. Nobody types these numbers.",
        "",
        f"Machine: {machine(scores['peers']['environment'])}.",
        "",
        *ideal_section([scores["25k_65_100"], scores["50k_513_10"]]),
        *where_stored("audit_speed", audit_section),
        *streaming_section(scores["streaming"]),
        *peer_section(scores["peers"]),
        *refit_section(refits),
        *where_stored("boosting_loo", boosting_section),
        *where_stored("boosting_speed", speed_section),
        *training_section(stored("reference_training")),
        *where_stored("ekfac", ekfac_section),
        *where_stored("network", network_section),
        *where_stored("which_layers", which_layers_section),
        *where_stored("record_tpr", record_tpr_section),
        *where_stored("forests", forest_section),
        *where_stored("largest_rate", largest_section),
        *where_stored("few_parameters", few_parameters_section),
        *attack_section(stored("attacks")),
        *where_stored("lood", lood_section),
    ]
    return "\n".join(lines).rstrip() + "\n"


def quoted_figures():
    """Figures that pages quote between <!-- figure:NAME --> and <!-- /figure -->."""
    scores, refits = stored("last_layer"), stored("loo_refits")
    large = scores["streaming"]["rows"][-1]
    last = refits["rows"][-1]
    coverage = {f"coverage_{row['members_above_threshold']}": percent(row["coverage"]) for row in stored("tnr_coverage")["rows"]}
    judged = stored("tail_judged_again")["summary"]["with skewness"]["all"]
    return (
        coverage
        | {"judged_setups": f"{judged['setups']}", "judged_rmse": f"{judged['rmse']:.2f}", "judged_spread": f"{judged['spread']:.2f}"}
        | demo_figures(stored("demo_truth"))
        | again_figures(*map(stored, ("tail_judged_again", "record_rates_again", "tail_shipped")))
        | compare_figures(stored("compare_coverage")["rows"])
        | {"report_words": words_figure()}
        | canary_figures(stored("canaries"))
        | statistic_figures(stored("papers_ridge"))
        | lood_quotes(stored("lood_figures"))
        | {
            "wide": f"{scores['50k_513_10']['seconds']:.0f} s",
            "wide_size": f"{scores['50k_513_10']['n']:,} records, {scores['50k_513_10']['d'] - 1} features, {scores['50k_513_10']['m']} classes",
            "million": f"{large['seconds']:.0f} s",
            "million_memory": f"{large['peak_bytes_above_inputs'] / 1e9:.1f} GB",
            "dattri": f"{scores['peers']['dattri_explicit']['speed_up_influence']:,.0f} ×",
            "loo_n": f"{last['n']}",
            "loo_error": percent(last["loo"]["median_top_tenth"]),
        }
    )


def words_figure():
    """What docs/report.md quotes: words on the pages of five audits beside those that the same pages had before."""
    before, after = (json.loads((REPORT_PICTURES / f"{prefix}.json").read_text()) for prefix in ("before", "after"))
    shares = [after[name]["words"] / before[name]["words"] for name in after]
    return f"{100 * min(shares):.0f} % to {100 * max(shares):.0f} %"


def compare_figures(rows):
    """What docs/compare.md quotes: coverage without a change, how often one is seen all the same, and the weakest case with one."""
    same = [row for row in rows if row["tnr_difference"] == 0]
    (one,) = (row for row in rows if row["tnr_difference"] and row["members_above_threshold"] == 1)

    def span(values):
        return f"{percent(min(values))} to {percent(max(values))}"

    return {
        "compare_tnr": span([row["tnr_coverage"] for row in same]),
        "compare_auc": span([row["auc_coverage"] for row in same]),
        "compare_false": percent(max(row[name] for row in same for name in ("tnr_seen", "auc_seen"))),
        "compare_one": percent(one["tnr_coverage"]),
    }


def percent(share):
    return f"{100 * share:.1f} %"


def quoting(text):
    figures = quoted_figures()
    return re.sub(
        r"<!-- figure:(\w+) -->.*?<!-- /figure -->",
        lambda match: f"<!-- figure:{match[1]} -->{figures[match[1]]}<!-- /figure -->",
        text,
        flags=re.DOTALL,  # a figure may stand across two lines of a page
    )


def scaling():
    """The page with its generated part between two marks."""
    begin, end = "<!-- generated:scaling -->", "<!-- /generated -->"
    before, _, rest = SCALING.read_text().partition(begin)
    return f"{before}{begin}\n\n{generated(stored('shards'))}\n\n{end}{rest.partition(end)[2]}"


def with_part(path, name, lines, text=None):
    """The page, or its text so far, with its generated part between two marks."""
    begin, end = f"<!-- generated:{name} -->", "<!-- /generated -->"
    before, _, rest = (path.read_text() if text is None else text).partition(begin)
    return "\n".join([f"{before}{begin}", "", *lines, f"{end}{rest.partition(end)[2]}"])


def language():
    text = with_part(LANGUAGE, "language", where_stored("language_models", language_section))
    text = with_part(LANGUAGE, "cost", where_stored("language_cost", cost_section), text)
    text = with_part(LANGUAGE, "finetuned", where_stored("finetuned", finetuned_section), text)
    own = where_stored("own_gain", lambda found: own_gain_section(found, stored("finetuned")))
    text = with_part(LANGUAGE, "own_gain", own, text)
    return with_part(LANGUAGE, "predictors", where_stored("language_predictors", predictors_section), text)


def canaries():
    return with_part(CANARIES, "canary_intervals", where_stored("canary_intervals", intervals_section))


def calibration():
    return with_part(
        CALIBRATION,
        "calibration",
        [
            *judged_section(*map(stored, ("tail_judged", "tail_few", "tail_shipped"))),
            *why_section(stored("tail_why")),
            *again_section(*map(stored, ("tail_fixed_again", "tail_judged_again", "record_rates_again"))),
            *demo_section(stored("demo_truth")),
            *calibration_section(
                *map(stored, ("tail_fits", "tail_shipped", "record_rates", "tail_extrapolation")), RESULTS / "tail_calibration"
            ),
            *published_section(stored("tail_published"), RESULTS / "tail_calibration"),
            *tree_calibration_section(stored_or_empty("tree_fits")),
        ],
    )


def trees():
    text = with_part(TREES, "leaves", leaves_section(stored("tree_fits")))
    text = with_part(TREES, "trees", ranking_section(RESULTS / "tree_calibration"), text)
    return with_part(TREES, "tried", tried_section(stored("tree_tried")), text)


def distinguishability():
    return with_part(LOOD, "lood", where_stored("lood_figures", measured_section))


def charts():
    """Path and text of every chart of docs/lood.md."""
    return where_stored("lood_figures", lambda figures: [(CHARTS / name, text) for name, text in lood_pictures(figures).items()])


def stored_or_empty(name):
    return stored(name) if (RESULTS / f"{name}.json").exists() else {}


def papers():
    measured = papers_section({name: stored_or_empty(name) for name in BESIDE_THE_SETTINGS})
    return with_part(PAPERS, "inventory", inventory_lines(), with_part(PAPERS, "papers", measured))


def papers_charts():
    """Path and text of every chart of docs/papers.md."""
    peers = stored_or_empty("papers_peers")
    drawn = papers_pictures(stored_or_empty("papers_pictures")) | ({"peers.svg": peers_picture(peers)} if peers else {})
    return [(PAPERS_CHARTS / name, text) for name, text in drawn.items()]


def calibration_charts():
    """Path and text of every chart of docs/calibration.md."""
    return [(CALIBRATION_CHARTS / name, text) for name, text in tail_pictures(stored("tail_published")).items()]


def exposure_charts():
    """Path and text of the chart of docs/exposure.md, when there are figures."""
    drawn = recall_picture()
    return [] if drawn is None else [(EXPOSURE_CHARTS / "recall.svg", drawn)]


def rendered():
    """Path → text of every page and picture that quotes stored results."""
    made = (
        (PAGE, page()),
        (SCALING, scaling()),
        (LANGUAGE, language()),
        (CANARIES, canaries()),
        (CALIBRATION, calibration()),
        (TREES, trees()),
        (LOOD, distinguishability()),
        (PAPERS, papers()),
        (AUDIT, with_part(AUDIT, "columns", column_lines())),
        (EXPOSURE, with_part(EXPOSURE, "exposure", exposure_section())),
        *charts(),
        *papers_charts(),
        *exposure_charts(),
        *calibration_charts(),
        (README, with_part(README, "proof", proof_lines())),
    )
    texts = {path: path.read_text() for path in (README, *sorted((ROOT / "docs").rglob("*.md")))} | dict(made)
    return {path: quoting(text) if path.suffix == ".md" else text for path, text in texts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail instead of writing")
    check = parser.parse_args().check
    for path, text in rendered().items():
        if check and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.relative_to(ROOT)} does not say what benchmarks/results says: run python tools/render_benchmarks.py")
        if not check:
            path.write_text(text)


if __name__ == "__main__":
    main()
