r"""Components of a polynomial teacher before anything is integrated: blindness, escape times, how long to follow them.

Alone on a sphere, near the saddle M = 0, a neuron climbs the monomial dM_a/dt = κ α_a M^α / M_a, so that all u_a = M_a²
move along u_a + α_a τ with one clock, dτ = 2 κ M^α dt (`docs/theory_equations.md`). Where κ M^α < 0 the clock first
runs backwards; if the smallest u_a/α_a has α_a = 1, M_a passes through 0 and the climb begins there; else it stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import cast

import numpy as np

from dynamics.problem import Problem, needs_points
from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt
from dynamics.problem.student import Student
from dynamics.problem.teacher import Component, Unit
from hermite import HermiteExpansion
from hermite.arrays import Array
from hermite.quadrature import QuadratureResult, integrate

#: A network is followed for so many times the sum of those that a neuron alone needs for the parts of its teacher.
NETWORK_FACTOR = 20.0
#: Orders of a unit's link that are looked at, and the part of the largest rate below which a rate counts as none.
UNIT_ORDERS, NO_RATE = 6, 1e-9
#: D_|α| √(Q^|α|/|α|!) is a rounding error below this part of the norm of the link.
ZERO = 1e-11
#: Factors of the starting |w| that stand for the norms of a free first layer, and shifts that stand for moving biases.
LENGTHS, SHIFTS = (0.6, 1.0, 1.7), (0.0, 0.37, -0.81)
#: How much of its motion, until the predicted time, may come from the other neurons while a neuron counts as alone.
LONELY = 0.05


def mean_derivatives_at(link: HermiteExpansion, count: int, variance: float, bias: float) -> Array:
    """Return D_j = E σ^(j)(√variance z + bias), j < count, over z ~ N(0, 1), shape (count,), by quadrature.

    σ^(j) is the j-th derivative of the link, in the sense of distributions.
    """
    length = math.sqrt(variance)
    c = _scaled(link, count - 1, length, bias).coefficients
    return np.array([math.sqrt(math.factorial(j)) * c[j] / length**j for j in range(count)])


def _of_neurons(problem: Problem, count: int) -> Array:
    """Return the mean derivatives D_j, j < count, of the link at every neuron at the start, shape (m, count)."""
    _, b, weights = problem.network_start()
    neurons = zip(np.sum(weights**2, axis=1), b, strict=True)
    return np.array([mean_derivatives_at(problem.activation, count, q, bias) for q, bias in neurons])


def _scaled(link: HermiteExpansion, order: int, length: float, bias: float) -> QuadratureResult:
    """Return the norm and the coefficients c_j = D_j length^j / √(j!) of z ↦ σ(length z + bias)."""
    return integrate(lambda z: link.value(length * z + bias), order)


def blind_components(problem: Problem) -> tuple[str, ...]:
    """Return the names of the components of the teacher that no neuron of a `Student` can represent.

    Of the component of powers α = (α_a) of the coordinates the student has f_α = s Σ_i v_i D_|α|(Q_ii, b_i)
    M_i^α/√(α!): s is the scale of the output, v_i the second layer, b_i the bias, M_i the weights on the teacher's
    axes, Q_ii their squared length with all others, and D_j the mean j-th derivative of the link. It stays zero where
    D_|α| is: an odd link without biases has D_2 = D_4 = … = 0. Norms and biases that move are tried at several values.
    """
    student, components = problem.student, problem.teacher.components
    if not isinstance(student, Student) or not components:
        return ()
    degrees = np.array([component.degree for component in components])
    seen, start = np.zeros(degrees.max() + 1), problem.network_start()
    factors = (1.0,) if student.first_layer == "sphere" else LENGTHS
    shifts = SHIFTS if student.biases == "trained" else (0.0,)
    # Lengths that differ by rounding alone say the same.
    lengths = np.linalg.norm(start.weights, axis=1).round(9).tolist()
    neurons = sorted(set(zip(lengths, start.bias.tolist(), strict=True)))
    for (length, bias), factor, shift in product(neurons, factors, shifts):
        scaled = _scaled(student.activation, seen.size - 1, factor * length, shift + bias)
        seen = np.maximum(seen, np.abs(scaled.coefficients) / math.sqrt(scaled.norm_squared))
        if (seen[degrees] > ZERO).all():
            return ()
    return tuple(component.name for component in components if seen[component.degree] <= ZERO)


def predicted_component_times(problem: Problem) -> Array:
    """Return the flow times (components,) at which components are learned, by the escape from a monomial's saddle.

    It is the least time of all neurons, on the sphere with a fixed second layer, for components of degree 3 and more
    whose axes no component before them has. NaN where the law does not hold, inf where no neuron can escape.
    """
    student, components = problem.student, problem.teacher.components
    times, seen_axes = np.full(len(components), np.nan), set[int]()
    if not isinstance(student, Student):
        return times
    if student.biases == "trained" or (student.first_layer, student.second_layer) != ("sphere", "fixed"):
        return times
    for index, component in enumerate(components):
        if component.degree >= 3 and seen_axes.isdisjoint(component.axes):
            times[index] = _least_time(problem, student, component)
        seen_axes.update(component.axes)
    return times


def _least_time(problem: Problem, student: Student, component: Component) -> float:
    """Return the flow time at which the fastest neuron learns a component alone; NaN if others move it before."""
    (v, _, weights), D = problem.network_start(), _of_neurons(problem, component.degree + 1)
    axes, alpha = list(component.axes), np.array([n for n in component.degrees if n], dtype=np.float64)
    scale, rate = student.output_scale, student.learning_rates[0]
    factorial = math.prod(map(math.factorial, component.degrees))
    kappa = rate * scale * v * component.value * D[:, component.degree] / math.sqrt(factorial)
    time = min(escape_time(k, weights[i, axes], alpha) for i, k in enumerate(kappa))
    push = rate * scale**2 * np.abs(np.outer(v, v) * np.outer(D[:, 1], D[:, 1]))
    np.fill_diagonal(push, 0.0)
    return time if not np.isfinite(time) or time * push.sum(axis=1).max() <= LONELY else math.nan


def escape_time(kappa: float, M: Array, alpha: Array) -> float:
    """Return the time that dM_a/dt = κ α_a M^α/M_a takes from M to infinity; inf if M stays bounded.

    `M` (axes,) are the weights of a neuron on the axes of a monomial M^α = Π_a M_a^α_a, `alpha` (axes,) its powers, of
    sum at least 3, and `kappa` the strength κ of the pull.
    """
    u = M**2
    if kappa == 0.0 or (u == 0.0).any():
        return math.inf
    if kappa * np.prod(M**alpha) > 0:
        return _climb(u, alpha) / abs(kappa)
    share = u / alpha
    least, turn = int(np.argmin(share)), float(share.min())
    if alpha[least] != 1.0 or np.sum(share <= turn * (1.0 + 1e-14)) > 1:
        return math.inf
    left = u - alpha * turn
    left[least] = 0.0
    rest_axes = np.arange(u.size) != least

    from scipy.integrate import quad

    def back(r: float) -> float:
        """Return the integrand of the time until the smallest weight passes through 0, for r from 0 to 1."""
        squares = u[rest_axes] - alpha[rest_axes] * turn * (1.0 - r * r)
        return turn / (math.sqrt(u[least]) * float(np.prod(squares ** (0.5 * alpha[rest_axes]))))

    # ∫_0^T dτ / (2 Π (u_a − α_a τ)^(α_a/2)) to T = u/α of the least, whose root goes with τ = T (1 − r²).
    used = float(quad(back, 0.0, 1.0, epsabs=0.0, epsrel=1e-12, limit=200)[0])
    return (used + _climb(left, alpha)) / abs(kappa)


def _climb(u: Array, alpha: Array) -> float:
    """Return ∫_0^∞ dτ / (2 Π_a (u_a + α_a τ)^(α_a/2)), the time of escape at κ = 1 from squares u_a of weights.

    With τ = e^y the integrand vanishes at both ends.
    """
    scale = math.log(float(np.max(u / alpha)) or 1.0)
    # As fast as e^(y/2) on either side: 80 e-folds leave less than rounding, and the rule converges exponentially.
    y = np.linspace(scale - 90.0, scale + 90.0, 6001)
    log_terms = 0.5 * alpha @ np.log(u[:, None] + alpha[:, None] * np.exp(y))
    return float(np.sum(0.5 * np.exp(y - log_terms)) * (y[1] - y[0]))


def default_network_times(problem: Problem, *, is_short: bool = False) -> SaveAt:
    """Return the default saved times of a network: to 20 times the time of its escapes and of telling its units apart.

    With `is_short` to the former alone: steps of optimizers are dear. Under another loss than the squared one, or with
    labels that are classes, to 20 times 1 + ln d over the largest rate times the output scale. In layer-wise training
    half of the times lead to the switch, and half follow v for 20 times the inverse of its rate ε_v s² min_i E σ_i², of
    neurons that are not dead, or of ε_v if all are.
    """
    if needs_points(problem):
        student = cast("Student", problem.student)
        rate = (max(student.learning_rates) or 1.0) * student.output_scale
        last = NETWORK_FACTOR * (1.0 + math.log(problem.dimension)) / rate
        return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)
    if (phases := problem.phases())[1:]:
        student, (_, b, weights) = cast("Student", phases[1].student), problem.network_start()
        neurons = zip(np.linalg.norm(weights, axis=1), b, strict=True)
        squares = [_scaled(student.activation, 0, *neuron).norm_squared for neuron in neurons]
        switch = cast("Student", problem.student).switch_time()
        last = NETWORK_FACTOR / (student.learning_rates[1] * _slowest(student.output_scale**2 * np.array(squares)))
        half = DEFAULT_COUNT // 2
        later = switch + np.geomspace(1e-4 * last, last, half)
        return SaveAt.at(np.union1d(np.geomspace(1e-4 * switch, switch, half), later))
    last = escapes_end(problem) + (0.0 if is_short else NETWORK_FACTOR * _time_apart(problem))
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def _slowest(factors: Array) -> float:
    """Return the least factor of a rate, of those that are not 0 beside the largest; 1 if all of them are 0."""
    moving = factors[factors > NO_RATE * factors.max()]
    return float(moving.min()) if moving.size else 1.0


def escapes_end(problem: Problem) -> float:
    """Return 20 times the sum of the times in which one neuron alone leaves M = 0 for each part of the teacher.

    Near M = 0 one neuron alone follows M' = ε_w s v g D_L M^(L−1), g = f*_α/√α! or a_p D*_L/(L−1)!, and leaves it after
    1, ln d or (√d)^(L−2) over the rate for L = 1, 2 or more. With `inputs` the least eigenvalue s_l of the axes of a
    part multiplies the rate, and tr Σ/s_l stands for d.
    """
    axes, speeds, rates = problem.input_axes(), _speeds(problem), _rates(problem)
    trace = problem.dimension if axes is None else axes.trace

    def wait(order: int, root: float) -> float:
        """Return the time, over the rate, in which a neuron leaves M = 0 by a pull of order L; `root` is √d."""
        return {1: 1.0, 2: max(2.0 * math.log(root), 1.0)}.get(order, float(root ** (order - 2)))

    times = [
        wait(order, np.sqrt(trace / speeds[used].min())) / (speeds[used].min() * strength * rates[degree])
        for order, degree, strength, used in _parts(problem)
        if strength * rates[degree] > NO_RATE * rates.max()
    ]
    slowest = 1.0 / (max(cast("Student", problem.student).learning_rates) or 1.0)
    return NETWORK_FACTOR * (sum(times) or slowest)


def _time_apart(problem: Problem) -> float:
    """Return the time in which neurons within the span of the units tell the slowest unit from the others.

    Degree 1 of the teacher f* is one vector, which many sets of units share. Where it is the first degree, neurons that
    left M = 0 tell a unit from the others by M' = ε_w s v Σ_(j ≥ 2) g_j D_j M^(j−1), all units at once, with overlaps M
    of order 1: ε_w is the learning rate of the first layer, s the scale of the output, v the second layer, g_j the
    strength of the unit at order j, and D_j the mean j-th derivative of the student's link. The time is 0 where another
    degree is the first.
    """
    units, speeds, rates = problem.teacher.units(problem.teacher_link), _speeds(problem), _rates(problem)
    orders = np.arange(2, UNIT_ORDERS + 1)
    factorials, times = [math.factorial(order - 1) for order in orders.tolist()], []
    for unit in units if len(units) > 1 else ():
        first, D = _first_order(unit)
        rate = abs(unit.coefficient) * float(np.sum(D[orders] / factorials * rates[orders]))
        if first == 1 and rate > NO_RATE * rates.max():
            times.append(1.0 / (speeds[np.flatnonzero(unit.direction)].min() * rate))
    return max(times, default=0.0)


def _speeds(problem: Problem) -> Array:
    """Return the eigenvalues of the covariance of the inputs on the axes of the teacher, (r,)."""
    axes = problem.input_axes()
    return np.ones(problem.teacher.span) if axes is None else axes.eigenvalues[: problem.teacher.span]


def _rates(problem: Problem) -> Array:
    """Return ε_w s max_i |v_i D_j| of the neurons i at the start, shape (orders,), for orders j from 0.

    ε_w is the learning rate of the first layer, s the scale of the output, v_i the second layer, at least 1 if it is
    trained, and D_j the mean j-th derivative of the link.
    """
    student = cast("Student", problem.student)
    most = max((component.degree for component in problem.teacher.components), default=UNIT_ORDERS)
    size = np.abs(problem.network_start()[0])
    size = np.maximum(size, 1.0) if student.learning_rates[1] > 0.0 else size
    largest: Array = np.abs(size[:, None] * _of_neurons(problem, most + 1)).max(axis=0)
    return student.learning_rates[0] * student.output_scale * largest


def _first_order(unit: Unit) -> tuple[int, Array]:
    """Return the first order j ≥ 1 of a unit's link with D_j ≠ 0, and |D_j|, j = 0 … 6, its mean derivatives."""
    D = np.abs(mean_derivatives_at(unit.link, UNIT_ORDERS + 1, 1.0, unit.bias))
    return next((j for j in range(1, UNIT_ORDERS + 1) if D[j] > NO_RATE * D.max()), 1), D


def _parts(problem: Problem) -> Iterator[tuple[int, int, float, list[int]]]:
    """Yield (order, degree, strength, axes) of each component of a polynomial teacher and each unit.

    The order of a component is its degree on axes that no component before it has, at least 1, and its strength
    |f*_α|/√α!; the order and degree of a unit is the first order of its link. `axes` are numbers of the teacher's axes.
    """
    for component in problem.teacher.components:
        factorial = math.prod(map(math.factorial, component.degrees))
        size = abs(component.value) / math.sqrt(factorial)
        yield max(component.cost, 1), component.degree, size, list(component.axes)
    for unit in problem.teacher.units(problem.teacher_link):
        order, D = _first_order(unit)
        size = abs(unit.coefficient) * D[order] / math.factorial(order - 1)
        yield order, order, size, np.flatnonzero(unit.direction).tolist()
