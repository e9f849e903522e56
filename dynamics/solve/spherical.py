"""The spherical network of finite width, in its unit vectors; the equations are in `equations.spherical`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dynamics.equations.mean_field.checks import warn_of_mixture
from dynamics.problem import check_problem
from dynamics.problem.checks import check_memory, checked_integer, checked_number
from dynamics.problem.start import ARRAYS_OF_START
from dynamics.runs.dataset import no_prediction_values
from dynamics.runs.soundness import Soundness
from dynamics.solve.mean_field import LOSS_LEVELS, default_mean_field_schedule
from dynamics.solve.registry import registered
from dynamics.solve.skeleton import Integration, PlainMethod, answered
from dynamics.solve.step_settings import checked_batch_size
from dynamics.solve.truncation import CutLink, halved
from dynamics.threads.blas import blas_threads_for
from hermite.text.messages import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import xarray as xr

    from dynamics.equations.spherical.system import SphericalSystem
    from dynamics.equations.spherical_step.system import SphericalStepSystem
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt
    from dynamics.runs.run_file import RunFile
    from dynamics.runs.trackers import Tracker
    from dynamics.solve.asked import Asked
    from hermite.arrays import Array, Integers

__all__ = ["coupled_problem", "solve_spherical"]


def solve_spherical(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    keep: Literal["full", "summary"] = "full",
    method: str = "explicit",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    learning_rate: float | None = None,
    step_theory: Literal["infinite-d"] = "infinite-d",
    batch_size: int = 1,
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

    the flow of ½ E(f − f*)² with velocities scaled by the width, of which `solve_mean_field` is the limit m → ∞. With a
    learning rate η, the mean motion of C = WΘᵀ and G = WWᵀ under SGD on B samples per step, tangential steps scaled by
    the width and back to the sphere, at γ = η d as d → ∞: the flow, and with ē = f − f*

    .. math:: -\frac{\gamma}{2B} V_{ii} C_{ip}, \qquad
       \frac{\gamma}{B} \big[V_{ij} - \tfrac12 G_{ij} (V_{ii} + V_{jj})\big], \qquad
       V_{ij} = E[(\bar e^2 + \tau^2)\, \sigma'_i \sigma'_j].

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
        Wanted accuracy of the neurons' components, or of C and G; `atol` is in units of 1/√d.
    learning_rate : float, optional
        η > 0 of SGD, dimensionless; time is η · step. Default: the flow, η → 0, which the label noise does not change.
        Needs a polynomial link (up to degree 12) and teacher link, or 'erf' and a teacher of 'erf', 'relu', 'step',
        'sign' or a polynomial.
    step_theory : {"infinite-d"}
        The limit d → ∞ at fixed η d, taken at the problem's η d: errors at finite d fall like 1/d.
    batch_size : int
        Number B of samples per step of SGD, far below d.
    trackers, progress, max_runtime, on_failure, error_estimate, checkpoint
        Watch, bound, end, check and keep the run, as in `solve_overlaps`.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)²; `loss_level_time(loss_level)`, when it falls below a fraction of E f*²; per direction
        `max_overlap(time, direction)` and `emergence_time`, first max_i C_ip² ≥ ½ (C > 0 for odd information exponent);
        `learned_mass(time, direction)`, Σ_i g_3(C_ip)/(m g_3(1)) with g_3(s) = Σ_{j≥3} c_j² s^j, and `learned_time`,
        when it reaches a_p/2 (NaN where the link has no degree from 3 on); the estimated errors of loss and times,
        `loss_error(time)`, `loss_level_time_error`, `emergence_time_error`, `learned_time_error` (inf if the looser run
        does not agree that it happens); of a flow whose links are cut series what that changes, the same names ending
        in `_truncation_error`; "full" adds `teacher_overlap(time, neuron, direction)` and `neuron_vector(time, neuron,
        flow_axis)`, the neurons in D = min(d, r + m) coordinates, the teacher's axes first; with a learning rate, of
        which only overlaps are known, `student_overlap(time, neuron, neuron_2)` instead, and always
        `gram_margin(time)`. Dimensionless; times after an early stop hold NaN.

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
    One evaluation costs 4 m² D operations, on one thread: 2 ms at m = 1024, d = 16; with a learning rate m² (m + P)²
    operations times a number that grows with the degree.

    References
    ----------
    Glasgow, Wu and Bruna, arXiv:2504.13110. SGD on the sphere: Ben Arous, Gheissari and Jagannath, arXiv:2003.10409;
    the limit at fixed η d: Saad and Solla, Phys. Rev. E 52, 4225 (1995).

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=64, dimension=16, student="spherical")
    >>> flow = solve_spherical(problem, save_at=SaveAt.at([0.0, 5.0]), progress=False)
    >>> flow.neuron_vector.shape, bool(flow.loss[1] < flow.loss[0])
    ((2, 64, 16), True)
    """
    return answered(registered("spherical"), _build, problem, locals())


