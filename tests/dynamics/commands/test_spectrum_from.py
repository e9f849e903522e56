"""`--spectrum-from FILE`: the covariance of rows of data for the theory of Gaussian inputs."""

import numpy as np
import pytest

from dynamics import Inputs, Problem, load
from dynamics.solve.__main__ import main


@pytest.fixture
def rows(here):
    x = np.random.default_rng(2).standard_normal((2000, 12)) * np.arange(1, 13) ** -0.5
    np.save(here / "rows.npy", x)
    return x


SMALL = ["--k", "3", "--directions", "1", "--width", "2", "--no-plot", "--output", "q.nc", "--error-estimate", "no"]


def test_a_dry_run_tells_the_decay_of_the_spectrum(rows, capsys):
    assert main([*SMALL, "--spectrum-from", "rows.npy", "--dry-run"]) == 0
    assert "Covariance of 2000 rows: 12 eigenvalues from 1.0" in capsys.readouterr().err


def test_a_spectrum_of_few_eigenvalues_has_no_decay(here, capsys):
    np.save(here / "few.npy", np.random.default_rng(2).standard_normal((200, 6)))
    assert main([*SMALL, "--spectrum-from", "few.npy", "--dry-run"]) == 0
    err = capsys.readouterr().err
    assert "Covariance of 200 rows: 6 eigenvalues from 1" in err
    assert ", too few for a power law." in err


@pytest.mark.thorough
def test_the_problem_has_the_spectrum_and_the_dimension_of_the_rows(rows, capsys):
    assert main([*SMALL, "--spectrum-from", "rows.npy", "--quiet"]) == 0
    problem = Problem.from_dataset(load("q.nc"))
    assert (problem.dimension, problem.inputs) == (12, Inputs.from_data(rows))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--spectrum-from", "rows.npy", "--spectrum", "1"], "Option --spectrum must be absent when --spectrum-from is given"),
        (["--spectrum-from", "nothing.npy"], "File 'nothing.npy' must hold a matrix of numbers"),
        (["--spectrum-from", "laplace"], "must be a matrix or its file, since the covariance of a law is known"),
        (["--spectrum-from", "rows.npy", "--dimension", "13"], "must have `dimension` = 13 eigenvalues in all, but has 12"),
        (["--spectrum-from", "rows.txt"], "File 'rows.txt' must hold a matrix of numbers"),
    ],
)  # fmt: skip
def test_what_is_no_spectrum_is_refused(words, sentence, rows, capsys):
    assert main([*SMALL, *words]) == 2
    told = " ".join(capsys.readouterr().err.split()).replace("--dimension", "`dimension`")
    assert sentence in told
