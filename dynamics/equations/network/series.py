"""Links without closed means, as a series in ρ = √q: E_j(ρ, b) = E[σ(ρz + b) h_j(z)], tabulated in ρ and b.

K = Σ_j E_j(a) E_j(b) s^j at the correlation s, and σ' has √(j+1) E_(j+1)/ρ. With J terms the error of K is at most
tail_a tail_b |s|^(J+1), tail² = E σ² − Σ_(j≤J) E_j², and the same with σ' for E σ'_a σ'_b (Cauchy and Schwarz).

E_0, E_1/ρ and E_j/ρ² for j ≥ 2 are the coefficients of σ, σ' and σ'' and smooth down to ρ = 0. They are kept as
Chebyshev series on panels of ρ and, for trained biases, of b; a table that does not reproduce them between its nodes
ends at the panel where it fails. Means of a neuron with itself, where s = 1, are tabulated without a series.

A table begins with: whether biases are trained, the numbers of biases or their panels, of panels of ρ, of nodes in b
and in ρ, and of columns; then biases, edges in ρ, Chebyshev coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE
from dynamics.equations.network.normal_kernels import (
    SQRT_HALF,
    normal_cdf,
    normal_density,
    write_threshold_derivatives,
)
from dynamics.kernels.jit import kernel, vector
from dynamics.kernels.units import choice, unit
from hermite import polynomials
from hermite.arrays import Vector
from hermite.expansion import FormulaLink, GivenTerms, compile_formula
from hermite.quadrature import integrate
from hermite.text.formulas import variable
from hermite.text.messages import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

    Function = Callable[[Array], Array]
    Measure = Callable[[Array, Array, int], Array]


@kernel
def panel_of(x: float, start: int, panels: int, numbers: Vector) -> int:
    """Return the panel between `panels` + 1 edges in which x lies, -1 if in none."""
    if not (numbers[start] <= x <= numbers[start + panels]):
        return -1
    panel = 0
    while x > numbers[start + panel + 1]:
        panel += 1
    return panel


@kernel
def place_of(x: float, start: int, count: int, numbers: Vector) -> int:
    """Return the place of a value in a list, up to rounding; -1 if it is not there."""
    for place in range(count):
        if abs(numbers[start + place] - x) <= 1e-12:
            return place
    return -1


@kernel
def inner_place(x: float, edge: int, numbers: Vector) -> float:
    """Return where x lies in a panel, from -1 to 1."""
    low, high = numbers[edge], numbers[edge + 1]
    return float((2.0 * x - low - high) / (high - low))


@choice()
def read_table(q: float, b: float, start: int, first: int, numbers: Vector, out: Vector) -> None:
    """Write some columns of a table at the standard deviation ρ = √q and the bias b to `out`; NaN beyond the table.

    The table begins at the index `start` of `numbers`: whether biases are trained, numbers of bias panels (or of fixed
    biases), of ρ panels, of Chebyshev terms in b and in ρ, and of columns; then the edges of both, and the terms by
    panel. `out` takes as many columns as it has room, from column `first` − `start` on.
    """
    count = out.size
    trained = numbers[start] > 0.0
    biases, panels = int(numbers[start + 1]), int(numbers[start + 2])
    nodes_b, nodes_q, columns = int(numbers[start + 3]), int(numbers[start + 4]), int(numbers[start + 5])
    edges_b = start + 6
    edges_q = edges_b + biases + (1 if trained else 0)
    length = math.sqrt(q)
    panel = panel_of(length, edges_q, panels, numbers)
    block = panel_of(b, edges_b, biases, numbers) if trained else place_of(b, edges_b, biases, numbers)
    for j in range(count):
        out[j] = 0.0 if panel >= 0 and block >= 0 else math.nan
    if panel < 0 or block < 0:
        return
    x = inner_place(length, edges_q + panel, numbers)
    y = inner_place(b, edges_b + block, numbers) if trained else 0.0
    place = edges_q + panels + 1 + (block * panels + panel) * nodes_b * nodes_q * columns + first - start
    along_b, next_b = 1.0, y
    for _ in range(nodes_b):
        along_q, next_q = along_b, along_b * x
        for _ in range(nodes_q):
            for j in range(count):
                out[j] += along_q * numbers[place + j]
            place += columns
            along_q, next_q = next_q, 2.0 * x * next_q - along_q
        along_b, next_b = next_b, 2.0 * y * next_b - along_b


# Gaussian means as sums over E_j = λ^j D_j/√j!, D_j = E σ^(j)(√q z + b).
#
# K = Σ_j E_j(a) E_j(b) x^j with λ = 1 and x = c, or with λ = √q and x = c/√(q_a q_b) where a series needs it; a
# derivative moves the index, σ' has √(j+1) E_(j+1)/λ. A row holds after its head, whose last number is 1/λ, E_j for j
# < N + 2, then N numbers each of the lists of σ' and σ''. `numbers` = [N, place of the links' heads, whether λ = √q,
# whether a link has a line, whether all biases are 0, the student's family, √0, √1, …, heads of the links, numbers of
# the links]. Kernels take a link by the place of its `head`; the first is the student's.

#: Places in `numbers`, the last that of the table of square roots.
TERMS, HEADS, SERIES, LINED, CENTRED, STUDENT, ROOT = range(7)
#: Numbers at the head of each link: family, start of its own numbers, degree, and of a link κ f + βz + γ those three.
HEADER = 6
#: Where a row's list begins.
LIST = 9
#: -ln of the powers of s that are left out.
NEGLIGIBLE = 42.0


@kernel
def threshold_list(family: int, q: float, b: float, scale: float, numbers: Vector, out: Vector) -> None:
    """Write E_j of relu, sign or erf for all j below the size of `out`.

    D_2 of relu is the density of x at -b, D_1 of sign and of erf, which is sign at the variance T = q + 1, twice that.
    Beyond such a j = first, D_(j+1) = -(b D_j + (j - first) D_(j-1))/T.
    """
    T = q + 1.0 if family == ERF else q
    h = b / math.sqrt(T)
    density = normal_density(h) / math.sqrt(T)
    if family == RELU:
        first, above = 2, normal_cdf(h)
        out[0], out[1], out[2] = b * above + T * density, above * scale, density * scale * scale * SQRT_HALF
    else:
        first = 1
        out[0], out[1] = math.erf(h * SQRT_HALF), 2.0 * density * scale
    for j in range(first, out.size - 1):
        before = (j - first) / numbers[ROOT + j] * scale * out[j - 1] if j > first else 0.0
        out[j + 1] = -scale / T * (b * out[j] + before) / numbers[ROOT + j + 1]


@choice()
def polynomial_list(q: float, b: float, scale: float, start: int, degree: int, numbers: Vector, out: Vector) -> None:
    """Write E_j of a polynomial: by the heat equation from q = 0 or 1, then by Taylor's series in the bias b."""
    first, change = (start + degree + 1, q) if q < 0.5 else (start, q - 1.0)
    for j in range(out.size):
        out[j] = numbers[first + j] if j <= degree else 0.0
    for j in range(degree + 1):
        total, factor = 0.0, 1.0
        for k in range(j, degree + 1, 2):
            total += factor * out[k]
            factor *= change * numbers[ROOT + k + 1] * numbers[ROOT + k + 2] / (k - j + 2)
        out[j] = total
    power = 1.0
    for j in range(degree + 1):
        total, factor = 0.0, power
        for k in range(j, degree + 1):
            total += factor * out[k]
            factor *= b * numbers[ROOT + k + 1] / (k - j + 1)
        out[j] = total
        power *= scale


