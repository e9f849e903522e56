r"""The coupled overlap flow on inputs of covariance Σ: Σ times the field of isotropic inputs, exact for any link.

With ŵ = Σ^½ w the loss, C, G and n = wᵀΣw are those of isotropic inputs in ŵ, and gradient flow of w is
ŵ' = −Σ ∇_ŵ ½E(f − f*)². In unit vectors u_i = ŵ_i/√n_i, on the axes l with eigenvalues s_l,

.. math::
   u_{il}' = s_l Y_{il} - \tfrac12 \ell_i'\, u_{il}, \qquad \ell_i' = (\ln n_i)' = 2 \sum_l s_l u_{il} Y_{il}, \qquad
   Y = \mathrm{diag}(e)\, U - B U + A \Theta

with A = a g'(C), B = n g'(G), e_i = 2 S_i − Σ_p A_ip C_ip + Σ_j B_ij G_ij, S_i = Σ_p a_p g(C_ip) − Σ_j n_j g(G_ij).
Axes of one eigenvalue are a class. Within it neurons stay in the span of their start and the teacher, so that r_c + m
axes carry it however many there are: the flow of R_c = Ŵ_cΘ̂_cᵀ and Q_c = Ŵ_cŴ_cᵀ in fewer numbers, and of vectors in
R^d where all eigenvalues are distinct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations import class_step_kernels as step_kernels
from dynamics.equations import classes_kernels as kernels
from dynamics.equations.finite_step import MOST_DIAGRAMS, check_polynomial
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.pairs.link import link_data
from dynamics.problem.inputs import MOST_WEIGHTS
from hermite.moments import count_diagrams, mean_derivatives

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.interface import OfStates
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers


FUNCTIONS = Functions(kernels.rhs, kernels.event_values, kernels.normalise, kernels.jacobian_diagonal)
#: Euler steps alone are taken of these.
DESCENT = Functions(kernels.descent_rhs, kernels.descent_event_values, kernels.leave_weights)


class ClassSystem(OverlapSystem):
    """State layout, kernels and observables of the coupled flow of a problem that has `inputs`.

    State: unit vectors U (m, D) on the axes that `Problem.input_axes` keeps, and ln n (m,).
    """

    name = "classes"
    has_unit_vectors = False
    against_clusters: str | None = "its slowed clusters are derived for isotropic inputs"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.functions = FUNCTIONS
        weights, axes, teacher = problem.reduced_weights(), problem.input_axes(), problem.teacher
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        m, P, r = problem.width, problem.num_directions, teacher.span
        squared_norm = np.sum(weights**2, axis=1)
        self.axes = axes
        self.shape = weights.shape
        self.initial_state: Array = np.concatenate(
            [(weights / np.sqrt(squared_norm)[:, None]).ravel(), np.log(squared_norm)]
        )
        rows = np.eye(r) if teacher.directions is None else teacher.directions
        self.teacher: Array = np.ascontiguousarray(rows)
        numbers = np.concatenate([teacher.coefficients, self.teacher.ravel(), axes.eigenvalues])
        self.parameters: Array = np.concatenate([numbers, link_data(problem)])
        D, sign_matters = weights.shape[1], problem.information_exponent % 2
        self.sizes: Integers = np.array([m, P, D, r, sign_matters, numbers.size], dtype=np.int64)
        self.work_size = 3 * m * (m + P) + m * D + m * r + 2 * m

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for vectors; plain for ln n."""
        m, D = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * D, m])

    def stiffness(self) -> float:
        """Return a bound on the rates of a learned direction, the largest eigenvalue times that of isotropic inputs."""
        return float(self.axes.eigenvalue.max()) * super().stiffness()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, and n."""
        m, D = self.shape
        U = state[..., : m * D].reshape(*state.shape[:-1], m, D)
        G = U @ np.swapaxes(U, -1, -2)
        np.einsum("...ii->...i", G)[...] = 1.0
        return U[..., : self.teacher.shape[1]] @ self.teacher.T, G, np.exp(state[..., m * D :])

    def observer(self, keep: str, monitored: Callable[[], bool] = lambda: False) -> OfStates:
        """Return what observes a state; vectors are carried, so that no realisability margin is computed."""
        del monitored
        return super().observer(keep, lambda: False)


class ClassDescentSystem(ClassSystem):
    """The same flow in the weights Ŵ (m, D), of which one Euler step is one of population gradient descent in w."""

    name = "class-descent"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.functions = DESCENT
        self.work_size += 2 * self.initial_state.size
        self.initial_state = problem.reduced_weights().ravel()

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        weights = state.reshape(*state.shape[:-1], *self.shape)
        squared_norm = np.sum(weights**2, axis=-1)
        unit = weights / np.sqrt(squared_norm)[..., None]
        return super().unpack(np.concatenate([unit.reshape(state.shape), np.log(squared_norm)], axis=-1))


# The overlaps under online SGD of a finite learning rate on inputs of covariance Σ, closed class by class.
#
# Whitened, a sample g ~ N(0, I) moves ŵ_i by −η e Σ ∇_i, ∇_i = ρ_i [α(z_i) u_i + σ'(z_i) g] as on isotropic inputs
# (`dynamics.equations.finite_step`). With U the coordinates of unit neurons on the axes of the teacher, K_c
# the share of class c in G, and X_c that of class c in the Gram matrix X of the m unit neurons and P directions,
#
# .. math::
# U_{il}' = s_l Y_{il} - \tfrac12 \ell_i' U_{il}, \qquad
# K_c' = s_c (V_c + V_c^T) + s_c^2 H_c - \tfrac12 (\ell_i' + \ell_j') K_c, \qquad
# \ell_i' = (\ln n_i)' = \sum_c [2 s_c V_c + s_c^2 H_c]_{ii}
#
# in the time η · step, with Y = F U + A Θ, V_c the products of Y and U within class c, F = diag(e) − B of
# `dynamics.equations.classes`, and H_c = η [D_c + (second_c − D_c)/B] for batches of B samples, D_c =
# Y_c Y_cᵀ. For class c of d_c axes Stein's lemma leaves the sum over the m + P vectors
#
# .. math::
# \mathrm{second}_c = d_c\, E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j] + \sum_{ab} J^{(ij)}_{ab} X_{c,ab}
#
# with J linear in means of four functions. In ē = Σ_a w_a σ_a, w = (n, −a), and A(z) = α + σ'' of mean derivatives
# (2 − k) f̂_k, its entries are sums of
#
# .. math::
# ab:&\; 2 w_a w_b E[\sigma'_a \sigma'_b \sigma'_i \sigma'_j], \quad
# aa: 2 w_a E[\bar e\, \sigma''_a \sigma'_i \sigma'_j], \quad
# ai: 2 w_a E[\bar e\, \sigma'_a (A + \sigma'')_i \sigma'_j], \\
# ii:&\; E[(\bar e^2 + \tau^2) (\sigma''' + \alpha')_i \sigma'_j], \quad
# ij: E[(\bar e^2 + \tau^2) (A_i A_j + \sigma''_i \sigma''_j)],
#
# and of the same with i and j exchanged. "infinite-d" keeps d_c E[…]/B alone, the limit tr Σ → ∞ at fixed η tr Σ.
# What is left out is the scatter of single runs about the mean. Dimensionless throughout.


STEP_FUNCTIONS = Functions(
    step_kernels.rhs, step_kernels.event_values, step_kernels.normalise, step_kernels.jacobian_diagonal
)


class ClassStepSystem(ClassSystem):
    """State layout, kernels and observables of the mean steps of a problem that has `inputs`.

    State: U (m, r) on the teacher's axes, K (classes, m, m), and ln n (m,). Raises ValueError if the link is not a
    polynomial or of too many diagrams, or if the classes are too many.
    """

    name = "class-step"
    against_clusters = FlowSystem.against_clusters

    def __init__(self, problem: Problem, learning_rate: float, step_theory: str, batch_size: int = 1) -> None:
        check_polynomial(problem)
        super().__init__(problem)
        self.functions = STEP_FUNCTIONS
        axes, link, teacher = self.axes, problem.activation, problem.teacher
        m, P, r, classes = problem.width, problem.num_directions, teacher.span, axes.eigenvalue.size
        hat = mean_derivatives(np.trim_zeros(link.coefficients, "b"))
        _check_sizes(hat, m + P, classes)
        unit, log_norm = self.initial_state[:-m].reshape(self.shape), self.initial_state[-m:]
        shares = [unit[:, axes.kind == kind] @ unit[:, axes.kind == kind].T for kind in range(classes)]
        self.initial_state = np.concatenate([unit[:, :r].ravel(), np.ravel(shares), log_norm])
        self.shape = (classes, m, r)
        whole, share = step_theory == "finite-d", learning_rate / batch_size
        numbers = np.concatenate(
            [
                teacher.coefficients,
                self.teacher.ravel(),
                axes.eigenvalue,
                axes.sizes.astype(np.float64),
                [problem.label_noise, learning_rate - share if whole else 0.0, share],
                np.append(hat, np.zeros(4)),
            ]
        )
        self.parameters = np.concatenate([numbers, link_data(problem)])
        counts = [m, P, r, classes, hat.size - 1, problem.information_exponent % 2, whole, numbers.size]
        self.sizes = np.array([*counts, *axes.kind[:r]], dtype=np.int64)
        M, half = m + P, hat.size * (hat.size + 1) // 2
        of_moments = 2 * M * M + classes + 6 * hat.size**2 + 5 * half * M + 5 * (M + 2)
        self.work_size = m * M + M * M + M + classes * (M * M + m * m) + max(of_moments, 2 * m * M)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` per component: in units of 1/√d, the size of a random overlap, for U and K; plain for ln n."""
        classes, m, r = self.shape
        return np.repeat([atol / np.sqrt(self.problem.dimension), atol], [m * r + classes * m * m, m])

    def unpack(self, state: Array) -> tuple[Array, ...]:
        """Return the overlaps C and G of a state, or of a stack, and n."""
        classes, m, r = self.shape
        stack = state.shape[:-1]
        G = state[..., m * r : -m].reshape(*stack, classes, m, m).sum(axis=-3)
        np.einsum("...ii->...i", G)[...] = 1.0
        return state[..., : m * r].reshape(*stack, m, r) @ self.teacher.T, G, np.exp(state[..., -m:])


def _check_sizes(hat: Array, vectors: int, classes: int) -> None:
    """Refuse links of too many diagrams, and classes of too many shares."""
    count = count_diagrams(hat, hat)
    if count > MOST_DIAGRAMS:
        msg = (
            "Argument `problem` must have a link of lower degree or of fewer terms for the equation of a finite "
            f"learning rate, but degree {hat.size - 1} gives up to {count} diagrams, more than {MOST_DIAGRAMS}."
        )
        raise ValueError(msg)
    if classes * vectors**2 > MOST_WEIGHTS:
        msg = (
            f"Argument `inputs` must have at most {MOST_WEIGHTS // vectors**2} distinct eigenvalues for the equation "
            f"of a finite learning rate with {vectors} neurons and directions together, but has {classes}."
        )
        raise ValueError(msg)
