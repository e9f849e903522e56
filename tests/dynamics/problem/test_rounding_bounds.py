"""Bounds on computed numbers: rounding on the boundary is no reason to refuse, and what is beyond it still is."""

import math

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics import Problem, RMSprop, Student, Teacher
from dynamics.equations.mean_field import checked_tracers
from dynamics.problem.checks import checked_number, is_at_most, is_same
from dynamics.solve.reused_data import checked_data
from dynamics.solve.steps import StepSettings, make_system
from sgd_check.verdicts.verdict import checked_simulations

STUDENT = Student(activation="erf", width=2, second_layer="fixed")


def test_rounding_passes_a_bound_and_more_does_not():
    assert 0.1 + 0.2 > 0.3
    assert is_at_most(0.1 + 0.2, 0.3)
    assert is_same(0.1 + 0.2, 0.3)
    assert not is_at_most(0.3 * (1.0 + 1e-14), 0.3)
    assert not is_same(0.3, 0.3 * (1.0 + 1e-14))
    assert checked_number(0.1 * 3 / 0.3, "share", positive=True, maximum=1.0) == 1.0
    with pytest.raises(ValueError, match=r"^Argument `share` must be at most 1, but is 1\.0001\.$"):
        checked_number(1.0001, "share", positive=True, maximum=1.0)


@pytest.mark.parametrize("dimension", [24, 200, 333, 10**6])
def test_the_forgetting_of_rmsprop_may_be_the_largest(dimension):
    problem = Problem(student=STUDENT, teacher=Teacher([1.0, 0.5], links=["erf"] * 2), dimension=dimension)
    for forgetting, is_known in ((5.0, True), (5.001, False)):
        optimizer = RMSprop(beta2=1.0 - forgetting / dimension)
        settings = StepSettings(1e-3, "infinite-d", optimizer=optimizer)
        if is_known:
            assert make_system(problem, settings).num_events > 0
        else:
            with pytest.raises(ValueError, match=r"must have \(1 - beta2\) d <= 5: .*; it has 5\.001\.$"):
                make_system(problem, settings)


def test_normalised_tracers_are_at_most_of_length_one():
    problem = Problem(activation="erf", teacher=Teacher(np.full(3, 1 / 3)), width=4, dimension=16, student="spherical")
    rows = np.random.default_rng(0).standard_normal((200, 3))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    assert np.sqrt(np.sum(rows**2, axis=1)).max() > 1.0
    assert checked_tracers(problem, rows).shape == (200, 3)
    with pytest.raises(ValueError, match=r"rows of length at most 1, but the longest has length 1\.00001"):
        checked_tracers(problem, 1.00001 * rows)


def test_every_sample_may_be_a_batch_of_its_own():
    """One sample in 49 dimensions: 49 (1/49) < 1."""
    assert 49 * (1 / 49) < 1
    problem = Problem(student=STUDENT, teacher=Teacher([1.0], links=["erf"]), dimension=49)
    checked_data(problem, 1, 1e-3, 1, 1, False, 2**14)
    with pytest.raises(
        ValueError, match="Argument `batches_per_epoch` must be at most the number of samples, 1, but is 2"
    ):
        checked_data(problem, 1, 1e-3, 1, 2, False, 2**14)


def test_the_best_schedule_may_start_from_the_least_overlap():
    from dynamics.theory.schedules import LEAST_OVERLAP

    for d in range(80, 100):
        start = ([[LEAST_OVERLAP * d**-0.5]], [[1.0]], [1.0])
        problem = Problem(
            activation="he3", teacher=Teacher([1.0]), width=1, dimension=d, student="spherical",
            objective="correlation", initial_overlaps=start,
        )  # fmt: skip
        dynamics.best_schedule(problem)
    assert any(LEAST_OVERLAP * d**-0.5 < LEAST_OVERLAP / math.sqrt(d) for d in range(80, 100))


def test_two_learning_rates_may_differ_by_the_least_factor():
    """1.2 times 0.003 is 0.0036, but in float64 above it."""
    assert 1.2 * 3 / 1000 < 1.2 * 0.003
    start = np.eye(2, 8)
    problem = Problem(activation="he2", teacher=Teacher([1.0, 0.5]), width=2, dimension=8, initial_weights=start)
    save_at = dynamics.SaveAt.at([0.0, 0.05])
    flow = dynamics.solve_overlaps(problem, save_at=save_at, progress=False)
    runs = [
        sgd_check.simulate(problem, learning_rate=rate, steps=20, seeds=8, save_at=save_at, progress=False)
        for rate in (1.2 * 3 / 1000, 0.003)
    ]
    assert checked_simulations(flow, runs)[1][0].attrs["learning_rate"] == 1.2 * 3 / 1000


def test_the_learning_rate_of_an_answer_may_be_rounded():
    start = ([[0.35]], [[1.0]], [1e-4])
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=32, initial_overlaps=start)
    answer = dynamics.predict_emergence(problem, save_at=dynamics.SaveAt.at([1.0]))
    stepped = answer.assign_attrs(step_theory="finite-d", learning_rate=3e-5, batch_size=1)
    rate = 3 * 1e-5
    assert rate != 3e-5
    assert dynamics.learning_steps(stepped, direction=1, learning_rate=rate).learning_rate == 3e-5
    with pytest.raises(ValueError, match="Argument `learning_rate` must be that of the answer, 3e-05, but is "):
        dynamics.learning_steps(stepped, direction=1, learning_rate=3.1e-5)
