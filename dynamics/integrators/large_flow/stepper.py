r"""Steps of the large-flow solver, and the common part of the steppers with slowed clusters.

State: rows u_i on the unit sphere of R^D, D = min(d, P + m), and ln n_i; G = U Uᵀ is never integrated.

.. math:: u_i' = F_i - (F_i \cdot u_i)\, u_i, \qquad
   F_i = \sum_p a_p g'(C_{ip})\, e_p - \sum_j n_j g'(u_i \cdot u_j)\, u_j, \qquad
   (\ln n_i)' = 4 \Big[\sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij})\Big]

The pair DOP853 carries it, with three devices:

* *Slowed clusters.* A learned direction relaxes at rates a_p g'(1) and 4 a_p g(1), the only stiff modes: the
  mass-weighted means over the neurons on it. Their velocity v is replaced by θ v + (1 − θ) v_last, θ = min(1, κ /
  (rate · h)): the mode still reaches its slow manifold within a step, and moves with it as it moved in the last step.
* *Lagged rest.* Fast neurons, directions without a cluster and the inside of clusters are evaluated at every stage; the
  rest of the field once per step, extrapolated by a polynomial and corrected when the new value is known. The size of
  the correction controls the step as the embedded error does.
* *Rows in cache.* Given the path of the fast neurons, which take the step in up to four parts, all others are
  independent of each other within a step, so a block of rows goes through all stages before the next begins.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, section II.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.equations.link import EMERGENCE
from dynamics.equations.vectors import overlap_state, unit_vectors
from dynamics.integrators.clusters import (
    KAPPA,
    LAG_REJECTION,
    LAG_SAFETY,
    LAG_TOLERANCE,
    LARGEST_FACTOR,
    NOTICED,
    SAFETY,
    SMALLEST_FACTOR,
    STALL_GAIN,
    STALL_STEPS,
)
from dynamics.integrators.large_flow.division import FIRST, ORDER, Divider, State
from dynamics.integrators.large_flow.rows import MOST_PARTS, Rests, SourcesInside, StateRows, Step
from dynamics.integrators.large_flow.step_kernels import (
    events_inside,
    mass_of_rest,
    rows_inside,
    settle_rows,
    shift_clusters,
    weigh_shifts,
)
from dynamics.integrators.stepper import Status, check_inside, check_stored, record_crossings
from dynamics.problem.emergence import LEARNED_SHARE
from hermite.arrays import Array, aligned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dynamics.integrators.large_flow.division import Division
    from dynamics.problem import Problem
    from hermite.arrays import Integers

    #: Vectors and ln n, or coefficients of both.
    Pair = tuple[Array, Array]

#: Error of the polynomial inside a step, in units of rtol, from which on the step ends at the saved time inside it
#: instead. Steps are a hundred times as accurate as rtol, so that at 1 the polynomials of single steps in which a
#: neuron escapes were the error of the loss: 3.2e-5 with 128 directions at rtol 1e-4, 1.7e-7 with 0.03, for 4 % more
#: steps. The escape of the first of 1024 directions was wrong by 3.0e-5 with 0.03 and is by 3.7e-7 with 0.01, for 1 %
#: more steps.
DENSE_TOLERANCE = 0.01
#: Absolute tolerance of a coordinate in units of rtol / √d, where the given one is smaller: single coordinates have no
#: meaning, since rotations of the complement of the teacher change them.
COORDINATE_FLOOR = 0.1
SMALLEST_STEP = 16.0 * np.finfo(np.float64).eps


def tolerances(problem: Problem, rtol: float, atol: float) -> tuple[float, float, float]:
    """Return the absolute and the relative tolerance of a coordinate, and the absolute one of ln n."""
    return max(atol, COORDINATE_FLOOR * rtol) / np.sqrt(problem.dimension), rtol, max(atol, rtol)


def factor_of(error: float) -> float:
    """Return the largest ratio of the next step's length to this one's, by its error in units of the tolerance.

    It is 0 for an error that is not finite.
    """
    return SAFETY * error**-0.125 if np.isfinite(error) else 0.0


class ClusterStepper(ABC):
    """A stepper with slowed clusters: time, events, control of the step, and whether steps still advance the time.

    A subclass prepares a step, tries lengths of it, and accepts one.
    """

    def __init__(self, num_events: int) -> None:
        """Begin at time 0 with `num_events` events, none of which has passed."""
        self._time = 0.0
        #: Length of the next step.
        self._h = 0.0
        self._events = np.empty(num_events)
        self._event_times = np.full(num_events, np.nan)
        self._marks: list[float] = []
        self._counts = {"steps_accepted": 0, "steps_rejected": 0}

    @property
    def time(self) -> float:
        """End of the last accepted step, dimensionless."""
        return self._time

    @property
    def event_times(self) -> Array:
        """Time at which each direction emerged, then was learned; NaN until then."""
        return np.array(self._event_times)

    @property
    def stalled(self) -> bool:
        """Whether stiffness that no cluster explains has held up the run for long."""
        marks = self._marks
        return len(marks) > STALL_STEPS and marks[-1] < STALL_GAIN * marks[-1 - STALL_STEPS]

    def advance(self, target: float, max_steps: int) -> Status:
        """Take steps until `time` is at least `target`, or `max_steps` were tried, or no step succeeds."""
        last = self._tried() + max_steps
        while self._time < target:
            if self._tried() >= last:
                return Status.MAX_STEPS
            failure = self._advance_once(target)
            if failure is not None:
                return failure
        return Status.REACHED

    @abstractmethod
    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues bit for bit."""

    def _tried(self) -> int:
        """Return the number of steps tried so far."""
        return self._counts["steps_accepted"] + self._counts["steps_rejected"]

    @abstractmethod
    def _prepare(self) -> None:
        """Divide the neurons for the next step."""

    @abstractmethod
    def _try(self, h: float, *, dense: bool) -> tuple[float, float, float]:
        """Compute a step of length h; return three errors, each in units of its tolerance.

        They are those of its end, of its polynomial if `dense`, and of the extrapolated rest of the field. Where one is
        too large, those that follow need not be computed.
        """

    def _lag_factor(self, excess: float, past: int = 1) -> float:
        """Return the largest ratio of the next step's length to this one's, by the error of the extrapolated rest.

        `excess` is that error in tolerances, and `past` the number of past values through which it was extrapolated.
        """
        return float(LAG_SAFETY * excess ** (-1.0 / (past + 1.0)))

    @abstractmethod
    def _accept(self, h: float, h_next: float) -> None:
        """Make the step that was tried the last one, all at once, and `h_next` the length of the next."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Go back to the beginning of a step that cannot be taken."""

    def _start_events(self, values: Array) -> None:
        """Store the values of the events at the start, and record the events that are passed there."""
        self._events = values
        record_crossings(self._event_times, values, values, (self._time, self._time), lambda _: values)

    def _advance_once(self, target: float) -> Status | None:
        """Take one accepted step and return None, or return the status if no step can be taken.

        If `target` is inside, the dense output is computed with the step. Where that is not good enough, as with a
        stiff mode, the step ends at `target`, or after a fifth of its length if `target` comes before that.
        """
        self._prepare()
        h, most, planned = self._h, LARGEST_FACTOR, 0.0
        while True:
            if not (h > SMALLEST_STEP * self._time or (self._time == 0.0 and h > 1e-290)):
                self._withdraw()
                return Status.STEP_TOO_SMALL if np.isfinite(h) else Status.NOT_FINITE
            # By rounding a step to the target may end a bit beyond it.
            dense = self._time < target < self._time + h and h != target - self._time
            error, error_within, excess = self._try(h, dense=dense)
            if error <= 1.0 and error_within > DENSE_TOLERANCE:
                planned, h = planned or h, max(target - self._time, SMALLEST_FACTOR * h)
                continue
            if error <= 1.0 and excess <= LAG_REJECTION:
                break
            self._counts["steps_rejected"] += 1
            factor = factor_of(error) if not error <= 1.0 else self._lag_factor(excess)
            h *= max(SMALLEST_FACTOR, min(factor, LAG_SAFETY))
            most, planned = 1.0, 0.0
        factor = min(factor_of(max(error, 1e-12)), self._lag_factor(max(excess, 1e-12)))
        self._accept(h, planned or h * min(most, max(SMALLEST_FACTOR, factor)))
        return None


