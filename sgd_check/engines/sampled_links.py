"""A link that is sampled, σ and σ', as data, and compiled functions that evaluate it for many numbers at once.

The data are a flat array [family, registers, place of σ', σ …, σ' …]. A family stores

- LOW and HIGH: polynomials, each of σ and σ' by `LOW_TERMS` or `HIGH_TERMS` coefficients of powers of z, z^0 first;
- BENT: the slopes of σ above and below 0, where it is 0;
- TABLE: pieces and powers of `hermite.piecewise.pieces_of`, then the table, row by row;
- SERIES: for each j the Hermite coefficients of σ and σ', 1/√(j+1) and √(j/(j+1));
- PROGRAM: two of `sgd_check.engines.programs`, of σ, and of σ and σ' together, for any other formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dynamics.equations.network.points import piece_at
from dynamics.kernels.jit import inlined_kernel, kernel, vector
from hermite import HermiteExpansion
from hermite.arrays import Array, Vector
from hermite.polynomials import differentiate, padded, trimmed
from hermite.text.formulas import FORMULAS
from sgd_check.engines import programs as p
from sgd_check.engines.problem_forms import in_powers, simulated_link
from sgd_check.engines.programs import formula_program, in_z

LOW, HIGH, BENT, TABLE, SERIES, PROGRAM = range(6)
# Places in the data of a link.
FAMILY, REGISTERS, SLOPE, VALUE = range(4)
# Up to degree 12 Horner's rule loses at most two digits where the Gaussian has its mass.
LOW_TERMS, HIGH_TERMS, HORNER_DEGREE = 6, 14, 12
# Slopes above and below 0.
BENT_LINKS = {"relu": (1.0, 0.0), "leaky_relu": (1.0, 0.01), "abs": (1.0, -1.0)}
# Numbers that a series or a program treats at a time, and those below which it treats them one by one.
BLOCK, FEW = 128, 4


def sampled_link(expansion: HermiteExpansion, *, anywhere: bool = False, slope: bool = True) -> tuple[Array, str]:
    """Return the data of a link as a flat array, and one phrase that names the link that is simulated.

    `anywhere` asks for values at any z, not only where the unit Gaussian has its mass; `slope` False asks for σ alone.
    A formula with a jump is simulated by its Hermite series; without `slope`, as it is.

    Examples
    --------
    >>> import hermite
    >>> data, name = sampled_link(hermite.expand("relu"))
    >>> data.tolist(), name
    ([2.0, 0.0, 3.0, 1.0, 0.0], 'relu (formula)')
    """
    return simulated_link(
        expansion,
        _series,
        lambda expression: _formula(expression, slope=slope),
        (lambda table: _data(TABLE, [*table.shape, *table.ravel()])) if anywhere else None,
    )


@kernel
def scratch_size(link: Vector, size: int) -> int:
    """Return the number of scratch numbers that a link needs for up to `size` values."""
    return int(link[REGISTERS]) * min(size, BLOCK)


def _data(family: int, value: Sequence[float] | Array, both: Sequence[float] = (), registers: float = 0.0) -> Array:
    """Return the data of a link; without `both` one place holds σ and σ'."""
    place = VALUE + (len(value) if both else 0)
    return np.array([family, registers, place, *value, *both], dtype=np.float64)


def _series(coefficients: object) -> Array:
    """Return the data, a flat array (see the top of this module), of the link Σ_j c_j h_j(z) with `coefficients` c_j.

    Up to degree `HORNER_DEGREE` the data are σ and σ' in powers of z, of family LOW or HIGH. Beyond it they are the
    coefficients of both in h_j and the numbers of the recurrence of h_j, of family SERIES.
    """
    c = np.array(trimmed(np.asarray(coefficients)))
    slope = padded(differentiate(c), c.size)
    if c.size - 1 <= HORNER_DEGREE:
        terms = LOW_TERMS if c.size <= LOW_TERMS else HIGH_TERMS
        both = [padded(in_powers(series), terms).tolist() for series in (c, slope)]
        return _data(LOW if terms == LOW_TERMS else HIGH, *both)
    j = np.arange(float(c.size))
    rows = np.stack([c, slope, 1.0 / np.sqrt(j + 1.0), np.sqrt(j / (j + 1.0))], axis=1)
    return _data(SERIES, rows.ravel(), registers=2.0)


def _formula(expression: object, *, slope: bool) -> Array:
    """Return the data of a sympy formula; NotImplementedError without a compiled form, as for the slope of a jump."""
    import sympy

    for name, slopes in BENT_LINKS.items():
        if in_z(expression) == in_z(sympy.sympify(FORMULAS[name])):
            return _data(BENT, slopes)
    value = formula_program(expression, slope=False)
    both = formula_program(expression, slope=True) if slope else value
    return _data(PROGRAM, value, both, max(value[p.REGISTERS], both[p.REGISTERS]))


