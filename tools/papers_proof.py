"""The README's two tables: what one audit finds beside earlier scores and the attack, and what more evidence adds."""

from exposure_bars import evidence_lines, halves
from exposure_stored import runs as exposure_runs
from papers_extras import percent
from papers_stored import POOLED_BELOW, cell, judged, ratio, runs, second_by_d
from papers_tables import STAND_INS


def proof_lines():
    """The README's two tables: one audit beside earlier scores and the attack run again, and what more evidence adds."""
    lines = [
        "| data and model | **one audit** | best earlier score, same run | the attack, run again | best published figure | price of the attack, in audits |",
        "|---|---|---|---|---|---|",
    ]
    for name, entry in runs().items():
        (value, _, rerun, again), (success, best, rerun_success, again_success) = judged(name, entry, "lira_d"), judged(name, entry)
        other = " †" if name in STAND_INS else ""
        price = f"{ratio(entry).removesuffix(' ×')} ({entry['references']} models)"
        both = [f"{cell(a)} ({percent(b, 0)})" for a, b in ((value, success), (rerun, rerun_success), (again, again_success))]
        lines.append(f"| {entry['title']}{other} | **{both[0]}** | {both[1]} | {both[2]} | ({percent(best, 0)}) | {price} |")
    judged_exposure = exposure_runs()
    both = [name for name in judged_exposure if name in runs()]
    apart = {name: (judged_exposure[name]["second_lira"]["recall"]["mean"], second_by_d(name)) for name in both}
    widest = max(apart, key=lambda name: apart[name][1] - apart[name][0])
    weak, strict = (cell(value) for value in apart[widest])
    return [
        *lines,
        "",
        "† Published for other data or features: BloodMNIST with DINOv2, BERT-base.",
        "",
        "**What does more evidence add?** The same share again, for audits of the last layer that were given more than the final model: an earlier checkpoint of it, and then",
        "two reference models. The truth is from models that no audit saw, and is told in two ways. The first figure goes by how far apart (d′) the attack sees models with the",
        "record and models without it, which still tells records apart that are recognised every time; the second, as above, by how often it is right (success). Where the",
        "attack, run again, finds little (by d′), the truth is noisy, and all figures of the row are low. **It is a weaker bar than in the table above**: each record's d′ has its own",
        f"spread here, and *run again* means halves of {halves(judged_exposure)} models; above it has more models, and one spread for all records below {POOLED_BELOW}. For {judged_exposure[widest]['title']} the attack, run again, finds",
        f"{weak} here and {strict} there: an audit that passes the first does not reach the second.",
        "",
        *evidence_lines(),
        "",
    ]
