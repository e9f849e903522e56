"""The way of a quadratic network over saved times, and the times at which directions are reached on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from dynamics.equations.quadratic.motion import reduced_start, start_span

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is recorded at the saved times, and when directions are reached; NaN if not by the last of them."""

    loss: Array
    fine_tuned_loss: Array
    #: A_j, shape (times, P).
    alignment: Array
    #: A_j at time 0, shape (P,).
    initial_alignment: Array
    aligned_time: Array
    learned_time: Array


AnyMotion = TypeVar("AnyMotion", bound=Motion)


@dataclass(slots=True)
class Track(Generic[AnyMotion]):
    """A motion on its way, and when each direction first reached each of its levels; NaN if not yet."""

    motion: AnyMotion
    levels: list[Array]
    reached: list[Array]

    @classmethod
    def of(cls, motion: AnyMotion, levels: list[Array]) -> Track[AnyMotion]:
        """Return the track of a motion at its start."""
        start = motion.carried(levels[0].size)
        return cls(motion, levels, [np.where(start >= level, 0.0, np.nan) for level in levels])

    def advance(self, time: float, wait: float) -> None:
        """Jump from a time to the one after a wait."""
        later = self.motion.after(wait)
        for found, level in zip(self.reached, self.levels, strict=True):
            for j in _reaching(self.motion, later, wait, level, np.isnan(found)):
                found[j] = time + _wait(self.motion, int(j), float(level[j]), wait)
        self.motion = later


def follow(problem: Problem, times: Array) -> Course:
    """Return the course of a quadratic network over increasing times: of its weights, or of a frame of fixed radius."""
    start, a, count = reduced_start(problem), problem.teacher.coefficients, problem.num_directions
    if problem.kind == "stiefel":
        n = float(np.sum(start.columns[:, 0] ** 2))
        span, weights = Track.of(start_span(start), [np.full(count, 0.5), a / (2.0 * n)]), None
    else:
        n, span = np.nan, Track.of(start_span(start), [np.full(count, 0.5)])
        weights = Track.of(start, [a / 2.0])
    initial, time, records = span.motion.carried(count), 0.0, []
    for end in times.tolist():
        while time < end:
            wait = _jump(a, span.motion.carried(count), end - time)
            span.advance(time, wait)
            if weights:
                weights.advance(time, wait)
            time = end if wait == end - time else time + wait
        loss = weights.motion.loss() if weights else np.nan
        records.append((span.motion.carried(count), span.motion.fine_tuned_loss(), loss))
    alignment, fine_tuned, losses = (np.array(part) for part in zip(*records, strict=True))
    return Course(
        loss=losses if weights else n**2 * problem.width - 2.0 * n * alignment @ a + np.sum(a**2),
        fine_tuned_loss=fine_tuned,
        alignment=alignment,
        initial_alignment=initial,
        aligned_time=span.reached[0],
        learned_time=weights.reached[0] if weights else span.reached[1],
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
    return left / math.ceil(4.0 * most * left / LARGEST_MOTION)


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
