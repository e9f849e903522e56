"""Bands of single runs: accepted numbers, linear cases in closed form, and SGD in plain numpy."""

import numpy as np
import pytest
from scipy.special import erf, expit

import dynamics
from dynamics import Problem, SaveAt, Student, Teacher, solve_network, solve_overlaps
from dynamics.equations.sample_noise import uniform_covariance
from dynamics.solve.bands import count_numbers, mean_motion
from dynamics.solve.network import network_step
from dynamics.solve.points import PointMethod, point_system
from dynamics.theory.bands import Bands
from dynamics.theory.prediction import predict
from dynamics.theory.step_noise import escape_bias

TIMES = (1.0, 2.0, 5.0, 10.0, 20.0)


def rows(M, Q, dimension):
    """Return weights (m, d) in R^d with overlaps M (m, r) and products Q (m, m)."""
    weights = np.zeros((len(Q), dimension))
    weights[:, : M.shape[1]] = M
    weights[:, M.shape[1] : M.shape[1] + len(Q)] = np.linalg.cholesky(Q - M @ M.T)
    return weights


def linear_unit(overlap, dimension, **fields):
    """Return a linear unit of length 1 with this overlap with the first axis, which one unit of the teacher lies on."""
    student = Student(activation="z", width=1, second_layer="fixed", initial_second_layer=[1.0])
    weights = rows(np.array([[overlap]]), np.eye(1), dimension)
    return Problem(student=student, teacher=Teacher([1.0]), dimension=dimension, initial_weights=weights, **fields)


def logistic_unit(overlap, dimension):
    """Return a linear unit that learns y = sign z_1 by cross-entropy."""
    return linear_unit(overlap, dimension, objective="logistic", labels="sign")


def two_units(dimension):
    """Return two units of erf that learn labels of a sigmoid of two others by cross-entropy."""
    M, Q = np.array([[0.3, 0.1], [0.05, 0.2]]), np.array([[0.5, 0.1], [0.1, 0.6]])
    student = Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
    return Problem(
        student=student, teacher=Teacher([2.0, 2.0]), dimension=dimension, objective="logistic", labels="bernoulli",
        initial_weights=rows(M, Q, dimension),
    )  # fmt: skip


def followed(problem, end, *, rate=None, theory="infinite-d", batch=1, uniform=False):
    """Return the bands of a network by points, followed to a time at the rate 1/d or `rate`."""
    step = network_step(problem, rate or 1.0 / problem.dimension, "auto", theory, batch, None)
    system = point_system(problem, step, None)
    motion = mean_motion(problem, step, system)
    stepper = PointMethod(system, "explicit", 1e-8, None, None, end).stepper(1e-6)
    start = uniform_covariance(motion.numbers) / problem.dimension if uniform else np.zeros((motion.numbers.size,) * 2)
    bands = Bands(motion, stepper, start)
    assert bands.follow(end) == end
    return bands


def deviations(bands, times):
    """Return the standard deviations (times, N) of the numbers that move: M, then Q on and above the diagonal."""
    return np.array([np.sqrt(np.diag(bands.at(t).covariance)) for t in times])


def test_logistic_unit_has_the_accepted_scatter():
    """Of a unit that learns y = sign z_1, √d times the deviations of M and Q: accepted to four digits."""
    bands = followed(logistic_unit(0.05, 50), 20.0)
    M, Q = np.sqrt(50) * deviations(bands, TIMES).T
    assert pytest.approx([0.2793, 0.3124, 0.2772, 0.2170, 0.1753], rel=3e-3) == M
    assert pytest.approx([0.6513, 0.7153, 0.7354, 0.8001, 0.9374], rel=3e-3) == Q
    assert bands.at(0.0).ratio == 0.0
    assert 0.0 < max(bands.at(t).ratio for t in TIMES) < 0.15


def test_uniform_starts_scatter_from_the_beginning():
    """Over uniform random starts the deviations of M, accepted, begin at that of the start."""
    bands = followed(logistic_unit(0.0, 50), 20.0, uniform=True)
    M = np.sqrt(50) * deviations(bands, (0.0, 1.0, 5.0, 20.0))[:, 0]
    assert pytest.approx([1.0, 0.8644, 0.5171, 0.2452], rel=5e-3) == M


@pytest.mark.parametrize("batch", [1, 5])
def test_linear_unit_scatters_as_its_second_moments_say(batch):
    """E δδᵀ of a linear unit under noisy labels, δ = w − w*, obeys two recursions, exactly at every d and batch."""
    d, noise, rate, overlap = 12, 0.5, 2e-3, 0.3
    problem = linear_unit(overlap, d, label_noise=noise)
    bands = followed(problem, 2.0, rate=rate, theory="finite-d", batch=batch)
    along, whole = (1.0 - overlap) ** 2, 2.0 - 2.0 * overlap
    for _ in range(round(2.0 / rate)):
        new = rate**2 / batch * (2.0 * np.array([along, whole]) + np.array([1.0, d]) * (whole + noise**2))
        kept = 1.0 - 2.0 * rate + rate**2 * (1.0 - 1.0 / batch)
        along, whole = kept * along + new[0], kept * whole + new[1]
    mean = (1.0 - overlap) * (1.0 - rate) ** round(2.0 / rate)
    expected = np.sqrt(along - mean**2)
    assert deviations(bands, (2.0,))[0, 0] == pytest.approx(expected, rel=5e-3)


