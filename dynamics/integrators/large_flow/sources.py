"""The fast sources of a step, which take it in several parts before any other row begins.

They decide how long a step can be: without them it could be twice as long. Nothing that they feel within a step
depends on the other rows, so the step is divided into equal parts for them alone, each with the stages, the error and
the dense output of a step of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.integrators.explicit.dop853_tableau import DOP853_C
from dynamics.integrators.large_flow.nodes import NODES
from dynamics.integrators.large_flow.source_kernels import LAST_STAGE, TOGETHER, place_sources, step_sources

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dynamics.integrators.large_flow.division import Division
    from dynamics.integrators.large_flow.rows import Step
    from dynamics.threads.workers import Workers
    from hermite.arrays import Array

#: Parts of a step at most. With 2, 3, 4 and 8 of them 256 directions take 721, 621, 608 and 607 steps, and 1067 with 1.
MOST_PARTS = 4
#: Products of numbers in the forces of the sources on each other from which on threads share each of their stages: a
#: call in two threads takes some 50 microseconds more.
SMALLEST_SHARED_STAGE = 400_000
#: Fractions of a step at which other rows feel them: at every stage where they are near, at the nodes where not.
_TIMES = np.concatenate([DOP853_C, NODES])


class Sources:
    """States, stages and dense output of the fast sources of one division, for `rows` in D columns.

    `precision` is that of the vectors at the nodes.
    """

    def __init__(self, workers: Workers, division: Division, columns: int, precision: type) -> None:
        self._workers = workers
        self.rows = division.sources
        self._plan = division.plan
        S, D, stages, count = self.rows.size, columns, LAST_STAGE + 1, NODES.size if self.rows.size else 0
        #: States at the ends of parts, and the dense output of each.
        self.ends = np.empty((MOST_PARTS + 1, S, D)), np.empty((MOST_PARTS + 1, S))
        self.dense = np.empty((MOST_PARTS, 7, S, D)), np.empty((MOST_PARTS, 7, S))
        # Vectors and masses at the stages of one part, and the stages.
        self._at_stages = np.empty((stages, S, D)), np.empty((stages, S))
        self._stages = np.empty((stages, S, D)), np.empty((stages, S))
        self._times = _TIMES[: stages + count]
        self._placed = np.empty((self._times.size, S, D)), np.empty((self._times.size, S))
        #: Vectors and masses at the stages of the whole step.
        self.at_stages = self._placed[0][:stages], self._placed[1][:stages]
        #: Times of the nodes, vectors and masses there.
        at_nodes: NDArray[np.floating[Any]] = np.empty((count, S, D), precision)
        self.at_nodes = self._times[stages:], at_nodes, self._placed[1][stages:]

    def run(self, step: Step, tolerance: Array) -> tuple[Array, Array]:
        """Run the sources through the parts of a step; return the largest errors of each, of ends and inside.

        Both are in units of tolerances. After a part with too large an error the others are left out.
        """
        (vectors, mass), (ends, log_ends), (dense, growth_dense) = self._at_stages, self.ends, self.dense
        S, D = ends.shape[1:]
        groups, leading = -(-S // TOGETHER), step.leading[self.rows]
        path = vectors, mass, *self._stages
        error, error_within = np.zeros((step.parts, S)), np.zeros((step.parts, S))
        ends[0], log_ends[0] = step.begin.U[self.rows], step.begin.log_norm[self.rows]
        for part in range(step.parts):
            vectors[0], mass[0] = ends[part], np.exp(log_ends[part])

            def run(first: int, last: int, begin: int, end: int, part: int = part) -> None:
                reached = ends[part + 1], log_ends[part + 1], error[part], error_within[part], tolerance, leading
                step_sources(
                    (first, last, begin, end), (step.h / step.parts, part, step.parts), (ends[part], log_ends[part]),
                    step.rests.arrays(), path, reached, (dense[part], growth_dense[part]), self._plan,
                )  # fmt: skip

            if S * S * D < SMALLEST_SHARED_STAGE:
                run(0, LAST_STAGE, 0, groups)
            else:
                for stage in range(LAST_STAGE + 1):
                    self._workers.over_parts(groups, partial(run, stage, stage))
            if not error[part].max() <= 1.0:
                break
        return error.max(axis=0), error_within.max(axis=0)

    def place(self, parts: int) -> None:
        """Write where the sources are at the stages of the whole step and at its nodes."""
        dense, growth_dense = self.dense

        def place(begin: int, end: int) -> None:
            place_sources(begin, end, self._times, self.ends, (dense[:parts], growth_dense[:parts]), self._placed)

        self._workers.over_parts(self.rows.size, place)
        self.at_nodes[1][...] = self._placed[0][LAST_STAGE + 1 :]

    def end(self, parts: int) -> tuple[Array, Array]:
        """Return the unit vectors and ln n at the end of a step."""
        return self.ends[0][parts], self.ends[1][parts]


class SourcesInside:
    """The states of the sources within an accepted step, part by part.

    What they are corrected by at the end of the step comes in as x² (3 − 2 x), at the ends of parts and within each.
    """

    def __init__(self, sources: Sources, step: Step) -> None:
        self._rows, self._parts, self._dense = sources.rows, step.parts, sources.dense
        x = np.arange(step.parts + 1) / step.parts
        late = x * x * (3.0 - 2.0 * x)
        U, log_norm = sources.end(step.parts)
        ends, log_ends = sources.ends
        self._ends = ends[: late.size] + late[:, None, None] * (step.end.U[self._rows] - U)
        self._log_ends = log_ends[: late.size] + late[:, None] * (step.end.log_norm[self._rows] - log_norm)

    def part_at(self, x: float) -> tuple[float, tuple[tuple[Array, Array], tuple[Array, Array], tuple[Array, Array]]]:
        """Return where the fraction x of the step lies within its part, and what kernels ask of that.

        Those are the states at its beginning and at its end, (U, ln n), and its dense output.
        """
        part = min(int(x * self._parts), self._parts - 1)
        begin, end = (self._ends[part], self._log_ends[part]), (self._ends[part + 1], self._log_ends[part + 1])
        return x * self._parts - part, (begin, end, (self._dense[0][part], self._dense[1][part]))
