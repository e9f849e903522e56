"""Faults of the experiment and of its verdicts."""

from __future__ import annotations

from fault import Fault, tests_of

__all__ = ["FAULTS_OF_SGD"]

SGD = (
    Fault(
        "sgd_check/engines/projected/step_kernels.py",
        "g, h = 1.0 - step * (2.0 * value - z * slope), step * rho * slope",
        "g, h = 1.0 - step * (value - z * slope), step * rho * slope",
        "factor 2 of the tied second layer",
        tests_of("sgd_check/test_projected", "test_the_loop_of_a_lone_pair_takes_the_steps_of_the_general_one"),
    ),
    Fault(
        "sgd_check/engines/projected/step_kernels.py",
        "H[b, i] = step * rho[i] * slope[i]",
        "H[b, i] = step * slope[i]",
        "missing length of the neuron",
        tests_of("sgd_check/test_projected", "test_one_step_is_autograds_step_in_the_axes_of_the_moment"),
    ),
    Fault(
        "sgd_check/engines/projected/step_kernels.py",
        "factor = np.sqrt(2.0 * gammas[b])",
        "factor = np.sqrt(gammas[b])",
        "factor 2 of a chi variable",
        tests_of("sgd_check/test_projected", "test_first_two_moments_of_a_step_are_those_in_r_d"),
        compiled=True,
    ),
    Fault(
        "sgd_check/engines/projected/step_kernels.py",
        "motion[3] * motion[0] * layers[0, i] * work[2, i]",
        "motion[3] * motion[0] * work[2, i]",
        "missing second layer in the step of a bias",
        tests_of("sgd_check/test_network_sgd", "test_one_step_is_autograds_step_in_the_axes_of_the_moment"),
    ),
    Fault(
        "sgd_check/engines/projected/step_kernels.py",
        "work[4, i] += H[b, i] * work[0, i] / (radii[i] * radii[i])",
        "work[4, i] += H[b, i] * work[0, i] / radii[i]",
        "power of the length in the tangential step",
        tests_of("sgd_check/test_network_sgd", "test_one_step_is_autograds_step_in_the_axes_of_the_moment"),
    ),
    Fault(
        "sgd_check/engines/torch/recursion.py",
        "slope, along, value=-2, out=growth)",
        "slope, along, value=-1, out=growth)",
        "factor 2 of the change of length of a neuron on the sphere",
        tests_of("sgd_check/test_network_sgd", "test_torch_takes_autograds_steps"),
    ),
    Fault(
        "sgd_check/runs/recording.py",
        "sum((layer**2 for layer in layers), norm)",
        "norm",
        "second layer without a bound",
        tests_of("sgd_check/test_network_sgd", "test_a_second_layer_alone_can_blow_up"),
        compiled=True,
    ),
    Fault(
        "sgd_check/engines/torch/links.py",
        "np.stack([c, 2.0 * c - times_z, slope])",
        "np.stack([c, 2.0 * c + times_z, slope])",
        "sign of zσ'",
        tests_of("sgd_check/test_torch_links"),
    ),
    Fault(
        "sgd_check/engines/torch/recursion.py",
        "torch.addcmul(shrink, slope, z, value=-2, out=growth)",
        "torch.addcmul(shrink, slope, z, value=-1, out=growth)",
        "factor 2 of the change of length",
        tests_of("sgd_check/test_online", "test_delayed_updates_are_the_updates_one_by_one"),
    ),
    Fault(
        "sgd_check/engines/torch/fused_kernels.py",
        "h = 1.0 - error * (2.0 * sigma - z * slope)",
        "h = 1.0 - error * (sigma - z * slope)",
        "factor 2 in the fused block",
        tests_of("sgd_check/test_fused", "test_steps_are_those_of_the_plain_engine_on_the_same_samples"),
        compiled=True,
    ),
    Fault(
        "sgd_check/engines/diffusion_kernels.py",
        "gamma_i = 2.0 * s[0, i] - zi * first_i + second_i",
        "gamma_i = 2.0 * s[0, i] - zi * first_i",
        "missing σ'' in the covariance",
        tests_of("sgd_check/test_diffusion", "test_mean_and_covariance_are_those_of_quadrature"),
    ),
    Fault(
        "sgd_check/engines/diffusion_kernels.py",
        "(size * total - G[i, p] * G[j, q]) / batch",
        "(size * total + G[i, p] * G[j, q]) / batch",
        "sign of the squared mean",
        tests_of("sgd_check/test_diffusion", "test_mean_and_covariance_are_those_of_quadrature"),
    ),
    Fault(
        "sgd_check/runs/recording.py",
        "before * (time / before) ** fraction if before > 0",
        "before + fraction * (time - before) if before > 0",
        "crossings linear in time",
        tests_of("sgd_check/test_sgd_plan"),
    ),
    Fault(
        "sgd_check/verdicts/time_tests.py",
        "each = (1 + np.count_nonzero(",
        "each = (0 + np.count_nonzero(",
        "p-value that may be 0",
        tests_of("sgd_check/test_survival", "test_no_p_value_is_below_one_over_the_permutations"),
    ),
    Fault(
        "sgd_check/verdicts/time_tests.py",
        "np.log1p(delay) - 0.5 * scatter**2",
        "np.log1p(delay) + 0.5 * scatter**2",
        "sign in the log-normal law",
        tests_of("sgd_check/test_survival", "test_expected_survival_is_that_of_lognormal_draws"),
    ),
    Fault(
        "sgd_check/verdicts/time_tests.py",
        "p = min(1.0, 2.0 * min(chances))",
        "p = min(1.0, min(chances))",
        "one-sided p-value",
        tests_of("sgd_check/test_verdict", "test_p_value_is_students_two_sided_tail"),
    ),
    Fault(
        "sgd_check/verdicts/time_tests.py",
        "p_values[tested] / shares[tested]",
        "p_values[tested]",
        "no correction for many directions",
        tests_of("sgd_check/test_verdict", "test_directions_combine_by_bonferroni"),
    ),
    Fault(
        "sgd_check/verdicts/time_tests.py",
        "np.where(missing, np.inf, np.where(",
        "np.where(missing, edge, np.where(",
        "censored runs on the edge",
        tests_of("sgd_check/test_sides", "test_chances_with_censored_runs_are_counted_over_all_signs"),
    ),
    Fault(
        "sgd_check/verdicts/mean_field.py",
        "off = exponent + 1.0",
        "off = exponent - 1.0",
        "sign of the exponent of chaos",
        tests_of("sgd_check/test_chaos_verdict", "test_false_alarms_at_the_edge_of_the_band_are_as_rare_as_stated"),
    ),
    Fault(
        "sgd_check/verdicts/mean_field.py",
        '{"function_gap": width * paired,',
        '{"function_gap": paired,',
        "distance without its width",
        tests_of("sgd_check/test_chaos_verdict", "test_distances_of_pairs_are_those_of_single_runs_less_their_own"),
    ),
)

FAULTS_OF_SGD = SGD
