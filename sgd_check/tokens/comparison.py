"""Runs on tokens against their prediction: the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special, stats

from dynamics.problem import checked_number, stored_question
from dynamics.runs import make_dataset
from dynamics.tokens import TOKEN_VARIABLES, solve
from hermite.text.messages import shown
from sgd_check.verdicts.time_tests import combined_p_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    from dynamics.tokens import TokenProblem
    from hermite.arrays import Array

#: Error of a time that is not held against theory: looks at a run are so far apart, and extrapolation in the batch is
#: of the first order.
TOLERATED = 0.004
#: Relative error of a time that an agreement must have been able to see, with probability 0.8.
VISIBLE_ERROR, POWER = 0.05, 0.8
#: The same two for the number of recovered items, of which the closed form is an approximation.
TOLERATED_COUNT, VISIBLE_COUNT = 0.06, 0.2


class Distances(NamedTuple):
    """Mean log ratio of measured over predicted times without the effect of the batch, by component, and its test."""

    mean: Array
    error: Array
    p_value: Array
    #: Smallest relative error that is seen with probability 0.8.
    visible: Array


def compare(prediction: xr.Dataset, simulation: xr.Dataset, *, false_alarm_rate: float = 0.01) -> xr.DataTree:
    r"""Hold runs of a full model against the prediction of its reduction, and give a verdict.

    Steps of size η delay a flow, so the prediction is taken at the learning rate of the runs: a flow's times are
    multiplied by what that changes, by the map of the same problem. Noise of batches delays by a term ~ 1/B, which the
    two halves of the runs, at B and 4 B, tell: with m = mean ln(T_run/T_predicted) of each half, Student's t of

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
        every component. Of Gaussian embeddings the mean number of recovered items is held against the closed one, which
        is an approximation: by Student's t of what is beyond 6 %, and an error of 20 % would have been seen.

    Raises
    ------
    ValueError
        If the two are not of the same problem, or not what they are to be.
    """
    rate = checked_number(false_alarm_rate, "false_alarm_rate", positive=True, maximum=0.5)
    problem = _same_problem(prediction, simulation)
    if "recovery" in prediction:
        return _recovery_compared(problem, prediction, simulation, rate)
    _check_sampling(problem, simulation)
    times = prediction["learned_time"].values * _delay(problem, prediction, simulation)
    found = distances(simulation, times, rate / max(times.size, 1))
    verdict, reasons = _verdict(prediction, simulation, times, found, rate)
    return _tree(
        {
            "expected_time": times,
            "mean_log_ratio": found.mean,
            "standard_error": found.error,
            "component_p_value": found.p_value,
            "visible_error": found.visible,
        },
        problem,
        prediction,
        simulation,
        title=f"Runs on tokens against theory: {problem.kind}",
        coords={"component": prediction["component"].values},
        verdict=verdict,
        reasons=reasons,
        false_alarm_rate=rate,
        p_value=combined_p_value(found.p_value, np.full(times.size, 1.0 / max(times.size, 1))),
        notes=prediction.attrs.get("notes", ""),
    )


def _tree(
    values: Mapping[str, Any],
    problem: TokenProblem,
    prediction: xr.Dataset,
    simulation: xr.Dataset,
    *,
    title: str,
    coords: Mapping[str, Any],
    verdict: str,
    reasons: str,
    false_alarm_rate: float,
    **attributes: Any,
) -> xr.DataTree:
    """Return prediction, simulation and their comparison with its verdict."""
    import xarray as xr

    comparison = make_dataset(
        values,
        problem=problem,
        title=title,
        coords=coords,
        solver={"answer": "comparison", "false_alarm_rate": false_alarm_rate},
        attributes={
            "answer": "comparison",
            "theory": "tokens",
            "verdict": verdict,
            "reasons": reasons,
            "false_alarm_rate": false_alarm_rate,
            "usable_runs": simulation.sizes["seed"],
            "blown_up_count": 0,
            **attributes,
        },
        variables=TOKEN_VARIABLES,
    )
    return xr.DataTree.from_dict({"/prediction": prediction, "/simulation": simulation, "/comparison": comparison})


def _same_problem(prediction: object, simulation: object) -> TokenProblem:
    """Return the problem of both; refuse results of other kinds or problems."""
    for name, given, variables in (
        ("prediction", prediction, {"predicted_learned_time", "recovery"}),
        ("simulation", simulation, {"run_batch_size", "recovery"}),
    ):
        if not variables.intersection(getattr(given, "variables", ())):
            maker = "dynamics.tokens.solve" if name == "prediction" else "sgd_check.tokens.simulate"
            msg = f"Argument `{name}` must be a Dataset of `{maker}`, but is {shown(type(given).__name__)}."
            raise ValueError(msg)
    asked, simulated = stored_question(prediction), stored_question(simulation)
    if asked != simulated:
        msg = f"Arguments `prediction` and `simulation` must be of one problem, but are of {asked} and {simulated}."
        raise ValueError(msg)
    return asked  # type: ignore[return-value]


def _check_sampling(problem: Any, simulation: xr.Dataset) -> None:
    """Refuse runs of a spectral optimizer on batches: their mean step is not that of the population."""
    if getattr(problem, "smoothing", None) is not None and simulation["run_batch_size"].values.any():
        msg = (
            "Argument `simulation` must have steps of the whole population for a spectral optimizer, but has batches: "
            "hold its times against `dynamics.tokens.sampled_times`."
        )
        raise ValueError(msg)


def _delay(problem: TokenProblem, prediction: xr.Dataset, simulation: xr.Dataset) -> Any:
    """Return the factor of predicted times at the learning rate of the runs, (components,) or 1."""
    rate, given = simulation.attrs["learning_rate"], prediction.attrs.get("learning_rate")
    if rate == given:
        return 1.0
    options: Any = {"keep": "summary", "progress": False}
    stepped = solve(problem, learning_rate=rate, **options)
    return stepped["learned_time"].values / solve(problem, learning_rate=given, **options)["learned_time"].values


def distances(simulation: xr.Dataset, times: Array, level: float) -> Distances:
    """Return the distances of all components from predicted times; NaN where one half has fewer than two times."""
    sizes = simulation["run_batch_size"].values
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(simulation["learned_time"].values / times)
    small, large = logs[sizes == sizes.min()], logs[sizes == sizes.max()]
    found = np.full((4, times.size), np.nan)
    for at in range(times.size):
        if all(np.isfinite(half[:, at]).all() and len(half) > 1 for half in (small, large)):
            found[:, at] = _distance(small[:, at], large[:, at], level)
    return Distances(*found)


def _distance(small: Array, large: Array, level: float) -> tuple[float, float, float, float]:
    """Return mean, standard error, p-value and visible error of one component."""
    parts = [(w * float(half.var(ddof=1)) / half.size, half.size) for half, w in ((small, 1 / 9), (large, 16 / 9))]
    mean = float(4.0 * large.mean() - small.mean()) / 3.0
    variance = max(sum(part for part, _ in parts), 1e-30)
    freedom = variance**2 / max(sum(part**2 / (size - 1) for part, size in parts), 1e-60)
    error, beyond = float(np.sqrt(variance)), max(abs(mean) - TOLERATED, 0.0)
    p_value = float(2.0 * stats.t.sf(beyond / error, freedom)) if beyond > 0 else 1.0
    return mean, error, p_value, TOLERATED + _reach(freedom, level) * error


def _verdict(
    prediction: xr.Dataset, simulation: xr.Dataset, times: Array, found: Distances, rate: float
) -> tuple[str, str]:
    """Return the verdict and its reason."""
    names = prediction["component"].values
    measured, end = simulation["learned_time"].values, float(simulation["time"].values[-1])
    never = np.isposinf(prediction["predicted_learned_time"].values)
    worst = combined_p_value(found.p_value, np.full(times.size, 1.0 / times.size))
    if worst < rate:
        at = int(np.nanargmin(found.p_value))
        off = f"{100 * abs(np.expm1(found.mean[at])):.1f} % {'late' if found.mean[at] > 0 else 'early'}"
        return "disagree", f"{names[at]} is learned {off} (p = {worst:.2g} < {rate:g})."
    surprising = never & np.isfinite(measured).any(axis=0)
    if surprising.any():
        return "disagree", f"{_listed(names[surprising])} is learned, but predicted never to be."
    missing = (times * (1.0 + 2.0 * VISIBLE_ERROR) < end) & np.isnan(measured).all(axis=0)
    if missing.any() and simulation.attrs["stop_reason"] == "reached_end":
        return "disagree", f"{_listed(names[missing])} is predicted to be learned, but no run does."
    unseen = ~(found.visible <= VISIBLE_ERROR) & ~never
    if unseen.any():
        advice = "use more steps or seeds, or larger batches"
        return (
            "undecided",
            f"An error of {100 * VISIBLE_ERROR:.0f} % could have gone unseen in {_listed(names[unseen])}: {advice}.",
        )
    if never.all():
        return "agree", "Nothing is predicted ever to be learned, and nothing was."
    seen = f"an error of {100 * VISIBLE_ERROR:.0f} % would have been seen"
    return "agree", f"No time of learning leaves its band (p = {worst:.2g}), and {seen}."


def _listed(names: Array) -> str:
    return ", ".join(str(name) for name in names)


def _recovery_compared(
    problem: TokenProblem, prediction: xr.Dataset, simulation: xr.Dataset, rate: float
) -> xr.DataTree:
    """Hold the mean number of recovered items against the closed one, by Student's t of the part beyond 6 %."""
    closed, counts = float(prediction["recovered_count"]), simulation["recovered_count"].values
    freedom = counts.size - 1
    ratio = float(counts.mean()) / closed - 1.0
    error = max(float(counts.std(ddof=1)) / np.sqrt(counts.size) / closed, 1e-12)
    p_value = float(2.0 * stats.t.sf(max(abs(ratio) - TOLERATED_COUNT, 0.0) / error, freedom))
    visible = TOLERATED_COUNT + _reach(freedom, rate) * error
    seen = f"an error of {100 * VISIBLE_COUNT:.0f} %"
    if p_value < rate:
        verdict, end = "disagree", f" (p = {p_value:.2g} < {rate:g})"
    elif visible > VISIBLE_COUNT:
        verdict, end = "undecided", f"; {seen} could have gone unseen: use more seeds"
    else:
        verdict, end = "agree", f" (p = {min(p_value, 1.0):.2g}), and {seen} would have been seen"
    return _tree(
        {},
        problem,
        prediction,
        simulation,
        title="Recovered items against theory",
        coords={},
        verdict=verdict,
        reasons=f"{counts.mean():.4g} items are recovered, {closed:.4g} predicted{end}.",
        false_alarm_rate=rate,
        p_value=min(p_value, 1.0),
        relative_distance=ratio,
        relative_error=error,
        visible_error=visible,
    )


def _reach(freedom: float, level: float) -> float:
    """Return the distance, in standard errors, that Student's t at this level sees with probability 0.8."""
    return float(special.stdtrit(freedom, 1.0 - level / 2.0) + special.stdtrit(freedom, POWER))
