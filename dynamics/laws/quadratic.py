"""Study of the scaling laws of quadratic networks: loss in time at several dimensions, in width, and in samples.

Time is counted in alignments of the first direction, x = 4 a_1 t/ln(d/m), by which the curves of all dimensions come to
lie on each other. Samples are those of SGD on frames, whose step is the one that needs fewest to align a direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.laws.scaffold import PreparedStudy, checked_starts, under_way
from dynamics.laws.scaling_laws import ScalingLaw, fitted_law, law_values
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import checked_increasing, checked_integer, checked_number
from dynamics.problem.saved_times import SaveAt
from dynamics.solve.quadratic import solve_quadratic
from dynamics.theory.quadratic import FIRST_RANK, QuadraticExponents, power_window, quadratic_exponents
from hermite.arrays import Array, Integers

TITLE = "Scaling laws of quadratic networks beside sums and asymptotic exponents"
#: Least width whose window of the law in time is wide enough, from direction 3 to 5.
LEAST_WIDTH = 15
#: Times of a curve, how much later than its window it ends, and when the loss is taken for its end, in alignments of
#: the last direction.
TIMES, LATER, END = 160, 4.0, 3.0
#: Directions that are aligned last, of the law in samples.
TARGETS = 12
#: Widths of the law in the width, the given one and those below by factors of √2.
FEWER_WIDTHS = 8


def _quadratic_laws(study: PreparedStudy, dimensions: list[int], widths: list[int], seeds: range) -> xr.Dataset:
    """Return the dataset of all laws after solving every problem; KeyboardInterrupt if it was interrupted."""
    problem, laws, wide = study.problem, list[ScalingLaw](), []
    limits = quadratic_exponents(problem.teacher.beta)
    with under_way(len(seeds) * (len(dimensions) + 1 + len(widths)), study.progress) as meter:

        def solved(first: Problem, times: Array) -> list[xr.Dataset]:
            """Return the answers at these times, one per seed."""
            starts, save_at = [replace(first, seed=seed) for seed in seeds], SaveAt.at(times)
            tasks = [partial(solve_quadratic, start, save_at=save_at, progress=False) for start in starts]
            return [answer for answer, _ in meter.answers(tasks)]

        for d in dimensions:
            first = replace(problem, dimension=d)
            low, high = power_window(first.teacher, first.width, d)
            times = SaveAt.geometric(0.05 * low, LATER * high, TIMES).times  # from well before the first alignment on
            laws.append(_loss_against_time(first, solved(first, times), limits))
        aligned = _unit(problem) / problem.teacher.coefficients[_targets(problem) - 1]
        laws.append(_loss_against_samples(problem, solved(replace(problem, student="stiefel"), aligned), limits))
        for m in widths:
            first = of_width(problem, m)
            wide.append(_losses(solved(first, END * _unit(first) / first.teacher.coefficients[m - 1 : m])))
        ends = (float(widths[0]), float(widths[-1]))
        losses = np.concatenate(wide, axis=2)
        laws.append(fitted_law("loss-width", np.array(widths, float), losses, ends, limits.loss_width, ranks=ends))
    if meter.stop_reason == "interrupted":
        raise KeyboardInterrupt
    values, coords = law_values(laws, problem)
    return study.dataset(meter, values, coords, wall_seconds=meter.solving, scaling_notes=limits.note, **study.settings)


def _loss_against_time(problem: Problem, answers: Sequence[xr.Dataset], limits: QuadraticExponents) -> ScalingLaw:
    """Fit L ∝ x^s, x = 4 a_1 t/ln(d/m), by one dataset per start."""
    scale = _unit(problem) / problem.teacher.coefficients[0]
    low, high = power_window(problem.teacher, problem.width, problem.dimension)
    ends, time = (low / scale * (1.0 - 1e-12), high / scale * (1.0 + 1e-12)), answers[0]["time"].values / scale
    ranks = (FIRST_RANK, float(min(problem.width, problem.num_directions) // FIRST_RANK))
    name = f"loss-time, d = {problem.dimension:.4g}"
    return fitted_law(name, time, _losses(answers), ends, limits.loss_time, ranks=ranks)


def _loss_against_samples(problem: Problem, answers: Sequence[xr.Dataset], limits: QuadraticExponents) -> ScalingLaw:
    """Fit L ∝ n^s of frames: the loss as a direction aligns, against the fewest samples of SGD until then."""
    targets = _targets(problem)
    samples, losses = answers[0]["fewest_steps"].values[targets - 1], _losses(answers, "fine_tuned_loss")
    ends, ranks = ((float(values[0]), float(values[-1])) for values in (samples, targets))
    return fitted_law("loss-samples-tuned", samples, losses, ends, limits.loss_samples, ranks=ranks)


@study_function  # returns what `run` of the prepared study returns, a dataset
def quadratic_laws(
    *,
    alpha: float = 1.0,
    directions: int = 512,
    width: int = 64,
    dimensions: Sequence[int] = (10000, 1000000, 1000000000),
    starts: int = 2,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Measure the scaling laws of quadratic networks, a_j ∝ j^(−α), without time stepping.

    .. math:: L \sim t^{(1-2\alpha)/\alpha} + m^{1-2\alpha}, \qquad L \sim n^{(1-2\alpha)/(2\alpha)}

    in time and width, and in samples n of SGD on frames at the step η*_j/2 that is best for the direction j to be
    aligned last, which takes ∝ 1/a_j² of them.

    Parameters
    ----------
    alpha, directions : float, int
        α > 0, exponents exist for α > ½ only; and number r of directions, at least 2 m.
    width : int
        Number m ≥ 15 of neurons, whose start has |w_i| = m^(−1/4); of the law in the width the largest.
    dimensions : sequence of int
        Input dimensions d ≥ r + m, increasing.
    starts, seed : int
        Random starts of every problem, and the seed of the first.

    Returns
    -------
    Dataset
        As of `scaling_study`: the laws "loss-time, d = …", whose abscissa is 4 a_1 t/ln(d/m), over the times of
        directions 3 to m/3; "loss-samples-tuned", of frames with their second layer fitted, as directions 3 to m/3 are
        to align in the flow at the largest d, against the fewest samples for each; and "loss-width", of the loss after
        three alignments of direction m at the largest d, over widths from m/11 on. The sum formula is that of
        directions that align alone.

    References
    ----------
    Ben Arous, Erdogdu, Vural, Wu, arXiv:2508.03688.

    Examples
    --------
    >>> found = quadratic_laws(directions=32, width=16, dimensions=(100, 1000), starts=1, progress=False)
    >>> found.exponent.sel(law="loss-width").round(2).to_series().to_dict()
    {'measured': -1.05, 'sum formula': -1.07, 'ideal sum': -1.13, 'asymptotic': -1.0}
    """
    m = checked_integer(width, "width", minimum=LEAST_WIDTH)
    count = checked_integer(directions, "directions", minimum=2 * m)
    sizes = checked_increasing(dimensions, "dimensions", minimum=count + m, fewest=1)
    seeds = checked_starts(starts, seed)
    teacher = Teacher.power_law(count, checked_number(alpha, "alpha", positive=True))

    problem = Problem(activation="he2", teacher=teacher, width=m, dimension=sizes[-1], seed=seeds[0])
    widths = sorted({round(m * 2.0 ** (-i / 2)) for i in range(FEWER_WIDTHS)})
    settings = {"alpha": teacher.beta, "width": m, "starts": len(seeds)}
    number = len(seeds) * (len(sizes) + 1 + len(widths))
    work = f"{number} exact solutions: {count} directions by at most {m} neurons."
    solve = partial(_quadratic_laws, dimensions=sizes, widths=widths, seeds=seeds)
    return PreparedStudy("quadratic-scaling", TITLE, settings, of_width(problem, m), progress, solve, work)


def of_width(problem: Problem, width: int) -> Problem:
    """Return the problem at another width m, with |w_i| = m^(−1/4) at the start."""
    return replace(problem, width=width, initial_norm=width**-0.25)


def _targets(problem: Problem) -> Integers:
    """Return the directions to be aligned last, 3 to m/3."""
    return np.unique(np.geomspace(FIRST_RANK, problem.width // FIRST_RANK, TARGETS).round().astype(np.int64))


def _unit(problem: Problem) -> float:
    """Return ln(d/m)/4, the time of alignment times a_j."""
    return float(np.log(problem.dimension / problem.width)) / 4.0


def _losses(answers: Sequence[xr.Dataset], measured: str = "loss") -> Array:
    """Return the losses of the answers, and those of directions that align alone, (2, starts, times)."""
    return np.array([[answer[name].values for answer in answers] for name in (measured, "sigmoid_loss")])
