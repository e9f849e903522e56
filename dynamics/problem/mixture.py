"""`Mixture`: inputs that are a mixture of Gaussian clusters, with or without labels of the clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import Frozen, checked_integer, checked_number, float_vector, read_only, require
from dynamics.problem.hints import class_with_hints
from dynamics.problem.question import Compared
from hermite.arrays import Array, Integers, real_array
from hermite.text.formulas import table_of_pairs
from hermite.text.messages import refuse, shown

#: Most clusters.
MOST_CLUSTERS = 64
#: Sizes of means and precisions for which losses stay within float64.
LARGEST_MEAN, LEAST_SNR, LARGEST_SNR = 1e3, 1e-6, 1e6


@class_with_hints
class Mixture(Compared, Frozen):
    r"""Inputs x = μ_κ + z/√s of Gaussian clusters κ with weights p_κ, z ~ N(0, I_d); frozen.

    Parameters
    ----------
    means : array_like, shape (K, r)
        Means μ_κ on the first r axes of R^d, dimensionless, K ≤ 64.
    labels : array_like of int, shape (K,), optional
        Label of each cluster: −1 and 1, or classes 0 to C − 1, C ≤ 10; without them labels are the teacher's.
    weights : array_like, shape (K,), optional
        Weights p_κ > 0, scaled to the sum 1; by default equal.
    snr : float, default 1.0
        s > 0, one over the variance of a cluster along each axis, dimensionless.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> Mixture([[1.0], [-1.0]], labels=[1, -1], snr=2.0)
    Mixture(2 clusters on 1 axis, labels, snr=2)
    >>> Mixture.xor(snr=4.0).means.tolist()
    [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    """

    __slots__ = ("labels", "means", "snr", "weights")

    means: Array
    labels: Integers | None
    weights: Array
    snr: float

    def __init__(
        self, means: ArrayLike, labels: ArrayLike | None = None, weights: ArrayLike | None = None, snr: float = 1.0
    ) -> None:
        rows = real_array(means, "means")
        require(
            rows.ndim == 2 and rows.size > 0 and len(rows) <= MOST_CLUSTERS,
            f"Argument `means` must have shape (clusters, axes) with 1 to {MOST_CLUSTERS} clusters, but has shape "
            f"{rows.shape}.",
        )
        require(
            np.isfinite(rows).all() and np.abs(rows).max() <= LARGEST_MEAN,
            f"Argument `means` must hold numbers of at most {LARGEST_MEAN:g}, but is {shown(means)}.",
        )
        shares = np.ones(len(rows)) if weights is None else float_vector(weights, "weights", len(rows), "clusters")
        require(shares.min() > 0.0, f"Argument `weights` must be positive, but is {shown(weights)}.")
        precision = checked_number(snr, "snr", positive=True)
        require(
            LEAST_SNR <= precision <= LARGEST_SNR,
            f"Argument `snr` must be from {LEAST_SNR:g} to {LARGEST_SNR:g}, but is {precision:g}.",
        )
        self._set(
            means=read_only(rows),
            labels=None if labels is None else _checked_labels(labels, len(rows)),
            weights=read_only(shares / shares.sum()),
            snr=precision,
        )

    @classmethod
    def two(cls, snr: float = 1.0) -> Mixture:
        """Return two clusters with labels ±1 at the means ±e_1, of precision `snr` > 0."""
        return cls([[1.0], [-1.0]], labels=[1, -1], snr=snr)

    @classmethod
    def xor(cls, snr: float = 1.0) -> Mixture:
        """Return four clusters at ±e_1 with the label 1 and at ±e_2 with the label −1, of precision `snr` > 0."""
        return cls([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], labels=[1, 1, -1, -1], snr=snr)

    @property
    def span(self) -> int:
        """Number r of axes of the means."""
        return int(self.means.shape[1])

    @property
    def has_signs(self) -> bool:
        """Whether labels are −1 and 1 rather than classes from 0 on."""
        return self.labels is not None and bool((self.labels < 0).any())

    @property
    def num_classes(self) -> int:
        """Number of classes, 0 without labels."""
        return 0 if self.labels is None else int(np.unique(self.labels).size)

    # --- to and from a dataset ----------------------------------------------------------------------------

    def parameters(self) -> dict[str, float]:
        """Return the parameters that a file stores in addition to `arrays`."""
        return {"snr": self.snr}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return means, weights and labels as {variable name: (dims, values)}."""
        arrays: dict[str, tuple[tuple[str, ...], Array]] = {
            "cluster_mean": (("cluster", "cluster_axis"), self.means), "cluster_weight": (("cluster",), self.weights)
        }  # fmt: skip
        if self.labels is not None:
            arrays["cluster_label"] = (("cluster",), self.labels.astype(np.float64))
        return arrays

    def _identity(self) -> tuple[object, ...]:
        return (self.snr, *((array.shape, (array + 0.0).tobytes()) for _, array in self.arrays().values()))

    def _repr_html_(self) -> str:
        rows = {
            "clusters": f"{len(self.means)}, on {self.span} ax{'is' if self.span == 1 else 'es'}",
            "precision": f"s = {self.snr:g}",
            "labels": "those of the teacher" if self.labels is None else ", ".join(map(str, self.labels.tolist())),
        }
        return table_of_pairs("<b>Mixture</b> x = μ<sub>κ</sub> + z/√s", rows)

    def __repr__(self) -> str:
        axes = f"{self.span} ax{'is' if self.span == 1 else 'es'}"
        labels = "" if self.labels is None else ", labels"
        return f"Mixture({len(self.means)} clusters on {axes}{labels}, snr={self.snr:g})"


def _checked_labels(labels: ArrayLike, count: int) -> Integers:
    """Return the labels of clusters: −1 and 1, or classes 0 to C − 1."""
    values = float_vector(labels, "labels", count, "clusters")
    numbers: Integers = np.array([checked_integer(value, "labels", minimum=-1) for value in values.tolist()])
    kinds = np.unique(numbers).tolist()
    if kinds != [-1, 1] and kinds != list(range(max(len(kinds), 2))):
        refuse(
            f"Argument `labels` must be −1 and 1, or classes 0 to C − 1, each of which occurs, but is {shown(labels)}."
        )
    numbers.setflags(write=False)
    return numbers
