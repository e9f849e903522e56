"""The teacher f*(x) = Σ_p a_p σ_p(θ_p·x + β_p), or a polynomial of the first coordinates, f*(x) = f*(x_1, …, x_r)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import (
    Frozen,
    check_memory,
    checked_integer,
    checked_link,
    checked_number,
    checked_real,
    first_false,
    float_vector,
    read_only,
    require,
)
from dynamics.problem.emergence import EMERGENCE_LEVEL
from dynamics.problem.hints import class_with_hints
from dynamics.problem.question import Compared
from hermite import HermiteExpansion
from hermite.arrays import Array, Integers, real_array, real_column
from hermite.text.formulas import Monomials, clean, first_of, parse_polynomial, table_of_pairs
from hermite.text.messages import refuse, shown

#: How far from constant the ratios of coefficients that decay geometrically may be, by rounding.
RATIO_TOLERANCE = 1e-12
MOST_SHOWN = 6
#: Part of an even share 1/k of |w|² at which a neuron has found an axis of a component of k ≥ 2 axes.
EVEN_SHARE = 0.6
#: Arrays of the size of the coefficients that are held while they are made.
ARRAYS_OF_TEACHER = 4
#: Sizes of coefficients for which rates and times, which hold powers of them, stay within float64.
SMALLEST_COEFFICIENT, LARGEST_COEFFICIENT = 1e-200, 1e30
#: How far from 1 the length of a direction may be, and that of one in single precision.
UNIT_LENGTH_TOLERANCE, SINGLE_TOLERANCE = 1e-9, 1e-6
ROUNDED_LENGTH = 1e-13


class Component(NamedTuple):
    """A Hermite component of a polynomial, f*_α = E[∂^α f*]/√α! = E[f* Π_a h_(α_a)(x_a)], by its degrees α.

    The cost is |α| on axes that no component before it has.
    """

    degrees: tuple[int, ...]
    value: float
    name: str
    cost: int

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes that the component depends on, from 0."""
        return tuple(a for a, degree in enumerate(self.degrees) if degree)

    @property
    def degree(self) -> int:
        """|α|."""
        return sum(self.degrees)


class Polynomial(Compared):
    """A polynomial of r coordinates, not constant, read from text by `parse_polynomial`; compared by its monomials."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._exact: Monomials = parse_polynomial(text)

    @property
    def span(self) -> int:
        """Number r of coordinates."""
        return len(next(iter(self._exact)))

    @cached_property
    def exponents(self) -> Integers:
        """Exponents of the monomials, shape (terms, r)."""
        return np.asarray(np.array(list(self._exact), dtype=np.int64))

    @cached_property
    def powers(self) -> Array:
        """Coefficients of the monomials, shape (terms,), dimensionless."""
        return np.array([float(value) for value in self._exact.values()])

    def value(self, x: ArrayLike) -> Array:
        """Return f* at points of shape (…, r)."""
        at = np.asarray(x, dtype=np.float64)
        monomials = zip(self.exponents, self.powers, strict=True)
        terms = (coefficient * np.prod(at**exponents, axis=-1) for exponents, coefficient in monomials)
        return np.asarray(sum(terms, np.zeros(at.shape[:-1])))

    @cached_property
    def mean(self) -> float:
        """E f*."""
        return float(self._hermite.get((0,) * self.span, 0))

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Components with |α| ≥ 1 that are not zero, in the order of learning: the cheapest next."""
        values = {degrees: value for degrees, value in self._hermite.items() if any(degrees)}
        seen_axes: set[int] = set()
        components: list[Component] = []

        def cost(degrees: tuple[int, ...]) -> int:
            return sum(degree for a, degree in enumerate(degrees) if a not in seen_axes)

        while values:
            degrees = min(values, key=lambda alpha: (cost(alpha), sum(alpha), tuple(-n for n in alpha)))
            # As text that `Teacher.polynomial` reads, such as "h2(x1)*x2".
            name = "*".join(f"x{a + 1}" if n == 1 else f"h{n}(x{a + 1})" for a, n in enumerate(degrees) if n)
            components.append(Component(degrees, float(values.pop(degrees)), name, cost(degrees)))
            seen_axes.update(components[-1].axes)
        return tuple(components)

    @cached_property
    def _hermite(self) -> Monomials:
        """Exact value f*_α of every Hermite component that is not zero, α = 0 included, by its degrees α."""
        import sympy

        from hermite.closed_forms import EXACT, moment_parts

        sums: Monomials = {}
        for exponents, value in self._exact.items():
            terms: Monomials = {(): value}
            for n in exponents:
                [(_, moments)] = moment_parts("one", (), n, n, EXACT)
                powers = {j: u / sympy.sqrt(math.factorial(j)) for j, u in enumerate(moments) if u != 0}
                terms = {(*left, j): a * b for left, a in terms.items() for j, b in powers.items()}
            for degrees, term in terms.items():
                sums[degrees] = sums.get(degrees, 0) + term
        return {degrees: value for degrees, total in sums.items() if (value := sympy.expand(total)) != 0}

    def _identity(self) -> object:
        return frozenset(self._exact.items())

    def __reduce__(self) -> tuple[object, ...]:
        return Polynomial, (self.text,)


