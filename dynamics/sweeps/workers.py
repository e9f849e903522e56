"""Where the points of a sweep run: in processes, in an executor that the caller gave, or in the calling thread.

Worker processes outlive neither their parent nor a crash of one of them, after which their points are asked again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Self

import numpy as np

from dynamics.cores import THREAD_VARIABLES, available_cores, set_variables, starts_processes, variables_of_user
from dynamics.problem.checks import LARGEST_INTEGER, checked_integer, require
from dynamics.signals import stop_if_heard
from dynamics.sweeps.points import PointAnswer, Study, SweepPoint, answer_point, find_study
from dynamics.threads import LOOK
from hermite.text.messages import refuse, warn

#: Points that an executor of the caller is given at once: it does not say how many workers it has.
GIVEN_WINDOW = 256
#: Deaths of a worker that a point may take part in before it runs alone, which leaves no doubt about the cause.
MOST_SHARED_DEATHS = 2
#: Deaths of a worker that ran nothing else after which a point has failed: the first may be chance, such as want of
#: memory.
MOST_LONELY_DEATHS = 2
#: The module that the process loads from which workers are started.
COMMON = "dynamics.sweeps.preload"
#: System -> worker processes for which it can wait at once, where that is a small number.
MOST_WORKERS = {"win32": 61}
#: Seconds in which a scheduler must answer.
CONNECT_SECONDS = 10


def run_points(
    points: Iterable[int],
    make_point: Callable[[int], SweepPoint],
    study: Study,
    pool: GivenExecutor | WorkerPool,
    keep: Callable[[int, PointAnswer], None],
) -> None:
    """Answer points in any order; call `keep` once for each, with its answer or the reason of its failure.

    Points of a worker that died are asked again, beside others at first; a point that was there `MOST_SHARED_DEATHS`
    times is asked alone at the end, and has failed if `MOST_LONELY_DEATHS` workers die then.
    """
    waiting, suspects = deque(points), deque[int]()
    flying: dict[Future[PointAnswer], int] = {}
    deaths, lonely = Counter[int](), Counter[int]()

    while waiting or suspects or flying:
        alone = not waiting and not flying
        source, window = (suspects, 1) if alone else (waiting, pool.window)
        broken = False
        while source and len(flying) < window and not broken:
            try:
                flying[pool.submit(answer_point, study, make_point(source[0]))] = source[0]
                source.popleft()
            except BrokenExecutor:
                broken = True
        stop_if_heard()
        while flying and not wait(flying, LOOK, return_when=FIRST_COMPLETED).done:
            stop_if_heard()
        done = [future for future in flying if future.done()]
        broken = broken or any(map(_died, done))
        for future in wait(flying).done if broken else done:
            point = flying.pop(future)
            if not _died(future):
                error = future.exception()
                failed = PointAnswer(None, f"{type(error).__name__}: {error}")
                keep(point, failed if isinstance(error, Exception) else future.result())
                continue
            (lonely if alone else deaths)[point] += 1
            if lonely[point] == MOST_LONELY_DEATHS:
                keep(point, PointAnswer(None, "The worker process died, also when it ran this point alone."))
            else:
                (suspects if alone or deaths[point] == MOST_SHARED_DEATHS else waiting).append(point)
        if broken:
            pool.restart()


def _died(future: Future[Any]) -> bool:
    """Return whether the worker of a task died, or the task was cancelled for that reason."""
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor)


class CallingThread(Executor):
    """The calling thread: every task is done when it is submitted."""

    def submit(self, function: Callable[..., object], /, *arguments: object, **options: object) -> Future[Any]:
        """Do the task."""
        future: Future[object] = Future()
        future.set_result(function(*arguments, **options))
        return future


class GivenExecutor:
    """An executor of the caller, neither replaced nor shut down; `window` points are submitted to it at once."""

    def __init__(self, executor: Executor, window: int = GIVEN_WINDOW) -> None:
        self.window = window
        self._executor = executor
        self._given: set[Future[object]] = set()

    def submit(self, function: Callable[..., object], *arguments: object) -> Future[Any]:
        """Submit one task to the executor and return its future."""
        future = self._executor.submit(function, *arguments)
        self._given = {running for running in self._given if not running.done()} | {future}
        return future

    def restart(self) -> None:
        """Raise RuntimeError, because an executor of the caller is not replaced."""
        refuse(
            "Argument `executor` must outlive the sweep, but one of its workers died and broke it.", error=RuntimeError
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the tasks that were not begun."""
        for future in self._given:
            future.cancel()


