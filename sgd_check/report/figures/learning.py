"""Figure of what is learned over time: learned masses, components or sensitivities of runs under those of theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sgd_check.report.figures.style import axes_or_new, compared_parts, finish_over_time, spread_directions
from sgd_check.verdicts.alignment import sound_runs

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

_LABELS = {
    "learned mass of direction": r"learned mass $/\, a_p$",
    "component": r"component $f_\alpha / f^*_\alpha$",
    "sensitivity": "sensitivity over the teacher's",
}


def plot_learning(tree: xr.DataTree, ax: Axes | None = None) -> Axes:
    r"""Draw what is learned over time, as a part of the teacher's: lines are theory, bands 10 to 90 % of the runs.

    The quantities are learned masses by direction, of a network components :math:`f_\alpha / f^*_\alpha`, or
    sensitivities where its teacher has no components; at most eight of them.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare`.
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    from dynamics.problem import Problem
    from sgd_check.verdicts.curve_sources import LEAST_SHARE, courses_of

    _, simulation, prediction = compared_parts(tree)
    ax, problem = axes_or_new(ax), Problem.from_dataset(simulation)
    theory = [course for course in courses_of(problem, prediction) if course.kind != "loss"]
    runs = {(course.kind, course.label): course.values for course in courses_of(problem, simulation)}
    sound, time, kind = sound_runs(simulation), simulation["time"].values, ""
    for at, colour in zip(*spread_directions(len(theory)), strict=True) if theory else ():
        course, kind = theory[at], theory[at].kind
        # The scale of a course is that share of its teacher's size; a component keeps its sign.
        unit = course.scale / LEAST_SHARE
        if kind == "component" and float(prediction["teacher_component"].values[at]) < 0:
            unit = -unit
        values = runs.get((kind, course.label))
        if values is not None and sound.any():
            low, high = np.quantile(values[sound] / unit, [0.1, 0.9], axis=0)
            ax.fill_between(time, low, high, color=colour, alpha=0.25, lw=0)
        label = course.label if kind == "component" else f"{at + 1}"
        ax.plot(prediction["time"].values, course.values / unit, color=colour, lw=1.8, label=label)
    finish_over_time(ax, time, _LABELS.get(kind, "learned"), "bands: runs, 10 to 90 %; lines: theory", loc="upper left")
    return ax
