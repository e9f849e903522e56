"""One spherical neuron and one direction by their correlation; the equations are in `equations.correlation`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynamics.problem import is_correlation
from dynamics.problem.checks import checked_number, require
from dynamics.runs.dataset import prediction_attributes, prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve.integration import Integration, Settings, Watch, solved
from dynamics.solve.steps import StepSettings, checked_batch_size, chosen_method
from dynamics.theory.prediction import default_schedule, predict, sum_formula_loss
from hermite.text.messages import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from dynamics.equations.correlation import CorrelationSystem
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.integration import Run

__all__ = ["solve_correlation"]


def solve_correlation(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    learning_rate: float | None = None,
    step_theory: Literal["finite-d"] | None = None,
    batch_size: int = 1,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    error_estimate: bool | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Integrate the overlap C = w·θ of one spherical neuron that descends −E[f* σ(w·x)], smoothed or not.

    .. math:: C' = a\, g_\lambda'(C)\, (1 - C^2), \qquad
       g_\lambda = \sum_k c_k c^*_k (1+\lambda^2)^{-k/2} \sum_j \binom{k}{2j} C^{k-2j} \lambda^{2j} (1-C^2)^j \mu_j,
       \quad \mu_j = \prod_{i<j} \frac{2i+1}{d-1+2i},

    the flow averaged over neurons (w + λz)/√(1 + λ²), z uniform on the unit sphere orthogonal to w; exact at every d.
    With a learning rate η, the mean motion under steps w ← (w + η u)/|w + η u| to second order in η, u the mean of
    f* ψ x_⊥ over B samples,

    .. math:: C' = D - \frac{\eta}{2} C \Big[\frac1B E[y^2 \psi^2 r^2]
       + \Big(1 - \frac1B\Big) \frac{D^2}{1 - C^2}\Big], \qquad D = a\, g_\lambda'(C) (1 - C^2),

    with ψ the derivative of the smoothed link, y the noisy label and r² = |x_⊥|²; the means are exact at every d.

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``, ``objective="correlation"``, one neuron and one direction; any λ = `smoothing`.
        A link that is smoothed has a degree of at most 12, or a series cut there by ``order=12``.
    save_at : SaveAt, optional
        Saved times. Default: 150 geometric times from a tenth of the emergence to 2.5 times the learned time.
    keep : {"full", "summary"}
        "summary" leaves out `teacher_overlap`.
    method : str
        "explicit" (order 8), "bdf" (order 1 to 5), "sundials" (CVODE, an extra), "scipy:<name>" as a referee, or
        "auto": "explicit" while that is cheap, else "bdf".
    rtol, atol : float
        Wanted accuracy of artanh C; `atol` is in units of 1/√d.
    learning_rate : float, optional
        η > 0 of SGD, dimensionless; time is η · step. Default: the flow, η → 0, which the label noise does not change.
        Needs polynomial links of degree at most 12.
    step_theory : {"finite-d"}, optional
        With a learning rate: the means of a step are those at the problem's own d.
    batch_size : int
        Number B of samples per step of SGD.
    trackers, progress, max_runtime, on_failure, error_estimate, checkpoint
        Watch, bound, end, check and keep the run, as in `solve_overlaps`.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)² of f = σ(w·x), which is not what is descended, and `predicted_loss(time)`, that of the
        start until the predicted emergence and of C = 1 afterwards; `max_overlap(time, direction)` and
        `learned_mass(time, direction)`, g_3(C)/g_3(1) with g_3(s) = Σ_{j≥3} c_j² s^j; "full" adds
        `teacher_overlap(time, neuron, direction)`. `emergence_time`, first C² ≥ ½ (C > 0 for odd information exponent),
        `learned_time`, first g_3(C)/g_3(1) ≥ a/2 (NaN where the link has no degree from 3 on), and both as the flow
        predicts them by quadrature, with estimated errors as in `solve_overlaps`. Dimensionless; times after an early
        stop hold NaN.

    Raises
    ------
    SolveError, SolveInterrupted, TypeError, ValueError
        As `solve_overlaps`.

    References
    ----------
    Damian, Nichani, Ge and Lee, arXiv:2305.10633; without smoothing Ben Arous, Gheissari and Jagannath,
    arXiv:2003.10409.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> asked = {"teacher": Teacher([1.0]), "width": 1, "dimension": 64, "student": "spherical"}
    >>> start = ([[0.125]], [[1.0]], [1.0])
    >>> problem = Problem(activation="he3", objective="correlation", initial_overlaps=start, **asked)
    >>> flow = solve_correlation(problem, save_at=SaveAt.at([0.0, 2.1412163]), progress=False)
    >>> flow.teacher_overlap.values.ravel().round(6).tolist()
    [0.125, 0.5]
    """
    return solved(
        "correlation",
        problem,
        Settings(save_at, keep, method, rtol, atol, error_estimate),
        Watch(trackers, progress, max_runtime, on_failure, checkpoint),
        partial(_integration, learning_rate=learning_rate, step_theory=step_theory, batch_size=batch_size),
    )


def _integration(run: Run, *, learning_rate: object, step_theory: object, batch_size: object) -> Integration:
    from dynamics.equations.mean_field import teacher_square
    from dynamics.integrators.methods import FlowMethod

    problem = run.problem
    system, step = correlation_system(problem, learning_rate, step_theory, batch_size)
    prediction, stepped = predict(problem), step.learning_rate is not None
    schedule = run.schedule(lambda: default_schedule(problem, prediction))
    last = float(schedule.times[-1])
    return Integration.of(
        system,
        run,
        title="Correlation of one neuron and one direction" + (" under steps of SGD" if stepped else ""),
        schedule=schedule,
        method=FlowMethod(system, chosen_method(system, run.method, last), run.atol, last_time=last),
        coords={"neuron": np.arange(1)} if run.keep == "full" else {},
        constants={
            **prediction_values(prediction),
            "predicted_loss": sum_formula_loss(problem, prediction, schedule.times),
        },
        settings=step.arguments,
        attributes=lambda _: prediction_attributes(prediction) | (step.arguments if stepped else {}),
        notes=prediction.notes,
        sound=Soundness(run.rtol, teacher_square(problem), falls=not stepped and problem.smoothing == 0.0),
    )


def correlation_system(
    problem: Problem, learning_rate: object, step_theory: object, batch_size: object
) -> tuple[CorrelationSystem, StepSettings]:
    """Return the equations and the steps, or refuse a problem or a step that they do not describe."""
    from dynamics.equations.correlation import CorrelationSystem

    require(is_correlation(problem), "Argument `problem` must have `objective` 'correlation' here, but has 'squared'.")
    require(
        step_theory in (None, "finite-d"),
        f"Argument `step_theory` must be 'finite-d' for the objective 'correlation', but is {shown(step_theory)}.",
    )
    rate = None if learning_rate is None else checked_number(learning_rate, "learning_rate", positive=True)
    require(
        rate is not None or step_theory is None,
        f"Argument `step_theory` must be None unless `learning_rate` is given, but is {shown(step_theory)}.",
    )
    size = checked_batch_size(batch_size, steps=rate is not None)
    return CorrelationSystem(problem, rate or 0.0, size), StepSettings(rate, "finite-d" if rate else None, size)


def check(problem: Problem, options: Mapping[str, Any]) -> None:
    """Refuse a link of which the means are not known."""
    correlation_system(problem, *(options[name] for name in ("learning_rate", "step_theory", "batch_size")))
