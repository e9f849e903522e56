"""Times within a step at which slow rows feel the fast sources, and the polynomial through what they feel there."""

from __future__ import annotations

import numpy as np

from hermite.arrays import Array

#: Nodes of a step, the extrema of the Chebyshev polynomial T_4 on [0, 1], both ends among them. With four of them the
#: last coefficient of the polynomial was ten times as large, about the error of a step; with six, errors were the same:
#: those of the rows, which are expected to move on evenly.
NODES: Array = 0.5 - 0.5 * np.cos(0.25 * np.pi * np.arange(5))


#: Coefficients of the polynomial through values at the nodes: of power q, for each node, shape (nodes, nodes).
POWERS: Array = np.linalg.inv(np.vander(NODES, increasing=True)).astype(np.float64)
