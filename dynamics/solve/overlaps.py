"""The coupled overlap flow, and the mean motion of overlaps under steps of a finite learning rate.

The equations are in `equations.overlaps` and `equations.finite_step`, what a learning rate asks for in `step_settings`,
the choice of method in `integrators.flow_methods`, the run in `skeleton`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.problem.problem import check_flow_memory
from dynamics.runs.dataset import prediction_attributes, prediction_values
from dynamics.runs.soundness import Soundness
from dynamics.solve.registry import registered
from dynamics.solve.skeleton import Integration, answered
from dynamics.solve.step_settings import checked_step, limit_of, make_system, step_attributes, step_notes, warn_limit
from dynamics.solve.truncation import CutLink, halved
from dynamics.theory.prediction import PAIRS, default_schedule, predict, predict_all, sum_formula_loss
from dynamics.threads.blas import blas_threads_for

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.equations.interface import FlowSystem
    from dynamics.integrators.flow_methods import FlowMethod
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.asked import Asked
    from dynamics.solve.step_settings import StepSettings
    from dynamics.theory.prediction import EmergencePrediction
    from hermite.arrays import Array

__all__ = ["build", "first_method", "prepare", "solve_overlaps"]

#: A negative realisability margin is reported beyond this multiple of `rtol`.
GRAM_WARNING = 1e3
#: Part of the norm of a link that its series may leave out without a warning.
TRUNCATION_WARNING = 1e-2


_TITLES = {
    "overlaps": "Coupled overlap flow of the two-homogeneous student",
    "classes": "Coupled overlap flow of the two-homogeneous student on inputs that are not isotropic",
    "class-descent": "Gradient descent of the two-homogeneous student on inputs that are not isotropic",
    "class-step": "Overlaps of the two-homogeneous student under SGD on inputs that are not isotropic",
    "finite-step": "Overlaps of the two-homogeneous student under SGD of a finite learning rate",
}


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
        loss and times: two thirds more work. Where the link's series is cut, once more with half of its order. By
        default for all methods but the referees.
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
        if never): first C_ip² ≥ ½, and Σ_i n_i g_3(C_ip)/g_3(1) ≥ a_p/2, g_3(s) = Σ_{j≥3} c_j² s^j (NaN with the
        attribute `undefined` where the link has no degree from 3 on), with their estimated errors `loss_error(time)`,
        `emergence_time_error`, `learned_time_error` (inf if the looser run does not agree that it happens). These are
        errors of integration; what cutting the series of a link changes is in `loss_truncation_error`,
        `emergence_time_truncation_error`, `learned_time_truncation_error`, where it may be more than the tolerance.
        Times after an early stop hold NaN; `stop_reason` says why.

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
    return answered(registered("overlaps"), build, problem, locals())


def prepare(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return what `build` may be given beside the arguments of each of many problems, computed for all at once."""
    return [{"prediction": prediction} for prediction in predict_all(problems)]


def build(
    asked: Asked,
    *,
    learning_rate: object,
    step_theory: object,
    batch_size: object,
    device: str | None,
    prediction: EmergencePrediction | None = None,
) -> Integration:
    """Return what is integrated, from the arguments of `solve_overlaps`."""
    from dynamics.integrators.flow_methods import FlowMethod

    problem = asked.problem
    step = checked_step(learning_rate, asked.method, step_theory, batch_size)
    prediction = predict(problem) if prediction is None else prediction
    # Pairs alone say how long a flow is to be followed, and what the noise of steps does to it.
    pairs = prediction if prediction.theory == PAIRS else None
    schedule = asked.schedule(lambda: default_schedule(problem, pairs))
    check_flow_memory(problem, keep=asked.keep, times=len(schedule))
    _warn_truncation(problem)
    system = make_system(problem, step)
    limit = limit_of(problem, step)
    warn_limit(step, limit)
    flow = FlowMethod(
        system,
        first_method(system, asked.method, float(schedule.times[-1]), device),
        asked.atol,
        learning_rate=step.learning_rate if step.descends else None,
        device=device,
        last_time=float(schedule.times[-1]),
        rtol=asked.rtol,
    )
    estimates = _estimates(asked, step, flow.name)
    neurons = np.arange(problem.width)
    return Integration(
        title=_TITLES[system.name],
        schedule=schedule,
        method=flow,
        observe=system.observer(asked.keep, lambda: not flow.carries_vectors),
        start=system.initial_state,
        events={"emergence_time": problem.num_directions, "learned_time": problem.num_directions},
        coords={"neuron": neurons} | ({"neuron_2": neurons} if asked.keep == "full" else {}),
        constants=_predicted(problem, prediction, schedule),
        settings={
            "learning_rate": step.learning_rate,
            "step_theory": step.step_theory,
            "batch_size": step.batch_size,
            "device": device,
        },
        says=lambda values: {
            **step_attributes(step, limit),
            **prediction_attributes(prediction),
            "smallest_gram_margin": _smallest(values["gram_margin"]),
        },
        notes=[*step_notes(problem, step, limit, pairs), *prediction.notes],
        sound=Soundness(0.0 if step.descends else asked.rtol, system.teacher_term, falls=step.learning_rate is None),
        loss=system.loss_of_states() if estimates else None,
        cut=_cut(asked, flow, step) if estimates else None,
        threads=lambda: blas_threads_for(problem.width, flow.name),
        warn=_warn_margin,
    )


def _cut(asked: Asked, flow: FlowMethod, step: StepSettings) -> CutLink | None:
    """Return the flow of the link with half of its order, None where what its series leaves out cannot be seen."""
    from dynamics.integrators.flow_methods import FlowMethod

    found = halved(asked.problem, asked.rtol)
    if found is None:
        return None
    system = make_system(found[0], step)
    method = FlowMethod(system, flow.name, asked.atol, device=flow.device, last_time=flow.last_time, rtol=asked.rtol)
    return CutLink(method, system.loss_of_states(), found[1])


def first_method(system: FlowSystem, method: str, last_time: float, device: object = None) -> str:
    """Return the method that a run begins with: where it is "auto", the faster one for the system and its horizon."""
    from dynamics.integrators.flow_methods import choose_method

    if method != "auto":
        return method
    chosen = "stiff" if device is not None else choose_method(system, last_time)
    return "bdf" if chosen == "stiff" and system.name == "classes" and device is None else chosen


def _estimates(asked: Asked, step: StepSettings, method: str) -> bool:
    """Return whether errors are estimated; descent has no tolerance that a looser run could relax."""
    if step.descends and asked.error_estimate:
        msg = "Argument `error_estimate` must not be True for method 'gradient-descent', which has no tolerance."
        raise ValueError(msg)
    return not step.descends and asked.estimates(method)


def _predicted(problem: Problem, prediction: EmergencePrediction, schedule: SaveAt) -> dict[str, Any]:
    return {**prediction_values(prediction), "predicted_loss": sum_formula_loss(problem, prediction, schedule.times)}


def _smallest(margin: Array) -> float | None:
    """Return the smallest known realisability margin, None where it was not monitored."""
    return float(np.nanmin(margin)) if np.isfinite(margin).any() else None


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
