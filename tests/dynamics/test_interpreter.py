"""What the interpreter is spared: memory for frames at every call, and looking for garbage."""

import gc
import subprocess
import sys

import pytest

from dynamics.compiler.interpreter import uncollected, with_room

SCRIPT = """
import resource
from dynamics.compiler.interpreter import with_room

def call():
    pass

def most_faults(depth):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        call()
    here = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return max(here, most_faults(depth - 1)) if depth else here

CALLS, DEPTH = 1000, 400  # frames of some 100 bytes: more than two chunks of 16 KB
print(with_room(lambda: most_faults(DEPTH)))
"""


def test_returns_and_raises_what_work_does():
    assert with_room(lambda: "done") == "done"
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 / 0)


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.implementation.name != "cpython", reason="CPython on Linux"
)
def test_no_depth_of_calls_asks_for_memory_at_every_call():
    """Without room, CPython 3.11 takes a new page for each of the thousand calls at some depth; with it, at none."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


@pytest.mark.parametrize("collecting", [True, False])
def test_collection_is_as_before_after_the_body(collecting):
    was = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if was else gc.disable)()
