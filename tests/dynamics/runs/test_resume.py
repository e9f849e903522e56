"""Runs that end early and go on: bit for bit the uninterrupted ones, whatever ended them."""

import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from processes import interrupt_run
from same_answers import AT, assert_same, problem_of

import dynamics
from benchmarks.random_problems import random_problem
from dynamics import Callback
from dynamics.integrators import particles as particle_stepper
from dynamics.runs import loop as run
from dynamics.runs import run_file, storage, trackers
from dynamics.solve.__main__ import main

#: Runs of other systems.
NETWORK = dynamics.Problem(
    student=dynamics.Student(activation="erf", width=4, biases="trained"),
    teacher=dynamics.Teacher.polynomial("x1 + x1*x2"), dimension=16,
)  # fmt: skip
COMPOSITION = dynamics.tokens.Composition(vocabulary=6, hops=4)


def stop_at(time):
    return [Callback(lambda now, _state: now > time)]


def go_on(path, stops):
    """Resume a run as often as it takes, stopping at each of the times."""
    for stop in stops:
        assert dynamics.resume(path, progress=False, trackers=stop_at(stop)).attrs["stop_reason"] == "callback"
    return dynamics.resume(path, progress=False)


@pytest.mark.parametrize(
    ("solve", "asked", "settings"),
    [
        (dynamics.solve_overlaps, problem_of(), {"method": "explicit"}),
        (dynamics.solve_overlaps, problem_of(), {"method": "stiff", "keep": "summary"}),
        (dynamics.solve_overlaps, problem_of(), {"method": "bdf", "rtol": 1e-6}),
        (dynamics.solve_overlaps, problem_of(), {"method": "gradient-descent", "learning_rate": 0.02}),
        (dynamics.solve_overlaps, problem_of(), {"learning_rate": 1e-4, "batch_size": 4, "error_estimate": False}),
        (dynamics.solve_mean_field, problem_of(teacher=dynamics.Teacher([1.0]), student="spherical"), {"particles": 128, "keep": "summary"}),
        (dynamics.solve_mean_field, problem_of(teacher=dynamics.Teacher([0.5, 0.5]), student="spherical"), {"particles": 128, "tracers": [[0.3, 0.1], [0.0, 0.2]]}),
        (dynamics.solve_committee, problem_of(student="committee"), {"method": "bdf", "rtol": 1e-6}),
        (dynamics.solve_spherical, problem_of(teacher=dynamics.Teacher([0.5, 0.5]), student="spherical"), {"keep": "summary"}),
        (dynamics.solve_quadratic, problem_of(activation="he2"), {}),
        (dynamics.solve_quadratic, problem_of(activation="he2", student="stiefel"), {}),
        (dynamics.solve_network, NETWORK, {"method": "explicit"}),
        (dynamics.solve_network, NETWORK, {"method": "bdf"}),
        (dynamics.solve_network, NETWORK, {"method": "gradient-descent", "learning_rate": 0.01}),
        (dynamics.solve_network, NETWORK, {"learning_rate": 0.05, "step_theory": "infinite-d", "batch_size": 3}),
        (dynamics.solve_network, replace(NETWORK, inputs=dynamics.Inputs.power_law(0.5)), {}),
        (dynamics.solve_problem, COMPOSITION, {}),
        (dynamics.solve_problem, COMPOSITION, {"learning_rate": 0.25}),
        (dynamics.solve_problem, replace(COMPOSITION, data="curriculum", stage_time=20.0), {}),
        (dynamics.solve_problem, replace(COMPOSITION, data="curriculum", stage_time=20.0), {"learning_rate": 0.25}),
    ],
    ids=[
        *("explicit", "stiff", "bdf", "descent", "finite steps", "one axis", "tracers", "committee", "spherical"),
        *("quadratic", "frames", "network", "network, bdf", "network, descent", "network, steps", "network, inputs"),
        *("composition", "composition, map", "curriculum", "curriculum, map"),
    ],
)  # fmt: skip
def test_a_run_that_was_stopped_twice_ends_as_if_it_never_was(tmp_path, solve, asked, settings):
    whole = solve(asked, save_at=AT, progress=False, **settings)
    path = tmp_path / "run.nc"
    first = solve(asked, save_at=AT, progress=False, trackers=stop_at(3.0), checkpoint=path, **settings)
    assert 0 < np.isfinite(first.loss).sum() < 40
    assert dynamics.load(path).identical(first)
    assert_same(go_on(path, [9.0]), whole)
    assert_same(dynamics.load(path), whole)
    assert storage.load_tree(path).children == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.nc"]


