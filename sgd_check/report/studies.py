"""Studies of the step size of SGD: points, fitted exponents and those of theory, sentences, and the figures."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics import report
from dynamics.problem import checked_optimizer
from dynamics.report import MEASURED, PREDICTED, REFERENCE, Study, finish_panel, mean_band, power, records
from dynamics.report.figures import Arguments
from hermite.text.messages import with_error
from sgd_check.report.figures import late_quartiles
from sgd_check.studies.scaffold import log_means

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dynamics.report import Found
    from hermite.arrays import Array

    #: Place, number of wanted directions and colour of each target.
    Coloured = list[tuple[int, int, Any]]

#: Colours and hatches of "agree", "disagree" and "undecided".
VERDICT_COLOURS, VERDICT_HATCHES = (report.IDEAL, PREDICTED, "#c8ccd0"), ("", "///", "...")
#: Markers of information exponents.
MARKERS = ("o", "s", "^", "D")


# --- findings ---------------------------------------------------------------------------------------------------------


def _rows_of(dataset: xr.Dataset) -> Iterator[tuple[dict[str, Any], bool, xr.Dataset]]:
    """Yield the name of every curve of a study of the sample complexity, and its part of the dataset.

    The name has k, e if the landscape is smoothed, and the optimizer if there are several. Between name and part stands
    whether the steps are along random directions.
    """
    first = dataset.isel(direction=0)
    axes = {"information_exponent": "k", "smoothing_exponent": "e", "optimizer": "optimizer"}
    used = [name for name in axes if name in first.dims]
    for values in product(*(first[name].values.tolist() for name in used)):
        place = dict(zip(used, values, strict=True))
        along = not checked_optimizer(place.get("optimizer")).is_plain
        yield {axes[name]: value for name, value in place.items()}, along, first.sel(place)


def _complexity(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of how the steps to emergence grow with the dimension.

    The values are `points`, measured and predicted steps by dimension, and `fits`, the exponents x of steps ~ d^x with
    those of theory; there is one fit and one sentence per curve.
    """
    points: list[dict[str, object]] = []
    fits: list[dict[str, object]] = []
    lines = []
    for name, along, curve in _rows_of(dataset):
        rate = curve["step_size"].values
        mean, error = log_means(curve["emergence_step"].values)
        count = np.exp(mean)
        columns = {
            "d": curve["dimension"],
            "eta": rate,
            "steps": count,
            "s.e.": count * error,
            "equation": curve["finite_step_time"].values / rate,
            "flow": curve["predicted_emergence_time"].values / rate,
            "z": curve["time_deviation"],
            "censored": curve["censored_share"],
            "blown_up": curve["blown_up_share"],
        }
        points += [{**name, **row} for row in records(columns)]
        (x, equation, flow, limit), spread = curve["exponent"].values.tolist(), float(curve["exponent_error"].values[0])
        theory = {"equation": equation, "flow": flow, "asymptotic": limit}
        z = {"z_asymptotic": (x - limit) / spread, "z_equation": (x - equation) / spread}
        p = float(curve["p_value"].values)
        fits.append({**name, "exponent": x, "standard_error": spread, **theory, **z, "p_value": p})
        k, e = name["k"], name.get("e")
        smoothed = "" if e is None else f", smoothed by d^{e:g}" if e else ", not smoothed"
        law = "k" if along else "k - 1" if e is None else "k - 1 - (2 k - 4) e"
        # η ~ d^(−k/2) λ^(2k − 2), and along random directions another 1/d.
        share = k / 2 - (2 * k - 2) * (e or 0.0) + float(along)
        time = f"k/2 - 1 = {k / 2 - 1:g}" if e is None else f"{limit - share:g} as d grows"
        who, whose = ("zeroth order", "Its") if along else ("SGD", "SGD's")
        lines.append(
            f"k = {k}{smoothed}: steps ~ d^x, x = {with_error(x, spread)} by {who}; at these d {equation:.3f} by the "
            f"finite-step equation, {flow:.3f} by the flow; {law} = {limit:g}. {whose} x is {z['z_asymptotic']:+.1f} "
            f"standard errors from {law} and {z['z_equation']:+.1f} from the equation's; its times agree with the "
            f"equation's at p = {p:.2g}. In flow time: {x - share:.3f} by {who}, {time}."
        )
    lines.append("Standard errors: from the scatter over runs. z: mean ln(steps) against the equation, in these.")
    return {"points": points, "fits": fits}, lines


