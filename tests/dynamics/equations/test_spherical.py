"""The spherical network of finite width: autograd in weight space, energy, limits, coupled starts, passive tracers."""

import numpy as np
import pytest
import torch
from kernel_calls import Kernels
from weight_space import theta_of

import dynamics
from dynamics.equations.spherical import SphericalSystem

MIXED = {1: 0.3, 2: 0.2, 3: 0.5, 4: 0.7}
OTHER = {1: 0.1, 3: 0.5, 4: 0.4, 5: 0.2}
ROWS = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]])
TEACHERS = {
    "one axis": ({}, "he4", None),
    "skew and misspecified": ({"coefficients": (0.5, 0.3, 0.2), "directions": ROWS}, MIXED, OTHER),
    "orthogonal": ({"coefficients": (0.6, 0.4)}, {2: 0.4, 5: 0.5}, {3: 0.4, 5: 0.5}),
}


def problem(link="he4", width=5, dimension=8, coefficients=(1.0,), directions=None, **changes):
    teacher = dynamics.Teacher(coefficients, directions=directions)
    given = {"activation": link, "teacher": teacher, "width": width, "dimension": dimension, "student": "spherical"}
    return dynamics.Problem(**(given | changes))


def solve(question, times=(0.0, 1.0), **changes):
    return dynamics.solve_spherical(question, save_at=dynamics.SaveAt.at(times), **({"progress": False} | changes))


class ByAutograd:
    """Loss as a function of the weights in R^d, written with E h_j(u·x) h_l(v·x) = δ_jl (u·v)^j alone."""

    def __init__(self, question):
        count = max(question.activation.order, question.teacher_link.order) + 1
        links = (question.activation, question.teacher_link)
        self.c, self.other = (np.pad(link.coefficients, (0, count - link.order - 1)) for link in links)
        self.theta = torch.from_numpy(theta_of(question))
        self.a = torch.from_numpy(np.array(question.teacher.coefficients))

    def loss(self, w):
        u = w / w.norm(dim=1, keepdim=True)
        total = 0.0
        for j, (c, other) in enumerate(zip(self.c, self.other, strict=True)):
            total = total + c**2 * ((u @ u.T) ** j).mean() - 2 * c * other * ((u @ self.theta.T) ** j @ self.a).mean()
            total = total + other**2 * self.a @ (self.theta @ self.theta.T) ** j @ self.a
        return total

    def velocity(self, w):
        w = torch.from_numpy(w).requires_grad_()
        (gradient,) = torch.autograd.grad(0.5 * self.loss(w), w)
        return -w.shape[0] * gradient.numpy()

    def flow(self, w, time, steps):
        h = time / steps
        for _ in range(steps):
            one = self.velocity(w)
            two = self.velocity(w + h / 2 * one)
            three = self.velocity(w + h / 2 * two)
            w = w + h / 6 * (one + 2 * two + 2 * three + self.velocity(w + h * three))
            w /= np.linalg.norm(w, axis=1, keepdims=True)
        return w


def mass_and_events(system, loss, overlaps, first=3):
    """Return the learned mass of degrees from `first` on, and the events of a system with the levels ½ and 1/10."""
    link, a = system.problem.activation, np.array(system.problem.teacher.coefficients)
    powers = np.where(np.arange(link.order + 1) < first, 0.0, link.coefficients**2)
    mass = np.polynomial.polynomial.polyval(overlaps, powers).mean(axis=0) / powers.sum()
    size = np.maximum(overlaps, 0.0) if system.problem.information_exponent % 2 else overlaps
    levels = np.array([0.5, 0.1]) * system.teacher_loss() - loss
    return mass, np.concatenate([levels, (size**2).max(axis=0) - 0.5, mass - 0.5 * a])


@pytest.mark.kernels
@pytest.mark.parametrize("teacher", TEACHERS.values(), ids=TEACHERS)
@pytest.mark.parametrize("width", [1, 5, 37])
def test_motion_and_events_are_those_of_autograd(teacher, width):
    given, link, other = teacher
    question = problem(link, width, 6, teacher_activation=other, seed=2, **given)
    # Weights in all of R^d, which a problem in reduced form may not have.
    question = dynamics.coupled_problem(question, width, 2)
    system = SphericalSystem(question, (0.5, 0.1))
    kernels = Kernels(system)
    exact, w = ByAutograd(question), system.unpack(system.initial_state)
    full = np.pad(w, ((0, 0), (0, 6 - w.shape[1])))
    velocity = kernels.rhs().reshape(w.shape)
    np.testing.assert_allclose(velocity, exact.velocity(full)[:, : w.shape[1]], rtol=0, atol=2e-14)
    loss = float(exact.loss(torch.from_numpy(full)))
    assert system.loss(system.initial_state) == pytest.approx(loss, abs=1e-14)
    overlaps = full @ exact.theta.numpy().T
    np.testing.assert_allclose(system.overlaps(system.initial_state), overlaps, atol=1e-15)
    mass, events = mass_and_events(system, loss, overlaps)
    np.testing.assert_allclose(kernels.events(), events, atol=1e-13)
    np.testing.assert_allclose(system.summarise(system.initial_state)["learned_mass"], mass, rtol=0, atol=1e-14)
    np.testing.assert_allclose(kernels.normalised(3.0 * system.initial_state), system.initial_state, rtol=1e-14)


