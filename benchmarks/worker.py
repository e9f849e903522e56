"""One contender in a process of its own, so that a run can be ended at its time limit and cannot disturb another."""

from __future__ import annotations

import multiprocessing
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from benchmarks.problems import DIMENSION, H4, Outcome, horizon, save_times, standard_problem

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

#: Compiling, importing and one short run must end within this.
WARM_UP_SECONDS = 240.0
#: Short runs are repeated, and their median taken, until this many seconds are spent.
REPEAT_SECONDS = 1.0
REPEATS = 5


class TimeLimitReached(Exception):
    """The run did not end within its time limit."""


class RunFailed(Exception):
    """The solver gave up; the message is its own."""


@dataclass(frozen=True)
class Task:
    """One solve: the standard problem of a size, up to `last` (default: its horizon)."""

    size: int
    rtol: float
    threads: int = 1
    dimension: int = DIMENSION
    last: float | None = None
    repeat: bool = True
    link: str = H4


class Worker:
    """A process that solves tasks with one contender, warmed up by a short run of each size it meets.

    It starts when first asked, and anew after a run that had to be ended.
    """

    def __init__(self, contender: str) -> None:
        self.contender = contender
        self._running: tuple[BaseProcess, Connection] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        if self._running is not None:
            process, connection = self._running
            connection.close()
            process.kill()
            process.join()
            self._running = None

    def solve(self, task: Task, limit: float) -> Outcome:
        """Return the outcome of a warm run.

        Raises
        ------
        TimeLimitReached
            If one run takes longer than `limit` seconds.
        RunFailed
            If the solver gives up.
        """
        self._ask((task.size, task.link), WARM_UP_SECONDS)
        outcome: Outcome = self._ask(task, limit + REPEATS * REPEAT_SECONDS)
        if outcome.seconds > limit:
            raise TimeLimitReached(self.contender)
        return outcome

    def _start(self) -> Connection:
        if self._running is None:
            context = multiprocessing.get_context("spawn")
            connection, far_end = context.Pipe()
            process = context.Process(target=_serve, args=(self.contender, far_end), daemon=True)
            process.start()
            far_end.close()
            self._running = process, connection
        return self._running[1]

    def _ask(self, request: Task | tuple[int, str], limit: float) -> Any:
        connection = self._start()
        try:
            connection.send(request)
            if not connection.poll(limit):
                self.stop()
                raise TimeLimitReached(self.contender)
            answer = connection.recv()
        except (EOFError, OSError) as error:
            self.stop()
            msg = f"The process of {self.contender} died."
            raise RunFailed(msg) from error
        if isinstance(answer, str):
            raise RunFailed(answer)
        return answer


def _serve(name: str, connection: Connection) -> None:
    """Answer requests: a size is warmed up, a task is solved; a failure is answered by its message."""
    from benchmarks.contenders import CONTENDERS

    contender = CONTENDERS[name]
    warmed: set[tuple[int, str]] = set()
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            if isinstance(request, Task):
                connection.send(_run(contender, request))
            else:
                if request not in warmed:
                    size, link = request
                    contender.solve(standard_problem(size, link=link), save_times(2.0), 1e-4)
                    warmed.add(request)
                connection.send(None)
        except Exception as error:
            # Whatever a solver of somebody else raises is its answer.
            connection.send(f"{type(error).__name__}: {error}"[:300])


def _run(contender: Any, task: Task) -> Outcome:
    from threadpoolctl import threadpool_limits

    problem = standard_problem(task.size, task.dimension, task.link)
    times = save_times(task.last or horizon(task.size, task.dimension, task.link))
    seconds: list[float] = []
    with threadpool_limits(limits=task.threads, user_api="blas"):
        while True:
            outcome: Outcome = contender.solve(problem, times, task.rtol)
            seconds.append(outcome.seconds)
            if not task.repeat or len(seconds) >= REPEATS or sum(seconds) > REPEAT_SECONDS:
                return replace(outcome, seconds=statistics.median(seconds))
