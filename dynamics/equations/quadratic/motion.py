r"""The exact motion of a quadratic network, in jumps of any length.

With σ = h_2 and an orthonormal teacher the network is the matrix Q = WᵀW and the loss is |Q − A|_F², A = diag(a). The
columns of V = Wᵀ are kept in reduced form [M; R]: M (P, m) on the teacher's axes, R (at most m rows) on axes orthogonal
to them, where A is 0. Both motions below are right up to a rotation of the neurons, which changes neither Q nor the
span: nothing of a single neuron may be read off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, orth, solve_triangular

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array


@dataclass(frozen=True, slots=True)
class Span:
    r"""An orthonormal basis U of the span of the neurons, U(t) = basis of e^{2tA} span V(0).

    .. math:: A_j = (U U^T)_{jj} = e^{4 h a_j}\, U_j (U^T e^{4hA} U)^{-1} U_j^T \;\text{ a time } h \text{ later},

    the same under the flow of W and under that of orthonormal frames, U' = 2 (I − UUᵀ) A U, whatever the norms.
    """

    #: U, shape (D, rank), rows on the teacher's axes first; orthonormal but for rounding.
    columns: Array
    #: Eigenvalues of A on its rows, shape (D,).
    rates: Array

    def after(self, wait: float) -> Span:
        """Return the span a time later, at which no entry of e^{4hA} may be beyond float64."""
        grown = np.exp(2.0 * wait * self.rates)[:, None] * self.columns
        # The second time takes out what the growth, squared, has left of the first.
        return replace(self, columns=_orthonormal(_orthonormal(grown)))

    def carried(self, count: int) -> Array:
        """Return A_j of the first `count` axes."""
        shares: Array = np.sum(self.columns[:count] ** 2, axis=1)
        return shares

    def carried_after(self, axis: int, wait: float) -> float:
        """Return A_j of one axis a time later."""
        growth = np.exp(4.0 * wait * self.rates)
        row = self.columns[axis]
        factor = cho_factor(self.columns.T @ (growth[:, None] * self.columns), lower=True, check_finite=False)
        return float(growth[axis] * (row @ cho_solve(factor, row, check_finite=False)))

    def slopes(self, count: int) -> Array:
        """Return A_j' = 4 [a_j A_j − (UUᵀAUUᵀ)_jj] of the first `count` axes."""
        return _slopes(self.columns, self.columns.T @ (self.rates[:, None] * self.columns), self.rates, count)

    def velocity(self) -> Array:
        """Return U' = 2 (I − UUᵀ) A U."""
        pulled = self.rates[:, None] * self.columns
        motion: Array = 2.0 * (pulled - self.columns @ (self.columns.T @ pulled))
        return motion

    def fine_tuned_loss(self) -> float:
        """Return Σa² − |UᵀAU|², the least loss of a network Q = U S Uᵀ with any symmetric S."""
        U, a = self.columns, self.rates
        return float(max(np.sum(a**2) - np.sum((U.T @ (a[:, None] * U)) ** 2), 0.0))


@dataclass(frozen=True, slots=True)
class Weights:
    r"""The weights V = Wᵀ under the flow W' = 2W(A − Q), whose solution is that of a matrix Riccati equation.

    .. math:: V(h) = e^{2hA} V K^{-T}, \qquad K K^T = I + 4 V^T I_h V, \qquad I_h = \int_0^h e^{4sA} ds.
    """

    #: V, shape (D, m), rows on the teacher's axes first.
    columns: Array
    #: Eigenvalues of A on its rows, shape (D,).
    rates: Array

    def after(self, wait: float) -> Weights:
        """Return the weights a time later, at which no entry of e^{4hA} may be beyond float64."""
        grown = np.exp(2.0 * wait * self.rates)[:, None] * self.columns
        root = cholesky(self._shrinking(wait), lower=True, check_finite=False)
        return replace(self, columns=solve_triangular(root, grown.T, lower=True, check_finite=False).T)

    def carried(self, count: int) -> Array:
        """Return θ_jᵀQθ_j of the first `count` axes."""
        shares: Array = np.sum(self.columns[:count] ** 2, axis=1)
        return shares

    def carried_after(self, axis: int, wait: float) -> float:
        """Return θ_jᵀQθ_j of one axis a time later."""
        row = self.columns[axis]
        factor = cho_factor(self._shrinking(wait), lower=True, check_finite=False)
        return float(np.exp(4.0 * wait * self.rates[axis]) * (row @ cho_solve(factor, row, check_finite=False)))

    def slopes(self, count: int) -> Array:
        """Return Q_jj' = 4 [a_j Q_jj − (Q²)_jj] of the first `count` axes."""
        return _slopes(self.columns, self.columns.T @ self.columns, self.rates, count)

    def velocity(self) -> Array:
        """Return V' = 2 (A − VVᵀ) V."""
        V = self.columns
        motion: Array = 2.0 * (self.rates[:, None] * V - V @ (V.T @ V))
        return motion

    def loss(self) -> float:
        """Return |Q − A|_F² = |VᵀV|² − 2 Σ a_j |V_j|² + Σa², whose rounding errors are of 1e-15 Σa²."""
        V = self.columns
        squares = np.sum((V.T @ V) ** 2) - 2.0 * np.sum(self.rates * np.sum(V**2, axis=1)) + np.sum(self.rates**2)
        return float(max(squares, 0.0))

    def _shrinking(self, wait: float) -> Array:
        """Return I + 4 Vᵀ I_h V."""
        a = self.rates
        held = np.divide(np.expm1(4.0 * wait * a), 4.0 * a, out=np.full_like(a, wait), where=a > 0.0)
        product: Array = 4.0 * (self.columns.T @ (held[:, None] * self.columns))
        product[np.diag_indices_from(product)] += 1.0
        return product


def reduced_start(problem: Problem) -> Weights:
    """Return V(0) = [M; R] of a problem whose directions are the first axes, R upper triangular."""
    W, count = problem.reduced_weights(), problem.num_directions
    rest = np.linalg.qr(W[:, count:].T, mode="r")
    rates = np.concatenate([problem.teacher.coefficients, np.zeros(len(rest))])
    return Weights(np.concatenate([W[:, :count].T, rest]), rates)


def start_span(weights: Weights) -> Span:
    """Return the span of the neurons at the start, of as many dimensions as they have."""
    return Span(orth(weights.columns), weights.rates)


def _slopes(columns: Array, inner: Array, rates: Array, count: int) -> Array:
    """Return 4 (a_j |X_j|² − X_j S X_jᵀ) of the first rows X_j."""
    rows = columns[:count]
    slopes: Array = 4.0 * np.sum(rows * (rates[:count, None] * rows - rows @ inner), axis=1)
    return slopes


def _orthonormal(columns: Array) -> Array:
    """Return another basis of the same span, orthonormal to 1e-16 times the square of the condition of the columns.

    By the Cholesky factor of the Gram matrix: rows are then right relative to their own size, however small they are.
    """
    root = cholesky(columns.T @ columns, lower=True, check_finite=False)
    basis: Array = solve_triangular(root, columns.T, lower=True, check_finite=False).T
    return basis
