"""The standard problem in packed form, bound to its arrays: what every library is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks import packed_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import dynamics


class PackedFlow:
    """Initial state and compiled functions of one problem; see `packed_kernels` for the layout."""

    def __init__(self, problem: dynamics.Problem) -> None:
        start = problem.start()
        self.width, self.num_directions = problem.width, problem.num_directions
        self.coefficients = np.array(problem.teacher.coefficients)
        squares = np.append(problem.activation.coefficients, np.zeros(4))[:5] ** 2
        self.link = float(squares[2]), float(squares[4])
        above = np.triu_indices(problem.width, 1)
        self.initial_state: NDArray[np.float64] = np.concatenate(
            [start.teacher_overlap.ravel(), start.student_overlap[above], np.log(start.squared_norm)]
        )
        m, P = self.width, self.num_directions
        self._work = np.empty(2 * m * P + 4 * m * m + 2 * m)
        self.evaluations = 0

    def rhs(self, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write y' into `out` and count the call."""
        self.evaluations += 1
        packed_kernels.rhs(y, out, self.coefficients, self.link, self.width, self.num_directions, self._work)

    def jacobian_diagonal(self, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the diagonal of the Jacobian into `out`."""
        packed_kernels.jacobian_diagonal(
            y, out, self.coefficients, self.link, self.width, self.num_directions, self._work
        )

    def event_values(self, y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write max_i C_ip² − ½ per direction into `out`."""
        packed_kernels.largest_square(y, out, self.width, self.num_directions)

    def loss(self, y: NDArray[np.float64]) -> float:
        """Return the mean squared error of a state."""
        return float(packed_kernels.loss(y, self.coefficients, self.link, self.width, self.num_directions, self._work))
