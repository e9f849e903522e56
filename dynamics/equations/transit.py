"""The universal trajectory of one neuron escaping towards one direction, in the clock τ = a t that all pairs share.

With C the overlap, u = C² and g(s) = Σ_j c_j² s^j, an isolated pair obeys

    dC/dτ = g'(C) (1 − C²),        d ln n / dτ = 4 (g(C) − n g(1) / a).

In ξ = ln(u / (1 − u)) the right-hand sides are smooth and never stiff: dτ/dξ = C / (2 g'(C)).  Three functions of ξ
hold every solution:

    R(ξ) = ∫_ξ^r dτ,    Γ(ξ) = ∫_{−∞}^ξ g dτ,    X(ξ) = ∫_ξ^r (e^{4Γ} − 1) dτ,

r = 0 (C² = ½) unless the pair is trapped before.  R counts from the right because the time still to wait is what must
keep its relative precision: it grows as C^(2−k) to the left.  The scaled inverse norm v = a / n is then

    v(ξ) = e^{−4Γ(ξ)} [ (a / n_0) e^{4Γ_0} + 4 g(1) (a t + X_0 − X(ξ)) ],        a t = R_0 − R(ξ).

R, Γ and X are tabulated to rounding, as piecewise polynomials of ξ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.polynomial.polynomial import polyval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.interpolate import PPoly

    from hermite.arrays import Array, Integers

#: Beyond this ξ the overlap is 1 in float64 and the remaining relaxation is exponential.
LAST_LOGIT = 40.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_BARRIER_DISTANCE = 1e-7
_LOWEST_STEP = 16.0


def exponent(coefficients: Array) -> int:
    """Return the information exponent of Hermite coefficients c_j: the least j ≥ 1 with c_j ≠ 0."""
    return int(np.nonzero(coefficients[1:])[0][0]) + 1


def polynomial(coefficients: Array, x: Array) -> Array:
    """Return Σ_j coefficients_j x^j, shape of `x`."""
    return np.asarray(polyval(x, coefficients), dtype=np.float64)


def _rates(powers: Array, k: int, xi: Array) -> tuple[Array, Array, Array, Array]:
    """Return f = dτ/dξ, f', g f and (g f)' at ξ = ln(C²/(1 − C²)), each of the shape of `xi`.

    C is the overlap, τ the time and g(C) = Σ_j powers_j C^j the signal, whose lowest power is k. The power C^(k−1) of
    g' is divided out.
    """
    shifted = powers[k:]
    order, far, u = np.arange(shifted.size, dtype=np.float64), scipy.special.expit(-xi), scipy.special.expit(xi)
    root = np.sqrt(u)
    p0, p1 = polynomial(shifted, root), polynomial((order + k) * shifted, root)
    turn0 = polynomial(order * shifted, root)
    turn1 = polynomial(order * (order + k) * shifted, root) / p1
    f, product = root ** (2 - k) / (2.0 * p1), u / (2.0 * p1)
    slope = 0.5 * f * far * ((2 - k) - turn1)
    return f, slope, product * p0, product * far * (p0 + 0.5 * turn0 - 0.5 * p0 * turn1)


@lru_cache(maxsize=16)
def _table(coefficients: tuple[float, ...], sign: int, lowest: float) -> TransitTable:
    """Return the table for overlaps C of one sign, from ξ = ln(C²/(1 − C²)) = `lowest` on.

    `coefficients` are the link's Hermite coefficients c_j, and `sign` is 1 or −1.
    """
    c = np.array(coefficients)
    k, norm = exponent(c), float(np.sum(c[1:] ** 2))
    powers = c**2 * float(sign) ** np.arange(c.size)
    powers[0] = 0.0
    barrier = _first_zero(powers, k)
    knots = _knots(k, lowest, barrier)
    step = np.diff(knots)
    nodes = knots[:-1, None] + step[:, None] * 0.5 * (_NODES + 1.0)
    weights = 0.5 * step[:, None] * _WEIGHTS
    reference = int(np.argmin(np.abs(knots))) if barrier > 0.0 else int(np.searchsorted(knots, barrier - 1.0))

    f, f1, gf, gf1 = _rates(powers, k, knots)
    node_f, _, node_gf, _ = _rates(powers, k, nodes)
    # Left of the first knot Γ = u w_k / (2 k w_k): the leading power alone, since C is below 1e-3 there.
    growth = gf[0] + np.concatenate([[0.0], np.cumsum(np.sum(weights * node_gf, axis=1))])
    growth_pieces = _quintic(knots, growth, gf, gf1)
    node_lift = np.expm1(4.0 * growth_pieces(nodes))
    remaining = _from_right(np.sum(weights * node_f, axis=1), reference)
    excess = _from_right(np.sum(weights * node_f * node_lift, axis=1), reference)
    lift = np.expm1(4.0 * growth)
    excess_bend = -4.0 * gf * (1.0 + lift) * f - lift * f1
    signal, slope = gf / f, np.sqrt(scipy.special.expit(knots)) / (2.0 * f)
    level = 2.0 * signal * (1.0 + lift) / norm + 4.0 * norm * (remaining + excess)
    level_slope = 2.0 * slope**2 * scipy.special.expit(-knots) + 8.0 * signal**2 - 4.0 * norm**2
    rising = np.flatnonzero(np.diff(level) > 0)
    turn = int(rising[0]) if rising.size else knots.size - 1
    return TransitTable(
        powers=powers,
        norm=norm,
        knots=knots,
        remaining_pieces=_quintic(knots, remaining, -f, -f1),
        growth_pieces=growth_pieces,
        excess_pieces=_quintic(knots, excess, -lift * f, excess_bend),
        waiting=-remaining,
        level=_cubic(knots, level, level_slope * (1.0 + lift) * f / norm),
        turn=turn,
        best=np.maximum.accumulate(level[turn:]),
        barrier=barrier,
        end_rate=float(2.0 * np.sum(np.arange(powers.size) * powers)) if np.isinf(barrier) else 0.0,
    )


def _first_zero(powers: Array, k: int) -> float:
    """Return the smallest ξ = ln(C²/(1 − C²)) at which the pull g'(C) is no longer positive, inf if there is none.

    `powers` are the coefficients of g, whose lowest power is k.
    """
    slopes = np.arange(k, powers.size) * powers[k:]

    def pull(xi: Array) -> Array:
        """Return g'(C) at ξ, without its lowest power of C."""
        return polynomial(slopes, np.sqrt(scipy.special.expit(xi)))

    grid = np.linspace(-80.0, LAST_LOGIT, 30001)
    adverse = np.flatnonzero(pull(grid) <= 0.0)
    if not adverse.size:
        return np.inf
    low, high = grid[adverse[0] - 1 :][:2].tolist()
    return scipy.optimize.brentq(lambda xi: float(pull(np.asarray(xi))), low, high, xtol=1e-15)


