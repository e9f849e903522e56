"""Hosts that can have no worker processes: points run in this process, with a warning, or workers are refused."""

import multiprocessing
import sys
from concurrent.futures import BrokenExecutor
from types import SimpleNamespace

import pytest
from processes import SMALL_STUDY, python

import dynamics
from dynamics import study
from dynamics.sweeps import workers

SMALL = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=2, dimension=16)
GRID = {"seed": [0, 1]}
ALONE = r"^All is done in this process, one after the other, since "
HOSTS = {
    "daemonic": ("current_process", lambda: SimpleNamespace(daemon=True), "a daemonic process may have no children"),
    "without semaphores": (
        "get_context",
        None,
        r"the system has no semaphores \(\[Errno 38\] Function not implemented\)",
    ),
}


class NoSemaphores:
    def Lock(self):
        raise OSError(38, "Function not implemented")


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_without_workers(host, monkeypatch):
    name, stand_in, reason = HOSTS[host]
    monkeypatch.setattr(workers, name, stand_in or (lambda _kind: NoSemaphores()))
    with pytest.warns(UserWarning, match=f"{ALONE}{reason}"):
        found = dynamics.sweep(SMALL, GRID, study="prediction")
    assert found.sizes["seed"] == 2
    assert dynamics.sweep(SMALL, GRID, study="prediction", workers=0).equals(found)
    with pytest.raises(ValueError, match=rf"^Argument `workers` must be 0 here, since {reason}, but is 2\.$"):
        dynamics.sweep(SMALL, GRID, study="prediction", workers=2)
    with pytest.raises(ValueError, match=rf"^Argument `workers` must be 1 here, since {reason}, but is 2\.$"):
        dynamics.transfer_study(directions=4, dimension=12, widths=[1, 2, 3, 4], starts=2, steps=20, workers=2)


def test_the_command_of_studies_on_a_host_without_semaphores(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "get_context", lambda _kind: NoSemaphores())
    (tmp_path / "study.toml").write_text(SMALL_STUDY, encoding="utf-8")
    given = [str(tmp_path / "study.toml"), "--output", str(tmp_path / "study.nc"), "--no-progress"]
    assert study.main([*given, "--workers", "2"]) == 2
    assert capsys.readouterr().err == (
        "error: Option --workers must be absent here, since the system has no semaphores ([Errno 38] Function not "
        "implemented), but is 2.\n"
    )
    assert study.main(given) == 0
    assert "warning: All is done in this process" in capsys.readouterr().err


def test_a_script_from_stdin_and_a_daemonic_child_are_such_hosts(tmp_path):
    asked = (
        "import dynamics, warnings\n"
        "from dynamics.sweeps.workers import why_no_workers\n"
        "if __name__ == '__main__': print(why_no_workers())\n"
    )
    import subprocess

    from processes import ROOT

    done = subprocess.run(
        [sys.executable, "-"], input=asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout == "workers could not import the script, which is no file\n"
    (tmp_path / "host.py").write_text(
        "import multiprocessing\n"
        "from dynamics.sweeps.workers import why_no_workers\n"
        "def work(): print(why_no_workers(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print(repr(why_no_workers()), flush=True)\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work, daemon=True)\n"
        "    child.start(); child.join()\n"
    )
    done = python("host.py", cwd=tmp_path)
    assert done.stdout == "''\na daemonic process may have no children\n", done.stderr


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_an_end_of_the_process_that_workers_are_forked_from_counts_as_theirs(error):
    def submit(*_):
        raise error

    with workers.WorkerPool(1, "prediction") as pool:
        whole, pool._pool = pool._pool, SimpleNamespace(submit=submit)
        with pytest.raises(BrokenExecutor):
            pool.submit(int)
        pool._pool = whole


def test_this_process_can_have_workers():
    assert multiprocessing.current_process().daemon is False
    assert workers.why_no_workers() == ""
