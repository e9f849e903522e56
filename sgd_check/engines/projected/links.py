"""Links as generated source: the text of σ and σ' for the kernels of the projected engine.

The functions are declared here for readers and type checkers; `render` writes the text that defines them for one link,
from numbers and an allow-list of functions alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.compiler import Piece
from sgd_check.engines.link_forms import in_powers, simulated_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermite import HermiteExpansion
    from hermite.arrays import Array

# Up to this degree Horner's rule in powers of z loses at most two digits where the Gaussian has its mass.
HORNER_DEGREE = 12

_HEADER = ["import math", "", "import numpy as np", "", "from dynamics.compiler.compilation import kernel", ""]


def sigma(z: float) -> float:
    """σ(z)."""
    raise NotImplementedError


def sigma_and_slope(z: float) -> tuple[float, float]:
    """σ(z) and σ'(z)."""
    raise NotImplementedError


def render(expansion: HermiteExpansion) -> tuple[Piece, str]:
    """Return the source of `sigma` and `sigma_and_slope`, and one phrase saying what link it is, see `simulated_link`.

    A formula has its derivative almost everywhere; with a jump, whose derivative almost everywhere is not that of the
    loss, it counts as its Hermite series.

    Examples
    --------
    >>> import hermite
    >>> piece, name = render(hermite.expand("tanh(z)"))
    >>> name
    'tanh(z) (formula)'
    >>> piece.text.splitlines()[-3:]
    ['def sigma_and_slope(z):', '    t0 = np.tanh(z)', '    return t0, (1.0 + (-1.0 * (t0 ** 2)))']
    """
    coefficients = expansion.link_coefficients() if expansion.is_polynomial else expansion.coefficients
    body, name = simulated_link(expansion, lambda: _series(np.array(coefficients, dtype=np.float64)), _formula)
    return Piece("sampled link", "\n".join([*_HEADER, *body, ""])), name


def _series(coefficients: Array) -> list[str]:
    c = np.trim_zeros(coefficients, "b") if coefficients.any() else np.zeros(1)
    slope = np.append(np.sqrt(np.arange(1.0, c.size)) * c[1:], 0.0)
    return _horner(c, slope) if c.size - 1 <= HORNER_DEGREE else _recurrence(c, slope)


def _horner(c: Array, slope: Array) -> list[str]:
    value_lines, value = _powers("v", in_powers(c))
    slope_lines, derivative = _powers("d", in_powers(slope))
    return [
        "",
        *["@kernel", "def sigma(z):", "    q = z * z", *value_lines, f"    return {value}"],
        "",
        "",
        *["@kernel", "def sigma_and_slope(z):", "    q = z * z", *value_lines, *slope_lines],
        f"    return {value}, {derivative}",
    ]


def _powers(name: str, powers: Array) -> tuple[list[str], str]:
    """Return lines and the expression of Σ_j b_j z^j: Horner in q = z² where all powers have one parity, else in z."""
    kept = np.flatnonzero(powers)
    if kept.size == 0:
        return [], "0.0"
    one_parity = bool((kept % 2 == kept[0] % 2).all())
    lowest, stride, variable = (int(kept[0] % 2), 2, "q") if one_parity else (0, 1, "z")
    chain = [float(b) for b in powers[lowest : kept[-1] + 1 : stride]]
    lines = [f"    {name} = {chain[-1]!r}"]
    lines += [f"    {name} = {b!r} + {variable} * {name}" for b in reversed(chain[:-1])]
    return lines, f"{name} * z" if lowest else name


def _recurrence(c: Array, slope: Array) -> list[str]:
    """Sum by h_{j+1} = (z h_j − √j h_{j−1})/√(j+1), stable to degree 300."""
    loop = [
        "    before, now = 0.0, 1.0",
        "    value = slope = 0.0 * z",
        f"    for j in range({c.size}):",
        "        value += C[j] * now",
        "        slope += S[j] * now",
        "        before, now = now, (z * now - ROOTS[j] * before) / ROOTS[j + 1]",
    ]
    return [
        f"C = np.array({c.tolist()!r})",
        f"S = np.array({slope.tolist()!r})",
        f"ROOTS = np.sqrt(np.arange({c.size + 1}.0))",
        "",
        "",
        *["@kernel", "def sigma_and_slope(z):", *loop, "    return value, slope"],
        "",
        "",
        *["@kernel", "def sigma(z):", "    return sigma_and_slope(z)[0]"],
    ]


def _formula(expression: Any) -> list[str]:
    """Write a sympy formula in z and its derivative; NotImplementedError without a compiled form, as at a jump."""
    import sympy

    z = sympy.Symbol("z", real=True)
    value = expression.xreplace(dict.fromkeys(expression.free_symbols, z))
    names = {z: "z"}

    def lines(wanted: list[Any]) -> list[str]:
        shared, results = sympy.cse(wanted, symbols=sympy.numbered_symbols("t", real=True))
        names.update({symbol: str(symbol) for symbol, _ in shared})
        body = [f"    {symbol} = {_text(part, names)}" for symbol, part in shared]
        return [*body, f"    return {', '.join(_text(part, names) for part in results)}"]

    both = lines([value, value.diff(z)])
    return ["", "@kernel", "def sigma(z):", *lines([value]), "", "", "@kernel", "def sigma_and_slope(z):", *both]


def _text(expression: Any, names: dict[Any, str]) -> str:
    """Return the source of one sympy node."""
    if expression.is_Symbol:
        return names[expression]
    if not expression.free_symbols:
        return repr(float(expression))
    head = type(expression).__name__
    if head == "Pow" and expression.exp.is_Integer:
        return f"({_text(expression.base, names)} ** {int(expression.exp)})"
    if head not in _WRITERS:
        msg = f"no compiled form of {head}"
        raise NotImplementedError(msg)
    parts = expression.args[:1] if head == "Heaviside" else expression.args
    return _WRITERS[head]([_text(part, names) for part in parts])


def _call(name: str) -> Callable[[list[str]], str]:
    return lambda parts: f"{name}({', '.join(parts)})"


def _join(symbol: str) -> Callable[[list[str]], str]:
    return lambda parts: "(" + symbol.join(parts) + ")"


# Writers of sympy heads; a further function is one more line.
_WRITERS: dict[str, Callable[[list[str]], str]] = {
    "Add": _join(" + "),
    "Mul": _join(" * "),
    "Pow": _join(" ** "),
    **{name: _call(f"np.{name}") for name in ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sign")},
    "atan": _call("np.arctan"),
    "erf": _call("math.erf"),
    "erfc": _call("math.erfc"),
    "Abs": _call("abs"),
    "Max": _call("max"),
    "Min": _call("min"),
    "Heaviside": lambda parts: f"(0.5 * (np.sign({parts[0]}) + 1.0))",
}
