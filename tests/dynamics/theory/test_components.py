"""Blindness of links and the escape law of a monomial's saddle, against integrals, Carlson's form and its own flow."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import elliprf

import hermite
from dynamics import Problem, SaveAt, Student, Teacher, solve_network
from dynamics.theory.components import blind_components, escape_time, mean_derivatives_at, predicted_component_times


def lone_problem(*, v=0.8, dimension=10**4, text="x1*x2*x3", **changes):
    M = np.array([1.0, 0.7, -0.5]) / math.sqrt(dimension)
    options = {"activation": "erf", "first_layer": "sphere", "second_layer": "fixed", "biases": "fixed"} | changes
    student = Student(width=1, initial_second_layer=[v], initial_biases=[0.4], **options)
    weights = [[*M, math.sqrt(1.0 - np.sum(M**2))]]
    return Problem(student=student, teacher=Teacher.polynomial(text), dimension=dimension, initial_weights=weights)


@pytest.mark.parametrize(("v", "time"), [(0.8, 689.158580), (-0.8, 1680.542849)])
def test_the_law_of_one_spherical_neuron(v, time):
    np.testing.assert_allclose(predicted_component_times(lone_problem(v=v)), [time], rtol=2e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_three_axes_are_carlsons_form(sign):
    M = np.array([0.1, 0.2, -0.3])
    u = M**2
    right = elliprf(*u)
    wrong = 2 * elliprf(*(u - u.min())) - right
    # The product of M is negative.
    expected = right if sign < 0 else wrong
    assert escape_time(2.0 * sign, M, np.ones(3)) * 2.0 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("alpha", [(3,), (1, 2), (2, 2), (1, 1, 2), (1, 1, 1, 1)])
def test_the_law_is_the_time_of_its_flow(alpha):
    alpha = np.array(alpha, dtype=float)
    M = 0.2 + 0.1 * np.arange(alpha.size)

    def flow(_, M):
        return alpha * np.prod(M**alpha) / M

    def far(_, M):
        return M[0] - 1e4

    far.terminal = True
    found = solve_ivp(flow, (0, 1e6), M, method="DOP853", rtol=1e-12, atol=1e-14, events=far)
    # From 10^4 to infinity the flow takes 10^-4 or less.
    assert escape_time(1.0, M, alpha) == pytest.approx(found.t_events[0][0], abs=2e-4)


@pytest.mark.parametrize(
    "changes", [{"first_layer": "free"}, {"second_layer": "trained"}, {"biases": "trained"}, {"text": "x1*x2"}]
)
def test_nothing_is_predicted_where_the_law_does_not_hold(changes):
    assert np.isnan(predicted_component_times(lone_problem(**changes))).all()


def test_several_neurons_are_predicted_only_while_they_are_alone():
    def times(scale):
        student = Student(
            activation="erf", width=8, first_layer="sphere", second_layer="fixed", biases="fixed", scale=scale,
            rates=(1 / scale, 0, 0),
        )  # fmt: skip
        problem = Problem(student=student, teacher=Teacher.polynomial("x1*x2*x3"), dimension=10**4)
        return predicted_component_times(problem)

    assert np.isfinite(times(1e-7)).all()
    assert np.isnan(times(1.0)).all()


@pytest.mark.parametrize(("link", "variance", "bias"), [("relu", 0.7, 0.3), ("erf", 2.0, -0.4), ("tanh(z)", 1.3, 0.2)])
def test_mean_derivatives_are_derivatives_in_the_bias(link, variance, bias):
    expansion = hermite.expand(link)
    D = mean_derivatives_at(expansion, 4, variance, bias)
    step = 1e-3
    shifted = [mean_derivatives_at(expansion, 4, variance, bias + k * step) for k in (-2, -1, 1, 2)]
    slope = (shifted[0] - 8 * shifted[1] + 8 * shifted[2] - shifted[3]) / (12 * step)
    np.testing.assert_allclose(D[1:], slope[:-1], atol=1e-8)


@pytest.mark.parametrize(
    ("link", "text", "blind"),
    [
        ("relu", "x1 + x1*x2 + x1*x2*x3", ("x1*x2*x3",)),
        ("erf", "x1 + x1*x2", ("x1*x2",)),
        ("gelu", "x1*x2*x3 + h2(x1)", ("x1*x2*x3",)),
        ("he4", "x1*x2 + x1", ("x1",)),
        ("z^3", "h5(x1) + x1", ("h5(x1)",)),
    ],
)
def test_blind_links(link, text, blind):
    def found(**changes):
        return blind_components(
            Problem(student=Student(activation=link, width=4, **changes), teacher=Teacher.polynomial(text), dimension=9)
        )

    assert found() == blind
    # With biases every order up to the degree is seen.
    expected = ("h5(x1)",) if link == "z^3" else ()
    assert found(biases="fixed") == found(biases="trained") == expected


@pytest.mark.parametrize(
    ("v", "dimension", "share"),
    [
        (0.8, 1e4, 0.993123),
        (0.8, 1e6, 0.999327),
        pytest.param(0.8, 1e8, 0.999933, marks=pytest.mark.long),
        (-0.8, 1e4, 0.997164),
        (-0.8, 1e6, 0.999724),
    ],
)
def test_the_flow_takes_the_time_of_the_law(v, dimension, share):
    problem = lone_problem(v=v, dimension=int(dimension))
    law = float(predicted_component_times(problem)[0])
    # The saved times are so close that the squared overlap is a straight line between them.
    times = law * np.linspace(share - 2e-6, share + 2e-6, 9)
    flow = solve_network(problem, save_at=SaveAt.at([0.0, *times]), rtol=1e-10, progress=False, error_estimate=False)
    size = (flow.teacher_overlap.values[1:, 0] ** 2).sum(axis=1)
    assert np.interp(0.5, size, times / law) == pytest.approx(share, abs=1e-6)
