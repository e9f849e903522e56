"""Runs of SGD on inputs that are not Gaussian: rows of a matrix or draws of a law, in the torch engine."""

import numpy as np
import pytest

import dynamics
from dynamics import Inputs, Mixture, Problem, Rows, Student, Teacher
from sgd_check import resume, simulate


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    return rng.laplace(size=(300, 6)) @ rng.standard_normal((6, 6))


def one_pair(dimension=6, **fields):
    start = ([[0.5], [0.2]], np.eye(2), [0.01, 0.02])
    options = {"activation": "he3", "teacher": Teacher([1.0]), "width": 2, "initial_overlaps": start}
    return Problem(dimension=dimension, **(options | fields))


def run(problem, rows, **options):
    settings = {"learning_rate": 1e-3, "steps": 300, "seeds": 3, "progress": False, "dtype": "float64"}
    return simulate(problem, inputs_from=rows, **(settings | options))


def by_hand(x, w, y_of, rates):
    """Return the weights after single steps of the homogeneous student on rows in order."""
    for row, rate in zip(x, rates, strict=True):
        length = np.linalg.norm(w, axis=1)
        z = w @ row / length
        sigma, slope = (z**3 - 3 * z) / np.sqrt(6.0), (3 * z**2 - 3) / np.sqrt(6.0)
        error = np.sum(length**2 * sigma) - y_of(row)
        gradient = (2 * sigma - z * slope)[:, None] * w + (length * slope)[:, None] * row
        w = w - rate * error * gradient
    return w


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_used_once_give_the_steps_by_hand(matrix, batch):
    problem = one_pair()
    rows = Rows(matrix, resample=False)
    runs = run(problem, rows, steps=300 // batch, batch_size=batch, seeds=1)
    x = np.concatenate(list(rows.samples(problem, 0)))
    # The order is the one that the seed draws.
    from sgd_check.engines.seeded_runs import ORDER, generators

    x = x[generators(0, [ORDER])[0].permutation(300)]
    w = np.zeros((2, 6))
    reduced = problem.reduced_weights()
    w[:, : reduced.shape[1]] = reduced
    for first in range(0, 300, batch):
        part = [by_hand(x[n : n + 1], w, lambda row: (row[0] ** 3 - 3 * row[0]) / np.sqrt(6.0), [1e-3]) - w
                for n in range(first, first + batch)]  # fmt: skip
        w = w + np.mean(part, axis=0)
    overlap = w[:, 0] / np.linalg.norm(w, axis=1)
    np.testing.assert_allclose(runs.teacher_overlap.values[0, -1, :, 0], overlap, rtol=1e-10)
    np.testing.assert_allclose(runs.squared_norm.values[0, -1], np.sum(w**2, axis=1), rtol=1e-10)


def test_the_loss_is_the_mean_over_rows(matrix):
    problem = one_pair()
    runs = run(problem, matrix)
    x = np.concatenate(list(Rows(matrix).samples(problem, 0)))
    reduced = problem.reduced_weights()
    length = np.linalg.norm(reduced, axis=1)
    h3 = lambda z: (z**3 - 3 * z) / np.sqrt(6.0)  # noqa: E731
    f = h3(x[:, : reduced.shape[1]] @ reduced.T / length) @ length**2
    np.testing.assert_allclose(runs.loss.values[:, 0], np.mean((f - h3(x[:, 0])) ** 2), rtol=1e-12)
    assert runs.attrs["title"] == "Online SGD on a matrix of 300 rows"
    assert runs.attrs["engine"] == "torch"


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (one_pair(student="spherical", initial_norm=1.0, initial_overlaps=None, width=2), {"learning_rate": 1e-4}),
        (Problem(teacher=Teacher([1.0]), student=Student(activation="erf", width=3), dimension=6), {}),
        (one_pair(), {"dtype": "float32"}),
        (one_pair(), {"optimizer": "SGD(momentum=0.5)"}),
    ],
)
def test_students_precisions_and_optimizers_run_on_rows(problem, options, matrix):
    runs = run(problem, matrix, **options)
    assert np.isfinite(runs.loss.values).all()
    assert not np.array_equal(runs.loss.values[0, -1], runs.loss.values[1, -1])
    again = run(problem, matrix, **options)
    assert runs.loss.equals(again.loss)


def test_a_seed_does_not_depend_on_others(matrix):
    both, one = run(one_pair(), matrix), run(one_pair(), matrix, seeds=[2])
    np.testing.assert_array_equal(both.teacher_overlap.values[2], one.teacher_overlap.values[0])


