r"""Study of the sample complexity: steps to escape against the dimension, at a step size η = c d^(−k/2).

One neuron starts at C² = s/d from the one direction. The flow needs a time ∝ d^(k/2−1), so n = T/η ∝ d^(k−1) samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.commands import study_function
from dynamics.problem import checked_increasing, checked_number
from dynamics.theory import fit_slope
from sgd_check.studies.pairs import DEFAULT_START, prepared_pairs
from sgd_check.studies.work import PreparedStudy, checked_runs, finite_step_times, log_means, under_way

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.runs import Values
    from hermite.arrays import Array
    from sgd_check.studies.escape import Escapes

# A run may take this many times the expected number of steps: at d = 32 the logarithm of the time scatters by 0.4.
HORIZON = 6.0
# The equation of finite steps is followed to this many times the flow's escape.
REACH = 8.0
SOURCES = ("SGD", "finite-step equation", "flow", "asymptotic")


@dataclass(frozen=True)
class Cell:
    """One dimension of one link: its problem, step size η, and escape times by the flow and at finite step."""

    problem: Problem
    learning_rate: float
    flow_time: float
    finite_step_time: float

    @property
    def expected_steps(self) -> float:
        """Number of steps of a typical run."""
        time = self.finite_step_time if np.isfinite(self.finite_step_time) else self.flow_time
        return time / self.learning_rate


@dataclass(frozen=True)
class SampleComplexity(PreparedStudy):
    """The study, prepared: one cell for each information exponent and dimension."""

    cells: dict[tuple[int, int], Cell]

    @property
    def steps(self) -> float:
        """Expected number of steps of all runs together."""
        return float(self.settings["seeds"] * sum(cell.expected_steps for cell in self.cells.values()))

    def run(self) -> xr.Dataset:
        """Take the steps, of the short runs first, so that an interruption leaves as much as possible."""
        from sgd_check.studies.escape import escape_times

        found: dict[tuple[int, int], Escapes] = {}
        with under_way(self.steps, self.progress) as meter:
            for key in sorted(self.cells, key=lambda key: self.cells[key].expected_steps):
                cell = self.cells[key]
                found[key] = escape_times(
                    cell.problem,
                    learning_rate=cell.learning_rate,
                    steps=int(np.ceil(HORIZON * cell.expected_steps)),
                    seeds=self._seeds(key),
                    report=meter.add,
                )
        return self.dataset(
            "sample-complexity",
            self._values(found),
            meter,
            title="Steps to escape against the dimension",
            coords={
                "information_exponent": np.array(self.settings["information_exponents"]),
                "dimension": np.array(self.settings["dimensions"]),
                "run": np.arange(self.settings["seeds"]),
                "source": np.array(SOURCES),
            },
        )

    def _seeds(self, key: tuple[int, int]) -> range:
        return self.seeds_of(list(self.cells).index(key))

    def _grid(self, value: Any) -> Array:
        """Return a function of the cell's key as an array over links and dimensions."""
        exponents, dimensions = self.settings["information_exponents"], self.settings["dimensions"]
        return np.array([[value((k, d)) for d in dimensions] for k in exponents], dtype=np.float64)

    def _values(self, found: dict[tuple[int, int], Escapes]) -> Values:
        count = self.settings["seeds"]
        nothing = np.full(count, np.nan)
        time = self._grid(lambda key: found[key].time[:, 0] if key in found else nothing)
        blown = self._grid(lambda key: found[key].blown_up if key in found else nothing)
        rate = self._grid(lambda key: self.cells[key].learning_rate)
        flow = self._grid(lambda key: self.cells[key].flow_time)
        finite = self._grid(lambda key: self.cells[key].finite_step_time)
        mean, error = log_means(time)
        exponent, exponent_error = self._exponents(mean - np.log(rate), error, finite / rate, flow / rate)
        where, one = ("information_exponent", "dimension"), (..., None)
        with np.errstate(invalid="ignore", divide="ignore"):
            deviation = (mean - np.log(finite)) / error
        lost = np.isnan(time).mean(axis=-1)
        return {
            "emergence_time": ((*where, "run"), time[one]),
            "emergence_step": ((*where, "run"), (time / rate[one])[one]),
            "predicted_emergence_time": (where, flow[one]),
            "finite_step_time": (where, finite[one]),
            "time_deviation": (where, deviation[one]),
            "p_value": (("information_exponent",), [agreement(row, count) for row in deviation]),
            "step_size": (where, rate),
            "first_seed": (where, self._grid(lambda key: self._seeds(key).start).astype(np.int64)),
            "blown_up_share": (where, blown.mean(axis=-1)),
            "censored_share": (where, np.where(np.isnan(blown[..., 0]), np.nan, lost)[one]),
            "exponent": (("information_exponent",), exponent),
            "exponent_error": (("information_exponent",), exponent_error),
        }

    def _exponents(self, log_steps: Any, error: Any, finite: Any, flow: Any) -> tuple[Any, Any]:
        """Return the slopes of log n against log d per link and source, and their standard errors."""
        d = np.array(self.settings["dimensions"], dtype=np.float64)
        rows, errors = [], []
        for at, k in enumerate(self.settings["information_exponents"]):
            measured = fit_slope(d, log_steps[at], error[at])
            # Theory is fitted over the dimensions that SGD was: a curve that bends has no one slope.
            used = np.isfinite(log_steps[at] + error[at])
            theory = [fit_slope(d, np.where(used, np.log(curve[at]), np.nan)).exponent for curve in (finite, flow)]
            rows.append([measured.exponent, *theory, k - 1.0])
            errors.append([measured.standard_error, 0.0, 0.0, 0.0])
        return np.array(rows), np.array(errors)


