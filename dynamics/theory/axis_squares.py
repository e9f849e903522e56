"""Mean squares of the deviations of neurons on separate axes under steps of SGD, for links with c_1 = 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dynamics.problem import Problem
from dynamics.theory.pairs import first_learned
from dynamics.theory.step_noise import means_of
from hermite import HermiteExpansion
from hermite.arrays import Array

#: Size up to which a matrix is formed.
MOST_DENSE = 400


def means_of_squares(link: HermiteExpansion) -> tuple[float, ...]:
    """Return seven means over z ~ N(0, 1) of squares of a link σ: E o, E α, E o², E oα, E oβ, E α² and E αβ.

    Here o = 4σ², α = σ'² and β = z²; the eighth such mean, E β², is 3.
    """
    powers = ((2, 0, 0), (0, 2, 0), (4, 0, 0), (2, 2, 0), (2, 0, 2), (0, 4, 0), (0, 2, 2))
    return tuple(np.array(means_of(link, powers)) * (4.0, 1.0, 16.0, 4.0, 4.0, 1.0, 1.0))


class Squares(NamedTuple):
    """Mean squares of deviations of L learned neurons from their directions, on the axes of the inputs.

    `a` (L,) are the coefficients of the directions, `s` (L + classes,) the eigenvalues of the input covariance on the
    learned axes and on one axis of every other class of equal eigenvalues, `counts` the numbers of axes that each
    stands for, and `means` those of `means_of_squares`. Deviations squared are matrices D (L, L + classes): neuron by
    axis.
    """

    a: Array
    s: Array
    counts: Array
    means: tuple[float, ...]

    @classmethod
    def of(cls, problem: Problem) -> Squares:
        """Return the squares of a problem whose directions lie on axes and whose link has c_1 = 0."""
        axes, learned = problem.input_axes(), first_learned(problem)
        a, means = problem.teacher.coefficients[learned], means_of_squares(problem.activation)
        if axes is None:
            beyond = problem.dimension - a.size
            s, counts = np.ones(a.size + (beyond > 0)), np.append(np.ones(a.size), [beyond] if beyond else [])
            return cls(a, s, counts, means)
        beyond_of = axes.sizes - np.bincount(axes.kind[learned], minlength=axes.sizes.size)
        unlearned = np.flatnonzero(beyond_of)
        s = np.append(axes.eigenvalues[learned], axes.eigenvalue[unlearned])
        return cls(a, s, np.append(np.ones(a.size), beyond_of[unlearned].astype(np.float64)), means)

    def decay(self) -> Array:
        """Return the rates κ (L, L + classes) at which the flow shrinks squared deviations of neurons on axes.

        They are 8 a s g(1) on the axis of the neuron itself, and 2 a s g'(1) on any other, with the coefficient a, the
        eigenvalue s and the kernel g of the link.
        """
        o, alpha = self.means[:2]
        kappa: Array = 2.0 * alpha * np.outer(self.a, self.s)
        np.fill_diagonal(kappa, 2.0 * o * self.a * self.s[: self.a.size])
        return kappa

    def noise(self, D: Array) -> Array:
        """Return the growth of the squared deviations D in a step per η², s_l² Σ_qj E[∇_pl² ∇_qj²] D_qj, in D's shape.

        ∇_pl is the gradient of neuron p on axis l, for one sample, and s_l the eigenvalue of the inputs there. Terms
        differ by which of the axes p, l, q, j are equal.
        """
        o, v, oo, oa, ob, aa, ab = self.means
        L = self.a.size
        D = D * self.a[:, None]
        diagonal, cross, away = np.diagonal(D), D[:, :L] - np.diag(np.diagonal(D)), D[:, L:]
        row, column, beyond = cross.sum(axis=1), cross.sum(axis=0), away @ self.counts[L:]
        # A source (q, j) counts as apart from the target, with the mean `apart`; the excess is added.
        apart = v * v * (row.sum() + beyond.sum()) + o * v * diagonal.sum()
        of_p = (aa - v * v) * (row + beyond) + v * (ab - v) * column + (oa - o * v) * diagonal
        of_l = v * (ab - v) * (row + beyond) + 2.0 * v * v * column + v * (ob - o) * diagonal
        out = np.empty_like(D)
        out[:, L:] = apart + of_p[:, None] + 2.0 * (v * v * away.sum(axis=0) + (aa - v * v) * away)
        both = 2.0 * (aa - v * v) * cross + (ab * ab - 2.0 * v * ab + v * v) * cross.T
        out[:, :L] = apart + of_p[:, None] + of_l + both
        total = o * o * diagonal.sum() + o * v * (row.sum() + beyond.sum())
        np.fill_diagonal(out, total + (oo - o * o) * diagonal + (oa - o * v) * (row + beyond) + v * (ob - o) * column)
        return self.a[:, None] * self.s**2 * out


def largest_growth(squares: Squares, batch_size: int, directions: int | None = None) -> float:
    """Return the spectral radius ρ(κ⁻¹ N): steps are stable in mean square up to the learning rate 1/ρ.

    κ are the rates of decay, and N is the noise of steps of SGD of `batch_size` samples, per squared learning rate;
    with K `directions` that of steps of zeroth order along K random directions.
    """
    kappa = squares.decay()

    def product(flat: Array) -> Array:
        """Return κ⁻¹ N applied to a flattened matrix of squared deviations, in a scaling with κ."""
        # Of κD, which stays of one size where D grows as 1/a.
        D = flat.reshape(kappa.shape) / kappa
        grown = squares.noise(D) / batch_size + (1.0 - 1.0 / batch_size) * 0.25 * kappa**2 * D
        if directions is not None:
            total = float(np.sum(grown / squares.s * squares.counts))
            grown = squares.s * total / directions + (1.0 + 1.0 / directions) * grown
        return np.asarray(grown.ravel())

    return spectral_radius(product, kappa.size)


def spectral_radius(product: Callable[[Array], Array], size: int) -> float:
    """Return the spectral radius of a linear map of vectors; entries of unlike sizes lose accuracy to rounding."""
    if size <= MOST_DENSE:
        return float(np.abs(np.linalg.eigvals(np.array([product(row) for row in np.eye(size)]).T)).max())

    from scipy.sparse.linalg import LinearOperator, eigs

    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    return float(abs(eigs(operator, 1, v0=np.ones(size), tol=1e-10, return_eigenvectors=False)[0]))