@kernel
def write_link(  # noqa: PLR0912 (one loop for each family)
    link: Vector, z: Vector, value: Vector, slope: Vector, scratch: Vector
) -> None:
    """Write σ of many numbers `z` (N,) to `value`, and, unless `slope` is empty, σ' to `slope`.

    `link` is the data of a link, whose first number is its family; `scratch` holds `scratch_size` numbers.
    """
    family = int(link[FAMILY])
    if family >= SERIES and z.size >= FEW:
        write_blocks(link, z, value, slope, scratch)
    elif slope.size == 0 and family == LOW:
        for i in range(z.size):
            value[i] = low_at(link, z[i])[0]
    elif slope.size == 0 and family == HIGH:
        for i in range(z.size):
            value[i] = high_at(link, z[i])[0]
    elif slope.size == 0:
        for i in range(z.size):
            value[i] = value_at(link, z[i], scratch)
    elif family == LOW:
        for i in range(z.size):
            value[i], slope[i] = low_at(link, z[i])
    elif family == HIGH:
        for i in range(z.size):
            value[i], slope[i] = high_at(link, z[i])
    elif family == BENT:
        for i in range(z.size):
            value[i], slope[i] = bent_at(link, z[i])
    else:
        for i in range(z.size):
            value[i], slope[i] = both_at(link, z[i], scratch)


@kernel
def value_at(link: Vector, z: float, scratch: Vector) -> float:
    """Return σ(z); `scratch` holds `scratch_size` numbers."""
    if link[FAMILY] == LOW:  # the most frequent one, compiled into the caller
        return low_at(link, z)[0]
    return program_at(link, VALUE, z, scratch)[0] if link[FAMILY] == PROGRAM else rest_at(link, z, scratch)[0]


@kernel
def both_at(link: Vector, z: float, scratch: Vector) -> tuple[float, float]:
    """Return σ(z) and σ'(z); `scratch` holds `scratch_size` numbers."""
    return low_at(link, z) if link[FAMILY] == LOW else rest_at(link, z, scratch)


@kernel
def rest_at(link: Vector, z: float, scratch: Vector) -> tuple[float, float]:
    """Return σ(z) and σ'(z) of any family but the first."""
    family = int(link[FAMILY])
    if family == HIGH:
        return high_at(link, z)
    if family == BENT:
        return bent_at(link, z)
    if family == TABLE:
        return table_at(link, z)
    return series_at(link, z) if family == SERIES else program_at(link, int(link[SLOPE]), z, scratch)


@kernel
def program_at(link: Vector, place: int, z: float, scratch: Vector) -> tuple[float, float]:
    """Return the two results at z, σ and σ' or σ twice, of the program that begins at `place` of the link's data."""
    scratch[0] = z
    run_program(link, place, scratch, 1)
    return scratch[int(link[place + p.FIRST])], scratch[int(link[place + p.SECOND])]


@kernel
def low_at(link: Vector, z: float) -> tuple[float, float]:
    """Return σ(z) and σ'(z) of a polynomial of low degree; processors sum even and odd powers in parallel."""
    q = z * z
    even, odd = (link[7] * q + link[5]) * q + link[3], (link[8] * q + link[6]) * q + link[4]
    rising, bending = (link[13] * q + link[11]) * q + link[9], link[12] * q + link[10]
    return even + z * odd, rising + z * bending


