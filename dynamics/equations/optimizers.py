"""The mean motion of overlaps under optimizers other than plain SGD, and under learning rates that vary.

It is closed wherever that of plain SGD at one rate is, and made of the same N and S: `dynamics.equations.mean_step`.

State: [v (m) | b (m) | M (m, P) | Q (m, m)] of the weights, for committees and homogeneous neurons too, whose v and b
rest. A map adds [v, b, M of u | X_wu | X_uu], and with averages [v, b, M, X_aa of a | X_wa | X_ua]; Adam adds v (m).
`sizes` are `OptimizerCounts`, the table of vectors, and those of the student's system, `parameters` `OptimizerNumbers`,
the nodes, the table of rates, and those of the student's system, and `work` has the scratch of that first.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.equations import committee, finite_step, overlaps
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.mean_step import (
    ADAPTIVE,
    HEADER,
    MAP,
    NUMBERS,
    PLAIN,
    SIGN,
    ZEROTH_ORDER,
    Moments,
    OptimizerCounts,
    OptimizerNumbers,
    add_share,
    counts_of,
    decay_of_map,
    numbers_of,
    write_flow,
    write_map,
)
from dynamics.equations.network import steps
from dynamics.equations.network import system as network
from dynamics.equations.network.families import normalised_overlaps
from dynamics.equations.rates import RateTable
from dynamics.equations.sign_means import (
    Units,
    is_rough,
    is_symmetric,
    lattice,
    value_and_slope,
    write_factor,
    write_sign_rates,
)
from dynamics.kernels.jit import inlined_kernel, kernel, matrix, pasted_kernel, vector
from dynamics.kernels.units import choice
from dynamics.problem import is_homogeneous, is_network
from dynamics.problem.checks import is_at_most, require
from dynamics.problem.optimizers import SGD, Adam, Optimizer, RMSprop, SignSGD, ZerothOrder, check_dense
from hermite.arrays import Array, Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.network.families import NetworkTeacher
    from dynamics.problem import Problem, Student

# What the student's own equations know of a step: N (m, m + P), the Gram matrix C of neurons and directions, and S, of
# a state of the weights; `rates` receives −E ∂_v and −E ∂_b first.


@pasted_kernel
def network_moments(y: Vector, rates: Vector, parameters: Vector, sizes: Integers, work: Vector) -> Moments:
    """Return mean gradients N (m, m + P), the Gram matrix C and mean products of gradients S (m, m) of a network."""
    network.rhs(0.0, y, rates, parameters, sizes, work)
    S = steps.write_step_second(y, parameters, sizes, work)
    C, _, _, _, _, N, _ = network.views(sizes, work)
    return N, C, S


@pasted_kernel
def committee_moments(y: Vector, rates: Vector, parameters: Vector, sizes: Integers, work: Vector) -> Moments:
    """Return mean gradients N (m, m + P), the Gram matrix C and mean products of gradients S (m, m) of a committee."""
    m = committee.counts_of(sizes).width
    committee.rhs(0.0, vector(y, 2 * m, y.size - 2 * m), rates, parameters, sizes, work)
    S = committee.write_step_second(parameters, sizes, work)
    for i in range(2 * m):
        rates[i] = 0.0
    C, _, N, _, _, _ = committee.work_of(sizes, work)
    return N, C, S


@kernel
def overlaps_of(y: Vector, out: Vector, m: int, P: int) -> None:
    """Write overlaps C (m, P) and G (m, m) and ln n (m,) to `out`, from a state of weights [v | b | M | Q].

    C = M/ρ, G = Q/(ρρᵀ), n = ρ² = diag Q.
    """
    M, Q = matrix(y, 2 * m, m, P), matrix(y, 2 * m + m * P, m, m)
    C, G = matrix(out, 0, m, P), matrix(out, m * P, m, m)
    for i in range(m):
        out[m * P + m * m + i] = math.log(Q[i, i])
        for p in range(P):
            C[i, p] = M[i, p] / math.sqrt(Q[i, i])
        for j in range(m):
            G[i, j] = Q[i, j] / math.sqrt(Q[i, i] * Q[j, j]) if i != j else 1.0


@pasted_kernel
def homogeneous_moments(y: Vector, rates: Vector, parameters: Vector, sizes: Integers, work: Vector) -> Moments:
    """Return mean gradients N (m, m + P), the Gram matrix C and mean products of gradients S of homogeneous neurons.

    N and S are NaN once the weights blew up.
    """
    m, P = sizes[0], sizes[1]
    size = m * P + m * m + m
    state = vector(work, work.size - size, size)
    overlaps_of(y, state, m, P)
    for i in range(2 * m):
        rates[i] = 0.0
    C, N, _, S = finite_step.write_second(state, parameters, sizes, vector(work, 0, work.size - size))
    for i in range(m):
        rho = math.exp(0.5 * state[size - m + i])
        for j in range(m):
            rho_j = math.exp(0.5 * state[size - m + j])
            S[i, j] *= rho * rho_j
            N[i, j] *= rho / rho_j
            C[i, j] *= rho * rho_j
        for p in range(P):
            N[i, m + p] *= rho
            C[i, m + p] *= rho
            C[m + p, i] *= rho
    if finite_step.is_blown_up(state, parameters, m, P):
        N.fill(np.nan)
        S.fill(np.nan)
    return N, C, S


# Means over nodes, of zeroth order at λ > 0, for networks. `nodes` holds (weight | z) of each, z the
# projections of x on the teacher's axes and on the m axes of the neurons beyond them, then the ζ_i. Vectors are those
# of `dynamics.equations.network.steps`, of which the kinds stand in its `layout`.


@kernel
def error_at(
    node: Vector, shift: float, y: Vector, scale: float, L: Matrix, units: Units, table: Integers, means: Vector,
    z: Vector,
) -> float:  # fmt: skip
    """Return f − f* at a node, with `shift` ζ_i added to the input of each neuron i.

    A node is [weight | projections of x | ζ]; y begins with second layer v and biases, `scale` is the output scale, L
    the factor of the neurons beyond the teacher's axes, and `units`, `table` and `means` describe the teacher's units
    and all links.

    Projections w_i·x + shift ζ_i of the neurons, without biases, and θ·x + β of the units are written to `z`.
    """
    (amplitudes, biases, theta), error = units, 0.0
    m, P = z.size - amplitudes.size, theta.shape[1]
    M = matrix(y, 2 * m, m, P)
    for a in range(z.size):
        kind, place, degree = table[3 * a], table[3 * a + 1], table[3 * a + 2]
        weight, bias = (scale * y[a], y[m + a]) if a < m else (amplitudes[a - m], 0.0)
        z[a] = biases[a - m] if a >= m else shift * node[1 + P + m + a] if shift != 0.0 else 0.0
        for p in range(P):
            z[a] += (M[a, p] if a < m else theta[a - m, p]) * node[1 + p]
        for k in range(a + 1 if a < m else 0):
            z[a] += L[a, k] * node[1 + P + k]
        error += weight * value_and_slope(kind, z[a] + bias, vector(means, place, degree + 1))[0]
    return error


@inlined_kernel
def views_of_nodes(
    y: Vector, parameters: Vector, sizes: Integers, of_network: tuple[Vector, Integers], own: Vector
) -> tuple[Matrix, Units, Integers, Vector, Matrix]:
    """Return five views: nodes (n, 1 + axes), the teacher's units, the table of links, their mean derivatives, and L.

    L (m, m), which is written, is the triangular factor of the neurons beyond the teacher's axes.
    """
    counts, (numbers, student_sizes) = counts_of(sizes), of_network
    m, P, step = counts.width, counts.axes, steps.step_numbers(numbers, student_sizes)
    units = step.weight, step.bias, step.theta
    nodes, L = matrix(parameters, NUMBERS, counts.nodes, 1 + counts.node_axes), matrix(own, m * m, m, m)
    means = vector(parameters, NUMBERS + nodes.size, counts.own - NUMBERS - nodes.size)
    write_factor(matrix(y, 2 * m + m * P, m, m), matrix(y, 2 * m, m, P), L)
    return nodes, units, vector(sizes, HEADER, 3 * (m + step.weight.size)), means, L


@choice()
def sum_nodes(
    y: Vector, parameters: Vector, sizes: Integers, of_network: tuple[Vector, Integers], own: Vector
) -> float:
    """Return d² E(ℓ₊ − ℓ₋)²/(4λ²), the mean square of a zeroth-order gradient of smoothing λ along one direction.

    ℓ± is the loss of a sample with all weights shifted by ±λ along a random direction; the mean is a sum over the nodes
    in `parameters`. y begins with the state [v | b | M | Q], `of_network` is (parameters, sizes) of the student's
    system, and `own` is scratch.
    """
    m, (numbers, student_sizes), optimizer = counts_of(sizes).width, of_network, numbers_of(parameters)
    scale, noise = network.rates_of(numbers).scale, steps.step_numbers(numbers, student_sizes).noise
    nodes, units, table, means, L = views_of_nodes(y, parameters, sizes, of_network, own)
    z = vector(own, 2 * m * m, m + units[0].size)
    d, shift, total = optimizer.dimension, optimizer.smoothing, 0.0
    for n in range(nodes.shape[0]):
        above = error_at(nodes[n], shift, y, scale, L, units, table, means, z)
        below = error_at(nodes[n], -shift, y, scale, L, units, table, means, z)
        total += nodes[n, 0] * 0.25 * (above - below) ** 2 * ((above + below) ** 2 + 4.0 * noise)
    return float(d * d * total / (4.0 * shift * shift))


@choice()
def write_signs(
    y: Vector, out: Vector, parameters: Vector, sizes: Integers, of_network: tuple[Vector, Integers], own: Vector
) -> None:
    """Write the rates of the state [v | b | M | Q] of a network under sign SGD to `out`."""
    (numbers, student_sizes), optimizer = of_network, numbers_of(parameters)
    scale, noise = network.rates_of(numbers).scale, steps.step_numbers(numbers, student_sizes).noise
    lattices, units, table, means, L = views_of_nodes(y, parameters, sizes, of_network, own)
    rate, d = optimizer.rate, optimizer.dimension
    write_sign_rates(lattices[0], rate, d, y, scale, noise, units, (table, means), L, out)


@inlined_kernel
def inner(parameters: Vector, sizes: Integers, work: Vector) -> tuple[Vector, Integers, Vector]:
    """Return views of `parameters`, `sizes` and `work` that belong to the student's own system."""
    counts = counts_of(sizes)
    numbers_size, first = counts.own, HEADER + counts.table
    numbers, student_sizes = (
        vector(parameters, numbers_size, parameters.size - numbers_size),
        vector(sizes, first, sizes.size - first),
    )
    return numbers, student_sizes, vector(work, 0, counts.scratch)


