"""Draw every teacher of `dynamics.problem.named_teachers.SPHERICAL_TEACHERS` as the mean field learns it, one PNG each.

The pictures are written to the current directory, and one of all teachers side by side, `spherical_teachers.png`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dynamics
from dynamics.problem import Problem
from dynamics.problem.named_teachers import SPHERICAL_TEACHERS, spherical_problem
from dynamics.report import MEASURED, PREDICTED, REFERENCE, finish_panel, new_panels, shades, small
from dynamics.report.mean_field import draw_loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr

    #: The mean field of a teacher, and a finite network.
    Answers = tuple[xr.Dataset, xr.Dataset]

#: Least drawn loss of several teachers, as a part of E f*², and teachers side by side.
LOWEST, COLUMNS = 1e-3, 4


def solve(name: str, *, dimension: int = 16, width: int = 256, particles: int = 8192) -> Answers:
    """Solve one teacher at infinite and at finite width."""
    problem = spherical_problem(name, dimension=dimension, width=width)
    law = dynamics.solve_mean_field(problem, particles=particles, rtol=1e-5, keep="summary")
    return law, dynamics.solve_spherical(problem, rtol=1e-5, keep="summary")


def learned(flow: xr.Dataset) -> np.ndarray:
    """Return the learned mass of every direction over its end, Σ_q a_q g_3(θ_p·θ_q)/g_3(1) of neurons on directions."""
    problem = Problem.from_dataset(flow)
    teacher = problem.teacher
    return flow["learned_mass"].values / problem.learned_part.mass(teacher.gram(), teacher.coefficients)


def draw(name: str, folder: Path, answers: Answers) -> Path:
    """Draw how a teacher is learned over log time, the loss below, and return the figure written to the folder.

    For a teacher along one axis the upper panel has the law of the overlaps, else the learned mass of every direction.
    """
    law, network = answers
    problem, width = Problem.from_dataset(law), Problem.from_dataset(network).width
    figure, (upper, lower) = new_panels((7.0, 6.0), 2, sharex=True, height_ratios=[2.0, 1.2])
    if problem.teacher.span == 1:
        dynamics.plot_particles(law, (upper, lower))
    else:
        a = problem.teacher.coefficients
        curves = zip(shades(a.size, 0.85), a, learned(law).T, learned(network).T, strict=True)
        for p, (colour, weight, wide, narrow) in enumerate(curves, start=1):
            upper.plot(law["time"].values, wide, color=colour, lw=1.8, label=f"$a_{p} = {weight:g}$")
            upper.plot(network["time"].values, narrow, "--", color=colour, lw=1.1)
        upper.set_ylim(0.0, None)
        finish_panel(upper, "", "end_share", loc="upper left", title="dashed: finite width")
        draw_loss(lower, law)
    time, lowest = law["time"].values, float(lower.get_ylim()[0])
    loss = np.maximum(network["loss"].values, lowest)
    lower.get_lines()[0].set_label("loss, infinite width")
    lower.plot(network["time"].values, loss, "--", color=REFERENCE, lw=1.3, label=f"loss, $m = {width}$")
    lower.set(xlim=(time[0], time[-1]), ylim=(lowest, None))
    lower.legend(frameon=False, fontsize=small(lower), loc="lower left")
    figure.suptitle(f"{SPHERICAL_TEACHERS[name].title}, $d = {problem.dimension}$", fontsize="medium")
    figure.savefig(folder / f"{name}.png", dpi=110)
    return folder / f"{name}.png"


def draw_side_by_side(answers: Mapping[str, Answers], path: Path) -> None:
    """Draw loss over E f*² and the learned mass of every direction, one panel per teacher, by its title."""
    rows = -(-len(answers) // COLUMNS)
    figure, panels = new_panels((3.4 * COLUMNS, 3.0 * rows), rows, COLUMNS, squeeze=False, sharey=True)
    for ax, (title, (law, network)) in zip(panels.flat, answers.items(), strict=False):
        scale, masses, time = law.attrs["teacher_loss"], learned(law), law["time"].values
        labels = ["mass learned, per direction", *[None] * (masses.shape[1] - 1)]
        ax.plot(time, np.maximum(masses, LOWEST), color=REFERENCE, lw=0.8, label=labels)
        # The floor is never 0 on a log axis.
        floor = max(law.attrs["loss_floor"] / scale, LOWEST / 10.0)
        ax.axhline(floor, color=PREDICTED, lw=0.9, ls=":", label="beyond the student's link")
        ax.plot(time, law["loss"].values / scale, color=MEASURED, lw=1.8, label="loss, infinite width")
        loss, width = np.maximum(network["loss"].values / scale, LOWEST), Problem.from_dataset(network).width
        ax.plot(network["time"].values, loss, "--", color=PREDICTED, lw=1.2, label=f"loss, $m = {width}$")
        ax.set(xscale="log", yscale="log", xlim=(time[0], time[-1]), ylim=(LOWEST, 2.0))
        finish_panel(ax, "time", "teacher_share" if ax in panels[:, 0] else "", title)
        ax.get_legend().remove()
    spare = panels.flat[len(answers) :]
    for ax in spare:
        ax.set_axis_off()
    handles, legend = panels[0, 0].get_legend_handles_labels(), spare[0] if spare.size else panels[0, 0]
    legend.legend(*handles, frameon=False, loc="center left", fontsize="medium")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    found = {name: solve(name) for name in SPHERICAL_TEACHERS}
    for teacher, pair in found.items():
        draw(teacher, Path(), pair)
    titled = {SPHERICAL_TEACHERS[name].title: pair for name, pair in found.items()}
    draw_side_by_side(titled, Path("spherical_teachers.png"))
