"""Runs of the full model on sampled tokens, all seeds at once, half of them at four times the batch.

Of an associative memory with Gaussian embeddings one step is drawn per seed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

try:
    import torch
except ModuleNotFoundError as missing:
    reason = 'Models of tokens need an extra package: pip install "feature-emergence[torch]".'
    raise ImportError(reason) from missing

from dynamics.problem import MOST_RUNS, check_choice, check_question, check_switch, checked_integer, checked_number
from dynamics.runs import as_run_file, make_dataset
from dynamics.tokens import KINDS, TOKEN_VARIABLES, rank_bins, system_of
from hermite.text.messages import shown
from sgd_check.engines.seeded_runs import check_shapes
from sgd_check.runs.plan import Plan
from sgd_check.runs.simulation import checked_budget
from sgd_check.runs.stepping import Reached, run_with_file
from sgd_check.tokens.models import MODELS, Model, model_of, smooth_signs

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.runs import RunFile
    from dynamics.tokens import AssociativeMemory, TokenProblem
    from hermite.arrays import Array

#: Looks at a run, each of which measures loss and progress; times of learning are found between two looks.
LOOKS = 800
#: Batches of the second half of the seeds are larger by this.
BATCH_FACTOR = 4
#: Inputs that are drawn at once, and scores that are held at once.
DRAWN_AT_ONCE, SCORES_AT_ONCE = 4096, 2**24


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
    chosen = _checked_device(device)
    budget, file = checked_budget(max_runtime), as_run_file(checkpoint)
    if getattr(problem, "embeddings", None) == "gaussian":
        given = {"learning_rate": learning_rate, "steps": steps, "batch_size": batch_size}
        for name, value in {**given, "max_runtime": max_runtime, "checkpoint": checkpoint}.items():
            if value is not None:
                need = "must be None for Gaussian embeddings, which are one step"
                msg = f"Argument `{name}` {need}, but is {shown(value)}."
                raise ValueError(msg)
        return draw_recovery(cast("AssociativeMemory", problem), _checked_seeds(seeds, first_seed), chosen)
    rate = checked_number(learning_rate, "learning_rate", positive=True)
    count = checked_integer(steps, "steps", minimum=1)
    batch_size = MODELS[problem.kind].default_batch if batch_size is None else batch_size
    size = None if batch_size is None else checked_integer(batch_size, "batch_size", minimum=1)
    runs = _checked_seeds(seeds, first_seed)
    if len(runs) % 2:
        msg = f"Argument `seeds` must be even, since half of the runs have larger batches, but is {len(runs)}."
        raise ValueError(msg)
    check_switch("progress", progress, optional=True)
    looks = np.unique(np.linspace(0, count, min(LOOKS, count) + 1).round()).astype(np.int64)
    plan, half, components = Plan(count, rate, looks, looks), len(runs) // 2, system_of(problem).components
    sizes = [size, None if size is None else BATCH_FACTOR * size]
    engine = TokenRuns(problem, list(zip((runs[:half], runs[half:]), sizes, strict=True)), chosen)
    records, time = Records(len(runs), looks.tolist(), len(components)), plan.times(plan.recorded)

    def labelled(reached: Reached, reason: str) -> xr.Dataset:
        shared = {"answer": "simulation", "learning_rate": rate, "batch_size": size}
        return make_dataset(
            {
                "loss": records.loss,
                "progress": records.progress,
                "learned_time": _passed(records.progress, time),
                "run_batch_size": np.repeat([each or 0 for each in sizes], half),
            },
            problem=problem,
            title=f"Stochastic gradient descent on tokens: {problem.kind}",
            coords={"time": time, "seed": list(runs), "component": list(components)},
            solver={
                **{"answer": "simulation", "learning_rate": rate, "steps": count, "batch_size": size},
                **{"seeds": len(runs), "first_seed": runs[0], "device": device},
            },
            attributes={
                **shared,
                "device": str(chosen),
                "theory": "tokens",
                "stop_reason": reason,
                "wall_seconds": reached.seconds,
            },
            leading=("seed",),
            with_leading=("loss", "progress", "learned_time"),
            variables=TOKEN_VARIABLES,
        )

    return run_with_file(engine, plan, records, file, labelled, budget=budget, progress=progress)


def _checked_seeds(seeds: object, first_seed: object) -> range:
    runs = checked_integer(seeds, "seeds", minimum=4, maximum=MOST_RUNS)
    first = checked_integer(first_seed, "first_seed", minimum=0, maximum=2**62)
    return range(first, first + runs)


def _checked_device(device: str) -> torch.device:
    check_choice("device", device, ("auto", "cpu", "cuda"))
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


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


class Part(NamedTuple):
    """Seeds of one batch size; without batches every step takes the whole population."""

    model: Model
    draws: Draws | None


class TokenRuns:
    """Runs of one problem, in parts of one batch size each; the bits of a run depend on its seed alone.

    Parameters
    ----------
    problem : TokenProblem
    parts : sequence of (seeds, batch size)
        None for the whole population.
    device : torch.device
    """

    def __init__(
        self, problem: TokenProblem, parts: Sequence[tuple[Sequence[int], int | None]], device: torch.device
    ) -> None:
        self._parts: list[Part] = []
        for seeds, batch in parts:
            model = model_of(problem, seeds, device)
            self._parts.append(Part(model, None if batch is None else Draws(model, seeds, batch)))
        self._step = 0

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which nothing needs to be held."""
        return nullcontext()

    def advance(self, rates: Array) -> None:
        """Take one step per learning rate."""
        for rate in rates.tolist():
            for model, draws in self._parts:
                model.step(None if draws is None else draws.next(), rate * self._step, rate)
            self._step += 1

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Do nothing: runs that are not finite stay so, and cost no more than others."""

    def measured(self) -> tuple[Array, Array]:
        """Return loss (seeds,) and progress (seeds, components) of all runs."""
        found = [model.measured() for model, _ in self._parts]
        loss, progress = (torch.cat([part.cpu() for part in parts]).numpy() for parts in zip(*found, strict=True))
        return loss, progress

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return step, parameters and the state of the generators."""
        found: dict[str, NDArray[np.generic]] = {"step": np.array(self._step)}
        for at, (model, draws) in enumerate(self._parts):
            for number, parameter in enumerate(model.parameters):
                found[f"parameter_{at}_{number}"] = parameter.detach().cpu().numpy().copy()
            if draws is not None:
                found |= {f"{name}_{at}": array for name, array in draws.state().items()}
        return found

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned; raise KeyError or ValueError for another problem's."""
        check_shapes(state, self.state())
        self._step = int(state["step"])
        for at, (model, draws) in enumerate(self._parts):
            with torch.no_grad():
                for number, parameter in enumerate(model.parameters):
                    parameter.copy_(torch.as_tensor(state[f"parameter_{at}_{number}"]))
            if draws is not None:
                draws.restore(state[f"generators_{at}"], int(state[f"used_{at}"]))


