"""Labelled samples in R^d for runs side by side: fresh ones in each step, or a sample of fixed size over and over.

A source serves some lanes (runs) and gives batches x (lanes, B, d) with labels y = f*(x) + τξ (lanes, B). On the
processor numbers are those of a generator of each seed, torch's in single precision and numpy's in double precision,
where it takes less than half the time. On a CUDA device with Triton they are a function of seed, sample and coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module, metadata
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dynamics.problem import Problem, is_network, needs_points
from dynamics.problem.losses import OF_SOFTMAX
from dynamics.problem.rows import Rows
from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.text.messages import require
from sgd_check.engines.registry import EngineOptions
from sgd_check.engines.seeded_runs import LENGTHS, ORDER, SAMPLES, generators, set_words, words_of
from sgd_check.engines.torch.links import TorchLink, make_link
from sgd_check.engines.torch.losses import ClassLabels

Batch = tuple[torch.Tensor, torch.Tensor]


class GeneratorStreams(NamedTuple):
    """A generator per seed, and functions that draw from one, return its state as integers, and put it there."""

    generators: Sequence[object]
    draw: Callable[[Any, torch.Tensor], object]
    words_of: Callable[[Any], NDArray[np.generic]]
    set_words: Callable[[Any, NDArray[np.generic]], object]

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        """Draw the next numbers of some seeds: samples (lanes, rows, columns) and label noise (lanes, rows)."""
        for row, lane in enumerate(lanes):
            self.draw(self.generators[lane], samples[row])
            if noise is not None:
                self.draw(self.generators[lane], noise[row])

    def state(self, lanes: range | None = None) -> NDArray[np.generic]:
        """Return the positions of all streams, or of those of some seeds, as integers."""
        chosen = range(len(self.generators)) if lanes is None else lanes
        return np.stack([self.words_of(self.generators[lane]) for lane in chosen])

    def restore(self, state: NDArray[np.generic], lanes: range | None = None) -> None:
        """Continue from the positions that `state` returned for the same seeds."""
        chosen = range(len(self.generators)) if lanes is None else lanes
        for lane, words in zip(chosen, state, strict=True):
            self.set_words(self.generators[lane], words)


@cache
def triton_version() -> str | None:
    """Return the version of Triton, or None if it is not installed."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def kernels() -> Any:
    """Return the module of Triton kernels; with TRITON_INTERPRET=1 in the environment they run on the processor."""
    return import_module("sgd_check.engines.torch.fused_kernels")


FILLED_ROWS, COORDINATES_PER_COUNTER = 16, 4


