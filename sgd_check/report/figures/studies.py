"""Figures of the studies, one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report import (
    BAND,
    COLOURS,
    IDEAL,
    MEASURED,
    PREDICTED,
    REFERENCE,
    draw_transfer,
    drawer_of,
    figure_style,
    finish_panel,
    given_panels,
    new_panels,
    power,
    shades,
)
from sgd_check.report.figures.full_batch import draw_full_batch
from sgd_check.report.figures.style import share_bars
from sgd_check.report.studies import rows_of
from sgd_check.studies.sgd_study import log_means

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Of "agree", "disagree" and "undecided".
VERDICT_COLOURS, VERDICT_HATCHES = (IDEAL, PREDICTED, "#c8ccd0"), ("", "///", "...")
#: Of information exponents.
MARKERS = ("o", "s", "^", "D")


def plot_study(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a study.

    Parameters
    ----------
    dataset : Dataset
        Result of `sample_complexity`, `unstable_discretisation`, `step_size_phases`, `full_batch_recovery`,
        `calibration` or `sgd_transfer`.
    axes : sequence of Axes, optional
        Where to draw: three of `unstable_discretisation` and `sgd_transfer`, two of others; by default a new figure.
    style : {"screen", "paper", "talk"}, optional
        Of a new figure; see `figure_style`.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If the dataset is no study's, or `axes` are not so many.
    """
    draw, size, rows, columns, options = drawer_of(dataset, _DRAWN)
    with figure_style(style):
        if axes is None:
            panels: Any = new_panels(size, rows, columns, **options)[1]
        else:
            panels = given_panels("axes", axes, rows * columns)
        draw(dataset, panels)
    figure: Figure = panels[0].get_figure()
    return figure


def _draw_complexity(dataset: xr.Dataset, axes: Any) -> None:
    """Left: steps to escape against d. Right: the same times over those of the finite-step equation."""
    steps_ax, ratio_ax = axes
    d = dataset["dimension"].values.astype(float)
    rows = list(rows_of(dataset))
    for at, (name, one) in enumerate(rows):
        colour = COLOURS[at % len(COLOURS)]
        marker = MARKERS[dataset["information_exponent"].values.tolist().index(name["k"]) % len(MARKERS)]
        rate, runs = one["step_size"].values, one["emergence_step"].values
        equation, flow = one["finite_step_time"].values, one["predicted_emergence_time"].values
        logs, error = log_means(runs)
        mean = np.exp(logs)
        known, slopes = _row_words(name, one)
        steps_ax.loglog(np.repeat(d, runs.shape[1]), runs.ravel(), ".", color=colour, ms=3, alpha=0.35)
        bars = mean * np.array([1.0 - np.exp(-BAND * error), np.exp(BAND * error) - 1.0])
        steps_ax.errorbar(d, mean, yerr=bars, fmt=marker, color=colour, ms=5, capsize=3, label=f"{known}: {slopes}")
        steps_ax.loglog(d, equation / rate, "-", color=colour, lw=1.2)
        steps_ax.loglog(d, flow / rate, "--", color=colour, lw=1.0)
        ratio = mean * rate / equation
        spread = np.array([ratio * (1.0 - np.exp(-BAND * error)), ratio * (np.exp(BAND * error) - 1.0)])
        # The points of different rows side by side.
        shifted = d * 1.06 ** ((2 * at - len(rows) + 1) * min(1.0, 3.0 / len(rows)))
        ratio_ax.errorbar(shifted, ratio, yerr=spread, fmt=marker, color=colour, ms=5, capsize=3, label=f"SGD, {known}")
        ratio_ax.plot(d, flow / equation, "--", color=colour, lw=1.0)
    for ax, styles in ((steps_ax, {"-": "finite-step equation", "--": "flow"}), (ratio_ax, {"--": "flow"})):
        for style, label in styles.items():
            ax.plot([], [], style, color=REFERENCE, label=label)
    ratio_ax.axhline(1.0, color=REFERENCE, lw=1.0)
    ratio_ax.set_xscale("log")
    over = "time over that of the finite-step equation"
    # Room for the legend above the curves.
    low, high = steps_ax.get_ylim()
    steps_ax.set_ylim(low, high * (high / low) ** (0.11 * len(rows)))
    finish_panel(steps_ax, "dimension $d$", "SGD steps until $C^2 = 1/2$", "small dots: runs, large: geometric mean")
    finish_panel(ratio_ax, "dimension $d$", over, "error bars: twice the standard error")
    for ax in axes:
        ax.set_xticks(d, [f"{value:g}" for value in d])
        ax.minorticks_off()


