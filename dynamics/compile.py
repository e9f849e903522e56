"""Command line: `feature-emergence compile` compiles the functions of the program, with all cores, before their use.

Every job solves small problems through public names in an ordinary process, so that Numba keeps the machine code of
their functions. Jobs whose names begin with "method" run first: many systems share these functions. Jobs whose names
begin with the same word share further ones, so one process runs them in turn and compiles these functions once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, command_parser, exit_code_of, require_usage, say, tell
from dynamics.commands.program import run_program
from dynamics.cores import module_path
from dynamics.signals import stop_if_heard

if TYPE_CHECKING:
    from dynamics.problem import Problem

#: Group of entry points; each is a mapping from names of jobs to functions that solve something small.
GROUP = "feature_emergence.compile"
#: Families of jobs: the first words of their names.
FIRST, ENGINE = "method", "engine"
#: Argument for names from standard input.
GIVEN = "-"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ABOUT = "Compile the functions that answers, methods and engines of SGD use, and keep them for later processes."
END = """\
A function is compiled at its first use, and kept in $FEATURE_EMERGENCE_CACHE or $NUMBA_CACHE_DIR, beside its source, or
in the cache of the user. This command does so beforehand, with one process per core.
exit codes: 0 done, 1 a job failed, 2 usage, 130 interrupted
"""

Job = Callable[[], object]
#: Fields of small problems, which `small_problem` completes.
LARGE = {"teacher": (40, 1.0), "width": 128, "dimension": 256, "initial_norm": 0.05}
CLASSES: dict[str, Any] = {"dimension": 40, "inputs": ([2.0, 0.5], [4, 36])}
COMMITTEES = [{"activation": link, "student": "committee", "initial_norm": 0.5} for link in ("erf", {2: 0.4, 3: 1.0})]
ONE_OVERLAP: dict[str, Any] = {"width": 1, "teacher": [1.0], "initial_overlaps": ([[0.2]], [[1.0]], [1.0])}
SMOOTHED: dict[str, Any] = {"activation": "he3", "student": "spherical", "objective": "correlation", "smoothing": 1.0}
CORRELATION = {**SMOOTHED, **ONE_OVERLAP, "dimension": 64}
MOMENTUM = {"optimizer": "SGD(momentum=0.5)"}
SPHERES = [{"teacher": coefficients, "student": "spherical"} for coefficients in ([1.0], [1.0, 0.5])]


def _network(link: str, biases: str = "none") -> dict[str, object]:
    return {"network": {"activation": link, "biases": biases}, "seed": 1}


def small_problem(fields: Mapping[str, object]) -> Problem:
    """Return a small problem with these fields; coefficients, inputs and students are plain values."""
    import dynamics

    values: dict[str, Any] = {"activation": "he4", "teacher": [0.8, 0.6], "width": 3, "dimension": 12, **fields}
    teacher = values["teacher"]
    values["teacher"] = dynamics.Teacher(teacher) if isinstance(teacher, list) else dynamics.Teacher.power_law(*teacher)
    if "inputs" in values:
        values["inputs"] = dynamics.Inputs(*values["inputs"])
    if network := values.pop("network", None):
        link, width = network["activation"], values.pop("width")
        del values["activation"]
        values["student"] = dynamics.Student(width=width, scale="1/m", rates="mean-field", **network)
        values["teacher"] = dynamics.Teacher([1.0, -0.6], links=[link, link])
    return dynamics.Problem(**values)


def _solved(function: str, *problems: Mapping[str, object], **settings: object) -> Job:
    """Return a job that calls a public function on the small problems with these fields, up to a short time."""

    def solve() -> None:
        """Solve each small problem."""
        import dynamics

        times = {"save_at": dynamics.SaveAt.at([0.0, 0.5, 2.0])}
        for fields in problems or ({},):
            resolve_name(f"dynamics:{function}")(small_problem(fields), progress=False, **(times | settings))

    return solve


def _predictions() -> None:
    """Compile what predictions and closed forms need."""
    import dynamics

    for link in ("he4", "he2", "relu"):
        dynamics.predict_emergence(small_problem({"activation": link}))
    dynamics.solve_decoupled(small_problem({}), save_at=dynamics.SaveAt.at([0.0, 1.0]))
    dynamics.linear_regression_steps([1.0], [1.0], learning_rate=0.1, steps=1)
    dynamics.first_passage(small_problem({"teacher": [1.0], "width": 1}), learning_rate=0.01)


def _tokens() -> None:
    """Compile the equations of attention and memory, by a short solve of each kind of problem."""
    from dynamics import SaveAt, tokens

    problems = (
        tokens.Composition(vocabulary=3, hops=4),
        tokens.CausalGraph(parents=[None, 0, 1], vocabulary=3),
        tokens.AssociativeMemory(group_sizes=[1, 1], frequencies=[0.6, 0.4]),
        tokens.FactualRecall(relations=2, subjects=4, answers=2),
        tokens.TriggerTask(symbols=2, gaps=[1]),
        tokens.Selection(tokens=3, selected=1, heads=1),
        tokens.PolicyGradient(group_sizes=[1, 1], rewards=[1.0, 0.0]),
        tokens.ChainOfThought(dimension=2, examples=2, steps=2, rate=0.1),
    )
    for problem in problems:
        tokens.solve(problem, save_at=SaveAt.at([0.0, 0.5]), progress=False)


#: Jobs of answers.
JOBS: dict[str, Job] = {
    "method explicit": _solved("solve_overlaps", method="explicit"),
    "method bdf": _solved("solve_overlaps", method="bdf"),
    "method stiff, small": _solved("solve_overlaps", method="stiff"),
    "method stiff, large": _solved("solve_overlaps", LARGE, method="stiff", rtol=1e-4),
    "method gradient-descent": _solved("solve_overlaps", method="gradient-descent", learning_rate=0.01),
    "network of relu": _solved("solve_network", _network("relu"), _network("relu", biases="trained"), rtol=1e-4),
    "network of erf": _solved("solve_network", _network("erf"), _network("erf", biases="trained"), rtol=1e-4),
    "network of polynomials": _solved("solve_network", _network("he2"), rtol=1e-4),
    "network of relu, classes": _solved("solve_network", {**_network("relu", biases="trained"), **CLASSES}, rtol=1e-4),
    "network, descent": _solved("solve_network", _network("erf"), method="gradient-descent", learning_rate=0.05),
    "network, finite steps": _solved("solve_network", _network("erf"), learning_rate=0.01, rtol=1e-4),
    "network of polynomials, finite steps": _solved("solve_network", _network("he2"), learning_rate=0.01, rtol=1e-4),
    "finite steps": _solved("solve_overlaps", learning_rate=1e-4, rtol=1e-4),
    "finite steps by bdf": _solved("solve_overlaps", learning_rate=1e-4, method="bdf", rtol=1e-4),
    "optimizers of homogeneous neurons": _solved("solve_overlaps", learning_rate=1e-4, **MOMENTUM),
    "optimizers of networks of erf": _solved("solve_network", _network("erf"), learning_rate=1e-4, **MOMENTUM),
    "optimizers of networks of polynomials": _solved("solve_network", _network("he2"), learning_rate=1e-4, **MOMENTUM),
    "optimizers of committees": _solved("solve_committee", *COMMITTEES, learning_rate=1e-4, **MOMENTUM),
    "classes": _solved("solve_overlaps", CLASSES, rtol=1e-4),
    "classes by bdf": _solved("solve_overlaps", CLASSES, method="bdf", rtol=1e-4),
    "classes, descent": _solved("solve_overlaps", CLASSES, method="gradient-descent", learning_rate=0.02),
    "classes, finite steps": _solved("solve_overlaps", CLASSES, learning_rate=1e-4, rtol=1e-4),
    "committee": _solved("solve_committee", *COMMITTEES, rtol=1e-4),
    "committee, finite steps": _solved("solve_committee", *COMMITTEES, learning_rate=1e-3, rtol=1e-4),
    "spherical": _solved("solve_spherical", SPHERES[1], rtol=1e-4),
    "spherical, finite steps": _solved("solve_spherical", SPHERES[1], learning_rate=1e-3, rtol=1e-4),
    "mean field, one direction": _solved("solve_mean_field", SPHERES[0], particles=16),
    "mean field, two directions": _solved("solve_mean_field", SPHERES[1], particles=16),
    "correlation": _solved("solve_correlation", CORRELATION, rtol=1e-4),
    "predictions": _predictions,
    "tokens": _tokens,
}


def jobs() -> dict[str, Job]:
    """Return the jobs of all installed packages by name, those of methods first."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    named_jobs = [item for point in points for item in point.load().items()]
    return dict(sorted(named_jobs, key=lambda item: not item[0].startswith(FIRST)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = command_parser("dynamics.compile", ABOUT, END)
    parser.add_argument("names", nargs="*", metavar="JOB", help="jobs whose names contain one of these words [all]")
    parser.add_argument("--list", action="store_true", help="print the names of the jobs and compile nothing")
    parser.add_argument(
        "--here",
        action="store_true",
        help="run the jobs one by one in this process; if JOB is -, those that stdin names",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes at a time [the cores]")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    return exit_code_of(
        lambda: _run(parser.parse_args(arguments)),
        interrupted="interrupted; functions that were compiled are kept, and the same command goes on",
    )


def _run(options: Any) -> int:
    """Do the jobs that the options name, in processes of one thread each; return the exit code."""
    from dynamics.cores import available_cores

    all_jobs, words = jobs(), options.names or [""]
    if options.here and words == [GIVEN]:
        for line in sys.stdin:
            all_jobs[line.strip()]()
            tell(line.strip())
        return EXIT_DONE
    names = [name for name in all_jobs if any(word in name for word in words)]
    require_usage(names, f"Argument JOB must be part of a name that --list prints, but is {' '.join(options.names)}.")
    workers = available_cores() if options.workers is None else options.workers
    require_usage(workers >= 1, f"Argument --workers must be at least 1, but is {workers}.")
    if options.list:
        tell("\n".join(names))
        return EXIT_DONE
    if options.here:
        for name in names:
            all_jobs[name]()
        return EXIT_DONE
    began = time.perf_counter()
    failed = compile_in_processes(names, workers, progress=False if options.no_progress else None)
    for name, reason in failed.items():
        say(f"Job {name!r} failed: {reason}")
    tell(f"{len(names) - len(failed)} of {len(names)} jobs compiled in {time.perf_counter() - began:.0f} s.")
    return EXIT_FAILED if failed else EXIT_DONE


def family_of(name: str) -> str:
    """Return the first word of a name; jobs that share it share most functions."""
    return re.split(r"\W", name, maxsplit=1)[0]


def next_job(waiting: Sequence[str], running: Sequence[str], last: str) -> str | None:
    """Return the job that a process runs next, or None if it has to wait.

    `waiting` are the jobs that have not begun, `running` those of the other processes, and `last` is the one that this
    process ran before, "" for none. Preferred is a job of the family of `last`, then one of a family that no other
    process runs. All jobs but engines of SGD use the functions of methods, and wait until these are compiled.
    """
    families = {family_of(name) for name in running}
    waits_for_methods = FIRST in families or any(family_of(name) == FIRST for name in waiting)
    ready = [name for name in waiting if not waits_for_methods or family_of(name) in (FIRST, ENGINE)]
    return min(ready, key=lambda name: (family_of(name) != family_of(last), family_of(name) in families), default=None)


class _Process:
    """A process that runs jobs in turn, named one by one; `job` is the name of the last one, "" before the first.

    It starts with its first job, and prints the names of those that are done. It writes to files: a process that fills
    a pipe waits until the pipe is read.
    """

    def __init__(self, path: Path) -> None:
        self.job, self.is_running = "", False
        self._printed, self._errors = path.with_suffix(".txt"), path.with_suffix(".err")
        self._process: subprocess.Popen[bytes] | None = None

    def take(self, job: str) -> None:
        """Run a job."""
        if self._process is None:
            command = [sys.executable, "-m", "dynamics.compile", "--here", GIVEN]
            with self._printed.open("wb") as printed, self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    env=os.environ | ONE_THREAD | module_path(),
                    stdin=subprocess.PIPE,
                    stdout=printed,
                    stderr=errors,
                )
        self.job, self.is_running = job, True
        stream = self._process.stdin
        assert stream is not None
        with suppress(OSError):  # the process has ended
            stream.write(f"{job}\n".encode())
            stream.flush()

    def outcome(self) -> str | None:
        """Return the last line of the errors if the job has failed, "" if it is done, and None while it runs."""
        assert self._process is not None
        code = self._process.poll()
        if self._printed.read_text(encoding="utf-8", errors="replace").split("\n")[-2:-1] == [self.job]:
            self.is_running = False
            return ""
        if code is None:
            return None
        self.join()
        self.is_running, self._process = False, None
        last_line = self._errors.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
        return last_line or f"exit code {code}"

    def end(self) -> None:
        """Ask the process to end."""
        if self._process is not None:
            self._process.terminate()

    def join(self) -> None:
        """Wait for the end of the process."""
        if self._process is not None:
            self._process.communicate()


def compile_in_processes(names: Sequence[str], workers: int, *, progress: bool | None = None) -> dict[str, str]:
    """Run jobs in `workers` processes, with a progress bar; return failed jobs with the last line of their errors."""
    from dynamics.runs.trackers import bar_settings, open_bar

    waiting, failed = list(names), dict[str, str]()
    with TemporaryDirectory() as folder, open_bar(bar_settings(progress), total=len(names), unit="job") as bar:
        crew = [_Process(Path(folder, str(number))) for number in range(min(workers, len(names)))]
        try:
            while waiting or any(process.is_running for process in crew):
                stop_if_heard()
                for process in crew:
                    if process.is_running and (error := process.outcome()) is not None:
                        bar.update()
                        if error:
                            failed[process.job] = error
                    running = [busy.job for busy in crew if busy.is_running]
                    if not process.is_running and (job := next_job(waiting, running, process.job)) is not None:
                        waiting.remove(job)
                        process.take(job)
                        bar.set_postfix_str(job)
                time.sleep(0.02)
        finally:
            for process in crew:
                process.end()
            for process in crew:
                process.join()
    return failed


if __name__ == "__main__":
    run_program(main)
