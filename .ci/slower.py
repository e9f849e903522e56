"""Say which cases of `python -m benchmarks.side_by_side` have become slower; exit code 1 if any has.

Both trees ran in turn on one machine, and processor seconds are compared: the ratios depend neither on the machine nor
on what else it did. A case is slower if its ratio exceeds the limit in every round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

#: A release may take this many times as long as the one before.
LIMIT = 1.1


def main(arguments: list[str]) -> int:
    """Print every case with its ratios, append the medians to a history, and return the exit code."""
    parser = argparse.ArgumentParser(prog="slower.py", description="Cases that have become slower.")
    parser.add_argument("report", type=Path, help="what benchmarks.side_by_side --output wrote")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"largest ratio of processor seconds [{LIMIT}]")
    parser.add_argument("--history", type=Path, help="file that gets one line of JSON with the medians")
    options = parser.parse_args(arguments)
    report = json.loads(options.report.read_text(encoding="utf-8"))
    ratios = {
        f"{part}: {case}": numbers["processor_ratio"]
        for part, cases in report["parts"].items()
        for case, numbers in cases.items()
    }
    medians = {case: statistics.median(rounds) for case, rounds in ratios.items()}
    slower = [case for case, rounds in ratios.items() if min(rounds) > options.limit]
    for case, rounds in ratios.items():
        mark = "SLOWER" if case in slower else ""
        print(f"{case:<60} {medians[case]:6.3f} ({min(rounds):.3f} to {max(rounds):.3f}) {mark}".rstrip())
    if options.history is not None:
        with options.history.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"commits": report["commits"], "processor_ratio": medians}) + "\n")
    print(f"{len(slower)} of {len(ratios)} cases take more than {options.limit:g} times as long in every round")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