def test_a_large_mean_field_goes_on_too(tmp_path, monkeypatch):
    monkeypatch.setattr(particle_stepper, "SMALLEST_STATE", 100)
    asked = problem_of(teacher=dynamics.Teacher([1.0]), student="spherical")
    given = {"save_at": AT, "progress": False, "particles": 512}
    whole = dynamics.solve_mean_field(asked, **given)
    assert whole.attrs["sweeps"] > 0
    dynamics.solve_mean_field(asked, **given, trackers=stop_at(4.0), checkpoint=tmp_path / "run.nc")
    assert_same(go_on(tmp_path / "run.nc", [8.0]), whole)


@pytest.mark.long
def test_a_run_that_has_changed_its_method_goes_on_with_the_new_one(tmp_path):
    """ "stiff" gives up on this problem after t = 1e4, as measured in test_trapped."""
    given = {"save_at": dynamics.SaveAt.geometric(1.0, 1e8, 20), "progress": False, "method": "stiff", "rtol": 1e-6}
    given |= {"error_estimate": False, "keep": "summary"}
    whole = dynamics.solve_overlaps(random_problem(90), **given)
    assert whole.attrs["fallback"].startswith("'bdf' instead of 'stiff' from t = ")
    path = tmp_path / "run.nc"
    dynamics.solve_overlaps(random_problem(90), **given, checkpoint=path, trackers=stop_at(1e7))
    found = dynamics.resume(path, progress=False)
    # The link is stored as a formula, so that 0.6 comes back as 3/5, the same number.
    found.attrs["parameters"] = whole.attrs["parameters"]
    assert_same(found, whole)


@pytest.mark.thorough
def test_torch_goes_on_too(tmp_path):
    pytest.importorskip("torch")
    given = {"save_at": AT, "progress": False, "device": "cpu", "rtol": 1e-6, "error_estimate": False}
    whole = dynamics.solve_overlaps(problem_of(), **given)
    dynamics.solve_overlaps(problem_of(), **given, checkpoint=tmp_path / "run.nc", trackers=stop_at(3.0))
    assert_same(go_on(tmp_path / "run.nc", [9.0]), whole)


def test_periodic_checkpoints_are_whole_files_from_which_the_run_ends_the_same(tmp_path, monkeypatch):
    """Every version of the file, the first and each of the later ones, leads to the same end."""
    monkeypatch.setattr(trackers, "LARGEST_CHUNK_STEPS", 30)
    monkeypatch.setattr(trackers, "FIRST_CHUNK_STEPS", 30)
    monkeypatch.setattr(run_file, "LARGEST_SHARE", np.inf)
    versions = []
    kept = storage.netcdf_writer

    def writer(result, **options):
        versions.append(tmp_path / f"{len(versions)}.nc")
        kept(result, **options)(versions[-1])
        return kept(result, **options)

    monkeypatch.setattr(storage, "netcdf_writer", writer)
    given = {"save_at": AT, "progress": False, "method": "explicit"}
    file = dynamics.RunFile(tmp_path / "run.nc", every=1e-9)
    whole = dynamics.solve_overlaps(problem_of(), **given, checkpoint=file)
    monkeypatch.setattr(storage, "netcdf_writer", kept)
    assert len(versions) > 5
    for version in versions[:-1]:
        part = dynamics.load(version)
        assert part.attrs["stop_reason"] == "unfinished"
        reached = np.isfinite(part.loss.to_numpy())
        np.testing.assert_array_equal(part.loss[reached], whole.loss[reached])
    for version in (versions[0], versions[3], versions[-2]):
        assert_same(dynamics.resume(version, progress=False), whole)
    assert_same(dynamics.load(versions[-1]), whole)


