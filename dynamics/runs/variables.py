"""Names, dims, meanings, units and symbols of all variables, and the labels of the axes that are drawn over them."""

from __future__ import annotations

import re
from typing import NamedTuple


class Variable(NamedTuple):
    """Metadata of one variable of datasets: dims, meaning in words, symbol in LaTeX, and unit, "1" if dimensionless."""

    dims: tuple[str, ...]
    long_name: str
    symbol: str
    units: str = "1"

    @property
    def labels(self) -> dict[str, str]:
        """Its attributes in a dataset."""
        return {"long_name": self.long_name, "units": self.units, "symbol": self.symbol}


def axis_label(name: str, *, plain: bool = False) -> str:
    """Return the label of an axis over a quantity: with formulas as mathtext, or in plain text.

    Parameters
    ----------
    name : str
        Variable, or one of the quantities that figures derive from variables, which the table of labels names; a name
        that neither table has is its own label.
    plain : bool, default False
        Return the label without mathtext.

    Examples
    --------
    >>> axis_label("time"), axis_label("time", plain=True)
    ('flow time $t$', 'flow time t')
    """
    variable = VARIABLES.get(name)
    typeset, text = _AXES.get(name, (f"{variable.long_name} ${variable.symbol}$" if variable else name, ""))
    return (text or typeset.replace("$", "")) if plain else typeset


