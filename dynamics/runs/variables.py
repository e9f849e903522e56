"""Names, dimensions and labels of every variable of every answer, in one table."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["VARIABLES", "Variable"]


class Variable(NamedTuple):
    """Metadata of one variable, wherever it appears."""

    dims: tuple[str, ...]
    long_name: str
    symbol: str


#: Every variable of every answer. A simulation puts `seed` in front of the dims of recorded and measured quantities.
VARIABLES: dict[str, Variable] = {
    "time": Variable(("time",), "flow time (learning rate times steps)", "t"),
    "step": Variable(("time",), "number of SGD steps", "s"),
    "direction": Variable(("direction",), "teacher direction", "p"),
    "neuron": Variable(("neuron",), "student neuron", "i"),
    "neuron_2": Variable(("neuron_2",), "student neuron", "j"),
    "seed": Variable(("seed",), "seed of the samples", "s"),
    "loss": Variable(("time",), "mean squared error E(f - f*)^2", "L"),
    "predicted_loss": Variable(("time",), "loss by the sum formula", r"L^{\mathrm{pairs}}"),
    "teacher_coefficient": Variable(("direction",), "second-layer weight of the teacher", "a_p"),
    "teacher_direction": Variable(("direction", "teacher_axis"), "teacher direction", r"\theta_p"),
    "matched_neuron": Variable(("direction",), "neuron matched greedily to the direction (-1: none)", "i(p)"),
    "leading_order_time": Variable(("direction",), "escape time at leading order", "T_p"),
    "predicted_emergence_time": Variable(
        ("direction",), "exact transit time of the matched pair to squared overlap 1/2", r"T_p^{\mathrm{pair}}"
    ),
    "predicted_learned_time": Variable(
        ("direction",), "time at which the matched pair alone carries half the weight", r"\hat{T}_p^{\mathrm{pair}}"
    ),
    "emergence_time": Variable(
        ("direction",), "first time at which a neuron has squared overlap 1/2", r"T_p^{\mathrm{emerge}}"
    ),
    "learned_time": Variable(
        ("direction",), "first time at which the neurons carry half the weight", r"T_p^{\mathrm{learn}}"
    ),
    "loss_error": Variable(("time",), "estimated numerical error of the loss", r"\delta L"),
    "emergence_time_error": Variable(
        ("direction",), "estimated numerical error of the emergence time", r"\delta T_p^{\mathrm{emerge}}"
    ),
    "learned_time_error": Variable(
        ("direction",), "estimated numerical error of the learned time", r"\delta T_p^{\mathrm{learn}}"
    ),
    "loss_level_time_error": Variable(
        ("loss_level",), "estimated numerical error of the time at which the loss falls below a fraction", r"\delta T_L"
    ),
    "teacher_overlap": Variable(("time", "neuron", "direction"), "overlap of neuron and direction", "C_{ip}"),
    "student_overlap": Variable(("time", "neuron", "neuron_2"), "overlap of two neurons", "G_{ij}"),
    "squared_norm": Variable(("time", "neuron"), "squared norm of the neuron", "n_i"),
    "gram_margin": Variable(
        ("time",), "smallest eigenvalue of G - C T^-1 C^T, negative only by error", r"\lambda_{\min}"
    ),
    "max_overlap": Variable(("time", "direction"), "largest overlap of any neuron with the direction", "C_p"),
    "learned_mass": Variable(("time", "direction"), "weight learned on the direction", r"\sum_i n_i g(C_{ip})/g(1)"),
    "overlap": Variable(("time", "direction"), "overlap of the matched neuron", "C_p"),
    "matched_squared_norm": Variable(("time", "direction"), "squared norm of the matched neuron", "n_p"),
    "initial_weight": Variable(("neuron", "axis"), "given starting weight", "w_i"),
    "initial_teacher_overlap": Variable(("neuron", "direction"), "given starting overlap", "C_{ip}(0)"),
    "initial_student_overlap": Variable(("neuron", "neuron_2"), "given starting overlap", "G_{ij}(0)"),
    "initial_squared_norm": Variable(("neuron",), "given starting squared norm", "n_i(0)"),
    "blown_up": Variable(("seed",), "whether the run left the region where the loss is bounded", "b"),
    "censored": Variable(("seed", "direction"), "whether the direction had not emerged by the end of the run", "c"),
    "emergence_ratio": Variable(("seed", "direction"), "measured over predicted emergence time", r"T/T_p"),
    "expected_delay": Variable(("direction",), "relative delay that the step size should cause", r"\delta_p"),
    "mean_log_ratio": Variable(
        ("direction",), "mean logarithm of measured over predicted time", r"\langle\ln T/T_p\rangle"
    ),
    "standard_error": Variable(("direction",), "standard error of the mean logarithmic ratio", r"s_p"),
    "z_score": Variable(("direction",), "distance from the allowed band in standard errors", "z_p"),
    "direction_p_value": Variable(("direction",), "probability of such a distance if theory holds", "p_p"),
    "early_power": Variable(("direction",), "probability that SGD 30 % early is seen", r"\pi_p^-"),
    "late_power": Variable(("direction",), "probability that SGD 30 % late is seen", r"\pi_p^+"),
    "censored_count": Variable(("direction",), "runs in which the direction did not emerge", "c_p"),
    "p_value": Variable((), "global probability of such distances if theory holds", "p"),
    "loss_p_value": Variable((), "probability of such a difference of the losses under one law", "p_L"),
    "expected_scatter": Variable(("direction",), "relative scatter that the step size should cause", "s_p"),
    "log_scatter": Variable(("direction",), "standard deviation of the logarithm of the time over runs", r"\hat{s}_p"),
    "band_low": Variable(("direction",), "lower edge of the allowed mean logarithmic ratio", "b_p^-"),
    "band_high": Variable(("direction",), "upper edge of the allowed mean logarithmic ratio", "b_p^+"),
    "survival": Variable(("direction", "time"), "share of runs without emergence (Kaplan-Meier)", "S_p"),
    "survival_low": Variable(("direction", "time"), "lower end of the pointwise 95 % interval of the share", "S_p^-"),
    "survival_high": Variable(("direction", "time"), "upper end of the pointwise 95 % interval of the share", "S_p^+"),
    "predicted_survival": Variable(
        ("direction", "time"), "predicted share of runs without emergence", r"S_p^{\mathrm{pred}}"
    ),
    "mean_loss": Variable(("time",), "loss averaged over runs", r"\bar{L}"),
    "loss_standard_error": Variable(("time",), "standard error of the difference to the expected loss", r"s_L"),
    "expected_loss": Variable(("time",), "predicted loss at the times of the simulation", r"L^{\mathrm{pred}}"),
    "expected_loss_low": Variable(("time",), "least loss that early and late runs allow", "L^-"),
    "expected_loss_high": Variable(("time",), "largest loss that early and late runs allow", "L^+"),
    "loss_compared": Variable(("time",), "whether the mean loss is held against the prediction", "c_L"),
    "loss_z": Variable(("time",), "distance of the loss from what is allowed in standard errors", "z_L"),
    "information_exponent": Variable(("information_exponent",), "information exponent of the link", "k"),
    "dimension": Variable(("dimension",), "input dimension", "d"),
    "learning_rate": Variable(("learning_rate",), "step size of SGD", r"\eta"),
    "target": Variable(("target",), "number of directions that the step size is tuned to", r"\bar{p}"),
    "samples": Variable(("samples",), "number of samples, one per step", "n"),
    "run": Variable(("run",), "number of the run", "s"),
    "source": Variable(("source",), "where a curve comes from", ""),
    "first_seed": Variable((), "seed of the samples of run 0; the others follow", "s_0"),
    "step_size": Variable((), "step size of SGD", r"\eta"),
    "emergence_step": Variable(("direction",), "number of SGD steps until the direction emerges", "n_p"),
    "finite_step_time": Variable(("direction",), "emergence time by the equation of finite steps", r"T_p^{(\eta)}"),
    "delayed_time": Variable(
        ("direction",), "learned time of the matched pair with the delay by noise (inf: trapped)", r"\hat{T}_p^{(\eta)}"
    ),
    "time_deviation": Variable(
        ("direction",), "mean logarithm of SGD's over the equation's time, in standard errors", "z"
    ),
    "blown_up_share": Variable((), "share of the runs that blew up", "b"),
    "censored_share": Variable(("direction",), "share of the runs in which the direction did not emerge", "c_p"),
    "sample_loss": Variable(("samples",), "loss after so many samples", "L"),
    "target_loss": Variable((), "loss when the wanted directions are learned, the last by half", r"L_{\bar{p}}"),
    "samples_needed": Variable((), "samples after which the loss of the target is reached", r"n_{\bar{p}}"),
    "predicted_samples_needed": Variable((), "samples that theory needs for the loss of the target", r"n_{\bar{p}}"),
    "large_target": Variable(("large_target",), "number of directions wanted, at the large size", r"\bar{p}"),
    "large_target_loss": Variable(("large_target",), "loss of the target, at the large size", r"L_{\bar{p}}"),
    "large_samples_needed": Variable(
        ("large_target",), "samples that theory needs for the loss of the target, at the large size", r"n_{\bar{p}}"
    ),
    "exponent": Variable(("source",), "fitted exponent", "x"),
    "exponent_error": Variable(("source",), "standard error of the fitted exponent", r"\delta x"),
    "particle": Variable(("particle",), "particle of the mean field", "i"),
    "weight": Variable(("particle",), "share of the law that the particle carries", r"\rho_i"),
    "particle_mass": Variable(("time", "particle"), "squared norm that the particle carries", "n_i"),
    "total_mass": Variable(("time",), "squared norm of all particles together", r"\sum_i n_i"),
    "alpha": Variable(("time", "particle"), "projection of the particle on the teacher's axis", r"\alpha_i"),
    "velocity": Variable(("time", "particle"), "velocity of the projection", r"\dot\alpha_i"),
    "projection": Variable(
        ("time", "particle", "teacher_axis"), "projections of the particle on the teacher's axes", "a_i"
    ),
    "neuron_vector": Variable(
        ("time", "neuron", "flow_axis"), "components of the neuron, the teacher's axes first", "w_i"
    ),
    "tracer_projection": Variable(
        ("time", "tracer", "teacher_axis"), "projections of a neuron that follows the field", "a_i"
    ),
    "law_moment": Variable(("time", "moment"), "moment of the law, of which the field is made", r"\mu_k"),
    "width": Variable(("width",), "number of neurons", "m"),
    "k": Variable(("k",), "information exponent of the link", "k"),
    "beta": Variable(("beta",), "decay of the teacher's coefficients", r"\beta"),
    "num_directions": Variable(("num_directions",), "number of teacher directions", "P"),
    "initial_norm": Variable(("initial_norm",), "norm of the starting weights", r"\sigma_0"),
    "failure": Variable((), "why the point of the sweep failed", ""),
    "mean_field_loss": Variable(("time",), "loss of the infinite width", r"L^\infty"),
    "function_gap": Variable(
        ("width", "seed", "time"), "width times the mean squared distance to the mean field", r"m\,E(f_m - f_\infty)^2"
    ),
    "function_gap_noise": Variable(
        ("width", "seed", "time"),
        "width times the variance of the network over samples of one start",
        r"m\,E\,\mathrm{Var} f_m",
    ),
    "coupling_noise": Variable(
        ("width", "seed", "time"),
        "root width times the neurons' root mean square scatter over samples of one start",
        r"\sqrt{m}\,|\delta w|_{rms}",
    ),
    "mean_gap_exponent": Variable(
        (), "exponent in the width of the mean squared distance, averaged over log time", r"\bar{x}"
    ),
    "mean_gap_exponent_error": Variable((), "standard error of the same", r"\delta\bar{x}"),
    "exponent_z": Variable((), "distance of the exponent from the allowed band in standard errors", "z"),
    "start_seed": Variable(("seed",), "seed of the start", "s_0"),
    "coupling_error": Variable(
        ("width", "seed", "time"),
        "root width times the neurons' root mean square distance",
        r"\sqrt{m}\,|\Delta|_{rms}",
    ),
    "largest_coupling_error": Variable(
        ("width", "seed", "time"), "root width times the neurons' largest distance", r"\sqrt{m}\,|\Delta|_{max}"
    ),
    "function_gap_exponent": Variable(("time",), "exponent in the width of the mean squared distance", "x"),
    "function_gap_exponent_error": Variable(
        ("time",), "standard error of the exponent of the mean squared distance", r"\delta x"
    ),
    "coupling_exponent": Variable(("time",), "exponent in the width of the neurons' mean squared distance", "y"),
    "coupling_exponent_error": Variable(
        ("time",), "standard error of the exponent of the neurons' mean squared distance", r"\delta y"
    ),
    "neuron_gap": Variable(
        ("time", "neuron", "flow_axis"),
        "linearised distance of the neuron from its follower of the field",
        r"\Delta_i",
    ),
    "linear_error": Variable(
        ("time",), "root width times the root mean square of the linearised distances", r"\sqrt{m}\,|\Delta|_{rms}"
    ),
    "linear_error_bound": Variable(("time",), "bound on the same by the largest local Hessian", "b"),
    "noise_size": Variable(
        ("time",), "root width times the root mean square fluctuation of the field", r"\sqrt{m}\,|\varepsilon|_{rms}"
    ),
    "largest_growth": Variable(("time",), "largest local Hessian of the neurons that follow the field", r"\lambda"),
    "speed": Variable(("time", "particle"), "speed of the particle on the sphere", r"|\dot w_i|"),
    "local_hessian": Variable(
        ("time", "particle"),
        "largest eigenvalue of the derivative of the particle's velocity in its position",
        r"\lambda_{\max}(D_i)",
    ),
    "self_concordance": Variable(
        ("time", "particle"),
        "growth of the local Hessian over speed, times the overlap",
        r"|a_i| \lambda_i^+/|\dot w_i|",
    ),
    "self_concordance_supremum": Variable(
        ("time",),
        "largest self-concordance of particles of overlap 1/sqrt(d) or more",
        r"\sup_i |a_i| \lambda_i^+/|\dot w_i|",
    ),
    "share": Variable(("share",), "share of the law below a quantile", "q"),
    "overlap_quantile": Variable(("time", "direction", "share"), "quantile of the overlaps", "C_p(q)"),
    "overlap_bin": Variable(("overlap_bin",), "overlap at the middle of the bin", "C"),
    "overlap_density": Variable(("time", "direction", "overlap_bin"), "density of the overlaps", r"\rho_p(C)"),
    "loss_level": Variable(("loss_level",), "fraction of the teacher's mean square", r"\ell"),
    "loss_level_time": Variable(
        ("loss_level",), "first time at which the loss is below the fraction", r"t(L < \ell\, E f^{*2})"
    ),
    "law": Variable(("law",), "scaling law", ""),
    "curve_of": Variable(("curve_of",), "equations that a loss curve solves", ""),
    "point": Variable(("point",), "point of a curve", ""),
    "curve": Variable(("curve",), "where the points of a curve come from", ""),
    "abscissa": Variable(("point",), "what the law is a power of", "x"),
    "ordinate": Variable(("point",), "what the law says", "y"),
    "prefactor": Variable(("source",), "value of the fitted law at 1", "b"),
    "window_low": Variable(("law",), "first x that enters the fit", "x_-"),
    "window_high": Variable(("law",), "last x that enters the fit", "x_+"),
    "solve_time": Variable((), "wall-clock seconds that the answer took", "s"),
    "final_loss": Variable((), "loss at the end of the run", "L"),
    "best_rate": Variable((), "step size of the least loss at the end", r"\eta^*"),
    "best_loss": Variable((), "least loss at the end over step sizes", "L^*"),
    "transfer_cost": Variable((), "relative loss that the largest width's best step costs", r"\kappa"),
    "transfer_cost_error": Variable((), "standard error of the cost of the largest width's step", r"\delta\kappa"),
    "best_rate_error": Variable((), "relative standard error of the best step size", r"\delta\eta^*/\eta^*"),
    "loss_gap_error": Variable((), "standard error of the relative distance of the least loss", r"\delta\delta L"),
    "rate_drift_error": Variable((), "standard error of the distance of the best step size", r"\delta\delta\ln\eta^*"),
    "loss_gap": Variable((), "relative distance of the least loss from that of the largest width", r"\delta L"),
    "rate_drift": Variable(
        (), "distance of the best step size from that of the largest width, in the logarithm", r"\delta\ln\eta^*"
    ),
}
