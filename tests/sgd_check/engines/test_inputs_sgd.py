"""SGD on inputs that are not isotropic: by class, in R^d, against autograd and against theory.

Tests of two samples have fixed seeds; each would fail once in a thousand others where the two laws are the same.
"""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from scipy import stats

import dynamics
import sgd_check
from sgd_check.engines import EngineOptions, make_engine

TEACHER = dynamics.Teacher([0.8, 0.6])
INPUTS = dynamics.Inputs([1.5, 0.6, 1.0], [1, 12, 3])


def problem(**given):
    return dynamics.Problem(
        **{
            "activation": {3: 0.8, 4: 0.6},
            "teacher": TEACHER,
            "width": 2,
            "dimension": 16,
            "inputs": INPUTS,
            "initial_norm": 0.5,
            "label_noise": 0.1,
            "seed": 3,
        }
        | given
    )


def after(engine, seeds, steps=150, rate=1e-3, batch=1, **given):
    """Return C of all pairs, G_12 and n of both neurons after some steps, shape (seeds, 7)."""
    options = EngineOptions(seeds=tuple(seeds), dtype="float64", batch_size=batch)
    made = make_engine(engine, problem(**given), options)
    with made.running():
        made.advance(np.full(steps, rate))
        found = made.measure(student=True)
    count = len(seeds)
    parts = found.teacher_overlap, found.student_overlap[:, 0, 1], found.squared_norm
    return np.hstack([part.reshape(count, -1) for part in parts])


