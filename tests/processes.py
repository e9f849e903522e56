"""Processes as users start them: this interpreter, the program of this tree, what they say caught."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from dynamics.threads import interruption

ROOT = Path(__file__).resolve().parent.parent
#: A study file that takes no time.
SMALL_STUDY = """\
[problem]
k = 4
num_directions = 2
dimension = 16
width = 3
[grid]
seed = [0, 1]
[study]
name = "prediction"
"""


def interrupt_run():
    """Send what Ctrl-C sends to the main thread, and return once the run in this thread is asked to end."""
    is_interrupted = interruption()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    while not is_interrupted():
        time.sleep(1e-3)


def python(*arguments, cwd=None, timeout=150, **environment):
    """Run `python ARGUMENTS` to its end, whatever that is."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False, timeout=timeout,
    )  # fmt: skip
