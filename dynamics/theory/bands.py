r"""How far single runs of SGD scatter around their mean path: the covariance of all numbers of a network.

With the mean motion F of numbers y (N,), its Jacobian J and the covariance N(y) of steps per unit of the flow time
(`dynamics.equations.sample_noise`), runs scatter by

.. math:: \frac{d\Sigma}{dt} = J \Sigma + \Sigma J^T + N,

S = d Σ, to leading order in 1/d. The next order moves their mean from the path y by

.. math:: \frac{d\delta}{dt} = J \delta + \tfrac12 F'' : \Sigma + F_1 - \tfrac{\eta}{2} J F,

F_1 being what F lacks at finite d, and the last term that of steps instead of a flow. Where R = max_a |δ_a|/√Σ_aa is
no longer small, bands are too narrow. All quantities are dimensionless.

Steps of a fourth-order Magnus integrator follow the path. J and N are taken at both ends and in the middle, and are
quadratic in between, so that the number of evaluations does not depend on the saved times. Where N is constant and J
too, they are exact.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import expm

from dynamics.integrators.stepper import Status
from hermite.arrays import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dynamics.equations.sample_noise import NetworkParts, Numbers, StepNoise
    from dynamics.integrators.stepper import Stepper

#: Numbers of a state above which bands are refused unless they are asked for, and steps that a price is told for.
MOST_NUMBERS, USUAL_STEPS = 64, 30
#: R up to which bands are told as they are, and beyond which they are not drawn.
CLOSE, FAR = 0.15, 0.3
#: Largest difference of two Magnus integrators in one step, of the third and of the fifth order, in units of Σ.
TOLERANCE = 0.02
#: First step times the norm of J, and bounds on the growth of a step.
FIRST, LEAST_GROWTH, MOST_GROWTH = 0.3, 0.2, 3.0
#: Steps of first and of second differences, over the size of a number; where slopes jump one step for both, so that
#: many points cross.
FIRST_DIFFERENCE, SECOND_DIFFERENCE, OVER_KINKS = 1e-5, 3e-4, 0.05
#: Share of the least eigenvalue of Q − MMᵀ that a difference may change.
OF_SLACK = 0.01
#: Standard deviation below which a number does not count in R, over its size.
NO_SCATTER = 1e-9
#: Norm of an exponent up to which the blocks of one exponential are accurate.
LARGEST_EXPONENT = 1.0


@dataclass(frozen=True)
class MeanMotion:
    """The mean motion of the numbers y (N,) of a network under SGD, and the noise of its steps."""

    numbers: Numbers
    noise: StepNoise
    #: State of the system that is integrated -> parts of a network.
    parts_of: Callable[[Array], NetworkParts]
    #: y -> its rates (N,) and the loss.
    rates: Callable[[Array], tuple[Array, float]]
    #: y -> the least eigenvalue of Q − MMᵀ over Q, where rates are means over points; ∞ otherwise.
    room: Callable[[Array], float]
    #: Learning rate η; whether `rates` are those as d → ∞; whether slopes of link or loss jump.
    rate: float
    lacks_order: bool
    kinked: bool


class Node(NamedTuple):
    """The path at one time: y, its rates F, J, the noise N, F_1 − ½ η J F, and the gradient of the loss."""

    y: Array
    rates: Array
    jacobian: Array
    noise: Array
    forces: Array
    gradient: Array


class BandStep(NamedTuple):
    """A step from the time `start` of this length: its three nodes, and Σ, δ and forces on δ there."""

    start: float
    length: float
    nodes: tuple[Node, Node, Node]
    covariance: Array
    shift: Array
    sources: Array


class Scatter(NamedTuple):
    """Path and scatter at one time: y and its rates (N,), Σ (N, N), δ (N,), and the gradient of the loss (N,)."""

    y: Array
    rates: Array
    covariance: Array
    shift: Array
    gradient: Array

    @property
    def ratio(self) -> float:
        """R = max_a |δ_a|/√Σ_aa over the numbers that scatter; 0 where none does."""
        deviation = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        counts = deviation > NO_SCATTER * np.maximum(np.abs(self.y), 1.0)
        return float(np.max(np.abs(self.shift[counts]) / deviation[counts], initial=0.0))

    def deviation(self, gradient: Array) -> Array:
        """Return the standard deviation of quantities with gradients (…, N) in y, to leading order."""
        variance = np.einsum("...a,ab,...b->...", gradient, self.covariance, gradient)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


class MeanPath:
    """The states of a stepper at any times from the last `forget` on, forwards and back."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper, self._begun = stepper, stepper.time
        self._marks = [(stepper.time, stepper.state())]

    def forget(self, t: float) -> None:
        """Never go back before the time t from now on."""
        while len(self._marks) > 1 and self._marks[1][0] <= t:
            del self._marks[0]

    def at(self, t: float) -> Array | None:
        """Return the state at a time t, None if no step reaches it."""
        if t < self._begun:
            while self._marks[-1][0] > t:
                del self._marks[-1]
            self._begun, state = self._marks[-1]
            self._stepper.restore(state)
        while self._stepper.time < t:
            self._begun = self._stepper.time
            if self._begun > self._marks[-1][0]:
                self._marks.append((self._begun, self._stepper.state()))
            if self._stepper.advance(t, 1) in (Status.STEP_TOO_SMALL, Status.NOT_FINITE):
                return None
        return self._stepper.interpolate(t)


