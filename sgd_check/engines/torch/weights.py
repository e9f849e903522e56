"""SGD step by step on the weights in R^d in torch, with the seeds as a batch axis: gradient, optimizer, constraint.

A step on a batch of B samples (`samples`) takes the mean gradient of the batch (`neurons`), has the optimizer move the
weights along it (`optimizers`), and brings them back to where they must lie. On the processor every run has its own
tensors, so that its rounding does not depend on the others; on a CUDA device runs are stepped together.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dynamics.problem import Problem, is_frame, is_network, is_spherical
from dynamics.problem.optimizers import SGD, ZerothOrder, keeps_average
from dynamics.problem.rows import Rows
from hermite.arrays import Array
from hermite.text.messages import require
from sgd_check.engines.registry import Engine, EngineOptions, Measurement
from sgd_check.engines.seeded_runs import DENSE_AXES, DIRECTIONS, RunThreads, generators
from sgd_check.engines.torch.links import make_link
from sgd_check.engines.torch.neurons import make_neurons
from sgd_check.engines.torch.optimizers import STEPS, WeightRuns, check_optimizer
from sgd_check.engines.torch.samples import (
    FixedSamples,
    FreshDirections,
    FreshSamples,
    Source,
    TorchTeacher,
    make_streams,
    measured_rows,
    sample_streams,
    steps_ahead,
    turn_to_triangle,
)

DTYPES = {"float32": torch.float32, "float64": torch.float64}
MEMORY_LIMIT = 16 * 2**30
#: Below this many numbers in a step of one run, threads cost more than they bring.
THREADED_NUMBERS = 2**18


_counting = threading.Lock()
#: How many bodies run now, and the number of threads before the first of them.
_entered = {"bodies": 0, "before": 1}


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Have torch use one thread in the body, then in this thread as many as before the first of bodies that overlap.

    Torch keeps the number for each thread, so every body sets that of its own thread back.
    """
    with _counting:
        if not _entered["bodies"]:
            _entered["before"] = torch.get_num_threads()
        _entered["bodies"] += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _counting:
            _entered["bodies"] -= 1
            torch.set_num_threads(_entered["before"])


def checked_device(device: str) -> torch.device:
    """Return the device of a name; "auto" is CUDA if the machine has it."""
    available = torch.cuda.is_available()
    require(
        available or device != "cuda",
        "Argument `device` must be 'auto' or 'cpu' on this machine, but is 'cuda' and torch finds no CUDA device.",
    )
    return torch.device("cuda" if device != "cpu" and available else "cpu")