def _knots(k: int, lowest: float, barrier: float) -> Array:
    """Return increasing knots in ξ = ln(C²/(1 − C²)), from `lowest` to `LAST_LOGIT` or nearly to the barrier.

    They are spaced by a power of two below 1/(32 k), and geometrically closer near the barrier, where g' vanishes.
    """
    density = 2.0 ** np.ceil(np.log2(32.0 * k))
    if np.isinf(barrier):
        return np.asarray(np.arange(lowest * density, LAST_LOGIT * density + 1.0) / density)
    lowest = min(lowest, np.floor(barrier) - 2.0)
    regular = np.arange(lowest * density, np.floor((barrier - 1.0) * density)) / density
    distance = np.exp(-np.arange(0.0, -density * np.log(_BARRIER_DISTANCE)) / density)
    knots = np.concatenate([regular, barrier - distance])
    return np.union1d(knots, [0.0]) if barrier - _BARRIER_DISTANCE > 0.0 else knots


def _from_right(panels: Array, reference: int) -> Array:
    """Return the integral from each of K knots to the knot with index `reference`, shape (K,).

    `panels` (K − 1,) are the integrals between consecutive knots.
    """
    left_part = np.cumsum(panels[:reference][::-1])[::-1]
    return np.concatenate([left_part, [0.0], -np.cumsum(panels[reference:])])


