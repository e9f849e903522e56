"""The exact motion of a quadratic network, in jumps of any length.

With σ = h_2 and an orthonormal teacher the network is the matrix Q = WᵀW and the loss is |Q − A|_F², A = diag(a). The
columns of V = Wᵀ are kept in reduced form [M; R]: M (P, m) on the teacher's axes, R (at most m rows) on axes orthogonal
to them, where A is 0. Both motions below are right up to a rotation of the neurons, which changes neither Q nor the
span: nothing of a single neuron may be read off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, orth, solve_triangular
from scipy.optimize import brentq, minimize_scalar

from dynamics.problem import is_frame
from dynamics.threads import give_way, whether_given_up

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

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


# The way of a quadratic network over saved times, and the times at which directions are reached on it.


#: Largest 4 h a_1 of one jump: its Gram matrices then have condition numbers of at most e^12, 1.6e5.
LARGEST_GROWTH = 12.0
#: The same of the fastest direction that is not aligned yet, whose alignment is below this.
LARGEST_MOTION, ALIGNED = 2.0, 0.999
#: More jumps than anyone would wait for.
MOST_JUMPS = 10**6
#: Accuracy of the times at which directions are reached, relative to a jump.
TIME_TOLERANCE = 1e-12


class Motion(Protocol):
    """What carries directions, and can be asked about any later time."""

    @property
    def rates(self) -> Array:
        """Eigenvalues of A on the axes."""
        ...

    def after(self, wait: float) -> Self:
        """Return the same a time later."""
        ...

    def carried(self, count: int) -> Array:
        """Return what it has of each of the first axes."""
        ...

    def slopes(self, count: int) -> Array:
        """Return the velocity of that."""
        ...

    def carried_after(self, axis: int, wait: float) -> float:
        """Return what it has of one axis a time later."""
        ...


AnyMotion = TypeVar("AnyMotion", bound=Motion)


@dataclass(frozen=True, slots=True)
class Track(Generic[AnyMotion]):
    """A motion on its way, and when each direction first reached each of its levels; NaN if not yet."""

    motion: AnyMotion
    #: Arrays of shape (P,).
    levels: tuple[Array, ...]
    #: As many arrays of shape (P,).
    reached: tuple[Array, ...]

    @classmethod
    def of(cls, motion: AnyMotion, *levels: Array) -> Track[AnyMotion]:
        """Return the track of a motion at its start."""
        start = motion.carried(levels[0].size)
        return cls(motion, levels, tuple(np.where(start >= level, 0.0, np.nan) for level in levels))

    def after(self, time: float, wait: float) -> Track[AnyMotion]:
        """Return the track after a jump from a time to the one after a wait."""
        later, given_up = self.motion.after(wait), whether_given_up()
        reached = tuple(times.copy() for times in self.reached)
        for found, level in zip(reached, self.levels, strict=True):
            for j in _reaching(self.motion, later, wait, level, np.isnan(found)):
                give_way(given_up)
                found[j] = time + _wait(self.motion, int(j), float(level[j]), wait)
        return replace(self, motion=later, reached=reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How far a quadratic network has come: the span of its neurons and, unless they are a frame, its weights."""

    #: Of the teacher, shape (P,).
    coefficients: Array
    #: Squared length n of the neurons of a frame, NaN for a network whose neurons are free.
    square: float
    time: float
    #: The span, with its times of alignment; of a frame those of learning too.
    span: Track[Span]
    #: The weights, with their times of learning; None for a frame, of which the span tells all.
    weights: Track[Weights] | None

    @classmethod
    def of(cls, problem: Problem) -> Course:
        """Return a network at its start."""
        start, a = reduced_start(problem), problem.teacher.coefficients
        span, half = start_span(start), np.full(a.size, 0.5)
        if is_frame(problem):
            n = float(np.sum(start.columns[:, 0] ** 2))
            return cls(coefficients=a, square=n, time=0.0, span=Track.of(span, half, a / (2.0 * n)), weights=None)
        weights = Track.of(start, a / 2.0)
        return cls(coefficients=a, square=np.nan, time=0.0, span=Track.of(span, half), weights=weights)

    @property
    def tracks(self) -> tuple[Track[Any], ...]:
        """The span, and the weights if they are followed."""
        return (self.span,) if self.weights is None else (self.span, self.weights)

    @property
    def alignment(self) -> Array:
        """A_j, shape (P,)."""
        return self.span.motion.carried(self.coefficients.size)

    @property
    def reached(self) -> tuple[Array, Array]:
        """When directions were aligned and learned, shape (P,) each; NaN if not yet."""
        aligned, learned = (times for track in self.tracks for times in track.reached)
        return aligned, learned

    def towards(self, end: float) -> Course:
        """Return the network after the next jump to a later time, which may be far from it."""
        left = end - self.time
        wait = _jump(self.coefficients, self.alignment, left)
        weights = None if self.weights is None else self.weights.after(self.time, wait)
        time = end if wait == left else self.time + wait
        return replace(self, time=time, span=self.span.after(self.time, wait), weights=weights)

    def record(self) -> dict[str, Any]:
        """Return what is saved at a time: loss, fine-tuned loss, and A_j."""
        a, alignment = self.coefficients, self.alignment
        if self.weights is None:
            count = self.span.motion.columns.shape[1]
            loss = self.square**2 * count - 2.0 * self.square * float(alignment @ a) + float(np.sum(a**2))
        else:
            loss = self.weights.motion.loss()
        return {"loss": loss, "fine_tuned_loss": self.span.motion.fine_tuned_loss(), "alignment": alignment}

    def numbers(self) -> Array:
        """Return all that moves as one array: U, and V = Wᵀ unless the neurons are a frame."""
        return np.concatenate([track.motion.columns.ravel() for track in self.tracks])

    def velocity(self) -> Array:
        """Return the derivative of `numbers`, up to a rotation of the neurons."""
        return np.concatenate([track.motion.velocity().ravel() for track in self.tracks])

    def standing(self, numbers: Array, *, time: float | None = None, reached: Array | None = None) -> Course:
        """Return the network at other `numbers`, by default at this time and with these times of directions."""
        parts, tracks, left = iter(self.reached if reached is None else reached), [], numbers
        for track in self.tracks:
            shape = track.motion.columns.shape
            here, left = np.split(left, [shape[0] * shape[1]])
            motion = replace(track.motion, columns=here.reshape(shape))
            tracks.append(replace(track, motion=motion, reached=tuple(next(parts) for _ in track.levels)))
        span, *weights = tracks
        return replace(
            self, time=self.time if time is None else time, span=span, weights=weights[0] if weights else None
        )