#: Name | dims | what it is, and its unit in brackets unless it is dimensionless | its symbol in LaTeX; an indented line
#: belongs to the one above. A simulation puts `seed` in front of the dims of recorded and measured quantities.
_TABLE = r"""
time | time | flow time (learning rate times steps) | t
step | time | number of SGD steps | s
direction | direction | teacher direction | p
neuron | neuron | student neuron | i
neuron_2 | neuron_2 | student neuron | j
seed | seed | seed of the samples | s
loss | time | mean squared error E(f - f*)^2 | L
train_loss | time | mean squared error over the samples of training, with their noise | L_n
average_loss | time | mean squared error of the average of the weights | \bar{L}
predicted_loss | time | loss by the sum formula | L^{\mathrm{pairs}}
degree | degree | Hermite degree: 0, 1, 2, and what is left of them | j
degree_loss | time degree | mean square of the part of f - f* of one Hermite degree | L_j
teacher_by_degree | degree | mean square of the part of f* of one Hermite degree | L^*_j
teacher_coefficient | direction | second-layer weight of the teacher | a_p
teacher_direction | direction teacher_axis | teacher direction | \theta_p
unit | unit | unit of the teacher network | p
unit_coefficient | unit | second-layer weight of the teacher's unit | a_p
unit_direction | unit teacher_axis | direction of the teacher's unit | \theta_p
unit_bias | unit | bias of the teacher's unit | \beta_p
matched_neuron | direction | neuron matched greedily to the direction (-1: none) | i(p)
leading_order_time | direction | escape time at leading order | T_p
corrected_emergence_time | direction | emergence time of the pair with fourth cumulants of the rows | T_p^{\kappa}
corrected_error | direction | standard error of the time with fourth cumulants |
path_emergence_time | direction | emergence time of the pair as the mean over rows says | T_p^{\mathrm{path}}
path_error | direction | standard error of the time by the mean over rows |
resampling_ratio | direction | how far SGD on resampled rows leaves the plane of direction and start | \rho_p
effective_information_exponent | direction | least degree that the labels of these rows have, 0 for none | k_p
run_ratio | direction | mean emergence time of runs on rows over that of Gaussian runs | r_p
run_ratio_error | direction | standard error of the ratio of mean emergence times |
predicted_emergence_time | direction | exact transit time of the matched pair to squared overlap 1/2 |
    T_p^{\mathrm{pair}}
predicted_learned_time | direction | time at which the matched pair alone carries half the weight |
    \hat{T}_p^{\mathrm{pair}}
search_share | direction | share of the pair's learned time until squared overlap 0.1 | s_p^{\mathrm{search}}
descent_share | direction | share of the pair's learned time from 0.1 to emergence | s_p^{\mathrm{descent}}
learning_share | direction | share of the pair's learned time from emergence on | s_p^{\mathrm{learn}}
emergence_time | direction | first time at which a neuron has squared overlap 1/2 | T_p^{\mathrm{emerge}}
learned_time | direction | first time at which the neurons carry half the weight | T_p^{\mathrm{learn}}
loss_error | time | estimated numerical error of the loss | \delta L
train_loss_error | time | standard error of the loss over the samples of training | \delta L_n
teacher_overlap_error | time neuron direction | standard error of the overlap of neuron and direction | \delta C_{ip}
squared_norm_error | time neuron | standard error of the squared norm of the neuron | \delta n_i
emergence_time_error | direction | estimated numerical error of the emergence time | \delta T_p^{\mathrm{emerge}}
learned_time_error | direction | estimated numerical error of the learned time | \delta T_p^{\mathrm{learn}}
loss_truncation_error | time | estimated error of the loss by the cut series of the link | \delta_J L
emergence_time_truncation_error | direction | estimated error of the emergence time by the cut series of the link |
    \delta_J T_p^{\mathrm{emerge}}
learned_time_truncation_error | direction | estimated error of the learned time by the cut series of the link |
    \delta_J T_p^{\mathrm{learn}}
loss_level_time_error | loss_level | estimated numerical error of the time at which the loss falls below a fraction |
    \delta T_L
loss_level_time_truncation_error | loss_level | estimated error, by the cut series of the link, of the time at which the
    loss falls below a fraction | \delta_J T_L
teacher_overlap | time neuron direction | overlap of neuron and direction | C_{ip}
student_overlap | time neuron neuron_2 | overlap of two neurons | G_{ij}
squared_norm | time neuron | squared norm of the neuron | n_i
second_layer | time neuron | second-layer weight of the neuron | v_i
bias | time neuron | bias of the neuron | b_i
component_name | component_name | Hermite component of the teacher |
component | time component_name | Hermite component of the network | f_\alpha
teacher_component | component_name | Hermite component of the teacher | f^*_\alpha
component_learned_time | component_name | first time at which the component is half of the teacher's |
    T_\alpha^{\mathrm{learn}}
predicted_component_time | component_name | time at which the saddle of the component's monomial is left |
    T_\alpha
component_learned_time_error | component_name | estimated numerical error of the component's time |
    \delta T_\alpha^{\mathrm{learn}}
loss_sd | time | standard deviation of the loss over single runs | s_L
overlap_sd | time neuron direction | standard deviation of the overlap over single runs | s_{C_{ip}}
max_overlap_sd | time direction | standard deviation over single runs of the largest overlap | s_{C_p}
student_overlap_sd | time neuron neuron_2 | standard deviation of the overlap of two neurons over single runs |
    s_{G_{ij}}
squared_norm_sd | time neuron | standard deviation of the squared norm over single runs | s_{n_i}
second_layer_sd | time neuron | standard deviation of the second-layer weight over single runs | s_{v_i}
output_layer_sd | time class neuron | standard deviation of the weight for a class over single runs | s_{V_{ki}}
bias_sd | time neuron | standard deviation of the bias over single runs | s_{b_i}
emergence_time_sd | direction | standard deviation of the emergence time over single runs | s_{T_p}
band_ratio | time | largest shift of a mean over runs by the next order, over its standard deviation | R
loss_floor |  | least mean loss of any function of the inputs | L^*
test_error | time | probability of a wrong class | \epsilon
bayes_error |  | least probability of a wrong class | \epsilon^*
output_layer | time class neuron | second-layer weight of the neuron for a class | V_{ki}
class | class | class of a label | k
half_loss_time |  | first time at which the loss is half-way from its start to its floor | T_L
half_error_time |  | first time at which the test error is half-way from its start to that of Bayes | T_\epsilon
test_error_error | time | error of the test error by points | \delta\epsilon
second_layer_error | time neuron | error of the second-layer weight by points | \delta v_i
output_layer_error | time class neuron | error of the second-layer weight by points | \delta V_{ki}
bias_error | time neuron | error of the bias by points | \delta b_i
student_overlap_error | time neuron neuron_2 | error of the overlap of two neurons by points | \delta G_{ij}
max_overlap_error | time direction | error of the largest overlap by points | \delta C_p
half_loss_time_error |  | error of the time by points | \delta T_L
half_error_time_error |  | error of the time by points | \delta T_\epsilon
sensitivity | time direction | eigenvalue of the mean squared gradient of the network, largest first | \lambda_a(H)
series_error | time | bound on the error of means of pairs by their series | \epsilon_J
teacher_sensitivity | direction | the same of the teacher | \lambda_a(H^*)
gram_margin | time | smallest eigenvalue of G - C T^-1 C^T, negative only by error | \lambda_{\min}
alignment | time direction | squared projection of the direction on the span of the neurons | A_j
aligned_time | direction | first time at which the direction is half in the span of the neurons | t_j
predicted_aligned_time | direction | time at which the direction alone would be half in the span | \hat{t}_j
fine_tuned_loss | time | least loss of a second layer on the span of the neurons | L^{\mathrm{tuned}}
sigmoid_loss | time | loss with every direction aligned alone, a second layer aside | L^{\mathrm{sum}}
staircase_loss | time | loss of the directions that are not yet aligned by prediction | L^{\mathrm{stairs}}
rate_limit | direction | learning rate above which noise keeps the neurons from the direction | \eta^*_j
fewest_steps | direction | steps of SGD to alignment at half of that rate | n_j
max_overlap | time direction | largest overlap of any neuron with the direction | C_p
learned_mass | time direction | weight learned on the direction | \sum_i n_i g_3(C_{ip})/g_3(1)
overlap | time direction | overlap of the matched neuron | C_p
matched_squared_norm | time direction | squared norm of the matched neuron | n_p
input_eigenvalue | input_class | eigenvalue of the covariance of the inputs | s_c
input_multiplicity | input_class | number of axes in a row with the eigenvalue | d_c
cluster_mean | cluster cluster_axis | mean of the cluster | \mu_\kappa
cluster_weight | cluster | weight of the cluster | p_\kappa
cluster_label | cluster | label of the cluster | y_\kappa
loss_piece | label piece power | power of a piece of the loss, for the labels -1 and 1 |
initial_output_layer | class neuron | given second layer of each class at the start | V_{ki}(0)
initial_weight | neuron axis | given starting weight | w_i
initial_second_layer | neuron | given second layer at the start | v_i(0)
initial_bias | neuron | given bias at the start | b_i(0)
initial_teacher_overlap | neuron direction | given starting overlap | C_{ip}(0)
initial_student_overlap | neuron neuron_2 | given starting overlap | G_{ij}(0)
initial_squared_norm | neuron | given starting squared norm | n_i(0)
blown_up | seed | whether the run left the region where the loss is bounded | b
censored | seed direction | whether the direction had not emerged by the end of the run | c
emergence_ratio | seed direction | measured over predicted emergence time | T/T_p
expected_delay | direction | relative delay against the flow that the step size should cause | \delta_p
expected_lateness | direction | relative lateness against the predicted time that the step size should cause | \varphi_p
mean_log_ratio | direction | mean logarithm of measured over predicted time | \langle\ln T/T_p\rangle
standard_error | direction | standard error of the mean logarithmic ratio | s_p
z_score | direction | distance from the allowed band in standard errors | z_p
direction_p_value | direction | probability of such a distance if theory holds | p_p
early_power | direction | probability that SGD 30 % early is seen | \pi_p^-
late_power | direction | probability that SGD 30 % late is seen | \pi_p^+
verdict_count |  | comparisons that end with the verdict | N
large_error_count |  | comparisons with a large planted error that end with the verdict | N_{\mathrm{large}}
time_effect |  | largest effect of a planted error on the logarithm of an awaited time | \max|\Delta\ln T|
curve_effect |  | largest effect of a planted error on a curve, in parts of its range | \max|\Delta y|/R
kind | kind | kind of problem |
case | case | what is held against what |
verdict | verdict | what the comparison says |
visible_error | direction | least relative error of the predicted time that is seen with probability 0.8 | \epsilon_p
learned_z_score | direction | as z_score, of the time at which the direction is learned | z_p^{\mathrm{learn}}
learned_p_value | direction | as direction_p_value, of the time at which the direction is learned | p_p^{\mathrm{learn}}
learned_visible_error | direction | as visible_error, of the time at which it is learned | \epsilon_p^{\mathrm{learn}}
censored_count | direction | runs in which the direction did not emerge | c_p
p_value |  | global probability of such distances if theory holds | p
loss_p_value |  | probability of such a difference of the losses under one law | p_L
path_p_value |  | probability of such a start, way and scatter if theory holds | p_w
expected_scatter | direction | relative scatter that the step size should cause | s_p
log_scatter | direction | standard deviation of the logarithm of the time over runs | \hat{s}_p
band_low | direction | lower edge of the allowed mean logarithmic ratio | b_p^-
band_high | direction | upper edge of the allowed mean logarithmic ratio | b_p^+
survival | direction time | share of runs without emergence (Kaplan-Meier) | S_p
survival_low | direction time | lower end of the pointwise 95 % interval of the share | S_p^-
survival_high | direction time | upper end of the pointwise 95 % interval of the share | S_p^+
predicted_survival | direction time | predicted share of runs without emergence | S_p^{\mathrm{pred}}
mean_loss | time | loss averaged over runs | \bar{L}
loss_standard_error | time | standard error of the difference to the expected loss | s_L
expected_loss | time | predicted loss at the times of the simulation | L^{\mathrm{pred}}
expected_loss_low | time | least loss that early and late runs allow | L^-
expected_loss_high | time | largest loss that early and late runs allow | L^+
loss_compared | time | whether the mean loss is held against the prediction | c_L
loss_z | time | distance of the loss from what is allowed in standard errors | z_L
quantity | quantity | curve or time that is tested |
look | look | tested time of a curve, in order | k
look_time | quantity look | time at which the curve is tested | t_k
look_mean | quantity look | mean over runs, without the step size to first order | \bar{x}(t_k)
look_prediction | quantity look | predicted value | y(t_k)
look_error | quantity look | standard error of the mean at that time | S_k/\sqrt{n}
look_z | quantity look | distance from the allowed band in standard errors | z_k
quantity_error | quantity | largest standard error of the means of a curve | S/\sqrt{n}
quantity_allowance | quantity | half-width of the allowed band around the prediction | b
quantity_p_value | quantity | smallest p-value of the looks | p
quantity_power | quantity | probability that an error of 30 % in time is seen | \pi
quantity_fresh_power | quantity | probability that theory of fresh samples is seen to be wrong | \pi^{\mathrm{fresh}}
evidence | row | what was tested |
evidence_label | row | which of its kind was tested, such as the number of a direction |
evidence_kind | row | kind of the row |
evidence_time | row | time at which a curve is farthest from theory, or predicted time | t_r
evidence_value | row | mean of the runs less theory, of a curve over its range, of times as ln ratio, or number of
    runs | x_r
evidence_low | row | least value that theory allows | b_r^-
evidence_high | row | largest value that theory allows | b_r^+
evidence_z | row | distance of the value from what is allowed, as a normal score | z_r
evidence_p_value | row | p-value with its share of the rate of false alarms, which it is compared with | p_r
evidence_power | row | probability that an error of 30 % is seen | \pi_r
evidence_visible_error | row | least error that is seen with probability 0.8 | \epsilon_r
evidence_runs | row | number of runs that were tested | n_r
evidence_required | row | whether the row has to agree before the verdict does |
evidence_decision | row | what the row says: agree, disagree or undecided |
evidence_cause | row | why the row is undecided |
information_exponent | information_exponent | information exponent of the link | k
dimension | dimension | input dimension | d
step_scale | step_scale | learning rate times dimension | c
loss_ratio | step_scale dimension time | mean loss of the runs over that of the finite-step equation | r_L
loss_ratio_error | step_scale dimension time | standard error of the same | \delta r_L
limit_loss_ratio | step_scale dimension time | mean loss of the runs over that of the equation for infinite d |
    r_L^{\infty}
loss_scatter_ratio | step_scale dimension time | standard deviation of the loss over runs, over that of theory | \rho_L
loss_scatter_error | step_scale dimension time | standard error of the same | \delta\rho_L
overlap_scatter_ratio | step_scale dimension time neuron direction | standard deviation of the overlap over runs, over
    that of theory | \rho_{ip}
overlap_scatter_error | step_scale dimension time neuron direction | standard error of the same | \delta\rho_{ip}
overlap_shift | step_scale dimension time | largest distance of a mean overlap from theory, in standard deviations of
    theory | \hat{R}
expected_shift | step_scale dimension time | largest distance of a mean from theory, in standard deviations, that the
    next order in 1/d lets expect | R
learning_rate | learning_rate | step size of SGD | \eta
target | target | number of directions that the step size is tuned to | \bar{p}
samples | samples | number of samples, one per step | n
run | run | number of the run | s
source | source | where a curve comes from |
first_seed |  | seed of the samples of run 0; the others follow | s_0
step_size |  | step size of SGD | \eta
emergence_step | direction | number of SGD steps until the direction emerges | n_p
finite_step_time | direction | emergence time by the equation of finite steps | T_p^{(\eta)}
delayed_time | direction | learned time of the matched pair with the delay by noise (inf: trapped) | \hat{T}_p^{(\eta)}
time_deviation | direction | mean logarithm of SGD's over the equation's time, in standard errors | z
blown_up_share |  | share of the runs that blew up | b
censored_share | direction | share of the runs in which the direction did not emerge | c_p
sample_loss | samples | loss after so many samples | L
target_loss |  | loss when the wanted directions are learned, the last by half | L_{\bar{p}}
samples_needed |  | samples after which the loss of the target is reached | n_{\bar{p}}
predicted_samples_needed |  | samples that theory needs for the loss of the target | n_{\bar{p}}
large_target | large_target | number of directions wanted, at the large size | \bar{p}
large_target_loss | large_target | loss of the target, at the large size | L_{\bar{p}}
large_samples_needed | large_target | samples that theory needs for the loss of the target, at the large size |
    n_{\bar{p}}
exponent | source | fitted exponent | x
exponent_error | source | standard error of the fitted exponent | \delta x
particle | particle | particle of the mean field | i
weight | particle | share of the law that the particle carries | \rho_i
particle_mass | time particle | squared norm that the particle carries | n_i
total_mass | time | squared norm of all particles together | \sum_i n_i
alpha | time particle | projection of the particle on the teacher's axis | \alpha_i
velocity | time particle | velocity of the projection | \dot\alpha_i
projection | time particle teacher_axis | projections of the particle on the teacher's axes | a_i
neuron_vector | time neuron flow_axis | components of the neuron, the teacher's axes first | w_i
tracer_projection | time tracer teacher_axis | projections of a neuron that follows the field | a_i
law_moment | time moment | moment of the law, of which the field is made | \mu_k
width | width | number of neurons | m
k | k | information exponent of the link | k
beta | beta | decay of the teacher's coefficients | \beta
num_directions | num_directions | number of teacher directions | P
objective | objective | what is descended |
smoothing_exponent | smoothing_exponent | exponent of the smoothing in the dimension | e
smoothing | smoothing | smoothing of the landscape | \lambda
optimizer | optimizer | what a step does with the gradient |
initial_norm | initial_norm | norm of the starting weights | \sigma_0
failure |  | why the point of the sweep failed |
mean_field_loss | time | loss of the infinite width | L^\infty
function_gap | width seed time | width times the mean squared distance to the mean field | m\,E(f_m - f_\infty)^2
function_gap_noise | width seed time | width times the variance of the network over samples of one start |
    m\,E\,\mathrm{Var} f_m
coupling_noise | width seed time | root width times the neurons' root mean square scatter over samples of one start |
    \sqrt{m}\,|\delta w|_{rms}
mean_gap_exponent |  | exponent in the width of the mean squared distance, averaged over log time | \bar{x}
mean_gap_exponent_error |  | standard error of the same | \delta\bar{x}
exponent_z |  | distance of the exponent from the allowed band in standard errors | z
start_seed | seed | seed of the start | s_0
coupling_error | width seed time | root width times the neurons' root mean square distance | \sqrt{m}\,|\Delta|_{rms}
largest_coupling_error | width seed time | root width times the neurons' largest distance | \sqrt{m}\,|\Delta|_{max}
function_gap_exponent | time | exponent in the width of the mean squared distance | x
function_gap_exponent_error | time | standard error of the exponent of the mean squared distance | \delta x
coupling_exponent | time | exponent in the width of the neurons' mean squared distance | y
coupling_exponent_error | time | standard error of the exponent of the neurons' mean squared distance | \delta y
neuron_gap | time neuron flow_axis | linearised distance of the neuron from its follower of the field | \Delta_i
linear_error | time | root width times the root mean square of the linearised distances | \sqrt{m}\,|\Delta|_{rms}
linear_error_bound | time | bound on the same by the largest local Hessian | b
noise_size | time | root width times the root mean square fluctuation of the field | \sqrt{m}\,|\varepsilon|_{rms}
largest_growth | time | largest local Hessian of the neurons that follow the field | \lambda
speed | time particle | speed of the particle on the sphere | |\dot w_i|
local_hessian | time particle | largest eigenvalue of the derivative of the particle's velocity in its position |
    \lambda_{\max}(D_i)
self_concordance | time particle | growth of the local Hessian over speed, times the overlap |
    |a_i| \lambda_i^+/|\dot w_i|
self_concordance_supremum | time | largest self-concordance of particles of overlap 1/sqrt(d) or more |
    \sup_i |a_i| \lambda_i^+/|\dot w_i|
share | share | share of the law below a quantile | q
overlap_quantile | time direction share | quantile of the overlaps | C_p(q)
overlap_bin | overlap_bin | overlap at the middle of the bin | C
overlap_density | time direction overlap_bin | density of the overlaps | \rho_p(C)
loss_level | loss_level | fraction of the teacher's mean square | \ell
loss_level_time | loss_level | first time at which the loss is below the fraction | t(L < \ell\, E f^{*2})
law | law | scaling law |
curve_of | curve_of | equations that a loss curve solves |
point | point | point of a curve |
curve | curve | where the points of a curve come from |
abscissa | point | what the law is a power of | x
ordinate | point | what the law says | y
prefactor | source | value of the fitted law at 1 | b
window_low | law | first x that enters the fit | x_-
window_high | law | last x that enters the fit | x_+
solve_time |  | wall-clock seconds that the answer took [s] | s
final_loss |  | loss at the end of the run | L
best_rate |  | step size of the least loss at the end | \eta^*
best_loss |  | least loss at the end over step sizes | L^*
transfer_cost |  | relative loss that the largest width's best step costs | \kappa
transfer_cost_error |  | standard error of the cost of the largest width's step | \delta\kappa
best_rate_error |  | relative standard error of the best step size | \delta\eta^*/\eta^*
loss_gap_error |  | standard error of the relative distance of the least loss | \delta\delta L
rate_drift_error |  | standard error of the distance of the best step size | \delta\delta\ln\eta^*
loss_gap |  | relative distance of the least loss from that of the largest width | \delta L
predicted_overlap_squared |  | squared overlap of the estimate and the direction by its law |
    \langle\hat\theta,\theta\rangle^2_{\mathrm{law}}
top_eigenvalue |  | extreme eigenvalue of the estimator's matrix | \lambda_1
overlap_squared |  | squared overlap of the estimate and the direction | \langle\hat\theta,\theta\rangle^2
ratio | ratio | samples over the dimension | n/d
law_ratio | law_ratio | samples over the dimension of a law | n/d
online_dimension | online_dimension | dimension of online SGD | d
descent_overlap_squared |  | squared overlap at the end of descent on all samples | C^2
link | link | link of the teacher | g
label_noise | label_noise | standard deviation of the noise of the labels | \tau
epoch | epoch | passes through the samples | e
reused_overlap | link label_noise ratio epoch | overlap on samples that are used again, as d grows | C
reused_loss | link label_noise ratio epoch | mean squared error on samples that are used again, as d grows | L
reused_overlap_error | link label_noise ratio epoch | standard error of the same | \delta C
fresh_overlap | link label_noise ratio epoch | overlap on as many fresh samples as the epochs draw, as d grows |
    C_{\mathrm{fresh}}
fresh_loss | link label_noise ratio epoch | mean squared error on as many fresh samples, as d grows | L_{\mathrm{fresh}}
fresh_epochs | link label_noise ratio epoch | fresh samples that teach as much, over those that are used again |
    n_{\mathrm{fresh}}/n
best_epoch | link label_noise ratio | epoch of the least loss on new samples | e^*
measured_overlap | link label_noise ratio epoch run | overlap of a run on samples that are used again | C
measured_loss | link label_noise ratio epoch run | mean squared error of a run on new samples | L
measured_train_loss | link label_noise ratio epoch run | mean squared error of a run on its samples | L_n
link_exponent | link | information exponent of the link | k
generative_exponent | link | generative exponent of the link | k^*
recovered_share |  | share of the runs of descent that recover the direction exactly | p
online_samples |  | samples after which online SGD arrives | n
mean_overlap_squared |  | squared overlap averaged over samples | \overline{\langle\hat\theta,\theta\rangle^2}
allowed_deviation |  | deviation from its law that a finite dimension is allowed | \Delta
delta_b |  | smallest Delta with which part (b) of the theorem holds | \Delta_b
delta_c |  | smallest Delta with which part (c) of the theorem holds | \Delta_c
delta_c_resolution |  | 256 times the relative distance of saved times around the time of Delta_c | \delta\Delta_c
delta_c_leading_order |  | its leading order | \Delta_c^0
delta_b_of_direction | direction | smallest Delta with which part (b) holds for the direction | \Delta_{b,p}
delta_c_of_direction | direction | smallest Delta with which part (c) holds for the direction | \Delta_{c,p}
irrelevant_before | direction | largest squared overlap of another neuron with the direction, until T_p | C^2_<
irrelevant_after | direction | largest squared overlap of another neuron with the direction, after T_p | C^2_>
unused_squared_norm |  | largest squared norm of a neuron that no direction is matched with | n_0
start | start | seed of the random start | s_0
time_ratio |  | mean over directions of emerged over predicted time | \langle T/T^{\mathrm{pair}} \rangle
taken_share |  | share of directions that another neuron than the matched one learns | q
unlearned_share |  | share of directions that did not emerge by the end | c
directions_at_dimension |  | number of directions at each dimension | P
top | top | number of first directions that must all be matched | \bar{p}
neurons |  | number of neurons | m
matched_chance |  | share of starts in which all of them are matched | q
matched_chance_low |  | lower end of the 95 % interval of that share | q^-
matched_chance_high |  | upper end of the 95 % interval of that share | q^+
edge_low | source | first compute that enters the fit | c_-
edge_high | source | last compute that enters the fit | c_+
isoflop_compute | isoflop_compute | compute m times steps of a curve of equal compute | c
isoflop_loss | isoflop_compute width | loss at equal compute, geometric mean over starts | L
step_limit |  | largest stable step size of SGD | \eta^*
step_limit_large_dimension |  | the same by its formula for large dimension | \eta^*_\infty
descent_edge |  | largest stable step size of population descent | \eta_{\max}
claim | claim | claim of a paper |
part | claim | part of the report that measured it |
command | claim | command that measures it in full |
part_seconds | claim | wall-clock seconds of its part | s
statement | claim | what the paper says |
measured | claim | number as measured | q
measured_error | claim | standard error of the measured number | \delta q
claimed | claim | number of the paper | q^*
claim_kind | claim | whether the number is an exponent, a constant, a bound or true by construction |
claim_verdict | claim | whether the claim holds at this size |
claim_axes | claim | names of the axes of the claim's curve |
claim_is_slope | claim | whether the number is a slope of the curve's logarithm |
claim_x | claim point | what the number is an exponent in | x
claim_y | claim point | what the number is read off | y
algorithm | algorithm | method of learning |
kernel_samples | kernel_samples | number of samples of the kernel | n
kernel_error | kernel_samples | mean squared error of the kernel, trained online on the sphere | E
kernel_eigenvalue | degree | largest eigenvalue of the kernel in the degree | \lambda_l
degree_samples | degree | samples after which half of the degree is left | n_l
samples_to_level | loss_level | samples after which the error is this fraction of its start | n(\ell)
sample_law | algorithm | law of the number of samples |
law_source | algorithm | where the law is from |
dimension_power | algorithm | power of the dimension in the law | x
minimax_loss | samples | least loss that any method can have, sum of min(a_p^2, 1/n) | L
minimax_law | samples | its leading order | L^0
size | size | vocabulary N, hops k and score B of a construction |
accuracy | size | share of positions whose largest weight is on the right symbol | q
right_weight | size | mean weight on the right symbol | c
descent_bound | size | order of the time of descent on hop k alone, (N k)^(2k-1) | T
information_bound | size | samples that could tell k permutations, k ln N!/ln N | n
kernel_bound | size | order of the samples of a kernel, d^k with d = k N^2 inputs | n
hop_size | hop_size | vocabulary N and hops k of a measurement of hop 1 |
vocabulary | hop_size | number of symbols | N
hops | hop_size | number of permutations | k
hop_samples | hop_size | samples after which 95 % of the rows of hop 1 are right | n
hop_law | hop_size | the same by 1 + ln((k - 1)/0.05)/ln N | n^0
hop_bound | hop_size | bound on the same, k^4 N^6 | n^+
rate_drift |  | distance of the best step size from that of the largest width, in the logarithm | \delta\ln\eta^*
"""