def test_an_interrupt_while_the_looser_run_is_awaited_keeps_both(tmp_path, monkeypatch):
    path, given = tmp_path / "run.nc", {"save_at": AT, "progress": False, "method": "explicit"}
    whole = dynamics.solve_overlaps(problem_of(), **given)

    def awaited(_self, _seconds):
        interrupt_run()
        return False

    with monkeypatch.context() as patch:
        patch.setattr(run.LooserRun, "ended", awaited)
        part = dynamics.solve_overlaps(problem_of(), **given, checkpoint=path, on_failure="return")
    assert part.attrs["stop_reason"] == "interrupted"
    np.testing.assert_array_equal(part.loss, whole.loss)
    assert_same(dynamics.resume(path, progress=False), whole)


@pytest.mark.parametrize("method", ["scipy:RK45", "sundials"])
def test_methods_that_cannot_go_on_keep_what_they_computed_and_say_so(tmp_path, method):
    pytest.importorskip("sksundae") if method == "sundials" else None
    path = tmp_path / "run.nc"
    part = dynamics.solve_overlaps(
        problem_of(), save_at=AT, method=method, progress=False, trackers=stop_at(3.0), checkpoint=path
    )
    assert dynamics.load(path).identical(part)
    with pytest.raises(dynamics.StorageError) as caught:
        dynamics.resume(path)
    assert str(caught.value) == (
        f"File {str(path)!r} must hold a run that can be resumed, but it stopped (callback) by a method that "
        f"cannot go on, {method!r}."
    )


