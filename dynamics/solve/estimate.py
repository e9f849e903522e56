"""Memory and work of a run, estimated from counted operations, for `--dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamics.problem.checks import flow_numbers
from dynamics.problem.schedule import DEFAULT_COUNT

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt

#: Floating-point operations per second measured on one core for m = P = 64.
ASSUMED_SPEED = 1.0e10
#: The same for the particles of a mean field, on whose few products the integrator's own sums weigh.
MEAN_FIELD_SPEED = 2.0e9


def estimate(problem: Problem, model: str, keep: str, save_at: SaveAt | None, particles: int | None = None) -> str:
    """Return memory and work of a run in one line each, from counted operations, without running it."""
    if model == "mean-field":
        return _mean_field_estimate(problem, keep, save_at, particles)
    m, P = problem.width, problem.num_directions
    count = DEFAULT_COUNT if save_at is None else len(save_at)
    if model == "decoupled":
        bytes_needed = 8.0 * (12 * P + count * (2 * P if P <= 10_000 else 1))
        return f"memory: {bytes_needed / 1e6:.3g} MB\ntime: about {1e-8 * P * count + 0.5:.2g} s (no time stepping)"
    if model == "quadratic":
        return _quadratic_estimate(problem, save_at)
    state = m * P + m * m + m * (2 if model == "network" else 1)
    numbers = flow_numbers(m, P, full=keep == "full", times=count)
    operations = 4.0 * m * m * P + 2.0 * m**3 + 40.0 * state
    return (
        f"memory: {8e-6 * numbers:.3g} MB (state {state} numbers, history {count} times)\n"
        f"time: {operations:.3g} operations an evaluation, about {operations / ASSUMED_SPEED * 1e3:.2g} s per thousand "
        "evaluations; runs take from a thousand evaluations per learned direction"
    )


def _quadratic_estimate(problem: Problem, save_at: SaveAt | None) -> str:
    from dynamics.equations.quadratic import jumps_needed
    from dynamics.solve.quadratic import default_quadratic_schedule, quadratic_numbers

    times = (save_at or default_quadratic_schedule(problem)).times
    m, P = problem.width, problem.num_directions
    jumps = max(jumps_needed(times, float(problem.teacher.coefficients.max())), float(times.size))
    # Three Gram matrices and as many triangular solves a jump, and some ten Gram matrices a direction that is reached.
    operations = (9.0 * jumps + 20.0 * min(2 * m, P)) * (P + m) * m * m
    return (
        f"memory: {8e-6 * sum(quadratic_numbers(problem, times.size)):.3g} MB\n"
        f"time: about {operations / ASSUMED_SPEED:.2g} s ({jumps:.0f} jumps, no time stepping)"
    )


def _mean_field_estimate(problem: Problem, keep: str, save_at: SaveAt | None, particles: int | None) -> str:
    from math import comb

    from dynamics.equations.mean_field import OVERLAP_BINS, SHARES
    from dynamics.solve.mean_field import DEFAULT_PARTICLES

    count = DEFAULT_COUNT if save_at is None else len(save_at)
    N, axes = particles or DEFAULT_PARTICLES, problem.teacher.span
    degree = max(problem.activation.order, problem.teacher_link.order)
    products = 10 * degree if axes == 1 else 6 * comb(axes + degree, degree)
    kept = problem.num_directions * (OVERLAP_BINS + len(SHARES)) + (N * (axes + 4) if keep == "full" else 0)
    operations = float(N) * (products + 10 * axes)
    return (
        f"memory: {8.0 * (30 * N * axes + count * kept) / 1e6:.3g} MB (state {N * axes} numbers, "
        f"history {count} times)\n"
        f"time: {operations:.3g} operations an evaluation, about {operations / MEAN_FIELD_SPEED * 1e3:.2g} s per "
        "thousand evaluations; runs take thousands of evaluations"
    )
