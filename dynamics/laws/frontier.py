r"""Curves of equal compute, and why the frontier of a finite teacher is steeper than its limit.

The exponent of the least loss at compute c = m · steps is followed from its limit, (1 − 2β)/(1 + β), to matched pairs.
Each step adds one cause: the end of the sum at P directions, the exact transit of a pair, the best overlap among the
neurons that are still free, which grows with the width, and greedy matching of random starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.fits import PowerLawFit, fit_runs, widening
from dynamics.laws import scaling_laws
from dynamics.laws.scaffold import PreparedStudy, checked_problem, checked_starts, common_times, family_tasks, under_way
from dynamics.problem import Problem
from dynamics.problem.checks import checked_increasing, checked_number, require
from dynamics.runs.dataset import Values, stored_exponents
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS
from dynamics.theory.pairs import Pairs, pair_times
from hermite.arrays import Array

#: Names of the steps, in order.
STEPS = (
    "all directions, T ~ p^beta",
    "P directions, T ~ p^beta",
    "exact transit, one overlap",
    "best overlap of free neurons",
    "greedy set, T ~ p^beta",
    "greedy matching, sum formula",
    "matched pairs",
)
FEWEST_WIDTHS, TIMES, ISOFLOPS = 3, 300, 8
TITLE = "Curves of equal compute, and the exponent of their lower edge cause by cause"


class Edge(NamedTuple):
    """The least loss over widths against compute, shape (N,) each, and its power law in the window."""

    compute: Array
    loss: Array
    fit: PowerLawFit


def _edge(widths: Array, learned: Array, weights: Array, rest: float, rate: float, most: float) -> Edge:
    """Return the edge of staircases: direction p falls by its weight at its learned time, (M, P), inf for never.

    `rest` of the loss is never learned. As in `scaling_laws.frontier_laws` the window goes from where the smallest
    width is the best for the last time to where a width above `most` is.
    """
    spent = (learned * widths[:, None] / rate)[np.isfinite(learned)]
    compute = np.geomspace(0.5 * spent.min(), spent.max(), scaling_laws.FRONTIER_POINTS)
    losses = np.empty((widths.size, compute.size))
    for row, (m, times) in enumerate(zip(widths, learned, strict=True)):
        order = np.argsort(times, kind="stable")
        left = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0) + rest
        losses[row] = left[np.searchsorted(times[order], compute * rate / m, side="right")]
    best, least = widths[losses.argmin(axis=0)], losses.min(axis=0)
    inside = (best > widths[0]) & (best <= most)
    early = np.flatnonzero(best == widths[0])
    inside[: early[-1] if early.size else 0] = False
    ends = compute[inside][[0, -1]] if inside.any() else (np.nan, np.nan)
    return Edge(compute, least, fit_runs(compute, least[None], window=(float(ends[0]), float(ends[1]))))


def _best_overlaps(problem: Problem, width: int) -> Array:
    """Return the median of the largest overlap of direction p with the m − p + 1 neurons that are free, shape (P,).

    Directions choose one after the other; for even k the sign does not count. It is 0 without a free neuron.
    """
    from scipy.special import betainccinv

    free = width - np.arange(problem.num_directions, dtype=np.float64)
    tail = -np.expm1(-np.log(2.0) / np.maximum(free, 1.0))
    two_sided = np.minimum(2.0 * tail, 1.0) if problem.information_exponent % 2 else tail
    return np.where(free > 0.0, np.sqrt(betainccinv(0.5, 0.5 * (problem.dimension - 1), two_sided)), 0.0)


def _learned_times(problem: Problem, overlap: Array) -> Array:
    """Return the learned times of pairs of given overlaps that move alone, shape (P,), inf where the overlap is 0."""
    count, times = problem.num_directions, np.full(problem.num_directions, np.inf)
    pairs = Pairs(np.arange(count), np.maximum(overlap, 1e-12), np.full(count, problem.initial_norm**2))
    matched = overlap > 0.0
    times[matched] = pair_times(problem, pairs)[1][matched]
    return times


def _staircases(family: Sequence[Problem], matched: Array, rate: float) -> list[list[Edge]]:
    """Return the edges of the first five steps, of each one edge per start, one in all where starts do not matter.

    `matched` (M, R, P) says which directions have a neuron at each width and start.
    """
    from scipy.special import zeta

    problem, widths = family[0], np.array([member.width for member in family], dtype=np.float64)
    a, beta, count = problem.teacher.coefficients, float(problem.teacher.beta or 0.0), problem.num_directions
    most = min(widths[-2], scaling_laws.middle_ranks(count)[1])
    # One overlap for all: that of direction 1 at the middle of the widths in the window.
    overlap = _best_overlaps(problem, round(float(np.sqrt(widths[1] * most))))[0]
    transits = _learned_times(problem, np.full(count, overlap))
    p, weight = np.arange(1, max(int(widths[-1]), count) + 1.0), float(a[0] ** 2 * problem.activation.kernel_at_one)
    times, weights = transits[0] * p**beta, weight * p ** (-2.0 * beta)
    rest = weight * float(zeta(2.0 * beta, p.size + 1.0))

    def first(learned: Array) -> Array:
        """Return times (M, P) of which width m learns the first m alone."""
        return np.where(np.arange(learned.size) < widths[:, None], learned, np.inf)

    grown = np.stack([_learned_times(member, _best_overlaps(member, member.width)) for member in family])
    families = [
        [(first(times), weights, rest)],
        [(first(times[:count]), weights[:count], 0.0)],
        [(first(transits), weights[:count], 0.0)],
        [(grown, weights[:count], 0.0)],
        [(np.where(start, times[:count], np.inf), weights[:count], 0.0) for start in matched.swapaxes(0, 1)],
    ]
    return [[_edge(widths, *stairs, rate, most) for stairs in members] for members in families]


def _isoflops(answers: Sequence[Sequence[xr.Dataset]], window: tuple[float, float], rate: float) -> tuple[Array, Array]:
    """Return computes in a window (C,), and the geometric mean of the loss there over starts, (C, M), NaN if unknown.

    `answers` are those of all starts at each width, at common times.
    """
    compute, time = np.geomspace(*window, ISOFLOPS), answers[0][0]["time"].values
    losses = np.empty((ISOFLOPS, len(answers)))
    for column, of_width in enumerate(answers):
        with np.errstate(divide="ignore"):  # of what rounding calls learned in full
            mean = np.mean([np.log(answer["loss"].values) for answer in of_width], axis=0)
        width = float(Problem.from_dataset(of_width[0]).width)
        at = np.log(compute * rate / width)
        losses[:, column] = np.exp(np.interp(at, np.log(time), mean, left=np.nan, right=np.nan))
    return compute, losses


def _frontier(study: PreparedStudy, family: list[Problem], seeds: range) -> xr.Dataset:
    """Return the dataset of all steps; KeyboardInterrupt if it was interrupted."""
    rate, widths, save_at = study.settings["learning_rate"], [member.width for member in family], None
    answers: list[xr.Dataset] = []
    with under_way(len(family) * len(seeds), study.progress) as meter:
        save_at = common_times(family, TIMES)
        tasks = family_tasks([(replace(member, seed=seed), save_at) for member in family for seed in seeds])
        answers += [answer for answer, _ in meter.answers(tasks)]
    if meter.stop_reason == "interrupted":
        raise KeyboardInterrupt
    matched = np.array([answer["matched_neuron"].values >= 0 for answer in answers])
    edges = _staircases(family, matched.reshape(len(widths), len(seeds), -1), rate)
    law = scaling_laws.frontier_laws(answers, rate)[0]
    exponent, error = np.full((2, len(STEPS)), np.nan)
    x, y = np.full((2, len(STEPS), scaling_laws.FRONTIER_POINTS), np.nan)
    low, high = np.full((2, len(STEPS)), np.nan)
    for at, starts in enumerate(edges):
        slopes = np.array([edge.fit.exponent for edge in starts])
        exponent[at], error[at] = slopes.mean(), starts[0].fit.standard_error
        if len(starts) > 1:
            error[at] = slopes.std(ddof=1) / np.sqrt(len(starts)) * widening(len(starts))
        x[at], y[at] = starts[0].compute, starts[0].loss
        low[at], high[at] = starts[0].fit.window
    for at, (fit, curves) in enumerate(((law.finite_size, law.predicted), (law.fit, law.measured)), start=len(edges)):
        exponent[at], error[at], (low[at], high[at]) = fit.exponent, fit.standard_error, fit.window
        x[at], y[at] = law.x, np.exp(np.log(curves).mean(axis=0))
    by_width = [answers[at * len(seeds) : (at + 1) * len(seeds)] for at in range(len(widths))]
    compute, losses = _isoflops(by_width, law.fit.window, rate)
    values: Values = {
        "exponent": ((), exponent),
        "exponent_error": ((), error),
        "edge_low": ((), low),
        "edge_high": ((), high),
        "abscissa": (("source",), x),
        "ordinate": (("source",), y),
        "isoflop_loss": ((), losses),
    }
    coords = {
        "source": np.array(STEPS),
        "point": np.arange(scaling_laws.FRONTIER_POINTS),
        "width": widths,
        "isoflop_compute": compute,
    }
    limit = stored_exponents(answers[0]).loss_compute
    return study.dataset(meter, values, coords, asymptotic=limit, **study.settings)


@study_function  # returns what `run` of the prepared study returns, a dataset
def frontier(
    *,
    information_exponent: int = 4,
    beta: float = 0.8,
    directions: int = 1024,
    dimension: int = 2048,
    widths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    learning_rate: float = 0.1,
    starts: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Return curves of equal compute, and the exponent of their lower edge from its limit on, cause by cause.

    .. math:: L^*(c) = \min_m L_m(\eta c/m), \qquad L_m(t) = g(1) \sum_p a_p^2\, 1\{t < T_p(m)\}

    with c = m · steps. T_p(m) is, step by step, p^β for all p ≤ m of endlessly many directions; of P directions; the
    exact transit from one overlap; that from the median of the largest of m − p + 1 overlaps, of which C² d ~ 2 ln m;
    p^β for the directions that greedy matching gives a neuron; the learned time of the pair that greedy matching makes.
    Last come the losses of the pairs themselves.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β > ½.
    directions, dimension, widths : int, int, sequence of int
        P ≥ 16, d ≥ P, and at least three increasing widths m.
    learning_rate : float
        Step η of descent, which only scales compute.
    starts, seed : int
        Random starts of every width, and the seed of the first.

    Returns
    -------
    Dataset
        `exponent` and `exponent_error` (source), one for each step; `edge_low` and `edge_high`, the window of each fit;
        its points `abscissa` and `ordinate` (source, point), of starts that differ the first; `isoflop_loss`
        (isoflop_compute, width), the loss of pairs; and attribute `asymptotic`, the limit. All are dimensionless.
        Errors are jackknives over the curve, of the last three steps over starts.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983, for the experiment; the steps are this program's.

    Examples
    --------
    >>> found = frontier(directions=64, dimension=128, widths=(4, 8, 16, 32, 64), starts=2, progress=False)
    >>> found.exponent.sizes["source"], dict(found.isoflop_loss.sizes)
    (7, {'isoflop_compute': 8, 'width': 5})
    """
    chosen = checked_increasing(widths, "widths", minimum=1, fewest=FEWEST_WIDTHS)
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed, fewest=FEWEST_DIRECTIONS
    )
    require(beta > 0.5, f"Argument `beta` must be above 1/2, or the loss follows no power law, but is {beta:g}.")
    seeds = checked_starts(starts, problem.seed)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    family = [replace(problem, width=m) for m in chosen]
    pairs = sum(min(m, problem.num_directions) for m in chosen) * len(seeds)
    work = f"{len(chosen)} widths of {len(seeds)} starts by matched pairs: {pairs:.2g} pairs, about half a minute."
    settings = {"learning_rate": rate, "starts": len(seeds)}
    solve = partial(_frontier, family=family, seeds=seeds)
    return PreparedStudy("frontier", TITLE, settings, problem, progress, solve, work)
