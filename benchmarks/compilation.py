"""What the first run of each answer compiles: functions and processor seconds, each in a process without machine code.

`python -m benchmarks.compilation` prints the table that `dynamics/runs/compiling.py` holds as EXPECTED.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Answer -> options of `python -m dynamics.solve` that ask for it at its default settings.
CASES = {
    "overlaps": ["--k", "4", "--beta", "1.0"],
    "overlaps, k <= 2": ["--activation", "tanh", "--directions", "2", "--width", "6", "--dimension", "32"],
    "decoupled": ["--model", "decoupled"],
    "quadratic": ["--model", "quadratic"],
    "network": ["--activation", "relu", "--second-layer", "trained"],
    "mean-field": ["--model", "mean-field", "--k", "4", "--dimension", "64"],
    "correlation": ["--objective", "correlation", "--smoothing", "4", "--k", "4", "--dimension", "256"],
    "reused-data": ["--samples", "4d"],
    "optimizer": ["--activation", "erf", "--second-layer", "fixed", "--momentum", "0.9", "--learning-rate", "0.01"],
}


def counted(options: list[str]) -> tuple[int, float]:
    """Return the functions that a command compiles in this process, and the processor seconds of that."""
    from dynamics.kernels.compilation import Compilation, listening
    from dynamics.solve.__main__ import main

    class Counted(Compilation):
        processor, began = 0.0, 0.0

        def on_start(self, event: object) -> None:
            if not self.is_running:
                self.began = time.process_time()
            super().on_start(event)

        def on_end(self, event: object) -> None:
            super().on_end(event)
            if not self.is_running:
                self.processor += time.process_time() - self.began

    counted = Counted()
    with listening(counted):
        main([*options, "--quiet", "--no-plot"])
    return counted.functions, counted.processor


def main(names: list[str]) -> None:
    """Print a line for each answer."""
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.compilation", "--here", *CASES[name]]
            environment = os.environ | {"NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(Path(__file__).parents[1])}
            subprocess.run(command, env=environment, cwd=folder, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        functions, seconds = counted(sys.argv[2:])
        sys.stdout.write(f"Expected({functions}, {seconds:.0f}),  # {' '.join(sys.argv[2:])}\n")
    else:
        main(sys.argv[1:])
