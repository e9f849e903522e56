"""Times within a step at which slow rows feel the fast sources, and the polynomial through what they feel there."""

from __future__ import annotations

import numpy as np

from hermite.arrays import Array

#: Nodes of a step, the extrema of the Chebyshev polynomial T_3 on [0, 1], both ends among them. With more of them
#: errors were the same: those of the rows, which are expected to move on evenly.
NODES: Array = np.array([0.0, 0.25, 0.75, 1.0])


#: Coefficients of the polynomial through values at the nodes: of power q, for each node, shape (nodes, nodes).
POWERS: Array = np.linalg.inv(np.vander(NODES, increasing=True)).astype(np.float64)
