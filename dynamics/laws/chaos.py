r"""Propagation of chaos: how far networks of finite width stray from the mean field that they approximate.

Neuron i of a spherical network and a neuron that follows the mean field from the same start, w̄_i, part by
Δ_i = w_i − w̄_i. The theory (Glasgow, Wu, Bruna, arXiv:2504.13110) has |Δ_i| ~ 1/√m and

.. math:: E(f_m - f_\infty)^2 = \frac{1}{m^2}\sum_{ij} g(w_i\cdot w_j)
   - \frac2m \sum_i \sum_k c_k \mu_k F_k(\Theta w_i) + \sum_k c_k \mu_k^2 \sim \frac1m,

with the moments μ_k of the mean field and their features F_k, exact at every d.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dynamics.commands.catalogue import duration
from dynamics.equations.mean_field import MeanFieldSystem, checked_particles
from dynamics.fits import widening
from dynamics.laws.scaffold import PreparedStudy, under_way
from dynamics.problem import Problem, check_problem
from dynamics.problem.checks import (
    MOST_RUNS,
    check_switch,
    checked_increasing,
    checked_integer,
    checked_number,
    checked_tolerances,
)
from dynamics.problem.named_teachers import spherical_problem
from dynamics.problem.saved_times import SaveAt, checked_save_at
from dynamics.problem.student import SPHERICAL
from dynamics.runs.dataset import make_dataset
from dynamics.runs.result import also_interrupted, uninterrupted
from dynamics.runs.trackers import bar_settings
from dynamics.solve.mean_field import default_mean_field_times, solve_mean_field
from dynamics.solve.spherical import coupled_problem, solve_spherical
from hermite.arrays import Array, Integers, as_integer
from hermite.program import say

TITLE = "Distance of spherical networks from their mean field"
#: Saved times by default, over the span of the default saved times of the mean field.
DEFAULT_TIMES = 40
#: Particles of the mean field by default, for one axis and for more. Random ones add an error of order m/particles to
#: m E(f_m − f_∞)².
PARTICLES, RANDOM_PARTICLES = 8192, 1 << 17
#: Resamplings of the seeds, and their own seed.
RESAMPLINGS, RESAMPLING_SEED = 1000, 0
#: Accuracy of networks and mean field in the study: errors of 10^-5 in positions, far below distances of 1/√m.
RTOL, ATOL = 1e-3, 1e-5
#: Evaluations of the flow of h_4 per unit of time, and operations per second, for the estimate.
EVALUATIONS, SPEED = 25.0, 3e10


def propagation_of_chaos(
    problem: Problem,
    *,
    widths: Sequence[int],
    seeds: int | Sequence[int] = 8,
    save_at: SaveAt | None = None,
    particles: int | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    progress: bool = False,
) -> xr.Dataset:
    r"""Measure the distance of networks of finite width from the mean field, in function space and neuron by neuron.

    For every seed one Gaussian matrix starts the networks of all widths, from its first rows; the mean field is
    integrated once, and the neurons of all starts follow it without being part of it.

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"`` and a teacher in at most eight axes, fewer than d; width, seed and start are
        replaced.
    widths : sequence of int
        Two or more increasing widths m.
    seeds : int or sequence of int
        Two or more seeds of the starts, or their number, from 0 on.
    save_at : SaveAt, optional
        Saved times. Default: 40 geometric times over the default saved times of `solve_mean_field`.
    particles : int, optional
        Number N of particles of the mean field. Default: 8192 for one axis, 131072 for more; the latter are random and
        add an error of order m/N to the scaled function gap.
    rtol, atol : float
        Wanted accuracy of both flows, as for these.
    progress : bool, default False
        Whether to say on stderr which seed and width are integrated.

    Returns
    -------
    Dataset
        Per (width, seed, time) the `function_gap` m E(f_m − f_∞)², the `coupling_error` √(Σ_i |Δ_i|²), which is √m
        times the root mean square, `largest_coupling_error`, √m max_i |Δ_i|, and the `loss` of the networks;
        `mean_field_loss(time)` and its `loss_level_time(loss_level)`. `function_gap_exponent(time)` is the slope of
        ln ⟨E(f_m − f_∞)²⟩ in ln m, ⟨·⟩ the mean over seeds, and `coupling_exponent(time)` that of ln ⟨mean_i |Δ_i|²⟩;
        theory says −1 for both. Their standard errors, `…_error`, are from a bootstrap over the seeds, which all widths
        share, widened by Student's factor. NaN where a distance is 0, as |Δ| is at t = 0. `attrs["stop_reason"]` is
        "reached_end", or "interrupted" after Ctrl-C; then the seeds are those that were finished. Dimensionless.

    Raises
    ------
    SolveError, KeyboardInterrupt, TypeError, ValueError
        If an integration fails, if Ctrl-C was pressed before two seeds were finished, or for bad arguments, before any
        work. UserWarning says that Σ a_p is not 1.

    References
    ----------
    Glasgow, Wu and Bruna, arXiv:2504.13110.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> chaos = propagation_of_chaos(problem, widths=(16, 32, 64), seeds=4, save_at=SaveAt.at([0.0, 1.0]))
    >>> chaos.function_gap.shape, bool(abs(chaos.function_gap_exponent[1] + 1) < 0.5)
    ((3, 4, 2), True)
    """
    check_problem(problem, SPHERICAL)
    counts = checked_increasing(widths, "widths", minimum=1)
    if isinstance(seeds, bool) or as_integer(seeds) is not None:
        numbers = list(range(checked_integer(seeds, "seeds", minimum=2, maximum=MOST_RUNS)))
    else:
        numbers = checked_increasing(seeds, "seeds", minimum=0)
    rtol, atol = checked_tolerances(rtol, atol)
    check_switch("progress", progress)
    saved_times = default_chaos_times(problem) if save_at is None else checked_save_at(save_at, save_at)
    if particles is None:
        particles = PARTICLES if problem.teacher.span == 1 else RANDOM_PARTICLES
    checked_particles(problem, particles, "random")
    random_problem = replace(problem, initial_weights=None, initial_overlaps=None)

    tracers = coupled_tracers(random_problem, counts[-1], numbers)
    field = solve_mean_field(
        random_problem,
        particles=particles,
        tracers=tracers,
        save_at=saved_times,
        keep="summary",
        rtol=rtol,
        atol=atol,
        progress=False,
    )
    solve = partial(solve_spherical, save_at=saved_times, rtol=rtol, atol=atol, error_estimate=False, progress=False)
    values, reason = _distances_of_starts(random_problem, counts, numbers, field, solve, progress=progress)

    for name, scaled in (("function_gap", values["function_gap"]), ("coupling", values["coupling_error"] ** 2)):
        exponent, error = width_exponents(scaled, np.array(counts))
        values |= {f"{name}_exponent": exponent, f"{name}_exponent_error": widening(scaled.shape[1]) * error}
    values |= {"mean_field_loss": field["loss"].values, "loss_level_time": field["loss_level_time"].values}
    settings = {"particles": particles, "rtol": rtol, "atol": atol}
    dataset = make_dataset(
        values,
        problem=random_problem,
        title=TITLE,
        coords={
            "time": field["time"].values,
            "width": np.array(counts),
            "seed": np.array(numbers[: values["loss"].shape[1]]),
            "loss_level": field["loss_level"].values,
        },
        solver={"answer": "chaos", "widths": counts, "seeds": numbers, **settings},
        attributes={
            "answer": "chaos",
            "teacher_loss": field.attrs["teacher_loss"],
            "stop_reason": reason,
            **settings,
        },
        leading=("width", "seed"),
        with_leading=("loss",),
    )
    return uninterrupted(dataset)


def _distances_of_starts(
    problem: Problem,
    widths: list[int],
    seeds: list[int],
    field: xr.Dataset,
    solve: Callable[[Problem], xr.Dataset],
    *,
    progress: bool,
) -> tuple[dict[str, Array], str]:
    """Return the distances (width, seed, time) by name, of the finished seeds, and the reason of the end."""
    from dynamics.equations.spherical import make_particle_system

    axes = problem.teacher.span
    followers = field["tracer_projection"].values.reshape(field.sizes["time"], len(seeds), widths[-1], axes)
    system = make_particle_system(problem, np.zeros((1, axes)))
    finished: list[list[dict[str, Array]]] = []
    with under_way(len(seeds), progress=False) as meter:
        for s, seed in enumerate(seeds):
            rows: list[dict[str, Array]] = []
            for width in widths:
                if progress:
                    say(f"seed {seed} ({s + 1} of {len(seeds)}), width {width}")
                flow = solve(coupled_problem(problem, width, seed))
                rows.append(_distances(flow, followers[:, s, :width], field["law_moment"].values, system))
            finished.append(rows)
    if len(finished) < 2:
        raise KeyboardInterrupt
    distances = {name: np.array([[row[name] for row in rows] for rows in finished]) for name in finished[0][0]}
    return {name: values.swapaxes(0, 1) for name, values in distances.items()}, meter.stop_reason


def _distances(flow: xr.Dataset, followers: Array, moments: Array, system: MeanFieldSystem) -> dict[str, Array]:
    """Return the scaled distances (T,) of one network from the mean field, by name, and its loss."""
    from dynamics.equations.spherical import followers_in_space

    vectors = flow["neuron_vector"].values
    width = vectors.shape[1]
    distance = np.linalg.norm(vectors - followers_in_space(vectors[0], followers), axis=2)
    return {
        "function_gap": width * function_gap(vectors, moments, system),
        "coupling_error": np.sqrt(np.sum(distance**2, axis=1)),
        "largest_coupling_error": np.sqrt(width) * distance.max(axis=1),
        "loss": flow["loss"].values,
    }


def coupled_tracers(problem: Problem, width: int, seeds: Sequence[int]) -> Array:
    """Return the projections (len(seeds)·m, r) of the neurons of `coupled_problem`, seed after seed, as tracers."""
    starts = [coupled_problem(problem, width, seed).reduced_weights() for seed in seeds]
    return np.concatenate([start[:, : problem.teacher.span] for start in starts])


def function_gap(vectors: Array, moments: Array, system: MeanFieldSystem, second_network: Array | None = None) -> Array:
    """Return E(f_m − f_∞)² at every time, from neurons (T, m, D) and the moments of the mean field (T, M).

    With the neurons of a second network of the same width it is E(f_m − f_∞)(f'_m − f_∞).
    """
    from dynamics.equations.losses import mean_of_pairs

    problem, c = system.problem, system.coefficients
    axes, kernel = problem.teacher.span, problem.activation.kernel
    gap = np.empty(len(vectors))
    for t, (neurons, mu) in enumerate(zip(vectors, moments, strict=True)):
        second = neurons if second_network is None else second_network[t]
        features = sum(system.features(np.ascontiguousarray(w[:, :axes])).mean(axis=1) for w in (neurons, second))
        gap[t] = mean_of_pairs(neurons, kernel, second) - (c * mu) @ features + (c * mu) @ mu
    return gap


def width_exponents(scaled: Array, widths: Integers) -> tuple[Array, Array]:
    """Return the exponent in m of the mean over seeds of scaled/m, (width, seed, time) -> (time,), and its error."""
    centre, count = np.log(widths) - np.log(widths).mean(), scaled.shape[1]

    def slopes(chosen: NDArray[np.intp]) -> Array:
        """Return the exponents in the width of the mean over the chosen starts, (times,)."""
        mean = scaled[:, chosen].mean(axis=1)
        logs = np.log(np.where((mean > 0.0).all(axis=0), mean, np.nan))
        return np.asarray(centre @ logs / (centre @ centre) - 1.0)

    draws = np.random.default_rng(RESAMPLING_SEED).integers(count, size=(RESAMPLINGS, count))
    # The variance of a resampled mean is that of the mean times (S − 1)/S.
    error = np.std([slopes(chosen) for chosen in draws], axis=0) * np.sqrt(count / (count - 1))
    return slopes(np.arange(count)), error


def default_chaos_times(problem: Problem) -> SaveAt:
    """Return the saved times where none are given, over the span of that of the mean field."""
    times = default_mean_field_times(problem).times
    return SaveAt.geometric(float(times[0]), float(times[-1]), DEFAULT_TIMES)


def prepare(
    *,
    teacher: str = "he4",
    dimension: int = 16,
    widths: Sequence[int] = (128, 256, 512, 1024),
    seeds: int = 8,
    seed: int = 0,
    last: float | None = None,
    progress: bool | None = None,
) -> PreparedStudy:
    """Return the study of a teacher of `SPHERICAL_TEACHERS`, widths, at least two starts, and the last saved time."""
    problem = spherical_problem(teacher, dimension=dimension)
    counts = checked_increasing(widths, "widths", minimum=1)
    number = checked_integer(seeds, "seeds", minimum=2, maximum=MOST_RUNS)
    seed = checked_integer(seed, "seed", minimum=0)
    saved_times = default_chaos_times(problem)
    if last is not None:
        last = checked_number(last, "last", positive=True)
        saved_times = SaveAt.geometric(min(float(saved_times.times[0]), last / 100.0), last, len(saved_times))
    end = float(saved_times.times[-1])
    operations = sum(4.0 * m**2 * min(problem.dimension, problem.teacher.span + m) for m in counts)
    seconds = duration(EVALUATIONS * end * number * operations / SPEED)
    work = f"About {seconds} for {len(counts)} widths, {number} starts each, to t = {end:.4g}."
    seen = not bar_settings(progress)["disable"]
    chaos = partial(propagation_of_chaos, problem, widths=counts, seeds=range(seed, seed + number), save_at=saved_times)

    def solve(_: PreparedStudy) -> xr.Dataset:
        """Return the answer of `propagation_of_chaos`, with its seconds."""
        began = clock.perf_counter()
        dataset = also_interrupted(partial(chaos, rtol=RTOL, atol=ATOL, progress=seen))
        return dataset.assign_attrs(wall_seconds=clock.perf_counter() - began)

    return PreparedStudy("chaos", TITLE, {}, problem, progress, solve, work)
