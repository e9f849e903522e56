"""The part of a sample that laws of single draws need: z_i = θ·x_i and the label, for a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hermite import HermiteExpansion
    from hermite.arrays import Array

#: Keys of a seed's streams: the coordinate along the direction, the noise of the labels, and all other coordinates.
ALONG, NOISE, ACROSS = 1100, 1101, 1102


def stream(seed: int, key: int) -> np.random.Generator:
    """Return the generator of a seed for one of the keys."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(key,))))


def first_coordinates(link: HermiteExpansion, noise: float, samples: int, seed: int) -> tuple[Array, Array]:
    """Return z (n,) and y = σ(z) + τξ (n,) of a seed; a longer sample begins with a shorter one."""
    z = stream(seed, ALONG).standard_normal(samples)
    y = link.value(z)
    return z, y + noise * stream(seed, NOISE).standard_normal(samples) if noise > 0.0 else y
