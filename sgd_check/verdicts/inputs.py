"""Evidence of runs on inputs that are not Gaussian: ratios of their times to those of Gaussian runs at the same η.

The delay by the size of steps is the same in both, so that it cancels in the ratio. The theory of Gaussian inputs says
that the ratio is 1; fourth cumulants and the path meter of the rows (`dynamics.universality`) say what else it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from dynamics.problem import Problem, checked_integer, checked_number
from dynamics.problem.hints import with_hints
from dynamics.problem.rows import Rows
from dynamics.runs import also_interrupted
from dynamics.runs.result import SolveInterrupted
from dynamics.solve.decoupled import predict_emergence
from dynamics.theory.schedules import resolved_schedule
from dynamics.theory.universality import DRAWN_ROWS, TOO_FEW, TRUSTED, Universality, universality
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, require, with_error
from sgd_check.simulations.simulation import check_enough_rows, checked_options, checked_rows, simulate
from sgd_check.verdicts.evidence import Decision, Row, RowKind, global_p_value, judged
from sgd_check.verdicts.verdict import FEWEST_RUNS, sound_runs, unfinished, verdict_tree

THEORY = "inputs"
#: How far a ratio to Gaussian runs may be from theory: the accuracy that the correction was measured to have.
BAND = 0.07
#: Error in a ratio that a check has to see, and the probability with which.
VISIBLE, POWER = 0.3, 0.8
#: Runs end at this multiple of the latest time that rows or Gaussian inputs predict.
LAST_FACTOR = 1.8
#: Share of the limit of stability of the learning rate by default, and runs of each kind of inputs.
DEFAULT_RATE, DEFAULT_SEEDS = "0.03x", 16
GAUSSIAN, ON_ROWS = "gaussian", "rows"


@dataclass(frozen=True)
class InputsPlan:
    """Runs on rows and on Gaussian inputs at one learning rate, and what the rows say before them."""

    problem: Problem
    rows: Rows
    measured: Universality
    learning_rate: float
    steps: int
    directions: int

    def describe(self) -> str:
        """Return a sentence on the runs."""
        directions = "1 direction" if self.directions == 1 else f"{self.directions} directions"
        return f"Learning rate {self.learning_rate:.4g}, {self.steps} steps, for {directions}."


def plan_inputs(
    problem: Problem,
    inputs_from: object,
    *,
    learning_rate: float | str | None = None,
    steps: int | None = None,
    directions: int | None = None,
    batch_size: int = 1,
    drawn: int = DRAWN_ROWS,
) -> InputsPlan:
    """Measure the rows, and return the plan of runs; refuse rows that are too few, and what no run can show.

    By default the learning rate is 0.03 of the limit of stability, and runs last 1.8 times as long as the latest time
    that Gaussian theory or the path meter predicts for the first `directions` to emerge.
    """
    options = checked_options(problem, seeds=1, batch_size=batch_size, device="auto", dtype="auto")
    rows = checked_rows(inputs_from, problem, options)
    if rows is None:
        refuse("Argument `inputs_from` must be rows or a law, but is None.", error=TypeError)
    measured = universality(problem, rows, drawn=drawn)
    awaited = _awaited(measured)
    require(
        awaited.size > 0,
        "Argument `problem` must have a direction that emerges later than the start, but no direction does in theory.",
    )
    worst = float(np.nanmax(measured.resampling_ratio, initial=0.0))
    require(
        worst <= TOO_FEW,
        f"Argument `inputs_from` must have enough rows for resampling, rho up to 0.1, but {measured.count} rows have "
        f"rho = {worst:.2g}; use more, fewer components, or each row once.",
    )
    rate = resolved_schedule(problem, DEFAULT_RATE if learning_rate is None else learning_rate, batch_size)
    eta = checked_number(rate, "learning_rate", positive=True)
    chosen = awaited.size if directions is None else checked_integer(directions, "directions", minimum=1)
    chosen = min(chosen, awaited.size)
    within = awaited[:chosen]
    if steps is None:
        times = np.concatenate([measured.emergence_time[within], measured.path_emergence_time[within]])
        steps = math.ceil(LAST_FACTOR * float(times[np.isfinite(times)].max()) / eta)
    check_enough_rows(rows, checked_integer(steps, "steps", minimum=1), batch_size)
    return InputsPlan(problem, rows, measured, eta, steps, chosen)


def _awaited(measured: Universality) -> Integers:
    """Return the directions that emerge later than the start by Gaussian theory, the first to emerge first."""
    order = np.argsort(measured.emergence_time, kind="stable")
    times = measured.emergence_time[order]
    return np.asarray(order[np.isfinite(times) & (times > 0.0)])


@with_hints
def check_inputs(
    problem: Problem,
    inputs_from: Any,
    *,
    learning_rate: float | str | None = None,
    steps: int | None = None,
    directions: int | None = None,
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    batch_size: int = 1,
    false_alarm_rate: float = 0.01,
    drawn: int = DRAWN_ROWS,
    device: str = "auto",
    dtype: str = "auto",
    progress: bool | None = None,
    max_runtime: float | None = None,
) -> xr.DataTree:
    """Say whether the theory of Gaussian inputs holds for rows of data, by runs on them and on Gaussian inputs.

    Both kinds of runs have the same learning rate, so that the delay by the size of steps cancels in the ratio of
    their times of emergence. The theory of Gaussian inputs of the same covariance says that it is 1.

    Parameters
    ----------
    problem : Problem
        A homogeneous student of information exponent k ≥ 3, with the dimension of the rows: isotropic for whitened
        rows, or with `inputs=Inputs.from_data(rows)`.
    inputs_from : dynamics.Rows, path, array_like, DataFrame, str or callable
        Rows of a matrix, or a law.
    learning_rate : float or str, default "0.03x"
        Step size η, dimensionless; text is a share of the limit of stability.
    steps, directions : int, optional
        Steps of every run, and how many directions are tested, the first to emerge, by default all that do. By
        default runs last 1.8 times as long as the latest time that Gaussian theory or the path meter predicts.
    drawn : int, default 200000
        Rows of a law or a function that are drawn for what is known before the runs.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if all ratios lie within 7 % of 1.
    seeds, batch_size, device, dtype, progress, max_runtime
        As of `simulate`; `max_runtime` is that of both kinds of runs together.

    Returns
    -------
    DataTree
        /prediction, the times of Gaussian theory; /simulation/gaussian and /simulation/rows, the runs; and
        /comparison, per direction: `run_ratio` of the times of runs on rows to those on Gaussian inputs and
        `run_ratio_error`, the times of `dynamics.universality` with their errors, and `resampling_ratio`. Its attribute
        `verdict` is "agree", "disagree" or "undecided" on Gaussian theory; `reasons` say how far it is off, and
        whether fourth cumulants and the path meter hold.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given. Among others, if rows that are resampled are too few.
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C; its `dataset` is the DataTree of what was computed.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he3", teacher=Teacher([1.0]), width=1, dimension=16,
    ...                   initial_overlaps=([[0.5]], [[1.0]], [1e-8]))
    >>> tree = check_inputs(problem, "rademacher", learning_rate=1e-3, seeds=8, drawn=2000, progress=False)
    >>> sorted(tree["simulation"].children), tree["comparison"].attrs["theory"]
    (['gaussian', 'rows'], 'inputs')
    """
    rate = checked_number(false_alarm_rate, "false_alarm_rate", positive=True)
    require(rate < 1.0, f"Argument `false_alarm_rate` must be above 0 and below 1, but is {rate:g}.")
    plan = plan_inputs(
        problem,
        inputs_from,
        learning_rate=learning_rate,
        steps=steps,
        directions=directions,
        batch_size=batch_size,
        drawn=drawn,
    )
    options = {"seeds": seeds, "batch_size": batch_size, "device": device, "dtype": dtype, "progress": progress}
    tree = carry_out_inputs(plan, rate, options, max_runtime)
    if tree["comparison"].attrs["stop_reason"] == "interrupted":
        msg = "The check was interrupted"
        raise SolveInterrupted(msg, tree)
    return tree


def carry_out_inputs(
    plan: InputsPlan, rate: float, options: Mapping[str, Any], max_runtime: float | None = None
) -> xr.DataTree:
    """Run both kinds of runs of a plan, with these options of `simulate`, and return the tree with the verdict."""
    simulations, left = dict[str, xr.Dataset](), max_runtime
    for name, rows in ((GAUSSIAN, "gaussian"), (ON_ROWS, plan.rows)):
        # Gaussian runs are on the covariance of the problem, with the same engine.
        source = {"engine": "torch"} if rows == "gaussian" else {"inputs_from": rows}
        run = partial(
            simulate, plan.problem, learning_rate=plan.learning_rate, steps=plan.steps, max_runtime=left, **source,
            **options,
        )  # fmt: skip
        simulations[name] = also_interrupted(run)
        if simulations[name].attrs["stop_reason"] not in ("reached_end", "blown_up"):
            break
        if left is not None:
            left = max(left - float(simulations[name].attrs["wall_seconds"]), 1e-3)
    return inputs_verdict(plan, simulations, rate)


def inputs_verdict(plan: InputsPlan, simulations: Mapping[str, xr.Dataset], rate: float) -> xr.DataTree:
    """Return the verdict on Gaussian theory by the ratios of times, with all its evidence."""
    measured, P = plan.measured, plan.problem.num_directions
    ratio, error, usable = _ratios(simulations, P)
    tested = sorted(_awaited(measured)[: plan.directions].tolist())
    rows = [_row(plan, p, ratio[p], error[p], int(usable[p]), rate / len(tested)) for p in tested]
    said = [] if set(simulations) == {GAUSSIAN, ON_ROWS} else ["Runs stopped before both kinds of inputs had theirs."]
    said += [f"{stopped}." for runs in simulations.values() if (stopped := unfinished("The runs", runs))][:1]
    reasons = [
        *said,
        *(_reason(plan, p, float(ratio[p]), float(error[p]), row) for p, row in zip(tested, rows, strict=True)),
    ]
    if (worst := float(np.nanmax(measured.resampling_ratio, initial=0.0))) > TRUSTED:
        reasons.append(f"Rows may be too few for resampling: rho = {worst:.2g}.")
    if plan.problem.inputs is not None and plan.rows.resample:
        reasons.append("Whether these rows are too few for resampling is not known for inputs with a covariance.")
    values = {
        "predicted_emergence_time": measured.emergence_time,
        "corrected_emergence_time": measured.corrected_emergence_time,
        "path_emergence_time": measured.path_emergence_time,
        "corrected_error": measured.corrected_error,
        "path_error": measured.path_error,
        "resampling_ratio": measured.resampling_ratio,
        "effective_information_exponent": measured.information_exponent.astype(np.float64),
        "run_ratio": ratio,
        "run_ratio_error": error,
        "p_value": global_p_value(rows),
    }
    lost = sum(int(np.sum(~sound_runs(runs))) for runs in simulations.values())
    return verdict_tree(
        rows,
        reasons,
        values,
        problem=plan.problem,
        prediction=predict_emergence(plan.problem),
        simulations={f"/simulation/{name}": runs for name, runs in simulations.items()},
        rate=rate,
        theory=THEORY,
        usable=int(min((usable[p] for p in tested), default=0)),
        blown_up=lost,
        attributes={
            "decided_by": "ratios of times",
            "rows": plan.rows.name,
            "row_count": measured.count,
            "before_runs": "\n".join(measured.lines()),
            "stop_reason": list(simulations.values())[-1].attrs["stop_reason"],
        },
        title=f"Runs on {plan.rows.name} against runs on Gaussian inputs",
        coords={},
    )


def _ratios(simulations: Mapping[str, xr.Dataset], directions: int) -> tuple[Array, Array, Array]:
    """Return the ratio of mean times, its standard error and the number of usable runs of each direction, (P,).

    A ratio is NaN where a sound run of either kind did not emerge.
    """
    ratio, error, usable = np.full((2, directions), np.nan), np.full((2, directions), np.nan), np.zeros(directions)
    if set(simulations) != {GAUSSIAN, ON_ROWS}:
        return ratio[0], error[0], usable
    counts = np.zeros((2, directions))
    for at, name in enumerate((GAUSSIAN, ON_ROWS)):
        runs = simulations[name]
        times = runs["emergence_time"].values[sound_runs(runs)]
        counts[at] = len(times)
        if len(times) > 1:
            ratio[at], error[at] = times.mean(axis=0), times.std(axis=0, ddof=1) / math.sqrt(len(times))
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where a run never emerged, 0 where all began there
        value = ratio[1] / ratio[0]
        noise = value * np.hypot(error[0] / ratio[0], error[1] / ratio[1])
    return value, noise, counts.min(axis=0)


def _row(plan: InputsPlan, p: int, ratio: float, error: float, usable: int, level: float) -> Row:
    """Return the row that tests Gaussian theory of one direction: ln of the ratio within the band around 0."""
    name: dict[str, Any] = {"quantity": "Gaussian theory of direction", "label": str(p + 1), "kind": RowKind.TIME}
    name |= {"low": -math.log1p(BAND), "high": math.log1p(BAND), "time": float(plan.measured.emergence_time[p])}
    if usable < FEWEST_RUNS:
        cause = f"only {usable} runs are usable; the test needs {FEWEST_RUNS}"
        return Row(**name, required=True, runs=float(usable), cause=cause)
    if not math.isfinite(ratio):
        return Row(**name, required=True, runs=float(usable), cause="runs end before it emerges: use more steps")
    value, noise = math.log(ratio), error / ratio
    if noise == 0.0:
        return Row(**name, required=True, runs=float(usable), cause="all runs take one time: use smaller steps")
    beyond = max(abs(value) - math.log1p(BAND), 0.0) * math.copysign(1.0, value)
    z = beyond / noise
    freedom = 2.0 * (usable - 1.0)
    critical = float(stats.t.isf(level / 2.0, freedom))
    visible = math.log1p(BAND) + noise * (critical + float(stats.norm.isf(1.0 - POWER)))
    sharp = visible <= math.log1p(VISIBLE)
    unseen = "an error of 30 % could have gone unseen" if not sharp else "that is more than 7 %, but within the scatter"
    few = float(plan.measured.resampling_ratio[p]) > TRUSTED
    return judged(
        level,
        p_value=float(2.0 * stats.t.sf(abs(z), freedom)),
        seen=sharp and beyond == 0.0,
        required=True,
        cause=f"{unseen}: use more seeds",
        excuse="rows may be too few for resampling" if few else "",
        value=value,
        z=z,
        visible_error=math.expm1(visible),
        runs=float(usable),
        **name,
    )


def word_on(ratio: float, error: float, said: float, noise: float) -> str:
    """Return whether a ratio of runs is within 7 % and two standard errors of the ratio that rows say, in words.

    `noise` is the error of what rows say. Errors that would hide a difference of 30 % leave it open.
    """
    allowed = math.log1p(BAND) + 2.0 * math.hypot(error / ratio, noise / said)
    distance = abs(math.log(ratio / said)) if math.isfinite(said) else math.inf
    if distance > allowed:
        return "does not hold"
    return "holds" if allowed <= math.log1p(VISIBLE) else "may hold"


def _reason(plan: InputsPlan, p: int, ratio: float, error: float, row: Row) -> str:
    """Return a sentence on one direction: how far Gaussian theory is off, and which measure of the rows holds."""
    measured, several = plan.measured, plan.problem.num_directions > 1
    of = f" for direction {p + 1}" if several else ""
    if not math.isfinite(ratio):
        return f"Nothing is decided{of}: {row.cause}."
    gauss = float(measured.emergence_time[p])
    share = f"{with_error(100.0 * (ratio - 1.0), 100.0 * error)} %"
    if row.decision == Decision.DISAGREE:
        start = f"Gaussian theory of this covariance is off by {share} in time{of}"
    elif row.decision == Decision.AGREE:
        start = f"Gaussian theory of this covariance holds within 7 % of time{of} (runs on rows differ by {share})"
    else:
        start = f"Runs on rows differ from Gaussian runs by {share} in time{of}, which is undecided since {row.cause}"
    said = (
        ("its fourth-cumulant correction", measured.corrected_emergence_time, measured.corrected_error),
        ("the path meter", measured.path_emergence_time, measured.path_error),
    )
    parts = []
    for name, times, errors in said:
        value, noise = float(times[p]) / gauss, float(errors[p]) / gauss
        if math.isnan(value):
            continue
        # The law of resampled rows is that of the rows themselves, whose means are exact.
        exact = plan.rows.count is not None and plan.rows.resample
        word = word_on(ratio, error, value, 0.0 if exact else noise)
        number = f"{with_error(100.0 * (value - 1.0), 100.0 * noise)} %" if math.isfinite(value) else "never"
        parts.append(f"{name} {word} ({number})")
    return f"{start}; {' and '.join(parts)}." if parts else f"{start}."
