r"""Study of one direction from samples that are reused, and of online SGD: y = min((θ·x)², M).

The first eigenvector of (1/n) Σ y x xᵀ has a law in n/d (`dynamics.predict_recovery`). Descent of the squared error of
one small neuron on all n samples begins as the power iteration of the same matrix, w ← (I + 2ηD)w, and then sharpens
what it has found: it recovers the direction exactly from some n/d on, of which there is no closed theory. Online SGD of
the correlation, η = c/d, uses every sample once; from C = 2/√d to C² = ¼ it needs

.. math:: \frac nd = \frac{\ln d}{2(2 c_2^2 c - \tfrac12 E[y^2] E[\sigma'^2]\, c^2)} + \mathrm{const},

the mean of its step to leading order in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

import hermite
from dynamics.commands import study_function
from dynamics.fits import fit_slope
from dynamics.laws.scaffold import Meter
from dynamics.problem import Problem, Teacher, checked_increasing, checked_integer, checked_number
from dynamics.problem.checks import JsonObject, require
from dynamics.solve import predict_recovery
from hermite.arrays import Array, real_column
from hermite.quadrature import integrate
from sgd_check.engines import EngineOptions, make_engine
from sgd_check.estimators.estimation import estimate_direction
from sgd_check.simulations.recording import CrossingTracker
from sgd_check.studies.scaffold import SgdStudy, checked_rising, checked_runs, lone_sphere, seconds_of

#: Least squared overlap of a direction that counts as exactly recovered, and the one at which online SGD has arrived.
EXACT, ARRIVED = 0.99, 0.25
#: Dimension of the law.
LARGE = 10**6
#: Overlap at the start of online SGD, in units of 1/√d.
LEAD = 2.0


def _full_batch(study: SgdStudy, link: str, law: xr.Dataset, slope: float) -> xr.Dataset:
    """Return the dataset of all runs of a link, small dimensions first; runs after an interruption are NaN.

    `law` is the prediction of spectral recovery, and `slope` that of n/d in ln d for online SGD.
    """
    settings = study.settings
    dimensions, ratios, runs = settings["dimensions"], settings["ratios"], settings["seeds"]
    spectral, descent = np.full((2, len(dimensions), len(ratios), runs), np.nan)
    online = np.full((len(settings["online_dimensions"]), runs), np.nan)
    with study.stepping() as meter:
        for number, place in enumerate(np.ndindex(len(dimensions), len(ratios))):
            d, samples = dimensions[place[0]], round(ratios[place[1]] * dimensions[place[0]])
            problem, seeds = descent_problem(link, d), study.seeds_of(number)
            estimates = estimate_direction(problem, samples=samples, seeds=seeds, degree=2, progress=False)
            spectral[place] = estimates["overlap_squared"].to_numpy()
            rate, steps = settings["rate"], settings["steps"]
            last = study.simulated(problem, rate, steps, seeds, [steps], training_samples=samples, batch_size=samples)
            descent[place] = last["teacher_overlap"].to_numpy()[:, -1, 0, 0] ** 2
            meter.add(settings["steps"] * runs)
        for row, d in enumerate(settings["online_dimensions"]):
            seeds, end = study.seeds_of(spectral[..., 0].size + row), 3.0 * _expected(d, slope)
            online[row] = _arrivals(
                lone_sphere(link, d, LEAD / np.sqrt(d)), settings["online_rate"] / d, seeds, end, meter
            )
    dims, share = ("dimension", "ratio", "run"), (descent > EXACT).mean(axis=2)
    return study.dataset(
        meter,
        {
            "overlap_squared": (dims, spectral),
            "descent_overlap_squared": (dims, descent),
            "recovered_share": (dims[:2], np.where(np.isnan(descent).any(axis=2), np.nan, share)),
            "predicted_overlap_squared": (("law_ratio",), law["predicted_overlap_squared"].to_numpy()),
            "online_samples": (("online_dimension", "run"), online),
        },
        {
            "dimension": np.array(dimensions),
            "ratio": np.array(ratios),
            "law_ratio": law["samples"].to_numpy() / LARGE,
            "run": np.arange(runs),
            "online_dimension": np.array(settings["online_dimensions"]),
        },
        cut=settings["cut"],
        threshold_ratio=law.attrs["threshold_ratio"],
        exact_recovery_theory="none: the share of exact recoveries by descent is measured alone",
        online_slope=slope,
        **_measured_slope(np.array(settings["online_dimensions"], dtype=np.float64), online),
    )


def _expected(d: int, slope: float) -> float:
    """Return an estimate of the steps of online SGD until it arrives, by its mean step from the start at dimension d.

    It is 2 ln(√(d · arrived)/lead), at least 2, times `slope` · d.
    """
    return max(2.0, 2.0 * float(np.log(np.sqrt(d * ARRIVED) / LEAD))) * slope * d


def _arrivals(problem: Problem, rate: float, seeds: range, end: float, meter: Meter) -> Array:
    """Return the number of samples (runs,) after which each run of online SGD arrives, NaN if not within `end` steps.

    To arrive is to reach the squared overlap `ARRIVED`; `rate` is the learning rate η.
    """
    engine = make_engine("scalar", problem, EngineOptions(seeds=tuple(seeds)))
    tracker, step = CrossingTracker(np.array(ARRIVED), (len(seeds),)), 0
    numbers = np.geomspace(0.01 * end, end, int(np.log(100.0) / np.log(1.01)))
    with engine.running():
        for number in np.unique(np.rint(numbers)).astype(int).tolist():
            engine.advance(np.full(number - step, rate))
            meter.add((number - step) * len(seeds))
            step = number
            tracker.observe(float(step), engine.measure(student=False).teacher_overlap[:, 0, 0] ** 2)
            if not np.isnan(tracker.time).any():
                break
    return tracker.time


def _measured_slope(d: Array, online: Array) -> dict[str, float]:
    """Return the measured slope of n/d in ln d and its standard error, by name; {} below two dimensions.

    `d` (dimensions,) are the dimensions, `online` (dimensions, runs) the samples that runs needed, NaN if they did not
    arrive.
    """
    is_known = np.isfinite(online).all(axis=1)
    if np.count_nonzero(is_known) < 2:
        return {}
    needed = online[is_known] / d[is_known, None]
    slope = fit_slope(d[is_known], needed.mean(axis=1), needed.std(axis=1, ddof=1) / np.sqrt(needed.shape[1]))
    return {"online_slope_measured": slope.exponent, "online_slope_error": slope.standard_error}


def _seconds(link: str, settings: JsonObject, arrivals: float) -> float:
    """Return an estimate of the seconds of all runs, from short measurements of the largest descent and of online SGD.

    `arrivals` is the expected number of online steps of one run of each dimension, all dimensions together.
    """
    runs, d = settings["seeds"], settings["dimensions"][-1]
    batch = round(max(settings["ratios"]) * d)
    sizes = sum(dimension * round(r * dimension) for dimension in settings["dimensions"] for r in settings["ratios"])
    steps = runs * settings["steps"] * sizes / (d * batch)
    problem = descent_problem(link, d)
    descent = seconds_of(problem, runs, steps, "torch", 10, training_samples=batch, batch_size=batch, dtype="float32")
    return descent + seconds_of(lone_sphere(link, 100, LEAD / 10.0), runs, runs * arrivals, "scalar")


@study_function  # returns what `run` of the prepared study returns, a dataset
def full_batch_recovery(
    *,
    cut: float = 4.0,
    dimensions: Sequence[int] = (200, 400),
    ratios: ArrayLike = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    rate: float = 0.1,
    steps: int = 1200,
    online_dimensions: Sequence[int] = (100, 1000, 10000),
    online_rate: float = 0.02,
    seeds: int = 10,
    seed: int = 0,
    progress: bool | None = None,
) -> SgdStudy:
    r"""Measure how one direction of y = min((θ·x)², M) is found from n samples that are reused, and by online SGD.

    Parameters
    ----------
    cut : float
        M > 0, at most 1000, beyond which the link is z² to all digits.
    dimensions, ratios : sequence of int, array_like of shape (R,)
        d and n/d > 0 of the samples that are reused, both increasing.
    rate, steps : float, int
        Step size η > 0 and number of steps of descent of the squared error on all samples, one neuron, |w| = 1e-3.
    online_dimensions : sequence of int
        d of online SGD of the correlation, increasing, at least 64; it starts at C = 2/√d and arrives at C² = ¼.
    online_rate : float
        c > 0 of its step size η = c/d.
    seeds, seed : int
        Runs of every point, at least 2, and first seed of the samples; no two points share samples.

    Returns
    -------
    Dataset
        `overlap_squared` of the first eigenvector and `descent_overlap_squared` (dimension, ratio, run),
        `recovered_share` (dimension, ratio), of the runs of descent with a squared overlap above 0.99,
        `predicted_overlap_squared` (law_ratio), the law of the first eigenvector at these n/d and between, and
        `online_samples` (online_dimension, run; NaN if never). Attributes: `threshold_ratio` of the law;
        `online_slope` of n/d in ln d by the mean step, `online_slope_measured` and `online_slope_error`;
        `exact_recovery_theory`, which says that there is none.

    Notes
    -----
    Needs torch. The samples of descent are other ones than those of the first eigenvector.

    References
    ----------
    Kovačević et al., arXiv:2602.02431.

    Examples
    --------
    >>> settings = {"dimensions": [16], "ratios": [2.0, 6.0], "steps": 100, "online_dimensions": [64, 128], "seeds": 2}
    >>> recovery = full_batch_recovery(**settings, progress=False)
    >>> round(recovery.attrs["threshold_ratio"], 3), dict(recovery.overlap_squared.sizes)
    (0.723, {'dimension': 1, 'ratio': 2, 'run': 2})
    """
    n_over_d = np.atleast_1d(real_column(ratios, "ratios"))
    settings: JsonObject = {
        "cut": checked_number(cut, "cut", positive=True, maximum=1e3),
        "dimensions": checked_increasing(dimensions, "dimensions", minimum=2, fewest=1),
        "ratios": checked_rising(n_over_d, "ratios", "positive numbers", np.nextafter(0.0, 1.0)),
        "rate": checked_number(rate, "rate", positive=True),
        "steps": checked_integer(steps, "steps", minimum=1),
        "online_dimensions": checked_increasing(online_dimensions, "online_dimensions", minimum=64, fewest=1),
        "online_rate": checked_number(online_rate, "online_rate", positive=True),
        **checked_runs(seeds, seed),
    }
    link, c = f"min(z**2, {settings['cut']!r})", settings["online_rate"]
    slope = online_slope(link, c)
    require(
        np.isfinite(slope),
        f"Argument `online_rate` must be so small that the drift of online SGD outweighs its noise, but is {c:g}.",
    )
    # The law depends on n/d alone.
    law_ratios = np.union1d(n_over_d, np.linspace(0.0, n_over_d[-1], 101)[1:])
    law = predict_recovery(link, dimension=LARGE, samples=np.rint(law_ratios * LARGE).astype(int).tolist(), degree=2)
    problem = descent_problem(link, settings["dimensions"][-1])
    arrivals = sum(_expected(d, slope) for d in settings["online_dimensions"])
    steps = len(settings["dimensions"]) * n_over_d.size * settings["steps"] + arrivals
    title = "One direction from samples that are reused, and online"
    solve, seconds = partial(_full_batch, link=link, law=law, slope=slope), partial(_seconds, link, settings, arrivals)
    return SgdStudy(
        "full-batch", title, settings, problem, progress, solve, steps=float(settings["seeds"] * steps), seconds=seconds
    )


def descent_problem(link: str, d: int) -> Problem:
    """Return the problem of one neuron of length 0.001, with fixed second layer, and one direction."""
    return Problem(
        activation=link, teacher=Teacher([1.0]), width=1, dimension=d, student="committee", initial_norm=1e-3
    )


def online_slope(link: str, rate: float) -> float:
    """Return the slope of n/d in ln d of online SGD at learning rate c/d, c = `rate`, for a link with c_1 = 0.

    n is the number of samples until the neuron has found the direction. The slope is inf where noise outweighs the
    drift.
    """
    expansion = hermite.expand(link)
    slope_squared = integrate(expansion.derivative, 0).norm_squared
    drift = 2.0 * float(expansion.coefficients[2]) ** 2
    growth = drift * rate - 0.5 * expansion.norm_squared * slope_squared * rate**2
    return float(0.5 / growth) if growth > 0.0 else np.inf
