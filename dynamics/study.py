"""Command line: `python -m dynamics.study study.toml`, a sweep from a file."""

from __future__ import annotations

import shlex
import sys
import time as clock
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynamics.commands import parsing
from dynamics.commands.options import CSV, OVERWRITE, SHOWN, Option, Values, plain, positive_integer, switch
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, Parser, UsageError
from dynamics.commands.program import run_program

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.sweeps.grid import Grid
    from dynamics.sweeps.study_file import StudyFile

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


#: Points that a dry run makes, in about half a second: more are checked as the sweep begins.
MOST_LOOKED_AT = 4000
WORKERS = Option(
    "workers",
    positive_integer,
    "start a local dask cluster of N processes of one thread each, or, without the extra `cluster`, N processes "
    "[no cluster: one process per core]",
    "N",
    group="running",
)
OPTIONS = (
    Option("output", plain, "dataset to write, instead of [output] path", "FILE", group="output"),
    Option(
        "study",
        plain,
        "import this module and ask its function at every point, which runs its code; `name` in the file must be the "
        "same or absent [registered studies alone]",
        "MODULE:FUNCTION",
        group="answer",
    ),
    WORKERS,
    Option("scheduler", plain, "run on the dask cluster whose scheduler listens there", "ADDRESS", group="running"),
    CSV,
    OVERWRITE._replace(help="replace an existing dataset, and drop points of another sweep"),
    Option("dry-run", switch, "print the number of points and the estimated memory, run nothing", group="running"),
    *SHOWN,
)


