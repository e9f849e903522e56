"""Links as generated source: the text of σ and σ' for the kernels of the projected engine.

The functions are declared here for readers and type checkers; `render` writes the text that defines them for one link,
from numbers and an allow-list of functions alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.compiler import Piece
from sgd_check.engines.link_forms import PIECE_WIDTH, TABLE_END, in_powers, link_anywhere, simulated_link

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
    return link_piece(body), name


def render_anywhere(expansion: HermiteExpansion, suffix: str = "", *, slope: bool = True) -> tuple[list[str], str]:
    """Return the lines that define a link of a network, and one phrase saying what it is, see `link_anywhere`.

    They define `sigma` and `sigma_and_slope`, both with the suffix; without `slope` only the former is of use, and
    a formula may have jumps.
    """
    return link_anywhere(
        expansion,
        lambda c: _series(np.array(c, dtype=np.float64), suffix),
        lambda expression: _formula(expression, suffix, slope=slope),
        lambda table: _table(table, suffix),
    )


def link_piece(body: list[str]) -> Piece:
    """Return lines that define links as a piece of source."""
    return Piece("sampled link", "\n".join([*_HEADER, *body, ""]))


def _series(coefficients: Array, suffix: str = "") -> list[str]:
    c = np.trim_zeros(coefficients, "b") if coefficients.any() else np.zeros(1)
    slope = np.append(np.sqrt(np.arange(1.0, c.size)) * c[1:], 0.0)
    return _horner(c, slope, suffix) if c.size - 1 <= HORNER_DEGREE else _recurrence(c, slope, suffix)


def _horner(c: Array, slope: Array, suffix: str) -> list[str]:
    value_lines, value = _powers("v", in_powers(c))
    slope_lines, derivative = _powers("d", in_powers(slope))
    return [
        "",
        *["@kernel", f"def sigma{suffix}(z):", "    q = z * z", *value_lines, f"    return {value}"],
        "",
        "",
        *["@kernel", f"def sigma_and_slope{suffix}(z):", "    q = z * z", *value_lines, *slope_lines],
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


def _recurrence(c: Array, slope: Array, suffix: str) -> list[str]:
    """Sum by h_{j+1} = (z h_j − √j h_{j−1})/√(j+1), stable to degree 300."""
    loop = [
        "    before, now = 0.0, 1.0",
        "    value = slope = 0.0 * z",
        f"    for j in range({c.size}):",
        f"        value += C{suffix}[j] * now",
        f"        slope += S{suffix}[j] * now",
        f"        before, now = now, (z * now - ROOTS{suffix}[j] * before) / ROOTS{suffix}[j + 1]",
    ]
    return [
        f"C{suffix} = np.array({c.tolist()!r})",
        f"S{suffix} = np.array({slope.tolist()!r})",
        f"ROOTS{suffix} = np.sqrt(np.arange({c.size + 1}.0))",
        *_value_from_both(loop, suffix),
    ]


def _table(table: Array, suffix: str) -> list[str]:
    """Look the piece of the table up in which z lies, with the tangent at an end beyond it; see `tabulated`."""
    pieces, terms = table.shape
    loop = [
        f"    inside = min(max(z, {-TABLE_END}), {TABLE_END})",
        f"    scaled = (inside + {TABLE_END}) * {1.0 / PIECE_WIDTH}",
        f"    k = min(int(scaled), {pieces - 1})",
        "    u = 2.0 * (scaled - k) - 1.0",
        f"    value, slope = TABLE{suffix}[k, {terms - 1}], 0.0",
        f"    for j in range({terms - 2}, -1, -1):",
        "        slope = slope * u + value",
        f"        value = value * u + TABLE{suffix}[k, j]",
        f"    slope *= {2.0 / PIECE_WIDTH}",
        "    value += slope * (z - inside)",
    ]
    return [f"TABLE{suffix} = np.array({table.tolist()!r})", *_value_from_both(loop, suffix)]


def _value_from_both(lines: list[str], suffix: str) -> list[str]:
    """Return both functions of a link whose value and slope are found together."""
    return [
        "",
        "",
        *["@kernel", f"def sigma_and_slope{suffix}(z):", *lines, "    return value, slope"],
        "",
        "",
        *["@kernel", f"def sigma{suffix}(z):", f"    return sigma_and_slope{suffix}(z)[0]"],
    ]


def _formula(expression: Any, suffix: str = "", *, slope: bool = True) -> list[str]:
    """Write a sympy formula in z and its derivative; NotImplementedError without a compiled form, as at a jump."""
    import sympy

    z = sympy.Symbol("z", real=True)
    value = expression.xreplace(dict.fromkeys(expression.free_symbols, z))
    names = {z: "z"}

    def lines(name: str, wanted: list[Any]) -> list[str]:
        shared, results = sympy.cse(wanted, symbols=sympy.numbered_symbols("t", real=True))
        names.update({symbol: str(symbol) for symbol, _ in shared})
        body = [f"    {symbol} = {_text(part, names)}" for symbol, part in shared]
        head = ["", "@kernel", f"def {name}{suffix}(z):"]
        return [*head, *body, f"    return {', '.join(_text(part, names) for part in results)}"]

    both = ["", *lines("sigma_and_slope", [value, value.diff(z)])] if slope else []
    return [*lines("sigma", [value]), *both]


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
