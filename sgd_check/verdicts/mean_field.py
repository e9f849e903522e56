r"""Runs of spherical networks of several widths against their mean field; `sgd_check.compare` calls it for mean fields.

Propagation of chaos says E(f_m − f_∞)² ~ 1/m, f_m the network that the exact flow makes of a random start. SGD adds
noise of its own, of order η/B in the square of the distance and the same for all widths. Two runs of one start have
independent noise, so that with the mean over pairs of runs of each start

.. math:: D_m = m\, \langle\, (f_m - f_\infty)(f'_m - f_\infty)\, \rangle, \qquad
   \Delta^2 = \sum_i \Delta_i\cdot\Delta'_i, \quad \Delta_i = w_i - \bar w_i,

the noise averages out: D_m is m times the squared distance of the network averaged over samples. What the square of a
single run has beyond it is reported as the noise. At next order noise wears away the memory of the start, by a share
that grows with m η/B: batches as the width keep it the same at all widths. A finite step moves the mean, by O(η), which
would hold D_m/m up as m grows: it counts as a distance, not as noise.

The distances are those of `dynamics.laws.chaos`.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from hermite.text.rounding import with_error
from sgd_check.verdicts.direction import FEWEST_RUNS, POWER, normal_score, reach_factor
from sgd_check.verdicts.mean_field_runs import checked_runs, runs_of_start

if TYPE_CHECKING:
    import xarray as xr

    from hermite.arrays import Array, Integers
    from sgd_check.verdicts.mean_field_runs import WidthRuns

THEORY = "mean field"
#: What corrections of finite width may do to the exponent −1; exact flows of 16 to 128 neurons have up to 0.13 ± 0.03
#: (h_4, d = 16, 200 starts, when the loss is below a tenth).
WIDTH_CORRECTION = 0.15
#: "Agree" is said only where an exponent of −½ or −3/2 would have been seen.
VISIBLE_EXPONENT = 0.5
#: A random mean field of N particles is off by 1/N itself; beyond this ratio m/N it is said.
LARGEST_SHARE = 0.05


class ExponentTest(NamedTuple):
    """The exponent of the function gap, averaged over log time at the compared times `places`, and its test.

    Exponent and error are NaN where noise leaves none. z is the distance from the band as a normal score and p its
    two-sided p-value, NaN where there is no test; `resolved` says whether an error would have been seen.
    """

    places: slice
    exponent: float
    error: float
    z: float
    p: float
    resolved: bool


def compare_with_mean_field(mean_field: xr.Dataset, simulations: object, *, false_alarm_rate: float) -> xr.DataTree:
    """Return the tree of `sgd_check.compare` for runs of several widths against a mean field; see there."""
    import xarray as xr

    from dynamics.runs import make_dataset

    runs = checked_runs(mean_field, simulations)
    values = _distances(runs, mean_field)
    squared_coupling = values.pop("squared_coupling")
    test = _tested(runs, mean_field, values["function_gap"], false_alarm_rate)
    comparison = make_dataset(
        {
            **values,
            "coupling_error": np.sqrt(np.maximum(squared_coupling, 0.0)),
            "mean_field_loss": mean_field["loss"].values[runs.saved],
            "loss_level_time": mean_field["loss_level_time"].values,
            **_exponents("function_gap", values["function_gap"], runs.widths),
            **_exponents("coupling", squared_coupling, runs.widths),
            "mean_gap_exponent": test.exponent,
            "mean_gap_exponent_error": test.error,
            "exponent_z": test.z,
            "p_value": test.p,
        },
        problem=runs.problem,
        title="SGD of spherical networks against their mean field",
        coords={
            "time": runs.times,
            "width": runs.widths,
            "seed": runs.starts,
            "loss_level": mean_field["loss_level"].values,
        },
        solver={"answer": "comparison", "false_alarm_rate": false_alarm_rate},
        attributes=_attributes(runs, mean_field, test, false_alarm_rate, values),
        leading=("width", "seed"),
        with_leading=("loss",),
    )
    branches = {f"/simulation/width_{m}": one for m, one in zip(runs.widths, runs.simulations, strict=True)}
    return xr.DataTree.from_dict({"/prediction": mean_field, **branches, "/comparison": comparison})


def _distances(runs: WidthRuns, mean_field: xr.Dataset) -> dict[str, Array]:
    """Return the distances per width, start and time, by name; those of neurons are NaN without tracers."""
    from dynamics.equations import make_particle_system

    system = make_particle_system(runs.problem, np.zeros((1, runs.problem.teacher.span)))
    moments = mean_field["law_moment"].values[runs.saved]
    paths = runs.tracers(mean_field)
    shape = (runs.widths.size, runs.starts.size, runs.times.size)
    names = ("function_gap", "function_gap_noise", "loss", "squared_coupling", "coupling_noise")
    values = {name: np.full(shape, np.nan) for name in (*names, "largest_coupling_error")}
    for w, simulation in enumerate(runs.simulations):
        for s, start in enumerate(runs.starts.tolist()):
            chosen = simulation.isel(seed=runs_of_start(simulation, start), time=runs.records[w])
            vectors = chosen["neuron_vector"].values
            found = _of_functions(vectors, moments, system)
            found["loss"] = chosen["loss"].values.mean(axis=0)
            if paths is not None:
                found |= _of_neurons(vectors, _followers(runs, w, start, paths[:, s]))
            for name, value in found.items():
                values[name][w, s] = value
    return values


def _exponents(name: str, distances: Array, widths: Integers) -> dict[str, Array]:
    """Return the exponent in the width of a distance at every time, with its error; NaN where noise leaves none."""
    from dynamics.laws import width_exponents

    exponent, error = width_exponents(distances, widths)
    known = np.where(np.isfinite(error), exponent, np.nan)
    return {f"{name}_exponent": known, f"{name}_exponent_error": error}


def _of_functions(vectors: Array, moments: Array, system: Any) -> dict[str, Array]:
    """Return D_m and what a single run has beyond it, of the runs of one start, vectors (R, T, m, d)."""
    from dynamics.laws import function_gap

    single = np.mean([function_gap(run, moments, system) for run in vectors], axis=0)
    pairs = [function_gap(one, moments, system, other) for one, other in combinations(vectors, 2)]
    paired, width = np.mean(pairs, axis=0), vectors.shape[2]
    return {"function_gap": width * paired, "function_gap_noise": width * (single - paired)}


def _of_neurons(vectors: Array, followers: Array) -> dict[str, Array]:
    """Return Σ_i Δ_i·Δ'_i, the root of what a single run has beyond it, and the largest √m |Δ_i|, of one start."""
    delta = vectors - followers
    single = np.mean(np.sum(delta**2, axis=(2, 3)), axis=0)
    paired = np.mean([np.sum(one * other, axis=(1, 2)) for one, other in combinations(delta, 2)], axis=0)
    largest = np.linalg.norm(delta, axis=3).max(axis=2).mean(axis=0)
    return {
        "squared_coupling": paired,
        "coupling_noise": np.sqrt(np.maximum(single - paired, 0.0)),
        "largest_coupling_error": np.sqrt(vectors.shape[2]) * largest,
    }


