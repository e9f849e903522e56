"""Both ends of a sweep: what is refused before any point is asked, and the problem of a point that was selected."""

import gc
import importlib
import os
import sys
import threading
import warnings

import numpy as np
import pytest
import xarray as xr

import dynamics
from dynamics import Problem, SaveAt, StorageError, Teacher, study
from dynamics.cores import THREAD_VARIABLES
from dynamics.sweeps import workers as sweep_workers
from dynamics.sweeps.grid import changed_problem, make_grid
from dynamics.sweeps.points import STUDIES
from dynamics.sweeps.workers import WorkerPool

BASE = Problem(activation="he4", teacher=Teacher.power_law(3, 1.0), width=4, dimension=16)
PREDICTION = {"study": "prediction", "options": {"save_at": SaveAt.at([1.0, 2.0])}, "workers": 0}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("overlaps", {"rtol": -1.0}, "Argument `rtol` must be finite and positive, but is -1"),
        ("overlaps", {"method": "nonsense"}, "Argument `method` must be"),
        ("overlaps", {"save_at": [1.0, 2.0]}, "Argument `save_at` must be a SaveAt"),
        ("prediction", {"save_at": 3.0}, "Argument `save_at` must be a SaveAt"),
        ("committee", {"save_at": SaveAt.at([1.0])}, "Argument `problem` must have the committee student here"),
    ],
)
def test_what_the_study_refuses_at_both_ends_is_said_before_any_point(tmp_path, name, options, sentence):
    with pytest.raises(ValueError, match="Problem and options must suit the study") as caught:
        dynamics.sweep(BASE, {"seed": range(3)}, study=name, options=options, workers=0, output=tmp_path / "sweep.nc")
    assert sentence in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_what_suits_some_points_alone_is_their_own_failure():
    options = {"save_at": SaveAt.at([1.0]), "error_estimate": False}
    with pytest.warns(
        RuntimeWarning, match="1 of 2 points failed, the first at rtol=-1.0: ValueError: Argument `rtol`"
    ):
        found = dynamics.sweep(BASE, {"rtol": [1e-3, -1.0]}, options=options, workers=0)
    assert np.isfinite(found.loss.sel(rtol=1e-3)).all()


def test_a_step_that_fails_is_left_to_the_point(monkeypatch):
    def failing(*_, **__):
        message = "no step"
        raise dynamics.SolveError(message, xr.Dataset({"loss": ("time", [1.0])}))

    monkeypatch.setattr("dynamics.integrators.methods.FlowMethod.stepper", failing)
    with pytest.warns(RuntimeWarning, match="1 of 1 points failed, the first at seed=0: SolveError: no step"):
        dynamics.sweep(BASE, {"seed": [0]}, workers=0)


FILE = """
[problem]
k = 4
num_directions = 3
dimension = 16
[grid]
width = [2, 4]
[study]
rtol = -1.0
save_at = { at = [1.0, 2.0] }
"""


