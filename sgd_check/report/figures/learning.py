"""Figure of what is learned over time: learned masses, components, sensitivities or the loss, of runs and of theory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.problem import check_choice
from dynamics.report import PREDICTED, axes_or_new, component_formula
from sgd_check.report.figures.style import compared_parts, finish_over_time, show_last_decades, spread_directions
from sgd_check.verdicts.alignment import sound_runs

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from sgd_check.verdicts.curves import Quantity

QUANTITIES = ("learned", "loss")
_LABELS = {
    "learned mass of direction": r"learned mass $/\, a_p$",
    "component": r"component $f_\alpha / f^*_\alpha$",
    "sensitivity": r"sensitivity over the teacher's, $\lambda_i / \lambda^*_i$",
    "loss": r"loss $\mathrm{E}(f-f^*)^2$",
}
_UNDEFINED = "learned mass: not defined,\nthe link has no part of degree 3 or more"
# What is learned goes from 0 to 1; the room above the curves is for the legend.
_LIMITS, _ROOM = (-0.05, 1.0), 0.2
_LEAST_LOSS = 1e-8


def plot_learning(
    tree: xr.DataTree, ax: Axes | None = None, *, quantity: str = "learned", style: str | None = None
) -> Axes:
    r"""Draw what is learned over time, or the loss: lines are theory, bands 10 to 90 % of the runs.

    What is learned are learned masses by direction :math:`/ a_p`, of a network components
    :math:`f_\alpha / f^*_\alpha`, or the eigenvalues of its sensitivity over those of its teacher where that has no
    components; at most eight of them, dimensionless, 1 where all is learned. Of runs at two learning rates those at the
    smaller one are drawn, on the time of theory. Time is the flow time.

    Parameters
    ----------
    tree : DataTree
        Result of `sgd_check.compare` or `sgd_check.check`.
    ax : Axes, optional
        By default those of a new figure.
    quantity : {"learned", "loss"}
        What to draw.
    style : {"screen", "paper", "talk"}, optional
        Of new axes; see `figure_style`.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        If `tree` is no comparison, or another argument not one of its values.
    """
    from dynamics.problem import Problem
    from sgd_check.verdicts.curves import quantities_of

    _, simulation, prediction = compared_parts(tree)
    check_choice("quantity", quantity, QUANTITIES)
    if "finer" in tree.children:
        simulation = tree["finer"].to_dataset()
    ax, problem = axes_or_new(ax, style), Problem.from_dataset(simulation)
    theory = [
        course for course in quantities_of(problem, prediction) if (course.kind == "loss") == (quantity == "loss")
    ]
    runs = {(course.kind, course.label): course.values for course in quantities_of(problem, simulation)}
    sound, time = sound_runs(simulation), simulation["time"].values
    for at, colour in zip(*spread_directions(len(theory)), strict=True) if theory else ():
        course, unit = theory[at], _unit(theory[at], prediction, int(at))
        shade = PREDICTED if quantity == "loss" else colour
        values = runs.get((course.kind, course.label))
        if values is not None and sound.any():
            low, high = np.quantile(values[sound] / unit, [0.1, 0.9], axis=0)
            ax.fill_between(time, low, high, color=shade, alpha=0.25, lw=0)
        ax.plot(prediction["time"].values, course.values / unit, color=shade, lw=1.8, label=_name(course, int(at)))
    if not theory and problem.kind != "network" and not problem.learned_part.is_defined:
        ax.text(0.5, 0.5, _UNDEFINED, transform=ax.transAxes, ha="center", va="center")
    ax.set_yscale("log" if quantity == "loss" else "linear")
    label = _LABELS[theory[0].kind] if theory else quantity
    show_last_decades(ax, time)
    _set_limits(ax, prediction, is_loss=quantity == "loss")
    finish_over_time(ax, time, label, "lines: theory; bands: 10 to 90 % of the runs", loc="upper left", ncols=4)
    return ax


def _set_limits(ax: Axes, prediction: xr.Dataset, *, is_loss: bool) -> None:
    """Show of the loss what theory takes on in the times that are drawn, of the rest all and at least the usual."""
    if not is_loss:
        low, high = ax.dataLim.intervaly
        ax.set_ylim(min(low, _LIMITS[0]), max(high, _LIMITS[1]) + _ROOM)
    elif "loss" in prediction:
        first, last = ax.get_xlim()
        seen = prediction["loss"].sel(time=slice(first, last)).values
        if (seen > 0).any():
            ax.set_ylim(0.3 * max(float(np.nanmin(seen[seen > 0])), _LEAST_LOSS), 2.0 * float(np.nanmax(seen)))


def _unit(course: Quantity, prediction: xr.Dataset, at: int) -> float:
    """Return what a course is divided by: its teacher's size, with the sign of a component; of the loss 1."""
    from sgd_check.verdicts.curves import LEAST_SHARE

    if course.kind == "loss":
        return 1.0
    size = course.scale / LEAST_SHARE
    return -size if course.kind == "component" and float(prediction["teacher_component"].values[at]) < 0 else size


def _name(course: Quantity, at: int) -> str:
    """Return what stands in the legend: direction, eigenvalue, or a component as a formula; of the loss nothing."""
    if course.kind == "component":
        return component_formula(course.label)
    if course.kind == "sensitivity":
        return rf"$\lambda_{{{at + 1}}}$"
    return "_loss" if course.kind == "loss" else f"$p = {at + 1}$"
