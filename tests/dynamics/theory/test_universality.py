"""Times on inputs that are not Gaussian: fourth cumulants, path meter, effective coefficients, and resampled rows."""

import math

import numpy as np
import pytest
from numpy.polynomial import hermite_e

import hermite
from dynamics import Inputs, Problem, Rows, Teacher, universality
from dynamics.theory.universality import edgeworth_terms


def dense_directions():
    """Return θ and u in R^64 of the accepted numbers."""
    rng = np.random.default_rng(164)
    theta = rng.standard_normal(64)
    theta /= np.linalg.norm(theta)
    u = rng.standard_normal(64)
    u -= u @ theta * theta
    return np.array([theta, u / np.linalg.norm(u)])


def few_axes(count):
    directions = np.zeros((2, 64))
    directions[0, :count], directions[1, 32:] = 1.0, 1.0
    return directions


def one_pair(link, overlap, dimension=64, **fields):
    start = ([[overlap]], [[1.0]], [1e-8])
    return Problem(activation=link, teacher=Teacher([1.0]), width=1, dimension=dimension, initial_overlaps=start,
                   **fields)  # fmt: skip


#: Steps of accepted runs: link, C_0, η, law, steps of the theory with fourth cumulants.
ACCEPTED = [
    ("he3", 0.35, 5e-5, "gaussian", 13059),
    ("he3", 0.35, 5e-5, "rademacher", 14906),
    ("he3", 0.35, 5e-5, "laplace", 11018),
    ("he4", 0.45, 2e-5, "gaussian", 26931),
    ("he4", 0.45, 2e-5, "rademacher", 36710),
    ("he4", 0.45, 2e-5, "laplace", 19262),
]


@pytest.mark.parametrize(("link", "overlap", "rate", "law", "steps"), ACCEPTED)
def test_times_by_fourth_cumulants_are_the_accepted_ones(link, overlap, rate, law, steps):
    measured = universality(one_pair(link, overlap), Rows(law, placement=dense_directions()), drawn=200)
    assert measured.corrected_emergence_time[0] / rate == pytest.approx(steps, abs=1.0)


def test_the_correction_is_the_derivative_by_the_fourth_cumulant_of_coordinates():
    # E under the density Π φ(z_l)(1 + κ He_4(z_l)/24), at first order in κ, in the coordinates z instead of (v, r).
    angle, C = 0.7, 0.4
    theta, u = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
    x, weight = hermite_e.hermegauss(24)
    weight = weight / weight.sum()
    first, second = np.meshgrid(x, x, indexing="ij")
    v, r = theta[0] * first + theta[1] * second, u[0] * first + u[1] * second
    U = C * v + math.sqrt(1 - C * C) * r
    label, student = hermite.expand("0.6*h3(z) + 0.8*h4(z)"), hermite.expand("h3(z) - 0.5*h5(z)")
    F = label.value(v) * student.derivative(U) * (v - C * U)
    fourth = [0.0, 0.0, 0.0, 0.0, 1.0]
    change = (hermite_e.hermeval(first, fourth) + hermite_e.hermeval(second, fourth)) / 24.0
    wanted = np.sum(np.outer(weight, weight) * F * change)
    cumulants = np.array([np.sum(theta ** (4 - j) * u**j) for j in range(5)])
    assert cumulants @ edgeworth_terms(label, student, np.array([C]))[:, 0] == pytest.approx(wanted, rel=1e-10)


def test_effective_coefficients_give_the_accepted_times_on_one_axis():
    # α_3 = E h_3² = 2/3 of signs, exactly for any signs; α_1 = −2/√6, which a student of h_3 alone does not see.
    measured = universality(one_pair("he3", 0.35), Rows("rademacher", placement=few_axes(1)), drawn=2000)
    assert measured.effective_emergence_time[0] / 1e-4 == pytest.approx(9794, abs=1.0)
    assert measured.effective_coefficient(1).value[0] == pytest.approx(-2.0 / math.sqrt(6.0), rel=1e-12)
    assert (measured.information_exponent[0], measured.student_exponent[0]) == (1, 3)
    assert "alpha_3 = 0.667 for 1 of Gaussian inputs; information exponent 1, 3 for this student" in str(measured)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("law", "count", "rate", "steps"), [("uniform", 1, 1e-4, 19045), ("rademacher", 4, 1e-4, 15675)]
)
def test_the_path_meter_has_the_accepted_times_on_few_axes(law, count, rate, steps):
    """By 4 standard errors of the meter of 40 000 rows, 6e-5 each."""
    measured = universality(one_pair("he3", 0.35), Rows(law, placement=few_axes(count)), drawn=40_000)
    error = measured.path_error[0] / rate
    assert error < 0.05 * steps
    assert abs(measured.path_emergence_time[0] / rate - steps) < 4.0 * error


