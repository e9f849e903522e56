"""The teacher f*(x) = Σ_p a_p σ_p(θ_p·x + β_p), or a polynomial of the first coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import checked_integer, checked_number, checked_real, float_array, read_only
from dynamics.problem.emergence import EMERGENCE_LEVEL
from dynamics.problem.memory import check_memory
from dynamics.problem.polynomial import Component, Polynomial
from dynamics.problem.teacher_checks import check_coefficients, checked_biases, checked_links, checked_rows
from hermite.arrays import Array

if TYPE_CHECKING:
    from hermite import HermiteExpansion

#: How far from constant the ratios of coefficients that decay geometrically may be, by rounding.
RATIO_TOLERANCE = 1e-12
MOST_SHOWN = 6
#: Part of an even share 1/k of |w|² at which a neuron has found an axis of a component of k ≥ 2 axes.
EVEN_SHARE = 0.6
#: Arrays of the size of the coefficients that are held while they are made.
ARRAYS_OF_TEACHER = 4


class Unit(NamedTuple):
    """One unit a σ(θ·x + β) of a teacher: `coefficient` a, `link` σ, `direction` θ (r,), `bias` β."""

    coefficient: float
    link: HermiteExpansion
    direction: Array
    bias: float


class Teacher:
    r"""Units of the teacher network, or a polynomial.

    .. math:: f^*(x) = \sum_{p=1}^{P} a_p\, \sigma_p(\theta_p \cdot x + \beta_p), \qquad |\theta_p| = 1

    Parameters
    ----------
    coefficients : array_like, shape (P,)
        Second layer a_p, finite and not zero, dimensionless; kept as given, neither sorted nor rescaled. Students that
        are named, such as "homogeneous", learn positive ones alone; a `dynamics.Student` learns any.
    directions : array_like, shape (P, r), optional
        Rows θ_p in R^r, of unit length, when the directions are not orthonormal. The teacher spans the first
        r axes of R^d. By default θ_p is the p-th axis and r = P.
    links : list, optional
        Link σ_p of each unit, anything that `hermite.expand` takes; for a `dynamics.Student` alone. By default all have
        the link of the problem.
    biases : array_like, shape (P,), optional
        Biases β_p, dimensionless, by default 0; for a `dynamics.Student` alone.

    Raises
    ------
    ValueError
        If a coefficient is zero or not finite, a direction is not of unit length, or the lengths differ.

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
        a = float_array(coefficients, "coefficients")
        if a.ndim != 1 or a.size == 0:
            msg = f"Argument `coefficients` must have shape (num_directions,), but has shape {a.shape}."
            raise ValueError(msg)
        bad = ~(np.isfinite(a) & (a != 0))
        if bad.any():
            p = int(np.argmax(bad))
            msg = f"Argument `coefficients` must be finite and not zero, but entry {p} is {a[p]}."
            raise ValueError(msg)
        check_coefficients(a)
        self._set(
            coefficients=read_only(a),
            directions=None if directions is None else checked_rows(directions, a.size),
            links=None if links is None else checked_links(links, a.size),
            biases=None if biases is None else checked_biases(biases, a.size),
        )

    def _set(self, **values: Any) -> None:
        """Set the slots, those that are not named to None."""
        for name in self.__slots__:
            object.__setattr__(self, name, values.get(name))

    @classmethod
    def polynomial(cls, text: str) -> Teacher:
        r"""Return the teacher that is a polynomial of the first coordinates, for a `dynamics.Student`.

        Its `coefficients` are those in orthonormal Hermite polynomials, f*_α = E[∂^α f*]/√α!, of all `components`.

        Parameters
        ----------
        text : str
            Polynomial in x1 … x9, such as "x1 + x1*x2" or "h2(x1)*x2", h_k the orthonormal Hermite polynomial; numbers
            are exact, the total degree is at most 12, and there are at most 200 terms.

        Raises
        ------
        ValueError
            If the text is no such polynomial, or is constant.

        Examples
        --------
        >>> teacher = Teacher.polynomial("x1 + x1*x2*x3")
        >>> teacher.order, teacher.leap
        (('x1', 'x1*x2*x3'), 2)
        """
        target = Polynomial(text)
        teacher = cls([component.value for component in target.components])
        teacher._set(coefficients=teacher.coefficients, target=target)
        return teacher

    @classmethod
    def power_law(cls, num_directions: int, beta: float) -> Teacher:
        r"""Return the teacher with a_p ∝ p^(-β) and Σ_p a_p² = 1.

        Parameters
        ----------
        num_directions : int
            P ≥ 1.
        beta : float
            Decay β ≥ 0 of the coefficients, dimensionless. The scaling laws need β > ½.

        Examples
        --------
        >>> Teacher.power_law(2, beta=1.0).coefficients.round(4).tolist()
        [0.8944, 0.4472]
        """
        count = checked_integer(num_directions, "num_directions", minimum=1)
        decay = checked_number(beta, "beta", positive=False)
        check_memory("num_directions", count, ARRAYS_OF_TEACHER * count)
        with np.errstate(under="ignore"):
            a = np.arange(1, count + 1, dtype=np.float64) ** -decay
        if a[-1] == 0.0:
            msg = f"Argument `beta` must keep every p^-beta above zero in float64, but is {beta}."
            raise ValueError(msg)
        teacher = cls(a / np.sqrt(np.sum(a**2)))
        object.__setattr__(teacher, "beta", decay)
        return teacher

    @classmethod
    def geometric(cls, num_directions: int, ratio: float) -> Teacher:
        r"""Return the teacher with a_p ∝ ratio^p and Σ_p a_p² = 1.

        Parameters
        ----------
        num_directions : int
            P ≥ 1.
        ratio : float
            a_{p+1}/a_p, above 0 and below 1, dimensionless. Equal coefficients are `power_law` with β = 0.

        Examples
        --------
        >>> Teacher.geometric(3, ratio=0.5).coefficients.round(4).tolist()
        [0.8729, 0.4364, 0.2182]
        """
        count = checked_integer(num_directions, "num_directions", minimum=1)
        share = checked_real(ratio, "ratio")
        if not 0.0 < share < 1.0:
            msg = f"Argument `ratio` must be above 0 and below 1, but is {share}."
            raise ValueError(msg)
        check_memory("num_directions", count, ARRAYS_OF_TEACHER * count)
        with np.errstate(under="ignore"):
            a = share ** np.arange(count, dtype=np.float64)
        if a[-1] < np.finfo(np.float64).tiny:
            msg = f"Argument `ratio` must keep every ratio^p above zero in float64, but is {ratio}."
            raise ValueError(msg)
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
        """Names of the components in the order of learning: next comes the least |α| on axes not yet known."""
        return tuple(component.name for component in self.components)

    @property
    def leap(self) -> int | None:
        """Largest |α| on new axes in the order of learning (Abbe, Boix-Adsera, Misiakiewicz 2302.11055)."""
        return max((component.cost for component in self.components), default=None)

    @property
    def emergence_level(self) -> float:
        """Share of |w|² at which a neuron has found a direction: ½, or 0.6/k of the axes of a component of k ≥ 2.

        A neuron that carries a component of k axes gives each of them 1/k at most.
        """
        most = max((len(component.axes) for component in self.components), default=1)
        return EMERGENCE_LEVEL if most == 1 else EVEN_SHARE / most

    def units(self, link: HermiteExpansion) -> tuple[Unit, ...]:
        """Return the units, those without a link of their own with the one given; none for a polynomial.

        Parameters
        ----------
        link : HermiteExpansion
            Link of units that have none.

        Examples
        --------
        >>> import hermite
        >>> Teacher([2.0], biases=[0.5]).units(hermite.expand("he3"))[0].bias
        0.5
        """
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

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"Teacher is frozen: make a new one instead of setting `{name}`."
        raise AttributeError(msg)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Teacher):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        """Return what teachers are compared by; `beta` only says how the coefficients were written."""
        arrays = (self.coefficients, self.directions, self.biases)
        # 0.0 and -0.0 are one number and two patterns of bits.
        shapes = tuple(None if each is None else (each.shape, (each + 0.0).tobytes()) for each in arrays)
        return (*shapes, self.links, self.target)

    def _repr_html_(self) -> str:
        from dynamics.problem.as_html import teacher_html

        return teacher_html(self)

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


def geometric_ratio(coefficients: ArrayLike) -> float | None:
    """Return a_{p+1}/a_p if it is below 1 and the same for all p of at least three coefficients, else None.

    Examples
    --------
    >>> geometric_ratio([4.0, 2.0, 1.0])
    0.5
    """
    a = np.asarray(coefficients, dtype=np.float64)
    if a.size < 3:
        return None
    ratios = a[1:] / a[:-1]
    ratio = float(ratios.mean())
    return ratio if ratio < 1.0 and np.ptp(ratios) <= RATIO_TOLERANCE * ratio else None