def jumps_needed(times: Array, fastest: float) -> float:
    """Return the least number of jumps to the last of some times; raise one sentence if nobody would wait for them."""
    count = float(np.ceil(4.0 * fastest * times[-1] / LARGEST_GROWTH))
    if count > MOST_JUMPS:
        msg = (
            f"Argument `save_at` must end within {MOST_JUMPS} jumps of 4 h a_1 = {LARGEST_GROWTH:g}, at "
            f"t = {MOST_JUMPS * LARGEST_GROWTH / (4.0 * fastest):.4g}, but ends at t = {times[-1]:.4g}."
        )
        raise ValueError(msg)
    return count


def _jump(rates: Array, alignment: Array, left: float) -> float:
    """Return the length of the next jump of equal ones over the time that is left.

    Its Gram matrices must keep to float64, and directions that still move must do so slowly enough to be seen to come
    and go; those that are aligned move no more.
    """
    moving = float(rates[alignment < ALIGNED].max(initial=0.0))
    most = max(LARGEST_MOTION * float(rates.max()) / LARGEST_GROWTH, moving)
    return left / max(math.ceil(4.0 * most * left / LARGEST_MOTION), 1)


def _reaching(motion: Motion, later: Motion, wait: float, level: Array, below: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return which of the directions below their levels may reach them in a jump, be it for a part of it alone."""
    count = level.size
    passed = later.carried(count) >= level
    # Nothing grows faster than e^{4 a_j t}; what comes and goes within a jump rises at its start and falls at its end.
    may = below & ~passed & (motion.carried(count) * np.exp(4.0 * wait * motion.rates[:count]) >= level)
    if may.any():
        may &= (motion.slopes(count) > 0.0) & (later.slopes(count) < 0.0)
    return np.flatnonzero((below & passed) | may)


def _wait(motion: Motion, axis: int, level: float, longest: float) -> float:
    """Return the wait after which an axis that is below its level now is first at it, NaN if not within the longest."""

    def above(wait: float) -> float:
        return float(np.log(motion.carried_after(axis, wait) / level))

    end = longest
    if above(end) <= 0.0:
        top = minimize_scalar(lambda wait: -above(wait), bounds=(0.0, longest), method="bounded")
        if top.fun > 0.0:
            return np.nan
        end = float(top.x)
    return float(brentq(above, 0.0, end, xtol=TIME_TOLERANCE * longest, rtol=1e-13))
