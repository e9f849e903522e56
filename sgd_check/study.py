"""Command line: `python -m sgd_check.study NAME`, the studies of the step size."""

from __future__ import annotations

from collections.abc import Sequence

from dynamics.commands import Catalogue, StudyCommand, run_command, studies_of
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
"""

STUDIES = studies_of(
    """
  start | S | squared overlap of a neuron at the start, times d | problem details
  seeds | N | runs of each point, at least 2 [10 to 32, by study] | answer
  seed | | first seed of the samples | answer
  ratios | R,R,... | samples over d
sample-complexity | sgd_check.studies.complexity:sample_complexity.prepare |
    steps to escape against the dimension at a step size ~ d^(-k/2)
  k:information_exponents | K,K | information exponents, at least 3
  smoothing-exponent:smoothing_exponents | E,E |
    exponents e from 0 to 1/4: one spherical neuron, in a landscape smoothed by d^e [the squared error]
  dimensions | D,D,... | input dimensions d, increasing [32,64,128,256,512,1024; smoothed: 64,128,256,512]
  rate | C | step size in units of d^(-k/2), smoothed: of d^(-k/2+(2k-2)e) [0.1; smoothed: 0.05] | answer
  optimizer:optimizers | NAME,NAME |
    what a step does with the gradient: sgd and zeroth-order, side by side where both are given [sgd]
unstable-discretisation | sgd_check.studies.discretisation:unstable_discretisation.prepare |
    loss against samples at a step size tuned to the last wanted direction
  beta | | decay of the teacher's coefficients, above 1/2
  directions | P | directions and neurons of SGD
  dimension | D | dimension of SGD
  targets | P,P | numbers of wanted directions [up to six to P^0.75] | answer
  rate | C | step size in units of the last wanted a_p d^(-k/2) | answer
  initial-norm | S0 | norm of the starting weights of SGD | problem details
  large-directions | P | P of theory alone | answer details
  large-dimension | D | d of theory alone | answer details
step-size | sgd_check.studies.step_sizes:step_size_phases.prepare |
    emergence and blow-up against the step size, for one problem
  problem | FILE | dataset whose problem is studied, instead of --k
  learning-rates | ETA,ETA | step sizes [13, 1/16 to 16 times the limit] | answer
full-batch | sgd_check.studies.full_batch:full_batch_recovery.prepare |
    one direction of y = min(z^2, M) from samples that are reused, and by online SGD
  cut | M | M
  dimensions | D,D,... | d of samples that are reused
  rate | ETA | step size of descent on all samples | answer
  steps | N | steps of descent | answer
  online-dimensions | D,D,... | d of online SGD | answer details
  online-rate | C | step size of online SGD in units of 1/d | answer details
epochs | sgd_check.studies.epochs:epochs_study.prepare |
    what samples teach that are used again, and how many fresh ones would
  links | G,G | links of the teacher
  activation | G | link of the neuron, bounded
  label-noises | T,T,... | noise of the labels
  dimension | D | input dimension of the runs
  initial-norm | S0 | |w| at the start | problem details
  epochs | E | passes through the samples | answer
  batches-per-epoch | B | steps of each, at most 50 altogether | answer
  rate | ETA | step size of the mean gradient of a batch | answer
  draws | N | points of the theory | answer details
calibration | sgd_check.studies.calibration:calibration.prepare |
    how often the verdict refutes right theories and wrong ones
  rates | R,R | learning rates in units of the limit of stability | answer
  kinds | NAME,NAME | small problems: all, or some of link-1 to link-4, random-start, inputs, network, committee,
    momentum, sign-sgd, zeroth-order, reused-data, classes, tokens [the one neuron] | answer
  repetitions | N | comparisons of each case | answer
  seeds | N | runs of each comparison, at least 4 | answer
  false-alarm-rate | A | level of the verdict | answer details
finite-d | sgd_check.studies.finite_dimension:finite_d_study.prepare |
    mean and scatter of runs over those of theory against the dimension and the step size
  problem | FILE | dataset whose problem is studied, at other dimensions [two erf neurons, two directions]
  dimensions | D,D,... | input dimensions d, increasing
  step-scales | C,C | learning rates in units of 1/d | answer
  end | T | flow time at which runs end | answer
  seeds | N | runs of each point, at least 16 | answer
transfer | sgd_check.studies.step_sizes:sgd_transfer.prepare |
    loss over step sizes and widths: does the best step transfer?
  widths | M,M,... | widths, at least four, increasing
  samples | N | samples of every run | answer
  starts | N | random starts of each width | answer
  seeds | N | runs of each start | answer
  seed | | first seed of starts and samples | answer
""",
    StudyCommand,
)

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