@unit()
def write_functions(head: int, q: float, b: float, scale: float, numbers: Vector, out: Vector) -> None:
    """Write E_j = λ^j D_j/√j! of a link at variance q and bias b, for all j below the size of `out`; `scale` is λ."""
    family = int(numbers[head])
    if family <= ERF:
        threshold_list(family, q, b, scale, numbers, out)
        for j in range(out.size):
            out[j] *= numbers[head + 3]
        out[0] += numbers[head + 4] * b + numbers[head + 5]
        out[1] += numbers[head + 4] * scale
    elif family == POLYNOMIAL:
        polynomial_list(q, b, scale, int(numbers[head + 1]), int(numbers[head + 2]), numbers, out)
    else:
        # The columns are E_0, E_1/ρ, E_2/ρ², E_3/ρ² … at λ = ρ.
        start = int(numbers[head + 1])
        read_table(q, b, start, start + 4, numbers, out)
        ratio, power = scale / math.sqrt(q), scale
        for j in range(1, out.size):
            out[j] *= power
            power *= scale if j == 1 else ratio


@unit()
def write_derivatives(q: float, b: float, numbers: Vector, out: Vector) -> None:
    """Write D_j = E σ^(j) of the neurons' link at variance q and bias b, for all j below the size of `out`."""
    head = int(numbers[HEADS])
    size = max(out.size, 3)
    if int(numbers[head]) > ERF:
        size = max(size, int(numbers[head + 2]) + 1)
    functions, scale = np.empty(size), 1.0
    write_functions(head, q, b, scale, numbers, functions)
    for j in range(out.size):
        out[j] = scale * functions[j]
        scale *= numbers[ROOT + j + 1]