def memory_limit(device: torch.device) -> int:
    """Return the bytes that runs may take: the free memory of a CUDA device, `MEMORY_LIMIT` on the processor."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else MEMORY_LIMIT


def memory_needed(runs: int, width: int, dimension: int, drawn: int, dtype: torch.dtype) -> int:
    """Return the bytes of weights, of their copy in a step or a block, and of `drawn` samples per run, for `runs` runs.

    `width` neurons have `dimension` coordinates each.
    """
    return runs * dimension * (2 * width + drawn) * dtype.itemsize


class TorchRuns(Engine):
    """Runs in R^d side by side: device, link, teacher, and weights (seeds, m, columns), zero from d on.

    So many samples of every run are `drawn` at a time. `kept` is the number of coordinates if it is not d.
    """

    def __init__(
        self, problem: Problem, options: EngineOptions, drawn: int, columns: int, kept: int | None = None
    ) -> None:
        """Check device and memory, and put the weights of all runs at the start of a problem.

        `options` give seeds, device and dtype; `drawn` is the number of samples held per run and `columns` the number
        of columns of the weights. ValueError is raised, before anything is allocated, if weights, their copy in a step
        and samples do not fit in memory.
        """
        self._device, self._dtype = checked_device(options.device), DTYPES[options.dtype]
        runs, m, self._dimension = len(options.seeds), problem.width, kept or problem.dimension
        memory, limit = memory_needed(runs, m, self._dimension, drawn, self._dtype), memory_limit(self._device)
        optimizer = "" if options.optimizer.is_plain else f" under {options.optimizer}"
        require(
            memory <= limit,
            f"Arguments `problem` and `seeds` must fit in {limit / 2**30:.3g} GiB, but {runs} seeds of {m} neurons in "
            f"dimension {self._dimension}{optimizer} need {memory / 2**30:.1f} GiB.",
        )
        self._teacher = TorchTeacher.of(problem, self._dtype, self._device)
        is_general = is_network(problem)
        self._link, link_name = make_link(problem.activation, self._dtype, self._device, anywhere=is_general)
        reduced, axes = _reduced_starts(problem, options), problem.input_axes()
        self._weights = torch.zeros(runs, m, columns, dtype=self._dtype, device=self._device)
        places = np.arange(reduced.shape[2]) if axes is None else axes.places
        self._weights[:, :, torch.tensor(places, device=self._device)] = torch.from_numpy(reduced).to(self._weights)
        self._threads = RunThreads(1)
        self._problem, self._options = problem, options
        #: Rows over which the loss is measured, and their labels.
        self._measured: tuple[torch.Tensor, torch.Tensor] | None = None
        on_cuda = self._device.type == "cuda"
        self.attributes = {
            "device": f"cuda ({torch.cuda.get_device_name(self._device)})" if on_cuda else "cpu",
            "dtype": options.dtype,
            "simulated_link": link_name,
            "torch_version": str(torch.__version__),
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context without autograd in which runs share threads; torch has one on the processor."""
        threads = one_torch_thread() if self._device.type == "cpu" else nullcontext()
        with threads, torch.inference_mode(), self._threads.running():
            yield

    def current(self) -> torch.Tensor:
        """Return the weights of the moment, shape (seeds, m, d)."""
        return self._weights[..., : self._dimension]

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps of all runs in float64; with `student` also those among the neurons."""
        return measured(self.current(), self._teacher, student=student)

    def _with_layers(self) -> torch.Tensor:
        """Return the weights of the moment with the columns of further layers, (seeds, m, columns)."""
        return self.current()

    @torch.inference_mode()
    def row_loss(self) -> Array:
        """Return the mean of (f − f*)² over at most 4096 rows that are not Gaussian, of every run, (seeds,)."""
        weights = self._with_layers()
        if self._measured is None:
            chosen = measured_rows(cast("Rows", self._options.rows), self._problem)
            rows = torch.from_numpy(chosen).to(weights)
            self._measured = rows, self._teacher.label(rows, None)
        x, y = self._measured
        neurons = make_neurons(self._problem, self._link, weights)
        losses = [torch.mean((neurons.predict(w[None], x[None])[0] - y) ** 2) for w in weights]
        return np.asarray(torch.stack(losses).to("cpu", torch.float64).numpy())

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN; every operation keeps the seeds apart, so the others do not notice."""
        self._weights[np.flatnonzero(stopped).tolist()] = torch.nan

    def _use(self, threads: int, kernel: str) -> None:
        """Share runs among `threads`; record their number and the kernel of the steps in the attributes."""
        self._threads = RunThreads(threads)
        self.attributes |= {"step_kernel": kernel, "threads": threads}


def _reduced_starts(problem: Problem, options: EngineOptions) -> Array:
    """Return the weights at the start on the axes to which a problem reduces, (starts, m, axes).

    There is one start per run, or one for all. Frames are scaled to orthonormal neurons, spherical neurons to length 1.
    """
    starts = [problem]
    if options.starts is not None:
        from dynamics.solve import coupled_problem  # loads Numba

        starts = [coupled_problem(problem, problem.width, seed) for seed in options.starts]
    reduced = np.array([start.reduced_weights() for start in starts])
    if is_frame(problem):
        reduced /= math.sqrt(float(problem.start().squared_norm[0]))
    elif is_spherical(problem):
        reduced /= np.linalg.norm(reduced, axis=2, keepdims=True)
    return reduced


def _axes_of_start(problem: Problem, options: EngineOptions) -> int | None:
    """Return the number of axes that hold teacher and start if these and the n reused samples span less than R^d.

    Weights then move within this span, and coordinates in it have the law of those in R^d. None is returned otherwise,
    and for inputs with a spectrum, optimizers other than SGD and the spherical student, whose neurons are recorded.
    """
    if options.training_samples is None or problem.inputs is not None or is_spherical(problem):
        return None
    axes = problem.reduced_weights().shape[1]
    few = isinstance(options.optimizer, SGD) and axes + options.training_samples < problem.dimension
    return axes if few else None


