"""The compiled kernels of the overlap flow against numpy and against finite differences."""

import numpy as np
import pytest
from from_python import from_python
from kernel_calls import Kernels
from shared_links import MIXED

import dynamics
from dynamics.equations.link import data_of_series, g0, g1, g2, write_both, write_g0, write_g1, write_g2
from dynamics.equations.overlaps import OverlapSystem

pytestmark = [pytest.mark.kernels, pytest.mark.slow_to_compile]

ROWS = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])


@pytest.fixture(
    scope="module",
    params=[
        ({4: 1.0}, dynamics.Teacher.power_law(3, 1.0)),
        (MIXED, dynamics.Teacher([1.0, 0.5, 0.3], directions=ROWS)),
    ],
    ids=["h4, orthonormal", "mixed, tilted"],
)
def kernels(request):
    link, teacher = request.param
    asked = dynamics.Problem(activation=link, teacher=teacher, width=5, dimension=12, initial_norm=0.5)
    return Kernels(OverlapSystem(asked), "bdf")


def test_jacobian_diagonal_is_the_derivative_of_the_right_hand_side(kernels):
    """Central differences of the symmetric problem: G_ij and G_ji are one variable, G_ii = 1 is none."""
    m, P = kernels.system.problem.width, kernels.system.problem.num_directions
    diagonal = kernels.diagonal()
    step = 1e-6
    for at in range(kernels.state.size):
        shift = np.zeros_like(kernels.state)
        shift[at] = step
        i, j = divmod(at - m * P, m)
        if m * P <= at < m * P + m * m:
            if i == j:
                assert diagonal[at] == 0.0
                continue
            shift[m * P + j * m + i] = step
        change = kernels.rhs(kernels.state + shift)[at] - kernels.rhs(kernels.state - shift)[at]
        assert diagonal[at] == pytest.approx(change / (2 * step), abs=1e-8)


def test_event_values_are_the_definitions(kernels):
    problem = kernels.system.problem
    C, _, n = kernels.system.unpack(kernels.state)
    link, a = problem.activation, problem.teacher.coefficients
    counted = np.maximum(C, 0.0) if problem.information_exponent % 2 else C
    emergence = (counted**2).max(axis=0) - 0.5
    mass = n @ link.kernel(C) / link.kernel(1.0) - a / 2
    np.testing.assert_allclose(kernels.events(), np.concatenate([emergence, mass]), rtol=1e-13)


def test_normalise_restores_the_unit_diagonal_and_nothing_else(kernels):
    drifted = kernels.state + 1e-9
    expected = drifted.copy()
    expected[15:40:6] = 1.0
    np.testing.assert_array_equal(kernels.normalised(drifted), expected)


@pytest.mark.parametrize(
    "squares",
    [
        {4: 1.0},
        {4: 0.5, 6: 0.3},
        {3: 0.2, 4: 0.7},
        {0: 0.1, 1: 0.4},
        {12: 1.0},
        {1: 1.0},
        {3: 0.5, 5: 0.2, 9: 0.1},
        {0: 0.1, 1: 0.4, 2: 0.3, 4: 0.2, 8: 0.1},
        {1: 0.4, 6: 0.2, 8: 0.1},
        {0: 0.3, 3: 0.2, 7: 0.1},
        {2: 0.3, 3: 0.2, 7: 0.1},
    ],
    ids=str,
)
def test_links_as_data_are_the_polynomial_and_its_derivatives(squares):
    coefficients = np.zeros(max(squares) + 1)
    for j, square in squares.items():
        coefficients[j] = np.sqrt(square)
    link, at = data_of_series(tuple(coefficients.tolist())), np.array([-1.0, -0.37, 0.0, 0.2, 1.0])
    out = np.empty_like(at)
    for order, (one, many) in enumerate([(g0, write_g0), (g1, write_g1), (g2, write_g2)]):
        from_python(many)(link, at, out)
        for s, found in zip(at, out, strict=True):
            expected = sum(
                square * np.prod([j - i for i in range(order)]) * s ** max(j - order, 0)
                for j, square in squares.items()
            )
            assert from_python(one)(link, s) == pytest.approx(expected, rel=1e-13, abs=1e-15)
            assert found == pytest.approx(expected, rel=1e-13, abs=1e-15)
    value, slope = np.empty_like(at), np.empty_like(at)
    from_python(write_both)(link, at, value, slope)
    for many, found in ((write_g0, value), (write_g1, slope)):
        from_python(many)(link, at, out)
        np.testing.assert_allclose(found, out, rtol=1e-14, atol=1e-16)
