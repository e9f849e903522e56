r"""Study of the sample complexity: steps to escape against the dimension, at a step size η = c d^(−k/2).

The flow needs a time ∝ d^(k/2−1), so n = T/η ∝ d^(k−1) samples. A step of zeroth order along K directions has a mean
square (d + K + 1)/K times that of SGD: at steps shorter by so much drag over drift are the same, and n ∝ d^k. (For the
spherical neuron the mean square also has the gradient along the neuron, E[y²ψ²(|x|²(d − 1) + 2|x_⊥|²)] for
E[y²ψ²|x_⊥|²]: 1.24d, 1.05d and 1.01d times as much at d = 32, 128 and 512.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import xarray as xr

from dynamics.commands import study_function
from dynamics.fits import fit_slope
from dynamics.problem import Problem, SaveAt, checked_increasing, checked_list, checked_number
from dynamics.problem.checks import JsonObject, require
from dynamics.problem.optimizers import PLAIN, Optimizer, ZerothOrder, checked_optimizer
from dynamics.runs import Values
from dynamics.theory import mean_time, predict
from hermite.arrays import Array, Switches
from hermite.text.messages import shown
from sgd_check.engines import EngineOptions, engine_of, make_engine
from sgd_check.simulations.plan import make_plan
from sgd_check.simulations.recording import Watch
from sgd_check.studies.scaffold import (
    DEFAULT_START,
    SgdStudy,
    checked_rising,
    checked_runs,
    finite_step_times,
    log_means,
    lone_sphere,
    prepared_pairs,
)

#: A run may take so many times the expected steps (at d = 32 the logarithm of the time scatters by 0.4).
HORIZON = 6.0
SOURCES = ("SGD", "finite-step equation", "flow", "asymptotic")
#: Dimensions and step size by default, without smoothing and with: strong smoothing at small d, with a large step, has
#: noise that no mean equation tells of.
USUAL, USUAL_SMOOTHED = ((32, 64, 128, 256, 512, 1024), 0.1), ((64, 128, 256, 512), 0.05)
#: Ratio of times at which runs are checked, over two decades: an escape is a small part of the time before it.
TIME_RATIO = 1.005


class Cell(NamedTuple):
    """One dimension of one link and smoothing: step size η, escape times by theory, exponent of the samples in d."""

    problem: Problem
    learning_rate: float
    flow_time: float
    finite_step_time: float
    asymptotic: float
    optimizer: Optimizer = PLAIN

    @property
    def expected_steps(self) -> float:
        """Number of SGD steps until the emergence in a typical run."""
        time = self.finite_step_time if np.isfinite(self.finite_step_time) else self.flow_time
        return time / self.learning_rate


def _sample_complexity(study: SgdStudy, cells: list[Cell]) -> xr.Dataset:
    """Return the dataset of the runs of all `cells`.

    Those with few steps come first, so that an interruption leaves many of them.
    """
    count, exponents = study.settings["seeds"], study.settings["smoothing_exponents"]
    optimizers = study.settings.get("optimizers")
    coords = {
        "information_exponent": np.array(study.settings["information_exponents"]),
        **({} if exponents is None else {"smoothing_exponent": np.array(exponents)}),
        **({} if optimizers is None else {"optimizer": np.array(optimizers)}),
        "dimension": np.array(study.settings["dimensions"]),
    }
    shape = tuple(axis.size for axis in coords.values())
    time, blown = np.full((2, *shape, count), np.nan)
    with study.stepping() as meter:
        # In the order of the cells, which is that of their seeds.
        numbered = enumerate(zip(np.ndindex(shape), cells, strict=True))
        for number, (place, cell) in sorted(numbered, key=lambda item: item[1][1].expected_steps):
            times, blown[place] = escape_times(
                cell.problem,
                learning_rate=cell.learning_rate,
                steps=int(np.ceil(HORIZON * cell.expected_steps)),
                seeds=study.seeds_of(number),
                report=meter.add,
                optimizer=cell.optimizer,
            )
            time[place] = times[:, 0]
    values = _values(study, cells, time, blown, coords["dimension"].astype(np.float64))
    links = tuple(coords)[:-1]
    labelled = {name: ((*links, *dims), array) for name, (dims, array) in values.items()}
    return study.dataset(meter, labelled, coords | {"run": np.arange(count), "source": np.array(SOURCES)})


def _values(study: SgdStudy, cells: list[Cell], time: Array, blown: Array, d: Array) -> Values:
    """Return the variables of the study, each as its last dims and its array.

    Arrays have the axes of the links in front. `time` (links, …, dimensions, runs) are flow times of emergence, NaN if
    never, `blown` of that shape is 1 for runs that blew up, and `d` (dimensions,) the dimensions, over which exponents
    are fitted.
    """
    *links, _, count = time.shape
    numbers = [(cell.learning_rate, cell.flow_time, cell.finite_step_time, cell.asymptotic) for cell in cells]
    rate, flow, finite, law = np.array(numbers).T.reshape(4, *links, d.size)
    mean, error = log_means(time)
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = (mean - np.log(finite)) / error
    exponent, exponent_error = np.zeros((2, *links, len(SOURCES)))
    for place in np.ndindex(*links):
        log_steps = mean[place] - np.log(rate[place])
        measured = fit_slope(d, log_steps, error[place])
        # Theory is fitted over the dimensions that SGD was: a curve that bends has no one slope.
        used = np.isfinite(log_steps + error[place])
        logs = [np.where(used, np.log(curve[place] / rate[place]), np.nan) for curve in (finite, flow)]
        exponent[place] = [
            measured.exponent,
            *(fit_slope(d, curve_logs).exponent for curve_logs in logs),
            law[place][0],
        ]
        exponent_error[place][0] = measured.standard_error
    of_direction, of_size, of_run = (..., None), ("dimension",), ("dimension", "run")
    seeds = [study.seeds_of(place).start for place in range(len(cells))]
    return {
        "emergence_time": (of_run, time[of_direction]),
        "emergence_step": (of_run, (time / rate[of_direction])[of_direction]),
        "predicted_emergence_time": (of_size, flow[of_direction]),
        "finite_step_time": (of_size, finite[of_direction]),
        "time_deviation": (of_size, deviation[of_direction]),
        "p_value": ((), np.apply_along_axis(agreement, -1, deviation, count)),
        "step_size": (of_size, rate),
        "first_seed": (of_size, np.array(seeds).reshape(rate.shape)),
        "blown_up_share": (of_size, blown.mean(axis=-1)),
        "censored_share": (
            of_size,
            np.where(np.isnan(blown[..., 0]), np.nan, np.isnan(time).mean(axis=-1))[of_direction],
        ),
        "exponent": ((), exponent),
        "exponent_error": ((), exponent_error),
    }


def agreement(deviations: Array, runs: int) -> float:
    """Return the p-value of the hypothesis that measured means agree with the equation, by a χ² over all dimensions.

    `deviations` are the gaps of means of ln T in standard errors, NaN where unknown, each from `runs` runs, and are
    taken to follow Student's law.

    Examples
    --------
    >>> round(agreement(np.array([0.5, -1.0]), 16), 3)
    0.555
    """
    from scipy.stats import chi2, norm, t

    finite = deviations[np.isfinite(deviations)]
    if finite.size == 0:
        return float("nan")
    normal = norm.isf(t.sf(np.abs(finite), runs - 1))
    return float(chi2.sf(np.sum(normal**2), finite.size))


@study_function  # returns what `run` of the prepared study returns, a dataset
def sample_complexity(
    *,
    information_exponents: Sequence[int] = (3, 4),
    smoothing_exponents: Sequence[float] | None = None,
    dimensions: Sequence[int] | None = None,
    rate: float | None = None,
    optimizers: Sequence[Optimizer | str] | None = None,
    start: float = DEFAULT_START,
    seeds: int = 16,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    r"""Measure the number of SGD steps to C² = ½ against the dimension, and those of flow and finite-step equation.

    .. math:: \eta = c\, d^{-k/2} \lambda^{2k-2}, \qquad n = T/\eta \propto d^{k-1-(2k-4)e}

    for one neuron of link h_k that starts at C² = s/d (C > 0) from the one direction, of weight 1; λ = 1 and e = 0, or
    with smoothing exponents e the neuron is spherical and descends its correlation with the labels, smoothed by λ =
    d^e.

    Parameters
    ----------
    information_exponents : sequence of int
        k ≥ 3, increasing.
    smoothing_exponents : sequence of float, optional
        e, increasing, from 0 (not smoothed) to 1/4, beyond which more samples are needed again. Default: the squared
        error of the homogeneous student, not smoothed.
    dimensions : sequence of int, optional
        d, increasing, at least two. Default: 32 to 1024, with smoothing 64 to 512.
    rate, start : float
        c > 0 and s > 0, dimensionless. Default of c: 0.1, with smoothing 0.05.
    optimizers : sequence of dynamics.SGD() or ZerothOrder, optional
        Beside one another: plain SGD, "sgd", and steps of zeroth order along K directions, "zeroth-order", which are
        taken at c d^(−k/2) K/(d + K + 1), need n ∝ d^k samples and know no smoothing. Default: plain SGD.
    seeds, seed : int
        Runs per dimension, at least 2, and first seed of the samples; no two runs of the study share samples.

    Returns
    -------
    Dataset
        `emergence_time` and `emergence_step` (information_exponent, dimension, run, direction; NaN if never),
        `predicted_emergence_time` (flow) and `finite_step_time`, `time_deviation` (z of the mean of ln T against the
        finite-step equation), shares of censored and blown-up runs, and `exponent(information_exponent, source)`, the
        slope of ln n against ln d, with `exponent_error`; all for each `smoothing_exponent` and each `optimizer` too,
        where these are given. `attrs["stop_reason"]` is "reached_end" or "interrupted"; what was not computed is NaN.

    Notes
    -----
    The standard error of a slope is that of the means of ln T; it says nothing of the curve's own bend, which the
    slopes of the two equations show.  Dimensions with a censored or blown-up run enter no fit.  A run may take six
    times the expected steps and ends when it has escaped.

    Examples
    --------
    >>> settings = {"information_exponents": [3], "dimensions": [16, 32], "seeds": 4}
    >>> complexity = sample_complexity(**settings, progress=False)
    >>> complexity.exponent.sel(information_exponent=3, source=["flow", "asymptotic"]).round(2).values.tolist()
    [2.57, 2.0]
    """
    exponents = checked_increasing(information_exponents, "information_exponents", minimum=3, fewest=1)
    smoothings = None
    if smoothing_exponents is not None:
        # Smoothing beyond d^(1/4) takes more samples again.
        smoothings = checked_rising(smoothing_exponents, "smoothing_exponents", "numbers from 0 to 0.25", 0.0, 0.25)
    checked = None if optimizers is None else _checked_optimizers(optimizers, smoothings)
    usual_dimensions, usual_rate = USUAL if smoothings is None else USUAL_SMOOTHED
    sizes = checked_increasing(usual_dimensions if dimensions is None else dimensions, "dimensions", minimum=2)
    settings: JsonObject = {
        "information_exponents": exponents,
        "smoothing_exponents": smoothings,
        "dimensions": sizes,
        "rate": checked_number(usual_rate if rate is None else rate, "rate", positive=True),
        "start": checked_number(start, "start", positive=True),
        **checked_runs(seeds, seed),
        **({} if checked is None else {"optimizers": [str(chosen_optimizer) for chosen_optimizer in checked]}),
    }
    smoothed = [None] if smoothings is None else smoothings
    cells = [
        cell_of(k, exponent, prepared_pairs(k, d, start=settings["start"]), settings["rate"], optimizer)
        for k, exponent, optimizer, d in product(exponents, smoothed, checked or [PLAIN], sizes)
    ]
    longest = max(cells, key=lambda cell: cell.expected_steps)
    title, solve = "Steps to escape against the dimension", partial(_sample_complexity, cells=cells)
    steps = float(settings["seeds"] * sum(cell.expected_steps for cell in cells))
    return SgdStudy("sample-complexity", title, settings, longest.problem, progress, solve, steps=steps)


def _checked_optimizers(optimizers: object, smoothings: Sequence[float] | None) -> list[Optimizer]:
    """Return different optimizers, plain or of zeroth order; refuse others, and a landscape that is smoothed twice."""
    checked = [checked_optimizer(value) for value in checked_list(optimizers, "optimizers")]
    texts = ", ".join(map(str, checked)) or "none"
    require(
        len({*map(str, checked)}) == len(checked) > 0,
        f"Argument `optimizers` must hold one or more optimizers, each of them once, but holds {texts}.",
    )
    for optimizer in checked:
        is_zeroth_order = isinstance(optimizer, ZerothOrder) and optimizer.smoothing == 0.0
        require(
            optimizer.is_plain or is_zeroth_order,
            f"Argument `optimizers` must hold plain SGD or ZerothOrder without smoothing, but holds {optimizer}.",
        )
        require(
            optimizer.is_plain or smoothings in (None, [0.0]),
            f"Argument `smoothing_exponents` must be 0 alone for steps of zeroth order, but is {shown(smoothings)}.",
        )
    return checked


def cell_of(k: int, exponent: float | None, pair: Problem, rate: float, optimizer: Optimizer = PLAIN) -> Cell:
    """Return the cell of a link h_k at one dimension d: step size, times of theory, exponent of the samples in d.

    `pair` is the problem of one neuron and one direction. `exponent` e smooths the landscape by λ = d^e; None keeps the
    squared error. `rate` is c in η = c d^(−k/2), before smoothing and random directions scale η.
    """
    d, directions = pair.dimension, optimizer.directions if isinstance(optimizer, ZerothOrder) else None
    eta, asymptotic = rate * d ** (-0.5 * k), k - 1.0 - (2.0 * k - 4.0) * (exponent or 0.0)
    if directions is not None:
        eta, asymptotic = eta * directions / (d + directions + 1), asymptotic + 1.0
    if exponent is None:
        flow = float(predict(pair).predicted_emergence_time[0])
        stepped = float(finite_step_times(pair, eta, 8.0 * flow, optimizer)[0])
        return Cell(pair, eta, flow, stepped, asymptotic, optimizer)
    smoothing = float(d**exponent) if exponent else 0.0
    eta *= smoothing ** (2 * k - 2) if smoothing else 1.0
    smoothed = lone_sphere(pair.activation, d, pair.start().teacher_overlap.item(), smoothing)
    stepped = mean_time(smoothed, eta, directions=directions)
    return Cell(smoothed, eta, mean_time(smoothed), stepped, asymptotic, optimizer)


def escape_times(
    problem: Problem,
    *,
    learning_rate: float,
    steps: int,
    seeds: Sequence[int],
    report: Callable[[int], object] = int,
    optimizer: Optimizer = PLAIN,
) -> tuple[Array, Switches]:
    """Return the flow times (runs, P) at which directions emerged in SGD, NaN for never, and which runs blew up before.

    A run ends when all its directions have emerged, it blows up, or `steps` are over. `report` is told the steps taken.
    """
    end = learning_rate * steps
    first = max(10.0**-2 * end, learning_rate)
    count = max(2, round(np.log(end / first) / np.log(TIME_RATIO)))
    times = np.unique(np.rint(np.geomspace(first, end, count) / learning_rate)) * learning_rate
    plan = make_plan(learning_rate, steps, SaveAt.at(times))
    options = EngineOptions(seeds=tuple(seeds), optimizer=optimizer)
    engine = make_engine(engine_of(problem, optimizer), problem, options)
    watch = Watch(problem, len(seeds))
    is_running, blown_up, step = np.ones(len(seeds), dtype=bool), np.zeros(len(seeds), dtype=bool), 0
    with engine.running():
        for number in plan.observed.tolist():
            if number > step:
                engine.advance(plan.rates(step, number))
                report((number - step) * int(np.count_nonzero(is_running)))
            step = number
            measurement = engine.measure(student=False)
            sound = watch.observe(learning_rate * step, measurement.teacher_overlap, measurement.squared_norm)
            blown_up |= is_running & ~sound
            done = is_running & (~np.isnan(watch.emergence.time).any(axis=1) | ~sound)
            is_running &= ~done
            engine.freeze(done)
            if not is_running.any():
                break
    return watch.emergence.time, blown_up
