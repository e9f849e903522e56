"""Dense output of a step of the large-flow solver, and the values of events inside it.

Where its coefficients were not computed with the step, the rows go once more through the stages when it is asked for:
at events the deciding ones alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators.large_flow.event_kernels import events_inside, interpolate_rows, mass_of_rest
from dynamics.integrators.large_flow.sources import SourcesInside
from dynamics.threads.workers import GRAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.integrators.large_flow.rows import Rows, Step
    from hermite.arrays import Array, Integers

#: Squared overlap above which a neuron can decide when a direction emerges or is learned.
DECIDES = 0.1


class DenseOutput:
    """The polynomial inside one step; `ready` says that its coefficients were computed with the step."""

    def __init__(self, rows: Rows, step: Step, *, ready: bool = False) -> None:
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
        U, log_norm = np.empty_like(step.begin.U), np.empty_like(step.begin.log_norm)
        x = (t - step.time) / step.h

        def part(begin: int, end: int) -> None:
            interpolate_rows(begin, end, x, step.begin.vectors, step.end.vectors, passes.dense, (U, log_norm))

        passes.workers.over_rows(part)
        sources = step.division.sources
        if sources.size > 0:
            inside, states = self._of_sources().part_at(x)
            vectors, logs = np.empty((sources.size, U.shape[1])), np.empty(sources.size)
            interpolate_rows(0, sources.size, inside, *states, (vectors, logs))
            U[sources], log_norm[sources] = vectors, logs
        return U, log_norm

    def events_at(self, passed: Integers, before: Array) -> Callable[[float], Array]:
        """Return a function of t with the values of all events, right for those in `passed` alone.

        Only neurons near a direction decide when it emerges or is learned: their polynomials and a cubic through the
        small share of all others are enough.
        """
        passes, step = self._rows, self._step
        directions = np.unique(passed % passes.a.size)
        near = (step.end.U[:, directions] ** 2 > DECIDES).any(axis=1)
        deciding, others = np.flatnonzero(near), np.flatnonzero(~near)
        self._prepare(np.unique(self._block_of(deciding)))
        shares = {int(p): self._share(others, int(p)) for p in directions}
        fast = step.division.fast[deciding]
        rows, sources = deciding[~fast], np.searchsorted(step.division.sources, deciding[fast])
        values = before.copy()

        def values_at(t: float) -> Array:
            x = (t - step.time) / step.h
            for p in directions.tolist():
                emergence, mass = self._deciding_events(rows, sources, p, x)
                values[p] = emergence
                values[passes.a.size + p] = mass + shares[p](x)
            return values

        return values_at

    def _block_of(self, rows: Integers) -> Integers:
        """Return the block in which each row is visited."""
        division = self._step.division
        order = division.order
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        return np.searchsorted(division.cuts, place[rows], side="right") - 1

    def _prepare(self, blocks: Integers) -> None:
        """Write the coefficients of some blocks, and of the sources, on which all depend."""
        if self._step.division.sources.size > 0:
            blocks = np.union1d(blocks, 0)
        missing = blocks[~self._ready[blocks]]
        self._rows.write_dense(self._step, missing)
        self._ready[missing] = True

    def _deciding_events(self, rows: Integers, sources: Integers, p: int, x: float) -> tuple[float, float]:
        """Return the two events of direction p, computed from some rows and some sources alone."""
        step, passes = self._step, self._rows
        out, of_sources = np.empty(2), np.zeros(2)
        how = p, x, passes.sign_matters
        events_inside(passes.link, rows, *how, step.begin.vectors, step.end.vectors, passes.dense, out)
        if sources.size > 0:
            inside, states = self._of_sources().part_at(x)
            events_inside(passes.link, sources, p, inside, passes.sign_matters, *states, of_sources)
        mass = float(out[1] + of_sources[1])
        return float(max(out[0], of_sources[0])) - 0.5, mass - 0.5 * float(passes.a[p])

    def _of_sources(self) -> SourcesInside:
        """Return the states of the sources inside the step, which `_prepare` has computed."""
        self._sources = self._sources or SourcesInside(self._rows.sources, self._step)
        return self._sources

    def _share(self, rows: Integers, p: int) -> Callable[[float], float]:
        """Return the cubic x -> Σ n g(C_p)/g(1) over some rows."""
        step, parts = self._step, range(0, rows.size, GRAIN)
        sums = np.zeros((2, len(parts), 2))

        def share(begin: int, end: int) -> None:
            for part, chosen in enumerate(parts[begin:end], begin):
                for side, state in enumerate((step.begin, step.end)):
                    mass_of_rest(self._rows.link, rows[chosen : chosen + GRAIN], p, state.whole, sums[side, part])

        self._rows.workers.over_parts(len(parts), share)
        (first, rate_0), (last, rate_1) = sums.sum(axis=1).tolist()
        rise = last - first
        left, right = step.h * rate_0 - rise, rise - step.h * rate_1
        return lambda x: float(first + x * rise + x * (1.0 - x) * ((1.0 - x) * left + x * right))
