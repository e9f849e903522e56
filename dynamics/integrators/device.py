"""A device of torch: the import of torch, which no other module of dynamics makes, and operations recorded as one."""

from __future__ import annotations

import re
import threading
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from hermite.text.messages import refuse, shown, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def load_torch(device: str) -> ModuleType:
    """Return the module torch, after making sure that it can use "cpu", "cuda" or "cuda:<number>".

    Raises ImportError if torch is not installed, ValueError if there is no such device.
    """
    if not isinstance(device, str) or _DEVICE.fullmatch(device) is None:
        hint = suggestion(device, ("cpu", "cuda"))
        refuse(f"Argument `device` must be 'cpu', 'cuda' or 'cuda:<number>', but is {shown(device)}.{hint}")
    try:
        torch = import_module("torch")
    except ImportError:
        refuse(
            f'Argument `device` = {device!r} needs an extra package: pip install "feature-emergence[torch]".',
            error=ImportError,
        )
    if device != "cpu":
        count, number = torch.cuda.device_count(), int(device.partition(":")[2] or 0)
        if number >= count:
            refuse(
                f"Argument `device` must name a device of this machine, but is {shown(device)} and torch finds {count} "
                'CUDA devices; pip install "feature-emergence[torch]" on a machine with one, or take "cpu".'
            )
    return torch


class Replay:
    """A fixed sequence of operations on fixed tensors of a CUDA device, recorded at the first call as a CUDA graph.

    Launching a kernel takes the host about 5 µs, as long as a kernel on a matrix of 500 rows runs; a graph launches
    hundreds at once. The work must not look at a value on the host. It is run once before it is recorded, and `kept`
    are the tensors that it both reads and changes: they are put back then. `torch` is the module.
    """

    #: PyTorch records on one stream for all threads, so that one thread records at a time.
    _recording: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, torch: ModuleType, device: Any, work: Callable[[], None], kept: Sequence[Tensor] = ()) -> None:
        self._torch, self._device = torch, device
        self._work, self._kept = work, kept
        self._graph: Any = None

    def __call__(self) -> None:
        """Run the operations."""
        with self._torch.cuda.device(self._device):
            if self._graph is None:
                with self._recording:
                    self._graph = self._record()
            self._graph.replay()

    def _record(self) -> Any:
        """Return a CUDA graph of the work, which is done once before, so that libraries have their memory.

        The tensors that the work changes have their values of before afterwards.
        """
        cuda = self._torch.cuda
        before = [tensor.clone() for tensor in self._kept]
        # Libraries allocate their work space on first use, which is not allowed while recording.
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            self._work()
        cuda.current_stream().wait_stream(stream)
        for tensor, value in zip(self._kept, before, strict=True):
            tensor.copy_(value)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, capture_error_mode="thread_local"):
            self._work()
        return graph
