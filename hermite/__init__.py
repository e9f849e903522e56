"""Exact mathematics of Gaussian expansions.

Responsible for expanding a link function in the normalised Hermite polynomials h_j = He_j / sqrt(j!). Knows
numpy, scipy, sympy and mpmath (on which sympy itself depends); knows nothing of teachers, students or flows.
Importing it is light: names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermite.entrance import expand
    from hermite.expansion import HermiteExpansion

__all__ = ["HermiteExpansion", "expand"]

_HOME = {"HermiteExpansion": "hermite.expansion", "expand": "hermite.entrance"}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    msg = f"module 'hermite' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
