"""The coupled overlap flow as a question: problem → method → run → dataset.

`solve_overlaps` reads top to bottom: check, build, run, return. The equations are in `equations.overlaps.system` and,
for finite steps, in `equations.finite_step.system`; what a learning rate asks for in `step_settings`, the choice of
method in `flow_methods`, the loop in `run`, names and labels in `dataset`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.compiler.threads import blas_threads_for
from dynamics.equations.overlaps.system import teacher_term
from dynamics.problem import check_problem
from dynamics.problem.checks import check_choice, check_switch, checked_tolerances
from dynamics.problem.memory import check_memory, flow_numbers
from dynamics.problem.schedule import SaveAt, checked_schedule
from dynamics.runs.dataset import make_dataset, no_prediction_values, prediction_values
from dynamics.runs.outcome import checked_outcome, joined, run_attributes, stack_records
from dynamics.runs.run_file import as_run_file
from dynamics.runs.soundness import Soundness
from dynamics.runs.trackers import all_trackers
from dynamics.theory.horizon import default_schedule
from dynamics.theory.prediction import predict, sum_formula_loss

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.integrators.flow_methods import FlowSystem
    from dynamics.problem import Problem
    from dynamics.runs.loop import RunResult
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.theory.prediction import EmergencePrediction

#: A negative realisability margin is reported beyond this multiple of `rtol`.
GRAM_WARNING = 1e3
#: Part of the norm of a link that its series may leave out without a warning.
TRUNCATION_WARNING = 1e-2


def solve_overlaps(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    learning_rate: float | None = None,
    step_theory: Literal["finite-d", "infinite-d"] | None = None,
    batch_size: int = 1,
    device: str | None = None,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    error_estimate: bool | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
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
        orthonormal directions; "bdf" otherwise or where that is held up, see the attribute `fallback`), "bdf"
        (matrix-free, order 1 to 5), "sundials" (CVODE, an extra), "scipy:<name>" as a referee, "gradient-descent"
        (fixed steps of size `learning_rate`), or "auto": "explicit" while that is cheap, else "stiff". With a
        `step_theory` "stiff" means "bdf".
    rtol, atol : float
        Wanted accuracy of C, G and ln n, from which each method takes its tolerances per step; `atol` of C and G is in
        units of 1/√d, the size of a random overlap. Late emergence times can be much less certain than that: see the
        estimates in the dataset.
    learning_rate : float, optional
        Finite step η, dimensionless; time is η · step. With method "gradient-descent" the discrete steps
        w ← w − η ∇ ½E(f − f*)² instead of the flow, without tolerance: between two steps states are interpolated
        linearly. With any other method, the equation of online SGD that `step_theory` names.
    step_theory : {"finite-d", "infinite-d"}, optional
        "finite-d" (the default with a learning rate): the overlaps move by the exact mean of a step,
        R' = E[ΔR]/η and S' = E[ΔS]/η for R = WΘᵀ, S = WWᵀ, label noise included. "infinite-d": its limit d → ∞ at
        fixed η d, taken at the problem's η d. Neither has the scatter of single runs. Needs a polynomial link.
    batch_size : int
        Number of samples per step of SGD.
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
        loss and times: two thirds more work. By default for all methods but the referees.
    checkpoint : path or RunFile, optional
        File that holds the result in the end and, every 30 seconds until then, what was computed. `dynamics.resume`
        goes on from it if the run ends early, but for methods "sundials" and "scipy:<name>".

    Returns
    -------
    Dataset
        `loss(time)` and `predicted_loss(time)` (sum formula), the overlaps chosen by `keep`, `gram_margin(time)`
        (smallest eigenvalue of G − C T⁻¹ Cᵀ, negative only by error; NaN above 256 neurons, and where the method
        carries vectors, as "stiff", "bdf" and "gradient-descent" do, so that overlaps are those of vectors), and per
        direction the predicted and the measured `emergence_time` and `learned_time`, located on the dense output (NaN
        if never), with their estimated errors `loss_error(time)`, `emergence_time_error`, `learned_time_error` (inf if
        the looser run does not agree that it happens). Times after an early stop hold NaN; `stop_reason` says why.

    Raises
    ------
    SolveError
        If the integration fails and `on_failure` is "raise"; `error.dataset` holds what was computed.
    SolveInterrupted
        A KeyboardInterrupt with `dataset`, if Ctrl-C was pressed and `on_failure` is "raise".
    TypeError, ValueError, ImportError
        For bad arguments or a missing extra, before any work.

    Notes
    -----
    One evaluation costs 4 m² P + 2 m³ operations. The flow sees the Hermite series of the link: for a link that is not
    a polynomial it is the flow of the truncated series, and a warning says how much was left out.
    """
    # === check
    from dynamics.integrators import check_method
    from dynamics.integrators.flow_methods import FLOW_METHODS, FlowMethod, choose_method
    from dynamics.solve.step_settings import (
        checked_step,
        limit_of,
        make_system,
        step_attributes,
        step_notes,
        warn_limit,
    )

    check_problem(problem)
    check_method(method, FLOW_METHODS)
    step = checked_step(learning_rate, method, step_theory, batch_size)
    check_choice("keep", keep, ("full", "summary"))
    check_choice("on_failure", on_failure, ("raise", "return"))
    rtol, atol = checked_tolerances(rtol, atol)
    watchers = all_trackers(trackers, progress, max_runtime)
    file = as_run_file(checkpoint)
    check_switch("error_estimate", error_estimate, optional=True)
    prediction = predict(problem) if problem.information_exponent > 2 else None
    schedule = checked_schedule(save_at, default_schedule(problem, prediction))
    check_flow_memory(problem, keep, len(schedule))
    _warn_truncation(problem)
    limit = limit_of(problem, step)
    warn_limit(step, limit)

    # === build and run
    from dynamics.runs.companion import Companion, loss_and_event_errors
    from dynamics.runs.kept_run import COMPANION, begun_snapshot, kept_run

    settings = {
        "keep": keep,
        "method": method,
        "rtol": rtol,
        "atol": atol,
        "learning_rate": step.learning_rate,
        "step_theory": step.step_theory,
        "batch_size": step.batch_size,
        "device": device,
        "error_estimate": error_estimate,
    }
    system = make_system(problem, step)
    chosen = method
    if method == "auto":
        chosen = "stiff" if device is not None else choose_method(system, float(schedule.times[-1]))
    flow = FlowMethod(
        system,
        chosen,
        atol,
        learning_rate=step.learning_rate if step.descends else None,
        device=device,
        last_time=float(schedule.times[-1]),
        rtol=rtol,
    )
    estimated = not (step.descends or chosen.startswith("scipy:")) if error_estimate is None else error_estimate
    if step.descends and estimated:
        msg = "Argument `error_estimate` must not be True for method 'gradient-descent', which has no tolerance."
        raise ValueError(msg)
    with blas_threads_for(problem.width, flow.name):
        stepper = flow.stepper(rtol)
        companion = Companion(flow, rtol, schedule.times, begun_snapshot(file, COMPANION)) if estimated else None

        def labelled(result: RunResult, looser: RunResult | None) -> xr.Dataset:
            errors = {} if looser is None else loss_and_event_errors(result, looser, len(schedule))
            extra = {**flow.attributes(stepper), **step_attributes(step, limit), "rtol": rtol, "atol": atol}
            notes = step_notes(problem, step, limit, prediction)
            return _overlap_dataset(
                system, prediction, schedule, result, errors, settings=settings, extra=extra, notes=notes
            )

        try:
            observer = system.observer(keep, lambda: not flow.carries_vectors(stepper))
            result, dataset = kept_run(
                stepper,
                schedule.times,
                observer,
                labelled,
                file=file,
                trackers=watchers,
                companion=companion,
                sound=Soundness(
                    0.0 if step.descends else rtol, teacher_term(problem), falls=step.learning_rate is None
                ),
            )
        finally:
            if companion is not None:
                companion.cancel()

    # === return
    _warn_margin(dataset)
    return checked_outcome(dataset, result.stop_reason, on_failure)


