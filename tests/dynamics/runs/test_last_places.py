"""What befalls a name while a run goes on: the answer is kept elsewhere, and nothing that is not ours is replaced."""

import functools
import os
import re
import resource
import shutil
import tempfile
from pathlib import Path

import numba  # noqa: F401 (a run has loaded it before its directories are taken away)
import numpy as np
import pytest

import dynamics
from dynamics import Callback, Problem, RunFile, SaveAt, Teacher, study
from dynamics.commands import parsing
from dynamics.laws.__main__ import main as laws
from dynamics.report import __main__ as report
from dynamics.report import page
from dynamics.solve import __main__ as solve
from dynamics.solve import overlaps
from dynamics.sweeps import sweep as sweep_merge

FOREIGN = b"another program's"
PROBLEM = Problem(activation="he4", teacher=Teacher([1.0, 0.5]), width=3, dimension=16)
GIVEN = {"save_at": SaveAt.geometric(0.5, 30.0, 10), "method": "explicit", "progress": False}
SMALL = ["--coefficients", "1,0.5", "--width", "3", "--dimension", "16", "--no-progress"]
LAWS = ["finite-size", "--betas", "1", "--sizes", "16,32", "--dimension", "64", "--starts", "3"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder with one for results; the current directory is beside it, and so is that for temporary files."""
    for name in ("results", "current", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def becomes_foreign(target):
    target.write_bytes(FOREIGN)


#: What befalls results/run.nc, and where the answer is then.
BEFALL = {
    "becomes a directory": (Path.mkdir, "results/run-2.nc"),
    "becomes foreign": (becomes_foreign, "results/run-2.nc"),
    "becomes a pipe": (os.mkfifo, "results/run-2.nc"),
    "loses its folder": (lambda target: shutil.rmtree(target.parent), "current/run.nc"),
    "no current directory": (lambda target: (shutil.rmtree(target.parent), Path.cwd().rmdir()), "temporary/run.nc"),
}


def befall(*names):
    return pytest.mark.parametrize(("happens", "place"), [BEFALL[name] for name in names], ids=names)


def first(monkeypatch, module, name, happens, target):
    """Have something befall the target before a function of a module is called."""
    kept = getattr(module, name)

    @functools.wraps(kept)
    def then(*arguments, **settings):
        happens(target)
        return kept(*arguments, **settings)

    monkeypatch.setattr(module, name, then)


def shown(place):
    """A name in the current directory is told as such."""
    return place.name if place.parent.name == "current" else str(place)


def assert_kept(target, place, told):
    """The answer is whole in its other place, the user was told so once, and what took its name is still there."""
    found = re.findall(
        rf"File {re.escape(repr(str(target)))} could not be written: (?:something else has that name now|"
        rf"\[Errno 2\] No such file or directory)\. What was to be in it is in {re.escape(repr(shown(place)))}\.",
        told,
    )
    assert len(found) == 1, told
    assert not target.is_file() or target.read_bytes() == FOREIGN
    assert not [name for name in place.parent.iterdir() if name.name.startswith(".")]
    return dynamics.load(place)


@befall(*BEFALL)
def test_the_answer_of_a_solve(here, monkeypatch, capsys, happens, place):
    target = here / "results" / "run.nc"
    first(monkeypatch, overlaps, "solve_overlaps", happens, target)
    assert solve.main([*SMALL, "--output", str(target), "--no-plot"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.out.endswith(f"\nwritten: {shown(here / place)}\n")
    assert np.isfinite(assert_kept(target, here / place, told.err).loss).all()


@pytest.mark.thorough
@befall(*BEFALL)
def test_the_answer_of_a_study(here, monkeypatch, capsys, happens, place):
    target = here / "results" / "run.nc"
    first(monkeypatch, parsing, "end_with", happens, target)
    assert laws([*LAWS, "--output", str(target), "--no-plot"]) == 1
    told = capsys.readouterr()
    assert dict(assert_kept(target, here / place, told.err).sizes)["num_directions"] == 2
    assert told.out.endswith(f"\nwritten: {shown(here / place)}\n")


@befall("becomes a directory", "loses its folder")
def test_the_checkpoint_of_a_run_that_is_stopped(here, happens, place):
    """It is where the answer would be, and the run goes on from there, though it was never at its own name."""
    target = here / "results" / "run.nc"

    def stop(time, _state):
        if time > 3.0:
            happens(target)
        return time > 3.0

    file = RunFile(target)
    with pytest.warns(RuntimeWarning, match="What was to be in it is in") as told:
        dynamics.solve_overlaps(PROBLEM, **GIVEN, trackers=[Callback(stop)], checkpoint=file)
    assert_kept(target, here / place, str(told[0].message))
    assert file.target.resolve() == here / place
    found = dynamics.resume(file.target, progress=False)
    np.testing.assert_array_equal(found.loss, dynamics.solve_overlaps(PROBLEM, **GIVEN).loss)


def test_two_runs_with_one_name_both_keep_their_answer(here):
    target = here / "results" / "run.nc"
    files = RunFile(target), RunFile(target)
    answers = [dynamics.solve_overlaps(PROBLEM, **GIVEN, checkpoint=files[0])]
    with pytest.warns(RuntimeWarning, match="something else has that name now"):
        answers.append(dynamics.solve_overlaps(PROBLEM, **GIVEN, rtol=1e-6, checkpoint=files[1]))
    for answer, name in zip(answers, ("run.nc", "run-2.nc"), strict=True):
        assert dynamics.load(target.with_name(name)).identical(answer)


def test_a_run_replaces_its_own_file_and_what_it_was_allowed_to_replace(here):
    target = here / "results" / "run.nc"
    target.write_bytes(FOREIGN)
    file = RunFile(target, every=1e-9, overwrite=True)
    answer = dynamics.solve_overlaps(PROBLEM, **GIVEN, checkpoint=file)
    assert dynamics.load(target).identical(answer)
    assert file.trouble == ""
    assert [path.name for path in target.parent.iterdir()] == ["run.nc"]


def test_a_full_disk_is_called_by_its_name(here):
    """A file may have so many bytes and no more, which the library of the files calls a missing permission."""
    answer = dynamics.solve_overlaps(PROBLEM, **GIVEN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(dynamics.StorageError, match=r"'run\.nc' could not be written: .*File too large"):
            dynamics.save(answer, "run.nc")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(Path().iterdir()) == []


SWEEP = """
[problem]
k = 4
num_directions = 3
dimension = 16
[grid]
width = [2, 4]
[study]
name = "prediction"
save_at = { at = [1.0, 2.0] }
"""


def test_the_points_of_a_sweep_are_kept_where_something_takes_its_name(here, monkeypatch, capsys):
    monkeypatch.setattr("dynamics.sweeps.workers.available_cores", lambda: 0)
    Path("asked.toml").write_text(SWEEP)
    with monkeypatch.context() as patch:
        first(patch, sweep_merge, "_fill", becomes_foreign, Path("asked.nc"))
        assert study.main(["asked.toml", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        "error: File 'asked.nc' could not be written: something else has that name now.\n"
        "What was computed is kept in asked.nc.points. To go on: python -m dynamics.study asked.toml --quiet\n"
    )
    assert Path("asked.nc").read_bytes() == FOREIGN
    Path("asked.nc").unlink()
    monkeypatch.setattr(
        "dynamics.sweeps.sweep.run_points", lambda missing, *_, **_options: pytest.fail("asked again") if missing else 0
    )
    assert study.main(["asked.toml", "--quiet"]) == 0
    assert dict(dynamics.load("asked.nc").sizes)["width"] == 2


def test_a_page_does_not_replace_what_has_taken_its_name(here, monkeypatch, capsys):
    dynamics.save(dynamics.predict_emergence(PROBLEM), "run.nc")
    first(monkeypatch, page, "_document", becomes_foreign, Path("run.html"))
    assert report.main(["run.nc"]) == 1
    assert capsys.readouterr().err == "error: File 'run.html' could not be written: something else has that name now.\n"
    assert Path("run.html").read_bytes() == FOREIGN
