"""The teacher f*(x) = Σ_p a_p σ(θ_p·x): its coefficients a_p and its directions θ_p."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import checked_integer, checked_number, checked_real, float_array
from dynamics.problem.memory import check_memory
from hermite.arrays import Array

UNIT_LENGTH_TOLERANCE = 1e-9
ROUNDED_LENGTH = 1e-13
#: How far from constant the ratios of coefficients that decay geometrically may be, by rounding.
RATIO_TOLERANCE = 1e-12
MOST_SHOWN = 6
#: Arrays of the size of the coefficients that are held while they are made.
ARRAYS_OF_TEACHER = 4


def read_only(values: ArrayLike) -> Array:
    """Return a read-only float64 copy, so that frozen values really are frozen."""
    array: Array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


class Teacher:
    r"""Weights and directions of the teacher network.

    .. math:: f^*(x) = \sum_{p=1}^{P} a_p\, \sigma(\theta_p \cdot x), \qquad |\theta_p| = 1

    Parameters
    ----------
    coefficients : array_like, shape (P,)
        Second layer a_p, finite and positive, dimensionless; kept as given, neither sorted nor rescaled.
    directions : array_like, shape (P, r), optional
        Rows θ_p in R^r, of unit length, when the directions are not orthonormal. The teacher spans the first
        r axes of R^d. By default θ_p is the p-th axis and r = P.

    Raises
    ------
    ValueError
        If a coefficient is not finite and positive, or a direction is not of unit length.

    Examples
    --------
    >>> Teacher([3.0, 1.0])
    Teacher(num_directions=2, coefficients=[3, 1])
    """

    __slots__ = ("beta", "coefficients", "directions")

    coefficients: Array
    directions: Array | None
    beta: float | None

    def __init__(self, coefficients: ArrayLike, *, directions: ArrayLike | None = None) -> None:
        a = float_array(coefficients, "coefficients")
        if a.ndim != 1 or a.size == 0:
            msg = f"Argument `coefficients` must have shape (num_directions,), but has shape {a.shape}."
            raise ValueError(msg)
        bad = ~(np.isfinite(a) & (a > 0))
        if bad.any():
            p = int(np.argmax(bad))
            msg = f"Argument `coefficients` must be finite and positive, but entry {p} is {a[p]}."
            raise ValueError(msg)
        object.__setattr__(self, "coefficients", read_only(a))
        object.__setattr__(self, "directions", None if directions is None else _checked_rows(directions, a.size))
        object.__setattr__(self, "beta", None)

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
        """Number of directions P."""
        return self.coefficients.size

    @property
    def ratio(self) -> float | None:
        """Ratio of neighbouring coefficients if they decay geometrically, else None."""
        return geometric_ratio(self.coefficients)

    @property
    def span(self) -> int:
        """Number r of leading axes of R^d that the directions lie in."""
        return self.num_directions if self.directions is None else int(self.directions.shape[1])

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
        if self.directions is None or other.directions is None:
            same_rows = self.directions is other.directions
        else:
            same_rows = np.array_equal(self.directions, other.directions)
        return same_rows and np.array_equal(self.coefficients, other.coefficients)

    def __hash__(self) -> int:
        rows = b"" if self.directions is None else self.directions.tobytes()
        return hash((self.coefficients.tobytes(), rows))

    def __repr__(self) -> str:
        if self.beta is not None:
            return f"Teacher.power_law(num_directions={self.num_directions}, beta={self.beta:g})"
        values = [f"{a:.4g}" for a in self.coefficients[:MOST_SHOWN]]
        shown = "[" + ", ".join(values) + (", …]" if self.num_directions > MOST_SHOWN else "]")
        geometry = "" if self.directions is None else f", directions=<{self.num_directions}x{self.span}>"
        return f"Teacher(num_directions={self.num_directions}, coefficients={shown}{geometry})"


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


def _checked_rows(directions: ArrayLike, count: int) -> Array:
    """Return directions (P, r) of unit length; rows of length 1 up to 10^-9 are normalised."""
    rows = float_array(directions, "directions")
    if rows.ndim != 2 or rows.shape[0] != count:
        msg = f"Argument `directions` must have shape (num_directions, r) = ({count}, r), but has shape {rows.shape}."
        raise ValueError(msg)
    lengths = np.sqrt(np.sum(rows**2, axis=1))
    off = ~(np.abs(lengths - 1.0) <= UNIT_LENGTH_TOLERANCE)
    if off.any():
        p = int(np.argmax(off))
        msg = f"Argument `directions` must have rows of unit length, but row {p} has length {lengths[p]:.6g}."
        raise ValueError(msg)
    # Rows of length 1 up to rounding stay as they are, bit for bit, so that a teacher comes back from its file.
    off_by_more = np.abs(lengths - 1.0) > ROUNDED_LENGTH
    return read_only(rows / np.where(off_by_more, lengths, 1.0)[:, None])
