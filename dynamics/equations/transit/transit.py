r"""The universal trajectory of one neuron escaping towards one direction, in the clock τ = a t that all pairs share.

With C the overlap, u = C² and g(s) = Σ_j c_j² s^j, an isolated pair obeys

    dC/dτ = g'(C) (1 − C²),        d ln n / dτ = 4 (g(C) − n g(1) / a).

In ξ = ln(u / (1 − u)) the right-hand sides are smooth and never stiff: dτ/dξ = C / (2 g'(C)).  Three functions of ξ
hold every solution:

    R(ξ) = ∫_ξ^r dτ,    Γ(ξ) = ∫_{−∞}^ξ g dτ,    X(ξ) = ∫_ξ^r (e^{4Γ} − 1) dτ,

r = 0 (C² = ½) unless the pair is trapped before.  R counts from the right because the time still to wait is what must
keep its relative precision: it grows as C^(2−k) to the left.  The scaled inverse norm v = a / n is then

    v(ξ) = e^{−4Γ(ξ)} [ (a / n_0) e^{4Γ_0} + 4 g(1) (a t + X_0 − X(ξ)) ],        a t = R_0 − R(ξ).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dynamics.equations.transit.pieces import (
    TransitPieces,
    expit,
    exponent,
    horner,
    horner_slope,
    make_pieces,
    polynomial,
)
from hermite.arrays import Array

_LOWEST_STEP = 16.0


def logit_of_square(overlap: ArrayLike) -> Array:
    """Return ξ = ln(C² / (1 − C²)) of overlaps |C| ≤ 1, −inf at C = 0 and +inf at |C| = 1.

    Examples
    --------
    >>> float(logit_of_square(0.5).round(6))
    -1.098612
    """
    size = np.abs(np.asarray(overlap, dtype=np.float64))
    with np.errstate(divide="ignore"):
        value: Array = 2.0 * np.log(size) - np.log1p(-np.minimum(size, 1.0)) - np.log1p(size)
    return value


def transit_time(coefficients: ArrayLike, start: ArrayLike, end: ArrayLike) -> Array:
    r"""Return the time τ in which an isolated pair with a = 1 goes from one overlap to another.

    .. math:: \tau = \int_{C_0}^{C_1} \frac{ds}{g'(s)\,(1 - s^2)}

    A link c_k h_k has a closed form by partial fractions, used where it applies: with s = |C|,
    2 k c_k² τ = [ξ − Σ_{j<k/2} u^{−j} / j] for even k and [2 artanh s − 2 Σ_{odd j<k−1} s^{−j} / j] for odd k.
    The coefficients are c_0 … c_N of a link with information exponent at least 3. Both overlaps have one sign, and
    `end` is at least as far from zero. The time is inf where g' vanishes or is adverse on the way.

    Examples
    --------
    >>> float(transit_time([0, 0, 0, 0, 1.0], 0.1, 0.9).round(8))
    13.10132027
    """
    c = np.asarray(coefficients, dtype=np.float64)
    first, last = np.broadcast_arrays(np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64))
    shape, first, last = first.shape, first.ravel(), last.ravel()
    time = np.full(first.size, np.inf)
    for sign in (1, -1):
        here = np.sign(first) == sign
        if here.any() and (sign == 1 or exponent(c) % 2 == 0):
            table = transit_table(c, sign, float(logit_of_square(first[here]).min()))
            time[here] = table.passage(logit_of_square(first[here]), logit_of_square(last[here]))
    return time.reshape(shape)[()]


def transit_table(coefficients: ArrayLike, sign: int, lowest: float) -> TransitTable:
    """Return the table of one branch, made once for each link and range.

    c_0 plays no part. The sign is that of the overlap; −1 makes sense for even information exponents alone. `lowest` is
    the smallest ξ that will be asked for.
    """
    floor = -_LOWEST_STEP * np.ceil(max(-lowest, 1.0) / _LOWEST_STEP)
    c = np.asarray(coefficients, dtype=np.float64)
    # C^(2 - k) must stay within float64.
    return _build(tuple(c.tolist()), sign, float(max(floor, np.ceil(-1200.0 / max(exponent(c) - 2, 1)))))


@dataclass(frozen=True, slots=True, eq=False)
class TransitTable(TransitPieces):
    """Solve isolated pairs of one branch by table: the data of `TransitPieces`, and what follows from them."""

    def remaining(self, xi: Array) -> Array:
        """Return R(ξ) = τ from ξ to C² = ½, negative beyond, shape of `xi`."""
        return self._evaluate(self.remaining_pieces, xi, -1.0 / self.end_rate if self.end_rate else 0.0)

    def growth(self, xi: Array) -> Array:
        """Return Γ(ξ) = ∫ g dτ, shape of `xi`."""
        return self._evaluate(self.growth_pieces, xi, self.end_signal / self.end_rate if self.end_rate else 0.0)

    def excess(self, xi: Array) -> Array:
        """Return X(ξ) = ∫ (e^{4Γ} − 1) dτ from ξ to the reference, for ξ within the knots."""
        return self._evaluate(self.excess_pieces, xi, 0.0)

    @property
    def end_rate(self) -> float:
        """Rate dξ/dτ beyond the last knot: 2 g'(1), or 0 behind a barrier."""
        return float(2.0 * np.sum(np.arange(self.powers.size) * self.powers)) if np.isinf(self.barrier) else 0.0

    @property
    def end_signal(self) -> float:
        """Signal g beyond the last knot."""
        return self.norm - self.end_gap

    @property
    def end_gap(self) -> float:
        """Gap g(1) − g beyond the last knot: 0 on the positive branch."""
        if np.isinf(self.barrier):
            return -2.0 * float(np.sum(np.minimum(self.powers, 0.0)))
        return float(self.gap(self.knots[-1:])[0])

    def passage(self, first: Array, last: Array) -> Array:
        """Return τ from ξ `first` to ξ `last`; inf across a barrier."""
        k = int(np.nonzero(self.powers)[0][0])
        if np.count_nonzero(self.powers) == 1:
            scale = 2.0 * k * self.powers[k]
            value: Array = (_antiderivative(k, last) - _antiderivative(k, first)) / scale
        else:
            value = self.remaining(first) - self.remaining(last)
        return np.where((first < self.barrier) & (last < self.barrier), value, np.inf)

    def logit_at(self, remaining: Array) -> Array:
        """Return ξ with R(ξ) = `remaining`, the inverse of `remaining`."""
        index = np.clip(np.searchsorted(self.waiting, -remaining, side="right") - 1, 0, self.knots.size - 2)
        pieces = self.remaining_pieces[:, index]
        theta = np.clip((remaining - pieces[0]) / np.sum(pieces[1:], axis=0), 0.0, 1.0)
        for _ in range(3):
            theta = theta - (horner(pieces, theta) - remaining) / horner_slope(pieces, theta)
        step = self.knots[index + 1] - self.knots[index]
        beyond = -remaining > self.waiting[-1]
        xi = self.knots[index] + np.clip(theta, 0.0, 1.0) * step
        after = np.maximum(-remaining - self.waiting[-1], 0.0)
        value: Array = np.where(beyond, self.knots[-1] + self.end_rate * after, xi)
        return value

    def signal(self, xi: Array) -> Array:
        """Return g(C) at ξ, shape of `xi`."""
        root = np.sqrt(expit(xi))
        value: Array = polynomial(self.powers, root)
        return value

    def gap(self, xi: Array) -> Array:
        """Return g(1) − g(C) at ξ without cancellation near C = 1, shape of `xi`."""
        log_root = -0.5 * np.logaddexp(0.0, -xi)
        total = np.zeros_like(xi)
        for j in np.nonzero(self.powers)[0]:
            w = self.powers[j]
            total -= w * np.expm1(j * log_root)
        # Odd powers of a negative overlap: c² (1 + |C|^j) in place of c² (1 − |C|^j).
        return total - 2.0 * float(np.sum(np.minimum(self.powers, 0.0)))

    def scaled_inverse_norm(self, start: Array, ratio: Array, elapsed: Array, xi: Array) -> Array:
        """Return v = a / n at ξ, τ = `elapsed` after ξ_0 = `start` with `ratio` = a / n_0."""
        last = self.knots[-1]
        begin, inside = np.minimum(start, last), np.minimum(xi, last)
        tail = np.maximum(elapsed - np.maximum(self.remaining(begin) + self.waiting[-1], 0.0), 0.0)
        tail = np.where(xi >= last, tail, 0.0)
        base = self.growth(begin)
        grown = np.exp(-4.0 * (self.growth(inside) - base))
        before = elapsed - tail
        gain = before * np.exp(-4.0 * base) + (self.excess(begin) - self.excess(inside)) * np.exp(-4.0 * base)
        value = grown * (ratio + 4.0 * self.norm * gain)
        final = self.norm / self.end_signal if self.end_signal > 0 else 0.0
        return final + (value - final) * np.exp(-4.0 * self.end_signal * tail)

    def learned_after(self, start: Array, ratio: Array) -> Array:
        """Return τ from ξ_0 = `start` until n g(C) / g(1) = a / 2, with `ratio` = a / n_0; inf if never.

        The condition reads Z ≤ Λ(ξ), Z = (a / n_0) e^{4Γ_0} + 4 g(1) (R_0 + X_0): one number decides for a pair.
        """
        last = self.knots[-1]
        begin = np.minimum(start, last)
        origin = self.remaining(begin)
        need = ratio * np.exp(4.0 * self.growth(begin)) + 4.0 * self.norm * (origin + self.excess(begin))
        rising = np.flatnonzero(np.diff(self.level) > 0)
        turn = int(rising[0]) if rising.size else self.knots.size - 1
        best = np.maximum.accumulate(self.level[turn:])
        index = np.clip(turn + np.searchsorted(best, need), turn + 1, self.knots.size - 1) - 1
        pieces = self.level_pieces[:, index]
        theta = np.clip((need - pieces[0]) / np.sum(pieces[1:], axis=0), 0.0, 1.0)
        for _ in range(3):
            theta = np.clip(theta - (horner(pieces, theta) - need) / horner_slope(pieces, theta), 0.0, 1.0)
        step = self.knots[index + 1] - self.knots[index]
        xi = self.knots[index] + theta * step
        # The cubic is good to 1e-10; one Newton step on Λ itself brings rounding.
        xi = xi - (self._level(xi) - need) / horner_slope(pieces, theta) * step
        inside = np.maximum(origin - self.remaining(xi), 0.0)
        late = need > best[-1]
        value = inside
        if late.any():
            value[late] = self._tail_time(origin[late], begin[late], ratio[late])
        already = self.signal(start) / self.norm >= 0.5 * ratio
        return np.where(already, 0.0, value)

    def _tail_time(self, origin: Array, begin: Array, ratio: Array) -> Array:
        reach = np.maximum(origin + self.waiting[-1], 0.0)
        end = np.full_like(begin, self.knots[-1])
        value = self.scaled_inverse_norm(begin, ratio, reach, end)
        signal = self.end_signal
        if signal <= 0 or self.norm / signal >= 2.0 * signal / self.norm:
            return np.full_like(begin, np.inf)
        final = self.norm / signal
        excess = np.maximum((value - final) / (2.0 * signal / self.norm - final), 1.0)
        time: Array = reach + np.log(excess) / (4.0 * signal)
        return time

    def _level(self, xi: Array) -> Array:
        grown = np.exp(4.0 * self.growth(xi))
        return 2.0 * self.signal(xi) * grown / self.norm + 4.0 * self.norm * (self.remaining(xi) + self.excess(xi))

    def _evaluate(self, pieces: Array, xi: Array, slope: float) -> Array:
        last = self.knots[-1]
        inside = np.clip(xi, self.knots[0], last)
        if np.isinf(self.barrier):
            # Knots are equally spaced by a power of two: the index is exact.
            index = ((inside - self.knots[0]) * (1.0 / (self.knots[1] - self.knots[0]))).astype(np.int64)
        else:
            index = np.searchsorted(self.knots, inside, side="right") - 1
        index = np.clip(index, 0, self.knots.size - 2)
        theta = (inside - self.knots[index]) / (self.knots[index + 1] - self.knots[index])
        value = horner(pieces[:, index], theta)
        return value + slope * np.maximum(xi - last, 0.0) if slope else value


@lru_cache(maxsize=16)
def _build(coefficients: tuple[float, ...], sign: int, lowest: float) -> TransitTable:
    pieces = make_pieces(coefficients, sign, lowest)
    return TransitTable(*(getattr(pieces, field.name) for field in fields(pieces)))


def _antiderivative(k: int, xi: Array) -> Array:
    """Return 2 k ∫ dτ of g = s^k, up to a constant: partial fractions of 1 / (u^{k/2} (1 − u))."""
    u = expit(xi)
    if k % 2 == 0:
        return xi - sum((u**-j / j for j in range(1, k // 2)), np.zeros_like(u))
    s = np.sqrt(u)
    # 2 artanh s = ln((1 + s)² / (1 − u)), and 1 − u comes from ξ without cancellation.
    odd = sum((s**-j / j for j in range(1, k - 1, 2)), np.zeros_like(s))
    return 2.0 * np.log1p(s) + np.logaddexp(0.0, xi) - 2.0 * odd
