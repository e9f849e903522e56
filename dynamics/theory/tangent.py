"""The tangent kernel of a network at its start: what training that stays near the start can never learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dynamics.equations.losses import teacher_term
from dynamics.problem.checks import require
from dynamics.problem.problem import Problem, check_problem
from dynamics.theory.kernels import kernel_weights
from hermite.arrays import Array
from hermite.text.messages import refuse

#: Most tangent features m D, D the axes in which teacher and neurons lie: their matrix takes 128 MB, and half a minute.
MOST_FEATURES = 4000
#: Eigenvalues of the Gram matrix, relative to the largest, that count as zero.
LEAST_EIGENVALUE = 1e-10


class TangentFloor(NamedTuple):
    """The least error of the linearised network: as a `share` of E f*², and as a `loss` E(f − f*)².

    `rank` is that of the tangent features on the D axes of neurons and teacher, `features` their number m D.

    Examples
    --------
    >>> import dynamics
    >>> one = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=100)
    >>> floor = tangent_floor(one)
    >>> floor.features, floor.rank, floor.share > 0.9
    (2, 2, True)
    """

    share: float
    loss: float
    rank: int
    features: int


def tangent_floor(problem: Problem) -> TangentFloor:
    r"""Return the least loss that a network reaches if it stays linear in its weights around its start, exactly.

    .. math:: \min_{\delta} E\Big(f^* - f_0 - \sum_i \delta_i \cdot \nabla_{w_i} f\Big)^2 = E f^{*2} - b^T G^+ b

    with the Gram matrix G = E[φ φᵀ] of the md tangent features φ_i = u_i σ(u_i·x) + (1 − u_i u_iᵀ) x σ'(u_i·x), which
    span the same functions as ∇f, and b = E[f* φ]. Inputs are N(0, I_d). For the link h_k all of them are of degree k,
    whose functions have C(d + k − 1, k) dimensions, so that the floor of random starts is near 1 − md/C(d + k − 1, k)
    of E f*². Nothing is sampled: G and b hold g, g' and g'' at overlaps of neurons and directions.

    Parameters
    ----------
    problem : Problem
        With the homogeneous student of a link without jumps and isotropic inputs; neurons and teacher must have at most
        4000 features m D, D = min(d, m + r) axes, r those of the teacher. Its start is what counts.

    Returns
    -------
    TangentFloor
        `share` of E f*², `loss`, `rank` and `features`, dimensionless.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> import dynamics
    >>> teacher = dynamics.Teacher([1.0])
    >>> problem = dynamics.Problem(activation="he3", teacher=teacher, width=20, dimension=10)
    >>> floor = tangent_floor(problem)
    >>> round(floor.share, 2), floor.rank
    (0.15, 200)
    """
    check_problem(problem, fields=())
    try:
        kernel_weights(problem.activation, 1.0, "ntk")
    except ValueError as error:
        refuse(f"Argument `problem` must have a link without jumps, but has {problem.activation.name}.", cause=error)
    weights, span = problem.reduced_weights(), problem.teacher.span
    m, axes = weights.shape
    require(
        m * axes <= MOST_FEATURES,
        f"Argument `problem` must have at most {MOST_FEATURES} tangent features, neurons times the axes that neurons "
        f"and teacher span, but has {m} × {axes}.",
    )
    units = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    rows = np.zeros((problem.teacher.num_directions, axes))
    rows[:, :span] = np.eye(span) if problem.teacher.directions is None else problem.teacher.directions
    link, a, C = problem.activation, problem.teacher.coefficients, units @ rows.T
    slope = link.kernel_derivative(C) * a
    along = slope @ rows + (link.kernel(C) @ a - np.sum(slope * C, axis=1))[:, None] * units
    values, vectors = np.linalg.eigh(feature_products(problem, units))
    kept = values > LEAST_EIGENVALUE * values[-1]
    seen = float(np.sum((vectors[:, kept].T @ along.ravel()) ** 2 / values[kept]))
    whole = teacher_term(problem)
    return TangentFloor(max(1.0 - seen / whole, 0.0), max(whole - seen, 0.0), int(kept.sum()), m * axes)


def feature_products(problem: Problem, units: Array) -> Array:
    r"""Return the Gram matrix of the tangent features of neurons of directions u_i, (m, D), as (m D, m D).

    .. math:: G_{ij} = g' 1 + (g - s g' + s^2 g'')\, u_i u_j^T + g'' (u_j u_i^T - s\, u_i u_i^T - s\, u_j u_j^T)

    with g and its derivatives at s = u_i·u_j.
    """
    link, s = problem.activation, np.clip(units @ units.T, -1.0, 1.0)
    g, first, second = (link.kernel_derivative(s, n) for n in range(3))
    size = units.size
    joint = np.einsum("ij,ia,jb->iajb", g - s * first + s**2 * second, units, units)
    joint += np.einsum("ij,ja,ib->iajb", second, units, units)
    joint -= np.einsum("ij,ia,ib->iajb", s * second, units, units)
    joint -= np.einsum("ij,ja,jb->iajb", s * second, units, units)
    diagonal = np.arange(units.shape[1])
    joint[:, diagonal, :, diagonal] += first
    return np.asarray(joint.reshape(size, size))
