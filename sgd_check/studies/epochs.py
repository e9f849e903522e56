r"""Study of epochs: one neuron learns from the same n = αd samples in several epochs, or from fresh ones.

One neuron of a bounded link starts orthogonal to the one direction of the teacher. e epochs are worth as many fresh
samples as the same steps need, on samples that no step has seen, until C² is the same.

Fresh samples leave teachers of information exponent 2 and more at C = 0 in any finite number of steps as d → ∞; samples
that are used again leave only those of generative exponent 2 and more there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

import hermite
from dynamics.commands import study_function
from dynamics.problem import Problem, Student, Teacher, checked_integer, checked_list, checked_number
from dynamics.problem.checks import JsonObject, require
from dynamics.solve.reused_data import FEWEST, MOST, cost, solve_reused_data
from hermite.arrays import Array
from hermite.text.messages import shown
from sgd_check.studies.scaffold import SgdStudy, checked_rising, checked_runs, seconds_of

#: Most steps of a point.
MANY_STEPS = 50
GRID = ("link", "label_noise", "ratio")


def _epochs(study: SgdStudy) -> xr.Dataset:
    """Return the dataset of theory and runs at each point of the grid of links, label noises and ratios n/d.

    Points after an interruption are NaN.
    """
    settings = study.settings
    axes = [settings["links"], settings["label_noises"], settings["ratios"]]
    epochs, batches, rate, runs = (settings[name] for name in ("epochs", "batches_per_epoch", "rate", "seeds"))
    shape, records = tuple(len(axis) for axis in axes), np.arange(epochs + 1) * batches
    names = ("reused_overlap", "reused_overlap_error", "reused_loss", "fresh_overlap", "fresh_loss")
    theory = {name: np.full((*shape, epochs + 1), np.nan) for name in names}
    measured = {name: np.full((*shape, epochs + 1, runs), np.nan) for name in ("overlap", "loss", "train_loss")}
    solve = partial(
        solve_reused_data, learning_rate=rate, steps=epochs * batches, draws=settings["draws"], progress=False
    )
    with study.stepping() as meter:
        for number, place in enumerate(np.ndindex(shape)):
            link, noise, ratio = (axis[i] for axis, i in zip(axes, place, strict=True))
            problem = epochs_problem(link, noise, settings)
            reused_theory = solve(problem, samples=f"{ratio!r}d", batches_per_epoch=batches)
            fresh = solve(problem, samples=f"{ratio * epochs!r}d", batches_per_epoch=epochs * batches)
            for source, prefix in ((reused_theory, "reused"), (fresh, "fresh")):
                theory[f"{prefix}_overlap"][place] = source["teacher_overlap"].values[records, 0, 0]
                theory[f"{prefix}_loss"][place] = source["loss"].values[records]
            theory["reused_overlap_error"][place] = reused_theory["teacher_overlap_error"].values[records, 0, 0]
            samples = round(ratio * settings["dimension"])
            steps, seeds = records.tolist(), study.seeds_of(number)
            simulation = study.simulated(
                problem,
                rate,
                steps[-1],
                seeds,
                steps,
                training_samples=samples,
                batch_size=samples // batches,
                reshuffle=False,
            )
            measured["overlap"][place] = simulation["teacher_overlap"].values[:, :, 0, 0].T
            for name in ("loss", "train_loss"):
                measured[name][place] = simulation[name].values.T
            meter.add(epochs * batches * runs)
    worth, loss = np.full((*shape, epochs + 1), np.nan), theory["reused_loss"]
    is_visible = np.abs(theory["reused_overlap"]) > np.maximum(0.02, 6.0 * theory["reused_overlap_error"])
    for place in np.ndindex(shape):
        worth[place] = np.where(
            is_visible[place], worth_of(theory["reused_overlap"][place], theory["fresh_overlap"][place]), np.nan
        )
    expansions = [hermite.expand(link) for link in axes[0]]
    return study.dataset(
        meter,
        {
            **{name: ((), values) for name, values in theory.items()},
            **{f"measured_{name}": ((), values) for name, values in measured.items()},
            "fresh_epochs": ((), worth),
            "best_epoch": ((), np.where(np.isfinite(loss).all(axis=-1), np.argmin(loss, axis=-1), np.nan)),
            "link_exponent": ((), np.array([expansion.information_exponent for expansion in expansions])),
            "generative_exponent": (
                (),
                np.array([hermite.generative_exponent(expansion).exponent for expansion in expansions]),
            ),
        },
        {**dict(zip(GRID, map(np.array, axes), strict=True)), "epoch": np.arange(epochs + 1), "run": np.arange(runs)},
        dimension=settings["dimension"],
    )


def worth_of(reused: Array, fresh: Array) -> Array:
    """Return the epochs on fresh samples after which C² first reaches its value after each reused epoch; inf if never.

    Examples
    --------
    >>> worth_of(np.array([0.0, 0.5, 0.8, 1.0]), np.array([0.0, 0.5, 0.9, 0.9])).round(2).tolist()
    [0.0, 1.0, 1.7, inf]
    """
    level, reached = reused**2, fresh**2
    epochs = np.full(level.size, np.inf)
    for epoch, value in enumerate(level):
        later_epochs = np.flatnonzero(reached >= value)
        if later_epochs.size:
            first = int(later_epochs[0])
            low, high = reached[max(first - 1, 0)], reached[first]
            epochs[epoch] = first - (high - value) / (high - low) if first else 0.0
    return epochs


def epochs_problem(link: str, label_noise: float, settings: JsonObject) -> Problem:
    """Return the problem of one neuron of a network that starts orthogonal to the one direction, whose link is `link`.

    `settings` has "dimension", "initial_norm", the length of the weights at the start, and "activation".
    """
    start = np.zeros((1, settings["dimension"]))
    start[0, 1] = settings["initial_norm"]
    return Problem(
        student=Student(activation=settings["activation"], width=1, second_layer="fixed", initial_second_layer=[1.0]),
        teacher=Teacher([1.0], links=[link]),
        dimension=settings["dimension"],
        initial_weights=start,
        label_noise=label_noise,
    )


def _seconds(settings: JsonObject, steps: float) -> float:
    """Return an estimate of the seconds of theory and runs together, from a short measurement of the largest runs.

    `steps` is the number of steps of all runs together.
    """
    ratios, batches = settings["ratios"], settings["batches_per_epoch"]
    samples = round(ratios[-1] * settings["dimension"])
    share = float(np.mean(ratios)) / ratios[-1]
    problem = epochs_problem(settings["links"][0], 0.0, settings)
    runs = seconds_of(
        problem,
        settings["seeds"],
        steps * share,
        "torch",
        2,
        training_samples=samples,
        batch_size=samples // batches,
        reshuffle=False,
        dtype="float32",
    )
    points = len(settings["links"]) * len(settings["label_noises"]) * len(ratios)
    theory = 2 * points * cost(settings["epochs"] * batches, settings["draws"]).seconds
    return runs + theory


@study_function  # returns what `run` of the prepared study returns, a dataset
def epochs_study(
    *,
    links: Sequence[str] = ("erf", "he2 + he3", "he3", "he2", "he4"),
    activation: str = "erf",
    ratios: Sequence[float] = (0.5, 1.0, 2.0, 4.0),
    label_noises: Sequence[float] = (0.0, 0.4, 0.8),
    epochs: int = 16,
    batches_per_epoch: int = 1,
    rate: float = 1.0,
    initial_norm: float = 0.5,
    dimension: int = 800,
    draws: int = 2**17,
    seeds: int = 8,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    r"""Measure what n = αd samples teach one neuron in several epochs, and how many fresh samples would.

    Parameters
    ----------
    links, activation : sequence of str, str
        Links of the teacher, each a study of its own, and that of the neuron, which must grow no faster than \|z\|.
    ratios, label_noises : sequence of float
        n/d > 0 and the noise τ ≥ 0 of the labels, increasing.
    epochs, batches_per_epoch : int
        Passes through the samples, and steps of each, at most 50 together.
    rate, initial_norm : float
        Learning rate η > 0 of the mean gradient of a batch; \|w\| > 0 at the start, where w is orthogonal to the
        teacher.
    dimension, seeds, seed : int
        d of the runs, runs of every point, at least 2, and the first seed; no two points share samples.
    draws : int
        Points of the theory, see `dynamics.solve_reused_data`.

    Returns
    -------
    Dataset
        Over links, noises, n/d and epochs: C and the test loss on samples that are used again, as d → ∞
        (`reused_overlap`, with its error, and `reused_loss`), on fresh ones at the same steps (`fresh_overlap`,
        `fresh_loss`), and of the runs (`measured_overlap`, `measured_loss`, `measured_train_loss`). `fresh_epochs` is
        the number of fresh samples over n until C² is as large as after that epoch: infinite if it never is within the
        same number of steps, NaN where the direction is not seen, \|C\| being below 0.02 or six standard errors of the
        theory. `best_epoch` has the least test loss. `link_exponent` and `generative_exponent` of every link.

    Notes
    -----
    Needs torch.

    References
    ----------
    Dandi et al., arXiv:2402.03220.

    Examples
    --------
    >>> settings = {"links": ["erf"], "ratios": [2.0], "label_noises": [0.0], "epochs": 3, "dimension": 100}
    >>> curves = epochs_study(**settings, draws=2**13, seeds=2, progress=False)
    >>> curves.reused_overlap.values.ravel().round(1).tolist()
    [0.0, 0.7, 0.8, 0.9]
    """
    settings: JsonObject = {
        "links": [str(link) for link in checked_list(links, "links")],
        "activation": activation,
        "ratios": checked_rising(ratios, "ratios", "numbers that are positive", np.nextafter(0.0, 1.0)),
        "label_noises": checked_rising(label_noises, "label_noises", "numbers that are at least 0", 0.0),
        "epochs": checked_integer(epochs, "epochs", minimum=1),
        "batches_per_epoch": checked_integer(batches_per_epoch, "batches_per_epoch", minimum=1),
        "rate": checked_number(rate, "rate", positive=True),
        "initial_norm": checked_number(initial_norm, "initial_norm", positive=True),
        "dimension": checked_integer(dimension, "dimension", minimum=2),
        "draws": checked_integer(draws, "draws", minimum=FEWEST, maximum=MOST),
        **checked_runs(seeds, seed),
    }
    passes, parts, d = settings["epochs"], settings["batches_per_epoch"], settings["dimension"]
    require(
        passes * parts <= MANY_STEPS,
        f"Argument `epochs` must be at most {MANY_STEPS} steps, {MANY_STEPS // parts} epochs, but is {passes}.",
    )
    for ratio in settings["ratios"]:
        samples = ratio * d
        require(
            abs(samples - round(samples)) < 1e-9 * samples,
            f"Argument `ratios` must hold multiples of 1/d, d = {d}, but holds {ratio:g}.",
        )
        require(
            round(samples) % parts == 0,
            f"Argument `ratios` must give {parts} equal batches at d = {d}, but holds {ratio:g}.",
        )
    names = settings["links"]
    require(
        0 < len(names) == len(set(names)),
        f"Argument `links` must hold one or more links, each of them once, but is {shown(names)}.",
    )
    problems = [epochs_problem(link, 0.0, settings) for link in names]
    points = len(problems) * len(settings["label_noises"]) * len(settings["ratios"])
    steps = float(points * passes * parts * settings["seeds"])
    title = "Samples that are used again against fresh ones"
    seconds = partial(_seconds, settings, steps)
    return SgdStudy("epochs", title, settings, problems[0], progress, _epochs, steps=steps, seconds=seconds)
