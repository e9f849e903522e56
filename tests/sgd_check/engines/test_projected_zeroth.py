"""Zeroth-order SGD by the projected engine: its step in the axes of the moment, its law against vectors in R^d."""

import re

import numpy as np
import pytest
from engine_state import assert_goes_on, assert_overflow_ends, engine_of, weights_of
from scipy import stats
from uneven_networks import labels_of, uneven_network

import dynamics
import sgd_check
from dynamics import Problem, Student, Teacher, ZerothOrder, one_step_moments
from sgd_check.engines.seeded_runs import set_words

UNITS = Teacher(
    [0.8, -0.6, 0.4], directions=[[1, 0], [0.6, 0.8], [0, 1]], links=["erf", "he3", "erf"], biases=[0.2, 0, 0]
)
FIXED = {"second_layer": "fixed", "biases": "none", "initial_biases": 1.0}


def engine(problem, optimizer, seeds=(7,), batch=1, name="projected"):
    return engine_of(name, problem, seeds, batch_size=batch, optimizer=optimizer)


def homogeneous(dimension, **given):
    weights = np.random.default_rng(5).standard_normal((3, dimension))
    weights *= np.array([0.9, 0.5, 1.3])[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    return Problem(
        **{"activation": "tanh(z) + 0.5*he2(z)", "teacher": Teacher([0.8, 0.6])} | given, width=3, dimension=dimension,
        initial_weights=weights, label_noise=0.3,
    )  # fmt: skip


def committee(dimension, rest=0.5, label_noise=0.2):
    """Two neurons of f = Σ erf(w_i·x/√2) on two directions, with the overlaps of the accepted numbers."""
    weights = np.zeros((2, 4))
    weights[:, :2] = 0.1 * np.cos(1.0 + 2.0 * np.arange(2)[:, None] + 3.0 * np.arange(2))
    weights[:, 2:] = rest * np.eye(2)
    student = Student(activation="erf", width=2, initial_second_layer=[1.0, 1.0], second_layer="fixed")
    return Problem(
        student=student, teacher=Teacher([1.0, 1.0]), dimension=dimension, initial_weights=weights,
        label_noise=label_noise,
    )  # fmt: skip


# --- steps in R^d, for many runs: w (N, m, d), v and b (N, m), x (N, B, d) ---


def outputs(problem, w, v, b, x):
    z = w @ x.swapaxes(1, 2)
    if not isinstance(problem.student, Student):
        length = np.linalg.norm(w, axis=2)[:, :, None]
        return np.sum(length**2 * problem.activation.value(z / length), axis=1)
    return problem.student.output_scale * np.sum(v[:, :, None] * problem.activation.value(z + b[:, :, None]), axis=1)


def losses(problem, w, v, b, x, labels):
    return 0.5 * np.mean((outputs(problem, w, v, b, x) - labels) ** 2, axis=1)


def slope(problem, state, x, labels, z):
    """∇ℓ·z by a difference whose error is of sixth order in its step."""

    def central(h):
        return (losses(problem, *(p + h * q for p, q in zip(state, z, strict=True)), x, labels)
                - losses(problem, *(p - h * q for p, q in zip(state, z, strict=True)), x, labels)) / (2 * h)  # fmt: skip

    h = 2e-3
    return (15 * central(h) - 6 * central(2 * h) + central(3 * h)) / 10


def quotients(problem, optimizer, state, x, labels, directions):
    if optimizer.smoothing == 0.0:
        return np.array([slope(problem, state, x, labels, z) for z in directions])
    h = optimizer.smoothing / problem.dimension**0.5
    ends = [
        [losses(problem, *(p + s * q for p, q in zip(state, z, strict=True)), x, labels) for s in (h, -h)]
        for z in directions
    ]
    return np.array([(above - below) / (2 * h) for above, below in ends])


def rates_of(problem):
    student = problem.student
    if isinstance(student, Student):
        return student.learning_rates, (*student.decay, 0.0)
    return (1.0, 0.0, 0.0), (0.0,) * 3


def moved(problem, optimizer, state, x, labels, directions, rate):
    """w, v and b after a step, and the q_k."""
    trained = np.sign(rates_of(problem)[0])
    directions = [[flag * part for flag, part in zip(trained, z, strict=True)] for z in directions]
    q = quotients(problem, optimizer, state, x, labels, directions)
    found = []
    for n, (part, own, decay) in enumerate(zip(state, *rates_of(problem), strict=True)):
        mean = sum(qk.reshape(-1, *[1] * (part.ndim - 1)) * z[n] for qk, z in zip(q, directions, strict=True)) / len(q)
        found.append((1 - rate * decay) * part - rate * own * mean)
    return found, q


def start_of(problem, runs):
    if isinstance(problem.student, Student):
        v, b, w = problem.network_start()
    else:
        w, v, b = problem.initial_weights, np.zeros(problem.width), np.zeros(problem.width)
    wide = np.zeros((problem.width, problem.dimension))
    wide[:, : w.shape[1]] = w
    return [np.repeat(part[None], runs, axis=0) for part in (wide, v, b)]


def vectors(problem, optimizer, rate, steps, runs, batch=1, seed=11):
    """SGD of many runs in R^d in numpy."""
    rng, state, d, m = np.random.default_rng(seed), start_of(problem, runs), problem.dimension, problem.width
    for _ in range(steps):
        x = rng.standard_normal((runs, batch, d))
        labels = labels_of(problem, x) + problem.label_noise * rng.standard_normal((runs, batch))
        z = [
            [rng.standard_normal(shape) for shape in ((runs, m, d), (runs, m), (runs, m))]
            for _ in range(optimizer.directions)
        ]
        state, _ = moved(problem, optimizer, state, x, labels, z, rate)
    return state


def parameters(w, v, b):
    """M, the upper half of Q, v and b, one row per run."""
    Q = w @ w.swapaxes(1, 2)
    return np.concatenate([w[:, :, :2].reshape(len(w), -1), Q[:, *np.triu_indices(w.shape[1])], v, b], axis=1)


def state_of(run, problem):
    w = weights_of(run)
    v, b = run.layers().swapaxes(0, 1) if isinstance(problem.student, Student) else np.zeros((2, *w.shape[:2]))
    return [w, v, b]


def lower(values, diagonal):
    """A lower-trapezoidal matrix, with `values` row by row under its diagonal."""
    rows, columns = diagonal
    found, values = np.zeros((rows, columns.size)), iter(values)
    for j in range(rows):
        for q in range(min(j, columns.size)):
            found[j, q] = next(values)
    np.fill_diagonal(found, columns)
    return found


def drawn(run, problem, optimizer, batch, weigh):
    """Samples (B, axes), directions, T and noise of the next step, from the generators of the engine."""
    m, r = problem.width, problem.teacher.span
    s = problem.dimension - r - m
    numbers, lengths, noise = (np.random.Generator(np.random.SFC64()) for _ in range(3))
    for stream, words in zip((numbers, lengths, noise), run.state()["generators"][0], strict=True):
        set_words(stream, words)
    rows = batch if optimizer.smoothing else min(batch, m)
    new = min(rows, s)
    left = min(m, s - new)
    known = numbers.standard_normal((batch, r + m))
    roots = [np.sqrt(2 * lengths.standard_gamma((s - k) / 2)) for k in range(new)]
    sizes = np.array([np.sqrt(2 * lengths.standard_gamma((s - new - k) / 2)) for k in range(left)])
    below = sum(min(j, new) for j in range(rows))
    factor = lower(numbers.standard_normal(below), (rows, np.array(roots)))
    errors = problem.label_noise * noise.standard_normal(batch)
    if rows < batch:  # Householder reflections have the signs of LAPACK's
        factor = np.linalg.qr(weigh(known, errors)).Q @ factor
    beside = 2 if isinstance(problem.student, Student) and any(problem.student.learning_rates[1:]) else 0
    directions = []
    for _ in range(optimizer.directions):
        w = numbers.standard_normal((r + m + new, m)).T
        directions.append([w, *(numbers.standard_normal((beside, m)) if beside else np.zeros((2, m)))])
    T = lower(numbers.standard_normal(sum(min(j, left) for j in range(m))), (m, sizes))
    return np.concatenate([known, factor], axis=1), errors, directions, T


CASES = [
    (uneven_network("erf", UNITS, 30), ZerothOrder(), 1),
    (uneven_network("erf", UNITS, 30), ZerothOrder(directions=3, smoothing=0.7), 4),
    (uneven_network("erf", UNITS, 9, **FIXED), ZerothOrder(directions=2), 2),
    (uneven_network("erf", UNITS, 6, rates=(0, 1, 1)), ZerothOrder(smoothing=1.0), 3),
    (uneven_network("erf", UNITS, 5), ZerothOrder(directions=2), 1),
    (uneven_network("erf", UNITS, 30, second_layer="fixed"), ZerothOrder(directions=2), 9),
    (homogeneous(30), ZerothOrder(), 1),
    (homogeneous(7), ZerothOrder(directions=2), 9),
    (homogeneous(6), ZerothOrder(), 2),
    (homogeneous(5), ZerothOrder(directions=3), 2),
]


# d − r − m = 0, fewer than the new axes and many; one sample, few and more than neurons.
@pytest.mark.kernels
@pytest.mark.parametrize(("problem", "optimizer", "batch"), CASES)
def test_one_step_is_that_of_the_weights_in_the_axes_of_the_moment(problem, optimizer, batch):
    """Slopes by differences: an error of 1e-10; the rest of the weights moves by (Σ q_k²)^½/K T."""
    run, rate = engine(problem, optimizer, batch=batch), 0.03
    axes = problem.teacher.span + problem.width
    for _ in range(3):
        state = state_of(run, problem)

        def weigh(known, errors):
            w, v, b = (part[0] for part in state)  # noqa: B023
            length = 1.0 if isinstance(problem.student, Student) else np.linalg.norm(w, axis=1)
            z, flat = known @ (w.T / length) + b, [part[None] for part in (w, v, b)]
            e = outputs(problem, *flat, known[None])[0] - labels_of(problem, known) - errors
            return (
                e[:, None] * problem.activation.derivative(z) * (v if isinstance(problem.student, Student) else length)
            )

        x, errors, directions, T = drawn(run, problem, optimizer, batch, weigh)
        wide = np.zeros((1, problem.width, x.shape[1]))
        wide[:, :, :axes] = state[0]
        labels = labels_of(problem, x) + errors
        z = [[part[None] for part in each] for each in directions]
        after, q = moved(problem, optimizer, [wide, *state[1:]], x[None], labels[None], z, rate)
        rest = rate * rates_of(problem)[0][0] * np.sqrt(np.sum(q**2)) / len(q) * T
        after[0] = np.concatenate([after[0], rest[None]], axis=2)
        run.advance(np.array([rate]))
        found, expected = (parameters(*each)[0] for each in (state_of(run, problem), after))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        assert np.abs(expected - parameters(*state)[0]).max() > 1e-3
        assert (np.triu(weights_of(run)[0, :, problem.teacher.span :], 1) == 0).all()


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("optimizer", [ZerothOrder(), ZerothOrder(smoothing=0.8)])
def test_runs_have_the_law_of_vectors_in_r_14(optimizer):
    """Kolmogorov-Smirnov of seven overlaps, 600 runs each: p > .01 each, which fails at most 7 choices of seeds in 100."""
    problem, rate, steps = committee(14), 0.5 / (2 * 14**2), 1000
    w, v, b = vectors(problem, optimizer, rate, steps, 600)
    run = engine(problem, optimizer, range(600))
    with run.running():
        run.advance(np.full(steps, rate))
    theirs, ours = (parameters(*each)[:, :7] for each in ((w, v, b), state_of(run, problem)))
    start = parameters(*start_of(problem, 1))[0, :7]
    for k in range(7):
        assert stats.ks_2samp(theirs[:, k], ours[:, k]).pvalue > 0.01
    assert np.abs(np.median(ours, axis=0) - start).max() > 0.2
    assert ours.std(0).min() > 0.03


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("problem", "optimizer", "batch", "rate"),
    [
        (uneven_network("erf", UNITS, 12, biases="trained"), ZerothOrder(directions=2), 3, 0.05),
        (uneven_network("erf", UNITS, 12, biases="trained"), ZerothOrder(directions=2, smoothing=1.0), 5, 0.05),
        (homogeneous(9, activation="tanh"), ZerothOrder(directions=2), 5, 0.01),
        (homogeneous(7, activation="tanh"), ZerothOrder(), 1, 0.004),
    ],
)
def test_moments_after_thirty_steps_are_those_of_vectors(problem, optimizer, batch, rate):
    """Two-sample z-scores of means and squares, at most 42 a case; |z| < 5 is a false-alarm rate below 3e-5 a case."""
    runs, steps = 3000, 30
    theirs = parameters(*vectors(problem, optimizer, rate, steps, runs, batch))
    run = engine(problem, optimizer, range(runs), batch)
    with run.running():
        run.advance(np.full(steps, rate))
    ours = parameters(*state_of(run, problem))
    start = parameters(*start_of(problem, 1))[0]
    moving = theirs.std(0) > 1e-9
    samples = [
        np.concatenate([s - start, (s - theirs.mean(0)) ** 2], axis=1)[:, np.tile(moving, 2)] for s in (theirs, ours)
    ]
    error = np.sqrt(sum(s.var(0) for s in samples) / runs)
    z = (samples[0].mean(0) - samples[1].mean(0)) / error
    assert np.abs(z).max() < 5
    assert np.abs(samples[0].mean(0) / error)[: moving.sum()].max() > 20


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "batch", "directions"), [(9, 1, 1), (9, 5, 3), (10**12, 1, 1), (10**12, 2, 4)])
def test_second_moments_of_rows_are_exact(dimension, batch, directions):
    """E g_i·g_j = δ_ij d/K Σ_k E|∇_k|² + (1 + 1/K) E ∇_i·∇_j; z-scores of E ΔS, |z| < 5 for six entries: below 4e-6."""
    rng, n = np.random.default_rng(2), np.array([0.8, 0.25, 1.7])
    C = rng.uniform(-0.5, 0.5, (3, 2))
    problem = Problem(
        activation={1: 0.8, 2: 0.2}, teacher=Teacher([0.8, 0.6]), width=3, dimension=dimension,
        initial_overlaps=(C, C @ C.T + np.diag(1 - np.sum(C**2, axis=1)), n), label_noise=0.3,
    )  # fmt: skip
    exact, upper, repeats = one_step_moments(problem, batch_size=batch), np.triu_indices(3), 10_000
    second = (
        dimension / directions * np.trace(exact.student_second) * np.eye(3)
        + (1 + 1 / directions) * exact.student_second
    )
    rate = 1.0 / np.sqrt(np.trace(second))
    run = engine(problem, ZerothOrder(directions=directions), (4,), batch)
    start, found = run._state["weights"].copy(), np.empty((repeats, 6))
    before = start[0].T @ start[0]
    for k in range(repeats):
        run._state["weights"][:] = start
        run.advance(np.array([rate]))
        found[k] = (run._state["weights"][0].T @ run._state["weights"][0] - before)[upper]
    expected = (rate * exact.student_first + rate**2 * second)[upper]
    error = found.std(0) / np.sqrt(repeats)
    assert np.abs((found.mean(0) - expected) / error).max() < 5
    assert np.abs(expected / error).max() > 15


