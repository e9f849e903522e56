"""The small flow, a method of the overlaps: DOP853 on unit vectors with slowed clusters, from saved time to saved time.

Clusters are those of the large flow (`clusters`). With the whole field at every stage there are no fast sources and no
lagged rest, as in `large_flow.device`.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, II.4 to II.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.link import g0, g1
from dynamics.equations.vectors import VectorSystem, counts_of, numbers_of, split
from dynamics.integrators import clusters
from dynamics.integrators import explicit_kernels as pair
from dynamics.integrators import step_kernels as slots
from dynamics.integrators import system_calls as calls
from dynamics.integrators.clusters import KAPPA, LAG_SAFETY, LARGEST_FACTOR, SAFETY, SMALLEST_FACTOR, STALL_STEPS
from dynamics.integrators.compiled_stepper import CompiledStepper
from dynamics.integrators.explicit_kernels import ROW_DENSE, ROW_END, ROW_STAGES, ROW_ZERO, add_stages
from dynamics.integrators.large_flow.step_kernels import combined_error
from dynamics.integrators.large_flow.stepper import tolerances
from dynamics.integrators.step_kernels import (
    STATISTICS,
    Layout,
    copy_row,
    event_recorder,
    events_passed,
    saving_steps,
    unowned_arrays,
)
from dynamics.integrators.stepper import Tolerances
from dynamics.integrators.system_calls import EXPLICIT, PARAMETERS, SIZES, System, normalise, rhs
from dynamics.kernels.jit import entry, inlined_kernel, kernel, matrix, pasted_kernel, row_part, vector
from dynamics.kernels.options import AnyFunction
from dynamics.kernels.units import unit

if TYPE_CHECKING:
    from dynamics.integrators.step_kernels import Arrays
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers, Matrix, Vector

# Rows and slots after those of the explicit pair. The state is [U (m, D) | ln n (m)], so that a row also holds the mean
# velocities of m clusters, shape (m, D + 1).
# Rows: rates at the end and at the start of the last step with nothing slowed, mean velocities of its clusters over the
# step before, scratch. The first of them follow the zeros of the explicit pair.
ROW_RATES, ROW_RATES_START, ROW_DRIFT, ROW_SHIFT, ROW_MEAN, ROW_FIVE, ROW_THREE, SMALL_FLOW_ROWS = range(28, 36)
# Slots of `scalars`: length of the last step and of the one before (0: none), the last `KEPT_TIMES` ends of steps, then
# constants: the change of a coordinate by displaced clusters that others notice, and whether −θ_p is as good as θ_p.
# Files hold the squared coefficients of the link behind them.
LAST_STEP, STEP_BEFORE, END_TIMES = 6, 7, 8
KEPT_TIMES = STALL_STEPS + 1
LARGEST_LAG, BOTH_POLES = END_TIMES + KEPT_TIMES, END_TIMES + KEPT_TIMES + 1
# Slots of `counters`; number of clusters; then four parts of m + 1: direction of the cluster of each neuron (−1: none),
# its pole (±1), members of all clusters in order, and where in them each cluster begins. Behind the part
# that files hold: the direction of each cluster.
CLUSTERS, INTEGERS = 6, 7


@kernel
def with_rates(vectors: Matrix, growth: Vector, sizes: Integers) -> clusters.Whole:
    """Return the unit vectors, ln n, their rates and the growth (m,) of the state now.

    The growth is a quarter of the rates of ln n, the logarithm of squared norms, and is written to `growth`.
    """
    (U, log_n), (F, rates) = split(vectors[slots.ROW_STATE], sizes), split(vectors[ROW_RATES], sizes)
    for i in range(growth.size):
        growth[i] = 0.25 * rates[i]
    return U, log_n, F, growth


@kernel
def parts(counters: Integers, m: int) -> tuple[Integers, clusters.Groups]:
    """Return the direction of the cluster of each neuron (m,), −1 for none, and the clusters: views of `counters`.

    These are (order, first, direction, pole): cluster c holds neurons order[first[c]:first[c + 1]].
    """
    n, at = m + 1, INTEGERS
    pole, order = vector(counters, at + n, n), vector(counters, at + 2 * n, n)
    first, direction = vector(counters, at + 3 * n, n), vector(counters, at + 4 * n + 1, n)
    return vector(counters, at, m), (order, first, direction, pole)


@kernel
def drift_of(c: int, vectors: Matrix, sizes: Integers) -> Vector:
    """Return the mean velocity of cluster c over the last step, (D + 1,): of its direction, then of mean ln n."""
    n = counts_of(sizes).axes + 1
    return row_part(vectors, ROW_DRIFT, c * n, n)


@kernel
def kept_share(h: float, rate: float) -> float:
    """Return 1 − θ, θ = min(1, κ/(rate h)): the share of the velocity of a slowed mode taken from the last step.

    `rate` is its rate of relaxation, and h the length of the step; it relaxes by at most κ = 4 in the step.
    """
    return max(0.0, 1.0 - KAPPA / (h * rate))


@unit()
def slow_clusters(
    h: float,
    y: Vector,
    rates: Vector,
    vectors: Matrix,
    scalars: Vector,
    counters: Integers,
    parameters: Vector,
    sizes: Integers,
) -> None:
    """Slow the mean velocity of every cluster in a step of length h, in place, in the `rates` of the state y.

    State and rates are unit vectors (m, D), then ln n (m,). Of modes that relax fast within a step a share of the
    velocity is taken from the last step (`kept_share`); clusters and their mean velocities are in `counters` and
    `vectors`.
    """
    (strengths, _, link), counts = numbers_of(parameters, sizes), counts_of(sizes)
    value, slope, D = g0(link, 1.0), g1(link, 1.0), counts.axes
    cluster, (order, first, _, pole) = parts(counters, counts.width)
    means = vector(vectors[ROW_MEAN], 0, D), vector(vectors[ROW_SHIFT], 0, D)
    for c in range(counters[CLUSTERS]):
        members = vector(order, first[c], first[c + 1] - first[c])
        a = strengths[cluster[members[0]]]
        held, held_norm = kept_share(h, a * slope), kept_share(h, 4.0 * a * value)
        if held > 0.0 or held_norm > 0.0:
            clusters.slow_cluster(
                held, held_norm, 0.25 * slope / value, members, members, pole, split(y, sizes), split(rates, sizes),
                drift_of(c, vectors, sizes), means,
            )  # fmt: skip


@unit()
def divide_neurons(vectors: Matrix, scalars: Vector, counters: Integers, parameters: Vector, sizes: Integers) -> None:
    """Find the clusters of the next step, and write them and their mean velocities over the last one."""
    (m, _, D, _, _, _), h = counts_of(sizes), scalars[LAST_STEP] if scalars[LAST_STEP] > 0.0 else 1.0
    cluster, groups = parts(counters, m)
    now, before = with_rates(vectors, vector(vectors[ROW_MEAN], 0, m), sizes), split(vectors[slots.ROW_START], sizes)
    (a, _, link), drift = numbers_of(parameters, sizes), matrix(vectors[ROW_DRIFT], 0, m, D + 1)
    both_poles = scalars[BOTH_POLES] > 0.0
    counters[CLUSTERS] = clusters.find_clusters(h, 0.0, link, a, both_poles, before, now, groups, cluster, drift)


@unit(**EXPLICIT)
def land_clusters(h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Move clusters at the end of a step to where their stiff means belong, if others notice it.

    Other neurons are moved back by what they felt of clusters that sat elsewhere: the change of their rates at the end,
    for `DISPLACED_SHARE` of the step.
    """
    parameters, sizes = system[PARAMETERS], system[SIZES]
    (strengths, _, link), counts = numbers_of(parameters, sizes), counts_of(sizes)
    m, n = counts.width, counts.axes + 1
    y, rates, felt = vectors[slots.ROW_STATE], vectors[ROW_RATES], vectors[ROW_FIVE]
    cluster, (order, first, direction, pole) = parts(counters, m)
    now, start = with_rates(vectors, vector(vectors[ROW_MEAN], 0, m), sizes), split(vectors[slots.ROW_START], sizes)
    ratio = h / (h + scalars[STEP_BEFORE]) if scalars[STEP_BEFORE] > 0.0 else 0.0
    value, slope, noticed, velocity = g0(link, 1.0), g1(link, 1.0), 0.0, vector(vectors[ROW_THREE], 0, n)
    forces = vector(felt, 0, strengths.size)
    clusters.write_forces_on_others(strengths, link, now[0], cluster, forces)
    for c in range(counters[CLUSTERS]):
        p, members = direction[c], vector(order, first[c], first[c + 1] - first[c])
        a, shift = strengths[p], row_part(vectors, ROW_SHIFT, c * n, n)
        rates_of_means = a * slope, 4.0 * a * value
        drift = drift_of(c, vectors, sizes)
        clusters.weigh_shift(h, ratio, rates_of_means, members, pole, start, now, drift, shift, velocity)
        noticed = max(noticed, forces[p] * max(*clusters.size_of_shift(shift)))
    if h * noticed <= scalars[LARGEST_LAG]:
        return
    for c in range(counters[CLUSTERS]):
        shift = row_part(vectors, ROW_SHIFT, c * n, n)
        for x in range(first[c], first[c + 1]):
            clusters.shift_row(pole[order[x]], vector(shift, 0, n - 1), now[0][order[x]])
            now[1][order[x]] += shift[n - 1]
    normalise(y, system)
    copy_row(felt, rates)
    rhs(0.0, y, rates, system)
    for i in range(m):
        for k in range(n if cluster[i] < 0 else 0):
            at = i * (n - 1) + k if k < n - 1 else m * (n - 1) + i
            y[at] -= clusters.DISPLACED_SHARE * h * (felt[at] - rates[at])
    normalise(y, system)
    rhs(0.0, y, rates, system)
    counters[slots.EVALUATIONS] += 2


