r"""Steps of the large-flow solver.

State: rows u_i on the unit sphere of R^D, D = min(d, P + m), and ln n_i; G = U Uᵀ is never integrated.

.. math:: u_i' = F_i - (F_i \cdot u_i)\, u_i, \qquad
   F_i = \sum_p a_p g'(C_{ip})\, e_p - \sum_j n_j g'(u_i \cdot u_j)\, u_j, \qquad
   (\ln n_i)' = 4 \Big[\sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij})\Big]

The pair DOP853 carries it, with three devices:

* *Slowed clusters.* A learned direction relaxes at rates a_p g'(1) and 4 a_p g(1), the only stiff modes: the
  mass-weighted means over the neurons on it. Their velocity v is replaced by θ v + (1 − θ) v_last,
  θ = min(1, κ / (rate · h)): the mode still reaches its slow manifold within a step, and moves with it as it moved in
  the last step.
* *Lagged rest.* Fast neurons, directions without a cluster and the inside of clusters are evaluated at every stage; the
  rest of the field once per step, extrapolated by a polynomial and corrected when the new value is known. The size of
  the correction controls the step as the embedded error does.
* *Rows in cache.* Given the path of the fast neurons, which take the step in up to four parts, all others are
  independent of each other within a step, so a block of rows goes through all stages before the next begins. A neuron
  that is alone on its direction and hardly moves takes an exponential step in their place.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, section II.5.
"""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.pairs.unit_vectors import overlap_state, unit_vectors
from dynamics.integrators.clusters import (
    KAPPA,
    LAG_REJECTION,
    LAG_SAFETY,
    LAG_TOLERANCE,
    LARGEST_FACTOR,
    SMALLEST_FACTOR,
)
from dynamics.integrators.events import record_crossings
from dynamics.integrators.large_flow.dense import DenseOutput
from dynamics.integrators.large_flow.division import Divider, State
from dynamics.integrators.large_flow.landing import settle
from dynamics.integrators.large_flow.rests import Rests
from dynamics.integrators.large_flow.rows import Rows, Step
from dynamics.integrators.large_flow.sources import MOST_PARTS
from dynamics.integrators.large_flow.step_control import (
    DENSE_TOLERANCE,
    ClusterStepper,
    factor_of,
    shortened,
    tolerances,
)
from dynamics.integrators.stepper import Status, check_inside, check_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dynamics.integrators.large_flow.division import Division
    from dynamics.problem import Problem
    from hermite.arrays import Array

#: Share by which parts may be longer than wanted.
ROUNDING = 1e-3


