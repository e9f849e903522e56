r"""Evidence of widths: runs of spherical networks of several widths against their mean field.

E(f_m − f_∞)² ~ 1/m, in the distances of `dynamics.laws.chaos`. Two runs of one start have independent noise, which
averages out of the mean over pairs of runs, D_m = m ⟨(f_m − f_∞)(f'_m − f_∞)⟩; the excess of the square of a single run
is reported as the noise (`docs/mean_field_sgd.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dynamics.equations import followers_in_space, make_particle_system
from dynamics.laws.chaos import coupled_tracers, function_gap, width_exponents
from dynamics.problem import Problem
from dynamics.problem.checks import require
from dynamics.solve import coupled_problem
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, with_error
from sgd_check.verdicts.evidence import Row, judged
from sgd_check.verdicts.verdict import (
    FEWEST_RUNS,
    POWER,
    check_dataset,
    check_question,
    normal_score,
    reach_in_errors,
    sound_runs,
    two_sided,
    verdict_tree,
)

THEORY = "mean field"
#: Largest correction of the exponent −1 by a finite width; exact flows of 16 to 128 neurons have up to 0.13 ± 0.03
#: (h_4, d = 16, 200 starts, when the loss is below a tenth).
WIDTH_CORRECTION = 0.15
#: Fewest widths, starts, and runs of each start.
FEWEST = 2
_BAND = f"−1 ± {WIDTH_CORRECTION:g}"


class WidthRuns(NamedTuple):
    """Runs of several widths (W,), increasing, from common starts, at times that the mean field has too.

    `starts` (S,) are seeds; every width has two sound runs or more of each. `times` (T,) are those at the places
    `saved` of the mean field; `records` has the places of these times in every simulation.
    """

    problem: Problem
    widths: Integers
    starts: Integers
    simulations: list[xr.Dataset]
    times: Array
    saved: NDArray[np.intp]
    records: list[NDArray[np.intp]]


def checked_runs(mean_field: xr.Dataset, simulations: object) -> WidthRuns:
    """Return the runs that are compared with a mean field; raise TypeError or ValueError if they cannot be compared.

    `simulations` is a sequence of datasets, one for each width.
    """
    if not isinstance(simulations, Sequence) or isinstance(simulations, str):
        refuse(
            "Argument `simulation` must be a sequence of simulations, one for each width, for the prediction of a mean "
            f"field, but is {type(simulations).__name__}.",
            error=TypeError,
        )
    by_width = [check_dataset("simulation", simulation) for simulation in simulations]
    require(
        all({"neuron_vector", "start_seed"} <= set(simulation.variables) for simulation in by_width),
        "Argument `simulation` must hold runs of the spherical student with `starts` given, but one has no "
        "`neuron_vector` or no `start_seed`.",
    )
    require(
        len(by_width) >= FEWEST, f"Argument `simulation` must have at least {FEWEST} widths, but has {len(by_width)}."
    )
    check_field(mean_field)
    asked = Problem.from_dataset(mean_field)
    by_width.sort(key=lambda simulation: simulation.sizes["neuron"])
    widths = np.array([simulation.sizes["neuron"] for simulation in by_width])
    require(
        np.all(np.diff(widths) > 0),
        f"Argument `simulation` must have one dataset for each width, but has the widths {widths.tolist()}.",
    )
    for simulation in by_width:
        check_question(asked, Problem.from_dataset(simulation), ("dimension", "teacher"))
    times = np.asarray(mean_field["time"].values)
    kept, nearest = np.isfinite(mean_field["loss"].values), []
    for simulation in by_width:
        recorded = simulation["time"].values
        place = np.abs(recorded[None, :] - times[:, None]).argmin(axis=1)
        half_step = 0.5 * float(simulation.attrs["effective_learning_rate"]) * (1.0 + 1e-6)
        kept &= (np.abs(recorded[place] - times) <= half_step) & (recorded[place] <= simulation.attrs["end_time"])
        nearest.append(place)
    # Two saved times within one step have one record.
    kept[1:] &= np.all([place[1:] > place[:-1] for place in nearest], axis=0)
    saved = np.flatnonzero(kept)
    require(
        (times[saved] > 0.0).any(),
        "Argument `simulation` must have records at saved times of the prediction, within half a step, but has none: "
        "pass some of its times as `save_at`.",
    )
    question = replace(asked, initial_weights=None, initial_overlaps=None)
    records = [place[saved] for place in nearest]
    return WidthRuns(question, widths, _common_starts(by_width), by_width, times[saved], saved, records)


def check_field(mean_field: xr.Dataset) -> None:
    """Refuse a mean field whose start is not isotropic, and one without moments."""
    require(
        mean_field.attrs.get("quadrature") != "neurons",
        "Argument `prediction` must be the mean field of an isotropic start, but is that of given neurons.",
    )
    require(
        "law_moment" in mean_field,
        "Argument `prediction` must have `law_moment`, the moments of the mean field, but has none.",
    )


def runs_of_start(simulation: xr.Dataset, start: int) -> NDArray[np.intp]:
    """Return the runs that have a start and did not blow up."""
    return np.flatnonzero(sound_runs(simulation) & (simulation["start_seed"].values == start))


def _common_starts(simulations: list[xr.Dataset]) -> Integers:
    """Return the seeds (S,) of the starts that have `FEWEST` sound runs or more at every width.

    ValueError is raised unless all widths have the same starts, each with `FEWEST` runs, and `FEWEST` such starts are
    left.
    """
    counted = [np.unique(simulation["start_seed"].values, return_counts=True) for simulation in simulations]
    require(
        all(np.array_equal(counted[0][0], starts) for starts, _ in counted),
        "Argument `simulation` must have the same starts for every width, but they differ.",
    )
    for simulation, (_, counts) in zip(simulations, counted, strict=True):
        require(
            counts.min() >= FEWEST,
            f"Argument `simulation` must have at least {FEWEST} runs of every start, which tell the noise of SGD from "
            f"the distance, but width {simulation.sizes['neuron']} has a start with {counts.min()}.",
        )
    kept = [s for s in counted[0][0] if all(runs_of_start(runs, s).size >= FEWEST for runs in simulations)]
    require(
        len(kept) >= FEWEST,
        f"Argument `simulation` must have at least {FEWEST} starts with {FEWEST} runs that did not blow up, but has "
        f"{len(kept)}.",
    )
    return np.array(kept, dtype=np.int64)


class ExponentTest(NamedTuple):
    """The exponent of the function gap, averaged over log time at the compared times `places`, and its test, or NaN.

    An exponent that is off by `visible` is seen.
    """

    places: slice
    exponent: float = np.nan
    error: float = np.nan
    z: float = np.nan
    p: float = np.nan
    visible: float = np.nan

    @property
    def resolved(self) -> bool:
        """Whether exponents of −1/2 and −3/2 would have been seen."""
        return self.visible <= 0.5


def _tracers(runs: WidthRuns, mean_field: xr.Dataset) -> Array | None:
    """Return the paths of the neurons in the field (T, S, m, r) for the largest m, or None if it followed none."""
    if "tracer_projection" not in mean_field or float(mean_field["time"].values[0]) != 0.0:
        return None
    paths, m = np.asarray(mean_field["tracer_projection"].values), int(runs.widths[-1])
    wanted = coupled_tracers(runs.problem, m, runs.starts.tolist())
    if paths.shape[1:] != wanted.shape or not np.allclose(paths[0], wanted, rtol=0.0, atol=1e-9):
        return None
    return paths[runs.saved].reshape(runs.times.size, runs.starts.size, m, -1)


def _distances(runs: WidthRuns, mean_field: xr.Dataset) -> dict[str, Array]:
    """Return the distances of runs from the mean field by name, each (widths, starts, times).

    "function_gap" is the squared distance of the functions times the width, without the noise of SGD, which is
    "function_gap_noise"; "squared_coupling" is the squared distance of the neurons from their followers in the field,
    and "largest_coupling_error" that of the farthest neuron times √m. Those of neurons are NaN without tracers.
    """
    system = make_particle_system(runs.problem, np.zeros((1, runs.problem.teacher.span)))
    moments, paths = mean_field["law_moment"].values[runs.saved], _tracers(runs, mean_field)
    shape = (runs.widths.size, runs.starts.size, runs.times.size)
    names = ("function_gap", "function_gap_noise", "loss", "squared_coupling", "coupling_noise")
    values = {name: np.full(shape, np.nan) for name in (*names, "largest_coupling_error")}
    for w, (simulation, m) in enumerate(zip(runs.simulations, runs.widths.tolist(), strict=True)):
        for s, start in enumerate(runs.starts.tolist()):
            chosen = simulation.isel(seed=runs_of_start(simulation, start), time=runs.records[w])
            vectors = chosen["neuron_vector"].values  # (runs, times, m, d)
            single = np.mean([function_gap(run, moments, system) for run in vectors], axis=0)
            paired = np.mean([function_gap(a, moments, system, b) for a, b in combinations(vectors, 2)], axis=0)
            distances = {"function_gap": m * paired, "function_gap_noise": m * (single - paired)}
            distances["loss"] = chosen["loss"].values.mean(axis=0)
            if paths is not None:
                weights = coupled_problem(runs.problem, m, start).reduced_weights()
                delta = vectors - followers_in_space(weights, paths[:, s, :m])
                single = np.mean(np.sum(delta**2, axis=(2, 3)), axis=0)
                paired = np.mean([np.sum(a * b, axis=(1, 2)) for a, b in combinations(delta, 2)], axis=0)
                largest = np.linalg.norm(delta, axis=3).max(axis=2).mean(axis=0)
                distances |= {"squared_coupling": paired, "largest_coupling_error": np.sqrt(m) * largest}
                distances["coupling_noise"] = np.sqrt(np.maximum(single - paired, 0.0))
            for name, value in distances.items():
                values[name][w, s] = value
    return values


def exponent_test(runs: WidthRuns, mean_field: xr.Dataset, gap: Array, rate: float) -> ExponentTest:
    """Return the test that the squared distance D_m/m falls as 1/m with the width m, by Student's t over starts.

    `gap` (widths, starts, times) is D_m; its exponent is that of the mean over log time while the loss is between its
    levels. `rate` is the level of the test.
    """
    times, reached, count = runs.times, mean_field["loss_level_time"].values, runs.starts.size
    first, last = np.searchsorted(times, np.where(np.isfinite(reached), reached, np.inf)[[0, -1]]).tolist()
    first = min(first, times.size - 1)
    places = slice(first, max(min(last + 1, times.size), first + 1))
    log_time, mean = np.log(times[places]), gap[:, :, places.start]
    if log_time.size > 1:
        mean = np.trapezoid(gap[:, :, places], log_time, axis=2) / (log_time[-1] - log_time[0])
    exponent, error = (float(value[0]) for value in width_exponents(mean[:, :, None], runs.widths))
    # Noise may leave none: a mean over starts that is not positive, or that some resampling of them turns negative.
    if count < FEWEST_RUNS or not np.isfinite(exponent + error):
        return ExponentTest(places)
    off = exponent + 1.0
    z = normal_score(float(np.sign(off)) * max(abs(off) - WIDTH_CORRECTION, 0.0), error, count - 1)
    visible = WIDTH_CORRECTION + reach_in_errors(count - 1, rate) * error
    return ExponentTest(places, exponent, error, z, two_sided(z), visible)


def width_verdict(mean_field: xr.Dataset, simulations: object, rate: float) -> xr.DataTree:
    """Return the verdict on runs of several widths against a mean field, with all its evidence.

    `mean_field` is its solution, `simulations` are the runs of SGD, one dataset per width, and `rate` is the rate of
    false alarms. The squared distance of the network to the mean field is to fall as m^x in the width m with |x + 1| ≤
    `WIDTH_CORRECTION`; `exponent_test` fits x and gives the p-value of what is beyond. "Disagree": p < `rate`. "Agree":
    it is not, x = −½ or −3/2 would have been seen, and the runs last until the loss of the mean field has fallen to the
    last of its levels. Else "undecided".

    The tree holds the row of evidence, the sentences of the verdict, distances (width, seed, time), their exponents
    over time with errors, the loss of the mean field and its level times; attributes say which times the test covers.
    """
    runs = checked_runs(mean_field, simulations)
    values = _distances(runs, mean_field)
    test = exponent_test(runs, mean_field, values["function_gap"], rate)
    row, reasons = _row(runs, mean_field, test, rate), _remarks(runs, mean_field, values, test)
    coupling = values.pop("squared_coupling")
    values["coupling_error"] = np.sqrt(np.maximum(coupling, 0.0))
    values["mean_field_loss"] = mean_field["loss"].values[runs.saved]
    for name, distance in (("function_gap", values["function_gap"]), ("coupling", coupling)):
        exponent, error = width_exponents(distance, runs.widths)
        values[f"{name}_exponent"] = np.where(np.isfinite(error), exponent, np.nan)
        values[f"{name}_exponent_error"] = error
    blown_up = int(sum(np.sum(~sound_runs(simulation)) for simulation in runs.simulations))
    window, levels = runs.times[test.places], mean_field["loss_level"].values
    return verdict_tree(
        [row],
        [_reason(runs, test, row, rate), *reasons],
        {
            **values,
            "loss_level_time": mean_field["loss_level_time"].values,
            "mean_gap_exponent": test.exponent,
            "mean_gap_exponent_error": test.error,
            "exponent_z": test.z,
            "p_value": test.p,
        },
        problem=runs.problem,
        prediction=mean_field,
        simulations={
            f"/simulation/width_{m}": simulation for m, simulation in zip(runs.widths, runs.simulations, strict=True)
        },
        rate=rate,
        theory=THEORY,
        usable=sum(simulation.sizes["seed"] for simulation in runs.simulations) - blown_up,
        blown_up=blown_up,
        attributes={
            "tested_from": float(window[0]),
            "tested_to": float(window[-1]),
            "width_correction": WIDTH_CORRECTION,
        },
        title="SGD of spherical networks against their mean field",
        leading=("width", "seed"),
        with_leading=("loss",),
        coords={"time": runs.times, "width": runs.widths, "seed": runs.starts, "loss_level": levels},
    )


def _row(runs: WidthRuns, mean_field: xr.Dataset, test: ExponentTest, rate: float) -> Row:
    """Return the row of evidence of the exponent α, where the gap to the mean field falls as width^α; theory says −1.

    `test` is the test of α on the `runs`. The row disagrees if p < `rate`, the rate of false alarms. Else it agrees if
    exponents −1/2 and −3/2 would have been seen, and if records and runs last long enough for the fall of the loss of
    the mean field from half to a tenth. Otherwise it is undecided, and its `cause` says which of these is missing.
    """
    levels = mean_field["loss_level_time"].values
    levels = levels[np.isfinite(levels)]
    end, cause = min(float(simulation.attrs["end_time"]) for simulation in runs.simulations), ""
    if np.isnan(test.p):
        cause = f"No exponent could be tested: that needs {FEWEST_RUNS} starts, and a distance above the noise."
    elif not test.resolved:
        advice = "use more starts, a wider range of widths, a larger batch or a smaller learning rate"
        cause = f"one of −1/2 or −3/2 could have gone unseen: {advice}."
    elif levels.size and not (runs.times[-1] >= levels[0] and end >= levels[-1]):
        early = "before the loss of the mean field has fallen from half to a tenth: use more steps, or later records"
        cause = f"the runs, or their records, end {early}."
    return judged(
        rate,
        quantity="exponent of the width",
        time=float(runs.times[test.places][-1]),
        value=test.exponent,
        low=-1.0 - WIDTH_CORRECTION,
        high=-1.0 + WIDTH_CORRECTION,
        z=test.z,
        p_value=test.p,
        visible_error=test.visible,
        runs=float(runs.starts.size),
        required=True,
        seen=not cause,
        cause=cause,
    )


def _reason(runs: WidthRuns, test: ExponentTest, row: Row, rate: float) -> str:
    """Return the sentence that gives the reason of the word."""
    if np.isnan(test.p):
        return row.cause
    window, measured = runs.times[test.places], f"exponent {with_error(test.exponent, test.error)}"
    span = f"from time {window[0]:.3g} to {window[-1]:.3g}"
    if row.disagrees:
        side = "slower" if test.z > 0 else "faster"
        falls = f"The squared distance to the mean field falls {side} with the width than {_BAND} allows"
        return f"{falls}: {measured} {span}, z = {test.z:.1f} (p = {test.p:.2g} < {rate:g})."
    compatible = f"The {measured} {span} is compatible with {_BAND}"
    seen = f"and one of −1/2 or −3/2 would have been seen with probability {POWER:g}"
    return f"{compatible}, but {row.cause}" if row.cause else f"{compatible} (p = {test.p:.2g}), {seen}."


def _remarks(runs: WidthRuns, mean_field: xr.Dataset, distances: dict[str, Array], test: ExponentTest) -> list[str]:
    """Return sentences that a verdict shows after its reason, such as what it does not cover."""
    noise, gap = (distances[n][:, :, test.places].mean(axis=(1, 2)) for n in ("function_gap_noise", "function_gap"))
    share, particles = float(np.max(noise / gap)), int(mean_field.attrs.get("particles", 0))
    # A random mean field of N particles is off by 1/N itself.
    coarse = mean_field.attrs.get("quadrature") == "random" and runs.widths[-1] > 0.05 * particles
    of_noise = f"Noise of SGD, there up to {share:.2g} times the distance, is averaged out over pairs of runs."
    random = f"The mean field has {particles} random particles and a distance of its own of that order."
    lost = "The prediction has no tracers from the starts of the runs, so neurons are not followed."
    no_tracers = np.isnan(distances["largest_coupling_error"]).all()
    return [words for holds, words in ((share > 0, of_noise), (coarse, random), (no_tracers, lost)) if holds]