def test_rows_of_a_file_that_does_not_fit_memory_give_the_same_runs(matrix, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", matrix)
    whole = run(one_pair(), tmp_path / "x.npy")
    monkeypatch.setattr("dynamics.problem.rows.machine_memory", lambda: 0)
    parts = run(one_pair(), tmp_path / "x.npy")
    np.testing.assert_allclose(parts.teacher_overlap, whole.teacher_overlap, rtol=1e-11)


def test_inputs_with_a_covariance_run_on_their_eigenvectors(matrix):
    # Steps by hand: whitened weights move by Σ times the gradient.
    problem = one_pair(inputs=Inputs.from_data(matrix), initial_overlaps=None, initial_norm=0.2)
    rows = Rows(matrix, resample=False)
    runs = run(problem, rows, steps=1, seeds=1, learning_rate=1e-4)
    from sgd_check.engines.seeded_runs import ORDER, generators

    x = np.concatenate(list(rows.samples(problem, 0)))[generators(0, [ORDER])[0].permutation(300)[:1]]
    w, values = problem.reduced_weights(), problem.inputs.eigenvalues
    moved = by_hand(x, w, lambda row: (row[0] ** 3 - 3 * row[0]) / np.sqrt(6.0), [1e-4])
    w = w + values * (moved - w)
    overlap = w[:, 0] / np.linalg.norm(w, axis=1)
    np.testing.assert_allclose(runs.teacher_overlap.values[0, -1, :, 0], overlap, rtol=1e-10)


@pytest.mark.parametrize("resample", [True, False])
def test_runs_on_a_file_go_on_as_if_they_had_never_stopped(matrix, tmp_path, resample):
    np.save(tmp_path / "x.npy", matrix)
    rows = Rows(tmp_path / "x.npy", resample=resample)
    begun = run(one_pair(), rows, max_runtime=1e-9, checkpoint=tmp_path / "runs.nc")
    assert begun.attrs["stop_reason"] == "max_runtime"
    whole = resume(tmp_path / "runs.nc", progress=False)
    assert whole.loss.equals(run(one_pair(), rows).loss)
    run(one_pair(), rows, max_runtime=1e-9, checkpoint=tmp_path / "again.nc")
    np.save(tmp_path / "x.npy", matrix[:299])
    with pytest.raises(dynamics.StorageError, match="must hold the rows that the runs began with, but has changed"):
        resume(tmp_path / "again.nc", progress=False)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.statistical
def test_runs_on_laws_have_the_accepted_steps():
    """Steps to emergence of 16 runs of each law, by 4.5 standard errors of the runs (rate 7e-6 each).

    Accepted runs: Gaussian 13315 ± 115, Rademacher 14823 ± 113, exponential 9486 ± 165.
    """
    rng = np.random.default_rng(164)
    theta = rng.standard_normal(64)
    theta /= np.linalg.norm(theta)
    u = rng.standard_normal(64)
    u -= u @ theta * theta
    start = ([[0.35]], [[1.0]], [1e-8])
    problem = one_pair(64, width=1, initial_overlaps=start, label_noise=0.3)
    for law, steps, error in (("gaussian", 13315, 115), ("rademacher", 14823, 113), ("exponential", 9486, 165)):
        rows = Rows(law, placement=[theta, u])
        runs = run(problem, rows, learning_rate=5e-5, steps=24000, seeds=16, batch_size=4, dtype="float32")
        times = runs.emergence_time.values[:, 0] / 5e-5
        assert np.isfinite(times).all()
        assert abs(times.mean() - steps) < 4.5 * np.hypot(times.std(ddof=1) / 4.0, error)


@pytest.mark.parametrize(
    ("problem", "options", "sentence"),
    [
        (one_pair(), {"engine": "projected"}, "Argument `engine` must be 'torch' or 'auto' beside `inputs_from`"),
        (one_pair(), {"training_samples": 300}, "Argument `training_samples` must be None beside `inputs_from`"),
        (one_pair(), {"optimizer": "Adam()"}, "Argument `optimizer` must not depend on the axes beside `inputs_from`"),
        (one_pair(dimension=7), {}, "Argument `dimension` must be 6, that of the rows, but is 7"),
        (one_pair(), {"inputs_from": "gauss"}, r"must be a file .npy, .npz or .csv, or one of rademacher"),
        (
            Problem(teacher=Teacher([1.0]), student=Student(activation="erf", width=2), dimension=6,
                    inputs=Mixture([[1.0], [-1.0]])),
            {}, "Argument `inputs_from` must be None for another loss",
        ),
    ],
)  # fmt: skip
def test_what_runs_on_rows_do_not_know_is_refused(problem, options, sentence, matrix):
    with pytest.raises(ValueError, match=sentence):
        run(
            problem,
            **({"rows": matrix} if "inputs_from" not in options else {"rows": options.pop("inputs_from")}),
            **options,
        )


def test_rows_that_are_used_once_must_suffice(matrix):
    with pytest.raises(
        ValueError, match="must take at most 300 samples, since each of so many rows is used once, but takes 302"
    ):
        run(one_pair(), Rows(matrix, resample=False), steps=151, batch_size=2)
