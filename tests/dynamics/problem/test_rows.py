"""Rows of a matrix as inputs: sources, whitening, placement, covariance, and what is refused."""

from zipfile import ZipFile

import numpy as np
import pytest

from dynamics import Inputs, Problem, Rows, Teacher


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    return rng.laplace(size=(400, 5)) @ rng.standard_normal((5, 5)) + 3.0


def problem_in(dimension, **fields):
    return Problem(activation="he3", teacher=Teacher([1.0]), width=2, dimension=dimension, **fields)


def coordinates(rows, problem):
    return np.concatenate(list(rows.samples(problem, 300)))


@pytest.mark.parametrize("placement", ["random", "rows", "axes", np.eye(5)[1:3]])
@pytest.mark.parametrize("components", [None, 3])
def test_rows_are_whitened_at_every_placement(matrix, placement, components):
    if components and not isinstance(placement, str):
        placement = placement[:, :3]
        placement = placement[:1] + 1.0
    before = matrix.copy()
    x = coordinates(Rows(matrix, placement=placement, components=components), problem_in(components or 5))
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(x.shape[1]), atol=1e-10)
    assert np.array_equal(matrix, before)


def test_placements_put_the_teacher_where_they_say(matrix):
    problem = problem_in(5)
    at_axes = coordinates(Rows(matrix, placement="axes"), problem)
    direction = np.array([[1.0, 2.0, 0.0, 0.0, -2.0]]) / 3.0
    np.testing.assert_allclose(coordinates(Rows(matrix, placement=direction), problem)[:, 0], at_axes @ direction[0])
    on_rows = coordinates(Rows(matrix, placement="rows", seed=4), problem)
    # A row lies along the first axis, the others of the start are orthogonal to it.
    along = np.abs(on_rows[:, 0]) / np.linalg.norm(on_rows, axis=1)
    assert np.sum(along > 1.0 - 1e-9) == 1
    turned = [coordinates(Rows(matrix, seed=seed), problem) for seed in (0, 0, 1)]
    assert np.array_equal(turned[0], turned[1])
    assert not np.allclose(turned[0], turned[2])


def test_whitened_features_stay_near_the_features(matrix):
    # Rows that are white already are only centred: no rotation among equal eigenvalues.
    white = coordinates(Rows(matrix, placement="axes"), problem_in(5))
    np.testing.assert_allclose(coordinates(Rows(white, placement="axes"), problem_in(5)), white, atol=1e-9)


def test_files_hold_the_rows_of_a_matrix(matrix, tmp_path):
    np.save(tmp_path / "x.npy", matrix)
    np.savez(tmp_path / "x.npz", matrix)
    np.savetxt(tmp_path / "x.csv", matrix, delimiter=",", header="a,b,c,d,e", comments="")
    np.savetxt(tmp_path / "y.csv", matrix, delimiter=",")
    wanted = coordinates(Rows(matrix), problem_in(5))
    for name in ("x.npy", "x.npz", "x.csv", "y.csv"):
        rows = Rows(tmp_path / name)
        np.testing.assert_allclose(coordinates(rows, problem_in(5)), wanted, atol=1e-12)
        assert Rows.of(rows.stored).stored == rows.stored
    np.save(tmp_path / "x.npy", matrix[:300])
    with pytest.raises(ValueError, match="must hold the rows that the runs began with, but has changed"):
        Rows.of(rows.stored | {"source": str(tmp_path / "x.npy")})


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\ufeff1,2\n3,5\n5,9\n", [[1, 2], [3, 5], [5, 9]]),  # a mark of the order of bytes is no name
        ("a,b\n3,5\n5,9\n", [[3, 5], [5, 9]]),
        (",a,b\n0,1,2\n1,3,5\n", [[1, 2], [3, 5]]),  # the index that pandas writes
        (",0,1\n0,1,2\n1,3,5\n", [[1, 2], [3, 5]]),
        ('"","V1","V2"\n1,1,2\n2,3,5\n', [[1, 2], [3, 5]]),
        ("1,2\r\n\r\n3,5\r\n", [[1, 2], [3, 5]]),
    ],
)
def test_no_row_of_a_table_is_lost_and_no_index_is_a_feature(text, rows, tmp_path):
    (tmp_path / "x.csv").write_bytes(text.encode())
    assert Rows(tmp_path / "x.csv").take(np.arange(len(rows))).tolist() == rows
    assert Rows(tmp_path / "x.csv").count == len(rows)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["", "a,b\n", "1,,3\n4,5,6\n", ",2,3\n4,5,6\n", "a,2\n4,5\n6,7\n"])
