"""`python -m benchmarks.finetuned --data DIR --work DIR` trains what is missing; run again to go on.

Expected, from one model of each kind that was timed before the run: 1.5 minutes for the base, then 36 models × 2 pools × (9 s for both
kinds of training and 4 s for reading five snapshots), and 1.5 minutes for output heads: 19 minutes of one core.
"""

import argparse
from pathlib import Path

from benchmarks.finetuned.training import train_all


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds text/ and sst2/")
    parser.add_argument("--work", type=Path, required=True, help="where models' answers go")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of models")
    arguments = parser.parse_args()
    train_all(arguments.data, arguments.work, arguments.only)


if __name__ == "__main__":
    main()
