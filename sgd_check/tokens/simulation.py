"""Runs of the full model on sampled tokens, all seeds at once, half of them at four times the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import torch
except ModuleNotFoundError as missing:
    reason = 'Models of tokens need an extra package: pip install "feature-emergence[torch]".'
    raise ImportError(reason) from missing

from dynamics.problem import MOST_RUNS, check_choice, check_question, check_switch, checked_integer, checked_number
from dynamics.runs import as_run_file, make_dataset
from dynamics.tokens import KINDS, TOKEN_VARIABLES, system_of
from hermite.text.messages import shown
from sgd_check.runs.plan import Plan
from sgd_check.runs.simulation import checked_budget
from sgd_check.runs.stepping import Reached, run_with_file
from sgd_check.tokens.model import model_class
from sgd_check.tokens.runs import Records, TokenRuns

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.runs import RunFile
    from dynamics.tokens import TokenProblem
    from hermite.arrays import Array

#: Looks at a run, each of which measures loss and progress; times of learning are found between two looks.
LOOKS = 800
#: Batches of the second half of the seeds are larger by this.
BATCH_FACTOR = 4


def simulate(
    problem: TokenProblem,
    *,
    learning_rate: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    seeds: int = 8,
    first_seed: int = 0,
    device: str = "auto",
    progress: bool | None = None,
    max_runtime: float | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Train the full model of a problem by stochastic gradient descent, with autograd on sampled tokens.

    .. math:: \theta \leftarrow \theta - \eta\, \nabla \frac1B \sum_{b=1}^B \ell(\theta; x_b), \qquad t = \eta\,
       \mathrm{step}

    Nothing of the reduction is used. The first half of the seeds has batches of B, the second of 4 B, so that the
    effect of the batch is seen and `compare` can take it away.

    Parameters
    ----------
    problem : TokenProblem
        Such as `dynamics.tokens.Composition`.
    learning_rate : float
        η > 0, dimensionless, per unit of the loss as the problem defines it.
    steps : int
        Both are absent for an associative memory with Gaussian embeddings, of which one step is taken in every draw.
    batch_size : int, optional
        B, of the first half of the seeds. Default: 4, and for an associative memory the whole population.
    seeds : int
        Even number of runs, at least 4; their seeds are `first_seed` and those after it.
    first_seed : int
    device : {"auto", "cpu", "cuda"}
        By default the GPU if there is one.
    progress : bool, optional
        Progress bar on stderr; by default if that is a terminal.
    max_runtime : float, optional
        Wall-clock budget in seconds; what was computed until then is kept.
    checkpoint : path or RunFile, optional
        File that holds the result in the end and, every 30 seconds until then, what was computed. `sgd_check.resume`
        goes on from it if the runs end early, with the values, bit for bit, of runs that were never stopped.

    Returns
    -------
    Dataset
        `loss(seed, time)`, `progress(seed, time, component)`, `learned_time(seed, component)`, the time between two
        looks at which progress passes ½ (NaN: not until the end), and `run_batch_size(seed)` (0: the population).
        Dimensionless. Records that were not reached are NaN; `stop_reason` is "reached_end", "interrupted",
        "max_runtime" or "blown_up" (no run is finite any more). Of Gaussian embeddings
        `recovery(seed, rank)` and `recovered_count(seed)`.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before any work.
    """
    check_question(problem, KINDS)
    _checked_device(device)
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    if getattr(problem, "embeddings", None) == "gaussian":
        absent = {
            "learning_rate": learning_rate,
            "steps": steps,
            "batch_size": batch_size,
            "max_runtime": max_runtime,
            "checkpoint": checkpoint,
        }
        return _one_step(problem, absent, seeds, first_seed, device)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    count = checked_integer(steps, "steps", minimum=1)
    batch_size = model_class(problem).default_batch if batch_size is None else batch_size
    size = None if batch_size is None else checked_integer(batch_size, "batch_size", minimum=1)
    runs = checked_integer(seeds, "seeds", minimum=4, maximum=MOST_RUNS)
    first = checked_integer(first_seed, "first_seed", minimum=0, maximum=2**62)
    if runs % 2:
        msg = f"Argument `seeds` must be even, since half of the runs have larger batches, but is {runs}."
        raise ValueError(msg)
    check_switch("progress", progress, optional=True)
    looks = np.unique(np.linspace(0, count, min(LOOKS, count) + 1).round()).astype(np.int64)
    training = Training(problem, Plan(count, rate, looks, looks), size, range(first, first + runs), device)
    return training.run(file, budget=budget, progress=progress)


