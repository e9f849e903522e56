r"""Mean-square stability of SGD near a student that fits its teacher, from the linear map of second moments.

Where f = f* a step on one sample is δ ← δ − η ψ (ψ·δ + noise), ψ = ∇f with parameters in units of the root of their
rates. With r teacher axes the part of ψ on a coordinate y_l outside of them is u_i(z) y_l, of neuron i, and h(z) are
all others. By rotations of these d' coordinates the second moments of δ stay D on each of them (neurons × neurons) and
S of the others, and with K = E uuᵀ, H = E hhᵀ and means of B samples

.. math:: D \leftarrow D - \eta (K D + D K) + \eta^2 \Big[\tfrac1B E\,u u^T ((d' + 2)\, u^T D u + h^T S h)
   + \big(1 - \tfrac1B\big) K D K\Big], \qquad
   S \leftarrow S - \eta (H S + S H) + \eta^2 \Big[\tfrac1B E\,h h^T (d'\, u^T D u + h^T S h)
   + \big(1 - \tfrac1B\big) H S H\Big] .

The map −L of first order in η and T of second order are such that every η < 1/ρ(L⁻¹T) is stable and no larger one is;
both are self-adjoint in the inner product d' tr D D' + tr S S', so that the quotient of Rayleigh of power iteration
converges quadratically.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from hermite.arrays import Array

    Flags: TypeAlias = NDArray[np.bool_]

#: Power iterations at most, and the relative change of the quotient at which they end.
ITERATIONS, TOLERANCE = 2000, 1e-6
#: Part of the largest eigenvalue of L below which a direction of parameters changes nothing.
ZERO = 1e-10
#: Grid of the trapezoid rule for functions of one Gaussian coordinate: 0, where links may have kinks, is a point.
REACH, STEP = 40.0, 2.0**-8


class Moments(NamedTuple):
    """Second moments of deviations of classes of n equal units with k functions each.

    `joint` (C k, C k) are those of the sums over classes, Σ_i δ_i/√n, and `apart` (C, k, k) those of differences within
    a class.
    """

    joint: Array
    apart: Array


class Functions(Protocol):
    """Random functions F, of which `beyond` (k,) says which are u: the others are h."""

    @property
    def beyond(self) -> Flags:
        """Which of the k functions are u, shape (k,)."""
        ...

    @property
    def differences(self) -> Array:
        """Number n − 1 of independent differences within each class, shape (C,)."""
        ...

    def second(self) -> Moments:
        """Return E F Fᵀ."""
        ...

    def grown(self, X: Moments, beyond: float) -> Moments:
        """Return E u uᵀ ((d' + 2) uᵀ D u + hᵀ S h) and E h hᵀ (d' uᵀ D u + hᵀ S h), X of D and S, d' `beyond`."""
        ...


@dataclass(frozen=True)
class Units:
    """Independent units: F_c of class c depends on one Gaussian coordinate per unit; k functions, C classes.

    `count` (C,) are units per class; `mean` (C, k) and `cumulants` of second to fourth order (C, k, …) are theirs.
    """

    count: Array
    beyond: Flags
    mean: Array
    cumulants: tuple[Array, Array, Array]

    @classmethod
    @np.errstate(under="ignore")
    def of(cls, functions: Sequence[Callable[[Array], Array]], beyond: Sequence[bool]) -> Units:
        """Return one unit with the given functions of z ~ N(0, 1)."""
        z = np.arange(-REACH, REACH + STEP, STEP)
        # Every factor takes a quarter of the Gaussian, so that polynomials of high degree stay within float64.
        share, scale = np.exp(-0.125 * z**2), STEP / math.sqrt(2.0 * math.pi)
        values = [function(z) * share for function in functions]
        mean = np.array([scale * np.sum(each * share**3) for each in values])
        F = np.array(values) - mean[:, None] * share
        pairs = F[:, None] * F
        second, third = scale * (pairs @ share**2), scale * np.einsum("abn,cn->abc", pairs, F * share)
        fourth = scale * np.einsum("abn,cdn->abcd", pairs, pairs)
        for order in ("abcd", "acbd", "adbc"):
            fourth -= np.einsum(f"{order[:2]},{order[2:]}->abcd", second, second)
        return cls(np.ones(1), np.array(beyond), mean[None], (second[None], third[None], fourth[None]))

    def scaled(self, squares: Array, count: Array) -> Units:
        """Return classes of so many units, of which the functions are √squares times those of one unit."""
        root = np.sqrt(squares)
        second, third, fourth = (
            root.reshape(-1, *[1] * order) ** order * each for order, each in enumerate(self.cumulants, start=2)
        )
        return Units(count, self.beyond, root[:, None] * self.mean, (second, third, fourth))

    @property
    def differences(self) -> Array:
        """Number n − 1 of independent differences within each class, shape (C,)."""
        return self.count - 1.0

    @property
    def _sums(self) -> Array:
        """Means of the sums over classes, Σ_i F_i/√n, shape (C k,)."""
        return (np.sqrt(self.count)[:, None] * self.mean).ravel()

    def _placed(self, blocks: Array) -> Array:
        """Return a block-diagonal matrix (C k, C k) of blocks (C, k, k)."""
        C, k = self.mean.shape
        out = np.zeros((C, k, C, k))
        out[np.arange(C), :, np.arange(C), :] = blocks
        return out.reshape(C * k, C * k)

    def second(self) -> Moments:
        """Return E F Fᵀ."""
        return Moments(self._placed(self.cumulants[0]) + np.outer(self._sums, self._sums), self.cumulants[0])

    def grown(self, X: Moments, beyond: float) -> Moments:
        """Return E u uᵀ ((d' + 2) uᵀ D u + hᵀ S h) and E h hᵀ (d' uᵀ D u + hᵀ S h), X of D and S, d' `beyond`."""
        sizes = (self.count.size, 1)
        outer = [np.outer(flags, flags) for flags in (np.tile(self.beyond, size) for size in sizes)]
        every = self.fourth(
            Moments(*(np.where(where, beyond, 1.0) * each for where, each in zip(outer, X, strict=True)))
        )
        again = self.fourth(Moments(*(np.where(where, 2.0, 0.0) * each for where, each in zip(outer, X, strict=True))))
        return Moments(*(one + where * two for one, two, where in zip(every, again, outer, strict=True)))

    def fourth(self, X: Moments) -> Moments:
        """Return E F Fᵀ (Fᵀ X F), by the cumulants of independent units."""
        (covariance, third, fourth), m, (C, k) = self.cumulants, self._sums, self.mean.shape
        M = self.second().joint
        total = float(np.sum(M * X.joint) + np.sum(self.differences[:, None, None] * covariance * X.apart))
        pulled, root = X.joint @ m, np.sqrt(self.count)[:, None]
        joint = total * M + 2.0 * M @ X.joint @ M - 2.0 * (m @ pulled) * np.outer(m, m)
        apart = total * covariance + 2.0 * covariance @ X.apart @ covariance
        # Of one unit alone: its own block of X, and what third cumulants make of it beside a mean.
        own = X.joint.reshape(C, k, C, k)[np.arange(C), :, np.arange(C), :]
        own = (own + self.differences[:, None, None] * X.apart) / self.count[:, None, None]
        skew = (root * np.einsum("nacd,ncd->na", third, own)).ravel()
        joint += np.outer(skew, m) + np.outer(m, skew)
        alone = 2.0 * np.einsum("nabc,nc->nab", third, pulled.reshape(C, k) / root)
        alone += np.einsum("nabcd,ncd->nab", fourth, own)
        return Moments(joint + self._placed(alone), apart + alone)


@dataclass(frozen=True)
class Samples:
    """Functions `values` (N, k) at N points of the given probabilities (N,)."""

    values: Array
    weights: Array
    beyond: Flags

    @property
    def differences(self) -> Array:
        """No classes of equal units, shape (0,)."""
        return np.zeros(0)

    def second(self) -> Moments:
        """Return E F Fᵀ, 0 between u and h."""
        return self._mean(self.weights, self.weights)

    def grown(self, X: Moments, beyond: float) -> Moments:
        """Return E u uᵀ ((d' + 2) uᵀ D u + hᵀ S h) and E h hᵀ (d' uᵀ D u + hᵀ S h), X of D and S, d' `beyond`."""
        of_u, of_h = (
            np.sum(part @ X.joint[np.ix_(chosen, chosen)] * part, axis=1)
            for part, chosen in ((self.values[:, chosen], chosen) for chosen in (self.beyond, ~self.beyond))
        )
        return self._mean(((beyond + 2.0) * of_u + of_h) * self.weights, (beyond * of_u + of_h) * self.weights)

    def _mean(self, of_u: Array, of_h: Array) -> Moments:
        """Return Σ u uᵀ and Σ h hᵀ over points with the given weights (N,)."""
        joint = np.zeros((self.beyond.size,) * 2)
        for weights, chosen in ((of_u, self.beyond), (of_h, ~self.beyond)):
            part = self.values[:, chosen]
            joint[np.ix_(chosen, chosen)] = part.T @ (weights[:, None] * part)
        return Moments(joint, np.zeros((0, *joint.shape)))


def mean_square_limit(functions: Functions, beyond: float, batch_size: int) -> float:
    """Return 1/ρ(L⁻¹T), the learning rate up to which steps are stable in mean square.

    Functions u are each multiplied by `beyond` coordinates outside of those that they depend on.

    Examples
    --------
    >>> linear = Units.of([np.ones_like], [True])
    >>> mean_square_limit(linear, 10, 1) == 2 / (10 + 2)
    True
    """
    k, K = functions.beyond.size, functions.second()
    sizes = (K.joint.shape[0] // k, 1)
    parts = [_Part(each, np.tile(functions.beyond, size)) for each, size in zip(K, sizes, strict=True)]
    weights = (np.ones(()), functions.differences[:, None, None])

    def grown(X: Sequence[Array]) -> list[Array]:
        drift = 1.0 - 1.0 / batch_size
        return [
            part.kept * each / batch_size + drift * part.K @ own @ part.K
            for part, each, own in zip(parts, functions.grown(Moments(*X), beyond), X, strict=True)
        ]

    def product(X: Sequence[Array], Y: Sequence[Array]) -> float:
        return sum(
            float(np.sum(weight * np.where(part.outer, beyond, 1.0) * a * b))
            for weight, part, a, b in zip(weights, parts, X, Y, strict=True)
        )

    X = [part.divided(part.kept * np.ones_like(part.K) * np.eye(part.K.shape[-1])) for part in parts]
    quotient = 0.0
    for _ in range(ITERATIONS):
        Y = grown(X)
        before, quotient = (
            quotient,
            product(X, Y) / product(X, [part.times(each) for part, each in zip(parts, X, strict=True)]),
        )
        if abs(quotient - before) <= TOLERANCE * quotient:
            break
        X = [part.divided(each) for part, each in zip(parts, Y, strict=True)]
        size = math.sqrt(product(X, X))
        X = [each / size for each in X]
    return 1.0 / quotient


class _Part:
    """One of the two matrices of `Moments`: its second moments without those of u with h, and L and its inverse."""

    def __init__(self, second: Array, beyond: Flags) -> None:
        self.outer = (beyond[:, None] & beyond).astype(np.float64)
        self.kept = (beyond[:, None] == beyond).astype(np.float64)
        self.K = second * self.kept
        values, self._axes = np.linalg.eigh(self.K)
        self._sums = values[..., :, None] + values[..., None, :]
        self._zero = self._sums <= ZERO * self._sums.max(initial=0.0)

    def times(self, X: Array) -> Array:
        """Return L X = K X + X K."""
        found: Array = self.K @ X + X @ self.K
        return found

    def divided(self, Y: Array) -> Array:
        """Return X of L X = Y, 0 where parameters change nothing."""
        turned = np.swapaxes(self._axes, -1, -2) @ Y @ self._axes
        kept = np.where(self._zero, 0.0, turned / np.where(self._zero, 1.0, self._sums))
        found: Array = self.kept * (self._axes @ kept @ np.swapaxes(self._axes, -1, -2))
        return found
