"""Command line: `python -m dynamics.laws NAME`, the scaling laws as studies."""

from __future__ import annotations

from collections.abc import Sequence

from dynamics.commands.catalogue import Catalogue, StudyCommand, run_command, studies_of
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
  python -m dynamics.laws infer runs.csv --k 4
      which decay of the coefficients and which unit of time made your loss curves
  python -m dynamics.laws frontier
      curves of equal compute, and why their lower edge is steeper than its limit
  python -m dynamics.laws methods --k 3 --beta 1 --dimension 1000
      samples of kernels, layer-wise training, SGD, smoothing and reused batches, and the least loss of any method
  python -m dynamics.laws paper --page paper.html
      every claim of the founding papers, its number here, error and figure; minutes
"""

STUDIES = studies_of(
    """
  coupled | | integrate the exact coupled flow instead of matched pairs | answer
scaling | dynamics.laws.scaling:scaling_study.prepare |
    all scaling laws of one teacher, fitted, by the sum formula, and asymptotic
  directions | P | number of directions P [1024; 32 with --coupled; 64 and 16 with --spectrum]
  dimension | D | input dimension d [4 P; 32 P with --spectrum]
quadratic | dynamics.laws.quadratic:quadratic_laws.prepare |
    loss of quadratic networks in time at several dimensions, and in width, exactly
  alpha | | decay of the teacher's coefficients
  directions | P | number of directions r, at least twice the width
  width | M | number of neurons m
finite-size | dynamics.laws.scaling:finite_size.prepare |
    the exponent of the loss in time against the number of directions
  betas | B,B,... | decays of the coefficients, above 1/2
  sizes | P,P,... | numbers of directions [64,256,...,1048576]
compute-frontier | dynamics.laws.scaling:compute_frontier.prepare |
    loss against compute over widths and its frontier, the experiment of arXiv:2504.19983
  widths | M,M,... | widths, increasing [16,32,...,2048]
  learning-rate | ETA | step of descent | answer
  starts | N | random starts of each width | answer
  coupled | | integrate the exact coupled flow of the first start too | answer
  largest-width | M | largest width of the coupled flow [256] | answer details
transfer | dynamics.laws.transfer:transfer_study.prepare |
    loss of population gradient descent over step sizes and widths: does the best step transfer?
  widths | M,M,... | widths, increasing [4,8,...,128]
  steps | N | steps of every run | answer
  starts | N | random starts of each width | answer
theorem | dynamics.laws.theorem:theorem_study.prepare |
    the bounds of the theorem on emergence times, measured on flows at growing dimension
  width | M | number of neurons m, or top:2 to match the first 2 directions [3 P]
decoupling | dynamics.laws.decoupling:decoupling.prepare |
    do directions emerge one by one when P = d^gamma? coupled flows beside matched pairs
  gamma | | power of d that the number of directions is
width | dynamics.laws.layerwise:width_study.prepare |
    fewest neurons with which all of the first directions are matched, at a chance of .95
  tops | P,P,... | numbers of first directions, increasing
  chance | Q | chance that all are matched
  draws | N | random starts for each width | answer
  seed | | seed of all random starts
frontier | dynamics.laws.frontier:frontier.prepare |
    curves of equal compute, and the exponent of their lower edge from the limit to matched pairs, cause by cause
  widths | M,M,... | widths, increasing [16,32,...,2048]
  learning-rate | ETA | step of descent | answer
  starts | N | random starts of each width | answer
methods | dynamics.laws.methods:methods.prepare |
    samples of kernels, layer-wise training, SGD, smoothing, reused batches and the minimax rate, side by side
  wanted | P | number of first directions that are wanted
  seed | | seed of the starts by which the width of SGD is computed
edge | dynamics.laws.edges:stability_edges.prepare |
    largest stable step size of SGD against the number of directions, beside its formula and that of descent
  sizes | P,P,... | numbers of directions, increasing
composition | dynamics.laws.composition:composition.prepare |
    k-fold composition by attention: the constructed transformer, bounds, and samples of hop 1 by SGD
  seed | | seed of permutations and inputs
paper | dynamics.laws.paper:paper.prepare |
    every claim of arXiv:2504.19983 and 2505.23683 beside its measured number; minutes
  parts | NAME,NAME,... | parts of scaling, frontier, times, theorem, decoupling, shares, layerwise, width, edge, \
minimax, gradient, surface, sgd and composition [all]
  resume | FILE | interrupted report whose parts are taken over | running
fit | dynamics.laws.surface:surface_fits.prepare |
    fit the losses of a table over width and samples by two power laws and a floor, added or the larger
  table | FILE | CSV with columns width, samples and loss, or a sweep's dataset | argument
  bootstrap | N | fits to drawn rows, for the errors | answer
  seed | | seed of the drawn rows
infer | dynamics.laws.inverse:infer.prepare |
    infer the decay of the coefficients and the unit of time from loss curves or times of skills
  curves | FILE | CSV with columns time (or step) and loss, or skill and time, or an answer's dataset | argument
  k | K | information exponent, at least 3
  width-per-direction | R | neurons per direction m/P [drawn from 1 to 8]
  directions | P | number of directions P [drawn from 8 to 64]
  dimension | D | input dimension d [drawn from 64 to 4096]
  excess | KIND | free: loss of a finite step and a floor; none; runs: draws are runs of SGD, minutes
  learning-rate | ETA | step size of SGD, for runs
  coverage | Q | nominal coverage of intervals | answer
  draws | N | curves that are drawn [2000, or 400 runs] | answer
  seed | | seed of all draws
""",
    StudyCommand,
)

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