@inlined_kernel
def write_rates(
    moments: Callable[..., Moments], t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Write the rates of the integrated state, from the moments of a student's gradients.

    For a map they are (F(y) − y)/η of one step, or, if the flow through several steps is asked for, the rates of that.

    Of a map that is (F(y) − y)/η for one step, and for more the rates of the flow that it follows.
    """
    counts, (rate, _, _, _, _, _, _, _, smoothing, _) = counts_of(sizes), numbers_of(parameters)
    m, size, rule = counts.width, counts.state, counts.rule
    numbers, student_sizes, scratch = inner(parameters, sizes, work)
    own_work = vector(work, scratch.size, work.size - scratch.size)
    if rule == SIGN:
        write_signs(y, out, parameters, sizes, (numbers, student_sizes), own_work)
        return
    spread, moment_state, map_state = 0.0, vector(y, 0, size), vector(y, 0, y.size)
    if smoothing > 0.0:
        spread = sum_nodes(y, parameters, sizes, (numbers, student_sizes), own_work)
        moment_state = vector(own_work, own_work.size - size, size)
        for x in range(size):
            moment_state[x] = y[x]
        for i in range(m):
            moment_state[size - m * m + i * m + i] += smoothing**2
    count, total = counts.steps, vector(own_work, own_work.size - y.size, y.size)
    if count > 1:
        map_state = vector(own_work, own_work.size - 2 * y.size, y.size)
        moment_state = vector(map_state, 0, size)
        for x in range(y.size):
            map_state[x] = y[x]
    for k in range(count):
        gradient_moments = moments(moment_state, vector(out, 0, size), numbers, student_sizes, scratch)
        if rule == MAP:
            write_map(t + k * rate, map_state, out, gradient_moments, parameters, sizes, own_work)
        else:
            write_flow(t, y, out, gradient_moments, spread, parameters, sizes, own_work)
        if count > 1:
            add_share(k, map_state, out, rate, total, count)
    for x in range(y.size if count > 1 else 0):
        out[x] = total[x]


@kernel
def network_rates(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of a network's state under an optimizer."""
    write_rates(network_moments, t, y, out, parameters, sizes, work)


@kernel
def committee_rates(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of a committee's state under an optimizer."""
    write_rates(committee_moments, t, y, out, parameters, sizes, work)


@kernel
def homogeneous_rates(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the rates of the state of homogeneous neurons under an optimizer."""
    write_rates(homogeneous_moments, t, y, out, parameters, sizes, work)


# Events are those of the student, at the weights.


@kernel
def network_events(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the event values of a network at its weights."""
    numbers, student_sizes, scratch = inner(parameters, sizes, work)
    network.event_values(t, vector(y, 0, counts_of(sizes).state), out, numbers, student_sizes, scratch)


@kernel
def committee_events(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the event values of a committee at its weights."""
    (numbers, student_sizes, scratch), counts = inner(parameters, sizes, work), counts_of(sizes)
    committee.event_values(
        t, vector(y, 2 * counts.width, counts.state - 2 * counts.width), out, numbers, student_sizes, scratch
    )


@kernel
def homogeneous_events(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the event values of homogeneous neurons at their weights."""
    (numbers, student_sizes, scratch), counts = inner(parameters, sizes, work), counts_of(sizes)
    m, P = counts.width, counts.axes
    state = vector(scratch, scratch.size - m * (P + m + 1), m * (P + m + 1))
    overlaps_of(y, state, m, P)
    overlaps.event_values(t, state, out, numbers, student_sizes, scratch)


#: Largest κ = (1 − β2) d: at 20 the mean square of 25 samples makes runs 9 % later than the equation.
LARGEST_FORGETTING = 5.0
#: Nodes of smoothed zeroth order at most.
MOST_NODES = 10**6
#: Axes of nodes -> points of Gauss–Hermite's rule on each.
POINTS = {2: 60, 3: 32, 4: 20}
#: The right-hand side of steps of a student's system -> the functions under an optimizer.
OPTIMIZED = {
    steps.rhs: Functions(network_rates, network_events),
    committee.step_rhs: Functions(committee_rates, committee_events),
    finite_step.rhs: Functions(homogeneous_rates, homogeneous_events),
}
#: Steps of a map from which the flow through all of them is known: its next term is that of the error.
TERMS = 3
RULES = {SGD: MAP, ZerothOrder: ZEROTH_ORDER, Adam: ADAPTIVE, RMSprop: ADAPTIVE, SignSGD: SIGN}


def optimized_system(
    problem: Problem, learning_rate: float | RateTable, step_theory: str, batch_size: int, optimizer: Optimizer
) -> OptimizedSystem:
    """Return the equations of the mean motion of the student's overlaps under SGD with an optimizer.

    `learning_rate` is η, or a table of rates that vary over the run; `step_theory` is "infinite-d" or "finite-d", and
    `batch_size` the number of samples per step. ValueError, with the reason, is raised for problems and optimizers for
    which the motion of the overlaps depends on more than the overlaps, and for varying rates with optimizers other than
    plain SGD and ZerothOrder.
    """
    if isinstance(learning_rate, RateTable):
        require(
            optimizer.is_plain or isinstance(optimizer, ZerothOrder),
            "Argument `learning_rate` must be one number for an optimizer other than plain SGD and ZerothOrder, but "
            f"varies for {optimizer}.",
        )
    _check(problem, step_theory, batch_size, optimizer)
    make: Any = committee.CommitteeSystem
    if is_network(problem):
        make = steps.NetworkStepSystem
    elif is_homogeneous(problem):
        make = finite_step.FiniteStepSystem
    base = make(problem, 1.0, step_theory, batch_size)
    return OptimizedSystem(base, OPTIMIZED[base.functions.rhs], learning_rate, optimizer)


def _check(problem: Problem, step_theory: str, batch_size: int, optimizer: Optimizer) -> None:
    """Raise ValueError if the equations of a problem do not close under an optimizer.

    `step_theory` is "finite-d" or "infinite-d". All optimizers but plain SGD at one rate need isotropic inputs and a
    first layer that is not held on the sphere. Beyond that, SGD with momentum or averages needs nothing. ZerothOrder at
    "finite-d" needs a first layer that is trained alone, without decay, and its smoothing is 0, but for a network at
    "infinite-d" with one sample and one direction per step. The others need "infinite-d" and a first layer that is
    trained alone, without decay; of them Adam and RMSprop need links that are no polynomials and a long memory of mean
    squares, (1 − β_2) d ≤ `LARGEST_FORGETTING`, and SignSGD a network with label noise.
    """
    student = problem.student
    name = "a learning rate that varies" if optimizer.is_plain else type(optimizer).__name__
    require(
        problem.inputs is None,
        f"Argument `problem` must have isotropic inputs for {name}, but has {problem.inputs!r}.",
    )
    layered, decays = False, False
    if is_network(problem):
        network = cast("Student", student)
        reason = "which is not known" if optimizer.is_plain else "since no buffer or direction stays"
        require(
            network.first_layer == "free",
            f"Argument `problem` must have a student with a free first layer for {name}, {reason} on the sphere.",
        )
        layered = network.second_layer == "trained" or network.biases == "trained"
        decays = any(network.decay)
    if isinstance(optimizer, SGD):
        return
    exact = step_theory == "finite-d"
    if isinstance(optimizer, ZerothOrder):
        require(
            not (decays and exact),
            "Argument `problem` must have a student without decay for ZerothOrder at 'finite-d', since no direction "
            f"sees decay, but has {student!r}.",
        )
        require(
            not (layered and exact),
            f"Argument `problem` must have a first layer that is trained alone for {name}, whose directions reach all "
            "trained weights; with 'infinite-d' those of the first layer alone count.",
        )
        smooth = optimizer.smoothing > 0.0
        closed = not exact and batch_size == 1 and optimizer.directions == 1 and is_network(problem)
        require(
            closed or not smooth,
            "Argument `optimizer` must have smoothing 0 except for a network, 'infinite-d', one sample and one "
            "direction per step.",
        )
        return
    require(not decays, f"Argument `problem` must have a student without decay for {name}, but has {student!r}.")
    require(
        not exact,
        f"Argument `step_theory` must be 'infinite-d' for {name}, whose overlaps close as d grows alone, but is "
        f"{step_theory!r}.",
    )
    check_dense(optimizer, problem, batch_size)
    require(
        not layered,
        f"Argument `problem` must have a student of which the first layer alone is trained for {name}: mean squares of "
        "other layers do not close.",
    )
    if isinstance(optimizer, Adam | RMSprop):
        links = [problem.activation, *(unit.link for unit in problem.teacher.units(problem.teacher_link))]
        of_polynomials = problem.teacher.target is not None or any(link.is_polynomial for link in links)
        require(
            not of_polynomials,
            f"Argument `problem` must have links that are no polynomials for {name}, since mean squares of gradients "
            "of polynomials come from rare samples, which runs have not seen.",
        )
        kappa = (1.0 - optimizer.beta2) * problem.dimension
        require(
            is_at_most(kappa, LARGEST_FORGETTING, problem.dimension),
            f"Argument `optimizer` must have (1 - beta2) d <= {LARGEST_FORGETTING:g}: with fewer samples in its mean "
            f"squares runs lag behind the equation; it has {kappa:.6g}.",
        )
        return
    require(is_network(problem), f"Argument `problem` must have a Student for {name}, but has {student!r}.")
    require(
        problem.label_noise > 0.0,
        "Argument `problem` must have label noise for SignSGD, whose means are smooth with it alone, but has none.",
    )


class OptimizedSystem(FlowSystem):
    """The mean motion of a student's system under an optimizer; observables are those of that system at the weights."""

    name = "optimized"
    falls = False
    against_clusters = FlowSystem.against_clusters

    def __init__(self, base: Any, functions: Functions, learning_rate: float | RateTable, optimizer: Optimizer) -> None:
        """Prepare the motion of the student's system `base` under an optimizer, at one rate or those of a table.

        `base` is the system of mean steps at the learning rate 1, whose own right-hand side gives the moments of
        gradients, and `functions` are the kernels of `OPTIMIZED` for it. The state begins with the weights' overlaps [v
        | b | M | Q]; a rule that is a map, such as momentum, adds those of its buffer u, averages add those of the
        averaged weights a, and Adam and RMSprop one mean square per neuron, as the module's head lists them. `sizes` =
        [counts | table of vectors | sizes of `base`] and `parameters` = [numbers | nodes of the means of the rule |
        mean derivatives of links | table of rates | parameters of `base`].
        """
        self._base, self.problem = base, base.problem
        problem, sgd = base.problem, optimizer if isinstance(optimizer, SGD) else SGD()
        m, P = problem.width, base.sizes[1]
        self._averages, self._rule = sgd.average is not None, _rule_of(optimizer)
        mP, mm = m * P, m * m
        weights = np.array(base.initial_state)
        if is_homogeneous(problem):
            C, G, n = base.unpack(weights)
            rho = np.sqrt(n)
            weights = np.concatenate([(rho[:, None] * C).ravel(), (np.outer(rho, rho) * G).ravel()])
        if not is_network(problem):
            weights = np.concatenate([np.repeat([1.0, 0.0], m), weights])
        state = [weights]
        if self._rule == MAP:
            state.append(np.zeros(2 * m + mP + 2 * mm))
        if self._averages:
            state += [weights, weights[2 * m + mP :], np.zeros(mm)]
        if self._rule == ADAPTIVE:
            state.append(np.zeros(m))
        self.initial_state: Array = np.concatenate(state)
        zeroth_order = optimizer if isinstance(optimizer, ZerothOrder) else ZerothOrder()
        smoothing = zeroth_order.smoothing
        nodes, table, means = _nodes_of(base, self._rule, smoothing)
        rules: list[Any] = [{MAP: write_map, SIGN: write_signs}.get(self._rule, write_flow)]
        rules += [sum_nodes] if smoothing > 0.0 else []
        self.functions = replace(functions, choices=(*(base.functions.choices or ()), *rules))
        of_buffer, of_gradient = (sgd.momentum, 1.0) if sgd.nesterov else (1.0, 0.0)
        alpha = sgd.average if isinstance(sgd.average, float) else 0.0
        varying = learning_rate.nodes if isinstance(learning_rate, RateTable) else np.empty(0)
        rate = learning_rate.peak if isinstance(learning_rate, RateTable) else learning_rate
        beta2 = optimizer.beta2 if isinstance(optimizer, Adam | RMSprop) else 0.0
        numbers = OptimizerNumbers(
            rate, sgd.momentum, 1.0 - sgd.dampening, of_buffer, of_gradient, alpha, problem.dimension,
            zeroth_order.directions, smoothing, 1.0 - beta2,
        )  # fmt: skip
        optimizer_parameters = np.concatenate([numbers, nodes.ravel(), means, varying])
        scratch = base.work_size + base.initial_state.size
        self.counts = OptimizerCounts(
            m, P, self._rule, int(self._averages), optimizer_parameters.size, scratch, weights.size, len(nodes),
            max(nodes.shape[1] - 1, 0), table.size, varying.size, 1,
        )  # fmt: skip
        self.parameters: Array = np.concatenate([optimizer_parameters, base.parameters])
        self.sizes: Integers = np.concatenate([self.counts, table, base.sizes]).astype(np.int64)
        self.work_size = scratch + 3 * m * (m + P) + 4 * m + table.size + weights.size
        self.work_size += 2 * self.initial_state.size if self._rule == MAP else 0
        self.num_events = base.num_events
        self.teacher_by_degree = base.teacher_by_degree
        if self._rule == SIGN:
            self.seconds_of_rates, error = nodes[0, -2:].tolist()
            self.notes = (f"rates of sign SGD are sums over nodes, with errors up to about {error:.0e}",)

    def smooth(self) -> OptimizedSystem:
        """Return the flow that goes through the steps of a map, to the order `TERMS` in the change of a step."""
        flow = copy(self)
        flow.functions = replace(self.functions, jacobian_diagonal=decay_of_map)
        flow.counts = self.counts._replace(steps=TERMS)
        flow.sizes = np.concatenate([flow.counts, self.sizes[HEADER:]])
        return flow

    def of_student(self, state: Array, *, average: bool = False) -> Array:
        """Return the state of the student's own system, at the weights or, with `average`, at their averages."""
        m, P, size = self.counts.width, self.counts.axes, self.counts.state
        first = size + 2 * m + m * P + 2 * m * m if average else 0
        weights = state[first : first + size]
        if is_network(self.problem):
            return weights
        if not is_homogeneous(self.problem):
            return weights[2 * m :]
        M, Q = weights[2 * m : 2 * m + m * P].reshape(m, P), weights[2 * m + m * P :].reshape(m, m)
        C, G, n = normalised_overlaps(M, Q)
        return np.concatenate([C.ravel(), G.ravel(), np.log(n)])

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` for v and b, and in units of 1/√d for all else."""
        tolerance = super().absolute_tolerance(atol)
        tolerance[: 2 * self.problem.width] = atol
        return tolerance

    def stiffness(self) -> float:
        """Return the fastest relaxation rate in units of 1/t, divided by the label noise for Adam and sign SGD.

        Their steps divide the gradient by its size, which ends near the label noise; noise below .1 counts as .1.
        """
        rate = float(self._base.stiffness())
        return rate if self._rule in (MAP, ZEROTH_ORDER, PLAIN) else rate / max(self.problem.label_noise, 0.1)

    def observer(self, keep: str, *monitored: object) -> Callable[[Array], dict[str, object]]:
        """Return a function from a state (n,) to the dict of its observables, by name.

        They are those of the student's own system, to whose `observer` `keep` and `monitored` are passed, and
        `average_loss`, the loss at the averaged weights, if the optimizer averages.
        """
        observe = self._base.observer(keep, *monitored)

        def observed(state: Array) -> dict[str, object]:
            """Return the observables of a state, with the loss of averaged weights if there are any."""
            record = dict(observe(self.of_student(state)))
            if self._averages:
                record["average_loss"] = self._loss_of(self.of_student(state, average=True))
            return record

        return observed

    def _loss_of(self, state: Array) -> float:
        """Return E(f − f*)² of a state of the student's system."""
        base = self._base
        return float(base.loss(state) if is_network(self.problem) else base.loss(*base.unpack(state)))

    def loss(self, state: Array) -> float:
        """Return E(f − f*)² at the weights of a state."""
        return self._loss_of(self.of_student(state))

    loss_of_state = loss

    def loss_of_states(self) -> Callable[[Array], float]:
        """Return the function that gives the loss of a state."""
        return self.loss

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the result of `unpack` of the student's system at the weights."""
        return tuple(self._base.unpack(self.of_student(state)))

    def series_error(self, state: Array) -> float:
        """Return a bound on the error of means that are series, of a network."""
        return float(self._base.series_error(self.of_student(state)))

    @property
    def teacher(self) -> NetworkTeacher:
        """The teacher of a network."""
        return cast("NetworkTeacher", self._base.teacher)

    @property
    def teacher_term(self) -> float:
        """E f*² of homogeneous neurons."""
        return float(self._base.teacher_term)

    def teacher_sensitivity(self) -> Array:
        """Return the eigenvalues of E ∂_a f* ∂_b f* of a network's teacher."""
        return np.asarray(self._base.teacher_sensitivity())


def _rule_of(optimizer: Optimizer) -> int:
    """Return the rule of an optimizer, or of that from which its class derives."""
    return PLAIN if optimizer.is_plain else next(rule for kind, rule in RULES.items() if isinstance(optimizer, kind))


def _nodes_of(base: Any, rule: int, smoothing: float) -> tuple[Array, Integers, Array]:
    """Return nodes (n, 1 + axes), the table of links (3 (m + U),) and their mean derivatives, for sums over nodes.

    Other rules get empty arrays. Of sign SGD the nodes are the entries of one `Lattice`.
    """
    if rule != SIGN and smoothing == 0.0:
        return np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0)
    problem = base.problem
    m, P = problem.width, base.sizes[1]
    axes = 2 * m + P
    links = [steps.step_link(problem.activation)] * m + [unit.link for unit in steps.step_units(problem)]
    numbers = [link.numbers or (0.0,) for link in links]
    places = np.cumsum([0, *map(len, numbers[:-1])])
    table = np.array([[link.kind, at, link.degree] for link, at in zip(links, places, strict=True)], dtype=np.int64)
    if rule == SIGN:
        units, start = steps.step_units(problem), base.initial_state
        biased = bool(np.any(start[m : 2 * m])) or any(unit.bias for unit in units)
        amplitudes = np.abs(cast("Student", problem.student).output_scale * start[:m])
        largest = float(max([*amplitudes, *(abs(unit.coefficient) for unit in units)]))
        symmetric, rough = is_symmetric(links, biased=biased), any(is_rough(link) for link in links)
        rule_numbers = lattice(m + P, problem.label_noise, largest, symmetric=symmetric, rough=rough)
        return np.array([rule_numbers]), table.ravel(), np.concatenate(numbers)
    points, weights = np.polynomial.hermite_e.hermegauss(POINTS.get(axes, 20))
    weights = weights / weights.sum()
    require(
        points.size**axes <= MOST_NODES,
        f"Argument `problem` must have fewer neurons and directions, since means are sums over nodes on {axes} axes: "
        f"it would take {points.size}^{axes}, more than {MOST_NODES:.0e}.",
    )
    grids = np.meshgrid(*[points] * axes, indexing="ij"), np.meshgrid(*[weights] * axes, indexing="ij")
    nodes = np.stack([np.prod(grids[1], axis=0), *grids[0]], axis=-1).reshape(-1, axes + 1)
    counted = nodes[:, 0] > 1e-18 * nodes[:, 0].max()
    return np.ascontiguousarray(nodes[counted]), table.ravel(), np.concatenate(numbers)
