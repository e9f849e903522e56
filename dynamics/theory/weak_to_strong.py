r"""Weak-to-strong generalisation of linear models: a student that learns from the labels of a weaker teacher.

The target f* = θ·u lies in Gaussian features that teacher and student share; the teacher has d_w features, the student
d_s, with canonical correlations c_i, 1 for a shared one. The teacher is the least-squares fit of n labels f* + σξ, the
student that of the teacher's labels of N fresh inputs. With s = Σ c_i² the mean risks E(f − f*)² are exactly

.. math:: \text{teacher: } \frac{\sigma^2 d_w}{n-d_w-1}, \qquad \text{student: } \frac{\sigma^2}{n-d_w-1}
   \Big[s + \frac{(d_w-s)\, d_s}{N-d_s-1}\Big], \qquad
   \text{student on the } n \text{ labels: } \frac{\sigma^2 d_s}{n-d_s-1}.

Along the student's gradient flow, with q = 1 − e^{−xt} for eigenvalues x of its inputs, whose law is that of Marchenko
and Pastur of ratio d_s/N, and v = σ²/(n − d_w − 1),

.. math:: \mathrm{risk}(t) = |\theta|^2 \int (1-q)^2 + s v \int q^2 + (d_w-s)\, v\, \frac{d_s}{N} \int \frac{q^2}{x}

(arXiv:2502.05075 for the mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dynamics.problem.checks import check_that, check_type, checked_integer, checked_list, checked_number, require
from dynamics.theory.multi_pass import eigenvalue_law
from hermite.arrays import Array, real_column
from hermite.text.messages import shown


class WeakToStrongRisk(NamedTuple):
    """Risks E(f − f*)², dimensionless: of the teacher, of the student at the end and along its flow at each time."""

    weak: float
    weak_to_strong: float
    #: The student on the teacher's own n labels.
    strong: float
    time: Array
    risk: Array


@dataclass(frozen=True, kw_only=True)
class WeakToStrong:
    """A linear student that learns from the labels of a weaker linear teacher.

    Parameters
    ----------
    correlations : sequence of float
        Canonical correlations c_i between the two sets of features, above 0 and at most 1; all others are 0. The target
        lies in the features of c_i = 1.
    weak_features, strong_features : int
        Numbers d_w and d_s of features of teacher and student, at least as many as correlations.
    samples : int
        Number n ≥ d_w + 2 and d_s + 2 of labels.
    pseudo_labels : int
        Number N ≥ d_s + 2 of fresh inputs that the teacher labels.
    label_noise : float, default 1
        σ ≥ 0.
    target_norm : float, default 1
        |θ| ≥ 0, in equal parts on all shared features; 0 if there is none.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    Examples
    --------
    >>> WeakToStrong(correlations=[1.0, 0.5], weak_features=4, strong_features=3, samples=9, pseudo_labels=20).overlap
    1.25
    """

    correlations: Sequence[float]
    weak_features: int
    strong_features: int
    samples: int
    pseudo_labels: int
    label_noise: float = 1.0
    target_norm: float = 1.0

    def __post_init__(self) -> None:
        given = checked_list(self.correlations, "correlations")
        found = tuple(checked_number(c, "correlations", positive=True, maximum=1.0) for c in given)
        object.__setattr__(self, "correlations", found)
        for name in ("weak_features", "strong_features"):
            size = checked_integer(getattr(self, name), name, minimum=1)
            need = f"be at least {len(found)}, the number of correlations"
            check_that(size >= len(found), name, need, f"is {size}")
            object.__setattr__(self, name, size)
        for name, features in (
            ("samples", max(self.weak_features, self.strong_features)), ("pseudo_labels", self.strong_features),
        ):  # fmt: skip
            size = checked_integer(getattr(self, name), name, minimum=1)
            need = f"be at least {features + 2}, two more than the features, because the mean is infinite below"
            check_that(size >= features + 2, name, need, f"is {size}")
            object.__setattr__(self, name, size)
        for name in ("label_noise", "target_norm"):
            object.__setattr__(self, name, checked_number(getattr(self, name), name, positive=False))
        is_held = self.target_norm == 0.0 or 1.0 in found
        require(is_held, "Argument `target_norm` must be 0 without a shared feature of correlation 1, in which the "
                f"target lies, but is {self.target_norm}.")  # fmt: skip

    @property
    def overlap(self) -> float:
        """Dimension s = Σ c_i² in which both sets of features overlap."""
        return float(np.sum(np.square(self.correlations)))


def checked_times(times: ArrayLike) -> Array:
    """Return times as an array; refuse what is no list of finite numbers of at least 0."""
    t = real_column(times, "times")
    holds = t.ndim == 1 and bool(np.isfinite(t).all()) and float(t.min(initial=0.0)) >= 0.0
    check_that(holds, "times", "be a list of finite numbers of at least 0", f"is {shown(times)}")
    return t


def predict_weak_to_strong(problem: WeakToStrong, times: ArrayLike = ()) -> WeakToStrongRisk:
    r"""Return the mean risks of a weak teacher, of the student that learns from it, and along the student's training.

    .. math:: \frac{\sigma^2 d_w}{n-d_w-1}, \qquad
       \frac{\sigma^2}{n-d_w-1}\Big[s + \frac{(d_w-s)\, d_s}{N-d_s-1}\Big], \qquad s = \sum_i c_i^2

    The means of the three least-squares fits are exact. The curve takes the law of eigenvalues as d_s → ∞, and is off
    by about 1 % at d_s = 20; early stopping can beat its end.

    Parameters
    ----------
    problem : WeakToStrong
    times : array_like, shape (k,), optional
        Times t ≥ 0 of the student's gradient flow on half of the mean squared error over its N inputs, from 0.

    Returns
    -------
    WeakToStrongRisk
        Named tuple of `weak`, `weak_to_strong`, `strong`, and `time` and `risk`, (k,) each; dimensionless.

    Raises
    ------
    TypeError, ValueError
        One sentence: what must hold, what was given.

    References
    ----------
    arXiv:2502.05075.

    Examples
    --------
    >>> pair = WeakToStrong(
    ...     correlations=[1.0] * 5, weak_features=30, strong_features=20, samples=60, pseudo_labels=200
    ... )
    >>> found = predict_weak_to_strong(pair, times=[2.0, 8.0])
    >>> round(found.weak, 4), round(found.weak_to_strong, 4), round(found.strong, 4), found.risk.round(4).tolist()
    (1.0345, 0.2687, 0.5128, [0.2205, 0.2667])
    """
    check_type("problem", problem, WeakToStrong, "a WeakToStrong")
    t, s = checked_times(times), problem.overlap
    weak, strong, n, N = problem.weak_features, problem.strong_features, problem.samples, problem.pseudo_labels
    variance = problem.label_noise**2 / (n - weak - 1.0)
    x, weights = eigenvalue_law(strong / N)
    left = np.exp(-np.outer(t, x))
    apart = (weak - s) * variance * strong / N / x
    risk = (problem.target_norm**2 * left**2 + (1.0 - left) ** 2 * (s * variance + apart)) @ weights
    student = variance * (s + (weak - s) * strong / (N - strong - 1.0))
    return WeakToStrongRisk(weak * variance, student, problem.label_noise**2 * strong / (n - strong - 1.0), t, risk)