class Bands:
    """Scatter of runs along a mean path, from the covariance `start` (N, N) at time 0 on."""

    def __init__(self, motion: MeanMotion, stepper: Stepper, start: Array) -> None:
        self._motion, self._path, self._start = motion, MeanPath(stepper), start
        self._steps: list[BandStep] = []
        #: Evaluations of the rates.
        self.evaluations = 0
        first = self._node(stepper.time)
        assert first is not None
        self._first = first

    def follow(self, end: float, is_stopped: Callable[[], bool] = lambda: False) -> float:
        """Follow the path to the time `end`, or until `is_stopped` returns True; return how far bands are known."""
        node = self._first
        covariance, shift, t = self._start, np.zeros(len(self._start)), 0.0
        source = self._source(node, covariance)
        length = min(FIRST / max(float(np.linalg.norm(node.jacobian, 2)), 1e-300), end)
        while t < end:
            if is_stopped():
                return t
            length = min(length, end - t)
            if length < 1e-12 * end:
                return t
            middle, last = self._node(t + 0.5 * length), self._node(t + length)
            if middle is None or last is None:
                return t
            nodes = (node, middle, last)
            after, error = propagated(nodes, length, covariance)
            if not error <= TOLERANCE:
                length *= max(LEAST_GROWTH, 0.9 * (TOLERANCE / error) ** (1.0 / 3.0)) if math.isfinite(error) else 0.2
                continue
            half, _ = propagated(within(nodes, 0.5), 0.5 * length, covariance)
            sources = np.array([source, self._source(middle, half), self._source(last, after)])
            self._steps.append(BandStep(t, length, nodes, covariance, shift, sources))
            shift = shifted(nodes, sources, length, shift)
            t, node, source, covariance = t + length, last, sources[2], after
            self._path.forget(t)
            length *= min(MOST_GROWTH, 0.9 * (TOLERANCE / max(error, 1e-12)) ** (1.0 / 3.0))
        return t

    def at(self, t: float) -> Scatter:
        """Return the scatter at a time that was followed."""
        if not self._steps:
            first = self._first
            return Scatter(first.y, first.rates, self._start, np.zeros(first.y.size), first.gradient)
        place = bisect.bisect_right([step.start for step in self._steps], t) - 1
        start, length, nodes, covariance, shift, sources = self._steps[max(place, 0)]
        share = min((t - start) / length, 1.0)
        parts = within(nodes, share)
        covariance, _ = propagated(parts, share * length, covariance)
        thirds = np.array([quadratic(sources, share * x) for x in (0.0, 0.5, 1.0)])
        end = parts[2]
        return Scatter(
            hermite_between(nodes, length, share), end.rates, covariance,
            shifted(parts, thirds, share * length, shift), end.gradient,
        )  # fmt: skip

    def _rates(self, y: Array) -> tuple[Array, float]:
        self.evaluations += 1
        return self._motion.rates(y)

    def _node(self, t: float) -> Node | None:
        """Return the path at a time, with J by central differences; None where the path has no state."""
        state, motion = self._path.at(t), self._motion
        if state is None:
            return None
        y = motion.numbers.pack(motion.parts_of(state))
        rates, _ = self._rates(y)
        sizes = self._sizes(y)
        step = OVER_KINKS if motion.kinked else min(FIRST_DIFFERENCE, OF_SLACK * motion.room(y))
        jacobian, gradient = np.empty((y.size, y.size)), np.empty(y.size)
        for a in range(y.size):
            h = step * sizes[a]
            ends = []
            for sign in (1.0, -1.0):
                moved = y.copy()
                moved[a] += sign * h
                ends.append(self._rates(moved))
            jacobian[:, a] = (ends[0][0] - ends[1][0]) / (2.0 * h)
            gradient[a] = (ends[0][1] - ends[1][1]) / (2.0 * h)
        noise, lacking = motion.noise.moments(y)
        forces = lacking * motion.lacks_order - 0.5 * motion.rate * jacobian @ rates
        return Node(y, rates, jacobian, noise, forces, gradient)

    def _source(self, node: Node, covariance: Array) -> Array:
        """Return ½ F'':Σ + F_1 − ½ η J F, (N,), by second differences along the axes of Σ."""
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.where(deviation > 0.0, deviation, 1.0)
        values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
        sizes, total = self._sizes(node.y), np.zeros(node.y.size)
        room = self._motion.room(node.y)
        for value, vector in zip(values.tolist(), vectors.T, strict=True):
            if value <= 1e-12 * values[-1]:
                continue
            way = scale * vector
            step = OVER_KINKS if self._motion.kinked else min(SECOND_DIFFERENCE, max(OF_SLACK * room, 1e-6))
            h = step / np.max(np.abs(way) / sizes)
            ends = self._rates(node.y + h * way)[0] + self._rates(node.y - h * way)[0]
            total += 0.5 * value * (ends - 2.0 * node.rates) / h**2
        return total + node.forces

    def _sizes(self, y: Array) -> Array:
        """Return the size of each number: of M that of the neuron's length, of Q the product of two lengths."""
        V, b, M, Q = self._motion.numbers.unpack(y)
        length = np.sqrt(np.maximum(np.diag(Q), 1e-300))
        of_layer = max(float(np.abs(V).max()), 1e-300)
        parts = np.full_like(V, of_layer), np.maximum(np.abs(b), length), np.repeat(length, M.shape[1])
        return self._motion.numbers.pack(type(self._motion.numbers.start)(*parts, np.outer(length, length)))


