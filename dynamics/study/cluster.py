"""A dask cluster, on other machines or this one, as an executor for `dynamics.sweep`; needs the extra `cluster`."""

from __future__ import annotations

import logging
import signal
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dynamics.threads.cores import THREAD_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

CONNECT_SECONDS = 10


def has_cluster() -> bool:
    """Return whether dask's scheduler is installed."""
    return find_spec("distributed") is not None


def check_cluster(what: str) -> None:
    """Raise ImportError, in one sentence that names the extra, if dask's scheduler is not installed."""
    if not has_cluster():
        msg = f"{what} must have dask.distributed, but it is not installed: pip install 'feature-emergence[cluster]'."
        raise ImportError(msg)


@contextmanager
def cluster_executor(*, scheduler: str | None = None, workers: int | None = None) -> Iterator[Executor]:
    """Connect to a running scheduler, or start a cluster on this machine, which ends with the context.

    The scheduler is an address such as ``"tcp://host:8786"``, whose workers need this program; `workers` is the number
    of processes to start here, each on one thread. A worker that dies is replaced, and its tasks are done again.
    ConnectionError is raised if no scheduler answers at the address.
    """
    check_cluster("A cluster")
    distributed: Any = import_module("distributed")
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            msg = f"A dask scheduler must listen at {scheduler!r}, but none answers ({type(error).__name__})."
            raise ConnectionError(msg) from None
        with client:
            yield client.get_executor()
        return
    settings = {"threads_per_worker": 1, "processes": True, "env": dict.fromkeys(THREAD_VARIABLES, "1")}
    with (
        distributed.LocalCluster(
            n_workers=workers, dashboard_address=None, silence_logs=logging.ERROR, **settings
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.run(ignore_interrupts)
        yield client.get_executor()


def ignore_interrupts() -> None:
    """Ignore Ctrl-C: a terminal sends it to all processes of a command, and the one that was started acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