def _quintic(knots: Array, value: Array, slope: Array, bend: Array) -> PPoly:
    """Return the piecewise polynomial of degree 5 with `value`, `slope` and second derivative `bend` at the knots."""
    step = np.diff(knots)
    c1, c2 = step * slope[:-1], 0.5 * step**2 * bend[:-1]
    rise = np.diff(value) - c1 - c2
    tilt = step * slope[1:] - c1 - 2.0 * c2
    curl = step**2 * bend[1:] - 2.0 * c2
    c3 = 10.0 * rise - 4.0 * tilt + 0.5 * curl
    c4 = -15.0 * rise + 7.0 * tilt - curl
    c5 = 6.0 * rise - 3.0 * tilt + 0.5 * curl
    pieces = np.stack([c5, c4, c3, c2, c1, value[:-1]]) / step ** np.arange(5, -1, -1)[:, None]
    return scipy.interpolate.PPoly(pieces, knots)


def _cubic(knots: Array, value: Array, slope: Array) -> PPoly:
    """Return the piecewise polynomial with value and slope at the knots; unlike scipy's these may be inf far left."""
    step, rise = np.diff(knots), np.diff(value)
    c1, end = step * slope[:-1], step * slope[1:]
    pieces = [(c1 + end - 2.0 * rise) / step**3, (3.0 * rise - 2.0 * c1 - end) / step**2, slope[:-1], value[:-1]]
    return scipy.interpolate.PPoly(np.stack(pieces), knots)


def logit_of_square(overlap: ArrayLike) -> Array:
    """Return ξ = ln(C² / (1 − C²)) of overlaps |C| ≤ 1, −inf at C = 0 and +inf at |C| = 1."""
    size = np.abs(np.asarray(overlap, dtype=np.float64))
    with np.errstate(divide="ignore"):
        value: Array = 2.0 * np.log(size) - np.log1p(-np.minimum(size, 1.0)) - np.log1p(size)
    return value


def transit_time(coefficients: ArrayLike, start: ArrayLike, end: ArrayLike) -> Array:
    r"""Return the time τ in which an isolated pair with a = 1 goes from one overlap to another.

    .. math:: \tau = \int_{C_0}^{C_1} \frac{ds}{g'(s)\,(1 - s^2)}

    For a link with information exponent at least 3, overlaps of one sign, and `end` at least as far from zero; inf
    where g' vanishes or is adverse on the way.
    """
    c = np.asarray(coefficients, dtype=np.float64)
    first, last = np.broadcast_arrays(np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64))
    shape, first, last = first.shape, first.ravel(), last.ravel()
    time = np.full(first.size, np.inf)
    for sign in (1, -1):
        of_sign = np.sign(first) == sign
        if of_sign.any() and (sign == 1 or exponent(c) % 2 == 0):
            table = transit_table(c, sign, float(logit_of_square(first[of_sign]).min()))
            time[of_sign] = table.passage(logit_of_square(first[of_sign]), logit_of_square(last[of_sign]))
    return time.reshape(shape)[()]


def transit_table(coefficients: ArrayLike, sign: int, lowest: float) -> TransitTable:
    """Return the table for overlaps C of one sign (1 or −1), from ξ = ln(C²/(1 − C²)) = `lowest` on.

    `coefficients` are the link's Hermite coefficients c_j. Tables are kept, so that equal calls share one.
    """
    floor = -_LOWEST_STEP * np.ceil(max(-lowest, 1.0) / _LOWEST_STEP)
    c = np.asarray(coefficients, dtype=np.float64)
    # C^(2 - k) must stay within float64.
    return _table(tuple(c.tolist()), sign, float(max(floor, np.ceil(-1200.0 / max(exponent(c) - 2, 1)))))


