"""Reference models of a dear setting in small files, so that a run can go on on another machine instead of starting again.

`python -m benchmarks.papers.kept --work DIR --only NAME` writes benchmarks/margins/NAME/ from the work folder, a file a model;
`benchmarks.papers.run` makes the reference folder from them where the work folder has none, and trains what is missing.

What is kept of a model: its margins in half precision, one bit a record for whether it was right, and for a scored model the order of its
records by each column, which is all that the tables use. Losses are made from the margins: ln(1 + e^−φ). Outputs are not kept.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from benchmarks.papers.settings import SETTINGS
from noshadow.reference.folder import create_folder
from noshadow.reference.manifest import DERIVED, plan_digest
from noshadow.reference.opening import EXTRA, model_path, opened_manifest, stored_plan, target_layout, whole_models
from noshadow.reference.plan import Plan
from noshadow.storage.safetensors_files import write_safetensors

MARGINS = Path(__file__).parents[1] / "margins"
MODEL, BESIDE = "model.safetensors", ("seconds.json", "score_seconds.jsonl")
FILE = "{:05d}.npz"


def keep(folder, kept):
    """Write what the setting's work folder has and `kept` has not; the numbers of all models that are kept."""
    references, models = folder / "references", kept / "models"
    manifest = opened_manifest(references)
    drawn, held = stored_plan(references, manifest)
    models.mkdir(parents=True, exist_ok=True)
    _write_json(kept / "plan.json", manifest)
    _write_npz(kept / "records.npz", {"membership": np.packbits(drawn.membership, axis=1), "seeds": drawn.seeds} | held)
    target = target_layout(references, manifest)
    _write_npz(kept / "target.npz", _small(target, 0))
    for name in (MODEL, *BESIDE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, kept / name)
    for number, there in whole_models(references, manifest).items():
        path = models / FILE.format(number)
        if not path.exists():
            _write_npz(path, _small(there, int(drawn.membership[number].sum())))
    return sorted(int(path.stem) for path in models.glob("*.npz"))


def restore(kept, folder, first=None):
    """Make the setting's reference folder, and the audited model beside it, from what is kept; of the first models alone where asked.

    A folder of the first models is complete and cannot be trained further: its plan is the beginning of the whole one.
    """
    manifest = json.loads((kept / "plan.json").read_text())
    drawn, records = _stored(kept, manifest, first)
    manifest["plan"]["models"] = drawn.models
    for name in DERIVED:
        del manifest["hashes"][name.removeprefix("hashes.")]
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MODEL, *BESIDE):
        if (kept / name).exists() and not (folder / name).exists():
            shutil.copyfile(kept / name, folder / name)
    target = _whole(kept / "target.npz")
    references = folder / "references"
    stamped = create_folder(
        references, manifest, drawn, records, (target[0], {name: text for name, text in target[1].items() if name != "plan"})
    )
    for path in sorted((kept / "models").glob("*.npz")):
        if int(path.stem) < drawn.models:
            arrays, metadata = _whole(path)
            write_safetensors(model_path(references, int(path.stem)), arrays, metadata | {"plan": plan_digest(stamped)})
    return references


def _stored(kept, manifest, first):
    with np.load(kept / "records.npz") as held:
        records = {name: held[name] for name in held.files}
    count = first or manifest["plan"]["models"]
    membership = np.unpackbits(records.pop("membership"), axis=1, count=manifest["plan"]["records"]).astype(bool)
    drawn = Plan(membership[:count], records.pop("seeds")[:count], manifest["plan"]["fraction"], manifest["plan"]["seed"])
    return drawn, records


def _small(there, members):
    """Arrays of one small file from a model's: margins, whether it was right, and the order of its members by each column."""
    found = {"margin": there.array("statistic").astype(np.float16), "correct": np.packbits(there.array("correct"))}
    for name in there.places:
        if name.startswith(EXTRA) and there.places[name][1] == (members,):
            # Equal values keep one rank, so that ties stay ties.
            found[name] = np.unique(there.array(name), return_inverse=True)[1].astype(np.uint16)
    kept = {name: value for name, value in there.metadata.items() if name != "plan"}
    return found | {"metadata": np.array(json.dumps(kept, sort_keys=True))}


def _whole(path):
    """(arrays, metadata) of a model's file from the small one."""
    with np.load(path) as held:
        margin = held["margin"].astype(np.float64)
        arrays = {
            "statistic": margin,
            "loss": np.logaddexp(0.0, -margin),
            "correct": np.unpackbits(held["correct"], count=len(margin)).astype(bool),
        }
        arrays |= {name: held[name].astype(np.float64) for name in held.files if name.startswith(EXTRA)}
        return arrays, json.loads(str(held["metadata"]))


def _write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def _write_npz(path, arrays):
    """Compressed, under another name until it is whole."""
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **arrays)
    part.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="work folder of benchmarks.papers.run")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, help="some settings")
    arguments = parser.parse_args()
    for name in arguments.only or [name for name, setting in SETTINGS.items() if setting.kept]:
        numbers = keep(arguments.work / name, MARGINS / name)
        print(name, len(numbers), "models kept:", *numbers, flush=True)


if __name__ == "__main__":
    main()