def test_a_table_without_all_its_numbers_is_refused(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=r"^File '.*x.csv' must hold a matrix of numbers, but does not: "):
        Rows(tmp_path / "x.csv")


@pytest.mark.parametrize("member", ["hello.txt", "a.npy", None])
def test_archives_without_an_array_are_refused(member, tmp_path):
    with ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(member or "a.npy", "no array")
    if member is None:
        content = (tmp_path / "x.npz").read_bytes()
        (tmp_path / "x.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"^File '.*x.npz' must hold a matrix of numbers, but does not: "):
        Rows(tmp_path / "x.npz")


def test_files_with_the_ending_of_another_kind_are_refused(matrix, tmp_path):
    np.save(tmp_path / "x.npy", matrix)
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="but does not: it is no archive of arrays"):
        Rows(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", matrix)
    (tmp_path / "y.npz").rename(tmp_path / "y.npy")
    with pytest.raises(ValueError, match=r"it is an archive, whose name must end in .npz"):
        Rows(tmp_path / "y.npy")


def test_what_is_no_matrix_of_all_its_numbers_is_refused(matrix):
    class Unready:
        def __array__(self, dtype=None, copy=None):
            msg = "detach it first"
            raise RuntimeError(msg)

    with pytest.raises(ValueError, match="must have no masked entries"):
        Rows(np.ma.masked_less(matrix, 0.0))
    with pytest.raises(ValueError, match="must be a matrix of numbers"):
        Rows(Unready())
    with pytest.raises(ValueError, match="must be a matrix, its file, a law or a function"):
        Rows.of({})


def test_a_file_that_changes_under_its_rows_is_refused(matrix, tmp_path):
    file = tmp_path / "x.npy"
    np.save(file, matrix)
    rows = Rows(file)
    assert rows.dimension == 5
    np.save(file, 3.0 * matrix[:300])
    for read in (lambda: rows.take(np.arange(3)), lambda: list(rows.blocks())):
        with pytest.raises(ValueError, match="must stay as it is while its rows are read, but has changed"):
            read()


def test_rows_that_depend_on_each_other_give_orthogonal_directions():
    # Both rows of a placement may be the same, or the mean of all rows, which is no direction.
    x = np.vstack([np.zeros((30, 4)), np.eye(4), -np.eye(4)])
    problem = Problem(activation="he3", teacher=Teacher([1.0, 0.9]), width=2, dimension=4)
    for seed in range(5):
        turned = coordinates(Rows(x, placement="rows", seed=seed), problem)
        np.testing.assert_allclose(turned.T @ turned / len(x), np.eye(4), atol=1e-10)


def test_a_function_must_return_uncorrelated_real_coordinates():
    def paired(rng, count):
        z = rng.standard_normal((count, 5))
        z[:, 4] = 0.6 * z[:, 0] + 0.8 * z[:, 4]
        return z

    with pytest.raises(ValueError, match=r"must return coordinates that are not correlated, but two of them have 0.59"):
        Rows(paired).check(problem_in(5))
    with pytest.raises(ValueError, match="must return real numbers, but returns <U1"):
        Rows(lambda rng, count: [["a"] * 5] * count).check(problem_in(5))


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_double_precision_are_refused(matrix):
    with pytest.raises(ValueError, match="must hold numbers whose squares are finite in double precision"):
        Rows(1e200 * matrix).check(problem_in(5))
    with pytest.raises(ValueError, match="must have finite, independent directions in rows of 5"):
        coordinates(Rows(matrix, placement=[[np.nan] * 5]), problem_in(5))


def test_whole_floats_are_counts(matrix):
    rows = Rows(matrix, components=3.0, seed=0.0)
    assert repr(rows.dimension) == "3"
    assert coordinates(rows, problem_in(3)).shape == (400, 3)


def test_centred_rows_are_known_again_after_another_order_of_sums(matrix, tmp_path):
    np.save(tmp_path / "x.npy", matrix - matrix.mean(axis=0))
    stored = Rows(tmp_path / "x.npy").stored
    assert Rows.of(stored | {"square": 3.0 * stored["square"] + 1e-31}).count == 400
    with pytest.raises(ValueError, match="but has changed"):
        Rows.of(stored | {"square": 1e-3})


def test_columns_that_do_not_vary_are_left_out(matrix):
    wider = np.insert(matrix, 2, 7.0, axis=1)
    np.testing.assert_allclose(coordinates(Rows(wider), problem_in(5)), coordinates(Rows(matrix), problem_in(5)))


def test_rows_with_a_covariance_have_that_of_from_data(matrix):
    inputs = Inputs.from_data(matrix)
    problem = problem_in(5, inputs=inputs)
    x = coordinates(Rows(matrix), problem)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(5), atol=1e-10)
    # Coordinates are those along the eigenvectors.
    values = np.linalg.eigvalsh(np.cov(matrix.T, bias=True))[::-1]
    np.testing.assert_allclose(inputs.eigenvalues, values)
    along = (matrix - matrix.mean(axis=0)).T @ x / len(x)
    np.testing.assert_allclose(np.sum(along**2, axis=0), values)
    with pytest.raises(
        ValueError, match=r"Argument `inputs` must have the covariance of the rows, as Inputs.from_data"
    ):
        Rows(matrix).check(problem_in(5, inputs=Inputs.power_law(1.0)))
    with pytest.raises(ValueError, match="Argument `placement` must be 'axes' for inputs with a covariance"):
        Rows(matrix, placement="rows").check(problem)