def agreement(deviations: Array, runs: int) -> float:
    """Return the probability of means as far from the equation's times as these, by Student's law and a χ² of all.

    Examples
    --------
    >>> round(agreement(np.array([0.5, -1.0]), 16), 3)
    0.555
    """
    from scipy.stats import chi2, norm, t

    known = deviations[np.isfinite(deviations)]
    if known.size == 0:
        return float("nan")
    normal = norm.isf(t.sf(np.abs(known), runs - 1))
    return float(chi2.sf(np.sum(normal**2), known.size))


@study_function
def sample_complexity(
    *,
    information_exponents: Sequence[int] = (3, 4),
    dimensions: Sequence[int] = (32, 64, 128, 256, 512, 1024),
    rate: float = 0.1,
    start: float = DEFAULT_START,
    seeds: int = 16,
    seed: int = 0,
    progress: bool | None = None,
) -> SampleComplexity:
    r"""Measure the number of SGD steps to C² = ½ against the dimension, beside the flow and the finite-step equation.

    .. math:: \eta = c\, d^{-k/2}, \qquad T \propto d^{k/2-1}, \qquad n = T/\eta \propto d^{k-1}

    for one neuron of link h_k that starts at C² = s/d (C > 0) from the one direction, of weight 1.

    Parameters
    ----------
    information_exponents : sequence of int
        k ≥ 3, increasing.
    dimensions : sequence of int
        d, increasing, at least two.
    rate : float
        c > 0, dimensionless.
    start : float
        s > 0.
    seeds : int
        Runs per dimension, at least 2; no two runs of the study share samples.
    seed : int
        First seed of the samples.
    progress : bool, optional
        Show a bar on stderr; by default if it is a terminal.

    Returns
    -------
    Dataset
        `emergence_time` and `emergence_step` (information_exponent, dimension, run, direction; NaN if never),
        `predicted_emergence_time` (flow) and `finite_step_time`, `time_deviation` (z of the mean of ln T against the
        finite-step equation), shares of censored and blown-up runs, and `exponent(information_exponent, source)`, the
        slope of ln n against ln d, with `exponent_error`.  The slope in flow time is smaller by k/2 exactly.
        `attrs["stop_reason"]` is "reached_end" or "interrupted"; what was not computed is NaN.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Notes
    -----
    The standard error of a slope is that of the means of ln T, from the scatter over runs, passed through the least
    squares; it says nothing of the curve's own bend, which the slopes of the two equations over the same dimensions
    show.  Dimensions with a censored or blown-up run enter no fit.  A run may take six times the expected steps and
    ends when it has escaped.
    """
    exponents = checked_increasing(information_exponents, "information_exponents", minimum=3, fewest=1)
    sizes = checked_increasing(dimensions, "dimensions", minimum=2, fewest=2)
    settings: dict[str, Any] = {
        "information_exponents": exponents,
        "dimensions": sizes,
        "rate": checked_number(rate, "rate", positive=True),
        "start": checked_number(start, "start", positive=True),
        **checked_runs(seeds, seed),
    }
    cells = {(k, d): _cell(k, d, settings["rate"], settings["start"]) for k in exponents for d in sizes}
    return SampleComplexity(settings, progress, cells[exponents[-1], sizes[-1]].problem, cells)


def _cell(k: int, d: int, rate: float, start: float) -> Cell:
    from dynamics.theory import predict

    problem = prepared_pairs(k, d, start=start)
    learning_rate = rate * d ** (-0.5 * k)
    flow = float(predict(problem).predicted_emergence_time[0])
    return Cell(problem, learning_rate, flow, float(finite_step_times(problem, learning_rate, REACH * flow)[0]))
