"""The worked example of a system from outside: matched pairs under weight decay."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dynamics

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
import weight_decay

SAVED = dynamics.SaveAt.linear(0.0, 300.0, 61)


def problem_of(link, width=12):
    teacher = dynamics.Teacher.power_law(3, beta=1.0)
    return dynamics.Problem(activation=link, teacher=teacher, width=width, dimension=64)


@pytest.mark.parametrize("link", ["he4", {3: 0.8, 5: 0.6}])
def test_without_decay_it_is_the_exact_solution_of_the_pairs(link):
    problem = problem_of(link)
    found = weight_decay.solve(problem, decay=0.0, save_at=SAVED)
    exact = dynamics.solve_decoupled(problem, save_at=SAVED)
    for name in ("overlap", "matched_squared_norm", "loss", "emergence_time", "learned_time"):
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-7, atol=1e-8)


def test_norms_follow_another_integrator_and_end_at_the_fixed_point():
    problem, decay = problem_of("he4"), 0.1
    found = weight_decay.solve(problem, decay=decay, save_at=SAVED)
    a = problem.teacher.coefficients

    def pairs(t, y):
        C, n = y[:3], np.exp(y[3:])
        return np.concatenate([4 * a * C**3 * (1 - C**2), 4 * (a * C**4 - n) - 2 * decay])

    start = np.concatenate([found.overlap[0], np.log(found.matched_squared_norm[0])])
    reference = solve_ivp(pairs, (0.0, 300.0), start, method="LSODA", t_eval=SAVED.times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.overlap, reference.y[:3].T, atol=1e-7)
    np.testing.assert_allclose(found.matched_squared_norm, np.exp(reference.y[3:]).T, atol=1e-7)
    np.testing.assert_allclose(found.matched_squared_norm[-1], a - decay / 2, rtol=1e-7)


def test_a_sweep_takes_it_as_a_study():
    options = {"save_at": SAVED}
    found = dynamics.sweep(
        problem_of("he4"), {"decay": [0.0, 0.1]}, study=weight_decay.solve, options=options, workers=0
    )
    first, second = found.emergence_time.values
    np.testing.assert_allclose(first, second, rtol=1e-7)
    assert (found.learned_time[0] < found.learned_time[1]).all()


def test_directions_without_a_neuron_are_refused():
    with pytest.raises(ValueError, match="every direction a neuron, but has width 2"):
        weight_decay.solve(problem_of("he4", width=2), decay=0.1, save_at=SAVED)
