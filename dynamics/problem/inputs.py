"""`Inputs`: the covariance Σ of the samples by its eigenvalues, and the axes that a flow needs of it.

Axis l of R^d is eigenvector l, of eigenvalue s_l. Weights w are whitened, ŵ = Σ^½ w, and all overlaps are those of ŵ.
Axes with one eigenvalue are a class: within it only the teacher's axes and m further ones matter, since a rotation of
the others changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import (
    Frozen,
    check_memory,
    checked_integer,
    checked_list,
    checked_number,
    first_false,
    read_only,
    require,
)
from dynamics.problem.hints import class_with_hints
from dynamics.problem.question import Compared
from hermite.arrays import Array, Integers, real_column
from hermite.text.formulas import first_of, table_of_pairs
from hermite.text.messages import refuse, with_error

if TYPE_CHECKING:
    from dynamics.problem.rows import Rows

#: Largest number of weights m·D that a problem may keep, D the axes that its classes leave.
MOST_WEIGHTS = 1 << 24
#: Sizes of eigenvalues for which rates and times stay within float64.
SMALLEST_EIGENVALUE, LARGEST_EIGENVALUE = 1e-100, 1e30
#: First rank of the eigenvalues of rows at which a power law is fitted, up to half of them.
FIRST_RANK = 4


class Axes(NamedTuple):
    """Axes of R^d that are kept, in increasing order, the teacher's first."""

    #: Distinct eigenvalues s_c, increasing, and the numbers d_c of their axes, shape (classes,).
    eigenvalue: Array
    sizes: Integers
    #: Place of a kept axis in R^d, and its class, shape (D,).
    places: Integers
    kind: Integers

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalue of every kept axis, shape (D,)."""
        return np.asarray(self.eigenvalue[self.kind])

    @property
    def trace(self) -> float:
        """Return tr Σ."""
        return float(self.eigenvalue @ self.sizes)

    def squares(self, weights: Array) -> Array:
        """Return the squared lengths of the parts of whitened weights (m, D) in every class, shape (m, classes)."""
        squared_lengths = np.zeros((self.sizes.size, len(weights)))
        np.add.at(squared_lengths, self.kind, weights.T**2)
        return squared_lengths.T

    def columns(self, kind: int, span: int) -> Integers:
        """Return the indices of the kept axes of a class, without those of the teacher."""
        return np.flatnonzero(self.kind[span:] == kind) + span


class Spectrum(NamedTuple):
    """Spectrum of the covariance of N rows: eigenvalues and standard errors (d,), and the decay s_l ~ l^(−α).

    α and its error are fitted from `first_rank` to `last_rank`, counted from 1: the first eigenvalues need not follow
    the law, and the last are low in a sample. NaN where fewer than three ranks are left.
    """

    eigenvalues: Array
    errors: Array
    rows: int
    alpha: float
    alpha_error: float
    first_rank: int
    last_rank: int

    def line(self) -> str:
        """Return a sentence on the decay."""
        if math.isnan(self.alpha):
            return (
                f"Covariance of {self.rows} rows: {self.eigenvalues.size} eigenvalues from {self.eigenvalues[0]:.3g} "
                f"to {self.eigenvalues[-1]:.3g}, too few for a power law."
            )
        return (
            f"Covariance of {self.rows} rows: {self.eigenvalues.size} eigenvalues from {self.eigenvalues[0]:.3g} to "
            f"{self.eigenvalues[-1]:.3g}, as l^-alpha with alpha = {with_error(self.alpha, self.alpha_error)} at ranks "
            f"{self.first_rank} to {self.last_rank}."
        )


@class_with_hints
class Inputs(Compared, Frozen):
    r"""Gaussian inputs x ~ N(0, Σ) that are not isotropic, by the eigenvalues of Σ; frozen.

    .. math:: f(x) = \sum_i n_i\, \sigma\big(w_i\cdot x/\sqrt{n_i}\big), \qquad n_i = w_i^T \Sigma w_i, \qquad
       \theta_p^T \Sigma\, \theta_p = 1

    for the homogeneous student; a `Student` has σ(w_i·x + b_i), and its teacher directions of the same length.
    Axis l of R^d is the l-th eigenvector, and the p-th direction of a teacher without `directions` lies on axis p.
    TypeError or ValueError is raised for any other value.

    Parameters
    ----------
    eigenvalues : array_like, shape (classes,)
        Eigenvalues s_l > 0, in the order of the axes, dimensionless.
    multiplicities : array_like of int, shape (classes,), optional
        How many axes in a row each of them has, by default 1; together as many as the problem has dimensions.

    Examples
    --------
    >>> Inputs([2.0, 0.5], [3, 9])
    Inputs([2, 0.5], [3, 9])
    >>> Inputs.power_law(0.25)
    Inputs.power_law(alpha=0.25)
    """

    __slots__ = ("alpha", "eigenvalues", "multiplicities", "spectrum")

    #: None for a power law: its eigenvalues depend on the dimension.
    eigenvalues: Array | None
    multiplicities: Integers | None
    #: Decay of `power_law`.
    alpha: float | None
    #: Spectrum that `from_data` measured; no file stores it.
    spectrum: Spectrum | None

    def __init__(self, eigenvalues: ArrayLike, multiplicities: Iterable[int] | None = None) -> None:
        values = real_column(eigenvalues, "eigenvalues")
        is_list = values.ndim == 1 and values.size != 0
        require(is_list, f"Argument `eigenvalues` must have shape (classes,), but has shape {values.shape}.")
        if (c := first_false((values >= SMALLEST_EIGENVALUE) & (values <= LARGEST_EIGENVALUE))) is not None:
            refuse(
                f"Argument `eigenvalues` must be positive, from {SMALLEST_EIGENVALUE:g} to {LARGEST_EIGENVALUE:g}, "
                f"but entry {c + 1} of {values.size} is {values[c]:g}."
            )
        counts = np.ones(values.size, dtype=np.int64)
        if multiplicities is not None:
            numbers = checked_list(multiplicities, "multiplicities")
            counts = np.array([checked_integer(n, "multiplicities", minimum=1) for n in numbers], dtype=np.int64)
        require(
            counts.size == values.size,
            f"Argument `multiplicities` must have {values.size} entries, as `eigenvalues`, but has {counts.size}.",
        )
        counts.setflags(write=False)
        self._set(eigenvalues=read_only(values), multiplicities=counts)

    @classmethod
    def power_law(cls, alpha: float) -> Inputs:
        """Return inputs with s_l = l^(−α), l = 1 … d, α ≥ 0 dimensionless, at whatever dimension the problem has."""
        inputs = cls.__new__(cls)
        inputs._set(alpha=checked_number(alpha, "alpha", positive=False, maximum=20.0))
        return inputs

    @classmethod
    def from_data(cls, rows: object) -> Inputs:
        """Return inputs with the covariance of rows of data, whose `spectrum` has its sampling error and decay.

        Parameters
        ----------
        rows : path, array_like, DataFrame or Rows
            A matrix with one sample per row, or its file .npy, .npz or .csv; `Rows(…, components=64)` keeps the
            leading principal components. Columns that do not vary are left out.

        Returns
        -------
        Inputs
            Eigenvalues s_l of the covariance, decreasing. They are those that SGD on resampled rows has, exactly; as an
            estimate for new rows, weak ones are low.

        Raises
        ------
        TypeError, ValueError
            If the rows are no finite matrix of linearly independent columns.

        Examples
        --------
        >>> x = np.random.default_rng(0).standard_normal((4000, 32)) * np.arange(1, 33) ** -0.5
        >>> inputs = Inputs.from_data(x)
        >>> inputs, bool(abs(inputs.spectrum.alpha - 1.0) < 0.1)
        (Inputs(<32 eigenvalues>), True)
        """
        from dynamics.problem.rows import Rows

        source = Rows.of(rows)
        require(
            not source.is_law,
            "Argument `rows` must be a matrix or its file, since the covariance of a law is known, but is "
            f"{source.name}.",
        )
        values, vectors = source.spectrum
        inputs = cls(values)
        object.__setattr__(inputs, "spectrum", _measured_spectrum(source, values, vectors))
        return inputs

    def check_dimension(self, dimension: int) -> None:
        """Raise ValueError unless the number of eigenvalues is `dimension`."""
        total = dimension if self.multiplicities is None else sum(self.multiplicities.tolist())
        require(
            total == dimension,
            f"Argument `inputs` must have `dimension` = {dimension} eigenvalues in all, but has {total}.",
        )

    def axes(self, dimension: int, span: int, width: int) -> Axes:
        """Return the axes that a teacher on the first `span` of them and m further directions per class take.

        ValueError is raised if there are more eigenvalues than a problem of this width can keep.
        """
        values, counts = self._runs(dimension, width)
        eigenvalue, kind = np.unique(values, return_inverse=True)
        ends = np.cumsum(counts)
        of_teacher = np.bincount(kind[np.searchsorted(ends, np.arange(span), side="right")], minlength=eigenvalue.size)
        total = np.zeros(eigenvalue.size, dtype=np.int64)
        np.add.at(total, kind, counts)
        num_to_keep = np.minimum(total, of_teacher + width)
        _check_size(width, int(num_to_keep.sum()))
        index = []
        for axis_class, end, count in zip(kind, ends.tolist(), counts.tolist(), strict=True):
            count_kept = min(count, int(num_to_keep[axis_class]))
            num_to_keep[axis_class] -= count_kept
            index.append(np.arange(end - count, end - count + count_kept))
        places = np.concatenate(index)
        return Axes(eigenvalue, total, places, kind[np.searchsorted(ends, places, side="right")])

    def eigenvalues_of_axes(self, dimension: int) -> Array:
        """Return the eigenvalue of every axis of R^d, shape (d,)."""
        return np.repeat(*self._runs(dimension, 1))

    def _runs(self, dimension: int, width: int) -> tuple[Array, Integers]:
        """Return eigenvalues in the order of the axes, and the number of axes in a row with each."""
        if self.eigenvalues is not None and self.multiplicities is not None:
            return self.eigenvalues, self.multiplicities
        if not self.alpha:
            return np.ones(1), np.array([dimension])
        _check_size(width, dimension)
        return np.arange(1, dimension + 1, dtype=np.float64) ** -self.alpha, np.ones(dimension, dtype=np.int64)

    # --- to and from a dataset ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, float | None]:
        """Return the parameters that a file stores in addition to `arrays`."""
        return {"alpha": self.alpha}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return eigenvalues and multiplicities as {variable name: (dims, values)}; none for a power law."""
        if self.eigenvalues is None:
            return {}
        arrays = {"eigenvalue": self.eigenvalues, "multiplicity": np.asarray(self.multiplicities, dtype=np.float64)}
        return {f"input_{name}": (("input_class",), values) for name, values in arrays.items()}

    @classmethod
    def of(cls, stored: dict[str, float | None] | None, eigenvalue: Array | None, count: Array | None) -> Inputs | None:
        """Return the inputs of a file; None for isotropic ones."""
        if stored is None:
            return None
        if stored["alpha"] is not None:
            return cls.power_law(stored["alpha"])
        if eigenvalue is None or count is None:
            raise KeyError  # which refuses the file
        is_stored = ~np.isnan(eigenvalue)  # of a sweep, arrays are as long as the longest of any point
        return cls(eigenvalue[is_stored], count[is_stored].astype(np.int64).tolist())

    def _identity(self) -> tuple[object, ...]:
        return (self.alpha, *(array.tobytes() for _, array in self.arrays().values()))

    def _repr_html_(self) -> str:
        if self.eigenvalues is None or self.multiplicities is None:
            rows = {"eigenvalues of Σ": f"s<sub>l</sub> = l<sup>−{self.alpha:g}</sup>, l = 1 … d"}
        else:
            of_axes = zip(self.eigenvalues.tolist(), self.multiplicities.tolist(), strict=True)
            values = [f"{value:.4g} ({count} {'axis' if count == 1 else 'axes'})" for value, count in of_axes]
            rows = {"eigenvalues of Σ": first_of(values), "dimension": f"d = {int(self.multiplicities.sum())}"}
        return table_of_pairs("<b>Inputs</b> x ~ N(0, Σ)", rows)

    def __repr__(self) -> str:
        if self.eigenvalues is None or self.multiplicities is None:
            return f"Inputs.power_law(alpha={self.alpha:g})"
        if self.eigenvalues.size > 6:
            return f"Inputs(<{self.eigenvalues.size} eigenvalues>)"
        values = ", ".join(f"{value:g}" for value in self.eigenvalues)
        return f"Inputs([{values}], {self.multiplicities.tolist()})"