@pytest.mark.statistical
@pytest.mark.long
def test_losses_in_r_100_are_those_accepted():
    """960 000 steps, η = .5/(md²): the accepted curve of the equation at |x|² = d; to four standard errors and 1 %."""
    times = dynamics.SaveAt.at([4.0, 6.0, 12.0, 18.0, 24.0])
    runs = sgd_check.simulate(
        committee(100), optimizer=ZerothOrder(), learning_rate=0.5 / (2 * 100**2), steps=960_000, seeds=16, save_at=times,
        progress=False,
    )  # fmt: skip
    assert runs.attrs["engine"] == "projected"
    accepted = np.array([0.037853839, 0.0346, 0.033759423, 0.0328, 0.031635623])
    error = runs.loss.std("seed") / 16**0.5
    assert (np.abs(runs.loss.mean("seed").values - accepted) < 4 * error + 0.01 * accepted).all()
    plain = sgd_check.simulate(
        committee(100), learning_rate=0.5 / 100, steps=4800, seeds=8, save_at=times, progress=False
    )
    assert plain.loss.sel(time=12.0).mean() > 1.08 * runs.loss.sel(time=12.0).mean()


@pytest.mark.statistical
@pytest.mark.long
def test_losses_at_finite_smoothing_are_those_accepted():
    """m = P = 1, d = 100, η = .4/d²: the accepted equation to 4 %, its distance from accepted runs; s.e. about 2 %."""
    weights = np.array([[0.1, 0.5]])
    student = Student(activation="erf", width=1, initial_second_layer=[1.0], second_layer="fixed")
    problem = Problem(student=student, teacher=Teacher([1.0]), dimension=100, initial_weights=weights, label_noise=0.2)
    for smoothing, accepted in ((0.8, [0.0144, 0.0195]), (2.0, [0.0533, 0.0622])):
        runs = sgd_check.simulate(
            problem, optimizer=ZerothOrder(smoothing=smoothing), learning_rate=0.4 / 100**2, steps=400_000, seeds=32,
            save_at=dynamics.SaveAt.at([12.0, 16.0]), progress=False,
        )  # fmt: skip
        error = runs.loss.std("seed").values / 32**0.5
        assert (np.abs(runs.loss.mean("seed").values - accepted) < 4 * error + 0.04 * np.array(accepted)).all()


