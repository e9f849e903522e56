"""Windows and macOS, where the program has not run: what it would find missing or refused there, faked on Linux."""

import errno
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
import xarray as xr
from processes import ROOT, SMALL_STUDY, python

import dynamics
from dynamics.runs import file_systems, storage
from dynamics.sweeps import points, workers
from hermite import renames

posix = pytest.mark.skipif(sys.platform != "linux", reason="fakes the other systems on Linux")
#: Modules and functions that Windows or macOS lack.
ABSENT = (
    ("fcntl", "resource", "grp", "pwd", "termios"),
    ("sched_getaffinity", "sysconf", "set_blocking", "getuid", "fork"),
)


class SharingViolation(PermissionError):
    """What Windows raises for a file that another program has open."""

    winerror = 32


def answer(value):
    return xr.Dataset({"a": value}, attrs={"schema_version": 1})


def fake_windows(code):
    """Return code that runs where what Windows lacks is absent; libraries that need it are loaded before."""
    modules, functions = ABSENT
    return (
        "import os, signal, subprocess, sys, tempfile, matplotlib.pyplot, netCDF4, numba, scipy.linalg, xarray\n"
        # Windows takes a pipe that blocks.
        "wake, block = signal.set_wakeup_fd, os.set_blocking\n"
        "signal.set_wakeup_fd = lambda number, **options: (block(number, False), wake(number, **options))\n"
        f"for name in {modules!r}: sys.modules[name] = None\n"
        f"for name in {functions!r}: delattr(os, name)\n"
        f"del signal.SIGHUP\nsignal.SIGBREAK = signal.SIGUSR1\n{code}"
    )


@posix
@pytest.mark.thorough
def test_a_command_runs_without_what_windows_lacks(tmp_path):
    words = "solve --k 4 --directions 1 --width 1 --dimension 16 --output run.nc --no-plot"
    done = python(
        "-c",
        fake_windows(f"sys.argv[1:] = {words.split()!r}\nfrom hermite.console import console\nsys.exit(console())"),
        cwd=tmp_path,
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith("Compiling")]
    assert (done.returncode, told) == (0, [])
    assert dynamics.load(tmp_path / "run.nc").attrs["stop_reason"] == "reached_end"


@posix
@pytest.mark.thorough
def test_a_window_that_closes_ends_a_command_without_set_blocking():
    code = fake_windows(
        "import time\nfrom dynamics import signals\nfrom dynamics.commands.program import exit_code_of\nsignals.listen()\n"
        "print('ready', flush=True)\n"
        "def command():\n    while not signals.heard(): time.sleep(0.01)\n    signals.stop_if_heard()\n"
        "sys.exit(exit_code_of(command, interrupted='told'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    printed, told = process.communicate(timeout=60)
    assert (process.returncode, printed, told) == (130, "", "told\n")


@pytest.fixture
def byte_locks(monkeypatch):
    """`msvcrt` as Windows has it, instead of `fcntl`: one handle has a byte; return the places that were locked."""
    places, held = [], set()

    def locking(number, mode, count):
        place = os.lseek(number, 0, os.SEEK_CUR)
        file = (os.fstat(number).st_ino, place)
        if file in held:
            raise PermissionError(errno.EACCES, "Permission denied")
        held.add(file)
        places.append((mode, count, place))

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    return places


def test_two_sweeps_on_windows_do_not_share_a_directory(byte_locks, tmp_path):
    with points.PointDirectory(tmp_path / "a.nc.points", "digest", {}) as directory:
        assert byte_locks == [(2, 1, points.LOCKED_BYTE)]
        assert points.digest_of(directory.path) == "digest"  # which others may read
        with pytest.raises(storage.StorageError, match="must not be in use by another process, but is"):
            points.PointDirectory(tmp_path / "a.nc.points", "digest", {})


def test_a_directory_that_is_locked_can_be_removed_on_windows(tmp_path, monkeypatch):
    """Windows removes no file that is open."""
    remove = points.shutil.rmtree
    with points.PointDirectory(tmp_path / "a.nc.points", "digest", {}) as directory:

        def rmtree(path):
            if not directory._lock.closed:
                raise SharingViolation(errno.EACCES, "The process cannot access the file")
            remove(path)

        monkeypatch.setattr(points.shutil, "rmtree", rmtree)
        directory.remove()
    assert list(tmp_path.iterdir()) == []


@posix
def test_files_are_flushed_through_a_handle_that_may_write(tmp_path, monkeypatch):
    """Windows refuses others with EBADF, and every save warned of a power failure; warnings are errors here."""
    import fcntl

    flushed = []

    def fsync(number):
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flushed.append(number)

    monkeypatch.setattr(file_systems, "_told", set())
    monkeypatch.setattr(file_systems.os, "fsync", fsync)
    dynamics.save(answer(1.0), tmp_path / "a.nc")
    assert flushed


def refuse_renames(monkeypatch, times):
    """Refuse renames so many times, as Windows does while another program reads the target; return the tries."""
    tries, replace = [], Path.replace

    def refusing(path, target):
        tries.append(target)
        if len(tries) <= times:
            raise SharingViolation(errno.EACCES, "The process cannot access the file")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refusing)
    monkeypatch.setattr(renames, "PATIENCE", 0.2)
    return tries