def _measured_spectrum(rows: Rows, values: Array, vectors: Array) -> Spectrum:
    """Return eigenvalues with their errors, from a second pass over the rows, and the decay in the middle ranks."""
    mean, _, kept = rows.moments
    fourth, count = np.zeros(values.size), 0
    for block in rows.blocks():
        fourth += np.sum(((block[:, kept] - mean[kept]) @ vectors) ** 4, axis=0)
        count += len(block)
    errors = np.sqrt(np.maximum(fourth / count - values**2, 0.0) / count)
    first, last = FIRST_RANK, max(values.size // 2, FIRST_RANK)
    chosen = slice(first - 1, last)
    alpha, alpha_error = math.nan, math.nan
    if last - first >= 2:
        x = np.log(np.arange(first, last + 1))
        y, noise = np.log(values[chosen]), errors[chosen] / values[chosen]
        centred = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        alpha = -float(centred @ y)
        scatter = y - y.mean() + alpha * (x - x.mean())
        alpha_error = math.sqrt(
            max(float(np.sum((centred * noise) ** 2)), float(scatter @ scatter / (x.size - 2) * np.sum(centred**2)))
        )
    return Spectrum(values, errors, count, alpha, alpha_error, first, last)


def _check_size(width: int, axes: int) -> None:
    """Raise ValueError if the weights on so many kept axes are too many to store."""
    require(
        width * axes <= MOST_WEIGHTS,
        f"Argument `inputs` must leave at most {MOST_WEIGHTS} weights of {width} neurons, but has {axes} axes that no "
        "class holds; give fewer distinct eigenvalues.",
    )


def random_whitened(rng: np.random.Generator, axes: Axes, span: int, width: int, norm: float) -> Array:
    """Draw w isotropic and return ŵ = Σ^½ w with |ŵ_i| = `norm` on the kept axes, shape (m, D).

    Where a class has more than m axes beyond the teacher's, its part is the triangular Bartlett factor.
    """
    check_memory("width", width, 3 * width * axes.places.size)
    weights = rng.standard_normal((width, axes.places.size))
    of_teacher = np.bincount(axes.kind[:span], minlength=axes.sizes.size)
    for kind in np.flatnonzero(axes.sizes - of_teacher > width):
        columns = axes.columns(int(kind), span)
        freedom = float(axes.sizes[kind] - of_teacher[kind]) - np.arange(width)
        weights[:, columns] = np.tril(weights[:, columns], -1) + np.diag(np.sqrt(rng.chisquare(freedom)))
    weights *= np.sqrt(axes.eigenvalues)
    weights *= norm / np.sqrt(np.sum(weights**2, axis=1, keepdims=True))
    return weights


def whitened(weights: Array, inputs: Inputs, axes: Axes, span: int) -> Array:
    """Return ŵ = Σ^½ w of weights (m, d) on the kept axes, (m, D), each class rotated to a triangular factor."""
    values, _, index, kind = axes
    of_axis = inputs.eigenvalues_of_axes(weights.shape[1])
    full = weights * np.sqrt(of_axis)
    rows: Array = full[:, index]
    for axis_class in np.flatnonzero(axes.sizes > np.bincount(kind, minlength=values.size)):
        beyond = np.flatnonzero(of_axis[span:] == values[axis_class]) + span
        factor = np.linalg.qr(full[:, beyond].T).R
        factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
        rows[:, axes.columns(int(axis_class), span)] = factor.T
    return rows