def fill_normals(seeds: torch.Tensor, first: int, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
    """Write samples from `first` on of seeds (lanes,) to `samples` (lanes, rows, columns), label noise to `noise`."""
    lanes, rows, columns = samples.shape
    groups = -(-columns // (COORDINATES_PER_COUNTER * int(kernels().CHUNK.value)))
    kernels().fill[(lanes, -(-rows // FILLED_ROWS), groups)](
        samples,
        samples if noise is None else noise,
        seeds,
        first,
        rows,
        columns,
        columns,
        ROWS=FILLED_ROWS,
        NOISY=noise is not None,
        enable_fp_fusion=True,
    )


class CounterStreams:
    """Numbers on a CUDA device as a function of seed, sample and coordinate; the state is how many are drawn."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._seeds = torch.tensor(seeds, dtype=torch.int64, device=device)
        self._drawn = 0

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        """Draw the next numbers of some seeds at once."""
        fill_normals(self._seeds[lanes.start : lanes.stop], self._drawn, samples, noise)
        self._drawn += samples.shape[1]

    def state(self, lanes: range | None = None) -> NDArray[np.generic]:  # noqa: ARG002 (all seeds draw alike)
        """Return the number of samples that each seed has drawn."""
        return np.array([self._drawn])

    def restore(self, state: NDArray[np.generic], lanes: range | None = None) -> None:  # noqa: ARG002
        """Continue from the positions that `state` returned."""
        self._drawn = int(state[0])


#: Most rows over which the loss of runs is measured.
MEASURED_ROWS = 4096


class RowStreams:
    """Samples that are rows of a matrix, drawn again and again or used once, or draws of a law, for each seed."""

    def __init__(self, rows: Rows, problem: Problem, seeds: Sequence[int], dtype: torch.dtype) -> None:
        """Prepare the map from rows to coordinates of a problem, and a generator for each seed.

        A matrix that fits memory is mapped as a whole, a larger one as its rows are drawn.
        """
        self._rows, self._map, self._dimension = rows, rows.coordinates(problem), problem.dimension
        self._generators = [generators(seed, [SAMPLES])[0] for seed in seeds]
        self._orders = [generators(seed, [ORDER])[0] for seed in seeds]
        self._used = np.zeros(len(seeds), dtype=np.int64)
        #: Order in which each seed takes the rows, of rows that are used once.
        self._order = list[NDArray[np.int64]]()
        self._table: torch.Tensor | None = None
        if rows.is_law:
            return
        count = cast("int", rows.count)
        if not rows.resample:
            self._order = [order.permutation(count) for order in self._orders]
        if rows.fits_memory:
            parts = [torch.from_numpy(self._map(block)).to(dtype) for block in rows.blocks()]
            self._table = torch.cat(parts)

    def fill(self, lanes: range, samples: torch.Tensor, noise: torch.Tensor | None) -> None:
        """Write the next samples of some seeds into the first d columns of (lanes, rows, columns), and label noise."""
        for row, lane in enumerate(lanes):
            generator = self._generators[lane]
            samples[row, :, : self._dimension] = self._drawn(lane, samples.shape[1]).to(samples)
            if noise is not None:
                noise[row] = torch.from_numpy(generator.standard_normal(noise.shape[1])).to(noise)

    def _drawn(self, lane: int, count: int) -> torch.Tensor:
        """Return the coordinates of the next `count` samples of a seed, (count, d)."""
        rows, generator = self._rows, self._generators[lane]
        if rows.is_law:
            return torch.from_numpy(self._map(rows.draw(generator, count, self._dimension)))
        total = cast("int", rows.count)
        if rows.resample:
            chosen = generator.integers(0, total, count)
        else:  # samples that are drawn ahead of the last step may exceed the rows, and are not used
            chosen = self._order[lane][(self._used[lane] + np.arange(count)) % total]
            self._used[lane] += count
        if self._table is not None:
            return self._table[torch.from_numpy(chosen)]
        return torch.from_numpy(self._map(rows.take(chosen)))

    def state(self, lanes: range | None = None) -> NDArray[np.generic]:
        """Return the state of the generators and the number of rows used, as integers."""
        chosen = range(len(self._generators)) if lanes is None else lanes
        return np.stack([np.append(words_of(self._generators[lane]), np.uint64(self._used[lane])) for lane in chosen])

    def restore(self, state: NDArray[np.generic], lanes: range | None = None) -> None:
        """Continue from the positions that `state` returned for the same seeds."""
        chosen = range(len(self._generators)) if lanes is None else lanes
        for lane, words in zip(chosen, state, strict=True):
            set_words(self._generators[lane], words[:-1])
            self._used[lane] = int(words[-1])


def measured_rows(rows: Rows, problem: Problem) -> Array:
    """Return coordinates of at most `MEASURED_ROWS` rows, or of so many draws of a law, always the same, (rows, d)."""
    to_axes, generator = rows.coordinates(problem), np.random.default_rng([rows.seed, 3])
    if rows.count is None:
        return to_axes(rows.draw(generator, MEASURED_ROWS, problem.dimension))
    chosen = np.arange(rows.count)
    if rows.count > MEASURED_ROWS:
        chosen = np.sort(generator.choice(rows.count, MEASURED_ROWS, replace=False))
    return to_axes(rows.take(chosen))


Streams = GeneratorStreams | CounterStreams | RowStreams


def sample_streams(problem: Problem, options: EngineOptions, dtype: torch.dtype, device: torch.device) -> Streams:
    """Return the streams of samples of runs: rows where options name them, else normal numbers."""
    if options.rows is not None:
        return RowStreams(options.rows, problem, options.seeds, dtype)
    return make_streams(options.seeds, dtype, device)


def make_streams(seeds: Sequence[int], dtype: torch.dtype, device: torch.device, key: int = SAMPLES) -> Streams:
    """Return the fastest streams for a precision and a device; those of other keys than samples are independent."""
    if device.type == "cpu" and dtype == torch.float64:
        sources = [generators(seed, [key])[0] for seed in seeds]
        return GeneratorStreams(
            sources, lambda source, out: source.standard_normal(out=out.numpy()), words_of, set_words
        )
    if key != SAMPLES:
        seeds = [int(generators(seed, [key])[0].integers(2**63)) for seed in seeds]
    if device.type != "cpu" and triton_version() is not None:
        return CounterStreams(seeds, device)
    return GeneratorStreams(
        [torch.Generator(device=device).manual_seed(seed) for seed in seeds],
        lambda source, out: out.normal_(generator=source),
        lambda source: np.asarray(source.get_state().numpy()),
        lambda source, words: source.set_state(torch.from_numpy(np.array(words, dtype=np.uint8))),
    )


#: Numbers drawn per run at a time, where that is more than a batch.
DRAWN_NUMBERS = 2**16


@dataclass(frozen=True)
class TorchTeacher:
    """f* of the first `span` coordinates (…, span), and the standard deviation τ of label noise.

    Overlaps are those with the `directions` θ_p (P, span), or with the axes where there are none: the first ones of
    R^d, or `axes` (lanes, span, d).
    """

    value: Callable[[torch.Tensor], torch.Tensor]
    span: int
    noise: float
    directions: torch.Tensor | None = None
    axes: torch.Tensor | None = None
    classes: ClassLabels | None = None

    @property
    def draws(self) -> bool:
        """Whether a sample needs a normal number of its own: for noise, a label that is drawn, or a cluster."""
        return self.noise > 0 or (self.classes is not None and self.classes.draws)

    @classmethod
    def of(cls, problem: Problem, dtype: torch.dtype, device: torch.device) -> TorchTeacher:
        """Return the teacher of a problem, with tensors of a dtype on a device; it labels samples by their coordinates.

        Its value is a polynomial of the coordinates, a sum over the teacher's axes, or a sum over units with directions
        and biases. Labels that are classes, and mixtures, have `ClassLabels` too. ValueError is raised for label noise
        on a mixture.
        """
        teacher, network, directions = problem.teacher, is_network(problem), None
        placement: Any = {"dtype": dtype, "device": device}

        def made(link: HermiteExpansion) -> TorchLink:
            return make_link(link, dtype, device, anywhere=network, slope=not network)[0]

        if teacher.target is not None:
            value = partial(_polynomial, teacher.target.powers.tolist(), teacher.target.exponents.tolist())
        elif teacher.directions is None and not network:
            value = partial(_along_axes, made(problem.teacher_link), torch.tensor(teacher.coefficients, **placement))
        else:
            units_of_teacher = teacher.units(problem.teacher_link)
            links = {unit.link: made(unit.link) for unit in units_of_teacher}
            units = [
                (a, links[link], torch.tensor(direction, **placement), bias)
                for a, link, direction, bias in units_of_teacher
            ]
            value = partial(_units, units)
            directions = None if network else torch.tensor(teacher.directions, **placement)
        if not needs_points(problem):
            return cls(value, teacher.span, problem.label_noise, directions)
        if problem.labels == OF_SOFTMAX:
            value = partial(_stacked, units)
        classes = ClassLabels(problem, value, placement)
        require(
            problem.label_noise == 0.0 or problem.mixture is None,
            f"Argument `label_noise` must be 0 for runs on a Mixture, but is {problem.label_noise:g}.",
        )
        return cls(value, teacher.span, problem.label_noise, directions, classes=classes)

    def coordinates(self, x: torch.Tensor) -> torch.Tensor:
        """Return x·axes (…, span) of vectors x (…, d)."""
        return x[..., : self.span] if self.axes is None else torch.bmm(x, self.axes.to(x.dtype).transpose(1, 2))

    def label(self, x: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Return f*(x) + τξ of samples x (…, d), elementwise, so that no rounding depends on other samples.

        Labels that are classes are drawn by ξ, and samples of a mixture take their place in x.
        """
        if self.classes is not None and not self.noise:
            return self.classes.label(x, self.span, noise)
        labels = self.value(self.coordinates(x))
        return labels if noise is None else labels.add_(noise, alpha=self.noise)


def _along_axes(link: TorchLink, coefficients: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    """Return Σ_p a_p σ(x_p)."""
    return torch.sum(link.value(axes.contiguous()) * coefficients, dim=-1)


def _units(units: Sequence[tuple[float, TorchLink, torch.Tensor, float]], axes: torch.Tensor) -> torch.Tensor:
    """Return Σ a σ(θ·x + β), units being (a, σ, θ, β)."""
    total = axes.new_zeros(axes.shape[:-1])
    for a, link, direction, bias in units:
        along = torch.sum(axes * direction, dim=-1).add_(bias)
        total.add_(link.value(along), alpha=a)
    return total


def _stacked(units: Sequence[tuple[float, TorchLink, torch.Tensor, float]], axes: torch.Tensor) -> torch.Tensor:
    """Return a σ(θ·x + β) of every unit, along the last axis."""
    return torch.stack([_units([unit], axes) for unit in units], dim=-1)


def _polynomial(powers: list[float], exponents: list[list[int]], axes: torch.Tensor) -> torch.Tensor:
    """Return Σ power · Π_a x_a^degree over the monomials, x_a being the last axis of `axes`."""
    total = axes.new_zeros(axes.shape[:-1])
    for power, degrees in zip(powers, exponents, strict=True):
        term = torch.full_like(total, power)
        for axis, degree in enumerate(degrees):
            for _ in range(degree):
                term.mul_(axes[..., axis])
        total.add_(term)
    return total


#: Rows of a multiple of so many numbers begin at a cache line, which matrix products need for equal roundings of lanes.
ALIGNED = 16


def aligned(count: int) -> int:
    """Return the least multiple of `ALIGNED` that is not below `count`."""
    return -(-count // ALIGNED) * ALIGNED


def steps_ahead(dimension: int, batch: int) -> int:
    """Return the number of steps drawn at a time, from d and B alone, so that no seed depends on other seeds."""
    return max(DRAWN_NUMBERS // (dimension * batch), 1)


class FreshSamples:
    """New samples in each step, for the seeds of some lanes; the last axis of `like` has d numbers of their type."""

    def __init__(self, teacher: TorchTeacher, streams: Streams, lanes: range, batch: int, like: torch.Tensor) -> None:
        """Allocate samples (lanes, steps · batch, d) and labels of some steps; none are drawn yet."""
        self._teacher, self._streams, self._lanes, self._size = teacher, streams, lanes, batch
        dimension = like.shape[-1]
        self._steps = self._step = steps_ahead(dimension, batch)
        self._x = like.new_empty(len(lanes), self._steps * batch, dimension)
        self._y = like.new_empty(self._x.shape[:2])
        self._noise = torch.empty_like(self._y) if teacher.draws else None
        #: Positions of the streams before the samples of the moment were drawn, None if none were.
        self._before: NDArray[np.generic] | None = None

    def _draw(self) -> None:
        """Draw the samples of the steps to come."""
        self._before = self._streams.state(self._lanes)
        self._streams.fill(self._lanes, self._x, self._noise)
        self._y = self._teacher.label(self._x, self._noise)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return from where the samples of the moment are drawn again, and the place of the next step in them."""
        drawn = self._before is not None
        streams = self._streams.state(self._lanes) if self._before is None else self._before
        return {"streams": streams, "position": np.array([drawn, self._step])}

    def restore(self, streams: NDArray[np.generic], position: NDArray[np.generic]) -> None:
        """Go on from the `streams` and the `position` that `state` returned."""
        drawn, self._step = np.asarray(position).tolist()
        self._streams.restore(streams, self._lanes)
        if drawn:
            self._draw()

    def batch(self) -> Batch:
        """Return the next samples of the streams, drawn many steps ahead."""
        if self._step == self._steps:
            self._draw()
            self._step = 0
        rows = slice(self._step * self._size, (self._step + 1) * self._size)
        self._step += 1
        return self._x[:, rows], self._y[:, rows]


class FreshDirections:
    """K directions z ~ N(0, I) of weights `like` (lanes, m, columns) in each step; `spread` multiplies columns of z."""

    def __init__(
        self, streams: Streams, lanes: range, count: int, like: torch.Tensor, spread: torch.Tensor | None
    ) -> None:
        """Allocate the directions of some steps, `count` each, (lanes, steps, count, m columns); none are drawn yet."""
        self._streams, self._lanes, self._spread = streams, lanes, spread
        _, width, columns = like.shape
        self._steps = self._step = steps_ahead(columns, count * width)
        self._z = like.new_empty(len(lanes), self._steps * count * width, columns)
        self._of_step = self._z.view(len(lanes), self._steps, count, -1)

    def step(self) -> torch.Tensor:
        """Return the directions of the next step, shape (lanes, K, m columns)."""
        if self._step == self._steps:
            self._streams.fill(self._lanes, self._z, None)
            if self._spread is not None:
                self._z.mul_(self._spread)
            self._step = 0
        self._step += 1
        return self._of_step[:, self._step - 1]


class FixedSamples:
    """A set of n samples per seed, each used once an epoch, in a new random order per epoch if `reshuffled`."""

    def __init__(self, sample: Batch, batch: int, seeds: Sequence[int], *, reshuffled: bool) -> None:
        """Copy the samples x (lanes, n, d) and labels y (lanes, n), whose order each seed draws anew per epoch.

        A batch that holds all samples needs no order.
        """
        x, y = sample
        #: All samples x (lanes, n, d) and labels y (lanes, n).
        self.all = self._epoch = (x.clone(), y.clone())
        self._size, self._count, self._next = batch, x.shape[1], x.shape[1]
        self._orders = [generator for seed in seeds for generator in generators(seed, [ORDER])]
        self._reshuffled = reshuffled and batch < self._count

    def batch(self) -> Batch:
        """Return the next samples of the epoch."""
        if self._next == self._count:
            self._next = 0
            if self._reshuffled:
                orders = np.array([generator.permutation(self._count) for generator in self._orders])
                chosen = torch.from_numpy(orders).to(self.all[0].device)
                lanes = torch.arange(chosen.shape[0], device=chosen.device)[:, None]
                self._epoch = (self.all[0][lanes, chosen], self.all[1][lanes, chosen])
        rows = slice(self._next, self._next + self._size)
        self._next += self._size
        x, y = self._epoch
        return x[:, rows], y[:, rows]


def turn_to_triangle(x: torch.Tensor, axes: int, dimension: int, seeds: Sequence[int]) -> None:
    """Turn samples x (lanes, n, axes + n) of normals into the coordinates of n samples in R^d, d > axes + n, in place.

    Turned, X is lower triangular beyond the first axes, with χ of d − axes − j on the diagonal (Bartlett).
    """
    count = x.shape[1]
    rest = x[:, :, axes:]
    rest.tril_()
    freedom = dimension - axes - np.arange(count)
    for lane, seed in enumerate(seeds):
        chi = np.sqrt(generators(seed, [LENGTHS])[0].chisquare(freedom))
        rest[lane].diagonal().copy_(torch.from_numpy(chi))


Source = FreshSamples | FixedSamples
