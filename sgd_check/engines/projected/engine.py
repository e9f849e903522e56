r"""Online SGD that never sees d: exact in law, in the projections of the samples alone.

On Gaussian data a step uses the projections of x on the teacher's axes and on the weights, and of the rest of x only
its length. So a neuron is w_i = (M_i, L_i): r coordinates on the teacher's axes and the row of an m×m lower-triangular
factor of the orthogonal complement. A step draws v ~ N(0, I_r), y ~ N(0, I_m) and χ ~ chi(d − r − m), takes the sample
(v, y, χ) in an orthonormal basis with one new axis, and turns the basis so that the new axis is empty again:
O(m² + m r) operations, and the law of SGD in R^d for every d ≥ m + r. A minibatch has the Bartlett factor of a Wishart
matrix on its new axes (see `sgd_check.engines.projected.projected_batch_kernels`).
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.compiler import available_cores, load, read_piece
from sgd_check.engines.generators import AXES, LABEL_NOISE, LENGTHS, generators, set_words, words_of
from sgd_check.engines.projected.links import render
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.threads import RunThreads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

KERNELS = Path(__file__).with_name("projected_kernels.py")
SINGLE_KERNELS = KERNELS.with_name("projected_single_kernels.py")
BATCH_KERNELS = KERNELS.with_name("projected_batch_kernels.py")
# Numbers drawn for one seed at a time: little enough to stay in the second-level cache until they are used.
BLOCK_NUMBERS = 2**14
# Below this many operations per seed between two calls, threads wait for the interpreter rather than share work.
THREADED_OPERATIONS = 2**15


class ProjectedEngine:
    """A batch of SGD runs in the law of R^d at a cost that does not depend on d; see the module's docstring.

    Every seed has three generators of its own (SFC64): of coordinates, of lengths and of label noise. Each is consumed
    in the order of the steps alone, so that the bits of a seed depend neither on the other seeds, nor on the number of
    threads, nor on how the run is cut.
    """

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._width, self._span, self._batch = problem.width, problem.teacher.span, options.batch_size
        self._beyond = problem.dimension - self._span - self._width
        if self._beyond < 0:
            msg = (
                f"Argument `engine` must be 'torch' for a dimension below width + teacher axes = "
                f"{self._span + self._width}, but is 'projected' with dimension {problem.dimension}."
            )
            raise ValueError(msg)
        self._noise = problem.label_noise
        self._a = np.array(problem.teacher.coefficients)
        rows = problem.teacher.directions
        self._directions = np.empty((0, self._span)) if rows is None else np.array(rows)
        start = reduced_factor(problem.reduced_weights(), self._span)
        self._weights = np.repeat(start[None], len(options.seeds), axis=0)
        self._running = np.ones(len(options.seeds), dtype=bool)
        self._generators = [generators(seed, (AXES, LENGTHS, LABEL_NOISE)) for seed in options.seeds]
        self._sizes = SampleSizes(self._width, self._span, self._beyond, self._batch)
        piece, link_name = render(problem.activation)
        steps = SINGLE_KERNELS if self._batch == 1 else BATCH_KERNELS
        namespace: Any = load([piece, read_piece(KERNELS), read_piece(steps)]).namespace
        self._take = namespace.take_single_steps if self._batch == 1 else namespace.take_batch_steps
        self._threads = RunThreads(min(len(options.seeds), available_cores()))
        self._benches = [Bench(self._sizes) for _ in range(self._threads.count)]
        self.attributes: dict[str, str | int | float] = {
            "device": "cpu",
            "dtype": "float64",
            "simulated_link": link_name,
            "numba_version": metadata.version("numba"),
            "random_numbers": f"SFC64 of numpy {np.__version__}",
            "threads": self._threads.count,
        }

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which the seeds share threads; they end with it."""
        return self._threads.running()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate; a run that is not finite any more stays NaN and costs nothing."""
        scaled = rates / self._batch
        active = np.flatnonzero(self._running).tolist()
        if not self._threads.shared or rates.size * self._sizes.operations < THREADED_OPERATIONS:
            self._advance_seeds(active, scaled, self._benches[0])
            return
        shares = [(active[k :: self._threads.count], bench) for k, bench in enumerate(self._benches)]
        self._threads.each(lambda share: self._advance_seeds(share[0], scaled, share[1]), shares)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        # Weights about to overflow are told apart by the recorder, which looks for what is not finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            squared_norm = np.sum(self._weights**2, axis=1)
            unit = self._weights / np.sqrt(squared_norm)[:, None, :]
            overlap = unit[:, : self._span].transpose(0, 2, 1)
            overlap = overlap @ self._directions.T if self._directions.size else np.ascontiguousarray(overlap)
            gram = unit.transpose(0, 2, 1) @ unit if student else None
        return Measurement(overlap, gram, squared_norm)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN and step them no more."""
        self._weights[stopped] = np.nan
        self._running &= ~stopped

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return "weights" (seeds, r + m, neurons), "running" (seeds,) and "generators" (seeds, streams, 6 words)."""
        return {
            "weights": self._weights.copy(),
            "running": self._running.copy(),
            "generators": np.array([[words_of(stream) for stream in streams] for streams in self._generators]),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned; raise ValueError if an array has another shape."""
        own = self.state()
        for name, array in own.items():
            if state[name].shape != array.shape:
                msg = f"Argument `state` must hold `{name}` of shape {array.shape}, but has {state[name].shape}."
                raise ValueError(msg)
        self._weights[:] = state["weights"]
        self._running[:] = state["running"]
        for streams, stored in zip(self._generators, state["generators"], strict=True):
            for stream, words in zip(streams, stored, strict=True):
                set_words(stream, words)

    def _advance_seeds(self, seeds: list[int], rates: Array, bench: Bench) -> None:
        for seed in seeds:
            for first in range(0, rates.size, self._sizes.block):
                part = rates[first : first + self._sizes.block]
                if not self._advance_block(seed, part, bench):
                    self._running[seed] = False
                    break

    def _advance_block(self, seed: int, rates: Array, bench: Bench) -> bool:
        count = rates.size
        samples, gammas, noise = bench.samples[:count], bench.gammas[:count], bench.noise[:count]
        axes, lengths, labels = self._generators[seed]
        axes.standard_normal(out=samples)
        if self._sizes.new_axes:
            lengths.standard_gamma(self._sizes.shapes, out=gammas)
        if self._noise > 0:
            labels.standard_normal(out=noise)
            noise *= self._noise
        given = (self._weights[seed], rates, self._a, self._directions, samples, gammas, noise, bench.work)
        extra = (bench.H, bench.stack) if self._batch > 1 else ()
        return int(self._take(*given, *extra)) == count


