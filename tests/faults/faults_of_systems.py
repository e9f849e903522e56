"""Faults of the equations."""

from __future__ import annotations

from fault import Fault, tests_of

__all__ = ["FAULTS_OF_SYSTEMS"]

SYSTEMS = (
    Fault(
        "dynamics/equations/transit/decoupled.py",
        "+ 2.0 * table.gap(xi) / v",
        "+ table.gap(xi) / v",
        "factor 2 of the cross term of the loss",
        tests_of("dynamics/test_decoupled", "test_pair_follows_a_tight_integrator"),
    ),
    Fault(
        "dynamics/equations/transit/decoupled_kernels.py",
        "loss[i] += a * a * (",
        "loss[i] += a * (",
        "power of a in the summed loss",
        tests_of("dynamics/test_decoupled", "test_summed_loss_of_many_pairs_equals_the_loss_of_histories"),
        compiled=True,
    ),
    Fault(
        "dynamics/equations/overlaps/overlaps_kernels.py",
        "dC[i, p] = AT[i, p] - BC[i, p] - r[i] * C[i, p]",
        "dC[i, p] = AT[i, p] - BC[i, p]",
        "missing projection on the sphere",
        tests_of("dynamics/test_kernels_of_overlaps", "test_right_hand_side_is_the_overlap_rates"),
    ),
    Fault(
        "dynamics/equations/overlaps/overlaps_kernels.py",
        "- BG[i, j] - BG[j, i] - (r[i] + r[j]) * G[i, j]",
        "- BG[i, j] - BG[j, i] - (r[i] + r[i]) * G[i, j]",
        "index of the radial part of G'",
        tests_of("dynamics/test_kernels_of_overlaps", "test_right_hand_side_is_the_overlap_rates"),
    ),
    Fault(
        "dynamics/equations/overlaps/overlaps_kernels.py",
        "B[i * m + j] * v[first + j]",
        "B[i * m + j] * v[first + i]",
        "index of the norm in the Jacobian product",
        tests_of(
            "dynamics/test_kernels_of_overlaps",
            "test_jacobian_product_is_the_complex_step_derivative_of_the_overlap_rates",
        ),
    ),
    Fault(
        "dynamics/equations/pairs/vectors_kernels.py",
        "weigh_row(-1.0, n, vector(work, last + i * m, m), vector(work, mP + i * m, m))",
        "weigh_row(-1.0, n[::-1].copy(), vector(work, last + i * m, m), vector(work, mP + i * m, m))",
        "swapped neuron in the forces",
        tests_of("dynamics/test_vectors", "test_right_hand_side_is_the_written_equation"),
    ),
    Fault(
        "dynamics/equations/pairs/vectors_kernels.py",
        "dB[i, j] = -n[j] * (dB[i, j] * turn + slope * mass)",
        "dB[i, j] = -n[j] * dB[i, j] * turn",
        "missing term of the Jacobian product",
        tests_of(
            "dynamics/test_vectors", "test_jacobian_product_is_the_complex_step_derivative_of_the_written_equation"
        ),
    ),
    Fault(
        "dynamics/equations/finite_step/finite_step_kernels.py",
        "rate = H[i, j] - 0.5 * G[i, j] * (H[i, i] + H[j, j])",
        "rate = H[i, j] - G[i, j] * (H[i, i] + H[j, j])",
        "factor ½ of the step's noise",
        tests_of("dynamics/test_finite_step", "test_velocity_is_the_mean_step_in_the_coordinates_of_the_flow"),
    ),
    Fault(
        "dynamics/equations/finite_step/step_moments_kernels.py",
        "kappa[i] += 2.0 * w[b] * value - w[b] * slope * q",
        "kappa[i] += w[b] * value - w[b] * slope * q",
        "factor 2 of the mean gradient",
        tests_of("dynamics/test_one_step", "test_moments_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/finite_step/step_moments_kernels.py",
        "alike += noise * noise",
        "alike += noise",
        "power of the label noise",
        tests_of("dynamics/test_one_step", "test_moments_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/mean_field/mean_field_axis_kernels.py",
        "up, back = (high + degree) / high, degree / high",
        "up, back = (high + degree) / high, (degree - 1.0) / high",
        "index in the recurrence of zonal polynomials",
        tests_of("dynamics/test_mean_field", "test_motion_loss_and_mass_are_those_of_pairs_and_quadrature"),
    ),
    Fault(
        "dynamics/equations/mean_field/mean_field_subspace_kernels.py",
        "-= 2.0 * a * scratch[slope + i]",
        "-= a * scratch[slope + i]",
        "factor 2 of the residual radius",
        tests_of("dynamics/test_mean_field", "test_motion_loss_and_mass_are_those_of_pairs_and_quadrature"),
    ),
    Fault(
        "dynamics/equations/mean_field/mean_field_subspace_kernels.py",
        "scratch[slope + i] += q * force * own",
        "scratch[slope + i] += force * own",
        "missing power in the derivative",
        tests_of("dynamics/test_mean_field", "test_motion_loss_and_mass_are_those_of_pairs_and_quadrature"),
    ),
    Fault(
        "dynamics/equations/spherical/spherical_kernels.py",
        "loss -= 2.0 * parameters[p] * attraction / m",
        "loss -= parameters[p] * attraction / m",
        "factor 2 of the loss",
        tests_of("dynamics/test_spherical", "test_motion_and_events_are_those_of_autograd"),
    ),
    Fault(
        "dynamics/equations/spherical/coupling.py",
        "(self._bends * turn) @ self._w",
        "(self._bends * turn.T) @ self._w",
        "transposed interaction",
        tests_of("dynamics/test_chaos", "test_the_linear_equation_is_the_derivative_of_velocities_in_space"),
        compiled=True,
    ),
    Fault(
        "dynamics/equations/committee/committee_erf_kernels.py",
        "slopes = 2.0 / math.pi / math.sqrt(first * second - c * c)",
        "slopes = 2.0 / math.pi / math.sqrt(first * second + c * c)",
        "sign in I3",
        tests_of("dynamics/test_committee", "test_flow_loss_and_mass_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/committee/committee_erf_kernels.py",
        "(d - 2.0 + (first + second) / determinant) * mean",
        "(d + (first + second) / determinant) * mean",
        "missing −2 of the trace",
        tests_of("dynamics/test_committee", "test_the_term_of_the_step_equals_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/committee/committee_polynomial_kernels.py",
        "factor *= 0.5 * (v - 1.0) / j",
        "factor *= (v - 1.0) / j",
        "factor ½ of a change of variance",
        tests_of("dynamics/test_committee", "test_flow_loss_and_mass_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/committee/committee_kernels.py",
        "largest = max(largest, r * r / work[i * M + i])",
        "largest = max(largest, r * r)",
        "overlap without its norm in the event",
        tests_of("dynamics/test_committee", "test_flow_loss_and_mass_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/equations/classes/class_step_kernels.py",
        "J[a, a] += 2.0 * ends[2, a]",
        "J[a, a] += ends[2, a]",
        "factor 2 of the second derivative of a vector's own function",
        tests_of("dynamics/test_inputs_steps", "test_the_mean_step_is_that_of_a_gauss_rule"),
    ),
    Fault(
        "dynamics/integrators/descent/descent_kernels.py",
        "share = n[i] / whole",
        "share = n[i]",
        "mass not divided by g_3(1)",
        tests_of("dynamics/test_gradient_descent", "test_events_are_crossings_of_the_interpolant"),
    ),
    Fault(
        "dynamics/equations/overlaps/overlaps_kernels.py",
        "write_learned(link, vector(y, 0, m * P), vector(work, 0, m * P))",
        "write_g0(link, vector(y, 0, m * P), vector(work, 0, m * P))",
        "all degrees of the link in the learned mass",
        tests_of("dynamics/test_learned", "test_a_direction_is_learned_when_high_degrees_have_half_of_it"),
        compiled=True,
    ),
    Fault(
        "dynamics/equations/committee/committee_polynomial_kernels.py",
        "if k >= sizes[5] else 0.0",
        "if k > sizes[5] else 0.0",
        "learned mass without its lowest degree",
        tests_of("dynamics/test_committee", "test_flow_loss_and_mass_equal_quadrature_over_x"),
    ),
    Fault(
        "dynamics/problem/emergence.py",
        "(np.arange(c.size) >= LOWEST_DEGREE)",
        "(np.arange(c.size) >= LOWEST_DEGREE - 1)",
        "degree 2 of the link in the learned mass",
        tests_of("dynamics/test_learned", "test_degrees_0_1_and_2_do_not_count"),
    ),
)

FAULTS_OF_SYSTEMS = SYSTEMS
