"""The gradient of online SGD at the start: its mean along the teacher's direction by degree, and its noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hermite.arrays import Array, as_scalar
from hermite.expansion import HermiteExpansion, expand
from hermite.quadrature import integrate
from hermite.text.messages import refuse, require, shown


class GradientSignal(NamedTuple):
    """The gradient of one sample at the start of training, dimensionless.

    `by_degree` (orders + 1,) holds j c*_j c_j s^(j−1), and `signal` is their sum, the mean gradient along θ; `noise` is
    the root mean square of the gradient along any direction other than w and θ; `samples` is (noise/signal)².

    Examples
    --------
    >>> found = gradient_signal("he3", overlap=0.1)
    >>> round(found.signal, 3), round(found.noise, 3), round(found.samples)
    (0.03, 1.732, 3333)
    """

    by_degree: Array
    signal: float
    noise: float
    samples: float


def gradient_signal(teacher: object, student: object = None, *, overlap: float) -> GradientSignal:
    r"""Return the mean gradient of a neuron along its teacher's direction, by degree, and the noise of one sample.

    .. math:: E[\sigma^{*\prime}(\theta\cdot x)\, \sigma'(w\cdot x)] = \sum_{j \ge 1} j\, c^*_j c_j\, s^{j-1}, \qquad
       s = w \cdot \theta, \qquad \text{noise}^2 = E \sigma^{*2} \; E \sigma'^2

    of the correlation E[σ*(θ·x) σ(w·x)], |w| = |θ| = 1, that a small network climbs. At a random start s is about
    d^(−½), and the first degree with c*_j c_j ≠ 0 decides. Labels and slopes count as independent in the noise, which
    is their leading order in s. After n samples the mean gradient is as large as its noise in each other direction
    for n = (noise/signal)², of order d^(j−1).

    Parameters
    ----------
    teacher, student : link
        σ* and σ, anything that `hermite.expand` takes; by default both are the teacher's.
    overlap : float
        s, from −1 to 1, dimensionless.

    Returns
    -------
    GradientSignal
        `by_degree`, `signal`, `noise` and `samples`, which is inf where the signal is 0.

    Raises
    ------
    TypeError, ValueError
        If a link is refused, the student's jumps, so that a sample has no gradient, or `overlap` is out of range.

    Examples
    --------
    >>> found = gradient_signal("tanh(z) + 0.3*z^2", "sin(z) + 0.2*z^2", overlap=0.4)
    >>> round(found.signal, 6)
    0.481473
    """
    first = expand(teacher)
    second = first if student is None else expand(student)
    s = as_scalar(overlap)
    if isinstance(s, bool) or not isinstance(s, int | float):
        refuse(f"Argument `overlap` must be a number from -1 to 1, but is {shown(overlap)}.", TypeError)
    require(-1.0 <= s <= 1.0, f"Argument `overlap` must be a number from -1 to 1, but is {shown(overlap)}.")
    require(not _jumps(second), f"Argument `student` must be a link without jumps, but is {second.name}.")
    count = min(first.coefficients.size, second.coefficients.size)
    j = np.arange(1, count)
    by_degree = np.zeros(count)
    # 0.0 is added so that no zero has a sign.
    by_degree[1:] = j * first.coefficients[1:count] * second.coefficients[1:count] * float(s) ** (j - 1) + 0.0
    signal = float(by_degree.sum())
    noise = float(np.sqrt(first.norm_squared * integrate(second.derivative, 0).norm_squared))
    with np.errstate(divide="ignore"):
        return GradientSignal(by_degree, signal, noise, float(np.square(noise / np.float64(signal))))


def _jumps(link: HermiteExpansion) -> bool:
    """Return whether the formula of a link has a jump; a callable counts as having none."""
    import sympy

    expression = None if link.is_polynomial else link.expression
    return expression is not None and sympy.diff(expression, *expression.free_symbols).has(sympy.DiracDelta)
