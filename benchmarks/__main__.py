"""Run the benchmarks: `python -m benchmarks [--quick] [--only PART …] [--fresh] [--large] [--limit SECONDS]`.

Writes `benchmarks/baseline.json`, the figures `docs/figures/benchmark_*.png` and the tables in docs/benchmarks.md and
`docs/public_codes.md`. Interrupted, it continues where it stopped. `--quick` writes all of it to `.benchmarks/quick/`
instead and leaves the pages alone. Public codes of the field take part where `--peers DIR` has clones of them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import growth, low_exponent, mean_field, memory, public_codes, sgd, sweep, timed_cases, work_precision
from benchmarks.contenders import CONTENDERS
from benchmarks.journal import FOLDER, ROOT, Journal, machine
from benchmarks.problems import H2_H4
from dynamics.runs.dataset import git_commit

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = (
    "timed-cases",
    "work-precision",
    "work-precision-low",
    "growth",
    "low-exponent",
    "memory",
    "sgd",
    "mean-field",
    "sweep",
    "public-codes",
    "report",
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Speed, accuracy and memory, side by side."
    )
    parser.add_argument("--quick", action="store_true", help="small sizes only, about two minutes; writes no baseline")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="run these parts; the others stay as they are")
    parser.add_argument("--fresh", action="store_true", help="measure again what an interrupted run already measured")
    parser.add_argument("--large", action="store_true", help="growth up to m = P = 1024, d = 2048")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one run may take (default: 120)")
    parser.add_argument("--sizes", nargs="+", type=int, help="sizes m = P of the work-precision diagrams")
    parser.add_argument(
        "--contenders", nargs="+", choices=tuple(CONTENDERS), help="who takes part in the work-precision diagrams"
    )
    parser.add_argument("--peers", type=Path, help="folder with clones of public codes, for the part public-codes")
    options = parser.parse_args()
    if "public-codes" in (options.only or ()) or options.peers is not None:
        try:
            public_codes.check(options.peers)
        except ValueError as error:
            parser.error(str(error))
    return options


def parts(options: argparse.Namespace, journal: Journal) -> dict[str, Callable[[], Any]]:
    """Return what measures each part."""
    quick = options.quick
    growth_sizes = growth.QUICK_SIZES if quick else growth.SIZES + (growth.LARGE_SIZES if options.large else ())
    return {
        "timed-cases": lambda: timed_cases.run(journal, timed_cases.QUICK_FILES if quick else timed_cases.FILES),
        "work-precision": lambda: work_precision.run(
            journal,
            options.sizes or (work_precision.QUICK_SIZES if quick else work_precision.SIZES),
            min(options.limit, 5.0) if quick else options.limit,
            options.contenders or tuple(CONTENDERS),
        ),
        "work-precision-low": lambda: work_precision.run(
            journal,
            (work_precision.QUICK_LOW_SIZE if quick else work_precision.LOW_SIZE,),
            min(options.limit, 5.0) if quick else options.limit,
            options.contenders or tuple(CONTENDERS),
            H2_H4,
        ),
        "growth": lambda: growth.run(journal, growth_sizes),
        "low-exponent": lambda: low_exponent.run(journal, quick=quick),
        "memory": lambda: memory.run(journal, memory.QUICK_SIZES if quick else memory.SIZES),
        "sgd": lambda: sgd.run(journal, quick=quick),
        "mean-field": lambda: mean_field.run(journal, quick=quick),
        "sweep": lambda: sweep.run(journal, quick=quick),
        # Without clones what was measured of them stays.
        **({"public-codes": lambda: public_codes.run(journal, options.peers, quick=quick)} if options.peers else {}),
    }


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def main() -> None:
    from benchmarks.figures import draw
    from benchmarks.report import public_codes_table, table, write_table

    options = parse()
    journal = Journal("quick" if options.quick else "measurements", fresh=options.fresh)
    folder = FOLDER / "quick" if options.quick else ROOT / "benchmarks"
    figures = folder if options.quick else ROOT / "docs" / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    target: Path = folder / "baseline.json"
    baseline = read(target)
    began = time.perf_counter()
    for name, measure in parts(options, journal).items():
        if options.only is None or name in options.only:
            print(f"{name} (after {time.perf_counter() - began:.0f} s)", flush=True)
            result = measure()
            # Another run may have written its parts meanwhile.
            baseline = read(target)
            now = {"date": time.strftime("%Y-%m-%d"), "commit": git_commit(), "machine": machine()}
            # The heading speaks of all parts: one part alone, on another processor, leaves it to the others.
            if options.only is None or baseline.get("machine", now["machine"])["processor"] == machine()["processor"]:
                baseline |= now
            baseline[name.replace("-", "_")] = result
            target.write_text(json.dumps(baseline, indent=1) + "\n", encoding="utf-8")
    for path in draw(baseline, figures):
        print(f"wrote {path.relative_to(ROOT)}")
    codes = public_codes_table(baseline["public_codes"]) if "public_codes" in baseline else None
    if options.quick:
        print(table(baseline), codes or "", sep="\n\n")
    else:
        write_table(table(baseline), ROOT / "docs" / "benchmarks.md")
        if codes:
            write_table(codes, ROOT / "docs" / "public_codes.md")
    print(f"wrote {target.relative_to(ROOT)} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
