"""The kernel of a link, g(s) = Σ_j c_j² s^j, its first two derivatives and the kernel of learned masses, as data.

A polynomial Σ_j w_j s^j is stored as [lowest power, stride, number of coefficients, single, coefficients …], where
`single` is the coefficient of a power that stands apart, or 0. Up to degree 4 the stride is 1 and there are 5
coefficients. Else the stride is 2 where all powers have the same parity, or all but one: s beside even powers, as of
relu and gelu, or the constant beside odd ones. Zeros are added until the number of coefficients is one more than a
multiple of 4, since compiled code treats four at a time. The data of a link are [place of g', place of g'', place of
g_3, squared overlap at which a direction emerges, g …].
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.kernels.jit import kernel, pasted_kernel, vector
from dynamics.kernels.units import unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers, Vector

#: Place of g in the data of a link, and of coefficients in those of a polynomial; for a constant that is not int(VALUE)
#: Numba compiles functions once more.
VALUE, HEAD = 4, 4
#: Place of the squared overlap at which a direction emerges.
EMERGENCE = 3
#: Numbers of a block: two blocks of 8 bytes each stay in the first level of cache.
BLOCK = 512
#: Largest degree of a polynomial that is stored with all its coefficients.
SHORT = 4


def link_data(problem: Problem) -> Array:
    """Return the data of a problem's link (head of the module); g_3 is NaN where no degree counts as learned."""
    part = problem.learned_part
    learned = tuple((part.coefficients**2).tolist()) if part.is_defined else (float("nan"),)
    data = data_of_series(tuple(problem.activation.coefficients.tolist()), learned).copy()
    data[EMERGENCE] = problem.emergence_level
    return data


def with_link(
    problem: Problem, counts: Sequence[int], numbers: Sequence[Any], more: Sequence[int] | Integers = ()
) -> tuple[Array, Integers]:
    """Return (`parameters`, `sizes`) of a system, whose parameters end with the data of the link.

    They are [numbers | data of the link] and [counts | 1 if the sign matters | index of those data | more].
    """
    flat = np.concatenate([np.ravel(part) for part in numbers])
    head = np.array([*counts, problem.information_exponent % 2, flat.size], dtype=np.int64)
    sizes = np.concatenate([head, np.asarray(more, dtype=np.int64)])
    return np.concatenate([flat, link_data(problem)]), sizes


@lru_cache(maxsize=256)
def data_of_series(coefficients: tuple[float, ...], learned: tuple[float, ...] = (float("nan"),)) -> Array:
    """Return the data of a link, a flat array, from Hermite coefficients c_0 … c_N.

    `learned` are the coefficients of g_3, the part of the kernel that counts as learned, in powers.
    """
    weights = [c**2 for c in coefficients]
    parts = []
    for _ in range(3):
        parts.append(stored_polynomial(weights))
        weights = [j * w for j, w in enumerate(weights)][1:] or [0.0]
    parts.append(stored_polynomial(learned))
    places = VALUE + np.cumsum([len(part) for part in parts[:3]])
    return np.array([*places.tolist(), math.nan, *(number for part in parts for number in part)])


def stored_polynomial(weights: Sequence[float]) -> list[float]:
    """Return the data of the polynomial Σ_j w_j s^j for compiled code, given its coefficients w_j from j = 0 on.

    They are [lowest power, stride, number of coefficients, single, coefficients …]: coefficient k belongs to the power
    lowest + k stride, and `single` is that of s beside even powers, or the constant beside odd ones, else 0. Up to
    degree 4 all five coefficients are stored. Beyond, the stride is 2 if all powers but such a single one have one
    parity, and zeros are added until the number of coefficients is one more than a multiple of 4.
    """
    powers = [j for j, w in enumerate(weights) if w != 0.0] or [0]
    if powers[-1] <= SHORT:
        return [0.0, 1.0, SHORT + 1.0, 0.0, *(list(weights) + [0.0] * SHORT)[: SHORT + 1]]
    parity = powers[-1] % 2
    chain_powers = [j for j in powers if j % 2 == parity]
    stride = 2 if set(powers) - set(chain_powers) <= {1 - parity} else 1
    lowest, single = (chain_powers[0], weights[1 - parity]) if stride == 2 else (powers[0], 0.0)
    chain = list(weights[lowest : powers[-1] + 1 : stride])
    chain += [0.0] * (-(len(chain) - 1) % 4)
    return [float(lowest), float(stride), float(len(chain)), single, *chain]


