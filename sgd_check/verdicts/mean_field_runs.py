"""Checks that simulations of several widths and a mean field answer one question, and finds the times they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sgd_check.verdicts.alignment import check_dataset, check_question

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

FEWEST_WIDTHS, FEWEST_STARTS, FEWEST_REPLICAS = 2, 2, 2
TRACER_TOLERANCE = 1e-9


@dataclass(frozen=True)
class WidthRuns:
    """Runs of several widths from starts that all widths share, at the times that they share with a mean field.

    `widths` (W,) increase, `simulations` are by width. `starts` (S,) are the seeds of the starts of which every width
    has two runs or more that did not blow up. At `times` (T,), saved in the mean field at the places `saved`, every
    simulation has a record within half a step, at its `records`.
    """

    problem: Problem
    widths: Integers
    starts: Integers
    simulations: list[xr.Dataset]
    times: Array
    saved: NDArray[np.intp]
    records: list[NDArray[np.intp]]

    def tracers(self, mean_field: xr.Dataset) -> Array | None:
        """Return the paths of the neurons in the field (T, S, m, r) for the largest m, or None if it followed none.

        They are known by their places at time 0, which must be those of `dynamics.laws.chaos.coupled_tracers`.
        """
        from dynamics.laws import coupled_tracers

        if "tracer_projection" not in mean_field or float(mean_field["time"].values[0]) != 0.0:
            return None
        paths = np.asarray(mean_field["tracer_projection"].values)
        wanted = coupled_tracers(self.problem, int(self.widths[-1]), self.starts.tolist())
        if paths.shape[1:] != wanted.shape or not np.allclose(paths[0], wanted, rtol=0.0, atol=TRACER_TOLERANCE):
            return None
        return paths[self.saved].reshape(self.times.size, self.starts.size, int(self.widths[-1]), -1)


def checked_runs(mean_field: xr.Dataset, simulations: object) -> WidthRuns:
    """Return the runs that a mean field is held against, or say in one sentence why they cannot be."""
    from dynamics.problem import Problem

    found = _checked_simulations(simulations)
    check_field(mean_field)
    asked = Problem.from_dataset(mean_field)
    found.sort(key=lambda simulation: simulation.sizes["neuron"])
    widths = np.array([simulation.sizes["neuron"] for simulation in found])
    if any(a == b for a, b in pairwise(widths.tolist())):
        msg = f"Argument `simulation` must have one dataset for each width, but has the widths {widths.tolist()}."
        raise ValueError(msg)
    for simulation in found:
        check_question(asked, Problem.from_dataset(simulation), ("dimension", "teacher"))
    times, saved, records = _common_times(mean_field, found)
    question = replace(asked, initial_weights=None, initial_overlaps=None)
    return WidthRuns(question, widths, _common_starts(found), found, times, saved, records)


def check_field(mean_field: xr.Dataset) -> None:
    """Refuse a mean field of other neurons than isotropic ones, and one without the moments that make its field."""
    if mean_field.attrs.get("quadrature") == "neurons":
        msg = "Argument `prediction` must be the mean field of an isotropic start, but is that of given neurons."
        raise ValueError(msg)
    if "law_moment" not in mean_field:
        msg = "Argument `prediction` must have `law_moment`, the moments of the mean field, but has none."
        raise ValueError(msg)


def _checked_simulations(simulations: object) -> list[xr.Dataset]:
    if not isinstance(simulations, Sequence) or isinstance(simulations, str):
        msg = (
            "Argument `simulation` must be a sequence of simulations, one for each width, for the prediction of a mean "
            f"field, but is {type(simulations).__name__}."
        )
        raise TypeError(msg)
    for simulation in simulations:
        check_dataset("simulation", simulation)
        if "neuron_vector" not in simulation or "start_seed" not in simulation:
            msg = (
                "Argument `simulation` must hold runs of the spherical student with `starts` given, but one has no "
                "`neuron_vector` or no `start_seed`."
            )
            raise ValueError(msg)
    if len(simulations) < FEWEST_WIDTHS:
        msg = f"Argument `simulation` must have at least {FEWEST_WIDTHS} widths, but has {len(simulations)}."
        raise ValueError(msg)
    return list(simulations)


def runs_of_start(simulation: xr.Dataset, start: int) -> NDArray[np.intp]:
    """Return the runs that have a start and did not blow up."""
    sound = simulation["blown_up"].values == 0
    return np.flatnonzero(sound & (simulation["start_seed"].values == start))


def _common_starts(simulations: list[xr.Dataset]) -> Integers:
    every = [np.unique(simulation["start_seed"].values) for simulation in simulations]
    if any(not np.array_equal(every[0], other) for other in every[1:]):
        msg = "Argument `simulation` must have the same starts for every width, but they differ."
        raise ValueError(msg)
    for simulation in simulations:
        counts = np.unique(simulation["start_seed"].values, return_counts=True)[1]
        if counts.min() < FEWEST_REPLICAS:
            msg = (
                f"Argument `simulation` must have at least {FEWEST_REPLICAS} runs of every start, which tell the noise "
                f"of SGD from the distance, but width {simulation.sizes['neuron']} has a start with {counts.min()}."
            )
            raise ValueError(msg)
    kept = [s for s in every[0].tolist() if all(runs_of_start(one, s).size >= FEWEST_REPLICAS for one in simulations)]
    if len(kept) < FEWEST_STARTS:
        msg = (
            f"Argument `simulation` must have at least {FEWEST_STARTS} starts with {FEWEST_REPLICAS} runs that did not "
            f"blow up, but has {len(kept)}."
        )
        raise ValueError(msg)
    return np.array(kept, dtype=np.int64)


def _common_times(
    mean_field: xr.Dataset, simulations: list[xr.Dataset]
) -> tuple[Array, NDArray[np.intp], list[NDArray[np.intp]]]:
    """Return saved times of the mean field that every simulation has reached and recorded, and where they are."""
    times = np.asarray(mean_field["time"].values)
    kept = np.isfinite(mean_field["loss"].values)
    nearest = []
    for simulation in simulations:
        recorded = simulation["time"].values
        place = np.abs(recorded[None, :] - times[:, None]).argmin(axis=1)
        half_step = 0.5 * float(simulation.attrs["effective_learning_rate"]) * (1.0 + 1e-6)
        reached = recorded <= float(simulation.attrs["end_time"])
        kept &= (np.abs(recorded[place] - times) <= half_step) & reached[place]
        nearest.append(place)
    # Two saved times within one step have one record.
    for place in nearest:
        kept[1:] &= place[1:] > place[:-1]
    saved = np.flatnonzero(kept)
    if not (times[saved] > 0.0).any():
        msg = (
            "Argument `simulation` must have records at saved times of the prediction, within half a step, but has "
            "none: pass some of its times as `save_at`."
        )
        raise ValueError(msg)
    return times[saved], saved, [place[saved] for place in nearest]