@dataclass(frozen=True, slots=True, eq=False)
class TransitTable:
    """Functions of ξ = ln(C²/(1 − C²)) that solve isolated pairs whose overlap C has one sign.

    R(ξ) is the time from ξ to the reference, C² = ½ unless a barrier comes before; Γ(ξ) = ∫_{−∞}^ξ g dτ; X(ξ) the
    integral of e^(4Γ) − 1 over time from ξ to the reference. They are quintic pieces between knots ξ_i.
    """

    #: w_j = c_j² (±1)^j with w_0 = 0, so that g(C) = Σ_j w_j |C|^j on the branch; g(1) = Σ_{j≥1} c_j².
    powers: Array
    norm: float
    #: Increasing ξ, (K,).
    knots: Array
    remaining_pieces: PPoly
    growth_pieces: PPoly
    excess_pieces: PPoly
    #: −R at the knots, increasing.
    waiting: Array
    #: Λ(ξ) = 2 g e^{4Γ} / g(1) + 4 g(1) (R + X) in cubic pieces; a pair has learned where Λ ≥ Z.
    level: PPoly
    #: Knot from which on Λ rises, and the largest Λ from there to each knot.
    turn: int
    best: Array
    #: ξ at which g' vanishes, inf if nowhere.
    barrier: float
    #: Rate dξ/dτ beyond the last knot: 2 g'(1), or 0 behind a barrier.
    end_rate: float

    def remaining(self, xi: Array) -> Array:
        """Return the time R(ξ), in units of τ = a t, from ξ to C² = ½, negative beyond; shape of `xi`.

        Before a barrier the reference is a knot near it instead of C² = ½.
        """
        return self._evaluate(self.remaining_pieces, xi, -1.0 / self.end_rate if self.end_rate else 0.0)

    def growth(self, xi: Array) -> Array:
        """Return Γ(ξ), the integral of the signal g over time τ up to ξ; shape of `xi`."""
        return self._evaluate(self.growth_pieces, xi, self.end_signal / self.end_rate if self.end_rate else 0.0)

    def excess(self, xi: Array) -> Array:
        """Return X(ξ) = ∫ (e^{4Γ} − 1) dτ from ξ to the reference, for ξ within the knots."""
        return self._evaluate(self.excess_pieces, xi, 0.0)

    @property
    def end_signal(self) -> float:
        """Signal g(C) beyond the last knot."""
        return self.norm - self.end_gap

    @property
    def end_gap(self) -> float:
        """Gap g(1) − g beyond the last knot: 0 on the positive branch."""
        if np.isinf(self.barrier):
            return -2.0 * float(np.sum(np.minimum(self.powers, 0.0)))
        return float(self.gap(self.knots[-1:])[0])

    def passage(self, first: Array, last: Array) -> Array:
        """Return the time τ from ξ `first` to ξ `last`, of their shape; inf across a barrier."""
        value = self.remaining(first) - self.remaining(last)
        return np.where((first < self.barrier) & (last < self.barrier), value, np.inf)

    def reached_after(self, start: Array, level: float) -> Array:
        """Return the time τ from ξ_0 = `start`, of its shape, until C² is first `level`; 0 if it is there already."""
        end = np.full_like(start, np.log(level / (1.0 - level)))
        return np.where(start >= end, 0.0, self.passage(start, end))

    def logit_at(self, remaining: Array) -> Array:
        """Return ξ at which the time to wait R(ξ) is `remaining`, of its shape."""
        index = np.clip(np.searchsorted(self.waiting, -remaining, side="right") - 1, 0, self.knots.size - 2)
        after = -remaining - self.waiting[-1]
        xi = _inverse(self.remaining_pieces, index, remaining)
        return np.where(after > 0.0, self.knots[-1] + self.end_rate * np.maximum(after, 0.0), xi)

    def signal(self, xi: Array) -> Array:
        """Return g(C) at ξ, shape of `xi`."""
        return polynomial(self.powers, np.sqrt(scipy.special.expit(xi)))

    def gap(self, xi: Array) -> Array:
        """Return g(1) − g(C) at ξ without cancellation near C = 1, shape of `xi`."""
        log_root = 0.5 * scipy.special.log_expit(xi)
        total = np.zeros_like(xi)
        for j in np.flatnonzero(self.powers):
            total -= self.powers[j] * np.expm1(j * log_root)
        # Odd powers of a negative overlap: c² (1 + |C|^j), not c² (1 − |C|^j).
        return total - 2.0 * float(np.sum(np.minimum(self.powers, 0.0)))

    @np.errstate(under="ignore")
    def scaled_inverse_norm(self, start: Array, ratio: Array, elapsed: Array, xi: Array) -> Array:
        """Return v = a/n at ξ = `xi`, a time τ = `elapsed` after the start at ξ_0 = `start`, of their shape.

        a is the coefficient of the direction, n the squared norm of the neuron, and `ratio` a/n at the start.
        """
        last = self.knots[-1]
        begin, inside = np.minimum(start, last), np.minimum(xi, last)
        tail = np.maximum(elapsed - np.maximum(self.remaining(begin) + self.waiting[-1], 0.0), 0.0)
        tail = np.where(xi >= last, tail, 0.0)
        base = self.growth(begin)
        grown = np.exp(-4.0 * (self.growth(inside) - base))
        gain = (elapsed - tail) * np.exp(-4.0 * base) + (self.excess(begin) - self.excess(inside)) * np.exp(-4.0 * base)
        value = grown * (ratio + 4.0 * self.norm * gain)
        final = self.norm / self.end_signal if self.end_signal > 0 else 0.0
        return final + (value - final) * np.exp(-4.0 * self.end_signal * tail)

    def learned_after(self, start: Array, ratio: Array) -> Array:
        """Return the time τ from ξ_0 = `start` until the pair is learned, n g(C)/g(1) = a/2; inf if it never is.

        a is the coefficient of the direction, n the squared norm of the neuron, and `ratio` a/n at the start; the
        result has their shape.
        """
        begin = np.minimum(start, self.knots[-1])
        origin = self.remaining(begin)
        level = ratio * np.exp(4.0 * self.growth(begin)) + 4.0 * self.norm * (origin + self.excess(begin))
        index = np.clip(self.turn + np.searchsorted(self.best, level), self.turn + 1, self.knots.size - 1) - 1
        xi = _inverse(self.level, index, level)
        # The cubic is good to 1e-10; one Newton step on Λ itself brings rounding.
        grown = np.exp(4.0 * self.growth(xi))
        reached_level = 2.0 * self.signal(xi) * grown / self.norm + 4.0 * self.norm * (
            self.remaining(xi) + self.excess(xi)
        )
        xi = xi - (reached_level - level) / self.level(xi, 1)
        value = np.maximum(origin - self.remaining(xi), 0.0)
        late = level > self.best[-1]
        if late.any():
            value[late] = self._tail_time(origin[late], begin[late], ratio[late])
        is_learned = self.signal(start) / self.norm >= 0.5 * ratio
        return np.where(is_learned, 0.0, value)

    def _tail_time(self, origin: Array, begin: Array, ratio: Array) -> Array:
        """Return the time τ until pairs are learned that are not yet learned at the last knot; inf if never."""
        reach = np.maximum(origin + self.waiting[-1], 0.0)
        end = np.full_like(begin, self.knots[-1])
        value = self.scaled_inverse_norm(begin, ratio, reach, end)
        signal = self.end_signal
        if signal <= 0 or self.norm / signal >= 2.0 * signal / self.norm:
            return np.full_like(begin, np.inf)
        final = self.norm / signal
        excess = np.maximum((value - final) / (2.0 * signal / self.norm - final), 1.0)
        return np.asarray(reach + np.log(excess) / (4.0 * signal))

    def _evaluate(self, pieces: PPoly, xi: Array, slope: float) -> Array:
        """Return a tabulated function at `xi`; beyond the last knot it goes on as a line with the given slope."""
        last = self.knots[-1]
        value: Array = pieces(np.clip(xi, self.knots[0], last))
        return value + slope * np.maximum(xi - last, 0.0) if slope else value


def _inverse(pieces: PPoly, index: Integers, value: Array) -> Array:
    """Return the arguments at which a piecewise polynomial has the values `value`, of its shape.

    `index` says in which piece each lies; Newton's method takes three steps there.
    """
    low, high = pieces.x[index], pieces.x[index + 1]
    ends = pieces(np.stack([low, high]))
    xi: Array = np.clip(low + (value - ends[0]) / (ends[1] - ends[0]) * (high - low), low, high)
    for _ in range(3):
        xi = np.clip(xi - (pieces(xi) - value) / pieces(xi, 1), low, high)
    return xi
