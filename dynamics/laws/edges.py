r"""How the largest stable step size of SGD depends on the number of directions, beside that of population descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr

from dynamics.commands.catalogue import study_function
from dynamics.fits import fit_slope
from dynamics.laws.scaffold import PreparedStudy, checked_problem, under_way
from dynamics.problem import Problem, Teacher
from dynamics.problem.checks import checked_increasing
from dynamics.runs.dataset import Values
from dynamics.theory.learning_rates import descent_limit, learning_rate_limit

#: Nodes of Gauss-Hermite quadrature, exact for fourth powers of derivatives up to degree 60.
NODES = 128
TITLE = "Largest stable step size of SGD against the number of directions"


def _limit_at_large_dimension(problem: Problem) -> float:
    """Return 2 g'(1)/(d λ_max(M diag(a))), with M_ii = E σ'⁴ and M_ij = g'(1)², to which the limit tends as d → ∞."""
    z, weight = np.polynomial.hermite_e.hermegauss(NODES)
    fourth = float(weight @ problem.activation.derivative(z) ** 4) / float(weight.sum())
    slope, root = float(problem.activation.kernel_derivative(1.0)), np.sqrt(problem.teacher.coefficients)
    matrix = slope**2 * np.outer(root, root) + np.diag((fourth - slope**2) * root**2)
    return float(2.0 * slope / (problem.dimension * np.linalg.eigvalsh(matrix)[-1]))


def _edges(study: PreparedStudy, problems: list[Problem]) -> xr.Dataset:
    """Return the limits of all numbers of directions; those that an interruption leaves out are NaN."""
    limits = np.full((3, len(problems)), np.nan)
    with under_way(len(problems), study.progress) as meter:
        for at, problem in enumerate(problems):
            limits[:, at] = learning_rate_limit(problem), _limit_at_large_dimension(problem), descent_limit(problem)
            meter.add(1)
    counts = [problem.num_directions for problem in problems]
    names = ("step_limit", "step_limit_large_dimension", "descent_edge")
    values: Values = {name: (("num_directions",), row) for name, row in zip(names, limits, strict=True)}
    with np.errstate(invalid="ignore"):
        slope = fit_slope(np.array(counts, dtype=np.float64), np.log(limits[0])).exponent
    return study.dataset(meter, values, {"num_directions": counts}, limit_slope=slope)


@study_function  # returns what `run` of the prepared study returns, a dataset
def stability_edges(
    *,
    information_exponent: int = 4,
    beta: float = 1.0,
    sizes: Sequence[int] = (4, 16, 64),
    dimension: int = 4096,
    progress: bool | None = None,
) -> PreparedStudy:
    r"""Return the largest stable step size of SGD at growing numbers of directions, and that of population descent.

    .. math:: \eta^* \to \frac{2 g'(1)}{d\, \lambda_{\max}(M\, \mathrm{diag}(a))}, \qquad
        M_{ii} = E\,\sigma'(z)^4, \quad
        M_{ij} = g'(1)^2

    as d → ∞: for β > ½ no power of P is in it. Batches have one sample; a step is w ← w − η ∇ ½ (f − f\*)².

    Parameters
    ----------
    information_exponent, beta : int, float
        k ≥ 3 of the link h_k, and β.
    sizes, dimension : sequence of int, int
        Numbers P of directions, increasing, and d, at least the largest; there are as many neurons as directions.

    Returns
    -------
    Dataset
        By num_directions: `step_limit`, the limit by `dynamics.learning_rate_limit` at this d;
        `step_limit_large_dimension`, the formula above; `descent_edge`, the edge of population descent. Attribute
        `limit_slope` is the slope of the logarithm of the first over that of P. All are dimensionless.

    Examples
    --------
    >>> found = stability_edges(sizes=(2, 4), dimension=256, progress=False)
    >>> bool((found.step_limit < found.step_limit_large_dimension).all())
    True
    """
    counts = checked_increasing(sizes, "sizes", minimum=1, fewest=2)
    largest = checked_problem(
        information_exponent, beta, counts[-1], dimension, widest=counts[-1], seed=0, fewest=counts[-1]
    )
    problems = [replace(largest, teacher=Teacher.power_law(count, beta), width=count) for count in counts]
    work = f"{len(counts)} limits of stability, of up to {counts[-1]} directions: seconds."
    return PreparedStudy("edges", TITLE, {}, largest, progress, partial(_edges, problems=problems), work)