class Unit(NamedTuple):
    """One unit a σ(θ·x + β) of a teacher: `coefficient` a, `link` σ, `direction` θ (r,), `bias` β."""

    coefficient: float
    link: HermiteExpansion
    direction: Array
    bias: float


@class_with_hints
class Teacher(Compared, Frozen):
    r"""Units of the teacher network, or a polynomial.

    .. math:: f^*(x) = \sum_{p=1}^{P} a_p\, \sigma_p(\theta_p \cdot x + \beta_p), \qquad |\theta_p| = 1

    Parameters
    ----------
    coefficients : array_like, shape (P,)
        Second layer a_p, finite and not zero, dimensionless; kept as given, neither sorted nor rescaled. Students that
        are named, such as "homogeneous", learn positive ones alone; a `dynamics.Student` learns any.
    directions : array_like, shape (P, r), optional
        Rows θ_p, of unit length, on the first r axes of R^d; by default θ_p is the p-th axis and r = P.
    links : list, optional
        Link σ_p of each unit, anything that `hermite.expand` takes; by default all have the link of the problem.
    biases : array_like, shape (P,), optional
        Biases β_p, dimensionless, by default 0; like `links` for a `dynamics.Student` alone.

    Raises
    ------
    ValueError
        If a coefficient is zero or not finite, a direction is not of unit length, or lengths differ.

    Examples
    --------
    >>> Teacher([3.0, 1.0])
    Teacher(num_directions=2, coefficients=[3, 1])
    >>> Teacher([0.8, -0.5], links=["he3", "erf"]).links[1].name
    'erf'
    """

    __slots__ = ("beta", "biases", "coefficients", "directions", "links", "target")

    coefficients: Array
    directions: Array | None
    links: tuple[HermiteExpansion, ...] | None
    biases: Array | None
    beta: float | None
    #: The polynomial of `Teacher.polynomial`; None for units.
    target: Polynomial | None

    def __init__(
        self,
        coefficients: ArrayLike,
        *,
        directions: ArrayLike | None = None,
        links: Iterable[object] | None = None,
        biases: ArrayLike | None = None,
    ) -> None:
        a = real_column(coefficients, "coefficients")
        require(
            a.ndim == 1 and a.size != 0,
            f"Argument `coefficients` must have shape (num_directions,), but has shape {a.shape}.",
        )
        if (p := first_false(np.isfinite(a) & (a != 0))) is not None:
            refuse(f"Argument `coefficients` must be finite and not zero, but entry {p + 1} of {a.size} is {a[p]}.")
        if (p := first_false((np.abs(a) >= SMALLEST_COEFFICIENT) & (np.abs(a) <= LARGEST_COEFFICIENT))) is not None:
            refuse(
                f"Argument `coefficients` must have sizes from {SMALLEST_COEFFICIENT:g} to {LARGEST_COEFFICIENT:g}, "
                f"but entry {p + 1} of {a.size} is {a[p]:g}."
            )
        self._set(
            coefficients=read_only(a),
            directions=None if directions is None else checked_rows(directions, a.size),
            links=None if links is None else checked_links(links, a.size),
            biases=None if biases is None else float_vector(biases, "biases", a.size, "units"),
        )

    @classmethod
    def polynomial(cls, text: str) -> Teacher:
        r"""Return the teacher that is a polynomial of the first coordinates, for a `dynamics.Student`.

        Its `coefficients` are those in orthonormal Hermite polynomials, f*_α = E[∂^α f*]/√α!, of all `components`. The
        text is a polynomial in x1 … x9 (or z1 … z9, the names that `hermite.leap` prints), such as "x1 + x1*x2" or
        "h2(x1)*x2", h_k the orthonormal Hermite polynomial; numbers are exact, the total degree is 1 to 12, and there
        are at most 200 terms, or ValueError is raised.

        Examples
        --------
        >>> teacher = Teacher.polynomial("x1 + x1*x2*x3")
        >>> teacher.order, teacher.leap
        (('x1', 'x1*x2*x3'), 2)
        >>> Teacher.polynomial("z1 + z1*z2*z3") == teacher
        True
        """
        target = Polynomial(text)
        teacher = cls([component.value for component in target.components])
        teacher._set(coefficients=teacher.coefficients, target=target)
        return teacher

    @classmethod
    def power_law(cls, num_directions: int, beta: float) -> Teacher:
        r"""Return the teacher with a_p ∝ p^(-β) and Σ_p a_p² = 1, P ≥ 1; the scaling laws need β > ½.

        Examples
        --------
        >>> Teacher.power_law(2, beta=1.0).coefficients.round(4).tolist()
        [0.8944, 0.4472]
        """
        decay, places = checked_number(beta, "beta", positive=False), _places(num_directions)
        with np.errstate(under="ignore"):
            a = (places + 1.0) ** -decay
        require(a[-1] != 0.0, f"Argument `beta` must keep every p^-beta above zero in float64, but is {beta}.")
        teacher = cls(a / np.sqrt(np.sum(a**2)))
        object.__setattr__(teacher, "beta", decay)
        return teacher

    @classmethod
    def geometric(cls, num_directions: int, ratio: float) -> Teacher:
        r"""Return the teacher with a_p ∝ ratio^p, 0 < ratio < 1, and Σ_p a_p² = 1.

        Examples
        --------
        >>> Teacher.geometric(3, ratio=0.5).coefficients.round(4).tolist()
        [0.8729, 0.4364, 0.2182]
        """
        share = checked_real(ratio, "ratio")
        require(0.0 < share < 1.0, f"Argument `ratio` must be above 0 and below 1, but is {share}.")
        places = _places(num_directions)
        with np.errstate(under="ignore"):
            a = share**places
        is_normal = a[-1] >= np.finfo(np.float64).tiny
        require(is_normal, f"Argument `ratio` must keep every ratio^p above zero in float64, but is {ratio}.")
        return cls(a / np.sqrt(np.sum(a**2)))

    @property
    def num_directions(self) -> int:
        """Number of directions P; of a polynomial, of the axes that it spans."""
        return self.coefficients.size if self.target is None else self.target.span

    @property
    def ratio(self) -> float | None:
        """Ratio of neighbouring coefficients if they decay geometrically, else None."""
        return geometric_ratio(self.coefficients)

    @property
    def span(self) -> int:
        """Number r of leading axes of R^d that the directions lie in."""
        return self.num_directions if self.directions is None else int(self.directions.shape[1])

    @property
    def is_polynomial(self) -> bool:
        """Whether the teacher is a polynomial rather than units."""
        return self.target is not None

    @property
    def components(self) -> tuple[Component, ...]:
        """Hermite components of a polynomial that are not zero, in the order of learning; none for units."""
        return () if self.target is None else self.target.components

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the components in the order of learning: the next one has the least |α| on new axes."""
        return tuple(component.name for component in self.components)

    @property
    def leap(self) -> int | None:
        """Largest |α| on new axes in the order of learning (Abbe, Boix-Adsera, Misiakiewicz 2302.11055)."""
        return max((component.cost for component in self.components), default=None)

    @property
    def emergence_level(self) -> float:
        """Share of |w|² at which a neuron has found a direction: ½, or 0.6 of the even share of a component's axes."""
        most = max((len(component.axes) for component in self.components), default=1)
        return EMERGENCE_LEVEL if most == 1 else EVEN_SHARE / most

    def units(self, link: HermiteExpansion) -> tuple[Unit, ...]:
        """Return the units of the teacher, with `link` where `links` is None; none for a polynomial."""
        if self.target is not None:
            return ()
        count = self.num_directions
        rows = np.eye(count) if self.directions is None else self.directions
        links = [link] * count if self.links is None else self.links
        biases = np.zeros(count) if self.biases is None else self.biases
        return tuple(map(Unit, self.coefficients.tolist(), links, rows, biases.tolist()))

    @property
    def is_orthonormal(self) -> bool:
        """Whether θ_p·θ_q = δ_pq by construction."""
        return self.directions is None

    def gram(self) -> Array:
        """Return the Gram matrix T_pq = θ_p·θ_q, shape (P, P), with ones on the diagonal."""
        if self.directions is None:
            return np.eye(self.num_directions)
        gram: Array = self.directions @ self.directions.T
        np.fill_diagonal(gram, 1.0)
        return gram

    def _identity(self) -> tuple[object, ...]:
        arrays = (self.coefficients, self.directions, self.biases)
        # 0.0 and -0.0 are one number and two patterns of bits.
        shapes = tuple(None if array is None else (array.shape, (array + 0.0).tobytes()) for array in arrays)
        return (*shapes, self.links, self.target)

    def _repr_html_(self) -> str:
        rows = teacher_formulas(self)
        if self.target is not None:
            rows |= {"learned in the order": clean(", ".join(self.order)), "leap": str(self.leap)}
        if self.beta is not None:
            rows["decay"] = f"a<sub>p</sub> ∝ p<sup>−β</sup>, β = {self.beta:g}"
        if self.links is not None:
            rows["links"] = f"σ<sub>p</sub>: {first_of([clean(link.name) for link in self.links])}"
        if self.biases is not None:
            rows["biases"] = f"β<sub>p</sub> = {first_of(self.biases.tolist())}"
        count = self.num_directions
        return table_of_pairs(f"<b>Teacher</b>: {count} direction{'' if count == 1 else 's'}", rows)

    def __repr__(self) -> str:
        if self.target is not None:
            return f"Teacher.polynomial({self.target.text!r})"
        if self.beta is not None:
            return f"Teacher.power_law(num_directions={self.num_directions}, beta={self.beta:g})"
        values = ", ".join(f"{a:.4g}" for a in self.coefficients[:MOST_SHOWN])
        values += ", …" if self.num_directions > MOST_SHOWN else ""
        geometry = "" if self.directions is None else f", directions=<{self.num_directions}x{self.span}>"
        if self.links is not None:
            geometry += f", links=[{', '.join(link.name for link in self.links[:MOST_SHOWN])}]"
        if self.biases is not None:
            geometry += f", biases={np.round(self.biases[:MOST_SHOWN], 4).tolist()}"
        return f"Teacher(num_directions={self.num_directions}, coefficients=[{values}]{geometry})"