def check_flow_memory(problem: Problem, keep: str, times: int) -> None:
    """Refuse a flow that does not fit into memory, by its width."""
    check_memory(
        "width", problem.width, flow_numbers(problem.width, problem.num_directions, full=keep == "full", times=times)
    )


def _overlap_dataset(
    system: FlowSystem,
    prediction: EmergencePrediction | None,
    schedule: SaveAt,
    result: RunResult,
    errors: Mapping[str, NDArray[np.float64]],
    *,
    settings: Mapping[str, Any],
    extra: Mapping[str, Any],
    notes: Sequence[str],
) -> xr.Dataset:
    problem = system.problem
    m, P = problem.width, problem.num_directions
    observe = system.observer(settings["keep"])
    values = stack_records(result.records, len(schedule), lambda: observe(system.initial_state))
    values["emergence_time"] = result.event_times[:P]
    values["learned_time"] = result.event_times[P:]
    values |= errors
    if prediction is None:
        values |= no_prediction_values(P) | {"predicted_loss": np.full(len(schedule), np.nan)}
    else:
        values |= prediction_values(prediction)
        values["predicted_loss"] = sum_formula_loss(problem, prediction, schedule.times)
    margin = np.asarray(values["gram_margin"])
    attributes = {
        "answer": "overlaps",
        **extra,
        **run_attributes(result),
        "smallest_gram_margin": float(np.nanmin(margin)) if np.isfinite(margin).any() else None,
        "notes": joined([*notes, *([_NO_GREEDY] if prediction is None else prediction.notes)]),
    }
    coords: dict[str, Any] = {"time": schedule.times, "neuron": np.arange(m)}
    if settings["keep"] == "full":
        coords["neuron_2"] = np.arange(m)
    return make_dataset(
        values,
        problem=problem,
        title=_TITLES[system.name],
        coords=coords,
        solver={"answer": "overlaps", **settings},
        attributes=attributes,
    )


_TITLES = {
    "overlaps": "Coupled overlap flow of the two-homogeneous student",
    "finite-step": "Overlaps of the two-homogeneous student under SGD of a finite learning rate",
}
_NO_GREEDY = "k <= 2: directions do not decouple, so there is no greedy prediction of their times."


def _warn_margin(dataset: xr.Dataset) -> None:
    margin = dataset.attrs.get("smallest_gram_margin", 0.0)
    if margin < -GRAM_WARNING * dataset.attrs["rtol"]:
        msg = (
            f"No vectors have the computed overlaps: G - C T^-1 C^T reached an eigenvalue of {margin:.2g}; "
            "solve again with a smaller `rtol`."
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=3)


def _warn_truncation(problem: Problem) -> None:
    link = problem.activation
    if link.truncation_error > TRUNCATION_WARNING * np.sqrt(link.norm_squared):
        msg = (
            f"The flow sees {link.name} through its Hermite series of order {link.order}, which leaves out "
            f"{link.truncation_error:.2g} of its norm; SGD sees the function itself."
        )
        warnings.warn(msg, UserWarning, stacklevel=3)
