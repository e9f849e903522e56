"""Dense output of a step of the large-flow solver, and what its events need of it.

Responsible for the polynomial of order 7 inside the last step.  Where its coefficients were not computed
with the step, the rows go once more through the stages when it is asked for: at events the fast sources alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dynamics.large_flow.rows import Rows, Step

    Array = NDArray[np.float64]

__all__ = ["DenseOutput"]

#: Squared overlap above which a neuron can decide when a direction emerges or is learned.
DECIDES = 0.1


class DenseOutput:
    """The polynomial inside one step.

    Parameters
    ----------
    rows : Rows
    step : Step
    ready : bool
        Whether the coefficients were computed with the step.
    """

    def __init__(self, rows: Rows, step: Step, *, ready: bool = False) -> None:
        self._rows = rows
        self._step = step
        self._rows_ready = self._sources_ready = ready

    def at(self, t: float) -> tuple[Array, Array]:
        """Return unit vectors and ln n at a time within the step."""
        step, passes = self._step, self._rows
        if t == step.time:
            return step.begin.U, step.begin.log_norm
        self._prepare_sources()
        if not self._rows_ready:
            passes.run_stages(step, sources_only=False, dense=True, again=True)
            self._rows_ready = True
        U, log_norm = np.empty_like(step.begin.U), np.empty_like(step.begin.log_norm)
        x = (t - step.time) / step.h

        def part(begin: int, end: int) -> None:
            passes.kernels.interpolate_rows(
                begin, end, x, step.begin.U, step.begin.log_norm, step.end.U, step.end.log_norm,
                *passes.dense, U, log_norm,
            )  # fmt: skip

        passes.workers.over_rows(part)
        return U, log_norm

    def events_at(self, passed: NDArray[np.int64], before: Array) -> Callable[[float], Array]:
        """Return the function t -> values of all events, of which those in `passed` are meant.

        Only neurons near a direction decide when it emerges or is learned. Where all of them are fast sources, their
        polynomials and a cubic through the small share of the others are enough.
        """
        passes, step = self._rows, self._step
        directions = np.unique(passed % passes.num_directions)
        near = (step.end.U[:, directions] ** 2 > DECIDES).any(axis=1)
        if not step.division.fast[near].all():
            return lambda t: passes.event_values(*self.at(t))
        self._prepare_sources()
        shares = {int(p): self._share_of_others(int(p)) for p in directions}
        values = before.copy()

        def values_at(t: float) -> Array:
            x = (t - step.time) / step.h
            for p in directions.tolist():
                emergence, mass = self._source_events(p, x)
                values[p] = emergence
                values[passes.num_directions + p] = mass + shares[p](x)
            return values

        return values_at

    def _prepare_sources(self) -> None:
        if not self._sources_ready and self._step.division.sources.size > 0:
            self._rows.run_stages(self._step, sources_only=True, dense=True, again=True)
        self._sources_ready = True

    def _source_events(self, p: int, x: float) -> tuple[float, float]:
        """Return the two events of direction p as the fast sources alone make them."""
        step, passes = self._step, self._rows
        rows = step.division.sources
        C = _along(passes.dense[0][:, rows, p], step.begin.U[rows, p], step.end.U[rows, p], x)
        log_norm = _along(passes.dense[1][:, rows], step.begin.log_norm[rows], step.end.log_norm[rows], x)
        size = np.maximum(C, 0.0) if passes.sign_matters else C
        return float(np.max(size**2, initial=0.0)) - 0.5, passes.mass(C, log_norm) - 0.5 * passes.coefficient(p)

    def _share_of_others(self, p: int) -> Callable[[float], float]:
        """Return the cubic x -> Σ n g(C_p)/g(1) over all neurons but the sources."""
        step = self._step
        ends = []
        for state in (step.begin, step.end):
            out = np.empty(2)
            self._rows.kernels.mass_of_rest(
                step.division.slow_or_clustered, p, state.U, state.log_norm, state.F, state.growth, out
            )
            ends.append(out)
        (first, rate_0), (last, rate_1) = ends
        rise = last - first
        left, right = step.h * rate_0 - rise, rise - step.h * rate_1
        return lambda x: float(first + x * rise + x * (1.0 - x) * ((1.0 - x) * left + x * right))


def _along(coefficients: Array, start: Array, end: Array, x: float) -> Array:
    """Return the polynomial of the step, row by row, as `pause_kernels.interpolate_rows` does."""
    value = coefficients[6]
    for q in range(5, -1, -1):
        value = coefficients[q] + (x if q % 2 == 1 else 1.0 - x) * value
    result: Array = start + x * value + x * x * (3.0 - 2.0 * x) * (end - start - coefficients[0])
    return result