def _places(num_directions: object) -> Array:
    """Return 0 to P − 1 for a number P of directions, checked."""
    count = checked_integer(num_directions, "num_directions", minimum=1)
    check_memory("num_directions", count, ARRAYS_OF_TEACHER * count)
    return np.arange(count, dtype=np.float64)


def geometric_ratio(coefficients: ArrayLike) -> float | None:
    """Return a_{p+1}/a_p if it is below 1 and the same for all p of at least three coefficients, else None."""
    a = np.asarray(coefficients, dtype=np.float64)
    if a.size < 3:
        return None
    ratios = a[1:] / a[:-1]
    ratio = float(ratios.mean())
    return ratio if ratio < 1.0 and np.ptp(ratios) <= RATIO_TOLERANCE * ratio else None


def checked_links(links: Iterable[object], count: int) -> tuple[HermiteExpansion, ...]:
    """Return one expansion per unit."""
    if isinstance(links, (str, bytes, dict)) or not isinstance(links, Iterable):
        refuse(f"Argument `links` must be a list with one link per unit, but is {shown(links)}.", TypeError)
    expansions = tuple(checked_link(link, "links") for link in links)
    require(
        len(expansions) == count,
        f"Argument `links` must hold one link for each of {count} units, but holds {len(expansions)}.",
    )
    return expansions