@pytest.mark.thorough
@pytest.mark.parametrize("teacher", TEACHERS.values(), ids=TEACHERS)
def test_the_flow_is_that_of_the_weights_by_autograd(teacher):
    given, link, other = teacher
    question = dynamics.coupled_problem(problem(link, teacher_activation=other, **given), 5, 3)
    flow = solve(question, (0.0, 2.0, 4.0))
    exact = ByAutograd(question)
    w = question.initial_weights.copy()
    np.testing.assert_allclose(flow.neuron_vector[0, :, : question.teacher.span], w[:, : question.teacher.span])
    for t in (1, 2):
        w = exact.flow(w, 2.0, 80)
        found = flow.neuron_vector.values[t]
        np.testing.assert_allclose(found @ found.T, w @ w.T, rtol=0, atol=1e-7)
        np.testing.assert_allclose(flow.teacher_overlap[t], w @ exact.theta.numpy().T, rtol=0, atol=1e-7)
        assert float(flow.loss[t]) == pytest.approx(float(exact.loss(torch.from_numpy(w))), abs=1e-8)
    assert float(flow.loss[2]) < float(flow.loss[0]) - 0.01


def test_neurons_stay_on_the_sphere_and_the_loss_falls():
    question = problem(MIXED, 40, 12, (0.6, 0.4), teacher_activation=OTHER)
    flow = solve(question, np.linspace(0.0, 20.0, 60), rtol=1e-6)
    np.testing.assert_allclose(np.sum(flow.neuron_vector.values**2, axis=2), 1, atol=1e-5)
    assert (np.diff(flow.loss.values) < 1e-9).all()
    other = solve(question, (20.0,), method="scipy:DOP853", keep="summary")
    assert float(other.loss[0]) == pytest.approx(float(flow.loss[-1]), abs=1e-6)
    assert "neuron_vector" not in other


def test_widths_share_their_first_neurons():
    asked = problem("he3", seed=7, label_noise=0.1)
    narrow, wide = (dynamics.coupled_problem(asked, width, 3) for width in (3, 20))
    np.testing.assert_array_equal(narrow.initial_weights, wide.initial_weights[:3])
    np.testing.assert_allclose(np.linalg.norm(wide.initial_weights, axis=1), 1, atol=1e-15)
    assert (wide.width, wide.label_noise, wide.activation.name) == (20, 0.1, asked.activation.name)
    assert not np.array_equal(dynamics.coupled_problem(asked, 3, 4).initial_weights, narrow.initial_weights)


@pytest.mark.parametrize(("coefficients", "directions"), [((1.0,), None), ((0.6, 0.4), [[1.0, 0.0], [0.6, 0.8]])])
def test_tracers_follow_the_field_and_are_no_part_of_it(coefficients, directions):
    """Tracers at the particles' own places go where these go, and change nothing."""
    question = problem({2: 0.3, 4: 0.7}, 1, 9, coefficients, directions)
    settings = {"save_at": dynamics.SaveAt.at([0.0, 2.0]), "particles": 300, "progress": False}
    alone = dynamics.solve_mean_field(question, **settings)
    places = alone.alpha.values[..., None] if "alpha" in alone else alone.projection.values
    followed = dynamics.solve_mean_field(question, tracers=places[0], **settings)
    np.testing.assert_allclose(followed.loss, alone.loss, atol=1e-9)
    assert followed.weight.size == 300
    np.testing.assert_allclose(followed.tracer_projection, places, atol=1e-8)
    assert np.abs(places[1] - places[0]).max() > 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keep": "some"}, "keep"),
        ({"method": "bdf"}, "method"),
        ({"rtol": 0.0}, "rtol"),
        ({"on_failure": "ignore"}, "on_failure"),
    ],
)
def test_bad_arguments_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        solve(problem(), **changes)
