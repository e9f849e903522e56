"""How many bad inputs there are: a slice in the gate, all with FULL_TESTS=1 in the environment."""

import os

FULL = bool(os.environ.get("FULL_TESTS"))
#: kind -> (in the gate, all)
COUNTS = {"arguments": (1, 6), "flags": (1, 5), "processes": (4, 50), "damaged": (16, 150), "hostile": (12, 120)}


def share(kind, parts=1):
    """Return how many inputs of a kind a test has that covers so many parts of it."""
    return COUNTS[kind][FULL] * parts
