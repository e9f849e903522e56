r"""The covariance of one step of SGD, of all numbers of a two-layer network that move, by means over Sobol points.

One sample moves the weights by −η g_i, g_i = q_i x + p_i w_i, with q_i and p_i as each student has them:

* a network, and a committee: q_i = ε_w S Σ_k ∂ℓ/∂f_k V_ki σ'(h_i), h_i = w_i·x + b_i, and p_i the decay;
* on the sphere p_i = −q_i w_i·x/Q_ii, and the length is kept to second order;
* homogeneous neurons, f = Σ |w_i|² σ(z_i), z_i = w_i·x/|w_i|: q_i = e |w_i| σ'(z_i), p_i = e (2 σ(z_i) − z_i σ'(z_i)).

Numbers y = [V (C, m) | b (m) | M (m, P) | Q, on and above the diagonal] move by η/B times the sum over a batch of B
samples of

.. math:: u_M = -g_i\cdot\theta_a, \qquad u_Q = -g_i\cdot w_j - g_j\cdot w_i + \tfrac{\eta}{B}\, g_i\cdot g_j,

u_V = −ε_v S ∂ℓ/∂f_k σ_i and u_b = −q_i, with the rate ε_b instead of ε_w. So covariances of runs grow by η/B Cov(u)
in each unit of the flow time η · step. All quantities are dimensionless.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from scipy.special import softmax

from dynamics.equations.network import labels as of_labels
from dynamics.equations.network.points import drawn_points, points_by_cluster, shares_of_clusters
from dynamics.problem.losses import SOFTMAX, loss_and_slope
from hermite.arrays import Array, Integers

if TYPE_CHECKING:
    from dynamics.problem import Problem, Student

#: Points of the covariance of a step, by which variances are known to about 1 %; of links that grow as powers more of
#: them, further out than inputs, of degree 2 and of degree 3 and more, by which they are known to 2 to 8 %.
POINTS, OF_POWERS, SPREADS = 2**12, 2**14, (1.4, 1.6)
#: Nodes of the noise of labels, of which fourth powers enter.
NOISE_NODES = 3


class NetworkParts(NamedTuple):
    """V (C, m), b (m,), M (m, P) and Q (m, m) of a network; of students without them V is 1 and b 0."""

    V: Array
    b: Array
    M: Array
    Q: Array


@dataclass(frozen=True)
class Numbers:
    """The numbers y (N,) of a network that move, of all in `NetworkParts`; the others keep the values of `start`."""

    start: NetworkParts
    #: Whether each of [V | b | M | Q on and above the diagonal] moves.
    moves: Array

    @classmethod
    def of(
        cls, start: NetworkParts, *, outputs: bool, biases: bool, weights: bool = True, lengths: bool = True
    ) -> Numbers:
        """Return the numbers of a network of which outputs, biases, weights and their lengths move, or not."""
        m = len(start.Q)
        square = np.equal.outer(np.arange(m), np.arange(m))[np.triu_indices(m)]
        kinds = [np.full(start.V.size, outputs), np.full(m, biases), np.full(start.M.size, weights)]
        return cls(start, np.concatenate([*kinds, weights & (~square | lengths)]))

    @property
    def size(self) -> int:
        """The number N of numbers that move."""
        return int(self.moves.sum())

    def pack(self, parts: NetworkParts) -> Array:
        """Return the numbers y (N,) of the parts of a network, or of their rates."""
        upper = np.triu_indices(len(parts.Q))
        return np.asarray(np.concatenate([parts.V.ravel(), parts.b, parts.M.ravel(), parts.Q[upper]])[self.moves])

    def unpack(self, y: Array) -> NetworkParts:
        """Return the parts of a network with the numbers y (N,)."""
        V, b, M, Q = self.start
        m, upper = len(Q), np.triu_indices(len(Q))
        every = np.concatenate([V.ravel(), b, M.ravel(), Q[upper]])
        every[self.moves] = y
        at = np.cumsum([V.size, m, M.size])
        first, second, third, last = np.split(every, at)
        square = np.zeros((m, m))
        square[upper] = last
        return NetworkParts(first.reshape(V.shape), second, third.reshape(M.shape), square + np.triu(square, 1).T)


#: Shares (T,) of a label, q and p (m, T), and the rows of V and b in u, (C m + m, T).
_Sample = tuple[Array, Array, Array, Array]


class StepNoise:
    """Means of one step of SGD at a learning rate and a batch size, over points that stand for samples.

    `numbers` are those that move, `exact` says that |x|² is that of a sample in R^d, else it is d/s.
    """

    def __init__(
        self, problem: Problem, numbers: Numbers, rate: float, batch: int = 1, *, exact: bool = True
    ) -> None:  # fmt: skip
        self.problem, self.numbers, self.rate, self.batch, self.exact = problem, numbers, rate, batch, exact
        m, r, d = problem.width, problem.teacher.span, problem.dimension
        self.hidden = min(m, d - r)
        rows = problem.teacher.directions
        is_network = problem.kind == "network"
        #: Axes of the columns of M: those of the teacher, or its directions.
        self.axes = np.eye(r) if is_network or rows is None else rows
        self._onto = np.linalg.pinv(self.axes)
        self._clusters = []
        degree = growth(problem)
        count, spread = (POINTS, 1.0) if degree < 2 else (OF_POWERS, SPREADS[min(degree, 3) - 2])
        (_, per_cluster), (shares, s) = points_by_cluster(problem, count), shares_of_clusters(problem)
        for cluster, share in enumerate(shares.tolist()):
            X, weights = drawn_points(problem, per_cluster, 0, cluster, spread)
            labels = of_labels.labels_of(problem, X[:r], np.full(per_cluster, cluster), NOISE_NODES)
            self._clusters.append((weights * (share / weights.sum()), X, labels, s))

    def moments(self, y: Array) -> tuple[Array, Array]:
        """Return η/B Cov(u) (N, N), and what the mean step has at finite d beyond its limit as d → ∞, (N,)."""
        parts, N = self.numbers.unpack(y), self.numbers.size
        W = weights_of(parts.M @ self._onto.T, parts.Q, self.hidden)
        mean, square, more = np.zeros(N), np.zeros((N, N)), np.zeros((len(W), len(W)))
        gradient = np.zeros_like(W)
        for weight, X, labels, s in self._clusters:
            D = len(X)
            whole = np.sum(X**2, axis=0)
            beyond = whole - D / s
            length = whole + (self.problem.dimension - D) / s if self.exact else self.problem.dimension / s
            length = np.broadcast_to(length, whole.shape)
            for of_label, q, p, rows in self._samples(parts, W, X, labels):
                u = self._moved(parts, W, X, length, q, p, rows)
                shares = weight * of_label
                weighted = u * shares
                mean += weighted.sum(axis=1)
                square += weighted @ u.T
                more += (q * (shares * beyond)) @ q.T
                gradient += (q * shares) @ X.T + np.sum(p * shares, axis=1)[:, None] * W
        covariance = (self.rate / self.batch) * (square - np.outer(mean, mean))
        change = self.rate * (more / self.batch + (1.0 - 1.0 / self.batch) * gradient @ gradient.T)
        zeros = NetworkParts(np.zeros_like(parts.V), np.zeros_like(parts.b), np.zeros_like(parts.M), change)
        return covariance, self.numbers.pack(zeros)

    def _samples(self, parts: NetworkParts, W: Array, X: Array, labels: of_labels.Labels) -> list[_Sample]:
        """Return for each label its shares (T,), q and p (m, T), and the rows of V and b in u, (C m + m, T)."""
        problem, (V, b, _, Q) = self.problem, parts
        link, products, samples = problem.activation, W @ X, list[_Sample]()
        if problem.kind == "homogeneous":
            length = np.sqrt(np.diag(Q))[:, None]
            z = products / length
            value, slope = link.value(z), link.derivative(z)
            f, turn = np.sum(length**2 * value, axis=0), 2.0 * value - z * slope
            for y, shares in zip(labels.values, labels.weights, strict=True):
                error = f - y
                samples.append((shares, error * length * slope, error * turn, np.zeros((V.size + b.size, error.size))))
            return samples
        student = cast("Student", problem.student) if problem.kind == "network" else None
        scale = 1.0 if student is None else student.output_scale
        rates = (1.0, 0.0, 0.0) if student is None else student.learning_rates
        decay = 0.0 if student is None else student.decay[0]
        on_sphere = student is not None and student.first_layer == "sphere"
        value, slope = link.value(products + b[:, None]), link.derivative(products + b[:, None])
        f = scale * V @ value
        law = softmax(f, axis=0) if problem.objective == SOFTMAX else None
        for number, (y, shares) in enumerate(zip(labels.values, labels.weights, strict=True)):
            if law is None:
                g = loss_and_slope(problem.objective, f[0], y)[1][None]
            else:
                g = law - (np.arange(len(law)) == number)[:, None]
            q = scale * (V.T @ g) * slope
            outer = -rates[1] * scale * (g[:, None] * value).reshape(V.size, -1)
            rows, q = np.concatenate([outer, -rates[2] * q]), rates[0] * q
            p = -q * products / np.diag(Q)[:, None] if on_sphere else np.full_like(q, decay)
            samples.append((shares, q, p, rows))
        return samples

    def _moved(
        self, parts: NetworkParts, W: Array, X: Array, length: Array, q: Array, p: Array, rows: Array
    ) -> Array:  # fmt: skip
        """Return u (N, T), by which one sample moves the numbers, over η/B."""
        (_, _, M, Q), m, r = parts, len(W), self.problem.teacher.span
        x, products, step = self.axes @ X[:r], W @ X, self.rate / self.batch
        i, j = np.triu_indices(m)

        def onto(a: Integers, b: Integers) -> Array:
            """Return g_a·w_b of the samples, (pairs, T)."""
            return np.asarray(q[a] * products[b] + p[a] * Q[a, b][:, None])

        cross = q[i] * p[j] * products[j] + p[i] * q[j] * products[i] + p[i] * p[j] * Q[i, j][:, None]
        both = q[i] * q[j] * length + cross
        of_M = -(q[:, None] * x[None] + p[:, None] * M[:, :, None])
        of_Q = step * both - onto(i, j) - onto(j, i)
        if not self.numbers.moves[-1]:  # lengths are kept
            growth = both[i == j] / np.diag(Q)[:, None]
            of_M -= 0.5 * step * growth[:, None] * M[:, :, None]
            of_Q -= 0.5 * step * Q[i, j][:, None] * (growth[i] + growth[j])
        return np.asarray(np.concatenate([rows, of_M.reshape(M.size, -1), of_Q])[self.numbers.moves])


def growth(problem: Problem) -> int:
    """Return the largest degree of a polynomial among the links and the target of a problem, 0 where there is none."""
    target, teacher_links = problem.teacher.target, problem.teacher.links or (problem.teacher_link,)
    links = (problem.activation, *(teacher_links if target is None else ()))
    degrees = [int(np.flatnonzero(link.coefficients)[-1]) for link in links if link.is_polynomial]
    return max([0, *degrees, *(component.degree for component in problem.teacher.components)])


def weights_of(M: Array, Q: Array, hidden: int) -> Array:
    """Return weights W = [M | L] (m, r + k) of neurons with LLᵀ = Q − MMᵀ, k = `hidden`."""
    values, vectors = np.linalg.eigh(Q - M @ M.T)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.hstack([M, factor[:, len(Q) - hidden :]])


def uniform_covariance(numbers: Numbers) -> Array:
    """Return d times the covariance of y over uniform random directions of neurons with M = 0 and Q_ij = 0, (N, N)."""
    V, b, M, Q = numbers.start
    i, j = np.triu_indices(len(Q))
    n = np.diag(Q)
    of_M = np.repeat(n, M.shape[1])
    of_Q = np.where(i == j, 0.0, n[i] * n[j])
    return np.diag(np.concatenate([np.zeros(V.size + b.size), of_M, of_Q])[numbers.moves])


def slack(parts: NetworkParts, onto: Array) -> float:
    """Return the least eigenvalue of Q − MMᵀ on the teacher's axes, over the mean square length, at least 0."""
    M = parts.M @ onto
    return max(float(np.linalg.eigvalsh(parts.Q - M @ M.T)[0]), 0.0) / math.sqrt(float(np.mean(np.diag(parts.Q) ** 2)))