@pytest.mark.kernels
@pytest.mark.parametrize(("problem", "batch"), [(uneven_network("erf", UNITS, 12), 3), (homogeneous(12), 1)])
def test_runs_go_on_bit_for_bit_however_they_are_cut(problem, batch):
    optimizer, rates = ZerothOrder(directions=2), np.linspace(1e-3, 2e-3, 400)
    assert_goes_on(lambda: engine(problem, optimizer, (1, 2), batch), rates, 7, 150)


@pytest.mark.kernels
@pytest.mark.parametrize("optimizer", [ZerothOrder(), ZerothOrder(smoothing=0.5)])
def test_a_run_that_overflows_is_nan_and_stepped_no_more(optimizer):
    assert_overflow_ends(engine(uneven_network("relu", UNITS, 12), optimizer))


@pytest.mark.usefixtures("budget_spent_midway")
def test_runs_are_resumed_from_their_file(tmp_path):
    path, given = tmp_path / "runs.nc", {"learning_rate": 1e-3, "steps": 3000, "seeds": 2, "progress": False}
    problem, optimizer = committee(30), ZerothOrder(directions=2, smoothing=0.3)
    whole = sgd_check.simulate(problem, optimizer=optimizer, **given)
    cut = sgd_check.simulate(problem, optimizer=optimizer, **given, checkpoint=path, max_runtime=1e3)
    assert 0 < cut.attrs["end_step"] < 3000
    again = sgd_check.resume(path, progress=False)
    np.testing.assert_array_equal(again.teacher_overlap, whole.teacher_overlap)
    assert again.attrs["optimizer"] == "ZerothOrder(directions=2, smoothing=0.3)"


