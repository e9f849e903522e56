"""Learning rates of stability at the converged student, and of a wanted loss (`docs/step_equations.md`)."""

from __future__ import annotations

import numpy as np

from dynamics.cores import one_blas_thread
from dynamics.problem import (
    LEARNED_SHARE,
    Problem,
    check_problem,
    checked_integer,
    checked_number,
    is_correlation,
    is_frame,
    is_homogeneous,
    is_network,
)
from dynamics.problem.checks import require, share_of_limit
from dynamics.problem.optimizers import SGD, Optimizer, ZerothOrder, checked_optimizer
from dynamics.problem.student import HOMOGENEOUS
from dynamics.theory.pairs import direction_speeds, first_learned
from dynamics.theory.quadratic import check_quadratic, rate_limits
from dynamics.theory.stability import fitted_limit, fitted_neurons, narrow_limit, network_limit
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse, shown, warn

#: Significant digits of a limit at the end of a flow, which is accurate to `stability.RTOL`.
KNOWN_DIGITS = 4


def checked_learning_rate(learning_rate: object, method: str) -> float | None:
    """Return a positive learning rate as a float; None, the flow, is refused for the method "gradient-descent"."""
    is_given = learning_rate is not None
    require(
        is_given or method != "gradient-descent", f"Argument `learning_rate` must be given for {method=}, but is None."
    )
    return checked_number(learning_rate, "learning_rate", positive=True) if is_given else None


def resolved_rate(
    problem: Problem,
    learning_rate: object,
    batch_size: int = 1,
    *,
    descends: bool = False,
    optimizer: Optimizer | str | None = None,
) -> float | None:
    """Return a positive learning rate as a float; text such as "0.1x" is a share of the limit of SGD, or of descent.

    An optimizer has a limit of its own. None stays None. TypeError or ValueError is raised for anything else, and where
    the limit is not known.
    """
    if learning_rate is None:
        return None
    if not isinstance(learning_rate, str):
        return checked_number(learning_rate, "learning_rate", positive=True)
    share, text = share_of_limit(learning_rate), shown(learning_rate)
    if share is None:
        refuse(
            "Argument `learning_rate` must be a positive number, or a share of the limit of stability such as "
            f"'0.1x', but is {text}."
        )
    chosen = checked_optimizer(optimizer)
    require(
        isinstance(chosen, (SGD, ZerothOrder)),
        f"Argument `learning_rate` must be a number for optimizer {chosen}, not a share such as {text}: its steps do "
        "not shrink with the gradient, so that there is no limit of stability.",
    )
    return share * (descent_limit(problem) if descends else stable_rate(problem, batch_size, chosen))


def stable_rate(problem: Problem, batch_size: int, optimizer: Optimizer | str | None = None) -> float:
    """Return the learning rate up to which steps of an optimizer with `batch_size` samples are stable.

    It is known for SGD and steps of zeroth order, of any problem; ValueError is raised where it is not.
    """
    amplification, directions = _limited(optimizer)
    if is_correlation(problem):
        from dynamics.theory.correlation import largest_rate  # needs a compiler, which the other limits do not

        if directions is not None:
            return largest_rate(problem, batch_size, directions=directions)
        return batch_size * largest_rate(problem) / amplification
    if is_frame(problem):
        return batch_size * learning_rate_limit(problem, optimizer=optimizer)
    return learning_rate_limit(problem, batch_size=batch_size, optimizer=optimizer)


def _limited(optimizer: Optimizer | str | None) -> tuple[float, int | None]:
    """Return a factor that divides the limit of plain SGD for an optimizer, and its number of random directions.

    The factor is that of momentum, 1 without; the number is None but for steps of zeroth order. ValueError is raised
    for optimizers without a limit.
    """
    chosen = checked_optimizer(optimizer)
    if isinstance(chosen, ZerothOrder):
        return 1.0, chosen.directions
    if not isinstance(chosen, SGD):
        refuse(
            f"Argument `optimizer` must be SGD or ZerothOrder for a learning-rate limit, but is {chosen}: its steps do "
            "not shrink with the gradient, so that there is no limit of stability."
        )
    return chosen.amplification, None


