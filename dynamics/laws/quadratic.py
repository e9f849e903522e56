"""Study of the scaling laws of quadratic networks: loss in time at several dimensions, in width, and in samples.

Each law as measured on several random starts, beside the sum over directions that align alone, the idealised sum at
this number of directions, and the asymptotic exponent. Time is counted in alignments of the first direction,
x = 4 a_1 t/ln(d/m), by which the curves of all dimensions come to lie on each other. Samples are those of SGD on
frames, whose step is the one that needs fewest to align a direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.studies import study_function
from dynamics.laws.scaling_laws import ScalingLaw, fitted_law, law_coordinates, law_values
from dynamics.laws.study import PreparedStudy, answer_all, checked_starts
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import checked_increasing, checked_integer, checked_number
from dynamics.problem.schedule import SaveAt
from dynamics.solve.quadratic import solve_quadratic
from dynamics.theory.quadratic import FIRST_RANK, QuadraticExponents, power_window, quadratic_exponents
from hermite.arrays import Array, Integers

#: Least width whose window of the law in time is wide enough, from direction 3 to 5.
LEAST_WIDTH = 15
#: Times of a curve, how much later than its window it ends, and when the loss is taken for its end, in alignments of
#: the last direction.
TIMES, LATER, END = 160, 4.0, 3.0
#: Directions that are aligned last, of the law in samples.
TARGETS = 12
#: Widths of the law in the width, the given one and those below by factors of √2.
FEWER_WIDTHS = 8


@dataclass(frozen=True)
class QuadraticLaws(PreparedStudy):
    """The study, prepared: problems that differ in their starts, by dimension, and by width at the largest one."""

    answer = "quadratic-scaling"
    title = "Scaling laws of quadratic networks beside sums and asymptotic exponents"

    #: The first start by dimension, and by width.
    dimensions: dict[int, Problem]
    widths: dict[int, Problem]
    seeds: range

    def work(self) -> str:
        """Return the expected work, in words."""
        count = self.settings["starts"] * (len(self.dimensions) + 1 + len(self.widths))
        sizes = f"{self.problem.num_directions} directions by at most {self.problem.width} neurons"
        return f"{count} exact solutions: {sizes}."

    def run(self) -> xr.Dataset:
        """Solve all problems and fit the laws; an interruption keeps nothing."""
        curves = [(one, _curve_times(one)) for first in self.dimensions.values() for one in self._starts(first)]
        frames = [replace(one, student="stiefel") for one in self._starts(self.problem)]
        aligned = [(one, SaveAt.at(_unit(one) / one.teacher.coefficients[_targets(one) - 1])) for one in frames]
        wide = [one for first in self.widths.values() for one in self._starts(first)]
        ends = [(one, SaveAt.at([END * _unit(one) / one.teacher.coefficients[one.width - 1]])) for one in wide]
        family = curves + aligned + ends
        tasks = [partial(solve_quadratic, problem, save_at=save_at, progress=False) for problem, save_at in family]
        answers = answer_all(tasks, progress=self.progress)
        if answers.stop_reason == "interrupted":
            raise KeyboardInterrupt
        found, at, runs = answers.datasets, len(curves), self.settings["starts"]
        laws = [
            *(self._loss_against_time(d, found[i * runs : (i + 1) * runs]) for i, d in enumerate(self.dimensions)),
            self._loss_against_samples(found[at : at + runs]),
            self._loss_against_width(found[at + runs :]),
        ]
        return self.dataset(
            law_values(laws, self.problem),
            law_coordinates(laws),
            stop_reason="reached_end",
            wall_seconds=sum(answers.seconds),
            scaling_notes=self._limits.note,
            **self.settings,
        )

    def _starts(self, first: Problem) -> list[Problem]:
        return [replace(first, seed=seed) for seed in self.seeds]

    @property
    def _limits(self) -> QuadraticExponents:
        """Asymptotic exponents."""
        return quadratic_exponents(self.problem.teacher.beta)

    def _loss_against_time(self, dimension: int, answers: Sequence[xr.Dataset]) -> ScalingLaw:
        """Fit L ∝ x^s, x = 4 a_1 t/ln(d/m), by one dataset per start."""
        problem = Problem.from_dataset(answers[0])
        a, scale = problem.teacher.coefficients, _unit(problem) / problem.teacher.coefficients[0]
        low, high = power_window(problem.teacher, problem.width, dimension)
        ends = (low / scale * (1.0 - 1e-12), high / scale * (1.0 + 1e-12))
        ranks, time = (FIRST_RANK, float(min(problem.width, a.size) // FIRST_RANK)), answers[0]["time"].values / scale
        loss, alone = _losses(answers)
        name = f"loss-time, d = {dimension:.4g}"
        return fitted_law(name, time, loss, alone, ends, self._limits.loss_time, ranks=ranks)

    def _loss_against_samples(self, answers: Sequence[xr.Dataset]) -> ScalingLaw:
        """Fit L ∝ n^s of frames: the loss as a direction aligns, against the fewest samples of SGD until then."""
        targets = _targets(self.problem)
        samples = answers[0]["fewest_steps"].values[targets - 1]
        loss, alone = _losses(answers, "fine_tuned_loss")
        ends, ranks = ((float(values[0]), float(values[-1])) for values in (samples, targets))
        return fitted_law("loss-samples-tuned", samples, loss, alone, ends, self._limits.loss_samples, ranks=ranks)

    def _loss_against_width(self, answers: Sequence[xr.Dataset]) -> ScalingLaw:
        """Fit L ∝ m^s at a late time, predicted for directions that align alone."""
        widths, shape = np.array(list(self.widths), float), (len(self.widths), self.settings["starts"])
        loss, alone = (values[:, -1].reshape(shape).T for values in _losses(answers))
        ends = (float(widths[0]), float(widths[-1]))
        return fitted_law("loss-width", widths, loss, alone, ends, self._limits.loss_width, ranks=ends)


@study_function
def quadratic_laws(
    *,
    alpha: float = 1.0,
    directions: int = 512,
    width: int = 64,
    dimensions: Sequence[int] = (10000, 1000000, 1000000000),
    starts: int = 2,
    seed: int = 0,
    progress: bool | None = None,
) -> QuadraticLaws:
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
    """
    m = checked_integer(width, "width", minimum=LEAST_WIDTH)
    count = checked_integer(directions, "directions", minimum=2 * m)
    sizes = checked_increasing(dimensions, "dimensions", minimum=count + m, fewest=1)
    seeds = checked_starts(starts, seed)
    teacher = Teacher.power_law(count, checked_number(alpha, "alpha", positive=True))

    def of_size(width: int, dimension: int) -> Problem:
        norm = width**-0.25
        return Problem(
            activation="he2", teacher=teacher, width=width, dimension=dimension, initial_norm=norm, seed=seeds[0]
        )

    by_dimension = {d: of_size(m, d) for d in sizes}
    widths = sorted({round(m * 2.0 ** (-i / 2)) for i in range(FEWER_WIDTHS)})
    return QuadraticLaws(
        {"alpha": teacher.beta, "width": m, "starts": len(seeds)},
        by_dimension[sizes[-1]],
        progress,
        by_dimension,
        {w: of_size(w, sizes[-1]) for w in widths},
        seeds,
    )


def _targets(problem: Problem) -> Integers:
    """Return the directions to be aligned last, 3 to m/3."""
    return np.unique(np.geomspace(FIRST_RANK, problem.width // FIRST_RANK, TARGETS).round().astype(np.int64))


def _unit(problem: Problem) -> float:
    """Return ln(d/m)/4, the time of alignment times a_j."""
    return float(np.log(problem.dimension / problem.width)) / 4.0


def _curve_times(problem: Problem) -> SaveAt:
    """Return times from well before the first alignment to beyond the window of the power law."""
    low, high = power_window(problem.teacher, problem.width, problem.dimension)
    return SaveAt.geometric(0.05 * low, LATER * high, TIMES)


def _losses(answers: Sequence[xr.Dataset], measured: str = "loss") -> Iterator[Array]:
    """Return losses as measured, and of directions that align alone, (starts, times)."""
    return (np.stack([one[name].values for one in answers]) for name in (measured, "sigmoid_loss"))
