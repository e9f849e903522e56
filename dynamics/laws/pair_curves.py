r"""Losses of matched pairs whose exponent, number of directions and start are drawn, as somebody might have saved them.

A curve is that of P matched pairs alone, with the excess of a finite step and a floor e,

.. math:: R = \sum_p a_p^2\, \ell(a_p t, C_p(0)), \qquad L = \frac{R}{1 - S(R)}, \qquad L \to L + e\,(1 - L), \qquad
   a_p \propto p^{-\beta}.

Losses are in units of that at the start, and time is flow time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dynamics.equations.decoupled import LARGEST_LOGIT, PairLosses
from dynamics.equations.transit import logit_of_square, transit_table
from dynamics.problem import Problem, SaveAt, Teacher
from dynamics.sweeps.points import find_study, study_path
from dynamics.theory.pairs import match_greedily
from dynamics.theory.prediction import predict
from hermite.arrays import Array

#: Ranges of β, of P if it is not known, of m/P if it is not known, of d if it is not known, and of |w|² at the start.
BETAS, DIRECTIONS, RATIOS, DIMENSIONS, NORMS = (0.5, 1.8), (8, 64), (1.0, 8.0), (64.0, 4096.0), (1e-6, 1e-2)
#: Least overlap with a direction that is told from none; points of a curve before it is read.
LEAST_OVERLAP, POINTS = 1e-5, 200
#: Density of steps η/η* near 0: η/η* is the largest one times u to this power, u uniform.
POWER = 2.0
#: Least loss over that at the start that is told from 0.
LEAST_LOSS = 1e-12
#: The study that runs SGD; part of the loss at which its runs end, and how much longer than predicted they are.
RUNS, LEFT, LONGER = "projected-sgd", 0.015, 1.6


class Draw(NamedTuple):
    """A teacher and the share of its loss that stays: β, P, m/P, the excess e, and |w|² at the start."""

    beta: float
    directions: int
    width_per_direction: float
    #: Step size over its limit of stability, and the floor over the largest that the data allow.
    step: float
    floor: float
    squared_norm: float


class Size(NamedTuple):
    """Width and dimension of a network; NaN where they are not known and are drawn."""

    width: float
    dimension: float


class Start(NamedTuple):
    """Coefficients a (P,) with Σ a² = 1, overlaps (P,) of matched neurons, NaN for none, d, and h = η d k / 2."""

    coefficient: Array
    overlap: Array
    dimension: float
    strength: float


class DrawnCurve(NamedTuple):
    """ln t and the loss over that at the start, (T,) each, without a floor, and the dimension of the inputs."""

    log_time: Array
    loss: Array
    dimension: float

    def above(self, floor: float) -> Array:
        """Return ln of the loss (T,), of which the share `floor` is never learned."""
        return np.log(self.loss + floor * (1.0 - self.loss))


class SkillTimes(NamedTuple):
    """Times of P skills in the order of their directions, and the dimension of the inputs."""

    time: Array
    dimension: float


@dataclass(frozen=True)
class PairCurves:
    """Draws of matched pairs with information exponent k."""

    k: int
    #: P and m/P, None if they are not known.
    directions: int | None
    width_per_direction: float | None
    largest_step: float

    @cached_property
    def _sum(self) -> PairLosses:
        """Loss of pairs with the link h_k."""
        table = transit_table(np.eye(self.k + 1)[self.k], 1, float(logit_of_square(LEAST_OVERLAP)))
        return PairLosses.of(table, float(logit_of_square(LEAST_OVERLAP)))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Return a teacher and an excess: β and e uniform, P, m/P and |w|² uniform in their logarithms."""
        low, high = np.log(DIRECTIONS)
        P = self.directions or round(np.exp(rng.uniform(low, high)))
        ratio = self.width_per_direction or float(np.exp(rng.uniform(*np.log(RATIOS))))
        beta, root, floor = rng.uniform([BETAS[0], 0.0, 0.0], [BETAS[1], 1.0, 1.0])
        step = self.largest_step * root**POWER
        return Draw(float(beta), P, ratio, float(step), float(floor), float(np.exp(rng.uniform(*np.log(NORMS)))))

    def matched(self, draw: Draw, size: Size, rng: np.random.Generator, start: int) -> Start:
        """Return coefficients, overlaps of matched neurons and the dimension, at the start with seed `start`.

        `rng` draws what noise of SGD adds to the overlaps of one run.
        """
        of_start = np.random.default_rng(start)
        P, has_width = draw.directions, size.width > 0.0
        m = round(size.width if has_width else max(draw.width_per_direction * P, 1.0))
        lowest = max(DIMENSIONS[0], 2.0 * P)
        likely = np.exp(of_start.uniform(np.log(lowest), np.log(max(DIMENSIONS[1], 2.0 * lowest))))
        d = float(size.dimension if size.dimension > 0.0 else likely)
        a = np.arange(1.0, P + 1.0) ** -draw.beta
        a /= np.linalg.norm(a)
        strength = draw.step * self.largest_strength(a) if draw.step else 0.0
        normal = of_start.standard_normal((m, P))
        if strength:
            normal += np.sqrt(self.spread(strength, a, m, d)) * rng.standard_normal((m, P))
        around = of_start.chisquare(max(d - P, 1.0), size=(m, 1))
        C = normal / np.sqrt(np.sum(normal**2, axis=1, keepdims=True) + around)
        neuron = match_greedily(a, C, self.k)
        overlap = np.where(neuron >= 0, np.abs(C[neuron, np.arange(P)]), np.nan)
        return Start(a, overlap, d, strength)

    def spread(self, strength: float, a: Array, width: int, dimension: float) -> Array:
        """Return the variance (P,) that noise of SGD adds to overlaps until a direction emerges, over that before.

        It is d η k T_p = 2 h T_p at a loss of 1, with h = η d k / 2, `strength`, and the leading time T_p = 1 / (k (k −
        2) a_p C^(k−2)) from the largest of m overlaps, C² = (1 + spread) 2 ln m / d.
        """
        k, spread = self.k, np.zeros_like(a)
        for _ in range(8):
            C = np.sqrt(np.minimum((1.0 + spread) * 2.0 * np.log(width + 1.0) / dimension, 0.5))
            time = 1.0 / (k * (k - 2) * a * C ** (k - 2))
            spread = 0.5 * (spread + 2.0 * strength * time)
        return spread

    def noise_ratio(self, strength: float, a: Array, loss: Array) -> Array:
        r"""Return the share S of the loss that noise of SGD adds where the flow has `loss`, of its shape.

        The learned directions, as many of the first as leave that loss, hold L = R / (1 − S) for the rest R,

        .. math:: S = \sum_{p\ \text{learned}} \frac{h a_p}{1 - (K - 1) h a_p}, \quad h = \tfrac{1}{2} \eta d k,
           \quad K = E h_{k-1}^4,

        stationary second moments at large d, with S = 1 for all directions at the limit of stability. `strength` is h.
        """
        ratio = np.append(0.0, np.cumsum(strength * a / (1.0 - (self._kurtosis - 1.0) * strength * a)))
        left = np.append(1.0, 1.0 - np.cumsum(a**2))
        return np.asarray(np.interp(loss, left[::-1], ratio[::-1]))

    def largest_strength(self, a: Array) -> float:
        """Return h at the limit of stability, where the noise of all directions of coefficients a (P,) adds up to 1."""
        low, high = 0.0, 1.0 / ((self._kurtosis - 1.0) * float(a.max()))
        for _ in range(24):
            middle = 0.5 * (low + high)
            stable = np.sum(middle * a / (1.0 - (self._kurtosis - 1.0) * middle * a)) < 1.0
            low, high = (middle, high) if stable else (low, middle)
        return low

    @cached_property
    def _kurtosis(self) -> float:
        """E h_(k−1)(z)⁴ of a normal z."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(2 * self.k + 4)
        values = np.polynomial.hermite_e.hermeval(nodes, np.eye(self.k)[self.k - 1])
        return float(weights @ values**4 / np.sqrt(2.0 * np.pi) / math.factorial(self.k - 1) ** 2)

    def curve(self, draw: Draw, size: Size, rng: np.random.Generator, start: int) -> DrawnCurve:
        """Return the loss of one run, over that at the start with seed `start`."""
        a, overlap, d, strength = self.matched(draw, size, rng, start)
        is_matched = overlap > LEAST_OVERLAP
        if not is_matched.any():
            return DrawnCurve(np.array([0.0, 1.0]), np.ones(2), d)
        learned = a[is_matched]
        xi = np.minimum(logit_of_square(overlap[is_matched]), LARGEST_LOGIT)
        waiting = self._sum.table.remaining(xi) / learned
        grown = (1.5 - 0.25 * np.log(draw.squared_norm)) / learned
        # A neuron that starts close to its direction waits for nothing.
        first = max(0.2 * waiting.min(), 1e-3 * grown.min())
        t = np.geomspace(first, (np.maximum(waiting, 0.0) + grown).max(), POINTS)
        loss = self._sum.loss(t, learned, xi, learned / draw.squared_norm) + np.sum(a[~is_matched] ** 2)
        loss = np.clip(loss, LEAST_LOSS, 1.0)
        return DrawnCurve(np.log(t), loss / (1.0 - self.noise_ratio(strength, a, loss)), d)

    def skill_times(self, draw: Draw, size: Size, rng: np.random.Generator, start: int) -> SkillTimes:
        """Return the times at which P pairs alone are learned, inf if never, at the start with seed `start`."""
        a, overlap, d, _ = self.matched(draw, size, rng, start)
        is_matched, time = overlap > LEAST_OVERLAP, np.full(a.size, np.inf)
        if is_matched.any():
            xi = np.minimum(logit_of_square(overlap[is_matched]), LARGEST_LOGIT)
            ratio = a[is_matched] / draw.squared_norm
            time[is_matched] = self._sum.table.learned_after(xi, ratio) / a[is_matched]
        return SkillTimes(time, d)


@dataclass(frozen=True)
class RunCurves(PairCurves):
    """Draws of whole runs of SGD at a known step, by the study "projected-sgd" of an installed package."""

    learning_rate: float

    def curve(self, draw: Draw, size: Size, rng: np.random.Generator, start: int) -> DrawnCurve:
        """Return the loss of one run of SGD over that at the start with seed `start`."""
        run = find_study(study_path(RUNS))
        problem = Problem(
            activation=f"he{self.k}",
            teacher=Teacher.power_law(draw.directions, draw.beta),
            width=round(size.width if size.width > 0.0 else max(draw.width_per_direction * draw.directions, 1.0)),
            dimension=round(size.dimension),
            seed=start,
        )
        prediction = predict(problem)
        learned, a = prediction.predicted_learned_time, problem.teacher.coefficients
        order = np.argsort(learned, kind="stable")
        left = 1.0 - np.cumsum(a[order] ** 2) / np.sum(a**2)
        last = learned[order][np.flatnonzero(np.isfinite(learned[order]) & ((left < LEFT) | (left == left[-1])))[:1]]
        end = LONGER * float(last[0] if last.size else 1.0)
        first = float(np.min(prediction.predicted_emergence_time))
        # So far from 0 that geometric times are a step apart.
        begin = max(0.05 * first, POINTS * self.learning_rate)
        times = SaveAt.geometric(begin, max(end, math.e * begin), POINTS)
        seeds, steps = [int(rng.integers(2**31))], int(max(end, math.e * begin) / self.learning_rate) + 1
        answer: Any = run(
            problem, learning_rate=self.learning_rate, steps=steps, seeds=seeds, save_at=times, progress=False
        )
        time, loss = answer["time"].values, answer["loss"].values[0]
        kept = (time > 0.0) & np.isfinite(loss)
        return DrawnCurve(np.log(time[kept]), np.maximum(loss[kept] / loss[0], LEAST_LOSS), size.dimension)
