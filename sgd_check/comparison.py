"""Prediction against experiment: align the two, test every direction, say one word.

Knows datasets of both kinds and the statistics of `sgd_check.verdict`; nothing of how either dataset was computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgd_check.verdict import FEWEST_RUNS, VISIBLE_ERROR, assess_direction, combined_p_value

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from sgd_check.verdict import DirectionTest

START_TOLERANCE = 1e-7


class Expectation(NamedTuple):
    """What theory says of every direction: time in the flow, delay and scatter by the step size."""

    time: NDArray[np.float64]
    delay: NDArray[np.float64]
    scatter: NDArray[np.float64]
    notes: tuple[str, ...]


def compare(prediction: xr.Dataset, simulation: xr.Dataset, *, false_alarm_rate: float = 0.01) -> xr.DataTree:
    r"""Hold simulated emergence times against predicted ones.

    For every direction that the prediction says emerges, the null hypothesis is

    .. math:: E \ln\frac{T_{\mathrm{SGD}}}{T_p} \in [-s_p^2/2,\; 2 \ln(1 + \delta_p)],

    δ_p and s_p the relative delay and scatter that the step size causes at leading order. `sgd_check.verdict` describes
    the test.

    Parameters
    ----------
    prediction : Dataset
        Any answer with `emergence_time(direction)`, such as `dynamics.solve_overlaps` (the exact flow) or
        `dynamics.predict_emergence` (pairs alone: interactions between neurons are then part of the difference).
    simulation : Dataset
        Result of `sgd_check.simulate` for the same problem.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if the theory holds.

    Returns
    -------
    DataTree
        /prediction and /simulation as given, /comparison with `emergence_ratio` (seed, direction), `expected_delay`,
        `mean_log_ratio`, `standard_error`, `z_score`, `direction_p_value` (NaN: not tested), `censored_count`
        (direction) and `p_value`; its attrs hold `verdict` ("agree", "disagree" or "undecided"), `false_alarm_rate`,
        `reasons`, and the counts of runs. Runs that blew up are excluded and counted.

    Raises
    ------
    TypeError
        If one of the two is no dataset.
    ValueError
        If the two do not answer the same problem from the same start, or the rate is not in (0, 1).
    """
    import xarray as xr

    from dynamics.dataset import make_dataset
    from dynamics.problem import Problem

    if not 0 < false_alarm_rate < 1:
        msg = f"Argument `false_alarm_rate` must lie between 0 and 1, but is {false_alarm_rate}."
        raise ValueError(msg)
    for name, dataset in (("prediction", prediction), ("simulation", simulation)):
        _check_dataset(name, dataset)
        if "emergence_time" not in dataset:
            msg = f"Argument `{name}` must have a variable `emergence_time`, but has {', '.join(map(str, dataset))}."
            raise ValueError(msg)
    if "seed" not in simulation.dims or "seed" in prediction.dims:
        msg = (
            "Arguments `prediction` and `simulation` must be a prediction and a simulation, in this order, but are not."
        )
        raise ValueError(msg)
    problem = Problem.from_dataset(simulation)
    _check_same(Problem.from_dataset(prediction), problem)
    expected = expectation(problem, prediction, _noise_rate(simulation))
    ratio, tests = _test_directions(simulation, expected, false_alarm_rate)
    values = _per_direction(simulation, expected, ratio, tests)
    attributes = _verdict(simulation, expected, tests, values, false_alarm_rate)
    comparison = make_dataset(
        values,
        problem=problem,
        title="Online SGD against prediction",
        coords={"seed": simulation["seed"].values},
        solver={"answer": "comparison", "false_alarm_rate": false_alarm_rate},
        attributes={"prediction": str(prediction.attrs.get("answer", "unknown")), **attributes},
    )
    return xr.DataTree.from_dict({"/prediction": prediction, "/simulation": simulation, "/comparison": comparison})


def expectation(problem: Problem, prediction: xr.Dataset, noise_rate: float) -> Expectation:
    """Return emergence times in the flow, and the delay by the step size that theory expects of SGD.

    Parameters
    ----------
    problem : Problem
    prediction : Dataset
        Answer with `emergence_time(direction)`; times that are not finite and positive are not compared.
    noise_rate : float
        Learning rate over batch size, dimensionless: what sets the noise of the steps.

    Returns
    -------
    Expectation
        The delay is inf where theory gives none: lateness is then no evidence against it. Delay and scatter are
        relative to the time in the flow.
    """
    from dynamics import prediction as theory

    time = np.asarray(prediction["emergence_time"].values, dtype=np.float64)
    time = np.where(np.isfinite(time) & (time > 0), time, np.nan)
    try:
        bias = theory.escape_bias(problem, noise_rate, theory.predict(problem))
    except ValueError as error:
        unknown = f"The delay by the step size is unknown: {error}"
        return Expectation(time, np.full(time.size, np.inf), np.zeros(time.size), (unknown,))
    # The leading order may come out negative by rounding of an expected delay near 0; theory never expects an advance.
    delay = np.where(np.isnan(bias.bias), np.inf, np.maximum(bias.bias, 0.0))
    notes = tuple(f"The delay by the step size is unknown: {note}." for note in bias.notes if np.isnan(bias.bias).all())
    return Expectation(time, delay, np.nan_to_num(bias.scatter, posinf=0.0), notes)


def _noise_rate(simulation: xr.Dataset) -> float:
    return float(simulation.attrs["effective_learning_rate"]) / int(simulation.attrs["batch_size"])


def _check_dataset(name: str, dataset: object) -> None:
    import xarray as xr

    if not isinstance(dataset, xr.Dataset):
        msg = f"Argument `{name}` must be a Dataset, but is {type(dataset).__name__}."
        raise TypeError(msg)


def _check_same(predicted: Problem, simulated: Problem) -> None:
    def refuse(what: str, theirs: object, ours: object) -> None:
        msg = f"Argument `simulation` must have the {what} of the prediction, {theirs}, but has {ours}."
        raise ValueError(msg)

    for name in ("dimension", "width", "teacher"):
        if getattr(predicted, name) != getattr(simulated, name):
            refuse(name, getattr(predicted, name), getattr(simulated, name))
    ours, theirs = simulated.activation, predicted.activation
    if not _same(ours.coefficients, theirs.coefficients):
        refuse("link", theirs.name, ours.name)
    for field, a, b in zip(predicted.start()._fields, predicted.start(), simulated.start(), strict=True):
        if not np.allclose(a, b, rtol=START_TOLERANCE, atol=START_TOLERANCE * float(np.abs(a).max())):
            refuse(f"initial {field}", "of its start", f"one that differs by {np.abs(a - b).max():.3g}")


def _same(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12))


def _test_directions(
    simulation: xr.Dataset, expected: Expectation, rate: float
) -> tuple[NDArray[np.float64], list[DirectionTest | None]]:
    """Return T_SGD/T_flow, shape (seeds, P), NaN where there is none, and the test of every direction."""
    sound = simulation["blown_up"].values == 0
    measured = np.where(sound[:, None], np.asarray(simulation["emergence_time"].values, dtype=np.float64), np.nan)
    ratio = measured / expected.time
    end = float(simulation.attrs["end_time"])
    # Beyond the horizon a direction says nothing, unless every run has it out already.
    with np.errstate(invalid="ignore"):
        within = expected.time * (1.0 + VISIBLE_ERROR) <= end
    testable = np.isfinite(expected.time) & (within | np.isfinite(measured[sound]).all(axis=0)) & (end > 0)
    level = rate / max(int(testable.sum()), 1)
    tests: list[DirectionTest | None] = []
    for p in range(expected.time.size):
        if not testable[p]:
            tests.append(None)
            continue
        with np.errstate(divide="ignore"):
            # A direction that is out at step 0 has no ratio to speak of; the clip keeps its logarithm finite.
            logs = np.log(np.maximum(ratio[sound, p], 1e-12))
        log_horizon = float(np.log(end / expected.time[p]))
        delay, scatter = float(expected.delay[p]), float(expected.scatter[p])
        tests.append(assess_direction(logs, log_horizon, delay, scatter, level))
    return ratio, tests


def _per_direction(
    simulation: xr.Dataset, expected: Expectation, ratio: NDArray[np.float64], tests: list[DirectionTest | None]
) -> dict[str, Any]:
    def column(name: str) -> NDArray[np.float64]:
        return np.array([np.nan if test is None else getattr(test, name) for test in tests], dtype=np.float64)

    sound = simulation["blown_up"].values == 0
    p_values = column("p")
    return {
        "emergence_ratio": ratio,
        "emergence_time": expected.time,
        "expected_delay": expected.delay,
        "mean_log_ratio": column("mean"),
        "standard_error": column("standard_error"),
        "z_score": column("z"),
        "direction_p_value": p_values,
        "censored_count": np.sum(simulation["censored"].values[sound] != 0, axis=0),
        "p_value": combined_p_value(p_values),
    }


def _verdict(
    simulation: xr.Dataset,
    expected: Expectation,
    tests: list[DirectionTest | None],
    values: dict[str, Any],
    rate: float,
) -> dict[str, Any]:
    """Return the verdict, its reasons and the counts as attributes."""
    blown_up = int(np.sum(simulation["blown_up"].values != 0))
    usable = int(simulation.sizes["seed"]) - blown_up
    tested = [p for p, test in enumerate(tests) if test is not None]
    dull = [p for p, test in enumerate(tests) if test is not None and not test.resolved]
    untested = [p for p, test in enumerate(tests) if test is None]
    awaited = [p for p in untested if np.isfinite(expected.time[p])]
    if tested and values["p_value"] < rate:
        verdict, reason = "disagree", _disagreement(values, rate)
    elif usable < FEWEST_RUNS:
        verdict, reason = "undecided", f"Only {usable} runs are usable; the test needs {FEWEST_RUNS}."
    elif not tested:
        verdict, reason = (
            "undecided",
            "No direction could be tested: none is predicted to emerge well before the end of the runs.",
        )
    elif awaited and simulation.attrs["stop_reason"] != "reached_end":
        verdict = "undecided"
        reason = (
            f"The runs stopped early ({simulation.attrs['stop_reason']}), before direction {_named(awaited)} could be "
            "tested."
        )
    elif dull:
        verdict = "undecided"
        reason = (
            f"An error of {VISIBLE_ERROR:.0%} could have gone unseen in direction {_named(dull)}: use more seeds, "
            "a smaller learning rate or more steps."
        )
    else:
        verdict = "agree"
        reason = (
            f"No tested direction leaves its band (global p = {values['p_value']:.2g}), and an error of "
            f"{VISIBLE_ERROR:.0%} would have been seen."
        )
    reasons = [reason, *expected.notes]
    if untested and tested:
        reasons.append(f"Not tested, since predicted never or beyond the horizon: direction {_named(untested)}.")
    if blown_up:
        reasons.append(f"Runs left out because they blew up: {blown_up}.")
    return {
        "verdict": verdict,
        "false_alarm_rate": rate,
        "reasons": " ".join(reasons),
        "usable_runs": usable,
        "blown_up_count": blown_up,
        "tested_directions": len(tested),
    }


def _disagreement(values: dict[str, Any], rate: float) -> str:
    worst = int(np.nanargmin(values["direction_p_value"]))
    z = values["z_score"][worst]
    side = "late" if z > 0 else "early"
    return f"Direction {worst + 1} emerges {side}, z = {z:.1f} (global p = {values['p_value']:.2g} < {rate:g})."


def _named(directions: list[int]) -> str:
    return ", ".join(str(p + 1) for p in directions)
