"""Runs on tokens against their prediction: the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from dynamics.problem import checked_number, stored_question
from dynamics.problem.checks import require
from dynamics.tokens import TOKEN_VARIABLES, AssociativeMemory, solve
from hermite.arrays import Array
from hermite.text.messages import shown
from sgd_check.verdicts.evidence import Decision, Row, global_p_value, judged, word_of
from sgd_check.verdicts.verdict import LEARNING, reach_in_errors, verdict_tree

#: Title, coordinates, evidence, reason, variables and attributes of a comparison.
Compared = tuple[str, dict[str, object], list[Row], str, dict[str, object], dict[str, object]]


#: Error of a time that is not held against theory, since looks at a run are so far apart, and one that an agreement
#: must have been able to see, with probability 0.8.
TOLERATED, VISIBLE_ERROR = 0.004, 0.05
#: The same two for the number of recovered items, of which the closed form is an approximation.
TOLERATED_COUNT, VISIBLE_COUNT = 0.06, 0.2
#: Causes of rows of evidence.
LEARNED, UNLEARNED = "learned, but predicted never to be", "predicted to be learned, but no run does"
UNSEEN = "an error could have gone unseen"


def compare(prediction: xr.Dataset, simulation: xr.Dataset, *, false_alarm_rate: float = 0.01) -> xr.DataTree:
    r"""Hold runs of a full model against the prediction of its reduction, and give a verdict.

    The prediction is taken at the learning rate of the runs: a flow's times are multiplied by what that changes, by the
    map of the same problem. Noise of batches delays by a term ~ 1/B, which the two halves of the runs, at B and 4 B,
    tell: with m = mean ln(T_run/T_predicted) of each half, Student's t of

    .. math:: \frac{4 m_{4B} - m_B}{3} = 0

    is taken for every component (freedom by Welch and Satterthwaite), for what is beyond 0.4 %. Times are found between
    two looks at a run, so that some hundred steps should lie before the first of them.

    Parameters
    ----------
    prediction : Dataset
        Of `dynamics.tokens.solve`.
    simulation : Dataset
        Of `simulate`, for the same problem.
    false_alarm_rate : float, default 0.01
        Probability of the verdict "disagree" if theory holds, at most.

    Returns
    -------
    DataTree
        Groups "prediction", "simulation" and "comparison": `mean_log_ratio(component)`, `standard_error`, `p_value`,
        `visible_error`, the relative error of a time that is seen with probability 0.8, and as attributes `verdict`
        ("agree", "disagree", "undecided") and `reasons`. "agree" says that an error of 5 % would have been seen in
        every component. Of Gaussian embeddings the mean number of recovered items is held against the closed one, by
        Student's t of what is beyond 6 %, and an error of 20 % would have been seen.

    Raises
    ------
    ValueError
        If the two are not of the same problem, or not what they are to be.

    Examples
    --------
    >>> from dynamics import tokens
    >>> from sgd_check.tokens import simulate
    >>> problem = tokens.Composition(vocabulary=4, hops=2)
    >>> runs = simulate(problem, learning_rate=0.5, steps=200, seeds=8, progress=False)
    >>> tree = compare(tokens.solve(problem, progress=False), runs)
    >>> tree["comparison"].attrs["verdict"]
    'agree'
    """
    rate = checked_number(false_alarm_rate, "false_alarm_rate", positive=True, maximum=0.5)
    require(
        isinstance(prediction, xr.Dataset)
        and not {"predicted_learned_time", "recovery"}.isdisjoint(prediction.variables),
        "Argument `prediction` must be a Dataset of `dynamics.tokens.solve`, but is "
        f"{shown(type(prediction).__name__)}.",
    )
    require(
        isinstance(simulation, xr.Dataset) and not {"run_batch_size", "recovery"}.isdisjoint(simulation.variables),
        "Argument `simulation` must be a Dataset of `sgd_check.tokens.simulate`, but is "
        f"{shown(type(simulation).__name__)}.",
    )
    require(
        "learned_time" in prediction or "recovery" in prediction,
        "Argument `prediction` must have `learned_time`, as of `dynamics.tokens.solve`, but has closed times alone.",
    )
    problem, simulated = stored_question(prediction), stored_question(simulation)
    require(
        problem == simulated,
        f"Arguments `prediction` and `simulation` must be of one problem, but are of {problem} and {simulated}.",
    )
    if "recovery" in prediction:
        compared = _items_compared(prediction, simulation, rate)
    else:
        compared = _times_compared(problem, prediction, simulation, rate)
    title, coords, rows, reason, values, attributes = compared
    return verdict_tree(
        rows,
        [reason],
        values,
        problem=problem,
        prediction=prediction,
        simulations={"/simulation": simulation},
        rate=rate,
        theory="tokens",
        usable=simulation.sizes["seed"],
        attributes={"prediction": None, **attributes},
        title=title,
        coords=coords,
        variables=TOKEN_VARIABLES,
    )


def _times_compared(problem: Any, prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> Compared:
    """Return the comparison of the time at which each component is learned with its predicted time.

    `prediction` and `simulation` are datasets of `problem`, a model of tokens, and `rate` is the rate of false alarms,
    of which each of the n components has 1/n. If the two have different learning rates, predicted times are multiplied
    by the ratio of the solutions at both. A component disagrees if its mean log ratio, extrapolated to endless batches
    (`distances`), is beyond `TOLERATED` with n p < `rate`; if runs learn what theory never learns; or if no run learns
    it though the runs last longer than the predicted time with a margin of 2 `VISIBLE_ERROR`. It is undecided if an
    error of `VISIBLE_ERROR` could have gone unseen, or if theory learns nothing and the runs end before the prediction.

    Returned are the parts of `Compared`: title, coordinates, rows of evidence by component, the sentence of the
    verdict, variables by component and attributes.
    """
    require(
        not (isinstance(problem, AssociativeMemory) and problem.smoothing is not None)
        or not simulation["run_batch_size"].values.any(),
        "Argument `simulation` must have steps of the whole population for a spectral optimizer, but has batches: "
        "hold its times against `dynamics.tokens.sampled_times`.",
    )
    times, measured = prediction["learned_time"].values, simulation["learned_time"].values
    rates = [dataset.attrs.get("learning_rate") for dataset in (simulation, prediction)]
    if rates[0] != rates[1]:
        of_runs, of_theory = (solve(problem, learning_rate=r, keep="summary", progress=False) for r in rates)
        times = times * (of_runs["learned_time"].values / of_theory["learned_time"].values)
    names = prediction["component"].values
    tests = distances(simulation, times, rate / max(times.size, 1))
    mean, p_value = tests["mean_log_ratio"], tests["component_p_value"]
    never = np.isposinf(prediction["predicted_learned_time"].values)
    surprising = never & np.isfinite(measured).any(axis=0)
    due = times * (1.0 + 2.0 * VISIBLE_ERROR) < float(simulation["time"].values[-1])
    missing = due & np.isnan(measured).all(axis=0) & (simulation.attrs["stop_reason"] == "reached_end")
    short = _too_short(prediction, simulation) if never.all() else ""
    rows = [
        Row(
            quantity=str(name),
            kind=LEARNING.noun,
            time=float(times[at]),
            value=float(mean[at]),
            low=-TOLERATED,
            high=TOLERATED,
            p_value=float(np.minimum(1.0, p_value[at] / (1.0 / times.size))),
            visible_error=float(tests["visible_error"][at]),
            runs=float(np.isfinite(measured[:, at]).sum()),
            required=bool(never.all() or not never[at]),
        )
        for at, name in enumerate(names)
    ]
    for at, row in enumerate(rows):
        cause, decision = "", Decision.AGREE
        if row.p_value < rate or surprising[at] or missing[at]:
            cause, decision = LEARNED if surprising[at] else UNLEARNED if missing[at] else "", Decision.DISAGREE
        elif short or not (never[at] or row.visible_error <= VISIBLE_ERROR):
            cause, decision = short or UNSEEN, Decision.UNDECIDED
        rows[at] = replace(row, decision=decision, cause=cause)
    title = f"Runs on tokens against theory: {problem.kind}"
    attributes = {"p_value": global_p_value(rows), "notes": prediction.attrs.get("notes", "")}
    reason = _reason(rows, rate, nothing=bool(never.all()))
    return title, {"component": names}, rows, reason, {"expected_time": times, **tests}, attributes


def _reason(rows: Sequence[Row], rate: float, *, nothing: bool) -> str:
    """Return the sentence that gives the reason of the verdict's word.

    `nothing` says that theory expects nothing to be learned.
    """
    word, p_value = word_of(rows), global_p_value(rows)
    if p_value < rate:
        worst = min((row for row in rows if row.p_value < rate), key=lambda row: row.p_value)
        off = f"{100 * abs(np.expm1(worst.value)):.1f} % {'late' if worst.value > 0 else 'early'}"
        return f"{worst.name} is learned {off} (p = {p_value:.2g} < {rate:g})."
    if word == Decision.DISAGREE:
        learned = [row.name for row in rows if row.cause == LEARNED]
        lost = ", ".join(row.name for row in rows if row.cause == UNLEARNED)
        never = f"{', '.join(learned)} is learned, but predicted never to be."
        return never if learned else f"{lost} is predicted to be learned, but no run does."
    if nothing:
        return "Nothing is predicted ever to be learned, and nothing was." if word == Decision.AGREE else rows[0].cause
    error = f"n error of {100 * VISIBLE_ERROR:.0f} %"
    if word == Decision.AGREE:
        return f"No time of learning leaves its band (p = {p_value:.2g}), and a{error} would have been seen."
    unseen = ", ".join(row.name for row in rows if row.cause == UNSEEN)
    return f"A{error} could have gone unseen in {unseen}: use more steps or seeds, or larger batches."


def _too_short(prediction: xr.Dataset, simulation: xr.Dataset) -> str:
    """Return the reason why runs that learn nothing are too short to confirm that nothing is ever learned, or ""."""
    reason = simulation.attrs["stop_reason"]
    end, predicted = float(simulation["time"].values[-1]), float(prediction.attrs["end_time"])
    if reason != "reached_end":
        return f"Nothing was learned, but the runs stopped early ({reason})."
    if end < predicted * (1.0 - 1e-9):
        return f"Nothing was learned, but the runs end at time {end:.3g}, before the prediction, at {predicted:.3g}."
    return ""


def _items_compared(prediction: xr.Dataset, simulation: xr.Dataset, rate: float) -> Compared:
    """Return the comparison of the mean number of recovered items with the closed one, as the parts of `Compared`.

    It disagrees if Student's t over the draws refutes, at the rate of false alarms `rate`, that the relative distance
    is within `TOLERATED_COUNT`, and agrees if an error of `VISIBLE_COUNT` would have been seen.
    """
    closed, counts = float(prediction["recovered_count"]), simulation["recovered_count"].values
    ratio = float(counts.mean()) / closed - 1.0
    error = max(float(counts.std(ddof=1)) / np.sqrt(counts.size) / closed, 1e-12)
    p = min(float(2.0 * stats.t.sf(max(abs(ratio) - TOLERATED_COUNT, 0.0) / error, counts.size - 1)), 1.0)
    visible = TOLERATED_COUNT + reach_in_errors(counts.size - 1, rate) * error
    counted = f"{counts.mean():.4g} items are recovered, {closed:.4g} predicted"
    size = f"an error of {100 * VISIBLE_COUNT:.0f} %"
    row = judged(
        rate,
        quantity="recovered items",
        value=ratio,
        low=-TOLERATED_COUNT,
        high=TOLERATED_COUNT,
        p_value=p,
        visible_error=visible,
        runs=float(counts.size),
        required=True,
        seen=visible <= VISIBLE_COUNT,
        cause=UNSEEN,
    )
    reasons = {
        Decision.DISAGREE: f"{counted} (p = {p:.2g} < {rate:g}).",
        Decision.UNDECIDED: f"{counted}; {size} could have gone unseen: use more seeds.",
        Decision.AGREE: f"{counted} (p = {p:.2g}), and {size} would have been seen.",
    }
    numbers = {"p_value": p, "relative_distance": ratio, "relative_error": error, "visible_error": visible}
    return "Recovered items against theory", {}, [row], reasons[row.decision], {}, numbers


def distances(simulation: xr.Dataset, times: Array, level: float) -> dict[str, Array]:
    """Return mean log ratios of measured to predicted times, and their test, by component, as variables by name.

    `times` (components,) are predicted. Half of the runs have large batches and the others small ones, of a quarter the
    size; 4/3 of the mean over the former less 1/3 of that over the latter has no effect of the batch at first order.
    The standard error has the degrees of freedom of Welch and Satterthwaite; p is that of the part beyond `TOLERATED`,
    and `visible_error` is what a test at `level` would see. A component that some run has not learned is NaN.
    """
    sizes = simulation["run_batch_size"].values
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(simulation["learned_time"].values / times)
    logs[~np.isfinite(logs)] = np.nan
    # 4/3 of the mean over the runs of large batches less 1/3 of that over the others has no term in 1/B.
    halves = [(weight, logs[sizes == size]) for weight, size in ((-1 / 3, sizes.min()), (4 / 3, sizes.max()))]
    mean = np.sum([weight * half.mean(axis=0) for weight, half in halves], axis=0)
    squares = np.array([weight**2 * half.var(axis=0, ddof=1) / len(half) for weight, half in halves])
    variance = np.maximum(squares.sum(axis=0), 1e-30)
    spread = np.sum([square**2 / (len(half) - 1) for square, (_, half) in zip(squares, halves, strict=True)], axis=0)
    freedom, error = variance**2 / np.maximum(spread, 1e-60), np.sqrt(variance)
    p_value = 2.0 * stats.t.sf(np.maximum(np.abs(mean) - TOLERATED, 0.0) / error, freedom)
    reach = np.array([reach_in_errors(degrees, level) for degrees in freedom.tolist()])
    tests = {"mean_log_ratio": mean, "standard_error": error, "component_p_value": p_value}
    return tests | {"visible_error": TOLERATED + reach * error}
