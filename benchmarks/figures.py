"""Figures of the measurements, drawn from `baseline.json` into `docs/figures/benchmark_*.png`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.work_precision import TARGET_LOSS, TARGET_TIME
from dynamics.report.figures import figure_style, log_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

OURS = ("#1b4f72", "#2e86c1", "#17a589", "#5dade2")
LIBRARIES = ("#c0392b", "#e67e22", "#7d3c98", "#7f8c8d", "#b7950b", "#a04000", "#34495e", "#d98880")
MARKERS = "osD^vPXd"


def draw(baseline: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every figure that the baseline has measurements for; return the files."""
    makers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "work_precision": ("work_precision", lambda part: work_precision(part, baseline.get("work_precision_low"))),
        "growth": ("growth", growth),
        "right_hand_side": ("timed_cases", right_hand_side),
        "memory": ("memory", memory),
    }
    files = []
    for name, (part, make) in makers.items():
        if part in baseline:
            files.append(folder / f"benchmark_{name}.png")
            with figure_style("screen"):
                figure = make(baseline[part])
                figure.savefig(files[-1], dpi=110)
            plt.close(figure)
    return files


def _styles(points: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one colour and marker per contender: ours filled and solid, libraries open and dashed."""
    styles: dict[str, dict[str, Any]] = {}
    for ours, colours in ((True, OURS), (False, LIBRARIES)):
        names = dict.fromkeys(p["contender"] for p in points if p["ours"] == ours)
        for i, name in enumerate(names):
            colour, marker = colours[i % len(colours)], MARKERS[i % len(MARKERS)]
            style = {"ls": "-", "lw": 2.0} if ours else {"ls": "--", "lw": 1.0, "mfc": "white"}
            styles[name] = {"color": colour, "marker": marker, "ms": 5, **style}
    return styles


def work_precision(part: Mapping[str, Any], low: Mapping[str, Any] | None = None) -> Any:
    """Seconds against the error of the loss, above, and of the emergence times, below; a column per link and size."""
    done = [
        {**p, "column": f"${named.get('link', 'h_4')}$, $m = P = {p['size']}$"}
        for named in (part, *([low] if low else []))
        for p in named["points"]
        if p["status"] == "done"
    ]
    points = sorted(done, key=lambda p: (not p["column"].startswith("$h_4$"), p["size"]))
    columns = list(dict.fromkeys(p["column"] for p in points))
    rows = (("loss_error", "error of the loss", TARGET_LOSS), ("time_error", "error of emergence times", TARGET_TIME))
    figure, grid = plt.subplots(
        2, len(columns), figsize=(2.8 * len(columns) + 2.4, 6.4), sharey="col", squeeze=False, layout="constrained"
    )
    styles = _styles(points)
    for column, title in enumerate(columns):
        for row, (quantity, label, target) in enumerate(rows):
            ax = grid[row, column]
            for name, style in styles.items():
                _curve(
                    ax, [p for p in points if p["column"] == title and p["contender"] == name], quantity, name, style
                )
            ax.axvline(target, color="0.6", lw=0.8, ls=":")
            ax.set(xscale="log", yscale="log", xlabel=label)
            log_ticks(ax)
            ax.invert_xaxis()
        grid[0, column].set_title(title, fontsize=10)
    for ax in grid[:, 0]:
        ax.set_ylabel("seconds")
    drawn: dict[str, Any] = {}
    for ax in grid.flat:
        lines, names = ax.get_legend_handles_labels()
        drawn |= dict(zip(names, lines, strict=True))
    figure.legend(drawn.values(), drawn.keys(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def _curve(ax: Axes, points: Sequence[Mapping[str, Any]], quantity: str, name: str, style: Mapping[str, Any]) -> None:
    """Draw one contender; a point that misses emergences is crossed out."""
    curve = sorted(points, key=lambda p: -p["rtol"])
    if not curve:
        return
    x, y = ([max(p[q], 1e-12) for p in curve] for q in (quantity, "seconds"))
    ax.plot(x, y, label=name, **style)
    missing = [i for i, p in enumerate(curve) if p["missed"]]
    ax.plot([x[i] for i in missing], [y[i] for i in missing], "x", color="black", ms=9)


def growth(part: Mapping[str, Any]) -> Any:
    """Seconds and evaluations against P, T and d, with the slope of the last points.

    A point in another dimension than its series is hollow, and in no slope.
    """
    series = (("directions", "size", "$m = P$"), ("time", "last", "$T$"), ("dimension", "dimension", "$d$"))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for ax, (name, key, label) in zip(axes, series, strict=True):
        done = [p for p in part[name] if p["status"] == "done"]
        x = np.array([p[key] for p in done], dtype=float)
        for quantity, colour, text in (
            ("seconds", OURS[0], "seconds"),
            ("evaluations", LIBRARIES[1], "evaluations / 1000"),
        ):
            y = np.array([p[quantity] for p in done]) / (1000.0 if quantity == "evaluations" else 1.0)
            alike = np.array([name == "dimension" or p["dimension"] == done[0]["dimension"] for p in done])
            slope = power(x[alike], y[alike])
            ax.loglog(x[alike], y[alike], "o-", color=colour, label=f"{text}, exponent {slope:.2f}")
            ax.loglog(x[~alike], y[~alike], "o", color=colour, mfc="none")
        ax.set(xlabel=label)
        log_ticks(ax)
        ax.legend(fontsize=8, frameon=False)
    sizes = [p["size"] for p in part["directions"]]
    axes[0].set_xticks(sizes, [str(size) for size in sizes])
    axes[0].minorticks_off()
    for p in part["directions"]:
        if p["status"] == "done" and p["dimension"] != part["directions"][0]["dimension"]:
            place = {"xytext": (-8, 0), "textcoords": "offset points", "ha": "right", "fontsize": 8}
            axes[0].annotate(f"$d = {p['dimension']}$", (p["size"], p["seconds"]), **place)
    axes[0].set_title(rf"{part['method']}, rtol {part['rtol']:g}, $d = 1024$, $T = 6\,d P$", fontsize=9)
    size = part["time"][0]["size"]
    axes[1].set_title(f"$m = P = {size}$, $d = 1024$", fontsize=9)
    axes[2].set_title(rf"$m = P = {size}$, $T = 6\,d P$", fontsize=9)
    return figure


def power(x: Any, y: Any) -> float:
    """Return the least-squares exponent of y ~ x^s over the points in the upper half of ln x; NaN for one."""
    if len(x) < 2:
        return math.nan
    x, y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    upper = x >= 0.5 * (x.min() + x.max()) - 1e-9
    return float(np.polyfit(x[upper], y[upper], 1)[0]) if upper.sum() > 1 else math.nan


def right_hand_side(cases: Sequence[Mapping[str, Any]]) -> Any:
    """Seconds of one evaluation, and its multiple of the bare matrix products."""
    chosen = [c for c in cases if c["group"] == "right-hand side"]
    sizes = sorted({c["size"] for c in chosen})
    peak, copied = machine_rate(cases, "dgemm peak", "operations"), machine_rate(cases, "copy", "bytes")
    median = {(c["name"], c["size"]): c["seconds"][1] for c in chosen}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    labels = {
        "program": "program, any link",
        "packed": "packed, $h_4$ only",
        "three dgemm": "three products alone, by NumPy",
    }
    for colour, (name, label) in zip((OURS[0], OURS[2], LIBRARIES[0]), labels.items(), strict=True):
        left.loglog(sizes, [median[name, s] for s in sizes], "o-", color=colour, label=label)
        right.semilogx(
            sizes, [median[name, s] / median["three dgemm", s] for s in sizes], "o-", color=colour, label=label
        )
    left.loglog(
        sizes,
        [6 * s**3 / peak for s in sizes],
        ":",
        color="0.4",
        label=f"$6 m^3$ at the {peak / 1e9:.0f} Gflop/s of a large dgemm",
    )
    moved = {c["size"]: c["bytes"] for c in chosen}
    text = f"a state read and written at the {copied / 1e9:.0f} GB/s of a copy"
    left.loglog(sizes, [moved[s] / copied for s in sizes], "-.", color="0.6", label=text)
    left.set(xlabel="$m = P$", ylabel="seconds per evaluation", ylim=(None, 1.0))
    right.set(xlabel="$m = P$", ylabel="multiple of the three products", ylim=(0, None))
    for ax in (left, right):
        log_ticks(ax)
        ax.set_xticks(sizes, [str(s) for s in sizes])
        ax.minorticks_off()
    left.legend(fontsize=8, frameon=False)
    return figure


def machine_rate(cases: Sequence[Mapping[str, Any]], name: str, unit: str) -> float:
    """Return operations or bytes per second of a case of the group "machine"."""
    case = next(c for c in cases if c["name"] == name)
    return float(case[unit] / case["seconds"][1])


def memory(cases: Sequence[Mapping[str, Any]]) -> Any:
    """Peak memory above the imports, in states, per contender and size."""
    names = list(dict.fromkeys(c["contender"] for c in cases))
    sizes = sorted({c["size"] for c in cases})
    figure, ax = plt.subplots(figsize=(7, 0.36 * len(names) + 1.2), layout="constrained")
    for i, size in enumerate(sizes):
        mine = [c for c in cases if c["size"] == size]
        at = [names.index(c["contender"]) + 0.25 * (i - (len(sizes) - 1) / 2) for c in mine]
        ax.barh(at, [c["states"] for c in mine], height=0.23, color=OURS[i], label=f"$m = P = {size}$")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xscale="log", xlim=(1.0, None), xlabel="peak memory / bytes of one state $[C | G | \\ln n]$")
    ax.legend(fontsize=8, frameon=False)
    return figure
