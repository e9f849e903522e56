r"""Kernels: their spectrum on the sphere and on Gaussian inputs, and their errors on a teacher by degree.

On |x| = √d the kernel is K = Σ_j a_j s^j in s = x·x'/d, with a_j = c_j² for the features σ(w·x), w ~ N(0, I/d), and
a_j = (1 + j) c_j² for the tangent kernel. Its eigenfunctions are the spherical harmonics, N_l of them in degree l:

.. math:: \lambda_l = \sum_{j \ge l} a_j\, E[s^j P_l(s)], \qquad b_l = N_l \lambda_l, \qquad K(1) = \sum_l b_l

with P_l the Legendre polynomial in d dimensions. All terms are positive, so that nothing cancels. On Gaussian inputs
each degree has a matrix in the radius instead of one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dynamics.problem.teacher import Polynomial, Unit
from hermite import HermiteExpansion, expand
from hermite.arrays import Array, Integers
from hermite.polynomials import MAX_DEGREE
from hermite.quadrature import integrate
from hermite.text.messages import require

#: Monomials of a polynomial: exponents -> coefficient.
_Terms: TypeAlias = Mapping[tuple[int, ...], Fraction]
#: Kernels by name -> weight of c_j² s^j.
WEIGHTS: dict[str, Callable[[Array], Array]] = {"features": np.ones_like, "ntk": lambda degree: 1.0 + degree}
#: A degree in which a teacher has less than this part of its mean square counts as empty.
EMPTY = 1e-12
#: Nodes in the squared radius of Gaussian inputs, and eigenvalues, relative to the largest of their degree, that count
#: as zero.
RADII, LEAST_EIGENVALUE = 16, 1e-13
#: Degrees with more harmonics than this many for each sample are part of the tail.
MOST_HARMONICS = 1e7
#: A mode with less than this part of the mean of K(x, x) is part of the tail unless the teacher has a part in it.
LEAST_SIZE = 1e-13
#: Dimensions up to which harmonics of degree 300 oscillate faster than panels made for a link alone resolve.
FEW_DIMENSIONS = 8
#: A degree with more harmonics than this counts as not seen: its samples are beyond any number.
MOST_EIGENFUNCTIONS = 1e100
#: Nodes and constants of Weideman's contour for inverse Laplace transforms.
CONTOUR, CONTOUR_NODES = (-0.6122, 0.5017, 0.6407, 0.2645j), 32
#: Part by which rounding may take a sum of squares beyond its bound.
JUMP = 1e-9
#: Half the length of the interval of ln κ at first, and how often it is halved; steps of the continuation of complex κ,
#: each with so many steps of Newton.
LARGEST_LOG, HALVINGS, CONTINUATION, NEWTON = 700.0, 64, 48, 4


# --- polynomials on the sphere ----------------------------------------------------------------------------------------


def harmonics(degrees: ArrayLike, dimension: int) -> Array:
    r"""Return N_l = (2l + d − 2)/l · C(l + d − 3, l − 1), the number of harmonics of degrees l on the sphere in R^d.

    >>> harmonics([0, 1, 2, 3], 3).round(6).tolist()
    [1.0, 3.0, 5.0, 7.0]
    """
    from scipy.special import gammaln

    degree, d = np.asarray(degrees, dtype=np.float64), float(dimension)
    above = np.maximum(degree, 1.0)
    logs = np.log((2.0 * above + d - 2.0) / above) + gammaln(above + d - 2.0) - gammaln(above) - gammaln(d - 1.0)
    return np.asarray(np.where(degree == 0.0, 1.0, np.exp(np.minimum(logs, LARGEST_LOG))))


def mean_powers(degrees: Array, dimension: int) -> Array:
    r"""Return E[s^j P_l(s)] for all j and l in `degrees`, (j, l), s a coordinate of a point on the unit sphere in R^d.

    .. math:: \frac{\Gamma(d/2)}{\sqrt\pi\, 2^l}\, \frac{j!}{(j-l)!}\, \frac{\Gamma((j-l+1)/2)}{\Gamma((j+l+d)/2)}

    for j ≥ l of the same parity, and 0 for others.
    """
    from scipy.special import gammaln

    j, ell, half = degrees[:, None], degrees[None, :], 0.5 * dimension
    rest = np.maximum(j - ell, 0.0)
    logs = gammaln(j + 1.0) - gammaln(rest + 1.0) + gammaln(0.5 * (rest + 1.0)) - gammaln(0.5 * (j + ell) + half)
    values = np.exp(logs + gammaln(half) - 0.5 * np.log(np.pi) - ell * np.log(2.0))
    return np.asarray(np.where((j >= ell) & ((j - ell) % 2.0 == 0.0), values, 0.0))


def legendre(s: Array, dimension: int, *, normalised: bool = False) -> Iterator[Array]:
    """Yield P_l(s), with P_l(1) = 1, or √N_l P_l(s), for l = 0 … 300 in the shape of s, in d dimensions."""
    d, before, value = float(dimension), np.zeros_like(s), np.ones_like(s)
    low = 0.0
    for ell in range(MAX_DEGREE + 1):
        yield value
        step = ell + 1.0
        high = np.sqrt(
            1.0 / d if ell == 0 else step * (step + d - 3.0) / ((2.0 * step + d - 2.0) * (2.0 * step + d - 4.0))
        )
        if normalised:
            before, value, low = value, (s * value - low * before) / high, high
        elif ell == 0:
            before, value = value, s
        else:
            before, value = value, ((2.0 * ell + d - 2.0) * s * value - ell * before) / (ell + d - 2.0)


# --- kernels and teachers by degree -----------------------------------------------------------------------------------


class SphereRule(NamedTuple):
    """Points s of one coordinate on the unit sphere, and weights of sum 1, (n,) each, refined at kinks of a link."""

    points: Array
    weights: Array


def sphere_rule(value: Callable[[Array], Array], dimension: int) -> SphereRule:
    """Return the rule for means of `value`, a function of √d s; s is a quantile of a normal number.

    In few dimensions the rule is fine enough for the oscillations of the highest harmonics too.
    """
    from scipy.special import ndtr, stdtrit

    df = float(dimension - 1)

    def coordinate(z: Array) -> Array:
        """Return s, of which t = s √(d − 1)/√(1 − s²) has Student's law, at normal quantiles z."""
        t = stdtrit(df, ndtr(-np.abs(z)))
        return np.asarray(-np.sign(z) * t / np.sqrt(df + t**2))

    def refined(z: Array) -> Array:
        """Return the function by which panels are halved: its square has the last harmonic in few dimensions."""
        s = coordinate(z)
        last = np.cos(0.5 * MAX_DEGREE * np.arccos(s)) if dimension <= FEW_DIMENSIONS else 0.0
        return np.asarray(value(np.sqrt(dimension) * s) * (1.0 + last))

    rule = integrate(refined, 0)
    weights = rule.weights * np.exp(-0.5 * rule.nodes**2)
    return SphereRule(coordinate(rule.nodes), weights / weights.sum())


