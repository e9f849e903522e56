"""`HermiteExpansion`: a link, its Hermite coefficients, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hermite import polynomials, zero_coefficients
from hermite.arrays import as_numpy
from hermite.integers import as_integer
from hermite.links import CallableLink, FormulaLink, SeriesLink
from hermite.polynomials import trimmed
from hermite.text.messages import shown
from hermite.text.series_text import format_series, latex_series, series_as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from hermite.arrays import Array
    from hermite.closed_forms.closed_forms import ExactSource
    from hermite.links import Link
    from hermite.text.expressions import Expression
    from hermite.zero_coefficients import Parity

#: Terms of a series that are shown, half of them where it goes on.
MOST_TERMS = 8


@dataclass(frozen=True, eq=False, repr=False)
class HermiteExpansion:
    r"""A link σ expanded as Σ_j c_j h_j, c_j = E[σ(z) h_j(z)], z ~ N(0, 1), h_j = He_j / sqrt(j!).

    Made by `hermite.expand`. Frozen, picklable (a callable inside must be, too), equal where function and
    coefficients are equal.

    Parameters
    ----------
    name : str
        Text that identifies the link: "he4", "0.8 h4 + 0.6 h6", "tanh(z)", a callable's name.
    coefficients : ndarray, shape (order + 1,)
        Coefficients c_0 ... c_order, dimensionless, read-only.
    link : Link
        The function itself.
    coefficient_error : float
        Bound on the error of every coefficient: 0 for given series, rounding for closed forms, else the
        quadrature's estimate, which holds for the coefficients that are not 0.
    text : str or None
        Text from which `hermite.expand` makes the same expansion at the same order; None for callables and
        for series too long for text (a dict serves for those).
    exact_source : ExactSource or None
        What knows the exact coefficients, where they are known.
    tolerance : float
        Size up to which a coefficient counts as zero and, where it comes from quadrature, has been set to 0
        (see `hermite.zero_coefficients`); 0 where zeros are exact.

    Examples
    --------
    >>> import hermite
    >>> link = hermite.expand({4: 0.8, 6: 0.6})
    >>> link.information_exponent, link.parity, link.norm_squared
    (4, 'even', 1.0)
    >>> float(link.kernel(0.5))
    0.045625000000000006
    """

    name: str
    coefficients: Array
    link: Link
    coefficient_error: float = 0.0
    text: str | None = None
    exact_source: ExactSource | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        frozen = np.array(self.coefficients, dtype=np.float64)
        frozen.setflags(write=False)
        object.__setattr__(self, "coefficients", frozen)

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.coefficient_error, self.text, self.exact_source, self.tolerance)
        return HermiteExpansion, (self.name, self.coefficients, self.link, *fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HermiteExpansion):
            return NotImplemented
        return self.link == other.link and np.array_equal(self.coefficients, other.coefficients)

    def __hash__(self) -> int:
        return hash((self.link, self.coefficients.tobytes()))

    @property
    def order(self) -> int:
        """Largest degree N of the coefficients kept."""
        return int(self.coefficients.size - 1)

    @property
    def is_polynomial(self) -> bool:
        """Whether the link itself is a polynomial."""
        return isinstance(self.link, SeriesLink)

    @cached_property
    def exact(self) -> tuple[Expression, ...] | None:
        """Coefficients as sympy numbers, or None where none are known. The first access computes them."""
        return None if self.exact_source is None else self.exact_source.exact(self.order)

    @cached_property
    def _norm_and_remainder(self) -> tuple[float, float]:
        """E σ² and the distance between σ and its series, by quadrature."""
        from hermite.quadrature import integrate

        try:
            result = integrate(self.link.value, self.order)
        except ValueError:
            # A Gaussian that grows almost as fast as it may has a norm, yet no finite support in floats.
            return self._norm_and_remainder_in_closed_form()
        return result.norm_squared, result.residual_norm(self.coefficients)

    def _norm_and_remainder_in_closed_form(self) -> tuple[float, float]:
        from hermite.closed_forms.recognition import closed_form

        square = closed_form(self.link.expression**2, moment=1) if isinstance(self.link, FormulaLink) else None
        if square is None:
            msg = f"The norm of {self.name} must be computable, but neither quadrature nor a closed form gives it."
            raise ValueError(msg)
        norm_squared = float(square.floats(0)[0])
        return norm_squared, math.sqrt(max(norm_squared - float(np.sum(self.coefficients**2)), 0.0))

    @cached_property
    def norm_squared(self) -> float:
        """E σ(z)² of the function itself, not of its truncation."""
        if isinstance(self.link, SeriesLink):
            return float(np.sum(np.square(self.link.coefficients)))
        return self._norm_and_remainder[0]

    @cached_property
    def truncation_error(self) -> float:
        """Distance (E σ² - Σ c_j²)^(1/2) from σ to the series, without cancellation; 0 for a whole polynomial."""
        if isinstance(self.link, SeriesLink):
            return float(np.linalg.norm(self.link.coefficients[self.order + 1 :]))
        return self._norm_and_remainder[1]

    @cached_property
    def information_exponent(self) -> int:
        """Smallest j >= 1 with c_j ≠ 0 by the rule of `hermite.zero_coefficients`; ValueError for a constant link."""
        return zero_coefficients.information_exponent(self.coefficients, self.tolerance)

    @cached_property
    def parity(self) -> Parity:
        """Whether the series is "even", "odd" or "none" of both, by the same rule for zero."""
        return zero_coefficients.parity(self.coefficients, self.tolerance)

    @cached_property
    def expression(self) -> Expression | None:
        """Formula of the link as a sympy expression in the real symbol z; None for callables."""
        if isinstance(self.link, FormulaLink):
            return self.link.expression
        if isinstance(self.link, CallableLink):
            return None
        import sympy

        from hermite.text.expressions import hermite_polynomial

        degree = len(self.link_coefficients()) - 1
        known = self.exact_source.exact(degree) if self.exact_source else map(sympy.Float, self.link_coefficients())
        return sympy.Add(*[sympy.expand(c * hermite_polynomial(j)) for j, c in enumerate(known) if c != 0])

    def link_coefficients(self) -> tuple[float, ...]:
        """Return all coefficients of a polynomial link, also those beyond `order`.

        Returns
        -------
        tuple of float
            Coefficients of the function itself.

        Raises
        ------
        TypeError
            If the link is no polynomial.
        """
        if not isinstance(self.link, SeriesLink):
            msg = f"The link must be a polynomial to have finitely many coefficients, but is {self.name}."
            raise TypeError(msg)
        return self.link.coefficients

    def value(self, z: ArrayLike) -> Array:
        """Return σ(z), the function itself (of `truncated()`: the series).

        Parameters
        ----------
        z : array-like
            Points, any shape, dimensionless.

        Returns
        -------
        ndarray, shape of z
            Values.
        """
        return self.link.value(as_numpy(z))

    def derivative(self, z: ArrayLike) -> Array:
        """Return σ'(z).

        Exact almost everywhere for series and formulas, a difference of fourth order for callables.

        Parameters
        ----------
        z : array-like
            Points, any shape, dimensionless.

        Returns
        -------
        ndarray, shape of z
            Values of the derivative.
        """
        return self.link.derivative(as_numpy(z))

    def kernel(self, s: ArrayLike) -> Array:
        """Return g(s) = Σ_j c_j² s^j = E[σ(u·x) σ(v·x)] for unit vectors with u·v = s.

        Parameters
        ----------
        s : array-like
            Cosines, any shape.

        Returns
        -------
        ndarray, shape of s
            Kernel of the series kept.
        """
        return polynomials.kernel_value(self.coefficients, as_numpy(s))

    @cached_property
    def kernel_at_one(self) -> float:
        """g(1) = Σ c_j², the norm of the series kept."""
        return float(self.kernel(1.0))

    def kernel_derivative(self, s: ArrayLike, n: int = 1) -> Array:
        """Return the n-th derivative g^(n)(s).

        Parameters
        ----------
        s : array-like
            Cosines, any shape.
        n : int, default 1
            Number of derivatives, at least 0.

        Returns
        -------
        ndarray, shape of s
            Derivative of the kernel of the series kept.

        Raises
        ------
        TypeError, ValueError
            If `n` is no integer, or negative.
        """
        count = as_integer(n)
        if count is None:
            msg = f"Argument `n` must be an integer, but is {shown(n)}."
            raise TypeError(msg)
        if count < 0:
            msg = f"Argument `n` must be at least 0, but is {count}."
            raise ValueError(msg)
        return polynomials.kernel_value(self.coefficients, as_numpy(s), count)

    def truncated(self) -> HermiteExpansion:
        """Return the expansion whose link is the truncated series itself.

        Coefficients within `tolerance` of zero are dropped, so that exponent and parity stay what they were.

        Returns
        -------
        HermiteExpansion
            A polynomial: its value is the series, its truncation error 0.
        """
        if isinstance(self.link, SeriesLink) and self.truncation_error == 0.0:
            return self
        kept = np.where(np.abs(self.coefficients) > self.tolerance, self.coefficients, 0.0)
        return HermiteExpansion(
            name=f"{self.name} truncated at order {self.order}",
            coefficients=kept,
            link=SeriesLink(trimmed(kept)),
            text=series_as_text(kept),
            exact_source=self.exact_source,
        )

    def __repr__(self) -> str:
        series = format_series(_rounded(self), limit=MOST_TERMS if self.is_polynomial else MOST_TERMS // 2)
        if self.is_polynomial and self.truncation_error == 0.0:
            return series
        left = f"{self.name}(z)" if self.name.isidentifier() else self.name
        if isinstance(self.link, FormulaLink) and (self.name == "erf" or not self.name.isidentifier()):
            left = str(self.link.expression)
        # A printed form must exist even where the norm cannot be computed.
        error = _known(lambda: f"{self.truncation_error:.2g}", "unknown")
        return f"{left} = {series} (order {self.order}, truncation error {error})"

    def _repr_html_(self) -> str:
        from hermite.text.html import clean, table_of_pairs

        return table_of_pairs(
            f"<b>Link</b> {clean(self.name)}",
            {
                "σ(z)": link_in_a_line(self),
                "information exponent k": _known(lambda: str(self.information_exponent), "none: σ is constant"),
                "parity": self.parity,
                "E σ(z)²": _known(lambda: f"{self.norm_squared:.4g}", "unknown"),
                "distance from the series": _known(
                    lambda: f"{self.truncation_error:.2g}, order {self.order}", "unknown"
                ),
            },
        )

    def _repr_latex_(self) -> str:
        return f"${latex_series(_rounded(self), limit=MOST_TERMS)}$"


def link_in_a_line(link: HermiteExpansion) -> str:
    """Return the series of a link in HTML, after its name where it is no polynomial."""
    from hermite.text.html import clean, series_as_html

    series = series_as_html(_rounded(link), MOST_TERMS)
    return series if link.is_polynomial else f"{clean(link.name)} = {series}"


def _rounded(link: HermiteExpansion) -> dict[int, str]:
    """Return the coefficients that are not zero, by degree, with four digits."""
    return {j: f"{c:.4g}" for j, c in enumerate(link.coefficients) if abs(c) > link.tolerance}


def _known(text: Callable[[], str], otherwise: str) -> str:
    """Return a text, or another one where a number in it cannot be computed."""
    try:
        return text()
    except ValueError:
        return otherwise
