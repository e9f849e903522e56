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
from dynamics.laws.families import check_coupled, checked_problem, common_times, solve_family
from dynamics.laws.law_variables import law_coordinates, law_values
from dynamics.laws.laws_across_problems import frontier_laws
from dynamics.problem import Problem
from dynamics.problem.checks import MOST_RUNS, checked_increasing, checked_integer, checked_number
from dynamics.runs.dataset import study_dataset
from dynamics.theory.asymptotics import FEWEST_DIRECTIONS
from dynamics.theory.learning_rates import descent_limit, warn_descent_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.laws.laws_of_a_problem import ScalingLaw
    from dynamics.problem.schedule import SaveAt

EXPONENT, BETA, DIRECTIONS, DIMENSION = 4, 0.8, 1024, 2048
WIDTHS = tuple(2**power for power in range(4, 12))
LEARNING_RATE, STARTS, LARGEST_WIDTH = 0.1, 4, 256
TIMES = 300
ROUTES = ("coupled flow", "matched pairs", "sum formula")
FEWEST_WIDTHS = 3


@dataclass(frozen=True)
class Frontier:
    """The study with its settings checked, before anything is solved."""

    settings: dict[str, Any]
    problem: Problem
    widths: list[int]
    seeds: range
    progress: bool | None

    def problems(self, widths: Sequence[int], seeds: Sequence[int]) -> list[Problem]:
        """Return the problems of some widths and starts, the narrow ones first."""
        return [replace(self.problem, width=m, seed=seed) for m in widths for seed in seeds]

    @property
    def coupled_widths(self) -> list[int]:
        """Widths that the coupled flow is solved for."""
        return [m for m in self.widths if self.settings["coupled"] and m <= self.settings["largest_width"]]

    def work(self) -> str:
        """Return what will be done, in words."""
        pairs = sum(min(m, self.problem.num_directions) for m in self.widths) * len(self.seeds)
        text = f"{len(self.widths)} widths of {len(self.seeds)} starts by matched pairs: {pairs:.2g} pairs, seconds."
        if self.coupled_widths:
            seconds = sum(map(_coupled_seconds, self.coupled_widths))
            text += f" Coupled flow of {len(self.coupled_widths)} widths: about {duration(seconds)} on two cores."
        return text

    def run(self) -> xr.Dataset:
        """Solve all widths; an interrupted coupled flow is left out, and so are widths after it."""
        started = clock.perf_counter()
        save_at = common_times(self.problems(self.widths, self.seeds[:1]), TIMES)
        pairs = solve_family([(one, save_at) for one in self.problems(self.widths, self.seeds)], progress=self.progress)
        if pairs.stop_reason == "interrupted":
            raise KeyboardInterrupt
        rate = self.settings["learning_rate"]
        laws = list(frontier_laws(pairs.datasets, rate))
        pair_seconds = clock.perf_counter() - started
        widest = [(one, save_at) for one in self.problems(self.coupled_widths, self.seeds[:1])]
        flows = solve_family(widest, coupled=True, progress=self.progress)
        if len(flows.datasets) >= FEWEST_WIDTHS:
            laws += [replace(law, name=f"{law.name}, coupled") for law in frontier_laws(flows.datasets, rate)]
        return self._labelled(
            laws,
            save_at,
            pairs.datasets[:: len(self.seeds)],
            flows.datasets,
            flows.seconds,
            {
                "stop_reason": flows.stop_reason,
                "pair_seconds": pair_seconds,
                "wall_seconds": clock.perf_counter() - started,
            },
        )

    def _labelled(
        self,
        laws: list[ScalingLaw],
        save_at: SaveAt,
        pairs: list[xr.Dataset],
        flows: list[xr.Dataset],
        seconds: list[float],
        attributes: dict[str, Any],
    ) -> xr.Dataset:
        """Return the dataset; loss curves are those of the first start."""
        loss = np.full((len(ROUTES), len(self.widths), len(save_at)), np.nan)
        for at, one in enumerate(pairs):
            loss[1, at], loss[2, at] = one["loss"], one["predicted_loss"]
        for at, one in enumerate(flows):
            loss[0, at] = one["loss"]
        spent = np.full(len(self.widths), np.nan)
        spent[: len(seconds)] = seconds
        return study_dataset(
            self.problem,
            law_values(laws, self.problem) | {"loss": (("curve_of", "width"), loss), "solve_time": (("width",), spent)},
            title="Loss against compute over widths",
            coords={
                **law_coordinates(laws),
                "width": np.array(self.widths),
                "time": save_at.times,
                "curve_of": np.array(ROUTES),
            },
            settings={"answer": "compute-frontier", **self.settings},
            attributes={"answer": "compute-frontier", "beta": self.problem.teacher.beta, **self.settings, **attributes},
        )


@study_function
def compute_frontier(
    *,
    information_exponent: int = EXPONENT,
    beta: float = BETA,
    directions: int = DIRECTIONS,
    dimension: int = DIMENSION,
    widths: Sequence[int] = WIDTHS,
    learning_rate: float = LEARNING_RATE,
    starts: int = STARTS,
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
    information_exponent : int
        k ≥ 3; the link is h_k.
    beta : float
        β; exponents exist for β > ½.
    directions, dimension : int
        P ≥ 16 and d ≥ P.
    widths : sequence of int
        At least three, increasing.
    learning_rate : float
        Step η of population gradient descent, which is taken as its flow: it only scales compute.
    starts : int
        Random starts of every width, for matched pairs and the sum formula.
    seed : int
        Seed of the first start.
    coupled : bool
        Integrate the exact coupled flow of the first start too.
    largest_width : int, optional
        Largest width of the coupled flow, by default 256.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.

    Returns
    -------
    Dataset
        `loss` (curve_of, width, time) of the first start, `exponent` (law, source) with `exponent_error`, the points of
        the frontiers as `abscissa` and `ordinate`, and `solve_time` (width), the seconds of each coupled flow.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.
    """
    chosen = checked_increasing(widths, "widths", minimum=1, fewest=FEWEST_WIDTHS)
    check_coupled(coupled, largest_width=largest_width)
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed, fewest=FEWEST_DIRECTIONS
    )
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    limit = descent_limit(problem)
    warn_descent_limit(rate, limit)
    settings: dict[str, Any] = {
        "learning_rate": rate,
        "descent_limit": limit,
        "starts": checked_integer(starts, "starts", minimum=1, maximum=MOST_RUNS),
        "coupled": coupled,
        "largest_width": checked_integer(
            LARGEST_WIDTH if largest_width is None else largest_width, "largest_width", minimum=1
        ),
    }
    return Frontier(settings, problem, chosen, range(problem.seed, problem.seed + settings["starts"]), progress)


def _coupled_seconds(width: int) -> float:
    """Return about how long the coupled flow of a width takes at the default size, on two cores."""
    return float(1.5 * max(width / 16.0, 1.0) ** 1.45)
