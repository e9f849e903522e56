"""SGD on inputs that are not isotropic: by class, in R^d, against autograd and against theory.

Tests of two samples have fixed seeds; each would fail once in a thousand others where the two laws are the same.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from engine_state import engine_of, states_of
from sample_steps import assert_autograds_steps, parts_of, step
from scipy import stats
from uneven_networks import labels_of, uneven_network

import dynamics
import sgd_check

TEACHER = dynamics.Teacher([0.8, 0.6])
INPUTS = dynamics.Inputs([1.5, 0.6, 1.0], [1, 12, 3])


def problem(**given):
    return dynamics.Problem(
        **{"activation": {3: 0.8, 4: 0.6}, "teacher": TEACHER, "width": 2, "dimension": 16, "inputs": INPUTS,
           "initial_norm": 0.5, "label_noise": 0.1, "seed": 3} | given
    )  # fmt: skip


UNITS = dynamics.Teacher([0.8, -0.6], directions=[[1.0, 0.0], [0.6, 0.8]], links=["relu", "erf"], biases=[0.2, -0.3])
POLYNOMIAL = dynamics.Teacher.polynomial("x1 + x1*x2")
TILTED = dynamics.Teacher([0.8, 0.6], directions=[[0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])


def network(link="erf", teacher=UNITS, inputs=INPUTS, dimension=16):
    return uneven_network(link, teacher, dimension, inputs=inputs)


def from_weights(teacher=TEACHER, dimension=16, **given):
    weights = np.random.default_rng(0).standard_normal((2, dimension))
    return problem(teacher=teacher, dimension=dimension, initial_weights=weights, initial_norm=None, seed=0, **given)


@pytest.mark.parametrize(
    ("asked", "rates", "batch"),
    [
        pytest.param(from_weights(), [0.02], 3, marks=pytest.mark.kernels),
        pytest.param(from_weights(TILTED), [0.02], 3, marks=pytest.mark.kernels),
        (network(), [0.02] * 40, 1),
        (network("relu", POLYNOMIAL), [0.02] * 40, 1),
        (network("relu"), [0.02] * 40, 5),
    ],
)
def test_torch_takes_autograds_steps_in_space(asked, rates, batch):
    """Of networks forty steps in float64, more than two blocks."""
    _, start, found = assert_autograds_steps(asked, rates, (3, 8), batch_size=batch)
    starts = parts_of(asked, start)
    # The start is turned within classes, which changes no overlap.
    whitened = asked.initial_weights * np.sqrt(INPUTS.eigenvalues_of_axes(16))
    np.testing.assert_allclose(starts[-1][0] @ starts[-1][0].T, whitened @ whitened.T, rtol=0, atol=1e-13)
    for before, after in zip(starts, parts_of(asked, found), strict=True):
        assert np.abs(after - before).max() > 0.01


@pytest.mark.kernels
@pytest.mark.parametrize(("link", "teacher"), [(None, TEACHER), ("erf", UNITS), ("relu", POLYNOMIAL)])
def test_a_batch_of_the_projected_engine_is_autograds_in_space(link, teacher):
    """Classes that keep all their axes, so that every coordinate of the samples is drawn."""
    inputs = dynamics.Inputs([1.5, 0.6, 1.0], [1, 4 if link else 3, 1])
    d = inputs.eigenvalues_of_axes(6 if link else 5).size
    asked = network(link, teacher, inputs, d) if link else from_weights(dimension=d, inputs=inputs)
    asked = replace(asked, label_noise=0.0)
    run = engine_of("projected", asked, (7,), batch_size=4)
    start = states_of(run, asked)
    with run.running():
        run.advance(np.array([0.02]))
    x = run._benches[0][0][0].reshape(1, 4, d)
    expected = step(asked, start, x, labels_of(asked, x), 0.02, np.sqrt(inputs.eigenvalues_of_axes(d)))
    for ours, theirs in zip(parts_of(asked, states_of(run, asked)), parts_of(asked, expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    assert np.abs(parts_of(asked, expected)[-1] - parts_of(asked, start)[-1]).max() > 1e-3


def after(engine, seeds, asked, steps=150, rate=1e-3, batch=1):
    """Return C of all pairs, G of pairs and n of all neurons after some steps, and layers, a row per run."""
    made = engine_of(engine, asked, seeds, dtype="float64", batch_size=batch)
    with made.running():
        made.advance(np.full(steps, rate))
        found = made.measure(student=True)
    parts = [found.teacher_overlap, found.student_overlap[:, *np.triu_indices(asked.width, 1)], found.squared_norm]
    parts += [made.layers()] if asked.kind == "network" else []
    return np.hstack([part.reshape(len(seeds), -1) for part in parts])


EVEN = dynamics.Inputs([1.5, 0.6], [8, 8])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(problem(teacher=TILTED), {}, marks=pytest.mark.thorough),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((problem(), {}), (problem(inputs=EVEN), {}), (problem(), {"batch": 3, "rate": 2e-3}))),
        (network(inputs=EVEN), {"rate": 0.02}),
        (network(inputs=EVEN), {"rate": 0.02, "batch": 3}),
    ],
)  # fmt: skip
def test_classes_have_the_law_of_sgd_in_space(asked, given):
    """150 steps, 400 runs each of other seeds; all columns share the rate of false alarms."""
    projected, space = after("projected", range(400), asked, **given), after("torch", range(1000, 1400), asked, **given)
    start, same = (after(engine, (0,), asked, **given | {"steps": 0}) for engine in ("projected", "torch"))
    np.testing.assert_allclose(start, same, atol=1e-14)
    for column in range(projected.shape[1]):
        assert stats.ks_2samp(projected[:, column], space[:, column]).pvalue > 1e-3 / projected.shape[1]
        assert np.std(space[:, column]) > (0.001 if asked.kind == "network" else 0.005)


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