@pytest.mark.statistical
def test_cumulants_of_rows_are_those_of_their_law_within_errors():
    """Rows of Rademacher inputs measured as a matrix: K_j and the time, by 5 standard errors (rate 6e-7 each)."""
    x = 2.0 * np.random.default_rng(5).integers(0, 2, (60_000, 64)) - 1.0
    problem, directions = one_pair("he3", 0.35), dense_directions()
    exact = universality(problem, Rows("rademacher", placement=directions), drawn=200)
    measured = universality(problem, Rows(x, placement=directions))
    # The fourth moment of a unit Gaussian has variance 96, which bounds those of its products.
    assert np.abs(measured.cumulants - exact.cumulants).max() < 5.0 * math.sqrt(96.0 / len(x))
    distance = measured.corrected_emergence_time - exact.corrected_emergence_time
    assert np.abs(distance[0]) < 5.0 * measured.corrected_error[0]
    assert 0.0 < measured.corrected_error[0] < 0.1 * exact.corrected_emergence_time[0]


def test_the_resampling_ratio_is_the_mean_along_the_path():
    rows = np.random.default_rng(3).standard_normal((4000, 8))
    problem = one_pair("he3", 0.35, dimension=8)
    measured = universality(problem, Rows(rows, placement="axes"))
    # By hand, on rows whitened along their features, with the trapezoidal rule over the path.
    x = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    x = x @ (vectors / np.sqrt(values)) @ vectors.T
    C = np.linspace(0.35, math.sqrt(0.5), 400)[:, None]
    h2, h3 = (lambda z: (z * z - 1.0) / math.sqrt(2.0)), (lambda z: (z**3 - 3.0 * z) / math.sqrt(6.0))
    U = C * x[:, 0] + np.sqrt(1.0 - C**2) * x[:, 1]
    pull = h3(x[:, 0]) * math.sqrt(3.0) * h2(U)
    speed = np.mean(pull * (x[:, 0] - C * U), axis=1)
    time = np.trapezoid(1.0 / speed, C[:, 0])
    size = np.trapezoid(np.mean(pull**2, axis=1) / speed, C[:, 0]) / time
    assert measured.path_emergence_time[0] == pytest.approx(time, rel=1e-4)
    assert measured.resampling_ratio[0] == pytest.approx(size * 8 * time**2 / 4000, rel=1e-3)
    once = universality(problem, Rows(rows, placement="axes", resample=False))
    assert once.resampling_ratio[0] == 0.0
    assert once.lines()[3] == "Resampling: rho = 0, since every step has new rows."


def test_rows_of_few_blocks_give_the_numbers_of_all_at_once(monkeypatch):
    rows = np.random.default_rng(3).laplace(size=(3000, 8))
    problem = one_pair("he3", 0.35, dimension=8)
    whole = universality(problem, rows)
    monkeypatch.setattr("dynamics.problem.rows.BLOCK_NUMBERS", 8 * 77)
    parts = universality(problem, rows)
    for name in ("corrected_emergence_time", "path_emergence_time", "path_error", "resampling_ratio"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9)


def test_pairs_of_several_directions_are_taken_alone_with_the_whole_label():
    start = ([[0.35, 0.0, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 0.3]], np.eye(3), [1e-8] * 3)
    problem = Problem(activation="he3", teacher=Teacher([0.7, 0.5, 0.4]), width=3, dimension=16, initial_overlaps=start)
    measured = universality(problem, Rows("rademacher", seed=2), drawn=20_000)
    assert measured.path_emergence_time.shape == (3,)
    assert (measured.corrected_emergence_time > measured.emergence_time).all()
    assert "(direction " in measured.lines()[0]


