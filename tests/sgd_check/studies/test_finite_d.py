"""The study of theory at finite dimension: runs against theory, independent runs, interruption, and the command."""

import json

import numpy as np
import pytest

import sgd_check
from dynamics import Problem, Teacher
from sgd_check.report.findings import sgd_study_findings
from sgd_check.studies.finite_dimension import lone_plateau
from sgd_check.study import main

SMALL = {"dimensions": [40, 160], "step_scales": [0.5, 1.0], "end": 2.0, "seeds": 100, "progress": False}


@pytest.fixture(scope="module")
def study():
    return sgd_check.finite_d_study(**SMALL)


@pytest.mark.statistical
def test_runs_have_mean_and_scatter_of_theory(study):
    """Means of the loss within 4.5 standard errors and 0.5 %, scatter within 4.5 and 8 %: false alarms below 1e-3 for
    24 means and 120 standard deviations, if bands err by less.
    """
    late = study.isel(time=slice(2, None))
    assert (np.abs(late.loss_ratio - 1.0) < 4.5 * late.loss_ratio_error + 0.005).all()
    assert (np.abs(late.loss_scatter_ratio - 1.0) < 4.5 * late.loss_scatter_error + 0.08).all()
    assert (np.abs(late.overlap_scatter_ratio - 1.0) < 4.5 * late.overlap_scatter_error + 0.08).all()
    assert (late.overlap_shift < late.expected_shift + 4.5 / np.sqrt(100)).all()


def test_numbers_are_those_of_the_same_runs_and_theory(study):
    """The second dimension at the second step scale, simulated and averaged here, with the scatter to its error."""
    rate, seeds = 1.0 / 160, range(300, 400)
    runs = sgd_check.simulate(lone_plateau(160), learning_rate=rate, steps=320, seeds=seeds, progress=False)
    point = study.sel(step_scale=1.0, dimension=160).isel(time=-1)
    loss = runs["loss"].values[:, -1]
    spread = loss.std(ddof=1) / loss.mean()
    assert float(point.loss_ratio_error) == pytest.approx(spread / 10.0 * float(point.loss_ratio), rel=1e-9)
    found = sgd_study_findings(study).values
    assert [(row["c"], row["d"]) for row in found["points"]] == [(0.5, 40), (0.5, 160), (1.0, 40), (1.0, 160)]
    assert found["points"][1]["eta"] == 0.5 / 160
    assert found["shown_time"] == study.attrs["shown_time"]


def test_scatter_of_theory_that_is_wrong_shows(study, monkeypatch):
    """Runs in batches of four scatter half as much as those that theory is of."""
    simulate = sgd_check.simulate
    monkeypatch.setattr(
        "sgd_check.studies.scaffold.simulate", lambda *args, **more: simulate(*args, **more | {"batch_size": 4})
    )
    other = sgd_check.finite_d_study(**SMALL | {"dimensions": [160, 200], "step_scales": [0.5]})
    ratio = other.overlap_scatter_ratio.isel(time=-1).values
    assert (ratio < 0.75).all()


def test_a_given_problem_takes_the_dimensions():
    pair = Problem(
        activation="he2", teacher=Teacher([1.0]), width=1, dimension=8, initial_overlaps=([[0.4]], [[1.0]], [0.1])
    )
    found = sgd_check.finite_d_study(pair, dimensions=[16, 32], step_scales=[0.002], end=0.05, seeds=16, progress=False)
    assert found.overlap_scatter_ratio.shape == (1, 2, 6, 1, 1)
    assert json.loads(found.attrs["parameters"])["problem"]["dimension"] == 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": [40]}, "Argument `dimensions` must hold at least 2 increasing integers"),
        ({"step_scales": [1.0, 0.5]}, "Argument `step_scales` must hold increasing positive numbers"),
        ({"end": 0.1}, "Argument `end` must be 0.8 or more, so that 1/32 of it is a step or more, but is 0.1"),
        ({"seeds": 8}, "Argument `seeds` must be"),
        ({"dimensions": [3, 40], "end": 20.0}, "Argument `initial_weights` must have shape"),
    ],
)
def test_bad_arguments_are_refused_before_any_step(changes, message, monkeypatch):
    monkeypatch.setattr("sgd_check.studies.scaffold.simulate", lambda *_, **__: pytest.fail("ran"))
    with pytest.raises(ValueError, match=message):
        sgd_check.finite_d_study(**SMALL | changes)


def test_the_command_writes_rows_and_a_figure(here, capsys):
    command = ["finite-d", "--dimensions", "40,80", "--step-scales", "1", "--end", "1", "--seeds", "16", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["d"] for point in found["points"]] == [40, 80]
    assert (here / "study-finite-d.png").stat().st_size > 10_000