@pytest.mark.parametrize(
    ("problem", "optimizer", "start"),
    [
        (
            uneven_network("erf", UNITS, 12, first_layer="sphere"),
            ZerothOrder(),
            "Argument `optimizer` must be plain SGD for neurons that keep their length, since directions are not",
        ),
        (
            homogeneous(12),
            ZerothOrder(smoothing=0.2),
            "Argument `engine` must be 'torch' for ZerothOrder(smoothing=0.2) and homogeneous neurons, since the",
        ),
        (
            homogeneous(12, inputs=dynamics.Inputs([1.0, 0.5], [6, 6])),
            ZerothOrder(),
            "Argument `engine` must be 'torch' for ZerothOrder() and inputs that are not isotropic, but is 'projected'.",
        ),
        (homogeneous(4), ZerothOrder(), "Argument `engine` must be 'torch' for a dimension below width + teacher axes"),
        (
            homogeneous(12),
            ZerothOrder(10**12),
            "Argument `directions` must leave room in memory, but 1000000000000 takes",
        ),
        (
            uneven_network("erf", UNITS, 12),
            ZerothOrder(smoothing=1e-300),
            "Argument `smoothing` must be 0, the limit, or at least 2.2e-13 in float64, since two losses that are",
        ),
    ],
    ids=["sphere", "smoothing", "inputs", "dimension", "directions", "rounding"],
)
def test_what_cannot_be_simulated_is_refused_in_a_sentence(problem, optimizer, start):
    given = {"learning_rate": 1e-3, "steps": 5, "seeds": 1, "progress": False, "engine": "projected"}
    with pytest.raises(ValueError, match=f"^{re.escape(start)}"):
        sgd_check.simulate(problem, optimizer=optimizer, **given)


@pytest.mark.parametrize(
    ("problem", "optimizer", "engine"),
    [
        (homogeneous(12), ZerothOrder(), "projected"),
        (homogeneous(12), ZerothOrder(smoothing=0.2), "torch"),
        (homogeneous(12, inputs=dynamics.Inputs([1.0, 0.5], [6, 6])), ZerothOrder(), "torch"),
        (uneven_network("erf", UNITS, 12), ZerothOrder(smoothing=0.2), "projected"),
    ],
)
def test_auto_is_an_engine_that_knows_the_steps(problem, optimizer, engine):
    given = {"learning_rate": 1e-5, "steps": 5, "seeds": 1, "progress": False}
    assert sgd_check.simulate(problem, optimizer=optimizer, **given).attrs["engine"] == engine
