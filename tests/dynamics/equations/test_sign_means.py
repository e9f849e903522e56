"""Means of sign SGD on lattices in a ball, against sums over cubic grids, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import erf

import dynamics
from dynamics import Problem, SaveAt, SignSGD, Student, Teacher
from dynamics.equations.sign_means import lattice
from dynamics.integrators.system_calls import BoundSystem
from dynamics.solve.steps import StepSettings, optimized

RATE = 1e-3


def problem(width: int, links: list[str], link: str = "erf", noise: float = 0.3, **more: object) -> Problem:
    P, rng = len(links), np.random.default_rng(2)
    weights = 0.5 * rng.standard_normal((width, P + width)) / math.sqrt(P) + 0.4 * np.eye(width, P + width)
    student = Student(
        activation=link, width=width, second_layer="fixed", initial_second_layer=[1.0, -0.7, 0.8, 0.5][:width],
        biases="fixed" if "initial_biases" in more else "none",
        **{name: value for name, value in more.items() if name == "initial_biases"},
    )  # fmt: skip
    teacher = Teacher([0.9, -1.0][:P], links=links, **{name: more[name] for name in ("biases",) if name in more})
    return Problem(student=student, teacher=teacher, initial_weights=weights, dimension=500, label_noise=noise)


def value_and_slope(link, z):
    return link.value(z), link.derivative(z)


def by_grid(asked: Problem, spacing: float, reach: float = 6.6) -> np.ndarray:
    """Rates of M and Q by the sum over a cubic grid of the formulas of the page on optimizers."""
    system = optimized(asked, StepSettings(RATE, "infinite-d", 1, SignSGD()))
    m, P, y = asked.width, asked.teacher.span, system.initial_state
    v, b = y[:m], y[m : 2 * m]
    M, Q = y[2 * m : 2 * m + m * P].reshape(m, P), y[2 * m + m * P :].reshape(m, m)
    factor = np.hstack([M, np.linalg.cholesky(Q - M @ M.T)])
    points = spacing * (np.arange(-math.ceil(reach / spacing), math.ceil(reach / spacing)) + 0.5)
    x = np.stack([axis.ravel() for axis in np.meshgrid(*[points] * (P + m), indexing="ij")])
    weight = np.exp(-0.5 * np.sum(x**2, axis=0))
    weight /= weight.sum()
    z = factor @ x
    error, signs = np.zeros(weight.size), np.empty((m, weight.size))
    scale = asked.student.output_scale
    for i in range(m):
        value, slope = value_and_slope(asked.activation, z[i] + b[i])
        error += scale * v[i] * value
        signs[i] = np.sign(v[i] * slope)
    for unit in asked.teacher.units(asked.teacher_link):
        error -= unit.coefficient * unit.link.value(unit.direction @ x[:P] + unit.bias)
    pull = math.sqrt(2.0 / math.pi) * weight * erf(error / (math.sqrt(2.0) * asked.label_noise)) * signs
    second = RATE * asked.dimension * (weight * signs) @ signs.T
    G = pull @ z.T
    return np.concatenate([(-pull @ x[:P].T).ravel(), (second - G - G.T).ravel()])


def rates(asked: Problem) -> np.ndarray:
    system = optimized(asked, StepSettings(RATE, "infinite-d", 1, SignSGD()))
    out = np.empty(system.initial_state.size)
    BoundSystem(system).rhs(0.0, system.initial_state, out)
    return out[2 * asked.width :]


CASES = {
    "one neuron": (problem(1, ["erf"]), 0.15),
    "two neurons": (problem(2, ["erf"]), 0.15),
    "two directions": (problem(1, ["erf", "erf"]), 0.15),
    "biases": (problem(2, ["erf"], noise=0.6, initial_biases=[0.3, -0.5]), 0.15),
    "a biased unit": (problem(1, ["erf"], biases=[0.4]), 0.15),
    "a cubic unit": (problem(1, ["he3"]), 0.02),
    "a kink": (problem(1, ["relu"]), 0.005),
    "a kink elsewhere": (problem(1, ["relu"], biases=[0.4]), 0.005),
    "a jump": (problem(1, ["sign"]), 0.005),
    # Signs of ∂f/∂h that change make means jump.
    "cubic neurons": (problem(1, ["he3"], link="he3"), 0.005),
    "a quadratic neuron": (problem(1, ["he2"], link="he2"), 0.005),
    "quadratic neurons": (problem(2, ["he2"], link="he2"), 0.06),
}


ERF_ALONE = list(CASES)[:5]


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_a_fine_grid(name: str) -> None:
    """To the error that the answer tells."""
    asked, spacing = CASES[name]
    (note,) = optimized(asked, StepSettings(RATE, "infinite-d", 1, SignSGD())).notes
    accuracy = float(note.rsplit(" ", 1)[1])
    expected = by_grid(asked, spacing)
    assert np.abs(expected).max() > 0.1
    assert accuracy == (3e-8 if name in ERF_ALONE else 5e-3 if name == "quadratic neurons" else 3e-3)
    assert np.allclose(rates(asked), expected, rtol=0.0, atol=accuracy)


@pytest.mark.thorough
def test_rates_of_four_neurons_and_two_directions_are_as_accurate_as_they_say() -> None:
    """Against a lattice of ten times as many nodes."""
    asked = problem(4, ["erf", "erf"])
    system = optimized(asked, StepSettings(RATE, "infinite-d", 1, SignSGD()))
    (note,) = system.notes
    assert note.endswith("errors up to about 1e-03")
    found, first = rates(asked), int(np.flatnonzero(system.parameters == system.seconds_of_rates)[0]) - 3
    finer = optimized(asked, StepSettings(RATE, "infinite-d", 1, SignSGD()))
    finer.parameters[first : first + 2] = 0.62, 5.9
    out = np.empty(finer.initial_state.size)
    BoundSystem(finer).rhs(0.0, finer.initial_state, out)
    assert 0.0 < np.abs(out[8:] - found).max() < 1e-3


def test_lattices_become_coarser_with_axes_until_they_are_refused() -> None:
    errors = [lattice(axes, 0.3, 1.0, symmetric=True).error for axes in range(2, 8)]
    assert errors == sorted(errors)
    assert errors[:2] == [3e-8, 3e-8]
    assert lattice(3, 0.3, 1.0, symmetric=False).cosets == 2
    need = r"fewer neurons and directions, or more label noise, for SignSGD: with label noise 0.1 each rate on 6 axes"
    with pytest.raises(ValueError, match=need):
        lattice(6, 0.1, 1.0, symmetric=True)


@pytest.mark.thorough
def test_costly_rates_are_integrated_by_the_method_of_few_evaluations() -> None:
    """The flow of four neurons and two directions, which took some ten thousand evaluations of the explicit pair."""
    asked, times = problem(4, ["erf", "erf"]), SaveAt.at([0.0, 1.0, 200.0])
    given = {"learning_rate": RATE, "optimizer": SignSGD(), "save_at": times, "progress": False}
    flow = dynamics.solve_problem(asked, error_estimate=False, **given)
    assert flow.attrs["method"] == "bdf"
    assert flow.attrs["rhs_evaluations"] < 2500
    assert "errors up to about 1e-03" in flow.attrs["notes"]
