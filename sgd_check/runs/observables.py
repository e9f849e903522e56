"""Loss and learned mass of runs from their overlaps, one class for each kind of student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dynamics.equations import population_loss, squared_error, teacher_term
from dynamics.problem import is_correlation

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations import NetworkSystem
    from dynamics.problem import Problem
    from hermite.arrays import Array


class Observables(Protocol):
    """Loss and learned mass of runs, from C (…, m, P), n (…, m), and G (m, m) or spherical neurons (m, d) for it.

    Of a network C is that with the teacher's axes, and second layer v (…, m) and biases b (…, m) are given too.
    """

    learned_time: str
    """Variable that holds the times at which a quantity is learned."""

    thresholds: Array
    """Learned mass from which on it is, one for each."""

    def loss(self, C: Array, among: Array, n: Array, /, *layers: Array) -> float:
        """Return E(f − f*)² of one run; NaN where it is not known in closed form."""

    def learned(self, C: Array, n: Array, /, *layers: Array) -> Array:
        """Return the learned mass of every run, shape (runs, thresholds), given C (runs, m, P) and n (runs, m)."""


def keeps_vectors(problem: Problem) -> bool:
    """Return whether neurons in R^d are recorded, of which the loss is computed; a lone one has no need of them."""
    return problem.kind == "spherical" and not is_correlation(problem)


def observables_of(problem: Problem) -> Observables:
    """Return the observables of a problem's student."""
    return _STUDENTS[problem.kind](problem)


class _Directions:
    """What the students have in common that learn directions: half of a_p is to be learned."""

    learned_time = "learned_time"

    def __init__(self, problem: Problem) -> None:
        self.thresholds: Array = problem.teacher.coefficients / 2


class _Homogeneous(_Directions):
    """f = Σ n_i σ(u_i·x)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._link, self._part, self._a = problem.activation, problem.learned_part, problem.teacher.coefficients
        self._constant = teacher_term(problem)

    def loss(self, C: Array, G: Array, n: Array, /, *_: Array) -> float:
        return float(population_loss(self._link, self._constant, self._a, C, G, n))

    def learned(self, C: Array, n: Array, /, *_: Array) -> Array:
        # A row vector per run, so that the product over neurons is a matrix product for all runs at once.
        return self._part.mass(C, n[:, None, :])[:, 0]


class _Committee(_Directions):
    """f = Σ σ(w_i·x); a link whose means have no closed form has neither loss nor mass."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        from dynamics.equations import CommitteeSystem

        self._size = problem.num_directions
        try:
            self._system: CommitteeSystem | None = CommitteeSystem(problem)
        except ValueError:
            self._system = None

    def loss(self, C: Array, G: Array, n: Array, /, *_: Array) -> float:
        length = np.sqrt(n)
        return np.nan if self._system is None else self._system.loss(C * length[:, None], G * np.outer(length, length))

    def learned(self, C: Array, n: Array, /, *_: Array) -> Array:
        if self._system is None:
            return np.full((n.shape[0], self._size), np.nan)
        return np.array([self._system.learned_mass(c * np.sqrt(k)[:, None], k) for c, k in zip(C, n, strict=True)])


class _Spherical(_Directions):
    """f = (1/m) Σ σ(w_i·x), |w_i| = 1; the overlap 1 of a lone neuron with itself is a unit vector as good as any."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._problem = problem

    def loss(self, C: Array, w: Array, n: Array, /, *_: Array) -> float:  # noqa: ARG002
        return squared_error(self._problem, w, C)

    def learned(self, C: Array, n: Array, /, *_: Array) -> Array:  # noqa: ARG002
        part = self._problem.learned_part
        return np.asarray(part.kernel(C).mean(axis=1) / part.kernel_at_one)


class _Network:
    """f = s Σ v_i σ(w_i·x + b_i); what is learned of a polynomial teacher are its components, f_α/f*_α ≥ ½.

    A network whose means the theory refuses has neither loss nor components.
    """

    learned_time = "component_learned_time"

    def __init__(self, problem: Problem) -> None:
        from dynamics.equations import NetworkSystem

        self._values = np.array([component.value for component in problem.teacher.components])
        self.thresholds: Array = np.full(self._values.size, 0.5)
        try:
            self._system: NetworkSystem | None = NetworkSystem(problem)
        except ValueError:
            self._system = None

    def loss(self, C: Array, G: Array, n: Array, /, *layers: Array) -> float:
        return np.nan if self._system is None else self._system.loss(_packed(self._system, C, G, n, *layers))

    def learned(self, C: Array, n: Array, /, *layers: Array) -> Array:
        found, system = np.full((len(n), self._values.size), np.nan), self._system
        if system is not None and self._values.size:
            apart = np.eye(n.shape[1])  # overlaps of two neurons are not in f_α
            for s, (own, *rest) in enumerate(zip(C, n, *layers, strict=True)):
                found[s] = system.summarise(_packed(system, own, apart, *rest))["component"] / self._values
        return found


def _packed(system: NetworkSystem, C: Array, G: Array, n: Array, v: Array, b: Array) -> Array:
    """Return the state of one run of a network."""
    length = np.sqrt(n)
    return system.pack(v, b, C * length[:, None], G * np.outer(length, length))


_STUDENTS: dict[str, Callable[[Problem], Observables]] = {
    "homogeneous": _Homogeneous,
    "committee": _Committee,
    "spherical": _Spherical,
    "network": _Network,
    "stiefel": _Homogeneous,
}
