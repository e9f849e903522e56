"""How visible directions are to SGD and to labels: generative exponents, leaps, `python -m hermite.exponents`."""

from typing import Any

#: What this path held before it became a room; it is in `hermite.zero_coefficients`.
_FORMER = ("information_exponent", "parity", "zero_tolerance")


def __getattr__(name: str) -> Any:
    """Return a function that this path held before."""
    if name not in _FORMER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from hermite import zero_coefficients

    return getattr(zero_coefficients, name)
