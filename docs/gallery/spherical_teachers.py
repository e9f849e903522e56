"""Draw every teacher of `dynamics.problem.named_teachers.SPHERICAL_TEACHERS` as the mean field learns it, one PNG each.

The pictures are written to the current directory.
"""

from __future__ import annotations

from pathlib import Path

import dynamics
from dynamics.problem.named_teachers import SPHERICAL_TEACHERS, spherical_problem
from dynamics.report.mean_field import save_teacher


def draw(name: str, folder: Path, *, dimension: int = 16, width: int = 256, particles: int = 8192) -> Path:
    """Solve one teacher at infinite and at finite width, and return the figure written to the folder."""
    problem = spherical_problem(name, dimension=dimension, width=width)
    law = dynamics.solve_mean_field(problem, particles=particles, rtol=1e-5, keep="summary")
    network = dynamics.solve_spherical(problem, rtol=1e-5, keep="summary")
    path = folder / f"{name}.png"
    save_teacher(SPHERICAL_TEACHERS[name].title, law, network, path)
    return path


if __name__ == "__main__":
    for teacher in SPHERICAL_TEACHERS:
        draw(teacher, Path())
