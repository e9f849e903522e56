"""The refusal of starts at which two neurons are alike, so that no flow would ever tell them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hermite.arrays import Array

#: Rounding of overlaps in units of their size.
ROUNDING = 1e-14


def check_no_ties(v: Array, b: Array, M: Array, Q: Array) -> None:
    """Raise ValueError if exchanging two neurons changes nothing: they stay alike under the flow, not under SGD."""
    own = np.column_stack([v, b, M, np.diag(Q)])
    for i in range(1, len(v)):
        for j in np.flatnonzero(_alike(own[:i], own[i])).tolist():
            others = np.delete(Q, (i, j), axis=1)
            if _alike(others[[j]], others[i])[0]:
                msg = (
                    "Argument `problem` must start every two neurons apart, in second layer, bias, or overlaps with "
                    f"the teacher and the other neurons, but neurons {j} and {i} start alike: the flow would keep "
                    "them so for ever, which SGD does not."
                )
                raise ValueError(msg)


def _alike(rows: Array, row: Array) -> NDArray[np.bool_]:
    """Return per row whether it equals `row` up to rounding."""
    distance = np.abs(rows - row).max(axis=1, initial=0.0)
    alike: NDArray[np.bool_] = distance <= ROUNDING * np.abs(row).max(initial=0.0)
    return alike