def polynomial(coefficients: Any, x: float) -> Any:
    """Return the change from the beginning of a step to its fraction x, from 0 to 1.

    It is x (b_0 + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))), with the seven `coefficients` b, numbers or arrays.
    """
    total = coefficients[6]
    for q in range(5, -1, -1):
        total = coefficients[q] + (x if q % 2 == 1 else 1.0 - x) * total
    return x * total


def inside(x: float, begin: Pair, end: Pair, dense: Pair) -> Pair:
    """Return unit vectors and ln n at the fraction x, from 0 to 1, of a step, from those at its ends.

    `dense` holds the coefficients of both. A later correction of the end comes in as x² (3 − 2 x), without a change of
    slope at either end.
    """
    out = np.empty_like(begin[0]), np.empty_like(begin[1])
    rows_inside(x, begin, end, dense, out)
    return out


#: Squared overlap above which a neuron can decide when a direction emerges or is learned.
DECIDES = 0.1


class DenseOutput:
    """The polynomial inside one step; `ready` says that its coefficients were computed with the step.

    Else the rows go once more through the stages when it is asked for: at events the deciding ones alone.
    """

    def __init__(self, rows: StateRows, step: Step, *, ready: bool = False) -> None:
        """Keep the step and the passes that computed it; nothing is computed yet."""
        self._rows = rows
        self._step = step
        self._sources: SourcesInside | None = None
        #: Blocks whose coefficients have been written.
        self._ready = np.full(step.division.cuts.size - 1, ready)

    def at(self, t: float) -> tuple[Array, Array]:
        """Return unit vectors and ln n at a time within the step."""
        step, passes = self._step, self._rows
        if t == step.time:
            return step.begin.U, step.begin.log_norm
        self._prepare(np.arange(self._ready.size))
        x, sources = (t - step.time) / step.h, step.division.sources
        U, log_norm = inside(x, step.begin.vectors, step.end.vectors, passes.dense)
        if sources.size > 0:
            U[sources], log_norm[sources] = inside(*self._of_sources().part_at(x))
        return U, log_norm

    def events_at(self, passed: Integers, before: Array) -> Callable[[float], Array]:
        """Return a function of t with all event values: those of the `passed` events at t, the others as in `before`.

        The polynomials of neurons near a direction decide, beside a cubic through the small share of all others.
        """
        passes, step = self._rows, self._step
        division, P = step.division, passes.a.size
        directions = np.unique(passed % P)
        near = (step.end.U[:, directions] ** 2 > DECIDES).any(axis=1)
        deciding, distant = np.flatnonzero(near), np.flatnonzero(~near)
        place = np.argsort(division.plan[0][ORDER])[deciding]
        self._prepare(np.unique(np.searchsorted(division.cuts, place, side="right") - 1))
        shares = {p: self._share(distant, p) for p in directions.tolist()}
        fast = division.fast[deciding]
        rows, sources = deciding[~fast], np.searchsorted(division.sources, deciding[fast])
        values, out, of_sources = before.copy(), np.empty(2), np.zeros(2)

        def values_at(t: float) -> Array:
            """Return the values of all 2 P events at a time t in the step, in one array that every call overwrites.

            Entry p is max_i C_ip² minus the level of emergence, entry P + p the learned mass of direction p minus the
            share of its coefficient at which it is learned; directions without a passed event keep the values of
            `before`.
            """
            x = (t - step.time) / step.h
            for p, share in shares.items():
                ends = step.begin.vectors, step.end.vectors, passes.dense
                events_inside(passes.link, rows, p, x, passes.sign_matters, *ends, out)
                if sources.size > 0:
                    part, begin, end, dense = self._of_sources().part_at(x)
                    ends = begin, end, dense
                    events_inside(passes.link, sources, p, part, passes.sign_matters, *ends, of_sources)
                values[p] = max(out[0], of_sources[0]) - float(passes.link[EMERGENCE])
                values[P + p] = out[1] + of_sources[1] + share(x) - LEARNED_SHARE * passes.a[p]
            return values

        return values_at

    def _prepare(self, blocks: Integers) -> None:
        """Write the coefficients of some blocks, and of the sources, on which all blocks depend."""
        if self._step.division.sources.size > 0:
            blocks = np.union1d(blocks, 0)
        missing = blocks[~self._ready[blocks]]
        self._rows.write_dense(self._step, missing)
        self._ready[missing] = True

    def _of_sources(self) -> SourcesInside:
        """Return the states of the sources inside the step, which `_prepare` has computed."""
        self._sources = self._sources or SourcesInside(self._rows.sources, self._step)
        return self._sources

    def _share(self, rows: Integers, p: int) -> Callable[[float], float]:
        """Return the cubic x -> Σ n g(C_p)/g(1) over the neurons `rows`, x being the fraction of the step.

        n are squared norms, C_p overlaps with direction p and g the kernel of the link.
        """
        step, of_begin, of_end = self._step, np.empty(2), np.empty(2)
        for state, out in ((step.begin, of_begin), (step.end, of_end)):
            mass_of_rest(self._rows.link, rows, p, state.whole, out)
        (first, rate_0), (last, rate_1) = of_begin.tolist(), of_end.tolist()
        rise = last - first
        begin_bend, end_bend = step.h * rate_0 - rise, rise - step.h * rate_1
        return lambda x: float(first + x * rise + x * (1.0 - x) * ((1.0 - x) * begin_bend + x * end_bend))


