r"""The exact coupled overlap flow of the 2-homogeneous student, for any Hermite kernel and any teacher Gram matrix.

.. math::
   A_{ip} &= a_p\, g'(C_{ip}), \qquad B_{ij} = n_j\, g'(G_{ij}), \qquad X = A C^T - B G, \qquad r_i = X_{ii} \\
   C' &= A T - B C - \mathrm{diag}(r) C, \qquad G' = X + X^T - \mathrm{diag}(r) G - G\,\mathrm{diag}(r) \\
   (\ln n_i)' &= 4 \Big[ \sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij}) \Big]

with C = u·θ, G = u·u, n = |w|², g(s) = Σ_j c_j² s^j and T = ΘΘᵀ. It is the gradient flow of ½ E(f − f*)² on Gaussian
data, exact for every d ≥ P; d enters through the start alone. ln n is integrated, not n: with an absolute tolerance n
could cross zero, after which the loss is unbounded below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.degrees import by_degree, link_parts, teacher_parts
from dynamics.equations.interface import FlowSystem, Functions, OfStates
from dynamics.problem.emergence import LearnedPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.degrees import DegreePart
    from dynamics.problem import Problem
    from hermite import HermiteExpansion
    from hermite.arrays import Array, Integers


#: Number of neurons up to which realisability is monitored.
MARGIN_ROWS = 256
#: Numbers of an overlap matrix of which the kernel is computed at once.
BLOCK = 1 << 16


class OverlapSystem(FlowSystem):
    """State layout, kernels and observables of the coupled flow for one problem."""

    name = "overlaps"
    has_unit_vectors = True
    against_clusters: str | None = None

    def __init__(self, problem: Problem) -> None:
        # Imported here because the functions of this module need no Numba.
        from dynamics.equations import overlaps_kernels as kernels
        from dynamics.equations.pairs.link import link_data

        self.functions = Functions(
            kernels.rhs, kernels.event_values, kernels.normalise, kernels.jacobian_diagonal, kernels.jacobian_product
        )
        m, P = problem.width, problem.num_directions
        teacher = problem.teacher
        start = problem.start()
        self.problem = problem
        self.initial_state: Array = np.concatenate(
            [start.teacher_overlap.ravel(), start.student_overlap.ravel(), np.log(start.squared_norm)]
        )
        gram = np.empty(0) if teacher.is_orthonormal else teacher.gram().ravel()
        self.parameters: Array = np.concatenate([teacher.coefficients, gram, link_data(problem)])
        sign_matters = problem.information_exponent % 2
        self.sizes: Integers = np.array([m, P, teacher.is_orthonormal, sign_matters, P + gram.size], dtype=np.int64)
        self.work_size = 4 * m * P + 6 * m * m + 3 * m + m * max(m, P)
        self.num_events = 2 * P
        self._inverse_gram = None if teacher.is_orthonormal else np.linalg.pinv(teacher.gram())
        self.teacher_term = teacher_term(problem)
        self.teacher_by_degree = teacher_parts(problem, self.teacher_term)
        self._parts = link_parts(problem)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for C and G; plain for ln n."""
        tolerance = np.full(self.initial_state.size, atol / np.sqrt(self.problem.dimension))
        tolerance[-self.problem.width :] = atol
        return tolerance

    def stiffness(self) -> float:
        """Return the fastest relaxation rate of a learned direction, max_p a_p · max(2 g'(1), 4 g(1))."""
        link = self.problem.activation
        slope, value = float(link.kernel_derivative(1.0)), link.kernel_at_one
        return float(self.problem.teacher.coefficients.max()) * max(2.0 * slope, 4.0 * value)

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return views (C, G) of a state, or of a stack of states, and n."""
        m, P = self.problem.width, self.problem.num_directions
        stack, split = state.shape[:-1], m * P
        overlap = state[..., :split].reshape(*stack, m, P)
        student_overlap = state[..., split : split + m * m].reshape(*stack, m, m)
        return overlap, student_overlap, np.exp(state[..., split + m * m :])

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: True) -> OfStates:
        """Return what observes a state, or a stack: everything for "full", the reduced observables for "summary".

        `monitored` says each time whether to compute the realisability margin: not where vectors are carried.
        """
        observe = self.observe if keep == "full" else self.summarise

        def observed(state: Array) -> dict[str, Array]:
            margin = self.gram_margin(state) if monitored() else np.full(state.shape[:-1], np.nan)
            return observe(state) | {"gram_margin": np.asarray(margin)}

        return OfStates(observed, alike=self._alike(keep))

    def loss_of_states(self) -> OfStates:
        """Return what gives the loss of a state, or of each of a stack."""
        return OfStates(lambda state: self.loss(*self.unpack(state)), alike=self._alike("loss"))

    def _alike(self, observed: str) -> tuple[object, ...] | None:
        """Return what tells observables of this flow apart; None for that of a subclass, which knows more."""
        problem = self.problem
        is_own = type(self) is OverlapSystem
        return (observed, problem.width, problem.activation, problem.teacher) if is_own else None

    def observe(self, state: Array) -> dict[str, Array]:
        """Return the full observables of a state, or of a stack: overlaps, as views of it, squared norms, loss."""
        C, G, n = self.unpack(state)
        loss = self.loss(C, G, n)
        record = {"teacher_overlap": C, "student_overlap": G, "squared_norm": n, "loss": loss}
        return record | self._losses_by_degree(C, G, n, loss)

    def summarise(self, state: Array) -> dict[str, Array]:
        """Return the observables of `keep="summary"`: per direction the largest overlap and the learned mass."""
        C, G, n = self.unpack(state)
        link, part, a = self.problem.activation, self.problem.learned_part, self.problem.teacher.coefficients
        opposite = 0.0 if self.problem.information_exponent % 2 else -C.min(axis=-2)
        carried = weighed_kernel(n, link, C)
        # Where all of the link counts, the learned mass is made of what the loss is made of.
        whole = np.array_equal(part.coefficients, link.coefficients)
        mass = carried if whole else weighed_kernel(n, part, C)
        loss = self.teacher_term - 2.0 * np.sum(carried * a, axis=-1) + student_term(link, G, n)
        record = {
            "max_overlap": np.maximum(C.max(axis=-2), opposite),
            "learned_mass": mass / part.kernel_at_one,
            "squared_norm": n,
            "loss": loss,
        }
        return record | self._losses_by_degree(C, G, n, loss)

    def _losses_by_degree(self, C: Array, G: Array, n: Array, loss: Array) -> dict[str, Array]:
        """Return E of the squares of the parts of f − f*, (…, 4), where the loss is told by degree."""
        if self.teacher_by_degree is None:
            return {}
        a, parts = self.problem.teacher.coefficients, zip(self._parts, self.teacher_by_degree[:-1], strict=True)
        found = [population_loss(part, constant, a, C, G, n) for part, constant in parts]
        return {"degree_loss": by_degree(found, loss)}

    def loss(self, C: Array, G: Array, n: Array) -> Any:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-12 are rounding."""
        return population_loss(self.problem.activation, self.teacher_term, self.problem.teacher.coefficients, C, G, n)

    def gram_margin(self, state: Array) -> Array:
        """Return the smallest eigenvalue of G − C T⁻¹ Cᵀ: vectors with these overlaps exist when it is ≥ 0.

        Of a state, or of each of a stack. NaN for overlaps that are not finite, and above `MARGIN_ROWS` neurons, where
        it would cost more than the flow between two saved times.
        """
        C, G, _ = self.unpack(state)
        if self.problem.width > MARGIN_ROWS:
            return np.full(state.shape[:-1], np.nan)
        transposed = np.swapaxes(C, -1, -2)
        projected = C @ transposed if self._inverse_gram is None else C @ self._inverse_gram @ transposed
        rest = G - projected
        finite = np.asarray(np.isfinite(rest).all(axis=(-1, -2)))
        smallest: Array = np.linalg.eigvalsh(np.where(finite[..., None, None], rest, 0.0))[..., 0].astype(np.float64)
        return np.where(finite, smallest, np.nan)


