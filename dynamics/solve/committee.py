"""The mean online learning of a committee with fixed second layer; the equations are in `equations.committee`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from dynamics.equations.overlaps.system import teacher_term
from dynamics.problem.checks import check_choice, checked_number
from dynamics.problem.problem import check_flow_memory
from dynamics.runs.dataset import no_prediction_values
from dynamics.runs.soundness import Soundness
from dynamics.solve.registry import registered
from dynamics.solve.skeleton import Integration, answered
from dynamics.solve.step_settings import checked_batch_size
from dynamics.theory.prediction import default_committee_schedule
from dynamics.threads.blas import blas_threads_for

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.asked import Asked

__all__ = ["solve_committee"]


def solve_committee(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    learning_rate: float | None = None,
    step_theory: Literal["infinite-d", "finite-d"] = "infinite-d",
    batch_size: int = 1,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    error_estimate: bool | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
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
    keep : {"full", "summary"}
        "full" saves C, G and n at every time; "summary" only the largest overlap and learned mass per direction, and n.
    method : str
        "explicit" (order 8), "bdf" (order 1 to 5), "sundials" (CVODE, an extra), "scipy:<name>" as a referee, or
        "auto": "explicit" while that is cheap, else "bdf".
    rtol, atol : float
        Wanted accuracy of R and S; `atol` is in units of 1/√d.
    learning_rate : float, optional
        η > 0 of SGD. Default: the flow, η → 0, which the label noise does not change.
    step_theory : {"infinite-d", "finite-d"}
        Whether |x|² in the term in η is d, its limit as d → ∞ with η d fixed, where two samples have nothing in common,
        or all of that term exact.
    batch_size : int
        Number B of samples per step of SGD.
    trackers, progress, max_runtime, on_failure, error_estimate, checkpoint
        Watch, bound, end, check and keep the run, as in `solve_overlaps`.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² without ½; the overlaps chosen by `keep`: R = √n_i C_ip and S = √(n_i n_j) G_ij from
        `teacher_overlap` C, `student_overlap` G and `squared_norm` n; `gram_margin(time)`; per direction the
        `emergence_time`, first max_i C_ip² ≥ ½ (C > 0 for odd information exponent), and the `learned_time`, first Σ_i
        E[σ(w_i·x) σ(θ_p·x)] / E[σ(θ_p·x)²] ≥ a_p/2, of the parts of degree 3 and above of each σ(w·x) in the Hermite
        polynomials of w·x/|w| (NaN where the link has none). No theory predicts these times: predicted ones are NaN.
        Their estimated errors are `loss_error(time)`, `emergence_time_error`, `learned_time_error` (inf if the looser
        run does not agree that it happens). All quantities are dimensionless; times after an early stop hold NaN.

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

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="erf", teacher=Teacher([1.0]), width=1, dimension=100, student="committee")
    >>> flow = solve_committee(problem, save_at=SaveAt.at([0.0, 300.0]), progress=False)
    >>> bool(flow.loss[0] > 0.3), bool(flow.loss[1] < 1e-12)
    (True, True)
    """
    return answered(registered("committee"), _build, problem, locals())


def _build(asked: Asked, *, learning_rate: float | None, step_theory: str, batch_size: object) -> Integration:
    from dynamics.equations.committee.system import CommitteeSystem
    from dynamics.integrators.flow_methods import FlowMethod, choose_method

    problem = asked.problem
    check_choice("step_theory", step_theory, ("infinite-d", "finite-d"))
    if learning_rate is not None:
        learning_rate = checked_number(learning_rate, "learning_rate", positive=True)
    size = checked_batch_size(batch_size, steps=learning_rate is not None)
    schedule = asked.schedule(lambda: default_committee_schedule(problem))
    check_flow_memory(problem, keep=asked.keep, times=len(schedule))
    last = float(schedule.times[-1])
    system = CommitteeSystem(problem, learning_rate, step_theory, size)
    # What methods ask of the overlap flow, every system here has.
    generic = cast("Any", system)
    method = asked.method
    if method == "auto":
        method = "explicit" if choose_method(generic, last) == "explicit" else "bdf"
    neurons, P = np.arange(problem.width), problem.num_directions
    return Integration(
        title="Online learning of a committee with fixed second layer",
        schedule=schedule,
        method=FlowMethod(generic, method, asked.atol, last_time=last),
        observe=system.observer(asked.keep),
        start=system.initial_state,
        events={"emergence_time": P, "learned_time": P},
        coords={"neuron": neurons} | ({"neuron_2": neurons} if asked.keep == "full" else {}),
        constants=no_prediction_values(P),
        settings={"learning_rate": learning_rate, "step_theory": step_theory, "batch_size": size},
        says=lambda _: (
            {}
            if learning_rate is None
            else {"learning_rate": learning_rate, "step_theory": step_theory, "batch_size": size}
        ),
        notes=["Committees have no greedy prediction of times."],
        sound=Soundness(asked.rtol, teacher_term(problem), falls=learning_rate is None, dies=True),
        loss=(lambda state: system.loss(*system.unpack(state))) if asked.estimates(method) else None,
        threads=lambda: blas_threads_for(problem.width + P, method),
    )
