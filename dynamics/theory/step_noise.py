r"""Effect of the noise of steps of SGD on the times of the flow, at leading order in the learning rate.

Until a neuron emerges its overlap alone decides: `escape_bias`. After that the residual of its own pair is a part of
the noise, so that overlap C and ln n move together: `learned_bias`. Noise may also change which neuron has a direction:
a choice of greedy matching is *settled* if no pair that shares its neuron or its direction is near
(`docs/step_equations.md`). Else another neuron may be first, or the neuron may take another direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.polynomial import polyder, polyval
from numpy.typing import NDArray

from dynamics.equations.transit import logit_of_square, transit_time
from dynamics.problem import LEARNED_SHARE, Problem, checked_number, is_correlation
from dynamics.theory.pairs import direction_speeds
from dynamics.theory.prediction import EmergencePrediction, sorted_stairs
from hermite import HermiteExpansion
from hermite.arrays import Array

_PANELS = 64
_CHUNK = 1024
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
#: Nodes of the rule for delay and scatter of a correlation.
NODES = 1000
#: Degree up to which products of links that are no polynomials are integrated exactly.
_LARGEST_DEGREE = 31
#: Tolerance of the path of mean and covariance, and its end in times of the flow.
_TOLERANCE, _LONGEST = 1e-7, 10.0
#: Distance of two times, in units of their scatter, at which they hardly ever change places.
FAR_APART = 3.0

NOTE_CONSTANT = "the link has c_0 != 0, which the noise of the search ignores: the bias is NaN"
NOTE_INPUTS = (
    "the inputs are not isotropic and the teacher's directions not on their axes, as the noise of the search takes "
    "them to be: the bias is NaN"
)
NOTE_DIRECTIONS = "the teacher's directions are not orthonormal, which the noise of the search ignores: the bias is NaN"


# --- noise of a step while the student is negligible ------------------------------------------------------------------


@np.errstate(under="ignore")
def means_of(activation: HermiteExpansion, powers: Iterable[tuple[int, int, int]]) -> list[float]:
    """Return the means E[σ(z)^i σ'(z)^j z^q] over z ~ N(0, 1) of a link σ, for each (i, j, q) with i + j ≤ 4.

    They are right to rounding for polynomials and smooth links.
    """
    z, step = _grid(activation)
    # A quarter of the Gaussian with each factor keeps high degrees within float64.
    share = np.exp(-0.125 * z**2)
    value, slope = activation.value(z) * share, activation.derivative(z) * share
    scale = step / math.sqrt(2.0 * math.pi)
    return [float(np.sum(value**i * slope**j * share ** (4 - i - j) * z**q)) * scale for i, j, q in powers]


def _grid(activation: HermiteExpansion) -> tuple[Array, float]:
    """Return equally spaced midpoints (N,) and their distance, for means over N(0, 1).

    The rule is exponentially accurate for smooth functions; links may jump at 0, which is no midpoint.
    """
    reach, step = 60.0 if activation.is_polynomial and activation.order > 60 else 40.0, 1.0 / 256.0
    return np.arange(-reach + 0.5 * step, reach, step), step


class SearchNoise:
    """Effect of the noise of SGD on an overlap C while the student is small: its mean B and its spread D.

    Both are those of `escape_bias`, series in C whose coefficients are products of Hermite coefficients. `total` is the
    sum Σ a² of squared coefficients of the teacher, by default the problem's.
    """

    def __init__(self, problem: Problem, total: float | None = None) -> None:
        """Compute the series in C of drag and spread for a problem's link, dimension and label noise.

        σ(z)² z^i (i = 0, 1, 2), σ'(z)² z^i and σ(z) σ'(z) z^i (i = 0, 1) are projected on normalised Hermite
        polynomials, by a sum over the points of `_grid`. Since E[f(x) h(z)] = Σ_n f_n h_n C^n for two normal numbers of
        correlation C, products of these coefficients are series in C: E[σ(x)² σ'(z)²] (`_rate`), E[σ(x)² σ(z)²]
        (`_output`), E[σ(x)² σ'(z)² (x − C z)²] (`_stretch`), E[x σ(x)² σ(z) σ'(z)] (`_cross`) and E[σ(x)² z σ(z) σ'(z)]
        (`_pull`). `_variance` is E σ², `_slope` is E σ'², and `_surplus` is E[σ² (z² − 1)].
        """
        from hermite import polynomials

        link = problem.activation
        z, step = _grid(link)
        root = np.exp(-0.25 * z**2) * (2.0 * np.pi) ** -0.25
        basis = polynomials.evaluate_functions(min(2 * link.order + 2, polynomials.MAX_DEGREE), z)
        value, slope = link.value(z), link.derivative(z)

        @np.errstate(under="ignore")
        def project(function: Array) -> Array:
            """Return the coefficients of a function of z, given at the points, in normalised Hermite polynomials."""
            return np.asarray(basis @ (function * root) * step)

        # σ², x σ², x² σ² against σ'², z σ'², z² σ'², σ σ' and z σ σ'.
        teacher, student = ([project(z**i * factor**2) for i in range(3)] for factor in (value, slope))
        mixed = [project(z**i * value * slope) for i in range(2)]
        self.dimension, self.label_noise = float(problem.dimension), problem.label_noise
        self.total = float(np.sum(problem.teacher.coefficients**2)) if total is None else total
        self._rate, self._output = teacher[0] * student[0], teacher[0] ** 2
        # (x − C z)² and x − C z, multiplied out in powers of C.
        squares = (teacher[2] * student[0], -2.0 * teacher[1] * student[1], teacher[0] * student[2])
        self._stretch = np.sum([np.pad(series, (n, 2 - n)) for n, series in enumerate(squares)], axis=0)
        self._cross, self._pull = teacher[1] * mixed[0], teacher[0] * mixed[1]
        self._variance, self._slope = float(teacher[0][0]), float(student[0][0])
        self._surplus = float(teacher[2][0] - teacher[0][0])

    def __call__(self, C: Array, a: Array, dimension: Array | None = None) -> tuple[Array, Array]:
        """Return drag B and spread D at overlaps C for directions of coefficients a, in the shape of C.

        A step of size η changes the mean of C by −η² B and its variance by η² D. `dimension` is by default the
        problem's.
        """
        squared_rest, d = self.total - a**2, self.dimension if dimension is None else dimension
        of_residual = self._slope * (self.label_noise**2 + self._variance * squared_rest)
        of_direction = a**2 * polyval(C, self._stretch)
        length = (d - 2) * a**2 * polyval(C, self._rate) + of_direction / (1.0 - C**2)
        length = length + (d - 1) * of_residual + self._slope * self._surplus * squared_rest
        return 0.5 * C * length + self._tilt(C, a), of_direction + of_residual * (1.0 - C**2)

    def unseen(self, C: Array, a: Array) -> Array:
        """Return the part of the drag B that the finite-step equation lacks, in the shape of the overlaps C.

        It is E[f*² (2σσ'(x_p − C z) − 2 C σ²)], f* the teacher's output, σ the link at z = u·x for the unit vector u of
        the neuron, x_p the coordinate along the direction. That equation moves C by −½ C H, H the relative mean square
        of a step: its overlap is the ratio of the mean products.
        """
        mean_square_rest = self.label_noise**2 + self._variance * (self.total - a**2)
        return self._tilt(C, a) - 2.0 * C * (a**2 * polyval(C, self._output) + self._variance * mean_square_rest)

    def _tilt(self, C: Array, a: Array) -> Array:
        """Return E[f*² 2σσ'(x_p − C z)] at overlaps C, in their shape; directions other than p add nothing to it."""
        return np.asarray(2.0 * a**2 * (polyval(C, self._cross) - C * polyval(C, self._pull)))


# --- emergence --------------------------------------------------------------------------------------------------------


class EscapeBias(NamedTuple):
    """Effect of the step size on the escape, per direction (P,), dimensionless, and effects that are not modelled.

    `bias` is T_η / T_0 − 1 of the mean time, inf if noise traps the neuron, NaN if it never emerges anyway:
    `drift_bias`, of the mean trajectory, plus that of the fluctuations. `step_bias` is the part of `drift_bias` that
    "finite-d" has too. `scatter` is the standard deviation over T_0, and `emergence_time` T_η, flow time.
    """

    bias: Array
    drift_bias: Array
    step_bias: Array
    scatter: Array
    emergence_time: Array
    notes: tuple[str, ...] = ()

    @property
    def trapped(self) -> NDArray[np.bool_]:
        """Whether the drift vanishes before a direction emerges, shape (P,)."""
        return np.isinf(self.drift_bias)


def escape_bias(
    problem: Problem, learning_rate: float, prediction: EmergencePrediction, directions: int | None = None
) -> EscapeBias:
    r"""Return the leading relative delay of emergence by the step size η; NaN, with a note, where no theory holds.

    .. math:: \frac{dC}{dt} = b(C) - \eta B(C), \quad b = a_p g'(C)(1 - C^2), \qquad
        B = E\Big[f^*(x)^2 \Big(\tfrac12 C\, \sigma'(z)^2 |x_\perp|^2 + 2 \sigma(z) \sigma'(z) (x_p - C z)\Big)\Big]

    and the fluctuations of C, of variance η D dt with D = E[f*² σ'(z)² (x_p − C z)²], add at first order

    .. math:: \frac{\eta}{2} \int \frac{D\, b'}{b^3}\, dC \;\text{ to the mean},\qquad
        \eta \int \frac{D}{b^3}\, dC \;\text{ to the variance};

    with z = u·x, x_⊥ the part of x orthogonal to u, and the variance of the label noise added to f*². They solve the
    equation of the mean time in `docs/step_equations.md`. With `inputs` and directions on axes these are the numbers of
    isotropic inputs at the learning rate s_p η and the dimension tr Σ²/s_p², but delay and scatter are divided by the
    time of the pair itself.
    With K `directions`, known for the objective "correlation" alone, steps are of zeroth order.
    """
    checked_number(learning_rate, "learning_rate", positive=True)
    if is_correlation(problem):
        flow_time = float(prediction.predicted_emergence_time[0])
        return correlation_bias(problem, learning_rate, flow_time, directions=directions)
    a, start = problem.teacher.coefficients, prediction.predicted_emergence_time
    reasons = {
        NOTE_CONSTANT: problem.activation.coefficients[0] != 0.0,
        NOTE_DIRECTIONS: not problem.teacher.is_orthonormal,
        NOTE_INPUTS: problem.inputs is not None and problem.teacher.directions is not None,
    }
    if notes := tuple(note for note, holds in reasons.items() if holds):
        return EscapeBias(*(np.full(a.size, np.nan),) * 5, notes)
    parts, overlap, speed = np.full((4, a.size), np.nan), prediction.matched_overlap, direction_speeds(problem)
    noise, emerging, axes = SearchNoise(problem), np.flatnonzero(np.isfinite(start)), problem.input_axes()
    dimension = float(problem.dimension) if axes is None else axes.eigenvalue**2 @ axes.sizes / speed**2
    seen = np.broadcast_to(dimension, a.shape)
    for begin in range(0, emerging.size, _CHUNK):
        part = emerging[begin : begin + _CHUNK]
        rates = learning_rate * speed[part]
        parts[:, part] = pair_delays(problem, noise, rates, a[part], overlap[part], seen[part, None])
    if axes is not None:
        alone = times_of_pairs(problem, np.where(np.isfinite(start), overlap, 1.0))
        parts *= np.divide(alone, start, out=np.ones_like(start), where=np.isfinite(start) & (start > 0.0))
    drift, stepped, fluctuation, scatter = parts
    bias = drift + fluctuation
    time = start * np.where(np.isfinite(start) & (start > 0.0), 1.0 + bias, 1.0)
    return EscapeBias(bias, drift, stepped, scatter, time)


def pair_delays(
    problem: Problem, noise: SearchNoise, rate: Array | float, a: Array, overlap: Array, dimension: Array | None = None
) -> Array:
    """Return relative delays of the emergence of pairs by noise, and its scatter, shape (4, pairs).

    A pair is a neuron and the direction that it learns. Its rows are, all relative to the time T_0 at which the flow
    lets it emerge: the delay T_η / T_0 − 1 of the mean path; the part of that which the finite-step equation has too;
    the delay by fluctuations around the mean path; the standard deviation of the time.

    `noise` gives drag and spread of a step, `rate` is the learning rate η, a number or (pairs,), `a` (pairs,) are the
    coefficients of the directions and `overlap` (pairs,) the overlaps at the start. `dimension`, (pairs, 1), is by
    default the problem's. Integrals are over ξ = ln(C² / (1 − C²)) from the start to the overlap of emergence; delays
    are inf where the drag stops the pair.
    """
    last = float(logit_of_square(math.sqrt(problem.emergence_level)))
    xi = np.minimum(logit_of_square(overlap), last) - last
    edges = np.linspace(0.0, 1.0, _PANELS + 1)
    points = (edges[:-1, None] + (edges[1] * 0.5) * (_NODES + 1.0)).ravel()
    weights = np.tile(0.5 * edges[1] * _WEIGHTS, _PANELS)
    # Points crowd at the start, where the integrand is largest and a zero of the drift is nearest.
    grid = last + xi[:, None] * (1.0 - points**2)
    far = np.exp(-np.logaddexp(0.0, grid))
    C = np.sign(overlap)[:, None] * np.exp(-0.5 * np.logaddexp(0.0, -grid))
    slope = problem.activation.kernel_derivative(C)
    flow = a[:, None] * slope * far
    turn = a[:, None] * (problem.activation.kernel_derivative(C, n=2) * far - 2.0 * C * slope)
    B, D = noise(C, a[:, None], dimension)
    step = np.asarray(rate)[..., None]
    # dt = dC / b, and dC = C (1 − C²) dξ / 2.
    dt = -xi[:, None] * 2.0 * points * weights * 0.5 * C * far / flow
    time = np.sum(dt, axis=1)
    time[~(time > 0.0)] = 1.0
    losses = (step * push / flow for push in (B, B - noise.unseen(C, a[:, None])))
    return _delays(dt, flow, turn, losses, step * D, time)


def _delays(dt: Array, flow: Array, turn: Array, losses: Iterable[Array], spread: Array, time: Array | float) -> Array:
    """Return the relative delays for each item of `losses`, that by fluctuations, and the relative scatter.

    All arrays have points of the path on their last axis: `dt` are times per point, `flow` is the speed b of C, `turn`
    its derivative b', `losses` are shares of the speed that are lost, and `spread` is the growth of the variance of C
    per unit of time. `time` is the time of the path, to which delays are relative. A delay is inf where all speed is
    lost.
    """
    slowed = [
        np.where((h >= 1.0).any(axis=-1), np.inf, np.sum(dt * h / np.where(h < 1.0, 1.0 - h, 1.0), axis=-1) / time)
        for h in losses
    ]
    fluctuation = 0.5 * np.sum(dt * spread * turn / flow**2, axis=-1) / time
    return np.array([*slowed, fluctuation, np.sqrt(np.sum(dt * spread / flow**2, axis=-1)) / time])


def correlation_bias(
    problem: Problem, noise_rate: float, flow_time: float, *, level: float | None = None, directions: int | None = None
) -> EscapeBias:
    """Return the effect of the step size on the time at which one neuron reaches an overlap, by correlation.

    It is `escape_bias` for the objective "correlation", for an overlap of size `level`, by default that of emergence.
    `noise_rate` is the learning rate over the batch size, and `flow_time` the time of the flow. With K `directions`
    steps are of zeroth order. Arrays have one entry, NaN with a note where the means of a step are not known. The mean
    equation of steps has all of the drift's delay.
    """
    from dynamics.equations.correlation import step_means
    from dynamics.theory.correlation import escape_of, slowing

    nothing = np.full(1, np.nan)
    try:
        means = step_means(problem, directions)
    except ValueError as error:
        return EscapeBias(*(nothing,) * 5, (str(error),))
    if not 0.0 < flow_time < np.inf:
        return EscapeBias(*(nothing,) * 4, np.array([flow_time]))
    way = escape_of(problem, level)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    first, last = way.ends
    u = first + 0.5 * (last - first) * (nodes + 1.0)
    C = way.overlap(u)
    pull, across = way.pull(C), 1.0 - C**2
    dt = 0.5 * (last - first) * weights * way.scale * np.cosh(u) / pull
    bend = polyval(C, polyder(way.slope))
    flow, turn = pull * across, bend * across - 2.0 * C * pull
    lost = slowing(means, C, pull, noise_rate, 1) / pull
    # dC = flow dt, and the variance of C grows by this per unit of time.
    spread = noise_rate * (means.spread(C) * across - flow**2)
    drift, fluctuation, scatter = _delays(dt, flow, turn, (lost,), spread, flow_time)[:, None]
    bias = drift + fluctuation
    return EscapeBias(bias, drift, drift, scatter, flow_time * (1.0 + bias))


# --- learning ---------------------------------------------------------------------------------------------------------


class LearnedBias(NamedTuple):
    """Effect of the step size on the time at which a direction is learned; NaN where unknown.

    `bias` is T_η / T_0 − 1 of the mean time, `step_bias` the part of it that the finite-step equation has too, and
    `scatter` the standard deviation over the mean time; all dimensionless.
    """

    bias: float
    step_bias: float
    scatter: float


@np.errstate(under="ignore")
def learned_bias(
    problem: Problem,
    learning_rate: float,
    prediction: EmergencePrediction,
    escape: EscapeBias,
    direction: int,
    directions: int | None = None,
) -> LearnedBias:
    r"""Return delay and scatter of the learned time of a direction, counted from 0, by the rate η.

    .. math:: \frac{dx}{dt} = b + \eta\, b_2, \qquad \frac{d\Sigma}{dt} = J \Sigma + \Sigma J^T + \mathrm{Cov}(e\, m),
        \qquad \mathrm{Var}\, T = \eta\, \frac{\nabla h^T \Sigma\, \nabla h}{(\nabla h \cdot x')^2}

    of x = (C, ln n) at the time T at which h = ln(n g(C)) has grown to ln(a_p g(1) / 2). With z = u·x and the residual
    e, one step moves x by −η e m + η² e² m_2 to second order, x_⊥ being the part of x orthogonal to u:

    .. math:: m = \begin{pmatrix} \sigma'(z) (x_p - C z) \\ 4 \sigma(z) \end{pmatrix}, \qquad
        m_2 = \begin{pmatrix} -\tfrac12 C \sigma'^2 |x_\perp|^2 - 2 \sigma \sigma' (x_p - C z) \\
        \sigma'^2 |x_\perp|^2 - 4 \sigma^2 \end{pmatrix},

    b = −E[e m] is the flow of the pair, J its Jacobian, and b_2 = E[e² m_2]; the residual of all other directions has
    the mean square that the sum formula has at that time (`docs/step_equations.md`). For a batch of B samples η is
    the rate over B. The part of the mean by fluctuations of C is that of `escape`. For the objective "correlation" it
    is the theory of emergence up to another overlap. Where a neuron at −θ has a part of the direction before, all is
    NaN.
    """
    time = float(prediction.predicted_learned_time[direction])
    if is_correlation(problem):
        from dynamics.theory.correlation import learned_level

        delay = correlation_bias(problem, learning_rate, time, level=learned_level(problem), directions=directions)
        return LearnedBias(float(delay.bias[0]), float(delay.step_bias[0]), float(delay.scatter[0]))
    if time == 0.0:
        return LearnedBias(0.0, 0.0, 0.0)
    if not math.isfinite(time) or prediction.learning_overlap[direction] != prediction.matched_overlap[direction]:
        return LearnedBias(math.nan, math.nan, math.nan)
    pair = LearningPair(problem, prediction, direction)
    mean, deviation = pair.passage(learning_rate, time)
    stepped, _ = pair.passage(learning_rate, time, of_products=True)
    emergence = float(prediction.predicted_emergence_time[direction])
    fluctuation = emergence * float(escape.bias[direction] - escape.drift_bias[direction])
    mean_time = mean + fluctuation
    return LearnedBias(mean_time / time - 1.0, stepped / time - 1.0, deviation / mean_time)


class LearningPair:
    """One neuron and the direction that it learns, with the noise that all other directions add to each step.

    `passage` returns the time at which the direction is learned.
    """

    def __init__(self, problem: Problem, prediction: EmergencePrediction, direction: int) -> None:
        """Tabulate link, start and noise of the pair that learns `direction`, a number from 0 on.

        `prediction` gives the overlap and the squared norm of the learning neuron at the start, and the learned times
        of all directions: the loss of the others, a staircase that falls at their learned times, is noise in the steps
        of this pair.
        """
        self.link, a = problem.activation, problem.teacher.coefficients
        self.coefficient, self.dimension = float(a[direction]), problem.dimension
        self.label_noise = problem.label_noise
        overlap, squared_norm = prediction.learning_overlap[direction], prediction.learning_squared_norm[direction]
        #: C and ln n at the start.
        self.start = (float(overlap), math.log(squared_norm))
        powers = self.link.coefficients**2
        #: g, g' and g'' in powers of C, (order + 1, 3).
        self.kernel = np.stack([np.pad(polyder(powers, n), (0, n)) for n in range(3)], axis=1)
        degree = self.link.order if self.link.is_polynomial else min(self.link.order, _LARGEST_DEGREE)
        nodes, weights = hermegauss(2 * degree + 2)
        weights /= weights.sum()
        #: Nodes of a Gauss rule in z and in y, x_p = C z + √(1 − C²) y, and σ(z) there.
        self.z, self.y = (grid.ravel() for grid in np.meshgrid(nodes, nodes))
        self.output, slope = self.link.value(self.z), self.link.derivative(self.z)
        products = np.stack([slope**2 * self.y**2, self.output * slope * self.y, self.output**2, slope**2])
        #: Its weights times σ'² y², σ σ' y, σ² and σ'², (4, nodes).
        self.products = products * np.outer(weights, weights).ravel()
        # Without the step of this direction the loss is that of the others.
        learned = prediction.predicted_learned_time.copy()
        learned[direction] = np.inf
        when, loss = sorted_stairs(problem, replace(prediction, predicted_learned_time=learned))
        #: Increasing times at which the loss of the others falls, and that loss before each and after the last.
        self.stairs = (when, loss - np.sum(powers) * a[direction] ** 2)
        square, stretch = weights * self.link.value(nodes) ** 2, weights * self.link.derivative(nodes) ** 2
        #: E[σ² (z² − 1)] E σ'² / E σ²: excess of the mean of e² σ'² |x_⊥|² over d − 1 times the noise, per their loss.
        self.surplus = float(square @ (nodes**2 - 1.0) * stretch.sum() / square.sum())

    def passage(self, learning_rate: float, time: float, *, of_products: bool = False) -> tuple[float, float]:
        """Return the learned time of the mean path, and the standard deviation of this time; inf and NaN if never.

        Both are flow times η · step. The mean is that of SGD, or with `of_products` that of the finite-step equation.
        `time` is the learned time of the flow: the path is followed for 10 times as long.
        """
        from scipy.integrate import solve_ivp

        goal = math.log(LEARNED_SHARE * self.coefficient * self._signal(1.0)[0])

        def learned(_t: float, state: Array, *_step: object) -> float:
            """Return ln(n g(C)) minus its value when the direction is learned."""
            return float(state[1]) + math.log(self._signal(float(state[0]))[0]) - goal

        learned.terminal = True  # type: ignore[attr-defined]
        start = np.array([*self.start, 0.0, 0.0, 0.0])
        size = _TOLERANCE * np.array([abs(start[0]), 1.0, 1.0, 1.0, 1.0])
        step, span = (learning_rate, of_products), (0.0, _LONGEST * time)
        solution: Any = solve_ivp(self.rates, span, start, args=step, rtol=_TOLERANCE, atol=size, events=learned)
        if solution.t_events[0].size == 0:
            return math.inf, math.nan
        passed, end = float(solution.t_events[0][0]), solution.y_events[0][0]
        signal, slope, _ = self._signal(end[0])
        gradient, covariance = np.array([slope / signal, 1.0]), end[[[2, 3], [3, 4]]]
        spread = gradient @ covariance @ gradient
        speed = float(gradient @ self.rates(passed, end, *step)[:2])
        return passed, math.sqrt(learning_rate * spread) / speed

    def rates(self, time: float, state: Array, learning_rate: float, of_products: bool = False) -> Array:
        """Return time derivatives of the state (C, ln n, Σ_CC, Σ_Cn, Σ_nn), shape (5,).

        C is the overlap of the neuron, n its squared norm, and Σ the covariance of C and ln n over the learning rate.
        With `of_products` the motion is that of the finite-step equation.
        """
        C, log_norm, overlaps, mixed, norms = state
        # A step of the integrator may pass |C| = 1 by rounding.
        C, n, a = min(max(C, -1.0), 1.0), math.exp(log_norm), self.coefficient
        far, (signal, slope, turn), (whole, _, _) = 1.0 - C**2, self._signal(C), self._signal(1.0)
        across, loss_of_others = math.sqrt(far), self.stairs[1][np.searchsorted(self.stairs[0], time, side="right")]
        residual = n * self.output - a * self.link.value(C * self.z + across * self.y)
        # E[e² σ'² (x_p − C z)²], E[e² σ σ' (x_p − C z)], E[e² σ²] and E[e² σ'² |x_⊥|²].
        stretch, cross, size, tilt = self.products @ (residual**2 + loss_of_others + self.label_noise**2)
        length = stretch + (self.dimension - 2) * tilt + self.surplus * loss_of_others
        stretch, cross = far * stretch, across * cross
        pull, growth = a * slope * far, 4.0 * (a * signal - n * whole)
        motion = (-0.5 * C * length - 2.0 * cross, length - 4.0 * size)
        if of_products:
            motion = (-0.5 * C * (length + 4.0 * size), length + 4.0 * size)
        bend, onto, back = a * (turn * far - 2.0 * C * slope), 4.0 * a * slope, -4.0 * n * whole
        return np.array(
            [
                pull + learning_rate * motion[0],
                growth + learning_rate * motion[1],
                2.0 * bend * overlaps + stretch - pull**2,
                onto * overlaps + (bend + back) * mixed + 4.0 * cross - pull * growth,
                2.0 * (onto * mixed + back * norms) + 16.0 * size - growth**2,
            ]
        )

    def _signal(self, C: float) -> Array:
        """Return the kernel g of the link, g' and g'' at an overlap C, shape (3,)."""
        return np.asarray(polyval(C, self.kernel))


# --- rivals -----------------------------------------------------------------------------------------------------------


class Rivals(NamedTuple):
    """Rivals of the pair of each direction, shape (P,).

    `settled` says whether there are none, `earlier` is the most that they take from the mean of ln T, and `elsewhere`
    says whether the neuron may take another direction.
    """

    settled: NDArray[np.bool_]
    earlier: Array
    elsewhere: NDArray[np.bool_]


def rivals_of_pairs(problem: Problem, pairs: EmergencePrediction, scatter: Array) -> Rivals:
    """Return the rivals of the matched pair of each direction: neurons or directions that noise may exchange.

    `pairs` are the matched pairs, and `scatter` (P,) the standard deviations of the logarithms of their times of
    emergence, NaN for none. Directions without a pair have no rivals and are not settled.
    """
    from scipy.special import ndtr

    overlap, speed, power = problem.start().teacher_overlap, direction_speeds(problem), problem.information_exponent - 2
    overlap = overlap if power % 2 else np.abs(overlap)
    P, a, free = problem.num_directions, problem.teacher.coefficients * speed, np.ones(problem.width, dtype=bool)
    rivals = Rivals(np.zeros(P, dtype=bool), np.zeros(P), np.zeros(P, dtype=bool))
    with np.errstate(divide="ignore"):
        logs, closed = np.log(times_of_pairs(problem)), np.full(P, np.inf)
    neurons, learned = pairs.matched_neuron, pairs.predicted_learned_time
    matched = np.flatnonzero((neurons >= 0) & np.isfinite(scatter))
    rates = a[matched] * np.abs(overlap[neurons[matched], matched]) ** power
    for p in matched[np.argsort(-rates, kind="stable")].tolist():
        i, s = int(neurons[p]), max(float(scatter[p]), 1e-12)
        overlap_of_pair = max(float(overlap[i, p]), 1e-300)
        is_rival = free & (np.arange(free.size) != i)
        behind = power * (1.0 - overlap[is_rival, p] / overlap_of_pair) / s
        even = (a[p] / a) ** (1.0 / power)
        ahead = (
            power * (even - overlap[i] / overlap_of_pair) / (s * np.sqrt(0.5 * (speed / speed[p]) ** 2 + 0.5 * even**2))
        )
        draws = (ahead < FAR_APART) & (logs[i] < closed + FAR_APART * s) & np.isfinite(logs[i])
        rivals.elsewhere[p] = np.delete(draws, p).any()
        x = behind[np.isfinite(behind)] / np.sqrt(2.0)
        # E max(0, N(−behind, 2)) of each of them.
        rivals.earlier[p] = s * np.sum(np.sqrt(2.0) * (np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi) - x * ndtr(-x)))
        rivals.settled[p] = not rivals.elsewhere[p] and (behind >= FAR_APART).all()
        if rivals.settled[p]:
            free[i] = False
            closed[p] = np.log(learned[p]) if 0.0 < learned[p] < np.inf else np.inf
    return rivals


def times_of_pairs(problem: Problem, overlap: Array | None = None) -> Array:
    """Return the times of emergence, (…, m, P), of every neuron with every direction, as if they were alone.

    `overlap` (…, m, P) is by default that of the start. Times are those of the flow, 0 beyond the level of emergence,
    and inf for never.
    """
    overlap, level = problem.start().teacher_overlap if overlap is None else overlap, np.sqrt(problem.emergence_level)
    a, is_below = problem.teacher.coefficients * direction_speeds(problem), np.abs(overlap) < level
    # 0 for overlaps beyond the level: at 1, of infinite logit, there is nothing to subtract.
    times = transit_time(problem.activation.coefficients, overlap * is_below, np.copysign(level, overlap)) / a
    return np.asarray(np.where(is_below, times, 0.0))
