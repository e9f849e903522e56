"""Sums over all pairs of neurons, several at once, against the same sums pair by pair, and their functions by mpmath."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
from from_python import from_python

from dynamics import Problem, Student, Teacher
from dynamics.equations.network.normal_kernels import bell_and_odd
from dynamics.equations.network.series import HEADS
from dynamics.equations.network.system import (
    MEANS,
    ONE_BY_ONE,
    NetworkSystem,
    add_one_by_one,
    lined_values,
    own_threshold_values,
    own_values,
    pair_values,
    rhs,
    write_row,
)
from dynamics.integrators.system_calls import BoundSystem
from dynamics.kernels.jit import entry
from dynamics.kernels.units import make_choices

WIDTH = 21
CUBIC = "z + 0.3*z**3"


@entry
def call_rhs(y, out, parameters, sizes, work):
    """Write the sums over all pairs of neurons into `work`, and more."""
    rhs(0.0, y, out, parameters, sizes, work)


@entry
def pick(u, bell, odd):
    for n in range(len(u)):
        bell[n], odd[n] = bell_and_odd(u[n])


def network_of(link, biases, rng, second_layer="trained"):
    """Return a problem whose neurons have lengths from 1e-3 to 5, some alike in direction, one bias of 9 lengths."""
    W = rng.normal(size=(WIDTH, 12))
    W *= 10.0 ** rng.uniform(-3.0, 0.7, size=(WIDTH, 1)) / np.linalg.norm(W, axis=1, keepdims=True)
    W[1], W[2], W[3] = 1.7 * W[0], -0.4 * W[0], W[0] + 1e-5 * rng.normal(size=12)
    W[5] = W[4] + 0.9 * np.linalg.norm(W[4]) * rng.normal(size=12) / 3.0
    b = rng.normal(size=WIDTH)
    b[0], b[1], b[6] = 0.5, 0.5 * 1.7, 9.0 * np.linalg.norm(W[6])
    given = {} if biases == "none" else {"initial_biases": b}
    student = Student(activation=link, width=WIDTH, biases=biases, second_layer=second_layer, **given)
    return Problem(student=student, teacher=Teacher.polynomial("x1 + x1*x2"), dimension=12, initial_weights=W)


def sums(problem, *, theory, pairing=None):
    """Return Ψ, Ψ1, Ψ2 (3, m) of the neurons and A₀ (m, m), found as the system does or as `pairing` says."""
    system, m = NetworkSystem(problem), WIDTH
    layout = system.layout._replace(theory=theory, pairing=system.layout.pairing if pairing is None else pairing)
    sizes, work = np.array([*layout, *system.teacher.sizes]), np.zeros(system.work_size)
    # Without a teacher nothing else is in the sums.
    parameters = system.parameters.copy()
    parameters[layout.teacher_at :][: system.teacher.parameters.size] = 0.0
    y = system.initial_state
    make_choices([*system.functions.choices, add_one_by_one, own_threshold_values])
    call_rhs(y, np.empty_like(y), parameters, sizes, work)
    return tuple(work[at:][: rows * m].reshape(rows, m) for at, rows in ((layout.pulls_at, 3), (layout.slopes_at, m)))


def sums_of_pairs(problem):
    """Return the same from the means of pairs, in both orders."""
    system, m = NetworkSystem(problem), WIDTH
    v, b, _, Q = system.unpack(system.initial_state)
    numbers, rows = system.pairs.numbers, np.full((m, system.pairs.row_size), np.nan)
    head = int(numbers[HEADS])
    pulls, A = np.zeros((3, m)), np.zeros((m, m))
    for i in range(m):
        from_python(write_row, *system.functions.choices)(head, Q[i, i], b[i], numbers, rows[i])
    for i in range(m):
        for j in range(m):
            value, first, both, second = (
                from_python(own_values, own_threshold_values)(rows[i], numbers)
                if i == j
                else from_python(pair_values, lined_values)(head, Q[i, j], rows[i], rows[j], numbers)
            )
            pulls[:, i] += v[j] * np.array([value, first, second])
            A[i, j] = v[i] * v[j] * both
    return problem.student.output_scale * pulls, problem.student.output_scale**2 * A


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("link", ["erf", "relu", CUBIC, "2*erf(z/sqrt(2)) + 0.1 - z"])
def test_all_pairs_at_once_are_the_pairs_one_by_one(link):
    """To a thousand roundings of the largest sum."""
    problem = network_of(link, "trained", np.random.default_rng(3))
    expected, A = sums_of_pairs(problem)
    pairings = (None,) if link == CUBIC else (None, ONE_BY_ONE)
    for theory, pairing in itertools.product((0, MEANS), pairings):
        pulls, slopes = sums(problem, theory=theory, pairing=pairing)
        np.testing.assert_allclose(pulls, expected, rtol=0.0, atol=1e-13 * np.abs(expected).max())
        np.testing.assert_allclose(slopes, A, rtol=0.0, atol=1e-13 * np.abs(A).max())


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("link", ["erf", CUBIC])
def test_with_fixed_layers_what_moves_nothing_is_left_out(link):
    """K and K1 are zero then, K2 and K12 as ever."""
    problem = network_of(link, "fixed", np.random.default_rng(4), second_layer="fixed")
    pulls, slopes = sums(problem, theory=0)
    whole, A = sums(problem, theory=MEANS)
    assert not pulls[0].any()
    np.testing.assert_array_equal(pulls[2], whole[2])
    np.testing.assert_array_equal(slopes, A)


@pytest.mark.parametrize("biases", ["none", "trained"])
@pytest.mark.parametrize("link", ["erf", "relu", "2*erf(z/sqrt(2)) + 0.1 - z"])
def test_mean_squares_on_the_diagonal_of_the_jacobian_are_integrals(link, biases):
    """The first numbers of the diagonal are −ε_v s² E σ_i²; the decay is 0."""
    problem = network_of(link, biases, np.random.default_rng(5))
    system, student, sigma = NetworkSystem(problem), problem.student, problem.activation.value
    _, b, _, Q = system.unpack(system.initial_state)
    found = np.empty(system.initial_state.size)
    BoundSystem(system, implicit=True).jacobian_diagonal(0.0, system.initial_state, found)
    for i in range(WIDTH):
        width, kink = math.sqrt(Q[i, i]), -b[i] / math.sqrt(Q[i, i])

        def density(z, width=width, shift=b[i]):
            return sigma(np.array([width * z + shift]))[0] ** 2 * math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)

        expected, _ = scipy.integrate.quad(density, -12.0, 12.0, points=[kink], epsabs=1e-12, epsrel=1e-11)
        scale = student.learning_rates[1] * student.output_scale**2
        assert found[i] == pytest.approx(-scale * expected, rel=1e-9)


def test_the_density_and_the_error_function_are_right_to_rounding():
    u = np.concatenate([[0.0, -0.0], np.geomspace(1e-9, 60.0, 400), -np.geomspace(1e-9, 60.0, 400), [np.inf, -np.inf]])
    bell, odd = np.empty_like(u), np.empty_like(u)
    pick(u, bell, odd)
    expected = [math.copysign(float(mp.erf(mp.mpf(abs(x)) / mp.sqrt(2))), x) for x in u]
    np.testing.assert_allclose(odd, expected, rtol=0.0, atol=5e-16)
    np.testing.assert_allclose(bell, [float(mp.exp(-(mp.mpf(x) ** 2) / 2)) for x in u], rtol=0.0, atol=5e-16)
    assert (odd[0], odd[1], bell[0]) == (0.0, 0.0, 1.0)
