r"""A two-layer network f(x) = s Σ_i v_i σ(w_i·x + b_i) and its teacher on the first r axes, in their order parameters.

State: second layer v, biases b, M = WΘᵀ on the teacher's axes and Q = WWᵀ. The gradients of ½ E(f − f*)² are

.. math:: \partial_{v_i} = s \Psi_i, \quad \partial_{b_i} = s v_i \Psi^1_i, \quad
   \nabla_{w_i} = \sum_j A_{ij} w_j - \sum_a B_{ia} \theta_a

with Ψ_i = E σ_i (f − f*), Ψ¹_i = E σ'_i (f − f*), Ψ²_i = E σ''_i (f − f*), and

.. math:: A_{ij} = s v_i [s v_j\, E \sigma'_i \sigma'_j + \delta_{ij} \Psi^2_i], \qquad
   B_{ia} = s v_i\, E[\sigma'_i \partial_a f^*].

With rates ε and decay κ the flow is v' = −ε_v sΨ − κ_v v, b' = −ε_b s v∘Ψ¹ and

.. math:: M' = -\varepsilon_w (A M - B) - \kappa_w M, \qquad Q' = -\varepsilon_w (G + G^T) - 2 \kappa_w Q, \quad
   G = A Q - B M^T.

On the sphere each neuron keeps its length: diag(r) is taken from A, r_i = G_ii/Q_ii. It is exact at every d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numba import types

from dynamics.equations.degrees import NetworkDegrees
from dynamics.equations.interface import FlowSystem, Functions
from dynamics.equations.network.families import ERF, RELU, check_no_ties, network_teacher, normalised_overlaps
from dynamics.equations.network.network_kernels import (
    AXES,
    BIASED_ERF,
    BIASED_RELU,
    CENTRAL_ERF,
    CENTRAL_RELU,
    DECAY_W,
    DESCENT,
    FLOW,
    FORCES_AT,
    FURTHER,
    LISTS,
    MEANS,
    MEANS_AT,
    NUMBERS_AT,
    ONE_BY_ONE,
    PRODUCTS_AT,
    SQUARES_AT,
    THEORY,
    WIDTH,
    evaluate_means,
    event_values,
    jacobian_diagonal,
    normalise,
    rhs,
)
from dynamics.equations.network.series import Link, pair_source
from dynamics.equations.vectors import NOTHING
from dynamics.kernels.jit import callback, kernel, matrix, vector
from dynamics.kernels.products import is_stopped, product_until
from dynamics.threads import with_slot
from hermite.arrays import Integers, Matrix, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynamics.problem import Problem, Student
    from hermite.arrays import Array

_VECTOR, _INTEGERS = types.float64[::1], types.int64[::1]
#: Signature of a right-hand side and of events.
_EVALUATION = types.void(types.float64, _VECTOR, _VECTOR, _VECTOR, _INTEGERS, _VECTOR)
#: Neurons are looked at so much beyond where they are, for the end of a table.
BEYOND = 1.0 + 1e-6
#: Nodes of the mean squares in `stiffness`.
NODES = 200


class NetworkSystem(FlowSystem):
    """State layout, kernels and observables of a two-layer network.

    With a step η > 0 the term η ∇∇ᵀ is in Q', so that one Euler step of length η is one of population gradient descent.
    `more` are numbers that stand before those of the links. With `inputs` the weights are the whitened ones, and their
    motion is that of `NetworkClassSystem`. ValueError is raised if two neurons start alike, or the
    means of the links are not known.
    """

    name = "network"
    functions = Functions(rhs, event_values, normalise, jacobian_diagonal)

    def __init__(self, problem: Problem, step: float | None = None, more: Array = NOTHING) -> None:
        m, r, start = problem.width, problem.teacher.span, problem.network_start()
        self.student = student = cast("Student", problem.student)
        M, Q = start.weights[:, :r], start.weights @ start.weights.T
        axes = problem.input_axes()
        apart = M if axes is None else np.hstack([M, axes.squares(start.weights)])
        check_no_ties(start.second_layer, start.bias, apart, Q)
        self.problem = problem
        self.teacher = teacher = network_teacher(problem)
        fixed = None if student.biases == "trained" else start.bias.tolist()
        self.pairs = pairs = pair_source(
            problem.activation, teacher.links, biases=fixed, teacher_biases=teacher.biases_by_link()
        )
        self.initial_state = self.pack(start.second_layer, start.bias, M, Q)
        rates = [*student.learning_rates, *student.decay, student.output_scale]
        scalars = [*rates, step or 0.0, problem.teacher.emergence_level]
        self.parameters: Array = np.concatenate([scalars, np.diag(Q), teacher.parameters, more, pairs.numbers])
        n, means, at = m + r, m * (r + 3), SQUARES_AT + m
        counts = (teacher.units, teacher.components.size, teacher.degree, pairs.row_size)
        layout = [m, r, student.first_layer == "sphere", FLOW if step is None else DESCENT, *counts]
        places = at, at + teacher.parameters.size + more.size, _pairing(pairs.links[0], biased=student.has_biases)
        # Gram matrix, rows, means with the teacher, pulls, slopes, forces and products.
        parts = np.cumsum([n * n, (m + teacher.units) * pairs.row_size, means, 3 * m, m * m, m * n, m * n])
        self.sizes: Integers = np.array([*layout, *places, *parts, *teacher.sizes], dtype=np.int64)
        self.work_size = int(parts[-1]) + teacher.degree + FURTHER + n * m
        self.num_events = r + teacher.components.size
        self._degrees = NetworkDegrees(problem, teacher)
        self.teacher_by_degree = self._degrees.teacher

    # --- states ---------------------------------------------------------------------------------------------

    def pack(self, v: Array, b: Array, M: Array, Q: Array) -> Array:
        """Return the state of v (m,), b (m,), M (m, r) and Q (m, m)."""
        return np.concatenate([v, b, M.ravel(), Q.ravel()])

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return views (v, b, M, Q) of a state."""
        m, r = self.problem.width, self.problem.teacher.span
        v, b, M, Q = np.split(state, [m, 2 * m, 2 * m + m * r])
        return v, b, M.reshape(m, r), Q.reshape(m, m)

    def absolute_tolerance(self, atol: float) -> Array:
        """Return `atol` for v and b, which are not small where d is large, and in units of 1/√d for M and Q."""
        tolerance = super().absolute_tolerance(atol)
        tolerance[: 2 * self.problem.width] = atol
        return tolerance

    def stiffness(self) -> float:
        r"""Return a bound on the rates of the flow at the start: the trace of the Gauss–Newton matrix, and the decay.

        .. math:: 2 s^2 \sum_i \big(\varepsilon_v E\sigma_i^2 + \varepsilon_b v_i^2 E\sigma_i'^2
           + \varepsilon_w v_i^2 E[\sigma_i'^2 (1 + z^2)]\big) + \max \kappa
        """
        student = self.student
        v, b, _, Q = self.unpack(self.initial_state)
        nodes, measure = np.polynomial.hermite_e.hermegauss(NODES)
        measure = measure / measure.sum()
        projections = np.sqrt(np.diag(Q))[:, None] * nodes + b[:, None]
        link, (rate_w, rate_v, rate_b) = self.problem.activation, student.learning_rates
        value, slope = link.value(projections) ** 2 @ measure, link.derivative(projections) ** 2
        steep = rate_b * slope @ measure + rate_w * slope @ (measure * (1.0 + nodes**2))
        return float(2.0 * student.output_scale**2 * np.sum(rate_v * value + v**2 * steep) + max(student.decay))

    @property
    def falls(self) -> bool:
        """Whether the loss may not rise: it is a gradient flow, without decay or steps."""
        return bool(self.sizes[THEORY] == FLOW) and not any(self.student.decay)

    # --- observables ----------------------------------------------------------------------------------------

    def observer(self, keep: str) -> Callable[[Array], dict[str, Any]]:
        """Return what observes a state, with the loss by degree where it is told so."""
        observe = super().observer(keep)

        def observed(state: Array) -> dict[str, Any]:
            record, (v, b, M, Q) = observe(state), self.unpack(state)
            weights = self.student.output_scale * v
            return {**record, "degree_loss": self._degrees(weights, b, normalised_overlaps(M, Q), record)}

        return observe if self.teacher_by_degree is None else observed

    def observe(self, state: Array) -> dict[str, Any]:
        """Return what `summarise` does but for the largest overlaps, and C = M_ia/√Q_ii, G = Q_ij/√(Q_ii Q_jj)."""
        _, _, M, Q = self.unpack(state)
        C, G, _ = normalised_overlaps(M, Q)
        record = self.summarise(state)
        del record["max_overlap"]
        return {"teacher_overlap": C, "student_overlap": G, **record}

    def summarise(self, state: Array) -> dict[str, Any]:
        """Return v, b, n = Q_ii, max_i |C_ia|, loss, f_α, eigenvalues of H, and the realisability margin."""
        v, b, M, Q = self.unpack(state)
        C, G, n = normalised_overlaps(M, Q)
        loss, H, shares = self._means(state)
        record = {
            "second_layer": v.copy(),
            "bias": b.copy(),
            "squared_norm": n,
            "max_overlap": np.abs(C).max(axis=0),
            "loss": loss,
            "sensitivity": _eigenvalues(H),
            "gram_margin": float(np.linalg.eigvalsh(G - C @ C.T)[0]),
        }
        record |= {"component": shares * self.teacher.components} if shares.size else {}
        return record | ({"series_error": self.series_error(state)} if self.pairs.is_series else {})

    def teacher_sensitivity(self) -> Array:
        """Return the eigenvalues of E ∂_a f* ∂_b f*, largest first; NaN where a unit jumps."""
        H = self.teacher.sensitivity
        return _eigenvalues(H) if np.isfinite(H).all() else np.full(len(H), np.nan)

    def loss(self, state: Array) -> float:
        """Return E(f − f*)²; a difference of O(1) terms, so that values below ~1e-14 are rounding."""
        return self._means(state)[0]

    def series_error(self, state: Array) -> float:
        """Return a bound on the error of the means of pairs that are series; 0 where none is, ∞ at the end of a table.

        A step beyond the end of a table is not finite, so that runs stop short of it.
        """
        _, b, M, Q = self.unpack(state)
        units, theta = self.teacher.sizes[: self.teacher.units], self.teacher.theta
        overlaps = M @ theta.T
        return self.pairs.series_error(
            np.concatenate([np.zeros(len(b), dtype=np.int64), units]),
            np.concatenate([BEYOND * np.diag(Q), np.ones(len(units))]),
            np.concatenate([BEYOND * b if self.student.biases == "trained" else b, self.teacher.biases]),
            np.block([[Q, overlaps], [overlaps.T, theta @ theta.T]]),
        )

    def _means(self, state: Array) -> tuple[float, Array, Array]:
        """Return loss, H (r, r) and f_α/f*_α."""
        m, r = self.problem.width, self.problem.teacher.span
        events, work, sizes = np.empty(self.num_events), np.empty(self.work_size), with_slot(self.sizes)
        sizes[THEORY] = MEANS
        y = np.ascontiguousarray(state)
        of_events = self.functions.event_values
        assert of_events is not None
        functions = callback(self.functions.rhs, _EVALUATION), callback(of_events, _EVALUATION)
        evaluate_means(*functions, y, np.empty_like(y), events, (self.parameters, sizes, work))
        v, _, M, _ = self.unpack(y)
        means, pulls, A, _ = np.split(work[sizes[MEANS_AT] :], np.cumsum([m * (r + 3), 3 * m, m * m]))
        mean = means.reshape(m, r + 3)[:, 0]
        loss = self.student.output_scale * v @ (pulls[:m] - mean) + self.teacher.square
        return float(loss), M.T @ A.reshape(m, m) @ M, events[r:]


