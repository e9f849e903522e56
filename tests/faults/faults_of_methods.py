"""Faults of the integrators and of the solver of large flows."""

from __future__ import annotations

from fault import Fault, tests_of

__all__ = ["FAULTS_OF_METHODS"]

INTEGRATORS = (
    Fault(
        "dynamics/integrators/explicit/dop853_tableau.py",
        "0.17082860872947386,",
        "0.17082860872974386,",
        "two digits of the tableau exchanged",
        tests_of("dynamics/test_explicit", "test_stages_are_consistent"),
    ),
    Fault(
        "dynamics/integrators/explicit/explicit_kernels.py",
        "h * (stages[12, i] + stages[0, i])",
        "h * (stages[11, i] + stages[0, i])",
        "stage of the dense output",
        tests_of("dynamics/test_explicit", "test_dense_output_converges_with_order_seven"),
    ),
    Fault(
        "dynamics/integrators/explicit/explicit_kernels.py",
        "five * five / np.sqrt(five * five + 0.01 * three * three)",
        "five * five / np.sqrt(five * five + three * three)",
        "weight of the third-order estimate",
        tests_of("dynamics/test_explicit", "test_steps_grow_by_the_combined_estimate_of_both_embedded_formulas"),
    ),
    Fault(
        "dynamics/integrators/bdf/nordsieck_kernels.py",
        "        alpha -= 1.0 / j\n",
        "        alpha -= 1.0 / (j + 1)\n",
        "leading coefficient of BDF",
        tests_of("dynamics/test_bdf", "test_each_order_converges_at_its_rate"),
    ),
    Fault(
        "dynamics/integrators/bdf/nordsieck_kernels.py",
        "a_2 = 1.0 + order * a_1",
        "a_2 = 1.0 + a_1",
        "error constant of BDF",
        tests_of("dynamics/test_bdf", "test_error_falls_with_the_tolerance_as_order_five_predicts"),
    ),
    Fault(
        "dynamics/integrators/bdf/bdf_kernels.py",
        "scalars[PAST_STEPS + i] = scalars[PAST_STEPS + i - 1]",
        "scalars[PAST_STEPS + i] = scalars[PAST_STEPS + 1]",
        "index of past steps",
        tests_of("dynamics/test_bdf", "test_lengths_of_past_steps_are_kept_newest_first"),
    ),
    Fault(
        "dynamics/integrators/events.py",
        "ACCURACY = 1e-13",
        "ACCURACY = 1e-3",
        "accuracy of event times",
        tests_of("dynamics/test_explicit", "test_events_are_located_at_their_first_rise"),
    ),
    Fault(
        "dynamics/integrators/events.py",
        "crossed = end > start and before[event] < 0.0",
        "crossed = end > start and before[event] > 0.0",
        "sign of an event before it passes",
        tests_of("dynamics/test_explicit", "test_events_are_located_at_their_first_rise"),
    ),
)

