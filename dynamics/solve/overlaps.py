"""The coupled overlap flow, and the mean motion of overlaps under steps of a finite learning rate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.cores import blas_threads_for
from dynamics.integrators.methods import FlowMethod
from dynamics.problem import Problem, is_correlation
from dynamics.problem.problem import check_flow_memory
from dynamics.runs.dataset import prediction_attributes, prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve.integration import Integration, Run, integrated
from dynamics.solve.steps import (
    STEP_OPTIONS,
    StepSettings,
    checked_step,
    chosen_method,
    limit_of,
    make_system,
    refuse_estimate,
    step_attributes,
    step_notes,
    warn_limit,
)
from dynamics.theory.prediction import PAIRS, default_schedule, predict, sum_formula_loss

if TYPE_CHECKING:
    from dynamics.equations.interface import FlowSystem
    from dynamics.problem.schedule import SaveAt

#: A negative realisability margin is reported beyond this multiple of `rtol`.
GRAM_WARNING = 1e3
#: Part of the norm of a link that its series may leave out without a warning.
TRUNCATION_WARNING = 1e-2


@integrated("overlaps")
def solve_overlaps(
    run: Run,
    *,
    learning_rate: float | str | None = None,
    step_theory: Literal["finite-d", "infinite-d"] | None = None,
    batch_size: int = 1,
    device: str | None = None,
) -> Integration:
    r"""Integrate the exact coupled overlap flow, the gradient flow of ½ E(f − f*)² in overlap space.

    .. math::
       C' = A T - B C - \mathrm{diag}(r) C, \quad G' = X + X^T - \mathrm{diag}(r) G - G\,\mathrm{diag}(r), \quad
       (\ln n_i)' = 4 \Big[\sum_p a_p g(C_{ip}) - \sum_j n_j g(G_{ij})\Big]

    with A = a g'(C), B = n g'(G), X = A Cᵀ − B G, r = diag X and g(s) = Σ_j c_j² s^j.

    Parameters
    ----------
    problem : Problem
    save_at : SaveAt, optional
        Saved times. Default for k ≥ 3: 150 geometric times from a tenth of the first predicted emergence to 2.5 times
        the last predicted learned time; for k ≤ 2: up to 20 times the slowest linear relaxation.
    keep : {"full", "summary"}
        "full" saves C, G and n at every time; "summary" only the largest overlap and learned mass per direction, and n.
    method : str
        "explicit" (order 8), "stiff" (order 8 on unit vectors with learned directions slowed, for k ≥ 3, c_0 = 0 and
        orthonormal directions; "bdf" otherwise, where that is held up, see the attribute `fallback`, or with a
        `step_theory`), "bdf" (matrix-free, order 1 to 5), "sundials" (CVODE, an extra), "scipy:<name>" as a referee,
        "gradient-descent" (fixed steps of size `learning_rate`), or "auto": "explicit" while that is cheap, else
        "stiff".
    rtol, atol : float
        Wanted accuracy of C, G and ln n, from which each method takes its tolerances per step; `atol` of C and G is in
        units of 1/√d, the size of a random overlap. Late emergence times can be much less certain: see the estimates.
    learning_rate : float or str, optional
        Finite step η > 0, dimensionless; time is η · step. Text such as "0.1x" is that share of `learning_rate_limit`.
        Default: the flow, η → 0, which the label noise does not change. With method "gradient-descent" the discrete
        steps w ← w − η ∇ ½E(f − f*)², without tolerance, interpolated linearly; with any other method the mean motion
        under online SGD that `step_theory` names. Needs a polynomial link.
    step_theory : {"finite-d", "infinite-d"}, optional
        "finite-d" (the default with a learning rate): the overlaps move by the exact mean of a step,
        R' = E[ΔR]/η and S' = E[ΔS]/η for R = WΘᵀ, S = WWᵀ, label noise included. "infinite-d": its limit d → ∞ at
        fixed η d, taken at the problem's η d. Neither has the scatter of single runs.
    batch_size : int
        Number B of samples per step of SGD.
    device : str, optional
        "cuda", "cuda:<number>" or "cpu": torch carries the method "stiff" there, in float64 (extra `torch`).
    trackers : sequence of Tracker
        Watch the run and may stop it.
    progress : bool, optional
        Progress bar on stderr; by default if stderr is a terminal.
    max_runtime : float, optional
        Wall-clock budget in seconds.
    on_failure : {"raise", "return"}
        What to do when the integration fails or is interrupted: raise with the partial dataset attached, or return it.
    error_estimate : bool, optional
        Solve once more at ten times the tolerance, in a second thread, and report what that says about the errors of
        loss and times: two thirds more work. Where the link's series is cut, once more with half of its order. By
        default for all methods but the referees.
    checkpoint : path or RunFile, optional
        File that holds the result in the end and, every 30 seconds until then, what was computed. `dynamics.resume`
        goes on from it if the run ends early, but for methods "sundials" and "scipy:<name>".

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² without ½, and `predicted_loss(time)` (sum formula), the overlaps chosen by `keep`,
        `gram_margin(time)` (smallest eigenvalue of G − C T⁻¹ Cᵀ, negative only by error; NaN above 256 neurons, and
        where the method carries vectors, as "stiff", "bdf" and "gradient-descent" do), and per direction the predicted
        and the measured `emergence_time`, first C_ip² ≥ ½ (C > 0 for odd information exponent), and `learned_time`,
        first Σ_i n_i g_3(C_ip)/g_3(1) ≥ a_p/2, g_3(s) = Σ_{j≥3} c_j² s^j (NaN with the attribute `undefined` where the
        link has no degree from 3 on), located on the dense output, NaN if never. Estimated errors are
        `loss_error(time)`, `emergence_time_error`, `learned_time_error` (inf if the looser run does not agree that it
        happens), and what cutting the series of a link changes, where that may be more than the tolerance, the same
        names ending in `_truncation_error`. All quantities are dimensionless; times after an early stop hold NaN, and
        `stop_reason` says why.

    Raises
    ------
    SolveError
        If the integration fails and `on_failure` is "raise"; `error.dataset` holds what was computed.
    SolveInterrupted
        A KeyboardInterrupt with `dataset`, if Ctrl-C was pressed and `on_failure` is "raise".
    TypeError, ValueError, ImportError
        For bad arguments or a missing extra, before any work. Every other `solve_*` raises the same errors.

    Notes
    -----
    One evaluation costs 4 m² P + 2 m³ operations. The flow sees the Hermite series of the link: for a link that is not
    a polynomial it is the flow of the truncated series, and a warning says how much was left out.
    """
    problem, known = run.problem, run.prepared
    step = checked_step(learning_rate, run.method, step_theory, batch_size, problem=problem)
    prediction = predict(problem) if known is None else known
    # Only pairs tell how long a flow is to be followed, and how the noise of steps changes it.
    pairs = prediction if prediction.theory == PAIRS else None
    schedule = run.schedule(lambda: default_schedule(problem, pairs))
    check_flow_memory(problem, keep=run.keep, times=len(schedule))
    _warn_truncation(problem)
    system, limit, last = make_system(problem, step), limit_of(problem, step), float(schedule.times[-1])
    warn_limit(step, limit)
    settings: dict[str, Any] = {"device": device, "last_time": last, "rtol": run.rtol}
    descent: dict[str, Any] = {"learning_rate": step.learning_rate if step.descends else None}
    flow = FlowMethod(system, _first_method(run, system, step, last, device), run.atol, **settings, **descent)
    refuse_estimate(step, run.error_estimate)
    estimates = not step.descends and run.estimates(flow.name)

    def halved(problem: Problem) -> Any:
        coarse = make_system(problem, step)
        return FlowMethod(coarse, flow.name, run.atol, **settings), coarse.loss_of_states()

    def attributes(values: Mapping[str, Any]) -> dict[str, Any]:
        margin = values["gram_margin"]
        smallest = float(np.nanmin(margin)) if np.isfinite(margin).any() else None  # None: it was not monitored
        stepped = step_attributes(step, limit)
        return {**stepped, **prediction_attributes(prediction), "smallest_gram_margin": smallest}

    return Integration.of(
        system,
        run,
        title=_title(problem, step),
        schedule=schedule,
        method=flow,
        observe=system.observer(run.keep, lambda: not flow.carries_vectors),
        constants={
            **prediction_values(prediction),
            "predicted_loss": sum_formula_loss(problem, prediction, schedule.times),
        },
        settings={**step.arguments, "device": device},
        attributes=attributes,
        notes=[*step_notes(problem, step, limit, pairs), *prediction.notes],
        sound=Soundness(0.0 if step.descends else run.rtol, system.teacher_term, falls=step.learning_rate is None),
        loss=system.loss_of_states() if estimates else None,
        cut=run.cut(halved) if estimates else None,
        threads=lambda: blas_threads_for(problem.width, flow.name),
        warn=_warn_margin,
    )


def check(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a flow beyond the memory, contradictory settings of its steps, and a link without exact moments."""
    check_flow_memory(problem, keep=options["keep"], times=options["save"][1])
    step = checked_step(*(options[name] for name in STEP_OPTIONS), problem=problem)
    if step.step_theory is not None:
        make_system(problem, step)


