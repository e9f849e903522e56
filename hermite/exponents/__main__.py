"""Command line: `python -m hermite.exponents LINK`, exponents and samples of a link or of a function of directions."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermite import program
from hermite.program import EXIT_DONE, UsageError, require_usage, tell
from hermite.text.messages import renamed, shown

if TYPE_CHECKING:
    from hermite.exponents.generative import SampleLaw

    Told = tuple[dict[str, object], list[str], dict[str, SampleLaw]]

EXAMPLES = """\
examples:
  python -m hermite.exponents he3
  python -m hermite.exponents "z^2*exp(-z^2)" --degrees 6
  python -m hermite.exponents "heaviside(abs(z) - 1)" --json
  python -m hermite.exponents "sign(z1) + sign(z1*z2*z3)"
      both leaps of a function of up to three directions, with the directions that each step finds
  python -m hermite.exponents relu --activation erf --dimension 1000
      also the mean gradient at the start of a student that learns the link, by degree, beside its noise

A link that begins with a minus stands after two of them: python -m hermite.exponents -- "-z + h3(z)".
stdout holds the result, stderr everything else. exit codes: 0 done, 1 the result could not be printed, 2 usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return program.exit_code_of(
        lambda: _print_exponents(build_parser().parse_args(arguments)), interrupted="interrupted"
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    about = "Print the information and the generative exponent of a link, and the samples that they ask for."
    parser = program.command_parser("hermite.exponents", about, EXAMPLES, program.PlainParser)
    add = parser.add_argument
    add("link", metavar="LINK", help="name or formula in z as hermite.expand takes it, or formula in z1, z2, z3")
    add("--degrees", metavar="N", default="8", help="show c_k^2 and lambda_k^2 up to this k, at most 24 [8]")
    add("--activation", metavar="LINK", help="link of the student, beside --dimension [that of the teacher, LINK]")
    add("--dimension", metavar="D", help="show the signal and the noise of the gradient at a random start in R^D")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _print_exponents(parsed: argparse.Namespace) -> int:
    """Print the exponents of the link or function on the command line, and return the exit code."""
    import json

    from hermite.text.formulas import named_axes

    is_degree = parsed.degrees.isascii() and parsed.degrees.isdigit() and 1 <= int(parsed.degrees[:4]) <= 24
    require_usage(is_degree, f"Option --degrees must be an integer from 1 to 24, but is {shown(parsed.degrees)}.")
    dimension, student = _checked_dimension(parsed.dimension), parsed.activation
    require_usage(student is None or dimension, "Option --activation must stand beside --dimension, which is missing.")
    try:
        several = bool(named_axes(parsed.link))
        require_usage(
            not (several and dimension),
            f"Option --dimension must stand beside a link in z, but LINK is {shown(parsed.link)}.",
        )
        values, lines, laws = leaps(parsed.link) if several else exponents(parsed.link, int(parsed.degrees))
        seen, seen_lines = signal(parsed.link, student, dimension, int(parsed.degrees)) if dimension else ({}, [])
    except ValueError as error:
        raise UsageError(renamed(str(error), dict.fromkeys(("x", "f", "link"), "LINK"))) from None
    powers = {key: law.power if math.isfinite(law.power) else None for key, law in laws.items()}
    values["samples"] = {key: {"power": powers[key], "logarithm": law.logarithm} for key, law in laws.items()}
    lines += ["", "samples in d dimensions", *(f"  {law.algorithm:<38}{law}" for law in laws.values())]
    tell(json.dumps(values | seen) if parsed.json else "\n".join([*lines, *seen_lines]))
    return EXIT_DONE


def exponents(link: str, degrees: int) -> Told:
    """Return the exponents of a link: values for JSON, lines of text, and laws of the number of samples by method.

    `degrees` is the highest degree k for which shares c_k²/Var σ and label correlations λ_k² are listed.
    """
    from hermite.expansion import expand
    from hermite.exponents.generative import coefficient_shares, generative_exponent, label_correlations, sample_laws

    expansion = expand(link)
    information, (generative, lambda_squared) = expansion.information_exponent, generative_exponent(expansion)
    shares = coefficient_shares(expand(link, order=degrees))[1:].tolist()
    correlations = label_correlations(expansion, degrees)[1:].tolist()
    values = {
        "link": expansion.name,
        "information_exponent": information,
        "generative_exponent": generative,
        "lambda_squared": lambda_squared,
        "coefficient_shares": shares,
        "label_correlations": correlations,
    }
    lines = [
        f"link                  {expansion.name}",
        f"information exponent  {information}",
        f"generative exponent   {generative}, λ_{generative}² = {lambda_squared:.5g}",
        "",
        "   k  c_k²/Var σ       λ_k²",
        *(
            f"{k:>4}  {_digits(share):>10}  {_digits(label):>9}"
            for k, (share, label) in enumerate(zip(shares, correlations, strict=True), 1)
        ),
    ]
    return values, lines, sample_laws(information, generative)


def signal(teacher: str, student: str | None, dimension: int, degrees: int) -> tuple[dict[str, object], list[str]]:
    """Return the signal and the noise of the gradient at the start, as values for JSON and as lines of text.

    The start has the overlap d^(−½), d = `dimension`. `teacher` and `student` are links as text, and the student's is
    the teacher's if None. The parts of the signal by degree are listed up to `degrees`.
    """
    from hermite.expansion import expand
    from hermite.exponents.signal import gradient_signal

    try:
        learner = expand(teacher if student is None else student)
        gradient, name = gradient_signal(teacher, learner, overlap=dimension**-0.5), learner.name
    except (TypeError, ValueError) as error:
        names = dict.fromkeys(("x", "f", "student"), "LINK" if student is None else "of --activation")
        raise UsageError(renamed(str(error), names)) from None
    by_degree = [*gradient.by_degree[1:].tolist(), *[0.0] * degrees][:degrees]
    values = {"by_degree": by_degree, "signal": gradient.signal, "noise": gradient.noise}
    samples = gradient.samples if math.isfinite(gradient.samples) else None
    lines = [
        "",
        f"gradient at the start, student {name}, overlap 1/√d, d = {dimension}",
        "   j  j c*_j c_j d^(-(j-1)/2)",
        *(f"{j:>4}  {value:>23.5g}" for j, value in enumerate(by_degree, 1)),
        f"  signal, all degrees   {gradient.signal:.5g}",
        f"  noise of one sample   {gradient.noise:.5g} along each other direction",
        f"  samples at which the signal is as large as the noise of their mean: {gradient.samples:.3g}",
    ]
    return {"gradient": {"student": name, "dimension": dimension, **values, "samples": samples}}, lines


def _checked_dimension(text: str | None) -> int | None:
    """Return the value of --dimension, also written as 1e6, or None; a usage error for anything but an integer ≥ 1."""
    from hermite.arrays import as_integer

    if text is None:
        return None
    try:
        dimension = as_integer(float(text))
    except (ValueError, OverflowError):
        dimension = None
    is_right = dimension is not None and dimension >= 1
    require_usage(is_right, f"Option --dimension must be an integer of at least 1, but is {shown(text)}.")
    return dimension


def leaps(function: str) -> Told:
    """Return the information leap and the generative leap of a function of several directions z1, z2, ….

    The results are values for JSON, lines of text, and laws of the number of samples by method.
    """
    from hermite.exponents.generative import sample_laws
    from hermite.exponents.leap import leap

    information, generative = leap(function, kind="information"), leap(function, kind="generative")
    laws = sample_laws(information.leap, generative.leap)
    for name in ("kernel", "relu", "smoothed"):  # known for one direction alone
        del laws[name]
    values: dict[str, object] = {"link": function}
    lines = [f"function              {function}"]
    for result in (information, generative):
        flag = [vars(step) | {"directions": step.directions.tolist()} for step in result.flag]
        values[f"{result.kind}_leap"] = {"leap": result.leap, "complete": result.complete, "flag": flag}
        lines.append(f"{result.kind + ' leap':<22}{repr(result).partition(' leap ')[2]}")
    return values, lines, laws


def _digits(value: float) -> str:
    """Return a share of 1 with five digits after the point; rounding errors become 0."""
    return "0" if value < 1e-12 else f"{value:.5f}" if value >= 1e-5 else f"{value:.1e}"


if __name__ == "__main__":
    program.run_program(main)
