"""Options of `python -m sgd_check.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dynamics.commands import (
    CONFIG,
    CSV,
    JSON,
    NO_PLOT,
    NO_PROGRESS,
    OVERWRITE,
    PLOT,
    QUIET,
    STYLE,
    Option,
    Parser,
    command_parser,
    completed,
    plain,
    positive,
    positive_integer,
    rate_or_share,
    refuse_word,
    require,
    switch,
)
from hermite.text.messages import refuse, shown

THEORIES = ("auto", "finite-step", "flow")

#: Text of `-h`: five questions, each with a command.
SHORT = """\
usage: python -m sgd_check.run [options] FILE

Run online SGD from the start of a prediction, and say whether theory and runs agree.

Does SGD agree with a prediction that `python -m dynamics.solve --output small.nc` wrote?
  python -m sgd_check.run small.nc
Does it, for a problem that is not solved yet? Options behind -- are those of dynamics.solve.
  python -m sgd_check.run gelu.nc -- --activation gelu --directions 2 --width 6 --dimension 64
Do the first two directions agree, where all would take too long?
  python -m sgd_check.run small.nc --directions 2
Do more runs at my learning rate agree?
  python -m sgd_check.run small.nc --learning-rate 1e-5 --seeds 64
How do runs go on that were interrupted?
  python -m sgd_check.run small.nc --resume small-sgd-runs.nc

  --learning-rate ETA    step of SGD, a number or 0.1x [so that a 30 percent error shows]
  --seeds N  runs [32]   --steps N  of each [2.5 times the last checked emergence]
  --engine NAME          how to simulate: projected, torch, diffusion or scalar [auto]
  --output FILE          dataset to write        --max-runtime SECONDS  budget of the runs

`python -m sgd_check.run --help` lists all options.
"""
EXAMPLES = """\
examples:
  python -m sgd_check.run prediction.nc
      32 runs at a safe learning rate; writes prediction-sgd.nc and prediction-sgd.png
  python -m sgd_check.run prediction.nc -- --activation gelu --coefficients @weights.csv --width 64 --dimension 512
      solve the problem of the options behind `--` first, write prediction.nc, and check it
  python -m sgd_check.run prediction.nc --theory flow
      allow the flow the whole delay that the step size causes, instead of computing it
  python -m sgd_check.run mean_field.nc --widths 32,64,128
      networks of three widths against the file of `python -m dynamics.solve --model mean-field`
  python -m sgd_check.run prediction.nc --seeds 64 --learning-rate 1e-5 --output check.nc --json
  python -m sgd_check.run prediction.nc --inputs-from features.npy
      say before and after runs on these rows how far the theory of Gaussian inputs is off
  python -m sgd_check.run prediction.nc --resume prediction-sgd-runs.nc
      go on with runs that were interrupted, killed or out of time

