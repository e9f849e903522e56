"""R, Γ and X of `dynamics.equations.transit.transit` to rounding, as piecewise polynomials of ξ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hermite.arrays import Array

#: Beyond this ξ the overlap is 1 in float64 and the remaining relaxation is exponential.
LAST_LOGIT = 40.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_BARRIER_DISTANCE = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class TransitPieces:
    """R, Γ and X of one branch as quintic Hermite pieces, in θ = (ξ − ξ_i) / (ξ_{i+1} − ξ_i) between knots ξ_i."""

    #: w_j = c_j² (±1)^j with w_0 = 0, so that g(C) = Σ_j w_j |C|^j on the branch; g(1) = Σ_{j≥1} c_j².
    powers: Array
    norm: float
    #: Increasing ξ, (K,), and coefficients in θ, (6, K − 1).
    knots: Array
    remaining_pieces: Array
    growth_pieces: Array
    excess_pieces: Array
    #: −R at the knots, increasing.
    waiting: Array
    #: Λ(ξ) = 2 g e^{4Γ} / g(1) + 4 g(1) (R + X) at the knots, and its cubic pieces; a pair has learned where Λ ≥ Z.
    level: Array
    level_pieces: Array
    #: ξ at which g' vanishes, inf if nowhere.
    barrier: float


def horner(pieces: Array, theta: Array) -> Array:
    """Return Σ_j pieces_j θ^j, pieces along the first axis."""
    value: Array = pieces[-1]
    for row in pieces[-2::-1]:
        value = value * theta + row
    return value


def horner_slope(pieces: Array, theta: Array) -> Array:
    """Return Σ_j j pieces_j θ^(j−1)."""
    degree = pieces.shape[0] - 1
    value: Array = degree * pieces[-1]
    for j in range(degree - 1, 0, -1):
        value = value * theta + j * pieces[j]
    return value


def expit(xi: Array | float) -> Array:
    """Return 1 / (1 + e^(−ξ)), for any ξ."""
    value: Array = np.exp(-np.logaddexp(0.0, -xi))
    return value


def exponent(coefficients: Array) -> int:
    """Return the information exponent of coefficients c_j."""
    return int(np.nonzero(coefficients[1:])[0][0]) + 1


@dataclass(frozen=True, slots=True, eq=False)
class _Rates:
    """Evaluate f = dτ/dξ, g and their slopes in ξ with the power C^{k−1} of g' divided out."""

    powers: Array
    k: int

    def __call__(self, xi: Array) -> tuple[Array, Array, Array, Array]:
        """Return f, f', g f, (g f)'."""
        shifted = self.powers[self.k :]
        order = np.arange(shifted.size, dtype=np.float64)
        u = expit(xi)
        far = expit(-xi)
        root = np.sqrt(u)
        p0 = polynomial(shifted, root)
        p1 = polynomial((order + self.k) * shifted, root)
        turn0 = polynomial(order * shifted, root)
        turn1 = polynomial(order * (order + self.k) * shifted, root) / p1
        f = root ** (2 - self.k) / (2.0 * p1)
        slope = 0.5 * f * far * ((2 - self.k) - turn1)
        product = u / (2.0 * p1)
        return f, slope, product * p0, product * far * (p0 + 0.5 * turn0 - 0.5 * p0 * turn1)


def polynomial(coefficients: Array, x: Array) -> Array:
    """Return Σ_j coefficients_j x^j."""
    value: Array = np.asarray(np.polynomial.polynomial.polyval(x, coefficients), dtype=np.float64)
    return value


