"""Sweeps that are killed about their merge: the same command ends them, whatever was removed; else a file is not touched."""

import contextlib
import os
import shutil

import numpy as np
import pytest
from processes import SMALL_STUDY

import dynamics
from dynamics import study
from dynamics.sweeps import sweep as sweeps
from dynamics.sweeps.points import PointDirectory

SMALL = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=2, dimension=16)
GRID = {"seed": [0, 1, 2]}


class KilledError(BaseException):
    """As a process that is killed, what raises this does no more."""


def killed(*_, **__):
    raise KilledError


@contextlib.contextmanager
def replaced(monkeypatch, owner, name, by):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, by)
        yield


def half_removed(directory):
    next(file for file in directory.path.iterdir() if file.suffix == ".point").unlink()
    raise KilledError


def all_but_the_description_removed(directory):
    for file in directory.path.glob("*.point"):
        file.unlink()
    raise KilledError


def asked(output, **options):
    return dynamics.sweep(SMALL, GRID, study="prediction", workers=0, output=output, progress=False, **options)


@pytest.mark.parametrize("end", [killed, half_removed, all_but_the_description_removed])
def test_a_sweep_that_was_killed_after_its_merge_ends_by_the_same_call(end, tmp_path, monkeypatch):
    output = tmp_path / "a.nc"
    with replaced(monkeypatch, PointDirectory, "remove", end), pytest.raises(KilledError):
        asked(output)
    content = output.read_bytes()
    with asked(output) as found:
        assert np.isfinite(found["predicted_emergence_time"]).all()
    assert output.read_bytes() == content
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.thorough
def test_so_does_its_command(here, monkeypatch, capsys):
    (here / "study.toml").write_text(SMALL_STUDY)
    with replaced(monkeypatch, PointDirectory, "remove", killed), pytest.raises(KilledError):
        study.main(["study.toml", "--workers", "1"])
    assert study.main(["study.toml", "--workers", "1"]) == 0
    assert "2 of 2 points were answered" in capsys.readouterr().out
    assert sorted(path.name for path in here.iterdir()) == ["study.nc", "study.toml"]


def test_a_sweep_that_was_killed_before_its_merge_merges(tmp_path, monkeypatch):
    with replaced(monkeypatch, sweeps, "merge_points", killed), pytest.raises(KilledError):
        asked(tmp_path / "a.nc")
    monkeypatch.setattr(sweeps, "run_points", lambda missing, *_: pytest.fail("asked again") if missing else None)
    asked(tmp_path / "a.nc").close()


def test_damaged_points_are_asked_again(tmp_path, monkeypatch):
    """A flipped bit of a number, an end that is missing, nothing at all."""
    with replaced(monkeypatch, sweeps, "merge_points", killed), pytest.raises(KilledError):
        asked(tmp_path / "a.nc")
    first, *others = sorted((tmp_path / "a.nc.points").glob("*.point"))
    content = bytearray(first.read_bytes())
    content[-5] ^= 1
    first.write_bytes(content)
    for path in others:
        path.write_bytes(path.read_bytes()[: -8 if path is others[0] else 0])
    number = 1 + len(others)
    with pytest.warns(
        UserWarning, match=f"{number} files of points in .* are damaged, so these points are asked again"
    ):
        found = asked(tmp_path / "a.nc")
    with found, asked(tmp_path / "b.nc") as whole:
        assert found.load().equals(whole.load())


def test_points_without_a_description_are_not_taken_for_those_of_any_sweep(tmp_path, monkeypatch):
    with replaced(monkeypatch, sweeps, "merge_points", killed), pytest.raises(KilledError):
        asked(tmp_path / "a.nc")
    (tmp_path / "a.nc.points/sweep.json").write_bytes(b"")
    with pytest.raises(dynamics.StorageError, match="must hold points of this sweep"):
        asked(tmp_path / "a.nc")


OTHERS = {
    "older": lambda output: os.utime(output, (1, 1)),
    "of another sweep": lambda output: (output.parent / "a.nc.points/sweep.json").write_text('{"digest": "x"}'),
    "with a failed point": lambda output: (output.parent / "a.nc.points/000001.failed").write_text("why"),
    "alone": lambda output: shutil.rmtree(output.parent / "a.nc.points"),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_every_other_file_is_left_as_it_is(change, tmp_path, monkeypatch):
    output = tmp_path / "a.nc"
    with replaced(monkeypatch, PointDirectory, "remove", killed), pytest.raises(KilledError):
        asked(output)
    change(output)
    before = output.read_bytes(), output.stat().st_mtime_ns, sorted(tmp_path.rglob("*"))
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        asked(output)
    assert (output.read_bytes(), output.stat().st_mtime_ns, sorted(tmp_path.rglob("*"))) == before
