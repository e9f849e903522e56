"""The spherical network of finite width, in its unit vectors; the equations are in `equations.spherical`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dynamics.compiler.threads import blas_threads_for
from dynamics.equations.mean_field.checks import warn_of_mixture
from dynamics.problem import check_problem
from dynamics.problem.checks import checked_integer
from dynamics.problem.memory import check_memory
from dynamics.problem.start import ARRAYS_OF_START
from dynamics.runs.dataset import no_prediction_values
from dynamics.runs.soundness import Soundness
from dynamics.solve.mean_field import LOSS_LEVELS, default_mean_field_schedule
from dynamics.solve.registry import registered
from dynamics.solve.skeleton import Integration, answered

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.skeleton import Asked

__all__ = ["coupled_problem", "solve_spherical"]


def solve_spherical(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "explicit",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    max_runtime: float | None = None,
    on_failure: Literal["raise", "return"] = "raise",
    error_estimate: bool | None = None,
    checkpoint: str | os.PathLike[str] | RunFile | None = None,
) -> xr.Dataset:
    r"""Integrate the spherical network of finite width, exactly, in its unit vectors.

    .. math:: f(x) = \frac1m \sum_i \sigma(w_i\cdot x), \quad |w_i| = 1, \qquad
       w_i' = (I - w_i w_i^T) \Big[ \sum_p a_p\, g^{*\prime}(w_i\cdot\theta_p)\, \theta_p
       - \frac1m \sum_j g'(w_i\cdot w_j)\, w_j \Big],

    the flow of ½ E(f − f*)² with velocities scaled by the width, of which `solve_mean_field` is the limit m → ∞.

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``; any teacher, whose link may differ from the student's. Links that are not
        polynomials enter as their truncated series.
    save_at : SaveAt, optional
        Saved times. Default: as `solve_mean_field`.
    keep : {"full", "summary"}
        "summary" leaves out what is per neuron.
    method : str
        "explicit" (order 8), or "scipy:<name>" as a referee.
    rtol, atol : float
        Wanted accuracy of the neurons' components; `atol` is in units of 1/√d.
    trackers, progress, max_runtime, on_failure, error_estimate, checkpoint
        Watch, bound, end, check and keep the run, as in `solve_overlaps`.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)²; `loss_level_time(loss_level)`, when it falls below a fraction of E f*²; per direction
        `max_overlap(time, direction)` and `emergence_time`, first max_i C_ip² ≥ ½ (C > 0 for odd information
        exponent); `learned_mass(time, direction)`, Σ_i g(C_ip)/(m g(1)), and `learned_time`, when it reaches a_p/2; the
        estimated errors of loss and times, `loss_error(time)`, `loss_level_time_error`, `emergence_time_error`,
        `learned_time_error` (inf if the looser run does not agree that it happens); "full" adds
        `teacher_overlap(time, neuron, direction)` and `neuron_vector(time, neuron, flow_axis)`, the neurons in
        D = min(d, r + m) coordinates, the teacher's axes first. Dimensionless; times after an early stop hold NaN.

    Raises
    ------
    SolveError, SolveInterrupted, TypeError, ValueError
        As `solve_overlaps`.

    Warns
    -----
    UserWarning
        If Σ a_p is not 1, so that no network fits the teacher.

    Notes
    -----
    One evaluation costs 4 m² D operations, on one thread: 2 ms at m = 1024, d = 16.

    References
    ----------
    Glasgow, Wu and Bruna, arXiv:2504.13110.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=64, dimension=16, student="spherical")
    >>> flow = solve_spherical(problem, save_at=SaveAt.at([0.0, 5.0]), progress=False)
    >>> flow.neuron_vector.shape, bool(flow.loss[1] < flow.loss[0])
    ((2, 64, 16), True)
    """
    return answered(registered("spherical"), _build, problem, locals())


def _build(asked: Asked) -> Integration:
    from dynamics.equations.spherical.system import SphericalSystem

    problem = asked.problem
    schedule = asked.schedule(lambda: default_mean_field_schedule(problem))
    warn_of_mixture(problem)
    system = SphericalSystem(problem, LOSS_LEVELS)
    P = problem.num_directions
    return Integration.of(
        system,
        asked,
        title="Spherical network of finite width",
        schedule=schedule,
        events={"loss_level_time": len(LOSS_LEVELS), "emergence_time": P, "learned_time": P},
        coords={"loss_level": np.array(LOSS_LEVELS)}
        | ({"neuron": np.arange(problem.width)} if asked.keep == "full" else {}),
        constants=no_prediction_values(P),
        says=lambda _: {"teacher_loss": system.teacher_loss()},
        notes=["Spherical networks have no greedy prediction of times."],
        sound=Soundness(asked.rtol, system.teacher_loss(), falls=True),
        loss=system.loss if asked.estimates(asked.method) else None,
        # The products of a strip with all neurons are too thin for a second thread.
        threads=lambda: blas_threads_for(0),
    )


def coupled_problem(problem: Problem, width: int, seed: int) -> Problem:
    """Return the same question for a network of this width, started from the first rows of one Gaussian matrix.

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``; its own width, seed and start are replaced.
    width : int
        Number of neurons m ≥ 1.
    seed : int
        Draws the matrix, N(0, 1) in d columns, whose rows are then scaled to length 1: neuron i is the same for every
        width above i.

    Raises
    ------
    TypeError, ValueError
        For bad arguments.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> narrow, wide = (coupled_problem(problem, width, seed=3).initial_weights for width in (4, 9))
    >>> bool((narrow == wide[:4]).all())
    True
    """
    check_problem(problem, "spherical")
    shape = (checked_integer(width, "width", minimum=1), problem.dimension)
    check_memory("width", shape[0], ARRAYS_OF_START * shape[0] * shape[1])
    weights = np.random.default_rng(checked_integer(seed, "seed", minimum=0)).standard_normal(shape)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return replace(problem, width=width, seed=0, initial_weights=weights, initial_overlaps=None)
