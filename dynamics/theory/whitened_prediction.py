"""When each direction emerges and is learned on inputs of covariance Σ, by pairs alone; from k = 3 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import check_problem
from dynamics.theory.matching import match_greedily
from dynamics.theory.prediction import LINEARISED, NOTE_CONSTANT, NOTE_DIRECTIONS, PAIRS, EmergencePrediction
from dynamics.theory.whitened_pairs import direction_speeds, whitened_pair

if TYPE_CHECKING:
    from dynamics.problem import Problem

NOTE_PAIRS = (
    "times are those of matched pairs alone on inputs of covariance Sigma; matching takes overlaps of both signs as "
    "alike for even k"
)
NOTE_NO_TIMES = "k <= 2 with inputs that are not isotropic: no theory predicts the times, which are NaN"


def predict_whitened(problem: Problem) -> EmergencePrediction:
    """Return the times of pairs matched by a_p s_p |C_0|^(k−2), s_p = θ̂_pᵀΣθ̂_p; NaN for k ≤ 2."""
    check_problem(problem, fields=("inputs",))
    a, k, start = problem.teacher.coefficients, problem.information_exponent, problem.start()
    if k > 2:
        neuron = match_greedily(a * direction_speeds(problem), start.teacher_overlap, k)
    else:
        neuron = np.full(a.size, -1, dtype=np.int64)
    leading, emergence, learned = (np.full(a.size, np.inf if k > 2 else np.nan) for _ in range(3))
    weights = problem.reduced_weights()
    for p in np.flatnonzero(neuron >= 0).tolist():
        pair = whitened_pair(problem, weights, int(neuron[p]), p)
        leading[p] = pair.leading_order()
        emergence[p], learned[p] = pair.times()
    notes = [NOTE_PAIRS if k > 2 else NOTE_NO_TIMES]
    if problem.activation.coefficients[0] != 0.0:
        learned[:] = np.nan
        notes.append(NOTE_CONSTANT)
    if not problem.teacher.is_orthonormal:
        notes.append(NOTE_DIRECTIONS)
    found = neuron >= 0
    overlap = np.where(found, start.teacher_overlap[neuron, np.arange(a.size)], np.nan)
    squared_norm = np.where(found, start.squared_norm[neuron], np.nan)
    return EmergencePrediction(
        matched_neuron=neuron,
        matched_overlap=overlap,
        matched_squared_norm=squared_norm,
        leading_order_time=leading,
        predicted_emergence_time=emergence,
        predicted_learned_time=learned,
        learning_neuron=neuron,
        learning_overlap=overlap,
        learning_squared_norm=squared_norm,
        notes=tuple(notes),
        theory=PAIRS if k > 2 else LINEARISED,
    )