def kernel_weights(link: HermiteExpansion, radius: float, kernel: str) -> tuple[Array, float]:
    """Return √a_j for j = 0 … 300, with the sign of c_j, and K(x, x) on a sphere |x| = `radius` √d.

    ValueError is raised for the tangent kernel of a link with jumps, whose K(x, x) is infinite.
    """
    degree = np.arange(MAX_DEGREE + 1, dtype=np.float64)
    if radius == 1.0:
        series = expand(link, order=MAX_DEGREE)
        c = np.where(np.abs(series.coefficients) > series.tolerance, series.coefficients, 0.0)
        size = series.norm_squared
    else:
        found = integrate(lambda z: link.value(radius * z), MAX_DEGREE)
        c = np.where(np.abs(found.coefficients) > 10.0 * found.coefficient_error, found.coefficients, 0.0)
        size = found.norm_squared
    if kernel == "ntk":
        slope = radius**2 * integrate(lambda z: link.derivative(radius * z), 0).norm_squared
        require(
            float(degree @ c**2) <= slope * (1.0 + JUMP),
            "Argument `kernel` must be 'features' for a link with jumps, where its slope is infinite, but is 'ntk' "
            f"for {link.name}.",
        )
        size += slope
    return np.sqrt(WEIGHTS[kernel](degree)) * c, size


