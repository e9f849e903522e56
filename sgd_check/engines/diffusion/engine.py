r"""Online SGD as the diffusion it tends to for small steps: many steps at once, for runs of 10^9 and more.

Small steps add up to their mean and to Gaussian noise. The engine takes h steps of SGD in one: the mean of h steps
around noise with the exact covariance of one step (`sgd_check.engines.diffusion.law`), Strang's splitting, of second
order in the drift and exact in mean and covariance to order η³ for h = 1. The weights themselves move, in the
coordinates that a student sees, so that S − R Rᵀ stays positive semidefinite; the noise on the d − r − m other axes
enters through the Bartlett factor of a Wishart matrix, with its fluctuations and at a cost independent of d.

Before each step, and before its noise is drawn, h is chosen from the state. Within a step the drift may change by
`DRIFT_TOLERANCE` of itself, as bounded by the rates at which it can change wherever drift and three standard deviations
of noise may lead, and noise may give a weight vector a relative variance of `NOISE_TOLERANCE`. Looks are hit exactly,
so the bits of a run depend on when it is looked at; its law does not.

*Where it holds.* First, one step must be small: `small_step_ratio`, the largest relative change of a weight vector
(root mean square) or of the mean gradient in it, must stay below `SMALL_STEP`, where a diffusion step is about ten
steps of SGD. Second, steps must be many: the noise of one has heavy tails, of excess kurtosis 4e3 for h_3, 2e5 for
h_4 and 5e8 for h_6 while the student has found nothing (`excess_kurtosis`), and the sum of N steps has an N-th of it.
Above `TAIL_SHARE` runs scatter less than the diffusion says, since rare samples hold much of the variance. The engine
says before a run and after it where either fails. Frames of orthogonal neurons are a diffusion of their own,
`sgd_check.engines.diffusion.frames`.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from dynamics.threads.cores import available_cores
from sgd_check.engines.diffusion.diffusion_kernels import take_diffusion_steps
from sgd_check.engines.diffusion.frames import FrameDiffusion
from sgd_check.engines.diffusion.law import StepLaws, excess_kurtosis
from sgd_check.engines.generators import AXES, LENGTHS, generators
from sgd_check.engines.projected.motion import reduced_factor
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.threads import RunThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

DRIFT_TOLERANCE = 0.2
NOISE_TOLERANCE = 4e-3
SMALL_STEP = 0.02
TAIL_SHARE = 0.02
VISIBLE_NOISE = 0.1
MOST_NEURONS = 4
# Number of visible coordinates, m (r + m), up to which a diffusion step takes about two milliseconds.
MOST_COORDINATES = 128
# Random numbers are drawn for so many diffusion steps at a time.
BLOCK_STEPS = 128
# A run whose squared norms exceed this many times the weight of teacher and start is not followed any further.
BLOW_UP_FACTOR = 1e4


def make_engine(problem: Problem, options: EngineOptions) -> DiffusionEngine | FrameDiffusion:
    """Return the diffusion of a problem's student."""
    return (FrameDiffusion if problem.kind == "stiefel" else DiffusionEngine)(problem, options)


