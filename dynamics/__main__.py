"""Command line: `python -m dynamics`, the commands of this program, one line each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dynamics.commands.parsing import EXIT_DONE, command_parser, exit_code_of, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "hermite.exponents": "the information and generative exponents of a link, and the samples that they ask for",
    "dynamics.solve": "one answer to one problem: emergence times, overlaps and loss over time",
    "sgd_check.run": "a prediction held against online SGD on sampled data",
    "dynamics.tokens": "staircases that attention and memories learn from tokens",
    "sgd_check.tokens": "a prediction on tokens held against runs of the full model",
    "dynamics.study": "a grid of problems, answered in parallel, from a TOML file",
    "dynamics.laws": "scaling laws of the theory alone, each fitted beside its prediction",
    "dynamics.mean_field_study": "networks of many widths against their mean field",
    "sgd_check.study": "families of runs of SGD: sample complexity, step size, transfer, calibration",
    "dynamics.report": "any result file as one HTML page",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _list(arguments))


def _list(arguments: Sequence[str] | None) -> int:
    about = "How two-layer networks learn features: the theory, and the SGD that checks it."
    widest = max(map(len, COMMANDS))
    lines = "\n".join(f"  python -m {name:{widest}}  {line}" for name, line in COMMANDS.items())
    listed = f"commands, each with --help:\n{lines}"
    command_parser("dynamics", about, listed).parse_args(arguments)
    tell(f"{about}\n\n{listed}")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
