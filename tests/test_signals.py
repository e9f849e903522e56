"""Signals to commands: one of them ends a command in good order at any moment, with the documented code."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import ROOT, python

LISTEN = """
import signal, sys, time
from dynamics import signals
from dynamics.commands.program import exit_code_of
signals.ANSWER_SECONDS = {answer}
signals.listen()
def command():
    print("ready", flush=True)
    {body}
    return 0
sys.exit(exit_code_of(command, interrupted="told"))
"""
#: Work that looks for a signal, work that does not, and work in which no Python runs, so that no handler does.
LOOKS = "while not signals.heard(): time.sleep(0.01)\n    signals.stop_if_heard()"
SLEEPS = "end = time.monotonic() + 60.0\n    while time.monotonic() < end: time.sleep(0.01)"
HANGS = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def start(body, answer=20.0, **options):
    code = LISTEN.format(body=body, answer=answer)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes, **options)
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process, timeout=60.0):
    printed, told = process.communicate(timeout=timeout)
    return process.returncode, printed, told


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_that_looks_ends_at_the_first_signal(number):
    process = start(LOOKS)
    process.send_signal(number)
    assert ended(process) == (130, "", "told\n")


@pytest.mark.thorough
def test_a_signal_while_a_command_ends_is_said():
    process = start("time.sleep(1.0)")
    process.send_signal(signal.SIGTERM)
    code, _, told = ended(process)
    assert code == 130
    assert told == "A signal came while the command was ending; what it wrote is whole.\n"


@pytest.mark.thorough
@pytest.mark.parametrize("body", [SLEEPS, HANGS], ids=["in Python", "outside of Python"])
def test_a_command_that_does_not_look_is_ended_by_the_watchdog(body):
    process = start(body, answer=0.5)
    process.send_signal(signal.SIGTERM)
    code, _, told = ended(process)
    assert code == 130
    assert told == (
        "Ended at once: the command did not answer a signal for 0.5 seconds. Files keep what was last written.\n"
    )


def test_a_second_signal_ends_a_command_at_once():
    process = start(SLEEPS)
    process.send_signal(signal.SIGINT)
    time.sleep(0.6)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (130, "", "Ended at once: a second signal came. Files keep what was last written.\n")


def test_signals_of_a_terminal_and_its_shell_are_one():
    process = start(LOOKS.replace("signals.stop", "time.sleep(0.5); signals.stop"))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    assert ended(process) == (130, "", "told\n")


@pytest.mark.thorough
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_inherited_as_ignored_stays_ignored(number):
    """As `nohup` and background jobs of scripts have it."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        process = start("time.sleep(1.0); print('done')", answer=0.1)
        process.send_signal(number)
        assert ended(process) == (0, "done\n", "")
    finally:
        signal.signal(number, before)


def test_a_signal_after_the_last_line_changes_nothing():
    process = start("import atexit; atexit.register(lambda: (print('late', flush=True), time.sleep(1.0)))")
    assert process.stdout.readline() == "late\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (0, "", "")


def test_a_host_that_runs_the_module_of_a_command_keeps_its_state():
    """As a notebook does by `%run -m`: its process goes on after the command."""
    script = (
        "import gc, runpy, signal, sys, threading; sys.argv = ['x', '--version']\n"
        "before = signal.getsignal(signal.SIGTERM), gc.get_threshold()\n"
        "try: runpy.run_module('dynamics.solve', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: print(end.code)\n"
        "print((signal.getsignal(signal.SIGTERM), gc.get_threshold()) == before, gc.isenabled(), threading.active_count())"
    )
    # A checkout in a folder of the program's name does not make a host the program.
    done = python("-c", script, "/home/me/feature-emergence/.venv/bin/pytest", "")
    assert done.stdout.endswith("\n0\nTrue True 1\n"), done.stderr


COMMAND = ["-m", "dynamics.solve", "--k", "4", "--directions", "8", "--width", "16", "--dimension", "64"]


def tried(folder, number, delay):
    """Return how the main command ends that is sent a signal after so many seconds, and whether it ended by itself."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    flags = ["--output", "run.nc", "--overwrite", "--checkpoint-every", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, *COMMAND, *flags], cwd=folder, env=environment, **pipes)
    with_signal = False
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        with_signal = True
    # An idle machine needs at most 12 seconds. The limit is generous, since only a hang must exceed it.
    code, printed, told = ended(process, timeout=100.0)
    return code, printed, told, with_signal


def assert_ended_well(code, printed, told, number, with_signal):
    """Assert a documented end: the default of the signal before there are handlers, 0 after the last line, else 130."""
    if not with_signal:
        assert code == 0, told
    elif code == 0:
        assert "written: run.nc, run.png" in printed
    elif code != 130:
        assert code == -number, told
        assert printed == ""
    assert "Fatal" not in told
    if code == 130:
        assert "Traceback" not in told or number == signal.SIGINT


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.15, 0.5, 0.9])
def test_one_signal_at_some_moment_ends_the_main_command(number, delay, tmp_path):
    code, printed, told, with_signal = tried(tmp_path, number, delay)
    assert_ended_well(code, printed, told, number, with_signal)
