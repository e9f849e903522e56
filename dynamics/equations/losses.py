r"""Losses and learned masses of given overlaps, in numpy: for records of SGD, which need no compiled functions.

.. math:: E(f - f^*)^2 = E f^{*2} - 2 \sum_{ip} n_i a_p g(C_{ip}) + \sum_{ij} n_i n_j g(G_{ij})

of the 2-homogeneous student; of a spherical network, all n_i = 1/m. Dimensionless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dynamics.equations.network.families import hermite_coefficients
from dynamics.problem.emergence import LEARNED_SHARE, LOWEST_DEGREE, NEGLIGIBLE, LearnedPart
from hermite.polynomials import padded, trimmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike

    from dynamics.equations.network.families import NetworkTeacher
    from dynamics.problem import Problem
    from dynamics.problem.teacher import Polynomial
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Share of its terms to which rounding of a mean square is cut off.
ROUNDING = 1e-11
#: Numbers of an overlap matrix of which the kernel is computed at once.
BLOCK = 1 << 16
#: Numbers of the Gram matrix treated at a time by numpy.
PAIRS = 1 << 20


def link_powers(problem: Problem) -> tuple[Array, Array]:
    """Return the Hermite coefficients of student and teacher, both of the length of the longer one without zeros."""
    links = [problem.activation.coefficients, problem.teacher_link.coefficients]
    count = max(len(trimmed(c)) for c in links)
    return padded(links[0], count), padded(links[1], count)


def teacher_term(problem: Problem) -> float:
    """Return E f*² = Σ_pq a_p a_q g(T_pq), the loss of f = 0, without ever forming T for an orthonormal teacher."""
    a, link = problem.teacher.coefficients, problem.teacher_link
    if problem.teacher.is_orthonormal:
        squares = float(np.sum(a**2))
        return link.kernel_at_one * squares + float(link.coefficients[0]) ** 2 * (float(a.sum()) ** 2 - squares)
    return float(a @ link.kernel(problem.teacher.gram()) @ a)


def population_loss(
    link: HermiteExpansion | DegreePart, constant: float, a: Array, C: Array, G: Array, n: Array
) -> Any:
    """Return `constant` − 2 Σ_ip n_i a_p g(C_ip) + Σ_ij n_i n_j g(G_ij), of shape (…).

    g is the kernel of `link`, a (P,) are coefficients of directions, C (…, m, P) and G (…, m, m) overlaps with
    directions and among neurons, n (…, m) squared norms.
    """
    student_square = np.sum(weighed_kernel(n, link, G) * n, axis=-1)
    return without_rounding(
        constant - 2.0 * np.sum(weighed_kernel(n, link, C) * a, axis=-1) + student_square, constant + student_square
    )


def without_rounding(square: Any, scale: Any) -> Any:
    """Return a mean square, a difference of terms of size `scale`, with 0 where rounding has made it negative.

    It stays below 0 by more for overlaps that no vectors have.
    """
    return np.where((square < 0.0) & (square >= -ROUNDING * np.abs(scale)), 0.0, square)[()]


def weighed_kernel(n: Array, link: HermiteExpansion | LearnedPart | DegreePart, overlaps: Array) -> Array:
    """Return Σ_i n_i g(M_ip), shape (…, P), of overlaps M (…, m, P) and squared norms n (…, m), g the link's kernel."""
    m, columns = overlaps.shape[-2:]
    sums, size = np.zeros((*overlaps.shape[:-2], columns)), max(BLOCK // columns, 1)
    for rows in (slice(begin, begin + size) for begin in range(0, m, size)):
        sums += np.matmul(n[..., None, rows], link.kernel(overlaps[..., rows, :]))[..., 0, :]
    return sums


def learned_mass(link: HermiteExpansion, C: Array, n: Array) -> Array:
    r"""Return the mass that neurons carry of each direction p, which is learned when that reaches a_p/2.

    .. math:: \sum_i \frac{n_i\, g_3(C_{ip})}{g_3(1)}, \qquad g_3(s) = \sum_{j \ge 3} c_j^2 s^j

    of overlaps C (m, P) and squared norms n (m,), all dimensionless, shape (P,); NaN where the link has no part of
    degree 3 or more.
    """
    return LearnedPart.of(link).mass(C, n)


def largest_overlaps(problem: Problem, C: Array) -> Array:
    """Return max_i |C_ip| of overlaps (…, m, P), of those above 0 alone where the sign matters, shape (…, P)."""
    opposite = 0.0 if problem.information_exponent % 2 else -C.min(axis=-2)
    return np.asarray(np.maximum(C.max(axis=-2), opposite))


def events_of_directions(
    part: LearnedPart, a: Array, C: Array, n: Array, *, sign_matters: bool, level: float
) -> tuple[Array, Array]:
    """Return max_i C_ip² − `level`, and learned mass − `LEARNED_SHARE` a_p, of each direction p, (P,) each.

    C (m, P) are overlaps, of which those below 0 do not count if `sign_matters`; n (m,) are squared norms.
    """
    size = np.maximum(C, 0.0) if sign_matters else C
    return np.max(size**2, axis=0) - level, part.mass(C, n) - LEARNED_SHARE * a


def squared_error(problem: Problem, vectors: Array, overlaps: Array) -> float:
    """Return E(f − f*)² of neurons w = `vectors` (m, D) of weight 1/m with `overlaps` w·θ (m, P)."""
    student_square = mean_of_pairs(vectors, problem.activation.kernel)
    student, teacher = link_powers(problem)
    attraction = np.polynomial.polynomial.polyval(overlaps, student * teacher).mean(axis=0)
    constant = teacher_term(problem)
    return float(
        without_rounding(
            student_square - 2.0 * attraction @ problem.teacher.coefficients + constant, student_square + constant
        )
    )


def mean_of_pairs(vectors: Array, kernel: Callable[[Array], Array], others: Array | None = None) -> float:
    """Return (1/mn) Σ_ij g(w_i·v_j) for w (m, D) and v (n, D), by default w, in strips that take the memory of w."""
    second = vectors if others is None else others
    strip, total = max(PAIRS // len(second), 1), 0.0
    for first in range(0, len(vectors), strip):
        total += float(kernel(vectors[first : first + strip] @ second.T).sum())
    return total / (len(vectors) * len(second))


# The loss by Hermite degree. Functions of different degree are orthogonal under x ~ N(0, I), so that E(f − f*)² is the
# sum of E(f_j − f*_j)² for j = 0, 1, 2 and a rest. With A_ij the coefficient of h_j(û_i·x) in what neuron i adds to f,
# and B_pj that of h_j(θ_p·x) in unit p of f*,
#
# .. math:: E\,(f_j - f^*_j)^2 = \sum_{ik} A_{ij} A_{kj} (\hat u_i\cdot\hat u_k)^j
#    - 2 \sum_{ip} A_{ij} B_{pj} (\hat u_i\cdot\theta_p)^j + \sum_{pq} B_{pj} B_{qj} (\theta_p\cdot\theta_q)^j.
#
# Of f = Σ_i n_i σ(u_i·x) and f* = Σ_p a_p σ(θ_p·x) they are n_i c_j and a_p c_j; of a network, whose neurons have
# lengths ρ_i and biases b_i, A_ij = s v_i E σ(ρ_i z + b_i) h_j(z), and B_pj = a_p E σ_p(z + β_p) h_j(z). Of a
# polynomial teacher the last two sums are those of f_α f*_α and f*_α² over its components of degree j.

#: Values of the coordinate `degree`.
DEGREES = ("0", "1", "2", "rest")


class DegreePart(NamedTuple):
    """The part of one degree j of a link, c_j h_j."""

    degree: int
    #: c_j².
    square: float

    def kernel(self, s: Array) -> Array:
        """Return c_j² s^j, shape of `s`."""
        return np.asarray(self.square * s**self.degree)


def link_parts(problem: Problem) -> list[DegreePart]:
    """Return the parts of degree 0, 1 and 2 of the link of a problem."""
    squares = padded(problem.activation.coefficients, LOWEST_DEGREE) ** 2
    return [DegreePart(degree, square) for degree, square in enumerate(squares.tolist())]


def teacher_parts(problem: Problem, whole: float) -> Array | None:
    """Return E f_j*² in the order of `DEGREES`, of sum `whole`; None if one part is the whole, or with `inputs`."""
    if problem.inputs is not None:
        return None
    a, teacher = problem.teacher.coefficients, problem.teacher
    if teacher.is_orthonormal:
        sums = [float(a.sum()) ** 2, *[float(a @ a)] * 2]
    else:
        sums = [float(a @ teacher.gram() ** degree @ a) for degree in range(LOWEST_DEGREE)]
    return told_by_degree([part.square * total for part, total in zip(link_parts(problem), sums, strict=True)], whole)


def told_by_degree(parts: ArrayLike, whole: float) -> Array | None:
    """Return the parts of E f*² of degree 0, 1, 2 and the rest, (4,); None if one of them is all of it."""
    shares = by_degree(parts, whole)
    return None if shares.max() >= (1.0 - NEGLIGIBLE) * whole else shares


def by_degree(parts: ArrayLike, whole: ArrayLike) -> Array:
    """Return the parts of degree 0, 1 and 2 and the rest of `whole` (…), shape (…, 4), each at least 0.

    `parts` (3, …) are those of degree 0, 1 and 2.
    """
    lowest = np.asarray(parts)
    remainder = whole - lowest.sum(axis=0)
    return np.asarray(np.maximum(np.moveaxis(np.concatenate([lowest, remainder[None]]), 0, -1), 0.0))


class NetworkDegrees:
    """The loss of a network by degree; `teacher` is E f_j*², (4,), None where f* has one of these parts alone."""

    def __init__(self, problem: Problem, teacher: NetworkTeacher) -> None:
        """Prepare the parts by degree of a problem's link and of its teacher."""
        self._link, self._theta = problem.activation, teacher.theta
        if problem.teacher.is_polynomial:
            orders = np.array([component.degree for component in problem.teacher.components])
            mean = cast("Polynomial", problem.teacher.target).mean
            #: Per degree the constant of f*, and its components, 0 where they are of another degree.
            self._mean = np.array([mean, 0.0, 0.0])
            self._values = np.stack([np.where(orders == degree, teacher.components, 0.0) for degree in range(3)])
            self._squares = self._mean**2 + np.sum(self._values**2, axis=1)
        else:
            units = problem.teacher.units(problem.teacher_link)
            coefficients = [hermite_coefficients(unit.link, np.ones(1), np.array([unit.bias])) for unit in units]
            self._units = (np.concatenate(coefficients) * np.array([[unit.coefficient] for unit in units])).T
            gram = self._theta @ self._theta.T
            self._squares = np.array([B @ gram**degree @ B for degree, B in enumerate(self._units)])
        self.teacher = told_by_degree(self._squares, teacher.square)

    def __call__(
        self, weights: Array, bias: Array, overlaps: tuple[Array, Array, Array], record: Mapping[str, Array]
    ) -> Array:
        """Return E of the squares of the parts of f − f*, (4,), for s v_i, b_i, (C (m, r), G, n), and a record.

        It has the loss and, of a polynomial teacher, the components f_α.
        """
        C, G, n = overlaps
        A = weights * hermite_coefficients(self._link, np.sqrt(n), bias).T
        student_squares = np.array([a @ G**degree @ a for degree, a in enumerate(A)])
        if "component" in record:
            products = self._mean * A.sum(axis=1) + self._values @ record["component"]
        else:
            teacher_overlaps = C @ self._theta.T
            products = np.array(
                [a @ teacher_overlaps**j @ b for j, (a, b) in enumerate(zip(A, self._units, strict=True))]
            )
        return by_degree(student_squares - 2.0 * products + self._squares, record["loss"])
