"""The learning rate at which population gradient descent loses stability at the converged student.

There the Hessian of ½ E(f − f*)² is E[∇f ∇fᵀ], because f = f*: a step multiplies a deviation by 1 − η λ, so that
descent is stable up to η = 2/λ_max.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import check_problem
from dynamics.problem.checks import checked_number
from dynamics.theory.whitened_pairs import first_learned

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


def checked_learning_rate(learning_rate: object, method: str) -> float | None:
    """Return a positive learning rate as a float; None is the flow, which "gradient-descent" has not.

    Examples
    --------
    >>> checked_learning_rate(0.1, "gradient-descent")
    0.1
    """
    if learning_rate is not None:
        return checked_number(learning_rate, "learning_rate", positive=True)
    if method == "gradient-descent":
        msg = "Argument `learning_rate` must be given for method='gradient-descent', but is None."
        raise ValueError(msg)
    return None


def descent_limit(problem: Problem) -> float:
    r"""Return the learning rate η_max up to which population gradient descent is stable at the converged student.

    .. math:: \eta_{\max} = \frac{2}{\lambda_{\max}}, \qquad \lambda_{\max} = a_1 \max(g'(1), 4 g(1))

    for orthonormal directions and k ≥ 3, c_0 = 0, where directions do not see each other; for one h_k pair it is
    2/(max(4, k) a_1). For any other link and teacher λ_max is the largest eigenvalue of the Hessian, found by Lanczos
    iteration.

    The min(m, P) largest coefficients count as learned, w_p = √a_p θ_p. With the kernel k(w, w') = n n' g(u·u') of two
    neurons the Hessian has blocks ∂_w ∂_w' k. Neurons that share a direction change no eigenvalue but zero: only their
    Σ n_i = a_p enters, so that the limit does not depend on the width. With `inputs` the Hessian in ŵ = Σ^½ w has
    Σ^½ on both sides: λ_max is the largest of 4 a_p s_p g(1) and a_p g'(1) max_{l≠p} s_l for directions on axes.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> descent_limit(Problem(activation="he4", teacher=Teacher([1.0, 0.5]), width=4, dimension=16))
    0.5
    """
    check_problem(problem, fields=("inputs",))
    link, a = problem.activation, problem.teacher.coefficients
    learned, span = first_learned(problem), problem.teacher.span
    axes, rows = problem.input_axes(), problem.teacher.directions
    # One axis stands for all those that no direction uses: that of the largest eigenvalue, 0 if there are none.
    if axes is None:
        s = np.append(np.ones(span), float(problem.dimension > span))
    else:
        s = np.append(axes.eigenvalues[:span], axes.eigenvalues[span:].max(initial=0.0))
    alone = problem.teacher.is_orthonormal and problem.information_exponent >= 3 and float(link.coefficients[0]) == 0.0
    if (alone or learned.size == 1) and (rows is None or axes is None):
        slope, value = float(link.kernel_derivative(1.0)), 4.0 * link.kernel_at_one
        own, others = np.ones(learned.size), np.ones(learned.size)
        if axes is not None:
            own, others = s[learned], np.array([np.delete(s, p).max() for p in learned])
        return 2.0 / float(np.max(a[learned] * np.maximum(value * own, slope * others)))
    directions = np.eye(span)[learned] if rows is None else rows[learned]
    return 2.0 / _largest_curvature(problem, np.pad(directions, ((0, 0), (0, 1))), a[learned], np.sqrt(s))


def _largest_curvature(problem: Problem, U: Array, a: Array, scale: Array) -> float:
    r"""Return the largest eigenvalue of Σ^½ Hessian Σ^½ at w_p = √a_p u_p, shape of `U` (P, D), `scale` √s_l (D,).

    With s = u_i·u_j and P_i = I − u_i u_iᵀ its blocks are √(a_i a_j) times

    .. math:: 4 g u_i u_j^T + 2 g' (u_i (P_j u_i)^T + P_i u_j u_j^T) + P_i (g' I + g'' u_j u_i^T) P_j .
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    link = problem.activation
    # Rounding may leave |s| just above 1, where the series is still smooth.
    s = U @ U.T
    g, slope, bend = link.kernel(s), link.kernel_derivative(s), link.kernel_derivative(s, n=2)
    root = np.sqrt(a)[:, None]

    def product(flat: Array) -> Array:
        V = root * scale * flat.reshape(U.shape)
        radial = np.sum(V * U, axis=1)
        V = V - radial[:, None] * U
        across = U @ V.T
        out = slope @ V + (bend * across + 2.0 * slope * radial) @ U
        out -= np.sum(out * U, axis=1)[:, None] * U
        out += (4.0 * g @ radial + 2.0 * np.sum(slope * across, axis=1))[:, None] * U
        image: Array = (root * scale * out).ravel()
        return image

    start = np.random.default_rng(0).standard_normal(U.size)
    operator = LinearOperator((U.size, U.size), matvec=product, dtype=np.float64)
    (largest,) = eigsh(operator, k=1, which="LA", v0=start, tol=1e-6, return_eigenvectors=False)
    return float(largest)


def warn_descent_limit(learning_rate: float, limit: float) -> None:
    """Warn if a learning rate is at or above the limit of stability."""
    if learning_rate >= limit:
        msg = (
            f"Gradient descent loses stability at the converged student from learning rate {limit:.4g} on, and "
            f"`learning_rate` is {learning_rate:g}: the run may oscillate or blow up instead of converging."
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=3)
