r"""Recovery from n samples in dimension d: estimators of degree 1 to 4 of a direction, and of a quadratic form.

Squared overlaps with a direction at degree 1, 3 and 4 are formulas in ρ² = E[T h_k]²/E T² and κ = E[T²(z² − 1)²]/E T²
of labels T(y) of mean 0 (`docs/recovery.md`). At degree 2 that of the first eigenvector of (1/n) Σ T_i x_i x_iᵀ
follows from roots of two functions F and P (notes of `dynamics.predict_recovery`). F and P hold means over the law of
labels, or over one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

import hermite
from dynamics.problem.checks import checked_integer, require
from hermite import HermiteExpansion, polynomials
from hermite.arrays import Array, as_integer
from hermite.expansion import callable_name, zero_tolerance
from hermite.quadrature import POINTS, check_pointwise, integrate
from hermite.text.messages import refuse, shown, suggestion, warn

Function: TypeAlias = Callable[[Array], Array]

#: Names of transformations.
LABELS, OPTIMAL = "labels", "optimal"
#: Degrees of estimators, and the name of the smallest at which the labels have a component.
DEGREES, AUTO = (1, 2, 3, 4), "auto"
#: T counts as bounded if beyond |z| = 8, and to |z| = 40, it grows by no more than this part of itself.
NEAR, FAR, GROWTH = 8.0, 40.0, 0.01
#: Where labels are noisy: half width and number of nodes of the rule in z and ξ, and components that count as zero,
#: relative to the norm, because jumps leave as much of the rule's error.
NOISY_RULE, NOISY_ZERO = ((10.0, 2003), (8.0, 157)), 1e-3
#: The bins of optimal labels reach to |z| = 2√k + this; ζ_k counts as bounded if it hardly grows beyond this.
NEAR_OPTIMAL = 6.0
#: Distances l − max T, in units of the root mean square label, among which roots are looked for.
TRIED = np.geomspace(1e-10, 1e8, 73)
#: Error of a mean of ratios at which labels with heavy tails are told of.
LARGEST_MISS = 0.01


# --- labels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class LabelLaw:
    """The joint law of z ~ N(0, 1) and the label T(y) as points: `z`, `label` and `weights` of sum 1, all (N,).

    T is the transformation of labels y = σ(z) + τξ. `top` is the largest label, or infinite. Components E[T h_k], h_k
    the normalised Hermite polynomial, of at most `tolerance` count as zero.
    """

    z: Array
    label: Array
    weights: Array
    top: float
    tolerance: float = 0.0

    def mean(self, values: Array) -> float:
        """Return the mean of values (N,) at the points."""
        return float(self.weights @ values)

    @property
    def square(self) -> float:
        """Mean square label, E T²."""
        return self.mean(self.label**2)

    def centred(self) -> LabelLaw:
        """Return the law of T − E T."""
        mean = self.mean(self.label)
        return replace(self, label=self.label - mean, top=self.top - mean)

    def component(self, k: int) -> float:
        """Return the component E[T h_k(z)] of the labels at degree k, 0 where it counts as zero."""
        mean = self.mean(self.label * polynomials.evaluate(k, self.z)[k])
        return mean if abs(mean) > self.tolerance else 0.0

    def spread(self) -> float:
        """Return κ = E[T² (z² − 1)²]/E T², how much large labels coincide with large z²."""
        return self.mean((self.label * (self.z**2 - 1.0)) ** 2) / self.square


def label_law(link: HermiteExpansion, transform: Function, noise: float) -> LabelLaw:
    """Return the law of labels T(σ(z) + τξ), z and ξ ~ N(0, 1), with T = `transform` and τ = `noise`.

    ValueError is raised if T(y) is constant, not finite, or has no second moment.
    """
    law = _noisy_law(link, transform, noise) if noise > 0.0 else _exact_law(link, transform)
    varies = law.centred().square > 1e-12 * law.square
    require(varies, "Argument `transform` must leave labels that vary, but T(y) is constant.")
    return law


def _exact_law(link: HermiteExpansion, transform: Function) -> LabelLaw:
    """Return the joint law of z ~ N(0, 1) and the label T(σ(z)) without noise, T = `transform`.

    Its points are those of a quadrature whose panels are refined at kinks and jumps. ValueError is raised unless E T²
    is finite.
    """

    def label(z: Array) -> Array:
        """Return the labels T(σ(z))."""
        return transform(link.value(z))

    near, far = (label(np.linspace(-reach, reach, 4001)) for reach in (NEAR, FAR))
    try:
        rule = integrate(label, max(DEGREES))
    except ValueError as error:
        refuse(f"Argument `transform` must leave labels of finite second moment, but does not: {error}")
    z, labels = rule.nodes, label(rule.nodes)
    top = largest_label(np.concatenate([labels[np.abs(z) <= NEAR], near]), far)
    weights = rule.weights * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    tolerance = zero_tolerance(rule.norm_squared, rule.coefficient_error)
    return LabelLaw(z, labels, weights / weights.sum(), top, tolerance)


def _noisy_law(link: HermiteExpansion, transform: Function, noise: float) -> LabelLaw:
    """Return the joint law of z and the label T(σ(z) + τξ), for independent z, ξ ~ N(0, 1).

    T is `transform` and τ is `noise`. The points of the law are those of the trapezoidal rule in z and ξ, whose error
    falls exponentially for smooth labels. ValueError is raised unless E T² is finite.
    """
    # Equally spaced, off the round numbers at which labels jump.
    z, xi = (reach * (2.0 * (np.arange(count) + 0.618) / count - 1.0) for reach, count in NOISY_RULE)
    by_z, by_xi = (weights / weights.sum() for weights in (np.exp(-0.5 * z**2), np.exp(-0.5 * xi**2)))

    def label(at: Array, noise_at: Array) -> Array:
        """Return the labels T(σ(z) + τξ) at all pairs of points and noises, flattened."""
        return transform((link.value(at)[:, None] + noise * noise_at).ravel())

    labels, weights, places = label(z, xi), np.outer(by_z, by_xi).ravel(), np.repeat(z, xi.size)
    far, size = np.linspace(-FAR, FAR, 401), float(weights @ labels**2)
    require(np.isfinite(size), "Argument `transform` must leave labels of finite second moment, but does not.")
    top = largest_label(labels[np.abs(places) <= NEAR], label(far, far))
    return LabelLaw(places, labels, weights, top, NOISY_ZERO * np.sqrt(size))


def largest_label(near: Array, far: Array) -> float:
    """Return the largest label of near and far points; infinite if far labels are larger by more than 1 %."""
    inner, outer = float(near.max()), float(far.max())
    return max(inner, outer) if outer - inner <= GROWTH * float(np.abs(near).max()) else np.inf


def label_function(transform: object) -> Function:
    """Return the transformation T of labels as a function from an array (n,) to one of the same shape.

    `transform` is "labels", for T(y) = y, or a callable. The function returned raises TypeError if the callable fails,
    and ValueError for values of another shape or values that are not finite.
    """
    if isinstance(transform, str) and transform == LABELS:
        return lambda y: y
    if not callable(transform):
        hint = suggestion(transform, (LABELS, OPTIMAL))
        refuse(
            "Argument `transform` must be 'labels', 'optimal' or a function of labels, but is "
            f"{shown(transform)}.{hint}"
        )

    def checked(y: Array) -> Array:
        """Return the transform T of labels (n,), in the same shape."""
        try:
            with np.errstate(all="ignore"):
                labels = np.asarray(transform(y.copy()), dtype=np.float64)
        except Exception as error:
            refuse(
                f"Argument `transform` must take an array of labels, but failed on one: {error}",
                error=TypeError,
                cause=error,
            )
        require(
            labels.shape == y.shape,
            f"Argument `transform` must keep the shape {y.shape} of labels, but returns {labels.shape}.",
        )
        wrong = y[~np.isfinite(labels)]
        if wrong.size:
            refuse(f"Argument `transform` must be finite, but is not at the label {wrong[0]:g}.")
        return labels

    return checked


def optimal_labels(link: HermiteExpansion, degree: int) -> tuple[Function, LabelLaw]:
    """Return the optimal transformation ζ_k(y) = E[h_k(z) | σ(z) = y] of labels without noise, and its law.

    k is `degree`. The function is constant on narrow bins of y. The law is the joint one of z ~ N(0, 1) and ζ_k(σ(z)).
    """
    from hermite.exponents.generative import THRESHOLD, interval_moments, label_cells

    ends, bins = label_cells(link.link.value, 2.0 * degree**0.5 + NEAR_OPTIMAL)
    mass, product = (np.bincount(bins, row) for row in interval_moments(ends, degree)[[0, degree]])
    best = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0.0)
    middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
    # The rule on each interval, of a width of at most 0.005.
    nodes, weights = np.polynomial.legendre.leggauss(2)
    z = (middle[:, None] + half[:, None] * nodes).ravel()
    weights = (half[:, None] * weights).ravel() * np.exp(-0.5 * z**2)
    label = np.repeat(best[bins], nodes.size)
    top = largest_label(label[np.abs(z) <= NEAR_OPTIMAL], label)
    # Bins are in the order of their labels: the edge of two lies between their nearest labels.
    values = link.value(middle)
    lowest, highest = np.full(mass.size, np.inf), np.full(mass.size, -np.inf)
    np.minimum.at(lowest, bins, values)
    np.maximum.at(highest, bins, values)
    edges = 0.5 * (highest[:-1] + lowest[1:])
    law = LabelLaw(z, label, weights / weights.sum(), top, THRESHOLD)
    return lambda y: np.asarray(best[np.searchsorted(edges, y)]), law


# --- degree 2 ---------------------------------------------------------------------------------------------------------


class Outlier(NamedTuple):
    """Squared overlap of the first eigenvector, 0 if it says nothing, and its eigenvalue."""

    overlap_squared: float
    eigenvalue: float


def outlier(law: LabelLaw, ratio: float) -> Outlier:
    """Return squared overlap and eigenvalue of the first eigenvector of (1/n) Σ T_i x_i x_iᵀ, at n/d = `ratio`.

    The labels T must be bounded, with a positive maximum.
    """
    inverse, z, T, mean, grid = 1.0 / ratio, law.z, law.label, law.mean, np.sqrt(law.square) * TRIED

    def slope(level: float) -> float:
        """Return the function whose root is the edge of the spectrum, at a level above the largest label."""
        return inverse - mean((T / (level - T)) ** 2)

    def balance(level: float) -> float:
        """Return the function whose root gives the eigenvalue that stands out, at a level above the largest label."""
        return inverse - mean(T * (z**2 - 1.0) / (level - T))

    edge = _crossing(slope, law, grid)
    if balance(edge) >= 0.0:
        return Outlier(0.0, edge * (inverse + mean(T / (edge - T))))
    root = _crossing(balance, law, np.concatenate([[edge - law.top], grid[grid > edge - law.top]]))
    rise = slope(root)
    return Outlier(rise / (rise + mean((T * z / (root - T)) ** 2)), root * mean(T * z**2 / (root - T)))


def threshold_ratio(law: LabelLaw) -> float:
    """Return the least n/d at which the first eigenvector has an overlap with the direction; inf if it never has.

    n is the number of samples and d the dimension.
    """
    z, T, mean, grid = law.z, law.label, law.mean, np.sqrt(law.square) * TRIED

    def excess(level: float) -> float:
        """Return the function whose root lies at the threshold, at a level above the largest label."""
        return mean(T * (z**2 - 1.0) / (level - T) - (T / (level - T)) ** 2)

    if not any(excess(law.top + distance) > 0.0 for distance in grid.tolist()):
        return np.inf
    return 1.0 / mean(T * (z**2 - 1.0) / (_crossing(excess, law, grid) - T))


def _crossing(function: Callable[[float], float], law: LabelLaw, distances: Array) -> float:
    """Return the first level, above the largest label by one of `distances`, from which `function` is positive.

    The root is refined between the distances; the smallest level is returned if the function is positive there.
    """
    from scipy.optimize import brentq

    tried = distances.tolist()
    last = next((at for at, distance in enumerate(tried) if function(law.top + distance) > 0.0), len(tried) - 1)
    if last == 0 or not function(law.top + tried[last]) > 0.0:
        return law.top + float(tried[last])
    ends = (tried[last - 1], tried[last])
    return law.top + float(brentq(lambda s: function(law.top + s), *ends, xtol=1e-300, rtol=1e-14))


# --- estimators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Estimator:
    """An estimator of the direction of y = σ(θ·x) + τξ: its degree k, T as a function of labels, and their law.

    T was multiplied by the `sign` for which E[T h_k] ≥ 0. The law of labels of degree 1, 3 and 4 is centred.
    """

    link: HermiteExpansion
    noise: float
    degree: int
    transform: Function
    law: LabelLaw
    sign: float

    @property
    def signal(self) -> float:
        """Squared correlation ρ² = E[T h_k]²/E T² of the labels T with the Hermite polynomial of degree k."""
        return self.law.component(self.degree) ** 2 / self.law.square

    @property
    def needs_sample(self) -> bool:
        """Whether the law needs a drawn sample: at degree 2 where T has no upper bound."""
        return self.degree == 2 and not np.isfinite(self.law.top)

    def threshold(self, dimension: int) -> float:
        """Return n_c, the fewest samples at which the direction shows; infinite if it never does, 0 at degree 1."""
        d, signal = float(dimension), self.signal
        if self.degree == 1:
            return 0.0
        if self.degree == 2:
            return np.nan if self.needs_sample else d * threshold_ratio(self.law)
        needed = d**1.5 / np.sqrt(18.0) if self.degree == 3 else d**2 / 12.0
        return needed / signal if signal > 0.0 else np.inf

    def overlap_squared(self, dimension: int, samples: int) -> float:
        """Return the squared overlap of the estimator with the direction, by the law of degree 1, 3 or 4."""
        d, n, signal = float(dimension), float(samples), self.signal
        if signal == 0.0:
            return 0.0
        if self.degree == 1:
            return 1.0 / (1.0 + (d - 1.0) / (n * signal))
        if self.degree == 4:
            return max(0.0, 1.0 - self.threshold(dimension) / n)
        c, theta = 2.0 / d, 6.0 * signal * n / d**2
        return max(0.0, 1.0 - c * (1.0 + 0.5 * self.law.spread() * theta) / (theta * (theta + c)))

    def outlier(self, dimension: int, samples: int, sample: tuple[Array, Array] | None = None) -> Outlier:
        """Return the first eigenvector's squared overlap with the direction and its eigenvalue, at degree 2.

        Without a `sample` they follow from the law of bounded labels as the dimension grows. With one, coordinates z
        and labels y (samples,) each, the means are sums over it.
        """
        law = self.law
        if sample is not None:
            z, y = sample
            labels = self.transform(y)
            law = LabelLaw(z, labels, np.full(samples, 1.0 / samples), float(labels.max()))
            check_positive_top(law)
        result = outlier(law, samples / dimension)
        return result._replace(eigenvalue=self.sign * result.eigenvalue)


def check_positive_top(law: LabelLaw) -> None:
    """Refuse labels without a positive maximum, for which the law of degree 2 does not hold."""
    require(
        law.top > 0.0,
        f"Argument `transform` must leave labels with a positive maximum for degree 2, but it is {law.top:.4g}.",
    )


def make_estimator(link: HermiteExpansion, noise: float, degree: object, transform: object) -> Estimator:
    """Return the estimator of the direction from the component of degree k of the transformed labels T(y).

    `degree` is k, from 1 to 4, or "auto" for the lowest with a component; `transform` is "labels", "optimal" (without
    noise only) or a callable. T is multiplied by −1 if that makes the component positive. ValueError is raised for
    other arguments, and where T(y) has no component of the degree.
    """
    is_auto = isinstance(degree, str) and degree == AUTO
    number = None if is_auto else as_integer(degree)
    require(is_auto or number in DEGREES, f"Argument `degree` must be 1, 2, 3, 4 or 'auto', but is {shown(degree)}.")
    is_optimal = isinstance(transform, str) and transform == OPTIMAL
    require(
        not is_optimal or noise == 0.0,
        "Argument `transform` must be 'labels' or a function where labels are noisy, but is 'optimal'.",
    )
    labels_of = label_function(LABELS if is_optimal else transform)
    if callable(transform):
        check_pointwise(lambda z: labels_of(link.value(z)), POINTS, "transform", callable_name(transform))
    for k in DEGREES if number is None else (number,):
        sign = 1.0
        function, law = optimal_labels(link, k) if is_optimal else (labels_of, label_law(link, labels_of, noise))
        if not is_optimal and law.component(k) < 0.0:
            sign, function = -1.0, lambda y: -labels_of(y)
            law = label_law(link, function, noise)
        estimator = Estimator(link, noise, k, function, law if k == 2 else law.centred(), sign)
        if is_auto and estimator.signal == 0.0:
            continue
        tells = not is_optimal or estimator.signal > 0.0
        require(tells, f"Argument `degree` must be one at which labels tell something of {link.name}, but is {k}.")
        if k == 2:
            check_positive_top(estimator.law)
        return estimator
    return refuse(
        f"Argument `degree` must be given where T(y) has no component of degree 1 to 4, as for {link.name}, but is "
        "'auto'."
    )


# --- hierarchical targets ---------------------------------------------------------------------------------------------
#
# Since p = R b/√(2d), with R ~ χ²_d and (1 + b)/2 ~ Beta(d/4, d/4) independent, means are double sums
# (`docs/theory_equations.md`).

#: Standard deviations that rules reach to, nodes in √R, and panels in b of eight nodes each.
REACH, RADII, PANELS = 9.0, 161, 200


class HierarchyRecovery(NamedTuple):
    """Squared overlap of the first stage, and mean squared error of the best function of p̂, by number of samples.

    Examples
    --------
    >>> found = predict_hierarchy("sign(z)", dimension=60, samples=[900, 3600])
    >>> {int(n): f"{square:.2f}" for n, square in zip(found.samples, found.overlap_squared)}
    {900: '0.24', 3600: '0.55'}
    """

    samples: Array
    overlap_squared: Array
    second_stage_loss: Array


def predict_hierarchy(link: object, *, dimension: int, samples: Sequence[int]) -> HierarchyRecovery:
    r"""Return the squared overlap of the first stage with the quadratic form of a target, and the loss after it.

    .. math:: y = g(p), \quad p = \frac{\langle A, xx^T - 1\rangle}{\sqrt2}, \qquad
       \rho^2 = \frac{c^2}{c^2 + c_1^2 + (V - c^2 - c_1^2)/n}, \qquad \sum_k g_k^2 (1 - \rho^{2k}),

    .. math:: c = E[y p], \qquad c_1 = \frac{E[y (|x|^2 - d)]}{\sqrt{2d}}, \qquad
       V = \tfrac12 E\big[y^2 (|x|^4 - 2|x|^2 + d)\big].

    n ~ d² samples are needed (arXiv:2311.13774). ρ² is the ratio of means. Where labels have heavy tails and samples
    are few the mean of the ratio is larger, .288 and .577 against .235 and .551 for h_1 + h_3/2, d = 20, n = 200 and
    800; a warning tells the order of it.

    Parameters
    ----------
    link : str, dict, sympy expression, callable or HermiteExpansion
        g, with a component of degree 1: for others the mean of the first stage points along A², not along A.
    dimension : int
        Even d ≥ 4. A has the eigenvalues ±1/√d in equal numbers.
    samples : sequence of int
        Numbers n of samples.

    Returns
    -------
    HierarchyRecovery
        Fields of one number per n, dimensionless. `second_stage_loss` is NaN for links without a bound: their labels
        feel that p is not normal.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, and for a link without a component of degree 1.

    Examples
    --------
    >>> found = predict_hierarchy("sign(z)", dimension=60, samples=[900, 3600, 14400])
    >>> found.overlap_squared.round(3).tolist(), found.second_stage_loss.round(3).tolist()
    ([0.235, 0.552, 0.831], [0.849, 0.628, 0.375])
    """
    g, d, counts = checked_hierarchy(link, dimension, samples)
    p, square, weights = _form_law(d)
    y = g.value(p)
    c, along_one = float(weights @ (y * p)), float(weights @ (y * (square - d))) / np.sqrt(2.0 * d)
    variance = 0.5 * float(weights @ (y**2 * (square**2 - 2.0 * square + d)))
    n, mean = np.array(counts, dtype=np.float64), c**2 + along_one**2
    overlap_squared = c**2 / (mean + (variance - mean) / n)
    # Of the second order in the fluctuation of the mean square of the noise, which heavy tails have.
    squares = 0.5 * y**2 * (square**2 - 2.0 * square + d) - (y * p) ** 2
    spread = float(weights @ squares**2) - float(weights @ squares) ** 2
    miss = spread / n**3 * overlap_squared**3 / c**4
    if miss.max() > LARGEST_MISS:
        at = int(np.argmax(miss))
        warn(
            f"Labels of {g.name} have heavy tails at d = {d}: at n = {counts[at]} the mean of overlap_squared may be "
            f"above {overlap_squared[at]:.3g} by the order of {miss[at]:.1g}."
        )
    near, far = (g.value(np.linspace(-reach, reach, 4001)) for reach in (NEAR, FAR))
    is_bounded = np.isfinite(max(largest_label(near, far), largest_label(-near, -far)))
    loss = g.norm_squared - g.kernel(overlap_squared) if is_bounded else np.full(n.size, np.nan)
    return HierarchyRecovery(n, overlap_squared, loss)


def checked_hierarchy(
    link: object, dimension: object, samples: Sequence[int]
) -> tuple[HermiteExpansion, int, list[int]]:
    """Return the link g as an expansion, the dimension d and the numbers of samples.

    TypeError or ValueError is raised for bad arguments.
    """
    g, d = hermite.expand(link), checked_integer(dimension, "dimension", minimum=4)
    require(
        d % 2 == 0, f"Argument `dimension` must be even, for eigenvalues of both signs in equal numbers, but is {d}."
    )
    has_first = g.order >= 1 and bool(g.coefficients[1] != 0.0)
    require(
        has_first,
        "Argument `link` must have a component of degree 1, without which the first stage points along A², not A, "
        f"but {g.name} has none.",
    )
    counts = [checked_integer(n, "samples", minimum=1) for n in samples]
    require(counts, "Argument `samples` must hold at least one number of samples, but is empty.")
    return g, d, counts


def _form_law(d: int) -> tuple[Array, Array, Array]:
    """Return the values of p and of |x|² at the N points of a quadrature rule, and its weights of sum 1; (N,) each.

    x ~ N(0, I) in dimension d, and p is the quadratic form of `predict_hierarchy`.
    """
    v = np.sqrt(d) + np.linspace(-REACH, REACH, RADII) / np.sqrt(2.0)
    v = v[v > 0.0]
    radial = (d - 1.0) * np.log(v / np.sqrt(d)) - 0.5 * (v**2 - d)
    # Panels on both sides of 0, at which odd links may jump.
    ends = np.linspace(-1.0, 1.0, PANELS + 1) * min(1.0, REACH * np.sqrt(2.0 / (d + 2.0)))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(ends)
    b = (0.5 * (ends[1:] + ends[:-1])[:, None] + half[:, None] * nodes).ravel()
    angular = (half[:, None] * weights).ravel() * (1.0 - b**2) ** (0.25 * d - 1.0)
    density = np.outer(np.exp(radial), angular)
    square = np.repeat(v**2, b.size)
    return square * np.tile(b, v.size) / np.sqrt(2.0 * d), square, density.ravel() / density.sum()