@kernel
def link_at(parameters: Vector, place: int) -> Vector:
    """Return the data of the link, a view of `parameters` from the index `place` on."""
    return vector(parameters, place, parameters.size - place)


@kernel
def polynomial(data: Vector, at: int, s: float) -> float:
    """Return the value at s of the polynomial that is stored from the index `at` of `data` on."""
    lowest, count = int(data[at]), int(data[at + 2])
    q = s * s if data[at + 1] == 2.0 else s
    value = data[at + HEAD + count - 1]
    for k in range(count - 2, -1, -1):
        value = value * q + data[at + HEAD + k]
    for _ in range(lowest // 2):
        value *= s * s
    single = data[at + 3]
    return float(value * s + single if lowest % 2 == 1 else value + single * s)


@unit()
def write_polynomial(data: Vector, at: int, s: Vector, out: Vector) -> None:
    """Write the values at s (N,) of the polynomial stored from the index `at` of `data` on to `out` (N,)."""
    for begin in range(0, s.size, BLOCK):
        size = min(BLOCK, s.size - begin)
        write_block(data, at, vector(s, begin, size), vector(out, begin, size))


@pasted_kernel
def write_block(data: Vector, at: int, s: Vector, out: Vector) -> None:
    """Write the values of a stored polynomial at the numbers s of one block to `out`, by Horner's rule."""
    stride, single, first, power = data[at + 1], data[at + 3], at + HEAD, int(data[at])
    last = first + int(data[at + 2]) - 1
    top = data[last]
    for j in range(s.size):
        out[j] = top
    for k in range(last - 1, first, -4):
        w, x, y, z = data[k], data[k - 1], data[k - 2], data[k - 3]
        for j in range(s.size):
            q = s[j] if stride == 1.0 else s[j] * s[j]
            out[j] = (((out[j] * q + w) * q + x) * q + y) * q + z
    for _ in range(power // 4):
        for j in range(s.size):
            out[j] *= (s[j] * s[j]) * (s[j] * s[j])
    if power % 4 == 1:
        for j in range(s.size):
            out[j] *= s[j]
    elif power % 4 == 2:
        for j in range(s.size):
            out[j] *= s[j] * s[j]
    elif power % 4 == 3:
        for j in range(s.size):
            out[j] *= (s[j] * s[j]) * s[j]
    for j in range(s.size if single != 0.0 else 0):
        out[j] += single if power % 2 == 1 else single * s[j]


@unit()
def write_both(data: Vector, s: Vector, value: Vector, slope: Vector) -> None:
    """Write the kernel g and its slope g' at s (N,) to `value` and `slope`; up to degree 4 in one pass."""
    if data[VALUE + 1] > 1.0 or data[VALUE + 2] > SHORT + 1.0 or data[VALUE] > 0.0:
        write_polynomial(data, int(VALUE), s, value)
        write_polynomial(data, int(data[0]), s, slope)
        return
    first = int(VALUE + HEAD)
    a, b, c, d, e = data[first], data[first + 1], data[first + 2], data[first + 3], data[first + 4]
    for j in range(s.size):
        x = s[j]
        value[j] = (((e * x + d) * x + c) * x + b) * x + a
        slope[j] = ((4.0 * e * x + 3.0 * d) * x + 2.0 * c) * x + b


@kernel
def g0(link: Vector, s: float) -> float:
    """Return g(s) = E[σ(u·x) σ(v·x)] at u·v = s."""
    return polynomial(link, int(VALUE), s)


@kernel
def g1(link: Vector, s: float) -> float:
    """Return g'(s), the first derivative of the link's kernel."""
    return polynomial(link, int(link[0]), s)


@kernel
def g2(link: Vector, s: float) -> float:
    """Return g''(s), the second derivative of the link's kernel."""
    return polynomial(link, int(link[1]), s)


@kernel
def write_g0(link: Vector, s: Vector, out: Vector) -> None:
    """Write the link's kernel g at each number of s to `out`, of the same shape."""
    write_polynomial(link, int(VALUE), s, out)


@kernel
def write_g1(link: Vector, s: Vector, out: Vector) -> None:
    """Write the slope g' of the link's kernel at each number of s to `out`, of the same shape."""
    write_polynomial(link, int(link[0]), s, out)


@kernel
def write_g2(link: Vector, s: Vector, out: Vector) -> None:
    """Write the second derivative g'' of the link's kernel at each number of s to `out`, of the same shape."""
    write_polynomial(link, int(link[1]), s, out)