def on_dense_axes(start: Array, span: int, dimension: int, seed: int) -> tuple[Array, Array]:
    """Return a start [M | L] (m, D) on random orthonormal axes in R^d (m, d), and the teacher's axes (span, d)."""
    if start.shape[1] > span + len(start):  # only L Lᵀ matters
        start = np.hstack([start[:, :span], np.linalg.qr(start[:, span:].T).R.T])
    normals = generators(seed, [DENSE_AXES])[0].standard_normal((dimension, start.shape[1]))
    factor, triangle = np.linalg.qr(normals)
    axes = (factor * np.sign(np.diag(triangle))).T
    return start @ axes, axes[:span]


def measured(
    weights: torch.Tensor, teacher: TorchTeacher, *, student: bool, squared: float | None = None, vectors: bool = False
) -> Measurement:
    """Return overlaps of weights (lanes, m, d) in float64, or if `squared` is given of unit vectors of that |w|².

    With `student` those among neurons are measured too, or, with `vectors`, the unit vectors are returned for them.
    """
    w, directions = weights.to(torch.float64), teacher.directions
    squared_norm = torch.sum(w * w, dim=2)
    unit = w / torch.sqrt(squared_norm)[:, :, None] if squared is None else w
    overlap = teacher.coordinates(unit)
    overlap = overlap if directions is None else overlap @ directions.to(torch.float64).T
    gram = torch.bmm(unit, unit.transpose(1, 2)) if student and not vectors else None
    tensors = (overlap, gram, squared_norm * (squared or 1.0), unit if student and vectors else None)
    arrays: list[Any] = [None if tensor is None else tensor.cpu().numpy() for tensor in tensors]
    return Measurement(*arrays)