def _followers(runs: WidthRuns, w: int, start: int, paths: Array) -> Array:
    """Return the neurons of one start that follow the field, (T, m, d), from their projections for the largest m."""
    from dynamics.equations import followers_in_space
    from dynamics.solve import coupled_problem

    width = int(runs.widths[w])
    return followers_in_space(coupled_problem(runs.problem, width, start).reduced_weights(), paths[:, :width])


def _tested(runs: WidthRuns, mean_field: xr.Dataset, gap: Array, rate: float) -> ExponentTest:
    """Test the exponent of D_m/m averaged over log time, by Student's t over the starts."""
    from dynamics.laws import width_exponents

    places, count = _window(runs, mean_field), runs.starts.size
    log_time = np.log(runs.times[places])
    mean = gap[:, :, places.start]
    if log_time.size > 1:
        mean = np.trapezoid(gap[:, :, places], log_time, axis=2) / (log_time[-1] - log_time[0])
    exponent, error = (float(value[0]) for value in width_exponents(mean[:, :, None], runs.widths))
    # Noise may leave none: a mean over starts that is not positive, or that some resampling of them turns negative.
    if count < FEWEST_RUNS or not np.isfinite(exponent + error):
        return ExponentTest(places, np.nan, np.nan, np.nan, np.nan, resolved=False)
    off = exponent + 1.0
    z = normal_score(float(np.sign(off)) * max(abs(off) - WIDTH_CORRECTION, 0.0), error, count - 1)
    p = 1.0 if z == 0.0 else float(2.0 * special.ndtr(-abs(z)))
    reach = reach_factor(count, rate) * np.sqrt(count) * error
    return ExponentTest(places, exponent, error, z, p, resolved=bool(WIDTH_CORRECTION + reach <= VISIBLE_EXPONENT))


