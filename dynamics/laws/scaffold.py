"""The scaffold of studies: checked settings, a family of problems with its answers, and one dataset of results."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import xarray as xr

from dynamics.cores import one_core
from dynamics.problem import Inputs, Problem, Teacher
from dynamics.problem.checks import MOST_RUNS, JsonObject, check_switch, checked_integer, checked_number, require
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values, study_dataset
from dynamics.runs.result import uninterrupted
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.signals import stop_if_heard
from dynamics.solve.decoupled import predict_emergence, solve_decoupled
from dynamics.solve.overlaps import solve_overlaps
from dynamics.sweeps.points import STUDIES
from dynamics.sweeps.workers import WorkerPool
from dynamics.theory.prediction import predict
from dynamics.threads import LOOK
from hermite.arrays import Array
from hermite.text.messages import refuse, shown

#: Returns the answer to one problem.
Task = Callable[[], xr.Dataset]
#: Problems that differ in size or start, each with its saved times; None: its answer chooses them.
Family = Sequence[tuple[Problem, SaveAt | None]]
#: The coupled flow as the studies need it; its tolerance is far below the scatter between starts.
COUPLED_FLOW: JsonObject = {
    "keep": "summary",
    "method": "stiff",
    "rtol": 1e-4,
    "error_estimate": False,
    "progress": False,
    "on_failure": "return",
}


@dataclass
class Meter:
    """The progress of a study under way; afterwards its seconds and the reason why it ended."""

    bar: Any
    seconds: float = 0.0
    #: Seconds of all answers together, also of those found side by side.
    solving: float = 0.0
    stop_reason: str = "reached_end"

    def add(self, count: int) -> None:
        """Count work that is done, and end the study if an interruption was asked for."""
        self.bar.update(count)
        stop_if_heard()

    def answers(self, tasks: Sequence[Task], workers: int = 1) -> Iterator[tuple[xr.Dataset, float]]:
        """Yield the answer of each task, and the seconds it took, in their order.

        Several workers are processes of one thread, which need `partial`s of functions at the top of modules; one is
        this process.
        """
        for answer, seconds in map(_timed, tasks) if workers == 1 else _by_processes(tasks, workers):
            self.solving += seconds
            yield answer, seconds
            self.bar.update()


@contextmanager
def under_way(total: int, progress: bool | None, unit: str = "problem", **bar: object) -> Iterator[Meter]:
    """Return the context in which a study works; an interruption ends it and is written down."""
    started = clock.perf_counter()
    meter = Meter(open_bar(bar_settings(progress), total=total, unit=unit, **bar))
    with meter.bar:
        try:
            yield meter
        except KeyboardInterrupt:
            meter.stop_reason = "interrupted"
    meter.seconds = clock.perf_counter() - started


class Free(NamedTuple):
    """The kind of a study without a problem, which stands for the problem in files."""

    kind: str

    def parameters(self) -> dict[str, object]:
        """Return its kind."""
        return {"kind": self.kind}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return no arrays."""
        return {}


Asked = TypeVar("Asked", Problem, Free)


@dataclass(frozen=True)
class LawStudy(Generic[Asked]):
    """A study whose settings are checked and of which nothing is solved yet."""

    #: Name of the answer, and title of its dataset.
    answer: str
    title: str
    settings: JsonObject
    #: The one in the dataset: of several problems the one that stands for all.
    problem: Asked
    progress: bool | None
    #: Does the work; an interruption keeps the results so far.
    solve: Callable[[Any], xr.Dataset]
    expected: str = ""

    def work(self) -> str:
        """Return the expected work and time, in words."""
        return self.expected

    def run(self) -> xr.Dataset:
        """Do the work and return its dataset."""
        return self.solve(self)

    def dataset(self, meter: Meter, values: Values, coords: Mapping[str, object], **attributes: object) -> xr.Dataset:
        """Return labelled results and how the study ended; the rest after an interruption is NaN."""
        answer = {"answer": self.answer}
        ended = {**answer, "stop_reason": meter.stop_reason, "wall_seconds": meter.seconds, **attributes}
        settings = answer | self.settings
        return study_dataset(self.problem, values, title=self.title, coords=coords, settings=settings, attributes=ended)


