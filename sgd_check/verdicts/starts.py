"""Tests of the starts of a prediction and of runs against the start of their problem.

A record at time 0 has to be the start itself. A later first record tells of the start as long as runs, or theory, have
hardly moved by then: it may differ from the start by as much as they have moved, beyond the noise of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from dynamics.problem import Problem, is_frame, is_network, is_spherical, needs_points
from hermite.arrays import Array
from sgd_check.simulations.recording import observables_of
from sgd_check.verdicts.path_tests import SAME_TIME, PathTest
from sgd_check.verdicts.verdict import FEWEST_RUNS, normal_score, sound_runs, two_sided

#: Difference of two starts, in parts of the largest entry, that counts as one.
START_DIFFERENCE = 0.01
#: Part of the largest entry of a start by which it may have moved until a first record that still tells of it.
LARGEST_MOVE = 0.1
WORDS = {
    "loss": "loss",
    "squared_norm": "squared norm",
    "teacher_overlap": "overlap",
    "student_overlap": "overlap among neurons",
    "alignment": "alignment",
    "second_layer": "second layer",
    "output_layer": "second layer",
    "bias": "bias",
}


class FirstRecord(NamedTuple):
    """The first record of a quantity: its time, and the values of every run, or of the one prediction (runs, …)."""

    time: float
    values: Array


def start_of(problem: Problem) -> dict[str, Array]:
    """Return overlaps, squared norms, layers and loss at time 0 by the names of their variables.

    Quantities without a closed form, such as the loss of a link whose means are not known, are left out.
    """
    C, G, n = problem.start()
    quantities, arguments = {"teacher_overlap": C, "student_overlap": G, "squared_norm": n}, [G, n]
    if is_network(problem):
        second_layer, bias, _ = problem.network_start()
        quantities |= {"second_layer" if problem.num_outputs == 1 else "output_layer": second_layer, "bias": bias}
        arguments += [second_layer, bias]
    elif is_spherical(problem):
        arguments = [problem.reduced_weights(), n]
    if is_frame(problem):
        quantities["alignment"] = np.sum(C**2, axis=0)
    if needs_points(problem):  # whose number may differ
        return {name: np.asarray(values) for name, values in quantities.items()}
    quantities["loss"] = np.array(observables_of(problem).loss(C, *arguments))
    return {name: np.asarray(values) for name, values in quantities.items() if np.isfinite(values).all()}


def tests_of_starts(problem: Problem, prediction: xr.Dataset, simulation: xr.Dataset) -> list[PathTest]:
    """Return a test of every quantity of the start that prediction or runs have saved early enough."""
    if any("start_seed" in dataset for dataset in (prediction, simulation)):
        return []  # runs from several starts, none of which is that of the problem
    return [
        max(gaps, key=lambda gap: abs(gap.score))
        for name, start in start_of(problem).items()
        if (gaps := list(_gaps(name, start, prediction, simulation)))
    ]


def start_apart(problem: Problem, prediction: xr.Dataset, solution: xr.Dataset, tolerance: float) -> str:
    """Return the name of the first quantity whose start in a prediction differs from a solution; "" if none does.

    The allowed difference is the share `tolerance` of the largest start, plus the way that the solution has made since.
    """
    for name, start in start_of(problem).items():
        first, unit = _first_record(prediction, name, start), float(np.abs(start).max(initial=0.0)) or 1.0
        moved = None if first is None else _values_at(solution, name, first.time)
        if first is None or moved is None or moved.shape[1:] != start.shape:
            continue
        if (np.abs(first.values - moved) > tolerance * unit + np.abs(moved - start)).any():
            return f"{WORDS[name]} at the start"
    return ""


def _gaps(name: str, start: Array, prediction: xr.Dataset, simulation: xr.Dataset) -> Iterator[PathTest]:
    """Yield a test of the first record of the prediction, and one of the first record of the runs, against the start.

    `start` has the exact values of the quantity `name` at time 0. A record without noise is tested for equality, a
    later one by Student's t over runs, with an allowance for the way since the start.
    """
    theory, runs = _first_record(prediction, name, start), _first_record(simulation, name, start)
    unit = float(np.abs(start).max(initial=0.0)) or 1.0
    quantity = f"{WORDS[name]} at the start"
    if theory is not None and theory.time == 0.0:
        yield _exact(quantity, start - theory.values, unit)
    elif theory is not None and len(theory.values) == 1:
        moved = _values_at(simulation, name, theory.time)
        if moved is not None and len(moved) >= FEWEST_RUNS and _hardly_moved(moved - start, unit):
            allowed = START_DIFFERENCE * unit + np.abs(moved.mean(axis=0) - start)
            yield _noisy(quantity, moved - theory.values, allowed, unit)
    if runs is not None and runs.time == 0.0:
        yield _exact(quantity, runs.values - start, unit)
    elif runs is not None and len(runs.values) >= FEWEST_RUNS:
        moved = _values_at(prediction, name, runs.time)
        if moved is not None and _hardly_moved(moved - start, unit):
            allowed = START_DIFFERENCE * unit + 2.0 * np.abs(moved - start)[0]
            yield _noisy(quantity, runs.values - start, allowed, unit)


def _first_record(dataset: xr.Dataset, name: str, start: Array) -> FirstRecord | None:
    """Return the first finite record of a quantity over time, None if no record has the shape of the start."""
    times, values = _records(dataset, name)
    if values is None or values.shape[2:] != start.shape:
        return None
    finite = (at for at in range(times.size) if np.isfinite(values[:, at]).all())
    return next((FirstRecord(float(times[at]), values[:, at]) for at in finite), None)


def _values_at(dataset: xr.Dataset, name: str, time: float) -> Array | None:
    """Return the values of every run, or of the one prediction, at a time (runs, …), linear between two records.

    None is returned for a time outside the records.
    """
    times, values = _records(dataset, name)
    if values is None:
        return None
    after = int(np.searchsorted(times, time * (1.0 - SAME_TIME)))
    if after == times.size or (after == 0 and times[0] > time * (1.0 + SAME_TIME)):
        return None
    before = max(after - 1, 0)
    share = min((time - times[before]) / (times[after] - times[before]), 1.0) if after > before else 0.0
    between = values[:, before] + share * (values[:, after] - values[:, before])
    return between if np.isfinite(between).all() else None


def _records(dataset: xr.Dataset, name: str) -> tuple[Array, Array | None]:
    """Return the times, and the records (runs, times, …) of the sound runs, or of a prediction as one run."""
    if name not in dataset or "time" not in dataset[name].dims:
        return np.empty(0), None
    values = np.asarray(dataset[name].values, dtype=np.float64)
    records = values[sound_runs(dataset)] if "seed" in dataset.dims else values[np.newaxis]
    return np.asarray(dataset["time"].values, dtype=np.float64), records if len(records) else None


def _hardly_moved(moves: Array, unit: float) -> bool:
    """Return whether the root mean square over runs of all moves (runs, …) is a small share of `unit`."""
    return bool(np.sqrt(np.mean(moves**2, axis=0)).max(initial=0.0) <= LARGEST_MOVE * unit)


def _exact(quantity: str, gap: Array, unit: float) -> PathTest:
    """Return the test of numbers without noise: a gap of more than `START_DIFFERENCE` times `unit` is certain."""
    worst = float(gap.ravel()[np.argmax(np.abs(gap))])
    score = float(np.copysign(np.inf, worst)) if abs(worst) > START_DIFFERENCE * unit else 0.0
    return PathTest(quantity, score, two_sided(score))


def _noisy(quantity: str, gap: Array, allowed: Array, unit: float) -> PathTest:
    """Return Student's t-test of the mean of gaps (runs, …) beyond what is `allowed`, by Bonferroni over the entries.

    `unit` is the size of the quantity, which bounds rounding; the result is the entry with the largest score.
    """
    runs, mean = len(gap), gap.mean(axis=0)
    # Runs that differ by rounding alone are numbers without noise.
    error = np.maximum(gap.std(axis=0, ddof=1), np.finfo(np.float32).eps * unit) / np.sqrt(runs)
    excess = (np.sign(mean) * np.maximum(np.abs(mean) - allowed, 0.0)).ravel()
    worst = int(np.argmax(np.abs(excess) / error.ravel()))
    score = normal_score(float(excess[worst]), float(error.ravel()[worst]), runs - 1)
    p = min(1.0, mean.size * two_sided(score))
    return PathTest(quantity, float(np.copysign(-special.ndtri(0.5 * p), score)) if 0.0 < p < 1.0 else score, p)
