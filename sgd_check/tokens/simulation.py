"""Runs of the full model on sampled tokens, all seeds at once, half of them at four times the batch."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import torch
except ModuleNotFoundError as missing:
    reason = 'Models of tokens need an extra package: pip install "feature-emergence[torch]".'
    raise ImportError(reason) from missing

from dynamics.problem import MOST_RUNS, check_choice, check_question, check_switch, checked_integer, checked_number
from dynamics.runs import Interrupts, make_dataset
from dynamics.tokens import KINDS, TOKEN_VARIABLES, system_of
from hermite.text.messages import shown
from sgd_check.tokens.model import model_class, model_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.tokens import TokenProblem
    from hermite.arrays import Array
    from sgd_check.tokens.model import Model

#: Looks at a run, each of which measures loss and progress; times of learning are found between two looks.
LOOKS = 800
#: Numbers of inputs that are drawn at once.
DRAWN_AT_ONCE = 4096
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

    Returns
    -------
    Dataset
        `loss(seed, time)`, `progress(seed, time, component)`, `learned_time(seed, component)`, the time between two
        looks at which progress passes ½ (NaN: not until the end), and `run_batch_size(seed)` (0: the population).
        Dimensionless. An interruption leaves what was computed; `stop_reason` says so. Of Gaussian embeddings
        `recovery(seed, rank)` and `recovered_count(seed)`.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before any work.
    """
    check_question(problem, KINDS)
    if getattr(problem, "embeddings", None) == "gaussian":
        return _one_step(problem, learning_rate, steps, batch_size, seeds, first_seed, device)
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
    chosen = _checked_device(device)
    names = list(range(first, first + runs))
    sizes = [size, None if size is None else BATCH_FACTOR * size]
    halves = [(names[: runs // 2], sizes[0]), (names[runs // 2 :], sizes[1])]
    looks = np.unique(np.linspace(0, count, min(LOOKS, count) + 1).round())
    loss = np.full((runs, looks.size), np.nan)
    components = system_of(problem).components
    found = np.full((runs, looks.size, len(components)), np.nan)
    began, reason = clock.perf_counter(), "reached_end"
    with Interrupts() as heard, _bar(2 * count, progress) as bar:
        for half, (own, batch) in enumerate(halves):
            model, rows = model_of(problem, own, chosen), slice(half * runs // 2, half * runs // 2 + len(own))
            for at, measured in enumerate(_looks(model, own, batch, rate, looks)):
                loss[rows, at], found[rows, at] = (part.cpu().numpy() for part in measured)
                bar.update(int(looks[at] - looks[at - 1]) if at else 0)
                if heard.heard:
                    reason = "interrupted"
                    break
    return make_dataset(
        {
            "loss": loss,
            "progress": found,
            "learned_time": _passed(found, rate * looks),
            "run_batch_size": np.repeat([each or 0 for each in sizes], runs // 2),
        },
        problem=problem,
        title=f"Stochastic gradient descent on tokens: {problem.kind}",
        coords={"time": rate * looks, "seed": names, "component": components},
        solver={
            "answer": "simulation",
            **{"learning_rate": rate, "steps": count, "batch_size": size, "seeds": runs, "first_seed": first},
        },
        attributes={
            "answer": "simulation",
            "theory": "tokens",
            "learning_rate": rate,
            "batch_size": size,
            "stop_reason": reason,
            "device": str(chosen),
            "wall_seconds": clock.perf_counter() - began,
        },
        leading=("seed",),
        with_leading=("loss", "progress", "learned_time"),
        variables=TOKEN_VARIABLES,
    )


def _checked_device(device: str) -> torch.device:
    check_choice("device", device, ("auto", "cpu", "cuda"))
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


def _one_step(
    problem: Any, learning_rate: object, steps: object, batch_size: object, seeds: int, first_seed: int, device: str
) -> xr.Dataset:
    """Return draws of Gaussian embeddings; refuse arguments about time."""
    from sgd_check.tokens.recovery import draw_recovery

    for name, given in (("learning_rate", learning_rate), ("steps", steps), ("batch_size", batch_size)):
        if given is not None:
            msg = f"Argument `{name}` must be None for Gaussian embeddings, which are one step, but is {shown(given)}."
            raise ValueError(msg)
    runs = checked_integer(seeds, "seeds", minimum=4, maximum=MOST_RUNS)
    first = checked_integer(first_seed, "first_seed", minimum=0, maximum=2**62)
    return draw_recovery(problem, range(first, first + runs), _checked_device(device))


def _looks(model: Model, seeds: Sequence[int], batch: int | None, rate: float, looks: Array) -> Any:
    """Yield loss and progress at every look, with the steps taken between them."""
    draws = None if batch is None else _Draws(model, seeds, batch)
    step = 0
    for look in looks:
        while step < look:
            model.step(None if draws is None else draws.next(), rate * step, rate)
            step += 1
        yield model.measured()


class _Draws:
    """Batches of all seeds, each from a generator of its own, drawn many at once."""

    def __init__(self, model: Model, seeds: Sequence[int], batch: int) -> None:
        self._model, self._batch = model, batch
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._steps = max(1, DRAWN_AT_ONCE // batch)
        self._at = self._steps

    def next(self) -> list[torch.Tensor]:
        """Return the next batch, (seeds, count, …) of each part."""
        if self._at == self._steps:
            drawn = [self._model.draw(generator, self._steps * self._batch) for generator in self._generators]
            self._parts = [torch.stack(parts) for parts in zip(*drawn, strict=True)]
            self._at = 0
        here = slice(self._at * self._batch, (self._at + 1) * self._batch)
        self._at += 1
        return [part[:, here] for part in self._parts]


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


def _bar(total: int, progress: bool | None) -> Any:
    import sys

    from tqdm import tqdm

    hidden = None if progress is None else not progress
    return tqdm(total=total, file=sys.stderr, disable=hidden, leave=False, unit="step")
