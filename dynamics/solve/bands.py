"""Bands of single runs around the mean path of SGD: `bands` of `solve_network`, `solve_overlaps`, `solve_committee`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dynamics.equations.sample_noise import NetworkParts, Numbers, StepNoise, slack, uniform_covariance
from dynamics.integrators.system_calls import BoundSystem
from dynamics.problem.checks import require
from dynamics.theory.bands import MOST_NUMBERS, USUAL_STEPS, Bands, MeanMotion, Scatter, gradients_of
from dynamics.threads import interruption
from hermite.arrays import Array
from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.equations.interface import FlowSystem
    from dynamics.equations.network.points import PointSystem
    from dynamics.integrators import Stepper
    from dynamics.problem import Problem, Student
    from dynamics.solve.steps import StepSettings

#: Values of the argument `bands`.
ANY_SIZE, UNIFORM = "any size", "uniform start"
CHOICES = (False, True, ANY_SIZE, UNIFORM)
#: Tolerance of the mean path that bands follow.
RTOL = 1e-6
#: Largest overlap of a neuron with a direction or another neuron, at which a start counts as the mean of uniform ones.
NO_OVERLAP = 1e-12

#: Values of the dataset, saved times, end of the run -> variables, and whether they were given up.
BandValues = Callable[[Mapping[str, object], Array, float], tuple[Mapping[str, object], bool]]


def checked_bands(problem: Problem, step: StepSettings, bands: object, method: str) -> object:
    """Return the value of the argument `bands`; ValueError where theory has none for these steps."""
    require(
        any(bands is choice or (isinstance(bands, str) and bands == choice) for choice in CHOICES),
        f"Argument `bands` must be one of True, False, {ANY_SIZE!r} or {UNIFORM!r}, but is {shown(bands)}.",
    )
    if bands is False:
        return bands
    require(
        step.learning_rate is not None,
        "Argument `learning_rate` must be given for `bands`, since only steps on samples scatter runs, but is None.",
    )
    require(
        step.step_theory is not None,
        f"Argument `method` must be one of steps on samples for `bands`, but is {method!r}.",
    )
    require(step.is_plain, f"Argument `optimizer` must be plain SGD for `bands`, but is {step.optimizer}.")
    require(step.varying is None, f"Argument `learning_rate` must be one number for `bands`, but is {step.varying!r}.")
    require(
        problem.covariance is None,
        f"Argument `problem` must have isotropic inputs or a Mixture for `bands`, but has {problem.inputs!r}.",
    )
    require(
        len(problem.phases()) == 1,
        "Argument `bands` must be False for a student that is trained layer by layer, whose noise changes midway, but "
        f"is {bands!r}.",
    )
    require(
        not method.startswith("scipy:") and method != "sundials",
        f"Argument `method` must be one that can go back to an earlier state for `bands`, but is {method!r}.",
    )
    m, r, d = problem.width, problem.teacher.span, problem.dimension
    require(
        d >= m + r,
        f"Argument `problem` must have at least m + r = {m + r} dimensions for `bands`, but has d = {d}.",
    )
    N = count_numbers(problem)
    require(
        N <= MOST_NUMBERS or bands == ANY_SIZE,
        f"Argument `bands` must be {ANY_SIZE!r} for more than {MOST_NUMBERS} numbers, but the student has {N}, which "
        f"take 4 N = {4 * N} evaluations of the mean step at each of some {2 * USUAL_STEPS} times.",
    )
    return bands


def count_numbers(problem: Problem) -> int:
    """Return the number N of numbers of a network that move under SGD, of which bands are the covariance."""
    m, P = problem.width, problem.teacher.span if problem.kind == "network" else problem.num_directions
    V, square = np.zeros((problem.num_outputs, m)), np.eye(m)
    start = NetworkParts(V, np.zeros(m), np.zeros((m, P)), square)
    return _numbers(problem, start).size


def stored_bands(bands: object) -> dict[str, object]:
    """Return the argument `bands` as files store it; without bands they store nothing, as before there were any."""
    return {} if bands is False else {"bands": bands}


def band_values(
    problem: Problem, step: StepSettings, bands: object, system: FlowSystem, stepper: Callable[[float], Stepper],
    keep: str,
) -> BandValues | None:  # fmt: skip
    """Return the function that makes the variables of bands; None where none are asked for.

    `system` holds the mean steps, and `stepper` makes a stepper of them at a tolerance.
    """
    if bands is False:
        return None
    motion = mean_motion(problem, step, system)
    start = np.zeros((motion.numbers.size,) * 2)
    if bands == UNIFORM:
        _, _, M, Q = motion.numbers.start
        largest = max(float(np.abs(M).max()), float(np.abs(Q - np.diag(np.diag(Q))).max()))
        require(
            largest <= NO_OVERLAP,
            f"Argument `bands` must not be {UNIFORM!r} unless the problem starts at the mean of uniform starts, where "
            f"neurons have no overlaps, such as orthogonal `initial_weights`, but the largest is {largest:.3g}.",
        )
        start = uniform_covariance(motion.numbers) / problem.dimension

    def values(answer: Mapping[str, object], times: Array, end: float) -> tuple[Mapping[str, object], bool]:
        """Return the variables of bands, and whether they were given up before the end of the run."""
        followed, is_interrupted = Bands(motion, stepper(RTOL), start), interruption()
        last = followed.follow(end, is_interrupted)
        return _variables(followed, motion, last, times, answer, keep), last < end and is_interrupted()

    return values


def mean_motion(problem: Problem, step: StepSettings, system: FlowSystem) -> MeanMotion:
    """Return the mean motion of the numbers of a network under steps of SGD."""
    from dynamics.equations.network.points import PointSystem

    rate = cast("float", step.learning_rate)
    if isinstance(system, PointSystem):
        numbers, parts_of, rates, room, kinked = _of_points(problem, system, step)
    else:
        numbers, parts_of, rates, room, kinked = _OF_KINDS[problem.kind](problem, system)
    noise = StepNoise(problem, numbers, rate, step.batch_size, exact=step.step_theory == "finite-d")
    return MeanMotion(numbers, noise, parts_of, rates, room, rate, step.step_theory == "infinite-d", kinked)


_Motion = tuple[
    Numbers, Callable[[Array], NetworkParts], Callable[[Array], tuple[Array, float]], Callable[[Array], float], bool
]


def _numbers(problem: Problem, start: NetworkParts) -> Numbers:
    """Return the numbers of a student that move."""
    if problem.kind != "network":
        return Numbers.of(start, outputs=False, biases=False)
    student = cast("Student", problem.student)
    rate_w, rate_v, rate_b = student.learning_rates
    decay_w, decay_v = student.decay
    return Numbers.of(
        start, outputs=rate_v > 0.0 or decay_v > 0.0, biases=rate_b > 0.0, weights=rate_w > 0.0 or decay_w > 0.0,
        lengths=student.first_layer != "sphere",
    )  # fmt: skip


def _anywhere(_y: Array) -> float:
    """Return the room of closed forms, which hold beyond the overlaps that vectors can have."""
    return float("inf")


def _of_network(problem: Problem, system: Any) -> _Motion:
    """Return the motion of a network whose means have closed forms."""

    def parts_of(state: Array) -> NetworkParts:
        v, b, M, Q = system.unpack(state)
        return NetworkParts(v[None], b, M, Q)

    def rates(y: Array) -> tuple[Array, float]:
        V, b, M, Q = numbers.unpack(y)
        state = system.pack(V[0], b, M, Q)
        bound.rhs(0.0, state, out)
        return numbers.pack(parts_of(out)), system.loss(state)

    numbers, bound, out = (
        _numbers(problem, parts_of(system.initial_state)),
        BoundSystem(system),
        np.empty(system.initial_state.size),
    )
    return numbers, parts_of, rates, _anywhere, False


def _of_committee(problem: Problem, system: Any) -> _Motion:
    """Return the motion of a committee."""

    def parts_of(state: Array) -> NetworkParts:
        M, Q = system.unpack(state)
        return NetworkParts(np.ones((1, len(Q))), np.zeros(len(Q)), M, Q)

    def rates(y: Array) -> tuple[Array, float]:
        _, _, M, Q = numbers.unpack(y)
        state = np.concatenate([M.ravel(), Q.ravel()])
        bound.rhs(0.0, state, out)
        return numbers.pack(parts_of(out)), system.loss_of_state(state)

    numbers = _numbers(problem, parts_of(system.initial_state))
    bound, out = BoundSystem(system), np.empty(system.initial_state.size)
    return numbers, parts_of, rates, _anywhere, False


def _of_homogeneous(problem: Problem, system: Any) -> _Motion:
    """Return the motion of homogeneous neurons, whose system has C, G and ln n for M = √n C and Q = √n G √n."""

    def parts_of(state: Array) -> NetworkParts:
        C, G, n = system.unpack(state)
        length = np.sqrt(n)
        return NetworkParts(np.ones((1, len(n))), np.zeros(len(n)), C * length[:, None], G * np.outer(length, length))

    def rates(y: Array) -> tuple[Array, float]:
        _, _, M, Q = numbers.unpack(y)
        n = np.diag(Q)
        length = np.sqrt(n)
        C, G, product = M / length[:, None], Q / np.outer(length, length), np.outer(length, length)
        bound.rhs(0.0, np.concatenate([C.ravel(), G.ravel(), np.log(n)]), out)
        dC, dG, growth = out[: C.size].reshape(C.shape), out[C.size : -len(n)].reshape(G.shape), 0.5 * out[-len(n) :]
        dM = length[:, None] * (dC + growth[:, None] * C)
        dQ = product * (dG + (growth[:, None] + growth) * G)
        return numbers.pack(NetworkParts(np.zeros((1, len(n))), np.zeros(len(n)), dM, dQ)), system.loss(C, G, n)

    numbers = _numbers(problem, parts_of(system.initial_state))
    bound, out = BoundSystem(system), np.empty(system.initial_state.size)
    return numbers, parts_of, rates, _anywhere, False


def _of_points(problem: Problem, system: PointSystem, step: StepSettings) -> _Motion:
    """Return the motion of a network by means over points, of which the Jacobian takes `POINTS` in each evaluation."""
    from dynamics.equations.network.points import PointSystem

    coarse = system
    if system.points > POINTS:
        coarse = PointSystem(problem, step.learning_rate, step.step_theory, step.batch_size, POINTS)
    mean = coarse.mean_rates()

    def parts_of(state: Array) -> NetworkParts:
        return NetworkParts(*(part.mean(axis=0) for part in system.unpack(state)))

    def rates(y: Array) -> tuple[Array, float]:
        change, loss = mean(np.concatenate([part.ravel() for part in numbers.unpack(y)]))
        C, m, r = system.layout.outputs, system.layout.width, system.layout.axes
        V, b, M, Q = np.split(change, np.cumsum([C * m, m, m * r]))
        return numbers.pack(NetworkParts(V.reshape(C, m), b, M.reshape(m, r), Q.reshape(m, m))), loss

    numbers = _numbers(problem, parts_of(system.initial_state))
    onto = np.eye(system.layout.axes)
    return numbers, parts_of, rates, lambda y: slack(numbers.unpack(y), onto), system.kinked


_OF_KINDS = {"network": _of_network, "committee": _of_committee, "homogeneous": _of_homogeneous}
#: Points of an evaluation of the mean step by points, for its Jacobian.
POINTS = 2**13


def _variables(
    followed: Bands, motion: MeanMotion, last: float, times: Array, answer: Mapping[str, object], keep: str
) -> Mapping[str, object]:
    """Return the variables of bands by name, NaN after the time `last`."""
    numbers, records = motion.numbers, list[dict[str, Array | float]]()
    for t in times.tolist():
        records.append(_record(followed.at(t), numbers, keep) if t <= last else {})
    blank = {name: np.full_like(np.asarray(value), np.nan) for name, value in records[0].items()}
    values: dict[str, object] = {
        name: np.array([record.get(name, blank[name]) for record in records]) for name in records[0]
    }
    if "emergence_time" in answer:
        values["emergence_time_sd"] = _times_of_emergence(
            followed, numbers, last, np.asarray(answer["emergence_time"], dtype=np.float64)
        )
    return values


def _record(scatter: Scatter, numbers: Numbers, keep: str) -> dict[str, Array | float]:
    """Return the standard deviations of observables at one time, and R."""
    parts = numbers.unpack(scatter.y)
    gradients = gradients_of(numbers, parts)
    record: dict[str, Array | float] = {
        "loss_sd": float(scatter.deviation(scatter.gradient)),
        "squared_norm_sd": scatter.deviation(gradients["squared_norm"]),
        "band_ratio": scatter.ratio,
    }
    if keep == "full":
        record["overlap_sd"] = scatter.deviation(gradients["overlap"])
        record["student_overlap_sd"] = scatter.deviation(gradients["student_overlap"])
    else:
        M, n = parts.M, np.diag(parts.Q)
        best = np.abs(M / np.sqrt(n)[:, None]).argmax(axis=0)
        record["max_overlap_sd"] = scatter.deviation(gradients["overlap"][best, np.arange(M.shape[1])])
    if numbers.moves[: parts.V.size].any():
        of_layer = scatter.deviation(gradients["output_layer"])
        record |= {"second_layer_sd": of_layer[0]} if len(of_layer) == 1 else {"output_layer_sd": of_layer}
    if numbers.moves[parts.V.size :][: parts.b.size].any():
        record["bias_sd"] = scatter.deviation(gradients["bias"])
    return record


def _times_of_emergence(followed: Bands, numbers: Numbers, last: float, times: Array) -> Array:
    """Return the standard deviation of each time of emergence, that of the overlap over its rate; NaN if unknown."""
    deviations = np.full(times.size, np.nan)
    for axis, t in enumerate(times.tolist()):
        if not 0.0 < t <= last:
            continue
        scatter = followed.at(t)
        parts = numbers.unpack(scatter.y)
        neuron = int(np.abs(parts.M[:, axis] / np.sqrt(np.diag(parts.Q))).argmax())
        gradient = gradients_of(numbers, parts)["overlap"][neuron, axis]
        deviations[axis] = float(scatter.deviation(gradient)) / abs(float(gradient @ scatter.rates))
    return deviations
