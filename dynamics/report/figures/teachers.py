"""Figures of teachers, side by side or one alone: how each is learned by the mean field, and by a finite network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import Problem
from dynamics.report.figures.panels import finish_panel, log_ticks, new_panels, small
from dynamics.report.figures.particles import draw_loss, plot_particles
from dynamics.report.figures.style import MEASURED, PREDICTED, REFERENCE, shades

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import xarray as xr
    from matplotlib.axes import Axes

    from hermite.arrays import Array

COLUMNS = 4
#: Losses further below E f*² than this are not drawn.
LOWEST = 1e-3


def save_teachers(answers: Mapping[str, tuple[xr.Dataset, xr.Dataset]], path: str | os.PathLike[str]) -> None:
    """Draw loss over E f*², and the learned mass of every direction over its end, one panel per teacher.

    The end is the mass Σ_q a_q g_3(θ_p·θ_q)/g_3(1) of neurons on the teacher's directions. `answers` has the title of
    each panel with the answers of `solve_mean_field` and `solve_spherical`; the suffix of `path` chooses the format.
    """
    if not answers:
        msg = "Argument `answers` must hold at least one teacher, but is empty."
        raise ValueError(msg)
    rows = -(-len(answers) // COLUMNS)
    figure, panels = new_panels((3.4 * COLUMNS, 3.0 * rows), rows, COLUMNS, squeeze=False, sharey=True)
    for ax, (title, (law, network)) in zip(panels.flat, answers.items(), strict=False):
        _draw(ax, law, network)
        ax.set_title(title, fontsize=small(ax, 1.0))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    spare = list(panels.flat[len(answers) :])
    for ax in spare:
        ax.set_axis_off()
    (spare[0] if spare else panels[0, 0]).legend(handles, labels, frameon=False, loc="center left", fontsize="medium")
    for ax in panels[:, 0]:
        ax.set_ylabel(r"share of $\mathrm{E}f^{*2}$, of the end")
    figure.savefig(path, dpi=130)


def save_teacher(title: str, law: xr.Dataset, network: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Draw how one teacher is learned over log time, the mean field beside a finite network, the loss below.

    For a teacher along one axis the upper panel has the law of the overlaps, else the learned mass of every direction
    over its end, which is the mass of neurons on the teacher's directions. Formulas in `title` are mathtext. `law` and
    `network` are answers of `solve_mean_field` and `solve_spherical`; the suffix of `path` chooses the format.
    """
    figure, panels = new_panels((7.0, 6.0), 2, sharex=True, height_ratios=[2.0, 1.2])
    problem = Problem.from_dataset(law)
    if problem.teacher.span == 1:
        plot_particles(law, panels)
    else:
        _draw_masses(panels[0], law, network)
        draw_loss(panels[1], law)
    width = Problem.from_dataset(network).width
    time, lowest = law["time"].values, float(panels[1].get_ylim()[0])
    loss = np.maximum(network["loss"].values, lowest)
    panels[1].get_lines()[0].set_label("loss, infinite width")
    panels[1].plot(network["time"].values, loss, "--", color=REFERENCE, lw=1.3, label=f"loss, $m = {width}$")
    panels[1].set(xlim=(time[0], time[-1]), ylim=(lowest, None))
    panels[1].legend(frameon=False, fontsize=small(panels[1]), loc="lower left")
    figure.suptitle(f"{title}, $d = {problem.dimension}$", fontsize="medium")
    figure.savefig(path, dpi=110)


def _draw_masses(ax: Axes, law: xr.Dataset, network: xr.Dataset) -> None:
    shares = _shares(law), _shares(network)
    coefficients = Problem.from_dataset(law).teacher.coefficients
    for p, (colour, weight) in enumerate(zip(shades(len(coefficients), 0.85), coefficients, strict=True), start=1):
        ax.plot(law["time"].values, shares[0][:, p - 1], color=colour, lw=1.8, label=f"$a_{p} = {weight:g}$")
        ax.plot(network["time"].values, shares[1][:, p - 1], "--", color=colour, lw=1.1)
    ax.set_ylim(0.0, None)
    finish_panel(ax, "", "learned mass, share of its end", loc="upper left", title="dashed: finite width")


def _shares(flow: xr.Dataset) -> Array:
    """Return the learned mass of every direction over that of neurons on the directions."""
    problem = Problem.from_dataset(flow)
    part, teacher = problem.learned_part, problem.teacher
    shares: Array = flow["learned_mass"].values / part.mass(teacher.gram(), teacher.coefficients)
    return shares


def _draw(ax: Axes, law: xr.Dataset, network: xr.Dataset) -> None:
    scale = law.attrs["teacher_loss"]
    shares, time = _shares(law), law["time"].values
    for p in range(shares.shape[1]):
        label = "mass learned, per direction" if p == 0 else None
        ax.plot(time, np.maximum(shares[:, p], LOWEST), color=REFERENCE, lw=0.8, label=label)
    # The floor is never 0 on a log axis.
    floor = max(law.attrs["loss_floor"] / scale, LOWEST / 10.0)
    ax.axhline(floor, color=PREDICTED, lw=0.9, ls=":", label="beyond the student's link")
    ax.plot(time, law["loss"].values / scale, color=MEASURED, lw=1.8, label="loss, infinite width")
    ax.plot(
        network["time"].values,
        np.maximum(network["loss"].values / scale, LOWEST),
        color=PREDICTED,
        lw=1.2,
        ls="--",
        label=f"loss, $m = {Problem.from_dataset(network).width}$",
    )
    ax.set(xscale="log", yscale="log", xlim=(time[0], time[-1]), ylim=(LOWEST, 2.0), xlabel="flow time $t$")
    log_ticks(ax)
