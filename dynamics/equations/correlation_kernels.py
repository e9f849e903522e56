"""Compiled kernels of the flow of one neuron's correlation with one direction, and of its mean steps.

State y = [x], x = artanh C, so that C' = (1 − C²) x' is not stiff as C comes to 1. sizes = [terms of a g_λ', terms of
g_3, terms of N, whether the sign matters], parameters = [η/2B, η (1 − 1/B)/2, g_3(1) a/2 | a g_λ' in powers | g_3 in
powers | N in Chebyshev polynomials], g_3 that of `dynamics.problem.emergence`. The equations are those of
`dynamics.equations.correlation`.
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel


@kernel
def horner(s: float, powers: Vector) -> float:
    """Sum of powers of s."""
    total = 0.0
    for j in range(powers.size - 1, -1, -1):
        total = total * s + powers[j]
    return float(total)


@kernel
def clenshaw(s: float, series: Vector) -> float:
    """Sum of Chebyshev polynomials of s."""
    last = now = 0.0
    for j in range(series.size - 1, 0, -1):
        now, last = 2.0 * s * now - last + series[j], now
    return float(s * now - last + series[0])


@kernel
def velocity(x: float, parameters: Vector, sizes: Integers) -> float:
    """Return x' = a g_λ' − C [η/2B N/(1 − C²) + η (1 − 1/B)/2 (a g_λ')²]."""
    C = np.tanh(x)
    first, second = 3 + sizes[0], 3 + sizes[0] + sizes[1]
    pull = horner(C, parameters[3:first])
    if parameters[0] == 0.0:
        return pull
    square = np.cosh(x) ** 2
    drag = parameters[0] * square * clenshaw(C, parameters[second : second + sizes[2]])
    return float(pull - C * (drag + parameters[1] * pull * pull))


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write x'."""
    out[0] = velocity(y[0], parameters, sizes)


@kernel
def jacobian_diagonal(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write ∂x'/∂x, by a difference."""
    step = 1e-6 * (1.0 + abs(y[0]))
    above, below = velocity(y[0] + step, parameters, sizes), velocity(y[0] - step, parameters, sizes)
    out[0] = (above - below) / (2.0 * step)


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Emergence C² − ½ (of C > 0 alone, if the sign matters), then g_3(C) − g_3(1) a/2."""
    C = np.tanh(y[0])
    out[0] = (C if sizes[3] == 1 else abs(C)) - np.sqrt(0.5)
    out[1] = horner(C, parameters[3 + sizes[0] : 3 + sizes[0] + sizes[1]]) - parameters[2]


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """No constraint is left."""
