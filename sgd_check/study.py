"""Command line: `python -m sgd_check.study NAME`, the studies of the step size.

Parses first, imports after. The library is in `sgd_check.studies`; nothing imports this.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dynamics.commands import (
    Catalogue,
    Option,
    StudyCommand,
    integers,
    natural_number,
    numbers,
    plain,
    positive,
    positive_integer,
    run_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  python -m sgd_check.study sample-complexity
      steps to escape for d = 32 to 1024, k = 3 and 4, sixteen runs each; about ten minutes on two cores
  python -m sgd_check.study sample-complexity --k 4 --dimensions 32,64,128
      the same in seconds
  python -m sgd_check.study step-size --dimension 32 --json

`python -m sgd_check.study NAME --help` lists the options of a study. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""


_SEEDS = (
    ("seeds", Option("seeds", positive_integer, None, "runs of each point, at least 2 [12 to 32, by study]", "N")),
    ("seed", Option("seed", natural_number, None, "first seed of the samples [0]", "SEED")),
)
_START = (
    "start",
    Option("start", positive, None, "squared overlap of a neuron at the start, times d [4]", "S"),
)

STUDIES = {
    "sample-complexity": StudyCommand(
        "sgd_check.studies.complexity",
        "steps to escape against the dimension at a step size ~ d^(-k/2)",
        (
            ("information_exponents", Option("k", integers, None, "information exponents, at least 3 [3,4]", "K,K")),
            ("dimensions", Option("dimensions", integers, None, "[32,64,128,256,512,1024]", "D,D,...")),
            ("rate", Option("rate", positive, None, "step size in units of d^(-k/2) [0.1]", "C")),
            _START,
            *_SEEDS,
        ),
    ),
    "unstable-discretisation": StudyCommand(
        "sgd_check.studies.discretisation",
        "loss against samples at a step size tuned to the last wanted direction",
        (
            ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K")),
            ("beta", Option("beta", positive, None, "decay of the teacher's coefficients, above 1/2 [1]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "directions and neurons of SGD [16]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "dimension of SGD [48]", "D")),
            ("targets", Option("targets", integers, None, "numbers of wanted directions [up to six to P^0.75]", "P,P")),
            ("rate", Option("rate", positive, None, "step size in units of the last wanted a_p d^(-k/2) [0.5]", "C")),
            _START,
            ("initial_norm", Option("initial-norm", positive, None, "norm of the starting weights of SGD [0.1]", "S0")),
            *_SEEDS,
            ("large_directions", Option("large-directions", positive_integer, None, "P of theory alone [4096]", "P")),
            ("large_dimension", Option("large-dimension", positive_integer, None, "d of theory alone [16384]", "D")),
        ),
    ),
    "step-size": StudyCommand(
        "sgd_check.studies.step_sizes",
        "emergence and blow-up against the step size, for one problem",
        (
            ("problem", Option("problem", plain, None, "dataset whose problem is studied, instead of --k", "FILE")),
            ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K")),
            ("dimension", Option("dimension", positive_integer, None, "[64]", "D")),
            _START,
            ("learning_rates", Option("learning-rates", numbers, None, "[13, 1/16 to 16 times the limit]", "ETA,ETA")),
            *_SEEDS,
        ),
    ),
    "transfer": StudyCommand(
        "sgd_check.studies.transfer",
        "loss over step sizes and widths: does the best step transfer?",
        (
            ("information_exponent", Option("k", positive_integer, None, "information exponent, at least 3 [4]", "K")),
            ("beta", Option("beta", positive, None, "decay of the teacher's coefficients [1]", "BETA")),
            ("directions", Option("directions", positive_integer, None, "P [8]", "P")),
            ("dimension", Option("dimension", positive_integer, None, "d [48]", "D")),
            ("widths", Option("widths", integers, None, "widths, at least four, increasing [2,4,8,16,32]", "M,M,...")),
            ("samples", Option("samples", positive_integer, None, "samples of every run [100000]", "N")),
            ("starts", Option("starts", positive_integer, None, "random starts of each width [6]", "N")),
            ("seeds", Option("seeds", positive_integer, None, "runs of each start [4]", "N")),
            ("seed", Option("seed", natural_number, None, "first seed of starts and samples [0]", "SEED")),
        ),
    ),
}

CATALOGUE = Catalogue(
    prog="sgd_check.study",
    description="Study what the step size of SGD does, beside theory.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="sgd_check.report.findings:sgd_study_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    sys.exit(main())