def _window(runs: WidthRuns, mean_field: xr.Dataset) -> slice:
    """Return the compared times at which the loss of the mean field is between its levels, or the last one."""
    times, reached = runs.times, mean_field["loss_level_time"].values
    ends = np.where(np.isfinite(reached), reached, np.inf)
    first, last = (int(np.searchsorted(times, end, side="left")) for end in (ends[0], ends[-1]))
    first = min(first, times.size - 1)
    return slice(first, max(min(last + 1, times.size), first + 1))


def _reached(runs: WidthRuns, mean_field: xr.Dataset) -> bool:
    """Return whether the runs reach the levels that the loss of the mean field reaches, and have records from there."""
    levels = mean_field["loss_level_time"].values
    levels = levels[np.isfinite(levels)]
    end = min(float(one.attrs["end_time"]) for one in runs.simulations)
    return bool(levels.size == 0 or (runs.times[-1] >= levels[0] and end >= levels[-1]))


def _attributes(
    runs: WidthRuns, mean_field: xr.Dataset, test: ExponentTest, rate: float, values: dict[str, Array]
) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    blown_up = int(sum(np.sum(one["blown_up"].values != 0) for one in runs.simulations))
    every = int(sum(one.sizes["seed"] for one in runs.simulations))
    window = runs.times[test.places]
    verdict, reason = _verdict(runs, mean_field, test, rate)
    reasons = [reason, *_remarks(runs, mean_field, test, values)]
    if blown_up:
        reasons.append(f"Runs left out because they blew up: {blown_up}.")
    return {
        "answer": "comparison",
        "prediction": str(mean_field.attrs.get("answer")),
        "theory": THEORY,
        "verdict": verdict,
        "false_alarm_rate": rate,
        "reasons": " ".join(reasons),
        "tested_from": float(window[0]),
        "tested_to": float(window[-1]),
        "width_correction": WIDTH_CORRECTION,
        "usable_runs": every - blown_up,
        "blown_up_count": blown_up,
    }


def _verdict(runs: WidthRuns, mean_field: xr.Dataset, test: ExponentTest, rate: float) -> tuple[str, str]:
    """Return the one word and its reason."""
    if np.isnan(test.p):
        why = f"No exponent could be tested: that needs {FEWEST_RUNS} starts, and a distance above the noise."
        return "undecided", why
    window, band = runs.times[test.places], f"−1 ± {WIDTH_CORRECTION:g}"
    span = f"from time {window[0]:.3g} to {window[-1]:.3g}"
    found = with_error(test.exponent, test.error)
    if test.p < rate:
        side = "slower" if test.z > 0 else "faster"
        falls = f"The squared distance to the mean field falls {side} with the width than {band} allows"
        return "disagree", f"{falls}: exponent {found} {span}, z = {test.z:.1f} (p = {test.p:.2g} < {rate:g})."
    compatible = f"The exponent {found} {span} is compatible with {band}"
    if not test.resolved:
        advice = "use more starts, a wider range of widths, a larger batch or a smaller learning rate"
        return "undecided", f"{compatible}, but one of −1/2 or −3/2 could have gone unseen: {advice}."
    if not _reached(runs, mean_field):
        end = "before the loss of the mean field has fallen from half to a tenth: use more steps, or later records"
        return "undecided", f"{compatible}, but the runs, or their records, end {end}."
    seen = f"and one of −1/2 or −3/2 would have been seen with probability {POWER:g}"
    return "agree", f"{compatible} (p = {test.p:.2g}), {seen}."


def _remarks(runs: WidthRuns, mean_field: xr.Dataset, test: ExponentTest, values: dict[str, Array]) -> list[str]:
    """Return what is to be said beside the verdict: of noise, of random particles, and of neurons without tracers."""
    found = []
    mean = {name: values[name][:, :, test.places].mean(axis=(1, 2)) for name in ("function_gap", "function_gap_noise")}
    share = float(np.max(mean["function_gap_noise"] / mean["function_gap"]))
    if share > 0.0:
        found.append(f"Noise of SGD, there up to {share:.2g} times the distance, is averaged out over pairs of runs.")
    particles = int(mean_field.attrs.get("particles", 0))
    if mean_field.attrs.get("quadrature") == "random" and runs.widths[-1] > LARGEST_SHARE * particles:
        found.append(f"The mean field has {particles} random particles and a distance of its own of that order.")
    if np.isnan(values["largest_coupling_error"]).all():
        found.append("The prediction has no tracers from the starts of the runs, so neurons are not followed.")
    return found
