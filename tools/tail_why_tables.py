"""Why the first judging went as it did, what was judged after it, and the demo's own truth: measured parts of docs/calibration.md."""

import math

SPOKEN = {
    "leverage": "a · TNR^b · h̄^c (shipped before)",
    "with skewness": "TNR, h̄ and skewness, straight in logs (ships)",
    "references": "LiRA with four references (ships)",
    "references, any skewness": "the same, its domain without the skewness",
}
RATES = {
    "losses": "losses (shipped before)",
    "leverage": "TNR, h̄ and skewness (ships)",
    "references": "LiRA with four references (ships)",
    "measured": "none: the model's measured rate",
}
WAYS = {
    "predicted": "losses and last layer",
    "predicted_by_4": "LiRA with four references",
    "predicted_by_8": "the mean of two fours",
    "predicted_by_16": "the mean of four fours",
}
PARTS = {"judging": "the judging setups", "calibration": "the calibration, data sets left out"}
PICKS = {
    "same figures": "TNR and h̄, fitted in logs",
    "left_out, rmse": "the smallest RMSE on the calibration, left out",
    "left_out, factor": "the smallest factor on the calibration, left out",
    "judging, rmse": "the smallest RMSE on the judging setups: hindsight",
    "judging, factor": "the smallest factor on the judging setups: hindsight",
}


def why_section(why):
    """Lines on noise, suspects, and every straight line in logs."""
    shipped, noise = why["shipped"], why["noise"]
    lines = [
        "### Why the goal was missed",
        "",
        f"The form a · TNR^b · h̄^c, its rates at FPR 0.001 and K = 64. Counting noise is not why: a setup's rate is known to {noise['judging']:.3f} (standard error, root mean square). As a",
        f"*factor* the error on new setups ({shipped['judging']['factor']:.2f}) is near that on data sets left out of the calibration ({shipped['calibration']['factor']:.2f}); the mean rate of the new setups is {shipped['judging']['mean']:.3f}, that of",
        f"the others {shipped['calibration']['mean']:.3f}. *Ratio*: median of measured over predicted, both plus 0.002; *share*: of the squared error of all setups.",
        "",
        f"| setups | {' | '.join(f'{spoken}: setups, ratio, share' for spoken in PARTS.values())} |",
        "|---|---|---|",
    ]
    for name in why["suspects"]["judging"]:
        cells = []
        for part in PARTS:
            row = why["suspects"][part][name]
            cells.append(f"{row['setups']}, {row['ratio']:.2f}, {row['share']:.2f}" if row["setups"] else "none")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{why['lines']['tried']:,} straight lines between the logs of up to three of the figures that a model shows by itself, fitted to the calibration setups:",
        "",
        "| picked for | figures | left out: RMSE, factor | judging setups: RMSE, factor |",
        "|---|---|---|---|",
    ]
    for pick, spoken in PICKS.items():
        row = why["lines"]["picked"][pick]
        cells = " | ".join(f"{row[part]['rmse']:.3f}, {row[part]['factor']:.2f}" for part in ("left_out", "judging"))
        lines.append(f"| {spoken} | {', '.join(row['figures'])} | {cells} |")
    return [*lines, ""]


def again_section(fixed, judged, records):
    """Lines on the form that was fixed after the first judging, and on rates of records on the same new setups."""
    return [*_forms(fixed, judged), *_records(records)]


