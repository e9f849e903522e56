"""Figures of comparisons and of runs: times, overlaps, survival, learning, loss, widths, estimates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics import report
from dynamics.problem import Problem, check_choice
from dynamics.problem.checks import require
from dynamics.report import PREDICTED, REFERENCE, axes_or_new, figure_style, finish_panel, given_panels, small
from dynamics.report.figures import Arguments
from dynamics.runs.variables import axis_label
from hermite.text.messages import refuse
from sgd_check.verdicts.inputs import THEORY as INPUTS
from sgd_check.verdicts.kernel import THEORY as KERNELS
from sgd_check.verdicts.mean_field import THEORY as MEAN_FIELD
from sgd_check.verdicts.path_tests import critical_score
from sgd_check.verdicts.recovery import THEORY as LAW
from sgd_check.verdicts.reused_data import THEORY as REUSED
from sgd_check.verdicts.verdict import ALIGNMENT, event_of, of_sound_runs, sound_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hermite.arrays import Array
    from sgd_check.verdicts.curves import Quantity
    from sgd_check.verdicts.verdict import Event

SIMULATED = report.MEASURED
THEORY_NAMES = {"flow": "flow", "finite step": "finite-step equation", "sample": "predicted runs", REUSED: "theory"}
MOST_DIRECTIONS = 12
#: Names in one column of a legend.
COLUMN = 6
#: Size of the figure of the loss and its residual.
LOSS_SIZE = (6.8, 5.4)
#: Label of a mean over runs that is extrapolated from two learning rates.
EXTRAPOLATED = r"mean, extrapolated to $\eta \to 0$"
#: Kind of a curve -> its label.
_LEARNED = {
    "learned mass of direction": "mass_share",
    "component": "component_part",
    "sensitivity": "sensitivity_share",
    "test error": "test_error",
    "squared norm": "squared_norm",
    "loss": "loss",
}


def late_quartiles(times: Array) -> Array:
    """Return the quartiles over the first axis of times, shape (3, …); those that are unknown count as latest."""
    ordered = np.sort(np.where(np.isnan(times), np.inf, times), axis=0)
    return np.stack([ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75)])


# --- comparisons ------------------------------------------------------------------------------------------------------


def compared_parts(tree: object) -> tuple[xr.Dataset, xr.Dataset, xr.Dataset]:
    """Return the datasets of comparison, simulation and prediction of a result of `sgd_check.compare`; refuse others.

    The dataset of the simulation is empty for a mean field, where every width has a simulation.
    """
    from xarray import DataTree

    if not isinstance(tree, DataTree):
        refuse(
            f"Argument `tree` must be a DataTree of `sgd_check.compare`, but is of type {type(tree).__name__}.",
            error=TypeError,
        )
    for group in ("comparison", "prediction", "simulation"):
        require(
            group in tree.children,
            f"Argument `tree` must be a result of `sgd_check.compare`, but has no group `{group}`.",
        )
    return tree["comparison"].to_dataset(), tree["simulation"].to_dataset(), tree["prediction"].to_dataset()


def by_curves(tree: xr.DataTree) -> bool:
    """Return whether curves decide the verdict of a comparison."""
    return tree["comparison"].attrs.get("decided_by") == "curves"


def is_extrapolated(tree: xr.DataTree) -> bool:
    """Return whether the means of a comparison are taken from two learning rates to none, and not those of its runs."""
    return by_curves(tree) and "finer" in tree.children


def plot_comparison(tree: xr.DataTree, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw emergence times, overlaps, survival and loss of the runs against the prediction.

    Where curves decide (information exponents up to 2, networks) what is learned over time replaces the survival.
    `tree` is a result of `sgd_check.compare`. `axes` are five, for times, overlaps, survival, loss and its residual;
    against a mean field four, for losses, distances and exponents of all widths; against the law of an estimator one,
    for the estimates; of samples that are used again three, for losses, overlaps and squared norms; by default a new
    figure in a `style` (see `figure_style`). The figure is returned; ValueError is raised for another number of axes.

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> figure = plot_comparison(tree)
    >>> len(figure.axes), figure.axes[0].get_xlabel()
    (5, 'predicted emergence time')
    """
    with figure_style(style):
        theory = compared_parts(tree)[0].attrs["theory"]
        if theory in _PANELS:
            draw, size, shape = _PANELS[theory]
            panels = report.panels_or_new(axes, math.prod(shape), size, *shape, shown=False)
            draw(tree, panels)
        else:
            if axes is None:
                whole = report.new_figure((11.0, 8.2))
                grid = whole.add_gridspec(2, 2)
                halves = grid[1, 1].subgridspec(2, 1, height_ratios=[2.4, 1], hspace=0.05)
                places = (grid[0, 0], grid[0, 1], grid[1, 0], halves[0], halves[1])
                panels = [whole.add_subplot(place) for place in places]
            else:
                panels = given_panels("axes", axes, 5)
            plot_times(tree, panels[0])
            plot_overlaps(tree, panels[1])
            (plot_learning if by_curves(tree) else plot_survival)(tree, panels[2])
            plot_loss_band(tree, (panels[3], panels[4]))
        figure: Figure = panels[0].get_figure()
        return figure