def _eigenvalues(H: Array) -> Array:
    """Return the eigenvalues of a symmetric matrix, largest first."""
    return np.array(np.linalg.eigvalsh(H)[::-1], dtype=np.float64)


def _pairing(link: Link, *, biased: bool) -> int:
    """Return how the means of all pairs of neurons are found, several at once where there is such a kernel."""
    if link.family not in (RELU, ERF):
        return LISTS
    if link.has_line:
        return ONE_BY_ONE
    if biased:
        return BIASED_RELU if link.family == RELU else BIASED_ERF
    return CENTRAL_RELU if link.family == RELU else CENTRAL_ERF


# On inputs of covariance Σ the motion is Σ times the gradient of isotropic inputs, exact at every d.
#
# With ŵ = Σ^½ w a neuron is σ(ŵ·z + b), z ~ N(0, I), so that the loss is that of isotropic inputs in M = ŴΘ̂ᵀ, Q = ŴŴᵀ,
# v and b, and v and b move as there. Gradient flow of w with decay is, on the axes l with eigenvalues s_l,
#
# .. math:: \hat w_{il}' = -\varepsilon_w s_l \Big(\sum_j A_{ij} \hat w_{jl} - B_{il}\Big) - \kappa_w \hat w_{il}
#
# with A and B as above, B_il = 0 beyond the teacher's axes. One Euler step is one of population gradient descent in w,
# v and b. The axes are those of `Problem.input_axes`, as in `dynamics.equations.classes`.
#
# State y = [v (m) | b (m) | Ŵ (m, D)]. Parameters and sizes are those of `dynamics.equations.network.network_kernels`,
# with s (D) before the numbers of the links; `work` ends with a state [v | b | M | Q] and its rates.


