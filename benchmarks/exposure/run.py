"""Trains what the proof of `ns.exposure` needs, setup by setup, and goes on where it stopped.

`python -m benchmarks.exposure.run --data DIR --work DIR [--only NAME ...] [--judging] [--threads 1]`: calibration setups, or with
`--judging` the papers' settings, in the order of their price. `choose` and `judge` read the work folder.
"""

import argparse
import signal
import time
from pathlib import Path

import torch

from benchmarks.exposure.setups import CALIBRATION, JUDGING, SETUPS
from benchmarks.exposure.training import Trained


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--work", type=Path, required=True, help="where margins go; run again to go on")
    parser.add_argument("--only", nargs="+", choices=SETUPS, help="some setups")
    parser.add_argument("--judging", action="store_true", help="the papers' settings instead of the calibration setups")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    # An ended run leaves through the clock, so that its seconds are counted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = [SETUPS[name] for name in arguments.only] if arguments.only else (JUDGING if arguments.judging else CALIBRATION)
    for setup in chosen:
        started = time.process_time()
        Trained(setup, arguments.data, arguments.work).make_all()
        print(f"{setup.name}: {time.process_time() - started:.0f} processor seconds, {setup.seconds} expected", flush=True)


if __name__ == "__main__":
    main()