@inlined_kernel
def slow(
    h: float, y: Vector, rates: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System
) -> None:
    """Slow the mean velocities of clusters in `rates`, in place, if there are any clusters."""
    if counters[CLUSTERS] > 0:
        slow_clusters(h, y, rates, vectors, scalars, counters, system[PARAMETERS], system[SIZES])


@kernel
def take_stage(s: int, h: float, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the rates at stage s, from 1, of a step of length h to their row; the step starts from ROW_START."""
    y, stages = vectors[slots.ROW_TRIAL], vectors[ROW_STAGES:ROW_DENSE]
    add_stages(vectors[slots.ROW_START], stages, s, h, y.size, y, 0)
    rhs(0.0, y, stages[s], system)
    slow(h, y, stages[s], vectors, scalars, counters, system)


@kernel
def square(x: float) -> float:
    """Return x²; for x**2 Numba compiles a further function, which takes four times as long to compile."""
    return x * x


@unit(**EXPLICIT)
def step_error(h: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> float:
    """Return the error of a step of length h in units of the tolerance: the root mean square of the worst neuron.

    The overlap of a neuron with the unlearned direction that it is nearest to counts for itself too.
    """
    m, D, rtol = system[SIZES][0], system[SIZES][2], scalars[slots.RTOL]
    y, new, e5, e3 = vectors[slots.ROW_START], vectors[pair.ROW_NEW], vectors[ROW_FIVE], vectors[ROW_THREE]
    stages = vectors[ROW_STAGES:ROW_DENSE]
    for q in range(2):
        add_stages(vectors[ROW_ZERO], stages, 16 + q, 1.0, y.size, vectors[ROW_FIVE + q], 0)
    # Directions without a cluster, one of which a neuron may be about to learn.
    active, direction = vector(vectors[ROW_MEAN], 0, system[SIZES][1]), parts(counters, m)[1][2]
    active.fill(1.0)
    for c in range(counters[CLUSTERS]):
        active[direction[c]] = 0.0
    worst, both_poles = 0.0, scalars[BOTH_POLES] > 0.0
    for i in range(m):
        q = m * D + i
        five, three = square(e5[q] / atol[q]), square(e3[q] / atol[q])
        for k in range(i * D, (i + 1) * D):
            scale = 1.0 / (atol[k] + rtol * max(abs(y[k]), abs(new[k])))
            five += square(e5[k] * scale)
            three += square(e3[k] * scale)
        error = combined_error(five, three, h, D + 1.0)
        p, overlap = clusters.nearest_direction(vector(y, i * D, D), both_poles, active)
        if overlap != 0.0:
            k = i * D + p
            scale = 1.0 / (atol[k] + rtol * max(abs(y[k]), abs(new[k])))
            error = max(error, combined_error(square(e5[k] * scale), square(e3[k] * scale), h, 1.0))
        worst = max(worst, error)
    return worst


@pasted_kernel
def attempt(h: float, vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> float:
    """Write the state after a step of length h from ROW_START to `pair.ROW_NEW`; return its error in tolerances."""
    first = vectors[ROW_STAGES]
    copy_row(first, vectors[ROW_RATES_START])
    slow(h, vectors[slots.ROW_START], first, vectors, scalars, counters, system)
    for s in range(1, 12):
        take_stage(s, h, vectors, scalars, counters, system)
    counters[slots.EVALUATIONS] += 11
    # The weights of the new state follow those of the last stage. (For a literal 12 a second copy would be compiled.)
    add_stages(vectors[slots.ROW_START], vectors[ROW_STAGES:ROW_DENSE], s + 1, h, first.size, vectors[pair.ROW_NEW], 0)
    return step_error(h, vectors, scalars, counters, atol, system)


@unit(**EXPLICIT)
def prepare_dense(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> float:
    """Write the coefficients of the polynomial inside the last step, unless they are there.

    Return the estimated error of the polynomial over the relative tolerance.
    """
    m, D, h = system[SIZES][0], system[SIZES][2], scalars[LAST_STEP]
    dense, end = vectors[ROW_DENSE:ROW_ZERO], vectors[ROW_END]
    if counters[slots.DENSE_READY] == 0:
        copy_row(end, vectors[ROW_RATES])
        slow(h, vectors[slots.ROW_STATE], end, vectors, scalars, counters, system)
        for s in range(13, 16):
            take_stage(s, h, vectors, scalars, counters, system)
        counters[slots.EVALUATIONS] += 3
        pair.write_coefficients(h, vectors)
        counters[slots.DENSE_READY] = 1
    worst = 0.0
    for i in range(m):
        total = square(dense[6, m * D + i])
        for k in range(i * D, (i + 1) * D):
            total += square(dense[6, k])
        worst = max(worst, total)
    return float(pair.DOP853_DENSE_ERROR * np.sqrt(worst) / scalars[slots.RTOL])


@pasted_kernel
def begin(vectors: Matrix, scalars: Vector, counters: Integers, atol: Vector, system: System) -> None:
    """Compute the rates at the start, and choose a first step short enough to be linear."""
    m, D = system[SIZES][0], system[SIZES][2]
    y, rates = vectors[slots.ROW_STATE], vectors[ROW_RATES]
    rhs(scalars[slots.TIME], y, rates, system)
    counters[slots.EVALUATIONS] += 1
    copy_row(vectors[slots.ROW_START], y)
    fastest = 1e-290
    for i in range(y.size):
        fastest = max(fastest, abs(rates[i]) * (scalars[slots.RTOL] / atol[0] if i < m * D else 1.0))
    scalars[slots.STEP] = 1e-2 / fastest
    for i in range(m):
        parts(counters, m)[0][i] = -1
    counters[slots.READY] = 1


@unit(**EXPLICIT)
def take_step(target: float, arrays: Arrays, system: System) -> int:
    """Take one accepted step; return the status: that it passed an event, or why no step can be taken.

    If `target` is inside, its polynomial is made; where that is not good enough, as with a stiff mode, the step ends at
    `target`, or after a fifth of its length if `target` comes before that.
    """
    vectors, scalars, counters, atol, events = arrays
    y, t, h = vectors[slots.ROW_STATE], scalars[slots.TIME], scalars[slots.STEP]
    divide_neurons(vectors, scalars, counters, system[PARAMETERS], system[SIZES])
    copy_row(vectors[slots.ROW_START], y)
    copy_row(vectors[ROW_RATES_START], vectors[ROW_RATES])
    planned, most, error = 0.0, LARGEST_FACTOR, 0.0
    scalars[STEP_BEFORE] = scalars[LAST_STEP]
    scalars[slots.TIME_START] = t
    while True:
        if not (h > slots.SMALLEST_STEP * t or (t == 0.0 and h > slots.SMALLEST_STEP_AT_ZERO)):
            copy_row(y, vectors[slots.ROW_START])
            copy_row(vectors[ROW_RATES], vectors[ROW_RATES_START])
            return slots.STATUS_STEP_TOO_SMALL if np.isfinite(h) else slots.STATUS_NOT_FINITE
        error = attempt(h, vectors, scalars, counters, atol, system)
        if error <= 1.0:
            copy_row(y, vectors[pair.ROW_NEW])
            normalise(y, system)
            rhs(t + h, y, vectors[ROW_RATES], system)
            counters[slots.EVALUATIONS] += 1
            scalars[LAST_STEP] = h
            counters[slots.DENSE_READY] = 0
            land_clusters(h, vectors, scalars, counters, system)
            inside = t < target < t + h and h != target - t
            if not inside or prepare_dense(vectors, scalars, counters, system) <= 1.0:
                break
            planned = planned if planned > 0.0 else h
            h = max(target - t, SMALLEST_FACTOR * h)
            continue
        counters[slots.REJECTED] += 1
        factor = SAFETY * error**-0.125 if error < np.inf else 0.0
        h *= max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))
        planned, most = 0.0, 1.0
    scalars[slots.TIME] = t + h
    factor = SAFETY * max(error, 1e-12) ** -0.125
    scalars[slots.STEP] = planned if planned > 0.0 else h * min(most, max(SMALLEST_FACTOR, factor))
    counters[slots.ACCEPTED] += 1
    scalars[END_TIMES + counters[slots.ACCEPTED] % KEPT_TIMES] = t + h
    return slots.STATUS_EVENT if events_passed(t + h, y, events, system) else slots.STATUS_REACHED


@pasted_kernel
def advance(target: float, max_steps: int, arrays: Arrays, system: System) -> int:
    """Take steps until the time reaches `target`, an event is passed, `max_steps` were tried, or none succeeds.

    Return the status, one of `STATUS_…` of the module `step_kernels`.
    """
    vectors, scalars, counters, atol, events = arrays
    if counters[slots.READY] == 0:
        begin(vectors, scalars, counters, atol, system)
        if events_passed(scalars[slots.TIME], vectors[slots.ROW_STATE], events, system):
            return slots.STATUS_EVENT
    last = counters[slots.ACCEPTED] + counters[slots.REJECTED] + max_steps
    while scalars[slots.TIME] < target:
        if counters[slots.ACCEPTED] + counters[slots.REJECTED] >= last:
            return slots.STATUS_MAX_STEPS
        status = take_step(target, arrays, system)
        if status != slots.STATUS_REACHED:
            return status
    return slots.STATUS_REACHED


@unit(**EXPLICIT)
def interpolate(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time t strictly within the last step to `out`."""
    if counters[slots.DENSE_READY] == 0:
        prepare_dense(vectors, scalars, counters, system)
    pair.write_polynomial((t - scalars[slots.TIME_START]) / scalars[LAST_STEP], out, vectors)
    normalise(out, system)


_record_events = event_recorder(interpolate)


@unit(**EXPLICIT)
def record_events(arrays: Arrays, system: System) -> None:
    """Write the times of the events that the last step passed to their row of the events."""
    _record_events(arrays, system)


save_through = saving_steps(advance, interpolate, record_events)


@entry
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    arrays: Arrays,
    rhs: AnyFunction,
    event_values: AnyFunction,
    normalise: AnyFunction,
) -> int:
    """Advance to the last of some increasing `targets`, writing the state at each to a row of `states`.

    Return status + 8 · number of targets passed, the status being one of `STATUS_…` of the module `step_kernels`.
    `max_steps` bounds the steps of the whole call.

    `arrays` are, in this order, five of the method, changed in place: vectors (rows, n), whose rows 0 and 1 are the
    states now and at the start of the last step, scalars, counters, absolute tolerances (n,) and events (3, events),
    rows being time of passing, value now and value at the start of the step; then three of the system: `parameters`,
    `sizes` and `work`. The functions that follow are the system's.
    """
    arrays = unowned_arrays(arrays)
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise)
    return save_through(targets, max_steps, states, arrays[:5], system)


