r"""What kernels of pairs of units take of the links: the means K = E σ_a σ_b and their derivatives.

Of two units of variances q_a, q_b, biases b_a, b_b and covariance c the equations need K, K1 = E σ'_a σ_b,
K12 = E σ'_a σ'_b and K2 = E σ''_a σ_b; ∂K/∂c = K12, ∂K/∂q_a = K2/2 and ∂K/∂b_a = K1. They are closed for pairs of
relu, erf, step and sign, finite sums where one of the two is a polynomial, and else a series with a bound on its error
(`dynamics.equations.network.series`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.network.families import POLYNOMIAL, SIGN, TABLE, Link, known_link
from dynamics.equations.network.list_kernels import HEADER, LIST, ROOT, SERIES, TERMS
from dynamics.equations.network.series import needed_terms, series_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers

#: Least size of the table of square roots.
_ROOTS = 40


@dataclass(frozen=True, eq=False)
class PairSource:
    """The numbers that the kernels of all pairs of one network take, those of `pair_kernels`.

    Attributes
    ----------
    numbers : ndarray
        What they know of the links.
    row_size : int
        Numbers of scratch per unit.
    links : tuple of Link
        The student's link and those of the teacher.
    """

    numbers: Array
    row_size: int
    links: tuple[Link, ...]

    @property
    def is_series(self) -> bool:
        """Whether some pair is a series, which is cut."""
        return bool(self.numbers[SERIES])

    def series_error(self, link: Integers, q: Array, b: Array, gram: Array) -> float:
        """Return a bound on the error of K and K12 over all pairs that are a series, tail_a tail_b |s|^terms.

        K2 has no bound of its own; its error is about √(q_b/q_a) times that of K12.

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
        terms = int(self.numbers[TERMS])
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
    """Return the numbers of a student's link and the distinct links of the teacher's units.

    Parameters
    ----------
    student : HermiteExpansion
        Link of the neurons.
    teachers : sequence of HermiteExpansion
        Links of the teacher, numbered from 1; its directions are unit vectors.
    biases : sequence of float, optional
        All biases that neurons can have; None for any, as of trained ones. Where all are 0, and those of the teacher,
        kernels need no Φ_2 and are several times as fast.
    teacher_biases : sequence of sequences of float, optional
        Those of the units of each link of the teacher; by default 0.

    Raises
    ------
    ValueError
        If a mean does not exist, as the square of the slope of a student that jumps, or is not known.
    """
    expansions = [student, *teachers]
    links = [known_link(expansion) or Link(TABLE) for expansion in expansions]
    if links[0].family == SIGN:
        msg = f"Argument `student` must have a link without jumps, whose gradient is a delta, but has {student.name}."
        raise ValueError(msg)
    values = [None if biases is None else _distinct(biases)]
    values += [_distinct(given) for given in teacher_biases] or [(0.0,) for _ in teachers]
    terms = max(link.terms for link in links)
    tabled = [n for n, link in enumerate(links) if link.family == TABLE]
    is_series = bool(tabled) and links[0].family != POLYNOMIAL
    if is_series:
        terms = max(terms, *(needed_terms(expansions[n], values[n]) for n in tabled))
    for n in tabled:
        links[n] = Link(TABLE, table=series_table(expansions[n], values[n], terms, unit=n > 0))
    centred = all(given is not None and not any(given) for given in values)
    return PairSource(_numbers(links, terms, is_series, centred), LIST + 3 * terms + 4, tuple(links))


def _distinct(values: Sequence[float]) -> tuple[float, ...]:
    """Return the distinct values in order."""
    return tuple(np.unique(np.asarray(values, dtype=np.float64)).tolist())


def _numbers(links: Sequence[Link], terms: int, is_series: bool, centred: bool) -> Array:
    """Return `numbers` of `list_kernels`."""
    roots = np.sqrt(np.arange(max(terms + 6, _ROOTS)))
    heads = ROOT + roots.size
    parts = [link.numbers for link in links]
    starts = heads + HEADER * len(links) + np.cumsum([0, *(part.size for part in parts)])
    table = [
        [link.family, start, link.terms - 1, link.scale, link.slope, link.offset]
        for link, start in zip(links, starts, strict=False)
    ]
    lines = any(link.has_line for link in links)
    return np.concatenate([[terms, heads, is_series, lines, centred, links[0].family], roots, np.ravel(table), *parts])