class Draws:
    """Batches of all seeds, one generator per seed, drawn many at once."""

    def __init__(self, model: Model, seeds: Sequence[int], batch: int) -> None:
        self._model, self._batch = model, batch
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._steps = max(1, DRAWN_AT_ONCE // batch)
        self._used, self._before = 0, self._words()
        self._parts: list[torch.Tensor] = []

    def next(self) -> list[torch.Tensor]:
        """Return the next batch, (seeds, count, …) of each part."""
        if not self._parts or self._used == self._steps:
            self._draw()
        here = slice(self._used * self._batch, (self._used + 1) * self._batch)
        self._used += 1
        return [part[:, here] for part in self._parts]

    def _draw(self) -> None:
        self._before = self._words()
        drawn = [self._model.draw(generator, self._steps * self._batch) for generator in self._generators]
        self._parts = [torch.stack(parts) for parts in zip(*drawn, strict=True)]
        self._used = 0

    def _words(self) -> NDArray[np.uint8]:
        return np.stack([generator.get_state().numpy() for generator in self._generators])

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the generators before the inputs at hand, and how many batches of these are used."""
        return {"generators": self._before.copy(), "used": np.array(self._used)}

    def restore(self, generators: NDArray[Any], used: int) -> None:
        """Draw the inputs at hand again, and go on."""
        for generator, words in zip(self._generators, generators.astype(np.uint8), strict=True):
            generator.set_state(torch.as_tensor(words))
        self._draw()
        self._used = used


class Records:
    """Loss and progress of all runs at every look, and which of them are not finite any more."""

    def __init__(self, runs: int, looks: Sequence[int], components: int) -> None:
        self.blown_up: NDArray[np.bool_] = np.zeros(runs, dtype=bool)
        self.loss, self.progress = np.full((runs, len(looks)), np.nan), np.full((runs, len(looks), components), np.nan)
        self._place = {step: at for at, step in enumerate(looks)}

    def observe(self, step: int, runs: TokenRuns) -> NDArray[np.bool_]:
        """Measure the runs; return which of them have just left the finite numbers."""
        at = self._place[step]
        self.loss[:, at], self.progress[:, at] = runs.measured()
        fresh: NDArray[np.bool_] = ~np.isfinite(self.loss[:, at]) & ~self.blown_up
        self.blown_up |= fresh
        return fresh

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the state of `look`, without the records."""
        return {"blown_up": self.blown_up.copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, and from loss and progress."""
        self.blown_up[:] = state["blown_up"]
        self.loss[...], self.progress[...] = records["loss"], records["progress"]


def draw_recovery(problem: AssociativeMemory, seeds: Sequence[int], device: torch.device) -> xr.Dataset:
    """Return which share of every rank is recovered, and how many items, in one draw of embeddings per seed."""
    ranks, counts = rank_bins(problem.count)
    edges = np.concatenate([[0.0], np.cumsum(counts)[:-1]]).astype(np.intp)
    flags = np.array([_recovered(problem, seed, device) for seed in seeds])
    return make_dataset(
        {
            "recovery": np.add.reduceat(flags, edges, axis=1) / counts,
            "rank_count": counts,
            "recovered_count": flags.sum(axis=1),
        },
        problem=problem,
        title="Draws of an associative memory with Gaussian embeddings after one step",
        coords={"rank": ranks, "seed": list(seeds)},
        solver={"answer": "simulation", "seeds": len(seeds), "first_seed": seeds[0]},
        attributes={"answer": "simulation", "theory": "tokens", "stop_reason": "reached_end", "device": str(device)},
        leading=("seed",),
        with_leading=("recovery", "recovered_count"),
        variables=TOKEN_VARIABLES,
    )


def _recovered(problem: AssociativeMemory, seed: int, device: torch.device) -> Array:
    """Return by rank whether the own output of an item has the largest score after one step, as 1 or 0."""
    N, d = problem.count, problem.dimension or 0
    generator = torch.Generator().manual_seed(seed)
    E, U = (torch.randn(N, d, generator=generator, dtype=torch.float64).to(device) / d**0.5 for _ in range(2))
    p = torch.arange(1.0, N + 1.0, dtype=torch.float64, device=device) ** -(problem.frequency_exponent or 0.0)
    W = ((U - U.mean(dim=0)) * (p / p.sum())[:, None]).T @ E
    if problem.smoothing is not None:
        W = smooth_signs(W, problem.smoothing)
    moved, rows = E @ W.T, max(1, SCORES_AT_ONCE // N)
    best = torch.cat([(moved[at : at + rows] @ U.T).argmax(dim=1) for at in range(0, N, rows)])
    return np.asarray((best == torch.arange(N, device=device)).cpu().numpy(), dtype=np.float64)
