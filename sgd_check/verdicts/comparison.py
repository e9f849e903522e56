"""`sgd_check.compare`: align prediction and simulation, test every direction and the loss, and say one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgd_check.verdicts.alignment import checked_rate, checked_simulations, decided_by_curves, with_emergence
from sgd_check.verdicts.curves import curve_evidence
from sgd_check.verdicts.mean_field import width_evidence
from sgd_check.verdicts.recovery import ANSWER as RECOVERY
from sgd_check.verdicts.recovery import estimate_evidence
from sgd_check.verdicts.times import against_sample, against_theory
from sgd_check.verdicts.verdict import verdict_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr


def compare(
    prediction: xr.Dataset, simulation: xr.Dataset | Sequence[xr.Dataset], *, false_alarm_rate: float = 0.01
) -> xr.DataTree:
    r"""Hold simulated emergence times, and the loss, against predicted ones.

    Against **one predicted time** per direction, for every direction that the prediction says emerges, the null
    hypothesis is

    .. math:: E \ln\frac{T_{\mathrm{SGD}}}{T_p} \in
        \begin{cases}
        \ln(1 + \varphi_p) - s_p^2/2 \pm (0.02 + s_p^4/2) & \text{isolated direction} \\
        [-s_p^2/2,\; 2 \ln(1 + \delta_p)] & \text{else, flow} \\
        [-s_p^2,\; 2 \varphi_p] & \text{else, finite-step equation} \end{cases}

    or, for the times of alignment of frames, [2α_p − s_p² − 0.02, 2 ln(1/(1 − η/η*_p)) + 0.02] and a narrower one for
    the first direction, with δ_p and s_p the relative delay and scatter that the step size causes at leading order, and
    φ_p the part of the delay that the predicted time lacks: all of it against the flow. A direction is isolated if
    nearly every run gives it the same neuron, before any is learned; what the samples of a run say about its delay is
    then taken away first. Those that rivals may disturb have a wider band, or one edge alone
    (`sgd_check.verdicts.expectation` derives the band, `sgd_check.verdicts.time_tests` the test). A fifth of the rate
    is for what does not depend on times: the start, and of an isolated direction loss and norm at and after the
    emergence, and the scatter (`sgd_check.verdicts.path_tests`). Learned times are tested in the same way where theory
    knows what steps do to them. Of a direction that theory puts beyond the runs, or never, the number of runs that have
    it is tested (`sgd_check.verdicts.times`). "Agree" is said only if every time, 30 % later still within the runs, is
    tested on both sides and such an error would have been seen; else the verdict is "undecided" and its reasons say on
    how many directions there is agreement. The loss over time is compared on plateaus and reported beside the verdict.

    **By curves** this is decided for information exponents up to 2 and for networks, where times of single neurons
    mean little: the loss, and the learned masses, of a network its components or sensitivity, are tested at up to eight
    times each, and the times beside them,

    .. math:: |E x(t_k) - y(t_k)| \le R \Big(0.02 + 3 \max_k \frac{\Delta_k^2}{R^2}\Big),

    y the theory, R its range, and Δ what is left of the step size (`sgd_check.verdicts.curves`). A flow needs runs
    at two learning rates, from which their effect is extrapolated away; held against one alone it can be agreed with,
    not refuted. "Agree" is said if theory with times 30 % longer or shorter would have been refuted by every curve that
    moves, and if, where theory predicts emergences, the runs have one that is predicted well before their end.

    Against **a sample of predicted runs**, such as another engine's, the null hypothesis is that both have one law:
    log-rank tests of the times, with censoring, and rank tests of the loss, each family at half of the rate.

    Against **a mean field**, `simulation` has one dataset for each of two or more widths m, of the spherical student,
    with two or more runs from every one of the same `starts`. The null hypothesis is that the squared distance in
    function space, without the noise of SGD, falls as

    .. math:: E(f_m - f_\infty)^2 \sim m^x, \qquad x \in -1 \pm 0.15

    averaged over log time while the loss of the mean field falls from half to a tenth; 0.15 is for corrections of
    finite width. The standard error of x is from a bootstrap over the starts, and "agree" is said only where an
    exponent of −1/2 would have been seen (`sgd_check.verdicts.mean_field`). Distances of neurons stand beside the
    verdict.

    Against **the law of an estimator**, `dynamics.predict_recovery`, `simulation` is a result of
    `sgd_check.estimate_direction`, and the mean of the squared overlap is tested, with what a finite d is allowed
    (`sgd_check.verdicts.recovery`).

    Parameters
    ----------
    prediction : Dataset
        Any answer with `emergence_time(direction)`, or of the student "stiefel" `aligned_time(direction)`, such as
        `dynamics.solve_overlaps` (the exact flow, or with `learning_rate` the finite-step equation) or
        `dynamics.predict_emergence` (pairs alone: interactions between neurons are then part of the difference); or a
        result of `simulate` with other seeds or by another engine; or `dynamics.solve_mean_field`, saved at times at
        which the simulations have records, with ``tracers=dynamics.laws.chaos.coupled_tracers(problem, m, starts)`` for
        the largest m if neurons are to be followed, and with time 0 by which these are recognised.
    simulation : Dataset or sequence of Dataset
        Result of `sgd_check.simulate` for the same problem; two at different learning rates for a flow that is judged
        by its curves; for a mean field one for each width.
    false_alarm_rate : float, default 0.01
        Probability, in (0, 1), of "disagree" if the theory holds.

    Returns
    -------
    DataTree
        /prediction and /simulation as given (of two simulations the one of smaller steps is /finer; for a mean field
        /simulation/width_m), and /comparison, whose variables and units `docs/datasets.md` lists. Its attrs hold
        `verdict` ("agree", "disagree" or "undecided"), `false_alarm_rate`, `reasons`, `theory` ("flow", "finite step",
        "sample", "mean field" or "law of recovery"), `loss_statement`, and the counts of runs; `decided_by` is "curves"
        where they decide. Runs that blew up are excluded and counted.

        Per direction among others: `emergence_ratio` (by seed), the tested `emergence_time` with its band `band_low` to
        `band_high` of `mean_log_ratio` (runs without emergence at the horizon; without the noise of the samples where
        that is known), `z_score`, `direction_p_value` (NaN: not tested; beyond the runs that of the number of runs that
        have it), `early_power` and `late_power` (to see a time predicted 30 % too late or too early; NaN: that side is
        not tested), and `visible_error`, the least relative error of the predicted time that is seen to either side
        with probability 0.8 (NaN: not tested on both). `p_value` is the global one, `loss_p_value` that of the loss
        (NaN where none can be given), `path_p_value` that of what does not depend on times. For a mean field the
        variables are those of `dynamics.propagation_of_chaos` over the starts (as `seed`), without the noise of SGD;
        what is tested is `mean_gap_exponent`, and `exponent_z` its distance from the band (NaN: not tested).

    Raises
    ------
    TypeError, ValueError
        If one of the two is no dataset; if they do not answer the same problem from the same start, or the rate is not
        in (0, 1); if the prediction has a step size or seeds of its own, also if learning rate, batch size or label
        noise differ, or runs of one engine share a seed.
    """
    rate, answer = checked_rate(false_alarm_rate), getattr(prediction, "attrs", {}).get("answer")
    if answer in ("mean-field", RECOVERY):
        evidence_of = width_evidence if answer == "mean-field" else estimate_evidence
        return verdict_tree(evidence_of(prediction, simulation, rate))
    problem, simulations = checked_simulations(prediction, simulation)
    prediction, sampled = with_emergence(prediction), "seed" in prediction.dims
    if decided_by_curves(problem) and not sampled:
        return verdict_tree(curve_evidence(problem, prediction, simulations, rate))
    test = against_sample if sampled else against_theory
    return verdict_tree(test(problem, prediction, simulations[0], rate))