def teacher_term(problem: Problem) -> float:
    """Return E f*² = Σ_pq a_p a_q g(T_pq) without ever forming T for an orthonormal teacher."""
    a, link = problem.teacher.coefficients, problem.activation
    if problem.teacher.is_orthonormal:
        squares = float(np.sum(a**2))
        return link.kernel_at_one * squares + float(link.coefficients[0]) ** 2 * (float(a.sum()) ** 2 - squares)
    return float(a @ link.kernel(problem.teacher.gram()) @ a)


def population_loss(
    link: HermiteExpansion | DegreePart,
    constant: float,
    a: Array,
    C: Array,
    G: Array,
    n: Array,
) -> Any:
    """Return `constant` − 2 Σ_ip n_i a_p g(C_ip) + Σ_ij n_i n_j g(G_ij) of a state, or of each of a stack."""
    return constant - 2.0 * np.sum(weighed_kernel(n, link, C) * a, axis=-1) + student_term(link, G, n)


def student_term(link: HermiteExpansion | DegreePart, G: Array, n: Array) -> Any:
    """Return Σ_ij n_i n_j g(G_ij) of a state, or of each of a stack."""
    return np.sum(weighed_kernel(n, link, G) * n, axis=-1)


def weighed_kernel(n: Array, link: HermiteExpansion | LearnedPart | DegreePart, overlaps: Array) -> Array:
    """Return Σ_i n_i g(M_ip) of overlaps M of a state, or of each of a stack, to the same last bits.

    It is summed over blocks of rows that stay in cache: for the kernel of a large state all at once the system would
    have to find new pages of memory.
    """
    m, columns = overlaps.shape[-2:]
    size = max(BLOCK // columns, 1)
    sums: Array = np.zeros((*overlaps.shape[:-2], columns))
    for rows in (slice(begin, begin + size) for begin in range(0, m, size)):
        sums += np.matmul(n[..., None, rows], link.kernel(overlaps[..., rows, :]))[..., 0, :]
    return sums


def learned_mass(link: HermiteExpansion, C: Array, n: Array) -> Array:
    r"""Return the mass that neurons carry of each direction p, which is learned when that reaches a_p/2.

    .. math:: \sum_i \frac{n_i\, g_3(C_{ip})}{g_3(1)}, \qquad g_3(s) = \sum_{j \ge 3} c_j^2 s^j

    of overlaps C (m, P) and squared norms n (m,), all dimensionless, shape (P,); NaN where the link has no part of
    degree 3 or more.
    """
    return LearnedPart.of(link).mass(C, n)


def events_of_directions(part: LearnedPart, a: Array, C: Array, n: Array, *, sign_matters: bool) -> tuple[Array, Array]:
    """Return max_i C_ip² − ½, for C > 0 only if the sign matters, and learned mass − a_p/2, of some directions."""
    size = np.maximum(C, 0.0) if sign_matters else C
    return np.max(size**2, axis=0) - 0.5, part.mass(C, n) - 0.5 * a
