"""No stored loss is below 0: it is a mean square, and a difference of terms that rounding may bring below."""

import numpy as np
import pytest

from dynamics import Problem, Student, Teacher
from dynamics.equations.committee import CommitteeSystem
from dynamics.equations.losses import by_degree, population_loss, squared_error, without_rounding
from dynamics.equations.network.system import NetworkSystem

RNG = np.random.default_rng(0)


def rotations(axes, count=40):
    """Return directions of a teacher, orthonormal up to rounding."""
    return [np.linalg.qr(RNG.standard_normal((axes, axes)))[0] for _ in range(count)]


def test_rounding_alone_is_cut_off():
    assert without_rounding(-7e-14, 1.0) == 0.0
    assert without_rounding(-1e-3, 1.0) == -1e-3
    assert without_rounding(1e-3, 1.0) == 1e-3
    assert np.isnan(without_rounding(np.nan, 1.0))
    np.testing.assert_array_equal(without_rounding(np.array([-1e-15, 2.0]), np.ones(2)), [0.0, 2.0])


def test_homogeneous_neurons_at_their_teacher():
    problem, losses = Problem(activation="0.6*h1 + 0.8*h4", teacher=Teacher([0.8, 0.6, 0.3]), width=3, dimension=8), []
    a, link = problem.teacher.coefficients, problem.activation
    for turn in rotations(3):
        G = turn @ turn.T
        losses.append(population_loss(link, float(a @ link.kernel(G) @ a), a, G, G, a))
    assert min(losses) >= 0.0
    assert max(losses) < 1e-14
    parts = by_degree(np.array([[0.3], [0.4], [-1e-17]]), np.array([0.7 - 1e-16]))
    assert parts.min() == 0.0


def test_spherical_neurons_at_their_teacher():
    problem = Problem(activation="he3", teacher=Teacher(np.full(3, 1 / 3)), width=3, dimension=8, student="spherical")
    losses = [squared_error(problem, turn, turn @ turn.T) for turn in rotations(3)]
    assert min(losses) >= 0.0
    assert max(losses) < 1e-14


@pytest.mark.kernels
def test_a_committee_and_a_network_at_their_teacher():
    for turn in rotations(3, 20):
        teacher = Teacher([1.0, 1.0, 1.0], directions=turn)
        committee = CommitteeSystem(
            Problem(activation="erf", teacher=teacher, width=3, dimension=8, student="committee")
        )
        G = turn @ turn.T
        assert 0.0 <= committee.loss(G, G) < 1e-13
        student = Student(activation="erf", width=3, second_layer="fixed", initial_second_layer=np.ones(3))
        network = NetworkSystem(
            Problem(student=student, teacher=Teacher([1.0] * 3, links=["erf"] * 3, directions=turn), dimension=8)
        )
        state = network.pack(np.ones(3), np.zeros(3), turn, G)
        assert 0.0 <= network.loss(state) < 1e-13
