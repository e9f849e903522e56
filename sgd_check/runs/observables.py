"""Loss and learned mass of runs from their overlaps, one class for each kind of student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dynamics.equations import learned_mass, population_loss, squared_error, teacher_term

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem
    from hermite.arrays import Array


class Observables(Protocol):
    """Loss and learned mass of runs, from C (…, m, P), n (…, m), and G (m, m) or spherical neurons (m, d) for it."""

    def loss(self, C: Array, among: Array, n: Array, /) -> float:
        """Return E(f − f*)² of one run; NaN where it is not known in closed form."""

    def learned(self, C: Array, n: Array) -> Array:
        """Return the learned mass of every run, shape (runs, P), given C (runs, m, P) and n (runs, m)."""


def observables_of(problem: Problem) -> Observables:
    """Return the observables of a problem's student."""
    return _STUDENTS[problem.kind](problem)


class _Homogeneous:
    """f = Σ n_i σ(u_i·x)."""

    def __init__(self, problem: Problem) -> None:
        self._link, self._a = problem.activation, problem.teacher.coefficients
        self._constant = teacher_term(problem)

    def loss(self, C: Array, G: Array, n: Array) -> float:
        return population_loss(self._link, self._constant, self._a, C, G, n)

    def learned(self, C: Array, n: Array) -> Array:
        # A row vector per run, so that the product over neurons is a matrix product for all runs at once.
        return learned_mass(self._link, C, n[:, None, :])[:, 0]


class _Committee:
    """f = Σ σ(w_i·x); a link whose means have no closed form has neither loss nor mass."""

    def __init__(self, problem: Problem) -> None:
        from dynamics.equations import CommitteeSystem

        self._size = problem.num_directions
        try:
            self._system: CommitteeSystem | None = CommitteeSystem(problem)
        except ValueError:
            self._system = None

    def loss(self, C: Array, G: Array, n: Array) -> float:
        length = np.sqrt(n)
        return np.nan if self._system is None else self._system.loss(C * length[:, None], G * np.outer(length, length))

    def learned(self, C: Array, n: Array) -> Array:
        if self._system is None:
            return np.full((n.shape[0], self._size), np.nan)
        return np.array([self._system.learned_mass(c * np.sqrt(k)[:, None], k) for c, k in zip(C, n, strict=True)])


class _Spherical:
    """f = (1/m) Σ σ(w_i·x), |w_i| = 1."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def loss(self, C: Array, w: Array, n: Array) -> float:  # noqa: ARG002
        return squared_error(self._problem, w, C)

    def learned(self, C: Array, n: Array) -> Array:  # noqa: ARG002
        kernel = self._problem.activation.kernel
        return np.asarray(kernel(C).mean(axis=1) / float(kernel(1.0)))


_STUDENTS: dict[str, Callable[[Problem], Observables]] = {
    "homogeneous": _Homogeneous,
    "committee": _Committee,
    "spherical": _Spherical,
}