class WorkerPool:
    """Worker processes on this machine, each on one thread, replaced when one dies.

    On Linux a server process loads what they need, starts each of them, and stays for the next sweep; elsewhere they
    are spawned. Each holds one end of a pipe, this process the other: when this process ends, in whatever way, the pipe
    closes and they exit.
    """

    def __init__(self, workers: int, study: Study) -> None:
        self.window = workers + 1
        self._workers, self._study, self._context = workers, study, begin_workers()
        self._starts: list[Future[object]] = []
        self._failed_starts = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the processes, at once if something went wrong."""
        self._stop(at_once=kind is not None)

    def submit(self, function: Callable[..., object], *arguments: object) -> Future[Any]:
        """Submit one task to the processes and return its future; the first call starts them."""
        try:
            with starts_processes():
                self._starts = self._starts or [
                    self._pool.submit(find_study, self._study) for _ in range(self._workers)
                ]
                future = self._pool.submit(function, *arguments)
                # A pool that breaks just then may have lost the task without a word; but it refuses the next one.
                self._pool.submit(os.getpid)
        except (ConnectionError, EOFError) as error:  # the process that they are forked from has ended
            raise BrokenExecutor from error
        return future

    def restart(self) -> None:
        """Replace all processes."""
        started = any(future.done() and not _died(future) for future in self._starts)
        self._failed_starts = 0 if started else self._failed_starts + 1
        require(
            self._failed_starts < 2,
            "Worker processes must be able to start, but end at once; a script must call `dynamics.sweep` below "
            "`if __name__ == '__main__':`.",
            error=RuntimeError,
        )
        self._stop(at_once=True)
        self._start()

    def _start(self) -> None:
        """Start the processes, each with one end of a new pipe."""
        self._worker_end, self._lifeline = self._context.Pipe(duplex=False)
        arguments = (self._worker_end, variables_of_user())
        with starts_processes():
            self._pool = ProcessPoolExecutor(self._workers, self._context, initializer=start_worker, initargs=arguments)
        self._starts = []

    def _stop(self, *, at_once: bool) -> None:
        """End the processes, `at_once` by closing the pipe, otherwise after the tasks that run."""
        if at_once:
            self._lifeline.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._lifeline.close()
        self._worker_end.close()


def checked_workers(workers: int | None, *, alone: int) -> int:
    """Return a number of worker processes, by default one per core; `alone` stands for this process alone.

    Where this process can have none, that is the default, with a warning, and ValueError is raised for any other.
    """
    most = MOST_WORKERS.get(sys.platform, LARGEST_INTEGER)
    asked = min(available_cores(), most) if workers is None else workers
    count = checked_integer(asked, "workers", minimum=alone, maximum=most)
    if count == alone or not (reason := why_no_workers()):
        return count
    require(workers is None, f"Argument `workers` must be {alone} here, since {reason}, but is {workers}.")
    warn(f"All is done in this process, one after the other, since {reason}.")
    return alone


def why_no_workers() -> str:
    """Return the reason why this process can have no worker processes, "" if it can."""
    if current_process().daemon:
        return "a daemonic process may have no children"
    main = vars(sys.modules["__main__"])
    script, spec = main.get("__file__"), main.get("__spec__")
    if script is not None and spec is None and not Path(script).exists():
        return "workers could not import the script, which is no file"
    try:
        with starts_processes():  # a lock starts the process that removes it
            get_context("spawn").Lock()
    except (ImportError, OSError) as error:
        return f"the system has no semaphores ({error})"
    return ""


def begin_workers() -> BaseContext:
    """Return the context in which worker processes start, and begin to make the process that they are forked from."""
    require(
        not getattr(current_process(), "_inheriting", False),
        "A script must call `dynamics.sweep` below `if __name__ == '__main__':`, but calls it when imported.",
        error=RuntimeError,
    )
    if sys.platform != "linux":
        return get_context("spawn")
    from multiprocessing import forkserver  # of POSIX

    context = get_context("forkserver")
    context.set_forkserver_preload([COMMON])
    with starts_processes():
        forkserver.ensure_running()
    return context


def start_worker(lifeline: Connection, variables: Mapping[str, str | None]) -> None:
    """Prepare a worker process: one thread, no Ctrl-C, and an end when the parent's end of a pipe closes.

    `variables` are environment variables as the parent has them, which processes that a study starts then get.
    """
    set_variables(variables)
    np.random.seed()  # noqa: NPY002 (forked workers would share the state, if a study draws from it)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    _ignore_interrupts()
    threading.Thread(target=_exit_with, args=(lifeline,), daemon=True).start()


def _exit_with(lifeline: Connection) -> None:
    """Wait until the other end of the pipe closes, and end this process then."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def has_cluster() -> bool:
    """Return whether dask's scheduler is installed."""
    return find_spec("distributed") is not None


def check_cluster(what: str) -> None:
    """Raise ImportError, in one sentence that names the extra, if dask's scheduler is not installed."""
    require(
        has_cluster(),
        f"{what} must have dask.distributed, but it is not installed: pip install 'feature-emergence[cluster]'.",
        error=ImportError,
    )


@contextmanager
def cluster_executor(*, scheduler: str | None = None, workers: int | None = None) -> Iterator[Executor]:
    """Return a context that gives an executor of dask, which ends after the body.

    It is that of the scheduler at the address `scheduler`, or of a new local cluster of `workers` processes of one
    thread.
    """
    check_cluster("A cluster")
    import distributed as untyped

    distributed: Any = untyped
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            refuse(
                f"A dask scheduler must listen at {scheduler!r}, but none answers ({type(error).__name__}).",
                error=ConnectionError,
            )
        with client:
            yield client.get_executor()
        return
    settings = {"threads_per_worker": 1, "processes": True, "env": dict.fromkeys(THREAD_VARIABLES, "1")}
    quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
    variables = variables_of_user()
    with (
        starts_processes(),  # a worker that dies is started again
        distributed.LocalCluster(n_workers=workers, **quiet, **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.run(set_variables, variables)
        client.run(_ignore_interrupts)
        yield client.get_executor()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent acts on it