def descent_limit(problem: Problem) -> float:
    r"""Return the learning rate η_max up to which population gradient descent is stable at the converged student.

    .. math:: \eta_{\max} = \frac{2}{\lambda_{\max}}

    Here λ_max is the largest eigenvalue of the Hessian E[∇f ∇fᵀ] of the loss ½ E(f − f*)² in the weights, where the
    student f equals the teacher f*. Of m neurons and P directions θ_p, the min(m, P) directions of largest coefficients
    a_p count as learned, with neurons w_p = √a_p θ_p. Neurons that share a direction change only zero eigenvalues, so
    that the limit does not depend on the width beyond this.

    For orthonormal directions and a link with c_0 = 0 and information exponent k ≥ 3, directions do not interact, and

    .. math:: \lambda_{\max} = a_1 \max(g'(1), 4 g(1))

    with the largest coefficient a_1 and the kernel g(s) = Σ_j c_j² s^j of the link. With `inputs` of covariance Σ,
    whose eigenvalue along direction p is s_p, the Hessian in ŵ = Σ^½ w has Σ^½ on both sides, and λ_max is then the
    largest of 4 a_p s_p g(1) and a_p g'(1) max_{l≠p} s_l over p, for directions on the axes of Σ. In all other cases
    λ_max is computed by Lanczos iteration.
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
        along = np.ones(learned.size) if axes is None else s[learned]
        across = 1.0 if axes is None else np.array([np.delete(s, p).max() for p in learned])
        pull = np.maximum(4.0 * link.kernel_at_one * along, float(link.kernel_derivative(1.0)) * across)
        return 2.0 / float(np.max(a[learned] * pull))
    directions = np.eye(span)[learned] if rows is None else rows[learned]
    return 2.0 / _largest_curvature(problem, np.pad(directions, ((0, 0), (0, 1))), a[learned], np.sqrt(s))


def _largest_curvature(problem: Problem, U: Array, a: Array, scale: Array) -> float:
    r"""Return the largest eigenvalue of Σ^½ H Σ^½, H the Hessian of the loss at neurons w_p = √a_p u_p.

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
        """Return the product of the matrix with a flattened (P, D) vector."""
        V = root * scale * flat.reshape(U.shape)
        radial = np.sum(V * U, axis=1)
        V = V - radial[:, None] * U
        across = U @ V.T
        out = slope @ V + (bend * across + 2.0 * slope * radial) @ U
        out -= np.sum(out * U, axis=1)[:, None] * U
        out += (4.0 * g @ radial + 2.0 * np.sum(slope * across, axis=1))[:, None] * U
        return np.asarray((root * scale * out).ravel())

    start = np.random.default_rng(0).standard_normal(U.size)
    operator = LinearOperator((U.size, U.size), matvec=product, dtype=np.float64)
    return float(eigsh(operator, 1, which="LA", v0=start, tol=1e-6, return_eigenvectors=False)[0])


def warn_descent_limit(learning_rate: float, limit: float) -> None:
    """Issue a RuntimeWarning if a learning rate is at or above the limit of stability."""
    if learning_rate >= limit:
        warn(
            f"Gradient descent loses stability at the converged student from learning rate {limit:.4g} on, and "
            f"`learning_rate` is {learning_rate:g}: the run may oscillate or blow up instead of converging.",
            RuntimeWarning,
        )


def learning_rate_limit(problem: Problem, *, batch_size: int = 1, optimizer: Optimizer | str | None = None) -> float:
    r"""Return the learning rate at which a student that fits its teacher loses stability under SGD.

    It is the rate from which on second moments of deviations of the weights grow, by the map of
    `docs/step_equations.md`. For the homogeneous student of orthonormal directions and c_1 = 0 it tends, as d → ∞, to

    .. math:: \eta^* \to B\, \frac{c^*}{d}, \qquad c^* = \frac{2 g'(1)}{\lambda_{\max}(M\,\mathrm{diag}(a))}, \qquad
        M_{ii} = E\,\sigma'(z)^4, \quad M_{ij} = (E\,\sigma'(z)^2)^2 = g'(1)^2 .

    Parameters
    ----------
    problem : Problem
    batch_size : int
        B, over which the gradient is averaged.
    optimizer : dynamics.SGD or ZerothOrder, optional
        What a step does with the gradient, or its text; plain SGD by default. Momentum β and dampening δ multiply the
        limit by (1 − β)/(1 − δ), Nesterov's form and averages change nothing. The steps of `Adam`, `RMSprop` and
        `SignSGD` do not shrink with the gradient: they have no limit.

    Returns
    -------
    float
        η*, dimensionless, for steps w ← w − η ∇ ½(f − f*)². For ``student="stiefel"`` it is the largest `rate_limit` of
        `dynamics.solve_quadratic`. For a `Student`, for committees unless m = P and σ(tz) = t^q σ(z) or m = Σ a_p of
        whole a_p, where Σ a_p ≠ 1 for the spherical student, and for m < P of the homogeneous one where c_1 ≠ 0 or
        directions are oblique, it is the smaller one of two: at the state that the flow reaches, which takes seconds,
        and at the start; in four digits.

    Raises
    ------
    TypeError, ValueError
        With `inputs`, if directions are oblique, or if m < P and c_1 ≠ 0; or as `solve_network`. For an optimizer
        without a limit, and for ZerothOrder with ``student="stiefel"``.

    Notes
    -----
    The min(m, P) largest coefficients count as learned. For orthonormal directions it is exact up to six neurons that
    learn; beyond, for c_1 = 0, products of two deviations are left out (a share of 1e-3), and else correlations of
    neurons on the teacher's axes (1 % at 7 directions and d = 100). Means over samples for oblique directions and with
    more inputs are good to some per cent. It is loss of stability of the mean square, not a certainty for one run.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=1000)
    >>> round(learning_rate_limit(problem) * 1000, 6)
    0.005343
    """
    size = checked_integer(batch_size, "batch_size", minimum=1)
    amplification, directions = _limited(optimizer)
    return _limit(problem, size, directions) / amplification


