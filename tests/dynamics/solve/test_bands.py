"""Bands of single runs: accepted numbers, linear cases in closed form, and SGD in plain numpy."""

import numpy as np
import pytest

from dynamics import Problem, SaveAt, Student, Teacher, solve_network

TIMES = (1.0, 2.0, 5.0, 10.0, 20.0)


def logistic_unit(overlap, dimension):
    """Return a linear unit of length 1 that learns y = sign z_1 by cross-entropy, from an overlap with z_1."""
    weights = np.zeros((1, dimension))
    weights[0, :2] = overlap, np.sqrt(1.0 - overlap**2)
    student = Student(activation="z", width=1, second_layer="fixed", initial_second_layer=[1.0])
    return Problem(
        student=student, teacher=Teacher([1.0]), dimension=dimension, objective="logistic", labels="sign",
        initial_weights=weights,
    )  # fmt: skip


def bands_of(problem, times, **arguments):
    """Return the answer with bands at η = 1/d, in the theory of large d."""
    settings = {"learning_rate": 1.0 / problem.dimension, "step_theory": "infinite-d", "bands": True} | arguments
    return solve_network(problem, save_at=SaveAt.at([0.0, *times]), progress=False, **settings)


def test_logistic_unit_has_the_accepted_scatter():
    """Of a unit that learns y = sign z_1, √d times the deviation of Q: accepted to four digits by other programs."""
    answer = bands_of(logistic_unit(0.05, 50), TIMES)
    deviation = np.sqrt(50) * answer.squared_norm_sd.values[1:, 0]
    assert deviation == pytest.approx([0.6513, 0.7153, 0.7354, 0.8001, 0.9374], rel=3e-3)
    assert answer.squared_norm_sd.values[0, 0] == 0.0
    assert answer.band_ratio.values[0] == 0.0
    assert (answer.band_ratio.values < 0.15).all()