def test_a_rename_waits_until_a_scanner_has_closed_the_file(tmp_path, monkeypatch):
    dynamics.save(answer(1.0), tmp_path / "a.nc")
    tries = refuse_renames(monkeypatch, 3)
    dynamics.save(answer(2.0), tmp_path / "a.nc", overwrite=True)
    assert len(tries) == 4
    assert float(dynamics.load(tmp_path / "a.nc").a) == 2.0


def test_a_file_that_a_reader_has_open_stays_and_the_result_gets_another_name(tmp_path, monkeypatch):
    """A copy over it would change what the reader sees, and a killed process would leave a part."""
    target = tmp_path / "a.nc"
    dynamics.save(answer(1.0), target)
    refuse_renames(monkeypatch, 10**6)
    content = target.read_bytes()
    with pytest.raises(storage.StorageError, match="another program has the file open, or it is read-only"):
        dynamics.save(answer(2.0), target, overwrite=True)
    assert target.read_bytes() == content
    assert list(tmp_path.iterdir()) == [target]
    path, sentence = storage.write_somewhere(target, storage.netcdf_writer(answer(2.0)), replaces=True)
    assert path == tmp_path / "a-2.nc"
    assert "another program has the file open" in sentence
    assert float(dynamics.load(path).a) == 2.0


def test_windows_hides_nothing_behind_a_colon(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sep", "\\")
    with pytest.raises(storage.StorageError, match="must not hold a colon, behind which Windows hides what is written"):
        storage.check_target(tmp_path / "run:1.nc")
    monkeypatch.undo()
    assert storage.check_target(tmp_path / "run:1.nc") == tmp_path / "run:1.nc"


def test_windows_waits_for_61_processes_at_most(monkeypatch):
    """`ProcessPoolExecutor` raised ValueError on machines with more cores."""
    monkeypatch.setattr(workers, "available_cores", lambda: 128)
    assert workers.checked_workers(None, alone=0) == workers.checked_workers(128, alone=0) == 128
    monkeypatch.setattr(sys, "platform", "win32")
    assert workers.checked_workers(None, alone=0) == 61
    with pytest.raises(ValueError, match="Argument `workers` must be at most 61, but is 62"):
        workers.checked_workers(62, alone=0)


@posix
def test_a_directory_that_is_gone_is_left_without_proc(tmp_path):
    """MacOS has no /proc."""
    code = (
        "import os; from hermite import program; program.NOWHERE = ('/no/such', *program.NOWHERE[1:]); "
        "program._leave_removed_directory(['--output=/a/b.nc']); print(os.getcwd())"
    )
    (tmp_path / "gone").mkdir()
    command = 'cd gone && rmdir ../gone && exec "$0" -c "$1"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, Path(done.stdout.strip()).name) == (0, "fd"), done.stderr


@posix
@pytest.mark.thorough
def test_workers_that_are_spawned_answer_as_those_that_a_server_forks(tmp_path):
    """As on macOS and Windows, where there is no such server."""
    (tmp_path / "study.toml").write_text(SMALL_STUDY, encoding="utf-8")
    fake = "workers.sys = type(sys)('sys'); workers.sys.__dict__.update(vars(sys), platform='darwin')"
    answers = []
    for name, begin in {"forked": "", "spawned": fake}.items():
        script = (
            f"import sys\nfrom dynamics.study import main\nfrom dynamics.sweeps import workers\n{begin}\n"
            "if __name__ == '__main__':\n"
            f"    code = main(['study.toml', '--workers', '2', '--output', '{name}.nc'])\n"
            "    print(workers.begin_workers().get_start_method())\n"
            "    sys.exit(code)\n"
        )
        (tmp_path / "go.py").write_text(script, encoding="utf-8")
        done = python("go.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == {"forked": "forkserver", "spawned": "spawn"}[name]
        answers.append(dynamics.load(tmp_path / f"{name}.nc"))
    xr.testing.assert_equal(*(answer.drop_attrs() for answer in answers))