#: Studies of a family of problems, and studies without a problem.
PreparedStudy = LawStudy[Problem]
FreeStudy = LawStudy[Free]


def family_tasks(family: Family, *, coupled: bool = False) -> list[Task]:
    """Return tasks that answer problems at their times: by all matched pairs, or by the exact coupled flow.

    With `inputs`, where a pair has no universal trajectory, the loss of pairs is the sum formula.
    """
    flow = partial(solve_overlaps, **COUPLED_FLOW)

    def solver(problem: Problem) -> Callable[..., xr.Dataset]:
        """Return the function that solves a problem: the coupled flow, that of pairs, or their sum formula."""
        if coupled:
            return flow
        return solve_decoupled if problem.inputs is None else predict_emergence

    return [partial(solver(problem), problem, save_at=save_at) for problem, save_at in family]


def _by_processes(tasks: Sequence[Task], workers: int) -> Iterator[tuple[xr.Dataset, float]]:
    """Yield answers and seconds of tasks in worker processes, in the order of the tasks."""
    try:
        with WorkerPool(workers, STUDIES["overlaps"]) as pool:
            for future in [pool.submit(_timed, task, one_core) for task in tasks]:
                while not wait((future,), LOOK).done:
                    stop_if_heard()
                yield future.result()
    except BrokenExecutor:
        refuse(
            "Worker processes must outlive the study, but one died; a script must call it below "
            "`if __name__ == '__main__':`, or with workers=1.",
            RuntimeError,
        )


def _timed(task: Task, cores: Callable[[], AbstractContextManager[object]] = nullcontext) -> tuple[xr.Dataset, float]:
    """Return the answer and the seconds it took; raise SolveInterrupted if it was interrupted."""
    stop_if_heard()
    started = clock.perf_counter()
    with cores():
        return uninterrupted(task()), clock.perf_counter() - started


def checked_starts(starts: object, seed: object) -> range:
    """Return the seeds of `starts` random starts, from the first one on."""
    first = checked_integer(seed, "seed", minimum=0)
    return range(first, first + checked_integer(starts, "starts", minimum=1, maximum=MOST_RUNS))


def checked_problem(
    information_exponent: int,
    beta: float,
    directions: int,
    dimension: int,
    *,
    widest: int,
    seed: int,
    fewest: int = 2,
    room: int = 0,
    inputs: Inputs | None = None,
) -> Problem:
    """Return the problem of the largest width, with `fewest` directions or more that decouple, and d ≥ P + `room`."""
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    count = checked_integer(directions, "directions", minimum=fewest)
    return Problem(
        activation=f"he{k}",
        teacher=Teacher.power_law(count, checked_number(beta, "beta", positive=False)),
        width=widest,
        dimension=checked_integer(dimension, "dimension", minimum=count + room),
        seed=checked_integer(seed, "seed", minimum=0),
        inputs=inputs,
    )


def check_coupled(coupled: bool, **arguments: object) -> None:
    """Refuse arguments of the coupled flow for studies without it."""
    check_switch("coupled", coupled)
    for name, value in arguments.items():
        require(value is None or coupled, f"Argument `{name}` must be absent without `coupled`, but is {shown(value)}.")


def common_times(problems: Sequence[Problem], count: int, *, reach: float = 1.0) -> SaveAt:
    """Return geometric times for all: half the first predicted emergence to `reach` times the last learned time."""
    predictions = []
    for problem in problems:
        stop_if_heard()
        predictions.append(predict(problem))
    emergence = np.concatenate([prediction.predicted_emergence_time for prediction in predictions])
    learned = np.concatenate([prediction.predicted_learned_time for prediction in predictions])
    first = emergence[np.isfinite(emergence) & (emergence > 0.0)].min()
    return SaveAt.geometric(0.5 * float(first), reach * float(learned[np.isfinite(learned)].max()), count)
