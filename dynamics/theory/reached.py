"""The limit of the learning rate of a network: at the state that its flow reaches, and at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from dynamics.problem import Problem, Student, is_network, is_spherical
from dynamics.problem.checks import check_memory
from dynamics.theory.components import default_network_schedule
from dynamics.theory.converged import points
from dynamics.theory.stability import Samples, mean_square_limit

if TYPE_CHECKING:
    from hermite.arrays import Array

#: Accuracy of the flow to the state, and steps between two looks at most.
RTOL, ATOL, MOST_STEPS = 1e-4, 1e-6, 20_000
#: Shares of the default times at which the loss is looked at, and the part of E f*² at which the teacher is learned.
SHARES, LEARNED = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 3e-3
#: Part of the largest eigenvalue of Q − MMᵀ below which an axis beyond the teacher's counts as empty.
EMPTY_AXIS = 1e-8
#: Points of a mean, of many functions fewer.
POINTS, FEW_POINTS, MANY_FUNCTIONS = 2**14, 2**12, 96


class NetworkLimit(NamedTuple):
    """Limits of the learning rate at the state that the flow reaches, and at the start; the smaller one counts."""

    reached: float
    start: float


def network_limit(problem: Problem, batch_size: int) -> NetworkLimit:
    """Return the limits of mean-square stability of SGD of a network, a committee or the spherical student.

    A deviation δ of the parameters changes f by ∇f·δ; second derivatives, which f − f* multiplies, are left out.
    ValueError is raised where the flow is not known or does not get to its end.
    """
    asked = as_network(problem)
    v, b, weights = asked.network_start()
    return NetworkLimit(
        _limit_at(asked, reached_state(asked), batch_size),
        _limit_at(asked, (v, b, weights[:, : asked.teacher.span], weights @ weights.T), batch_size),
    )


def as_network(problem: Problem) -> Problem:
    """Return the problem with a committee or the spherical student as a `Student` with its second layer fixed."""
    if is_network(problem):
        return problem
    m, on_sphere, weights = problem.width, is_spherical(problem), problem.reduced_weights()
    check_memory("dimension", problem.dimension, float(m) * problem.dimension)
    student = Student(
        activation=problem.activation,
        width=m,
        second_layer="fixed",
        initial_second_layer=np.ones(m),
        first_layer="sphere" if on_sphere else "free",
        scale="1/m" if on_sphere else 1.0,
        rates="mean-field" if on_sphere else (1.0, 1.0, 1.0),
    )
    return Problem(
        student=student,
        teacher=problem.teacher,
        teacher_activation=problem.teacher_activation,
        dimension=problem.dimension,
        initial_weights=np.pad(weights, ((0, 0), (0, problem.dimension - weights.shape[1]))),
    )


def reached_state(problem: Problem) -> tuple[Array, ...]:
    """Return v, b, M and Q of a network where its flow has learned its teacher, or at the end of its default times."""
    # Imported here because a limit of named students needs no compiler.
    from dynamics.equations.network.system import NetworkSystem
    from dynamics.integrators.methods import FlowMethod
    from dynamics.integrators.stepper import Status

    system, last = NetworkSystem(problem), float(default_network_schedule(problem).times[-1])
    stepper = FlowMethod(system, "bdf", ATOL, last_time=last).stepper(RTOL)
    state = system.initial_state
    for time in last * np.array(SHARES):
        if stepper.advance(time, MOST_STEPS) is not Status.REACHED:
            msg = f"Argument `problem` must have a flow that goes on to t = {last:.4g} for a learning-rate limit."
            raise ValueError(msg)
        state = stepper.interpolate(time)
        if system.loss(state) <= LEARNED * system.teacher.square:
            break
    return system.unpack(state)


def _limit_at(problem: Problem, state: tuple[Array, ...], batch_size: int) -> float:
    """Return the limit with deviations about v, b, M and Q; those within the span of neurons count as outside."""
    (v, b, M, Q), student, link = state, cast("Student", problem.student), problem.activation
    of_w, of_v, of_b = np.sqrt(student.learning_rates) * student.output_scale
    rest, axes = np.linalg.eigh(Q - M @ M.T)
    used = rest > EMPTY_AXIS * max(float(rest[-1]), float(np.diag(Q).max()))
    weights = np.hstack([M, axes[:, used] * np.sqrt(rest[used])])
    count = v.size * (1 + (of_v > 0.0) + (of_b > 0.0))
    x, probability = points(weights.shape[1], POINTS if count <= MANY_FUNCTIONS else FEW_POINTS)
    z = x @ weights.T + b
    slope = link.derivative(z) * v
    parts = [values for rate, values in ((of_w, of_w * slope), (of_b, of_b * slope)) if rate > 0.0]
    parts += [of_v * link.value(z)] if of_v > 0.0 else []
    beyond = np.arange(len(parts) * v.size) < (v.size if of_w > 0.0 else 0)
    return mean_square_limit(Samples(np.hstack(parts), probability, beyond), float(problem.dimension), batch_size)