def _build(asked: Asked, *, learning_rate: object, step_theory: object, batch_size: object) -> Integration:
    problem = asked.problem
    schedule = asked.schedule(lambda: default_mean_field_schedule(problem))
    rate = None if learning_rate is None else checked_number(learning_rate, "learning_rate", positive=True)
    size = checked_batch_size(batch_size, steps=rate is not None)
    _check_theory(step_theory)
    warn_of_mixture(problem)
    system = _system(problem, rate, size)
    P = problem.num_directions
    neurons = np.arange(problem.width)
    coords: dict[str, Array | Integers] = {"loss_level": np.array(LOSS_LEVELS)}
    if asked.keep == "full":
        coords |= {"neuron": neurons} if rate is None else {"neuron": neurons, "neuron_2": neurons}
    step = {"learning_rate": rate, "step_theory": step_theory, "batch_size": size}
    return Integration.of(
        system,
        asked,
        title="Spherical network of finite width" + ("" if rate is None else " under SGD of a finite learning rate"),
        schedule=schedule,
        events={"loss_level_time": len(LOSS_LEVELS), "emergence_time": P, "learned_time": P},
        coords=coords,
        constants=no_prediction_values(P),
        settings=step,
        says=lambda _: {"teacher_loss": system.teacher_loss()} | ({} if rate is None else step),
        notes=["Spherical networks have no greedy prediction of times."],
        sound=Soundness(asked.rtol, system.teacher_loss(), falls=rate is None),
        loss=system.loss if asked.estimates(asked.method) else None,
        cut=_cut(asked) if rate is None and asked.estimates(asked.method) else None,
        # The products of a strip with all neurons are too thin for a second thread.
        threads=lambda: blas_threads_for(0),
    )


def _cut(asked: Asked) -> CutLink | None:
    """Return the flow of links with half of their order, None where what their series leave out cannot be seen."""
    found = halved(asked.problem, asked.rtol)
    if found is None:
        return None
    system = _system(found[0], None, 1)
    return CutLink(PlainMethod(system, asked.method, asked.atol), system.loss, found[1])


def _check_theory(step_theory: object) -> None:
    """Refuse what does not close."""
    if step_theory != "infinite-d":
        msg = (
            "Argument `step_theory` must be 'infinite-d' for a spherical student, whose mean step at finite d is no "
            f"finite sum because it divides by a length, but is {shown(step_theory)}."
        )
        raise ValueError(msg)


def _system(problem: Problem, rate: float | None, size: int) -> SphericalSystem | SphericalStepSystem:
    """Return the flow, or the mean steps of a learning rate."""
    if rate is None:
        from dynamics.equations.spherical.system import SphericalSystem

        return SphericalSystem(problem, LOSS_LEVELS)
    from dynamics.equations.spherical_step.system import SphericalStepSystem

    return SphericalStepSystem(problem, LOSS_LEVELS, rate, size)


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