def runs_of_two_units(dimension, count, steps, rng):
    """Return M and Q on and above the diagonal, (run, 7), of SGD of `two_units` after so many steps at η = 1/d."""
    weights = np.tile(two_units(dimension).initial_weights, (count, 1, 1))
    for _ in range(steps):
        x = rng.standard_normal((count, dimension))
        h = np.einsum("nid,nd->ni", weights, x)
        above = 2.0 * erf(x[:, :2] / np.sqrt(2.0)).sum(axis=1)
        y = np.where(rng.random(count) < expit(above), 1.0, -1.0)
        f = erf(h / np.sqrt(2.0)).sum(axis=1)
        slope = (-y * expit(-y * f))[:, None] * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * h**2)
        weights -= slope[:, :, None] * x[:, None] / dimension
    products = weights @ weights.transpose(0, 2, 1)
    return np.hstack([weights[:, :, :2].reshape(count, 4), products[:, [0, 0, 1], [0, 1, 1]]])


@pytest.mark.statistical
@pytest.mark.thorough
def test_two_units_scatter_as_runs_do():
    """Variances of 1500 runs of two units of erf, d = 60, after t = 3, at a fixed seed.

    A variance over 1500 runs has the relative error √(2/1500), 3.7 %. Seven |z| below 3.7 fail by chance in 0.15 %.
    """
    d, count = 60, 1500
    bands = followed(two_units(d), 3.0)
    runs = runs_of_two_units(d, count, 3 * d, np.random.default_rng(3))
    z = (runs.var(axis=0, ddof=1) / deviations(bands, (3.0,))[0] ** 2 - 1.0) / np.sqrt(2.0 / count)
    assert np.abs(z).max() < 3.7
    # The mean of runs is off the path by the next order: δ is in the difference.
    shift = (runs.mean(axis=0) - bands.at(3.0).y - bands.at(3.0).shift) / (runs.std(axis=0) / np.sqrt(count))
    assert np.abs(shift).max() < 3.7


def runs_of_homogeneous_neurons(problem, count, steps, rate, rng):
    """Return C (run, m, P) and n (run, m) of SGD of f = Σ |w_i|² h_2(z_i) after so many steps."""
    weights = np.zeros((count, problem.width, problem.dimension))
    start = problem.reduced_weights()
    weights[:, :, : start.shape[1]] = start
    a = problem.teacher.coefficients
    for _ in range(steps):
        x, length = rng.standard_normal((count, problem.dimension)), np.linalg.norm(weights, axis=-1)
        z = np.einsum("nid,nd->ni", weights, x) / length
        value, slope = (z**2 - 1.0) / np.sqrt(2.0), np.sqrt(2.0) * z
        target = (x[:, : a.size] ** 2 - 1.0) @ a / np.sqrt(2.0) + problem.label_noise * rng.standard_normal(count)
        error = np.sum(length**2 * value, axis=1) - target
        along, across = 2.0 * value - z * slope, length * slope
        weights -= rate * error[:, None, None] * (along[:, :, None] * weights + across[:, :, None] * x[:, None])
    length = np.linalg.norm(weights, axis=-1)
    return weights[:, :, : a.size] / length[:, :, None], length**2


@pytest.mark.statistical
@pytest.mark.thorough
def test_homogeneous_neurons_scatter_as_runs_do():
    """Variances of 1500 runs of two neurons of h_2 with noisy labels, d = 24, at a fixed seed.

    Runs are not normal, and theory is to leading order: a variance over 1500 runs is taken to be known to 6 %. Six |z|
    below 3.7 fail by chance in 0.13 %.
    """
    overlaps = np.array([[0.6, 0.1], [0.1, 0.5]]), np.array([[1.0, 0.1], [0.1, 1.0]]), np.array([0.6, 0.4])
    problem = Problem(
        activation="he2", teacher=Teacher([1.0, 0.7]), width=2, dimension=24, initial_overlaps=overlaps,
        label_noise=0.3,
    )  # fmt: skip
    count, rate, steps = 1500, 2e-4, 1500
    answer = solve_overlaps(
        problem, learning_rate=rate, bands=True, save_at=SaveAt.at([0.0, rate * steps]), progress=False
    )
    assert answer.band_ratio.values[-1] < 0.1
    C, n = runs_of_homogeneous_neurons(problem, count, steps, rate, np.random.default_rng(4))
    variances = np.concatenate([C.var(axis=0, ddof=1).ravel(), n.var(axis=0, ddof=1)])
    expected = np.concatenate([answer.overlap_sd.values[-1].ravel(), answer.squared_norm_sd.values[-1]]) ** 2
    assert np.abs(variances / expected - 1.0).max() < 3.7 * 0.06


