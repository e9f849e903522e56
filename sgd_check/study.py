"""Command line: `python -m sgd_check.study NAME`, the studies of the step size."""

from __future__ import annotations

from collections.abc import Sequence

from dynamics.commands import (
    BETA,
    DIMENSION,
    DIRECTIONS,
    EXPONENT,
    START_SEED,
    STARTS_OF_WIDTHS,
    WIDTHS,
    Catalogue,
    Option,
    StudyCommand,
    calls,
    integers,
    numbers,
    plain,
    positive,
    positive_integer,
    run_command,
)
from dynamics.commands.program import run_program

EXAMPLES = """\
examples:
  python -m sgd_check.study sample-complexity
      steps to escape for d = 32 to 1024, k = 3 and 4, sixteen runs each; about ten minutes on two cores
  python -m sgd_check.study sample-complexity --k 4 --dimensions 32,64,128
      the same in seconds
  python -m sgd_check.study sample-complexity --k 3 --smoothing-exponent 0,0.125,0.25
      one spherical neuron whose landscape is smoothed; half a minute
  python -m sgd_check.study sample-complexity --k 3 --dimensions 16,32,64 --optimizer sgd,zeroth-order
      steps along random directions, of which only two losses are known, need d times as many
  python -m sgd_check.study step-size --dimension 32 --json

`python -m sgd_check.study NAME --help` lists the options of a study. stdout holds the result, stderr everything else.
exit codes: 0 done, 1 the run failed or its answer is not where it was to be (what was computed is kept and named), 2
usage, 130 interrupted (what was computed is kept and named)
"""

START = Option(
    "start", positive, "squared overlap of a neuron at the start, times d", "S", "4", group="problem details"
)
SEEDS = Option("seeds", positive_integer, "runs of each point, at least 2 [10 to 32, by study]", "N", group="answer")
SEED = START_SEED._replace(help="first seed of the samples", group="answer")

