"""Command line: `python -m dynamics.laws NAME`, the scaling laws as studies.

Parses first, imports after.  The library is beside it; nothing imports this.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dynamics.commands.options import Option, natural_number, non_negative, positive, positive_integer
from dynamics.commands.study import Catalogue, StudyCommand, integers, numbers, run_command, switch

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  python -m dynamics.laws scaling --beta 0.8
      all laws of P = 1024 directions by matched pairs, four starts, beside the asymptotic exponents
  python -m dynamics.laws finite-size
      how the exponent of the loss in time nears its limit from P = 64 to a million
  python -m dynamics.laws compute-frontier
      the experiment of arXiv:2504.19983 by matched pairs and by the sum formula
  python -m dynamics.laws compute-frontier --coupled --largest-width 256
      the same by the exact coupled flow too; minutes

`python -m dynamics.laws NAME --help` lists the options of a study. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""

_K = ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K"))
_WORKERS = ("workers", Option("workers", positive_integer, None, "processes, each on one thread [one per core]", "N"))
_SEED = ("seed", Option("seed", natural_number, None, "seed of the first random start [0]", "SEED"))

STUDIES = {
    "scaling": StudyCommand(
        "dynamics.laws.scaling",
        "all scaling laws of one teacher, fitted, by the sum formula, and asymptotic",
        (
            _K,
            ("beta", Option("beta", non_negative, None, "decay of the teacher's coefficients [1]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "P [1024; 32 with --coupled]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "d [4 P]", "D")),
            ("starts", Option("starts", positive_integer, None, "random starts of each problem [4]", "N")),
            _SEED,
            ("coupled", Option("coupled", switch, None, "integrate the exact coupled flow instead of matched pairs")),
            _WORKERS,
        ),
    ),
    "finite-size": StudyCommand(
        "dynamics.laws.finite_size",
        "the exponent of the loss in time against the number of directions",
        (
            _K,
            ("betas", Option("betas", numbers, None, "decays of the coefficients, above 1/2 [0.8,1,1.5]", "B,B,...")),
            ("sizes", Option("sizes", integers, None, "numbers of directions [64,256,...,1048576]", "P,P,...")),
            ("dimension", Option("dimension", positive_integer, None, "d [16777216]", "D")),
            ("starts", Option("starts", positive_integer, None, "random starts of each problem [4]", "N")),
            _SEED,
        ),
    ),
    "compute-frontier": StudyCommand(
        "dynamics.laws.frontier",
        "loss against compute over widths and its frontier, the experiment of arXiv:2504.19983",
        (
            _K,
            ("beta", Option("beta", positive, None, "decay of the teacher's coefficients [0.8]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "P [1024]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "d [2048]", "D")),
            ("widths", Option("widths", integers, None, "widths, increasing [16,32,...,2048]", "M,M,...")),
            ("learning_rate", Option("learning-rate", positive, None, "step of descent [0.1]", "ETA")),
            ("starts", Option("starts", positive_integer, None, "random starts of each width [4]", "N")),
            _SEED,
            ("coupled", Option("coupled", switch, None, "integrate the exact coupled flow of the first start too")),
            (
                "largest_width",
                Option("largest-width", positive_integer, None, "largest width of the coupled flow [256]", "M"),
            ),
        ),
    ),
    "transfer": StudyCommand(
        "dynamics.laws.transfer",
        "loss of population gradient descent over step sizes and widths: does the best step transfer?",
        (
            _K,
            ("beta", Option("beta", positive, None, "decay of the teacher's coefficients [1]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "P [64]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "d [128]", "D")),
            ("widths", Option("widths", integers, None, "widths, increasing [4,8,...,128]", "M,M,...")),
            ("steps", Option("steps", positive_integer, None, "steps of every run [2000]", "N")),
            ("starts", Option("starts", positive_integer, None, "random starts of each width [4]", "N")),
            _SEED,
            _WORKERS,
        ),
    ),
}

CATALOGUE = Catalogue(
    prog="dynamics.laws",
    description="Scaling laws of the theory alone, each fitted beside its prediction.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="dynamics.report.laws:law_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    sys.exit(main())