def default_flow_schedule(problem: Problem) -> SaveAt:
    """Return the times that a flow saves by default, by the predicted times where theory has them."""
    has_pairs = problem.information_exponent > 2 or is_correlation(problem)
    return default_schedule(problem, predict(problem) if has_pairs else None)


def _title(problem: Problem, step: StepSettings) -> str:
    inputs = "" if problem.inputs is None else " on inputs that are not isotropic"
    if step.step_theory is not None:
        return f"Overlaps of the two-homogeneous student under SGD{inputs or ' of a finite learning rate'}"
    descends = step.descends and problem.inputs is not None
    return f"{'Gradient descent' if descends else 'Coupled overlap flow'} of the two-homogeneous student{inputs}"


def _first_method(run: Run, system: FlowSystem, step: StepSettings, last_time: float, device: str | None) -> str:
    """Return the method that a run begins with; a device and the flow on isotropic inputs alone take "stiff"."""
    if device is not None:
        return "stiff" if run.method == "auto" else run.method
    flows_on_classes = run.problem.inputs is not None and step.step_theory is None
    return chosen_method(system, run.method, last_time, stiff="bdf" if flows_on_classes else "stiff")


def _warn_margin(attributes: Mapping[str, Any]) -> None:
    margin = attributes.get("smallest_gram_margin", 0.0)
    if margin < -GRAM_WARNING * attributes["rtol"]:
        msg = (
            f"No vectors have the computed overlaps: G - C T^-1 C^T reached an eigenvalue of {margin:.2g}; "
            "solve again with a smaller `rtol`."
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=5)


def _warn_truncation(problem: Problem) -> None:
    link = problem.activation
    if link.truncation_error > TRUNCATION_WARNING * np.sqrt(link.norm_squared):
        msg = (
            f"The flow sees {link.name} through its Hermite series of order {link.order}, which leaves out "
            f"{link.truncation_error:.2g} of its norm; SGD sees the function itself."
        )
        warnings.warn(msg, UserWarning, stacklevel=6)
