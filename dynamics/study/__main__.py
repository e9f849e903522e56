"""Command line: `python -m dynamics.study study.toml`, a sweep from a file.

Parses first, imports after. The library is `dynamics.sweep`; nothing imports this module.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time as clock
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynamics.commands.options import positive_integer
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Parser, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import xarray as xr

    from dynamics.report.findings import Findings
    from dynamics.study.file import StudyFile
    from dynamics.study.grid import Grid

EXAMPLES = """\
a study file:
  [problem]
  k = 4
  num_directions = 8
  dimension = 64

  [grid]                                 # every combination of these is one point
  beta = [0.8, 1.0, 1.2]
  width = { geometric = [8, 64, 4] }
  seed = { range = [0, 8] }

  [study]
  name = "overlaps"                      # or decoupled, prediction, mean-field, spherical, projected-sgd, ...
  keep = "summary"                       # the other keys are options of the study
  rtol = 1e-6
  save_at = { geometric = [0.1, 1e3, 100] }

  [output]
  path = "widths.nc"                     # by default the name of the study file

examples:
  python -m dynamics.study study.toml
      one process per core; interrupted in any way, the same command goes on where it stopped
  python -m dynamics.study study.toml --scheduler tcp://host:8786
      on the machines of a running dask cluster

exit codes: 0 done, 1 points failed (the others are kept and named), 2 usage, 130 interrupted (what was computed is
kept, and the command that goes on is printed)
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = Parser(
        prog="python -m dynamics.study",
        description="Answer every problem of a grid, in parallel, and write one dataset.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="TOML file with the tables [problem], [grid], [study] and [output]")
    add("--output", metavar="FILE", help="dataset to write, instead of [output] path")
    add("--study", metavar="MODULE:FUNCTION", help="import this module and ask its function at every point, which runs "
        "its code; `name` in the file must be the same or absent [registered studies alone]")  # fmt: skip
    add("--workers", metavar="N", help="start a local dask cluster of N processes of one thread each, or, without "
        "the extra `cluster`, N processes [no cluster: one process per core]")  # fmt: skip
    add("--scheduler", metavar="ADDRESS", help="run on the dask cluster whose scheduler listens there")
    add("--overwrite", action="store_true", help="replace an existing dataset, and drop points of another sweep")
    add("--dry-run", action="store_true", help="print the number of points and the estimated memory, run nothing")
    add("--json", action="store_true", help="print the result as one JSON object")
    add("--quiet", action="store_true", help="print nothing but errors")
    add("--no-progress", action="store_true", help="show no progress bar")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _study(build_parser().parse_args(given), shlex.join(["python", "-m", "dynamics.study", *given]))
    except UsageError as error:
        _say(f"error: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        _say("interrupted before anything was computed")
        return EXIT_INTERRUPTED


def _study(parsed: argparse.Namespace, command: str) -> int:
    if parsed.json and parsed.quiet:
        msg = "Options --json and --quiet must not be given together, but are."
        raise UsageError(msg)
    workers = _workers(parsed)
    from dynamics.runs.storage import StorageError, check_target
    from dynamics.study.cluster import check_cluster
    from dynamics.study.file import read_study_file
    from dynamics.study.sweeps import begin_points, prepare_sweep

    asked = read_study_file(parsed.file, parsed.study)
    output = Path(parsed.output) if parsed.output is not None else asked.output
    try:
        if parsed.scheduler is not None:
            check_cluster("Option --scheduler")
        grid = prepare_sweep(asked.problem, asked.grid, asked.study, asked.options)
        grid.digest()  # makes every point, and so checks it
        if parsed.dry_run:
            begin_points(grid)
        else:
            check_target(output, overwrite=parsed.overwrite)
    except (TypeError, ValueError, ImportError, StorageError) as error:
        raise UsageError(str(error)) from None
    if parsed.dry_run:
        sys.stdout.write(_estimate(grid, asked) + "\n")
        return EXIT_DONE
    return _run(parsed, asked, grid, output, workers, command)


def _workers(parsed: argparse.Namespace) -> int | None:
    if parsed.workers is None:
        return None
    if parsed.scheduler is not None:
        msg = "Options --workers and --scheduler must not be given together, but are."
        raise UsageError(msg)
    try:
        return positive_integer(parsed.workers)
    except ValueError as error:
        msg = f"Option --workers {error}."
        raise UsageError(msg) from None


def _run(
    parsed: argparse.Namespace, asked: StudyFile, grid: Grid, output: Path, workers: int | None, command: str
) -> int:
    from dynamics.runs.storage import StorageError
    from dynamics.study.cluster import cluster_executor, has_cluster
    from dynamics.study.sweeps import points_directory, sweep

    began = clock.perf_counter()
    executor: Executor | None = None
    with ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            if parsed.scheduler is not None or (workers is not None and has_cluster()):
                executor = stack.enter_context(cluster_executor(scheduler=parsed.scheduler, workers=workers))
            result = sweep(
                asked.problem,
                asked.grid,
                study=asked.study,
                options=asked.options,
                output=output,
                overwrite=parsed.overwrite,
                executor=executor,
                workers=workers if executor is None else None,
                progress=False if parsed.quiet or parsed.no_progress else None,
            )
        except KeyboardInterrupt:
            done = len(list(points_directory(output).glob("*.nc")))
            _say(f"Interrupted; {done} of {len(grid)} points are kept in {points_directory(output)}. To go on:")
            _say(command)
            return EXIT_INTERRUPTED
        except (ConnectionError, ValueError) as error:  # the latter for what the study refuses
            raise UsageError(str(error)) from None
        except (StorageError, RuntimeError) as error:
            _say(f"error: {error}")
            if points_directory(output).exists():
                _say(f"What was computed is kept in {points_directory(output)}. To go on: {command}")
            return EXIT_FAILED
    with result:
        found = _found(result, clock.perf_counter() - began)
    if not parsed.quiet:
        for text in dict.fromkeys(str(entry.message) for entry in caught):
            _say(f"warning: {text}")
        files = {"output": str(output)}
        sys.stdout.write((found.as_json(files) if parsed.json else found.as_text(files)) + "\n")
    return EXIT_FAILED if found.values["failures"] else EXIT_DONE


def _found(result: xr.Dataset, seconds: float) -> Findings:
    """Return what the sweep shows, with the seconds it took."""
    from dynamics.report.sweep import sweep_findings

    found = sweep_findings(result)
    return replace(
        found,
        remarks=[*found.remarks, f"time: {seconds:.1f} s"],
        values={**found.values, "seconds": seconds},
    )


def _estimate(grid: Grid, asked: StudyFile) -> str:
    """Return the number of points, and memory and work of the largest, from counted operations."""
    lines = [f"points: {len(grid)} ({' x '.join(f'{len(axis.values)} {axis.name}' for axis in grid.axes)})"]
    if asked.study not in ("overlaps", "decoupled", "mean-field"):
        return "\n".join([*lines, f"memory and time of a point of the study {asked.study!r}: no estimate"])
    from dynamics.solve.estimate import estimate

    largest = max(range(len(grid)), key=grid.size)
    point = grid.point(largest)
    options = {name: point.options.get(name) for name in ("save_at", "particles")}
    text = estimate(point.problem, asked.study, point.options.get("keep", "full"), **options)
    return "\n".join([*lines, f"largest point: {grid.describe(largest)}; each worker holds one point at a time", text])


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
