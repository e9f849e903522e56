"""Networks by SGD: steps against autograd in R^d, the law of both engines in R^40, records, refusals."""

import numpy as np
import pytest
from engine_state import drawn_samples, engine_of, weights_of
from gaussian_rules import gauss_grid
from sample_steps import assert_autograds_steps, step
from uneven_networks import labels_of, uneven_network

import dynamics
import dynamics.equations
import sgd_check
from dynamics import Problem, Teacher

UNITS = Teacher(
    [0.8, -0.6, 0.4, 0.3], directions=[[1, 0], [0.6, 0.8], [0, 1], [-0.8, 0.6]], links=["erf", "he3", "erf", "sign"],
    biases=[0.2, 0.0, -0.3, 0.1],
)  # fmt: skip
POLYNOMIAL = Teacher.polynomial("x1 + x1*x2 - 0.3*x2^3 + 0.2")


def network(link="erf", teacher=UNITS, dimension=12, first_layer="free", **changes):
    return uneven_network(link, teacher, dimension, first_layer=first_layer, **changes)


def engine(problem, name="projected", seeds=(0, 1, 2), batch_size=1, dtype="auto"):
    return engine_of(name, problem, seeds, batch_size=batch_size, dtype=dtype)


def parameters(state):
    """v, b, M and the upper half of Q, all that a rotation beyond the teacher's axes leaves."""
    v, b, w = state
    Q = w @ w.T
    return np.concatenate([v, b, w[:, :2].ravel(), Q[np.triu_indices(len(v))]])


def state_of(run):
    v, b = run.layers()[0]
    return v, b, weights_of(run)[0]


def weights_of_samples(run, problem, known, noise, rate):
    """H_bi = η/B e_b s v_i σ'_ib, of B samples given in the axes of the moment."""
    v, b, w = state_of(run)
    z, student = known @ w.T + b, problem.student
    e = student.output_scale * problem.activation.value(z) @ v - labels_of(problem, known) - noise
    return rate / len(e) * e[:, None] * student.output_scale * v * problem.activation.derivative(z)


# d − r − m = 0, fewer than B or m, and many; one sample, few and more than neurons.
@pytest.mark.kernels
@pytest.mark.parametrize("first_layer", ["free", "sphere"])
@pytest.mark.parametrize(
    ("link", "teacher", "dimension", "batch"),
    [
        ("erf", UNITS, 30, 1),
        ("erf", UNITS, 5, 1),
        ("erf", POLYNOMIAL, 30, 4),
        pytest.param("relu", POLYNOMIAL, 30, 1, marks=pytest.mark.slow_to_compile),
        ("relu", UNITS, 6, 3),
        ("erf", POLYNOMIAL, 30, 2),
        ("relu", UNITS, 7, 9),
        pytest.param("tanh(z)", POLYNOMIAL, 30, 9, marks=pytest.mark.slow_to_compile),
    ],
)
def test_one_step_is_autograds_step_in_the_axes_of_the_moment(link, teacher, dimension, batch, first_layer):
    """Three steps in a row, each from the state and for the samples of the moment; largest error 5e-16."""
    problem = network(link, teacher, dimension, first_layer)
    run, rate = engine(problem, seeds=(7,), batch_size=batch), 0.03
    for _ in range(3):
        v, b, w = state_of(run)
        x, noise = drawn_samples(run, problem, rate, batch, weights_of_samples)
        run.advance(np.array([rate]))
        wide = np.zeros((3, x.shape[1]))
        wide[:, :5] = w
        expected = parameters(step(problem, (v, b, wide), x, labels_of(problem, x) + noise, rate))
        np.testing.assert_allclose(parameters(state_of(run)), expected, rtol=0, atol=1e-13)
        assert np.abs(expected - parameters((v, b, wide))).max() > 1e-3
        assert (np.triu(weights_of(run)[0, :, 2:], 1) == 0).all()


@pytest.mark.slow_to_compile
def test_a_link_with_a_jump_has_steps_of_its_second_layer_alone():
    """Its table is exact: the jump is at the end of a piece."""
    problem = network("sign", UNITS, 30, biases="fixed", rates=(0, 1, 0), decay=(0, 0.2))
    run = engine(problem, seeds=(7,))
    start = state_of(run)
    x, noise = drawn_samples(run, problem, 0.03, 1, weights_of_samples)
    run.advance(np.array([0.03]))
    wide = np.zeros((3, x.shape[1]))
    wide[:, :5] = start[2]
    expected = parameters(step(problem, (*start[:2], wide), x, labels_of(problem, x) + noise, 0.03))
    np.testing.assert_allclose(parameters(state_of(run)), expected, rtol=0, atol=1e-13)
    assert np.abs(expected - parameters((*start[:2], wide)))[:3].min() > 1e-3


