"""What the pictures of docs/papers.md show, from the audits and reference models in the work folder.

`python -m benchmarks.papers.pictures --data DIR --work DIR` writes benchmarks/results/papers_pictures.json and the galleries of images;
settings that are not complete are left out, and what an earlier run stored of them is kept. Galleries of the probes on images need an
audited model alone, which takes seconds: it is trained where it is not there.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

import noshadow as ns
from benchmarks.papers.gls import frogs, high_and_low
from benchmarks.papers.pools import garments, radiographs, sentences
from benchmarks.papers.run import Clock, audited, audited_model
from benchmarks.papers.settings import SETTINGS, members, recipe, records
from noshadow import theory
from noshadow.reference import load_references

STORED = Path(__file__).parents[1] / "results" / "papers_pictures.json"
GALLERIES = Path(__file__).parents[2] / "docs" / "images" / "papers"
POINTS = 1200
SHOWN = 10
CUT = 70
ENLARGED, GAP = 2, 3
# Settings of frozen features, whose records are images.
FROZEN = {"fashion_probe": garments, "pneumonia_probe": radiographs}


def scatter(table):
    """Loss, influence and LiRA's success of a random sample of the audited model's records."""
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:POINTS])
    return {name: _digits(table[name].to_numpy()[rows]) for name in ("loss", "influence", "lira_success")}


def theory_curves():
    """[RET] Figure 1 and [GLS] Figure 5 in closed form: gaps over (h̄, ε), and false-negative rates of the best attacks."""
    side, rates = np.linspace(0.1, 3, 24), np.linspace(0.002, 0.998, 60)
    design = {"noise_variance": 1.0, "n": 100, "p": 2}
    return {
        "side": _digits(side),
        "rates": _digits(rates),
        "gap": [_digits(theory.expected_gap(np.full(len(side), h), side, **design)) for h in side],
        "by_error": [_digits(theory.tradeoff(rates, 1.0, error, **design)) for error in (0.0, 1.0, 2.0, 4.0)],
        "by_leverage": [_digits(theory.tradeoff(rates, h, 1.0, **design)) for h in (0.5, 1.0, 4.0, 16.0)],
        "fixed_design": {str(h): _digits(theory.fixed_design_tradeoff(rates, h)) for h in (0.1, 0.3, 0.5, 0.7, 0.9)},
    }


def _digits(values):
    return [float(f"{value:.4g}") for value in values]


def extremes(table, column):
    """Rows of the ten highest and the ten lowest values of a column."""
    order = np.argsort(table[column].to_numpy(), kind="stable")
    return {"highest": order[::-1][:SHOWN], "lowest": order[:SHOWN]}


def gallery(table, images, columns, path):
    """Images with the highest and lowest values of each column, a row each."""
    step = images.shape[-1] * ENLARGED + GAP
    chosen = [rows for column in columns for rows in extremes(table, column).values()]
    sheet = np.full((len(chosen) * step - GAP, SHOWN * step - GAP, 3), 255, np.uint8)
    for r, rows in enumerate(chosen):
        for c, row in enumerate(rows):
            big = images[row].transpose(1, 2, 0).repeat(ENLARGED, 0).repeat(ENLARGED, 1)
            sheet[r * step : r * step + len(big), c * step : c * step + len(big)] = big
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet).save(path, optimize=True)
    return [f"{column}, {end}" for column in columns for end in ("highest", "lowest")]


def top_sentences(table, texts, rows):
    """[RET] Table 6: the sentences with the highest values of two columns, cut to a length."""
    found = {}
    for column in ("newton", "influence"):
        best = extremes(table, column)["highest"]
        found[column] = [
            {
                "text": texts[rows[row]][:CUT] + ("…" if len(texts[rows[row]]) > CUT else ""),
                "label": int(table["target"].iloc[row]),
                "success": round(float(table["lira_success"].iloc[row]), 3),
            }
            for row in best
        ]
    return found


def pixels(x):
    """(n, 3, s, s) bytes of standardised images."""
    return np.clip((x * 0.25 + 0.473) * 255.0 + 0.5, 0, 255).astype(np.uint8)


def frozen_gallery(setting, data, work):
    """The gallery of a probe on images: its audited model's records by influence and Newton, without any reference model."""
    folder = work / setting.name
    folder.mkdir(parents=True, exist_ok=True)
    x, y, rows = records(setting, data, work)
    trained, count = recipe(setting, x, y), members(setting, len(x))
    clock = Clock(folder / "seconds.json")
    module = audited_model(trained, folder, clock, count)
    table = audited(module, trained, (x[:count], y[:count]), (x[count:], y[count:]), folder, clock).records
    grey, _ = FROZEN[setting.name](data)
    images = grey[rows[: len(table)], None].repeat(3, axis=1)
    return gallery(table, images, ("influence", "newton"), GALLERIES / f"{setting.name}.png")


def shown(setting, data, work):
    """The pictures of one complete setting."""
    folder = work / setting.name
    table = ns.load(folder / "audit").records
    found = {"scatter": scatter(table)}
    if setting.name == "sst2_probe":
        texts, _ = sentences(data)
        found["sentences"] = top_sentences(table, texts, records(setting, data, work)[2])
    if setting.name.startswith("cifar"):
        x, y, _ = records(setting, data, work)
        columns = ("leverage",) if setting.depths else ("influence", "newton")
        found["gallery"] = gallery(table, pixels(x[: len(table)]), columns, GALLERIES / f"{setting.name}.png")
        if setting.depths:
            trained, leverage = recipe(setting, x, y), table["leverage"].to_numpy()
            module = audited_model(trained, folder, None)
            found |= {
                "frogs": frogs(trained, module, leverage),
                "high_and_low": high_and_low(load_references(folder / "references"), leverage),
            }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="the work folder of benchmarks.papers.run")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, help="some settings")
    arguments = parser.parse_args()
    held = json.loads(STORED.read_text()) if STORED.exists() else {}
    held["theory"] = theory_curves()
    for name in arguments.only or SETTINGS:
        if name in FROZEN:
            held[name] = held.get(name, {}) | {"gallery": frozen_gallery(SETTINGS[name], arguments.data, arguments.work)}
        if not (arguments.work / name / "report.html").exists():
            print(name, "is not complete", flush=True)
            continue
        held[name] = held.get(name, {}) | shown(SETTINGS[name], arguments.data, arguments.work)
        print(name, flush=True)
    STORED.write_text(json.dumps(held, separators=(",", ":"), sort_keys=True, ensure_ascii=False).replace("},", "},\n") + "\n")


if __name__ == "__main__":
    main()