def make_pieces(coefficients: tuple[float, ...], sign: int, lowest: float) -> TransitPieces:
    """Return the pieces from ξ = `lowest` on of the branch on which C has this sign, for a link Σ_j c_j h_j."""
    c = np.array(coefficients)
    k = exponent(c)
    powers = c**2 * float(sign) ** np.arange(c.size)
    powers[0] = 0.0
    norm = float(np.sum(c[1:] ** 2))
    barrier = _first_zero(powers, k)
    knots = _knots(k, lowest, barrier)
    rates = _Rates(powers, k)
    step = np.diff(knots)
    nodes = knots[:-1, None] + step[:, None] * 0.5 * (_NODES + 1.0)
    weights = 0.5 * step[:, None] * _WEIGHTS
    reference = int(np.argmin(np.abs(knots))) if barrier > 0.0 else int(np.searchsorted(knots, barrier - 1.0))

    f, f1, gf, gf1 = rates(knots)
    node_f, _, node_gf, _ = rates(nodes)
    # Left of the first knot Γ = u w_k / (2 k w_k): the leading power alone, since C is below 1e-3 there.
    growth = gf[0] + np.concatenate([[0.0], np.cumsum(np.sum(weights * node_gf, axis=1))])
    growth_pieces = _quintic(step, growth, gf, gf1)
    theta = np.broadcast_to(0.5 * (_NODES + 1.0), nodes.shape)
    node_lift = np.expm1(4.0 * horner(growth_pieces[:, :, None], theta))
    remaining = _from_right(np.sum(weights * node_f, axis=1), reference)
    excess = _from_right(np.sum(weights * node_f * node_lift, axis=1), reference)
    lift = np.expm1(4.0 * growth)
    excess_bend = -4.0 * gf * (1.0 + lift) * f - lift * f1
    signal, slope = gf / f, np.sqrt(expit(knots)) / (2.0 * f)
    level = 2.0 * signal * (1.0 + lift) / norm + 4.0 * norm * (remaining + excess)
    level_slope = 2.0 * slope**2 * expit(-knots) + 8.0 * signal**2 - 4.0 * norm**2
    return TransitPieces(
        powers=powers,
        norm=norm,
        knots=knots,
        remaining_pieces=_quintic(step, remaining, -f, -f1),
        growth_pieces=growth_pieces,
        excess_pieces=_quintic(step, excess, -lift * f, excess_bend),
        waiting=-remaining,
        level=level,
        level_pieces=_cubic(step, level, level_slope * (1.0 + lift) * f / norm),
        barrier=barrier,
    )


def _first_zero(powers: Array, k: int) -> float:
    """Return the smallest ξ at which g' changes sign, inf if it does not."""
    if (powers >= 0.0).all():
        return np.inf
    slopes = np.arange(k, powers.size) * powers[k:]
    grid = np.linspace(-80.0, LAST_LOGIT, 30001)
    adverse = polynomial(slopes, np.sqrt(expit(grid))) <= 0.0
    if not adverse.any():
        return np.inf
    index = int(np.argmax(adverse))
    low, high = float(grid[index - 1]), float(grid[index])
    for _ in range(60):
        middle = 0.5 * (low + high)
        met = bool(polynomial(slopes, np.sqrt(expit(middle))) <= 0.0)
        low, high = (low, middle) if met else (middle, high)
    return float(0.5 * (low + high))


def _knots(k: int, lowest: float, barrier: float) -> Array:
    """Return knots spaced by a power of two below 1 / (32 k), closing in on the barrier geometrically."""
    density = 2.0 ** np.ceil(np.log2(32.0 * k))
    if np.isinf(barrier):
        regular: Array = np.arange(lowest * density, LAST_LOGIT * density + 1.0) / density
        return regular
    lowest = min(lowest, np.floor(barrier) - 2.0)
    regular = np.arange(lowest * density, np.floor((barrier - 1.0) * density)) / density
    distance = np.exp(-np.arange(0.0, -density * np.log(_BARRIER_DISTANCE)) / density)
    knots = np.concatenate([regular, barrier - distance])
    return np.union1d(knots, [0.0]) if barrier - _BARRIER_DISTANCE > 0.0 else knots


def _from_right(panels: Array, reference: int) -> Array:
    """Return the integrals from each knot to the reference knot, summed outwards from the reference."""
    right = -np.cumsum(panels[reference:])
    left = np.cumsum(panels[:reference][::-1])[::-1]
    return np.concatenate([left, [0.0], right])


def _quintic(step: Array, value: Array, slope: Array, bend: Array) -> Array:
    """Return the pieces that match value, slope and second derivative at the knots."""
    c1, c2 = step * slope[:-1], 0.5 * step**2 * bend[:-1]
    rise = np.diff(value) - c1 - c2
    tilt = step * slope[1:] - c1 - 2.0 * c2
    curl = step**2 * bend[1:] - 2.0 * c2
    c3 = 10.0 * rise - 4.0 * tilt + 0.5 * curl
    c4 = -15.0 * rise + 7.0 * tilt - curl
    c5 = 6.0 * rise - 3.0 * tilt + 0.5 * curl
    return np.stack([value[:-1], c1, c2, c3, c4, c5])


def _cubic(step: Array, value: Array, slope: Array) -> Array:
    """Return the pieces that match value and slope at the knots."""
    c1, rise, end = step * slope[:-1], np.diff(value), step * slope[1:]
    return np.stack([value[:-1], c1, 3.0 * rise - 2.0 * c1 - end, c1 + end - 2.0 * rise])
