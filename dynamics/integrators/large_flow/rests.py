"""The rest of the field, without fast sources, active teachers and own clusters: its past values, extrapolated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dynamics.integrators.large_flow.division import State
from hermite.arrays import Array, Integers

#: Degree of the polynomial, for which weights are written out below.
DEGREE = 2
#: Gauss-Legendre points and weights of [0, 1]: exact to 1e-8 where a mode relaxes 20 times within a step.
_NODES, _WEIGHTS = 0.5 + 0.5 * np.polynomial.legendre.leggauss(12)[0], 0.5 * np.polynomial.legendre.leggauss(12)[1]
_KEPT = ("U", "F", "rest", "log_norm", "growth", "rest_growth", "times")


class Extrapolation(NamedTuple):
    """The rest of the field inside a step: at its fraction x it is Σ_qs x^q powers[q, s] rest[slots_s]."""

    rest: Array
    growth: Array
    slots: Integers
    powers: Array

    def arrays(self) -> tuple[Array, Array, Integers, Array]:
        """Return the four arrays as compiled functions take them."""
        return self.rest, self.growth, self.slots, self.powers

    @property
    def at_end(self) -> Array:
        """Weights of the past values at the end of the step."""
        weights: Array = self.powers.sum(axis=0)
        return weights


class Rests:
    """Past states, of shape (m, D), with their fields and rests."""

    def __init__(self, m: int, D: int) -> None:
        slots = DEGREE + 2
        self.U, self.F, self.rest = np.empty((slots, m, D)), np.empty((slots, m, D)), np.empty((slots, m, D))
        self.log_norm, self.growth, self.rest_growth = (np.empty((slots, m)) for _ in range(3))
        self.times = np.full(slots, np.nan)
        #: Slots in use, at most as many as the polynomial needs.
        self.newest_first = np.empty(0, dtype=np.int64)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays in which past states are kept."""
        return {"newest_first": self.newest_first} | {f"past_{name}": getattr(self, name) for name in _KEPT}

    def set_arrays(self, given: Mapping[str, Array]) -> None:
        """Take over past states."""
        for name in _KEPT:
            getattr(self, name)[...] = given[f"past_{name}"]
        self.newest_first = given["newest_first"].astype(np.int64)

    def keep(self, slot: int, time: float) -> None:
        """Make a slot the newest, with the time of its state."""
        self.times[slot] = time
        self.newest_first = np.array([slot, *self.newest_first.tolist()][: DEGREE + 1])

    def free_slot(self) -> int:
        """Return a slot that the polynomial does not need."""
        needed = self.newest_first.tolist()
        return next(s for s in range(self.times.size) if s not in needed)

    def state(self, slot: int) -> State:
        """Return the state of a slot with its field: views."""
        return State(self.U[slot], self.log_norm[slot], self.F[slot], self.growth[slot])

    def subtract(self, slot: int, partial: Callable[..., None]) -> None:
        """Set the rest of a slot to its field minus what `partial` computes."""
        partial(self.state(slot), self.rest[slot], self.rest_growth[slot], is_rest=True)

    def extrapolation(self, h: float, slots: Integers | None = None) -> Extrapolation:
        """Return the polynomial through the newest rests, or those in `slots`, for a step of length h."""
        slots = self.newest_first if slots is None else slots
        powers = _lagrange(((self.times[slots] - self.times[slots[0]]) / h).tolist())
        return Extrapolation(self.rest, self.rest_growth, slots, powers)

    def correction(self, h: float) -> float:
        """Return ∫_0^h ω(τ) dτ / ω(h), ω(τ) = Π (τ + distance): what an error at h is worth over the whole step.

        The polynomial through one more point, the rest at h, differs from the extrapolated one by the error times
        ω(τ)/ω(h).
        """
        past = self._past()
        # ω is τ, τ (τ − p) or τ (τ − p)(τ − q); written out like the weights below.
        if not past:
            return 0.5 * h
        p, q = past[0], past[-1]
        if len(past) == 1:
            return h * (h / 3.0 - p / 2.0) / (h - p)
        return h * (h * h / 4.0 - (p + q) * h / 3.0 + p * q / 2.0) / ((h - p) * (h - q))

    def relaxed_correction(self, h: float, rates: Array) -> Array:
        """Return ∫_0^h e^(−λ(h − τ)) ω(τ) dτ / ω(h) for every λ: the same where a mode relaxes at that rate."""
        omega, last = h * _NODES, h
        for p in self._past():
            omega = omega * (h * _NODES - p)
            last *= h - p
        integral: Array = np.exp(np.multiply.outer(-h * rates, 1.0 - _NODES)) @ (_WEIGHTS * omega) * (h / last)
        return integral

    def _past(self) -> list[float]:
        """Return the times of all values that the polynomial takes but the newest, relative to that."""
        past: list[float] = (self.times[self.newest_first[1:]] - self.times[self.newest_first[0]]).tolist()
        return past


def _lagrange(times: list[float]) -> Array:
    """Return w, the polynomial through values r_s at `times`, the first 0, being Σ_q (Σ_s w_qs r_s) τ^q.

    Written out, because a step asks for it: plain numbers take a fifth of the time of loops over three of them.
    """
    if len(times) == 1:
        return np.array([[1.0]])
    _, p, *last = times
    if not last:
        return np.array([[1.0, 0.0], [-1.0 / p, 1.0 / p]])
    q = last[0]
    # Products of the distances between each time and the two others.
    now, one, two = p * q, p * (p - q), q * (q - p)
    return np.array([[1.0, 0.0, 0.0], [-(p + q) / now, -q / one, -p / two], [1.0 / now, 1.0 / one, 1.0 / two]])