@choice()
def write_list_row(head: int, q: float, b: float, numbers: Vector, row: Vector) -> None:
    """Write to the row of a unit of variance q and bias b the lists E_j of σ, σ' and σ'', and 1/λ before them."""
    count, scale = int(numbers[TERMS]), math.sqrt(q) if numbers[SERIES] > 0.0 else 1.0
    first, inverse = LIST + count + 2, 1.0 / scale
    row[LIST - 1] = inverse
    write_functions(head, q, b, scale, numbers, vector(row, LIST, count + 2))
    for j in range(count):
        row[first + j] = numbers[ROOT + j + 1] * row[LIST + j + 1] * inverse
    for j in range(count):
        row[first + count + j] = numbers[ROOT + j + 1] * numbers[ROOT + j + 2] * row[LIST + j + 2] * inverse * inverse


@kernel
def term_count(x: float, count: int, is_series: float) -> int:
    """Return how many terms to sum: of a series in x those until x^j is below rounding, else `count`."""
    if is_series == 0.0 or abs(x) >= 1.0:
        return count
    return min(count, 2 + int(-NEGLIGIBLE / math.log(abs(x)))) if x != 0.0 else 1


@kernel
def list_pair(c: float, a: Vector, b: Vector, numbers: Vector) -> tuple[float, float, float, float]:
    """Return E σ_a σ_b, E σ'_a σ_b, E σ'_a σ'_b and E σ''_a σ_b at covariance c, as sums over the lists of two rows."""
    x, count = c * a[LIST - 1] * b[LIST - 1], int(numbers[TERMS])
    first, second = LIST + count + 2, LIST + 2 * count + 2
    value = slope = slopes = bend = 0.0
    for j in range(term_count(x, count, numbers[SERIES]) - 1, -1, -1):
        value = a[LIST + j] * b[LIST + j] + x * value
        slope = a[first + j] * b[LIST + j] + x * slope
        slopes = a[first + j] * b[first + j] + x * slopes
        bend = a[second + j] * b[LIST + j] + x * bend
    return value, slope, slopes, bend


# Mean derivatives of a polynomial at any variance and bias.


@kernel
def write_series_means(q: float, b: float, means: Vector, D: Vector) -> None:
    """Write the mean derivatives D_j of a polynomial at variance q and bias b, from those F_k at variance 1 and bias 0.

    D_j = Σ_k F_(j+k) G_k, with G_k = H_k(b)/k! and H_k the Hermite polynomials for the weight of variance 1 − q.
    """
    D[:] = 0.0
    older, newer = 0.0, 1.0
    for k in range(means.size):
        for j in range(min(D.size, means.size - k)):
            D[j] += means[j + k] * newer
        older, newer = newer, (b * newer + (q - 1.0) * older) / (k + 1)


# Links κ f + βz + γ with f one of relu, sign and erf, as abs or a leaky relu.
#
# Means of products are bilinear: to κ_a κ_b times those of f, which the pairs' kernels give, come means with a line in
# one place or both, E f_a^(p) (β_b x_b + ℓ_b) = ℓ_b D_p(a) + c β_b D_(p+1)(a) with ℓ = βb + γ.

#: Derivatives of a neuron and of the other unit in K, K1_ij, K1_ji, K12, K2_ij and K2_ji.
LEFT, RIGHT = (0, 1, 0, 1, 2, 0), (0, 0, 1, 1, 0, 2)


@kernel
def write_line_means(head: int, row: Vector, numbers: Vector, out: Vector) -> None:
    """Write nine numbers of one unit of a link κ f + β z + γ to `out`.

    They are κ E f^(j), j = 0 … 3, the same of the line (β b + γ, β, 0, 0), and κ.
    """
    scale, slope, offset = numbers[head + 3], numbers[head + 4], numbers[head + 5]
    write_threshold_derivatives(int(numbers[head]), row, vector(out, 0, 4))
    for j in range(4):
        out[j] *= scale
    out[4], out[5], out[6], out[7], out[8] = slope * row[1] + offset, slope, 0.0, 0.0, scale


