"""How often intervals of an extrapolated exposure hold the true one, on made-up log-perplexities.

`python benchmarks/canary_intervals.py --work DIR` simulates RUNS sets of draws of a known truth, in blocks that are kept in DIR,
and writes benchmarks/results/canary_intervals.json when all are there; run again to go on. Nothing is trained. A canary stands where its
true exposure is a given number of bits; the interval is the package's, with fewer resamples to save time. Two minutes of one core.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
from scipy import optimize, stats

from benchmarks.environment import environment
from noshadow.canaries.ranks import extrapolated_standings

RESULTS = Path(__file__).parent / "results" / "canary_intervals.json"
RUNS, BLOCK, DRAWS, RESAMPLES, LEVEL = 500, 50, 500, 60, 0.95
SPACE = 2**40
BITS = (6, 10, 15, 20)  # 500 draws tell 9 bits by themselves
# A lower tail of the family that is fitted.
TRUTHS = {"skew_normal": stats.skewnorm(3, 50, 3)}


def places(truth):
    """Log-perplexities whose true exposure is BITS."""
    wanted = [-bits * math.log(2) for bits in BITS]
    return np.array([optimize.brentq(lambda x, log=log: truth.logcdf(x) - log, -400, 60) for log in wanted])


def block(name, number):
    """(BLOCK, bits) whether the interval holds the truth, its width, and its error: of one block of runs."""
    truth = TRUTHS[name]
    values, found = places(truth), []
    for run in range(number * BLOCK, (number + 1) * BLOCK):
        draws = truth.rvs(DRAWS, random_state=np.random.default_rng([7, run]))
        standings, _ = extrapolated_standings(values, draws, SPACE, LEVEL, RESAMPLES, run)
        found.append([(one.bits, *one.bits_interval) for one in standings])
    return np.array(found)


def judged(found):
    """Cover, mean error and mean width of the intervals, for each true number of bits."""
    rows = []
    for place, bits in enumerate(BITS):
        told, low, high = found[:, place].T
        held = float(((low <= bits) & (bits <= high)).mean())
        error = math.sqrt(held * (1 - held) / len(told))
        rows.append(
            {"bits": bits, "cover": held, "cover_error": error, "bias": float((told - bits).mean()), "width": float((high - low).mean())}
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=RUNS // BLOCK * len(TRUTHS), help="most blocks to simulate now")
    given, done = parser.parse_args(), 0
    given.work.mkdir(parents=True, exist_ok=True)
    held = {}
    for name in TRUTHS:
        for number in range(RUNS // BLOCK):
            path = given.work / f"{name}-{number}.npy"
            if not path.exists():
                if done == given.blocks:
                    return
                started = time.process_time()
                np.save(path, block(name, number))
                done += 1
                print(path.name, round(time.process_time() - started, 1), "s", flush=True)
            held.setdefault(name, []).append(np.load(path))
    how = {"runs": RUNS, "draws": DRAWS, "resamples": RESAMPLES, "level": LEVEL, "space_bits": math.log2(SPACE)}
    found = {"how": how, "truths": {name: judged(np.concatenate(parts)) for name, parts in held.items()}, "environment": environment()}
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
