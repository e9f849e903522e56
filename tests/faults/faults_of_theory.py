"""Faults of expansions, predictions, the analysis of curves, and what keeps and watches results."""

from __future__ import annotations

from fault import Fault, tests_of

__all__ = ["FAULTS_OF_THEORY"]

HERMITE = (
    Fault(
        "hermite/polynomials.py",
        "(z * table[j] - math.sqrt(j) * table[j - 1])",
        "(z * table[j] + math.sqrt(j) * table[j - 1])",
        "sign in the recurrence",
        tests_of("hermite/test_polynomials"),
    ),
    Fault(
        "hermite/polynomials.py",
        "np.sqrt(np.arange(1.0, c.size)) * c[1:]",
        "np.sqrt(np.arange(0.0, c.size - 1)) * c[1:]",
        "index of the derivative's factor",
        tests_of("hermite/test_polynomials"),
    ),
    Fault(
        "hermite/polynomials.py",
        "weights = c[n:] ** 2",
        "weights = c[n:]",
        "power of c_j in the kernel",
        tests_of("hermite/test_polynomials"),
    ),
    Fault(
        "hermite/moments.py",
        "return c * np.sqrt([float(math.factorial(k))",
        "return c * np.array([float(math.factorial(k))",
        "missing root of k!",
        tests_of("hermite/test_moments"),
    ),
    Fault(
        "hermite/moments.py",
        "twice = np.where((values[right] != 0.0) & (left != right), 2.0, 1.0)",
        "twice = np.where(values[right] != 0.0, 2.0, 1.0)",
        "diagrams that are their own mirror image counted twice",
        tests_of("hermite/test_moments"),
    ),
    Fault(
        "hermite/closed_forms.py",
        "u / sympy.sqrt(math.factorial(j))",
        "u / math.factorial(j)",
        "normalisation of exact coefficients",
        tests_of("hermite/test_closed_forms", "test_exact_numbers_and_floats_agree_to_the_last_digit"),
    ),
)

PREDICTION = (
    Fault(
        "dynamics/theory/pairs.py",
        "scale = k * (k - 2) *",
        "scale = k * (k - 1) *",
        "factor of T_p",
        tests_of("dynamics/test_prediction", "test_leading_order_becomes_exact_for_small_overlaps"),
    ),
    Fault(
        "dynamics/theory/pairs.py",
        "(information_exponent - 2) * np.log(strength)",
        "(information_exponent - 1) * np.log(strength)",
        "power of the overlap in the score",
        tests_of("dynamics/test_prediction", "test_greedy_matching_is_the_brute_force_one"),
    ),
    Fault(
        "dynamics/equations/transit/transit.py",
        "range(1, k // 2))",
        "range(1, k // 2 + 1))",
        "one term too many in the closed transit",
        tests_of("dynamics/test_decoupled", "test_transit_time_equals_thirty_digit_quadrature"),
    ),
    Fault(
        "dynamics/equations/transit/transit.py",
        "value = grown * (ratio + 4.0 * self.norm * gain)",
        "value = grown * (ratio + 2.0 * self.norm * gain)",
        "factor of the norm's growth",
        tests_of("dynamics/test_decoupled", "test_pair_follows_a_tight_integrator"),
    ),
    Fault(
        "dynamics/theory/learning_rates.py",
        "return size * 2.0 * slope / largest / problem.dimension",
        "return size * slope / largest / problem.dimension",
        "factor 2 of the limit",
        tests_of("dynamics/test_prediction", "test_limit_of_one_pair_is_the_reference"),
    ),
    Fault(
        "dynamics/theory/step_noise.py",
        "length = (self.dimension - 2) * own",
        "length = (self.dimension - 1) * own",
        "number of axes beside neuron and direction",
        tests_of("dynamics/test_prediction", "test_search_noise_equals_tensor_quadrature"),
    ),
    Fault(
        "dynamics/theory/learning_rates.py",
        "+ (oo - o * o) * own",
        "+ (oo - o * o) * own.sum()",
        "own squares of other neurons",
        tests_of("dynamics/test_inputs_steps", "test_the_limit_is_that_of_the_mean_square"),
    ),
    Fault(
        "dynamics/theory/asymptotics.py",
        "loss_compute=(1 - 2 * b) / (1 + b + later)",
        "loss_compute=(1 - 2 * b) / (2 + b + later)",
        "exponent of the compute frontier",
        tests_of("dynamics/test_prediction", "test_exponents_of_the_power_law_with_beta_one"),
    ),
)

ANALYSIS = (
    Fault(
        "dynamics/theory/fits.py",
        "reached[round(reached.size**WINDOW_POWER) - 1]",
        "reached[round(reached.size**WINDOW_POWER)]",
        "rank at which the window ends",
        tests_of("dynamics/test_analysis"),
    ),
    Fault(
        "dynamics/theory/fits.py",
        "spread = (len(blocks) - 1) / len(blocks) *",
        "spread = 1 / len(blocks) *",
        "factor of the jackknife",
        tests_of("dynamics/test_analysis"),
    ),
    Fault(
        "dynamics/theory/fits.py",
        "np.sqrt(weights**2 @ spread[kept] ** 2)",
        "np.sqrt(weights**2 @ spread[kept])",
        "power of the points' errors",
        tests_of("sgd_check/test_study", "test_slope_and_its_error_are_those_of_the_drawn_points"),
    ),
    Fault(
        "dynamics/runs/soundness.py",
        "np.subtract(loss[..., 1:], loss[..., :-1], out",
        "np.subtract(loss[..., :-1], loss[..., 1:], out",
        "swapped losses",
        tests_of("dynamics/test_schedule_and_trackers", "test_a_state_that_cannot_be_stops_the_run_and_says_why"),
    ),
    Fault(
        "dynamics/runs/looser_run.py",
        "np.maximum(FACTOR * nearby, LEAST * rtol * np.abs(loss[late]))",
        "np.maximum(nearby, LEAST * rtol * np.abs(loss[late]))",
        "factor of the estimated error",
        tests_of("dynamics/test_error_estimates", "test_errors_are_three_times_the_differences"),
    ),
    Fault(
        "dynamics/runs/storage.py",
        "return os.path.lexists(target) and not (replaces and target.is_file())",
        "return os.path.lexists(target) and not target.is_file()",
        "existing files replaced unasked",
        tests_of("dynamics/test_answers", "test_files_are_never_replaced_unasked"),
        compiled=True,
    ),
    Fault(
        "dynamics/runs/storage.py",
        "tree = load_tree(path, checkpoint=False)",
        "tree = load_tree(path, checkpoint=True)",
        "checkpoints shown to readers",
        tests_of("dynamics/test_files", "test_a_finished_file_has_no_checkpoint_and_loading_never_shows_one"),
        compiled=True,
    ),
    Fault(
        "dynamics/theory/fits.py",
        "(px[at] / px[at - 1]) ** share)",
        "(px[at] / px[at - 1]) ** (1.0 - share))",
        "crossing seen from the wrong end",
        tests_of("dynamics/test_scaling_laws", "test_first_crossing_interpolates_power_laws_exactly"),
    ),
)

FAULTS_OF_THEORY = HERMITE + PREDICTION + ANALYSIS