@pytest.mark.parametrize("arguments", [["--dry-run"], []])
def test_the_command_refuses_with_exit_code_two(here, monkeypatch, capsys, arguments):
    monkeypatch.setattr("dynamics.sweeps.workers.available_cores", lambda: 0)
    (here / "asked.toml").write_text(FILE)
    assert study.main(["asked.toml", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: Problem and options must suit the study overlaps, but do not: ")
    assert "`rtol` must be finite and positive" in error
    assert [path.name for path in here.iterdir()] == ["asked.toml"]


def test_the_largest_points_are_asked_first():
    asked = []

    def noted(problem):
        asked.append((problem.width, problem.dimension, problem.seed))
        return xr.Dataset({"level": ((), 1.0)})

    dynamics.sweep(BASE, {"width": [2, 8], "dimension": [16, 32], "seed": [0, 1]}, study=noted, workers=0)
    assert asked == sorted(asked, key=lambda point: (-point[0], -point[1], point[2]))
    grid = make_grid(BASE, {"num_directions": [2, 3]}, STUDIES["prediction"], {})
    assert grid.surveyed.sizes[:, :2].tolist() == [[4 * 6, 16], [4 * 7, 16]]


def test_what_workers_have_in_common_starts_no_thread(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "7")
    before = threading.active_count()
    monkeypatch.delitem(sys.modules, sweep_workers.COMMON, raising=False)
    importlib.import_module(sweep_workers.COMMON)
    gc.unfreeze()  # what the workers of a sweep keep for ever, this process does not
    assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}
    assert threading.active_count() == before
    assert {"dynamics.integrators.methods", "netCDF4", "numba"} <= set(sys.modules)


def test_workers_are_spawned_where_a_fork_is_not_safe(monkeypatch):
    monkeypatch.setattr(sweep_workers.sys, "platform", "darwin")
    assert sweep_workers.begin_workers().get_start_method() == "spawn"


def drawn(problem):
    return xr.Dataset({"number": ((), float(np.random.rand()))})  # noqa: NPY002


def test_workers_do_not_share_the_numbers_that_a_study_draws():
    with WorkerPool(2, drawn) as first, WorkerPool(2, drawn) as second:
        numbers = [float(pool.submit(drawn, None).result()["number"]) for pool in (first, second)]
    assert numbers[0] != numbers[1]


@pytest.mark.parametrize(
    "grid",
    [
        {"width": [2, 5], "seed": [0, 3]},
        {"beta": [0.8, 1.2], "num_directions": [2, 3]},
        {"k": [3, 4], "initial_norm": [0.1, 0.2]},
        {"activation": ["he3", {3: 0.6, 5: 0.8}], "dimension": [8, 16]},
        {"teacher": [Teacher([0.8, 0.6]), Teacher([1.0]), Teacher([0.8, 0.6], directions=[[1.0, 0.0], [0.6, 0.8]])]},
        {"initial_weights": list(np.random.default_rng(0).standard_normal((2, 4, 16)))},
        {"label_noise": [0.0, 0.5]},
    ],
)
def test_the_problem_of_a_selected_point_is_the_one_that_was_asked(tmp_path, grid):
    with dynamics.sweep(BASE, grid, output=tmp_path / "sweep.nc", **PREDICTION) as found:
        for index in np.ndindex(*found.failure.shape):
            at = dict(zip(grid, index, strict=True))
            asked = changed_problem(BASE, {name: list(grid[name])[place] for name, place in at.items()})
            assert Problem.from_dataset(found.isel(at)) == asked


def test_a_chosen_order_is_that_of_the_problem():
    base = changed_problem(BASE, {"activation": "tanh"})
    options = {"save_at": SaveAt.at([0.1]), "error_estimate": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the series leaves out a part of the link
        found = dynamics.sweep(base, {"order": [None, 9]}, options=options, workers=0)
    assert [Problem.from_dataset(found.isel(order=at)).order for at in range(2)] == [base.order, 9]


def test_a_whole_sweep_has_no_one_problem():
    found = dynamics.sweep(BASE, {"width": [2, 5], "seed": [0, 3]}, **PREDICTION)
    for several, names in ((found, "width=…, seed=…"), (found.sel(width=5), "seed=…"), (found.isel(width=0, drop=True), "width=…, seed=…")):  # fmt: skip
        with pytest.raises(ValueError, match="must be one point of its sweep") as caught:
            Problem.from_dataset(several)
        assert f"found.sel({names})" in str(caught.value)
    options = {"save_at": SaveAt.at([1.0]), "error_estimate": False}
    over_options = dynamics.sweep(BASE, {"rtol": [1e-3, 1e-4]}, options=options, workers=0)
    assert Problem.from_dataset(over_options) == BASE


@pytest.mark.parametrize(("output", "sentence"), [(5, "must be a path, but is 5"), ("", "Argument `path`")])
def test_an_output_that_names_no_file_is_refused_in_a_sentence(output, sentence):
    with pytest.raises((TypeError, StorageError), match=sentence):
        dynamics.sweep(BASE, {"seed": [0, 1]}, study="prediction", workers=0, output=output)
