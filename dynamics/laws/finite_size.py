"""Study of the finite-size bias: the exponent of the loss in time against the number of directions.

L ∝ t^((1−2β)/β) holds for P → ∞. At a finite P the sum over the directions to come ends, which makes the law steeper,
the more so the nearer β is to ½; random starts, the lag of the norms and the decay within each pair add to it. Nothing
is stepped in time.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics.commands.studies import duration, study_function
from dynamics.laws.scaling_laws import SOURCES, loss_against_time
from dynamics.laws.study import PreparedStudy, checked_starts, common_times, solve_family
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import checked_increasing, checked_integer, checked_list, checked_number, require
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS, ideal_exponent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

WIDTH_FACTOR, TIMES = 3, 150
#: Seconds of a pair, and of a pair at one time, on two cores.
PAIR_SECONDS, PAIR_TIME_SECONDS = 2e-6, 1.5e-8


@dataclass(frozen=True)
class FiniteSize(PreparedStudy):
    """The study, prepared: the problems of every β and P, of which the smallest stands for all in the dataset."""

    answer = "finite-size"
    title = "Exponent of the loss in time against the number of directions"

    problems: dict[tuple[float, int], list[Problem]]

    def work(self) -> str:
        """Return the expected work and time, in words."""
        pairs = sum(one.num_directions for starts in self.problems.values() for one in starts)
        seconds = pairs * (PAIR_SECONDS + TIMES * PAIR_TIME_SECONDS)
        return f"{pairs:.2g} matched pairs at {TIMES} times, without time stepping: about {duration(seconds)}."

    def run(self) -> xr.Dataset:
        """Solve all problems and fit each size; the rest after an interruption is NaN."""
        betas, sizes = self.settings["betas"], self.settings["sizes"]
        exponent, error = np.full((2, len(betas), len(sizes), len(SOURCES)), np.nan)
        reason, started = "reached_end", clock.perf_counter()
        for (beta, count), starts in self.problems.items():
            shared = common_times(starts[:1], TIMES)
            answers = solve_family([(one, shared) for one in starts], progress=self.progress)
            if answers.stop_reason == "interrupted":
                reason = "interrupted"
                break
            law, at = loss_against_time(answers.datasets), (betas.index(beta), sizes.index(count))
            fits = (law.fit, law.finite_size, ideal_exponent(count, beta, "loss-time"))
            exponent[at] = [*(fit.exponent for fit in fits), law.asymptotic]
            error[at] = [*(fit.standard_error for fit in fits), 0.0]
        where = ("beta", "num_directions")
        return self.dataset(
            {"exponent": (where, exponent), "exponent_error": (where, error)},
            {"beta": betas, "num_directions": sizes, "source": np.array(SOURCES)},
            stop_reason=reason,
            wall_seconds=clock.perf_counter() - started,
            dimension=self.problem.dimension,
            starts=self.settings["starts"],
        )


@study_function
def finite_size(
    *,
    information_exponent: int = 4,
    betas: Sequence[float] = (0.8, 1.0, 1.5),
    sizes: Sequence[int] = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576),
    dimension: int = 16777216,
    starts: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> FiniteSize:
    r"""Fit L ∝ t^x at a growing number of directions P, to see how x nears (1−2β)/β.

    Parameters
    ----------
    information_exponent, betas : int, sequence of float
        k ≥ 3 of the link h_k, and decays β > ½.
    sizes : sequence of int
        Numbers of directions P ≥ 16, increasing; m = 3 P neurons learn each.
    dimension : int
        d, at least the largest P.
    starts, seed : int
        Random starts of every size, and the seed of the first.

    Returns
    -------
    Dataset
        `exponent` and `exponent_error` (beta, num_directions, source), of the loss of all matched pairs ("measured"),
        of the sum formula, of the idealised sum (`dynamics.theory.asymptotics`), and asymptotic.
    """
    k = checked_integer(information_exponent, "information_exponent", minimum=3)
    decays = [checked_number(beta, "betas", positive=True) for beta in checked_list(betas, "betas")]
    for beta in decays:
        need = f"Argument `betas` must be above 1/2, or the loss follows no power law, but holds {beta}."
        require(beta > 0.5, need)
    counts = checked_increasing(sizes, "sizes", minimum=FEWEST_DIRECTIONS, fewest=1)
    d, seeds = checked_integer(dimension, "dimension", minimum=counts[-1]), checked_starts(starts, seed)
    problems = {}
    for count in counts:
        for beta in decays:
            teacher, m = Teacher.power_law(count, beta), WIDTH_FACTOR * count
            first = Problem(activation=f"he{k}", teacher=teacher, width=m, dimension=d)
            problems[beta, count] = [replace(first, seed=one) for one in seeds]
    settings = {"betas": decays, "sizes": counts, "starts": len(seeds)}
    return FiniteSize(settings, next(iter(problems.values()))[0], progress, problems)
