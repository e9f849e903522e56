"""The link's kernel g(s) = Σ_j c_j² s^j with its first two derivatives, as generated source with the numbers inside.

The functions are declared here for readers and type checkers; `render` writes the text that defines g and its
derivatives for one link, `render_learned` that of the kernel of learned masses. Constants in the text let the compiler
unroll and vectorise the polynomial.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dynamics.compiler.compilation import Piece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.problem.learned import LearnedPart

LONGEST_PRODUCT = 8


def g0(s: float) -> float:
    """g(s) = E[σ(u·x) σ(v·x)] at u·v = s."""
    raise NotImplementedError


def g1(s: float) -> float:
    """g'(s)."""
    raise NotImplementedError


def g2(s: float) -> float:
    """g''(s)."""
    raise NotImplementedError


def learned_kernel(s: float) -> float:
    """g_3(s) = Σ_{j≥3} c_j² s^j, the kernel of learned masses (Σ_{j≥0} where all degrees count); NaN if it is 0."""
    raise NotImplementedError


def link_pieces(problem: Problem) -> tuple[Piece, Piece]:
    """Return the source of g0, g1, g2 and of learned_kernel for the link of a problem."""
    return render(problem.activation.coefficients), render_learned(problem.learned_part)


def render(coefficients: NDArray[np.float64]) -> Piece:
    """Return the source of g0, g1, g2 for c_0 … c_N.

    Examples
    --------
    >>> import numpy as np
    >>> render(np.array([0.0, 0.0, 1.0])).text.splitlines()[5]
    '    return (1.0) * s * s'
    """
    return _rendered(tuple(coefficients.tolist()))


def render_learned(part: LearnedPart) -> Piece:
    """Return the source of learned_kernel for the part of a link that counts.

    Examples
    --------
    >>> import hermite
    >>> from dynamics.problem.learned import LearnedPart
    >>> render_learned(LearnedPart.of(hermite.expand({1: 1.0, 3: 1.0}))).text.splitlines()[-1]
    '    return (1.0) * s * s * s'
    >>> render_learned(LearnedPart.of(hermite.expand("he2"))).text.splitlines()[-1]
    '    return np.nan * s'
    """
    weights = (part.coefficients**2).tolist()
    body = _polynomial_body(weights) if part.is_defined else ["    return np.nan * s"]
    head = ["import numpy as np", "", "from dynamics.compiler.compilation import kernel", "", ""]
    return Piece("learned kernel", "\n".join([*head, "@kernel", "def learned_kernel(s):", *body]) + "\n")


@lru_cache(maxsize=64)
def _rendered(coefficients: tuple[float, ...]) -> Piece:
    weights = [c**2 for c in coefficients]
    lines = ["from dynamics.compiler.compilation import kernel", ""]
    for order in range(3):
        lines += [
            "",
            "@kernel",
            f"def g{order}(s):",
            *_polynomial_body(weights),
            "",
        ]
        weights = [j * w for j, w in enumerate(weights)][1:] or [0.0]
    return Piece("link kernel", "\n".join(lines) + "\n")


def _polynomial_body(weights: list[float]) -> list[str]:
    """Horner in s, or in s² when all powers have the parity of the lowest one, times that lowest power."""
    powers = [j for j, w in enumerate(weights) if w != 0.0]
    if not powers:
        return ["    return 0.0 * s"]
    lowest = powers[0]
    stride = 2 if all((j - lowest) % 2 == 0 for j in powers) else 1
    chain = weights[lowest : powers[-1] + 1 : stride]
    lines = ["    q = s * s"] if stride == 2 and len(chain) > 1 else []
    text = repr(chain[-1])
    if len(chain) > 1:
        lines.append(f"    v = {text}")
        lines += [f"    v = {w!r} + {'q' if stride == 2 else 's'} * v" for w in reversed(chain[:-1])]
        text = "v"
    factor = " * s" * lowest if lowest <= LONGEST_PRODUCT else f" * s ** {lowest}"
    return [*lines, f"    return ({text}){factor}"]