class DiffusionEngine:
    """A batch of diffusions, one per seed; see the module's docstring.

    Every seed has two generators of its own (SFC64), consumed in the order of its diffusion steps alone, so that the
    bits of a seed depend neither on the other seeds nor on the number of threads.
    """

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        _check_size(problem)
        m, span, count = problem.width, problem.teacher.span, len(options.seeds)
        self._span, self._directions = span, problem.teacher.directions
        self._laws = StepLaws(problem, options.batch_size)
        self._kurtosis = excess_kurtosis(problem, options.batch_size)
        start = np.ascontiguousarray(reduced_factor(problem.reduced_weights(), span).T)
        weight = float(np.sum(self._laws.coefficients) + np.sum(start**2))
        self._law = self._laws.law(DRIFT_TOLERANCE, NOISE_TOLERANCE, BLOW_UP_FACTOR * weight)
        self._weights = np.repeat(start[None], count, axis=0)
        self._running = np.ones(count, dtype=bool)
        self._generators = [generators(seed, (AXES, LENGTHS)) for seed in options.seeds]
        new_axes = min(m, self._laws.free_axes)
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2.
        self._shapes = 0.5 * (self._laws.free_axes - np.arange(new_axes, dtype=np.float64))
        below = sum(min(b, new_axes) for b in range(m))
        self._normals = np.empty((count, BLOCK_STEPS, m * (span + m) + below))
        self._gammas = np.empty((count, BLOCK_STEPS, new_axes))
        self._left = np.zeros(count, dtype=np.int64)
        self._used = np.full(count, BLOCK_STEPS, dtype=np.int64)
        self._levels = np.full((count, 2, m), -1.0)
        self._tally = np.zeros((count, 2))
        self._steps = 0
        self._threads = RunThreads(min(count, available_cores()))
        self._stopped = False
        self.attributes: dict[str, str | int | float] = {
            "device": "cpu",
            "dtype": "float64",
            "simulated_link": self._laws.series.name,
            "link_noise_ratio": self._laws.series.noise_ratio,
            "numba_version": metadata.version("numba"),
            "random_numbers": f"SFC64 of numpy {np.__version__}",
            "threads": self._threads.count,
            "noise_kurtosis": self._kurtosis,
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context in which the seeds share threads; they end with it, and `attributes` is complete."""
        self._stopped = False
        with self._threads.running():
            try:
                yield
            finally:
                self._stopped = True
                self._write_attributes()

    def caution(self, peak_rate: float, steps: int) -> str | None:
        """Return one sentence if steps at this learning rate are too large at the start, or too few."""
        ratio = peak_rate * self._laws.at(self._weights[0]).ratio
        if ratio > SMALL_STEP:
            return (
                f"A step at learning rate {peak_rate:.3g} changes the start by {ratio:.2g} of itself, more than the "
                f"{SMALL_STEP:g} up to which SGD is a diffusion, so use engine 'projected' or a smaller learning rate."
            )
        if self._kurtosis > TAIL_SHARE * steps:
            return (
                f"The noise of a step has kurtosis {self._kurtosis:.2g} here, so {steps} steps are fewer than the "
                f"{self._kurtosis / TAIL_SHARE:.2g} from which on SGD is a diffusion; the exact engine is 'projected'."
            )
        series = self._laws.series
        if abs(series.noise_ratio - 1.0) > VISIBLE_NOISE:
            return (
                f"What is simulated is {series.name}, some of whose noise has {series.noise_ratio:.2g} times the "
                "variance of the link's, so use engine 'projected' for the link itself."
            )
        return None

    def advance(self, rates: Array) -> None:
        """Take one step of SGD per learning rate."""
        self.advance_span(rates.size, rates, lambda: False)

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at the given rates, or at one rate; return whether they were taken to the end."""
        active = np.flatnonzero(self._running)
        self._left[active] = steps
        if isinstance(rates, float):
            span = (steps, rates, np.empty((2, 0)))
        else:
            span = (steps, 0.0, np.cumsum(np.pad([rates, rates**2], ((0, 0), (1, 0))), axis=1))
        count = self._threads.count if self._threads.shared else 1
        shares = [active[k::count].copy() for k in range(count)]
        ended = all(self._threads.each(lambda share: self._advance_seeds(share, span, given_up), shares))
        self._steps += steps
        self._running[active] &= np.isfinite(self._weights[active, 0, 0])
        return ended

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        squared_norm = np.sum(self._weights**2, axis=2)
        unit = self._weights / np.sqrt(squared_norm)[:, :, None]
        on_axes = unit[:, :, : self._span]
        overlap = np.ascontiguousarray(on_axes) if self._directions is None else on_axes @ self._directions.T
        return Measurement(overlap, unit @ unit.transpose(0, 2, 1) if student else None, squared_norm)

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the marked runs to NaN and step them no more."""
        self._weights[stopped] = np.nan
        self._running &= ~stopped

    def _advance_seeds(self, seeds: Integers, span: tuple[int, float, Array], given_up: Callable[[], bool]) -> bool:
        runs = (self._weights, self._left, self._used, self._levels, self._tally)
        pending = seeds
        while pending.size:
            if self._stopped or given_up():
                return False
            for seed in pending[self._used[pending] == BLOCK_STEPS].tolist():
                self._draw(seed)
            take_diffusion_steps(pending, runs, (self._normals, self._gammas), span, self._law)
            pending = pending[self._left[pending] > 0]
        return True

    def _draw(self, seed: int) -> None:
        axes, lengths = self._generators[seed]
        axes.standard_normal(out=self._normals[seed])
        if self._shapes.size:
            lengths.standard_gamma(self._shapes, out=self._gammas[seed])
        self._used[seed] = 0

    def _write_attributes(self) -> None:
        ratio, tail = float(self._tally[:, 0].max()), self._kurtosis / max(self._steps, 1)
        failed = int(np.sum(self._tally[:, 0] > SMALL_STEP))
        reasons = []
        if failed:
            reasons.append(f"a step changed weights or gradients by over {SMALL_STEP:g} of themselves in {failed} runs")
        if tail > TAIL_SHARE:
            reasons.append(f"the noise of all steps together still has kurtosis {tail:.2g}")
        self.attributes["small_step_ratio"] = ratio
        self.attributes["small_steps"] = f"fails: {' and '.join(reasons)}" if reasons else "holds"
        self.attributes["diffusion_steps"] = int(self._tally[:, 1].sum())


def _check_size(problem: Problem) -> None:
    """Refuse problems that the projected engine simulates faster, or that have too few dimensions."""
    m, span = problem.width, problem.teacher.span
    msg = ""
    if m > MOST_NEURONS:
        msg = (
            f"Argument `engine` must be 'projected' for more than {MOST_NEURONS} neurons, but is 'diffusion' "
            f"with width {m}."
        )
    elif m * (span + m) > MOST_COORDINATES:
        msg = (
            f"Argument `engine` must be 'projected' where width · (width + teacher axes) exceeds {MOST_COORDINATES}, "
            f"but is 'diffusion' with {m * (span + m)}."
        )
    elif problem.dimension < span + m:
        msg = (
            f"Argument `engine` must be 'torch' for a dimension below width + teacher axes = {span + m}, "
            f"but is 'diffusion' with dimension {problem.dimension}."
        )
    if msg:
        raise ValueError(msg)
