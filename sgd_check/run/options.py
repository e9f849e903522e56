"""Options of `python -m sgd_check.run`: names, readers and help. Imports nothing heavy."""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dynamics.commands import Parser
from hermite.text.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable

THEORIES = ("auto", "finite-step", "flow")

EXAMPLES = """\
examples:
  python -m sgd_check.run prediction.nc
      32 runs at a safe learning rate; writes prediction-sgd.nc and prediction-sgd.png
  python -m sgd_check.run prediction.nc --theory flow
      allow the flow the whole delay that the step size causes, instead of computing it
  python -m sgd_check.run mean_field.nc --widths 32,64,128
      networks of three widths against the file of `python -m dynamics.solve --model mean-field`
  python -m sgd_check.run prediction.nc --seeds 64 --learning-rate 1e-5 --output check.nc --json
  python -m sgd_check.run prediction.nc --resume prediction-sgd-runs.nc
      go on with runs that were interrupted, killed or out of time

stdout holds the result, stderr everything else. The verdict is part of the result: a disagreement is no failure.
exit codes: 0 done, 1 the run failed, every run blew up, or the answer is not where it was to be (what was computed is
kept and named), 2 usage, 130 interrupted (what was computed is kept and named)
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = Parser(
        prog="python -m sgd_check.run",
        description="Check a predicted learning course against online SGD on sampled data.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prediction", metavar="FILE", help="dataset written by `python -m dynamics.solve`")
    add(
        "--engine",
        metavar="NAME",
        help="how to simulate: projected (exact in law, its cost does not depend on d), torch (in R^d) or diffusion "
        "(many small steps at once, for up to four neurons) [projected; torch for a mean field]",
    )
    add(
        "--theory",
        choices=THEORIES,
        default="auto",
        help="what to test: flow (the times in the file), finite-step (the equation of the mean step at the learning "
        "rate of the runs, sharper since it has the delay) or auto (finite-step where it can be solved and is no "
        "farther from the file than the step size explains) [auto]",
    )
    add(
        "--seeds",
        type=_number(int),
        metavar="N",
        help="number of runs [32]; for a mean field runs of each width, in pairs of one start [64]",
    )
    add(
        "--widths",
        type=_widths,
        metavar="M,M",
        help="widths of the networks that a mean field is tested with [16,32,64]",
    )
    add(
        "--learning-rate",
        type=_number(float),
        metavar="ETA",
        help="step size [up to a tenth of the limit of stability, so that a 30 percent error shows]",
    )
    add("--steps", type=_number(int), metavar="N", help="SGD steps [up to 2.5 times the last checked emergence]")
    add(
        "--directions",
        type=_number(int),
        metavar="N",
        help="choose learning rate and steps for the first N directions to emerge [as many as ten minutes allow]",
    )
    add("--batch-size", type=_number(int), metavar="B", help="samples per step [1]")
    add("--device", default="auto", metavar="NAME", help="auto, cpu or, for torch, cuda [auto]")
    add("--dtype", default="auto", metavar="NAME", help="float32 (torch alone) or float64 [auto: the engine's own]")
    add("--max-runtime", type=_number(float), metavar="SECONDS", help="wall-clock budget of the simulation")
    add("--resume", metavar="FILE", help="go on with the runs that this command left in a file")
    add(
        "--checkpoint-every",
        type=_number(float),
        default=30.0,
        metavar="SECONDS",
        help="seconds between two versions of the file that runs are resumed from [30]",
    )
    add("--false-alarm-rate", type=_rate, default=0.01, metavar="RATE", help="of the verdict [0.01]")
    add("--output", metavar="FILE", help="dataset tree to write [beside the prediction, ending in -sgd.nc]")
    add("--plot", metavar="FILE", help="figure to write [beside the output, ending in .png]")
    add("--no-plot", action="store_true", help="write no figure")
    add("--overwrite", action="store_true", help="replace existing files")
    add("--json", action="store_true", help="print the result as one JSON object")
    add("--quiet", action="store_true", help="print nothing but errors")
    return parser


def _number(kind: Callable[[float], float]) -> Callable[[str], Any]:
    """Return a reader of positive numbers; 1e6 is an integer too."""

    def read(text: str) -> Any:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (0 < value < float("inf")) or kind(value) != value:
            what = "integer" if kind is int else "number"
            msg = f"must be a positive {what}, but is {shown(text)}"
            raise argparse.ArgumentTypeError(msg)
        return kind(value)

    return read


def _widths(text: str) -> tuple[int, ...]:
    """Read two or more increasing numbers of neurons."""
    found = tuple(_number(int)(part) for part in text.split(","))
    if len(found) < 2 or any(a >= b for a, b in pairwise(found)):
        msg = f"must be two or more increasing integers, but is {shown(text)}"
        raise argparse.ArgumentTypeError(msg)
    return found


def _rate(text: str) -> float:
    """Read a probability."""
    value: float = _number(float)(text)
    if not value < 1:
        msg = f"must lie between 0 and 1, but is {shown(text)}"
        raise argparse.ArgumentTypeError(msg)
    return value
