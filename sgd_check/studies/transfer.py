r"""Study of the step size's transfer between widths under online SGD: loss after so many samples over steps and widths.

The sibling of `dynamics.laws.transfer`, whose runs see no noise: there the best step is the stability edge, here it is
where noise and speed balance. This is the family of runs; what is read off them is `dynamics.theory.fits`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dynamics.commands import study_function
from dynamics.laws import checked_problem, checked_widths, transfer_results
from dynamics.problem import MOST_RUNS, checked_integer
from dynamics.theory import learning_rate_limit
from sgd_check.studies.sgd_study import SgdStudy, seconds_of, simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from hermite.arrays import Array

#: Step sizes in units of the limit of stability.
SHARES = (0.12, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)


@dataclass(frozen=True)
class SgdTransfer(SgdStudy):
    """The study, prepared: settings are checked, no step is taken yet."""

    answer = "transfer"
    title = "Loss after so many samples of online SGD over step sizes and widths"

    widths: list[int]
    limit: float

    @property
    def rates(self) -> Array:
        """Step sizes of every width."""
        return self.limit * np.array(SHARES)

    @property
    def runs(self) -> int:
        """Number of runs of each width and step size."""
        return int(self.settings["starts"] * self.settings["seeds"])

    @property
    def steps(self) -> float:
        """Number of steps of all runs together, if none blows up."""
        return float(len(self.widths) * len(SHARES) * self.runs * self.settings["samples"])

    def expected_seconds(self) -> float:
        """Return about how many seconds the runs take on this machine."""
        steps, seeds = self.steps / len(self.widths), self.settings["seeds"]
        return sum(seconds_of(replace(self.problem, width=m), seeds, steps) for m in self.widths)

    def run(self) -> xr.Dataset:
        """Take the steps; the rest after an interruption is NaN."""
        loss = np.full((len(self.widths), len(SHARES), self.runs), np.nan)
        with self.stepping() as meter:
            for at in np.ndindex(loss.shape[0], loss.shape[1], self.settings["starts"]):
                found = self._final_losses(*at)
                loss[at[0], at[1], at[2] * found.size : (at[2] + 1) * found.size] = found
                meter.add(found.size * self.settings["samples"])
        values, attributes = transfer_results(self.problem, self.widths, self.rates, loss)
        return self.results(
            meter,
            values,
            {"width": np.array(self.widths), "learning_rate": self.rates, "run": np.arange(self.runs)},
            learning_rate_limit=self.limit,
            method="online SGD, projected engine",
            **self.settings,
            **attributes,
        )

    def _final_losses(self, width: int, rate: int, start: int) -> Array:
        """Return the loss of the runs of one start, inf after a blow-up; no two runs of one width share samples."""
        steps = self.settings["samples"]
        runs = simulated(
            replace(self.problem, width=self.widths[width], seed=self.settings["seed"] + start),
            learning_rate=float(self.rates[rate]),
            steps=steps,
            seeds=self.seeds_of(rate * self.settings["starts"] + start),
            records=[steps],
        )
        ends = runs["loss"].values[:, -1]
        return np.where(runs["blown_up"].values | ~np.isfinite(ends), np.inf, ends)


@study_function
def sgd_transfer(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 8,
    dimension: int = 48,
    widths: Sequence[int] = (2, 4, 8, 16, 32),
    samples: int = 100_000,
    starts: int = 6,
    seeds: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdTransfer:
    """Measure the loss of online SGD after a fixed number of samples over step sizes and widths.

    Parameters
    ----------
    information_exponent : int
        k ≥ 3; the link is h_k.
    beta : float
        Decay β of the teacher's coefficients.
    directions, dimension : int
        P ≥ 2, and d above P and the largest width together.
    widths : sequence of int
        At least four, increasing.
    samples : int
        Samples of every run, one a step, whatever its step size.
    starts, seeds : int
        Random starts of every width, and runs of each.
    seed : int
        First seed of both.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal or a notebook.

    Returns
    -------
    Dataset
        The variables of `dynamics.laws.transfer.transfer_study`.  Attribute `learning_rate_limit` instead of `edge`.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Notes
    -----
    Runs of one start are resampled apart from each other, as if each had its own start, so that errors are somewhat too
    small where the scatter over starts rules.
    """
    chosen = checked_widths(widths)
    # The projected engine draws in the axes of teacher and neurons, and one more.
    problem = checked_problem(
        information_exponent, beta, directions, dimension, widest=chosen[-1], seed=seed, room=chosen[-1] + 1
    )
    settings = {
        "samples": checked_integer(samples, "samples", minimum=1),
        "starts": checked_integer(starts, "starts", minimum=1, maximum=MOST_RUNS),
        "seeds": checked_integer(seeds, "seeds", minimum=1, maximum=MOST_RUNS),
        "seed": problem.seed,
    }
    return SgdTransfer(settings, problem, progress, chosen, float(learning_rate_limit(problem)))