@dataclass(frozen=True, slots=True, eq=False)
class KernelModes:
    r"""Eigenvalues of a kernel, and what a teacher has in their eigenspaces; all arrays are (modes,).

    `multiplicity` is the number of eigenfunctions of a mode, `target` the mean square of the teacher in it, and `tail`
    the part of the mean of K(x, x) that belongs to no mode. Modes of eigenvalue 0 hold what the kernel does not see.
    """

    degree: Integers
    eigenvalue: Array
    multiplicity: Array
    target: Array
    tail: float

    @property
    def trace(self) -> float:
        """Mean of K(x, x); on the sphere K(1)."""
        return float(self.eigenvalue @ self.multiplicity) + self.tail

    @property
    def lost(self) -> float:
        """Mean square of the teacher that the kernel does not see, however many samples there are."""
        return float(self.target[self.eigenvalue == 0.0].sum())

    def limited(self, samples: float) -> KernelModes:
        """Return the modes; those with too many eigenfunctions for so many samples, or no part in K, join the tail."""
        size = self.eigenvalue * self.multiplicity
        is_small = (size < LEAST_SIZE * self.trace) & (self.target == 0.0)
        is_far = (self.multiplicity > MOST_HARMONICS * max(samples, 1.0)) | is_small
        far = float(size[is_far].sum())
        value = np.where(is_far, 0.0, self.eigenvalue)
        kept = (value > 0.0) | (self.target > 0.0)
        count = np.where(is_far, 0.0, self.multiplicity)
        return KernelModes(self.degree[kept], value[kept], count[kept], self.target[kept], self.tail + far)

    def by_degree(self, values: Array, last: int) -> Array:
        """Return the sums of `values` (…, modes) over the modes of each degree 0 … last, as (…, last + 1)."""
        return np.asarray(values @ (self.degree[:, None] == np.arange(last + 1)).astype(np.float64))


def kernel_modes(
    link: HermiteExpansion,
    teacher: Sequence[Unit] | Polynomial,
    dimension: int,
    *,
    kernel: str = "ntk",
    gaussian: bool = False,
) -> KernelModes:
    """Return the modes of the kernel of a link, w ~ N(0, I/d), and of the teacher Σ_p a_p σ_p(θ_p·x + β_p).

    `kernel` is "ntk" or "features". Inputs are on the sphere |x| = √d, or Gaussian, whose squared radius has 16 nodes.
    A teacher that is a polynomial is known on the sphere alone.
    """
    if gaussian:
        nodes, weights = laguerre(RADII, 0.5 * dimension - 1.0)
        radii = np.sqrt(2.0 * nodes / dimension)
    else:
        radii, weights = np.ones(1), np.ones(1)
    rows, sizes = zip(*(kernel_weights(link, float(r), kernel) for r in radii), strict=True)
    degree, root = np.arange(MAX_DEGREE + 1, dtype=np.float64), np.sqrt(weights)
    series = np.array(rows) * root[:, None]
    matrices = np.einsum("rj,sj,jl->lrs", series, series, mean_powers(degree, dimension), optimize=True)
    values, vectors = np.linalg.eigh(matrices)
    values = np.where(values > LEAST_EIGENVALUE * values[:, -1:], values, 0.0)
    if isinstance(teacher, Polynomial):
        parts, beyond = polynomial_parts(teacher, dimension)[:, None], 0.0
    else:
        parts, beyond = teacher_squares(teacher, radii, weights, vectors, dimension)
    return assembled(values, parts, beyond, dimension, float(np.array(sizes) @ weights))


def teacher_squares(
    units: Sequence[Unit], radii: Array, weights: Array, vectors: Array, dimension: int
) -> tuple[Array, float]:
    """Return the mean square of the teacher by degree and radial function (l, a), and that in all higher degrees.

    Radii are in units of √d; `vectors` (l, radius, a) are orthonormal radial functions on them, with the roots of the
    weights.
    """
    curves = {(unit.link, unit.bias): np.empty(0) for unit in units}
    for link, bias in curves:
        curves[link, bias] = np.array([unit_parts(link, bias, r, dimension) for r in radii.tolist()])
    size = np.array([unit.coefficient for unit in units])
    rows = np.array([curves[unit.link, unit.bias] for unit in units])
    beyond = float(size**2 @ (rows[..., -1] @ weights))
    parts = np.einsum("u,r,url,lra->lua", size, np.sqrt(weights), rows[..., :-1], vectors, optimize=True)
    directions = np.array([unit.direction for unit in units])
    cosines = np.clip(directions @ directions.T, -1.0, 1.0)
    if np.array_equal(cosines, np.eye(len(units))):
        across = np.array(list(legendre(np.zeros(()), dimension)))[:, None]
        return (1.0 - across) * np.sum(parts**2, axis=1) + across * np.sum(parts, axis=1) ** 2, beyond
    joint = zip(parts, legendre(cosines, dimension), strict=True)
    return np.array([np.sum(part * (value @ part), axis=0) for part, value in joint]), beyond


