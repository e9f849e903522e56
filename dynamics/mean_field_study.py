"""Command line: `python -m dynamics.mean_field_study NAME`, studies of the mean field of the spherical network.

Parses first, imports after.  The study itself is in `dynamics.laws.chaos_study`; nothing imports this.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dynamics.commands.options import Option, natural_number, plain, positive, positive_integer
from dynamics.commands.study import Catalogue, StudyCommand, integers, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  python -m dynamics.mean_field_study propagation-of-chaos
      h_4 at d = 16, m = 128 to 1024, eight starts; about a minute on two cores
  python -m dynamics.mean_field_study propagation-of-chaos --dimension 64 --widths 256,512,1024,2048 --seeds 6
      about a quarter of an hour

`python -m dynamics.mean_field_study NAME --help` lists the options. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be, 2 usage, 130 interrupted (the starts that
were finished are kept, and named, if there are two of them)
"""

STUDIES = {
    "propagation-of-chaos": StudyCommand(
        "dynamics.laws.chaos_study",
        "the distance of networks of finite width from the mean field, and its exponent in the width",
        (
            (
                "teacher",
                Option("teacher", plain, None, "he3, he4, misspecified, gaussian, orthogonal, ... [he4]", "NAME"),
            ),
            ("dimension", Option("dimension", positive_integer, None, "[16]", "D")),
            ("widths", Option("widths", integers, None, "widths, increasing [128,256,512,1024]", "M,M,...")),
            ("seeds", Option("seeds", positive_integer, None, "starts, at least 2, which all widths share [8]", "N")),
            ("seed", Option("seed", natural_number, None, "seed of the first start [0]", "SEED")),
            ("last", Option("t-max", positive, None, "last time [20 times that of one neuron alone]", "T")),
        ),
    ),
}

CATALOGUE = Catalogue(
    prog="dynamics.mean_field_study",
    description="Study how finite networks approach their mean field.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="dynamics.report.chaos:chaos_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    sys.exit(main())
