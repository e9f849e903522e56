"""The mean online learning of a committee with fixed second layer; the equations are in `equations.committee`."""

from __future__ import annotations

from typing import Any, Literal, cast

from dynamics.cores import blas_threads_for
from dynamics.equations.losses import teacher_term
from dynamics.integrators.methods import FlowMethod
from dynamics.problem.checks import check_choice
from dynamics.problem.problem import check_flow_memory
from dynamics.runs.dataset import no_prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve.integration import Integration, Run, integrated
from dynamics.solve.steps import chosen_method, sgd_step, warn_limit
from dynamics.theory.learning_rates import quick_limit
from dynamics.theory.prediction import default_committee_schedule


@integrated("committee")
def solve_committee(
    run: Run,
    *,
    learning_rate: float | str | None = None,
    step_theory: Literal["infinite-d", "finite-d"] = "infinite-d",
    batch_size: int = 1,
) -> Integration:
    r"""Integrate the mean online learning of a committee with fixed second layer, in overlap space.

    .. math:: f(x) = \sum_i \sigma(w_i\cdot x), \qquad R' = -E[\bar e\, \sigma'_i\, \theta_p\cdot x], \qquad
       S' = -E[\bar e\, (\sigma'_i\, \lambda_j + \sigma'_j\, \lambda_i)]
       + \eta\, \Big[\tfrac1B E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j\, |x|^2]
       + \big(1 - \tfrac1B\big)\, E[\bar e\, \sigma'_i x]\cdot E[\bar e\, \sigma'_j x]\Big]

    with R = WΘᵀ, S = WWᵀ, λ_i = w_i·x, ē = f − f*; the term in η is that of SGD with B samples per step, the mean of
    w_i ← w_i − η e σ'(λ_i) x, and is left out without a learning rate: the gradient flow of ½ E ē².

    Parameters
    ----------
    problem : Problem
        With ``student="committee"``; link "erf" or a polynomial (for a learning rate: of degree at most 12); any
        teacher.
    save_at : SaveAt, optional
        Saved times, t = η · step. Default: 150 geometric times. For k ≤ 2 to 20 (ln d + |ln n|) / (a g'(1)), n the
        smallest |w_i|² at the start and a the smallest a_p; for k > 2 to 250 times C^(2−k) / (k (k − 2) a c_k²), C the
        overlap of the worst covered direction with its nearest neuron. Where k is odd and the start short, the loss may
        still fall then: no theory says how long it takes.
    learning_rate, batch_size
        η and B of SGD, as in `solve_overlaps`.
    step_theory : {"infinite-d", "finite-d"}
        Whether |x|² in the term in η is d, its limit as d → ∞ with η d fixed, where two samples have nothing in common,
        or all of that term exact.
    keep, method, rtol, atol, trackers, progress, max_runtime, on_failure, error_estimate, checkpoint
        As in `solve_overlaps`, of R and S; methods are "explicit", "bdf", "sundials", "scipy:<name>" and "auto",
        one of the first two.

    Returns
    -------
    Dataset
        As `solve_overlaps`, with R = √n_i C_ip and S = √(n_i n_j) G_ij; `learned_time` is the first Σ_i
        E[σ(w_i·x) σ(θ_p·x)] / E[σ(θ_p·x)²] ≥ a_p/2, of the parts of degree 3 and above of each σ(w·x) in the Hermite
        polynomials of w·x/|w|. No theory predicts times: predicted ones are NaN.

    Raises
    ------
    SolveError, SolveInterrupted, TypeError, ValueError
        As `solve_overlaps`. A large learning rate can make the norms blow up.

    Notes
    -----
    The equations close in the mean; as d → ∞ at fixed η d they hold for a single run. One evaluation costs 2 m (m + P)²
    operations for the flow, m²(m + P)²/2 arcsines more for the step with "erf". The learning rate of Saad & Solla is
    η d, their time step/d, their generalisation error half the loss.

    References
    ----------
    Saad and Solla, Phys. Rev. E 52, 4225 (1995).
    """
    from dynamics.equations.committee import CommitteeSystem

    problem, P = run.problem, run.problem.num_directions
    check_choice("step_theory", step_theory, ("infinite-d", "finite-d"))
    step = sgd_step(problem, learning_rate, step_theory, batch_size)
    rate = step.learning_rate
    schedule = run.schedule(lambda: default_committee_schedule(problem))
    check_flow_memory(problem, keep=run.keep, times=len(schedule))
    last = float(schedule.times[-1])
    system = CommitteeSystem(problem, rate, step_theory, step.batch_size)
    if rate is not None:
        warn_limit(step, quick_limit(problem, step.batch_size))
    generic = cast("Any", system)  # it has all that methods ask of the overlap flow
    method = chosen_method(generic, run.method, last)
    return Integration.of(
        system,
        run,
        title="Online learning of a committee with fixed second layer",
        schedule=schedule,
        method=FlowMethod(generic, method, run.atol, last_time=last),
        constants=no_prediction_values(P),
        settings=step.arguments,
        attributes=lambda _: {} if rate is None else step.arguments,
        notes=["Committees have no greedy prediction of times."],
        sound=Soundness(run.rtol, teacher_term(problem), falls=rate is None, dies=True),
        loss=(lambda state: system.loss(*system.unpack(state))) if run.estimates(method) else None,
        threads=lambda: blas_threads_for(problem.width + P, method),
    )