def unit_parts(link: HermiteExpansion, bias: float, radius: float, dimension: int) -> Array:
    """Return √N_l E[σ(r√d s + β) P_l(s)] for l = 0 … 300 and the mean square in all higher degrees, (302,).

    s is a coordinate of a point on the unit sphere, r the radius and β the bias.
    """
    rule = sphere_rule(lambda z: link.value(radius * z + bias), dimension)
    values = link.value(radius * np.sqrt(dimension) * rule.points + bias)
    weighted = rule.weights * values
    parts = [float(weighted @ value) for value in legendre(rule.points, dimension, normalised=True)]
    return np.array([*parts, max(float(weighted @ values) - float(np.sum(np.square(parts))), 0.0)])


def feature_modes(link: HermiteExpansion, teacher: Sequence[Unit] | Polynomial, dimension: int) -> KernelModes:
    """Return the modes of the mean kernel of features σ(w·x), w uniform on the unit sphere, on |x| = √d."""
    if isinstance(teacher, Polynomial):
        parts, beyond = polynomial_parts(teacher, dimension)[:, None], 0.0
    else:
        unit = np.ones(1)
        parts, beyond = teacher_squares(teacher, unit, unit, np.ones((MAX_DEGREE + 1, 1, 1)), dimension)
    *means, rest = unit_parts(link, 0.0, 1.0, dimension).tolist()
    squares = np.square(means)
    squares = np.where(squares > EMPTY * (squares.sum() + rest), squares, 0.0)
    values = squares / harmonics(np.arange(squares.size), dimension)
    return assembled(values[:, None], parts, beyond, dimension, float(squares.sum() + rest))


def polynomial_parts(polynomial: Polynomial, dimension: int) -> Array:
    r"""Return the mean square of a polynomial on |x| = √d in each degree l = 0 … 300.

    On the sphere a monomial p of degree m has the spherical Laplacian d Δp − m (m + d − 2) p, whose eigenvalue in
    degree l is −l (l + d − 2); a product of factors removes all degrees but one. Numbers are exact.
    """
    d, parts = dimension, np.zeros(MAX_DEGREE + 1)
    terms = zip(polynomial.exponents.tolist(), polynomial.powers.tolist(), strict=True)
    whole = {tuple(exponents): Fraction(value) for exponents, value in terms}
    degrees = range(max(map(sum, whole)) + 1)
    for ell in degrees:
        part: _Terms = whole
        for degree in degrees:
            if degree != ell:
                part = _without_degree(part, degree, Fraction(1, degree * (degree + d - 2) - ell * (ell + d - 2)), d)
        parts[ell] = float(
            sum(a * b * _moment(alpha, beta, d) for alpha, a in whole.items() for beta, b in part.items())
        )
    return parts


def _without_degree(terms: _Terms, degree: int, factor: Fraction, dimension: int) -> _Terms:
    """Return `factor` times the spherical Laplacian plus l (l + d − 2), l = `degree`, of a polynomial on |x| = √d."""
    result: dict[tuple[int, ...], Fraction] = {}
    for alpha, value in terms.items():
        m = sum(alpha)
        kept = value * (degree * (degree + dimension - 2) - m * (m + dimension - 2))
        result[alpha] = result.get(alpha, Fraction(0)) + factor * kept
        for axis, power in enumerate(alpha):
            if power > 1:
                lower = (*alpha[:axis], power - 2, *alpha[axis + 1 :])
                result[lower] = result.get(lower, Fraction(0)) + factor * value * dimension * power * (power - 1)
    return result


