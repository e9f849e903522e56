r"""Kernels for pairs of units: the means K = E σ_a σ_b and their derivatives, as source, chosen by the links.

Of two units of variances q_a, q_b, biases b_a, b_b and covariance c the equations need K, K1 = E σ'_a σ_b,
K12 = E σ'_a σ'_b and K2 = E σ''_a σ_b; ∂K/∂c = K12, ∂K/∂q_a = K2/2 and ∂K/∂b_a = K1. They are closed for pairs of
relu, erf, step and sign, finite sums where one of the two is a polynomial, and else a series with a bound on its error
(`dynamics.equations.network.series`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.compilation import kernel_pieces
from dynamics.equations.network.families import ERF, POLYNOMIAL, RELU, SIGN, TABLE, Link, family_of
from dynamics.equations.network.series import needed_terms, series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dynamics.compiler.compilation import Piece
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

_HERE = "dynamics.equations.network"
#: Length of the head of a row, and least size of the table of square roots.
_HEAD, _ROOTS = 9, 40


@dataclass(frozen=True, eq=False)
class PairSource:
    """Source of the kernels of all pairs of one network, and the numbers that they take.

    Attributes
    ----------
    pieces : tuple of Piece
        Source of `write_row`, `pair_values`, `mutual_values`, `own_values`, `write_moments`, `own_slopes` and
        `write_derivatives`.
    numbers : ndarray
        What they know of the links.
    row_size : int
        Numbers of scratch per unit.
    links : tuple of Link
        The student's link and those of the teacher.
    """

    pieces: tuple[Piece, ...]
    numbers: Array
    row_size: int
    links: tuple[Link, ...]

    @property
    def is_series(self) -> bool:
        """Whether some pair is a series, which is cut."""
        return bool(self.numbers[2])

    def series_error(self, link: Integers, q: Array, b: Array, gram: Array) -> float:
        """Return a bound on the error of K and K12 over all pairs that are a series, tail_a tail_b |s|^terms.

        Parameters
        ----------
        link : ndarray, shape (n,)
            0 for neurons, else the link of a unit of the teacher.
        q, b : ndarray, shape (n,)
            Variances |w|² and biases, dimensionless.
        gram : ndarray, shape (n, n)
            Covariances w_a·w_b.

        Returns
        -------
        float
            0 where no pair is a series, infinity where a unit is outside the range that its table covers.
        """
        if not self.is_series:
            return 0.0
        terms = int(self.numbers[0])
        tails = np.empty((2, link.size))
        for n, known in enumerate(self.links):
            tails[:, link == n] = known.tails(terms, q[link == n], b[link == n])
        family = np.array([known.family for known in self.links])[link]
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
    """Return the kernels of a student's link with itself and with the distinct links of the teacher's units.

    Parameters
    ----------
    student : HermiteExpansion
        Link of the neurons.
    teachers : sequence of HermiteExpansion
        Links of the teacher, numbered from 1; its directions are unit vectors.
    biases : sequence of float, optional
        All biases that neurons can have; None for any, as of trained ones.
    teacher_biases : sequence of sequences of float, optional
        Those of the units of each link of the teacher; by default 0.

    Raises
    ------
    ValueError
        If a mean does not exist, as the square of the slope of a student that jumps, or is not known.
    """
    links = [student, *teachers]
    families = [family_of(link) for link in links]
    if families[0] == SIGN:
        msg = f"Argument `student` must have a link without jumps, whose gradient is a delta, but has {student.name}."
        raise ValueError(msg)
    known = [None if biases is None else _distinct(biases)]
    known += [_distinct(values) for values in teacher_biases] or [(0.0,) for _ in teachers]
    sums = [np.array(link.link_coefficients() if link.is_polynomial else ()) for link in links]
    terms = max(coefficients.size for coefficients in sums)
    tabled = [n for n, family in enumerate(families) if family == TABLE]
    is_series = bool(tabled) and families[0] != POLYNOMIAL
    if is_series:
        terms = max(terms, *(needed_terms(links[n], known[n]) for n in tabled))
    tables = {n: series_table(links[n], known[n], terms, unit=n > 0) for n in tabled}
    made = tuple(Link(family, sums[n], tables.get(n)) for n, family in enumerate(families))
    return PairSource(_pieces(families[0]), _numbers(made, terms, is_series), _HEAD + 3 * terms + 4, made)


def _distinct(values: Sequence[float]) -> tuple[float, ...]:
    """Return the distinct values in order."""
    return tuple(np.unique(np.asarray(values, dtype=np.float64)).tolist())


def _pieces(student: int) -> tuple[Piece, ...]:
    """Return the source for a student of one family."""
    parts: dict[int, tuple[str, ...]] = {
        RELU: ("threshold", "moment", "relu_student", "threshold_pairs"),
        ERF: ("threshold", "moment", "erf_student", "threshold_pairs"),
    }
    chosen = ("normal", "series", "list", "smooth_own", *parts.get(student, ("list_pairs",)))
    return kernel_pieces(*(f"{_HERE}.{part}_kernels" for part in chosen))


def _numbers(links: tuple[Link, ...], terms: int, is_series: bool) -> Array:
    """Return [terms, place of the heads, whether it is a series, square roots, heads, numbers of the links]."""
    roots = np.sqrt(np.arange(max(terms + 6, _ROOTS)))
    heads = 3 + roots.size
    parts = [link.numbers for link in links]
    starts = heads + 3 * len(links) + np.cumsum([0, *(part.size for part in parts)])
    table = [[link.family, start, link.coefficients.size - 1] for link, start in zip(links, starts, strict=False)]
    return np.concatenate([[terms, heads, is_series], roots, np.ravel(table), *parts])
