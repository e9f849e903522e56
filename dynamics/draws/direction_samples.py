"""Samples of one direction, drawn from seeds: coordinates along it, labels, and streams for all other coordinates."""

from __future__ import annotations

import numpy as np

from hermite import HermiteExpansion
from hermite.arrays import Array

#: Keys of a seed's streams: the coordinate along the direction, the noise of the labels, and all other coordinates.
ALONG, NOISE, ACROSS = 1100, 1101, 1102


def stream(seed: int, key: int) -> np.random.Generator:
    """Return the random generator of a seed for one of the keys `ALONG`, `NOISE` and `ACROSS`."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(key,))))


def first_coordinates(link: HermiteExpansion, noise: float, samples: int, seed: int) -> tuple[Array, Array]:
    """Return coordinates z (n,) along the direction and labels y = σ(z) + τξ (n,), drawn for a seed.

    τ is `noise` and ξ ~ N(0, 1). A longer sample begins with a shorter one of the same seed.
    """
    z = stream(seed, ALONG).standard_normal(samples)
    return z, link.value(z) + (noise * stream(seed, NOISE).standard_normal(samples) if noise > 0.0 else 0.0)
