"""Sweeps: every point equals the answer to its problem alone, whoever computes it and whatever dies on the way."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import dask
import numpy as np
import pytest
import sweep_toys
import xarray as xr
from same_answers import assert_same_values

import dynamics
from dynamics import Problem, SaveAt, StorageError, Teacher
from dynamics.cores import available_cores, one_core
from dynamics.sweeps import points as sweep_points
from dynamics.sweeps import sweep
from dynamics.sweeps import workers as sweep_workers
from dynamics.sweeps.grid import changed_problem, make_grid
from dynamics.sweeps.points import (
    STUDIES,
    PointDirectory,
    answered_points,
    compile_study,
    find_study,
    name_of_study,
    study_path,
)
from dynamics.sweeps.workers import WorkerPool

BASE = Problem(activation="he4", teacher=Teacher.power_law(4, 1.0), width=6, dimension=16)
COMMON = SaveAt.at([1.0, 2.0])
PREDICTION = {"study": "prediction", "options": {"save_at": COMMON}, "workers": 0}


def test_every_point_is_the_answer_to_its_problem():
    grid = {"beta": [0.8, 1.2], "width": [2, 5], "seed": range(2)}
    options = {"save_at": SaveAt.at([1.0, 30.0]), "error_estimate": False, "rtol": 1e-6}
    found = dynamics.sweep(BASE, grid, options=options, workers=0)
    assert list(found.loss.dims) == ["beta", "width", "seed", "time"]
    assert found.beta.long_name == "decay of the teacher's coefficients"
    for beta in (0.8, 1.2):
        for width in (2, 5):
            problem = Problem(activation="he4", teacher=Teacher.power_law(4, beta), width=width, dimension=16, seed=1)
            alone = dynamics.solve_overlaps(problem, **options, progress=False)
            point = found.sel(beta=beta, width=width, seed=1)
            np.testing.assert_array_equal(point.loss, alone.loss)
            np.testing.assert_array_equal(point.emergence_time, alone.emergence_time)
            np.testing.assert_array_equal(point.teacher_overlap[:, :width], alone.teacher_overlap)
            assert np.isnan(point.teacher_overlap[:, width:]).all()
            assert str(point.stop_reason.values) == alone.attrs["stop_reason"]
            assert int(point.rhs_evaluations) == alone.attrs["rhs_evaluations"]
    assert (found.failure == "").all()
    assert found.attrs["answer"] == "sweep"
    assert json.loads(found.attrs["sweep"])["axes"]["beta"] == [0.8, 1.2]


def test_without_common_times_time_is_a_variable():
    found = dynamics.sweep(BASE, {"beta": [0.8, 1.2]}, study="prediction", workers=0)
    assert found.loss.dims == found.time.dims == ("beta", "time_index")
    assert found.direction.dims == ("direction",)
    alone = dynamics.predict_emergence(changed_problem(BASE, {"beta": 1.2}))
    np.testing.assert_array_equal(found.time.sel(beta=1.2), alone.time)


def test_variables_of_every_kind_are_merged():
    with pytest.warns(UserWarning, match="^wide$"):
        found = dynamics.sweep(BASE, {"seed": [4, 6], "width": [2, 3]}, study=sweep_toys.shapes, workers=0)
    assert found.level.values.tolist() == [[2.0, 3.0], [2.0, 3.0]]
    assert found["rank"].dims == ("seed", "width", "neuron")
    assert found["rank"].sel(seed=4, width=2).values[:2].tolist() == [0.0, 1.0]
    assert np.isnan(found["rank"].sel(seed=4, width=2)[2])
    assert found.word.sel(seed=6, width=2).values.tolist() == ["n0", "n1", ""]
    assert found["name"].sel(seed=6).values.tolist() == ["width 2", "width 3"]
    assert found.neuron.values.tolist() == [0, 1, 2]
    assert found.place.dims == ("time_index",)
    assert float(found.origin) == 7.0
    assert "origin" in found.coords
    assert found.step.dims == ("seed", "width", "time_index")
    # The study's own variable of the name of an axis.
    assert found.point_seed.dims == ("seed", "width", "run")
    assert found.seed.values.tolist() == [4, 6]
    assert found.stop_reason.sel(seed=4).values.tolist() == ["reached_end", "steady_state"]
    assert found.cost.sel(seed=4).values.tolist() == [2.0, 3.0]


def test_options_can_be_axes_and_attributes_give_way_to_them():
    narrow = changed_problem(BASE, {"width": 2})
    found = dynamics.sweep(narrow, {"scale": [1.0, 3.0]}, study=sweep_toys.shapes, workers=0)
    assert found.level.values.tolist() == [2.0, 6.0]
    assert found.point_scale.values.tolist() == [1.0, 3.0]
    mixed = dynamics.sweep(narrow, {"seed": [0, 1]}, study=sweep_toys.dated, workers=0)
    assert np.isnan(mixed.odd[1])


def test_attributes_of_any_kind_are_merged():
    def tagged(problem):
        kinds = {"raw": b"ab", "word": np.bytes_(b"ab"), "words": [b"ab", b"c"], "huge": 2**70}
        return xr.Dataset({"loss": ((), 1.0)}, attrs=kinds | {"empty": [] if problem.seed else [1.0, 2.0]})

    found = dynamics.sweep(BASE, {"seed": [0, 1]}, study=tagged, workers=0)
    assert [*found.raw.values, *found.word.values] == ["ab"] * 4
    assert found.words.values.tolist() == ["['ab', 'c']"] * 2
    assert found.huge.values.tolist() == [2.0**70] * 2
    assert found.empty.values.tolist() == ["[1. 2.]", "[]"]


@pytest.mark.parametrize(
    ("grid", "changes"),
    [
        ({"k": [3, 4]}, {"activation": "he3"}),
        ({"activation": ["he3", {3: 0.6, 5: 0.8}]}, {"activation": "he3"}),
        ({"num_directions": [2, 3]}, {"teacher": Teacher.power_law(2, 1.0)}),
        ({"teacher": [Teacher([0.8, 0.6]), Teacher([1.0])]}, {"teacher": Teacher([0.8, 0.6])}),
        ({"initial_norm": np.array([0.1, 0.2])}, {"initial_norm": 0.1}),
        ({"order": [None, 12]}, {"order": None}),
    ],
)
def test_keys_set_fields_of_the_problem(grid, changes):
    points = make_grid(BASE, grid, STUDIES["prediction"], {})
    name = next(iter(grid))
    expected = {"activation": BASE.activation, "teacher": BASE.teacher, "initial_norm": BASE.initial_norm, **changes}
    expected.pop("order", None)
    assert points.point(0).problem == Problem(width=6, dimension=16, **expected)
    assert len(points.axes[0].labels) == 2
    assert points.describe(1).startswith(f"{name}=")


def test_values_without_a_name_are_numbered():
    weights = np.random.default_rng(0).standard_normal((2, 6, 16))
    axis = make_grid(BASE, {"initial_weights": list(weights)}, STUDIES["prediction"], {}).axes[0]
    assert axis.labels.tolist() == [0, 1]
    assert make_grid(BASE, {"order": [None, 12]}, STUDIES["prediction"], {}).axes[0].labels.tolist() == ["None", "12"]


def test_the_digest_tells_sweeps_apart():
    def digest(grid, study=STUDIES["prediction"], **options):
        return make_grid(BASE, grid, study, options).surveyed.digest

    same = digest({"seed": [0, 1]})
    assert digest({"seed": range(2)}) == same
    others = [
        digest({"seed": [0, 2]}),
        digest({"seed": [0, 1]}, save_at=COMMON),
        digest({"seed": [0, 1]}, STUDIES["decoupled"]),
        digest({"seed": [0, 1]}, sweep_toys.shapes, scale=np.float64(2.0), good={"a": (1, None)}),
        digest({"seed": [0, 1]}, sweep_toys.shapes, scale=np.arange(2), good=sweep_toys.dated),
        digest({"seed": [0, 1]}, partial(sweep_toys.shapes, scale=2.0)),
    ]
    assert len({same, *others}) == 7


@pytest.mark.thorough
def test_threads_processes_and_this_process_agree(tmp_path):
    grid = {"width": [4, 8], "seed": range(3)}
    options = {"save_at": COMMON, "error_estimate": False, "keep": "summary"}
    here = dynamics.sweep(BASE, grid, options=options, workers=0)
    with ThreadPoolExecutor(2) as pool:
        assert_same_values(dynamics.sweep(BASE, grid, options=options, executor=pool), here)
    with dynamics.sweep(BASE, grid, options=options, workers=2, output=tmp_path / "sweep.nc", progress=True) as stored:
        assert_same_values(stored, here)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.nc"]
    assert_same_values(dynamics.load(tmp_path / "sweep.nc"), here)


@pytest.mark.thorough
def test_a_killed_worker_loses_no_point_and_a_point_that_kills_is_a_failure(tmp_path):
    grid, options = {"seed": range(8)}, {"folder": str(tmp_path), "always": 1}
    whole = dynamics.sweep(BASE, grid, study="prediction", workers=0)
    with pytest.warns(RuntimeWarning, match="1 of 8 points failed, the first at seed=1: The worker process died, also"):
        found = dynamics.sweep(BASE, grid, study=sweep_toys.deadly, options=options, workers=2)
    assert (tmp_path / "killed").exists()
    assert [bool(text) for text in found.failure.values] == [False, True, *[False] * 6]
    assert np.isnan(found.leading_order_time.sel(seed=1)).all()
    others = {"seed": [0, *range(2, 8)]}
    assert_same_values(found.sel(others), whole.sel(others))


class Deaths:
    """A pool that takes up seed 3 last, and whose worker dies of seed 1 always and of seed 3 when it is first begun."""

    window = 3

    def __init__(self):
        self.restarts, self.begun, self.behind, self.dead = 0, 0, [], False

    def submit(self, function, study, point):
        future = Future()
        problem = point.problem
        if problem.seed == 3 and self.begun == 0 and self.restarts < 2:
            if self.dead:  # of seed 1, which was handed out before
                future.set_exception(BrokenExecutor())
            else:
                self.behind.append(future)
            return future
        self.begun += problem.seed == 3
        if problem.seed == 1 or (problem.seed == 3 and self.begun == 1):
            for each in (*self.behind, future):
                each.set_exception(BrokenExecutor())
            self.behind, self.dead = [], True
        else:
            future.set_result(function(study, point))
        return future

    def restart(self):
        self.restarts, self.dead = self.restarts + 1, False


@pytest.mark.timeout(60)
def test_a_point_that_was_never_begun_is_not_blamed_for_the_deaths_of_others():
    """It then dies once alone, by chance: that is its first own death."""
    kept = {}
    grid = make_grid(BASE, {"seed": [0, 1, 3]}, "prediction", {})
    pool = Deaths()
    sweep_workers.run_points(
        [2, 1, 0], grid.point, grid.study, pool, lambda index, answer: kept.update({index: answer})
    )
    died = "The worker process died, also when it ran this point alone."
    assert [kept[index].failure for index in range(3)] == ["", died, ""]
    assert pool.begun == 2
    assert pool.restarts == 5


@pytest.mark.thorough
def test_a_broken_executor_of_the_caller_is_said_and_points_are_kept(tmp_path):
    output, options = tmp_path / "sweep.nc", {"folder": str(tmp_path), "always": 1}
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(RuntimeError, match="must outlive the sweep, but one of its workers died"),
    ):
        dynamics.sweep(BASE, {"seed": range(3)}, study=sweep_toys.deadly, options=options, executor=pool, output=output)
    assert list(answered_points(tmp_path / "sweep.nc.points")) == [0]


def test_workers_that_cannot_start_are_said(monkeypatch):
    pool = WorkerPool(1, "dynamics.solve.overlaps:solve_overlaps")

    def start():
        pool._starts = [Future()]
        pool._starts[0].set_exception(BrokenExecutor())

    monkeypatch.setattr(pool, "_start", start)
    monkeypatch.setattr(pool, "_stop", lambda *, at_once: None)
    pool._start()
    pool.restart()
    with pytest.raises(RuntimeError, match="Worker processes must be able to start, but end at once"):
        pool.restart()
    monkeypatch.setattr(sweep_workers.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match=r"A script must call `dynamics\.sweep` below"):
        WorkerPool(1, "dynamics.solve.overlaps:solve_overlaps")


def test_one_core_holds_threads():
    with one_core(), one_core():
        assert available_cores() == 1
    assert available_cores() == len(os.sched_getaffinity(0))


@pytest.mark.thorough
def test_a_cluster_with_a_worker_killed_in_the_middle(tmp_path):
    grid = {"width": [4, 8], "seed": range(4)}
    whole = dynamics.sweep(BASE, grid, study="prediction", workers=0)
    # Dask's workers are three here, each of which imports dask again unless it is forked from one process that has.
    # Loaded before its settings are changed: otherwise all of them are gone when the change is taken back.
    import_module("distributed")
    forked = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    with forked, sweep_workers.cluster_executor(workers=2) as executor:
        found = dynamics.sweep(
            BASE, grid, study=sweep_toys.deadly, options={"folder": str(tmp_path)}, executor=executor,
            output=tmp_path / "sweep.nc",
        )  # fmt: skip
        assert (tmp_path / "killed").exists()
        assert_same_values(found, whole)
        scheduler = executor._client.scheduler.address
        with sweep_workers.cluster_executor(scheduler=scheduler) as other:
            again = dynamics.sweep(BASE, grid, study="prediction", executor=other)
        assert_same_values(again, whole)
        found.close()


def test_a_missing_cluster_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sweep_workers, "find_spec", lambda _name: None)
    assert not sweep_workers.has_cluster()
    with (
        pytest.raises(ImportError, match=r"not installed: pip install 'feature-emergence\[cluster\]'"),
        sweep_workers.cluster_executor(workers=1),
    ):
        pass


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch):
    folder = tmp_path / "calls"
    folder.mkdir()
    grid = {"width": [4, 8], "seed": range(3)}
    arguments = {"study": sweep_toys.counted, "options": {"folder": str(folder)}, "output": tmp_path / "sweep.nc"}
    keep, kept = PointDirectory.keep, []

    def interrupt(self, index, answer):
        if len(kept) == 4:
            raise KeyboardInterrupt
        kept.append(index)
        keep(self, index, answer)

    with monkeypatch.context() as patch:
        patch.setattr(PointDirectory, "keep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            dynamics.sweep(BASE, grid, workers=0, **arguments)
    assert len(answered_points(tmp_path / "sweep.nc.points")) == 4
    with pytest.raises(StorageError, match="must hold points of this sweep, but holds those of another one"):
        dynamics.sweep(BASE, {"width": [4], "seed": [0]}, workers=0, **arguments)
    with dynamics.sweep(BASE, grid, workers=0, **arguments) as found:
        assert_same_values(found, dynamics.sweep(BASE, grid, **PREDICTION))
    assert sorted(calls for calls in sweep_toys.calls(folder).values()) == [1, 1, 1, 1, 1, 2]
    with dynamics.sweep(BASE, {"width": [4], "seed": [0]}, workers=0, overwrite=True, **arguments) as other:
        assert other.sizes["width"] == 1


PARENT = """
import sys, dynamics, sweep_toys
from dynamics import Problem, Teacher
if __name__ == "__main__":
    base = Problem(activation="he4", teacher=Teacher.power_law(4, 1.0), width=6, dimension=16)
    options = {"folder": sys.argv[1], "gate": sys.argv[3]}
    dynamics.sweep(base, {"width": [4, 8], "seed": range(3)}, study=sweep_toys.counted, options=options,
                   output=sys.argv[2], workers=2)
