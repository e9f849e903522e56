"""File systems that refuse locks, modes, flushes, links, renames or lengths, or are full: nothing that is computed is lost."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from processes import ROOT, python

import dynamics
from dynamics.runs import file_systems

TESTS = ROOT / "tests"
#: The calls, and what is said of them: that files are made in another way, or nothing where that changes nothing.
CALLS = {
    "flock": "refuses locks (No locks available), so files are put together in memory; HDF5_USE_FILE_LOCKING=FALSE",
    "fcntl": "",
    "chmod": "",
    "fchmod": "",
    "fsync": "refuses fsync (No locks available), so a power failure may lose what was just written",
    "fdatasync": "",
    "link": "",
    "symlink": "",
    "rename": "refuses rename (No locks available), so files are copied, and a killed process may leave a part of one",
    "ftruncate": "refuses what netCDF asks of it (NetCDF: HDF error), so files are put together in memory",
}
ERRORS = (errno.ENOLCK, errno.EPERM, errno.EINVAL, errno.ENOTSUP)
SMALL = ("--k", "4", "--directions", "1", "--width", "1", "--dimension", "16")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a library that makes calls fail, for LD_PRELOAD."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler or no LD_PRELOAD here")
    path = tmp_path_factory.mktemp("library") / "refusing.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, TESTS / "refusing.c", "-ldl"], check=True)
    return path


def refusals(library, folder, calls, error, **further):
    """Return the environment in which calls on files under a folder fail with an error."""
    return {"LD_PRELOAD": str(library), "REFUSED_UNDER": str(folder), "REFUSED_CALLS": calls, "REFUSED_ERRNO": str(error)} | further  # fmt: skip


def write_all(folder, what="files", **environment):
    done = python(str(TESTS / "all_writers.py"), str(folder), what, cwd=folder, timeout=600, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    found = write_all(tmp_path_factory.mktemp("expected"))
    assert found["told"] == []
    return found


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_all_files_are_written_where_every_call_is_refused(library, expected, tmp_path):
    """A plain run, one that is resumed, a sweep with two workers, a page; each sentence comes once."""
    found = write_all(tmp_path, **refusals(library, tmp_path, ",".join(CALLS), errno.ENOLCK))
    assert (found["numbers"], found["names"]) == (expected["numbers"], expected["names"])
    assert len(found["told"]) == 3
    for sentence, call in zip(sorted(found["told"]), ("fsync", "flock", "rename"), strict=True):
        assert CALLS[call] in sentence


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("call", "error"), [(call, error) for call, said in CALLS.items() for error in (ERRORS if said else ERRORS[:1])]
)
def test_all_files_are_written_where_one_call_is_refused(call, error, library, expected, tmp_path):
    found = write_all(tmp_path, **refusals(library, tmp_path, call, error))
    assert (found["numbers"], found["names"]) == (expected["numbers"], expected["names"])
    sentence = CALLS[call].replace("No locks available", os.strerror(error))
    assert len(found["told"]) == bool(sentence)
    assert all(sentence in told for told in found["told"])


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["flock", "chmod", "rename"])
def test_compiled_code_is_used_whatever_its_folder_refuses(call, library, tmp_path):
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    found = write_all(tmp_path, "kernel", **cache, **refusals(library, tmp_path, call, errno.EPERM))
    assert found["numbers"] == [42.0]
    kept = "Compiled code is kept in memory alone, so the next process compiles it again: "
    assert [told.startswith(kept) for told in found["told"]] == [True] * (call == "rename")


def test_a_command_tells_of_a_refusal_in_a_line(library, tmp_path):
    environment = refusals(library, tmp_path, "flock", errno.ENOLCK)
    done = python("-m", "dynamics.solve", *SMALL, "--output", "a.nc", "--no-plot", cwd=tmp_path, **environment)
    assert done.returncode == 0
    assert done.stderr == (f"warning: The file system of '.' {CALLS['flock']} in the environment avoids that.\n")
    assert dynamics.load(tmp_path / "a.nc").sizes["direction"] == 1
    environment["HDF5_USE_FILE_LOCKING"] = "FALSE"
    done = python("-m", "dynamics.report", "a.nc", "--output", "a.html", cwd=tmp_path, **environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_answer_goes_elsewhere_and_the_cause_is_told(error, library, tmp_path):
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    other.mkdir()
    environment = refusals(library, full, "write", error, REFUSED_BYTES="4096", TMPDIR=str(other))
    done = python("-m", "dynamics.solve", *SMALL, "--output", "a.nc", "--no-plot", cwd=full, **environment)
    assert done.returncode == 1
    why = f"File 'a.nc' could not be written: [Errno {int(error)}] {os.strerror(error)}."
    assert f"error: {why} What was to be in it is in {str(other / 'a.nc')!r}.\n" in done.stderr
    assert dynamics.load(other / "a.nc").sizes["direction"] == 1
    assert not list(full.iterdir())


def answer(dimension=16):
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension)
    return dynamics.predict_emergence(problem)


def test_a_symbolic_link_stays_and_its_file_is_replaced_with_the_mode_that_it_had(tmp_path):
    file, link = tmp_path / "files" / "a.nc", tmp_path / "link.nc"
    file.parent.mkdir()
    dynamics.save(answer(), file)
    file.chmod(0o640)
    link.symlink_to(file)
    with pytest.raises(dynamics.StorageError, match="must not name an existing file"):
        dynamics.save(answer(24), link)
    dynamics.save(answer(24), link, overwrite=True)
    assert link.is_symlink()
    assert not file.is_symlink()
    assert dynamics.load(file).identical(dynamics.load(link))
    assert dynamics.Problem.from_dataset(dynamics.load(file)).dimension == 24
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["a.nc"]


def test_a_run_keeps_the_link_and_the_mode_of_its_file(tmp_path):
    """A file that it may replace, and one that it goes on from."""
    file, link = tmp_path / "a.nc", tmp_path / "link.nc"
    file.write_bytes(b"")
    file.chmod(0o600)
    link.symlink_to("a.nc")
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0, 0.5]), width=3, dimension=16)
    given = {"save_at": dynamics.SaveAt.geometric(0.5, 30.0, 6), "method": "explicit", "progress": False}
    run = dynamics.RunFile(link, every=1e-9, overwrite=True)
    found = dynamics.solve_overlaps(problem, checkpoint=run, **given)
    assert (run.trouble, link.is_symlink(), stat.S_IMODE(file.stat().st_mode)) == ("", True, 0o600)
    assert dynamics.load(file).identical(found)


def test_a_new_file_has_the_mode_that_the_system_gives(tmp_path):
    before = os.umask(0o027)
    try:
        dynamics.save(answer(), tmp_path / "a.nc")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.nc").stat().st_mode) == 0o640


def test_a_file_that_is_being_written_elsewhere_is_refused_for_that(tmp_path):
    pytest.importorskip("fcntl")
    path = dynamics.save(answer(), tmp_path / "a.nc")
    holder = f"import h5py, sys; file = h5py.File({str(path)!r}, 'r+'); print('held', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", holder], **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        for read in (dynamics.load, dynamics.resume):
            with pytest.raises(dynamics.StorageError) as caught:
                read(path)
            assert str(caught.value) == (
                f"File {str(path)!r} must not be open for writing, but is, here or in another process; "
                "HDF5_USE_FILE_LOCKING=FALSE in the environment has it read as it is."
            )
        process.communicate()
    assert dynamics.load(path).equals(answer())


def test_where_nothing_can_be_renamed_no_other_file_is_replaced(tmp_path, monkeypatch):
    """A file of that name may appear meanwhile; and a copy that fails leaves no part of a file."""

    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(file_systems, "_told", {"rename"})
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        file_systems.give_name(source, target, replaces=False)
    assert target.read_bytes() == b"old"
    file_systems.give_name(source, target, replaces=True)
    assert target.read_bytes() == b"new"
    monkeypatch.setattr(shutil, "copyfileobj", refuse)
    with pytest.raises(PermissionError):
        file_systems.give_name(source, tmp_path / "other", replaces=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