def _read(row: str) -> tuple[str, Variable]:
    name, dims, meaning, symbol = (" ".join(column.split()) for column in row.split("|", 3))
    long_name, _, unit = meaning.removesuffix("]").partition(" [")
    return name, Variable(tuple(dims.split()), long_name, symbol, unit or "1")


#: Every variable of every answer.
VARIABLES = dict(_read(row) for row in re.split(r"\n(?! )", _TABLE.strip()))

#: Name | label of an axis | the same in plain text, unless that is the label without its dollar signs. First come
#: variables, then quantities that figures derive from variables.
_AXIS_TABLE = r"""
time | flow time $t$
loss | loss $\mathrm{E}(f-f^*)^2$
final_loss | loss at the end
sample_loss | loss reached
direction | direction $p$
dimension | dimension $d$
width | width $m$
samples | samples $n$
step_size | step size $\eta$
ratio | $n/d$
emergence_time | emergence time
alignment | alignment $A_p$ | alignment
progress | progress
rank | rank of the item
recovery | share recovered
overlap_density | density
overlap_squared | squared overlap
overlap_quantile | overlap with direction
function_gap | $m\,\mathrm{E}(f_m - f_\infty)^2$
coupling_error | $\sqrt{m}\,\cdot$ rms $|\Delta_i|$
linear_error | $\sqrt{m}\,\cdot$ rms $|\Delta|$ | √m · rms |Δ|
linear_error_bound | its bound
noise_size | $\sqrt{m}\,\cdot$ rms $|\epsilon|$ | √m · rms |ε|
step_time | time, $\eta\times$ steps | time, η × steps
summed_time | flow time $t = \Sigma\,\eta$
scaled_time | scaled time $4 a_1 t / \ln(d/m)$
emergence_in_flow_time | emergence in flow time $\eta\times$ step
squared_overlap | squared overlap $C^2$ | squared overlap C²
largest_squared_overlap | largest squared overlap $C^2$
axis_overlap | largest squared overlap with an axis
component_share | component over the teacher's, $f_\alpha/f^*_\alpha$ | component over the teacher's
component_part | component $f_\alpha / f^*_\alpha$
mass_share | learned mass $/\, a_p$ | learned mass over a_p
sensitivity_share | sensitivity over the teacher's, $\lambda_i / \lambda^*_i$
quadratic_loss | loss $|Q - A|^2$
teacher_share | share of $\mathrm{E}f^{*2}$, of the end
end_share | learned mass, share of its end
width_exponent | exponent in the width $m$
linearised_distance | linearised distance from the mean field
compute | compute, $m\times$ steps
best_width | best width $m$
num_directions | number of directions $P$
time_exponent | exponent $x$ of $L \propto t^x$
theorem_delta | smallest $\Delta$ of the theorem
emerged_over_predicted | emerged over predicted time
direction_share | share of directions
law_loss | loss
plateau_loss | loss (dotted: plateaus)
moved_attention | attention, first trigger shifted
kappa_R | $\kappa R$ (above 1 the shortcut wins) | κR (above 1 the shortcut wins)
chain_weights | weights $a, b, c$
chain_error | error of the model's own chain
predicted_time | predicted time
exact_time | exact time
residual | residual / s.e.
estimate_share | share of the estimates
run_share | share of runs, 95 %
comparison_share | share of comparisons
escape_steps | SGD steps until $C^2 = 1/2$
loss_over_theory | mean loss of runs over theory's
scatter_over_theory | standard deviation of runs over theory's
time_over_equation | time over that of the finite-step equation
noise_of_direction | noise: last wanted weight over the direction's own
time_over_flow | emergence time over the flow's
online_samples | samples over $d$ until $C^2 = 1/4$
least_loss | least loss over widths
fixed_step_samples | samples $n$, fixed step
tuned_step_samples | samples $n$, step tuned to the last direction
time_of_direction | emergence time $T_p$
mean_emergence_time | mean emergence time
first_emergence_time | emergence time of direction 1
predicted_emergence_axis | predicted emergence time
measured_emergence_axis | measured emergence time
predicted_ticks | flow time $t$ (ticks: predicted)
epochs | epochs, passes through the samples
fresh_epochs | fresh samples over $n$ that teach as much
best_epoch | epoch of the least test loss
excess | above the best
first_axis | first axis $x_1$
second_axis | second axis $x_2$
overlap_and_share | squared overlap, share of the runs
new_error | error on new inputs $E$ | error on new inputs E
"""


#: Name of an axis -> its label, and the same in plain text or "".
_AXES = {
    name: (label, *(plain or [""]))
    for name, label, *plain in (row.split(" | ") for row in _AXIS_TABLE.strip().splitlines())
}
