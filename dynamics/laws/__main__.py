"""Command line: `python -m dynamics.laws NAME`, the scaling laws as studies."""

from __future__ import annotations

from collections.abc import Sequence

from dynamics.commands import options as table
from dynamics.commands.catalogue import Catalogue, StudyCommand, run_command
from dynamics.commands.options import Option
from dynamics.commands.program import run_program

EXAMPLES = """\
examples:
  python -m dynamics.laws scaling --beta 0.8
      all laws of P = 1024 directions by matched pairs, four starts, beside the asymptotic exponents
  python -m dynamics.laws scaling --spectrum 0.25
      the same of P = 64 on inputs whose eigenvalues decay as l^-0.25; minutes
  python -m dynamics.laws quadratic --alpha 0.8
      loss of quadratic networks, exactly, in three dimensions and at eight widths
  python -m dynamics.laws finite-size
      how the exponent of the loss in time nears its limit from P = 64 to a million
  python -m dynamics.laws compute-frontier
      the experiment of arXiv:2504.19983 by matched pairs and by the sum formula
  python -m dynamics.laws compute-frontier --coupled --largest-width 256
      the same by the exact coupled flow too; minutes
  python -m dynamics.laws theorem
      how far the theorem of arXiv:2504.19983 on emergence times holds at d = 1024 to 262144
  python -m dynamics.laws decoupling --gamma 0.75 --dimensions 64,256
      emerged over predicted times when P grows as a power of d
  python -m dynamics.laws fit runs.csv
      L = E + A m^-alpha + B n^-beta, and the same with a maximum, of your losses

`python -m dynamics.laws NAME --help` lists the options of a study. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""

STUDIES = {
    "scaling": StudyCommand(
        "dynamics.laws.scaling:scaling_study.prepare",
        "all scaling laws of one teacher, fitted, by the sum formula, and asymptotic",
        (
            table.EXPONENT,
            table.BETA._replace(read=table.non_negative),
            table.SPECTRUM,
            table.DIRECTIONS._replace(help="P [1024; 32 with --coupled; 64 and 16 with --spectrum]"),
            table.DIMENSION._replace(help="d [4 P; 32 P with --spectrum]"),
            table.STARTS,
            table.START_SEED,
            table.COUPLED,
            table.WORKERS,
        ),
    ),
    "quadratic": StudyCommand(
        "dynamics.laws.quadratic:quadratic_laws.prepare",
        "loss of quadratic networks in time at several dimensions, and in width, exactly",
        (
            Option("alpha", table.positive, "decay of the teacher's coefficients", default="1"),
            table.DIRECTIONS._replace(help="r, at least twice the width", default="512"),
            Option("width", table.positive_integer, "number of neurons m", "M", "64"),
            Option("dimensions", table.integers, "input dimensions, increasing", "D,D,...", "10000,1000000,1000000000"),
            table.STARTS._replace(default="2"),
            table.START_SEED,
        ),
    ),
    "finite-size": StudyCommand(
        "dynamics.laws.scaling:finite_size.prepare",
        "the exponent of the loss in time against the number of directions",
        (
            table.EXPONENT,
            Option("betas", table.numbers, "decays of the coefficients, above 1/2", "B,B,...", "0.8,1,1.5"),
            Option("sizes", table.integers, "numbers of directions [64,256,...,1048576]", "P,P,..."),
            table.DIMENSION._replace(default="16777216"),
            table.STARTS,
            table.START_SEED,
        ),
    ),
    "compute-frontier": StudyCommand(
        "dynamics.laws.scaling:compute_frontier.prepare",
        "loss against compute over widths and its frontier, the experiment of arXiv:2504.19983",
        (
            table.EXPONENT,
            table.BETA._replace(default="0.8"),
            table.DIRECTIONS._replace(default="1024"),
            table.DIMENSION._replace(default="2048"),
            table.WIDTHS._replace(help="widths, increasing [16,32,...,2048]"),
            Option("learning-rate", table.positive, "step of descent", "ETA", "0.1", group="answer"),
            table.STARTS_OF_WIDTHS,
            table.START_SEED,
            table.COUPLED._replace(help="integrate the exact coupled flow of the first start too"),
            Option(
                "largest-width",
                table.positive_integer,
                "largest width of the coupled flow [256]",
                "M",
                group="answer details",
            ),
        ),
    ),
    "transfer": StudyCommand(
        "dynamics.laws.transfer:transfer_study.prepare",
        "loss of population gradient descent over step sizes and widths: does the best step transfer?",
        (
            table.EXPONENT,
            table.BETA,
            table.DIRECTIONS._replace(default="64"),
            table.DIMENSION._replace(default="128"),
            table.WIDTHS._replace(help="widths, increasing [4,8,...,128]"),
            Option("steps", table.positive_integer, "steps of every run", "N", "2000", group="answer"),
            table.STARTS_OF_WIDTHS,
            table.START_SEED,
            table.WORKERS,
        ),
    ),
    "theorem": StudyCommand(
        "dynamics.laws.theorem:theorem_study.prepare",
        "the bounds of the theorem on emergence times, measured on flows at growing dimension",
        (
            table.EXPONENT,
            table.BETA,
            table.DIRECTIONS._replace(default="4"),
            Option("width", table.positive_integer, "number of neurons m [3 P]", "M"),
            Option("dimensions", table.integers, "input dimensions, increasing", "D,D,...", "1024,16384,262144"),
            table.STARTS._replace(default="1"),
            table.START_SEED,
        ),
    ),
    "decoupling": StudyCommand(
        "dynamics.laws.decoupling:decoupling.prepare",
        "do directions emerge one by one when P = d^gamma? coupled flows beside matched pairs",
        (
            table.EXPONENT,
            table.BETA,
            Option("gamma", table.positive, "power of d that the number of directions is", default="0.5"),
            Option("dimensions", table.integers, "input dimensions, increasing", "D,D,...", "64,256,1024"),
            table.STARTS._replace(default="6"),
            table.START_SEED,
        ),
    ),
    "fit": StudyCommand(
        "dynamics.laws.surface:surface_fits.prepare",
        "fit the losses of a table over width and samples by two power laws and a floor, added or the larger",
        (
            Option("bootstrap", table.integer, "fits to drawn rows, for the errors", "N", "100", group="answer"),
            table.START_SEED._replace(help="seed of the drawn rows"),
        ),
        argument=("table", "FILE", "CSV with columns width, samples and loss, or a sweep's dataset"),
    ),
}

CATALOGUE = Catalogue(
    prog="dynamics.laws",
    description="Scaling laws of the theory alone, each fitted beside its prediction.",
    examples=EXAMPLES,
    studies=STUDIES,
    findings="dynamics.report.findings:any_findings",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command(CATALOGUE, arguments)


if __name__ == "__main__":
    run_program(main)
