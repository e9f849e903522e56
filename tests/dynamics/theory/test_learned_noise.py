"""Noise of the time at which a direction is learned: moves of single samples by autograd, and its known limits."""

import math

import numpy as np
import pytest
import torch
from gaussian_rules import gauss_grid
from scipy.integrate import solve_ivp
from shared_links import MIXED

import dynamics
from dynamics import learning_rate_limit
from dynamics.theory import escape_bias, learned_bias, predict
from dynamics.theory.step_noise import LearnedBias, LearningPair


def problem_of(link, overlap, squared_norm, *, a=(1.0,), dimension=32, **changes):
    """One neuron, with an overlap with the first direction alone."""
    start = ([[overlap] + [0.0] * (len(a) - 1)], [[1.0]], [squared_norm])
    given = {"activation": link, "teacher": dynamics.Teacher(a), "width": 1, "dimension": dimension}
    return dynamics.Problem(**given | {"initial_overlaps": start} | changes)


def pair_of(problem):
    return LearningPair(problem, predict(problem), 0)


def bias_of(problem, rate, direction=0):
    prediction = predict(problem)
    return learned_bias(problem, rate, prediction, escape_bias(problem, rate, prediction), direction)


def moves_of_samples(problem):
    """Changes of (C, ln n) by one sample of SGD at η = 1, of first and second order, (samples, 2), and weights of these."""
    overlap, norm = problem.start().teacher_overlap[0, 0], math.sqrt(problem.start().squared_norm[0])
    x, share = (torch.tensor(part) for part in gauss_grid(12, 3))
    c = problem.activation.coefficients

    def link(z):
        basis = [torch.ones_like(z), z]
        for j in range(1, c.size - 1):
            basis.append((z * basis[j] - math.sqrt(j) * basis[j - 1]) / math.sqrt(j + 1))
        return sum(each * h for each, h in zip(c, basis, strict=True))

    def place(w):
        return torch.stack([w[0] / w.norm(), torch.log(w @ w)])

    weights = norm * torch.tensor([overlap, 0.0, math.sqrt(1.0 - overlap**2)], dtype=torch.float64)
    rows = weights.expand(x.shape).clone().requires_grad_()
    length = rows.norm(dim=1)
    output = length**2 * link((rows * x).sum(dim=1) / length)
    (slope,) = torch.autograd.grad(output.sum(), rows)
    target = sum(a * link(x[:, p]) for p, a in enumerate(problem.teacher.coefficients))
    error = torch.cat([(output - target).detach() + tau for tau in (-problem.label_noise, problem.label_noise)])
    move = -error[:, None] * torch.cat([slope, slope])
    tangent = torch.autograd.functional.jacobian(place, weights)
    bend = torch.stack([torch.autograd.functional.hessian(lambda w, i=i: place(w)[i], weights) for i in range(2)])
    first, second = move @ tangent.T, 0.5 * torch.einsum("si,cij,sj->sc", move, bend, move)
    return first.numpy(), second.numpy(), 0.5 * torch.cat([share, share]).numpy()


@pytest.mark.parametrize(
    ("link", "overlap", "squared_norm"), [(MIXED, 0.6, 0.4), ("he4", -0.5, 0.7), ("he3", 0.97, 1e-3)]
)
def test_motion_and_covariance_are_those_of_single_samples_in_weight_space(link, overlap, squared_norm):
    problem = problem_of(link, overlap, squared_norm, a=(0.9, 0.5), dimension=3, label_noise=0.4)
    first, second, share = moves_of_samples(problem)
    mean, rate = share @ first, 0.01
    covariance = (first - mean).T @ (share[:, None] * (first - mean))
    state = np.array([overlap, math.log(squared_norm), 0.0, 0.0, 0.0])
    pair = pair_of(problem)
    expected = [*(mean + rate * (share @ second)), covariance[0, 0], covariance[0, 1], covariance[1, 1]]
    np.testing.assert_allclose(pair.rates(0.0, state, rate), expected, rtol=1e-9, atol=1e-11)


