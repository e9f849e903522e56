"""The curves that theory and runs have in common, read from their datasets, with the effect of the step size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgd_check.verdicts.alignment import sound_runs
from sgd_check.verdicts.curve_tests import SECOND_ORDER, TOLERANCE, Curve
from sgd_check.verdicts.definitions import definition_of_learned, tell_alike
from sgd_check.verdicts.direction import VISIBLE_ERROR
from sgd_check.verdicts.expectation import has_step
from sgd_check.verdicts.saved_values import interpolated, known_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: A learned mass, component or sensitivity moves if it does so by this part of its teacher's; a loss, of its largest.
LEAST_SHARE = 0.25
LEAST_LOSS_SHARE = 0.05
#: Variables with one time per run -> what they are the time of, by kind of problem.
TIMES = {
    "emergence_time": ("emergence time of direction", "emergence time of axis"),
    "component_learned_time": ("", "learning time of component"),
}


class Course(NamedTuple):
    """A quantity over time: of a prediction (times,), of runs (runs, times); `scale` as of a `Curve`."""

    kind: str
    label: str
    values: Array
    scale: float


def courses_of(problem: Problem, dataset: xr.Dataset) -> Iterator[Course]:
    """Yield the courses of a prediction, without dimension `seed`, or of runs: the loss, and what is learned.

    That is the learned mass by direction, of a network its components, or where its teacher has none the sensitivity.
    """
    if "loss" in dataset and "time" in dataset["loss"].dims:
        loss = np.asarray(dataset["loss"].values, dtype=np.float64)
        yield Course("loss", "", loss, LEAST_LOSS_SHARE * float(np.nanmax(loss, initial=0.0)))
    if problem.kind == "network":
        yield from _network_courses(problem, dataset)
        return
    for p, (mass, a) in enumerate(zip(_masses(problem, dataset), problem.teacher.coefficients.tolist(), strict=False)):
        yield Course("learned mass of direction", str(p + 1), mass, LEAST_SHARE * a)


def _network_courses(problem: Problem, dataset: xr.Dataset) -> Iterator[Course]:
    """Yield components by name, or eigenvalues of the sensitivity, the largest first."""
    if "component" in dataset:
        kind, values, labels = "component", dataset["component"].values, dataset["component_name"].values.tolist()
    else:
        kind, labels = "sensitivity", dataset["direction"].values.tolist()
        values = dataset[kind].values if kind in dataset else _sensitivities(problem, dataset)
    teacher = dataset.get(f"teacher_{kind}")
    for at, label in enumerate(labels):
        course = np.asarray(values[..., at], dtype=np.float64)
        size = np.nanmax(np.abs(course), initial=0.0) if teacher is None else abs(float(teacher.values[at]))
        yield Course(kind, str(label), course, LEAST_SHARE * float(size))


def _sensitivities(problem: Problem, simulation: xr.Dataset) -> Array:
    """Return the eigenvalues of E ∂_a f ∂_b f of runs (seeds, times, directions), NaN where a run blew up."""
    from dynamics.equations import NetworkSystem

    system = NetworkSystem(problem)
    v, b, n, C, G = (
        simulation[name].values
        for name in ("second_layer", "bias", "squared_norm", "teacher_overlap", "student_overlap")
    )
    found = np.full((*n.shape[:2], problem.teacher.span), np.nan)
    for at in zip(*np.nonzero(np.isfinite(n).all(axis=-1)), strict=True):
        length = np.sqrt(n[at])
        state = system.pack(v[at], b[at], C[at] * length[:, None], G[at] * np.outer(length, length))
        found[at] = system.summarise(state)["sensitivity"]
    return found


def curves_over_time(problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> list[Curve]:
    """Return every course that prediction and runs have, at the times of the first simulation that all reach.

    `simulations` is one, or two at different learning rates, from which runs without step size are extrapolated.
    """
    theory = {(course.kind, course.label): course for course in courses_of(problem, prediction)}
    measured = [{(one.kind, one.label): one.values for one in courses_of(problem, part)} for part in simulations]
    pairs, times = paired_runs(simulations), _common_times(prediction, simulations)
    stepped, found = has_step(prediction), []
    grid = [times, times / (1.0 + VISIBLE_ERROR), times * (1.0 + VISIBLE_ERROR)]
    for key, course in theory.items():
        if any(key not in part for part in measured) or not times.size:
            continue
        expected, slow, fast = (interpolated(prediction["time"].values, course.values, at) for at in grid)
        runs = [
            interpolated(dataset["time"].values, part[key][pairs], times)
            for dataset, part in zip(simulations, measured, strict=True)
        ]
        if np.isfinite(expected).all() and all(np.isfinite(part).all() for part in runs):
            values, effect = without_step(runs, simulations, stepped=stepped)
            scatter = runs[0].std(axis=0, ddof=1) if pairs.size > 1 else np.zeros(times.size)
            dilated, extrapolated = np.array([slow, fast]), len(runs) > 1
            curve = Curve(*key, times, expected, values, effect, dilated, course.scale, extrapolated, scatter)
            tolerance = curve.range * (TOLERANCE + SECOND_ORDER * (effect / curve.range) ** 2)
            sources = [(prediction, course.values)]
            sources += [
                (part, paths[key][pairs].mean(axis=0)) for part, paths in zip(simulations, measured, strict=True)
            ]
            saved = np.all(
                [known_between(part["time"].values, kept, times, tolerance) for part, kept in sources], axis=0
            )
            if saved.any():
                found.append(curve._replace(saved=saved))
    return found


def times_as_curves(problem: Problem, prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> list[Curve]:
    """Return the logarithms of predicted times as curves of one point, where every run of all simulations has them."""
    pairs, stepped, found = paired_runs(simulations), has_step(prediction), []
    for name, kinds in TIMES.items():
        if not tell_alike(name, (prediction, *simulations)):
            continue
        labels = _labels(prediction, name)
        measured = [np.asarray(dataset[name].values, dtype=np.float64)[pairs] for dataset in simulations]
        for at, time in enumerate(np.asarray(prediction[name].values, dtype=np.float64)):
            runs = [part[:, at : at + 1] for part in measured]
            if not (0.0 < time < np.inf and all((part > 0.0).all() for part in runs)):
                continue
            values, effect = without_step([np.log(part) for part in runs], simulations, stepped=stepped)
            expected = np.array([np.log(time)])
            moved = expected + np.log1p(VISIBLE_ERROR) * np.array([[1.0], [-1.0]])
            kind = kinds[problem.kind == "network"]
            found.append(
                Curve(kind, labels[at], np.exp(expected), expected, values, effect, moved, 1.0, len(simulations) > 1)
            )
    return found


def without_step(runs: Sequence[Array], simulations: Sequence[xr.Dataset], *, stepped: bool) -> tuple[Array, Array]:
    """Return values (runs, times) free of the step size to first order, and what bounds the second order (times,).

    Of one simulation that is its own values, with their scatter against an equation of finite steps; of two, what is
    extrapolated run by run, with the effect that was taken away.
    """
    if len(runs) == 1:
        one = runs[0]
        return one, one.std(axis=0, ddof=1) if stepped and one.shape[0] > 1 else np.zeros(one.shape[1])
    ratio = rate_ratio(simulations)
    effect = ratio / (ratio - 1.0) * (runs[0] - runs[1])
    return runs[0] - effect, np.abs(effect.mean(axis=0))


def rate_ratio(simulations: Sequence[xr.Dataset]) -> float:
    """Return by how much the first learning rate is larger than the second."""
    first, second = (float(dataset.attrs["effective_learning_rate"]) for dataset in simulations)
    return first / second


def paired_runs(simulations: Sequence[xr.Dataset]) -> NDArray[np.intp]:
    """Return the places of the runs that did not blow up in any simulation, as far as all have runs."""
    count = min(dataset.sizes["seed"] for dataset in simulations)
    return np.flatnonzero(np.all([sound_runs(dataset)[:count] for dataset in simulations], axis=0))


def _masses(problem: Problem, dataset: xr.Dataset) -> Array:
    """Return learned masses (P, …, times), by the definition of the problem; none of a dataset that does not tell."""
    part = problem.learned_part
    if not part.is_defined:
        return np.empty((0, 0))
    if "learned_mass" in dataset and definition_of_learned(dataset) == part.definition:
        return np.moveaxis(np.asarray(dataset["learned_mass"].values), -1, 0)
    if not {"teacher_overlap", "squared_norm"} <= set(dataset):
        return np.empty((0, 0))
    from sgd_check.runs.recording import observables_of

    overlap, norm = dataset["teacher_overlap"].values, dataset["squared_norm"].values
    flat = observables_of(problem).learned(overlap.reshape(-1, *overlap.shape[-2:]), norm.reshape(-1, norm.shape[-1]))
    return np.moveaxis(flat.reshape(*overlap.shape[:-2], -1), -1, 0)


def _common_times(prediction: xr.Dataset, simulations: Sequence[xr.Dataset]) -> Array:
    """Return the positive times of the first simulation that lie within all others and the prediction, as reached."""
    if "loss" not in prediction or "time" not in prediction["loss"].dims:
        return np.empty(0)
    known = np.isfinite(prediction["loss"].values)
    bounds = [prediction["time"].values[known]]
    for dataset in simulations:
        times = dataset["time"].values
        bounds.append(times[times <= float(dataset.attrs["end_time"]) * (1 + 1e-9)])
    if any(part.size == 0 for part in bounds):
        return np.empty(0)
    first, last = max(part[0] for part in bounds), min(part[-1] for part in bounds)
    times = bounds[1]
    return np.asarray(times[(times > 0) & (times >= first * (1 - 1e-9)) & (times <= last * (1 + 1e-9))])


def _labels(prediction: xr.Dataset, name: str) -> list[str]:
    """Return what the entries of a variable with one time each are called."""
    return [str(label) for label in prediction[str(prediction[name].dims[0])].values.tolist()]
