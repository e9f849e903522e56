"""Answers do not depend on how the host lets numpy treat rounding to zero and other exceptions (`numpy.seterr`)."""

import numpy as np
import pytest

import dynamics
import hermite
import sgd_check

RELU = dynamics.Problem(activation="relu", teacher=dynamics.Teacher([1.0, 0.5]), width=4, dimension=30, seed=1)
CUBIC = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0, 0.5]), width=4, dimension=30, seed=1)
QUADRATIC = dynamics.Problem(activation="he2", teacher=dynamics.Teacher([1.0, 0.5]), width=4, dimension=30, seed=1)
NETWORK = dynamics.Problem(
    student=dynamics.Student(activation="gelu", width=4, second_layer="trained", biases="trained"),
    teacher=dynamics.Teacher([1.0, 0.5], links=["gelu", "gelu"]), dimension=20, seed=1,
)  # fmt: skip
END = dynamics.SaveAt.at([0.0, 1.0])
CALLS = {
    "expand": lambda: hermite.expand("gelu").coefficients,
    "leap": lambda: hermite.leap("z1*z2 + z1").leap,
    "limit": lambda: dynamics.learning_rate_limit(RELU),
    "overlaps": lambda: dynamics.solve_overlaps(CUBIC, progress=False)["loss"].values,
    "decoupled": lambda: dynamics.solve_decoupled(CUBIC)["loss"].values,
    "quadratic": lambda: dynamics.solve_quadratic(QUADRATIC, progress=False)["loss"].values,
    "network": lambda: dynamics.solve_network(NETWORK, save_at=END, progress=False)["loss"].values,
    "learning steps": lambda: dynamics.learning_steps(dynamics.predict_emergence(CUBIC), direction=1, learning_rate=1e-5).steps,
    "simulate": lambda: sgd_check.simulate(CUBIC, learning_rate=1e-4, steps=100, seeds=2, progress=False)["loss"].values,
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_host_that_makes_exceptions_of_rounding_changes_no_answer(call):
    with np.errstate(all="raise"):
        found = call()
        state = np.geterr()
    assert set(state.values()) == {"raise"}
    np.testing.assert_array_equal(found, call())