class SampleSizes:
    """How many numbers a step draws, and in what blocks, with s = d − r − m axes beyond those of the weights."""

    def __init__(self, width: int, span: int, beyond: int, batch: int) -> None:
        self.width, self.span, self.batch = width, span, batch
        rows = min(batch, width)
        self.new_axes = min(rows, beyond)
        below = sum(min(b, self.new_axes) for b in range(rows))
        self.samples = batch * (span + width) + (below if batch > 1 else 0)
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2. A lone number is drawn in half the time.
        shapes = 0.5 * (beyond - np.arange(self.new_axes, dtype=np.float64))
        self.shapes = float(shapes[0]) if shapes.size == 1 else shapes
        self.block = max(BLOCK_NUMBERS // self.samples, 16)
        turning = 6 * width * width if batch == 1 else 2 * width * width * (width + rows)
        self.operations = 4 * batch * width * (span + width) + turning


class Bench:
    """Buffers of one thread: the samples of a block, and what a step writes in between."""

    def __init__(self, sizes: SampleSizes) -> None:
        m = sizes.width
        self.samples = np.empty((sizes.block, sizes.samples))
        self.gammas = np.empty((sizes.block, sizes.new_axes))
        self.noise = np.zeros((sizes.block, sizes.batch))
        self.work = np.empty((7, m))
        self.H = np.empty((sizes.batch, m))
        self.stack = np.empty((m + sizes.new_axes, m))


def reduced_factor(weights: Array, span: int) -> Array:
    """Return weights (m, D) as columns (r + m, m), turned in the complement of the teacher's axes to triangular form.

    Examples
    --------
    >>> reduced_factor(np.array([[1.0, 3.0, 4.0]]), 1).round(12)
    array([[1.],
           [5.]])
    """
    m = weights.shape[0]
    found = np.zeros((span + m, m))
    found[:span] = weights[:, :span].T
    factor = np.linalg.qr(weights[:, span:].T).R
    # The sign of an axis is free; a positive diagonal makes the factor one and the same for every start.
    factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
    found[span : span + factor.shape[0]] = factor
    return found