def build_parser() -> Parser:
    """Return the parser; building it imports nothing heavy."""
    about = "Answer every problem of a grid, in parallel, and write one dataset."
    file = ("file", "FILE", "TOML file with the tables [problem], [grid], [study] and [output]")
    return parsing.command_parser("dynamics.study", about, EXAMPLES, OPTIONS, file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = shlex.join(["python", "-m", "dynamics.study", *words])
    return parsing.exit_code_of(lambda: _noticed_study(build_parser().values(words), command))


def _noticed_study(typed: Mapping[str, object], command: str) -> int:
    with parsing.noticed_compilation(typed):
        return _study(typed, command)


def _study(typed: Values, command: str) -> int:
    """Answer the study of a file as the options say; return the exit code."""
    parsing.refuse_both(typed, "json", "quiet")
    parsing.refuse_both(typed, "workers", "scheduler")
    workers = parsing.value_of(WORKERS, typed)
    from dynamics.sweeps.grid import make_grid
    from dynamics.sweeps.study_file import read_study_file
    from dynamics.sweeps.sweep import begin_points, is_merged
    from dynamics.sweeps.workers import check_cluster

    file = read_study_file(typed["file"], typed["study"])
    output = Path(typed["output"]) if typed["output"] is not None else file.output
    try:
        if typed["scheduler"] is not None:
            check_cluster("Option --scheduler")
        grid = make_grid(file.problem, file.grid, file.study, file.options)
        checked_grid = grid.thinned(MOST_LOOKED_AT) if typed["dry_run"] else grid
        _ = checked_grid.surveyed  # makes every point, and so checks it
        parsing.check_csv(typed, output)
        parsing.check_targets(typed, None if is_merged(grid, output) else output, None)
        if typed["dry_run"]:
            begin_points(checked_grid)
    except (TypeError, ValueError, ImportError) as error:
        raise UsageError(str(error)) from None
    if typed["dry_run"]:
        parsing.tell(_estimate(grid, checked_grid, file))
        return EXIT_DONE
    return _run({**typed, "workers": workers}, file, grid, output, command)


def _run(settings: Mapping[str, object], file: StudyFile, grid: Grid, output: Path, command: str) -> int:
    """Answer the points, write the result and print the findings; return the exit code."""
    from dynamics.kernels.compilation import compilation_of_run
    from dynamics.report.flows import LEAST_COMPILING
    from dynamics.report.sweep import sweep_findings
    from dynamics.runs.storage import StorageError
    from dynamics.sweeps.points import answered_points
    from dynamics.sweeps.sweep import points_directory

    began, points_folder = clock.perf_counter(), points_directory(output)
    with parsing.caught_warnings() as warnings, compilation_of_run() as compilation:
        try:
            result = _sweep(settings, file, output)
        except KeyboardInterrupt:
            done = len(answered_points(points_folder))
            parsing.say(f"Interrupted; {done} of {len(grid)} points are kept in {points_folder}. To go on:\n{command}")
            return EXIT_INTERRUPTED
        except (ConnectionError, ValueError) as error:  # a study raises the latter for bad options
            raise UsageError(str(error)) from None
        except (StorageError, RuntimeError) as error:
            parsing.say(f"error: {error}")
            if points_folder.exists():
                parsing.say(f"What was computed is kept in {points_folder}. To go on: {command}")
            return EXIT_FAILED
    with result:
        try:
            findings, seconds = sweep_findings(result), clock.perf_counter() - began
            table_files, trouble = parsing.store_table(result, settings)
        except KeyboardInterrupt:
            parsing.say_where(output)
            return EXIT_INTERRUPTED
    compiling = compilation.seconds
    time_text = f"time: {seconds - compiling:.1f} s"
    time_text += f", after {compiling:.1f} s of compiling" if compiling >= LEAST_COMPILING else ""
    findings = replace(findings, remarks=[*findings.remarks, time_text], values={**findings.values, "seconds": seconds})
    if not settings["quiet"]:
        for text in dict.fromkeys(str(entry.message) for entry in warnings):
            parsing.say(f"warning: {text}")
        files = {"output": str(output)} | table_files
        parsing.tell(findings.as_json(files) if settings["json"] else parsing.folded(findings.as_text(files)))
    if trouble:
        parsing.say(f"error: {trouble}")
    return EXIT_FAILED if findings.values["failures"] or trouble else EXIT_DONE


def _sweep(settings: Values, file: StudyFile, output: Path) -> xr.Dataset:
    """Answer the points by processes of this machine, or by a dask cluster where one is asked for."""
    from dynamics.sweeps.sweep import sweep
    from dynamics.sweeps.workers import cluster_executor, has_cluster, why_no_workers

    scheduler, workers = settings["scheduler"], settings["workers"]
    reason = None if workers is None else why_no_workers()
    parsing.require_usage(not reason, f"Option --workers must be absent here, since {reason}, but is {workers}.")
    on_cluster = scheduler is not None or (workers is not None and has_cluster())
    with cluster_executor(scheduler=scheduler, workers=workers) if on_cluster else nullcontext() as executor:
        return sweep(
            file.problem,
            file.grid,
            study=file.study,
            options=file.options,
            output=output,
            overwrite=settings["overwrite"],
            executor=executor,
            workers=None if on_cluster else workers,
            progress=parsing.shown_progress(settings),
        )


def _estimate(grid: Grid, checked_grid: Grid, file: StudyFile) -> str:
    """Return the number of points, and memory and work of the largest checked point, from counted operations."""
    lines = [f"points: {len(grid)} ({' x '.join(f'{len(axis.values)} {axis.name}' for axis in grid.axes)})"]
    if len(checked_grid) < len(grid):
        lines.append(f"checked: {len(checked_grid)} of them")
    if file.study not in ("overlaps", "decoupled", "mean-field"):
        return "\n".join([*lines, f"memory and time of a point of the study {file.study!r}: no estimate"])
    from dynamics.solve.dispatch import estimate

    largest = max(range(len(checked_grid)), key=lambda index: tuple(checked_grid.surveyed.sizes[index]))
    point = checked_grid.point(largest)
    options = {name: point.options.get(name) for name in ("save_at", "particles")}
    text = estimate(point.problem, file.study, point.options.get("keep", "full"), **options)
    return "\n".join(
        [*lines, f"largest point: {checked_grid.describe(largest)}; each worker holds one point at a time", text]
    )


if __name__ == "__main__":
    run_program(main, light=False)
