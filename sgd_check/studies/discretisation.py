"""Study of the step size that is tuned to the last wanted direction: loss against samples, by SGD and theory of pairs.

The noise of a step lets directions of weight a_p̄ and above escape and delays or traps weaker ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics import fits, theory
from dynamics.commands import study_function
from dynamics.equations import LARGEST_HISTORY, solve_pairs
from dynamics.problem import Problem, Teacher, checked_increasing, checked_integer, checked_number
from dynamics.problem.checks import LARGEST_INTEGER, require
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse
from sgd_check.studies.scaffold import (
    DEFAULT_NORM,
    DEFAULT_START,
    SgdStudy,
    checked_runs,
    log_means,
    prepared_pairs,
    share_never,
)

# A run takes this many times the samples that theory needs for its target.
HORIZON = 2.5
SOURCES = ("SGD", "theory at its size", "theory at large size", "ideal sum at large size", "asymptotic")


class TargetCurve(NamedTuple):
    """Theory of pairs alone at one size, at the learning rate of each target p̄, for the loss of that target.

    Of each target: the samples until its loss is reached (targets,), with the delays by noise and without, NaN if
    never; and the learned times of all pairs with the delays (targets, P), inf if trapped.
    """

    problem: Problem
    targets: Integers
    losses: Array
    needed: Array
    without_noise: Array
    delayed: Array


def _discretisation(study: SgdStudy, small: TargetCurve, ends: Integers, large: Problem) -> xr.Dataset:
    """Return the dataset of all runs at the learning rate of each target; runs after an interruption are NaN.

    `small` is the theory at the size of the runs, `ends` (targets,) the steps of the runs of each target, and `large` a
    larger problem, of which theory alone is computed.
    """
    problem, rate, runs = study.problem, study.settings["rate"], study.settings["seeds"]
    wide, shape = theory_curve(large, _spread_targets(large, 20), rate), (ends.size, runs)
    rates = theory.tuned_rates(problem, small.targets, rate)
    samples = np.unique(np.rint(np.geomspace(max(0.02 * ends.min(), 1.0), ends.max(), 160)).astype(np.int64))
    loss, emerged = (np.full((*shape, size), np.nan) for size in (samples.size, problem.num_directions))
    blown, reached = np.full((2, *shape), np.nan)
    with study.stepping() as meter:
        for index, end in enumerate(ends.tolist()):
            records = samples[samples <= end].tolist()
            simulation = study.simulated(problem, float(rates[index]), end, study.seeds_of(index), records)
            loss[index, :, : simulation.sizes["time"]] = simulation["loss"].values
            blown[index], emerged[index] = simulation["blown_up"].values, simulation["emergence_time"].values
            meter.add(end * shape[1])
    for target, run in np.ndindex(shape):
        reached[target, run] = fits.first_crossing(samples, loss[target, run], float(small.losses[target]), linear=True)
    exponent, error = _exponents(small, reached, wide)
    prediction, of_target, of_run = theory.predict(problem), ("target",), ("target", "run")
    return study.dataset(
        meter,
        {
            "samples_needed": (of_run, reached),
            "sample_loss": (of_run, loss),
            "emergence_time": (of_run, emerged),
            "blown_up_share": (of_target, blown.mean(axis=1)),
            "censored_share": (of_target, share_never(emerged, blown)),
            "first_seed": (of_target, [study.seeds_of(index).start for index in range(ends.size)]),
            "exponent": ((), exponent),
            "exponent_error": ((), error),
            "step_size": (of_target, rates),
            "target_loss": (of_target, small.losses),
            "predicted_samples_needed": (of_target, small.needed),
            "predicted_emergence_time": ((), prediction.predicted_emergence_time),
            "predicted_learned_time": ((), prediction.predicted_learned_time),
            "delayed_time": (of_target, small.delayed),
            "large_samples_needed": ((), wide.needed),
            "large_target_loss": ((), wide.losses),
        },
        {
            "target": small.targets,
            "samples": samples,
            "run": np.arange(runs),
            "large_target": wide.targets,
            "source": np.array(SOURCES),
        },
        learning_rate_limit=float(theory.learning_rate_limit(problem)),
        beta=study.settings["beta"],
    )


def _exponents(small: TargetCurve, reached: Array, large: TargetCurve) -> tuple[Array, Array]:
    """Return the exponents x of L ∝ n^x by source, (sources,), and their standard errors, 0 where theory is exact.

    Sources are, in order, SGD, the theory of pairs at the same size, that at a larger size, the ideal sum there, and
    the asymptotic law. Fits are of ln n against ln L, where n (`reached`, targets x runs) are samples until loss L.
    """
    mean, error = log_means(reached)
    sgd, used = fits.fit_slope(small.losses, mean, error), np.isfinite(reached).all(axis=1)
    of_pairs = fits.fit_slope(small.losses, np.where(used, np.log(small.needed), np.nan))
    teacher = large.problem.teacher
    sums = [
        fits.inverse_fit(large.losses, n[None]) for n in (large.needed, teacher.coefficients[large.targets - 1] ** -2.0)
    ]
    law = theory.asymptotic_exponents(large.problem.information_exponent, teacher.beta).loss_samples
    values = [1.0 / sgd.exponent, 1.0 / of_pairs.exponent, *(fit.exponent for fit in sums), law]
    errors = [sgd.standard_error / sgd.exponent**2, 0.0, *(fit.standard_error for fit in sums), 0.0]
    return np.array(values), np.array(errors)


@study_function  # returns what `run` of the prepared study returns, a dataset
def unstable_discretisation(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 16,
    dimension: int = 48,
    targets: Sequence[int] | None = None,
    rate: float = 0.5,
    start: float = DEFAULT_START,
    initial_norm: float = 0.1,
    seeds: int = 12,
    seed: int = 0,
    large_directions: int = 4096,
    large_dimension: int = 16384,
    progress: bool | None = None,
) -> SgdStudy:
    r"""Measure the loss that so many samples reach when the step size is tuned to the last wanted direction.

    .. math:: \eta_{\bar p} = c\, a_{\bar p}\, d^{-k/2}, \qquad n_{\bar p} = T_{\bar p}/\eta_{\bar p} \propto
       a_{\bar p}^{-2} d^{k-1}, \qquad L \propto n^{(1-2\beta)/(2\beta)} \;\text{as } P, \bar p \to \infty

    n_p̄ counts the samples until the loss is that of p̄ learned directions, the last by half.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β > ½.
    directions, dimension : int
        P ≥ 4 and d ≥ 2 P of the SGD runs; neuron p starts at C² = s/d from direction p.
    targets : sequence of int, optional
        Numbers p̄ of wanted directions, increasing, at most P.  By default up to six, up to P^0.75.
    rate, start : float
        c > 0 and s > 0.
    initial_norm : float
        σ0 = |w_i| of the SGD runs; it is 0.01 at the large size, where very many neurons share the output.
    seeds : int
        Runs per target, at least 2; no two runs of the study share samples.
    seed : int
        First seed of the samples, and seed of the random start at the large size.
    large_directions, large_dimension : int
        P and d of the theory alone; m = 3 P and a random start.

    Returns
    -------
    Dataset
        `samples_needed` (target, run; NaN if never), `predicted_samples_needed` (target), `sample_loss`
        (target, run, samples), `emergence_time` (target, run, direction), `delayed_time` (target, direction),
        `blown_up_share`, `large_samples_needed`, and `exponent(source)` of L ∝ n^x with `exponent_error`: SGD, theory
        at the same size, at the large size, the ideal sum (T_p ∝ p^β exactly, no noise, no lag) at the large size, and
        the asymptotic law.

    Notes
    -----
    Theory takes the exact transit of each matched pair, the lag of its norm, and the delay by the noise of steps at
    first order.  The error of SGD's exponent is that of the means of ln n; that at the large size is a jackknife over
    the targets.  Targets that some run does not reach, or in which a run blows up before, enter no fit.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv 2504.19983.

    Examples
    --------
    >>> settings = {"information_exponent": 3, "directions": 4, "dimension": 16, "targets": [1, 2], "rate": 0.5}
    >>> curve = unstable_discretisation(**settings, seeds=2, large_directions=64, large_dimension=256, progress=False)
    >>> curve.exponent.sel(source=["theory at large size", "asymptotic"]).round(2).values.tolist()
    [-0.57, -0.5]
    """
    require(
        checked_number(beta, "beta", positive=False) > 0.5,
        f"Argument `beta` must be above 1/2, or the loss follows no power law, but is {beta}.",
    )
    teacher = Teacher.power_law(checked_integer(directions, "directions", minimum=4), beta)
    problem = prepared_pairs(information_exponent, dimension, teacher=teacher, start=start, initial_norm=initial_norm)
    count = checked_integer(large_directions, "large_directions", minimum=64, maximum=LARGEST_HISTORY)
    large = Problem(
        activation=problem.activation,
        teacher=Teacher.power_law(count, beta),
        width=3 * count,
        dimension=checked_integer(large_dimension, "large_dimension", minimum=count),
        initial_norm=DEFAULT_NORM,
        seed=checked_integer(seed, "seed", minimum=0),
    )
    chosen_targets = _spread_targets(problem, 6)
    if targets is not None:
        chosen_targets = np.array(checked_increasing(targets, "targets", minimum=1), dtype=np.int64)
        require(
            chosen_targets[-1] <= problem.num_directions,
            f"Argument `targets` must stay at or below the number of directions, {problem.num_directions}, but is "
            f"{chosen_targets.tolist()}.",
        )
    settings: dict[str, object] = {
        "beta": float(beta),
        "targets": chosen_targets.tolist(),
        "rate": checked_number(rate, "rate", positive=True),
        "start": float(start),
        **checked_runs(seeds, seed),
        "large": {"num_directions": count, "dimension": large.dimension, "width": large.width},
    }
    small = theory_curve(problem, chosen_targets, rate)
    longest = HORIZON * float(np.nanmax([small.needed, small.without_noise]))
    require(
        longest < LARGEST_INTEGER,
        f"Argument `rate` must leave runs of fewer steps than integers count, but they take {longest:.2g}.",
    )
    needed = np.where(np.isnan(small.needed), small.without_noise, small.needed)
    ends = np.ceil(HORIZON * needed).astype(np.int64)
    solve = partial(_discretisation, small=small, ends=ends, large=large)
    title = "Loss against samples at a step size tuned to the last wanted direction"
    steps = float(settings["seeds"] * ends.sum(dtype=np.float64))
    return SgdStudy("unstable-discretisation", title, settings, problem, progress, solve, steps=steps)


def _spread_targets(problem: Problem, count: int) -> Integers:
    """Return at most `count` targets from 1 to P^0.75; beyond, the sum over the rest is far from its limit."""
    return np.unique(np.geomspace(1, problem.num_directions**0.75, count).round().astype(np.int64))


def theory_curve(problem: Problem, targets: Integers, rate: float) -> TargetCurve:
    """Return the theory of pairs for each target p̄, the number of wanted directions.

    `targets` holds the numbers p̄, and `rate` is c of the learning rates η_p̄, tuned to the last wanted direction. Each
    pair of a neuron and its direction takes its exact flow, delayed by the mean effect of steps
    (`dynamics.theory.escape_bias`). The result holds, by target, the loss of p̄ learned directions, the samples until
    that loss, with the delay and without it, and the learned times (targets, P) with the delay.
    """
    prediction = theory.predict(problem)
    rates, levels = theory.tuned_rates(problem, targets, rate), theory.target_losses(problem, targets)
    emergence, flow = prediction.predicted_emergence_time, prediction.predicted_learned_time
    is_learned, later = np.isfinite(flow), np.isfinite(emergence) & (emergence > 0.0)
    times = np.geomspace(0.1 * flow[is_learned].min(), 4.0 * flow[is_learned].max(), 800)
    pairs, a, g = solve_pairs(problem, prediction, times), problem.teacher.coefficients, problem.activation.kernel
    if pairs.overlap is None or pairs.squared_norm is None:
        refuse(f"Argument `problem` must have at most {LARGEST_HISTORY} directions, but has {a.size}.")
    C, n = np.nan_to_num(pairs.overlap), np.nan_to_num(pairs.squared_norm)
    # The part of each direction in the loss of the flow, (T, P).
    losses = float(np.sum(problem.activation.coefficients**2)) * (a**2 + n**2) - 2.0 * n * a * g(C)
    rows = []
    for eta, level in zip(rates.tolist(), levels.tolist(), strict=True):
        added = np.zeros_like(emergence)
        added[later] = emergence[later] * theory.escape_bias(problem, eta, prediction).drift_bias[later]
        samples = []
        for delays in (np.where(is_learned, added, np.inf), np.zeros_like(added)):
            # A pair that is trapped, of delay inf, keeps its first loss.
            total = sum(np.interp(times - delay, times, loss) for delay, loss in zip(delays, losses.T, strict=True))
            samples.append(fits.first_crossing(times, total, level, linear=True) / eta)
        rows.append([*samples, flow + added])
    needed, without, learned = (np.array(column) for column in zip(*rows, strict=True))
    return TargetCurve(problem, targets, levels, needed, without, learned)
