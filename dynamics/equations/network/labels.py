"""Labels of points: values with their weights, what no output can lower of the mean loss, and the error of Bayes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit, ndtr, softmax, xlogy

from dynamics.problem.losses import (
    BERNOULLI,
    CLUSTER,
    CORRELATION,
    EXPONENTIAL,
    LOGISTIC,
    OF_SOFTMAX,
    SIGN,
    SOFTMAX,
    SQUARED,
    VALUE,
    Objective,
    OwnLoss,
    loss_and_slope,
)

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

#: Nodes for noise of labels: two are exact for squares, and 31 for any other loss.
FEW_NODES, NODES = 2, 31
#: Outputs among which the least loss of two labels is looked for, and halvings of the interval.
FURTHEST_OUTPUT, HALVINGS = 40.0, 64


class Labels(NamedTuple):
    """Labels of N points, of which each has L possible ones: means over labels are sums Σ_l π_l, dimensionless."""

    #: Values y_l (L, N), of classes their numbers.
    values: Array
    #: Weights π_l (L, N), which sum to 1 over l; of a cluster those given the cluster of the point.
    weights: Array
    #: Probabilities of the classes given x alone (classes, N); None for labels that are values.
    posterior: Array | None


def teacher_values(problem: Problem, x: Array) -> Array:
    """Return f* at coordinates x (r, N) on the teacher's axes: (1, N), or of labels "softmax" a row for each unit."""
    target = problem.teacher.target
    if target is not None:
        return target.value(x.T)[None]
    units = problem.teacher.units(problem.teacher_link)
    rows = np.array([a * link.value(direction @ x + bias) for a, link, direction, bias in units])
    return rows if problem.labels == OF_SOFTMAX else rows.sum(axis=0, keepdims=True)


def labels_of(problem: Problem, x: Array, cluster: Integers, few: int = FEW_NODES) -> Labels:
    """Return the labels of points x (r, N) on the teacher's axes, of the clusters with these numbers (N,).

    Noise of labels whose loss is a square has `few` nodes: n of them are exact up to its power 2 n − 1.
    """
    kind, count = problem.labels, x.shape[1]
    if kind == CLUSTER and problem.mixture is not None and problem.mixture.labels is not None:
        return _of_clusters(problem, x, problem.mixture.labels[cluster])
    target = teacher_values(problem, x)
    if kind == VALUE:
        nodes, shares = _noise(problem, few)
        return Labels(target + nodes[:, None], np.broadcast_to(shares[:, None], (shares.size, count)), None)
    if kind == OF_SOFTMAX:
        law = _flipped(softmax(target, axis=0), problem.flip)
        return Labels(np.zeros_like(law), law, law)
    above = target[0] - problem.threshold
    up = expit(above) if kind == BERNOULLI else np.where(above >= 0.0, 1.0, 0.0)
    law = _flipped(np.array([1.0 - up, up]), problem.flip)
    if kind == SIGN and problem.flip == 0.0:
        return Labels(2.0 * up[None] - 1.0, np.ones((1, count)), law)
    return Labels(np.array([[-1.0], [1.0]]) * np.ones(count), law, law)


def labels_per_point(problem: Problem) -> int:
    """Return the number L of labels that a point has, each with its probability."""
    return len(labels_of(problem, np.zeros((problem.teacher.span, 1)), np.zeros(1, dtype=np.int64)).values)


def _of_clusters(problem: Problem, x: Array, labels: Integers) -> Labels:
    """Return the labels of clusters (N,), flipped, and the law of the class given x."""
    mixture = problem.mixture
    assert mixture is not None
    assert mixture.labels is not None
    classes = np.unique(mixture.labels)
    is_class = np.equal.outer(classes, labels).astype(np.float64)
    means = np.pad(mixture.means, ((0, 0), (0, len(x) - mixture.span)))
    squares = np.sum((x[None] - means[:, :, None]) ** 2, axis=1)
    of_cluster = softmax(np.log(mixture.weights)[:, None] - 0.5 * mixture.snr * squares, axis=0)
    law = np.array([of_cluster[mixture.labels == label].sum(axis=0) for label in classes])
    values = classes.astype(np.float64)[:, None] * np.ones(labels.size)
    return Labels(values, _flipped(is_class, problem.flip), _flipped(law, problem.flip))


