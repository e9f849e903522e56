"""The way of a quadratic network over saved times, and the times at which directions are reached on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from dynamics.equations.quadratic.motion import reduced_start, start_span
from dynamics.problem import is_frame
from dynamics.threads.stopping import give_way, whether_given_up

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    from dynamics.equations.quadratic.motion import Span, Weights
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
