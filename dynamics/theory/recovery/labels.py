"""Transformed labels T(y), y = σ(z) + τξ, as a rule for means over (z, T(y)): all that an estimator's law needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hermite import polynomials
from hermite.text.messages import shown, suggestion
from hermite.zero_coefficients import zero_tolerance

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeAlias

    from hermite import HermiteExpansion
    from hermite.arrays import Array

    Transform: TypeAlias = Literal["labels", "optimal"] | Callable[[Array], Array]
    Function: TypeAlias = Callable[[Array], Array]

#: Names of transformations.
LABELS, OPTIMAL = "labels", "optimal"
#: Degrees of estimators.
DEGREES = (1, 2, 3, 4)
#: T counts as bounded if beyond |z| = 8, and to |z| = 40, it grows by no more than this part of itself.
NEAR, FAR, GROWTH = 8.0, 40.0, 0.01
#: Half width and number of nodes of the rule in z and ξ where labels are noisy.
NOISY_RULE = ((10.0, 2003), (8.0, 157))
#: Components that count as zero where labels are noisy, relative to the norm: what jumps leave of the rule's error.
NOISY_ZERO = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class LabelLaw:
    """Means over z ~ N(0, 1) and the noise: points z, labels T(y) there, and weights that sum to 1.

    `top` is the largest label, infinite if there is none. Components E[T h_k] of at most `tolerance` count as zero.
    """

    z: Array
    label: Array
    weights: Array
    top: float
    tolerance: float = 0.0

    def mean(self, values: Array) -> float:
        """Return the mean of values at the points."""
        return float(self.weights @ values)

    def centred(self) -> LabelLaw:
        """Return the law of T − E T."""
        mean = self.mean(self.label)
        return replace(self, label=self.label - mean, top=self.top - mean)

    def component(self, k: int) -> float:
        """Return E[T h_k(z)], 0 where it counts as zero."""
        found = self.mean(self.label * polynomials.evaluate(k, self.z)[k])
        return found if abs(found) > self.tolerance else 0.0

    def signal(self, k: int) -> float:
        """Return ρ² = E[T h_k]²/E T²."""
        return self.component(k) ** 2 / self.mean(self.label**2)

    def spread(self) -> float:
        """Return κ = E[T² (z² − 1)²]/E T²."""
        return self.mean((self.label * (self.z**2 - 1.0)) ** 2) / self.mean(self.label**2)


def label_law(link: HermiteExpansion, transform: Function, noise: float) -> LabelLaw:
    """Return the law of T(σ(z) + τξ); ValueError if T(y) is constant, not finite, or has no second moment."""
    law = _noisy_law(link, transform, noise) if noise > 0.0 else _exact_law(link, transform)
    if not law.mean(law.centred().label ** 2) > 1e-12 * law.mean(law.label**2):
        msg = "Argument `transform` must leave labels that vary, but T(y) is constant."
        raise ValueError(msg)
    return law


def _exact_law(link: HermiteExpansion, transform: Function) -> LabelLaw:
    """Return the law without noise, by panels that close in on kinks and jumps."""
    from hermite.quadrature import integrate

    def label(z: Array) -> Array:
        return transform(link.value(z))

    near, far = (label(np.linspace(-reach, reach, 4001)) for reach in (NEAR, FAR))
    try:
        result = integrate(label, max(DEGREES))
    except ValueError as error:
        msg = f"Argument `transform` must leave labels of finite second moment, but does not: {error}"
        raise ValueError(msg) from None
    weights = result.weights * np.exp(-0.5 * result.nodes**2) / np.sqrt(2.0 * np.pi)
    labels = label(result.nodes)
    top = largest_label(np.concatenate([labels[np.abs(result.nodes) <= NEAR], near]), far)
    tolerance = zero_tolerance(result.norm_squared, result.coefficient_error)
    return LabelLaw(result.nodes, labels, weights / weights.sum(), top, tolerance)


def _noisy_law(link: HermiteExpansion, transform: Function, noise: float) -> LabelLaw:
    """Return the law with noise, by the trapezoidal rule in both variables, spectral for smooth labels."""
    (z, by_z), (xi, by_xi) = (_gaussian_rule(*rule) for rule in NOISY_RULE)

    def label(at: Array, noise_at: Array) -> Array:
        return transform((link.value(at)[:, None] + noise * noise_at).ravel())

    labels, weights = label(z, xi), np.outer(by_z, by_xi).ravel()
    points = np.repeat(z, xi.size)
    far = np.linspace(-FAR, FAR, 401)
    top = largest_label(labels[np.abs(points) <= NEAR], label(far, far))
    size = float(weights @ labels**2)
    if not np.isfinite(size):
        msg = "Argument `transform` must leave labels of finite second moment, but does not."
        raise ValueError(msg)
    return LabelLaw(points, labels, weights, top, NOISY_ZERO * np.sqrt(size))


def _gaussian_rule(reach: float, count: int) -> tuple[Array, Array]:
    """Return nodes and weights of N(0, 1), equally spaced, off the round numbers at which labels jump."""
    nodes = reach * (2.0 * (np.arange(count) + 0.618) / count - 1.0)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def largest_label(near: Array, far: Array) -> float:
    """Return the largest label of both, infinite if it grows from the near to the far ones."""
    inner, outer = float(near.max()), float(far.max())
    return max(inner, outer) if outer - inner <= GROWTH * float(np.abs(near).max()) else np.inf


def label_function(transform: object) -> Function:
    """Return T as a function of labels, checked where it is called."""
    if isinstance(transform, str) and transform == LABELS:
        return lambda y: y
    if not callable(transform):
        msg = f"Argument `transform` must be 'labels', 'optimal' or a function of labels, but is {shown(transform)}."
        raise ValueError(msg + suggestion(transform, (LABELS, OPTIMAL)))

    def checked(y: Array) -> Array:
        with np.errstate(all="ignore"):
            try:
                found = np.asarray(transform(y), dtype=np.float64)
            except Exception as error:
                msg = f"Argument `transform` must take an array of labels, but failed on one: {error}"
                raise TypeError(msg) from error
        if found.shape != y.shape:
            msg = f"Argument `transform` must keep the shape {y.shape} of labels, but returns {found.shape}."
            raise ValueError(msg)
        if not np.isfinite(found).all():
            msg = f"Argument `transform` must be finite, but is not at the label {y[~np.isfinite(found)][0]:g}."
            raise ValueError(msg)
        return found

    return checked
