"""A figure drawn by a copy of this process, which loads what that needs while the answer is computed.

The interpreter runs on one core, and to load what draws a figure, and to draw it, takes it longer than many an answer.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynamics.compiler.compiling_processes import copy_that_does, end_copy
from dynamics.compiler.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection

    import xarray as xr

    from dynamics.commands.end import Telling
    from dynamics.runs.dataset import Contents

#: Seconds after which a copy that is asked for nothing ends, since a long run has no use for it and needs the memory.
IDLE = 20.0
#: Seconds after which a copy that gives no figure is taken to hang.
PATIENCE = 30.0
#: Bytes of an answer beyond which two copies of it are not worth the time.
LARGEST_ANSWER = 1 << 27


@dataclass(frozen=True)
class FigureRequest:
    """What is to be drawn: what `find` says that an answer shows, in a style, saved with these options."""

    find: Callable[[xr.Dataset], Telling | None]
    #: The dataset, or, where it is not made yet, what it will hold.
    answer: xr.Dataset | Contents
    style: str
    options: Mapping[str, Any]

    def picture(self) -> bytes:
        """Return the file of the figure, empty if the answer has none."""
        from dynamics.runs.dataset import Contents

        dataset = self.answer.dataset() if isinstance(self.answer, Contents) else self.answer
        with warnings.catch_warnings():  # which the command gives itself, when it finds the same
            warnings.simplefilter("ignore")
            found = self.find(dataset)
        stream = io.BytesIO()
        if found is not None and found.overview is not None:
            found.drawn(self.style).savefig(stream, **self.options)
        return stream.getvalue()


class DrawingProcess:
    """A copy of this process that draws one figure; where anything goes wrong with it, it gives none."""

    def __init__(self, prepare: Callable[[], object] = lambda: None) -> None:
        from multiprocessing import Pipe

        self._connection, other_end = Pipe()

        def work() -> None:
            self._connection.close()
            _draw_one(other_end, prepare)

        self._child = copy_that_does(work)
        self._asking: threading.Thread | None = None
        other_end.close()

    def ask(self, asked: FigureRequest) -> None:
        """Ask for a figure, in a thread, since the copy may still be loading."""
        if self._asking is None and asked.answer.nbytes < LARGEST_ANSWER:
            asking = threading.Thread(target=self._send, args=(asked,), daemon=True)
            with suppress(RuntimeError):  # the user has as many threads as allowed
                asking.start()
                self._asking = asking

    def _send(self, asked: FigureRequest) -> None:
        sent = False
        with suppress(Exception):  # whatever it is: an answer is not lost for its figure
            self._connection.send(asked)
            sent = True
        if not sent:
            end_copy(self._child)

    def picture(self) -> bytes | None:
        """Wait for the figure that was asked for; return its file, None if there is none."""
        if self._asking is None:
            return None
        last_moment = threading.Timer(PATIENCE, end_copy, (self._child,))
        last_moment.start()
        try:
            return self._connection.recv_bytes() or None
        except (OSError, EOFError):  # the copy has ended
            return None
        finally:
            last_moment.cancel()

    def close(self) -> None:
        """End the copy."""
        end_copy(self._child)
        if self._asking is not None:
            self._asking.join()  # which sends to nobody any more
        self._connection.close()


@contextmanager
def drawing_process(prepare: Callable[[], object], *, wanted: bool) -> Iterator[DrawingProcess | None]:
    """Give a process that draws a figure, for which it is got ready by `prepare`; None where it would gain nothing.

    That is so if no figure is wanted, beside a single core, where a caller has threads of its own or has loaded
    matplotlib, and where a process cannot be copied.
    """
    alone = threading.active_count() == 1 and "matplotlib" not in sys.modules
    if not (wanted and alone and sys.platform == "linux" and available_cores() > 1):
        yield None
        return
    drawing = DrawingProcess(prepare)
    try:
        yield drawing
    finally:
        drawing.close()


def _draw_one(connection: Connection, prepare: Callable[[], object]) -> None:
    """Draw the figure that is asked for; this is all that the copy does."""
    # What ends the command reaches its copy, too; a run that is interrupted has a figure all the same.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    load_libraries(drawing=True)
    prepare()
    _rehearse()
    with suppress(EOFError):  # the command has ended, and asked for nothing
        if connection.poll(IDLE):
            asked: FigureRequest = connection.recv()
            connection.send_bytes(asked.picture())


def load_libraries(*, storing: bool = False, drawing: bool = False) -> None:
    """Load what is needed when an answer is there."""
    import xarray as xr

    xr.Dataset({"any": 0.0})  # the first one looks for what else it could hold

    if storing:
        import netCDF4  # noqa: F401
    if drawing:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401


def _rehearse() -> None:
    """Draw a formula: the first one makes its parser and reads the fonts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.0, 1.0))
    figure.text(0.0, 0.0, "rehearsal $x^{-1}$")
    figure.savefig(io.BytesIO(), format="png")
