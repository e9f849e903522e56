"""Command line: `python -m sgd_check.tokens FILE`, a prediction on tokens held against runs of the full model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynamics.commands import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    JSON,
    NO_PLOT,
    OVERWRITE,
    PLOT,
    QUIET,
    START_SEED,
    STYLE,
    Option,
    Parser,
    UsageError,
    as_typed,
    check_targets,
    chosen_figure,
    chosen_style,
    command_parser,
    end_with,
    exit_code_of,
    plain,
    positive,
    positive_integer,
    read_option,
    say,
    store_result,
)
from hermite.text.command_line import leave_out_unused

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.report import Findings

EXAMPLES = """\
examples:
  python -m dynamics.tokens composition --output prediction.nc
  python -m sgd_check.tokens prediction.nc --learning-rate 0.25 --seeds 8 --plot check.png

stdout holds the result, stderr everything else. exit codes: 0 done, whatever the verdict, 1 the answer is not where it
was to be, 2 usage, 130 interrupted (what was computed is kept and named)
"""
OPTIONS = (
    Option("learning-rate", positive, "step [the prediction's, else 0.25 or a 200th of the first time]", "ETA"),
    Option("steps", positive_integer, "steps [to 1.15 times the last predicted time]", "N"),
    Option("batch-size", positive_integer, "samples per step; half of the runs have 4 B [4; memory: all]", "B"),
    Option("seeds", positive_integer, "runs, an even number of at least 4", "N", "8"),
    START_SEED._replace(help="first seed of the samples", argument="first_seed"),
    Option("false-alarm-rate", positive, "level of the verdict", "A", "0.01"),
    Option("device", plain, "where torch computes", None, "auto", ("auto", "cpu", "cuda")),
    Option("output", plain, "file to write [beside FILE, ending in -check.nc]", "FILE"),
)  # fmt: skip
#: Largest learning rate where neither the prediction nor the user has one, and steps to the first predicted time then:
#: with few, progress between two steps is too far from a line. How far runs go beyond the last time.
DEFAULT_RATE, FEWEST_STEPS, BEYOND = 0.25, 200, 1.15
FIGURE_DPI = 130


def build_parser() -> Parser:
    """Return the parser; building it imports nothing heavy."""
    parser = command_parser("sgd_check.tokens", "Hold a prediction on tokens against full models in torch.", EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="dataset of `python -m dynamics.tokens`")
    parser.add_options((*OPTIONS, PLOT, NO_PLOT, STYLE, OVERWRITE, JSON, QUIET))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code_of(lambda: _check(build_parser().values(arguments)))


def _check(values: Mapping[str, Any]) -> int:
    given = {option.key: values[option.key] for option in OPTIONS}
    asked = {
        option.key: read_option(option, option.default if given[option.key] is None else given[option.key])
        for option in OPTIONS
        if given[option.key] is not None or option.default is not None
    }
    from dynamics.runs import StorageError, load_answer

    source = Path(values["file"])
    output = Path(asked.pop("output", source.with_name(f"{source.stem}-check.nc")))
    figure = chosen_figure(values, output)
    check_targets(values, output, figure)
    try:
        prediction = load_answer(source)
        tree = _compared(prediction, asked, quiet=values["quiet"])
    except (StorageError, ValueError, TypeError) as error:
        raise UsageError(as_typed(error, OPTIONS, path="FILE", prediction="FILE")) from None
    return _end(tree, output, figure, values)


def _compared(prediction: xr.Dataset, asked: dict[str, Any], *, quiet: bool) -> xr.DataTree:
    """Return the comparison with runs, whose learning rate and steps are chosen where they are not given."""
    import numpy as np

    from dynamics.problem import stored_question
    from sgd_check.tokens import compare, simulate

    problem: Any = stored_question(prediction)
    if "recovery" in prediction:
        rate, draws = asked.pop("false_alarm_rate"), simulate(problem, **asked)
        return compare(prediction, draws, false_alarm_rate=rate)
    if "progress" not in prediction:
        msg = "Argument `FILE` must be a prediction of `python -m dynamics.tokens`, but is another result."
        raise ValueError(msg)
    rate, level = asked.pop("false_alarm_rate"), asked.pop("learning_rate", None)
    learned = prediction["learned_time"].values[np.isfinite(prediction["learned_time"].values)]
    first = float(learned.min(initial=np.inf))
    level = level or prediction.attrs.get("learning_rate") or min(DEFAULT_RATE, first / FEWEST_STEPS)
    end = float(learned.max(initial=0.0)) * BEYOND or float(prediction["time"][-1])
    steps = asked.pop("steps", int(np.ceil(end / level)))
    if not quiet:
        say(f"{steps} steps of {asked['seeds']} runs at learning rate {level:g}.")
    runs = simulate(problem, learning_rate=level, steps=steps, **asked, progress=False if quiet else None)
    return compare(prediction, runs, false_alarm_rate=rate)


def _end(tree: xr.DataTree, output: Path, figure: Path | None, values: Mapping[str, Any]) -> int:
    """Write and print what was compared; return the exit code."""

    def find() -> Findings:
        from sgd_check.report.tokens import token_comparison_findings

        return token_comparison_findings(tree)

    told = {name: values[name] for name in ("json", "quiet", "overwrite")}
    store = partial(store_result, tree, output, overwrite=values["overwrite"])
    written = end_with(store, find, figure, **told, dpi=FIGURE_DPI, style=chosen_style(values))
    if written.output is None:
        return EXIT_FAILED
    if tree["simulation"].attrs["stop_reason"] == "interrupted":
        say(f"The runs were interrupted; what was computed is in {written.output}.")
        return EXIT_INTERRUPTED
    return EXIT_FAILED if written.trouble else EXIT_DONE


if __name__ == "__main__":
    leave_out_unused()
    sys.exit(main())
