"""Study of the compute frontier: loss against compute m · steps over widths, the experiment of arXiv:2504.19983.

Population gradient descent with a fixed step is taken as its flow, t = η · step. Two routes: all matched pairs and the
sum formula, without time stepping, and the exact coupled flow up to a width.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands.studies import duration, study_function
from dynamics.laws.scaling_laws import frontier_laws, law_coordinates, law_values
from dynamics.laws.study import (
    PreparedStudy,
    check_coupled,
    checked_problem,
    checked_starts,
    common_times,
    solve_family,
)
from dynamics.problem.checks import checked_increasing, checked_integer, checked_number
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS
from dynamics.theory.learning_rates import descent_limit, warn_descent_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.laws.study import Family
    from dynamics.problem.schedule import SaveAt

LARGEST_WIDTH, TIMES = 256, 300
ROUTES = ("coupled flow", "matched pairs", "sum formula")
FEWEST_WIDTHS = 3


@dataclass(frozen=True)
class Frontier(PreparedStudy):
    """The study, prepared: `problem` is of the largest width and the first start."""

    answer = "compute-frontier"
    title = "Loss against compute over widths"

    widths: list[int]
    seeds: range

    def _family(self, widths: Sequence[int], seeds: Sequence[int], save_at: SaveAt | None) -> Family:
        """Return the problems of some widths and starts, the narrow ones first, with their times."""
        return [(replace(self.problem, width=m, seed=seed), save_at) for m in widths for seed in seeds]

    @property
    def coupled_widths(self) -> list[int]:
        """Widths that the coupled flow is solved for."""
        return [m for m in self.widths if self.settings["coupled"] and m <= self.settings["largest_width"]]

    def work(self) -> str:
        """Return the expected work and time, in words."""
        pairs = sum(min(m, self.problem.num_directions) for m in self.widths) * len(self.seeds)
        text = f"{len(self.widths)} widths of {len(self.seeds)} starts by matched pairs: {pairs:.2g} pairs, seconds."
        if self.coupled_widths:
            seconds = sum(1.5 * max(m / 16.0, 1.0) ** 1.45 for m in self.coupled_widths)
            text += f" Coupled flow of {len(self.coupled_widths)} widths: about {duration(seconds)} on two cores."
        return text

    def run(self) -> xr.Dataset:
        """Solve all widths; an interrupted coupled flow is left out, and so are widths after it."""
        started, rate, first = clock.perf_counter(), self.settings["learning_rate"], self.seeds[:1]
        save_at = common_times([one for one, _ in self._family(self.widths, first, None)], TIMES)
        pairs = solve_family(self._family(self.widths, self.seeds, save_at), progress=self.progress)
        if pairs.stop_reason == "interrupted":
            raise KeyboardInterrupt
        laws = list(frontier_laws(pairs.datasets, rate))
        pair_seconds = clock.perf_counter() - started
        flows = solve_family(self._family(self.coupled_widths, first, save_at), coupled=True, progress=self.progress)
        if len(flows.datasets) >= FEWEST_WIDTHS:
            laws += [replace(law, name=f"{law.name}, coupled") for law in frontier_laws(flows.datasets, rate)]
        # Loss curves are those of the first start.
        loss = np.full((len(ROUTES), len(self.widths), len(save_at)), np.nan)
        for at, one in enumerate(pairs.datasets[:: len(self.seeds)]):
            loss[1, at], loss[2, at] = one["loss"], one["predicted_loss"]
        spent = np.full(len(self.widths), np.nan)
        for at, one in enumerate(flows.datasets):
            loss[0, at], spent[at] = one["loss"], flows.seconds[at]
        own = {"width": np.array(self.widths), "time": save_at.times, "curve_of": np.array(ROUTES)}
        return self.dataset(
            law_values(laws, self.problem) | {"loss": (("curve_of", "width"), loss), "solve_time": (("width",), spent)},
            law_coordinates(laws) | own,
            beta=self.problem.teacher.beta,
            **self.settings,
            stop_reason=flows.stop_reason,
            pair_seconds=pair_seconds,
            wall_seconds=clock.perf_counter() - started,
        )


@study_function
def compute_frontier(
    *,
    information_exponent: int = 4,
    beta: float = 0.8,
    directions: int = 1024,
    dimension: int = 2048,
    widths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    learning_rate: float = 0.1,
    starts: int = 4,
    seed: int = 0,
    coupled: bool = False,
    largest_width: int | None = None,
    progress: bool | None = None,
) -> Frontier:
    r"""Measure loss against compute over widths, and its frontier.

    .. math:: L^*(c) = \min_m L_m(\eta c / m) \propto c^{(1-2\beta)/(1+\beta)}, \qquad m^*(c) \propto c^{1/(1+\beta)}

    asymptotically, with c = m · steps and t = η · step.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β; exponents exist for β > ½.
    directions, dimension, widths : int, int, sequence of int
        P ≥ 16, d ≥ P, and at least three increasing widths m.
    learning_rate : float
        Step η of population gradient descent, which is taken as its flow: it only scales compute.
    starts, seed : int
        Random starts of every width, for matched pairs and the sum formula, and the seed of the first.
    coupled, largest_width : bool, int, optional
        Integrate the exact coupled flow of the first start too, up to this width, by default 256.

    Returns
    -------
    Dataset
        `loss` (curve_of, width, time) of the first start, `exponent` (law, source) with `exponent_error`, the points of
        the frontiers as `abscissa` and `ordinate`, and `solve_time` (width), the seconds of each coupled flow.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.
    """
    chosen = checked_increasing(widths, "widths", minimum=1, fewest=FEWEST_WIDTHS)
    check_coupled(coupled, largest_width=largest_width)
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed, fewest=FEWEST_DIRECTIONS
    )
    seeds = checked_starts(starts, problem.seed)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    limit = descent_limit(problem)
    warn_descent_limit(rate, limit)
    largest = LARGEST_WIDTH if largest_width is None else largest_width
    settings: dict[str, Any] = {
        "learning_rate": rate,
        "descent_limit": limit,
        "starts": len(seeds),
        "coupled": coupled,
        "largest_width": checked_integer(largest, "largest_width", minimum=1),
    }
    return Frontier(settings, problem, progress, chosen, seeds)