@pytest.mark.parametrize(
    ("link", "teacher", "batch", "dtype", "error", "first_layer"),
    [
        ("erf", UNITS, 1, "float64", 1e-12, "free"),
        ("relu", POLYNOMIAL, 1, "float64", 1e-12, "sphere"),
        ("gelu", UNITS, 5, "float64", 1e-12, "sphere"),
        ("he3", POLYNOMIAL, 2, "float64", 1e-12, "free"),
        ("gelu", UNITS, 5, "float32", 2e-5, "free"),
        ("erf", UNITS, 1, "float32", 2e-5, "sphere"),
        ("relu", POLYNOMIAL, 1, "float32", 2e-5, "free"),
        ("he3", POLYNOMIAL, 2, "float32", 2e-5, "sphere"),
    ],
)
def test_torch_takes_autograds_steps(link, teacher, batch, dtype, error, first_layer):
    """Forty steps, more than two blocks, on the samples of the engine, in either precision."""
    problem = network(link, teacher, 20, first_layer)
    _, start, found = assert_autograds_steps(problem, [0.02] * 40, (3, 8), error, batch_size=batch, dtype=dtype)
    for seed in range(2):
        before, after = (parameters([part[seed] for part in state]) for state in (start, found))
        assert np.abs(after - before).max() > 0.1


def many_parameters(v, b, w):
    """One row of `parameters` per run, and the squares of v."""
    runs, m = v.shape
    Q = w @ w.swapaxes(1, 2)
    upper = np.triu_indices(m)
    return np.concatenate([v, b, w[:, :, :2].reshape(runs, -1), Q[:, *upper], v**2], axis=1)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("link", "teacher", "changes"),
    [
        ("erf", UNITS, {}),
        ("relu", UNITS, {"biases": "none", "initial_biases": 1.0, "decay": (0.0, 0.0)}),
        pytest.param("tanh(z)", POLYNOMIAL, {"first_layer": "sphere"}, marks=pytest.mark.long),
    ],
)
def test_a_hundred_steps_have_the_law_of_sgd_in_r_40(link, teacher, changes):
    """Against torch, whose steps are autograd's: two-sample z-scores of 18 or 21 means; |z| < 5 is a false-alarm rate below 2e-5 for each case."""
    problem, runs = network(link, teacher, 40, **changes), 3000
    rate, start = 1.5 / 40, many_parameters(*(part[None] for part in problem.network_start()))
    laws = []
    for name, first in (("torch", 10_000), ("projected", 0)):
        run = engine(problem, name, range(first, first + runs), dtype="float64")
        with run.running():
            run.advance(np.full(100, rate))
        laws.append(many_parameters(*run.layers().swapaxes(0, 1), weights_of(run)))
    direct, ours = laws
    moving = direct.std(0) > 1e-12  # but for biases that are not there, and lengths on the sphere
    difference = (direct - start).mean(0) - (ours - start).mean(0)
    error = np.sqrt((direct.var(0) + ours.var(0)) / runs)
    assert np.abs(difference[moving] / error[moving]).max() < 5
    np.testing.assert_allclose(ours[:, ~moving], np.repeat(start[:, ~moving], runs, axis=0), atol=1e-12)
    moved = np.abs((direct - start).mean(0))[moving] / error[moving]
    assert np.median(moved) > 20, "the steps must have moved for the comparison to see anything"


@pytest.mark.parametrize("name", [pytest.param("projected", marks=pytest.mark.long), "torch"])
def test_a_callable_is_tabulated_where_a_series_would_fail(name):
    """np.sin of neurons of length 3 and biases, against the formula on the same samples; its series is off by 1e3."""
    runs = []
    for link in ("sin(z)", np.sin):
        problem = network(link, Teacher([0.7], links=[link]), 20, width=2, initial_biases=[2.0, -3.0])
        problem = Problem(
            student=problem.student, teacher=problem.teacher, dimension=20, initial_weights=3 * problem.initial_weights
        )
        runs.append(engine(problem, name, dtype="float64"))
    for run in runs:
        with run.running():
            run.advance(np.full(50, 0.02))
    formula, table = (np.concatenate([run.layers().ravel(), weights_of(run).ravel()]) for run in runs)
    np.testing.assert_allclose(table, formula, rtol=0, atol=1e-10)
    assert runs[1].attributes["simulated_link"] == "sin (table)"


STAIRCASE = Teacher.polynomial("x1 + x1*x2")
GIVEN = {"learning_rate": 0.02, "steps": 1500, "seeds": 3, "progress": False}


