"""What a finite step size does to the prediction of the flow, at leading order.

The learning rate at which the converged student becomes unstable, and the delay that the noise of the steps adds to the
escape of a neuron.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.transit.transit import logit_of_square
from dynamics.problem import check_problem, checked_integer, checked_number, is_correlation, is_frame
from dynamics.theory.quadratic import check_quadratic, rate_limits
from dynamics.theory.search_noise import SearchNoise, fourth_moment_of_derivative
from dynamics.theory.whitened_limit import whitened_limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array

_PANELS = 64
_CHUNK = 1024
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)

NOTE_CONSTANT = "the link has c_0 != 0, which the noise of the search ignores: the bias is NaN"
NOTE_INPUTS = "the inputs are not isotropic, as the noise of the search takes them to be: the bias is NaN"
NOTE_DIRECTIONS = "the teacher's directions are not orthonormal, which the noise of the search ignores: the bias is NaN"


@dataclass(frozen=True, slots=True, eq=False)
class EscapeBias:
    """Effect of the step size on the escape, per direction (P,), dimensionless."""

    #: T_η / T_0 − 1, relative delay of the mean time of emergence: the part below plus that of the fluctuations; inf if
    #: the noise traps the neuron, NaN if it never emerges anyway.
    bias: Array
    #: Part of `bias` that slows the mean trajectory.
    drift_bias: Array
    #: Part of `drift_bias` that the finite-step equation "finite-d" has too.
    step_bias: Array
    #: Standard deviation of the time of emergence over runs, divided by T_0.
    scatter: Array
    #: T_η, mean flow time t = η · step; inf if trapped or unmatched.
    emergence_time: Array
    #: η d ∫_0^{T_0} V dt, growth of ln n by noise during the search; the theory needs it well below 1.
    search_growth: Array
    #: Whether the drift vanishes on the way.
    trapped: NDArray[np.bool_]
    #: What the numbers do not model.
    notes: tuple[str, ...] = ()


def learning_rate_limit(problem: Problem, *, batch_size: int = 1) -> float:
    r"""Return the learning rate at which the converged student loses stability as d → ∞.

    .. math:: \eta^* = B\, \frac{c^*}{d}, \qquad c^* = \frac{2 g'(1)}{\lambda_{\max}(M\,\mathrm{diag}(a))}, \qquad
        M_{ii} = E\,\sigma'(z)^4, \quad M_{ij} = (E\,\sigma'(z)^2)^2 = g'(1)^2

    Parameters
    ----------
    problem : Problem
        Orthonormal teacher, link with c_1 = 0.
    batch_size : int
        Number B of samples per step, over which the gradient is averaged.

    Returns
    -------
    float
        η*, dimensionless, for steps w ← w − η ∇ ½(f − f*)². For ``student="stiefel"`` η*_1 = 2a_1/[d(n²m + Σa² + τ² +
        4n²)], n = σ0², above which noise keeps the neurons from every direction; those of the others are the variable
        `rate_limit` of `dynamics.solve_quadratic`. With `inputs` it is that of the mean square of steps of finite size,
        about B c*/tr Σ.

    Raises
    ------
    TypeError, ValueError
        If the teacher is not orthonormal or c_1 ≠ 0: the covariances of different neurons do not decouple then.

    Notes
    -----
    With w_i = √a_i θ_i + δ_i and δ_i orthogonal to the teacher, the error is e = Σ_j √a_j σ'(z_j) x·δ_j to first order,
    z_j = θ_j·x, and x·δ_j is independent of every z. One step with η = c/d moves δ_i by −η e √a_i σ'(z_i) x, whose
    mean is −η a_i g'(1) δ_i (other neurons enter with (E σ')² = c_1² = 0) and whose square is η² d e² a_i σ'(z_i)².
    So D_i = |δ_i|² obeys, in the time η · step,

        D_i' = −2 a_i g'(1) D_i + c a_i Σ_j a_j M_ij D_j,

    because E[σ'_j σ'_l σ'_i²] = 0 for j ≠ l. The matrix is congruent to −2 g'(1) I + c A^½ M A^½, negative definite up
    to c*. A^½ M A^½ = (E σ'⁴ − g'(1)²) A + g'(1)² √a √aᵀ has its largest eigenvalue from a secular equation, at O(P).
    The mean of B samples has a square B times smaller. The min(m, P) largest coefficients count as learned. Corrections
    are of relative order (m + P + B)/d: for small d this is an estimate. It is loss of stability of the mean square,
    not a certainty for one run.

    Examples
    --------
    >>> from dynamics.problem import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=1000)
    >>> round(learning_rate_limit(problem) * 1000, 6)
    0.005376
    """
    size = checked_integer(batch_size, "batch_size", minimum=1)
    if is_frame(problem):
        return _limit_of_frames(problem, size)
    check_problem(problem, fields=("inputs",))
    c = problem.activation.coefficients
    if not problem.teacher.is_orthonormal:
        msg = "Argument `problem` must have an orthonormal teacher for a learning-rate limit, but it has not."
        raise ValueError(msg)
    if c.size > 1 and c[1] != 0.0:
        msg = f"Argument `problem` must have a link with c_1 = 0 for a learning-rate limit, but c_1 is {c[1]:.3g}."
        raise ValueError(msg)
    if problem.inputs is not None:
        return whitened_limit(problem, size)
    a = np.sort(problem.teacher.coefficients)[::-1][: problem.width]
    slope = float(problem.activation.kernel_derivative(1.0))
    fourth = fourth_moment_of_derivative(problem.activation)
    spread = max(fourth - slope**2, 0.0)

    def secular(value: float) -> float:
        return slope**2 * float(np.sum(a / (value - spread * a))) - 1.0

    largest = fourth * float(a[0])
    high = spread * float(a[0]) + slope**2 * float(np.sum(a))
    # By bisection, since scipy.optimize takes a quarter of a second to load where nothing else needs it.
    while a.size > 1 and largest < (middle := 0.5 * (largest + high)) < high:
        largest, high = (middle, high) if secular(middle) > 0.0 else (largest, middle)
    return size * 2.0 * slope / largest / problem.dimension


def _limit_of_frames(problem: Problem, batch_size: int) -> float:
    """Return η*_1, above which noise keeps orthogonal neurons from every direction."""
    check_quadratic(problem)
    if batch_size != 1:
        msg = f"Argument `batch_size` must be 1 for the stiefel student, but is {batch_size}."
        raise ValueError(msg)
    return float(rate_limits(problem).max())


def escape_bias(problem: Problem, learning_rate: float, prediction: EmergencePrediction) -> EscapeBias:
    r"""Return the leading relative delay of emergence by the step size η; NaN, with a note, where no theory holds.

    .. math:: \frac{dC}{dt} = b(C) - \eta B(C), \quad b = a_p g'(C)(1 - C^2), \qquad
        B = E\Big[f^*(x)^2 \Big(\tfrac12 C\, \sigma'(z)^2 |x_\perp|^2 + 2 \sigma(z) \sigma'(z) (x_p - C z)\Big)\Big]

    and the fluctuations of C, of variance η D dt with D = E[f*² σ'(z)² (x_p − C z)²], add at first order

    .. math:: \frac{\eta}{2} \int \frac{D\, b'}{b^3}\, dC \;\text{ to the mean},\qquad
        \eta \int \frac{D}{b^3}\, dC \;\text{ to the variance};

    with z = u·x and x_⊥ the part of x orthogonal to u; B ≈ ½ d C V, V = E[f*² σ'(z)²], as d → ∞.

    One step moves w by −η e ∇, ∇ = |w| [(2σ − zσ') u + σ' x] and e = −f* (+ label noise) while f ≈ 0. To
    second order in η the direction changes by Δ_⊥ − Δ_∥ Δ_⊥ − ½ |Δ_⊥|² u, Δ_∥ = −2 η e σ and Δ_⊥ = −η e σ' x_⊥: the
    mean of the first term is the flow, that of the others −η² B.

    The own direction enters through E[F(x_p) G(z)] = Σ_j F_j G_j C^j in Hermite coefficients; the others are taken as
    independent of z, C_iq ≈ 0. Not modelled: higher orders in η, and the student's own output once it has grown. The
    mean time of exit m(C) obeys (b − η B) m' + ½ η D m'' = −1, solved in powers of η with the drift part resummed.
    O(500) evaluations per direction.
    """
    checked_number(learning_rate, "learning_rate", positive=True)
    if is_correlation(problem):
        from dynamics.theory.correlation import correlation_bias

        return correlation_bias(problem, learning_rate, float(prediction.predicted_emergence_time[0]))
    a = problem.teacher.coefficients
    notes: list[str] = []
    if problem.activation.coefficients[0] != 0.0:
        notes.append(NOTE_CONSTANT)
    if not problem.teacher.is_orthonormal:
        notes.append(NOTE_DIRECTIONS)
    if problem.inputs is not None:
        notes.append(NOTE_INPUTS)
    if notes:
        unknown = np.full(a.size, np.nan)
        never = np.zeros(a.size, dtype=bool)
        return EscapeBias(unknown, unknown, unknown, unknown, unknown, unknown, never, tuple(notes))
    noise = SearchNoise.of(problem)
    parts = np.full((5, a.size), np.nan)
    emerging = np.flatnonzero(np.isfinite(prediction.predicted_emergence_time))
    for begin in range(0, emerging.size, _CHUNK):
        part = emerging[begin : begin + _CHUNK]
        parts[:, part] = pair_delays(problem, noise, learning_rate, a[part], prediction.matched_overlap[part])
    drift, stepped, fluctuation, scatter, growth = parts
    bias = drift + fluctuation
    start = prediction.predicted_emergence_time
    waits = np.isfinite(start) & (start > 0.0)
    time = start.copy()
    time[waits] = start[waits] * (1.0 + bias[waits])
    return EscapeBias(bias, drift, stepped, scatter, time, growth, np.isinf(drift))


def pair_delays(
    problem: Problem, noise: SearchNoise, learning_rate: float, a: Array, overlap: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return parts of T_η / T_0 − 1, the scatter and η d ∫ V dt, by quadrature in ξ = logit(C²).

    The parts are that of the drift, what of it the finite-step equation has, and that of the fluctuations. All have the
    shape (pairs,) of the coefficients and the overlaps at the start.
    """
    xi = np.minimum(logit_of_square(overlap), 0.0)
    edges = np.linspace(0.0, 1.0, _PANELS + 1)
    points = (edges[:-1, None] + (edges[1] * 0.5) * (_NODES + 1.0)).ravel()
    weights = np.tile(0.5 * edges[1] * _WEIGHTS, _PANELS)
    # Points crowd at the start, where the integrand is largest and a zero of the drift is nearest.
    grid = xi[:, None] * (1.0 - points**2)
    far = np.exp(-np.logaddexp(0.0, grid))
    C = np.sign(overlap)[:, None] * np.exp(-0.5 * np.logaddexp(0.0, -grid))
    slope = problem.activation.kernel_derivative(C)
    flow = a[:, None] * slope * far
    turn = a[:, None] * (problem.activation.kernel_derivative(C, n=2) * far - 2.0 * C * slope)
    V, B, D = noise(C, a[:, None])
    # dt = dC / b, and dC = C (1 − C²) dξ / 2.
    dt = -xi[:, None] * 2.0 * points * weights * 0.5 * C * far / flow
    time = np.sum(dt, axis=1)
    time = np.where(time > 0.0, time, 1.0)

    def slowed(push: Array) -> Array:
        h = learning_rate * push / flow
        delay = np.sum(dt * h / np.where(h < 1.0, 1.0 - h, 1.0), axis=1) / time
        return np.where((h >= 1.0).any(axis=1), np.inf, delay)

    fluctuation = 0.5 * learning_rate * np.sum(dt * D * turn / flow**2, axis=1) / time
    scatter = np.sqrt(learning_rate * np.sum(dt * D / flow**2, axis=1)) / time
    growth = learning_rate * problem.dimension * np.sum(dt * V, axis=1)
    return slowed(B), slowed(B - noise.unseen(C, a[:, None])), fluctuation, scatter, growth
