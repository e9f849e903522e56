"""The figure of several teachers side by side: how each is learned by the mean field, and by a finite network.

Takes datasets, writes a file, and never shows anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.plotting import MEASURED, PREDICTED, REFERENCE
from dynamics.problem import Problem

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["save_teachers"]

COLUMNS = 4
#: Losses further below E f*² than this are not drawn.
LOWEST = 1e-3


def save_teachers(answers: Mapping[str, tuple[xr.Dataset, xr.Dataset]], path: str | os.PathLike[str]) -> None:
    """Draw loss over E f*², and the learned mass of every direction over its end, one panel per teacher.

    The end is the mass Σ_q a_q g(θ_p·θ_q)/g(1) of neurons on the teacher's directions.

    Parameters
    ----------
    answers : mapping
        Title of the panel -> answers of `solve_mean_field` and `solve_spherical`.
    path : path
        The suffix chooses the format.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not answers:
        msg = "Argument `answers` must hold at least one teacher, but is empty."
        raise ValueError(msg)
    rows = -(-len(answers) // COLUMNS)
    figure = Figure(figsize=(3.4 * COLUMNS, 3.0 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
    for ax, (title, (law, network)) in zip(panels.flat, answers.items(), strict=False):
        _draw(ax, law, network)
        ax.set_title(title, fontsize="medium")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    spare = list(panels.flat[len(answers) :])
    for ax in spare:
        ax.set_axis_off()
    (spare[0] if spare else panels[0, 0]).legend(handles, labels, frameon=False, loc="center left", fontsize="medium")
    for ax in panels[:, 0]:
        ax.set_ylabel("share of E f*², of the end")
    figure.savefig(path, dpi=130)


def _draw(ax: Axes, law: xr.Dataset, network: xr.Dataset) -> None:
    scale = law.attrs["teacher_loss"]
    problem = Problem.from_dataset(law)
    kernel, teacher = problem.activation.kernel, problem.teacher
    shares = law["learned_mass"].values / (kernel(teacher.gram()) @ teacher.coefficients / float(kernel(1.0)))
    time = law["time"].values
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
        label=f"loss, m = {Problem.from_dataset(network).width}",
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(time[0], time[-1])
    ax.set_ylim(LOWEST, 2.0)
    ax.set_xlabel("flow time t")
