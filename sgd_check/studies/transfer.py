r"""Study of the step size's transfer between widths under online SGD: loss after so many samples over steps and widths.

The sibling of `dynamics.laws.transfer`, whose runs see no noise: there the best step is the stability edge, here it is
where noise and speed balance.  Responsible for the family of runs; what is read off them is `dynamics.theory.transfer`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands import study_function
from dynamics.laws import checked_problem, checked_widths, transfer_attributes, transfer_values
from dynamics.problem import MOST_RUNS, Problem, SaveAt, checked_integer
from dynamics.runs import study_dataset
from dynamics.theory import learning_rate_limit
from sgd_check.studies.work import Meter, announcement, seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

EXPONENT, BETA, DIRECTIONS, DIMENSION = 4, 1.0, 8, 48
WIDTHS, SAMPLES = (2, 4, 8, 16, 32), 100_000
STARTS, SEEDS = 6, 4
#: Step sizes in units of the limit of stability.
SHARES = (0.12, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)


@dataclass(frozen=True)
class TransferStudy:
    """The study, prepared: settings are checked, no step is taken yet."""

    settings: dict[str, Any]
    problem: Problem
    widths: list[int]
    limit: float
    progress: bool | None

    @property
    def rates(self) -> Array:
        """Step sizes of every width."""
        return self.limit * np.array(SHARES)

    @property
    def runs(self) -> int:
        """Number of runs of each width and step size."""
        return int(self.settings["starts"] * self.settings["seeds"])

    def work(self) -> str:
        """Return how long the runs should take, in words."""
        steps = float(self.settings["samples"] * self.runs * len(SHARES))
        seconds = sum(seconds_of(replace(self.problem, width=m), self.settings["seeds"], steps) for m in self.widths)
        return announcement(seconds, steps * len(self.widths))

    def run(self) -> xr.Dataset:
        """Take the steps; what an interruption leaves undone is NaN."""
        loss = np.full((len(self.widths), len(SHARES), self.runs), np.nan)
        reason = "reached_end"
        meter = Meter(float(loss.size * self.settings["samples"]), self.progress)
        with meter, warnings.catch_warnings():
            # That some steps are beyond the limit is what the study is about.
            warnings.filterwarnings("ignore", message="The learning rate", category=UserWarning)
            try:
                for at in np.ndindex(loss.shape[0], loss.shape[1], self.settings["starts"]):
                    found = self._final_losses(*at)
                    if found is None:
                        reason = "interrupted"
                        break
                    loss[at[0], at[1], at[2] * found.size : (at[2] + 1) * found.size] = found
                    meter.add(found.size * self.settings["samples"])
            except KeyboardInterrupt:
                reason = "interrupted"
        return study_dataset(
            self.problem,
            transfer_values(self.problem, self.widths, self.rates, loss),
            title="Loss after so many samples of online SGD over step sizes and widths",
            coords={"width": np.array(self.widths), "learning_rate": self.rates, "run": np.arange(self.runs)},
            settings={"answer": "transfer", **self.settings},
            attributes={
                "answer": "transfer",
                "stop_reason": reason,
                "wall_seconds": meter.seconds,
                "learning_rate_limit": self.limit,
                "method": "online SGD, projected engine",
                **self.settings,
                **transfer_attributes(self.problem, self.widths, self.rates, loss),
            },
        )

    def _final_losses(self, width: int, rate: int, start: int) -> Array | None:
        """Return the loss of the runs of one start, inf after a blow-up; None if they were interrupted."""
        import sgd_check

        eta, count = float(self.rates[rate]), self.settings["seeds"]
        # No two runs of one width share samples.
        first = self.settings["seed"] + (rate * self.settings["starts"] + start) * count
        runs = sgd_check.simulate(
            replace(self.problem, width=self.widths[width], seed=self.settings["seed"] + start),
            learning_rate=eta,
            steps=self.settings["samples"],
            seeds=range(first, first + count),
            save_at=SaveAt.at([eta * self.settings["samples"]]),
            progress=False,
        )
        if runs.attrs["stop_reason"] == "interrupted":
            return None
        ends = runs["loss"].values[:, -1]
        return np.where(runs["blown_up"].values | ~np.isfinite(ends), np.inf, ends)


@study_function
def sgd_transfer(
    *,
    information_exponent: int = EXPONENT,
    beta: float = BETA,
    directions: int = DIRECTIONS,
    dimension: int = DIMENSION,
    widths: Sequence[int] = WIDTHS,
    samples: int = SAMPLES,
    starts: int = STARTS,
    seeds: int = SEEDS,
    seed: int = 0,
    progress: bool | None = None,
) -> TransferStudy:
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
        Show a bar on stderr; by default if it is a terminal.

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
    return TransferStudy(settings, problem, chosen, float(learning_rate_limit(problem)), progress)
