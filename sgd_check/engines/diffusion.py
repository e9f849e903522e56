"""Online SGD as the diffusion it tends to for small steps: many steps at once, for runs of 10^9 and more.

`docs/engines.md` has the mean and the covariance of a step. Before each step of h steps of SGD, h is chosen from
the state: the drift may change by `DRIFT_TOLERANCE` of itself wherever drift and three standard deviations of noise may
lead, and noise may give a weight vector a relative variance of `NOISE_TOLERANCE`. Frames take steps of the midpoint
rule in the drift, with the noise of their start, and keep M within the unit ball.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.problem import Problem, is_frame
from dynamics.theory import rate_limits
from hermite import HermiteExpansion, polynomials
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, require
from sgd_check.engines.diffusion_kernels import Law, Link, Scratch, Span, take_diffusion_steps, write_step_law
from sgd_check.engines.projected import reduced_factor
from sgd_check.engines.registry import EngineOptions, Measurement, SpanEngine, measured
from sgd_check.engines.seeded_runs import AXES, LENGTHS, SeededRuns

#: Links that are no polynomials are cut here at the latest: the tails of longer series are not theirs.
SERIES_DEGREE = 20
LARGEST_NOISE_RATIO = 1.5
# Trapezoid rule for averages over the link itself.
GRID_REACH, GRID_POINTS = 12.0, 6145


class StepLaw(NamedTuple):
    """Mean (m, D) and covariance (m, D, m, D) of the mean gradient Σ_b e_b ∇_b/B of a batch on the visible axes.

    On each other axis the mean is 0 and the covariance `beyond` (m, m). `ratio` is the largest relative change of a
    weight vector (root mean square) or of a mean gradient in one step, per η.
    """

    mean: Array
    covariance: Array
    beyond: Array
    ratio: float


class StepLaws:
    """The laws of one step for one problem and batch size: `series` is simulated, `free_axes` are not visible."""

    def __init__(self, problem: Problem, batch_size: int) -> None:
        rows = problem.teacher.directions
        self.series: Series = series_of(problem.activation)
        self.link: Link = link_tables(self.series.coefficients)
        self.free_axes: int = problem.dimension - problem.teacher.span - problem.width
        self._teacher: Array = np.eye(problem.num_directions) if rows is None else np.array(rows)
        self._a, self._m = problem.teacher.coefficients, problem.width
        self._noise, self._batch = problem.label_noise, float(batch_size)

    def law(self, drift_tolerance: float = 0.0, noise_tolerance: float = 0.0, cap: float = 0.0) -> Law:
        """Return the arguments that kernels take together; squared norms may grow to `cap`."""
        return self.link, (drift_tolerance, noise_tolerance, self._noise, self._batch, float(self.free_axes), cap)

    def scratch(self) -> Scratch:
        """Return the memory of a thread, with the teacher's part of all vectors filled in."""
        m, (P, r), rows = self._m, self._teacher.shape, self.link[1].shape[0]
        M, D = m + P, r + m
        V, w, Q = np.zeros((M, D)), np.zeros(M), np.eye(M)
        V[m:, :r], w[m:], Q[m:, m:] = self._teacher, -self._a, self._teacher @ self._teacher.T
        np.fill_diagonal(Q, 1.0)
        shapes = (rows, M), (4, M), (rows, M, M), (rows, M, M), (5, M), (M, M), (2, rows)
        bench: Any = tuple(np.zeros(shape) for shape in shapes)
        return (V, w, np.zeros(m), Q), bench, (np.empty((m, D)), np.zeros((m * D, m * D)), np.empty((m, m)))

    def at(self, weights: Array) -> StepLaw:
        """Return the law at weights (m, D) whose first coordinates are on the teacher's axes."""
        m, D = weights.shape
        scratch = self.scratch()
        ratio = write_step_law(np.ascontiguousarray(weights), self.law(), scratch, np.empty((2, m)))
        mean, lower, beyond = scratch[2]
        full = np.tril(lower) + np.tril(lower, -1).T
        return StepLaw(mean, full.reshape(m, D, m, D), beyond, float(ratio))


class Series(NamedTuple):
    """Hermite coefficients that are simulated, a phrase saying what link they are, and their noise over the link's."""

    coefficients: Array
    name: str
    noise_ratio: float