"""


@pytest.mark.thorough
def test_a_killed_parent_leaves_points_and_no_processes(tmp_path):
    folder, output = tmp_path / "calls", tmp_path / "sweep.nc"
    folder.mkdir()
    script = tmp_path / "script.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    gate = tmp_path / "gate"
    command = [sys.executable, str(script), str(folder), str(output), str(gate)]
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    points = tmp_path / "sweep.nc.points"
    wait_for(lambda: answered_points(points))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    done = len(answered_points(points))
    assert 0 < done < 6
    gate.touch()
    wait_for(lambda: not any(Path(f"/proc/{number}").exists() for number in sweep_toys.processes(folder)))
    before = sum(sweep_toys.calls(folder).values())
    grid, options = {"width": [4, 8], "seed": range(3)}, {"folder": str(folder), "gate": str(gate)}
    with ThreadPoolExecutor(2) as pool:
        found = dynamics.sweep(BASE, grid, study=sweep_toys.counted, options=options, output=output, executor=pool)
    assert sum(sweep_toys.calls(folder).values()) - before == 6 - done
    assert_same_values(found, dynamics.sweep(BASE, grid, **PREDICTION))
    found.close()


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_failures_are_recorded_and_tried_again(tmp_path):
    narrow, good = changed_problem(BASE, {"width": 2}), tmp_path / "good"
    arguments = {
        "study": sweep_toys.shapes,
        "options": {"good": str(good)},
        "output": tmp_path / "sweep.nc",
        "workers": 0,
    }
    with pytest.warns(RuntimeWarning, match="2 of 4 points failed, the first at seed=1: ValueError: seed 1 is odd"):
        found = dynamics.sweep(narrow, {"seed": range(4)}, progress=True, **arguments)
    assert found.failure.values.tolist() == ["", "ValueError: seed 1 is odd", "", "ValueError: seed 3 is odd"]
    assert np.isnan(found.level.values).tolist() == [False, True, False, True]
    found.close()
    good.touch()
    with dynamics.sweep(narrow, {"seed": range(4)}, overwrite=True, **arguments) as again:
        assert (again.failure == "").all()
        assert (again.level == 2.0).all()
    assert not (tmp_path / "sweep.nc.points").exists()


def test_what_a_failed_run_computed_is_kept():
    with pytest.warns(RuntimeWarning, match="1 of 1 points failed"):
        found = dynamics.sweep(BASE, {"seed": [0]}, study=sweep_toys.broken_run, workers=0)
    assert found.failure.values.tolist() == ["SolveError: stopped at t = 1"]
    assert found.loss.values.tolist() == [[1.0, 0.5]]


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        (sweep_toys.wrong_answer, "TypeError: A study must return a Dataset, but returned float."),
        (sweep_toys.unstorable, "TypeError: Attribute 'setting' must be text or numbers"),
    ],
)
def test_answers_that_are_no_datasets_are_failures(study, reason):
    with pytest.warns(RuntimeWarning, match="1 of 1 points failed"):
        found = dynamics.sweep(BASE, {"seed": [0]}, study=study, workers=0)
    assert str(found.failure.values[0]).startswith(reason)
    assert list(found.data_vars) == ["failure"]


def test_a_directory_serves_one_process_and_one_sweep(tmp_path, monkeypatch):
    path = tmp_path / "points"
    with PointDirectory(path, "one", {}), pytest.raises(StorageError, match="must not be in use by another process"):
        PointDirectory(path, "one", {})
    (path / "sweep.json").write_text("no json")
    with pytest.raises(StorageError, match="those of another one"):
        PointDirectory(path, "one", {})
    with PointDirectory(path, "one", {}, overwrite=True) as directory:
        monkeypatch.setattr(Path, "write_bytes", _full)
        with pytest.raises(StorageError, match="could not be written: no space"):
            directory.keep(0, sweep_toys_answer())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(StorageError, match="must hold the points of a sweep or be absent, but holds other files"):
        PointDirectory(tmp_path / "other", "one", {})
    with pytest.raises(StorageError, match="could not be written"):
        PointDirectory(tmp_path / "none" / "points", "one", {})


def _full(*_):
    sentence = "no space"
    raise OSError(sentence)


def sweep_toys_answer():
    return sweep_workers.PointAnswer(b"")


def test_a_merged_file_that_cannot_be_written_is_said(tmp_path, monkeypatch):

    monkeypatch.setattr(sweep, "_fill", _full)
    with pytest.raises(StorageError, match=r"sweep\.nc' could not be written: no space"):
        dynamics.sweep(BASE, {"seed": [0]}, output=tmp_path / "sweep.nc", **PREDICTION)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.nc.points"]


def test_studies_are_found_by_name_path_and_as_they_are():
    assert study_path("overlaps") == "dynamics.solve.overlaps:solve_overlaps"
    assert study_path("projected-sgd") == "sgd_check.sweeps:projected_sgd"
    assert study_path(sweep_toys.shapes) is sweep_toys.shapes
    assert find_study("dynamics.solve.overlaps:solve_overlaps") is dynamics.solve_overlaps
    assert name_of_study(partial(sweep_toys.shapes, scale=2.0)) == "sweep_toys:shapes(scale=2.0)"
    assert all(callable(find_study(path)) for path in STUDIES.values())


@pytest.mark.parametrize("name", ["overlaps", "spherical", "prediction"])
@pytest.mark.parametrize("method", ["auto", "nonsense"])
def test_compiling_before_a_sweep_never_fails_it(name, method):
    spherical = name == "spherical"
    problem = changed_problem(BASE, {"student": "spherical", "teacher": Teacher([1.0])}) if spherical else BASE
    compile_study(STUDIES[name], problem, {"method": "explicit" if spherical and method == "auto" else method})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (({},), "Argument `grid` must have at least one key, but is empty."),
        (({"beta": 1.0},), "Grid key `beta` must hold a list of values, but holds 1.0."),
        (({"beta": "12"},), "Grid key `beta` must hold a list of values, but holds '12'."),
        (({"beta": []},), "Grid key `beta` must hold at least one value, but holds none."),
        (({"beta": [1, 1.0]},), "Grid key `beta` must hold distinct values, but holds [1, 1.0]."),
        (({3: [1]},), "Argument `grid` must be a dict with names as keys, but is {3: [1]}."),
        (({"k": [3], "activation": ["he4"]},), "Grid keys `k` and `activation` must not both be given: each sets `activation`."),
        (({"widht": [3]},), "has, but hold `widht`."),
        (({"widht": [2]},), "but hold `widht`. Did you mean `width`?"),
        (({"save_att": [COMMON]},), "but hold `save_att`. Did you mean `save_at`?"),
        (({"dimension": [8, 2]},), "Point dimension=2 of the grid must be a problem, but is none: Argument `dimension`"),
        (({"seed": [1]}, "overlap"), "but is 'overlap'. Did you mean 'overlaps'?"),
        (({"seed": [1]}, 3), "Argument `study` must be a name, a path 'module:function' or a callable, but is 3."),
        (({"seed": [1]}, "nowhere:f"), "must name a function 'module:function' that exists, but is 'nowhere:f'"),
        (({"seed": [1]}, "dynamics.solve.overlaps:GRAM_WARNING"), "must name a function, but 'dynamics.solve.overlaps:GRAM_WARNING' is"),
        (({"seed": [1]}, "projected-sgd"), "Argument `options` must hold `learning_rate` for the study"),
        (({"seed": [1]}, "overlaps", {"width": 3}), "must hold options of the study, but holds `width` of the problem."),
        (({"rtol": [0.1]}, "overlaps", {"rtol": 3}), "Grid key `rtol` must be absent from the options, but is in both."),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_before_any_work(arguments, sentence):
    names = ("grid", "study", "options")
    given = dict(zip(names, arguments, strict=False))
    with pytest.raises((TypeError, ValueError)) as caught:
        dynamics.sweep(BASE, given.pop("grid"), workers=0, **given)
    assert sentence in str(caught.value)


def test_mistakes_in_the_other_arguments(tmp_path):
    grid = {"seed": [0]}
    with pytest.raises(TypeError, match="Argument `problem` must be a Problem, but is int"):
        dynamics.sweep(3, grid)
    given = Problem(activation="he4", teacher=Teacher([1.0]), width=6, dimension=16)
    with pytest.raises(ValueError, match="`num_directions` must come with `beta`"):
        dynamics.sweep(given, {"num_directions": [2]}, workers=0)
    with (
        pytest.raises(ValueError, match="`workers` must be None when an executor is given, but is 2"),
        ThreadPoolExecutor() as pool,
    ):
        dynamics.sweep(BASE, grid, executor=pool, workers=2)
    with pytest.raises(ValueError, match="Argument `workers` must be at least 0, but is -1"):
        dynamics.sweep(BASE, grid, workers=-1)
    with pytest.raises(ValueError, match="must be such that they can be pickled"):
        dynamics.sweep(BASE, grid, study=lambda problem: xr.Dataset(), workers=1)
    (tmp_path / "sweep.nc").touch()
    with pytest.raises(StorageError, match="an existing file"):
        dynamics.sweep(BASE, grid, output=tmp_path / "sweep.nc")


def test_studies_with_keywords_of_any_name_take_them():
    def study(problem, **anything):
        return xr.Dataset({"sum": ((), float(sum(anything.values())))})

    found = dynamics.sweep(BASE, {"x": [1, 2]}, study=study, options={"y": 10}, workers=0)
    assert found["sum"].values.tolist() == [11.0, 12.0]
    assert pickle.loads(pickle.dumps(found)).equals(found)


def test_files_come_in_the_order_of_their_points(tmp_path):
    with PointDirectory(tmp_path / "points", "one", {}) as directory:
        for number in (999_999, 1_000_000, 1, 5):
            directory.keep(number, sweep_toys_answer())
        assert list(directory.files()) == [1, 5, 999_999, 1_000_000]
        assert directory.done() == {1, 5, 999_999, 1_000_000}


@pytest.mark.parametrize("least", [1, sweep_points.COMPRESSED_BYTES])
def test_a_block_holds_what_netcdf_does(tmp_path, monkeypatch, least):
    monkeypatch.setattr(sweep_points, "COMPRESSED_BYTES", least)
    plain = xr.Dataset({"x": ("p", [1.0, 2.0]), "name": ((), "text")}, coords={"p": [1, 2], "q": ("p", ["a", "b"])})
    plain = plain.assign_attrs(title="plain", count=np.int64(3), many=[1, 2], one=[5])
    plain = plain.assign(
        flag=("p", [True, False]),
        small=("p", np.array([1, 2], dtype=np.int8)),
        single=("p", np.array([0.5, 1.5], dtype=np.float32)),
        day=("p", np.array(["2026-11-27", "2026-11-28"], dtype="datetime64[ns]")),
    )
    (tmp_path / "1.point").write_bytes(sweep_points.packed_point(plain))
    dynamics.save(plain.assign_attrs(schema_version=1), tmp_path / "1.nc")
    point = sweep_points.read_point(tmp_path / "1.point")
    with xr.open_dataset(tmp_path / "1.nc", decode_times=False, mask_and_scale=False) as stored:
        expected = {
            str(n): (v.dims, v.dtype.kind.replace("U", "O"), v.values.tolist()) for n, v in stored.variables.items()
        }
        assert point.sizes == dict(stored.sizes)
    assert {n: (v.dims, v.values.dtype.kind, v.values.tolist()) for n, v in point.variables.items()} == expected
    assert point.auxiliary == {"q"}
    assert {"title": "plain", "count": 3, "many": [1, 2], "one": 5}.items() <= point.attributes.items()
    with pytest.raises(TypeError, match=r"^Variable 'z' must hold real numbers .* but has the type complex128\.$"):
        sweep_points.packed_point(xr.Dataset({"z": ("p", [1j])}))
