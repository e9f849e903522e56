r"""Squared overlap of the estimators of degree 1 to 4 with the direction, at n samples in dimension d.

For labels T(y) of mean 0, with ρ² = E[T h_k]²/E T² and κ = E[T²(z² − 1)²]/E T²,

.. math:: k = 1:\ \frac{1}{1 + (d-1)/(n\rho^2)}, \qquad
   k = 3:\ 1 - \frac{c\,(1 + \kappa\vartheta/2)}{\vartheta(\vartheta + c)},\ c = \frac2d,\
   \vartheta = \frac{6\rho^2 n}{d^2}, \qquad k = 4:\ 1 - \frac{n_c}{n}, \qquad n_c = d,\
   \frac{d^{3/2}}{\sqrt{18}\,\rho^2},\ \frac{d^2}{12\rho^2}\ (k = 1, 3, 4),

nothing where this is negative; degree 2 is in `dynamics.theory.recovery.spectral_law`, with labels that are not
centred. Laws of degree 2 to 4 are asymptotic, that of degree 1 holds to 1/d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.theory.recovery.labels import DEGREES, OPTIMAL, LabelLaw, label_function, label_law
from dynamics.theory.recovery.sample import first_coordinates
from dynamics.theory.recovery.spectral_law import Outlier, outlier, threshold_ratio
from hermite.integers import as_integer
from hermite.text.messages import shown

if TYPE_CHECKING:
    from dynamics.theory.recovery.labels import Function
    from hermite import HermiteExpansion

AUTO = "auto"
"""The smallest degree at which the labels have a component."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimator:
    """An estimator of the direction of y = σ(θ·x) + τξ: its degree k, T as a function of labels, and their law.

    T has the sign for which E[T h_k] ≥ 0, so that the direction shows at the upper end of the spectrum; `sign` is what
    it was multiplied by. The law of labels of degree 1, 3 and 4 is centred.
    """

    link: HermiteExpansion
    noise: float
    degree: int
    transform: Function
    law: LabelLaw
    sign: float

    @property
    def signal(self) -> float:
        """ρ² of the labels at this degree."""
        return self.law.signal(self.degree)

    @property
    def needs_sample(self) -> bool:
        """Whether only single samples have a law: at degree 2, where T has no upper bound."""
        return self.degree == 2 and not np.isfinite(self.law.top)

    def threshold(self, dimension: int) -> float:
        """Return n_c, the samples from which on the direction shows; infinite if it never does, 0 at degree 1."""
        d, signal = float(dimension), self.signal
        if self.degree == 1:
            return 0.0
        if self.degree == 2:
            return np.nan if self.needs_sample else d * threshold_ratio(self.law)
        if signal == 0.0:
            return np.inf
        return d**1.5 / (np.sqrt(18.0) * signal) if self.degree == 3 else d**2 / (12.0 * signal)

    def overlap_squared(self, dimension: int, samples: int) -> float:
        """Return the law of degree 1, 3 or 4."""
        d, n, signal = float(dimension), float(samples), self.signal
        if signal == 0.0:
            return 0.0
        if self.degree == 1:
            return 1.0 / (1.0 + (d - 1.0) / (n * signal))
        if self.degree == 4:
            return max(0.0, 1.0 - self.threshold(dimension) / n)
        c, theta = 2.0 / d, 6.0 * signal * n / d**2
        return max(0.0, 1.0 - c * (1.0 + 0.5 * self.law.spread() * theta) / (theta * (theta + c)))

    def outlier(self, dimension: int, samples: int) -> Outlier:
        """Return the law of degree 2 of bounded labels."""
        return self._signed(outlier(self.law, samples / dimension))

    def outlier_of_sample(self, dimension: int, samples: int, seed: int) -> Outlier:
        """Return what the sample of a seed shows at degree 2, by sums over its own labels."""
        z, y = first_coordinates(self.link, self.noise, samples, seed)
        labels = self.transform(y)
        law = LabelLaw(z, labels, np.full(samples, 1.0 / samples), float(labels.max()))
        check_positive_top(law)
        return self._signed(outlier(law, samples / dimension))

    def _signed(self, found: Outlier) -> Outlier:
        return found._replace(eigenvalue=self.sign * found.eigenvalue)


def check_positive_top(law: LabelLaw) -> None:
    """Refuse labels of which the law of degree 2 says nothing."""
    if not law.top > 0.0:
        msg = f"Argument `transform` must leave labels with a positive maximum for degree 2, but it is {law.top:.4g}."
        raise ValueError(msg)


def make_estimator(link: HermiteExpansion, noise: float, degree: object, transform: object) -> Estimator:
    """Return the estimator that is asked for, or say in one sentence why there is none."""
    for k in _degrees(degree):
        found = _estimator(link, noise, k, transform)
        if degree != AUTO or found.signal > 0.0:
            _check_labels(found, transform)
            return found
    msg = (
        "Argument `degree` must be given where T(y) has no component of degree 1 to 4, "
        f"as for {link.name}, but is 'auto'."
    )
    raise ValueError(msg)


def _degrees(degree: object) -> tuple[int, ...]:
    """Return the degrees that are tried in turn."""
    if isinstance(degree, str) and degree == AUTO:
        return DEGREES
    number = as_integer(degree)
    if number in DEGREES:
        return (number,)
    msg = f"Argument `degree` must be 1, 2, 3, 4 or 'auto', but is {shown(degree)}."
    raise ValueError(msg)


def _estimator(link: HermiteExpansion, noise: float, k: int, transform: object) -> Estimator:
    """Return the estimator of degree k, of whichever signal."""
    sign = 1.0
    if isinstance(transform, str) and transform == OPTIMAL:
        function, law = _checked_optimum(link, noise, k)
    else:
        function = given = label_function(transform)
        law = label_law(link, given, noise)
        if law.component(k) < 0.0:
            sign, function = -1.0, lambda y: -given(y)
            law = label_law(link, function, noise)
    return Estimator(link, noise, k, function, law if k == 2 else law.centred(), sign)


def _check_labels(estimator: Estimator, transform: object) -> None:
    """Refuse labels without any law at this degree."""
    k = estimator.degree
    if isinstance(transform, str) and transform == OPTIMAL and estimator.signal == 0.0:
        msg = f"Argument `degree` must be one at which labels tell something of {estimator.link.name}, but is {k}."
        raise ValueError(msg)
    if k == 2:
        check_positive_top(estimator.law)


def _checked_optimum(link: HermiteExpansion, noise: float, k: int) -> tuple[Function, LabelLaw]:
    """Return ζ_k and its law; refuse noise, which it does not know."""
    from dynamics.theory.recovery.optimal import optimal_labels

    if noise > 0.0:
        msg = "Argument `transform` must be 'labels' or a function where labels are noisy, but is 'optimal'."
        raise ValueError(msg)
    return optimal_labels(link, k)