def series_of(expansion: HermiteExpansion) -> Series:
    """Return a polynomial as it is, and of any other link the Hermite series whose noise is most like the link's.

    Of E σ⁴, E σ'⁴, E σ²σ'² and E σ² E σ'², the one that is furthest from the link's is the noise ratio.
    """
    if expansion.is_polynomial:
        return Series(np.array(expansion.link_coefficients()), f"{expansion.name} (polynomial)", 1.0)
    z = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    weight = np.exp(-0.5 * z**2)
    wanted = _noise(expansion.value(z), expansion.derivative(z), weight)
    best = None
    for order in range(1, min(expansion.order, SERIES_DEGREE) + 1):
        c = np.array(expansion.coefficients[: order + 1], dtype=np.float64)
        if not c[1:].any():
            continue
        ratios = _noise(polynomials.series_value(c, z), polynomials.series_derivative(c, z), weight) / wanted
        ratio = float(ratios[np.argmax(np.abs(np.log(ratios)))])
        if best is None or abs(np.log(ratio)) < abs(np.log(best.noise_ratio)):
            best = Series(c, f"{expansion.name} (Hermite series to order {order})", ratio)
    if best is None or not 1.0 / LARGEST_NOISE_RATIO < best.noise_ratio < LARGEST_NOISE_RATIO:
        ratio = 0.0 if best is None else best.noise_ratio
        refuse(
            f"Argument `engine` must be 'projected' for {expansion.name}, whose Hermite series have {ratio:.2g} times "
            "its noise at best, but is 'diffusion'."
        )
    return best


def _noise(value: Array, slope: Array, weight: Array) -> Array:
    total = weight.sum()
    means = [float(weight @ product) / total for product in (value**4, slope**4, (value * slope) ** 2)]
    return np.array([*means, float(weight @ value**2) * float(weight @ slope**2) / total**2])


def link_tables(coefficients: Array) -> Link:
    """Return c_j², the table c_(e+n) sqrt(binom(e+n, e)), √j, and the nodes (y_1, y_2, weight) of both rules."""
    c = np.trim_zeros(coefficients, "b")
    K = c.size - 1
    table = np.zeros((K + 3, K + 1))
    for e in range(K + 1):
        binomial = 1.0
        for n in range(K + 1 - e):
            table[e, n] = c[e + n] * np.sqrt(binomial)
            binomial *= (e + n + 1) / (n + 1)
    y, weight = np.polynomial.hermite_e.hermegauss(2 * K + 2)
    weight /= weight.sum()
    single = np.stack([y, np.zeros_like(y), weight], axis=1)
    double = np.stack([np.repeat(y, y.size), np.tile(y, y.size), np.outer(weight, weight).ravel()], axis=1)
    if not c[::2].any() or not c[1::2].any():
        # All that is averaged is even in x then, so that half of the nodes will do.
        single, double = (nodes[nodes[:, 0] > 0] * [1.0, 1.0, 2.0] for nodes in (single, double))
    return c**2, table, np.sqrt(np.arange(K + 4.0)), np.ascontiguousarray(single), np.ascontiguousarray(double)


def excess_kurtosis(problem: Problem, batch_size: int) -> float:
    """Return the excess kurtosis of the noise of one step on one axis, while the student has found nothing.

    Error, neuron and axis are independent then: (3 E[e⁴] E[σ'⁴]/(E[e²] E[σ'²])² − 3)/B, for independent directions.
    """
    c = np.trim_zeros(series_of(problem.activation).coefficients, "b")
    y, weight = np.polynomial.hermite_e.hermegauss(2 * c.size)
    weight /= weight.sum()
    value, slope = polynomials.series_value(c, y), polynomials.series_derivative(c, y)
    second, third, fourth = (float(weight @ (value - c[0]) ** n) for n in (2, 3, 4))
    a = problem.teacher.coefficients
    mean, variance, noise = c[0] * float(a.sum()), second * float(np.sum(a**2)), problem.label_noise**2
    centred = (fourth - 3.0 * second**2) * float(np.sum(a**4)) + 3.0 * variance**2
    target = centred + 4.0 * mean * third * float(np.sum(a**3)) + 6.0 * mean**2 * variance + mean**4
    square = variance + mean**2
    error = (target + 6.0 * square * noise + 3.0 * noise**2) / (square + noise) ** 2
    return float(3.0 * error * (weight @ slope**4) / (weight @ slope**2) ** 2 - 3.0) / batch_size


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
    return (FrameDiffusion if is_frame(problem) else DiffusionEngine)(problem, options)