def _forms(fixed, judged):
    rows = judged["setups"]
    lines = [
        "### Judged once more",
        "",
        f"One more form was fixed with what the first judging setups said: log(rate + 0.002) straight in the logs of TNR, h̄ and the skewness of the strangers' losses, fitted to {fixed['setups']} setups",
        f"(left out: RMSE {fixed['left_out']['rmse']:.3f}, factor {fixed['left_out']['factor']:.2f}). Then {len(rows)} further setups were named and trained{_missing(judged)}. FPR 0.001, K = 64.",
        "",
        "| form | setups | RMSE | bias | factor | spread of the rates | cover | in domain: setups, RMSE, cover |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, spoken in SPOKEN.items():
        found = judged["summary"][name]
        row, inside = found["all"], found.get("in_domain")
        domain = "" if inside is None or name == "with skewness" else f"{inside['setups']}, {inside['rmse']:.3f}, {inside['cover']:.2f}"
        lines.append(
            f"| {spoken} | {row['setups']} | **{row['rmse']:.3f}** | {row['bias']:+.3f} | {row['factor']:.2f} | {row['spread']:.3f} | {row['cover']:.2f} | {domain} |"
        )
    lines += [
        "",
        "| setup | members | train / test accuracy | TNR | h̄ | skewness | LiRA | from TNR and h̄ | with skewness | from four references |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda one: one["rate"]):
        predicted = " | ".join(f"{row[name]['predicted']:.3f}" for name in ("leverage", "with skewness", "references"))
        known = "" if row["unseen"] else " (known source)"
        lines.append(
            f"| {row['setup']}{known} | {row['members']:,} | {row['member_accuracy']:.2f} / {row['nonmember_accuracy']:.2f} | {row['tnr_0.001']:.3f} | {row['margin_leverage_mean']:.2f} | {row['skewness']:.2f} "
            f"| **{row['rate']:.3f}** | {predicted} |"
        )
    return [*lines, "", *map(_untouched, judged["untouched"]), ""]


def _untouched(row):
    """One setup that what ships has not seen, neither its curves nor its intervals."""
    told = ", ".join(
        f"{row[kind]['predicted']:.3f} ({row[kind]['low']:.3f} to {row[kind]['high']:.3f}) from {spoken}"
        for kind, spoken in (("losses", "losses"), ("leverage", "losses and last layer"), ("references", "four references"))
    )
    return f"What ships has not seen `{row['setup']}`, neither its curves nor its intervals: LiRA finds {row['rate']:.3f} there, and the predictions are {told}, means over its models."


def _missing(judged):
    names = {kind: ", ".join(f"`{name}`" for name in judged[kind]) for kind in ("missing", "later")}
    told = [f"{names['missing']} of the list not trained"] if names["missing"] else []
    told += [f"{names['later']} when the others had judged"] if names["later"] else []
    return f" ({'; '.join(told)})" if told else ""


def _records(records):
    lines = [
        "### Rates of records, judged once more",
        "",
        f"{records['setups']} of the setups above, which neither the records' curve nor a predictor was fitted to. Miss: root mean square over tenths of the records by rank and setups; cover: share of the",
        "tenths that the shipped 90 % interval of a record's rate holds.",
        "",
        "| FPR | the model's rate is predicted from | miss | median setup | worst setup | cover |",
        "|---|---|---|---|---|---|",
    ]
    for fpr, level in records["levels"].items():
        for kind, spoken in RATES.items():
            row = level[kind]
            lines.append(
                f"| {fpr} | {spoken} | **{row['rms_miss']:.3f}** | {row['median_miss']:.3f} | `{row['worst']}` | {row['coverage']:.2f} |"
            )
    return [*lines, ""]


def demo_section(demo):
    """Lines on LiRA's rate on models of the demo's kind beside what audits of demos predict."""
    told = demo["summary"]
    first = demo["demos"][0]
    low, high = first["predicted"]["interval"]
    lines = [
        "### The demo",
        "",
        f"{demo['models']} models of the demo's kind, each attacked with the others: LiRA recognises {_people(told['rate'])} of the members in the mean (single models differ by {_people(told['deviation_of_one'])}, standard deviation), where",
        f"the demo itself (seed 0) says {_people(first['predicted']['value'])} with a 90 % interval of {_people(low)} to {_people(high)}. {len(demo['demos'])} demos with other seeds and halves, each beside that mean:",
        "",
        "| predicted from | mean, in 1,000 | times the rate | RMSE | intervals that hold the rate |",
        "|---|---|---|---|---|",
    ]
    for name, spoken in WAYS.items():
        row = told[name]
        lines.append(
            f"| {spoken} | {1000 * row['mean']:.0f} | {row['times']:.2f} | {row['rmse']:.3f} | {round(row['held'] * len(demo['demos']))} of {len(demo['demos'])} |"
        )
    return [*lines, ""]


def _people(rate):
    return f"{1000 * rate:.0f} in 1,000"


def demo_figures(demo):
    """Figures that pages quote of the demo, by name."""
    first = demo["demos"][0]
    low, high = (f"{1000 * end:.0f}" for end in first["predicted"]["interval"])
    return {
        "demo_predicted": f"{1000 * first['predicted']['value']:.0f}",
        "demo_interval": f"{low} to {high}",
        "demo_rate": f"{1000 * demo['summary']['rate']:.0f}",
        "demo_times": f"{first['predicted']['value'] / demo['summary']['rate']:.1f}",
        "demo_by_four": f"{1000 * first['predicted_by_fours']['1']['value']:.0f}",
    }


def again_figures(judged, records, shipped):
    """Figures that pages quote of the second judging, and of the domains of what ships, by name."""
    names = {"ships": "leverage", "skewness": "with skewness", "four": "references"}
    told = {way: judged["summary"][name]["all"] for way, name in names.items()}
    figures = {f"again_{what}_{way}": f"{row[what]:.2f}" for way, row in told.items() for what in ("rmse", "factor", "cover")}
    before = {way: judged["summary_before"][name]["all"]["cover"] for way, name in (("ships", "leverage"), ("skewness", "with skewness"))}
    figures |= {f"again_cover_before_{way}": f"{cover:.3f}" for way, cover in before.items()}
    losses, leverage = (shipped["calibrations"][kind]["domain"]["skewness"][0] for kind in ("losses", "leverage"))
    figures |= {"skewness_losses": f"{losses:.1f}", "skewness_from": f"{leverage:.2f}"}
    symmetric = [row for row in judged["setups"] if row["skewness"] < losses]
    for way, name in names.items():
        squares = [(row[name]["predicted"] - row["rate"]) ** 2 for row in symmetric]
        figures[f"again_symmetric_{way}"] = f"{math.sqrt(sum(squares) / len(squares)):.2f}"
    misses = {f"again_miss_{kind}": f"{records['levels']['0.001'][kind]['rms_miss']:.2f}" for kind in RATES}
    return figures | misses | {"again_setups": f"{len(judged['setups'])}", "again_records": f"{records['setups']}"}
