r"""The learning rate at which the converged student loses stability on inputs of covariance Σ: linear, and exact there.

Beside w_p = √a_p θ_p, θ_p on axis p, the error is e = Σ ∇·δ and a step is δ ← δ − η Σ e ∇ with g ~ N(0, I) and

.. math:: \nabla_{pp} = 2 \sqrt{a_p}\, \sigma(g_p), \qquad \nabla_{pl} = \sqrt{a_p}\, \sigma'(g_p)\, g_l \quad
   (l \ne p),

of neuron p on axis l. Where c_1 = 0 and k ≥ 3 the mean of ∇∇ᵀ is diagonal, κ_pl/2 by the eigenvalues, and the squares
D_pl = E δ_pl² obey, in the time η · step, for means of B samples,

.. math:: D_{pl}' = -\kappa_{pl} D_{pl} + \eta \Big[\frac{1}{B} s_l^2 \sum_{qj} E[\nabla_{pl}^2 \nabla_{qj}^2] D_{qj}
   + \Big(1 - \frac1B\Big) \frac{\kappa_{pl}^2}{4} D_{pl}\Big],

a system with non-negative coefficients, which grows from η* = 1/ρ(κ⁻¹ [·]) on. This is exact for one learned direction
and for k ≥ 5; of several at k = 3 and 4 steps make some products of two coordinates out of squares, which are left out.
Where all axes are like those without a direction it is the condition of Feuer & Weinstein (1985) for the linear filter,
Σ_l x s_l/(2 (1 − x s_l)) < 1, and where all s_l are small beside tr Σ the limit of isotropic inputs with tr Σ for d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.theory.search_noise import means_of
from dynamics.theory.whitened_pairs import first_learned

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Number of squares up to which the matrix is formed.
MOST_DENSE = 400


def whitened_limit(problem: Problem, batch_size: int) -> float:
    """Return η* of a problem that has `inputs`, directions on axes and c_1 = 0; min(m, P) are learned."""
    axes, teacher = problem.input_axes(), problem.teacher
    if axes is None:
        msg = "Argument `problem` must have `inputs`, but has none."
        raise ValueError(msg)
    speed, learned = axes.eigenvalues[: teacher.span], first_learned(problem)
    beyond = axes.sizes - np.bincount(axes.kind[learned], minlength=axes.sizes.size)
    others = np.flatnonzero(beyond)
    squares = Squares(
        teacher.coefficients[learned],
        np.append(speed[learned], axes.eigenvalue[others]),
        np.append(np.ones(learned.size), beyond[others].astype(np.float64)),
        Means.of(problem.activation),
    )
    return 1.0 / largest_growth(squares, batch_size)


class Means(NamedTuple):
    """Means over z ~ N(0, 1) of products of o = 4σ², α = σ'² and β = z²; E β² = 3."""

    o: float
    alpha: float
    oo: float
    o_alpha: float
    o_beta: float
    alpha_alpha: float
    alpha_beta: float

    @classmethod
    def of(cls, link: HermiteExpansion) -> Means:
        """Return those of a link."""
        powers = ((2, 0, 0), (0, 2, 0), (4, 0, 0), (2, 2, 0), (2, 0, 2), (0, 4, 0), (0, 2, 2))
        return cls(*(np.array(means_of(link, powers)) * (4.0, 1.0, 16.0, 4.0, 4.0, 1.0, 1.0)))


class Squares(NamedTuple):
    """Squares D (L, L + classes) of L learned neurons: on the learned axes, and on one axis of every other class.

    `a` (L,) are coefficients, `s` and `counts` (L + classes,) eigenvalues and numbers of axes.
    """

    a: Array
    s: Array
    counts: Array
    means: Means

    def decay(self) -> Array:
        """Return κ, 8 a s g(1) on the own axis and 2 a s g'(1) on any other."""
        found: Array = 2.0 * self.means.alpha * np.outer(self.a, self.s)
        np.fill_diagonal(found, 2.0 * self.means.o * self.a * self.s[: self.a.size])
        return found

    def noise(self, D: Array) -> Array:
        """Return s_l² Σ E[∇_pl² ∇_qj²] D_qj, term by term of which of the axes p, l, q, j are the same."""
        o, v, oo, oa, ob, aa, ab = self.means
        L = self.a.size
        D = D * self.a[:, None]
        own, cross, away = np.diagonal(D), D[:, :L] - np.diag(np.diagonal(D)), D[:, L:]
        row, column, beyond = cross.sum(axis=1), cross.sum(axis=0), away @ self.counts[L:]
        # A source (q, j) counts as apart from the target, where it has the mean `apart`; what is more is added.
        apart = v * v * (row.sum() + beyond.sum()) + o * v * own.sum()
        of_p = (aa - v * v) * (row + beyond) + v * (ab - v) * column + (oa - o * v) * own
        of_l = v * (ab - v) * (row + beyond) + 2.0 * v * v * column + v * (ob - o) * own
        out = np.empty_like(D)
        out[:, L:] = apart + of_p[:, None] + 2.0 * (v * v * away.sum(axis=0) + (aa - v * v) * away)
        both = 2.0 * (aa - v * v) * cross + (ab * ab - 2.0 * v * ab + v * v) * cross.T
        out[:, :L] = apart + of_p[:, None] + of_l + both
        total = o * o * own.sum() + o * v * (row.sum() + beyond.sum())
        total = total + (oo - o * o) * own + (oa - o * v) * (row + beyond) + v * (ob - o) * column
        np.fill_diagonal(out, total)
        return self.a[:, None] * self.s**2 * out


def largest_growth(squares: Squares, batch_size: int) -> float:
    """Return the spectral radius of κ⁻¹ times what multiplies η."""
    from scipy.sparse.linalg import LinearOperator, eigs

    kappa = squares.decay()

    def product(flat: Array) -> Array:
        D = flat.reshape(kappa.shape)
        grown = squares.noise(D) / batch_size + (1.0 - 1.0 / batch_size) * 0.25 * kappa**2 * D
        found: Array = (grown / kappa).ravel()
        return found

    if kappa.size <= MOST_DENSE:
        matrix = np.array([product(row) for row in np.eye(kappa.size)]).T
        return float(np.abs(np.linalg.eigvals(matrix)).max())
    operator = LinearOperator((kappa.size, kappa.size), matvec=product, dtype=np.float64)
    (found,) = eigs(operator, k=1, which="LM", v0=np.ones(kappa.size), tol=1e-10, return_eigenvectors=False)
    return float(abs(found))
