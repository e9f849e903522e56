"""Steps of a map that are passed over, against the map step by step: momentum and averages."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import dynamics
from dynamics import SGD, Problem, SaveAt, Student, Teacher
from dynamics.equations.interface import EquationSystem, Functions
from dynamics.integrators import Status
from dynamics.integrators.descent import EulerStepper
from dynamics.integrators.map_stepper import MapStepper
from dynamics.integrators.methods import FlowMethod
from dynamics.integrators.stepper import Tolerances
from dynamics.kernels.jit import kernel
from dynamics.solve.steps import StepSettings, optimized
from dynamics.threads import GivenUp

START = np.array([[0.2, -0.1, 0.5, 0.0], [0.1, 0.3, 0.1, 0.4]])
RTOL = 1e-8


def network() -> Problem:
    student = Student(
        activation="erf", width=2, second_layer="trained", biases="trained", initial_second_layer=[0.8, -0.6],
        initial_biases=[0.1, -0.2],
    )  # fmt: skip
    teacher = Teacher([1.0, -0.5], links=["erf", "erf"])
    return Problem(student=student, teacher=teacher, initial_weights=START, dimension=400, label_noise=0.3)


def committee() -> Problem:
    weights = np.pad(START, ((0, 0), (0, 396)))
    return Problem(
        activation="erf", student="committee", width=2, teacher=Teacher([1.0, 1.0]), dimension=400,
        initial_weights=weights, label_noise=0.1,
    )  # fmt: skip


def homogeneous() -> Problem:
    overlaps = ([[0.5, 0.1], [0.2, 0.4]], [[1.0, 0.1], [0.1, 1.0]], [0.5, 0.3])
    return Problem(activation="he3", width=2, teacher=Teacher([1.0, 0.5]), dimension=50, initial_overlaps=overlaps)


PROBLEMS = {network: 5e-4, committee: 5e-4, homogeneous: 1e-6}
OPTIMIZERS = (
    SGD(momentum=0.9),
    SGD(momentum=0.9, nesterov=True, average=0.002),
    SGD(momentum=0.95, dampening=0.5, average="polyak"),
    SGD(average="polyak"),
    SGD(average=0.5),
)


def solve(problem: Problem, rate: float, optimizer: SGD, steps: object, method: str = "auto", **more: object):
    given = {"save_at": SaveAt.at(rate * np.asarray(steps, dtype=float)), "rtol": RTOL, "progress": False}
    return dynamics.solve_problem(problem, learning_rate=rate, optimizer=optimizer, method=method, **given, **more)


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
def test_steps_that_are_passed_over_lead_where_all_steps_do(make: object, optimizer: SGD) -> None:
    """Losses, overlaps and averages after up to 40000 steps, of which the flow takes a fraction, within 3 rtol."""
    problem, rate, steps = make(), PROBLEMS[make], [0, 1, 50, 300, 3000, 10000, 20000, 40000]
    flow, every = (solve(problem, rate, optimizer, steps, method) for method in ("auto", "map"))
    assert (flow.attrs["method"], every.attrs["method"]) == ("smooth-map", "map")
    assert every.attrs["rhs_evaluations"] == 40000
    assert flow.attrs["rhs_evaluations"] < 20000
    assert flow.step.values.tolist() == every.step.values.tolist() == steps
    assert abs(float(every.loss[-1] - every.loss[0])) > 0.02
    names = [name for name in ("loss", "average_loss", "teacher_overlap", "squared_norm", "bias") if name in every]
    for name in names:
        assert np.allclose(flow[name], every[name], rtol=3 * RTOL, atol=3 * RTOL), name
    assert np.allclose(flow.emergence_time, every.emergence_time, rtol=1e-6, atol=rate, equal_nan=True)
    assert np.all(np.abs(flow.loss - every.loss) <= flow.loss_error)
    assert "loss_error" not in every


def stepper_of(optimizer: SGD, steps: float, name: str = "smooth-map"):
    rate = PROBLEMS[committee]
    system = optimized(committee(), StepSettings(rate, "finite-d", 1, optimizer))
    return FlowMethod(system, name, 1e-10, rate, last_time=steps * rate).stepper(RTOL), rate


@pytest.mark.thorough
def test_a_stepper_goes_on_bit_for_bit_from_the_middle_of_the_flow() -> None:
    optimizer = SGD(momentum=0.9, average="polyak")
    (one, rate), (other, _) = (stepper_of(optimizer, 40000.0) for _ in range(2))
    stored = one.state()
    while not any(name.startswith("flow_") for name in stored) or one.time < 3000 * rate:
        assert one.advance(20000 * rate, 7) == Status.MAX_STEPS
        stored = one.state()
    other.restore(stored)
    for stepper in (one, other):
        while stepper.time < 20000 * rate:
            stepper.advance(20000 * rate, 7)
    assert np.array_equal(one.interpolate(20000 * rate), other.interpolate(20000 * rate))
    assert one.statistics() == other.statistics()


@pytest.mark.thorough
def test_a_stepper_goes_on_from_the_arrays_of_one_that_took_every_step() -> None:
    optimizer = SGD(momentum=0.9)
    (every, rate), (other, _) = stepper_of(optimizer, 40000.0, "map"), stepper_of(optimizer, 40000.0)
    every.advance(5000 * rate, 10**6)
    other.restore(every.state())
    states = []
    for stepper in (every, other):
        stepper.advance(30000 * rate, 10**6)
        states.append(stepper.interpolate(30000 * rate))
    assert other.statistics()["steps_accepted"] < 20000
    assert np.allclose(*states, rtol=10 * RTOL, atol=10 * RTOL)


@kernel
def two_decays(t, y, out, parameters, sizes, work):
    out[0] = -1e-3 * y[0]
    out[1] = parameters[0] * y[1]


class TwoDecays(EquationSystem):
    """y_0 decays slowly; y_1, below the tolerance, is multiplied by 1 + z in every step of length 1."""

    functions, work_size, sizes = Functions(two_decays), 1, np.zeros(1, dtype=np.int64)

    def __init__(self, z: float) -> None:
        self.initial_state, self.parameters = np.array([1.0, 1e-15]), np.array([z])


@pytest.mark.kernels
@pytest.mark.parametrize(("z", "is_followed"), [(-1.0, True), (-1.4, True), (-1.6, False), (-2.001, False)])
def test_steps_that_overshoot_are_taken(z: float, is_followed: bool) -> None:
    """The flow would damp a part that overshoots, which grows in steps from z = −2 on."""
    asked = []

    def flow(state: np.ndarray, time: float):
        asked.append(time)
        raise GivenUp

    tolerances = Tolerances(rtol=1e-10, atol=np.full(2, 1e-12))
    stepper = MapStepper(EulerStepper(TwoDecays(z), 1.0), flow, 3, tolerances, 1e4)
    with pytest.raises(GivenUp) if is_followed else nullcontext():
        stepper.advance(3000.0, 10**6)
    assert asked == ([100.0] if is_followed else [])
    assert stepper.time == (100.0 if is_followed else 3000.0)


@pytest.mark.kernels
@pytest.mark.parametrize("theory", ["finite-d", "infinite-d"])
def test_the_flow_of_a_map_is_the_series_of_its_differences(theory: str) -> None:
    """y' = (Δ − Δ²/2 + Δ³/3)/η at a whole step, by three steps of the map."""
    from dynamics.integrators.system_calls import BoundSystem

    optimizer = SGD(momentum=0.7, dampening=0.2, average="polyak")
    system, rate = optimized(network(), StepSettings(0.01, theory, 1, optimizer)), 0.01
    bound, flow = BoundSystem(system), BoundSystem(system.smooth(), implicit=True)
    states, out = [system.initial_state], np.empty(system.initial_state.size)
    for k in range(9):
        bound.rhs(k * rate, states[-1], out)
        states.append(states[-1] + rate * out)
    one, two, three = (np.diff(states[6:], n=n, axis=0)[0] for n in (1, 2, 3))
    flow.rhs(6 * rate, states[6], out)
    assert np.allclose(out, (one - two / 2 + three / 3) / rate, rtol=1e-9, atol=1e-9)
    diagonal, moved = np.empty_like(out), np.empty_like(out)
    flow.jacobian_diagonal(6 * rate, states[6], diagonal)
    m, P = 2, 2
    places = {"u": 2 * m + m * P + m * m + 5, "uu": 2 * (2 * m + m * P) + 2 * m * m + 3}
    for place in places.values():
        moved[:] = states[6]
        moved[place] += 1e-4
        found = np.empty_like(out)
        flow.rhs(6 * rate, moved, found)
        # But for the gradients of the next steps, which are of order 1.
        assert np.isclose((found[place] - out[place]) / 1e-4, diagonal[place], rtol=1e-2)


@pytest.mark.parametrize(
    ("optimizer", "method", "part"),
    [
        (SGD(), "map", "`method` must be one for equations without momentum or averages, but is 'map'"),
        (SGD(momentum=0.9), "explicit", "`method` must be 'auto' or 'map' for SGD"),
    ],
)
def test_methods_that_are_not_of_maps_are_refused(optimizer: SGD, method: str, part: str) -> None:
    for make in PROBLEMS:
        with pytest.raises(ValueError, match=part):
            solve(make(), 1e-4, optimizer, [0, 1], method)


def test_every_step_has_no_tolerance() -> None:
    with pytest.raises(ValueError, match="`error_estimate` must not be True for method 'map'"):
        solve(network(), 1e-4, SGD(momentum=0.9), [0, 1], "map", error_estimate=True)