@pytest.mark.statistical
@pytest.mark.parametrize("law", ["rademacher", "uniform", "gaussian", "laplace", "exponential"])
def test_laws_have_their_moments(law):
    """Mean, variance and fourth cumulant of 4e5 draws, by 5 standard errors (rate 6e-7 each)."""
    rows = Rows(law)
    x = rows.draw(np.random.default_rng(1), 100_000, 4).ravel()
    for value, wanted in ((x, 0.0), (x**2, 1.0), (x**4, rows.fourth_cumulant + 3.0)):
        assert abs(value.mean() - wanted) <= 5.0 * value.std() / np.sqrt(x.size) + 1e-12


def test_a_function_draws_rows_of_unit_covariance():
    rows = Rows(lambda rng, count: rng.choice([-1.0, 1.0], (count, 5)))
    assert coordinates(rows, problem_in(5)).shape == (300, 5)
    with pytest.raises(ValueError, match="must return coordinates of mean 0 and variance 1, but one of them is off"):
        Rows(lambda rng, count: rng.standard_normal((count, 5)) + 1.0).check(problem_in(5))
    with pytest.raises(ValueError, match=r"must return finite rows of shape \(\d+, 5\)"):
        Rows(lambda rng, count: rng.standard_normal((count, 6))).check(problem_in(5))


@pytest.mark.statistical
@pytest.mark.parametrize("count", [320, 3200])
def test_the_decay_of_a_spectrum_is_that_of_the_middle_ranks(count):
    """α = ½ at d = 64: accepted .53 and .51 at ranks 4 to 32, .69 and .53 over all; by 4 errors of seed 7."""
    x = np.random.default_rng(7).standard_normal((count, 64)) * np.arange(1, 65.0) ** -0.25
    spectrum = Inputs.from_data(x).spectrum
    assert (spectrum.first_rank, spectrum.last_rank, spectrum.rows) == (4, 32, count)
    assert abs(spectrum.alpha - {320: 0.53, 3200: 0.51}[count]) < 4.0 * spectrum.alpha_error + 0.02
    whole = -np.polyfit(np.log(np.arange(1, 65)), np.log(spectrum.eigenvalues), 1)[0]
    assert whole > spectrum.alpha
    np.testing.assert_allclose(spectrum.errors[:20] / spectrum.eigenvalues[:20], np.sqrt(2.0 / count), rtol=0.3)
    assert "at ranks 4 to 32." in spectrum.line()


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        (np.ones(5), {}, r"must have shape \(rows, columns\), at least 2 of each, but has shape \(5,\)"),
        (np.array([["a", "b"], ["c", "d"]]), {}, "must hold real numbers"),
        ([[1.0, 2.0], [3.0]], {}, "must be a matrix of numbers"),
        ("nothing.npy", {}, "must hold a matrix of numbers, but does not: .*No such file"),
        (
            "rademacher.dat",
            {},
            r"must be a file .npy, .npz or .csv, or one of rademacher, .*, tanh, but is 'rademacher.dat'",
        ),
        ("rademacher", {"components": 3}, "`components` must be None for a law"),
        ("rademacher", {"placement": "rows"}, "must be 'random', 'axes' or an array for a law"),
        (np.eye(4), {"placement": "near"}, "Argument `placement` must be"),
        (np.eye(4), {"components": 9}, "Argument `components` must be at most 4"),
    ],
)
def test_sources_that_are_no_matrix_are_refused(source, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Rows(source, **options)


def test_rows_that_cannot_be_whitened_are_refused(matrix):
    twice = np.hstack([matrix, matrix[:, :2]])
    with pytest.raises(ValueError, match="must have 7 linearly independent columns, but has 5; use components=5"):
        Rows(twice).check(problem_in(7))
    Rows(twice, components=5).check(problem_in(5))
    matrix[3, 1] = np.nan
    with pytest.raises(ValueError, match="must hold finite numbers"):
        Rows(matrix).check(problem_in(5))