@kernel
def whitened_weights(y: Vector, sizes: Integers) -> Matrix:
    """Return Ŵ of a state, or of its rates."""
    m = sizes[WIDTH]
    return matrix(y, 2 * m, m, (y.size - 2 * m) // m)


@kernel
def overlap_state(y: Vector, sizes: Integers, work: Vector) -> Vector:
    """Write v, b, M and Q of a state to their place in `work`, and return them."""
    m, r = sizes[WIDTH], sizes[AXES]
    size = 2 * m + m * r + m * m
    W, state = whitened_weights(y, sizes), vector(work, work.size - 2 * size, size)
    for i in range(2 * m):
        state[i] = y[i]
    for i in range(m):
        for a in range(r):
            state[2 * m + i * r + a] = W[i, a]
    product_until(W, W.T, matrix(state, 2 * m + m * r, m, m), sizes)
    return state


@kernel
def class_rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write v', b' and Ŵ' = −(N Ŵ) diag(s) − κ_w Ŵ diag(1 − s), where N holds κ_w too, after the means of `work`."""
    m, r = sizes[WIDTH], sizes[AXES]
    state = overlap_state(y, sizes, work)
    rates = vector(work, work.size - state.size, state.size)
    if is_stopped(sizes):
        return
    rhs(t, state, rates, parameters, sizes, work)
    if sizes[THEORY] == MEANS:
        return
    W, moved = whitened_weights(y, sizes), whitened_weights(out, sizes)
    N, own = matrix(work, sizes[FORCES_AT], m, m + r), matrix(work, sizes[PRODUCTS_AT], m, m)
    s, decay = vector(parameters, sizes[NUMBERS_AT] - W.shape[1], W.shape[1]), parameters[DECAY_W]
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for j in range(m):
            own[i, j] = N[i, j]
    product_until(own, W, moved, sizes)
    for i in range(m):
        for a in range(r):
            moved[i, a] += N[i, m + a]
        for k in range(s.size):
            moved[i, k] = -s[k] * moved[i, k] - decay * (1.0 - s[k]) * W[i, k]


@kernel
def class_event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """Write the values of the events of the overlaps."""
    event_values(t, overlap_state(y, sizes, work), out, parameters, sizes, work)


@kernel
def class_jacobian_diagonal(
    t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector
) -> None:
    """Diagonal with the forces held: of v and b as for isotropic inputs, −s_l N_ii − κ_w (1 − s_l) of ŵ_il."""
    m, r = sizes[WIDTH], sizes[AXES]
    state = overlap_state(y, sizes, work)
    rates, moved = vector(work, work.size - state.size, state.size), whitened_weights(out, sizes)
    jacobian_diagonal(t, state, rates, parameters, sizes, work)
    s = vector(parameters, sizes[NUMBERS_AT] - moved.shape[1], moved.shape[1])
    for i in range(m):
        out[i], out[m + i] = rates[i], rates[m + i]
        for k in range(s.size):
            moved[i, k] = s[k] * rates[2 * m + i * r] - parameters[DECAY_W] * (1.0 - s[k])


class NetworkClassSystem(NetworkSystem):
    """State layout and motion of a network whose problem has `inputs`; observables are those of its overlaps."""

    name = "network-classes"
    functions = Functions(class_rhs, class_event_values, None, class_jacobian_diagonal)

    def __init__(self, problem: Problem) -> None:
        axes = problem.input_axes()
        if axes is None:
            msg = "Argument `problem` must have `inputs`, but has none."
            raise ValueError(msg)
        super().__init__(problem, more=axes.eigenvalues)
        self.fastest = float(axes.eigenvalue.max())
        self.work_size += 2 * self.initial_state.size
        v, b, weights = problem.network_start()
        self.initial_state = np.concatenate([v, b, weights.ravel()])

    def unpack(self, state: Array) -> tuple[Array, Array, Array, Array]:
        """Return v, b, M (m, r) and Q (m, m) of a state."""
        m = self.problem.width
        v, b, W = np.split(state, [m, 2 * m])
        W = W.reshape(m, -1)
        return v, b, W[:, : self.problem.teacher.span], W @ W.T

    def stiffness(self) -> float:
        """Return a bound on the rates of the flow at the start: that of isotropic inputs, times max s_l if over 1."""
        return max(self.fastest, 1.0) * super().stiffness()
