"""The gradient of a neuron's own link; executed after the text that defines the link."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.links import sigma_and_slope


@kernel
def gradient(z: float, square: float, table: NDArray[np.float64]) -> float:
    """ψ = σ'(z)."""
    return sigma_and_slope(z)[1]
