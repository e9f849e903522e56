"""The linearised distance of one finite network from its mean field; the equation is in `equations.spherical`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.equations.mean_field.checks import checked_particles
from dynamics.problem import check_problem
from dynamics.problem.checks import checked_number, checked_tolerances
from dynamics.problem.schedule import SaveAt, checked_schedule
from dynamics.runs.dataset import make_dataset
from dynamics.solve.mean_field import default_mean_field_schedule, solve_mean_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.equations.spherical.coupling import LinearisedCoupling
    from dynamics.problem import Problem
    from hermite.arrays import Array

DEFAULT_PARTICLES = 8192


def solve_coupling(
    problem: Problem,
    *,
    save_at: SaveAt | None = None,
    particles: int | None = None,
    largest_step: float = 0.1,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> xr.Dataset:
    r"""Integrate the linearised distance of a network of finite width from the neurons that follow its mean field.

    .. math:: \Delta_i' = D_i \Delta_i - \frac1m\sum_j H_{ij} \Delta_j + \varepsilon_i, \qquad \Delta_i(0) = 0,

    where D_i is the derivative of a neuron's velocity in its position, H_ij the interaction and ε_i the fluctuation of
    the field of m neurons (`equations.spherical.coupling`).

    Parameters
    ----------
    problem : Problem
        With ``student="spherical"``; its own m neurons are those followed, see `coupled_problem`.
    save_at : SaveAt, optional
        Saved times. Default: those of `solve_mean_field`, 150 geometric times, to 20 times that which a neuron of
        overlap 1/√d needs alone.
    particles : int, optional
        Number of particles of the mean field. Default: 8192 for one axis of the teacher; must be given for more, where
        they are random and should be many times m.
    largest_step : float
        Largest step of the classical Runge–Kutta method of order 4, in flow time.
    rtol, atol : float
        Accuracy of the mean field, as for `solve_mean_field`.

    Returns
    -------
    Dataset
        `neuron_gap(time, neuron, flow_axis)`, Δ in D = min(d, r + m) coordinates, the teacher's axes first;
        `linear_error(time)`, √m times the root mean square of |Δ_i|; `noise_size(time)`, the same of ε;
        `largest_growth(time)`, the largest local Hessian λ of the followers; `linear_error_bound(time)`, the solution
        of b' = max(λ, 0) b + noise_size, which is above `linear_error`. Dimensionless.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before any work.

    Notes
    -----
    A step costs 32 m² D operations, and memory is 8 m² numbers. The bound grows as the exponential of ∫ λ dt, because
    it lets every neuron grow as the fastest one does at each instant.

    References
    ----------
    Glasgow, Wu and Bruna, arXiv:2504.13110.

    Examples
    --------
    >>> from dynamics import Problem, SaveAt, Teacher, coupled_problem
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical")
    >>> gap = solve_coupling(coupled_problem(problem, 64, seed=0), save_at=SaveAt.at([0.0, 1.0]))
    >>> bool(gap.linear_error[1] <= gap.linear_error_bound[1])
    True
    """
    # === check
    check_problem(problem, "spherical")
    schedule = default_mean_field_schedule(problem) if save_at is None else checked_schedule(save_at, save_at)
    largest_step = checked_number(largest_step, "largest_step", positive=True)
    rtol, atol = checked_tolerances(rtol, atol)
    axes = problem.teacher.span
    if particles is None and axes > 1:
        msg = f"Argument `particles` must be given for a teacher that spans {axes} axes, but is None."
        raise ValueError(msg)
    settings = {
        "particles": checked_particles(problem, particles, "random"),
        "largest_step": largest_step,
        "rtol": rtol,
        "atol": atol,
    }
    # === follow and integrate
    nodes, saved = _nodes(schedule.times, largest_step)
    path = _integrated(nodes, _equations(problem, nodes, settings))
    # === return
    return make_dataset(
        {name: values[saved] for name, values in path.items()},
        problem=problem,
        title="Linearised distance of a spherical network from its mean field",
        coords={"time": schedule.times, "neuron": np.arange(problem.width)},
        solver={"answer": "coupling", **settings},
        attributes={"answer": "coupling", **settings},
    )


def _equations(problem: Problem, nodes: Array, settings: Mapping[str, Any]) -> Callable[[int], LinearisedCoupling]:
    """Return the linearised equation at each node and, between two, in the middle, by its number from the start."""
    from dynamics.equations.pairs.unit_vectors import unit_vectors
    from dynamics.equations.spherical.coupling import LinearisedCoupling, followers_in_space, make_particle_system

    start, _ = unit_vectors(problem)
    tracers = start[:, : problem.teacher.span]
    # The method of order 4 looks at the middle of every step.
    law = solve_mean_field(
        replace(problem, initial_weights=None, initial_overlaps=None),
        particles=settings["particles"],
        tracers=tracers,
        save_at=SaveAt.at(np.sort(np.concatenate([nodes, 0.5 * (nodes[1:] + nodes[:-1])]))),
        keep="summary",
        rtol=settings["rtol"],
        atol=settings["atol"],
        progress=False,
    )
    projections, moments = law["tracer_projection"].values, law["law_moment"].values
    system = make_particle_system(problem, tracers)

    def equation(k: int) -> LinearisedCoupling:
        return LinearisedCoupling(system, followers_in_space(start, projections[k : k + 1])[0], moments[k])

    return equation


def _integrated(nodes: Array, equation: Callable[[int], LinearisedCoupling]) -> dict[str, Array]:
    """Return the distance at all nodes, its size, that of the noise, the largest growth, and the bound on the size."""
    now = equation(0)
    gaps = np.zeros((nodes.size, *now.noise.shape))
    bound, noise, growth = np.zeros((3, nodes.size))
    noise[0], growth[0] = _size(now.noise), now.growth
    for n, h in enumerate(np.diff(nodes)):
        middle, end = equation(2 * n + 1), equation(2 * n + 2)
        gaps[n + 1] = _runge_kutta(gaps[n], h, now, middle, end)
        rates = np.array([max(at.growth, 0.0) for at in (now, middle, end)])
        sizes = np.array([_size(at.noise) for at in (now, middle, end)])
        # b(h) = e^∫λ b + ∫ e^(λ left) ε, both integrals by Simpson's rule.
        left = h * np.array([rates @ [1.0, 4.0, 1.0], rates @ [-0.25, 2.0, 1.25], 0.0]) / 6.0
        bound[n + 1] = np.exp(left[0]) * bound[n] + h * (np.exp(left) * sizes) @ [1.0, 4.0, 1.0] / 6.0
        noise[n + 1], growth[n + 1], now = sizes[2], end.growth, end
    return {
        "neuron_gap": gaps,
        "linear_error": np.array([_size(gap) for gap in gaps]),
        "noise_size": noise,
        "largest_growth": growth,
        "linear_error_bound": bound,
    }


def _nodes(times: Array, largest_step: float) -> tuple[Array, NDArray[np.intp]]:
    """Return increasing nodes from 0 to the last time, at most a step apart, and where the saved times are in them."""
    stops = times if times[0] == 0.0 else np.concatenate([[0.0], times])
    counts = np.maximum(np.ceil(np.diff(stops) / largest_step), 1.0).astype(np.intp)
    parts = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(stops, stops[1:], counts, strict=False)]
    places = np.concatenate([[0], np.cumsum(counts)])
    return np.concatenate([*parts, stops[-1:]]), places[stops.size - times.size :]


def _runge_kutta(
    gap: Array, h: float, first: LinearisedCoupling, middle: LinearisedCoupling, last: LinearisedCoupling
) -> Array:
    one = first.rate(gap)
    two = middle.rate(gap + 0.5 * h * one)
    three = middle.rate(gap + 0.5 * h * two)
    moved: Array = gap + h / 6.0 * (one + 2.0 * two + 2.0 * three + last.rate(gap + h * three))
    return moved


def _size(vectors: Array) -> float:
    """Return √m times the root mean square of the rows' lengths, which is the Frobenius norm."""
    return float(np.linalg.norm(vectors))
