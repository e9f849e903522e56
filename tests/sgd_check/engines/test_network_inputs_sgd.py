"""SGD of networks on inputs that are not isotropic: steps against numpy in R^d, the two engines in law, and verdicts."""

import re
from dataclasses import replace

import numpy as np
import pytest
from engine_state import samples_of, weights_of
from scipy import stats
from uneven_networks import labels_of, uneven_network

import dynamics
import sgd_check
from sgd_check.engines.registry import EngineOptions, make_engine
from sgd_check.studies.kinds import stretched

QUIET = {"progress": False}
TEACHER = dynamics.Teacher([0.8, -0.6], directions=[[1.0, 0.0], [0.6, 0.8]], links=["relu", "erf"], biases=[0.2, -0.3])
POLYNOMIAL = dynamics.Teacher.polynomial("x1 + x1*x2")
CLASSES = dynamics.Inputs([1.5, 0.6, 1.0], [1, 12, 3])


def network(link="erf", teacher=TEACHER, inputs=CLASSES, dimension=16):
    return uneven_network(link, teacher, dimension, inputs=inputs)


def step_in_space(problem, state, root, z, labels, rate):
    """One step of v, b and w in R^d, not whitened, on samples x = Σ^½ z, z (B, d)."""
    (v, b, w), student, link = state, problem.student, problem.activation
    x = z * root
    inside = x @ w.T + b
    e = (student.output_scale * link.value(inside) @ v - labels)[:, None] * student.output_scale
    gv, slope = np.mean(e * link.value(inside), axis=0), e * link.derivative(inside) * v
    (rate_w, rate_v, rate_b), (decay_w, decay_v) = student.learning_rates, student.decay
    return (
        (1.0 - rate * decay_v) * v - rate * rate_v * gv,
        b - rate * rate_b * slope.mean(axis=0),
        (1.0 - rate * decay_w) * w - rate * rate_w * slope.T @ x / len(x),
    )


@pytest.mark.parametrize(
    ("link", "teacher", "batch"), [("erf", TEACHER, 1), ("relu", POLYNOMIAL, 1), ("relu", TEACHER, 5)]
)
def test_torch_takes_the_steps_of_numpy_in_space(link, teacher, batch):
    """Forty steps in float64, more than two blocks, on the samples of the engine."""
    problem = network(link, teacher)
    run = make_engine("torch", problem, EngineOptions(seeds=(3, 8), batch_size=batch, dtype="float64"))
    root = np.sqrt(CLASSES.eigenvalues_of_axes(16))
    starts = [(*run.layers()[seed], weights_of(run)[seed] / root) for seed in range(2)]
    # The start is turned within classes, which changes no overlap.
    Q = (problem.initial_weights * root) @ (problem.initial_weights * root).T
    np.testing.assert_allclose(weights_of(run)[0] @ weights_of(run)[0].T, Q, rtol=0, atol=1e-14)
    with run.running():
        z, labels = (part[:40] for part in samples_of(run))
        run.advance(np.full(40, 0.02))
    for seed, state in enumerate(starts):
        start = state
        np.testing.assert_allclose(labels_of(problem, z[0, seed]), labels[0, seed], atol=2.0)  # noise of 0.3
        for samples, labelled in zip(z[:, seed], labels[:, seed], strict=True):
            state = step_in_space(problem, state, root, samples, labelled, 0.02)  # noqa: PLW2901
        found = *run.layers()[seed], weights_of(run)[seed] / root
        for ours, theirs, before in zip(found, state, start, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
            assert np.abs(theirs - before).max() > 0.01


@pytest.mark.kernels
@pytest.mark.parametrize(("link", "teacher"), [("erf", TEACHER), ("relu", POLYNOMIAL)])
def test_a_batch_of_the_projected_engine_is_numpys_in_space(link, teacher):
    """Classes that keep all their axes, so that every coordinate of the samples is drawn."""
    inputs = dynamics.Inputs([1.5, 0.6, 1.0], [1, 4, 1])
    problem = replace(network(link, teacher, inputs, dimension=6), label_noise=0.0)
    run = make_engine("projected", problem, EngineOptions(seeds=(7,), batch_size=4))
    root = np.sqrt(inputs.eigenvalues_of_axes(6))
    start = (*run.layers()[0], weights_of(run)[0] / root)
    with run.running():
        run.advance(np.array([0.05]))
    z = run._benches[0][0][0].reshape(4, 6)
    expected = step_in_space(problem, start, root, z, labels_of(problem, z), 0.05)
    for ours, theirs in zip((*run.layers()[0], weights_of(run)[0] / root), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)
    assert np.abs(expected[2] - start[2]).max() > 1e-3


@pytest.mark.statistical
@pytest.mark.parametrize("batch", [1, 3])
def test_classes_have_the_law_of_sgd_in_space(batch):
    """150 steps with decay, 400 runs each of other seeds: fails once in a thousand others where the laws are the same."""
    problem, after = network(inputs=dynamics.Inputs([1.5, 0.6], [8, 8])), []
    for name, seeds in (("projected", range(400)), ("torch", range(1000, 1400))):
        run = make_engine(name, problem, EngineOptions(seeds=tuple(seeds), batch_size=batch, dtype="float64"))
        with run.running():
            run.advance(np.full(150, 0.02))
            found = run.measure(student=True)
        pairs = found.student_overlap[:, *np.triu_indices(3, 1)]
        parts = found.teacher_overlap, pairs, found.squared_norm, run.layers()
        after.append(np.hstack([part.reshape(400, -1) for part in parts]))
    projected, space = after
    for column in range(projected.shape[1]):
        assert stats.ks_2samp(projected[:, column], space[:, column]).pvalue > 1e-3 / projected.shape[1]
        assert np.std(space[:, column]) > 0.001


# --- verdicts ---------------------------------------------------------------------------------------------------


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