class DiffusionEngine(SeededRuns, SpanEngine):
    """A batch of diffusions, one per seed and its two generators."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        _check_size(problem)
        m, span, count = problem.width, problem.teacher.span, len(options.seeds)
        self._span, self._directions = span, problem.teacher.directions
        self._laws = StepLaws(problem, options.batch_size)
        self._kurtosis = excess_kurtosis(problem, options.batch_size)
        start, series = np.ascontiguousarray(reduced_factor(problem.reduced_weights(), span).T), self._laws.series
        super().__init__(options.seeds, {"weights": start}, (AXES, LENGTHS), series.name)
        self._weights = self._state["weights"]
        weight = float(np.sum(problem.teacher.coefficients) + np.sum(start**2))
        self._law = self._laws.law(DRIFT_TOLERANCE, NOISE_TOLERANCE, BLOW_UP_FACTOR * weight)
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
        self._steps, self._stopped = 0, False
        self._scratches = [self._laws.scratch() for _ in range(self._threads.count)]
        self.attributes |= {"link_noise_ratio": series.noise_ratio, "noise_kurtosis": self._kurtosis}

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

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at the given rates, or at one rate; return whether they were taken to the end."""
        active = np.flatnonzero(self._running)
        self._left[active] = steps
        if isinstance(rates, float):
            span = (steps, rates, np.empty((2, 0)))
        else:
            span = (steps, 0.0, np.cumsum(np.pad([rates, rates**2], ((0, 0), (1, 0))), axis=1))
        count = self._threads.living
        shares = [(active[k::count].copy(), self._scratches[k]) for k in range(count)]
        ended = all(self._threads.each(lambda share: self._advance_seeds(*share, span, given_up), shares))
        self._steps += steps
        self._running[active] &= np.isfinite(self._weights[active, 0, 0])
        return ended

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64."""
        return measured(self._weights, self._span, self._directions, student=student)

    def _advance_seeds(self, seeds: Integers, scratch: Scratch, span: Span, given_up: Callable[[], bool]) -> bool:
        runs = (self._weights, self._left, self._used, self._levels, self._tally)
        pending = seeds
        while pending.size:
            if self._stopped or given_up():
                return False
            for seed in pending[self._used[pending] == BLOCK_STEPS].tolist():
                self._draw(seed)
            take_diffusion_steps(pending, runs, (self._normals, self._gammas), span, self._law, scratch)
            pending = pending[self._left[pending] > 0]
        return True

    def _draw(self, seed: int) -> None:
        axes, lengths = self._generators[seed]
        axes.standard_normal(out=self._normals[seed])
        if self._shapes.size:
            lengths.standard_gamma(self._shapes, out=self._gammas[seed])
        self._used[seed] = 0

    def _write_attributes(self) -> None:
        ratios, tail = self._tally[:, 0], self._kurtosis / max(self._steps, 1)
        failed, changed = int(np.sum(ratios > SMALL_STEP)), "a step changed weights or gradients by over"
        reasons = [f"{changed} {SMALL_STEP:g} of themselves in {failed} runs"] if failed else []
        if tail > TAIL_SHARE:
            reasons.append(f"the noise of all steps together still has kurtosis {tail:.2g}")
        self.attributes["small_step_ratio"] = float(ratios.max())
        self.attributes["small_steps"] = f"fails: {' and '.join(reasons)}" if reasons else "holds"
        self.attributes["diffusion_steps"] = int(self._tally[:, 1].sum())


def _check_size(problem: Problem) -> None:
    """Refuse problems that the projected engine simulates faster, or that have too few dimensions."""
    m, d, axes = problem.width, problem.dimension, problem.teacher.span + problem.width
    most = f"where width · (width + teacher axes) exceeds {MOST_COORDINATES}"
    few = f"for a dimension below width + teacher axes = {axes}"
    for fits, other, where, found in (
        (m <= MOST_NEURONS, "projected", f"for more than {MOST_NEURONS} neurons", f"width {m}"),
        (m * axes <= MOST_COORDINATES, "projected", most, str(m * axes)),
        (d >= axes, "torch", few, f"dimension {d}"),
    ):
        require(fits, f"Argument `engine` must be {other!r} {where}, but is 'diffusion' with {found}.")


#: Largest 4 a_1 h of a step of the diffusion.
LARGEST_GROWTH = 0.04


class FrameDiffusion(SeededRuns, SpanEngine):
    """A batch of diffusions of a frame, one per seed and generator."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        self._a, self._noise, self._width = problem.teacher.coefficients, problem.label_noise, problem.width
        self._n, self._dimension = float(problem.start().squared_norm[0]), problem.dimension
        self._limit = float(rate_limits(problem).max())
        start = problem.reduced_weights()[:, : problem.num_directions] / np.sqrt(self._n)
        super().__init__(options.seeds, {"overlap": start}, (AXES,), problem.activation.name)
        self.attributes |= {"threads": 1, "diffusion_steps": 0}
        del self.attributes["numba_version"]

    def running(self) -> AbstractContextManager[None]:
        """Return a context that holds BLAS to one thread: the matrices are small."""
        return one_blas_thread()

    def caution(self, peak_rate: float, steps: int) -> str | None:  # noqa: ARG002
        """Refuse learning rates at which there is no diffusion."""
        need = (
            f"Argument `learning_rate` must be below {self._limit:.4g}, above which noise keeps the neurons from "
            "every direction and frames are no diffusion"
        )
        require(peak_rate < self._limit, f"{need}, but is {peak_rate:.4g}; use engine 'projected'.")
        return None

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at one rate, or at rates whose mean over time is taken; return whether to the end."""
        if isinstance(rates, float):
            time, rate = steps * rates, rates
        else:
            time = float(np.sum(rates))
            rate = float(np.dot(rates, rates)) / time
        # Never finer than SGD itself.
        count = min(int(np.ceil(4.0 * self._a.max() * time / LARGEST_GROWTH)), steps)
        for _ in range(count):
            if given_up():
                return False
            self._step(time / count, rate)
        self.attributes["diffusion_steps"] = int(self.attributes["diffusion_steps"]) + count
        return True

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps in float64, those among the neurons being known."""
        overlap = self._state["overlap"].copy()
        gram = np.repeat(np.eye(self._width)[None], len(overlap), axis=0) if student else None
        return Measurement(overlap, gram, np.where(np.isnan(overlap[:, :, 0]), np.nan, self._n))

    def _step(self, wait: float, rate: float) -> None:
        M = self._state["overlap"]
        drift, noise = self._drift_and_noise(M, rate)
        middle, _ = self._drift_and_noise(M + 0.5 * wait * drift, rate)
        values, vectors = np.linalg.eigh(noise)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ vectors.transpose(0, 2, 1)
        drawn = np.stack([stream.standard_normal(M.shape[1:]) for (stream,) in self._generators])
        M[:] = _bounded(M + wait * middle + np.sqrt(2.0 * rate * wait) * half @ _within(drawn, M))

    def _drift_and_noise(self, M: Array, rate: float) -> tuple[Array, Array]:
        """Return the drift and D."""
        a, n, turned = self._a, self._n, M.transpose(0, 2, 1)
        S, identity = (M * a) @ turned, np.eye(self._width)
        square = n**2 * self._width - 2.0 * n * np.trace(S, axis1=1, axis2=2) + np.sum(a**2) + self._noise**2
        D = square[:, None, None] * identity + 4.0 * (n**2 * identity - 2.0 * n * S + (M * a**2) @ turned)
        drift = 2.0 * (M * a - S @ M) - rate * (self._dimension - self._width) * D @ M
        return drift, D


def _within(drawn: Array, M: Array) -> Array:
    """Return drawn (I − MᵀM)^(1/2), by the eigenvalues of M Mᵀ."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    factor = -1.0 / (1.0 + np.sqrt(np.clip(1.0 - values, 0.0, None)))
    along = vectors.transpose(0, 2, 1) @ M
    return np.asarray(drawn + ((drawn @ along.transpose(0, 2, 1)) * factor[:, None]) @ along)


def _bounded(M: Array) -> Array:
    """Return M with singular values of at most 1."""
    values, vectors = np.linalg.eigh(M @ M.transpose(0, 2, 1))
    scale = 1.0 / np.sqrt(np.maximum(values, 1.0))
    return np.asarray((vectors * scale[:, None]) @ (vectors.transpose(0, 2, 1) @ M))
