"""The public questions: problem → system → run → dataset.

Each function here reads top to bottom: check, build, run, return. The physics is in `systems` and `prediction`, the
stepping in `integrators`, the loop in `run`, names and labels in `dataset`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.dataset import make_dataset, prediction_values
from dynamics.outcome import checked_outcome, run_attributes, stack_records
from dynamics.prediction import predict, sum_formula_loss
from dynamics.problem import check_problem, checked_number
from dynamics.schedule import DEFAULT_COUNT, SaveAt, checked_schedule
from dynamics.threads import blas_threads_for
from dynamics.trackers import MaxRuntime, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.prediction import EmergencePrediction
    from dynamics.problem import Problem
    from dynamics.run import RunResult
    from dynamics.systems.overlaps import OverlapSystem
    from dynamics.trackers import Tracker

#: A negative realisability margin is reported beyond this multiple of `rtol`.
GRAM_WARNING = 1e3
#: Below this the error estimate of a step is its own rounding.
SMALLEST_RTOL = 1e-14
#: The default schedule ends at this multiple of the last predicted learned time. Interactions delay the last direction:
#: by a factor of 1.02 to 1.69 in eight random starts of the main command.
LAST_LEARNED_FACTOR = 2.5
#: Number of stability-limited steps of the explicit pair above which "auto" takes the stiff method.
EXPLICIT_STEP_LIMIT = 3000.0
#: Part of the norm of a link that its series may leave out without a warning.
TRUNCATION_WARNING = 1e-2


def predict_emergence(problem: Problem, *, save_at: SaveAt | None = None) -> xr.Dataset:
    r"""Predict when each direction emerges, without integrating anything.

    Neurons are matched greedily to directions by a_q |C_iq(0)|^(k−2); each pair is then taken alone:

    .. math:: T_p = \frac{1}{k (k-2)\, c_k^2\, a_p |C_0|^{k-2}} \;\text{(leading order)}, \qquad
       t = \int \frac{ds}{a_p\, g'(s) (1-s^2)} \;\text{(exact transit to } C^2 = \tfrac12)

    and the loss is the sum formula E f*² − g(1) Σ_p a_p² 1{t ≥ learned time of p}, norm lag included.

    Parameters
    ----------
    problem : Problem
        Information exponent k ≥ 3.
    save_at : SaveAt, optional
        Times of the loss. Default: 150 geometric times from a tenth of the first predicted emergence to 2.5 times the
        last predicted learned time.

    Returns
    -------
    Dataset
        `loss(time)`, and per direction `matched_neuron`, `leading_order_time`, `predicted_emergence_time`,
        `predicted_learned_time` (inf if unmatched), `emergence_time` and `learned_time` (the same, NaN if never).

    Raises
    ------
    ValueError
        For k ≤ 2: such directions do not decouple.

    References
    ----------
    Ren, Nichani, Wu, Lee, arXiv:2504.19983.
    """
    check_problem(problem)
    prediction = predict(problem)
    schedule = checked_schedule(save_at, default_schedule(problem, prediction))
    values = {
        **prediction_values(prediction),
        "emergence_time": _never_as_nan(prediction.predicted_emergence_time),
        "learned_time": _never_as_nan(prediction.predicted_learned_time),
        "loss": sum_formula_loss(problem, prediction, schedule.times),
    }
    return make_dataset(
        values,
        problem=problem,
        title="Predicted emergence of teacher directions, without integration",
        coords={"time": schedule.times},
        solver={"answer": "prediction"},
        attributes={"answer": "prediction", "notes": _joined(prediction.notes)},
    )


def solve_decoupled(problem: Problem, *, save_at: SaveAt | None = None) -> xr.Dataset:
    r"""Solve every matched pair of neuron and direction alone, exactly and without time stepping.

    .. math:: C' = a\, g'(C)(1 - C^2), \qquad (\ln n)' = 4 (a\, g(C) - n\, g(1)), \qquad
       L = E f^{*2} + \sum_{\text{pairs}} \left[ n^2 g(1) - 2 n a\, g(C) \right]

    All pairs follow one universal trajectory in a·t, which is tabulated by quadrature; P up to 10^7.

    Parameters
    ----------
    problem : Problem
        Information exponent k ≥ 3.
    save_at : SaveAt, optional
        As in `predict_emergence`.

    Returns
    -------
    Dataset
        `loss(time)`, per-direction times, and up to P = 10^4 the histories `overlap(time, direction)` and
        `matched_squared_norm(time, direction)` (NaN for directions without a neuron).

    Raises
    ------
    ValueError
        For k ≤ 2: such directions do not decouple.
    """
    from dynamics.systems.decoupled import solve_pairs

    check_problem(problem)
    prediction = predict(problem)
    schedule = checked_schedule(save_at, default_schedule(problem, prediction))
    solution = solve_pairs(problem, prediction, schedule.times)
    values: dict[str, Any] = {
        **prediction_values(prediction),
        "emergence_time": solution.emergence_time,
        "learned_time": solution.learned_time,
        "loss": solution.loss,
        "predicted_loss": sum_formula_loss(problem, prediction, schedule.times),
    }
    if solution.overlap is not None and solution.squared_norm is not None:
        values |= {"overlap": solution.overlap, "matched_squared_norm": solution.squared_norm}
    return make_dataset(
        values,
        problem=problem,
        title="Decoupled flow of matched pairs",
        coords={"time": schedule.times},
        solver={"answer": "decoupled"},
        attributes={"answer": "decoupled", "notes": _joined(dict.fromkeys(prediction.notes + solution.notes))},
    )


def solve_overlaps(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
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
        "auto", "explicit" (order 8), "stiff" (matrix-free BDF), "sundials" (the same by CVODE, an extra), or
        "scipy:<name>" as a referee.
    rtol, atol : float
        Tolerances per step on C, G and ln n; `atol` of C and G is in units of 1/√d, the size of a random overlap.
    trackers : sequence of Tracker
        Watch the run and may stop it.
    progress : bool, optional
        Progress bar on stderr; by default if stderr is a terminal.
    max_runtime : float, optional
        Wall-clock budget in seconds.
    on_failure : {"raise", "return"}
        What to do when the integration fails or is interrupted: raise with the partial dataset attached, or return it.

    Returns
    -------
    Dataset
        `loss(time)` and `predicted_loss(time)` (sum formula), the overlaps chosen by `keep`, `gram_margin(time)`
        (smallest eigenvalue of G − C T⁻¹ Cᵀ, negative only by error), and per direction the predicted and the measured
        `emergence_time` and `learned_time`, located on the dense output (NaN if never). Times after an early stop hold
        NaN; `stop_reason` says why.

    Raises
    ------
    SolveError
        If the integration fails and `on_failure` is "raise"; `error.dataset` holds what was computed.
    SolveInterrupted
        A KeyboardInterrupt with `dataset`, if Ctrl-C was pressed and `on_failure` is "raise".
    TypeError, ValueError
        For bad arguments, before any work.

    Notes
    -----
    One evaluation costs 4 m² P + 2 m³ operations. The flow sees the Hermite series of the link: for a link that is not
    a polynomial it is the flow of the truncated series, and a warning says how much was left out.
    """
    # === check
    from dynamics.integrators import METHODS, check_method

    check_problem(problem)
    check_method(method, ("auto", *METHODS))
    _check_choice("keep", keep, ("full", "summary"))
    _check_choice("on_failure", on_failure, ("raise", "return"))
    rtol, atol = checked_number(rtol, "rtol", positive=True), checked_number(atol, "atol", positive=True)
    if not SMALLEST_RTOL <= rtol < 1:
        msg = f"Argument `rtol` must be at least {SMALLEST_RTOL:g} and below 1, but is {rtol}."
        raise ValueError(msg)
    watchers = [*trackers, Progress(force=bool(progress))] if progress is not False else list(trackers)
    if max_runtime is not None:
        watchers.append(MaxRuntime(max_runtime))
    prediction = predict(problem) if problem.information_exponent > 2 else None
    schedule = checked_schedule(save_at, default_schedule(problem, prediction))
    _warn_truncation(problem)

    # === build and run
    from dynamics.systems.overlaps import OverlapSystem

    system = OverlapSystem(problem)
    chosen = choose_method(system, float(schedule.times[-1])) if method == "auto" else method
    with blas_threads_for(max(problem.width, problem.num_directions)):
        result, compile_seconds = _integrate(system, chosen, schedule, keep, rtol, atol, watchers)

    # === return
    dataset = _overlap_dataset(
        system,
        prediction,
        schedule,
        result,
        keep=keep,
        solver={"answer": "overlaps", "keep": keep, "method": method, "rtol": rtol, "atol": atol},
        extra={"method": chosen, "rtol": rtol, "atol": atol, "compile_seconds": compile_seconds},
    )
    _warn_margin(dataset)
    return checked_outcome(dataset, result.stop_reason, on_failure)


def choose_method(system: OverlapSystem, last_time: float) -> str:
    """Return "explicit" or "stiff" by the number of steps that stability alone would force on the explicit pair.

    The explicit pair of order 8 is stable to a step of about 6 over the fastest rate; below ~3000 such steps it is fast
    as the stiff method, and its kernels compile in a third of the time.
    """
    stability_steps = system.stiffness() * last_time / 6.0
    return "explicit" if stability_steps < EXPLICIT_STEP_LIMIT else "stiff"


def default_schedule(problem: Problem, prediction: EmergencePrediction | None) -> SaveAt:
    """Return the schedule used when none is given; see `solve_overlaps`."""
    if prediction is not None:
        learned = np.where(
            np.isfinite(prediction.predicted_learned_time),
            prediction.predicted_learned_time,
            prediction.predicted_emergence_time,
        )
        finite = np.isfinite(learned)
        if finite.any():
            last = LAST_LEARNED_FACTOR * float(learned[finite].max())
            first = 0.1 * float(prediction.predicted_emergence_time[finite].min())
            return SaveAt.geometric(max(first, 1e-3 * last / DEFAULT_COUNT, 1e-12), max(last, 1e-9), DEFAULT_COUNT)
    a_min = float(problem.teacher.coefficients.min())
    slope = float(problem.activation.kernel_derivative(1.0))
    growth = np.log(problem.dimension) + abs(np.log(float(np.min(problem.start().squared_norm))))
    last = 20.0 * max(growth, 1.0) / (a_min * slope)
    return SaveAt.geometric(1e-4 * last, last, DEFAULT_COUNT)


def _integrate(
    system: OverlapSystem,
    method: str,
    schedule: SaveAt,
    keep: str,
    rtol: float,
    atol: float,
    trackers: Sequence[Tracker],
) -> tuple[RunResult, float]:
    from dynamics.integrators import load_method, make_stepper
    from dynamics.run import run

    compiled = load_method(method, system.pieces)
    stepper = make_stepper(
        method,
        compiled,
        system.initial_state,
        system.parameters,
        system.sizes,
        np.empty(system.work_size),
        rtol=rtol,
        atol=system.absolute_tolerance(atol),
        num_events=system.num_events,
    )
    result = run(stepper, schedule.times, system.observer(keep), trackers=trackers)
    return result, compiled.compile_seconds


def _overlap_dataset(
    system: OverlapSystem,
    prediction: EmergencePrediction | None,
    schedule: SaveAt,
    result: RunResult,
    *,
    keep: str,
    solver: Mapping[str, Any],
    extra: Mapping[str, Any],
) -> xr.Dataset:
    problem = system.problem
    m, P = problem.width, problem.num_directions
    template = system.observer(keep)(system.initial_state)
    values = stack_records(result.records, len(schedule), template)
    values["emergence_time"] = result.event_times[:P]
    values["learned_time"] = result.event_times[P:]
    if prediction is None:
        values |= _no_prediction(P, len(schedule))
    else:
        values |= prediction_values(prediction)
        values["predicted_loss"] = sum_formula_loss(problem, prediction, schedule.times)
    margin = np.asarray(values["gram_margin"])
    attributes = {
        "answer": "overlaps",
        **extra,
        **run_attributes(result),
        "smallest_gram_margin": float(np.nanmin(margin)) if np.isfinite(margin).any() else None,
        "notes": _NO_GREEDY if prediction is None else _joined(prediction.notes),
    }
    coords: dict[str, Any] = {"time": schedule.times, "neuron": np.arange(m)}
    if keep == "full":
        coords["neuron_2"] = np.arange(m)
    return make_dataset(
        values,
        problem=problem,
        title="Coupled overlap flow of the two-homogeneous student",
        coords=coords,
        solver=solver,
        attributes=attributes,
    )


def _joined(notes: Iterable[str]) -> str:
    return "; ".join(notes)


_NO_GREEDY = "k <= 2: directions do not decouple, so there is no greedy prediction of their times."


def _no_prediction(num_directions: int, num_times: int) -> dict[str, NDArray[Any]]:
    nothing = np.full(num_directions, np.nan)
    no_loss = np.full(num_times, np.nan)
    names = ("leading_order_time", "predicted_emergence_time", "predicted_learned_time")
    return {
        "matched_neuron": np.full(num_directions, -1),
        "predicted_loss": no_loss,
        **dict.fromkeys(names, nothing),
    }


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


def _never_as_nan(times: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(times), times, np.nan)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        msg = f"Argument `{name}` must be one of {', '.join(map(repr, choices))}, but is {value!r}."
        raise ValueError(msg)