def test_inputs_with_a_covariance_have_gaussian_times_alone():
    rows = np.random.default_rng(1).standard_normal((400, 6)) * np.arange(1, 7) ** -0.5
    problem = Problem(activation="he3", teacher=Teacher([1.0]), width=2, dimension=6, inputs=Inputs.from_data(rows))
    measured = universality(problem, rows)
    assert np.isfinite(measured.emergence_time).all()
    assert np.isnan(measured.corrected_emergence_time).all()
    assert np.isnan(measured.path_emergence_time).all()
    assert measured.lines()[1] == "Fourth cumulants: not derived for inputs with a covariance."


@pytest.mark.parametrize("overlap", [0.9, -0.5])
@pytest.mark.parametrize("rows", ["laplace", np.random.default_rng(0).laplace(size=(400, 8))])
def test_directions_without_a_time_are_not_said_to_have_a_covariance(overlap, rows):
    measured = universality(one_pair("he3", overlap, dimension=8), rows, drawn=2000)
    lines = measured.lines()
    assert not any("covariance" in line for line in lines)
    assert lines[1] == "Fourth cumulants: no time, since no direction emerges later than the start by Gaussian theory."


def test_gaussian_draws_differ_by_no_rounding_and_counts_may_be_whole_floats():
    measured = universality(one_pair("he3", 0.5, dimension=8), "gaussian", drawn=2e3)
    assert ", 0 % later than Gaussian inputs" in measured.lines()[1]


def test_the_line_on_resampling_has_the_largest_ratio_of_all_directions():
    start = ([[0.35, 0.0], [0.0, 0.6]], np.eye(2), [1e-8] * 2)
    problem = Problem(activation="he3", teacher=Teacher([0.7, 0.5]), width=2, dimension=8, initial_overlaps=start)
    rows = np.random.default_rng(5).laplace(size=(4000, 8))
    for turned in (Rows(rows, placement=np.eye(8)[[first, 1 - first]]) for first in (0, 1)):
        measured = universality(problem, turned)
        assert f"rho = {measured.resampling_ratio.max():.2g}," in measured.lines()[3]


@pytest.mark.parametrize(
    ("problem", "rows", "sentence"),
    [
        (one_pair("he3", 0.35), np.ones((40, 64)), "must have two columns that vary"),
        (one_pair("he13", 0.35), "rademacher", "must have a link of information exponent at most 12"),
        (one_pair("he2", 0.35), "rademacher", "times on other inputs are not derived for k <= 2, but he2 has k = 2"),
        (
            one_pair("he3", 0.35, dimension=8),
            np.random.default_rng(0).random((40, 9)),
            "must be 9, that of the rows, but is 8",
        ),
        (
            one_pair("he3", 0.35, dimension=8),
            np.random.default_rng(0).random((12, 8)),
            "must have at least 20 rows, but has 12",
        ),
    ],
)
def test_what_is_not_derived_is_refused(problem, rows, sentence):
    with pytest.raises(ValueError, match=sentence):
        universality(problem, rows)


def test_trained_layers_are_refused():
    from dynamics import Student

    problem = Problem(teacher=Teacher([1.0]), student=Student(activation="he3", width=2), dimension=8)
    with pytest.raises(ValueError, match="not derived for layers and biases that are trained"):
        universality(problem, "rademacher")


def test_a_file_that_does_not_fit_memory_is_read_block_by_block(tmp_path, monkeypatch):
    import tracemalloc

    rng, path = np.random.default_rng(0), tmp_path / "x.npy"
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(60_000, 128))
    for first in range(0, len(file), 10_000):
        file[first : first + 10_000] = rng.uniform(-1.0, 1.0, (10_000, 128))
    file.flush()
    del file
    monkeypatch.setattr("dynamics.problem.rows.BLOCK_NUMBERS", 1 << 16)
    tracemalloc.start()
    try:
        measured = universality(one_pair("he3", 0.35, dimension=128), path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert measured.count == 60_000
    assert measured.corrected_emergence_time[0] > measured.emergence_time[0]
    # In double precision the rows have 61 MB, of which a block has half a one.
    assert peak < 8e6