def _discretisation(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of the samples that SGD needs to reach a target loss.

    The values are `points`, samples by target beside theory, and `fits`, the exponents x of loss ~ samples^x.
    """
    predicted, flow = dataset["predicted_samples_needed"].values, dataset["predicted_emergence_time"].values
    targets, needed = dataset["target"].values, dataset["samples_needed"].values
    mean, error = log_means(needed)
    emerged = dataset["emergence_time"].values[np.arange(targets.size), :, targets - 1]
    columns = {
        "wanted": targets,
        "eta/limit": dataset["step_size"].values / dataset.attrs["learning_rate_limit"],
        "loss": dataset["target_loss"],
        "samples": np.exp(mean),
        "s.e.": np.exp(mean) * error,
        "theory": predicted,
        "z": (mean - np.log(predicted)) / error,
        "last_delay": np.median(np.where(np.isnan(emerged), np.inf, emerged), axis=1) / flow[targets - 1],
        "missed": np.isnan(needed).mean(axis=1),
        "blown_up": dataset["blown_up_share"],
    }
    names = {"source": "source", "exponent": "exponent", "standard_error": "exponent_error"}
    fits = records({title: dataset[name] for title, name in names.items()})
    sgd, same, large, ideal, law = (with_error(fit["exponent"], fit["standard_error"]) for fit in fits)
    sentences = [
        f"loss ~ samples^x: {sgd} by SGD (error from the scatter over runs), {same} by theory for the same problem.",
        f"At the large size {large} by theory, {ideal} by the ideal sum (errors: jackknife over targets).",
        f"Asymptotically {law}, which is no prediction for the small problem. Last delay: median emergence of the "
        "last wanted direction over the flow's. Missed: share of runs that did not reach the loss; no fit uses them.",
    ]
    return {"points": records(columns), "fits": fits}, sentences


def _step_size(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of emergence times by learning rate.

    The values are `points`, quartiles of times over that of the flow and shares of lost runs by rate, and the rates up
    to which SGD and its equation follow the flow, with errors.
    """
    attrs, (rate, time, flow, finite, blown, lost) = dataset.attrs, _of_shown_direction(dataset)
    shown, limit = int(attrs["shown_direction"]), float(attrs.get("learning_rate_limit", math.nan))
    low, middle, high = _quartiles(time, blown)
    columns = {
        "eta": rate,
        "eta/limit": rate / limit,
        "median/flow": middle / flow,
        "quartile_1": low / flow,
        "quartile_3": high / flow,
        "equation/flow": finite / flow,
        "not_emerged": lost,
        "blown_up": blown,
    }
    names = ("largest_faithful_rate", "largest_faithful_rate_of_equation", "half_blown_up_rate", "learning_rate_limit")
    numbers = {name: float(attrs.get(name, math.nan)) for name in names}
    errors = {f"{name}_error": float(attrs[f"{name}_error"]) for name in (names[0], names[2])}

    def rate_of(name: str) -> str:
        value, error = numbers[name], errors.get(f"{name}_error", math.nan)
        in_limits = f"{with_error(value, error)} = {value / limit:.2f} of the limit"
        return "beyond the range studied" if math.isnan(value) else in_limits

    sentences = [
        f"Direction {shown} emerges at t = {flow:.4g} in the flow; limit {limit:.4g}.",
        f"SGD's median is within 10 % of the flow up to {rate_of(names[0])}, "
        f"the finite-step equation up to {rate_of(names[1])}.",
        f"Half of the runs blow up from {rate_of(names[2])} on, within the time that was run.",
    ]
    return {"points": records(columns), "direction": shown, "flow": float(flow), **numbers, **errors}, sentences


def _of_shown_direction(dataset: xr.Dataset) -> tuple[Array, ...]:
    """Return step sizes, times of runs, flow and finite-step equation, and shares of runs blown up and censored."""
    shown = dataset.isel(direction=int(dataset.attrs["shown_direction"]) - 1)
    times = ("emergence_time", "predicted_emergence_time", "finite_step_time")
    return tuple(shown[name].values for name in ("learning_rate", *times, "blown_up_share", "censored_share"))


def _quartiles(time: Array, blown: Array) -> Array:
    """Return the quartiles over runs of times (rate, run), shape (3, rate): lost runs are infinite, absent ones NaN."""
    return np.where(np.isnan(blown), np.nan, late_quartiles(time.T))


def _calibration(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of how often verdicts are right.

    The values are `points`, the shares of "agree", "disagree" and "undecided" by learning rate and case of error, with
    the standard error of "disagree". Studies over kinds of problems have the values of `_calibration_of_kinds`.
    """
    if "kind" in dataset.dims:
        return _calibration_of_kinds(dataset)
    points, sentences, limit = [], [], float(dataset.attrs["learning_rate_limit"])
    for rate, case in product(dataset["learning_rate"].values.tolist(), dataset["case"].values.tolist()):
        cell = dataset.sel(learning_rate=rate, case=case)
        counts = dict(zip(cell["verdict"].values.tolist(), cell["verdict_count"].values.tolist(), strict=True))
        repetitions = sum(counts.values())
        shares = {verdict: count / max(repetitions, 1) for verdict, count in counts.items()}
        # One more comparison of either kind keeps the error above 0 if all have the same word.
        share = (counts["disagree"] + 1) / (repetitions + 2)
        error, seen = math.sqrt(share * (1 - share) / max(repetitions, 1)), float(cell["visible_error"].values[0])
        point = {"eta/limit": rate / limit, "case": case, **shares, "s.e.": error, "visible_error": seen}
        points.append(point | {"repetitions": int(repetitions)})
        lead = f"At {rate / limit:.3g} of the limit, {case}: disagree"
        rest = f"agree {100 * shares['agree']:.1f} %, undecided {100 * shares['undecided']:.1f} %."
        sentences.append(f"{lead} {with_error(100 * shares['disagree'], 100 * error)} %, {rest}")
    return {"points": points}, sentences


def _calibration_of_kinds(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of how often verdicts are right for many kinds of problems.

    The values are `points`, counts of verdicts by kind and case of error with the size of the error, and their sums
    over right theories and over large errors.
    """
    points: list[dict[str, object]] = []
    for kind, case in product(dataset["kind"].values.tolist(), dataset["case"].values.tolist()):
        cell = dataset.sel(kind=kind, case=case)
        counts, large = _counts(cell["verdict_count"]), _counts(cell["large_error_count"])
        columns = {"kind": kind, "case": case, "time effect": float(cell["time_effect"])}
        columns |= {"curve effect": float(cell["curve_effect"]), **counts, "large errors": sum(large.values())}
        points += [columns | {"agree in large errors": large["agree"]}] if any(counts.values()) else []
    sums = {
        "right theories": _counts(dataset["verdict_count"].sel(case="right").sum("kind")),
        "large errors": _counts(dataset["large_error_count"].sum(("kind", "case"))),
    }
    large_is = "a time off by 30 % or a curve by a tenth of its range"
    sentences = [
        f"{name.capitalize()}: {sum(words.values())} comparisons, {words['agree']} agree, "
        f"{words['undecided']} undecided, {words['disagree']} disagree."
        for name, words in sums.items()
    ]
    sentences += [
        f"{point['kind']}, {point['case']}: agree in {point['agree in large errors']} of {point['large errors']} "
        f"large errors."
        for point in points
        if point["agree in large errors"]
    ]
    sentences.append(f"Large: {large_is}. Time effect: largest |ln ratio|; curve effect: over its range; medians.")
    return {"points": points, **sums}, sentences


def _counts(counted: xr.DataArray) -> dict[str, int]:
    """Return numbers of comparisons by their verdict."""
    return {word: int(counted.sel(verdict=word)) for word in counted["verdict"].values.tolist()}


def _full_batch(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of recovery from n samples that are used again.

    The values are `points`, overlaps and shares of recovered runs by dimension d and ratio n/d beside the law, and
    `online`, the samples over d that online SGD needed by dimension.
    """
    law = dataset["predicted_overlap_squared"].sel(law_ratio=dataset["ratio"].values, method="nearest").values
    points = []
    for d in dataset["dimension"].values.tolist():
        part = dataset.sel(dimension=d)
        columns = {"n/d": part["ratio"], "overlap": part["overlap_squared"].values.mean(axis=-1), "law": law}
        columns |= {
            "descent": part["descent_overlap_squared"].values.mean(axis=-1),
            "recovered": part["recovered_share"],
        }
        points += [{"d": d, **row} for row in records(columns)]
    d = dataset["online_dimension"].values
    online, attrs = (dataset["online_samples"].values.mean(axis=1) / d).tolist(), dataset.attrs
    measured, error = (attrs.get(f"online_slope_{name}", math.nan) for name in ("measured", "error"))
    by_d = ", ".join(f"{value:.4g} at d = {size}" for size, value in zip(d.tolist(), online, strict=True))
    slope = f"slope in ln d {with_error(measured, error)}, by the mean step {attrs['online_slope']:.2f}"
    sentences = [
        f"Overlap: squared, of the first eigenvector; its law begins at n/d = {attrs['threshold_ratio']:.4g}.",
        "Recovered: share of the runs of descent with squared overlap above 0.99, of which there is no closed theory.",
        f"Online SGD: n/d = {by_d}; {slope}.",
    ]
    numbers = {name: attrs.get(name) for name in ("threshold_ratio", "online_slope", "exact_recovery_theory")}
    return {"points": points, **numbers, "online": dict(zip(map(str, d.tolist()), online, strict=True))}, sentences


def _epochs(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of several epochs over the same n samples.

    The values are `points`, overlaps after the last epoch by link, noise and ratio n/d, of theory, of runs, and of as
    many steps on fresh samples, with the epoch of the least test loss.
    """
    points, sentences = [], []
    last, exponents = dataset.isel(epoch=-1), ("link_exponent", "generative_exponent")
    passes, most = int(last["epoch"]), dataset["ratio"].values[-1]
    for link in dataset["link"].values.tolist():
        of_link = last.sel(link=link)
        k, generative = (int(of_link[name]) for name in exponents)
        for noise in dataset["label_noise"].values.tolist():
            part = of_link.sel(label_noise=noise)
            runs = part["measured_overlap"].values
            columns = {
                "n/d": part["ratio"],
                "C": part["reused_overlap"],
                "C of runs": runs.mean(axis=-1),
                "s.e.": runs.std(axis=-1, ddof=1) / math.sqrt(runs.shape[-1]),
                "fresh C": part["fresh_overlap"],
                "fresh n/n": part["fresh_epochs"],
                "best epoch": part["best_epoch"],
                "best of runs": _best_epochs(dataset.sel(link=link, label_noise=noise)).mean(axis=-1),
            }
            points += [{"link": link, "k": k, "k*": generative, "noise": noise, **row} for row in records(columns)]
        shown = of_link.sel(ratio=most).isel(label_noise=0)
        worth, C = float(shown["fresh_epochs"]), float(shown["reused_overlap"])
        equal = f"{worth:.3g} n" if math.isfinite(worth) else f"more than {passes} n"
        sentences.append(
            f"{link} (information exponent {k}, generative exponent {generative}), n/d = {most:g}: C = {C:.3f} after "
            f"{passes} epochs, {float(shown['fresh_overlap']):.3f} after as many steps on fresh samples, "
            + ("not seen." if math.isnan(worth) else f"where as much takes {equal} samples.")
        )
    sentences.append("Best epoch: of the least test loss, by theory and as a mean over runs.")
    return {"points": points}, sentences


def _finite_d(dataset: xr.Dataset) -> Found:
    """Return the values and the sentences of a study of theory at finite dimension.

    The values are `points`, by c and d at the time that is shown: mean loss of runs over theory, and standard
    deviations of loss and overlaps over those of theory, with standard errors.
    """
    shown, points, sentences = dataset.sel(time=dataset.attrs["shown_time"]), list[dict[str, object]](), []
    for scale in dataset["step_scale"].values.tolist():
        part = shown.sel(step_scale=scale)
        d, (overlaps, error) = part["dimension"].values, _overlap_scatter(part)
        columns = {
            "d": d,
            "eta": scale / d,
            "loss": part["loss_ratio"],
            "s.e.": part["loss_ratio_error"],
            "loss, d infinite": part["limit_loss_ratio"],
            "scatter of loss": part["loss_scatter_ratio"],
            "its s.e.": part["loss_scatter_error"],
            "scatter of overlaps": overlaps,
            "s.e. of that": error,
            "R": part["expected_shift"],
            "R of runs": part["overlap_shift"],
        }
        points += [{"c": scale, **row} for row in records(columns)]
        ratio, spread = part["loss_ratio"].values, part["loss_ratio_error"].values
        rows = zip(d.tolist(), ratio.tolist(), spread.tolist(), overlaps.tolist(), error.tolist(), strict=True)
        of_d = [
            f"d = {size}: loss {with_error(loss, loss_error)}, scatter of overlaps {with_error(around, around_error)}"
            for size, loss, loss_error, around, around_error in rows
        ]
        lead = f"Runs over theory at eta = {scale:g}/d and t = {dataset.attrs['shown_time']:g}"
        sentences.append(f"{lead}: {'; '.join([of_d[0], of_d[-1]])}.")
    sentences.append(
        "Scatter: standard deviation over runs, over that of the bands of theory. R: largest distance of a mean from "
        "theory in standard deviations, by the next order in 1/d and of the overlaps of runs."
    )
    return {"points": points, "shown_time": float(dataset.attrs["shown_time"])}, sentences


def _overlap_scatter(dataset: xr.Dataset) -> tuple[Array, Array]:
    """Return geometric means over overlaps of the ratios of standard deviations, and standard errors, of any axes.

    The error is that of one overlap, in the mean, since overlaps of one run are not independent.
    """
    ratio, error = dataset["overlap_scatter_ratio"].values, dataset["overlap_scatter_error"].values
    mean = np.exp(np.log(ratio).mean(axis=(-2, -1)))
    return mean, mean * (error / ratio).mean(axis=(-2, -1))


def _best_epochs(dataset: xr.Dataset) -> Array:
    """Return the epochs (ratio, run) of the least loss of runs, NaN for those that were not taken."""
    loss = dataset["measured_loss"].transpose("ratio", "run", "epoch").values
    return np.where(np.isnan(loss).any(axis=-1), np.nan, np.argmin(np.nan_to_num(loss, nan=np.inf), axis=-1))


# --- figures ----------------------------------------------------------------------------------------------------------


def plot_study(dataset: xr.Dataset, axes: Sequence[Axes] | None = None, *, style: str | None = None) -> Figure:
    """Draw the figure of a study and return it.

    The dataset is a result of `sample_complexity`, `unstable_discretisation`, `step_size_phases`,
    `full_batch_recovery`, `epochs_study`, `calibration`, `finite_d_study` or `sgd_transfer`. `axes` are three of
    `unstable_discretisation`, `epochs_study` and `sgd_transfer`, two of others; by default a new figure in a `style`
    (see `figure_style`). ValueError is raised for another dataset or number of axes.

    Examples
    --------
    >>> import sgd_check
    >>> found = sgd_check.step_size_phases(dimension=16, learning_rates=[1e-4, 1e-3], seeds=4, progress=False)
    >>> figure = plot_study(found)
    >>> len(figure.axes), figure.axes[1].get_xscale()
    (2, 'log')
    """
    return report.draw_study(dataset, STUDIES, axes, style)


def _draw_complexity(dataset: xr.Dataset, axes: Array) -> None:
    """Left: steps to escape against d. Right: the same times over those of the finite-step equation."""
    steps_ax, ratio_ax = axes
    d = dataset["dimension"].values.astype(float)
    rows, exponents = list(_rows_of(dataset)), dataset["information_exponent"].values.tolist()
    for at, (name, along, curve) in enumerate(rows):
        colour, marker = report.COLOURS[at % len(report.COLOURS)], MARKERS[exponents.index(name["k"]) % len(MARKERS)]
        rate, runs = curve["step_size"].values, curve["emergence_step"].values
        equation, flow = curve["finite_step_time"].values, curve["predicted_emergence_time"].values
        logs, error = log_means(runs)
        mean, ratio = np.exp(logs), np.exp(logs) * rate / equation
        (x, x_equation, _, law), dx = curve["exponent"].values.tolist(), float(curve["exponent_error"].values[0])
        who, least = ("zeroth order", f"$k = {law:g}$") if along else ("SGD", f"$k - 1 = {name['k'] - 1}$")
        family, slopes = f"$k = {name['k']}$", f"{who}, {power('d', x, dx)}; {least}"
        if "e" in name:
            smoothing = rf"$\lambda = d^{{{name['e']:g}}}$" if name["e"] else r"$\lambda = 0$"
            family, slopes = (
                f"{family}, {smoothing}",
                f"{power('d', x, dx)}, equation {x_equation:.2f}, limit {law:.2f}",
            )
            slopes = f"{who}, {slopes}" if "optimizer" in name else slopes
        steps_ax.loglog(np.repeat(d, runs.shape[1]), runs.ravel(), ".", color=colour, ms=3, alpha=0.35)
        bars = np.array([1.0 - np.exp(-report.BAND * error), np.exp(report.BAND * error) - 1.0])
        points: dict[str, object] = {"fmt": marker, "color": colour, "ms": 5, "capsize": 3}
        steps_ax.errorbar(d, mean, yerr=mean * bars, label=f"{family}: {slopes}", **points)
        steps_ax.loglog(d, equation / rate, "-", color=colour, lw=1.2)
        steps_ax.loglog(d, flow / rate, "--", color=colour, lw=1.0)
        # The points of different rows side by side.
        shifted = d * 1.06 ** ((2 * at - len(rows) + 1) * min(1.0, 3.0 / len(rows)))
        ratio_ax.errorbar(shifted, ratio, yerr=ratio * bars, label=f"{who}, {family}", **points)
        ratio_ax.plot(d, flow / equation, "--", color=colour, lw=1.0)
    for ax, styles in ((steps_ax, {"-": "finite-step equation", "--": "flow"}), (ratio_ax, {"--": "flow"})):
        for style, label in styles.items():
            ax.plot([], [], style, color=REFERENCE, label=label)
    ratio_ax.axhline(1.0, color=REFERENCE, lw=1.0)
    ratio_ax.set_xscale("log")
    # Room for the legend above the curves.
    low, high = steps_ax.get_ylim()
    steps_ax.set_ylim(low, high * (high / low) ** (0.11 * len(rows)))
    finish_panel(steps_ax, "dimension", "escape_steps", "small dots: runs, large: geometric mean", d)
    finish_panel(ratio_ax, "dimension", "time_over_equation", "error bars: twice the standard error", d)


def _draw_discretisation(dataset: xr.Dataset, axes: Array) -> None:
    """Left: theory at the large size. Middle: SGD's loss at each step size. Right: what becomes of each direction."""
    targets = dataset["target"].values.tolist()
    coloured = list(zip(range(len(targets)), targets, report.shades(len(targets), 0.85), strict=True))
    _draw_losses(dataset, axes[1], coloured)
    _draw_delays(dataset, axes[2], coloured)
    ax: Axes = axes[0]
    loss, needed = dataset["large_target_loss"].values, dataset["large_samples_needed"].values
    (_, _, fitted, _, law), error = dataset["exponent"].values.tolist(), float(dataset["exponent_error"].values[2])
    ax.loglog(needed, loss, "o", color=MEASURED, ms=5, label="theory: pairs with delay and lag")
    middle = int(np.flatnonzero(np.isfinite(needed))[np.isfinite(needed).sum() // 2])
    for slope, style, colour, label, height in (
        (fitted, "--", "k", f"fit: {power('n', fitted, error)}", 1.0),
        (law, ":", REFERENCE, f"asymptotic: {power('n', law)}", 1.6),
    ):
        line = height * loss[middle] * (needed / needed[middle]) ** slope
        ax.loglog(needed, line, style, color=colour, lw=1.3, label=label)
    title = f"theory, targets 1 to {int(dataset['large_target'].values[-1])}, step tuned to each"
    finish_panel(ax, "samples", "sample_loss", title)


def _draw_losses(dataset: xr.Dataset, ax: Axes, coloured: Coloured) -> None:
    """Draw the median loss of the runs of each target over samples, and the samples at which they reached it.

    `coloured` holds the place, the number and the colour of each target.
    """
    samples, losses = dataset["samples"].values, dataset["sample_loss"].values
    level, needed = dataset["target_loss"].values, dataset["samples_needed"].values
    for at, target, colour in coloured:
        blown = float(dataset["blown_up_share"].values[at])
        lost = f", {100 * blown:.0f} % blown up" if blown > 0 else ""
        # A run that blew up has no loss left: it counts as infinite, and the median goes with it.
        ended = np.isfinite(losses[at]).any(axis=0)
        middle = np.median(np.where(np.isnan(losses[at][:, ended]), np.inf, losses[at][:, ended]), axis=0)
        ax.loglog(samples[ended], middle, color=colour, lw=1.1, label=f"tuned to {target}{lost}")
        reached = needed[at][np.isfinite(needed[at])]
        if reached.size:
            log, spread = mean_band(np.log(reached))
            bars = np.abs(np.exp(log + spread * np.array([[-1.0], [1.0]])) - np.exp(log))
            ax.errorbar(np.exp(log), level[at], xerr=bars, fmt="o", color=colour, ms=6, capsize=3)
    crosses: dict[str, object] = {"color": PREDICTED, "ms": 8, "mew": 1.6, "zorder": 3, "label": "theory"}
    ax.loglog(dataset["predicted_samples_needed"].values, level, "x", **crosses)
    law, error = (float(dataset[name].values[0]) for name in ("exponent", "exponent_error"))
    ax.set_ylim(0.5 * level[-1], 1.6)
    fitted = f", {power('n', law, error)}" if np.isfinite(law) else ""
    title = f"SGD, medians; circles: target reached{fitted}"
    finish_panel(ax, "samples", "loss", title)


def _draw_delays(dataset: xr.Dataset, ax: Axes, coloured: Coloured) -> None:
    """Draw the median delays of emergence of the runs of each target by direction, over the flow's time, beside theory.

    `coloured` holds the place, the number and the colour of each target.
    """
    a = dataset["teacher_coefficient"].values
    flow = dataset["predicted_emergence_time"].values
    lag = dataset["predicted_learned_time"].values - flow
    recorded = np.isfinite(dataset["sample_loss"].values).any(axis=1)
    last = recorded.shape[1] - 1 - np.argmax(recorded[:, ::-1], axis=1)
    end = dataset["step_size"].values * dataset["samples"].values[last]
    times = dataset["emergence_time"].values
    ratios = np.median(np.where(np.isnan(times), np.inf, times), axis=1) / flow
    low, _, high = late_quartiles(times.swapaxes(0, 1)) / flow
    delays = (dataset["delayed_time"].values - lag) / flow
    drawn = np.concatenate([ratios, high, np.where(1.5 * flow <= end[:, None], delays, np.nan)])
    top = 1.15 * float(np.max(drawn, initial=1.3, where=np.isfinite(drawn)))
    for at, target, colour in coloured:
        noise = a[target - 1] / a
        # Directions that the flow does not reach either in this time show no effect of the noise.
        seen = (1.5 * flow <= end[at]) & np.isfinite(dataset["blown_up_share"].values[at])
        reached = seen & np.isfinite(ratios[at])
        bars = np.abs(np.array([low[at], np.minimum(high[at], top)])[:, reached] - ratios[at][reached])
        thin: Arguments = {"ms": 4, "elinewidth": 0.6, "label": f"tuned to {target}"}
        ax.errorbar(noise[reached], ratios[at][reached], yerr=bars, fmt="o", color=colour, **thin)
        ax.semilogx(noise[seen], delays[at][seen], "-", color=colour, lw=1.0)
        lost = seen & ~reached
        ax.semilogx(noise[lost], np.full(lost.sum(), 0.98 * top), "^", color=colour, ms=6)
    ax.axhline(1.0, color=REFERENCE, lw=0.8)
    ax.set(xscale="log", ylim=(min(0.8, float(np.nanmin(low))), top))
    title = "medians, quartiles; lines: theory; arrows: less than half"
    finish_panel(ax, "noise_of_direction", "time_over_flow", title, loc="upper left")


def _draw_step_size(dataset: xr.Dataset, axes: Array) -> None:
    """Above: emergence time against the step size. Below: shares of the runs that blew up or never emerged."""
    time_ax, share_ax = axes
    rate, time, flow, finite, blown, lost = _of_shown_direction(dataset)
    time_ax.loglog(np.repeat(rate, time.shape[1]), time.ravel(), ".", color=MEASURED, ms=4, alpha=0.3, label="SGD runs")
    top = float(np.nanmax(time))
    low, middle, high = np.minimum(_quartiles(time, blown), 10 * top)
    time_ax.fill_between(rate, low, high, color=MEASURED, alpha=0.15, lw=0, label="quartiles, lost runs as late")
    shown_middle = np.where(middle < 10 * top, middle, np.nan)
    time_ax.loglog(rate, shown_middle, "o-", color=MEASURED, ms=5, lw=1.2, label="median")
    time_ax.axhline(float(flow), color="k", lw=1.0, ls="--", label="flow")
    time_ax.loglog(rate, finite, color=PREDICTED, lw=1.6, label="finite-step equation")
    time_ax.set_ylim(0.7 * float(np.nanmin(time)), 1.4 * top)
    for share, style, colour, label in ((blown, "o-", PREDICTED, "blown up"), (lost, "s-", REFERENCE, "not emerged")):
        bars = report.share_bars(share, time.shape[1])
        share_ax.errorbar(rate, share, yerr=bars, fmt=style, color=colour, ms=4, lw=1.2, capsize=2, label=label)
    share_ax.set_ylim(-0.04, 1.04)
    if "learning_rate_limit" in dataset.attrs:
        limit = dataset.attrs["learning_rate_limit"]
        for ax in axes:
            ax.axvline(limit, color=report.IDEAL, lw=1.4, ls="-.", label="limit of stability")
    finish_panel(time_ax, "", "emergence_in_flow_time", loc="upper left")
    finish_panel(share_ax, "step_size", "run_share", loc="upper left")


def _draw_calibration(dataset: xr.Dataset, axes: Array) -> None:
    """Shares of the verdicts, one bar for each case, one panel for each of up to two learning rates.

    Of kinds of problem: one bar for each, right theories in one panel, and large errors in the other.
    """
    if "kind" in dataset.dims:
        counts = [dataset["verdict_count"].sel(case="right"), dataset["large_error_count"].sum("case")]
        titles = ["right theories", "errors of 30 % in a time, a tenth in a curve"]
        names = dataset["kind"].values.tolist()
    else:
        limit, rates = float(dataset.attrs["learning_rate_limit"]), dataset["learning_rate"].values.tolist()
        counts = [dataset["verdict_count"].sel(learning_rate=rate) for rate in rates]
        titles = [rf"$\eta$ = {rate / limit:.3g} of the limit of stability" for rate in rates]
        names = dataset["case"].values.tolist()
    for ax, numbers, title in zip(axes, counts, titles, strict=False):
        shares = numbers.values / np.maximum(numbers.values.sum(axis=1, keepdims=True), 1.0)
        start = np.zeros(len(names))
        looks = zip(dataset["verdict"].values.tolist(), VERDICT_COLOURS, VERDICT_HATCHES, strict=True)
        for at, (verdict, colour, hatch) in enumerate(looks):
            ax.barh(names, shares[:, at], left=start, color=colour, hatch=hatch, edgecolor="white", label=verdict)
            start += shares[:, at]
        ax.set_xlim(0.0, 1.0)
        finish_panel(ax, "comparison_share", "", title, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
    axes[0].invert_yaxis()
    for unused in axes[len(counts) :]:
        unused.remove()


def _draw_full_batch(dataset: xr.Dataset, axes: Array) -> None:
    """Left: squared overlaps and exact recoveries against n/d. Right: samples of online SGD over d against d."""
    ax, online_ax = axes
    ratio = dataset["ratio"].values
    law = dataset["predicted_overlap_squared"]
    ax.plot(law["law_ratio"], law, "-", color=PREDICTED, lw=1.8, label=r"law, $d\to\infty$")
    threshold = float(dataset.attrs["threshold_ratio"])
    ax.axvline(threshold, color=PREDICTED, ls="--", lw=1.0, label="its threshold")
    sizes = dataset["dimension"].values.tolist()
    for at, (d, colour) in enumerate(zip(sizes, report.shades(len(sizes), 0.85), strict=True)):
        # Overlaps and shares of all dimensions side by side.
        place, share_place = (ratio + 0.012 * ratio[-1] * (2 * at + s - len(sizes) + 0.5) for s in (0, 1))
        runs = dataset["overlap_squared"].values[at]
        mean, error = mean_band(runs, axis=1)
        label = f"first eigenvector, $d = {d}$"
        ax.errorbar(place, mean, yerr=error, fmt="o", color=colour, ms=4, capsize=3, label=label)
        share = dataset["recovered_share"].values[at]
        bars = report.share_bars(share, runs.shape[1])
        style = {"fmt": "s--", "color": colour, "ms": 4, "lw": 0.9, "capsize": 2, "mfc": "none"}
        ax.errorbar(share_place, share, yerr=bars, **style, label=f"exact by descent, $d = {d}$")
    ax.set(xlim=(0.0, None), ylim=(-0.03, 1.05))
    cut = float(dataset.attrs["cut"])
    # The legend stands to the right of the threshold, above the law.
    corner = (min(threshold / ax.get_xlim()[1], 0.5), 1.0)
    title = rf"$y = \min(z^2, {cut:g})$, $n$ samples reused; bars: 95 %"
    finish_panel(ax, "ratio", "overlap_and_share", title, loc="upper left", bbox_to_anchor=corner)
    d = dataset["online_dimension"].values.astype(float)
    needed = dataset["online_samples"].values / d[:, None]
    mean, error = mean_band(needed, axis=1)
    online_ax.plot(np.repeat(d, needed.shape[1]), needed.ravel(), ".", color=REFERENCE, ms=4, alpha=0.5, label="runs")
    online_ax.errorbar(d, mean, yerr=error, fmt="o", color=MEASURED, ms=5, capsize=3, label="mean, twice the s.e.")
    finite = np.isfinite(mean)
    if finite.any():
        slope, middle = float(dataset.attrs["online_slope"]), np.log(d[finite]).mean()
        line = mean[finite].mean() + slope * (np.log(d) - middle)
        label = rf"slope {report.formula(slope)} in $\ln d$, mean step"
        online_ax.plot(d, line, "-", color=PREDICTED, lw=1.6, label=label)
    online_ax.set_xscale("log")
    finish_panel(online_ax, "dimension", "online_samples", r"online SGD from $C = 2/\sqrt{d}$", loc="upper left")


def _draw_epochs(dataset: xr.Dataset, axes: Array) -> None:
    """Left: overlaps at the end. Middle: worth of epochs in fresh samples. Right: epoch of the least test loss."""
    ratio, passes, first = dataset["ratio"].values, dataset["epoch"].values, dataset.isel(link=0)
    quiet, link = dataset.isel(label_noise=0), first["link"].item()
    overlap_ax, worth_ax, best_ax = axes
    for at, name in enumerate(dataset["link"].values.tolist()):
        last, colour = quiet.sel(link=name).isel(epoch=-1), report.COLOURS[at % len(report.COLOURS)]
        k, generative = int(last["link_exponent"]), int(last["generative_exponent"])
        overlap_ax.plot(ratio, last["reused_overlap"], "-", color=colour, lw=1.6)
        overlap_ax.plot(ratio, last["fresh_overlap"], "--", color=colour, lw=1.0)
        mean, error = mean_band(last["measured_overlap"].values, axis=1)
        # Points of links with equal overlaps side by side.
        label, place = rf"{name}: $k = {k}$, $k^* = {generative}$", ratio * 1.02**at
        overlap_ax.errorbar(place, mean, yerr=error, fmt="o", color=colour, ms=4, capsize=2, label=label)
    for style, label in {"-": "used again", "--": "fresh, as many steps"}.items():
        overlap_ax.plot([], [], style, color=REFERENCE, label=label)
    for at, colour in enumerate(report.shades(ratio.size, 0.85)):
        worth = first.isel(label_noise=0, ratio=at)["fresh_epochs"].values
        finite = np.where(np.isfinite(worth), worth, np.nan)
        worth_ax.plot(passes, finite, "-o", ms=3, color=colour, label=f"$n = {ratio[at]:g}d$")
    worth_ax.plot(passes, passes, ":", color=REFERENCE, label="all were fresh")
    for at, colour in enumerate(report.shades(dataset.sizes["label_noise"], 0.85)):
        part = first.isel(label_noise=at)
        mean, error = mean_band(_best_epochs(part), axis=1)
        best_ax.plot(ratio, part["best_epoch"], "-", color=colour, lw=1.6)
        label = rf"noise {float(part['label_noise']):g}"
        best_ax.errorbar(ratio * 1.02**at, mean, yerr=error, fmt="o", color=colour, ms=4, capsize=2, label=label)
    for ax in (overlap_ax, best_ax):
        ax.set_xscale("log")
    finish_panel(overlap_ax, "ratio", "overlap $C$", f"after {passes[-1]} epochs; lines: theory, points: runs", ratio)
    finish_panel(worth_ax, "epochs", "fresh_epochs", f"theory, {link}; infinite where $k > k^* = 1$")
    finish_panel(best_ax, "ratio", "best_epoch", f"overfitting, {link}; lines: theory, points: runs", ratio)


def _draw_finite_d(dataset: xr.Dataset, axes: Array) -> None:
    """Left: mean loss of runs over theory against d. Right: standard deviations of loss and overlaps over theory's."""
    shown, d = dataset.sel(time=dataset.attrs["shown_time"]), dataset["dimension"].values.astype(float)
    loss_ax, scatter_ax = axes
    scales = dataset["step_scale"].values.tolist()
    for at, scale in enumerate(scales):
        part, colour = shown.sel(step_scale=scale), report.COLOURS[at % len(report.COLOURS)]
        # The points of different step scales side by side.
        place = d * 1.06 ** (2 * at - len(scales) + 1)
        style: dict[str, Any] = {"color": colour, "ms": 5, "capsize": 3}
        label = rf"$\eta = {scale:g}/d$"
        bars = report.BAND * part["loss_ratio_error"].values
        loss_ax.errorbar(place, part["loss_ratio"], yerr=bars, fmt="o", label=f"{label}, finite-step equation", **style)
        loss_ax.plot(place, part["limit_loss_ratio"], "o:", color=colour, mfc="none", ms=5, lw=1.0)
        overlaps, error = _overlap_scatter(part)
        bars = report.BAND * part["loss_scatter_error"].values
        scatter_ax.errorbar(place, part["loss_scatter_ratio"], yerr=bars, fmt="o", label=f"{label}, loss", **style)
        label, bars = f"{label}, overlaps", report.BAND * error
        scatter_ax.errorbar(place * 1.03, overlaps, yerr=bars, fmt="s", mfc="none", label=label, **style)
    loss_ax.plot([], [], "o:", color=REFERENCE, mfc="none", label=r"equation for $d\to\infty$")
    for ax in axes:
        ax.axhline(1.0, color=REFERENCE, lw=1.0)
        ax.set_xscale("log")
    title = f"$t = {dataset.attrs['shown_time']:g}$; error bars: twice the standard error"
    finish_panel(loss_ax, "dimension", "loss_over_theory", title, d)
    finish_panel(scatter_ax, "dimension", "scatter_over_theory", title, d)


STUDIES = {
    "sample-complexity": Study(_complexity, _draw_complexity, lambda _: 2, (5.5, 4.4)),
    "unstable-discretisation": Study(_discretisation, _draw_discretisation, lambda _: 3, (5.0, 4.6)),
    "step-size": Study(
        _step_size, _draw_step_size, lambda _: 2, (7.5, 3.0), 1, {"sharex": True, "height_ratios": (2.2, 1.0)}
    ),
    "full-batch": Study(_full_batch, _draw_full_batch, lambda _: 2, (5.5, 4.4)),
    "epochs": Study(_epochs, _draw_epochs, lambda _: 3, (5.0, 4.6)),
    "calibration": Study(_calibration, _draw_calibration, lambda _: 2, (6.0, 4.4), options={"sharey": True}),
    "finite-d": Study(_finite_d, _draw_finite_d, lambda _: 2, (5.5, 4.4)),
    "transfer": report.transfer_study("learning_rate_limit", "limit of stability"),
}
