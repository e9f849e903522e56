"""Checks of the arguments of the mean field."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import is_homogeneous, is_spherical
from dynamics.problem.checks import check_memory, checked_integer, float_array
from hermite.text.messages import shown

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dynamics.problem import Problem
    from hermite.arrays import Array

DEFAULT_PARTICLES = 4096
MOST_AXES = 8
#: Arrays of the size of the projections that a method holds.
ARRAYS_OF_PARTICLES = 30
#: A sum a_p further from 1 than this is worth a warning.
MIXTURE_TOLERANCE = 1e-6


def check_axes(problem: Problem) -> None:
    """Refuse teachers that span more than `MOST_AXES` axes, or all d of them."""
    axes = problem.teacher.span
    if axes > MOST_AXES:
        msg = f"Argument `problem` must have a teacher that spans at most {MOST_AXES} axes here, but it spans {axes}."
        raise ValueError(msg)
    if problem.dimension <= axes:
        msg = (
            f"Argument `problem` must have a dimension above {axes}, the number of axes that the teacher spans, for a "
            f"mean field, but it is {problem.dimension}."
        )
        raise ValueError(msg)


def checked_quadrature(problem: Problem, quadrature: str) -> str:
    """Return the name of the rule for a problem, with "auto" replaced by the rule it stands for."""
    axes = problem.teacher.span
    if axes > 1 and quadrature in ("graded", "quantiles"):
        msg = f"Argument `quadrature` must be 'random' or 'neurons' for {axes} axes, but is {shown(quadrature)}."
        raise ValueError(msg)
    if not problem.start_is_random and quadrature not in ("auto", "neurons"):
        msg = f"Argument `quadrature` must be 'neurons' for a problem with a given start, but is {shown(quadrature)}."
        raise ValueError(msg)
    if quadrature != "auto":
        return quadrature
    if not problem.start_is_random:
        return "neurons"
    return "graded" if axes == 1 else "random"


def checked_particles(problem: Problem, particles: int | None, quadrature: str) -> int:
    """Return the number of particles of a rule."""
    if particles is None:
        return problem.width if quadrature == "neurons" else DEFAULT_PARTICLES
    count = checked_integer(particles, "particles", minimum=1)
    check_memory("particles", count, ARRAYS_OF_PARTICLES * count * problem.teacher.span)
    if quadrature == "neurons" and count != problem.width:
        msg = f"Argument `particles` must be the width {problem.width} for quadrature 'neurons', but is {count}."
        raise ValueError(msg)
    return count


def checked_tracers(problem: Problem, tracers: ArrayLike | None) -> Array:
    """Return the projections of tracers, shape (n, r); none if none are given."""
    axes = problem.teacher.span
    if tracers is None:
        return np.empty((0, axes))
    if is_homogeneous(problem):
        msg = "Argument `tracers` must be absent for the homogeneous student, whose neurons have norms, but is given."
        raise ValueError(msg)
    positions = float_array(tracers, "tracers")
    if positions.ndim != 2 or positions.shape[1] != axes:
        msg = f"Argument `tracers` must have shape (n, {axes}), but has shape {positions.shape}."
        raise ValueError(msg)
    lengths = np.sqrt(np.sum(positions**2, axis=1))
    if not (lengths <= 1.0).all():
        msg = f"Argument `tracers` must have rows of length at most 1, but the longest has length {lengths.max():.6g}."
        raise ValueError(msg)
    return positions


def warn_of_mixture(problem: Problem) -> None:
    """Warn where Σ a_p is not 1, so that no law of neurons fits the teacher."""
    total = float(problem.teacher.coefficients.sum())
    if is_spherical(problem) and abs(total - 1.0) > MIXTURE_TOLERANCE:
        msg = (
            f"The teacher's coefficients sum to {total:.6g}, not 1: they are mixture weights here, and no law of "
            f"neurons of mass 1 and link {problem.teacher_link.name} fits this teacher."
        )
        warnings.warn(msg, UserWarning, stacklevel=5)
