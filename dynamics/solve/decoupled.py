"""The answers that need no time stepping: predicted times of emergence, and the flow of matched pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import Problem, check_problem, is_correlation
from dynamics.problem.hints import with_hints
from dynamics.problem.saved_times import SaveAt, saved_until
from dynamics.problem.student import HOMOGENEOUS, SPHERICAL
from dynamics.runs.dataset import make_dataset, prediction_attributes, prediction_values
from dynamics.solve.registry import registered
from dynamics.theory.prediction import PAIRS, check_decouples, default_times, predict, sum_formula_loss
from hermite.arrays import Array

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.theory.prediction import EmergencePrediction


@with_hints
def predict_emergence(problem: Problem, *, save_at: SaveAt | None = None, t_max: float | None = None) -> xr.Dataset:
    r"""Predict when each direction emerges, without integrating anything (arXiv:2504.19983).

    Neurons i are matched greedily to directions q by a_q |C_iq(0)|^(k−2), and each pair is then taken alone. Here a_p
    is the teacher's coefficient of direction p, C the overlap (cosine) of the matched neuron with it and C_0 that at
    t = 0, c_j the Hermite coefficients of the link, k its information exponent (the lowest j ≥ 1 with c_j ≠ 0), and
    g(s) = Σ_j c_j² s^j its kernel. Direction p emerges when C² = ½, at the time

    .. math:: T_p = \frac{1}{k (k-2)\, c_k^2\, a_p |C_0|^{k-2}} \;\text{(leading order)}, \qquad
       T_p = \int_{|C_0|}^{1/\sqrt2} \frac{ds}{a_p\, g'(s) (1-s^2)} \;\text{(exact transit)}

    It is learned later, when the squared norm n of the neuron has grown so far that n g_3(C) = ½ a_p g_3(1), where g_3
    keeps the terms of g from degree 3 on. The loss E(f − f*)² is a staircase, the sum formula: it starts at E f*²
    and falls by g(1) a_p² at the learned time of each direction p.

    For k ≤ 2, where neurons do not choose directions one by one, the times are those at which the flow with linearised
    forces escapes, of all neurons and norms together: only c_0, c_1 and c_2 of the link are kept, so that
    g'(s) ≈ c_1² + 2 c_2² s, and that flow is integrated (seconds at most). At leading order the nearest neuron drifts,
    T_p = (1 − C_0)/(c_1² a_p) for k = 1, or grows, T_p = ln(1/C_0)/(2 c_2² a_p) for k = 2.

    For the objective "correlation" the time is the same transit for any k, with g replaced by the kernel g_λ of the
    landscape that λ = `smoothing` smooths (see `solve_correlation`).

    Parameters
    ----------
    problem : Problem
    save_at : SaveAt, optional
        Times of the loss. Default: 150 geometric times from a tenth of the first predicted emergence to 2.5 times the
        last predicted learned time; for k ≤ 2 as `solve_overlaps`.
    t_max : float, optional
        Last saved time, instead of that of the default times; only without `save_at`.

    Returns
    -------
    Dataset
        `loss(time)`, and per direction `matched_neuron`, `leading_order_time`, `predicted_emergence_time`,
        `predicted_learned_time` (inf if unmatched), `emergence_time` and `learned_time` (the same, NaN if never); the
        learned ones are NaN, with the attribute `undefined`, where the link has no degree from 3 on. For k ≥ 3 and
        c_0 = 0 `search_share`, `descent_share` and `learning_share` divide the learned time of the pair
        (`learning_shares`).

        For k ≤ 2 no neuron is matched, the loss is NaN if c_0 ≠ 0, and the attribute `prediction_theory` is "linearised
        flow".

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> answer = predict_emergence(problem)
    >>> answer.predicted_emergence_time.values.round(1).tolist(), answer.matched_neuron.values.tolist()
    ([2.0, 8.2], [6, 4])
    """
    student = SPHERICAL if isinstance(problem, Problem) and is_correlation(problem) else HOMOGENEOUS
    check_problem(problem, student, registered("prediction").fields)
    prediction = predict(problem)
    default = default_times(problem, prediction if prediction.theory == PAIRS else None)
    saved_times = saved_until(save_at, t_max, default)
    title = "Predicted emergence of teacher directions, without integration"
    loss = sum_formula_loss(problem, prediction, saved_times.times)
    return _dataset("prediction", title, problem, prediction, saved_times, {"loss": loss}, prediction.notes)


@with_hints
def solve_decoupled(problem: Problem, *, save_at: SaveAt | None = None, t_max: float | None = None) -> xr.Dataset:
    r"""Solve every matched pair of neuron and direction alone, exactly and without time stepping.

    .. math:: C' = a\, g'(C)(1 - C^2), \qquad (\ln n)' = 4 (a\, g(C) - n\, g(1)), \qquad
       L = E f^{*2} + \sum_{\text{pairs}} \left[ n^2 g(1) - 2 n a\, g(C) \right]

    All pairs follow one universal trajectory in a·t, which is tabulated by quadrature; P up to 10^7.

    Parameters
    ----------
    problem : Problem
        Information exponent k ≥ 3: other directions do not decouple.
    save_at : SaveAt, optional
        As in `predict_emergence`, as is `t_max`.

    Returns
    -------
    Dataset
        `loss(time)`, per-direction times, and up to P = 10^4 the histories `overlap(time, direction)` and
        `matched_squared_norm(time, direction)` (NaN for directions without a neuron).

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([0.8, 0.6]), width=8, dimension=64)
    >>> answer = solve_decoupled(problem, save_at=SaveAt.at([0.0, 4.0, 40.0]))
    >>> (answer.overlap**2).values.round(2).tolist()
    [[0.08, 0.03], [1.0, 0.05], [1.0, 1.0]]
    >>> answer.loss.values.round(3).tolist()
    [1.0, 0.945, 0.0]
    """
    from dynamics.equations.decoupled import solve_pairs

    check_problem(problem)
    check_decouples(problem)
    prediction = predict(problem)
    saved_times = saved_until(save_at, t_max, default_times(problem, prediction))
    solution = solve_pairs(problem, prediction, saved_times.times)
    values = {"loss": solution.loss, "predicted_loss": sum_formula_loss(problem, prediction, saved_times.times)}
    if solution.overlap is not None and solution.squared_norm is not None:
        values |= {"overlap": solution.overlap, "matched_squared_norm": solution.squared_norm}
    notes = list(dict.fromkeys(prediction.notes + solution.notes))
    return _dataset("decoupled", "Decoupled flow of matched pairs", problem, prediction, saved_times, values, notes)


def _dataset(
    answer: str,
    title: str,
    problem: Problem,
    prediction: EmergencePrediction,
    saved_times: SaveAt,
    values: Mapping[str, Array],
    notes: Sequence[str],
) -> xr.Dataset:
    """Return the dataset of an answer whose events are at the predicted times; times that never come are NaN.

    `values` maps names of variables to arrays, `saved_times` are along "time", and `notes` are joined by "; ".
    """
    times = {
        "emergence_time": prediction.predicted_emergence_time,
        "learned_time": prediction.predicted_learned_time,
    }
    never_as_nan = {name: np.where(np.isfinite(array), array, np.nan) for name, array in times.items()}
    return make_dataset(
        {**prediction_values(prediction), **never_as_nan, **values},
        problem=problem,
        title=title,
        coords={"time": saved_times.times},
        solver={"answer": answer},
        attributes={"answer": answer, **prediction_attributes(prediction), "notes": "; ".join(notes)},
    )


def check(problem: Problem, _options: Mapping[str, object]) -> None:
    """Refuse a problem whose directions are not learned apart from each other."""
    check_decouples(problem)