@kernel
def high_at(link: Vector, z: float) -> tuple[float, float]:
    """Return σ(z) and σ'(z) of a polynomial of higher degree; processors sum even and odd powers in parallel."""
    q = z * z
    even, odd, rising, bending = 0.0, 0.0, 0.0, 0.0
    for k in range(HIGH_TERMS // 2):
        place = VALUE + HIGH_TERMS - 2 - 2 * k
        even, odd = even * q + link[place], odd * q + link[place + 1]
        rising, bending = rising * q + link[place + HIGH_TERMS], bending * q + link[place + HIGH_TERMS + 1]
    return even + z * odd, rising + z * bending


@kernel
def bent_at(link: Vector, z: float) -> tuple[float, float]:
    """Return the value and the slope of two half-lines, at the bend the mean of both slopes."""
    above, below = link[VALUE], link[VALUE + 1]
    value = above * max(z, 0.0) + below * min(z, 0.0)
    return value, 0.5 * (above + below + np.sign(z) * (above - below))


@kernel
def series_at(link: Vector, z: float) -> tuple[float, float]:
    """Return σ(z) and σ'(z) of a Hermite series, by h_{j+1} = (z h_j − √j h_{j−1})/√(j+1), stable to degree 300."""
    before, now, value, slope = 0.0, 1.0, 0.0, 0.0
    for row in range(VALUE, link.size, 4):
        value += link[row] * now
        slope += link[row + 1] * now
        before, now = now, link[row + 2] * z * now - link[row + 3] * before
    return value, slope


@kernel
def table_at(link: Vector, z: float) -> tuple[float, float]:
    """Return σ and σ' by the piece of the table in which z lies, by the tangent beyond its ends; see `tabulated`."""
    return piece_at(link, VALUE + 2, int(link[VALUE + 1]), z)


@kernel
def write_blocks(link: Vector, z: Vector, value: Vector, slope: Vector, scratch: Vector) -> None:
    """Write σ, and σ' unless `slope` is empty, by blocks whose registers stay in the fastest cache."""
    for begin in range(0, z.size, BLOCK):
        size = min(BLOCK, z.size - begin)
        part, values = vector(z, begin, size), vector(value, begin, size)
        slopes = vector(slope, begin, min(size, slope.size))
        if link[FAMILY] == PROGRAM:
            write_program(link, part, values, slopes, scratch)
        else:
            write_series(link, part, values, slopes, scratch)


@kernel
def write_program(link: Vector, z: Vector, value: Vector, slope: Vector, registers: Vector) -> None:
    """Write σ (n,) and, unless `slope` is empty, σ' (n,) at z (n,), by the programs of the link.

    `registers` is scratch.
    """
    size, place = z.size, int(link[SLOPE]) if slope.size > 0 else VALUE
    for j in range(size):
        registers[j] = z[j]
    run_program(link, place, registers, size)
    first, second = size * int(link[place + p.FIRST]), size * int(link[place + p.SECOND])
    for j in range(size):
        value[j] = registers[first + j]
    for j in range(slope.size):
        slope[j] = registers[second + j]


@kernel
def write_series(link: Vector, z: Vector, value: Vector, slope: Vector, registers: Vector) -> None:
    """Write σ, and σ' unless `slope` is empty, of a Hermite series, by the recurrence of `series_at`."""
    size = z.size
    before, now = vector(registers, 0, size), vector(registers, size, size)
    for i in range(size):
        before[i], now[i], value[i] = 0.0, 1.0, 0.0
    for i in range(slope.size):
        slope[i] = 0.0
    for row in range(VALUE, link.size, 4):
        c, d, along, back = link[row], link[row + 1], link[row + 2], link[row + 3]
        for i in range(size):
            value[i] += c * now[i]
        for i in range(slope.size):
            slope[i] += d * now[i]
        for i in range(size):
            following = along * z[i] * now[i] - back * before[i]
            before[i] = now[i]
            now[i] = following


@kernel
def run_program(data: Vector, place: int, registers: Vector, size: int) -> None:
    """Run the program at `place` of the data for `size` numbers at once.

    `registers` is a flat array in which register k begins at k · size; the first ones hold the inputs, and results are
    written to the others.
    """
    for n in range(int(data[place + p.OPERATIONS])):
        row = place + p.HEAD + p.WIDTH * n
        out = vector(registers, size * int(data[row + 1]), size)
        left = vector(registers, size * int(data[row + 2]), size)
        right = vector(registers, size * int(data[row + 3]), size)
        operate(int(data[row]), left, right, data[row + 4], data[row + 5], out)


@inlined_kernel
def operate(code: int, x: Vector, y: Vector, a: float, b: float, out: Vector) -> None:
    """Write the result of operation `code` on registers x and y, with its constants a and b, to register `out`."""
    if code == p.LINE:
        for j in range(out.size):
            out[j] = a * x[j] + b
    elif code == p.SUM:
        for j in range(out.size):
            out[j] = x[j] + a * y[j] + b
    elif code == p.PRODUCT:
        for j in range(out.size):
            out[j] = a * x[j] * y[j] + b
    elif code == p.LARGER:
        for j in range(out.size):
            out[j] = max(x[j], y[j])
    elif code == p.NUMBER:
        for j in range(out.size):
            out[j] = a
    else:
        for j in range(out.size):
            out[j] = operated(code, x[j], y[j])


@kernel
def operated(code: int, x: float, y: float) -> float:  # noqa: PLR0911, PLR0912 (one for each operation)
    """Return the result on one number of an operation that `operate` leaves to this function."""
    if code == p.SMALLER:
        return min(x, y)
    if code == p.INVERSE:
        return 1.0 / x
    if code == p.ABSOLUTE:
        return abs(x)
    if code == p.SIGN:
        return float(np.sign(x))
    if code == p.POWER:
        return float(x**y)
    if code == p.ROOT:
        return float(np.sqrt(x))
    if code == p.EXP:
        return float(np.exp(x))
    if code == p.LOG:
        return float(np.log(x))
    if code == p.SIN:
        return float(np.sin(x))
    if code == p.COS:
        return float(np.cos(x))
    if code == p.SINH:
        return float(np.sinh(x))
    if code == p.COSH:
        return float(np.cosh(x))
    if code == p.TANH:
        return float(np.tanh(x))
    if code == p.ATAN:
        return float(np.arctan(x))
    return math.erf(x) if code == p.ERF else math.erfc(x)
