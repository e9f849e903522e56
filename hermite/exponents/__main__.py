"""Command line: `python -m hermite.exponents LINK`, what a link needs to be learned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from hermite.text.command_line import EXIT_DONE, PlainParser, UsageError, exit_code_of, tell

EXAMPLES = """\
examples:
  python -m hermite.exponents he3
  python -m hermite.exponents "z^2*exp(-z^2)" --degrees 6
  python -m hermite.exponents "heaviside(abs(z) - 1)" --json

A link that begins with a minus stands after two of them: python -m hermite.exponents -- "-z + h3(z)".
stdout holds the result, stderr everything else. exit codes: 0 done, 1 the result could not be printed, 2 usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _print_exponents(build_parser().parse_args(arguments)), interrupted="interrupted")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; building it imports nothing heavy."""
    parser = PlainParser(
        prog="python -m hermite.exponents",
        description="Print the information and the generative exponent of a link, and the samples that they ask for.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("link", metavar="LINK", help="name or formula in z, as hermite.expand takes it")
    add("--degrees", metavar="N", default="8", help="show c_k^2 and lambda_k^2 up to this k, at most 24 [8]")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _print_exponents(parsed: argparse.Namespace) -> int:
    if not (parsed.degrees.isascii() and parsed.degrees.isdigit()) or not 1 <= int(parsed.degrees[:4]) <= 24:
        from hermite.text.messages import shown

        msg = f"Option --degrees must be an integer from 1 to 24, but is {shown(parsed.degrees)}."
        raise UsageError(msg)
    try:
        found = exponents(parsed.link, int(parsed.degrees))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if parsed.json:
        import json

        tell(json.dumps(found))
    else:
        tell(_as_text(found))
    return EXIT_DONE


def exponents(link: str, degrees: int) -> dict[str, Any]:
    """Return what the command prints, as values that JSON takes."""
    import numpy as np

    from hermite.conversion import expand
    from hermite.exponents.generative import generative_exponent, label_correlations
    from hermite.exponents.samples import sample_laws

    expansion = expand(link)
    information, (generative, lambda_squared) = expansion.information_exponent, generative_exponent(expansion)
    squares = np.square(expand(link, order=degrees).coefficients)
    variance = expansion.norm_squared - float(expansion.coefficients[0]) ** 2
    laws = sample_laws(information, generative)
    return {
        "link": expansion.name,
        "information_exponent": information,
        "generative_exponent": generative,
        "lambda_squared": lambda_squared,
        "coefficient_shares": (squares[1:] / variance).tolist(),
        "label_correlations": label_correlations(expansion, degrees)[1:].tolist(),
        "samples": {key: {"power": law.power, "logarithm": law.logarithm} for key, law in laws.items()},
    }


def _as_text(found: dict[str, Any]) -> str:
    """Return the lines of a result."""
    from hermite.exponents.samples import sample_laws

    generative = found["generative_exponent"]
    rows = zip(found["coefficient_shares"], found["label_correlations"], strict=True)
    laws = sample_laws(found["information_exponent"], generative).values()
    return "\n".join(
        [
            f"link                  {found['link']}",
            f"information exponent  {found['information_exponent']}",
            f"generative exponent   {generative}, λ_{generative}² = {found['lambda_squared']:.5g}",
            "",
            "   k  c_k²/Var σ       λ_k²",
            *(f"{k:>4}  {_digits(share):>10}  {_digits(label):>9}" for k, (share, label) in enumerate(rows, 1)),
            "",
            "samples in d dimensions",
            *(f"  {law.algorithm:<38}{law}" for law in laws),
        ]
    )


def _digits(value: float) -> str:
    """Return a share of 1 with five digits after the point, 0 where it is zero to rounding."""
    return "0" if value < 1e-12 else f"{value:.5f}" if value >= 1e-5 else f"{value:.1e}"


if __name__ == "__main__":
    sys.exit(main())