def checked_rows(directions: ArrayLike, count: int) -> Array:
    """Return directions (P, r) of unit length; rows of length 1 up to 10^-9 (10^-6 if single) are normalised."""
    is_single = str(getattr(directions, "dtype", "")).endswith("float32")
    rows = real_array(directions, "directions")
    require(
        rows.ndim == 2 and len(rows) == count,
        f"Argument `directions` must have shape (num_directions, r) = ({count}, r), but has shape {rows.shape}.",
    )
    lengths = np.sqrt(np.sum(rows**2, axis=1))
    tolerance = SINGLE_TOLERANCE if is_single else UNIT_LENGTH_TOLERANCE
    if (p := first_false(np.abs(lengths - 1.0) <= tolerance)) is not None:
        refuse(
            f"Argument `directions` must have rows of unit length, but row {p + 1} of {count} has length "
            f"{lengths[p]:.6g}."
        )
    # Rows of length 1 up to rounding stay as they are, bit for bit, so that a teacher comes back from its file.
    off_by_more = np.abs(lengths - 1.0) > ROUNDED_LENGTH
    return read_only(rows / np.where(off_by_more, lengths, 1.0)[:, None])


def teacher_formulas(teacher: Teacher) -> dict[str, str]:
    """Return f*(x) in HTML; of units also the coefficients and the directions."""
    if teacher.target is not None:
        return {"f*(x)": clean(teacher.target.text)}
    link = "σ" if teacher.links is None else "σ<sub>p</sub>"
    bias = "" if teacher.biases is None else " + β<sub>p</sub>"
    directions = "orthonormal" if teacher.is_orthonormal else f"given in R<sup>{teacher.span}</sup>"
    return {
        "f*(x)": f"Σ<sub>p</sub> a<sub>p</sub> {link}(θ<sub>p</sub>·x{bias})",
        "coefficients": f"a<sub>p</sub> = {first_of(teacher.coefficients.tolist())}",
        "directions": f"θ<sub>p</sub>: {directions}",
    }