_KEPT = (slots.ROW_STATE, slots.ROW_START, *range(ROW_STAGES, ROW_ZERO), ROW_RATES, ROW_RATES_START, ROW_DRIFT)


class SmallFlowStepper(CompiledStepper):
    """Steps of a small coupled flow, for problems that slowed clusters suit; tolerances as for `LargeFlowStepper`."""

    def __init__(self, problem: Problem, *, rtol: float, atol: float) -> None:
        """Lay out the arrays of the compiled method for a problem's unit vectors (m, D) and ln n (m,).

        Constants of the method, behind its scalars, are the tolerated lag of clusters, whether −θ is as good as θ, and
        the squared Hermite coefficients of the link. Counters hold the groups and clusters of the neurons too.
        """
        system = VectorSystem(problem)
        m, D = system.shape
        squares = np.array(problem.activation.coefficients, dtype=np.float64) ** 2
        layout = Layout(
            rows=SMALL_FLOW_ROWS,
            scalars=BOTH_POLES + 1 + squares.size,
            counters=INTEGERS + 4 * (m + 1) + 1,
            kept=_KEPT,
            statistics=STATISTICS,
        )
        coordinate, relative, norm = tolerances(problem, rtol, atol)
        lag = clusters.NOTICED * clusters.LAG_TOLERANCE * relative / np.sqrt(problem.dimension)
        super().__init__(
            advance_through,
            layout,
            system.initial_state,
            calls.BoundSystem(system),
            tolerances=Tolerances(rtol=relative, atol=np.repeat([coordinate, norm], [m * D, m])),
            num_events=system.num_events,
            t0=0.0,
            constants=[lag, float(problem.activation.parity == "even"), *squares],
            integers=[0] * (m + 1),
            unit_vectors=system,
        )
        self._system_of_vectors = system

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors (m, D) and ln n (m,) at a time within the last step, both ends included."""
        return self._system_of_vectors.unpack(self._within(t))

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        accepted = int(self._counters[slots.ACCEPTED])
        before = END_TIMES + (accepted - STALL_STEPS) % KEPT_TIMES
        return bool(accepted > STALL_STEPS and self.time < clusters.STALL_GAIN * self._scalars[before])