@kernel
def lined_pair(
    head: int, c: float, row_a: Vector, row_b: Vector, numbers: Vector,
    means: tuple[float, float, float, float, float, float],
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Return the six means of two units of links κ f + β z + γ, from `means`, the same six of their f."""
    a, b, values = np.empty(9), np.empty(9), np.empty(6)
    write_line_means(int(numbers[HEADS]), row_a, numbers, a)
    write_line_means(head, row_b, numbers, b)
    for n in range(6):
        p, q = LEFT[n], RIGHT[n]
        lines = a[p] * b[q + 4] + a[p + 4] * b[q] + a[p + 4] * b[q + 4]
        slopes = a[p + 1] * b[q + 5] + a[p + 5] * b[q + 1] + a[p + 5] * b[q + 5]
        values[n] = a[8] * b[8] * means[n] + lines + c * slopes
    return values[0], values[1], values[2], values[3], values[4], values[5]


#: Panels of ρ, of which each has NODES Chebyshev nodes, and of b for trained biases.
LENGTHS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
BIASES = tuple(np.linspace(-4.0, 4.0, 13).tolist())
NODES = 16
#: A unit of a teacher has length 1 up to rounding.
UNIT_LENGTHS, UNIT_NODES = (0.999, 1.001), 4
#: Most fixed biases that are tabulated one by one.
MOST_BIASES = 48
#: Numbers of terms that are tried, and the squared tail at ρ = 2 that is small enough.
TRIED_TERMS, SMALL_TAIL = (64, 128, 241), 1e-13
#: Largest error of a table between its nodes, in sums Σ_j j |ΔE_j E_j| and means of a neuron with itself, against the
#: largest of these means.
TABLE_ERROR = 2e-11
#: Least ρ of a function whose second derivative is not known: E_j/ρ² loses digits there.
LEAST_LENGTH = 0.05
#: The means of a neuron with itself: E σ², E σσ', E σ'², E σσ''.
OWN = 4
#: Half widths of the trapezoidal rule, the second for links that grow and for tails, and its steps per unit.
REACH, FAR, STEPS = 16.0, 40.0, 8.0


@dataclass(frozen=True)
class LinkFunctions:
    """A link with its derivatives; where the second is unknown, or holds a delta, it is None."""

    value: Function
    slope: Function
    bend: Function | None

    @classmethod
    def of(cls, link: HermiteExpansion) -> LinkFunctions:
        """Return a link σ with its derivatives σ' and σ''."""
        bend = None
        if isinstance(link.link, FormulaLink):
            import sympy

            expression = link.link.expression
            if not expression.has(sympy.Heaviside, sympy.sign, sympy.Abs, sympy.Max, sympy.Min):
                bend = compile_formula(sympy.diff(expression, *expression.free_symbols, 2))
        return cls(link.value, link.derivative, bend)

    def is_smooth(self, lengths: tuple[float, ...], bias: float) -> bool:
        """Return whether means by the trapezoidal rule are right for this link, to 1e-11 of the largest of them.

        They are held against an adaptive rule for inputs ρ z + b, z ~ N(0, 1), at the standard deviations ρ = `lengths`
        and the mean b = `bias`: the four means of a neuron with itself and the first 100 Hermite coefficients.
        """
        at = np.array(lengths), np.full(len(lengths), bias)
        adaptive, plain = self.adaptive(*at, 100), self.trapezoid(*at, 100)
        return bool(np.all(np.abs(adaptive - plain) <= 1e-11 * np.abs(adaptive).max()))

    def trapezoid(self, rho: Array, b: Array, count: int) -> Array:
        """Return the columns of a table at pairs (ρ, b), shape (pairs, OWN + count), of a smooth link."""
        for reach in (REACH, FAR):
            z, step = _grid(reach, float(rho.max()))
            basis = polynomials.evaluate_functions(count - 1, z)
            x = np.multiply.outer(rho, z) + b[:, None]
            f, slope = self.value(x) * basis[0], self.slope(x) * basis[0]
            if np.abs(f[:, [0, -1]]).max() <= 1e-16 * np.abs(f).max():
                break
        squares = [np.sum(f * f, axis=1), np.sum(f * slope, axis=1), np.sum(slope * slope, axis=1)]
        if self.bend is None:
            return _columns(rho, [*squares, f * slope @ z], f @ basis.T) * step
        bend = self.bend(x) * basis[0]
        j = np.arange(2, count)
        higher = bend @ basis[: count - 2].T / np.sqrt(j * (j - 1.0))
        return np.column_stack([*squares, np.sum(f * bend, axis=1), f @ basis[0], slope @ basis[0], higher]) * step

    def adaptive(self, rho: Array, b: Array, count: int) -> Array:
        """Return the columns of `trapezoid` for a link with kinks, by an adaptive rule."""
        rows = np.array([self._row(*pair, count) for pair in zip(rho.tolist(), b.tolist(), strict=True)])
        squares, coefficients = np.hsplit(rows, [OWN])
        return _columns(rho, list(squares.T), coefficients)

    def _row(self, length: float, bias: float, count: int) -> list[float]:
        """Return E σ², E σσ', E σ'², E zσσ' and `count` coefficients of σ at one pair."""
        fit = integrate(lambda z: self.value(length * z + bias), count - 1)
        slope = self.slope(length * fit.nodes + bias) * polynomials.evaluate_functions(0, fit.nodes)[0]
        weighted = fit.weights * fit.values * slope
        return [fit.norm_squared, weighted.sum(), fit.weights @ slope**2, weighted @ fit.nodes, *fit.coefficients]

    def tails(self, rho: Array, b: float, terms: int) -> Array:
        """Return the distance from σ and σ' to their series of so many terms, shape (2, lengths), at one bias."""
        z, step = _grid(FAR, float(rho.max()))
        basis = polynomials.evaluate_functions(terms - 1, z)
        x = np.multiply.outer(rho, z) + b
        f = np.stack([self.value(x), self.slope(x)]) * basis[0]
        f -= (f @ basis.T * step) @ basis
        return np.asarray(np.sqrt(np.sum(f * f, axis=-1) * step))


def _grid(reach: float, largest: float) -> tuple[Array, float]:
    """Return the nodes of the trapezoidal rule for lengths up to the largest, and its step."""
    step = 1.0 / (STEPS * max(1.0, largest))
    return np.arange(-reach, reach + 0.5 * step, step), step


def _columns(rho: Array, squares: list[Array], coefficients: Array) -> Array:
    """Return the columns from E σ², E σσ', E σ'², E zσσ' = ρ (E σ'² + E σσ'') and the coefficients of σ."""
    scale = rho[:, None] ** np.minimum(np.arange(coefficients.shape[1]), 2)
    return np.column_stack([*squares[:3], squares[3] / rho - squares[2], coefficients / scale])


@dataclass(frozen=True, eq=False)
class SeriesTable:
    """E_j of one link, by panels of ρ between `lengths`, and by fixed `biases`, or panels of b for trained ones.

    `terms` is J + 1, the number of terms of K. `data` are Chebyshev coefficients of the means of a neuron with itself,
    then of E_0, E_1/ρ, E_2/ρ², E_3/ρ² …, (biases or panels, panels of ρ, nodes of b, nodes of ρ, OWN + terms + 2).
    """

    functions: LinkFunctions
    terms: int
    lengths: Array
    biases: Array
    trained: bool
    data: Array

    @property
    def numbers(self) -> Array:
        """The table as the kernels read it."""
        shape = [float(self.trained), *self.data.shape]
        return np.concatenate([shape, self.biases, self.lengths, self.data.ravel()])

    def tails(self, length: Array, bias: Array) -> Array:
        """Return bounds on the tails of σ and σ' at pairs (ρ, b), shape (2, …): the largest at the ends of a cell.

        They are infinite beyond the table.
        """
        lengths, biases, grid = self._tail_grid
        row = np.clip(np.searchsorted(lengths, length), 1, lengths.size - 1)
        inside = (length >= self.lengths[0]) & (length <= self.lengths[-1])
        if self.trained:
            column = np.clip(np.searchsorted(biases, bias), 1, biases.size - 1)
            cells = [(row - i, column - j) for i in (0, 1) for j in (0, 1)]
            inside &= (bias >= biases[0]) & (bias <= biases[-1])
        else:
            distance = np.abs(np.subtract.outer(bias, biases))
            cells = [(row - i, distance.argmin(axis=-1)) for i in (0, 1)]
            inside &= distance.min(axis=-1) <= 1e-12
        return np.where(inside, np.max([grid[:, *cell] for cell in cells], axis=0), np.inf)

    @cached_property
    def _tail_grid(self) -> tuple[Array, Array, Array]:
        """Lengths, biases, and the tails of σ and σ' there, shape (2, lengths, biases)."""
        lengths = np.unique([np.linspace(*ends, 5) for ends in pairwise(self.lengths)])
        biases = np.linspace(self.biases[0], self.biases[-1], 33) if self.trained else self.biases
        columns = [self.functions.tails(lengths, bias, self.terms) for bias in biases.tolist()]
        return lengths, biases, np.stack(columns, axis=2)


def needed_terms(link: HermiteExpansion, biases: tuple[float, ...] | None) -> int:
    """Return how many terms leave a small tail at ρ = 2, at most the last number of TRIED_TERMS."""
    functions, middle, length = (
        LinkFunctions.of(link),
        0.0 if biases is None else biases[len(biases) // 2],
        np.array([2.0]),
    )
    enough = (n for n in TRIED_TERMS if functions.tails(length, middle, n)[0, 0] ** 2 <= SMALL_TAIL)
    return next(enough, TRIED_TERMS[-1])


@lru_cache(maxsize=16)
def series_table(
    link: HermiteExpansion, biases: tuple[float, ...] | None, terms: int, *, unit: bool = False
) -> SeriesTable:
    """Return the table of the means of a link by the length |w| of the weights, and by the bias.

    `biases` are the fixed biases of the neurons, None where they are trained or where more than `MOST_BIASES` differ:
    then the table covers all. `terms` is the number of terms of its series, and `unit` says that it is for a teacher's
    unit, of length 1. Panels of the length are added from 1 up and down as long as the series gives the means.
    ValueError is raised for links that are not smooth enough.
    """
    functions = LinkFunctions.of(link)
    trained = biases is None or len(biases) > MOST_BIASES
    places = np.array(BIASES if biases is None or trained else biases)
    lengths = np.array(UNIT_LENGTHS if unit else LENGTHS)
    if functions.bend is None:
        lengths[0] = max(lengths[0], LEAST_LENGTH)
    smooth = functions.is_smooth((1.0, float(lengths[-1])), float(places[len(places) // 2]))
    require(
        smooth or not trained,
        f"Argument `student` must have a smooth link where biases are trained, or more than {MOST_BIASES} differ, but "
        f"has {link.name}.",
    )
    measure = functions.trapezoid if smooth else functions.adaptive
    blocks = list(pairwise(places)) if trained else [(b, b) for b in places]
    shape = (NODES if trained else 1, UNIT_NODES if unit else NODES)
    ends = list(pairwise(lengths))

    def panels(order: range) -> list[Array]:
        """Return the series on panels in this order, up to the first panel where it misses the means."""
        columns = []
        for n in order:
            fits = [_fit(measure, ends[n], block, shape, terms + 2) for block in blocks]
            if not all(agrees for _, agrees in fits):
                break
            columns.append(np.stack([series for series, _ in fits]))
        return columns

    # From the panel of ρ = 1 up and down.
    start = next(n for n, (_, high) in enumerate(ends) if high >= 1.0)
    above, below = panels(range(start, len(ends))), panels(range(start - 1, -1, -1))[::-1]
    require(above, f"Argument `student` must have a link whose means are smooth in |w|, but has {link.name}.")
    covered = lengths[start - len(below) : start + len(above) + 1]
    return SeriesTable(functions, terms, covered, places, trained, np.stack([*below, *above], axis=1))


def _fit(
    measure: Measure, lengths: tuple[float, float], biases: tuple[float, float], shape: tuple[int, int], count: int
) -> tuple[Array, bool]:
    """Return the Chebyshev series of the means on one panel, and whether it gives them between its nodes.

    A panel is a rectangle of lengths ρ and biases; `shape` is the numbers of nodes in bias and length, and `measure(ρ,
    b, count)` returns the columns of the table. The series is (nodes in b, nodes in ρ, columns), and is held against
    the means at three other points, to `TABLE_ERROR`.
    """
    y, x = (np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in shape)

    def means(y: Array, x: Array) -> Array:
        b, rho = (0.5 * ((1.0 - u) * ends[0] + (1.0 + u) * ends[1]) for u, ends in ((y, biases), (x, lengths)))
        return measure(rho, b, count)

    values = means(np.repeat(y, x.size), np.tile(x, y.size)).reshape(y.size, x.size, -1)
    along_y, along_x = (np.polynomial.chebyshev.chebvander(u, u.size - 1).T * 2.0 / u.size for u in (y, x))
    along_y[0] *= 0.5
    along_x[0] *= 0.5
    series = np.einsum("kp,lq,pqj->klj", along_y, along_x, values, optimize=True)
    y, x = np.array([0.77, -0.9, 0.12]), np.array([-0.31, 0.93, 0.55])
    basis = [np.polynomial.chebyshev.chebvander(u, n - 1) for u, n in zip((y, x), shape, strict=True)]
    error = np.abs(np.einsum("pk,pl,klj->pj", *basis, series, optimize=True) - means(y, x)).max(axis=0)
    largest = np.abs(values).max(axis=(0, 1))
    most = TABLE_ERROR * largest[:OWN].max()
    total = float(error[OWN:] * largest[OWN:] @ np.arange(1, count + 1))
    return series, bool(total <= most and np.all(error[:OWN] <= most))


# Links by family, with their numbers.

#: Largest degree of a polynomial: its derivatives at 0 must fit float64.
LARGEST_DEGREE = 150
#: |h_j(x)| φ(x) <= CRAMER e^(-x²/4) (Cramér's inequality).
CRAMER = 1.0865 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class Link:
    """A link's family, and E_j of a polynomial at q = 1 and 0, its table, or κ, β and γ of a link κ f + βz + γ."""

    family: int
    coefficients: Array = field(default_factory=lambda: np.empty((2, 0)))
    table: SeriesTable | None = None
    scale: float = 1.0
    slope: float = 0.0
    offset: float = 0.0

    @property
    def has_line(self) -> bool:
        """Whether the link κ f + βz + γ differs from f."""
        return (self.scale, self.slope, self.offset) != (1.0, 0.0, 0.0)

    @property
    def numbers(self) -> Array:
        """Numbers that the kernels read."""
        return self.coefficients.ravel() if self.table is None else self.table.numbers

    @property
    def terms(self) -> int:
        """The degree of a polynomial and one, 0 of other links."""
        return int(self.coefficients.shape[1])

    def tails(self, terms: int, q: Array, b: Array) -> Array:
        """Return bounds on the error of σ and of σ' by a series of so many terms, (2, units); ∞ outside of a table.

        Terms of the slope of sign do not fall: its row holds their bound.
        """
        if self.family == POLYNOMIAL:
            return np.zeros((2, q.size))
        length = np.sqrt(q)
        if self.table is not None:
            return self.table.tails(length, b)
        T, scale = q + 1.0 if self.family == ERF else q, np.full_like(q, abs(self.scale))
        size = scale * CRAMER * np.exp(-0.25 * b * b / T)
        if self.family == RELU:
            return np.stack([length * size / math.sqrt(terms - 1.0), scale])
        if self.family == SIGN:
            return np.stack([scale, 2.0 * size / length])
        power = 2.0 * size * np.sqrt((q / T) ** terms * T)
        return np.stack([power / math.sqrt(terms), power / np.sqrt(T)])


def known_link(link: HermiteExpansion) -> Link | None:
    """Return a link whose means are closed, None for any other.

    That is a polynomial, or κ f + βz + γ with f one of relu, sign and erf(z/√2) and numbers κ, β and γ. ValueError is
    raised for polynomials beyond `LARGEST_DEGREE`.
    """
    if link.is_polynomial:
        degree = len(link.link_coefficients()) - 1
        require(
            degree <= LARGEST_DEGREE,
            f"Argument `student` must have links of degree at most {LARGEST_DEGREE}, but one is of degree {degree}.",
        )
        return Link(POLYNOMIAL, np.stack([link.link_coefficients(), _at_zero(link)]))
    if link.exact_source is None or isinstance(link.exact_source, GivenTerms):
        return None
    line = [0.0, 0.0]
    scales = dict.fromkeys((RELU, SIGN, ERF), 0.0)
    for term in link.exact_source.terms:
        size = float(term.coefficient)
        if term.kind == "one" and term.power <= 1:
            line[term.power] += size
        elif term.kind == "step" and term.power == 0 and term.parameters == (0,):
            scales[SIGN] += 0.5 * size
            line[0] += 0.5 * size
        elif term.kind == "step" and term.power == 1 and term.parameters == (0,):
            scales[RELU] += size
        elif term.kind == "erf" and term.power == 0 and 2 * term.parameters[0] ** 2 == 1 and term.parameters[1] == 0:
            scales[ERF] += size * (1.0 if term.parameters[0] > 0 else -1.0)
        else:
            return None
    families = [family for family, scale in scales.items() if scale != 0.0]
    return Link(families[0], scale=scales[families[0]], slope=line[1], offset=line[0]) if len(families) == 1 else None


def _at_zero(link: HermiteExpansion) -> list[float]:
    """Return σ^(j)(0)/√j! of a polynomial, from exact coefficients where they are known."""
    count = len(link.link_coefficients())
    if link.exact_source is None:
        factors = [c * math.sqrt(math.factorial(k)) for k, c in enumerate(link.link_coefficients())]
        heat = [(-0.5) ** n / math.factorial(n) for n in range(count)]
        derivatives = [math.fsum(h * d for h, d in zip(heat, factors[j::2], strict=False)) for j in range(count)]
    else:
        import sympy

        powers = sympy.Poly(link.expression, variable()).all_coeffs()[::-1]
        derivatives = [float(power * math.factorial(j)) for j, power in enumerate(powers)]
    return [derivative / math.sqrt(math.factorial(j)) for j, derivative in enumerate(derivatives)]


# Arguments of the kernels of pairs. Of two units of variances q_a, q_b, biases b_a, b_b and covariance c the
# equations need K = E σ_a σ_b, K1 = E σ'_a σ_b, K12 = E σ'_a σ'_b and K2 = E σ''_a σ_b. They are closed for pairs of
# relu, erf, step and sign, finite sums where one of the two is a polynomial, and else a series with a bound on its
# error.

#: Least size of the table of square roots.
_ROOTS = 40


@dataclass(frozen=True, eq=False)
class PairSource:
    """Arguments of the kernels of all pairs: numbers of the links, scratch per unit, and the student's link first."""

    numbers: Array
    row_size: int
    links: tuple[Link, ...]

    @property
    def is_series(self) -> bool:
        """Whether some pair is a series, which is cut."""
        return bool(self.numbers[SERIES])

    def series_error(self, link: Integers, q: Array, b: Array, gram: Array) -> float:
        """Return a bound on the error of K and K12 over all pairs that are a series, tail_a tail_b |s|^terms.

        `link` (n,) is 0 for neurons, else the link of a unit of the teacher, `q` and `b` (n,) are variances |w|² and
        biases, `gram` (n, n) covariances. It is infinite outside of a table; the error of K2 is about √(q_b/q_a) times
        that of K12.
        """
        if not self.is_series:
            return 0.0
        terms = int(self.numbers[TERMS])
        tails = np.empty((2, link.size))
        for n, unit_link in enumerate(self.links):
            tails[:, link == n] = unit_link.tails(terms, q[link == n], b[link == n])
        family = np.array([unit_link.family for unit_link in self.links])[link]
        counted = (link == 0)[:, None] & ~np.eye(link.size, dtype=bool)
        counted &= (family == TABLE)[:, None] | (family == TABLE)
        s = np.minimum(np.abs(gram) / np.sqrt(np.outer(q, q)), 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            power = s**terms
            steps = np.where(family == SIGN, power / np.sqrt(1.0 - s**2), power)
            bounds = [np.outer(tail, tail) * factor for tail, factor in zip(tails, (power, steps), strict=True)]
        return float(np.nan_to_num(np.stack(bounds)[:, counted], nan=np.inf, posinf=np.inf).max(initial=0.0))


def pair_source(
    student: HermiteExpansion,
    teachers: Sequence[HermiteExpansion] = (),
    *,
    biases: Sequence[float] | None = None,
    teacher_biases: Sequence[Sequence[float]] = (),
) -> PairSource:
    """Return the numbers of a student's link and the distinct links of the teacher's units, of length 1.

    `biases` are all that neurons can have, None for any; `teacher_biases` those of the units of each link, by default
    0. ValueError is raised if a mean does not exist, as the square of the slope of a student that jumps, or is not
    known.
    """
    expansions = [student, *teachers]
    links = [known_link(expansion) or Link(TABLE) for expansion in expansions]
    require(
        links[0].family != SIGN,
        f"Argument `student` must have a link without jumps, whose gradient is a delta, but has {student.name}.",
    )
    values = [
        None if biases_of_link is None else tuple(np.unique(np.asarray(biases_of_link, dtype=float)).tolist())
        for biases_of_link in (biases, *(teacher_biases or [[0.0]] * len(teachers)))
    ]
    terms = max(link.terms for link in links)
    tabled = [n for n, link in enumerate(links) if link.family == TABLE]
    is_series = bool(tabled) and links[0].family != POLYNOMIAL
    if is_series:
        terms = max(terms, *(needed_terms(expansions[n], values[n]) for n in tabled))
    for n in tabled:
        links[n] = Link(TABLE, table=series_table(expansions[n], values[n], terms, unit=n > 0))
    centred = all(unit_biases is not None and not any(unit_biases) for unit_biases in values)
    lines = any(link.has_line for link in links)
    roots, parts = np.sqrt(np.arange(max(terms + 6, _ROOTS))), [link.numbers for link in links]
    heads = ROOT + roots.size
    starts = heads + HEADER * len(links) + np.cumsum([0, *(part.size for part in parts[:-1])])
    table = [
        [link.family, start, link.terms - 1, link.scale, link.slope, link.offset]
        for link, start in zip(links, starts, strict=True)
    ]
    first = [terms, heads, is_series, lines, centred, links[0].family]
    return PairSource(np.concatenate([first, roots, np.ravel(table), *parts]), LIST + 3 * terms + 2, tuple(links))
