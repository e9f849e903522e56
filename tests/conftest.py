"""Settings shared by all tests: strict floating point, no figure windows, one hypothesis profile."""

import os
import signal
import subprocess
import sys
from collections import Counter

os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the processor already: threads of BLAS and of torch that wait for each other took ten times as long.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# A suite in the background of a shell, or below `nohup`, inherits signals that are ignored, and so do its children. Tests
# send them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

hypothesis.settings.register_profile("project", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("project")


def is_whole(config):
    """Return whether all tests were asked for, not some files of them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return config.workerinput["is_whole"]
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tell a worker what was asked for: it gets paths in any case."""
    node.workerinput["is_whole"] = is_whole(node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the long tests unless FULL_TESTS is set, and those slow to compile unless the compiler is off.

    Thorough tests run where they are named, alone or by `-m`; those of the wheel where `.ci/run` has built one.
    """
    full, compiled = "FULL_TESTS" in os.environ, os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
    quick = is_whole(config) and not (full or config.option.markexpr)
    chosen, left = [], []
    for item in items:
        slow = item.get_closest_marker("slow_to_compile") is not None
        if slow:
            item.add_marker(pytest.mark.kernels)
        long, thorough = (item.get_closest_marker(name) is not None for name in ("long", "thorough"))
        unbuilt = "DISTRIBUTION" not in os.environ and item.get_closest_marker("wheel") is not None
        left_out = unbuilt or (quick and thorough) or (not full and (long or (slow and compiled)))
        (left if left_out else chosen).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = chosen


def pytest_sessionstart(session):
    """Compile all functions before the workers of the whole suite start, which would each compile the same ones."""
    option, compiled = session.config.option, os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
    if (
        is_whole(session.config)
        and compiled
        and not option.collectonly
        and getattr(option, "numprocesses", None)
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        subprocess.run([sys.executable, "-m", "dynamics.compile"], check=True)


@pytest.fixture
def rng():
    return np.random.default_rng(20240416)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the test's own, which is the current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _strict_floating_point():
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture(autouse=True)
def _closed_figures():
    """Close the figures that a test left open: pyplot keeps them, and warns of more than twenty."""
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


def pytest_terminal_summary(terminalreporter):
    """Print how many inputs of each kind the tests have counted by `record_property("kind: …", number)`."""
    counts = Counter()
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, number in report.user_properties if report.when == "call" else ():
            counts[name] += number
    for name, number in counts.items():
        terminalreporter.write_line(f"{name}: {number}")
