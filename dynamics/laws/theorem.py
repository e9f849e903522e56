r"""The bounds of the theorem of Ren, Nichani, Wu and Lee (arXiv:2504.19983), measured on a flow.

With T_p the leading order of the time at which direction p emerges, the theorem says of its matched neuron:

* part (b): from T_p (1 + Δ/4) on, C_p² ≥ 1 − ε and |n/a_p − 1| ≤ ε;
* part (c): until T_p (1 − Δ/256), C_p² ≤ d^(−½).

The smallest Δ with which a flow keeps each part is measured. The theorem wants Δ < 1, and takes d → ∞.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.laws.layerwise import resolved_width
from dynamics.laws.scaffold import PreparedStudy, checked_problem, checked_starts, under_way
from dynamics.problem import Problem
from dynamics.problem.checks import JsonObject, checked_increasing, checked_integer
from dynamics.problem.saved_times import SaveAt
from dynamics.runs.dataset import Values, study_dataset
from dynamics.runs.result import uninterrupted
from dynamics.solve.overlaps import solve_overlaps
from dynamics.theory.prediction import default_times, predict
from hermite.arrays import Array, Switches
from hermite.text.messages import require

#: ε of part (b): how near to learned the matched neuron must stay.
ACCURACY = 0.1
#: Shares of T_p that part (b) and part (c) leave to Δ.
SHARE_B, SHARE_C = 4.0, 256.0
#: Saved times of the study, geometric.
TIMES = 1500
TITLE = "Bounds of the theorem on emergence times, measured"
BY_DIRECTION = ("delta_b_of_direction", "delta_c_of_direction", "irrelevant_before", "irrelevant_after")
OF_FLOW = ("delta_b", "delta_c", "delta_c_resolution", "delta_c_leading_order", "unused_squared_norm")


def check_theorem(flow: xr.Dataset) -> xr.Dataset:
    r"""Return the smallest Δ with which a flow keeps parts (b) and (c) of the theorem on emergence times.

    .. math:: \Delta_b = \max_p 4 \Big(\frac{t_b}{T_p} - 1\Big), \qquad
        \Delta_c = \max_p 256 \Big(1 - \frac{t_c}{T_p}\Big)

    T_p is the leading order of the emergence time, t_b the first saved time from which on the matched neuron keeps
    C² ≥ 0.9 and |n/a_p − 1| ≤ 0.1, and t_c the time at which its C² first reaches d^(−½), linear between saved times.
    The leading order of Δ_c is 256 max_p (C_p(0)² √d)^((k−2)/2), which falls as d^(−(k−2)/4).

    Parameters
    ----------
    flow : Dataset
        Answer of `dynamics.solve_overlaps` with all overlaps (`keep="full"`), link of k ≥ 3, isotropic inputs.

    Returns
    -------
    Dataset
        `delta_b` and `delta_c`, `delta_b_of_direction` and `delta_c_of_direction`, NaN for one that no neuron is
        matched with; `delta_c_resolution`, 256 Δt/t of the saved times around the t_c of the largest Δ_c;
        `delta_c_leading_order`;
        `irrelevant_before` and `irrelevant_after` (direction), the largest C² of any other neuron with the direction
        until T_p and after it; and `unused_squared_norm`, the largest n of a neuron that no direction is matched with.
        All are dimensionless. Δ_b is inf if a direction is not learned by an end after T_p (1 + 1/4). A flow that ends
        before T_p, or before t_b or t_c otherwise, does not tell Δ: NaN, also in the maximum. `sentence` says so.

    Raises
    ------
    ValueError
        If the dataset is no such flow.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, solve_overlaps
    >>> problem = Problem(activation="he4", teacher=Teacher.power_law(2, 1.0), width=6, dimension=256)
    >>> flow = solve_overlaps(problem, save_at=SaveAt.geometric(0.1, 400.0, 500), progress=False)
    >>> bounds = check_theorem(flow)
    >>> bounds.delta_b.round(1).item(), bounds.delta_c.round().item()
    (0.7, 22.0)
    """
    problem = _checked_flow(flow)
    bounds = _bounds(problem, flow)
    arrays: Values = {name: ((), bounds[name]) for name in (*OF_FLOW, *BY_DIRECTION)}
    coords = {"direction": np.arange(1, problem.num_directions + 1)}
    settings = {"answer": "theorem", "accuracy": ACCURACY}
    attributes = {
        "answer": "theorem",
        "stop_reason": flow.attrs.get("stop_reason"),
        "sentence": sentence(problem, bounds, int(np.count_nonzero(flow["matched_neuron"].values >= 0))),
    }
    return study_dataset(problem, arrays, title=TITLE, coords=coords, settings=settings, attributes=attributes)


def _checked_flow(flow: xr.Dataset) -> Problem:
    """Return the problem of a flow that the theorem can be held against."""
    names = ("teacher_overlap", "squared_norm", "matched_neuron", "leading_order_time")
    missing = [name for name in names if name not in flow]
    require(
        not missing,
        "Argument `flow` must be an answer of solve_overlaps with all overlaps (keep='full'), "
        f"but has no variable {', '.join(missing)}.",
    )
    problem = Problem.from_dataset(flow)
    k = problem.information_exponent
    require(k >= 3, f"Argument `flow` must have a link of information exponent at least 3, but its link has k = {k}.")
    require(problem.inputs is None, "Argument `flow` must have isotropic inputs, but its inputs have a covariance.")
    require((flow["matched_neuron"].values >= 0).any(), "Argument `flow` must have a matched neuron, but has none.")
    return problem


def _bounds(problem: Problem, flow: xr.Dataset) -> dict[str, object]:
    """Return the quantities that the theorem bounds, as one flow has them, by the names of their variables."""
    time, threshold = flow["time"].values, problem.dimension**-0.5
    leading, neurons = flow["leading_order_time"].values, flow["matched_neuron"].values.astype(np.int64)
    squared, norms = flow["teacher_overlap"].values ** 2, flow["squared_norm"].values
    delta_b, delta_c, resolution, before, after = np.full((5, problem.num_directions), np.nan)
    for p in np.flatnonzero(neurons >= 0).tolist():
        i, T = neurons[p], leading[p]
        size = norms[:, i] / problem.teacher.coefficients[p]
        learned = (squared[:, i, p] >= 1.0 - ACCURACY) & (np.abs(size - 1.0) <= ACCURACY)
        t_b, (t_c, distance) = _kept_from(time, learned), _first_reached(time, squared[:, i, p], threshold)
        if time[-1] >= (T if np.isfinite(t_b) else T * (1.0 + 1.0 / SHARE_B)):
            delta_b[p] = SHARE_B * (t_b / T - 1.0)
        if time[-1] >= T:
            delta_c[p], resolution[p] = SHARE_C * (1.0 - t_c / T), SHARE_C * distance
        rest = np.delete(squared[:, :, p], i, axis=1)
        before[p], after[p] = (rest[part].max(initial=0.0) for part in (time <= T, time > T))
    start = problem.start().teacher_overlap
    matched = np.flatnonzero(neurons >= 0)
    power = 0.5 * (problem.information_exponent - 2)
    slowest = matched[np.argmax(delta_c[matched])]
    used = np.isin(np.arange(problem.width), neurons)
    return {
        "delta_b": np.max(delta_b[matched]),
        "delta_c": np.max(delta_c[matched]),
        "delta_c_resolution": resolution[slowest],
        "delta_c_leading_order": SHARE_C * np.max(start[neurons[matched], matched] ** 2 / threshold) ** power,
        "unused_squared_norm": norms[:, ~used].max(initial=0.0),
        "delta_b_of_direction": delta_b,
        "delta_c_of_direction": delta_c,
        "irrelevant_before": before,
        "irrelevant_after": after,
    }


def _kept_from(time: Array, holds: Switches) -> float:
    """Return the first saved time from which a condition holds to the end, inf if it does not hold there."""
    failures = np.flatnonzero(~holds)
    first = 0 if failures.size == 0 else int(failures[-1]) + 1
    return float(time[first]) if first < time.size else np.inf


def _first_reached(time: Array, values: Array, level: float) -> tuple[float, float]:
    """Return when values first reach a level, linear between times, and the relative distance of these times.

    It is the first time if they reach the level before, and NaN if they never do.
    """
    reached = np.flatnonzero(values >= level)
    if reached.size == 0:
        return np.nan, np.nan
    at = int(reached[0])
    if at == 0:
        return float(time[0]), float(time[0] > 0.0)
    first = float(np.interp(level, values[at - 1 : at + 1], time[at - 1 : at + 1]))
    return first, float(time[at] - time[at - 1]) / first


def sentence(problem: Problem, values: JsonObject, matched: int) -> str:
    """Return which parts of the theorem hold at a dimension, and from which dimension part (c) would.

    `matched` is the number of directions that a neuron is matched with, of which alone they are known.
    """
    d, P = problem.dimension, problem.num_directions
    of_matched = "" if matched == P else f" for the {matched} matched directions of {P}"
    delta_b, delta_c, resolution = (float(values[name]) for name in ("delta_b", "delta_c", "delta_c_resolution"))
    parts = []
    for name, delta, known_to in (("b", delta_b, 0.0), ("c", delta_c, resolution)):
        if np.isnan(delta):
            parts.append(f"part ({name}) is not measured{of_matched} at d = {d}, as the flow ends too early")
            continue
        is_open = abs(delta - 1.0) < known_to
        verdict = "is open at these saved times" if is_open else "holds" if delta < 1.0 else "does not hold"
        text = f", known to {known_to:.2g}" if known_to else ""
        parts.append(f"part ({name}) {verdict}{of_matched} at d = {d} (Delta_{name} = {delta:.3g}{text})")
    if delta_c >= 1.0 + resolution:
        needed = d * delta_c ** (4.0 / (problem.information_exponent - 2))
        parts.append(f"by its leading order it would from d near {needed:.1g} on")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _theorem(study: PreparedStudy, problems: Sequence[Problem], seeds: range) -> xr.Dataset:
    """Measure the bounds at each dimension and start; those that an interruption leaves out are NaN."""
    shape = (len(problems), len(seeds))
    values = {name: np.full(shape, np.nan) for name in OF_FLOW}
    text = ""
    fewest = [problem.num_directions for problem in problems]
    with under_way(len(problems) * len(seeds), study.progress) as meter:
        for row, problem in enumerate(problems):
            for column, seed in enumerate(seeds):
                start = replace(problem, seed=seed)
                times = default_times(start, predict(start)).times
                save_at = SaveAt.geometric(float(times[0]), float(times[-1]), TIMES)
                flow = solve_overlaps(start, save_at=save_at, error_estimate=False, progress=False)
                bounds = _bounds(start, uninterrupted(flow))
                fewest[row] = min(fewest[row], int(np.count_nonzero(flow["matched_neuron"].values >= 0)))
                for name in OF_FLOW:
                    values[name][row, column] = bounds[name]
                meter.add(1)
            text = sentence(problem, {name: np.max(values[name][row]) for name in OF_FLOW}, fewest[row])
    arrays: Values = {name: (("dimension", "start"), array) for name, array in values.items()}
    coords = {"dimension": [problem.dimension for problem in problems], "start": np.array(seeds)}
    return study.dataset(meter, arrays, coords, sentence=text, starts=len(seeds))


@study_function  # returns what `run` of the prepared study returns, a dataset
def theorem_study(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    directions: int = 4,
    width: int | str | None = None,
    dimensions: Sequence[int] = (1024, 16384, 262144),
    starts: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedStudy:
    """Measure the bounds of the theorem on emergence times at growing dimension, by `dynamics.check_theorem`.

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and decay of the teacher's coefficients.
    directions, width : int, int or str
        P, and number m of neurons, by default 3 P; "top:2" is the width that matches the first 2 (`width_for`).
    dimensions : sequence of int
        Input dimensions d ≥ P, increasing.
    starts, seed : int
        Random starts at every dimension, and the seed of the first.

    Returns
    -------
    Dataset
        `delta_b`, `delta_c`, `delta_c_resolution`, `delta_c_leading_order` and `unused_squared_norm` (dimension,
        start).

    Examples
    --------
    >>> bounds = theorem_study(directions=2, dimensions=(64, 1024), progress=False)
    >>> bool((bounds.delta_c.diff("dimension") < 0.0).all())
    True
    """
    dims = checked_increasing(dimensions, "dimensions", minimum=2, fewest=1)
    count = checked_integer(directions, "directions", minimum=1, maximum=dims[0])
    seeds = checked_starts(starts, seed)
    problem = checked_problem(information_exponent, beta, count, dims[-1], widest=3 * count, seed=seeds.start, fewest=1)
    m = (
        problem.width
        if width is None
        else resolved_width(width, problem.teacher, problem.activation, progress=progress)
    )
    problem = replace(problem, width=m)
    problems = [replace(problem, dimension=d) for d in dims]
    settings = {"accuracy": ACCURACY, "starts": len(seeds)}
    work = f"{len(dims) * len(seeds)} coupled flows of {m} neurons and {count} directions."
    solve = partial(_theorem, problems=problems, seeds=seeds)
    return PreparedStudy("theorem-study", TITLE, settings, problem, progress, solve, work)