def _flipped(law: Array, flip: float) -> Array:
    """Return the law (C, N) of a class that is replaced by another one with the probability `flip`."""
    return np.asarray((1.0 - flip) * law + flip * (1.0 - law) / (len(law) - 1))


def _noise(problem: Problem, few: int) -> tuple[Array, Array]:
    """Return values and weights, of sum 1, of the noise on labels that are values, by Gauss-Hermite quadrature."""
    if problem.label_noise == 0.0:
        return np.zeros(1), np.ones(1)
    is_square = problem.objective in (SQUARED, CORRELATION)
    nodes, weights = np.polynomial.hermite_e.hermegauss(few if is_square else NODES)
    return problem.label_noise * nodes, weights / weights.sum()


def least_loss(problem: Problem, labels: Labels) -> Array:
    """Return min_f Σ_l π_l ℓ(f, y_l) at every point (N,); NaN where there is none, as of the correlation."""
    law, objective = labels.posterior, problem.objective
    count = labels.values.shape[1]
    if objective == CORRELATION:
        return np.full(count, np.nan)
    if law is None:  # around f*, the same for all points
        centred = labels.values[:, :1] - labels.weights[:, 0] @ labels.values[:, 0]
        losses, _ = loss_and_slope(objective, np.zeros_like(centred), centred)
        return np.full(count, float(labels.weights[:, 0] @ losses[:, 0]))
    if objective in (SOFTMAX, LOGISTIC):
        return np.asarray(-xlogy(law, law).sum(axis=0))
    up = law[1]
    if objective == SQUARED:
        return np.asarray(2.0 * up * (1.0 - up))
    if objective == EXPONENTIAL:
        return np.asarray(2.0 * np.sqrt(up * (1.0 - up)))
    return _least_of_two(objective, up)


def _least_of_two(objective: Objective, up: Array) -> Array:
    """Return min_f of (1 − π) ℓ(f, −1) + π ℓ(f, 1) at probabilities π (N,), of one's own loss by a grid."""
    count = up.size
    if isinstance(objective, OwnLoss):
        shares, outputs = np.sin(np.linspace(0.0, 0.5 * np.pi, 2049)) ** 2, np.linspace(-32.0, 32.0, 8193)
        below, above = (objective.value_and_slope(outputs, np.full_like(outputs, y))[0] for y in (-1.0, 1.0))
        least = [np.min((1.0 - share) * below + share * above) for share in shares]
        return np.asarray(np.interp(up, shares, least))
    low, high = np.full(count, -FURTHEST_OUTPUT), np.full(count, FURTHEST_OUTPUT)
    ones = np.ones(count)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        slope = (1.0 - up) * loss_and_slope(objective, middle, -ones)[1]
        slope += up * loss_and_slope(objective, middle, ones)[1]
        low, high = np.where(slope < 0.0, middle, low), np.where(slope < 0.0, high, middle)
    middle = 0.5 * (low + high)
    at = [loss_and_slope(objective, middle, sign * ones)[0] for sign in (-1.0, 1.0)]
    return np.asarray((1.0 - up) * at[0] + up * at[1])


def bayes_error(problem: Problem, labels: Labels) -> Array:
    """Return the least probability of a wrong class at every point (N,); NaN for labels that are values."""
    if labels.posterior is None:
        return np.full(labels.values.shape[1], np.nan)
    return np.asarray(1.0 - labels.posterior.max(axis=0))


def exact_bayes_error(problem: Problem) -> float | None:
    """Return the error of Bayes in closed form, of two clusters with two labels; None for other problems."""
    mixture = problem.mixture
    if mixture is None or mixture.labels is None or problem.labels != CLUSTER or len(mixture.means) != 2:
        return None
    if mixture.num_classes != 2:
        return None
    distance = float(np.sqrt(mixture.snr) * np.linalg.norm(mixture.means[0] - mixture.means[1]))
    first, second = mixture.weights.tolist()
    if distance == 0.0:
        error = min(first, second)
    else:
        shift = np.log(first / second) / distance
        error = float(first * ndtr(-0.5 * distance - shift) + second * ndtr(-0.5 * distance + shift))
    return float(problem.flip + (1.0 - 2.0 * problem.flip) * error)
