"""The exact motion of a quadratic network, in jumps of any length.

With σ = h_2 and an orthonormal teacher the network is the matrix Q = WᵀW and the loss is |Q − A|_F², A = diag(a). The
columns of V = Wᵀ are kept in reduced form [M; R]: M (P, m) on the teacher's axes, R (at most m rows) on axes orthogonal
to them, where A is 0. Both motions below are right up to a rotation of the neurons, which changes neither Q nor the
span: nothing of a single neuron may be read off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, orth, solve_triangular
from scipy.optimize import brentq, minimize_scalar

from dynamics.problem import is_frame
from dynamics.problem.checks import require
from dynamics.threads import give_way, whether_given_up

if TYPE_CHECKING:
    from typing import Self

    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Largest 4 h a_1 of one jump: its Gram matrices then have condition numbers of at most e^12, 1.6e5.
LARGEST_GROWTH = 12.0
#: The same of the fastest direction that is not aligned yet, whose alignment is below this.
LARGEST_MOTION, ALIGNED = 2.0, 0.999
#: More jumps than anyone would wait for.
MOST_JUMPS = 10**6
#: Accuracy of the times at which directions are reached, relative to a jump.
TIME_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Motion:
    r"""Columns X that move, and when each direction first reached each of its levels; NaN if not yet.

    .. math:: X(h) = e^{2hA} X K^{-T}, \qquad K K^T = \mathrm{gram}(h), \qquad
       (X X^T)_{jj} = e^{4 h a_j}\, X_j\, \mathrm{gram}(h)^{-1} X_j^T \;\text{ a time } h \text{ later}.
    """

    #: X, shape (D, rank), rows on the teacher's axes first.
    columns: Array
    #: Eigenvalues of A on its rows, shape (D,).
    rates: Array
    #: Levels of the P directions, one row for each kind, and the times at which they were reached.
    levels: Array
    reached: Array

    @classmethod
    def of(cls, columns: Array, rates: Array, *levels: Array) -> Self:
        """Return the motion that starts at `columns` (D, rank), with eigenvalues `rates` (D,) of A = diag(a, 0).

        Each of `levels` (P,) is one row of levels that (XXᵀ)_jj is to reach.
        """
        start = np.sum(columns[: levels[0].size] ** 2, axis=1)
        return cls(columns, rates, np.array(levels), np.where(start >= levels, 0.0, np.nan))

    def gram(self, wait: float) -> Array:
        """Return K Kᵀ of a jump over a time h = `wait`, shape (rank, rank)."""
        raise NotImplementedError

    def inner(self) -> Array:
        """Return S (rank, rank) of the velocity X' = 2 (A X − X S): XᵀAX of a span, XᵀX of weights."""
        raise NotImplementedError

    def grown(self, wait: float) -> Array:
        """Return e^{2hA} X (D, rank), the columns X after a time h = `wait` without the normalisation."""
        return np.asarray(np.exp(2.0 * wait * self.rates)[:, None] * self.columns)

    def after(self, wait: float) -> Self:
        """Return the motion after a time h = `wait`; every entry of e^{4hA} must be within float64."""
        root = cholesky(self.gram(wait), lower=True, check_finite=False)
        columns = solve_triangular(root, self.grown(wait).T, lower=True, check_finite=False)
        return replace(self, columns=columns.T)

    def carried(self) -> Array:
        """Return (XXᵀ)_jj of all axes j, shape (D,)."""
        return np.asarray(np.sum(self.columns**2, axis=1))

    def velocity(self) -> Array:
        """Return X', the derivative of the columns in time, shape (D, rank)."""
        return np.asarray(2.0 * (self.rates[:, None] * self.columns - self.columns @ self.inner()))

    def slopes(self) -> Array:
        """Return the derivatives of (XXᵀ)_jj in time, shape (D,)."""
        return np.asarray(2.0 * np.sum(self.columns * self.velocity(), axis=1))

    def past(self, time: float, wait: float) -> Self:
        """Return the motion after a jump from `time` to `time` + `wait`, with the times at which it reached levels."""
        moved_motion, given_up = self.after(wait), whether_given_up()
        reached, P = self.reached.copy(), self.levels.shape[1]
        is_waiting, is_reached = np.isnan(reached), moved_motion.carried()[:P] >= self.levels
        # Nothing grows faster than e^{4 a_j t}; what peaks within a jump rises at its start, falls at its end.
        largest = (self.carried() * np.exp(4.0 * wait * self.rates))[:P]
        may_peak = is_waiting & ~is_reached & (largest >= self.levels)
        if may_peak.any():
            may_peak &= (self.slopes()[:P] > 0.0) & (moved_motion.slopes()[:P] < 0.0)
        for level, axis in np.argwhere((is_waiting & is_reached) | may_peak).tolist():
            give_way(given_up)
            reached[level, axis] = time + self._wait(axis, float(self.levels[level, axis]), wait)
        return replace(moved_motion, reached=reached)

    def _wait(self, axis: int, level: float, longest: float) -> float:
        """Return the time until (XXᵀ)_jj of axis j = `axis` reaches a level, NaN if that is beyond `longest`."""
        row, end = self.columns[axis], longest

        def above(wait: float) -> float:
            """Return ln of (XXᵀ)_jj over the level after a time `wait`; it is above 0 where the level is passed."""
            factor = cho_factor(self.gram(wait), lower=True, check_finite=False)
            carried = np.exp(4.0 * wait * self.rates[axis]) * (row @ cho_solve(factor, row, check_finite=False))
            return float(np.log(carried / level))

        if above(end) <= 0.0:
            top = minimize_scalar(lambda wait: -above(wait), bounds=(0.0, longest), method="bounded")
            if top.fun > 0.0:
                return np.nan
            end = float(top.x)
        return float(brentq(above, 0.0, end, xtol=TIME_TOLERANCE * longest, rtol=1e-13))


