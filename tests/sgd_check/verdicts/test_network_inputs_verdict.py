"""Verdicts on SGD of networks on inputs that are not isotropic: right and wrong theories, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest

import dynamics
import sgd_check
from sgd_check.studies.kinds import stretched

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def problem():
    """A relu network with trained biases and second layer on power-law inputs."""
    student = dynamics.Student(activation="relu", width=8, biases="trained", initial_biases=0.5, scale="1/sqrt(m)")
    teacher = dynamics.Teacher([1.0, -0.7], links=["relu", "relu"], biases=[0.3, -0.2])
    return dynamics.Problem(
        student=student, teacher=teacher, dimension=64, inputs=dynamics.Inputs.power_law(1.0), seed=1
    )


@pytest.fixture(scope="module")
def runs(problem):
    return [
        sgd_check.simulate(problem, learning_rate=rate, steps=round(40.0 / rate), seeds=64, **QUIET)
        for rate in (2e-3, 1e-3)
    ]


TIMES = dynamics.SaveAt.at([0.0, *np.geomspace(0.05, 60.0, 150)])


@pytest.fixture(scope="module")
def flow(problem):
    return dynamics.solve_problem(problem, save_at=TIMES, error_estimate=False, **QUIET)


@pytest.mark.thorough
def test_runs_agree_with_the_flow(flow, runs):
    assert runs[0].attrs["engine"] == "projected"
    comparison = sgd_check.compare(flow, runs)["comparison"]
    assert comparison.attrs["verdict"] == "agree", comparison.attrs["reasons"]
    assert comparison["quantity"].values.tolist()[:3] == ["loss", "sensitivity 1", "sensitivity 2"]


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [1.3, 1 / 1.3])
def test_times_thirty_percent_off_are_refuted(flow, runs, factor):
    assert sgd_check.compare(stretched(flow, factor), runs)["comparison"].attrs["verdict"] == "disagree"


def test_the_theory_of_isotropic_inputs_is_refuted(problem, flow, runs):
    """The same whitened start, moved as on isotropic inputs."""
    isotropic = replace(problem, inputs=None, initial_norm=None, initial_weights=problem.reduced_weights())
    plain = dynamics.solve_problem(isotropic, save_at=TIMES, error_estimate=False, **QUIET)
    assert float(plain.loss[0]) == pytest.approx(float(flow.loss[0]), rel=1e-10)
    attrs = sgd_check.compare(flow.assign(dict(plain.drop_vars("initial_weight").data_vars)), runs)["comparison"].attrs
    assert attrs["verdict"] == "disagree"


@pytest.mark.thorough
def test_the_engine_of_torch_is_simulated_and_other_engines_are_refused(problem):
    runs = sgd_check.simulate(problem, learning_rate=2e-3, steps=50, seeds=2, engine="torch", dtype="float64", **QUIET)
    assert np.isfinite(runs.loss).all()
    inputs = problem.inputs
    for name in ("diffusion", "scalar"):
        need = f"Argument `problem` must have `inputs` None for engine {name!r}, but has {inputs!r}"
        with pytest.raises(ValueError, match=f"^{re.escape(need)}"):
            sgd_check.simulate(problem, learning_rate=2e-3, steps=50, seeds=2, engine=name)
    limit = dynamics.learning_rate_limit(problem)
    share = sgd_check.simulate(problem, learning_rate="0.1x", steps=50, seeds=2, **QUIET)
    assert share.attrs["learning_rate"] == pytest.approx(0.1 * limit, rel=1e-12)
    with pytest.raises(ValueError, match="must have isotropic inputs for the mean step of SGD of a Student"):
        sgd_check.check(problem, learning_rate=2e-3, steps=50, seeds=2, theory="finite-step", **QUIET)