class WeightEngine(TorchRuns):
    """A batch of runs that are stepped one step at a time."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Put all runs at their start, in groups: one run each on the processor, all together on a CUDA device.

        A group has its weights (runs, m, columns) and its source of samples: fresh ones, or, if `options` give
        `training_samples`, a fixed sample that is used again. Columns are the d coordinates, of a network also second
        layer (one per output) and bias. Where a fixed sample, teacher and start span less than R^d, coordinates in
        their span stand for the d. Zeroth-order steps have streams of random directions too, and optimizers that depend
        on the axes get teacher and start on random axes.
        """
        batch, reused, seeds = options.batch_size, options.training_samples, options.seeds
        check_optimizer(problem, options)
        kept = _axes_of_start(problem, options)
        d = problem.dimension if kept is None else kept + (reused or 0)
        optimizer, m, layered = options.optimizer, problem.width, is_network(problem)
        count = optimizer.directions if isinstance(optimizer, ZerothOrder) else 0
        drawn = steps_ahead(d, batch) * batch if reused is None else 2 * reused
        run_type = WeightRuns if optimizer.is_plain else STEPS[type(optimizer)]
        drawn += m * (run_type.arrays + keeps_average(optimizer)) + (problem.teacher.span if optimizer.sees_axes else 0)
        drawn += steps_ahead(d, count * m) * count * m if count else 0
        outputs = problem.num_outputs
        super().__init__(problem, options, drawn, d + outputs + 1 if layered else d, d)
        if optimizer.sees_axes:  # teacher and start lie along axes whose coordinates are all of order 1/√d
            span, reduced = problem.teacher.span, problem.reduced_weights()
            axes_of_runs = self._weights.new_empty(len(seeds), span, d)
            for run, seed in enumerate(seeds):
                start_on_axes, run_axes = on_dense_axes(reduced, span, d, seed)
                self._weights[run, :, :d], axes_of_runs[run] = (
                    torch.from_numpy(start_on_axes),
                    torch.from_numpy(run_axes),
                )
            self._teacher = replace(self._teacher, axes=axes_of_runs)
        if layered:
            start = problem.network_start()
            layers = np.vstack([start.second_layer, start.bias])
            self._weights[:, :, d:] = torch.from_numpy(layers.T).to(self._weights)
        streams, on_cpu = sample_streams(problem, options, self._dtype, self._device), self._device.type == "cpu"
        direction_streams = make_streams(seeds, self._dtype, self._device, DIRECTIONS) if count else None
        self._layered = layered
        self._spherical = is_spherical(problem)
        self._groups = list[WeightRuns]()
        size = 1 if on_cpu else len(seeds)
        for first in range(0, len(seeds), size):
            lanes = range(first, first + size)
            teacher, axes, lane_seeds = self._teacher, self._teacher.axes, seeds[first : first + size]
            if axes is not None:
                teacher = replace(teacher, axes=axes[first : first + size])
            source: Source = FreshSamples(teacher, streams, lanes, reused or batch, self._weights[:0, :, :d])
            if reused is not None:
                sample = source.batch()
                if kept is not None:
                    turn_to_triangle(sample[0], kept, problem.dimension, lane_seeds)
                source = FixedSamples(sample, batch, lane_seeds, reshuffled=options.reshuffle)
            self._neurons = neurons = make_neurons(problem, self._link, self._weights)
            weights = self._weights[first : first + size].clone()
            spread = None if neurons.metric is None else torch.sqrt(neurons.metric)
            z = None if direction_streams is None else FreshDirections(direction_streams, lanes, count, weights, spread)
            self._groups.append(run_type(neurons, weights, source, options, z))
        self._weights = self._weights.new_empty(0)  # the groups have theirs
        many = on_cpu and m * max(d, batch) >= THREADED_NUMBERS and not is_frame(problem)
        self._use(min(torch.get_num_threads(), len(self._groups)) if many else 1, "plain")

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate η of `rates` (steps,), groups of runs in threads."""
        self._threads.map(torch.inference_mode()(lambda runs: runs.advance(rates.tolist())), self._groups)

    def current(self) -> torch.Tensor:
        """Return the weights of the moment."""
        return torch.cat([runs.weights for runs in self._groups])[..., : self._dimension]

    def _with_layers(self) -> torch.Tensor:
        """Return the weights of the moment, of a network with the columns of v and b."""
        return torch.cat([runs.weights for runs in self._groups])

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps, and the neurons of the spherical student."""
        squared, vectors = self._neurons.squared, self._spherical
        return measured(self.current(), self._teacher, student=student, squared=squared, vectors=vectors)

    def layers(self) -> Array:
        """Return v and b of a network, under softmax V of every class and b."""
        return _layers(torch.cat([runs.weights for runs in self._groups]), self._dimension)

    def enter(self, problem: Problem) -> None:
        """Go on with the rates of another phase of layer-wise training, those of `problem`."""
        for runs in self._groups:
            runs.enter(make_neurons(problem, self._link, runs.weights))

    def train_loss(self) -> Array:
        """Return the mean of (f − y)² over the training samples of each run, (seeds,)."""
        losses = [2.0 * runs.loss(runs.weights, *cast("FixedSamples", runs.source).all) for runs in self._groups]
        return np.asarray(torch.cat(losses).to("cpu", torch.float64).numpy())

    def measure_average(self) -> tuple[Measurement, Array | None]:
        """Return overlaps of the averages of the weights, and the averages of v and b of a network.

        The latter are (seeds, 2, m), or None for another student.
        """
        averages = torch.cat([runs.average for runs in self._groups if runs.average is not None])
        measurement = measured(averages[..., : self._dimension], self._teacher, student=True)
        return measurement, _layers(averages, self._dimension) if self._layered else None

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the weights of the runs that `stopped` (seeds,) marks to NaN."""
        lanes = [lane for runs in self._groups for lane in runs.weights]
        for index in np.flatnonzero(stopped).tolist():
            lanes[index].fill_(torch.nan)


class LossEngine(WeightEngine):
    """Runs under another loss, with labels that are classes or on a mixture; they can go on from their file."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the later steps depend on; samples that were drawn are drawn again from it."""
        states = [runs.state() | cast("FreshSamples", runs.source).state() for runs in self._groups]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    @torch.inference_mode()
    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from the arrays that `state` returned, for the same problem and options on the same device."""
        for at, runs in enumerate(self._groups):
            of_group = {name: array[at] for name, array in state.items()}
            runs.restore(of_group)
            cast("FreshSamples", runs.source).restore(of_group["streams"], of_group["position"])


def _layers(weights: torch.Tensor, dimension: int) -> Array:
    """Return v and b (lanes, 2, m) of weights (lanes, m, d + 2) whose last columns they are, or V and b."""
    return np.asarray(weights[:, :, dimension:].transpose(1, 2).to("cpu", torch.float64, copy=True).numpy())
