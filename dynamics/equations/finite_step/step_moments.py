r"""Exact moments of one step of online SGD, from the overlaps alone.

A sample x ~ N(0, I_d) with label noise of standard deviation τ moves w_i by −η e ∇_i, where

.. math:: \nabla_i = \rho_i [\alpha(z_i)\, u_i + \sigma'(z_i)\, x], \qquad \alpha = 2\sigma - z\sigma', \qquad
   \rho_i = |w_i|, \quad u_i = w_i/\rho_i, \quad z_i = u_i \cdot x,

and e = ē − noise, ē = Σ_a w_a σ(v_a·x): the vectors v are the m unit neurons, with weights n_i, and the P directions,
with weights −a_p. Q is the Gram matrix of all of them, g(s) = Σ_k c_k² s^k.

*First order.* E[ē ∇_i] is the gradient of ½ E ē² = ½ Σ_ab w_a w_b g(Q_ab), which is ρ_i (κ_i u_i + Σ_b N_ib v_b) with
N_ib = w_b g'(Q_ib) and κ_i = Σ_b [2 w_b g(Q_ib) − N_ib Q_ib]. Then E[ΔR_ip] = −η E[ē ∇_i]·θ_p, and to first order
E[ΔS_ij] = −η (E[ē ∇_i]·w_j + i ↔ j); D_ij is the product of two such vectors.

*Second order.* second_ij = E[e² ∇_i·∇_j], which contains |x|². With F = ē² σ'_i σ'_j, integrating by parts gives
E[F |x|²] = E[x·(F x)] = d E F + E[x·∂F], and x·∂ acts on a function of v·x as z d/dz. So no direction but the v occurs,
and every factor depends on one projection:

.. math:: \frac{\mathrm{second}_{ij}}{\rho_i\rho_j} = E\big[(\bar e^2 + \tau^2)\{G_{ij}\alpha_i\alpha_j +
   \beta_i\sigma'_j + \sigma'_i\beta_j + d\,\sigma'_i\sigma'_j\}\big] + 2\,E[\bar e\,\epsilon\,\sigma'_i\sigma'_j],
   \qquad \beta = z\alpha + z\sigma'', \quad \epsilon = \sum_a w_a z_a\sigma'(z_a).

In mean derivatives ĉ_k = E σ^(k) = √k! c_k the factors are series with

    σ' : ĉ_(k+1)     α : (2−k) ĉ_k − ĉ_(k+2)     β : (1−k) ĉ_(k+1) + k (3−k) ĉ_(k−1)     zσ' : k ĉ_k + ĉ_(k+2).

*Four series.* ē² and ēε are double sums over vectors, so each expectation is a sum of w_a w_b E[f(z_a) g(z_b) φ(z_i)
ψ(z_j)] over a and b, and that is a sum over the diagrams of `hermite.moments`. For given numbers of edges it is

.. math:: \sum_{ab} X_{rs}(a)\, Q_{ab}^e\, X_{r's'}(b), \qquad X_{rs}(a) = w_a Q_{ai}^r Q_{aj}^s,

times a polynomial in G_ij: (m+P)² operations per pair where both r and s are positive, nothing but an inner product
elsewhere, and none for e = 0, where the form is a product of two sums. For h_4 that leaves three matrix products of
(m+P) × (m+P) by (m+P) × m²/2. Nothing is estimated. The price is rounding relative to the largest diagram, which grows
with the degree K about as E h_K⁴ does, like 9^K.

*Parts.* second = base + d · slope, slope_ij = ρ_i ρ_j E[(ē² + τ²) σ'_i σ'_j]; the equation of the limit d → ∞ at
η = c/d has slope alone, which needs a quarter of the diagrams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dynamics.equations.finite_step.step_moment_tables import moment_tables
from dynamics.equations.finite_step.step_moments_kernels import write_step_moments

if TYPE_CHECKING:
    from hermite.arrays import Array


class MomentParts(NamedTuple):
    """Moments of one step with one sample; dimensionless."""

    teacher_first: Array  # E[ΔR]/η, (m, P)
    student_first: Array  # part of E[ΔS] of first order, divided by η, (m, m)
    drift_gram: Array  # D_ij, products of the mean gradients
    base: Array  # part of second order divided by η²: base + d · slope
    slope: Array


class StepMoments:
    """Moments for one polynomial link, m neurons and P directions; an object serves one thread at a time.

    `slope_only` leaves `base` out, which is then 0: what the limit d → ∞ needs. Raises ValueError if the link has too
    many diagrams.
    """

    def __init__(self, coefficients: Array, width: int, num_directions: int, *, slope_only: bool = False) -> None:
        self._tables = moment_tables(coefficients, width, num_directions, slope_only=slope_only)
        self._shape = (width, num_directions)
        self._work = np.zeros(self._tables.work_size)

    def __call__(
        self,
        teacher_overlap: Array,
        student_overlap: Array,
        teacher_coefficients: Array,
        teacher_gram: Array,
        label_noise: float = 0.0,
    ) -> MomentParts:
        """Return the moments at R = WΘᵀ (m, P) and S = WWᵀ (m, m), for a teacher a (P,), T (P, P) and noise τ.

        Arrays are C-contiguous float64, and S has a positive diagonal; neither is checked.
        """
        m, P = self._shape
        parts = MomentParts(np.empty((m, P)), *(np.empty((m, m)) for _ in range(4)))
        tables = (self._tables.numbers, self._tables.layout, self._work)
        write_step_moments(
            (teacher_overlap, student_overlap),
            (teacher_coefficients, teacher_gram, float(label_noise)),
            tables,
            parts[:],
        )
        return parts
