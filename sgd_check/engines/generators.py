"""The random generators of a seed, numpy's SFC64, and their state as six integers that a file can hold.

Each stream of a seed has a key of its own, apart from the plain seed, which draws the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Keys of the streams: coordinates and lengths of projected samples and of diffusion steps, and projected label noise;
#: samples in R^d; the order in which samples that are used again are visited.
AXES, LENGTHS, LABEL_NOISE, SAMPLES, ORDER = 0, 1, 2, 1000, 1001


def generators(seed: int, keys: Iterable[int]) -> list[np.random.Generator]:
    """Return one generator of a seed for each key; generators of other seeds or keys are independent."""
    children = [np.random.SeedSequence(seed, spawn_key=(key,)) for key in keys]
    return [np.random.Generator(np.random.SFC64(child)) for child in children]


def words_of(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the four words of an SFC64, and whether half of one is left over, and which."""
    state: Any = generator.bit_generator.state
    return np.array([*state["state"]["state"].tolist(), state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def set_words(generator: np.random.Generator, words: NDArray[np.generic]) -> None:
    """Put an SFC64 where `words_of` found one.

    Examples
    --------
    >>> one, other = generators(1, [AXES, LENGTHS])
    >>> set_words(other, words_of(one))
    >>> bool(one.random() == other.random())
    True
    """
    generator.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array(words[:4], dtype=np.uint64)},
        "has_uint32": int(words[4]),
        "uinteger": int(words[5]),
    }