def _limit(problem: Problem, size: int, directions: int | None) -> float:
    """Return the learning rate up to which SGD without momentum is stable, for batches of `size` samples.

    If `directions` is a number K rather than None, the steps are of zeroth order, along K random directions. ValueError
    is raised for problems whose limit is not known.
    """
    if is_frame(problem):
        check_quadratic(problem)
        require(size == 1, f"Argument `batch_size` must be 1 for the stiefel student, but is {size}.")
        require(
            directions is None,
            "Argument `optimizer` must be SGD for a learning-rate limit of the stiefel student, but is ZerothOrder.",
        )
        return float(rate_limits(problem).max())
    fields = ("inputs",) if is_homogeneous(problem) or is_network(problem) else ()
    check_problem(problem, problem.kind if isinstance(problem, Problem) else HOMOGENEOUS, fields=fields)
    fitted = fitted_neurons(problem)
    if is_homogeneous(problem) and problem.inputs is not None:
        require(
            fitted is not None and problem.teacher.is_orthonormal,
            "Argument `problem` must have an orthonormal teacher, and at least as many neurons as directions or a "
            "link with c_1 = 0, for a learning-rate limit with `inputs`, but has not.",
        )
    if fitted is not None:
        return fitted_limit(problem, fitted, size, directions)
    with one_blas_thread():
        if is_homogeneous(problem):
            return _in_known_digits(narrow_limit(problem, size, directions))
        return _in_known_digits(min(network_limit(problem, size, directions)))


def _in_known_digits(limit: float) -> float:
    """Return a limit at the end of a flow in four digits; later ones change between processes.

    A process that compiles functions calls other copies of them than one that loads them from disk. Copies round
    differently, which changes the end of the flow by about 1e-9.
    """
    return float(f"{limit:.{KNOWN_DIGITS}g}")


def quick_limit(problem: Problem, batch_size: int, optimizer: Optimizer | str | None = None) -> float | None:
    """Return `stable_rate`, the limit of the learning rate, where a formula gives it at once.

    None is returned where it needs a flow or is not known.
    """
    by_formula = is_frame(problem) or fitted_neurons(problem) is not None
    try:
        return stable_rate(problem, batch_size, optimizer) if by_formula else None
    except ValueError:
        return None


def tuned_rates(problem: Problem, targets: Integers, rate: float) -> Array:
    """Return the learning rate η = c a_p d^(−k/2) for each target direction p, shape of `targets`, c = `rate`.

    `targets` count directions from 1, in the order of the teacher; a_p is the coefficient, d the dimension and k the
    information exponent. With `inputs` it is c a s (s/tr Σ)^(k/2−1)/tr Σ², with the eigenvalue s of the covariance Σ
    along p: an overlap of square s/tr Σ grows at a rate a s C^(k−2), and noise takes from it at a rate η tr Σ².
    """
    axes, a, power = problem.input_axes(), problem.teacher.coefficients[targets - 1], 0.5 * problem.information_exponent
    if axes is None:
        return np.asarray(rate * a * float(problem.dimension) ** -power)
    speed = direction_speeds(problem)[targets - 1]
    growth = a * speed * (speed / axes.trace) ** (power - 1.0)
    return np.asarray(rate * growth / float(axes.eigenvalue**2 @ axes.sizes))


def target_losses(problem: Problem, targets: Integers) -> Array:
    r"""Return the loss at which p directions are learned, the last of them by half, for each target p.

    .. math:: L_{\bar p} = g(1) \Big( \tfrac14 a_{\bar p}^2 + \sum_{p > \bar p} a_p^2 \Big)
    """
    a = problem.teacher.coefficients
    tail = np.append(np.cumsum(a[::-1] ** 2)[::-1], 0.0)[targets] + ((1.0 - LEARNED_SHARE) * a[targets - 1]) ** 2
    return np.asarray(float(np.sum(problem.activation.coefficients**2)) * tail)