def _moment(alpha: tuple[int, ...], beta: tuple[int, ...], dimension: int) -> Fraction:
    """Return E[x^(α + β)] for x uniform on |x| = √d."""
    powers = [a + b for a, b in zip(alpha, beta, strict=True)]
    if any(power % 2 for power in powers):
        return Fraction(0)
    above = math.prod(math.prod(range(1, power, 2)) for power in powers)
    below = math.prod(range(dimension, dimension + sum(powers), 2))
    return Fraction(above * dimension ** (sum(powers) // 2), below)


def assembled(values: Array, parts: Array, beyond: float, dimension: int, trace: float) -> KernelModes:
    """Return modes from eigenvalues and parts of the teacher by degree and radial function, (l, a).

    `beyond` is the mean square of the teacher in higher degrees, `trace` the mean of K(x, x). Parts of a degree that
    the kernel does not see are one mode; so are those of degrees that no number of samples reaches.
    """
    degree, total = np.arange(len(values)), float(parts.sum() + beyond)
    several, number = np.repeat(degree, values.shape[1]), harmonics(degree, dimension)
    values = np.where(number[:, None] < MOST_EIGENFUNCTIONS, values, 0.0)
    is_seen = values > 0.0
    count = np.where(is_seen, number[:, None], 0.0).ravel()
    seen, blind = np.where(is_seen, parts, 0.0).ravel(), np.append(np.where(is_seen, 0.0, parts).sum(axis=1), beyond)
    modes = KernelModes(
        np.concatenate([several, degree, [len(values)]]),
        np.concatenate([values.ravel(), np.zeros(blind.size)]),
        np.concatenate([count, np.zeros(blind.size)]),
        np.concatenate([seen, blind]),
        max(trace - float(values.ravel() @ count), 0.0),
    )
    target = np.where(modes.target > EMPTY * total, modes.target, 0.0)
    return replace(modes, target=target)


def laguerre(count: int, power: float) -> tuple[Array, Array]:
    """Return nodes of Gauss's rule for the density x^power e^(−x)/Γ(power + 1) on x > 0, and weights of sum 1."""
    from scipy.linalg import eigh_tridiagonal

    step = np.arange(count, dtype=np.float64)
    nodes, vectors = eigh_tridiagonal(2.0 * step + power + 1.0, np.sqrt(step[1:] * (step[1:] + power)))
    return np.asarray(nodes, dtype=np.float64), np.asarray(vectors[0] ** 2, dtype=np.float64)


# --- errors -----------------------------------------------------------------------------------------------------------


def ridge_error(modes: KernelModes, samples: Array, ridge: float, noise: float, width: float = np.inf) -> Array:
    r"""Return the test errors of ridge regression on n samples, by mode as (n, modes); at finite width in total, (n,).

    .. math:: \delta = \kappa (n - z)(1 - z/m), \quad \ell_l = \frac{\lambda_l}{\lambda_l + \kappa}, \quad
       z = \sum_l N_l \ell_l + \frac{\text{tail}}{\kappa}, \quad q = \sum_l N_l \ell_l^2

    .. math:: E + \tau^2 = \frac{\sum_l v_l^2 (1 - \ell_l)(1 - \ell_l \frac{1 - z/m}{1 - q/m}) + \tau^2}
       {1 - \frac{q (1 - 2z/m) + z^2/m}{n (1 - q/m)}}

    with the ridge δ on the matrix K(x_i, x_j), and the number m of features σ(w·x)/√m, infinite for the kernel.
    """
    value, count, n = modes.eigenvalue, modes.multiplicity, samples[:, None]

    def used(log: Array) -> tuple[Array, Array, Array]:
        """Return κ, ℓ (n, modes) and z at ln κ, (n, 1)."""
        kappa = np.exp(log)
        learned = value / (value + kappa)
        return kappa, learned, (learned @ count)[:, None] + modes.tail / kappa

    low, high = np.full_like(n, -LARGEST_LOG), np.full_like(n, LARGEST_LOG)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        kappa, _, z = used(middle)
        is_above = (z < np.minimum(n, width)) & (kappa * (n - z) * (1.0 - z / width) > ridge)
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    kappa, learned, z = used(high)
    q = (learned**2 @ count)[:, None]
    bias = modes.target * (1.0 - learned) * (1.0 - learned * (1.0 - z / width) / (1.0 - q / width))
    amplified = (q * (1.0 - 2.0 * z / width) + z**2 / width) / (n * (1.0 - q / width))
    whole = (bias.sum(axis=1, keepdims=True) + noise**2) / (1.0 - amplified)
    if np.isfinite(width):
        return np.asarray(whole[:, 0] - noise**2)
    return np.asarray(bias + whole * learned**2 * count / n)


def flow_error(modes: KernelModes, samples: float, times: Array, noise: float) -> Array:
    r"""Return the test errors by mode, (times, modes), of the gradient flow f' = K(·, X)(y − f)/n at times t > 0.

    .. math:: E + \tau^2 = \mathrm{Re} \sum_{ab} \frac{\omega_a \omega_b e^{(s_a + s_b) t}}{s_a s_b}\,
       \frac{\sum_l v_l^2 \kappa_a \kappa_b/((\lambda_l + \kappa_a)(\lambda_l + \kappa_b)) + \tau^2}{1 - \gamma_{ab}},
       \quad \gamma_{ab} = \frac1n \sum_l \frac{N_l \lambda_l^2}{(\lambda_l + \kappa_a)(\lambda_l + \kappa_b)}

    with the nodes s_a and weights ω_a of a contour for e^{st}, and κ_a as in `resolvent_scale`. It tends to
    exp(−2λ_l t) v_l² for infinitely many samples alone.
    """
    value, count = modes.eigenvalue, modes.multiplicity
    shift, slope, inner, drift = CONTOUR
    angle = (2.0 * np.arange(CONTOUR_NODES) + 1.0 - CONTOUR_NODES) * np.pi / CONTOUR_NODES
    cotangent = 1.0 / np.tan(inner * angle)
    node = CONTOUR_NODES * (shift + slope * angle * cotangent + drift * angle)
    turn = CONTOUR_NODES * (slope * (cotangent - inner * angle / np.sin(inner * angle) ** 2) + drift)
    weight = np.exp(node) * turn / (1j * CONTOUR_NODES * node)
    error = np.empty((times.size, value.size))
    for index, t in enumerate(times.tolist()):
        kappa = resolvent_scale(modes, samples, node / t)
        left = kappa[:, None] / (value + kappa[:, None])
        fitted = (1.0 - left) * np.sqrt(count / samples)
        outer = weight[:, None] * weight
        whole = outer * ((left * modes.target) @ left.T + noise**2) / (1.0 - fitted @ fitted.T)
        bias = modes.target * np.einsum("am,ab,bm->m", left, outer, left, optimize=True)
        error[index] = (bias + np.einsum("am,ab,bm->m", fitted, whole, fitted, optimize=True)).real
    return error


def resolvent_scale(modes: KernelModes, samples: float, at: NDArray[np.complex128]) -> NDArray[np.complex128]:
    r"""Return κ(s) at complex s, in the shape of s: the root that tends to s + K(1)/n at large \|s\|.

    .. math:: \kappa \Big(1 - \frac1n \sum_l \frac{N_l\lambda_l}{\lambda_l + \kappa}\Big) - \frac{\text{tail}}{n} = s
    """
    value, count = modes.eigenvalue, modes.multiplicity / samples
    farthest = max(1.0, 1e3 * modes.trace / float(np.abs(at).min()))
    kappa = at * farthest + modes.trace / samples
    for far in np.geomspace(farthest, 1.0, CONTINUATION):
        for _ in range(NEWTON):
            share = value / (value + kappa[:, None])
            miss = kappa * (1.0 - share @ count) - modes.tail / samples - at * far
            kappa = kappa - miss / (1.0 - share**2 @ count)
    return np.asarray(kappa)


def online_error(modes: KernelModes, samples: Integers, learning_rate: float, noise: float) -> Array:
    r"""Return the test errors by mode, (n, modes), after n steps f ← f + η (y − f(x)) K(x, ·), on the sphere.

    .. math:: R_l \leftarrow R_l (1 - 2\eta\lambda_l) + \eta^2 \lambda_l b_l \Big(\sum_m R_m + \tau^2\Big)

    It is exact at every d, since K(x, x) is constant there. The steps are powers of one matrix by squaring.
    """
    value, size = modes.eigenvalue, modes.target.size
    step = np.zeros((size + 1, size + 1))  # the last row and column are the noise, which stays
    step[:size] = (learning_rate**2 * value**2 * modes.multiplicity)[:, None]
    step[np.arange(size), np.arange(size)] -= 2.0 * learning_rate * value
    order = np.argsort(samples)
    counts = samples[order]
    left, state = np.diff(counts, prepend=0), np.append(modes.target, noise**2)
    error = np.empty((samples.size, size))
    powers = [step]
    for _ in range(int(left.max()).bit_length() - 1):
        powers.append(2.0 * powers[-1] + powers[-1] @ powers[-1])
    for place, steps in zip(order.tolist(), left.tolist(), strict=True):
        for bit, power in enumerate(powers):
            if steps >> bit & 1:
                state = state + power @ state
        error[place] = state[:-1]
    return error


def online_floor(modes: KernelModes, learning_rate: float, noise: float) -> float:
    """Return the mean error at which online steps end, (lost + x τ²)/(1 − x) for x = η K(1)/2 < 1."""
    x = 0.5 * learning_rate * modes.trace
    return (modes.lost + x * noise**2) / (1.0 - x)
