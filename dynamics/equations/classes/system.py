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

from dynamics.equations.classes import class_descent_kernels as descent
from dynamics.equations.classes import classes_kernels as kernels
from dynamics.equations.interface import Functions
from dynamics.equations.overlaps.system import OverlapSystem
from dynamics.equations.pairs.link import link_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.equations.interface import OfStates
    from dynamics.problem import Problem
    from hermite.arrays import Array, Integers

FUNCTIONS = Functions(kernels.rhs, kernels.event_values, kernels.normalise, kernels.jacobian_diagonal)
#: Euler steps alone are taken of these.
DESCENT = Functions(descent.rhs, descent.event_values, descent.normalise)


class ClassSystem(OverlapSystem):
    """State layout, kernels and observables of the coupled flow of a problem that has `inputs`.

    State: unit vectors U (m, D) on the axes that `Problem.input_axes` keeps, and ln n (m,).
    """

    name = "classes"

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