def magnus(generators: Sequence[Array], length: float) -> Array:
    """Return the fourth-order Magnus exponent of x' = A(t) x over a step, from A at its start, middle and end."""
    first, middle, last = generators
    commutator = last @ first - first @ last
    return np.asarray(length / 6.0 * (first + 4.0 * middle + last) + length**2 / 12.0 * commutator)


def propagated(nodes: tuple[Node, Node, Node], length: float, covariance: Array) -> tuple[Array, float]:
    """Return Σ after a step of this length, and its largest difference to that of both ends alone, over Σ."""
    generators = [_hamiltonian(node) for node in nodes]
    after = _carried(magnus(generators, length), covariance)
    coarse = _carried(0.5 * length * (generators[0] + generators[2]), covariance)
    deviation = np.sqrt(np.maximum(np.diag(after), 0.0))
    scale = np.outer(deviation, deviation)
    counts = scale > 0.0
    error = np.max(np.abs(after - coarse)[counts] / scale[counts], initial=0.0)
    return after, float(error) if np.isfinite(after).all() else math.inf


def _hamiltonian(node: Node) -> Array:
    """Return [[J, N], [0, −Jᵀ]] (2 N, 2 N), whose exponential carries Σ."""
    J, noise = node.jacobian, node.noise
    return np.block([[J, noise], [np.zeros_like(J), -J.T]])


