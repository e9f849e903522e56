"""What the noise of steps of SGD does to the time at which a direction is learned, at leading order in the rate.

Until a neuron emerges its output is negligible, and its overlap alone decides (`dynamics.theory.step_size`). After that
the neuron grows, and the residual of its own pair is a part of the noise: overlap C and ln n move together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.polynomial.hermite_e import hermegauss

from dynamics.problem import LEARNED_SHARE, is_correlation
from dynamics.theory.prediction import sorted_stairs

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from dynamics.theory.step_size import EscapeBias
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Degree up to which the rule integrates the products of links that are no polynomials exactly.
_LARGEST_DEGREE = 31
#: Tolerance of the path of mean and covariance, and the multiple of the time of the flow up to which it is followed.
_TOLERANCE, _LONGEST = 1e-7, 10.0


@dataclass(frozen=True, slots=True)
class LearnedBias:
    """Effect of the step size on the time T at which a direction is learned, dimensionless; NaN where unknown."""

    #: T_η / T_0 − 1, relative delay of the mean; inf if the noise keeps the pair from learning.
    bias: float
    #: Part of `bias` that the finite-step equation "finite-d" has too.
    step_bias: float
    #: Standard deviation over runs, divided by the mean.
    scatter: float


def learned_bias(
    problem: Problem, learning_rate: float, prediction: EmergencePrediction, escape: EscapeBias, direction: int
) -> LearnedBias:
    r"""Return delay and scatter of the learned time of direction p, whose number here is from 0, by the rate η.

    .. math:: \frac{dx}{dt} = b + \eta\, b_2, \qquad \frac{d\Sigma}{dt} = J \Sigma + \Sigma J^T + \mathrm{Cov}(e\, m),
        \qquad \mathrm{Var}\, T = \eta\, \frac{\nabla h^T \Sigma\, \nabla h}{(\nabla h \cdot x')^2}

    of x = (C, ln n) at the time T at which h = ln(n g(C)) has grown to ln(a_p g(1) / 2). With z = u·x and the residual
    e, one step moves x by −η e m + η² e² m_2 to second order, x_⊥ being the part of x orthogonal to u:

    .. math:: m = \begin{pmatrix} \sigma'(z) (x_p - C z) \\ 4 \sigma(z) \end{pmatrix}, \qquad
        m_2 = \begin{pmatrix} -\tfrac12 C \sigma'^2 |x_\perp|^2 - 2 \sigma \sigma' (x_p - C z) \\
        \sigma'^2 |x_\perp|^2 - 4 \sigma^2 \end{pmatrix},

    b = −E[e m] is the flow of the pair, J its Jacobian, and b_2 = E[e² m_2]. The residual is e = n σ(z) − a_p σ(x_p)
    and, independent of it, that of all other directions, of the mean square that the sum formula has at that time, and
    the label noise. For a batch of B samples η is the rate over B. With n → 0 the first of the two numbers alone is the
    theory of `escape_bias`; from there, as `escape`, comes what the fluctuations of C add to the mean, nearly all of
    which they do before the emergence. For the objective "correlation", where no norm grows, it is the theory of
    emergence up to another overlap.

    Not modelled are neurons that share the direction; where a neuron at −θ has a part of it before, all is NaN. The
    mean products are sums over the nodes of a Gauss rule, exact for polynomial links.
    """
    time = float(prediction.predicted_learned_time[direction])
    if is_correlation(problem):
        from dynamics.theory.correlation import correlation_bias, learned_level

        found = correlation_bias(problem, learning_rate, time, level=learned_level(problem))
        bias, step_bias, scatter = (float(each[0]) for each in (found.bias, found.step_bias, found.scatter))
        return LearnedBias(bias, step_bias, scatter)
    if time == 0.0:
        return LearnedBias(0.0, 0.0, 0.0)
    if not math.isfinite(time) or prediction.learning_overlap[direction] != prediction.matched_overlap[direction]:
        return LearnedBias(math.nan, math.nan, math.nan)
    pair = LearningPair.of(problem, prediction, direction)
    mean, deviation = pair.passage(learning_rate, time)
    stepped, _ = pair.passage(learning_rate, time, of_products=True)
    emergence = float(prediction.predicted_emergence_time[direction])
    fluctuation = emergence * float(escape.bias[direction] - escape.drift_bias[direction])
    late = mean + fluctuation
    return LearnedBias(late / time - 1.0, stepped / time - 1.0, deviation / late)


@dataclass(frozen=True, slots=True, eq=False)
class LearningPair:
    """One neuron and its direction, beside the noise that all other directions make."""

    link: HermiteExpansion
    coefficient: float
    dimension: int
    label_noise: float
    #: C and ln n at the start.
    start: tuple[float, float]
    #: g, g' and g'' in powers of C, (order + 1, 3).
    kernel: Array
    #: Nodes of a Gauss rule in z and in y, x_p = C z + √(1 − C²) y, and σ(z) there.
    z: Array
    y: Array
    output: Array
    #: Its weights times σ'² y², σ σ' y, σ² and σ'², (4, nodes).
    products: Array
    #: Increasing times at which the loss of the other directions falls, and that loss before each and after the last.
    stairs: tuple[Array, Array]
    #: E[σ² (z² − 1)] E σ'² / E σ²: what the mean of e² σ'² |x_⊥|² has beyond d − 1 times the noise, per loss of others.
    surplus: float

    @classmethod
    def of(cls, problem: Problem, prediction: EmergencePrediction, direction: int) -> LearningPair:
        """Return the pair that learns a direction."""
        link, a = problem.activation, problem.teacher.coefficients
        degree = link.order if link.is_polynomial else min(link.order, _LARGEST_DEGREE)
        nodes, weights = hermegauss(2 * degree + 2)
        weights /= weights.sum()
        z, y = (grid.ravel() for grid in np.meshgrid(nodes, nodes))
        output, slope = link.value(z), link.derivative(z)
        products = np.stack([slope**2 * y**2, output * slope * y, output**2, slope**2])
        powers = link.coefficients**2
        square, stretch = (weights * each**2 for each in (link.value(nodes), link.derivative(nodes)))
        # Its own step never comes: what is left beside it is the loss of the others.
        learned = prediction.predicted_learned_time.copy()
        learned[direction] = np.inf
        when, loss = sorted_stairs(problem, replace(prediction, predicted_learned_time=learned))
        overlap, squared_norm = prediction.learning_overlap[direction], prediction.learning_squared_norm[direction]
        return cls(
            link=link,
            coefficient=float(a[direction]),
            dimension=problem.dimension,
            label_noise=problem.label_noise,
            start=(float(overlap), math.log(squared_norm)),
            kernel=np.stack([np.pad(polynomial.polyder(powers, n), (0, n)) for n in range(3)], axis=1),
            z=z,
            y=y,
            output=output,
            products=products * np.outer(weights, weights).ravel(),
            stairs=(when, loss - np.sum(powers) * a[direction] ** 2),
            surplus=float(square @ (nodes**2 - 1.0) * stretch.sum() / square.sum()),
        )

    def passage(self, learning_rate: float, time: float, *, of_products: bool = False) -> tuple[float, float]:
        """Return when the mean has learned, and the standard deviation of that time; inf and NaN if it never has.

        `time` is that of the flow, and `of_products` takes the mean motion of the finite-step equation.
        """
        from scipy.integrate import solve_ivp

        goal = math.log(LEARNED_SHARE * self.coefficient * self._signal(1.0)[0])

        def learned(_t: float, state: Array, *_step: object) -> float:
            return float(state[1]) + math.log(self._signal(float(state[0]))[0]) - goal

        stops: Any = learned
        stops.terminal = True
        start = np.array([*self.start, 0.0, 0.0, 0.0])
        size = _TOLERANCE * np.array([abs(start[0]), 1.0, 1.0, 1.0, 1.0])
        step, span = (learning_rate, of_products), (0.0, _LONGEST * time)
        found: Any = solve_ivp(self.rates, span, start, args=step, rtol=_TOLERANCE, atol=size, events=stops)
        if found.t_events[0].size == 0:
            return math.inf, math.nan
        passed, end = float(found.t_events[0][0]), found.y_events[0][0]
        signal, slope, _ = self._signal(end[0])
        gradient = np.array([slope / signal, 1.0])
        spread = gradient @ np.array([[end[2], end[3]], [end[3], end[4]]]) @ gradient
        speed = float(gradient @ self.rates(passed, end, *step)[:2])
        return passed, math.sqrt(learning_rate * spread) / speed

    def rates(self, time: float, state: Array, learning_rate: float, of_products: bool = False) -> Array:
        """Return the rates of C, ln n and, divided by the learning rate, their covariance: Σ_CC, Σ_Cn and Σ_nn."""
        C, log_norm, overlaps, mixed, norms = state
        # A step of the integrator may pass |C| = 1 by rounding.
        C, n, a = min(max(C, -1.0), 1.0), math.exp(log_norm), self.coefficient
        far, (signal, slope, turn), (whole, _, _) = 1.0 - C**2, self._signal(C), self._signal(1.0)
        stretch, cross, size, length = self._means(C, n, time)
        pull, growth = a * slope * far, 4.0 * (a * signal - n * whole)
        if of_products:
            motion = (-0.5 * C * (length + 4.0 * size), length + 4.0 * size)
        else:
            motion = (-0.5 * C * length - 2.0 * cross, length - 4.0 * size)
        own, onto, back = a * (turn * far - 2.0 * C * slope), 4.0 * a * slope, -4.0 * n * whole
        return np.array(
            [
                pull + learning_rate * motion[0],
                growth + learning_rate * motion[1],
                2.0 * own * overlaps + stretch - pull**2,
                onto * overlaps + (own + back) * mixed + 4.0 * cross - pull * growth,
                2.0 * (onto * mixed + back * norms) + 16.0 * size - growth**2,
            ]
        )

    def _signal(self, C: float) -> Array:
        """Return g, g' and g'' at an overlap."""
        return np.asarray(polynomial.polyval(C, self.kernel))

    def _means(self, C: float, n: float, time: float) -> tuple[float, float, float, float]:
        """Return E[e² σ'² (x_p − C z)²], E[e² σ σ' (x_p − C z)], E[e² σ²] and E[e² σ'² |x_⊥|²]."""
        across = math.sqrt(1.0 - C**2)
        when, loss = self.stairs
        others = loss[np.searchsorted(when, time, side="right")]
        residual = n * self.output - self.coefficient * self.link.value(C * self.z + across * self.y)
        stretch, cross, size, slope = self.products @ (residual**2 + others + self.label_noise**2)
        length = stretch + (self.dimension - 2) * slope + self.surplus * others
        return across**2 * stretch, across * cross, size, length