@pytest.mark.parametrize("rows", [None, np.array([[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])])
@pytest.mark.kernels
def test_a_step_in_space_is_autograd_in_w(rows):
    teacher = dynamics.Teacher([0.8, 0.6], directions=rows)
    weights = np.random.default_rng(0).standard_normal((2, 16))
    asked = problem(teacher=teacher, initial_weights=weights, label_noise=0.0, initial_norm=None, seed=0)
    made = make_engine("torch", asked, EngineOptions(seeds=(7,), dtype="float64", batch_size=3))
    runs, s = made._groups[0], torch.tensor(INPUTS.eigenvalues_of_axes(16))
    # The start is turned within classes, which changes no overlap.
    start = runs.weights[0].clone()
    made.advance(np.array([0.02]))
    moved = stepped(asked, start, s, runs.source._x[0, :3])
    np.testing.assert_allclose(runs.weights[0], moved, rtol=0, atol=1e-12)


@pytest.mark.kernels
def test_a_batch_of_the_projected_engine_is_autograd_in_w():
    """Classes that keep all their axes, so that every coordinate of the samples is drawn."""
    inputs = dynamics.Inputs([1.5, 0.6, 1.0], [1, 3, 1])
    weights = np.random.default_rng(0).standard_normal((2, 5))
    asked = problem(
        dimension=5, inputs=inputs, initial_weights=weights, label_noise=0.0, initial_norm=None, seed=0
    )  # fmt: skip
    made = make_engine("projected", asked, EngineOptions(seeds=(7,), batch_size=3))
    start = torch.tensor(asked.reduced_weights())
    with made.running():
        made.advance(np.array([0.02]))
    g = torch.tensor(made._benches[0][0][0].reshape(3, 5))
    moved = stepped(asked, start, torch.tensor(inputs.eigenvalues_of_axes(5)), g)
    np.testing.assert_allclose(made.state()["weights"][0].T, moved, rtol=0, atol=1e-12)


def stepped(asked, start, s, g):
    """Return the whitened weights after a step of 0.02 on samples g (B, d), by automatic differentiation in w."""
    w, teacher = (start / s.sqrt()).clone().requires_grad_(), asked.teacher
    n = (w**2 * s).sum(dim=1)
    rest = asked.activation.coefficients
    link = np.polynomial.hermite_e.herme2poly(rest / np.sqrt([1.0, 1.0, 2.0, 6.0, 24.0][: rest.size]))

    def sigma(z):
        return sum(float(c) * z**j for j, c in enumerate(link))

    student = (n[:, None] * sigma((w * s.sqrt()) @ g.T / n.sqrt()[:, None])).sum(dim=0)
    directions = np.eye(2) if teacher.directions is None else teacher.directions
    labels = torch.tensor(teacher.coefficients) @ sigma(torch.tensor(directions) @ g[:, : directions.shape[1]].T)
    (gradient,) = torch.autograd.grad(0.5 * ((student - labels) ** 2).mean(), w)
    return (w - 0.02 * gradient).detach() * s.sqrt()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given",
    [
        {"teacher": dynamics.Teacher([0.8, 0.6], directions=[[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])},
        *(pytest.param(given, marks=pytest.mark.long) for given in ({}, {"inputs": dynamics.Inputs([1.5, 0.7], [8, 8])}, {"batch": 3, "rate": 2e-3})),
    ],
)  # fmt: skip
def test_classes_have_the_law_of_sgd_in_space(given):
    seeds = range(1000, 1400)
    projected, space = (after(engine, seeds, **given) for engine in ("projected", "torch"))
    start = after("projected", (0,), steps=0, **given)
    np.testing.assert_allclose(start, after("torch", (0,), steps=0, **given), atol=1e-14)
    for column in range(projected.shape[1]):
        # Seven columns share the rate of false alarms.
        assert stats.ks_2samp(projected[:, column], space[:, column]).pvalue > 1e-3 / 7
        assert np.std(space[:, column]) > 0.005


@pytest.mark.kernels
def test_small_steps_follow_the_flow():
    """Growth of |w|² in 40 runs at η = 1.5e-4, within five standard errors and a tenth for the size of the step."""
    asked = problem(dimension=64, inputs=dynamics.Inputs([1.5, 0.6], [10, 54]), label_noise=0.0)
    times = dynamics.SaveAt.at([0.0, 0.3])
    flow = dynamics.solve_overlaps(asked, save_at=times, method="explicit", progress=False, error_estimate=False)
    runs = sgd_check.simulate(asked, learning_rate=1.5e-4, steps=2000, seeds=40, save_at=times, progress=False)
    assert runs.attrs["engine"] == "projected"
    moved = runs.squared_norm.values[:, -1] - runs.squared_norm.values[:, 0]
    expected = flow.squared_norm.values[-1] - flow.squared_norm.values[0]
    error = np.std(moved, axis=0) / np.sqrt(40)
    assert np.all(np.abs(moved.mean(axis=0) - expected) < 5.0 * error + 0.1 * np.abs(expected))


@pytest.mark.parametrize(("share", "lost"), [(0.7, 0), (3.0, 20)])
def test_runs_blow_up_beyond_the_limit_of_stability(share, lost):
    """20 runs of 2e4 steps from 1e-6 beside the converged student: none blows up below the limit, all at three times it.

    The mean square of deviations grows from the limit on; single runs do from about twice the limit on.
    """
    inputs = dynamics.Inputs([3.0, 0.5], [3, 61])
    weights = 1e-6 * np.random.default_rng(0).standard_normal((2, 64))
    weights[[0, 1], [0, 1]] = np.sqrt(np.array([0.8, 0.6]) / 3.0)
    asked = problem(
        activation="he3", dimension=64, inputs=inputs, initial_weights=weights, initial_norm=None, label_noise=0.0,
        seed=0,
    )  # fmt: skip
    limit = dynamics.learning_rate_limit(asked)
    run = {"learning_rate": share * limit, "steps": 20_000, "seeds": 20, "progress": False}
    with pytest.warns(UserWarning, match="limit of stability") if lost else nullcontext():
        runs = sgd_check.simulate(asked, **run)
    assert runs.attrs["learning_rate_limit"] == limit
    last = runs.squared_norm.values[:, -1]
    assert np.isnan(last).any(axis=1).sum() == lost
    if not lost:
        np.testing.assert_allclose(last, np.tile([0.8, 0.6], (20, 1)), atol=1e-5)


@pytest.mark.thorough
def test_the_equation_of_finite_steps_is_the_mean_of_runs():
    """n after 400 steps at half the limit, 400 runs: within 4.5 standard errors, from which the flow is farther.

    Two norms, each wrong by chance once in 10^5.
    """
    asked = problem(dimension=1000, inputs=dynamics.Inputs([1.5, 0.6], [100, 900]))
    rate = 0.5 * dynamics.learning_rate_limit(asked)
    at = {"save_at": dynamics.SaveAt.at([0.0, 400 * rate]), "progress": False}
    flow, equation = (
        dynamics.solve_overlaps(asked, learning_rate=each, method="explicit", error_estimate=False, **at)
        for each in (None, rate)
    )
    runs = sgd_check.simulate(asked, learning_rate=rate, steps=400, seeds=400, **at)
    last = runs.squared_norm.values[:, -1]
    error = last.std(axis=0) / 20.0
    assert np.all(np.abs(equation.squared_norm.values[-1] - last.mean(axis=0)) < 4.5 * error)
    assert np.all(np.abs(flow.squared_norm.values[-1] - last.mean(axis=0)) > 4.5 * error)
    assert sgd_check.compare(equation, runs)["comparison"].attrs["theory"] == "finite step"