def test_the_covariance_is_carried_along_by_the_flow():
    """The part linear in Σ is JΣ + ΣJᵀ, J by differences of the motion."""
    pair, step = pair_of(problem_of(MIXED, 0.6, 0.4)), 1e-5
    state, sigma = np.array([0.6, math.log(0.4), 0.0, 0.0, 0.0]), np.array([[0.7, -0.2], [-0.2, 0.4]])
    jacobian = np.empty((2, 2))
    for i in range(2):
        moved = np.zeros(5)
        moved[i] = step
        ahead, behind = (pair.rates(0.0, state + side * moved, 0.0)[:2] for side in (1, -1))
        jacobian[:, i] = (ahead - behind) / (2.0 * step)
    carried = jacobian @ sigma + sigma @ jacobian.T
    spread = np.append([0.0, 0.0], sigma[np.triu_indices(2)])
    found = (pair.rates(0.0, state + spread, 0.0) - pair.rates(0.0, state, 0.0))[2:]
    np.testing.assert_allclose(found, carried[np.triu_indices(2)], rtol=1e-8)


@pytest.mark.parametrize("overlap", [0.3, pytest.param(-0.15, marks=pytest.mark.long)])
def test_without_output_the_scatter_up_to_the_emergence_is_that_of_the_escape(overlap):
    """Var T = Σ_CC / b² at C² = ½; the escape takes E[e² m²], from which the mean squared, η T in all, is not taken."""
    problem, rate = problem_of("he4", overlap, 1e-13, label_noise=0.5), 1e-9
    prediction = predict(problem)
    escape, pair = escape_bias(problem, rate, prediction), pair_of(problem)
    time = prediction.predicted_emergence_time[0]
    start = np.array([*pair.start, 0.0, 0.0, 0.0])
    end = solve_ivp(pair.rates, (0.0, time), start, args=(0.0,), method="DOP853", rtol=1e-10, atol=1e-12).y[:, -1]
    assert abs(end[0]) == pytest.approx(math.sqrt(0.5), rel=1e-7)
    variance = rate * end[2] / pair.rates(time, end, 0.0)[0] ** 2
    assert variance == pytest.approx((escape.scatter[0] * time) ** 2 - rate * time, rel=1e-6)


def test_the_mean_is_that_of_the_finite_step_equation_where_it_has_the_same_means():
    """The equation follows E R and E S by sums over diagrams: another derivation and another integrator."""
    problem = problem_of("he4", 0.4, 1e-4, dimension=256, label_noise=0.3)
    rate, prediction = 0.2 * learning_rate_limit(problem), predict(problem)
    found = bias_of(problem, rate)
    exact = dynamics.solve_overlaps(
        problem, learning_rate=rate, step_theory="finite-d", method="explicit", rtol=1e-9, progress=False
    )
    late = float(exact.learned_time[0]) / prediction.predicted_learned_time[0] - 1.0
    assert found.step_bias == pytest.approx(late, rel=1e-4)
    assert 0.02 < found.step_bias < found.bias


def test_other_directions_are_noise_until_they_are_learned():
    """One that waits is label noise of its mean square a² g(1), one that is learned at the start is none."""
    scatter = []
    for other in (0.99, 1e-3):
        start = ([[0.4, 0.0], [0.0, other]], np.eye(2), [1e-4, 8.0])
        scatter.append(
            bias_of(problem_of("he4", 0.4, 1e-4, a=(0.5, 8.0), width=2, initial_overlaps=start), 1e-10).scatter
        )
    alone = [bias_of(problem_of("he4", 0.4, 1e-4, a=(0.5,), label_noise=noise), 1e-10).scatter for noise in (0.0, 8.0)]
    assert scatter == pytest.approx(alone, rel=1e-6)
    assert alone[1] > 1.5 * alone[0]


def test_what_is_learned_at_once_or_by_another_neuron_or_never():
    assert bias_of(problem_of("he4", 0.95, 0.9), 1e-6) == LearnedBias(0.0, 0.0, 0.0)
    never = bias_of(problem_of("he4", 0.4, 1e-4, a=(1.0, 0.5)), 1e-6, direction=1)
    assert math.isnan(never.bias)
    start = ([[-0.3], [0.05]], np.eye(2), [1e-4, 1e-4])
    sides = problem_of({4: 0.8, 5: 0.6}, 0.3, 1e-4, width=2, initial_overlaps=start)
    assert predict(sides).matched_neuron[0] != predict(sides).learning_neuron[0]
    assert math.isnan(bias_of(sides, 1e-6).scatter)