def test_a_full_disk_costs_a_warning_and_no_result(tmp_path, monkeypatch):
    path, given = tmp_path / "run.nc", {"save_at": AT, "progress": False, "method": "explicit"}
    dynamics.solve_overlaps(problem_of(), **given, checkpoint=path, trackers=stop_at(3.0))
    before = path.read_bytes()

    def full(*_arguments, **_settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("xarray.Dataset.dump_to_store", full)
        with pytest.warns(RuntimeWarning, match=r"File '.*run\.nc' could not be written: .*No space left on device\."):
            found = dynamics.resume(path, progress=False)
    whole = dynamics.solve_overlaps(problem_of(), **given)
    assert_same(found, whole)
    assert path.read_bytes() == before
    assert_same(dynamics.resume(path, progress=False), whole)


def refusal(path):
    with pytest.raises(dynamics.StorageError) as caught:
        dynamics.resume(path, progress=False)
    return str(caught.value)


def test_what_cannot_be_resumed_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "run.nc"
    given = {"save_at": AT, "progress": False, "method": "explicit"}
    whole = dynamics.solve_overlaps(problem_of(), **given, checkpoint=path)
    assert refusal(path) == f"File {str(path)!r} must hold a run that can be resumed, but it holds a finished one."
    with pytest.raises(dynamics.StorageError, match="an existing file"):
        dynamics.solve_overlaps(problem_of(), **given, checkpoint=path)
    assert "must name an existing file" in refusal(tmp_path / "none.nc")
    dynamics.solve_overlaps(
        problem_of(), **given, trackers=stop_at(3.0), checkpoint=dynamics.RunFile(path, overwrite=True)
    )
    tree = storage.load_tree(path)

    def changed(name, change):
        other = xr.DataTree.from_dict(
            {node.path: node.to_dataset(inherit=False).copy(deep=True) for node in tree.subtree}
        )
        change(other)
        return dynamics.save(other, tmp_path / f"{name}.nc")

    damaged = changed("damaged", lambda other: other["checkpoint/run"].dataset["state_vectors"].data.fill(0.0))
    assert refusal(damaged) == f"File {str(damaged)!r} must hold a whole checkpoint of this program, but does not."
    lost = changed("lost", lambda other: other["checkpoint"].attrs.clear())
    assert "must hold a whole checkpoint" in refusal(lost)

    def wider(other):
        stored = json.loads(other.attrs["parameters"])
        stored["problem"]["width"] = 10
        other.attrs["parameters"] = json.dumps(stored)

    other = changed("wider", wider)
    assert refusal(other).startswith(f"File {str(other)!r} must hold a run that can be resumed, but does not: Argument")

    def renamed(other):
        other.attrs["parameters"] = other.attrs["parameters"].replace('"overlaps"', '"weather"')

    assert "or tokens or system, but its answer is 'weather'" in refusal(changed("other", renamed))

    def older(other):
        other.attrs["source"] = "feature-emergence 0.0"

    with pytest.warns(UserWarning, match=r"was begun by feature-emergence 0\.0, so"):
        assert_same(dynamics.resume(changed("older", older), progress=False), whole)


def test_the_points_of_a_sweep_are_no_run(tmp_path):
    points = tmp_path / "sweep.nc.points"
    points.mkdir()
    assert refusal(points) == (
        f"Argument `path` must name the file of a run, but {str(points)!r} is a directory: a sweep goes on when it is "
        f"called again as it was, `dynamics.sweep(…, output={str(tmp_path / 'sweep.nc')!r})` or "
        "`python -m dynamics.study FILE`."
    )


def test_files_torn_by_a_kill_are_removed_when_the_run_goes_on(tmp_path):
    path = tmp_path / "a [run].nc"
    dynamics.solve_overlaps(problem_of(), save_at=AT, progress=False, trackers=stop_at(3.0), checkpoint=path)
    torn = tmp_path / ".a [run].nc.abc.partial"
    torn.write_bytes(b"half")
    dynamics.resume(path, progress=False)
    assert not torn.exists()


def test_run_files_without_a_path_write_nothing():
    file = dynamics.RunFile(None)
    assert file.trackers(lambda _: None) == []
    with pytest.raises(ValueError, match="Argument `path` must be given"):
        file.target  # noqa: B018
    with pytest.raises(ValueError, match="Argument `every` must be finite and positive"):
        dynamics.RunFile(None, every=0.0)
    assert run_file.as_run_file(file) is file
    assert run.begun_snapshot(file, "run") is None


def test_a_snapshot_of_another_run_is_refused():
    class Picky:
        time, event_times = 0.0, np.empty(0)

        def restore(self, state):
            state["missing"]

    with pytest.raises(ValueError, match="must be a snapshot of the same run"):
        run.run(Picky(), np.array([1.0]), dict, begun=run.Snapshot(run.RunResult(), None))


SMALL = ["--directions", "4", "--width", "12", "--dimension", "32", "--no-progress", "--no-plot"]


def test_the_command_prints_how_to_go_on_and_does(here, monkeypatch, capsys):

    def interrupt(_self, view):
        if view.time > 5.0:
            interrupt_run()

    with monkeypatch.context() as patch:
        patch.setattr(trackers.Progress, "check", interrupt)
        arguments = [word for word in SMALL if word != "--no-progress"]
        assert main([*arguments, "--output", "a b.nc"]) == 130
    said = capsys.readouterr().err
    assert "What was computed is in a b.nc. Go on with: python -m dynamics.solve --resume 'a b.nc' --no-plot\n" in said
    assert main(["--resume", "a b.nc", "--no-plot", "--no-progress"]) == 0
    assert "learned: 4 of 4 directions" in capsys.readouterr().out
    assert main([*SMALL, "--output", "whole.nc", "--quiet"]) == 0
    assert_same(dynamics.load("a b.nc"), dynamics.load("whole.nc"))
    assert main(["--resume", "a b.nc"]) == 2
    assert capsys.readouterr().err.endswith("run that can be resumed, but it holds a finished one.\n")


@pytest.mark.thorough
def test_a_budget_of_the_command_can_be_prolonged(here, capsys):
    long = [*SMALL, "--t-max", "1e6", "--method", "explicit", "--output", "run.nc"]
    assert main([*long, "--max-runtime", "0.2"]) == 0
    told = "The run is not finished. Go on with: python -m dynamics.solve --resume run.nc --no-plot --no-progress\n"
    assert told in capsys.readouterr().err
    before = dynamics.load("run.nc").attrs["end_time"]
    again = "--resume run.nc --max-runtime 0.2 --plot run.png --quiet --checkpoint-every 5"
    assert main(again.split()) == 0
    assert dynamics.load("run.nc").attrs["end_time"] > before
    assert (here / "run.png").exists()


@pytest.mark.parametrize("flags", [["--k", "3"], ["--output", "other.nc"], ["--dry-run"], ["--config", "run.toml"]])
def test_nothing_of_the_question_may_stand_beside_resume(flags, capsys):
    assert main(["--resume", "run.nc", *flags]) == 2
    assert capsys.readouterr().err == f"error: Option {flags[0]} must be absent beside --resume, but is given.\n"
