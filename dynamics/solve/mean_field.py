"""The infinite-width limit of a network, carried by particles; the equations are in `equations.mean_field`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from dynamics.commands.options import Values
from dynamics.equations import mean_field as equations
from dynamics.problem.checks import check_choice, require
from dynamics.problem.saved_times import DEFAULT_COUNT, SaveAt
from dynamics.runs.dataset import no_prediction_values
from dynamics.runs.trackers import Soundness
from dynamics.solve.arguments import ParticleArguments, integrated
from dynamics.solve.integration import AnswerCall, Integration, PlainMethod, integrate
from hermite.arrays import Array
from hermite.text.messages import warn

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem import Problem

NOTE = (
    "A continuous law has no emergence times; the student's own are those of loss and mass. Their errors are not "
    "estimated: they come from the number of particles rather than from `rtol`, so solve again with twice as many."
)
#: Fractions of E f*² below which the loss is timed.
LOSS_LEVELS = (0.5, 0.1)
#: Default saved times in units of the time that a neuron of overlap 1/√d needs alone.
FIRST_SAVED, LAST_SAVED = 0.02, 20.0


@integrated("mean-field", ParticleArguments, before="save_at", method="explicit")
def solve_mean_field(
    problem: Problem,
    *,
    particles: int | None = None,
    quadrature: Literal["auto", "graded", "quantiles", "random", "neurons"] = "auto",
    tracers: ArrayLike | None = None,
    **shared: Unpack[ParticleArguments],
) -> xr.Dataset:
    r"""Integrate the infinite-width limit of the spherical or the 2-homogeneous network, exactly at finite d.

    .. math:: f(x) = \int \sigma(w\cdot x)\, \rho_t(dw), \quad |w| = 1, \qquad
       w' = -(I - ww^T)\, \nabla_w \Big[\int K(w, w')\, \rho_t(dw') - \sum_p a_p\, g^*(w\cdot\theta_p)\Big],

    the flow of ½ E(f − f*)² with velocities scaled by the width, from the isotropic law (arXiv:2504.13110). It closes
    in the projections of w on the r axes that the teacher spans; particles carry them. The 2-homogeneous student is a
    measure of directions with masses n = |w|², from mass m σ0² on,

    .. math:: f(x) = \int \sigma(u\cdot x)\, \rho_t(du), \qquad u' = -(I - uu^T)\, \nabla\Phi(u), \qquad
       (\ln n)' = -4\, \Phi(u),

    with the same potential Φ, the bracket above: its limit m → ∞ at m σ0² fixed, in the clock of `solve_overlaps`.

    Parameters
    ----------
    problem : Problem
        With the spherical or the homogeneous student, in d ≥ r + 1 dimensions, r ≤ 8; for the spherical one the
        coefficients of the teacher are mixture weights. Links that are not polynomials enter as their truncated series.
    particles : int, optional
        Number N of particles. Default: 4096, or the width for "neurons", where nothing else is allowed.
    quadrature : {"auto", "graded", "quantiles", "random", "neurons"}
        How particles stand for the isotropic law. For r = 1: "graded" is a trapezoidal rule with weights, of error
        falling exponentially in N; "quantiles" are midpoint quantiles of equal weight. For every r: "random" draws from
        `problem.seed`; "neurons" takes the start of the problem's own m neurons. "auto" is "graded" for r = 1, else
        "random".
    tracers : array_like, shape (n, r), optional
        Projections on the teacher's axes, at most 1 in length, of neurons that follow the field and are no part of it;
        for the spherical student.
    save_at : SaveAt, optional
        Saved times. Default: 150 geometric times, to 20 times that which a neuron of overlap 1/√d needs alone.

    Returns
    -------
    Dataset
        `loss(time)`, E(f − f*)²; `learned_mass(time, direction)`, ∫ g_3(w·θ_p) dρ / g_3(1) with g_3 as in
        `solve_overlaps`, and `learned_time`, when it reaches a_p/2 (NaN where the link has no degree from 3 on);
        `loss_level_time(loss_level)`, when the loss falls below a fraction of E f*²; of the overlaps w·θ_p under ρ,
        `overlap_quantile(time, direction, share)` and `overlap_density(time, direction, overlap_bin)`;
        `weight(particle)`; the moments of ρ that make the field, `law_moment(time, moment)`; `tracer_projection(time,
        tracer, teacher_axis)` where tracers are given. "full" adds per particle `alpha` and its `velocity` α' for r =
        1, else `projection(time, particle, teacher_axis)`, the `speed` |w'|, the `local_hessian` (largest eigenvalue of
        the derivative of a particle's velocity in its position on the sphere) and `self_concordance`, |a| max(local
        Hessian, 0)/speed, and `self_concordance_supremum(time)` of it over |a| ≥ 1/√d; nearer to the equator the field
        may vanish, and the ratio has no bound. Where masses grow, `weight` has those at the start, `total_mass(time)`
        their sum, "full" `particle_mass(time, particle)`, and the law of the overlaps is by mass.
        `attrs["loss_is_monotone"]` says whether the loss never rises. `emergence_time` is NaN: a continuous law has
        mass next to every θ_p from the start. Dimensionless.

    Warns
    -----
    UserWarning
        If Σ a_p is not 1 for the spherical student, so that no law of neurons fits the teacher, or if the loss rises.

    Notes
    -----
    Tolerances are of the projections. One evaluation costs O(N J) operations for r = 1 and O(N (r+J choose J)) for r >
    1, J the degree of the link: the kernel is a sum of products, so that pairs of particles are never visited. Papers
    that use the flow of E(f − f*)² have half our times.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> flow = solve_mean_field(problem, particles=1024, save_at=SaveAt.at([0.0, 2.0, 10.0]), progress=False)
    >>> flow.loss.values.round(3).tolist()
    [0.99, 0.545, 0.19]
    """
    return integrate(
        "mean-field",
        mean_field_integration,
        problem,
        shared,
        particles=particles,
        quadrature=quadrature,
        tracers=tracers,
    )


def mean_field_integration(
    run: AnswerCall, *, particles: int | None, quadrature: str, tracers: ArrayLike | None
) -> Integration:
    """Return the integration of the particles that stand for an infinitely wide network, and of tracers that follow it.

    `particles` is their number, None for the default, `quadrature` the rule that places them, and `tracers` (n, r) are
    starts, in the r coordinates of the teacher, of neurons that the field moves but that do not act on it.
    """
    from dynamics.integrators.particles import stepper_of_particles

    problem = run.problem
    check_choice("quadrature", quadrature, equations.QUADRATURES)
    equations.check_axes(problem)
    rule = equations.checked_quadrature(problem, quadrature)
    count = equations.checked_particles(problem, particles, rule)
    followers = equations.checked_tracers(problem, tracers)
    saved_times = run.saved_times(lambda: default_mean_field_times(problem))
    if followers.size > 0:
        run.file.arguments["tracers"] = followers
    equations.warn_of_mixture(problem)
    system, moving, weights = _particles(problem, count, rule, followers)
    size, edges, P = system.initial_state.size, equations.overlap_edges(), problem.num_directions
    observe = equations.make_observer(system, run.keep, mirrored=equations.halves_are_alike(problem, count, rule))

    def observe_all(state: Array) -> dict[str, object]:
        tracers = {"tracer_projection": state[size:].reshape(followers.shape).copy()} if followers.size > 0 else {}
        return observe(state[:size]) | tracers

    return Integration(
        title=f"Mean field of the {problem.kind} network",
        saved_times=saved_times,
        method=PlainMethod(moving, run.method, run.atol, stepper_of_particles),
        observe=observe_all,
        start=moving.initial_state,
        events={"loss_level_time": len(LOSS_LEVELS), "learned_time": P},
        coords={
            "particle": np.arange(count),
            "loss_level": np.array(LOSS_LEVELS),
            "share": np.array(equations.SHARES),
            "overlap_bin": 0.5 * (edges[1:] + edges[:-1]),
        },
        constants={**no_prediction_values(P), "emergence_time": np.full(P, np.nan), "weight": weights},
        settings={"particles": count, "quadrature": rule},
        attributes=lambda values: {
            "particles": count,
            "quadrature": rule,
            "tracers": len(followers),
            "loss_floor": system.floor,
            "teacher_loss": system.teacher_loss(),
            **loss_rise(values["loss"], run.rtol),
        },
        notes=[NOTE],
        sound=Soundness(run.rtol, system.teacher_loss(), falls=True),
        warn=warn_of_rise,
    )


def _particles(
    problem: Problem, count: int, rule: str, followers: Array
) -> tuple[equations.MeanFieldSystem, equations.MeanFieldSystem, Array]:
    """Return the system of the particles, that of particles and tracers, and the weights (count,) of all particles.

    `followers` (n, r) are the starts of tracers; without any, both systems are one. If one half of the particles
    mirrors the other, the systems hold one half only.
    """
    projections, whole = equations.start_particles(problem, count, rule)
    weights = whole
    # Where one half of the particles mirrors the other, the systems have one half.
    if equations.halves_are_alike(problem, count, rule):
        projections, weights = projections[count // 2 :], 2.0 * whole[count // 2 :]
        whole = np.concatenate([weights[::-1], weights]) / 2.0
    make_system = equations.AxisSystem if problem.teacher.span == 1 else equations.SubspaceSystem
    system: equations.MeanFieldSystem = make_system(problem, projections, weights, LOSS_LEVELS)
    if followers.size == 0:
        return system, system, whole
    padded = np.pad(weights, (0, len(followers)))  # tracers have no weight
    return system, make_system(problem, np.concatenate([projections, followers]), padded, LOSS_LEVELS), whole


def check(problem: Problem, options: Values) -> None:
    """Refuse a teacher of too many axes, and particles that cannot stand for the isotropic law."""
    equations.check_axes(problem)
    rule = equations.checked_quadrature(problem, options["quadrature"])
    equations.checked_particles(problem, options["particles"], rule)


def default_mean_field_times(problem: Problem) -> SaveAt:
    """Return the default saved times, geometric about the time that a single neuron of overlap 1/√d takes to align.

    With links Σ_j c_j h_j of the student and Σ_j c*_j h_j of the teacher, j the first degree at which both coefficients
    differ from 0, a the smallest coefficient of a direction and b = a c_j c*_j j, the overlap of such a neuron grows as
    C' = b C^(j−1). This takes the time 1/b for j = 1, ln(√d)/b for j = 2, and d^((j−2)/2)/((j − 2) b) beyond.
    """
    count = min(problem.activation.coefficients.size, problem.teacher_link.coefficients.size)
    drive = problem.activation.coefficients[:count] * problem.teacher_link.coefficients[:count]
    shared = np.flatnonzero(drive[1:]) + 1
    require(
        shared.size != 0,
        "Argument `save_at` must be given where student and teacher share no Hermite coefficient, but is None.",
    )
    degree = int(shared[0])
    dimension = float(problem.dimension)
    rate = degree * abs(float(drive[degree])) * float(problem.teacher.coefficients.min())
    times = {1: 1.0, 2: max(0.5 * np.log(dimension), 1.0)}
    alone = times[degree] if degree in times else dimension ** (0.5 * degree - 1.0) / (degree - 2)
    return SaveAt.geometric(FIRST_SAVED * alone / rate, LAST_SAVED * alone / rate, DEFAULT_COUNT)


def loss_rise(loss: Array, rtol: float) -> dict[str, object]:
    """Return two attributes on the rise of a loss (times,), by name.

    "loss_is_monotone" says whether it never rises by more than `rtol` of its largest value, "largest_loss_rise" is the
    largest rise between two saved times.
    """
    finite_loss = loss[np.isfinite(loss)]
    rise = float(np.max(np.diff(finite_loss), initial=0.0))
    return {
        "loss_is_monotone": rise <= rtol * float(np.max(np.abs(finite_loss), initial=0.0)),
        "largest_loss_rise": rise,
    }


def warn_of_rise(attributes: Mapping[str, object]) -> None:
    """Warn if the attributes of an answer say that its loss rises, which a gradient flow excludes."""
    if not attributes["loss_is_monotone"]:
        rise = attributes["largest_loss_rise"]
        warn(f"The loss rises by up to {rise:.3g} between saved times, which a gradient flow excludes; lower `rtol`.")