def _row_words(name: dict[str, Any], one: xr.Dataset) -> tuple[str, str]:
    """Return what a row is, and its slopes by SGD and in theory."""
    (x, equation, _, law), dx = one["exponent"].values.tolist(), float(one["exponent_error"].values[0])
    if "e" not in name:
        return f"$k = {name['k']}$", f"SGD, {power('d', x, dx)}; $k - 1 = {name['k'] - 1}$"
    smoothing = rf"$\lambda = d^{{{name['e']:g}}}$" if name["e"] else r"$\lambda = 0$"
    return f"$k = {name['k']}$, {smoothing}", f"{power('d', x, dx)}, equation {equation:.2f}, limit {law:.2f}"


def _draw_discretisation(dataset: xr.Dataset, axes: Any) -> None:
    """Left: theory at the large size. Middle: SGD's loss at each step size. Right: what becomes of each direction."""
    for draw, ax in zip((_draw_large, _draw_losses, _draw_delays), axes, strict=True):
        draw(dataset, ax)


def _draw_large(dataset: xr.Dataset, ax: Axes) -> None:
    loss, needed = dataset["large_target_loss"].values, dataset["large_samples_needed"].values
    exponent = dataset["exponent"].values
    fitted, law = float(exponent[2]), float(exponent[4])
    error = float(dataset["exponent_error"].values[2])
    ax.loglog(needed, loss, "o", color=MEASURED, ms=5, label="theory: pairs with delay and lag")
    middle = int(np.flatnonzero(np.isfinite(needed))[np.isfinite(needed).sum() // 2])
    for slope, style, colour, label, height in (
        (fitted, "--", "k", f"fit: {power('n', fitted, error)}", 1.0),
        (law, ":", REFERENCE, f"asymptotic: {power('n', law)}", 1.6),
    ):
        line = height * loss[middle] * (needed / needed[middle]) ** slope
        ax.loglog(needed, line, style, color=colour, lw=1.3, label=label)
    count = int(dataset["large_target"].values[-1])
    finish_panel(ax, "samples $n$", "loss reached", f"theory, targets 1 to {count}, step tuned to each")


def _draw_losses(dataset: xr.Dataset, ax: Axes) -> None:
    samples, losses = dataset["samples"].values, dataset["sample_loss"].values
    level, needed = dataset["target_loss"].values, dataset["samples_needed"].values
    for at, target, colour in _coloured_targets(dataset):
        blown = float(dataset["blown_up_share"].values[at])
        lost = f", {100 * blown:.0f} % blown up" if blown > 0 else ""
        # A run that blew up has no loss left: it counts as infinite, and the median goes with it.
        ended = np.isfinite(losses[at]).any(axis=0)
        middle = np.median(np.where(np.isnan(losses[at][:, ended]), np.inf, losses[at][:, ended]), axis=0)
        ax.loglog(samples[ended], middle, color=colour, lw=1.1, label=f"tuned to {target}{lost}")
        reached = needed[at][np.isfinite(needed[at])]
        if reached.size:
            logs = np.log(reached)
            mean, spread = np.exp(logs.mean()), BAND * logs.std() / np.sqrt(max(logs.size - 1, 1))
            bars = mean * np.array([[1.0 - np.exp(-spread)], [np.exp(spread) - 1.0]])
            ax.errorbar(mean, level[at], xerr=bars, fmt="o", color=colour, ms=6, capsize=3)
    crosses: dict[str, Any] = {"color": PREDICTED, "ms": 8, "mew": 1.6, "zorder": 3, "label": "theory"}
    ax.loglog(dataset["predicted_samples_needed"].values, level, "x", **crosses)
    law = float(dataset["exponent"].values[0])
    error = float(dataset["exponent_error"].values[0])
    ax.set_ylim(0.5 * level[-1], 1.6)
    fitted = f", {power('n', law, error)}" if np.isfinite(law) else ""
    finish_panel(ax, "samples $n$", r"loss $\mathrm{E}(f-f^*)^2$", f"SGD, medians; circles: target reached{fitted}")


def _draw_delays(dataset: xr.Dataset, ax: Axes) -> None:
    a = dataset["teacher_coefficient"].values
    flow = dataset["predicted_emergence_time"].values
    lag = dataset["predicted_learned_time"].values - flow
    end = dataset["step_size"].values * _last_samples(dataset)
    late = dataset["emergence_time"].values
    late = np.sort(np.where(np.isnan(late), np.inf, late), axis=1)
    ratios = np.median(late, axis=1) / flow
    low, high = (late[:, round(q * (late.shape[1] - 1))] / flow for q in (0.25, 0.75))
    delays = (dataset["delayed_time"].values - lag) / flow
    drawn = np.concatenate([ratios, high, np.where(1.5 * flow <= end[:, None], delays, np.nan)])
    top = 1.15 * float(np.max(drawn, initial=1.3, where=np.isfinite(drawn)))
    for at, target, colour in _coloured_targets(dataset):
        noise = a[target - 1] / a
        # Directions that the flow itself would not have time for say nothing of the noise.
        seen = (1.5 * flow <= end[at]) & np.isfinite(dataset["blown_up_share"].values[at])
        found = seen & np.isfinite(ratios[at])
        bars = np.abs(np.array([low[at], np.minimum(high[at], top)])[:, found] - ratios[at][found])
        thin: dict[str, Any] = {"ms": 4, "elinewidth": 0.6, "label": f"tuned to {target}"}
        ax.errorbar(noise[found], ratios[at][found], yerr=bars, fmt="o", color=colour, **thin)
        ax.semilogx(noise[seen], delays[at][seen], "-", color=colour, lw=1.0)
        lost = seen & ~found
        ax.semilogx(noise[lost], np.full(lost.sum(), 0.98 * top), "^", color=colour, ms=6)
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    ax.set(xscale="log", ylim=(min(0.8, float(np.nanmin(low))), top))
    x, y = "noise: last wanted weight over the direction's own", "emergence time over the flow's"
    finish_panel(ax, x, y, "medians, quartiles; lines: theory; arrows: less than half", loc="upper left")


def _coloured_targets(dataset: xr.Dataset) -> list[tuple[int, int, Any]]:
    """Return place, number of wanted directions and colour of each target."""
    targets = dataset["target"].values.tolist()
    return list(zip(range(len(targets)), targets, shades(len(targets), 0.85), strict=True))


def _last_samples(dataset: xr.Dataset) -> Any:
    """Return the last recorded number of samples of each target."""
    recorded = np.isfinite(dataset["sample_loss"].values).any(axis=1)
    return dataset["samples"].values[recorded.shape[1] - 1 - np.argmax(recorded[:, ::-1], axis=1)]


def _draw_step_size(dataset: xr.Dataset, axes: Any) -> None:
    """Above: emergence time against the step size. Below: shares of the runs that blew up or never emerged."""
    time_ax, share_ax = axes
    shown = int(dataset.attrs["shown_direction"]) - 1
    rate = dataset["learning_rate"].values
    time = dataset["emergence_time"].values[..., shown]
    flow = float(dataset["predicted_emergence_time"].values[shown])
    finite = dataset["finite_step_time"].values[:, shown]
    blown, lost = dataset["blown_up_share"].values, dataset["censored_share"].values[:, shown]
    time_ax.loglog(np.repeat(rate, time.shape[1]), time.ravel(), ".", color=MEASURED, ms=4, alpha=0.3, label="SGD runs")
    ordered = np.sort(np.where(np.isnan(time), np.inf, time), axis=1)
    quartiles = [ordered[:, round(q * (time.shape[1] - 1))] for q in (0.25, 0.5, 0.75)]
    top = float(np.nanmax(time))
    low, middle, high = (np.where(np.isnan(blown), np.nan, np.minimum(quartile, 10 * top)) for quartile in quartiles)
    time_ax.fill_between(rate, low, high, color=MEASURED, alpha=0.15, lw=0, label="quartiles, lost runs as late")
    shown_middle = np.where(middle < 10 * top, middle, np.nan)
    time_ax.loglog(rate, shown_middle, "o-", color=MEASURED, ms=5, lw=1.2, label="median")
    time_ax.axhline(flow, color="k", lw=1.0, ls="--", label="flow")
    time_ax.loglog(rate, finite, color=PREDICTED, lw=1.6, label="finite-step equation")
    time_ax.set_ylim(0.7 * float(np.nanmin(time)), 1.4 * top)
    for share, style, colour, label in ((blown, "o-", PREDICTED, "blown up"), (lost, "s-", REFERENCE, "not emerged")):
        bars = share_bars(share, time.shape[1])
        share_ax.errorbar(rate, share, yerr=bars, fmt=style, color=colour, ms=4, lw=1.2, capsize=2, label=label)
    share_ax.set_ylim(-0.04, 1.04)
    if "learning_rate_limit" in dataset.attrs:
        for ax in axes:
            ax.axvline(dataset.attrs["learning_rate_limit"], color=IDEAL, lw=1.4, ls="-.", label="limit of stability")
    finish_panel(time_ax, "", r"emergence in flow time $\eta\times$ step", loc="upper left")
    finish_panel(share_ax, r"step size $\eta$", "share of runs, 95 %", loc="upper left")


def _draw_calibration(dataset: xr.Dataset, axes: Any) -> None:
    """Shares of the verdicts, one bar for each case, one panel for each of up to two learning rates."""
    limit, cases = float(dataset.attrs["learning_rate_limit"]), dataset["case"].values.tolist()
    for ax, rate in zip(axes, dataset["learning_rate"].values.tolist(), strict=False):
        counts = dataset["verdict_count"].sel(learning_rate=rate).values
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        left = np.zeros(len(cases))
        looks = zip(dataset["verdict"].values.tolist(), VERDICT_COLOURS, VERDICT_HATCHES, strict=True)
        for at, (verdict, colour, hatch) in enumerate(looks):
            ax.barh(cases, shares[:, at], left=left, color=colour, hatch=hatch, edgecolor="white", label=verdict)
            left += shares[:, at]
        ax.set_xlim(0.0, 1.0)
        title = rf"$\eta$ = {rate / limit:.3g} of the limit of stability"
        finish_panel(ax, "share of comparisons", "", title, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
    axes[0].invert_yaxis()
    for unused in axes[dataset.sizes["learning_rate"] :]:
        unused.remove()


def _draw_transfer(dataset: xr.Dataset, axes: Any) -> None:
    draw_transfer(dataset, axes, float(dataset.attrs["learning_rate_limit"]), "limit of stability")


_DRAWN: dict[str, tuple[Any, tuple[float, float], int, int, dict[str, Any]]] = {
    "sample-complexity": (_draw_complexity, (11.0, 4.4), 1, 2, {}),
    "unstable-discretisation": (_draw_discretisation, (15.0, 4.6), 1, 3, {}),
    "step-size": (_draw_step_size, (7.5, 6.0), 2, 1, {"sharex": True, "height_ratios": (2.2, 1.0)}),
    "full-batch": (draw_full_batch, (11.0, 4.4), 1, 2, {}),
    "calibration": (_draw_calibration, (12.0, 4.4), 1, 2, {"sharey": True}),
    "transfer": (_draw_transfer, (14.5, 4.4), 1, 3, {}),
}
