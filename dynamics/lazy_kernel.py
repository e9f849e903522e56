"""Command line: `python -m dynamics.lazy_kernel LINK`, what a kernel would learn of the same teacher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamics.commands import options as table
from dynamics.commands import parsing
from dynamics.commands.options import Option, plain
from dynamics.commands.parsing import EXIT_DONE, EXIT_FAILED, Parser, UsageError, require_usage
from dynamics.commands.program import run_program

EXAMPLES = """\
examples:
  python -m dynamics.lazy_kernel he4 --dimension 64 --activation relu
      online steps with the tangent kernel of relu: samples until half, a tenth and a hundredth of the error are left
  python -m dynamics.lazy_kernel he3 --dimension 64 --activation relu
      never: relu without biases sees no odd degree above 1
  python -m dynamics.lazy_kernel he2 --dimension 20 --activation relu --protocol ridge --samples 100,300,1000
      ridge regression on so many samples
  python -m dynamics.lazy_kernel he2 --dimension 10 --activation relu --protocol flow --samples 300 --label-noise 0.3
      gradient flow, which fits the noise in the end

Inputs are uniform on the sphere |x| = sqrt(d); --inputs gaussian is for ridge regression and the flow.

exit codes: 0 done, 1 the result is not where it was to be, 2 usage, 130 interrupted
"""

QUESTION = (
    Option("dimension", table.positive_integer, "input dimension d, at least 2", "D"),
    Option("activation", plain, "link of the kernel [that of the teacher, LINK]", "LINK", argument="student"),
    Option("kernel", plain, "tangent kernel, or that of the features alone", "NAME", "ntk", ("ntk", "features")),
    Option("label-noise", table.non_negative, "standard deviation of the noise on labels [0]", "TAU", argument="noise"),
    Option("inputs", plain, "inputs", "NAME", "sphere", ("sphere", "gaussian")),
    Option("width", table.positive_integer, "number of random features, for --kernel features and --protocol ridge "
           "[infinitely many]", "M"),
    Option("protocol", plain, "how the kernel is trained", "NAME", "online", ("online", "ridge", "flow"),
           group="answer"),
    Option("samples", table.integers, "numbers of samples [up to 40, until a hundredth of the error is left]",
           "N,N,...", group="answer"),
    Option("learning-rate", table.rate_or_share, "step, or share of its limit 2/K(1), of online steps [0.4x]", "ETA",
           group="answer"),
    Option("ridge", table.non_negative, "ridge on the matrix of the kernel, for --protocol ridge [0.001]", "DELTA",
           group="answer"),
    Option("times", table.numbers, "times of the flow [40 around those of the teacher's degrees]", "T,T,...",
           group="answer"),
)  # fmt: skip
OPTIONS = (
    *QUESTION,
    table.CONFIG,
    Option("output", plain, "dataset to write [a free name from kernel.nc on]", "FILE", group="output"),
    *table.FIGURES,
    table.OVERWRITE,
    *table.SHOWN,
)


def build_parser() -> Parser:
    """Return the parser; building it imports nothing heavy."""
    about = "Predict how many samples a kernel needs for the teacher of a network."
    link = ("link", "LINK", "link of the teacher, of one direction: a name (he4, relu, erf, ...) or an expression in z")
    return parsing.command_parser("dynamics.lazy_kernel", about, EXAMPLES, OPTIONS, link)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return parsing.exit_code_of(lambda: _predict(build_parser().values(arguments)))


def _predict(typed: Mapping[str, object]) -> int:
    """Predict the curve that the command line asks for, write and print it; return the exit code."""
    typed = parsing.completed(typed, OPTIONS)
    settings = {option.key: parsing.value_of(option, typed) for option in QUESTION}
    require_usage(settings["dimension"] is not None, "Option --dimension must be given, but is absent.")
    output = parsing.chosen_output(typed, "kernel")
    figure = parsing.chosen_figure(typed, output)
    parsing.check_targets(typed, output, figure)
    from dynamics.report.findings import find_findings
    from dynamics.solve.kernel import predict_kernel

    try:
        dataset = predict_kernel(typed["link"], **settings)
    except (TypeError, ValueError) as error:
        raise UsageError(parsing.as_typed(error, QUESTION, link="LINK")) from None
    written = parsing.end_with(dataset, find_findings, output, figure, typed)
    return EXIT_FAILED if written.output is None else written.code_after(EXIT_DONE)


if __name__ == "__main__":
    run_program(main)