stdout holds the result, stderr everything else. The verdict is part of the result: a disagreement is no failure.
exit codes: 0 done, 1 the run failed, every run blew up, or the answer is not where it was to be (what was computed is
kept and named), 2 usage, 130 interrupted (what was computed is kept and named)
"""


def _count(text: str) -> int:
    """Return the positive integer that a text states, such as 1000000 or 1e6."""
    try:
        return positive_integer(text)
    except ValueError:
        refuse(f"must be a positive integer, but is {shown(text)}")


def _widths(text: str) -> tuple[int, ...]:
    """Read two or more increasing positive integers, separated by commas."""
    widths = tuple(map(_count, text.split(",")))
    increase = len(widths) > 1 and list(widths) == sorted(set(widths))
    require(increase, f"must be two or more increasing integers, but is {shown(text)}")
    return widths


def _rate(text: str) -> float:
    """Return the number above 0 and below 1 that a text holds; raise ValueError for any other text."""
    value = positive(text)
    require(value < 1, f"must lie between 0 and 1, but is {shown(text)}")
    return value


def _theory(text: str) -> str:
    """Return a text if it is the name of a theory; raise ValueError otherwise."""
    if text not in THEORIES:
        refuse_word(f"must be one of {', '.join(THEORIES)}, but is {shown(text)}", text, THEORIES)
    return text


OPTIONS = (
    Option("engine", plain,
        "how to simulate: projected (exact in law, its cost does not depend on d), torch (in R^d), diffusion "
        "(many small steps at once, for up to four neurons) or scalar (the objective correlation, exact in law) "
        "[auto: the first that takes the problem; torch for a mean field]", "NAME", group="answer details"),
    Option("theory", _theory,
        "what to test: flow (the times in the file), finite-step (the equation of the mean step at the learning "
        "rate of the runs, sharper since it has the delay) or auto (finite-step where it can be solved and is no "
        "farther from the file than the step size explains)", f"{{{','.join(THEORIES)}}}", "auto", group="answer"),
    Option("seeds", _count, "number of runs [32]; for a mean field runs of each width, in pairs of one start [64]", "N",
        group="answer"),
    Option("widths", _widths, "widths of the networks that a mean field is tested with [16,32,64]", "M,M",
        group="answer details"),
    Option("learning-rate", rate_or_share,
        "step size, or 0.1x for a tenth of the limit of stability [up to that, so that a 30 percent error shows]",
        "ETA", group="answer"),
    Option("steps", _count, "SGD steps [up to 2.5 times the last checked emergence]", "N", group="answer"),
    Option("t-max", positive, "time until which the runs last, whatever it costs, in place of steps", "T",
        group="answer details"),
    Option("directions", _count,
        "choose learning rate and steps for the first N directions to emerge [as many as ten minutes allow]", "N",
        group="answer"),
    Option("batch-size", _count, "samples per step [1]", "B", group="answer details"),
    Option("inputs-from", plain,
        "say whether the theory of Gaussian inputs holds for rows of data (.npy, .npz or .csv), or for rademacher, "
        "uniform, laplace or exponential coordinates: runs on them against Gaussian runs", "FILE|LAW",
        group="answer details"),
    Option("rows-once", switch, "take each row of --inputs-from once, instead of drawing rows again and again",
        group="answer details"),
    Option("components", _count, "leading principal components of the rows to keep [all]", "N", group="answer details"),
    Option("placement", plain, "where teacher and start lie among whitened rows: random, rows or axes [random]", "NAME",
        group="answer details"),
    Option("device", plain, "auto, cpu or, for torch, cuda", "NAME", "auto", group="running"),
    Option("dtype", plain, "float32 (torch alone) or float64 [auto: the engine's own]", "NAME", "auto",
        group="answer details"),
    Option("max-runtime", positive, "wall-clock budget of the simulation", "SECONDS", group="running"),
    Option("resume", plain, "go on with the runs that this command left in a file", "FILE", group="running"),
    Option("checkpoint-every", positive, "seconds between two versions of the file that runs are resumed from",
        "SECONDS", "30", group="running"),
    Option("false-alarm-rate", _rate, "of the verdict", "RATE", "0.01", group="answer details"),
    CONFIG,
    Option("output", plain, "dataset tree to write [beside the prediction, ending in -sgd.nc]", "FILE", group="output"),
    PLOT._replace(help="figure to write [beside the output, ending in .png]"),
    NO_PLOT, STYLE, CSV, OVERWRITE, JSON, QUIET, NO_PROGRESS,
)  # fmt: skip


def build_parser() -> Parser:
    """Return the parser."""
    about = "Check a predicted learning course against online SGD on sampled data."
    file = ("prediction", "FILE", "dataset that `python -m dynamics.solve` wrote, or is to write by options behind --")
    return command_parser("sgd_check.run", about, EXAMPLES, OPTIONS, file, short_help=SHORT)


def read_arguments(arguments: Sequence[str] | None = None) -> Mapping[str, object]:
    """Return the arguments of the command by name, read and checked."""
    parser = build_parser()
    values = dict(completed(parser.values(arguments), OPTIONS))
    for option in OPTIONS:
        text = option.default if values[option.key] is None else values[option.key]
        try:
            values[option.key] = text if text in (None, False) else option.read(text)
        except ValueError as error:
            parser.error(f"argument --{option.name}: {error}")
    return MappingProxyType(values)