def moments(problem, record):
    """Loss and components of one record by quadrature over the axes of teacher and neurons."""
    m, r = problem.width, problem.teacher.span
    n = record.squared_norm.values
    M = record.teacher_overlap.values * np.sqrt(n)[:, None]
    Q = record.student_overlap.values * np.sqrt(np.outer(n, n))
    w = np.concatenate([M, np.linalg.cholesky(Q - M @ M.T)], axis=1)
    x, measure = gauss_grid(24, r + m)
    f = (
        problem.student.output_scale
        * problem.activation.value(x @ w.T + record.bias.values)
        @ record.second_layer.values
    )
    basis = [Teacher.polynomial(name).target for name in record.component_name.values.tolist()]
    parts = [measure @ (f * own.value(x[:, : own.span])) for own in basis]
    return measure @ (f - labels_of(problem, x)) ** 2, parts


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["projected", "torch"])
def test_records_are_those_of_the_network(name):
    problem = network("erf", STAIRCASE, 30, width=2)
    runs = sgd_check.simulate(problem, engine=name, dtype="float64", **GIVEN)
    for seed in (0, 2):
        record = runs.isel(seed=seed, time=-1)
        loss, parts = moments(problem, record)
        assert float(record.loss) == pytest.approx(loss, rel=1e-9)
        np.testing.assert_allclose(record.component.values, parts, rtol=1e-9)
    first = runs.isel(time=0)
    v, b, w = problem.network_start()
    for seed in range(3):
        np.testing.assert_array_equal(first.second_layer[seed], v)
        np.testing.assert_array_equal(first.bias[seed], b)
        np.testing.assert_allclose(first.squared_norm[seed], np.sum(w**2, axis=1), rtol=1e-14)
    assert runs.teacher_component.values.tolist() == [1.0, 1.0]
    assert "learned_time" not in runs
    assert "learning_rate_limit" not in runs.attrs


@pytest.mark.thorough
def test_axes_emerge_and_components_are_learned_where_their_records_say():
    """x1*x2 has two axes, so each emerges at 0.3."""
    problem = network("erf", STAIRCASE, 20, width=4, decay=(0, 0), scale=1.0, rates=(1, 1, 1))
    times = dynamics.SaveAt.linear(0.0, 50.0, 2501)  # every step, so that no crossing falls between two records
    runs = sgd_check.simulate(problem, save_at=times, learning_rate=0.02, steps=2500, seeds=4, progress=False)
    largest = (runs.teacher_overlap**2).max("neuron")
    share = runs.component / runs.teacher_component
    for seen, level, found in (
        (largest, 0.3, runs.emergence_time.values),
        (share, 0.5, runs.component_learned_time.values),
    ):
        above = seen.values >= level
        assert above.any(axis=1).sum() == 8, "there must be something to be seen"
        for seed, which in np.argwhere(above.any(axis=1)):
            at = np.argmax(above[seed, :, which])
            assert runs.time[at - 1] <= found[seed, which] <= runs.time[at]
    np.testing.assert_array_equal(runs.censored, np.isnan(runs.emergence_time))


@pytest.mark.long
def test_a_run_that_blows_up_is_nan_and_the_others_go_on():
    problem = network("he3", STAIRCASE, 20, decay=(0, 0))
    given = {"learning_rate": 0.02, "steps": 400, "progress": False}
    runs = sgd_check.simulate(problem, seeds=12, **given)
    blown = np.flatnonzero(runs.blown_up)
    assert 0 < blown.size < 12
    for name in ("second_layer", "bias", "loss", "component", "squared_norm", "teacher_overlap"):
        assert np.isnan(runs[name].isel(time=-1, seed=blown)).all()
    sound = int(np.flatnonzero(~runs.blown_up.values)[0])
    alone = sgd_check.simulate(problem, seeds=[sound], **given)
    for name in ("second_layer", "loss", "component"):
        np.testing.assert_array_equal(alone[name][0], runs[name][sound])
        assert np.isfinite(alone[name]).all()


@pytest.mark.parametrize(
    ("problem", "changes", "sentence"),
    [
        (
            network(),
            {"engine": "diffusion"},
            "Argument `problem` must have the homogeneous student for engine 'diffusion', but has the network student, "
            "which engines 'projected' and 'torch' simulate.",
        ),
        (
            network("sign", STAIRCASE),
            {},
            "Argument `problem` must have a link without jumps where its argument is trained, since a sample has no "
            "gradient at a jump, but has sign.",
        ),
        (network(dimension=4), {}, "Argument `engine` must be 'torch' for a dimension below width + teacher axes = 5, but is 'projected' with dimension 4."),
        (network(), {"dtype": "float32"}, "Argument `dtype` must be 'float64' for engine 'projected', but is 'float32'."),
        (network(), {"starts": [1, 2, 3]}, "Argument `starts` must be None for the network student, but is not."),
        (network(lambda z: np.where(np.abs(z) < 31, z**2, np.inf)), {}, "Links must be finite on [-32, 32] to be simulated, but <lambda> is not."),
    ],
    ids=["diffusion", "jump", "dimension", "float32", "starts", "infinite"],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused_in_one_sentence(problem, changes, sentence):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r".") as caught:
        sgd_check.simulate(problem, **GIVEN | changes)
    assert str(caught.value).startswith(sentence)