LARGE_FLOW = (
    Fault(
        "dynamics/integrators/large_flow/partial_kernels.py",
        "growth[x] -= n * g0(link, s)",
        "growth[x] -= n * g1(link, s)",
        "derivative in place of the kernel",
        tests_of("dynamics/test_large_flow", "test_partial_field_of_every_division_against_the_formula"),
    ),
    Fault(
        "dynamics/integrators/large_flow/division.py",
        "        active[directions] = 0.0\n",
        "        active[directions] = active[directions]\n",
        "teachers of clusters counted twice",
        tests_of("dynamics/test_large_flow", "test_partial_field_of_every_division_against_the_formula"),
    ),
    Fault(
        "dynamics/integrators/large_flow/division.py",
        "self._rates = np.array([slope, 4.0 * value])",
        "self._rates = np.array([slope, value])",
        "factor 4 of the norm's rate",
        tests_of("dynamics/test_large_flow", "test_a_slowed_cluster_relaxes_by_the_polynomial_of_the_pair"),
    ),
    Fault(
        "dynamics/integrators/large_flow/slowing_kernels.py",
        "du[z, k] -= s * shift[k]",
        "du[z, k] -= shift[k]",
        "missing sign of the pole",
        tests_of("dynamics/test_large_flow", "test_a_slowed_cluster_relaxes_by_the_polynomial_of_the_pair"),
    ),
    Fault(
        "dynamics/integrators/large_flow/slowing_kernels.py",
        "dl[z] -= mean_growth + 4.0 * lean",
        "dl[z] -= mean_growth + lean",
        "factor 4 of a coupled rate",
        tests_of("dynamics/test_large_flow", "test_slowed_members_move_as_their_cluster_would_elsewhere"),
    ),
    Fault(
        "dynamics/integrators/large_flow/slowing_kernels.py",
        "w = along(u[z], du[z])",
        "w = 0.0",
        "rows that leave the sphere",
        tests_of("dynamics/test_large_flow", "test_a_cluster_at_rest_does_not_hold_up_a_neuron_that_waits"),
    ),
    Fault(
        "dynamics/equations/pairs/single_field_kernels.py",
        "place[x] = whole if limit < 0.0 else rows - 1 - (x - whole)",
        "place[x] = whole if limit < 0.0 else rows - 1",
        "forces of learned neurons in one place",
        tests_of("dynamics/test_large_flow", "test_field_of_learned_neurons_in_single_precision"),
    ),
    Fault(
        "dynamics/integrators/large_flow/exponential_kernels.py",
        "relaxations = share * h * a * g1(link, 1.0)",
        "relaxations = share * h * a",
        "rate of a direction without g'(1)",
        tests_of("dynamics/test_exponential_steps", "test_they_are_the_slowed_flow_but_for_the_square_of_the_motion"),
    ),
    Fault(
        "dynamics/integrators/large_flow/exponential_kernels.py",
        "two = (1.0 - 2.0 * one) / relaxations",
        "two = (1.0 - one) / relaxations",
        "weight of the square of the time",
        tests_of("dynamics/test_exponential_steps", "test_they_are_the_slowed_flow_but_for_the_square_of_the_motion"),
    ),
    Fault(
        "dynamics/integrators/large_flow/node_kernels.py",
        "vectors[x, k] = begin[x, k] + passed * velocity[x, k]",
        "vectors[x, k] = begin[x, k]",
        "rows that do not move between nodes",
        tests_of("dynamics/test_large_flow", "test_slow_rows_feel_distant_sources_at_nodes"),
    ),
    Fault(
        "dynamics/integrators/large_flow/source_kernels.py",
        "x = (number + DOP853_C[s]) / parts",
        "x = DOP853_C[s] / parts",
        "every part of a step with the rest of the first",
        tests_of("dynamics/test_fast_sources", "test_parts_of_a_step_are_steps_of_order_8_through_the_same_rest"),
    ),
    Fault(
        "dynamics/integrators/large_flow/source_kernels.py",
        "time = times[z] * parts - part",
        "time = times[z]",
        "sources placed by the fraction of the step, not of its part",
        tests_of("dynamics/test_fast_sources", "test_parts_of_a_step_are_steps_of_order_8_through_the_same_rest"),
    ),
    Fault(
        "dynamics/integrators/large_flow/sources.py",
        "late = x * x * (3.0 - 2.0 * x)",
        "late = x",
        "sources that jump by their correction inside a step",
        tests_of("dynamics/test_fast_sources", "test_states_inside_a_step_join_its_ends_and_those_of_parts"),
    ),
    Fault(
        "dynamics/integrators/large_flow/landing.py",
        "SHARE_AHEAD = 1.0 / 3.0",
        "SHARE_AHEAD = 1.0 / 2.0",
        "integral of a wrong power of the time",
        tests_of("dynamics/test_large_flow", "test_slow_rows_feel_distant_sources_at_nodes"),
    ),
    Fault(
        "dynamics/integrators/large_flow/rests.py",
        "h * (h * h / 4.0 - (p + q) * h / 3.0 + p * q / 2.0)",
        "h * (h * h / 4.0 - (p + q) * h / 2.0 + p * q / 2.0)",
        "integral with a wrong denominator",
        tests_of("dynamics/test_large_flow", "test_lag_passes_through_past_rests_and_is_corrected_at_the_end"),
    ),
    Fault(
        "dynamics/integrators/large_flow/settle_kernels.py",
        "log_end[i] = log_n[i] + free * 4.0 * moved_growth",
        "log_end[i] = log_n[i] + free * moved_growth",
        "factor 4 of the norm's correction",
        tests_of("dynamics/test_large_flow", "test_lag_passes_through_past_rests_and_is_corrected_at_the_end"),
    ),
    Fault(
        "dynamics/integrators/large_flow/pause_kernels.py",
        "distance = a[p] * a[p] * whole",
        "distance = a[p] * a[p]",
        "distance of functions without g(1)",
        tests_of("dynamics/test_large_flow", "test_groups_are_weighed_as_functions_and_as_flows"),
    ),
    Fault(
        "dynamics/integrators/large_flow/event_kernels.py",
        "share = np.exp(log_n[i]) / whole\n",
        "share = np.exp(log_n[i])\n",
        "mass not divided by g(1)",
        tests_of("dynamics/test_large_flow", "test_nearest_directions_and_events"),
    ),
    Fault(
        "dynamics/integrators/large_flow/event_kernels.py",
        "out[1] += share * (4.0 * growth[i] * value + g1(link, c) * (F[i, p] - radial * c))",
        "out[1] += share * (4.0 * growth[i] * value + g1(link, c) * F[i, p])",
        "missing projection in the rate of mass",
        tests_of("dynamics/test_large_flow", "test_mass_of_some_rows_and_its_rate"),
    ),
)

FAULTS_OF_METHODS = INTEGRATORS + LARGE_FLOW