def test_times_of_emergence_scatter_as_the_theory_of_one_pair_says():
    """Of one homogeneous neuron and direction the escape from the saddle has a theory of its own, for small rates."""
    overlaps = np.array([[0.3]]), np.eye(1), np.array([1.0])
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=200, initial_overlaps=overlaps)
    rate = 2e-6
    answer = solve_overlaps(problem, learning_rate=rate, bands=True, progress=False)
    expected = escape_bias(problem, rate, predict(problem))
    relative = answer.emergence_time_sd.values[0] / answer.emergence_time.values[0]
    assert relative == pytest.approx(expected.scatter[0], rel=0.05)


def test_bands_leave_the_mean_path_as_it_is():
    problem = two_units(30)
    settings = {"learning_rate": 0.02, "save_at": SaveAt.at([0.0, 0.5, 1.0]), "points": 2**10, "progress": False}
    plain, with_bands = (solve_network(problem, bands=bands, **settings) for bands in (False, True))
    for name in plain.data_vars:
        np.testing.assert_array_equal(plain[name], with_bands[name])
    assert set(with_bands) - set(plain) == {
        "loss_sd", "overlap_sd", "student_overlap_sd", "squared_norm_sd", "emergence_time_sd", "band_ratio",
    }  # fmt: skip
    assert (with_bands.loss_sd.values[1:] > 0.0).all()
    summary = solve_network(problem, bands=True, keep="summary", **settings)
    np.testing.assert_allclose(summary.loss_sd, with_bands.loss_sd)
    best = np.abs(with_bands.teacher_overlap.values[-1]).argmax(axis=0)
    np.testing.assert_allclose(
        summary.max_overlap_sd.values[-1], with_bands.overlap_sd.values[-1][best, np.arange(2)], rtol=1e-12
    )


def test_bands_are_refused_in_one_sentence():
    student = Student(activation="erf", width=11)
    large = Problem(student=student, teacher=Teacher([1.0]), dimension=64)
    small = Problem(student=Student(activation="erf", width=2), teacher=Teacher([1.0]), dimension=64)
    assert count_numbers(small) == 2 + 2 + 3
    with pytest.raises(ValueError, match="'any size' for more than 64 numbers, but the student has 88, which take"):
        solve_network(large, learning_rate=0.01, bands=True)
    for arguments, sentence in (
        ({"bands": True}, "`learning_rate` must be given for `bands`"),
        ({"bands": True, "learning_rate": 0.01, "method": "gradient-descent"}, "must be one of steps on samples"),
        ({"bands": True, "learning_rate": 0.01, "method": "scipy:LSODA"}, "go back to an earlier state"),
        ({"bands": "wide", "learning_rate": 0.01}, "must be one of True, False, 'any size' or 'uniform start'"),
        ({"bands": True, "learning_rate": 0.01, "optimizer": "adam"}, "must be plain SGD for `bands`"),
        ({"bands": "uniform start", "learning_rate": 0.01}, "starts at the mean of uniform starts"),
    ):
        with pytest.raises(ValueError, match=sentence):
            solve_network(small, **arguments)


def test_findings_say_where_bands_are_too_narrow():
    from dynamics.report.flows import bands_in_words

    problem = Problem(activation="erf", teacher=Teacher([1.0, 1.0]), width=2, dimension=30, student="committee", seed=1)
    answer = dynamics.solve_committee(problem, learning_rate=0.02, bands=True, t_max=30.0, progress=False)
    ratio = answer.band_ratio.values
    words = " ".join(bands_in_words(answer))
    assert f"is at most {np.nanmax(ratio):.2g}" in words
    assert ("at least" in words) == bool((ratio > 0.15).any())
    assert ("runs must be drawn" in words) == bool((ratio > 0.3).any())
    assert bands_in_words(answer.drop_vars("band_ratio")) == []


def test_a_resumed_run_has_the_bands_of_one_that_never_stopped(tmp_path):
    problem = two_units(30)
    settings = {"learning_rate": 0.02, "save_at": SaveAt.at([0.0, 0.5, 1.0]), "points": 2**10, "progress": False}
    stop, file = dynamics.Callback(lambda time, state: time > 0.2), tmp_path / "run.nc"
    begun = solve_network(problem, bands=True, trackers=[stop], checkpoint=file, on_failure="return", **settings)
    assert "loss_sd" not in begun
    resumed, whole = dynamics.resume(file, progress=False), solve_network(problem, bands=True, **settings)
    np.testing.assert_array_equal(resumed.loss_sd, whole.loss_sd)


def test_the_command_refuses_bands_of_flows_and_of_many_numbers(capsys):
    from dynamics.solve.__main__ import main

    small = ["--activation", "erf", "--width", "2", "--second-layer", "fixed", "--bands", "--dry-run"]
    assert main(small) == 2
    assert "Option --learning-rate must be given for --bands" in capsys.readouterr().err
    assert main([*small, "--learning-rate", "0.01"]) == 0
    assert main([*small, "--learning-rate", "0.01", "--width", "12"]) == 2
    assert "more than 64 numbers" in capsys.readouterr().err
    assert main([*small, "--learning-rate", "0.01", "--width", "12", "--bands", "any-size"]) == 0