@dataclass(frozen=True)
class Training:
    """Runs that are checked and planned."""

    problem: TokenProblem
    plan: Plan
    #: Of the first half of the seeds; None: the whole population.
    batch_size: int | None
    seeds: range
    #: As asked.
    device: str

    def run(self, file: RunFile, *, budget: float, progress: bool | None) -> xr.Dataset:
        """Take the steps, from where the file says if it does, and return the dataset, which the file then holds."""
        half, size = len(self.seeds) // 2, self.batch_size
        sizes = [size, None if size is None else BATCH_FACTOR * size]
        parts = list(zip((self.seeds[:half], self.seeds[half:]), sizes, strict=True))
        chosen, components = _checked_device(self.device), system_of(self.problem).components
        records = Records(len(self.seeds), self.plan.looked_at.tolist(), len(components))
        attributes = {"device": str(chosen), "theory": "tokens"}

        def labelled(reached: Reached, reason: str) -> xr.Dataset:
            ended = {"stop_reason": reason, "wall_seconds": reached.seconds}
            found = {"loss": records.loss, "progress": records.progress}
            return self._labelled(found, sizes, components, attributes | ended)

        engine = TokenRuns(self.problem, parts, chosen)
        options: Any = {"budget": budget, "progress": progress}
        return run_with_file(engine, self.plan, records, file, labelled, **options)

    def _labelled(
        self,
        found: Mapping[str, Array],
        sizes: Sequence[int | None],
        components: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> xr.Dataset:
        """Return what was recorded until now as a dataset."""
        time, rate = self.plan.times(self.plan.recorded), self.plan.peak_rate
        settings = {"learning_rate": rate, "steps": self.plan.steps, "batch_size": self.batch_size}
        return make_dataset(
            {
                **found,
                "learned_time": _passed(found["progress"], time),
                "run_batch_size": np.repeat([each or 0 for each in sizes], len(self.seeds) // 2),
            },
            problem=self.problem,
            title=f"Stochastic gradient descent on tokens: {self.problem.kind}",
            coords={"time": time, "seed": list(self.seeds), "component": list(components)},
            solver={
                "answer": "simulation",
                **settings,
                **{"seeds": len(self.seeds), "first_seed": self.seeds[0], "device": self.device},
            },
            attributes={"answer": "simulation", "learning_rate": rate, "batch_size": self.batch_size, **attributes},
            leading=("seed",),
            with_leading=("loss", "progress", "learned_time"),
            variables=TOKEN_VARIABLES,
        )


def _checked_device(device: str) -> torch.device:
    check_choice("device", device, ("auto", "cpu", "cuda"))
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


def _one_step(problem: Any, absent: Mapping[str, object], seeds: int, first_seed: int, device: str) -> xr.Dataset:
    """Return draws of Gaussian embeddings; refuse arguments about time."""
    from sgd_check.tokens.recovery import draw_recovery

    for name, given in absent.items():
        if given is not None:
            msg = f"Argument `{name}` must be None for Gaussian embeddings, which are one step, but is {shown(given)}."
            raise ValueError(msg)
    runs = checked_integer(seeds, "seeds", minimum=4, maximum=MOST_RUNS)
    first = checked_integer(first_seed, "first_seed", minimum=0, maximum=2**62)
    return draw_recovery(problem, range(first, first + runs), _checked_device(device))


def _passed(progress: Array, time: Array) -> Array:
    """Return the first time at which progress (seeds, looks, components) is ½, linear between looks."""
    found = np.full((progress.shape[0], progress.shape[2]), np.nan)
    for seed, component in np.ndindex(*found.shape):
        values = progress[seed, :, component]
        at = int(np.argmax(values >= 0.5))
        if values[at] >= 0.5:
            low = max(at - 1, 0)
            rise = values[at] - values[low]
            found[seed, component] = time[at] - (time[at] - time[low]) * ((values[at] - 0.5) / rise if rise > 0 else 0)
    return found