STUDIES = {
    "sample-complexity": StudyCommand(
        "sgd_check.studies.complexity:sample_complexity.prepare",
        "steps to escape against the dimension at a step size ~ d^(-k/2)", (
        Option("k", integers, "information exponents, at least 3", "K,K", "3,4", argument="information_exponents"),
        Option("smoothing-exponent", numbers,
            "exponents e from 0 to 1/4: one spherical neuron, in a landscape smoothed by d^e [the squared error]",
            "E,E", argument="smoothing_exponents"),
        Option("dimensions", integers, "[32,64,128,256,512,1024; smoothed: 64,128,256,512]", "D,D,..."),
        Option("rate", positive, "step size in units of d^(-k/2), smoothed: of d^(-k/2+(2k-2)e) [0.1; smoothed: 0.05]",
            "C", group="answer"),
        Option("optimizer", calls,
            "what a step does with the gradient: sgd and zeroth-order, side by side where both are given [sgd]",
            "NAME,NAME", argument="optimizers"),
        START, SEEDS, SEED,
    )),
    "unstable-discretisation": StudyCommand(
        "sgd_check.studies.discretisation:unstable_discretisation.prepare",
        "loss against samples at a step size tuned to the last wanted direction", (
        EXPONENT, BETA._replace(help="decay of the teacher's coefficients, above 1/2"),
        DIRECTIONS._replace(help="directions and neurons of SGD", default="16"),
        DIMENSION._replace(help="dimension of SGD", default="48"),
        Option("targets", integers, "numbers of wanted directions [up to six to P^0.75]", "P,P", group="answer"),
        Option("rate", positive, "step size in units of the last wanted a_p d^(-k/2)", "C", "0.5", group="answer"),
        START,
        Option("initial-norm", positive, "norm of the starting weights of SGD", "S0", "0.1", group="problem details"),
        SEEDS, SEED,
        Option("large-directions", positive_integer, "P of theory alone", "P", "4096", group="answer details"),
        Option("large-dimension", positive_integer, "d of theory alone", "D", "16384", group="answer details"),
    )),
    "step-size": StudyCommand(
        "sgd_check.studies.step_sizes:step_size_phases.prepare",
        "emergence and blow-up against the step size, for one problem", (
        Option("problem", plain, "dataset whose problem is studied, instead of --k", "FILE"),
        EXPONENT, DIMENSION._replace(help="", default="64"), START,
        Option("learning-rates", numbers, "[13, 1/16 to 16 times the limit]", "ETA,ETA", group="answer"),
        SEEDS, SEED,
    )),
    "full-batch": StudyCommand(
        "sgd_check.studies.full_batch:full_batch_recovery.prepare",
        "one direction of y = min(z^2, M) from samples that are reused, and by online SGD", (
        Option("cut", positive, "M", "M", "4"),
        Option("dimensions", integers, "d of samples that are reused", "D,D,...", "200,400"),
        Option("ratios", numbers, "samples over d", "R,R,...", "0.5,1,2,3,4,5,6"),
        Option("rate", positive, "step size of descent on all samples", "ETA", "0.1", group="answer"),
        Option("steps", positive_integer, "steps of descent", "N", "1200", group="answer"),
        Option("online-dimensions", integers, "d of online SGD", "D,D,...", "100,1000,10000", group="answer details"),
        Option("online-rate", positive, "step size of online SGD in units of 1/d", "C", "0.02", group="answer details"),
        SEEDS, SEED,
    )),
    "epochs": StudyCommand(
        "sgd_check.studies.epochs:epochs_study.prepare",
        "what samples teach that are used again, and how many fresh ones would", (
        Option("links", calls, "links of the teacher", "G,G", "erf,he2 + he3,he3,he2,he4"),
        Option("activation", plain, "link of the neuron, bounded", "G", "erf"),
        Option("ratios", numbers, "samples over d", "R,R,...", "0.5,1,2,4"),
        Option("label-noises", numbers, "noise of the labels", "T,T,...", "0,0.4,0.8"),
        DIMENSION._replace(help="of the runs", default="800"),
        Option("initial-norm", positive, "|w| at the start", "S0", "0.5", group="problem details"),
        Option("epochs", positive_integer, "passes through the samples", "E", "16", group="answer"),
        Option("batches-per-epoch", positive_integer, "steps of each, at most 50 altogether", "B", "1", group="answer"),
        Option("rate", positive, "step size of the mean gradient of a batch", "ETA", "1", group="answer"),
        SEEDS, SEED,
        Option("draws", positive_integer, "points of the theory", "N", "131072", group="answer details"),
    )),
    "calibration": StudyCommand(
        "sgd_check.studies.calibration:calibration.prepare",
        "how often the verdict refutes right theories and wrong ones", (
        EXPONENT._replace(default="3"), DIMENSION._replace(help="", default="16"),
        Option("rates", numbers, "learning rates in units of the limit of stability", "R,R", "0.05,0.3",
            group="answer"),
        Option("kinds", calls, "small problems: all, or some of link-1 to link-4, "
            "random-start, inputs, network, committee, momentum, sign-sgd, zeroth-order, reused-data, tokens "
            "[the one neuron]", "NAME,NAME", group="answer"),
        Option("repetitions", positive_integer, "comparisons of each case", "N", "20", group="answer"),
        SEEDS._replace(help="runs of each comparison, at least 4", default="32"),
        Option("false-alarm-rate", positive, "level of the verdict", "A", "0.01", group="answer details"),
        SEED,
    )),
    "transfer": StudyCommand(
        "sgd_check.studies.step_sizes:sgd_transfer.prepare",
        "loss over step sizes and widths: does the best step transfer?", (
        EXPONENT, BETA, DIRECTIONS._replace(default="8"), DIMENSION._replace(default="48"),
        WIDTHS._replace(help="widths, at least four, increasing", default="2,4,8,16,32"),
        Option("samples", positive_integer, "samples of every run", "N", "100000", group="answer"),
        STARTS_OF_WIDTHS._replace(default="6"), SEEDS._replace(help="runs of each start", default="4"),
        START_SEED._replace(help="first seed of starts and samples", group="answer"),
    )),
}  # fmt: skip


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
    run_program(main, light=False)
