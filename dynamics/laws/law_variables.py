"""Scaling laws as the variables of a dataset: their points, their exponents by source, and the windows of the fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.theory.asymptotics import FEWEST_DIRECTIONS, IDEAL_LAWS, ideal_exponent, spectral_decay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.laws.laws_of_a_problem import ScalingLaw
    from dynamics.problem import Problem
    from dynamics.runs.dataset import Values

CURVES = ("measured", "sum formula")
SOURCES = (*CURVES, "ideal sum", "asymptotic")


def law_values(laws: Sequence[ScalingLaw], problem: Problem) -> Values:
    """Return the variables of the laws, padded to one number of points and of runs.

    They are `exponent`, `exponent_error` and `prefactor` (law, source), `window_low`, `window_high` (law), `abscissa`
    (law, point) and `ordinate` (law, curve, run, point). The ideal sum takes β and P of the problem.
    """
    points, runs = max(law.x.size for law in laws), max(len(law.measured) for law in laws)
    shape = (len(laws), len(SOURCES))
    exponent, error, prefactor = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    x = np.full((len(laws), points), np.nan)
    y = np.full((len(laws), len(CURVES), runs, points), np.nan)
    for at, law in enumerate(laws):
        x[at, : law.x.size] = law.x
        for curve, (values, fit) in enumerate(((law.measured, law.fit), (law.predicted, law.finite_size))):
            y[at, curve, : len(values), : law.x.size] = values
            exponent[at, curve], error[at, curve] = fit.exponent, fit.standard_error
            prefactor[at, curve] = fit.prefactor
        exponent[at, 2], error[at, 2] = _ideal(law, problem)
        exponent[at, 3] = law.asymptotic
    return {
        "exponent": (("law",), exponent),
        "exponent_error": (("law",), error),
        "prefactor": (("law",), prefactor),
        "window_low": ((), np.array([law.fit.window[0] for law in laws])),
        "window_high": ((), np.array([law.fit.window[1] for law in laws])),
        "abscissa": (("law",), x),
        "ordinate": (("law", "curve", "run"), y),
    }


def law_coordinates(laws: Sequence[ScalingLaw]) -> dict[str, Any]:
    """Return the coordinates that go with `law_values`."""
    return {
        "law": np.array([law.name for law in laws]),
        "source": np.array(SOURCES),
        "curve": np.array(CURVES),
        "run": np.arange(max(len(law.measured) for law in laws)),
        "point": np.arange(max(law.x.size for law in laws)),
    }


def _ideal(law: ScalingLaw, problem: Problem) -> tuple[float, float]:
    """Return exponent and error of the idealised sum at this P, β and window of ranks; NaN where there is none.

    What follows a comma in the name says how the law was measured.
    """
    beta, count, name = problem.teacher.beta, problem.num_directions, law.name.partition(",")[0]
    alpha = spectral_decay(problem)
    if name not in IDEAL_LAWS or not beta or alpha is None or count < FEWEST_DIRECTIONS:
        return float("nan"), float("nan")
    if not law.ranks[0] < law.ranks[1]:
        return float("nan"), float("nan")
    time_power = beta + 0.5 * alpha * problem.information_exponent
    fit = ideal_exponent(count, beta, name, ranks=law.ranks, time_power=time_power)
    return fit.exponent, fit.standard_error
