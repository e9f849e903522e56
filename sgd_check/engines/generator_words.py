"""The state of numpy's generator SFC64 as six integers, so that it can travel in a file.

Knows generators alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["set_words", "words_of"]


def words_of(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the four words of an SFC64, and whether half of one is left over, and which."""
    state: Any = generator.bit_generator.state
    return np.array([*state["state"]["state"].tolist(), state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def set_words(generator: np.random.Generator, words: NDArray[np.generic]) -> None:
    """Put an SFC64 where `words_of` found one.

    Examples
    --------
    >>> one, other = (np.random.Generator(np.random.SFC64(seed)) for seed in (1, 2))
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