class LargeFlowStepper(ClusterStepper):
    """Steps of the coupled flow of many neurons, for problems against which `reason_against` finds no reason.

    Per step `rtol` bounds errors of unit vectors and of ln n; `atol` is as in `OverlapSystem.absolute_tolerance`.
    Results do not depend on the number of threads.
    """

    def __init__(self, problem: Problem, *, rtol: float, atol: float, threads: int | None = None) -> None:
        super().__init__(2 * problem.num_directions)
        U, log_norm = unit_vectors(problem)
        m, D = U.shape
        lag_tolerance = LAG_TOLERANCE * np.array([rtol / np.sqrt(problem.dimension), rtol])
        self.rows = rows = Rows(problem, D, np.array(tolerances(problem, rtol, atol)), lag_tolerance, threads)
        both_poles = problem.activation.parity == "even"
        self._divider = Divider(
            rows.link, rows.workers, rows.a, rows.value, rows.slope, D, both_poles=both_poles, by_blas=rows.by_blas
        )
        self._rests = Rests(m, D)
        self._ring = np.empty((3, m, D)), np.empty((3, m))
        self._at = 0
        #: Length of the parts in which the sources take the next step.
        self._part = np.inf
        self._counts = {"steps_accepted": 0, "steps_rejected": 0, "divisions": 0}
        # Counts before the step that is taken.
        self._counted: dict[str, int] = {}
        self._division: Division | None = None
        self._last: Step | None = None
        self._dense: DenseOutput | None = None
        began = clock.perf_counter()
        self._now = self._begin(U, log_norm)
        #: Wall-clock seconds of the first evaluation, where compiled code is compiled or loaded.
        self.compile_seconds = clock.perf_counter() - began

    # --- the stepper's protocol -----------------------------------------------------------------------------

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the overlaps [C | G | ln n] at a time within the last step."""
        return overlap_state(*self.vectors(t), self.rows.teacher, self.rows.a.size, out, self.rows.products)

    def vectors(self, t: float) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at a time within the last step, both ends included."""
        check_inside(t, self._time if self._last is None else self._last.time, self._time)
        if t == self._time or self._dense is None:
            return self._now.U, self._now.log_norm
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

    def _copies(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of `state`; while a step is taken the next one makes their rests of the field anew."""
        rests, last = self._rests, self._last
        arrays: dict[str, NDArray[np.generic]] = {name: array.copy() for name, array in rests.arrays().items()}
        arrays |= {
            "U": self._now.U.copy(),
            "log_norm": self._now.log_norm.copy(),
            "time_and_step": np.array([self._time, self._h, self._part]),
            "events": np.stack([self._event_times, self._events]),
            "marks": np.array(self._marks),
            "counts": np.array(list((self._counted or self.statistics()).values())),
        }
        if last is not None:
            arrays |= last.arrays()
        return arrays

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem."""
        given = {name: np.array(array) for name, array in state.items()}
        check_stored(given, "U", self._now.U.shape)
        rests = self._rests
        rests.set_arrays(given)
        # In files of earlier versions steps have no parts.
        self._time, self._h, self._part = [*given["time_and_step"].tolist(), np.inf][:3]
        self._event_times, self._events = given["events"][0], given["events"][1]
        self._marks = given["marks"].tolist()
        counts = dict(zip(self.statistics(), given["counts"].tolist(), strict=True))
        for each in (self._counts, self.rows.counts):
            each.update({name: counts[name] for name in each})
        newest = rests.newest_first
        self._now = State(given["U"], given["log_norm"], rests.F[newest[0]], rests.growth[newest[0]])
        self._division, self._last, self._dense = None, None, None
        if "last" in given:
            division = self._divider.assemble(given["fast"], given["cluster"], given["sign"])
            self._division = division
            self.rows.fit(division)
            before = newest[1]
            begin = State(given["begin_U"], given["begin_log_norm"], rests.F[before], rests.growth[before])
            time, h, parts = [*given["last"].tolist(), 1][:3]
            how = given["pace"], given["drift"], rests.extrapolation(h, given["last_slots"]), int(parts)
            self._last = Step(time, h, begin, self._now, self._now, division, *how, given["leading"])
            self._dense = DenseOutput(self.rows, self._last)

    # --- one step -------------------------------------------------------------------------------------------

    def _begin(self, U: Array, log_norm: Array) -> State:
        """Start at a state: its field, its events, a first step short enough to be linear; return it."""
        slot = self._rests.free_slot()
        self._rests.keep(slot, self._time)
        self._rests.U[slot], self._rests.log_norm[slot] = U, log_norm
        now = self._rests.state(slot)
        self.rows.field(now.U, now.log_norm, now.F, now.growth)
        tolerance = self.rows.tolerance
        velocity = now.F - np.sum(now.F * U, axis=1)[:, None] * U
        rate = max(np.abs(velocity).max() * tolerance[1] / tolerance[0], 4.0 * np.abs(now.growth).max())
        self._h = 1e-2 / max(rate, 1e-290)
        self._events = self.rows.event_values(U, log_norm)
        record_crossings(
            self._event_times, self._events, self._events, (self._time, self._time), lambda _: self._events
        )
        return State(U, log_norm, now.F, now.growth)

    def _advance_once(self, target: float) -> Status | None:
        """Take one accepted step; return why that is impossible, or None.

        If `target` is inside, the dense output is computed with the step. Where that is not good enough, as with a
        stiff mode, the step ends at `target`, or after a fifth of its length if `target` comes before that.
        """
        self._counted = self.statistics()
        division, drift = self._prepare()
        h, part, rejected, planned = self._h, self._part, False, 0.0
        while True:
            failure = self._failure(h)
            if failure is not None:
                self._counted = {}
                return failure
            dense = self._lies_inside(target, h)
            step, error, error_within, part = self._try_rows(h, part, division, drift, dense=dense)
            if error <= 1.0 and error_within > DENSE_TOLERANCE:
                planned, h = planned or h, max(target - self._time, SMALLEST_FACTOR * h)
                continue
            if error <= 1.0:
                excess = self._settle(step)
                if excess <= LAG_REJECTION:
                    break
                factor = LAG_SAFETY * excess ** (-1.0 / (self._rests.newest_first.size + 1.0))
            else:
                factor = factor_of(error)
            self._counts["steps_rejected"] += 1
            h = shortened(h, factor)
            rejected, planned = True, 0.0
        factor = min(
            factor_of(max(error, 1e-12)),
            LAG_SAFETY * max(excess, 1e-12) ** (-1.0 / (self._rests.newest_first.size + 1.0)),
        )
        planned = planned or h * min(1.0 if rejected else LARGEST_FACTOR, max(SMALLEST_FACTOR, factor))
        self._part = part
        self._accept(step, min(planned, MOST_PARTS * part), dense=dense)
        return None

    def _prepare(self) -> tuple[Division, Array]:
        """Divide the neurons for the next step."""
        begin, h = (self._now, 1.0) if self._last is None else (self._last.begin, self._last.h)
        division, drift = self._divider.divide(self._now, begin, h, self._division)
        if division is not self._division:
            self._division = division
            self.rows.fit(division)
            self._counts["divisions"] += 1
            for slot in self._rests.newest_first.tolist():
                self._rests.subtract(slot, self.rows.partial)
        return division, drift

    def _attempt(self, h: float, parts: int, division: Division, drift: Array) -> Step:
        # The field where the stages end is written by `settle`, and the end itself.
        at, slot = (self._at + 1) % 3, self._rests.free_slot()
        reached = self._rests.state(slot)
        end = State(self._ring[0][at], self._ring[1][at], reached.F, reached.growth)
        pace = KAPPA / np.maximum(h * division.rates, KAPPA)
        rests = self._rests.extrapolation(h)
        return Step(self._time, h, self._now, reached, end, division, pace, drift, rests, parts, self._divider.leading)

    def _try_rows(
        self, h: float, part: float, division: Division, drift: Array, *, dense: bool
    ) -> tuple[Step, float, float, float]:
        """Compute the state after a step of length h, which sources take in parts of about the length `part`.

        Returned are the step, the error of the rows that limit its length and that of the dense output, in units of
        tolerances, 0 where none was asked for, and the length of parts in the next step.
        """
        rows, error, error_within = self.rows, 0.0, 0.0
        if division.sources.size == 0:
            step, part = self._attempt(h, 1, division, drift), np.inf
        else:
            step, error, error_within, part = self._try_sources(h, part, division, drift, dense=dense)
        # Most steps that fail do so here, before any other row has been touched.
        if error <= 1.0 and error_within <= DENSE_TOLERANCE:
            rows.run_others(step, dense=dense)
            others = np.max((rows.error, rows.error_within), axis=1, where=~division.fast, initial=0.0)
            error, error_within = float(others[0]), max(error_within, float(others[1])) if dense else 0.0
        return step, error, error_within, part

    def _try_sources(
        self, h: float, part: float, division: Division, drift: Array, *, dense: bool
    ) -> tuple[Step, float, float, float]:
        """Let the sources alone take a step, in more parts where the error is too large; see `_try_rows`."""
        parts = max(min(int(np.ceil(h / part * (1.0 - ROUNDING))), MOST_PARTS), 1)
        while True:
            step = self._attempt(h, parts, division, drift)
            error, error_within = self.rows.run_sources(step)
            error_within = error_within if dense else 0.0
            if parts == MOST_PARTS or (error <= 1.0 and error_within <= DENSE_TOLERANCE):
                longest = h / parts * max(SMALLEST_FACTOR, factor_of(max(error, 1e-12)))
                return step, error, error_within, min(longest, LARGEST_FACTOR * part)
            needed = parts / max(SMALLEST_FACTOR, factor_of(error)) if error > 1.0 else 0.0
            parts = max(min(int(np.ceil(needed)), MOST_PARTS), parts + 1)

    def _settle(self, step: Step) -> float:
        return settle(self.rows, self._rests, step, None if self._last is None else self._last.h, KAPPA)

    def _accept(self, step: Step, h: float, *, dense: bool) -> None:
        """Make a step the last one, all at once, and h the length of the next."""
        end, output = step.time + step.h, DenseOutput(self.rows, step, ready=dense)
        before, now, times = self._events, self.rows.event_values(step.end.U, step.end.log_norm), self.event_times
        passed = np.flatnonzero(np.isnan(times) & (now >= 0.0))
        if passed.size > 0:
            record_crossings(times, before, now, (step.time, end), output.events_at(passed, before))
        with self._whole:
            self._at = (self._at + 1) % 3
            self._last, self._now, self._dense = step, step.end, output
            self._time, self._h, self._event_times, self._events = end, h, times, now
            self._rests.keep(self._rests.free_slot(), end)
            self._counts["steps_accepted"] += 1
            self._mark()
            self._counted = {}
