"""Command line: `python -m dynamics.mean_field_study NAME`, studies of the mean field of the spherical network."""

from __future__ import annotations

from collections.abc import Sequence

from dynamics.commands.catalogue import Catalogue, StudyCommand, run_command, studies_of
from dynamics.commands.program import run_program

EXAMPLES = """\
examples:
  python -m dynamics.mean_field_study propagation-of-chaos
      h_4 at d = 16, m = 128 to 1024, eight starts; about a minute on two cores
  python -m dynamics.mean_field_study propagation-of-chaos --dimension 64 --widths 256,512,1024,2048 --seeds 6
      about a quarter of an hour
"""

STUDIES = studies_of(
    """
propagation-of-chaos | dynamics.laws.chaos:prepare |
    the distance of networks of finite width from the mean field, and its exponent in the width
  teacher | NAME | he3, he4, misspecified, gaussian, orthogonal, ...
  seeds | N | starts, at least 2, which all widths share | answer
  seed | | seed of the first start
  t-max:last | T | last time [20 times that of one neuron alone] | answer
""",
    StudyCommand,
)

CATALOGUE = Catalogue(
    prog="dynamics.mean_field_study",
    description="Study how finite networks approach their mean field.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="dynamics.report.mean_field:chaos_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    run_program(main)
