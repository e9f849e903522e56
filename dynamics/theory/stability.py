r"""Mean-square stability of SGD near a student that fits its teacher, from the linear map of second moments.

With −L of first order in η and T of second order (`docs/step_equations.md`), every η < 1/ρ(L⁻¹T) is stable and no
larger one is; both are self-adjoint, so that the quotient of Rayleigh of power iteration converges quadratically.
Functions u multiply coordinates outside of the teacher's axes, h are all other parts of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import Problem, Student, check_fields, is_network, is_spherical
from dynamics.problem.checks import check_memory
from dynamics.problem.student import COMMITTEE, HOMOGENEOUS, NETWORK
from dynamics.theory.axis_moments import STEP, AxisMoments, Function, gaussian_points
from dynamics.theory.axis_squares import Squares, largest_growth
from dynamics.theory.components import escapes_end
from dynamics.theory.pairs import first_learned
from hermite import HermiteExpansion
from hermite.arrays import Array, Integers
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from dynamics.equations.interface import FlowSystem

    Flags: TypeAlias = NDArray[np.bool_]
    Rates: TypeAlias = tuple[Array | float, Array | float]

#: Power iterations at most, and the relative change of the quotient at which they end where moments are not exact.
ITERATIONS, TOLERANCE = 2000, 1e-6
#: Part of the largest eigenvalue of L below which a direction of parameters changes nothing, and of Q − MMᵀ below which
#: an axis beyond the teacher's counts as empty.
ZERO, EMPTY_AXIS = 1e-10, 1e-8
#: Neurons on separate axes up to which all moments are formed, and, where they decouple, squares of all weights.
MOST_EXACT, MOST_SQUARES = 6, 1000
#: Numbers of no axes.
NO_AXES = np.arange(0)
#: Classes of units, and of eigenvalues of inputs, at most: neighbours are put together beyond, with their mean.
MOST_CLASSES, MOST_EIGENVALUES = 96, 24
#: Points of a product rule for two axes, per axis; of a sample for more; and of one with many functions.
NODES, POINTS, FEW_POINTS, MANY_FUNCTIONS = 120, 2**14, 2**12, 96
#: Distance of Σ a_p from 1 within which it is 1.
WHOLE = 1e-9
#: Functions h up to which there are all points, and at most: of more, the teacher's axes count as if neurons did not
#: depend on them.
FEW_INSIDE, MOST_INSIDE = 272, 512
#: Links σ(2z) = 2^q σ(z), z > 0, and likewise for z < 0, are homogeneous; these are the points that are compared.
COMPARED = np.array([-1.7, -0.6, -0.1, 0.2, 0.9, 1.4])
#: Accuracy of the flow to the state, and steps between two looks at most.
RTOL, ATOL, MOST_STEPS = 1e-4, 1e-6, 20_000
#: Shares of the default times at which the loss is looked at, and the part of E f*² at which the teacher is learned.
SHARES, LEARNED = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 3e-3


@dataclass(frozen=True)
class UnitClasses:
    """Classes of equal, independent units: each has the same k functions F of its own Gaussian coordinate.

    There are C classes, of `count` (C,) units each. Functions are of the kind u, which coordinates outside of the
    teacher's axes multiply, where `beyond` (k,) says so, and of the kind h, all other parts of the gradient, else.
    `mean` (C, k) and `cumulants`, of order 2 to 4 with shapes (C, k, k), (C, k, k, k) and (C, k, k, k, k), are those of
    F. Second moments are those of sums over n equal units, Σ_i δ_i/√n, (C k, C k), and those of differences, (C, k, k).
    """

    count: Array
    beyond: Flags
    mean: Array
    cumulants: tuple[Array, Array, Array]

    @classmethod
    @np.errstate(under="ignore")
    def of(cls, functions: Sequence[Callable[[Array], Array]], beyond: Sequence[bool]) -> UnitClasses:
        """Return one class of one unit with the given functions of z ~ N(0, 1); `beyond` tells which are of kind u."""
        z = gaussian_points()
        # Every factor takes a quarter of the Gaussian, so that polynomials of high degree stay within float64.
        share, scale = np.exp(-0.125 * z**2), STEP / math.sqrt(2.0 * math.pi)
        values = [function(z) * share for function in functions]
        mean = np.array([scale * np.sum(value * share**3) for value in values])
        F = np.array(values) - mean[:, None] * share
        pairs = F[:, None] * F
        second, third = scale * (pairs @ share**2), scale * np.einsum("abn,cn->abc", pairs, F * share)
        fourth = scale * np.einsum("abn,cdn->abcd", pairs, pairs)
        for order in ("abcd", "acbd", "adbc"):
            fourth -= np.einsum(f"{order[:2]},{order[2:]}->abcd", second, second)
        return cls(np.ones(1), np.array(beyond), mean[None], (second[None], third[None], fourth[None]))

    def scaled(self, squares: Array, count: Array) -> UnitClasses:
        """Return classes of `count` (C,) units, whose functions are √squares (C,) times those of this one unit."""
        root = np.sqrt(squares)
        second, third, fourth = (
            root.reshape(-1, *[1] * order) ** order * cumulant for order, cumulant in enumerate(self.cumulants, start=2)
        )
        return UnitClasses(count, self.beyond, root[:, None] * self.mean, (second, third, fourth))

    @property
    def differences(self) -> Array:
        """Number n − 1 of independent differences within each class, shape (C, 1, 1)."""
        return (self.count - 1.0)[:, None, None]

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

    def second(self) -> tuple[Array, Array]:
        """Return the second moments E F Fᵀ of the sums over classes, (C k, C k), and of differences, (C, k, k)."""
        return self._placed(self.cumulants[0]) + np.outer(self._sums, self._sums), self.cumulants[0]

    def grown(self, X: Sequence[Array], beyond: float) -> list[Array]:
        """Return the covariance that the noise of one sample adds in a step, to first order in the covariance X before.

        X is a list of two: a matrix (C k, C k) for the sums over equal units, and one (C, k, k) for differences between
        them; the list returned has these shapes. u and h are the two kinds of functions of the gradient, d' = `beyond`
        is the number of coordinates that multiply u, and D and S are the parts of X between functions u and between
        functions h. The parts returned are E u uᵀ ((d' + 2) uᵀ D u + hᵀ S h) and E h hᵀ (d' uᵀ D u + hᵀ S h).
        """
        outer = [np.outer(flags, flags) for flags in (np.tile(self.beyond, self.count.size), self.beyond)]
        of_both, of_u_alone = (
            self.fourth(*(np.where(is_u, of_u, of_h) * matrix for is_u, matrix in zip(outer, X, strict=True)))
            for of_u, of_h in ((beyond, 1.0), (2.0, 0.0))
        )
        return [both + is_u * alone for both, alone, is_u in zip(of_both, of_u_alone, outer, strict=True)]

    def fourth(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """Return the fourth moments E F Fᵀ (Fᵀ Z F) of the sums over classes, (C k, C k), and differences, (C, k, k).

        Z has the part X (C k, C k) between sums and Y (C, k, k) between differences; units are independent, so that
        cumulants of a single unit give all means.
        """
        (covariance, third, fourth), m, (C, k) = self.cumulants, self._sums, self.mean.shape
        M, _ = self.second()
        total = float(np.sum(M * X) + np.sum(self.differences * covariance * Y))
        pulled, root = X @ m, np.sqrt(self.count)[:, None]
        joint = total * M + 2.0 * M @ X @ M - 2.0 * (m @ pulled) * np.outer(m, m)
        apart = total * covariance + 2.0 * covariance @ Y @ covariance
        # Of one unit alone: its block of X, and the terms of third cumulants that join it to a mean.
        block = X.reshape(C, k, C, k)[np.arange(C), :, np.arange(C), :]
        block = (block + self.differences * Y) / self.count[:, None, None]
        skew = (root * np.einsum("nacd,ncd->na", third, block)).ravel()
        joint += np.outer(skew, m) + np.outer(m, skew)
        alone = 2.0 * np.einsum("nabc,nc->nab", third, pulled.reshape(C, k) / root)
        alone += np.einsum("nabcd,ncd->nab", fourth, block)
        return joint + self._placed(alone), apart + alone


def outer_axes(problem: Problem, inside: Integers = NO_AXES) -> tuple[Array, Array]:
    """Return eigenvalues (C,) of the inputs on all axes but those numbered in `inside`, and how many axes have each.

    Neighbouring eigenvalues are merged, with their mean, where there are more than 24.
    """
    axes = problem.input_axes()
    if axes is None:
        return np.ones(1), np.array([float(problem.dimension - inside.size)])
    counts = axes.sizes - np.bincount(axes.kind[inside], minlength=axes.sizes.size)
    kept = (counts > 0) & (axes.eigenvalue > 0.0)
    return _classes(axes.eigenvalue[kept], counts[kept].astype(np.float64), MOST_EIGENVALUES)


def mean_square_limit(units: UnitClasses, beyond: float, batch_size: int, directions: int | None = None) -> float:
    """Return the learning rate up to which steps are stable in mean square, 1/ρ(L⁻¹T), for independent units.

    In a step second moments change by −η L in first order and by η² T in second; ρ is the spectral radius. Functions u
    are each multiplied by `beyond` coordinates outside of those that they depend on. Steps are of zeroth order along K
    `directions`, or for None those of SGD, over `batch_size` samples.
    """
    joint, apart = units.second()
    parts = [_Part(joint, np.tile(units.beyond, units.count.size)), _Part(apart, units.beyond)]
    sizes = (np.ones(()), units.differences)
    weights = [size * np.where(part.outer, beyond, 1.0) for size, part in zip(sizes, parts, strict=True)]

    def noise(X: Sequence[Array]) -> list[Array]:
        """Return T X for steps of one sample, without moments of u with h."""
        return [part.kept * matrix for part, matrix in zip(parts, units.grown(X, beyond), strict=True)]

    return _largest_rate(parts, weights, noise, batch_size, directions, (1.0, 1.0))


class GradientMoments(Protocol):
    """Second and fourth moments of functions u, which coordinates outside multiply, and of functions h."""

    #: E u uᵀ and E h hᵀ, and the relative change of the quotient up to which they are iterated.
    second: tuple[Array, Array]
    tolerance: float

    def grown(self, across: Array, along: Array) -> tuple[Array, Array]:
        """Return E[u uᵀ s] (m, m) and E[h hᵀ s] (k, k) with the quadratic form s = uᵀ X u + hᵀ Y h.

        X (m, m) is `across` and Y (k, k) `along`, both symmetric.
        """

    def grown_across(self, across: Array) -> Array:
        """Return E u uᵀ (uᵀ X u)."""


class _SampledMoments:
    """Second and fourth moments of functions u and h as sums over N points.

    The functions have the values `u` (N, m) and `h` (N, k) there, and `points` (N,) are the weights, of sum 1.
    """

    tolerance = TOLERANCE

    def __init__(self, u: Array, h: Array, points: Array) -> None:
        self._u, self._h, self._points = u, h, points
        self.second = self._mean(u, 1.0), self._mean(h, 1.0)

    def _mean(self, F: Array, square: Array | float) -> Array:
        """Return E s F Fᵀ, (k, k), for functions F (N, k) and a factor s, a number or of shape (N,)."""
        return np.asarray(F.T @ ((square * self._points)[:, None] * F))

    def grown(self, across: Array, along: Array) -> tuple[Array, Array]:
        """Return E[u uᵀ s] (m, m) and E[h hᵀ s] (k, k) as sums over the points, s = uᵀ X u + hᵀ Y h.

        X (m, m) is `across` and Y (k, k) `along`, both symmetric.
        """
        square = sum(np.sum(F @ matrix * F, axis=1) for F, matrix in ((self._u, across), (self._h, along)))
        return self._mean(self._u, square), self._mean(self._h, square)

    def grown_across(self, across: Array) -> Array:
        """Return E u uᵀ (uᵀ X u)."""
        return self._mean(self._u, np.sum(self._u @ across * self._u, axis=1))


def sampled_limit(
    samples: tuple[Array, Array, Array],
    outside: tuple[Array, Array],
    batch_size: int,
    directions: int | None = None,
    rates: Rates = (1.0, 1.0),
) -> float:
    """Return the largest learning rate that is stable in mean square, by moments that are sums over points.

    `samples` are the values of the functions u (N, m), which coordinates outside multiply, of the functions h (N, k),
    all other parts of the gradient, and the weights of the points (N,). The other arguments are those of
    `limit_of_moments`.
    """
    return limit_of_moments(_SampledMoments(*samples), outside, batch_size, directions, rates)


def limit_of_moments(
    moments: GradientMoments,
    outside: tuple[Array, Array],
    batch_size: int,
    directions: int | None = None,
    rates: Rates = (1.0, 1.0),
) -> float:
    """Return the largest learning rate that is stable in mean square, with functions u that coordinates multiply.

    `moments` are those of functions u and of all other parts h of the gradient. `outside` are the eigenvalues (C,) of
    the axes of the coordinates that multiply u, and the numbers of these axes. `rates` are the relative learning rates
    of the parameters that u belongs to and of those of h, numbers or one for each. Steps average over `batch_size`
    samples, and are of zeroth order along K `directions`, or for None those of SGD.
    """
    eigenvalues, counts = outside

    def noise(X: Sequence[Array]) -> list[Array]:
        """Return T X for steps of one sample: the blocks of u on each class of axes, and that of h."""
        weighted = (n * s * matrix for n, s, matrix in zip(counts, eigenvalues, X[:-1], strict=True))
        across, along = moments.grown(sum(weighted, np.zeros_like(of_u)), X[-1])
        of_axes = (
            s * (across + 2.0 * s * moments.grown_across(matrix)) for s, matrix in zip(eigenvalues, X, strict=False)
        )
        return [*of_axes, along]

    of_u, of_h = moments.second
    parts = [_Part(K, np.ones(len(K), dtype=bool)) for K in [*(s * of_u for s in eigenvalues), of_h]]
    of_rates = [*[rates[0]] * counts.size, rates[1]]
    sizes = list(np.append(counts, 1.0))
    return _largest_rate(parts, sizes, noise, batch_size, directions, of_rates, moments.tolerance)


def _largest_rate(
    parts: Sequence[_Part],
    weights: Sequence[Array],
    noise: Callable[[Sequence[Array]], list[Array]],
    batch_size: int,
    directions: int | None,
    rates: Sequence[Array | float],
    tolerance: float = TOLERANCE,
) -> float:
    """Return the largest stable learning rate, 1/ρ(L⁻¹T), by power iteration on blocks of second moments.

    In a step of rate η second moments X change by −η L X + η² T X. `parts` make L, `noise` returns T X for steps of SGD
    of one sample, `weights` are those of the inner product of blocks, and `rates` the relative learning rates of each
    part. It ends when the quotient of Rayleigh changes by less than the share `tolerance`.
    """

    def product(X: Sequence[Array], Y: Sequence[Array]) -> float:
        """Return the inner product of two lists of blocks."""
        return sum(float(np.sum(weight * a * b)) for weight, a, b in zip(weights, X, Y, strict=True))

    scales = [np.eye(part.K.shape[-1]) * rate for part, rate in zip(parts, rates, strict=True)]
    inverse = [np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0) for scale in scales]
    X = [part.divided(part.kept * np.eye(part.K.shape[-1])) for part in parts]
    quotient = 0.0
    for _ in range(ITERATIONS):
        Y = [
            of_sample / batch_size + (1.0 - 1.0 / batch_size) * part.K @ block @ part.K
            for part, block, of_sample in zip(parts, X, noise(X), strict=True)
        ]
        if directions is not None:
            share = product(inverse, Y) / directions
            Y = [share * scale + (1.0 + 1.0 / directions) * block for scale, block in zip(scales, Y, strict=True)]
        before = quotient
        LX = [part.K @ block + block @ part.K for part, block in zip(parts, X, strict=True)]
        quotient = product(X, Y) / product(X, LX)
        if abs(quotient - before) <= tolerance * quotient:
            break
        size = math.sqrt(product(Y, Y))
        X = [part.divided(block / size) for part, block in zip(parts, Y, strict=True)]
    return 1.0 / quotient


class _Part:
    """A block of the decay of second moments, the map X → K X + X K, and its inverse.

    K holds the second moments of functions u and of functions h, without mixed ones; `beyond` tells which are u.
    """

    def __init__(self, second: Array, beyond: Flags) -> None:
        """Keep the second moments (…, k, k) of all k functions but the mixed ones; `beyond` (k,) marks the u."""
        self.outer = (beyond[:, None] & beyond).astype(np.float64)
        self.kept = (beyond[:, None] == beyond).astype(np.float64)
        self.K = second * self.kept
        self._values, self._axes = np.linalg.eigh(self.K)

    def divided(self, Y: Array) -> Array:
        """Return the solution X of K X + X K = Y, which is 0 along parameters that do not change the output f."""
        sums, back = self._values[..., :, None] + self._values[..., None, :], np.swapaxes(self._axes, -1, -2)
        zero = sums <= ZERO * sums.max(initial=0.0)
        turned = np.where(zero, 0.0, back @ Y @ self._axes / np.where(zero, 1.0, sums))
        return np.asarray(self.kept * (self._axes @ turned @ back))


# --- students that are their teacher ----------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """Neurons whose output f equals the teacher's f*: weights (n, r) on the r axes of the teacher, and shares.

    `shares` (n,) are the factors that multiply the squared gradient of each neuron.
    """

    weights: Array
    shares: Array


def fitted_limit(problem: Problem, fitted: Fitted, batch_size: int, directions: int | None = None) -> float:
    """Return the learning rate up to which steps are stable in mean square about a student that is the teacher.

    They are steps of SGD of `batch_size` samples, or of zeroth order along K `directions`. Of the latter, on the
    sphere, the part of the gradient along the neurons, a share 1/d of the noise, is left out.
    """
    on_axes, count = problem.teacher.is_orthonormal, fitted.shares.size
    if on_axes and count <= MOST_EXACT:
        return limit_of_moments(*_on_axes(problem, fitted), batch_size, directions)
    if neurons_decouple(problem) and (problem.inputs is not None or count <= MOST_SQUARES):
        return 1.0 / largest_growth(Squares.of(problem), batch_size, directions)
    if on_axes and problem.inputs is None:
        return mean_square_limit(*_separate(problem, fitted), batch_size, directions)
    return sampled_limit(*_together(problem, fitted), batch_size, directions)


def narrow_limit(problem: Problem, batch_size: int, directions: int | None = None) -> float:
    """Return the limit of the learning rate of a homogeneous student with fewer neurons than directions.

    It is the smaller one of the limits at the start and at the end of the flow.
    """
    # Other limits need no compiler.
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.theory.prediction import default_times

    system, rows, limits = OverlapSystem(problem), problem.teacher.directions, []
    for state in (system.initial_state, _end_of_flow(system, float(default_times(problem, None).times[-1]))):
        C, G, n = system.unpack(state)
        M = C if rows is None else C @ np.linalg.pinv(rows).T
        weights = np.sqrt(n)[:, None] * np.hstack([M, _beyond(M, G)])
        limits.append(sampled_limit(*_together(problem, Fitted(weights, np.ones(n.size))), batch_size, directions))
    return min(limits)


def fitted_neurons(problem: Problem) -> Fitted | None:
    """Return the neurons of a student that equals its teacher where width and coefficients fix them, else None.

    Such students are homogeneous with m ≥ P, a committee with m = P and a link σ(tz) = t^q σ(z), or with m = Σ a_p of
    whole a_p, and the spherical student with m ≥ P and Σ a_p = 1. Where neurons decouple and m < P the teacher is that
    of the directions that are learned first.
    """
    teacher, link = problem.teacher, problem.activation
    a, directions = teacher.coefficients, np.eye(teacher.span) if teacher.directions is None else teacher.directions
    if problem.kind == NETWORK or problem.teacher_link != link:
        return None
    if problem.kind == COMMITTEE:
        degree = degree_of(link)
        if degree is not None and problem.width == a.size:
            return Fitted(a[:, None] ** (1.0 / degree) * directions, np.ones(a.size))
        is_whole = bool(np.all(a == np.rint(a))) and problem.width == round(float(a.sum()))
        return Fitted(directions, a) if is_whole else None
    if problem.width < a.size and not neurons_decouple(problem):
        return None
    if problem.kind == HOMOGENEOUS:
        learned = first_learned(problem)
        return Fitted(np.sqrt(a[learned])[:, None] * directions[learned], np.ones(learned.size))
    return Fitted(directions, a) if abs(float(a.sum()) - 1.0) <= WHOLE else None


def neurons_decouple(problem: Problem) -> bool:
    """Return whether squared deviations of converged neurons close among themselves.

    They do for a homogeneous student of orthonormal directions whose link has the Hermite coefficient c_1 = 0.
    """
    link, teacher = problem.activation, problem.teacher
    return problem.kind == HOMOGENEOUS and teacher.is_orthonormal and (link.order < 1 or link.coefficients[1] == 0.0)


def degree_of(link: HermiteExpansion) -> float | None:
    """Return the degree q ≥ 1 of a link with σ(tz) = t^q σ(z) for t > 0, None of any other."""
    once, twice = link.value(COMPARED), link.value(2.0 * COMPARED)
    place = int(np.argmax(np.abs(once)))
    degree = round(math.log2(max(twice[place] / once[place], 1.0)), 9) if once[place] else 0.0
    return degree if degree >= 1.0 and np.allclose(twice, 2.0**degree * once, rtol=1e-12, atol=1e-14) else None


def _on_axes(problem: Problem, fitted: Fitted) -> tuple[AxisMoments, tuple[Array, Array]]:
    """Return the moments of the gradients of neurons that each lie on an axis of their own, and all other axes.

    `fitted` holds the neurons that have learned the teacher. The other axes are a pair of arrays: eigenvalues of the
    inputs, and the number of axes with each.
    """
    link, lengths = problem.activation, np.linalg.norm(fitted.weights, axis=1)
    places, axes = first_learned(problem), problem.input_axes()
    roots = np.ones(places.size) if axes is None else np.sqrt(axes.eigenvalues[places])
    across: list[Function] = [link.derivative] * places.size
    along: list[Function] = [np.zeros_like] * places.size
    scale = np.sqrt(fitted.shares)
    if problem.kind == HOMOGENEOUS:
        along, scale = [lambda z: 2.0 * link.value(z)] * places.size, lengths
    elif problem.kind == COMMITTEE:
        slopes = {length: _slopes_at(link, length) for length in set(lengths.tolist())}
        across, along = ([slopes[length][k] for length in lengths.tolist()] for k in (0, 1))
    return AxisMoments(across, along, scale, roots), outer_axes(problem, places)


def _slopes_at(link: HermiteExpansion, length: float) -> tuple[Function, Function]:
    """Return σ'(ρz) and z σ'(ρz) as functions of z."""
    return lambda z: link.derivative(length * z), lambda z: z * link.derivative(length * z)


def _separate(problem: Problem, fitted: Fitted) -> tuple[UnitClasses, float]:
    """Return the gradients of neurons on separate axes as units, and how many coordinates are off a neuron's axis.

    The gradient of a neuron has a part across its axis, and one along it unless the length of the neuron is kept.
    """
    link, lengths = problem.activation, np.linalg.norm(fitted.weights, axis=1)
    length, squares = 1.0, fitted.shares
    functions: list[Callable[[Array], Array]] = [lambda z: link.derivative(length * z)]
    if problem.kind == HOMOGENEOUS:
        squares, functions = lengths**2, [link.derivative, lambda z: 2.0 * link.value(z)]
    elif problem.kind == COMMITTEE:
        functions.append(lambda z: z * link.derivative(length * z))
        if np.ptp(lengths) == 0.0 or (degree := degree_of(link)) is None:
            length = float(lengths[0])
        else:  # σ'(ρ z) = ρ^(q − 1) σ'(z)
            squares = lengths ** (2.0 * (degree - 1.0))
    unit = UnitClasses.of(functions, [True, False][: len(functions)])
    return unit.scaled(*_classes(squares, np.ones(squares.size), MOST_CLASSES)), problem.dimension - 1.0


def _classes(values: Array, counts: Array, most: int) -> tuple[Array, Array]:
    """Return the distinct positive values, merged into at most `most` classes of neighbours, and their counts."""
    distinct, place = np.unique(values, return_inverse=True)
    if distinct.size > most:
        place = np.searchsorted(np.geomspace(distinct[0], distinct[-1], most + 1)[1:-1], values)
    number, sums = (np.bincount(place, weights=weights).astype(np.float64) for weights in (counts, counts * values))
    return sums[number > 0] / number[number > 0], number[number > 0]


def _together(problem: Problem, fitted: Fitted) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
    """Return gradients of neurons of any directions at N points of the teacher's axes, and the axes outside.

    The first item holds the parts that multiply coordinates outside (N, n), all other parts (N, n r), and the weights
    of the points (N,). The second holds eigenvalues and numbers of the other axes. With too many neurons n, the other
    parts are left out and all axes count as outside.
    """
    link, W, (n, r) = problem.activation, fitted.weights, fitted.weights.shape
    count, length = n * (r + 1), np.linalg.norm(W, axis=1)
    is_quick = count <= FEW_INSIDE or (count > MOST_INSIDE and problem.inputs is None)
    axes, (x, weights) = W / length[:, None], points(r, POINTS if is_quick else FEW_POINTS)
    z, root = x @ axes.T, np.sqrt(fitted.shares)
    if problem.kind == HOMOGENEOUS:
        outer, along = length * link.derivative(z), length * (2.0 * link.value(z) - z * link.derivative(z))
    else:
        outer = root * link.derivative(length * z)
        along = -outer * z if problem.kind != COMMITTEE else np.zeros_like(z)
    if count > MOST_INSIDE:
        return (outer, np.empty((len(x), 0)), weights), outer_axes(problem)
    inside = outer[:, :, None] * x[:, None, :] + along[:, :, None] * axes
    if (covariance := problem.input_axes()) is not None:
        inside = inside * np.sqrt(covariance.eigenvalues[:r])
    return (outer, inside.reshape(-1, n * r), weights), outer_axes(problem, np.arange(r))


def points(axes: int, count: int) -> tuple[Array, Array]:
    """Return points (N, axes) and weights (N,) of means over N(0, I): a product rule up to two axes, then a sample."""
    if axes <= 2:
        grid, weights = (
            np.stack(np.meshgrid(*[column] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
            for column in np.polynomial.hermite_e.hermegauss(NODES)
        )
        product = np.prod(weights, axis=1)
        return grid, product / product.sum()
    half = np.random.default_rng(0).standard_normal((count // 2, axes))
    return np.vstack([half, -half]), np.full(count, 1.0 / count)


# --- networks ---------------------------------------------------------------------------------------------------------


def network_limit(problem: Problem, batch_size: int, directions: int | None = None) -> tuple[float, float]:
    """Return two limits of the learning rate of SGD, about the end of the flow and about the start.

    The student is a network, a committee or the spherical student. A deviation δ of the parameters changes the output f
    by ∇f·δ; second derivatives, which f − f* multiplies, are left out. With K `directions` the limits are those of
    steps of zeroth order. ValueError is raised where the flow is not known or does not get to its end, and for fields
    that are not known here.
    """
    check_fields(problem, ("inputs",) if is_network(problem) else (), "here")
    network = as_network(problem)
    v, b, weights = network.network_start()
    start = (v, b, weights[:, : network.teacher.span], weights @ weights.T)
    first, *later = network.phases()
    end = reached_state(network)
    at_end, at_start = (_limit_at(first, state, batch_size, directions) for state in (end, start))
    # The second layer alone moves later, about the first layer that it finds.
    return min([at_end, *(_limit_at(phase, end, batch_size, directions) for phase in later)]), at_start


def as_network(problem: Problem) -> Problem:
    """Return the same problem with its student as a network: a `Student` whose second layer is fixed at 1.

    A committee becomes a network with scale 1, and a spherical student one with neurons on the sphere and scale 1/m,
    from the same weights. A network is returned as it is.
    """
    if is_network(problem):
        return problem
    m, on_sphere, weights = problem.width, is_spherical(problem), problem.reduced_weights()
    check_memory("dimension", problem.dimension, float(m) * problem.dimension)
    student = Student(
        activation=problem.activation,
        width=m,
        second_layer="fixed",
        initial_second_layer=np.ones(m),
        first_layer="sphere" if on_sphere else "free",
        scale="1/m" if on_sphere else 1.0,
        rates="mean-field" if on_sphere else (1.0, 1.0, 1.0),
    )
    return Problem(
        student=student,
        teacher=problem.teacher,
        teacher_activation=problem.teacher_activation,
        dimension=problem.dimension,
        initial_weights=np.pad(weights, ((0, 0), (0, problem.dimension - weights.shape[1]))),
    )


def reached_state(problem: Problem) -> tuple[Array, ...]:
    """Return second layer v (m,), biases b (m,), M and Q of a network where its flow has learned its teacher.

    M (m, r) are the products of weights with the teacher's axes, and Q (m, m) those of weights with each other. Where
    the loss does not get small, it is the state when all parts of the teacher have escaped, or at the switch of
    layer-wise training.
    """
    from dynamics.equations.network.system import NetworkClassSystem, NetworkSystem

    system = NetworkSystem(problem) if problem.inputs is None else NetworkClassSystem(problem)
    switch = cast("Student", problem.student).switch_time()
    last, small = min(escapes_end(problem), switch), LEARNED * system.teacher.square
    return system.unpack(_end_of_flow(system, last, lambda state: system.loss(state) <= small))


def _end_of_flow(system: FlowSystem, last: float, is_learned: Callable[[Array], bool] = lambda _: False) -> Array:
    """Return the state vector of the flow where `is_learned` first holds of it, or at the time `last`.

    It is looked at at a few shares of `last`. ValueError is raised if the flow does not get there.
    """
    from dynamics.integrators.methods import FlowMethod
    from dynamics.integrators.stepper import Status

    stepper = FlowMethod(system, "bdf", ATOL, last_time=last).stepper(RTOL)
    state: Array = system.initial_state
    for time in last * np.array(SHARES):
        if stepper.advance(time, MOST_STEPS) is not Status.REACHED:
            refuse(f"Argument `problem` must have a flow that goes on to t = {last:.4g} for a learning-rate limit.")
        state = stepper.interpolate(time)
        if is_learned(state):
            break
    return state


def _beyond(M: Array, Q: Array) -> Array:
    """Return the components of m vectors outside of some axes, (m, …).

    M (m, r) are their products with unit vectors along these axes, and Q (m, m) those with each other.
    """
    squares, axes = np.linalg.eigh(Q - M @ M.T)
    used = squares > EMPTY_AXIS * max(float(squares[-1]), float(np.diag(Q).max()))
    return np.asarray(axes[:, used] * np.sqrt(squares[used]))


def _limit_at(problem: Problem, state: tuple[Array, ...], batch_size: int, directions: int | None) -> float:
    """Return the limit of the learning rate with deviations about a state (v, b, M, Q) of a network.

    These are second layer, biases, and the products of weights with the teacher's axes and with each other. Deviations
    within the span of the neurons count as outside of it.
    """
    (v, b, M, Q), student, link = state, cast("Student", problem.student), problem.activation
    of_w, of_v, of_b = np.sqrt(student.learning_rates) * student.output_scale
    weights = np.hstack([M, _beyond(M, Q)])
    count = v.size * (1 + (of_v > 0.0) + (of_b > 0.0))
    x, probability = points(weights.shape[1], POINTS if count <= MANY_FUNCTIONS else FEW_POINTS)
    z = x @ weights.T + b
    slope = link.derivative(z) * v
    parts = [(rate, values) for rate, values in ((of_b, slope), (of_v, link.value(z))) if rate > 0.0]
    inside = np.hstack([np.empty((len(x), 0)), *(rate * values for rate, values in parts)])
    rates = of_w**2, np.repeat([rate**2 for rate, _ in parts], v.size)
    return sampled_limit((of_w * slope, inside, probability), outer_axes(problem), batch_size, directions, rates)
