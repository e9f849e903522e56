r"""Online SGD that never sees d: exact in law, in the projections of the samples alone.

On Gaussian data a step uses the projections of x on the teacher's axes and on the weights, and of the rest of x only
its length. So a neuron is w_i = (M_i, L_i): r coordinates on the teacher's axes and the row of an m×m lower-triangular
factor of the orthogonal complement. A step draws v ~ N(0, I_r), y ~ N(0, I_m) and χ ~ chi(d − r − m), takes the sample
(v, y, χ) in an orthonormal basis with one new axis, and turns the basis so that the new axis is empty again:
O(m² + m r) operations, and the law of SGD in R^d for every d ≥ m + r. A minibatch has the Bartlett factor of a Wishart
matrix on its new axes (see `sgd_check.engines.projected.turning_kernels`).
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler import available_cores
from sgd_check.engines.generators import AXES, LABEL_NOISE, LENGTHS, generators, set_words, words_of
from sgd_check.engines.projected.motion import make_motion
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.threads import RunThreads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

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
        self._motion = make_motion(problem, self._batch)
        runs = len(options.seeds)
        self._state = {name: np.repeat(start[None], runs, axis=0) for name, start in self._motion.start.items()}
        self._weights, self._directions = self._state["weights"], self._motion.directions
        self._running = np.ones(runs, dtype=bool)
        self._generators = [generators(seed, (AXES, LENGTHS, LABEL_NOISE)) for seed in options.seeds]
        self._sizes = SampleSizes(self._width, self._span, self._beyond, self._batch)
        self._threads = RunThreads(min(len(options.seeds), available_cores()))
        self._benches = [Bench(self._sizes) for _ in range(self._threads.count)]
        self.attributes: dict[str, str | int | float] = {
            "device": "cpu",
            "dtype": "float64",
            "simulated_link": self._motion.link_name,
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
        directions = self._directions
        # Weights about to overflow are told apart by the recorder, which looks for what is not finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            squared_norm = np.sum(self._weights**2, axis=1)
            unit = self._weights / np.sqrt(squared_norm)[:, None, :]
            overlap = unit[:, : self._span].transpose(0, 2, 1)
            overlap = overlap @ directions.T if directions.size else np.ascontiguousarray(overlap)
            gram = unit.transpose(0, 2, 1) @ unit if student else None
        return Measurement(overlap, gram, squared_norm)

    def layers(self) -> Array:
        """Return v and b of a network."""
        return self._state["layers"].copy()

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN and step them no more."""
        for array in self._state.values():
            array[stopped] = np.nan
        self._running &= ~stopped

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return "weights" (seeds, r + m, neurons), "running" (seeds,) and "generators" (seeds, streams, 6 words).

        Of a network "layers" (seeds, 2, neurons), v and b, too.
        """
        return {
            **{name: array.copy() for name, array in self._state.items()},
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
        for name, array in self._state.items():
            array[:] = state[name]
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
        motion, moved = self._motion, [array[seed] for array in self._state.values()]
        buffers = (bench.H, bench.stack) if motion.batched else ()
        taken = motion.take(*moved, rates, *motion.constants, samples, gammas, noise, bench.work, *buffers)
        return int(taken) == count


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
