"""Study of all scaling laws of one teacher: loss in time, samples, width and compute, emergence times in p and d.

Each law as measured on the answers of several random starts, beside the sum formula for the same starts, the idealised
sum at this P, and the asymptotic exponent. The answers are those of matched pairs, without time stepping, or of the
exact coupled flow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynamics.commands.studies import duration, study_function
from dynamics.laws.scaling_laws import (
    frontier_laws,
    law_coordinates,
    law_values,
    loss_against_samples,
    loss_against_time,
    loss_against_tuned_samples,
    loss_against_width,
    middle_ranks,
    times_against_dimension,
    times_against_direction,
)
from dynamics.laws.study import (
    PreparedStudy,
    check_coupled,
    checked_problem,
    checked_starts,
    common_times,
    solve_family,
)
from dynamics.problem import Inputs, Problem, Teacher
from dynamics.problem.checks import LARGEST_INTEGER, checked_integer, checked_number
from dynamics.sweeps.workers import checked_workers
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS
from dynamics.theory.learning_rates import descent_limit

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.laws.scaling_laws import ScalingLaw
    from dynamics.laws.study import Family

#: Neurons per direction, where the width is not varied.
WIDTH_FACTOR = 3
TIMES = 400
#: Decay of the eigenvalues up to which overlaps at the start get small as the dimension grows.
STEEPEST_SPECTRUM = 1.0
#: Processor time of a pair on inputs with a spectrum, d = 2048.
PAIR_SECONDS = 0.055
#: Step size of descent in units of its limit of stability, and that of tuned steps: they change no exponent.
STEP_SHARE, TUNED_RATE = 0.25, 0.1


class Sizes(NamedTuple):
    """How large the problems of the study are."""

    #: Directions by default: of pairs, and of the coupled flow; and at most.
    directions: int
    coupled: int
    most: int
    #: Input dimensions per direction, where the dimension is not varied.
    dimension_factor: int
    #: Number of dimensions, each twice the one before, in the family over dimensions, and its directions at most.
    dimensions: int
    few: int


ISOTROPIC = Sizes(directions=1024, coupled=32, most=LARGEST_INTEGER, dimension_factor=4, dimensions=8, few=64)
#: Here pairs are integrated in time, and s_1/tr Σ is to be small.
SPECTRUM = Sizes(directions=64, coupled=16, most=256, dimension_factor=32, dimensions=6, few=16)


@dataclass(frozen=True)
class ScalingStudy(PreparedStudy):
    """The study, prepared: three families of problems with their times."""

    answer = "scaling"
    title = "Scaling laws beside the sum formula and the asymptotic exponents"

    starts: Family
    widths: Family
    dimensions: Family
    workers: int

    def work(self) -> str:
        """Return the expected work and time, in words."""
        problems = [one for family in (self.starts, self.widths, self.dimensions) for one, _ in family]
        how = "problems by matched pairs, without time stepping"
        if self.settings["coupled"]:
            how = "coupled flows"
        elif self.problem.inputs is not None:
            pairs = sum(min(one.width, one.num_directions) for one in problems)
            how = f"problems by {pairs} matched pairs, about {duration(PAIR_SECONDS * pairs)}"
        return f"{len(problems)} {how}: P = {self.problem.num_directions}, {self.settings['starts']} starts each."

    def run(self) -> xr.Dataset:
        """Solve all problems and fit the laws; an interruption keeps the laws whose families are complete."""
        laws: list[ScalingLaw] = []
        seconds, reason, coupled = 0.0, "reached_end", self.settings["coupled"]
        for family, read in ((self.starts, _of_starts), (self.widths, _of_widths), (self.dimensions, _of_dimensions)):
            answers = solve_family(family, coupled=coupled, progress=self.progress, workers=self.workers)
            seconds += sum(answers.seconds)
            if answers.stop_reason == "interrupted":
                reason = "interrupted"
                break
            laws += read(answers.datasets, self.settings["learning_rate"])
        if not laws:
            raise KeyboardInterrupt
        values, coords = law_values(laws, self.problem), law_coordinates(laws)
        return self.dataset(values, coords, stop_reason=reason, wall_seconds=seconds, **self.settings)


@study_function
def scaling_study(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    spectrum: float | None = None,
    directions: int | None = None,
    dimension: int | None = None,
    starts: int = 4,
    seed: int = 0,
    coupled: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
) -> ScalingStudy:
    r"""Measure all scaling laws of the teacher a_p ∝ p^(−β).

    .. math:: L \propto t^{(1-2\beta)/\beta},\; n^{(1-2\beta)/\beta} \text{ at a fixed step},\;
       n^{(1-2\beta)/(2\beta)} \text{ at a tuned one},\; m^{1-2\beta},\; (m\,\text{steps})^{(1-2\beta)/(1+\beta)},
       \qquad T_p \propto p^\beta d^{k/2-1}

    On inputs with eigenvalues l^(−α) all but L(m) change: times and dimensions enter by T_p ∝ p^τ d^((1−α)(k/2−1)),
    τ = β + αk/2 in place of β.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β ≥ 0; exponents of the loss exist for β > ½ only.
    spectrum : float, optional
        Decay α of the eigenvalues of the inputs' covariance, from 0 to 1; by default inputs are isotropic. Exponents
        hold for s_1/tr Σ of at most about 0.01. A pair takes about 55 ms.
    directions, dimension : int, optional
        P ≥ 16, by default 1024 (32 for the coupled flow), and d ≥ P, by default 4 P. With `spectrum` P ≤ 256, by
        default 64 (16), and d by default 32 P.
    starts, seed : int
        Random starts of every problem, and the seed of the first.
    coupled : bool
        Integrate the exact coupled flow instead of matched pairs: P = 32 takes about a minute.
    workers : int, optional
        Number of processes of the coupled flow, by default one per core. Results do not depend on it.

    Returns
    -------
    Dataset
        `exponent` and `exponent_error` (law, source), the window of each fit, and the points: `abscissa` (law, point),
        `ordinate` (law, curve, run, point).  Errors: from the scatter over starts; of one start and of the ideal sum a
        jackknife over blocks of the curve.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.
    """
    check_coupled(coupled, workers=workers)
    inputs, sizes = None, ISOTROPIC
    if spectrum is not None:
        alpha = checked_number(spectrum, "spectrum", positive=False, maximum=STEEPEST_SPECTRUM)
        inputs, sizes = Inputs.power_law(alpha), SPECTRUM
    default = sizes.coupled if coupled else sizes.directions
    given = default if directions is None else directions
    count = checked_integer(given, "directions", minimum=FEWEST_DIRECTIONS, maximum=sizes.most)
    d = sizes.dimension_factor * count if dimension is None else dimension
    widest = WIDTH_FACTOR * count
    problem = checked_problem(information_exponent, beta, count, d, widest=widest, seed=seed, inputs=inputs)
    seeds = checked_starts(starts, problem.seed)
    few = Teacher.power_law(min(count, sizes.few), beta)
    settings: dict[str, Any] = {
        "starts": len(seeds),
        "coupled": coupled,
        "learning_rate": STEP_SHARE * descent_limit(problem),
        "tuned_rate": TUNED_RATE,
    }
    processes = checked_workers(workers, alone=1) if coupled else 1  # matched pairs use all cores by themselves
    return ScalingStudy(settings, problem, progress, *_families(problem, few, seeds, sizes), processes)


def _families(problem: Problem, few: Teacher, seeds: range, sizes: Sizes) -> tuple[Family, Family, Family]:
    """Return three families: the problem, the same at widths from P^0.25/2 to P, and `few` at growing dimensions."""
    count, few_count = problem.num_directions, few.num_directions
    begin, _ = middle_ranks(count)
    widths = np.unique(np.rint(begin * 2.0 ** np.arange(-1.0, np.log2(count / begin) + 0.25, 0.5)).astype(int)).tolist()
    smallest = sizes.dimension_factor // 2 * few_count
    fewer = replace(problem, teacher=few, width=WIDTH_FACTOR * few_count, dimension=smallest)
    starts = [replace(problem, seed=s) for s in seeds]
    wider = [replace(problem, width=m, seed=s) for s in seeds for m in widths]
    larger = [replace(fewer, dimension=2**i * smallest, seed=s) for s in seeds for i in range(sizes.dimensions)]
    # With a spectrum a prediction takes seconds: the first start stands for all, and answers choose their own times.
    known = problem.inputs is None
    shared = common_times(starts if known else starts[:1], TIMES)
    of_widths, of_dimensions = (
        [(one, common_times([one], TIMES, reach=2.0) if known else None) for one in family]
        for family in (wider, larger)
    )
    return [(one, shared) for one in starts], of_widths, of_dimensions


def _of_starts(found: list[xr.Dataset], rate: float) -> list[ScalingLaw]:
    return [
        loss_against_time(found),
        loss_against_samples(found, rate),
        loss_against_tuned_samples(found, TUNED_RATE),
        times_against_direction(found),
    ]


def _of_widths(found: list[xr.Dataset], rate: float) -> list[ScalingLaw]:
    return [loss_against_width(found), *frontier_laws(found, rate)]


def _of_dimensions(found: list[xr.Dataset], _: float) -> list[ScalingLaw]:
    return [times_against_dimension(found)]