def _carried(exponent: Array, covariance: Array) -> Array:
    """Return Φ Σ Φᵀ + ∫ Φ N Φᵀ of an exponent [[A, B], [0, −Aᵀ]], by doubling of one that is short."""
    n = len(covariance)
    norm = float(np.abs(exponent[:n, :n]).sum(axis=0).max(initial=0.0))
    if not math.isfinite(norm):
        return np.full_like(covariance, np.nan)
    halvings = max(math.ceil(math.log2(max(norm / LARGEST_EXPONENT, 1.0))), 0)
    short = expm(exponent / 2.0**halvings)
    carry = short[:n, :n]
    grown = short[:n, n:] @ carry.T
    for _ in range(halvings):
        grown = grown + carry @ grown @ carry.T
        carry = carry @ carry
    after = carry @ covariance @ carry.T + grown
    return np.asarray(0.5 * (after + after.T))


def shifted(nodes: tuple[Node, Node, Node], sources: Array, length: float, shift: Array) -> Array:
    """Return δ after a step of this length, from its sources (3, N) at the nodes."""
    n = shift.size
    generators = [np.zeros((n + 1, n + 1)) for _ in nodes]
    for generator, node, source in zip(generators, nodes, sources, strict=True):
        generator[:n, :n], generator[:n, n] = node.jacobian, source
    whole = expm(magnus(generators, length))
    return np.asarray(whole[:n, :n] @ shift + whole[:n, n])


def quadratic(values: Array, share: float) -> Array:
    """Return the parabola through values (3, …) at 0, ½ and 1, at `share`."""
    weights = (2.0 * share - 1.0) * (share - 1.0), 4.0 * share * (1.0 - share), share * (2.0 * share - 1.0)
    return np.asarray(sum(weight * value for weight, value in zip(weights, values, strict=True)))


def within(nodes: tuple[Node, Node, Node], share: float) -> tuple[Node, Node, Node]:
    """Return the nodes of the first `share` of a step, by parabolas."""
    if share == 1.0:
        return nodes
    columns = [np.array(column) for column in zip(*nodes, strict=True)]
    middle, last = (Node(*(quadratic(column, x * share) for column in columns)) for x in (0.5, 1.0))
    return nodes[0], middle, last


def hermite_between(nodes: tuple[Node, Node, Node], length: float, share: float) -> Array:
    """Return y at `share` of a step, on the cubic through y and its rates at the two nodes around it."""
    half = 0 if share <= 0.5 else 1
    first, last, x, h = nodes[half], nodes[half + 1], 2.0 * share - half, 0.5 * length
    turn = x * x * (3.0 - 2.0 * x)
    cubic = (1.0 - turn) * first.y + turn * last.y
    return np.asarray(cubic + h * x * (1.0 - x) * ((1.0 - x) * first.rates - x * last.rates))


def gradients_of(numbers: Numbers, parts: NetworkParts) -> Mapping[str, Array]:
    """Return gradients in y, (…, N), of cosines with directions and among neurons, squared norms, and the layers."""
    V, b, M, Q = parts
    m, P, n = len(Q), M.shape[1], np.diag(Q)
    length = np.sqrt(n)
    every, at = numbers.moves.size, np.cumsum([V.size, b.size, M.size])
    i, j = np.triu_indices(m)
    place = np.zeros((m, m), dtype=np.int64)
    place[i, j] = place[j, i] = at[2] + np.arange(i.size)
    of_M, of_Q = np.zeros((m, P, every)), np.zeros((m, m, every))
    for a in range(m):
        for p in range(P):
            of_M[a, p, at[1] + a * P + p] = 1.0 / length[a]
            of_M[a, p, place[a, a]] = -0.5 * M[a, p] / (length[a] * n[a])
        for c in range(m):
            if a != c:
                product = length[a] * length[c]
                of_Q[a, c, place[a, c]] = 1.0 / product
                of_Q[a, c, place[a, a]] = -0.5 * Q[a, c] / (product * n[a])
                of_Q[a, c, place[c, c]] = -0.5 * Q[a, c] / (product * n[c])
    rows = np.eye(every)
    return {
        "overlap": of_M[..., numbers.moves],
        "student_overlap": of_Q[..., numbers.moves],
        "squared_norm": rows[np.diag(place)][:, numbers.moves],
        "output_layer": rows[: at[0]].reshape(*V.shape, every)[..., numbers.moves],
        "bias": rows[at[0] : at[1]][:, numbers.moves],
    }