def spread_directions(count: int) -> zip[tuple[int, Any]]:
    """Return at most `MOST_DIRECTIONS` directions, evenly spread, each with a colour."""
    chosen = report.spread_times(count, min(count, MOST_DIRECTIONS))
    return zip(chosen, report.shades(len(chosen), 0.85), strict=True)


def _legend_of(count: int, nouns: str = "directions") -> Arguments:
    """Return the layout of a legend of `count` directions, with a title if it shows only some of them."""
    title = {"title": f"{MOST_DIRECTIONS} of {count} {nouns}"} if count > MOST_DIRECTIONS else {}
    return {"ncols": -(-min(count, MOST_DIRECTIONS) // COLUMN), **title}


def _finish_over_time(ax: Axes, time: Array, y: str, title: str = "", **legend: Any) -> None:
    """Finish a panel that shows the last two decades of the time."""
    later = time[time > 0]
    ax.set(xscale="log", xlim=(max(float(later[0]), 1e-2 * float(later[-1])), float(later[-1])))
    finish_panel(ax, "time", y, title, **legend)


def _blown_up(comparison: xr.Dataset) -> str:
    """Return ", n blown up" for n runs that blew up, "" for none."""
    blown = int(comparison.attrs["blown_up_count"])
    return f", {blown} blown up" if blown else ""


def plot_times(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw simulated against predicted emergence times, one point with error bar per direction, and return the axes.

    Dots are single runs; the error bar is the geometric mean with twice its standard error; the short orange line spans
    the band that theory allows the mean, or, across, the middle 80 % of the predicted runs; triangles count runs
    without emergence, at the horizon, where there is room for the number. `tree` is a result of `sgd_check.compare`,
    and `ax` where to draw, by default new axes in a `style` (see `figure_style`).

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> ax = plot_times(tree)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('predicted emergence time', 'emergence time in SGD')
    """
    comparison, simulation, prediction = compared_parts(tree)
    ax = axes_or_new(ax, style)
    predicted_to_emerge = np.isfinite(comparison["emergence_time"].values)
    shown = comparison.isel(direction=predicted_to_emerge)
    predicted, counts = shown["emergence_time"].values, shown["censored_count"].values
    names = ("mean_log_ratio", "standard_error", "band_low", "band_high")
    numbers = zip(predicted, *(shown[name].values for name in names), strict=True)
    for at, (time, mean, error, *band) in enumerate(numbers):
        runs = shown["emergence_ratio"].values[:, at] * time
        ax.plot(np.full(runs.size, time), runs, ".", color=SIMULATED, ms=4, alpha=0.3)
        if comparison.attrs["theory"] == "sample":
            theirs = of_sound_runs(prediction, "emergence_time")[:, predicted_to_emerge][:, at]
            ax.plot(np.nanquantile(theirs, [0.1, 0.9]), [time, time], color=PREDICTED, lw=2, alpha=0.7)
        elif np.isfinite(band).all():
            wide: Arguments = {"lw": 12, "alpha": 0.4, "solid_capstyle": "butt", "zorder": 1}
            ax.plot([time] * 2, time * np.exp(band), color=PREDICTED, **wide)
        if np.isfinite(mean):
            low, mid, high = time * np.exp(mean + 2 * error * np.array([-1, 0, 1]))
            ax.errorbar(time, mid, yerr=[[mid - low], [high - mid]], fmt="o", color=SIMULATED, ms=5, capsize=3)
    # A triangle for each direction that some runs lack, and their number where numbers do not overlap.
    horizon, late = float(simulation.attrs["end_time"]), counts > 0
    apart, last = np.ptp(np.log(predicted)) / 16 if late.any() else 0.0, -math.inf
    for time, count in sorted(zip(predicted[late].tolist(), counts[late].tolist(), strict=True)):
        ax.plot(time, horizon, "^", color=SIMULATED, mfc="none", ms=7)
        if math.log(time) - last >= apart:
            above: Arguments = {"textcoords": "offset points", "ha": "center", "fontsize": small(ax)}
            ax.annotate(f"{count}", (time, horizon), (0, 7), **above)
            last = math.log(time)
    if predicted.size:
        span = np.array([predicted.min() / 1.3, predicted.max() * 1.3])
        ax.plot(span, span, ":", color=REFERENCE, lw=1)
        ax.set(xscale="log", yscale="log")
        ax.margins(y=0.12)
    event = event_of(simulation)
    title = f"{comparison.attrs['verdict']}: {comparison.attrs['usable_runs']} runs{_blown_up(comparison)}"
    finish_panel(ax, f"predicted {event.noun} time", f"{event.noun} time in SGD", title)
    _name_times(ax, tree, comparison, event)
    return ax


def _name_times(ax: Axes, tree: xr.DataTree, comparison: xr.Dataset, event: Event) -> None:
    """Add the legend of a panel of times to `ax`, above the points, whose limits are raised to make room for it.

    It names the mean of the runs, single runs, the times that theory allows, and runs without the `event`, if any.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    theory = comparison.attrs["theory"]
    if theory == "sample":
        allowed: Any = Line2D([], [], color=PREDICTED, lw=2, alpha=0.7, label="predicted runs, 10 to 90 %")
    else:
        words = "flow to twice the delay" if theory == "flow" else "finite step, band of the mean"
        words = "band of the mean" if by_curves(tree) or event is ALIGNMENT else words
        allowed = Patch(color=PREDICTED, alpha=0.45, label=f"theory: {words}")
    of_runs = f"SGD: {EXTRAPOLATED}, ± 2 s.e." if is_extrapolated(tree) else "SGD: mean ± 2 s.e."
    handles = [
        Line2D([], [], marker="o", color=SIMULATED, label=of_runs),
        Line2D([], [], marker=".", ls="", color=SIMULATED, alpha=0.5, label="single runs"),
        allowed,
    ]
    if comparison["censored_count"].values.any():
        hollow: Arguments = {"marker": "^", "ls": "", "mfc": "none", "color": SIMULATED}
        handles.append(Line2D([], [], label="runs without, at the horizon", **hollow))
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        ax.set_ylim(low, high * (high / low) ** (0.1 * len(handles)))
    ax.legend(handles=handles, frameon=False, fontsize=small(ax), loc="upper left")
    report.log_ticks(ax)


def plot_overlaps(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the largest squared overlap of each direction over time: thin lines runs, thick lines the prediction.

    Of a frame of orthogonal neurons it is the alignment of the direction with their span. Arguments and result are
    those of `plot_times`.

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> ax = plot_overlaps(tree)
    >>> ax.get_xlabel()
    'flow time $t$'
    """
    comparison, simulation, prediction = compared_parts(tree)
    ax = axes_or_new(ax, style)
    time, curves = simulation["time"].values, _predicted_square(prediction)
    if "alignment" in simulation:
        squared, label = simulation["alignment"].values, axis_label("alignment")
    else:
        squared = np.max(report.counted_squares(simulation, simulation["teacher_overlap"].values), axis=2)
        symbol = r"\max_i \max(C_{ip}, 0)^2" if report.sign_matters(simulation) else r"\max_i C_{ip}^2"
        label = f"largest squared overlap ${symbol}$"
    for p, colour in spread_directions(squared.shape[-1]):
        ax.plot(time, squared[..., p].T, color=colour, lw=0.5, alpha=0.5)
        curve: tuple[Any, Any] = ([], []) if curves is None else (prediction["time"].values, curves[:, p])
        ax.plot(*curve, color=colour, lw=2.2, label=f"$p = {p + 1}$")
    is_aligned = "alignment" in simulation
    level = Problem.from_dataset(simulation).emergence_level
    report.draw_threshold(ax, level, "aligned" if is_aligned else "emerged")
    ax.set_ylim(-0.02, 1.05)
    title = f"thin: runs, thick: {THEORY_NAMES[comparison.attrs['theory']]}" if curves is not None else "runs"
    _finish_over_time(ax, time, label, title, loc="upper left", **_legend_of(squared.shape[-1]))
    return ax


def _predicted_square(prediction: xr.Dataset) -> Array | None:
    """Return predicted squared overlaps (time, P) for the figure; None if there are none over time.

    For neurons it is max_i C_ip², the largest squared overlap of any neuron i with direction p, in which negative
    overlaps count as 0 where signs matter (`counted_squares`); for a frame of orthogonal neurons it is the alignment
    A_p, the squared length of the projection of direction p on their span. Of a prediction by several seeds it is the
    median over them.
    """
    if "alignment" in prediction:
        aligned = prediction["alignment"]
        return np.asarray(aligned.median("seed") if "seed" in aligned.dims else aligned)
    if "seed" in prediction.dims:
        squares = report.counted_squares(prediction, of_sound_runs(prediction, "teacher_overlap"))
        return np.asarray(np.median(np.max(squares, axis=2), axis=0)) if squares.size else None
    for name in ("teacher_overlap", "max_overlap", "overlap"):
        if name in prediction:
            squares = report.counted_squares(prediction, prediction[name].values)
            return np.asarray(squares.max(axis=1)) if name == "teacher_overlap" else squares
    return None


def plot_survival(tree: xr.DataTree, ax: Axes | None = None, *, style: str | None = None) -> Axes:
    """Draw the share of runs in which a direction has not emerged, with 95 % intervals, and what theory expects.

    Steps are Kaplan–Meier estimates with pointwise intervals; dashed lines are the log-normal law with the predicted
    time, delay and scatter, a vertical line where theory gives no scatter, or the estimate of the predicted runs.
    Arguments and result are those of `plot_times`.

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> ax = plot_survival(tree)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('flow time $t$', 'share of runs without emergence')
    """
    from sgd_check.verdicts.time_tests import expected_survival, kaplan_meier

    comparison, simulation, prediction = compared_parts(tree)
    ax, sampled = axes_or_new(ax, style), comparison.attrs["theory"] == "sample"
    end, predicted = float(simulation.attrs["end_time"]), comparison["emergence_time"].values
    measured = of_sound_runs(simulation, "emergence_time")
    emergences = np.concatenate([measured[np.isfinite(measured)], predicted[np.isfinite(predicted)]])
    emergences = emergences[(emergences > 0) & (emergences <= end)]
    # Around all emergences, up to the end of the runs.
    first = 0.6 * emergences.min() if emergences.size else 0.1 * end
    last = min(end, 1.6 * emergences.max()) if emergences.size else end
    times = np.geomspace(first, max(last, 1.01 * first), 600)
    # Comparisons of earlier versions have the time beyond the predicted one as their delay.
    late = "expected_lateness" if "expected_lateness" in comparison else "expected_delay"
    for p, colour in spread_directions(measured.shape[1]):
        if not np.isfinite(measured[:, p]).any() and not np.isfinite(predicted[p]):
            continue
        share, low, high = kaplan_meier(measured[:, p], end, times)
        ax.plot(times, share, color=colour, lw=1.6, drawstyle="steps-post", label=f"$p = {p + 1}$")
        between = (share > 0.0) & (share < 1.0)
        ax.fill_between(times, low, high, where=between, color=colour, alpha=0.18, lw=0, step="post")
        if sampled:
            sample = of_sound_runs(prediction, "emergence_time")[:, p]
            theory = kaplan_meier(sample, float(prediction.attrs["end_time"]), times)[0]
        else:
            lateness, scatter = (float(comparison[name].values[p]) for name in (late, "expected_scatter"))
            theory = expected_survival(float(predicted[p]), lateness, scatter, times)
        if np.isfinite(theory).any():
            ax.plot(times, theory, color=colour, lw=1.6, ls="--")
        elif np.isfinite(predicted[p]):
            ax.axvline(float(predicted[p]), color=colour, lw=1.2, ls="--")
    if not ax.lines:
        ax.plot([], [], " ", label=f"no direction {event_of(simulation).present}")
    ax.set(xscale="log", xlim=(times[0], times[-1]), ylim=(-0.03, 1.03))
    title = f"steps: runs with 95 % interval, dashed: {'predicted runs' if sampled else 'theory'}"
    layout = _legend_of(measured.shape[1])
    finish_panel(ax, "time", f"share of runs without {event_of(simulation).noun}", title, loc="lower left", **layout)
    return ax


def plot_learning(
    tree: xr.DataTree, ax: Axes | None = None, *, quantity: str = "learned", style: str | None = None
) -> Axes:
    r"""Draw progress over time, or the loss: lines are theory, bands 10 to 90 % of the runs.

    These are learned masses by direction over :math:`a_p`, of a network components
    :math:`f_\alpha / f^*_\alpha`, or the eigenvalues of its sensitivity over those of its teacher where that has no
    components, or its test error where labels are classes; at most twelve, dimensionless, 1 where all is learned but
    the error. Of runs at two learning rates those at the
    smaller one are drawn, on the time of theory. Time is the flow time. `quantity` "loss" draws the loss; that of the
    average of the weights, where there is one, is dotted. Other arguments and the result are those of `plot_times`.
    ValueError is raised for samples that are used again: their theory does not say what is learned.

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> ax = plot_learning(tree)
    >>> ax.get_xlabel()
    'flow time $t$'
    """
    from sgd_check.verdicts.curves import AVERAGE, quantities_of

    _, simulation, prediction = compared_parts(tree)
    check_choice("quantity", quantity, ("learned", "loss"))
    if "finer" in tree.children:
        simulation = tree["finer"].to_dataset()
    problem, is_loss = Problem.from_dataset(simulation), quantity == "loss"
    theory = [curve for curve in quantities_of(problem, prediction) if (curve.kind in ("loss", AVERAGE)) == is_loss]
    label = quantity
    if theory:
        kind = theory[0].kind
        theory = [curve for curve in theory if curve.kind in (kind, AVERAGE)]
        require(
            kind in _LEARNED,
            f"Argument `tree` must say what is learned over time, but has the {kind}, which `plot_comparison` draws.",
        )
        label = _LEARNED[kind]
    ax = axes_or_new(ax, style)
    runs = {(curve.kind, curve.label): curve.values for curve in quantities_of(problem, simulation)}
    sound, time = sound_runs(simulation), simulation["time"].values
    for at, colour in spread_directions(len(theory)):
        curve, shade = theory[at], PREDICTED if is_loss else colour
        unit, name = _unit_and_name(curve, prediction, at)
        values = runs.get((curve.kind, curve.label))
        if values is not None and sound.any():
            low, high = np.quantile(values[sound] / unit, [0.1, 0.9], axis=0)
            ax.fill_between(time, low, high, color=shade, alpha=0.25, lw=0)
        line = ":" if curve.kind == AVERAGE else "-"
        ax.plot(prediction["time"].values, curve.values / unit, color=shade, lw=1.8, ls=line, label=name)
    if not theory and "second_layer" not in simulation and not problem.learned_part.is_defined:
        undefined = "learned mass: not defined,\nthe link has no part of degree 3 or more"
        ax.text(0.5, 0.5, undefined, transform=ax.transAxes, ha="center", va="center")
    ax.set_yscale("log" if is_loss else "linear")
    _finish_over_time(ax, time, label, "lines: theory; bands: 10 to 90 % of the runs", loc="upper left", ncols=4)
    if not is_loss:
        low, high = ax.dataLim.intervaly
        ax.set_ylim(min(low, -0.05), max(high, 1.0) + 0.2)  # with room for the legend
    elif "loss" in prediction:
        # The losses of theory in the shown times.
        seen = prediction["loss"].sel(time=slice(*ax.get_xlim())).values
        if (seen > 0).any():
            ax.set_ylim(0.3 * max(float(np.nanmin(seen[seen > 0])), 1e-8), 2.0 * float(np.nanmax(seen)))
    report.log_ticks(ax)
    return ax


def _unit_and_name(curve: Quantity, prediction: xr.Dataset, at: int) -> tuple[float, str]:
    """Return the number by which a curve is divided before it is drawn, and its name in the legend.

    The number is the teacher's size of the quantity, with the sign of the teacher's component for components, and 1 for
    losses, errors and averages. `at` is the index of the curve among those of its kind, from 0.
    """
    from sgd_check.verdicts.curves import AVERAGE, LEAST_SHARE

    size = curve.scale / LEAST_SHARE
    if curve.kind == "component":
        sign = -1.0 if float(prediction["teacher_component"].values[at]) < 0 else 1.0
        return sign * size, report.component_formula(curve.label)
    if curve.kind in ("loss", "test error"):
        return 1.0, f"_{curve.kind}"
    if curve.kind == "squared norm":
        return size, f"$i = {at + 1}$"
    if curve.kind == AVERAGE:
        return 1.0, "of the average of the weights"
    return size, rf"$\lambda_{{{at + 1}}}$" if curve.kind == "sensitivity" else f"$p = {at + 1}$"


def plot_loss_band(
    tree: xr.DataTree, axes: tuple[Axes, Axes] | None = None, *, style: str | None = None
) -> tuple[Axes, Axes]:
    """Draw the mean loss of the runs with its band and the predicted loss; below, the residual in standard errors.

    Where runs at two learning rates are extrapolated to none, that mean, which the band is of, is dashed beside it.
    The band is simultaneous over the times compared, at the rate of false alarms of the comparison; elsewhere, where
    the mean of early and late runs means little, the residual is left out. Arguments are those of `plot_times`, but
    for the two `axes` of loss and residual, which are returned.

    Examples
    --------
    >>> import dynamics, sgd_check
    >>> given = {"width": 1, "dimension": 8, "initial_overlaps": ([[0.5]], [[1.0]], [0.01])}
    >>> problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), **given)
    >>> tree = sgd_check.check(problem, directions=1, seeds=16, progress=False)
    >>> loss, residual = plot_loss_band(tree)
    >>> loss.get_yscale(), residual.get_ylabel()
    ('log', 'residual / s.e.')
    """
    comparison, simulation, prediction = compared_parts(tree)
    upper, lower = report.panels_or_new(axes, 2, LOSS_SIZE, 2, style=style, sharex=True, height_ratios=(2.2, 1.0))
    time, loss = simulation["time"].values, of_sound_runs(simulation, "loss")
    lowest, largest = np.inf, 0.0
    if loss.size:
        finite = np.isfinite(loss).any(axis=0)
        low, high = np.nanquantile(loss[:, finite], [0.1, 0.9], axis=0)
        lowest, largest = float(low.min()), float(high.max())
        upper.fill_between(time[finite], low, high, color=SIMULATED, alpha=0.16, lw=0, label="runs, 10 to 90 %")
    if "mean_loss" in comparison:
        mean, width = comparison["mean_loss"].values, comparison["loss_standard_error"].values * _critical(comparison)
        theory = comparison.attrs["theory"]
        label = "predicted runs, mean" if theory == "sample" else THEORY_NAMES[theory]
        if loss.size:
            upper.plot(time[finite], np.nanmean(loss[:, finite], axis=0), color=SIMULATED, lw=1.4, label="runs, mean")
        if is_extrapolated(tree):
            upper.plot(time, mean, color=SIMULATED, lw=1.2, ls="--", label=EXTRAPOLATED)
        elif not loss.size:
            upper.plot(time, mean, color=SIMULATED, lw=1.4, label="runs, mean")
        band: dict[str, object] = {"where": comparison["loss_compared"].values != 0, "color": SIMULATED, "alpha": 0.5}
        upper.fill_between(time, mean - width, mean + width, lw=0, label="its band where compared", **band)
        upper.plot(time, comparison["expected_loss"].values, color=PREDICTED, lw=1.2, label=label)
    elif "loss" in prediction and "seed" not in prediction.dims:
        upper.plot(prediction["time"].values, prediction["loss"].values, color=PREDICTED, lw=1.2, label="prediction")
    upper.set_yscale("log")
    if largest > 0:
        upper.set_ylim(max(0.3 * lowest, 1e-12), 2.0 * largest)
    _finish_over_time(upper, time, "loss", f"loss of {loss.shape[0]} runs{_blown_up(comparison)}", loc="lower left")
    if "loss_z" in comparison:
        _draw_residual(lower, comparison)
    else:
        lower.text(0.5, 0.5, "the prediction has no loss", ha="center", va="center", transform=lower.transAxes)
        lower.set_yticks([])
    _finish_over_time(lower, time, "residual")
    upper.tick_params(labelbottom=False)
    upper.set_xlabel("")
    return upper, lower


def _draw_residual(ax: Axes, comparison: xr.Dataset) -> None:
    """Draw the residual of the loss, mean of the runs less theory in standard errors, at the times that are compared.

    The shade is the range that theory and the rate of false alarms allow; points are coloured by whether the score z is
    beyond its critical value. Points beyond the panel are arrows at its edge.
    """
    shown = comparison.isel(time=comparison["loss_compared"].values != 0)
    names = ("time", "loss_z", "expected_loss", "mean_loss", "expected_loss_low", "expected_loss_high")
    time, z, expected, *losses = (shown[name].values for name in names)
    critical = _critical(comparison)
    if comparison.attrs["theory"] == "sample":
        residual, low, high = z, np.zeros(z.size), np.zeros(z.size)
    else:
        residual, low, high = ((loss - expected) / shown["loss_standard_error"].values for loss in losses)
    low, high = low - critical, high + critical
    # All of the shade is shown, and residuals up to three critical scores; those beyond are arrows at the edge.
    allowed = 1.15 * np.abs([low, high]).max(initial=critical)
    edge = max(allowed, min(1.2 * np.abs(residual).max(initial=0.0), 3.0 * critical))
    colours, places = np.where(np.abs(z) > critical, PREDICTED, SIMULATED), np.clip(residual, -0.95 * edge, 0.95 * edge)
    # The shade is drawn time by time, since between plateaus nothing is compared.
    ax.vlines(time, low, high, color=SIMULATED, alpha=0.18, lw=4)
    for marker, part in (("o", np.abs(residual) <= edge), ("^", residual > edge), ("v", residual < -edge)):
        ax.scatter(time[part], places[part], s=9, c=colours[part], marker=marker, zorder=3)
    ax.axhline(0.0, color=REFERENCE, lw=0.8)
    ax.set_ylim(-edge, edge)


def _critical(comparison: xr.Dataset) -> float:
    """Return the normal score beyond which the loss at a time refutes theory."""
    return critical_score(int(comparison.attrs["loss_compared_times"]), float(comparison.attrs["false_alarm_rate"]))


# --- mean fields and laws of estimators -------------------------------------------------------------------------------


def _draw_widths(tree: xr.DataTree, panels: Any) -> None:
    """Draw the loss, m E(f_m − f_∞)², √m |Δ| and their exponents in m, of SGD without its noise.

    Curves are means over starts with two standard errors; dashed black is the mean field, the grey band the effect of
    corrections of finite width on the exponent, and the black line the tested mean over its window, with two standard
    errors.
    """
    comparison = tree["comparison"].to_dataset()
    shown = comparison.isel(time=comparison["time"].values > 0.0)
    time, attrs = shown["time"].values, comparison.attrs
    report.plot_chaos(comparison, panels[1:])
    report.draw_widths(panels[0], shown, "loss", [line.get_color() for line in panels[1].get_lines()], alpha=0.2)
    panels[0].plot(time, shown["mean_field_loss"].values, "--", color="black", lw=1.2, label="mean field")
    panels[0].set(yscale="log", ylabel=axis_label("law_loss"))
    allowed, ends = float(attrs["width_correction"]), np.array([attrs["tested_from"], attrs["tested_to"]])
    exponent, error = (float(shown[name]) for name in ("mean_gap_exponent", "mean_gap_exponent_error"))
    tested: dict[str, object] = {"color": "black", "lw": 2}
    panels[3].axhspan(-1.0 - allowed, -1.0 + allowed, color=REFERENCE, alpha=0.18, lw=0)
    panels[3].plot(ends, [exponent, exponent], label="tested: mean over log time", **tested)
    panels[3].errorbar(float(np.sqrt(ends.prod())), exponent, yerr=report.BAND * error, capsize=4, **tested)
    panels[3].set_ylim(-2.0, 0.1)
    for ax in panels:
        _finish_over_time(ax, time, ax.get_ylabel())
    if np.isnan(shown["coupling_error"].values).all():
        panels[2].get_legend().remove()
        panels[2].text(0.5, 0.5, "no tracers: neurons not followed", ha="center", transform=panels[2].transAxes)
    runs = f"{attrs['usable_runs']} runs of {comparison.sizes['seed']} starts"
    panels[0].set_title(f"{attrs['verdict']}: {runs}", fontsize=small(panels[0], 1.0))


def _draw_reused(tree: xr.DataTree, panels: Any) -> None:
    """Draw losses, overlaps and squared norms of runs on samples that are used again, in three `panels`.

    Lines are theory; points are means over the runs, with bars of two standard errors.
    """
    comparison, simulation, prediction = compared_parts(tree)
    for ax, names in zip(panels, (("loss", "train_loss"), ("teacher_overlap",), ("squared_norm",)), strict=True):
        for name, colour in zip(names, (SIMULATED, PREDICTED), strict=False):
            mean, error = report.mean_band(of_sound_runs(simulation, name))
            lines, errors = (part.reshape(len(part), -1).T for part in (mean, error))
            for line, wide in zip(lines, errors, strict=True):
                ax.errorbar(simulation["time"].values, line, yerr=wide, fmt=".", color=colour)
            theory = prediction[name].values.reshape(prediction.sizes["time"], -1)
            words = {"loss": "new samples", "train_loss": "training"}.get(name, "theory")
            ax.plot(prediction["time"].values, theory, color=colour, label=[words, *["_"] * (theory.shape[1] - 1)])
        finish_panel(ax, "step_time", names[0])
    panels[0].set_title(f"{comparison.attrs['verdict']}: {comparison.attrs['usable_runs']} runs; lines: theory")


def plot_estimates(estimates: xr.Dataset, comparison: xr.Dataset | None, ax: Axes) -> None:
    """Draw the squared overlaps of estimates on `ax` in increasing order, with their mean and two standard errors.

    If there is a `comparison`, the law and the band that a finite dimension allows are drawn too.
    """
    overlap = np.sort(estimates["overlap_squared"].values)
    rank = (np.arange(overlap.size) + 0.5) / overlap.size
    ax.plot(rank, overlap, "o", color=SIMULATED, ms=4, label="estimates, sorted")
    mean, error = report.mean_band(overlap[np.isfinite(overlap)])
    ax.axhline(float(mean), color=SIMULATED, lw=1.2, label="mean, two s.e.")
    ax.axhspan(float(mean - error), float(mean + error), color=SIMULATED, alpha=0.2, lw=0)
    if comparison is not None:
        law, allowed = float(comparison["predicted_overlap_squared"]), float(comparison["allowed_deviation"])
        ax.axhline(law, color=PREDICTED, lw=1.6, label="law")
        ax.axhspan(law - allowed, law + allowed, color=PREDICTED, alpha=0.15, lw=0, label="allowed at this d")
    ax.set_ylim(-0.03, 1.03)
    finish_panel(ax, "estimate_share", "overlap_squared", f"$n = {estimates.attrs['samples']}$ samples")


def _draw_estimates(tree: xr.DataTree, panels: Any) -> None:
    """Draw the estimates of a comparison into the first of the panels."""
    comparison, simulation, _ = compared_parts(tree)
    plot_estimates(simulation, comparison, panels[0])


def _draw_inputs(tree: xr.DataTree, panels: Any) -> None:
    """Draw survival of both kinds of runs over time, and ratios of times by theory, measures of rows, and runs."""
    comparison = tree["comparison"].to_dataset()
    attrs, (left, right) = comparison.attrs, panels
    styles = (("gaussian", "Gaussian inputs", PREDICTED), ("rows", str(attrs["rows"]), SIMULATED))
    for name, label, colour in styles:
        if f"/simulation/{name}" not in tree.groups:
            continue
        runs = tree[f"simulation/{name}"].to_dataset()
        time = runs["time"].values
        squares = np.max(of_sound_runs(runs, "teacher_overlap") ** 2, axis=2)  # over neurons
        shown = (time > 0.0) & np.isfinite(squares).any(axis=(0, 2))
        for p in range(squares.shape[2] if shown.any() else 0):
            band = np.nanquantile(squares[:, shown, p], (0.5, 0.25, 0.75), axis=0)
            report.draw_band(left, time[shown], tuple(band), colour, lw=1.6, label=label if p == 0 else "_")
            left.set_xscale("log")
    left.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    finish_panel(left, "summed_time", "squared overlap, median and quartiles")
    direction, gauss = comparison["direction"].values, comparison["predicted_emergence_time"].values
    kinds = (
        (
            "fourth cumulants",
            comparison["corrected_emergence_time"] / gauss,
            comparison["corrected_error"] / gauss,
            "s",
        ),
        ("path meter", comparison["path_emergence_time"] / gauss, comparison["path_error"] / gauss, "^"),
        ("runs on rows / Gaussian runs", comparison["run_ratio"], comparison["run_ratio_error"], "o"),
    )
    colours = (REFERENCE, PREDICTED, SIMULATED)
    right.axhline(1.0, color=REFERENCE, lw=0.8, label="Gaussian theory")
    for at, ((label, value, error, mark), colour) in enumerate(zip(kinds, colours, strict=True)):
        finite = np.isfinite(value.values)
        right.errorbar(
            direction[finite] + 0.12 * (at - 1), value.values[finite], yerr=2.0 * error.values[finite], fmt=mark,
            color=colour, capsize=3, label=label,
        )  # fmt: skip
    right.set_xticks(direction[:16])
    room = 0.5 + 0.7 * direction.size  # for the legend
    right.set_xlim(direction[0] - 0.5, direction[-1] + room)
    finish_panel(right, "direction", "time over that of Gaussian inputs", loc="center right")
    left.set_title(f"{attrs['verdict']}: {attrs['usable_runs']} runs of each kind")


def _draw_kernels(tree: xr.DataTree, panels: Any) -> None:
    """Draw the errors of all draws and of theory into the first of the panels."""
    _, simulation, prediction = compared_parts(tree)
    report.plot_kernel(simulation, panels[0])
    report.plot_kernel(prediction, panels[0])


#: Theory -> function that draws a comparison on panels, inches and shape of these.
_PANELS: dict[str, tuple[Callable[..., None], tuple[float, float], tuple[int, int]]] = {
    MEAN_FIELD: (_draw_widths, (11.0, 8.2), (2, 2)),
    LAW: (_draw_estimates, report.ONE_PANEL, (1, 1)),
    KERNELS: (_draw_kernels, report.ONE_PANEL, (1, 1)),
    REUSED: (_draw_reused, (13.0, 4.2), (1, 3)),
    INPUTS: (_draw_inputs, (11.0, 4.2), (1, 2)),
}


# --- runs alone -------------------------------------------------------------------------------------------------------


def plot_run_losses(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the loss of each run over time, and the median of the runs that are left."""
    loss = simulation["loss"].values
    shown = (simulation["time"].values > 0) & np.isfinite(loss).any(axis=0)
    time, loss = simulation["time"].values[shown], loss[:, shown]
    ax.loglog(time, np.where(loss > 0, loss, np.nan).T, color=SIMULATED, lw=0.6, alpha=0.5)
    if time.size:
        ax.loglog(time, np.nanmedian(loss, axis=0), color=SIMULATED, lw=2.0, label="median of the runs that are left")
    finish_panel(ax, "summed_time", "loss")


def plot_run_times(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the emergence times of the runs by direction on `ax`, with predicted times, if any, as crosses."""
    from matplotlib.ticker import MaxNLocator

    number, times = simulation["direction"].values, simulation["emergence_time"].values
    ax.plot(np.broadcast_to(number, times.shape).ravel(), times.ravel(), "o", color=SIMULATED, ms=4, alpha=0.4)
    predicted = simulation.get("predicted_emergence_time", np.full(number.size, np.nan))
    finite = np.isfinite(np.asarray(predicted))
    if finite.any():
        ax.plot(number[finite], predicted[finite], "x", color=PREDICTED, ms=8, label="predicted")
    if (times > 0).any() or finite.any():
        ax.set_yscale("log")
    else:
        ax.text(0.5, 0.5, f"no direction {event_of(simulation).past}", ha="center", transform=ax.transAxes)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(number[0] - 0.5, number[-1] + 0.5)
    finish_panel(ax, "direction", f"{event_of(simulation).noun} time")


def plot_run_components(simulation: xr.Dataset, ax: Axes) -> None:
    """Draw the components of a network over its teacher's, f_α/f*_α: median and quartiles of the runs that are left."""
    share = report.component_ratio(simulation)
    shown = (simulation["time"].values > 0) & np.isfinite(share).any(axis=(0, 2))
    time, names = simulation["time"].values[shown], simulation["component_name"].values.tolist()
    for c, colour in spread_directions(len(names)):
        band = np.nanquantile(share[:, shown, c], (0.5, 0.25, 0.75), axis=0)
        report.draw_band(ax, time, tuple(band), colour, lw=1.6, label=report.component_formula(names[c]))
    ax.set_xscale("log")
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    ax.axhline(0.5, color=REFERENCE, lw=0.8, ls=":")
    finish_panel(ax, "summed_time", "component_share")