class Span(Motion):
    """An orthonormal basis U (D, rank) of the span of the neurons; it is a basis of e^{2tA} span V(0).

    A is diag(a, 0) and V(0) the weights at the start. (UUᵀ)_jj is the alignment A_j of direction j, from 0 to 1.

    It is the same under the flow of W and under that of orthonormal frames, U' = 2 (I − UUᵀ) A U, whatever the norms.
    """

    def gram(self, wait: float) -> Array:
        """Return Uᵀ e^{4hA} U, shape (rank, rank), with h = `wait`."""
        grown = self.grown(wait)
        return grown.T @ grown

    def inner(self) -> Array:
        """Return UᵀAU, shape (rank, rank)."""
        return self.columns.T @ (self.rates[:, None] * self.columns)

    def after(self, wait: float) -> Self:
        """Return the span a time later; orthonormal but for rounding."""
        # The second call removes the rounding of the first, which the squared growth enlarges.
        return Motion.after(Motion.after(self, wait), 0.0)

    def fine_tuned_loss(self) -> float:
        """Return Σa² − |UᵀAU|², the least loss of a network Q = U S Uᵀ over all symmetric S."""
        return float(max(np.sum(self.rates**2) - np.sum(self.inner() ** 2), 0.0))


class Weights(Motion):
    r"""The weights V = Wᵀ under the flow W' = 2W(A − Q), whose solution is that of a matrix Riccati equation.

    .. math:: \mathrm{gram}(h) = I + 4 V^T I_h V, \qquad I_h = \int_0^h e^{4sA} ds.
    """

    def gram(self, wait: float) -> Array:
        """Return I + 4 Vᵀ I_h V, shape (m, m), with h = `wait`; the class has I_h."""
        a = self.rates
        held = np.divide(np.expm1(4.0 * wait * a), 4.0 * a, out=np.full_like(a, wait), where=a > 0.0)
        product: Array = 4.0 * (self.columns.T @ (held[:, None] * self.columns))
        product[np.diag_indices_from(product)] += 1.0
        return product

    def inner(self) -> Array:
        """Return VᵀV, shape (m, m)."""
        return self.columns.T @ self.columns

    def loss(self) -> float:
        """Return |Q − A|_F² = |VᵀV|² − 2 Σ a_j |V_j|² + Σa², with rounding errors of 1e-15 Σa²."""
        a = self.rates
        return float(max(np.sum(self.inner() ** 2) - 2.0 * np.sum(a * self.carried()) + np.sum(a**2), 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How far a quadratic network has come: the span of its neurons and, unless they are a frame, its weights."""

    #: Of the teacher, shape (P,).
    coefficients: Array
    #: Squared length n of the neurons of a frame, NaN for a network whose neurons are free.
    square: float
    time: float
    #: The span, with its times of alignment, of a frame those of learning too; then the weights, unless it is a frame,
    #: with their times of learning.
    motions: tuple[Motion, ...]

    @classmethod
    def of(cls, problem: Problem) -> Course:
        """Return the course of a problem's network at time 0."""
        W, a = problem.reduced_weights(), problem.teacher.coefficients
        triangular = np.linalg.qr(W[:, a.size :].T, mode="r")
        V, rates = np.concatenate([W[:, : a.size].T, triangular]), np.concatenate([a, np.zeros(len(triangular))])
        level, n = (
            np.full(a.size, problem.emergence_level),
            float(np.sum(V[:, 0] ** 2)) if is_frame(problem) else np.nan,
        )
        if is_frame(problem):
            motions: tuple[Motion, ...] = (Span.of(orth(V), rates, level, a / (2.0 * n)),)
        else:
            motions = (Span.of(orth(V), rates, level), Weights.of(V, rates, a / 2.0))
        return cls(coefficients=a, square=n, time=0.0, motions=motions)

    @property
    def span(self) -> Span:
        """The span of the neurons."""
        return cast("Span", self.motions[0])

    @property
    def alignment(self) -> Array:
        """Alignment A_j = (UUᵀ)_jj of each direction j with the span of the neurons, from 0 to 1, shape (P,)."""
        return self.span.carried()[: self.coefficients.size]

    @property
    def reached(self) -> Array:
        """When directions were aligned and learned, shape (2, P); NaN if not yet."""
        return np.concatenate([motion.reached for motion in self.motions])

    def towards(self, end: float) -> Course:
        """Return the network after the next of equal jumps to a later time.

        Their Gram matrices must keep to float64, and directions that still move must be seen to come and go.
        """
        a, remaining = self.coefficients, end - self.time
        moving = float(a[self.alignment < ALIGNED].max(initial=0.0))
        jump_rate = max(LARGEST_MOTION * float(a.max()) / LARGEST_GROWTH, moving)
        wait = remaining / max(math.ceil(4.0 * jump_rate * remaining / LARGEST_MOTION), 1)
        motions = tuple(motion.past(self.time, wait) for motion in self.motions)
        return replace(self, time=end if wait == remaining else self.time + wait, motions=motions)

    def record(self) -> dict[str, Any]:
        """Return a dict of the loss, the fine-tuned loss and the alignments A_j (P,) at the present time."""
        a, alignment, n, last = self.coefficients, self.alignment, self.square, self.motions[-1]
        if isinstance(last, Weights):
            loss = last.loss()
        else:
            loss = max(n**2 * last.columns.shape[1] - 2.0 * n * float(alignment @ a) + float(np.sum(a**2)), 0.0)
        return {"loss": loss, "fine_tuned_loss": self.span.fine_tuned_loss(), "alignment": alignment}

    def numbers(self) -> Array:
        """Return all that moves as one array: U, and V = Wᵀ unless the neurons are a frame."""
        return np.concatenate([motion.columns.ravel() for motion in self.motions])

    def velocity(self) -> Array:
        """Return the derivative of `numbers`, up to a rotation of the neurons."""
        return np.concatenate([motion.velocity().ravel() for motion in self.motions])

    def standing(self, numbers: Array, *, time: float | None = None, reached: Array | None = None) -> Course:
        """Return the network with other `numbers`, laid out as `numbers` returns them.

        `time` and `reached` (2, P) are the present ones by default.
        """
        times, motions = self.reached if reached is None else reached, []
        for motion in self.motions:
            columns, numbers = np.split(numbers, [motion.columns.size])
            first, times = np.split(times, [len(motion.levels)])
            motions.append(replace(motion, columns=columns.reshape(motion.columns.shape), reached=first))
        return replace(self, time=self.time if time is None else time, motions=tuple(motions))


def jumps_needed(times: Array, fastest: float) -> float:
    """Return the least number of jumps to the last of `times`, where `fastest` is the largest coefficient a_1.

    ValueError if there are more than `MOST_JUMPS`.
    """
    count = float(np.ceil(4.0 * fastest * times[-1] / LARGEST_GROWTH))
    end = MOST_JUMPS * LARGEST_GROWTH / (4.0 * fastest)
    require(
        count <= MOST_JUMPS,
        f"Argument `save_at` must end within {MOST_JUMPS} jumps of 4 h a_1 = {LARGEST_GROWTH:g}, at t = {end:.4g}, but "
        f"ends at t = {times[-1]:.4g}.",
    )
    return count