#: Part of the distance at which others notice a cluster from which on it moves too when they notice another one.
MOVED = 0.1
#: Share of a part's length that it may exceed.
ROUNDING = 1e-3


class LargeFlowStepper(ClusterStepper):
    """Steps of the coupled flow of many neurons, for problems against which `reason_against` finds no reason.

    Per step `rtol` bounds errors of unit vectors and of ln n; `atol` is as in `OverlapSystem.absolute_tolerance`.
    Results do not depend on the number of threads.
    """

    def __init__(self, problem: Problem, *, rtol: float, atol: float, threads: int | None = None) -> None:
        """Allocate rows, divider and rests for a problem, and evaluate the field at its start.

        `rtol` and `atol` are the tolerances of a step; `threads` is the number of threads, by default one per core
        where the state is large.
        """
        super().__init__(2 * problem.num_directions)
        U, log_norm = unit_vectors(problem)
        m, D = U.shape
        lag_tolerance = LAG_TOLERANCE * np.array([rtol / np.sqrt(problem.dimension), rtol])
        self.rows = rows = StateRows(problem, D, np.array(tolerances(problem, rtol, atol)), lag_tolerance, threads)
        both_poles = problem.activation.parity == "even"
        self._divider = Divider(rows.link, rows.a, rows.value, rows.slope, D, both_poles)
        self._rests = Rests(m, D)
        self._ring = aligned(3, m, D), aligned(3, m)
        self._at = 0
        #: Length of the parts in which the sources take the next step, and of those in the step that is tried.
        self._part = self._next_part = np.inf
        self._counts["divisions"] = 0
        # Counts before the step that is taken.
        self._counted: dict[str, int] = {}
        self._division: Division | None = None
        self._last: Step | None = None
        self._dense: DenseOutput | None = None
        self._now = self._begin(U, log_norm)

    # --- the stepper's protocol -----------------------------------------------------------------------------

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step."""
        return overlap_state(*self.vectors(t), self.rows.teacher, self.rows.a.size, out, self.rows.products)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        check_inside(t, self._time if self._last is None else self._last.time, self._time)
        if t == self._time or self._dense is None:
            return self._now.vectors
        return self._dense.at(t)

    def derivative(self, t: float) -> Array:
        """Return the rates of the overlaps at a time within the last step."""
        U, log_norm = self.vectors(t)
        F, growth = np.empty_like(U), np.empty_like(log_norm)
        self.rows.field(U, log_norm, F, growth)
        velocity = F - np.sum(F * U, axis=1)[:, None] * U
        product = velocity @ U.T
        return np.concatenate([velocity[:, : self.rows.a.size].ravel(), (product + product.T).ravel(), 4.0 * growth])

    def close(self) -> None:
        """End the threads that share rows."""
        self.rows.workers.close()

    def statistics(self) -> dict[str, int]:
        """Return counts of steps and evaluations; an evaluation of the right-hand side is one of the full field."""
        return self._counts | self.rows.counts

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of all arrays from which `restore` continues.

        They are `U` (m, D) and `log_norm` (m,) at the present time, past states with their fields and rests of the
        field; `time_and_step`, which are the time, the next length, and the length of its parts; `events` (2, 2 P),
        times and values; `marks`, recent times of steps; `counts`; and those of the last step. A step after one that
        was given up makes the rests of the field anew.
        """
        arrays: dict[str, NDArray[np.generic]] = {
            **self._rests.arrays(),
            "U": self._now.U,
            "log_norm": self._now.log_norm,
            "time_and_step": np.array([self._time, self._h, self._part]),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array(list((self._counted or self.statistics()).values())),
            **({} if self._last is None else self._last.arrays()),
        }
        return {name: array.copy() for name, array in arrays.items()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem, those that `state` returns.

        They are the state at the present time, past values of the field, and, once a step was taken, its begin,
        division into sources and clusters, and length, from which its dense output is computed again when it is asked
        for. Files of earlier versions lack the number of parts of a step. ValueError is raised for arrays of another
        shape.
        """
        arrays = {name: np.array(array) for name, array in state.items()}
        check_stored(arrays, "U", self._now.U.shape)
        rests = self._rests
        rests.set_arrays(arrays)
        # In files of earlier versions steps have no parts.
        self._time, self._h, self._part = [*arrays["time_and_step"].tolist(), np.inf][:3]
        self._event_times, self._events = arrays["events"][0], arrays["events"][1]
        self._marks = arrays["marks"].tolist()
        counts = dict(zip(self.statistics(), arrays["counts"].tolist(), strict=True))
        for group in (self._counts, self.rows.counts):
            group.update({name: counts[name] for name in group})
        newest = rests.newest_first
        self._now = State(arrays["U"], arrays["log_norm"], rests.F[newest[0]], rests.growth[newest[0]])
        self._division, self._last, self._dense = None, None, None
        if "last" in arrays:
            division = self._divider.assemble(arrays["fast"], arrays["cluster"], arrays["sign"])
            self._division = division
            self.rows.fit(division)
            before = newest[1]
            begin = State(arrays["begin_U"], arrays["begin_log_norm"], rests.F[before], rests.growth[before])
            time, h, parts = [*arrays["last"].tolist(), 1][:3]
            how = arrays["pace"], arrays["drift"], rests.extrapolation(h, arrays["last_slots"]), int(parts)
            self._last = Step(time, h, begin, self._now, self._now, division, *how, arrays["leading"])
            self._dense = DenseOutput(self.rows, self._last)

    # --- one step -------------------------------------------------------------------------------------------

    def _begin(self, U: Array, log_norm: Array) -> State:
        """Return the state to start from, with its field; set events and a first step short against all rates."""
        slot = self._rests.free_slot()
        self._rests.keep(slot, self._time)
        self._rests.U[slot], self._rests.log_norm[slot] = U, log_norm
        now = self._rests.state(slot)
        self.rows.field(now.U, now.log_norm, now.F, now.growth)
        tolerance = self.rows.tolerance
        velocity = now.F - np.sum(now.F * U, axis=1)[:, None] * U
        rate = max(np.abs(velocity).max() * tolerance[1] / tolerance[0], 4.0 * np.abs(now.growth).max())
        self._h = 1e-2 / max(rate, 1e-290)
        self._start_events(self.rows.event_values(U, log_norm))
        return State(U, log_norm, now.F, now.growth)

    def _prepare(self) -> None:
        """Divide the neurons for the next step, and renew the rests of the field where the division changes."""
        self._counted, self._next_part = self.statistics(), self._part
        begin, h = (self._now, 1.0) if self._last is None else (self._last.begin, self._last.h)
        division, self._drift = self._divider.divide(self._now, begin, h, self._division)
        if division is not self._division:
            self._division = division
            self.rows.fit(division)
            self._counts["divisions"] += 1
            for slot in self._rests.newest_first.tolist():
                self._rests.subtract(slot, self.rows.partial)

    def _try(self, h: float, *, dense: bool) -> tuple[float, float, float]:
        """Compute a step of length h, and return three errors in units of the tolerance.

        They are the error of the state at its end, that of its dense output (0 unless `dense`), and that of the rest of
        the field, which was extrapolated. An error that is too large ends the work: those after it are 0, or lack the
        rows that were not reached.
        """
        assert self._division is not None
        rows, error, error_within, self._dense_is_ready = self.rows, 0.0, 0.0, dense
        if self._division.sources.size == 0:
            step, self._next_part = self._attempt(h, 1, self._division, self._drift), np.inf
        else:
            step, error, error_within = self._try_sources(h, self._division, dense=dense)
        self._tried_step = step
        # Most steps that fail do so here, before any other row has been touched.
        if not (error <= 1.0 and error_within <= DENSE_TOLERANCE):
            return error, error_within, 0.0
        rows.run_others(step, dense=dense)
        row_errors = np.max((rows.error, rows.error_within), axis=1, where=~self._division.fast, initial=0.0)
        error, error_within = float(row_errors[0]), max(error_within, float(row_errors[1])) if dense else 0.0
        settles = error <= 1.0 and not error_within > DENSE_TOLERANCE
        return error, error_within, self._settle(step) if settles else 0.0

    def _lag_factor(self, excess: float, past: int = 0) -> float:
        """Return the largest ratio of the next step's length to this one's, by the error of the rest of the field."""
        return super()._lag_factor(excess, past or self._rests.newest_first.size)

    def _withdraw(self) -> None:
        """Forget the counts of a step that cannot be taken."""
        self._counted = {}

    def _attempt(self, h: float, parts: int, division: Division, drift: Array) -> Step:
        """Return the step of length h from the present state, with places for its results, before it is computed."""
        # The field where the stages end is written by `settle`, and the end itself.
        at, slot = (self._at + 1) % 3, self._rests.free_slot()
        reached = self._rests.state(slot)
        end = State(self._ring[0][at], self._ring[1][at], reached.F, reached.growth)
        pace = KAPPA / np.maximum(h * division.rates, KAPPA)
        rests = self._rests.extrapolation(h)
        return Step(self._time, h, self._now, reached, end, division, pace, drift, rests, parts, self._divider.leading)

    def _try_sources(self, h: float, division: Division, *, dense: bool) -> tuple[Step, float, float]:
        """Take a step of the sources alone, in more parts if errors are too large; return the step and its errors."""
        parts = max(min(int(np.ceil(h / self._next_part * (1.0 - ROUNDING))), MOST_PARTS), 1)
        while True:
            step = self._attempt(h, parts, division, self._drift)
            error, error_within = self.rows.run_sources(step)
            error_within = error_within if dense else 0.0
            if parts == MOST_PARTS or (error <= 1.0 and error_within <= DENSE_TOLERANCE):
                longest = h / parts * max(SMALLEST_FACTOR, factor_of(max(error, 1e-12)))
                self._next_part = min(longest, LARGEST_FACTOR * self._next_part)
                return step, error, error_within
            needed = parts / max(SMALLEST_FACTOR, factor_of(error)) if error > 1.0 else 0.0
            parts = max(min(int(np.ceil(needed)), MOST_PARTS), parts + 1)

    def _settle(self, step: Step) -> float:
        """Correct a step by the full field at its end.

        Return the larger one of the error by the extrapolated rest of the field and that by misplaced clusters, in
        tolerances.
        """
        rows, rests, h, state = self.rows, self._rests, step.h, step.reached
        shares, slot = rests.correction(h, np.append(step.division.rates, 0.0)), rests.free_slot()
        correction = float(shares[-1])
        rows.field(state.U, state.log_norm, state.F, state.growth)
        rows.partial(state, rests.rest[slot], rests.rest_growth[slot])
        lag = (*step.rests[:3], step.rests.at_end, rests.rest[slot], rests.rest_growth[slot])
        displaced = self._land(step, lag, shares)

        def part(begin: int, end: int) -> None:
            """Correct the neurons begin … end − 1."""
            settle_rows(begin, end, correction, step.division.cluster, state.whole, lag, step.end.vectors, rows.miss)

        rows.workers.over_rows(part)
        share = h / (rests.newest_first.size + 1.0)
        off = np.maximum(share * rows.miss.max(axis=0), displaced)
        excess = float((off / rows.lag_tolerance).max())
        return excess if np.isfinite(excess) else np.inf

    def _land(self, step: Step, lag: tuple[Any, ...], shares: Array) -> Array:
        """Move the clusters where a step ends to where they belong, if others notice it; return the largest distances.

        Within a step the stiff means of a cluster move as they did in the last one, so that they end a distance b from
        their slow manifold, of the order h² of its curvature. Other neurons would feel a cluster in the wrong place:
        one that has little mass, at rest beside learned directions, sums that up over its whole life. Members move by
        the last of the `shares` times the error of their own rest too, and the fields follow.
        """
        rows, division, h, state = self.rows, step.division, step.h, step.reached
        count = division.directions.size
        if count == 0:
            return np.zeros(2)
        shift, size = np.empty((2, *step.drift.shape)), np.empty((count, 3))
        ratio = 0.0 if self._last is None else h / (h + self._last.h)
        modes = division.rates, shares[:-1].reshape(-1, 2), step.drift, division.cluster

        def weigh(begin: int, end: int) -> None:
            """Weigh the clusters begin … end − 1."""
            weigh_shifts(
                begin, end, h, ratio, modes, step.begin.vectors, state.whole, lag, (shift, size), division.plan
            )

        rows.workers.over_parts(count, weigh)
        noticed = h * size[:, 2] / (NOTICED * rows.lag_tolerance[0])
        if not noticed.max() <= 1.0:
            moves, order, first = ~(noticed <= MOVED), division.plan[0][ORDER], division.plan[1][FIRST]
            chosen, moved = np.flatnonzero(moves), order[first[0] : first[-1]][np.repeat(moves, np.diff(first))]
            before = state.U[moved], np.exp(state.log_norm[moved])
            shift_clusters(chosen, float(shares[-1]), state.whole, lag, shift, division.plan)
            rows.follow(state, moved, before)
            blocks = np.unique(np.searchsorted(division.cuts, first[chosen], side="right") - 1)
            rows.partial(state, lag[4], lag[5], blocks)
        largest: Array = size[:, :2].max(axis=0)
        return largest

    def _accept(self, h: float, h_next: float) -> None:
        """Make the step that was tried the last one, record its events, and set the length of the next."""
        step = self._tried_step
        end, output = step.time + h, DenseOutput(self.rows, step, ready=self._dense_is_ready)
        before, now, times = self._events, self.rows.event_values(*step.end.vectors), self.event_times
        passed = np.flatnonzero(np.isnan(times) & (now >= 0.0))
        if passed.size > 0:
            record_crossings(times, before, now, (step.time, end), output.events_at(passed, before))
        self._at = (self._at + 1) % 3
        self._last, self._now, self._dense = step, step.end, output
        self._time, self._event_times, self._events, self._part = end, times, now, self._next_part
        self._h = min(h_next, MOST_PARTS * self._part)
        self._rests.keep(self._rests.free_slot(), end)
        self._counts["steps_accepted"] += 1
        self._marks = [*self._marks[-STALL_STEPS:], end]
        self._counted = {}
