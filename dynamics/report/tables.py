"""A result in a few lines: the table of emergence times and the exponents, as text or JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.memory import flow_numbers
from dynamics.problem.schedule import DEFAULT_COUNT
from dynamics.runs.stored_exponents import stored_exponents
from dynamics.theory.fits import default_window, fit_power_law

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr
    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from dynamics.problem.schedule import SaveAt

MOST_ROWS = 20
#: Floating-point operations per second assumed by `--dry-run`, measured on one core for m = P = 64.
ASSUMED_SPEED = 1.0e10
#: The same for the particles of a mean field, on whose few products the integrator's own sums weigh.
MEAN_FIELD_SPEED = 2.0e9


def predicted_loss(dataset: xr.Dataset) -> NDArray[np.float64] | None:
    """Return the sum-formula loss of a result, or None where there is none."""
    if "predicted_loss" not in dataset:
        return None
    loss: NDArray[np.float64] = dataset["predicted_loss"].values
    return loss if np.isfinite(loss).all() else None


def summarise(dataset: xr.Dataset, output: Path | None = None, figure: Path | None = None) -> dict[str, Any]:
    """Return the result as plain values: times per direction, exponents, how the run ended."""
    attrs = dataset.attrs
    loss = dataset["loss"].values
    finite = loss[np.isfinite(loss)]
    return {
        "output": None if output is None else str(output),
        "figure": None if figure is None else str(figure),
        "title": attrs["title"],
        "information_exponent": int(attrs["information_exponent"]),
        "method": attrs.get("method"),
        "solve_seconds": attrs.get("solve_seconds"),
        "stop_reason": attrs.get("stop_reason", "reached_end"),
        "stop_message": attrs.get("stop_message", ""),
        "end_time": attrs.get("end_time", float(dataset["time"].values[-1])),
        "final_loss": float(finite[-1]) if finite.size else None,
        "directions": _directions(dataset),
        "exponents": _exponents(dataset),
        "loss_levels": _loss_levels(dataset),
        "notes": attrs.get("notes", ""),
        "scaling_notes": attrs.get("scaling_notes", ""),
    }


def as_json(summary: dict[str, Any]) -> str:
    """Return one JSON object; what is not finite becomes null."""
    return json.dumps(jsonable(summary))


def as_text(summary: dict[str, Any]) -> str:
    """Return the table that the command line prints."""
    rows = summary["directions"]
    lines = [
        f"{'p':>7} {'a_p':>9} {'T_p leading':>12} {'predicted':>12} {'emerged':>12} {'ratio':>7} {'learned':>12}",
    ]
    chosen = spread_rows(len(rows))
    for at in chosen:
        row = rows[at]
        lines.append(
            f"{row['direction']:>7} {row['teacher_coefficient']:>9.4f} {time_text(row['leading_order_time']):>12} "
            f"{time_text(row['predicted_emergence_time']):>12} {time_text(row['emergence_time']):>12} "
            f"{time_text(time_ratio(row), 3):>7} {time_text(row['learned_time']):>12}"
        )
    if len(rows) > MOST_ROWS:
        lines.append(f"        ({len(rows)} directions; shown: {len(chosen)} spread over p)")
    learned = sum(math.isfinite(row["learned_time"]) for row in rows)
    lines.append("")
    lines.append(f"learned: {learned} of {len(rows)} directions by t = {summary['end_time']:.4g}")
    if summary["final_loss"] is not None:
        lines.append(f"loss at the end: {summary['final_loss']:.4g}")
    lines += [f"{law['what']}: {law['text']}" for law in summary["exponents"]]
    lines += [f"loss below {row['level']:g} E f*^2: t = {time_text(row['time'])}" for row in summary["loss_levels"]]
    if summary["stop_reason"] != "reached_end":
        lines.append(f"stopped early: {summary['stop_reason']}. {summary['stop_message']}")
    if summary["notes"]:
        lines.append(f"note: {summary['notes']}")
    if summary["scaling_notes"]:
        lines.append(f"scaling laws: {summary['scaling_notes']}")
    if summary["method"]:
        lines.append(f"method: {summary['method']}, {summary['solve_seconds']:.2f} s")
    lines += [f"{name}: {summary[name]}" for name in ("output", "figure") if summary[name]]
    return "\n".join(lines)


def estimate(problem: Problem, model: str, keep: str, save_at: SaveAt | None, particles: int | None = None) -> str:
    """Return memory and work of a run in one line each, from counted operations, without running it."""
    if model == "mean-field":
        return _mean_field_estimate(problem, keep, save_at, particles)
    m, P = problem.width, problem.num_directions
    count = DEFAULT_COUNT if save_at is None else len(save_at)
    if model == "decoupled":
        bytes_needed = 8.0 * (12 * P + count * (2 * P if P <= 10_000 else 1))
        return f"memory: {bytes_needed / 1e6:.3g} MB\ntime: about {1e-8 * P * count + 0.5:.2g} s (no time stepping)"
    state = m * P + m * m + m
    numbers = flow_numbers(m, P, full=keep == "full", times=count)
    operations = 4.0 * m * m * P + 2.0 * m**3 + 40.0 * state
    return (
        f"memory: {8e-6 * numbers:.3g} MB (state {state} numbers, history {count} times)\n"
        f"time: {operations:.3g} operations an evaluation, about {operations / ASSUMED_SPEED * 1e3:.2g} s per thousand "
        "evaluations; runs take from a thousand evaluations per learned direction"
    )


def _mean_field_estimate(problem: Problem, keep: str, save_at: SaveAt | None, particles: int | None) -> str:
    from math import comb

    from dynamics.equations.mean_field.overlap_law import OVERLAP_BINS, SHARES
    from dynamics.solve.mean_field import DEFAULT_PARTICLES

    count = DEFAULT_COUNT if save_at is None else len(save_at)
    N, axes = particles or DEFAULT_PARTICLES, problem.teacher.span
    degree = max(problem.activation.order, problem.teacher_link.order)
    products = 10 * degree if axes == 1 else 6 * comb(axes + degree, degree)
    kept = problem.num_directions * (OVERLAP_BINS + len(SHARES)) + (N * (axes + 4) if keep == "full" else 0)
    operations = float(N) * (products + 10 * axes)
    return (
        f"memory: {8.0 * (30 * N * axes + count * kept) / 1e6:.3g} MB (state {N * axes} numbers, "
        f"history {count} times)\n"
        f"time: {operations:.3g} operations an evaluation, about {operations / MEAN_FIELD_SPEED * 1e3:.2g} s per "
        "thousand evaluations; runs take thousands of evaluations"
    )


def _loss_levels(dataset: xr.Dataset) -> list[dict[str, float]]:
    """When the loss of a mean field fell below each level; nothing for other answers."""
    if "loss_level_time" not in dataset:
        return []
    times = dataset["loss_level_time"].values.tolist()
    levels = dataset["loss_level"].values.tolist()
    return [{"level": level, "time": time} for level, time in zip(levels, times, strict=True)]


def _directions(dataset: xr.Dataset) -> list[dict[str, Any]]:
    names = (
        "teacher_coefficient",
        "matched_neuron",
        "leading_order_time",
        "predicted_emergence_time",
        "predicted_learned_time",
        "emergence_time",
        "learned_time",
    )
    columns = {name: dataset[name].values.tolist() for name in names}
    numbers = dataset["direction"].values.tolist()
    return [{"direction": p, **{name: columns[name][at] for name in names}} for at, p in enumerate(numbers)]


def _exponents(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Fitted exponents beside those of the sum formula at this size and the asymptotic ones."""
    window = default_window(dataset)
    if window is None:
        return []
    laws = stored_exponents(dataset)
    time, loss = dataset["time"].values, dataset["loss"].values
    found = [_law("loss ~ t^x", time, loss, window, laws.loss_time, predicted_loss(dataset))]
    emerged = dataset["emergence_time"].values
    seen = np.isfinite(emerged) & (emerged > 0)
    if seen.sum() >= 8 and np.isfinite(laws.emergence_time_direction):
        p = dataset["direction"].values[seen].astype(float)
        asymptotic = laws.emergence_time_direction
        found.append(_law("T_p ~ p^x", p, emerged[seen], (float(p[0]), float(p[-1])), asymptotic, None))
    return found


def _law(
    what: str,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    window: tuple[float, float],
    asymptotic: float,
    predicted: NDArray[np.float64] | None,
) -> dict[str, Any]:
    good = np.isfinite(y) & (y > 0) & (x > 0)
    fit = fit_power_law(x[good], y[good], window=window)
    law: dict[str, Any] = {
        "what": what,
        "fitted": fit.exponent,
        "standard_error": fit.standard_error,
        "window": list(fit.window),
        "asymptotic": asymptotic,
        "sum_formula": None,
    }
    text = f"x = {fit.exponent:.3f} +- {fit.standard_error:.3f} on [{fit.window[0]:.3g}, {fit.window[1]:.3g}]"
    if predicted is not None:
        good &= predicted > 0
        finite_size = fit_power_law(x[good], predicted[good], window=window)
        law["sum_formula"] = finite_size.exponent
        text += f"; sum formula at this size {finite_size.exponent:.3f}"
    text += f"; asymptotic {asymptotic:.3f}" if math.isfinite(asymptotic) else "; no asymptotic law"
    return {**law, "text": text}


def spread_rows(count: int, most: int = MOST_ROWS) -> list[int]:
    """Return which of `count` rows a table shows: all, or at most `most`, spread evenly in the logarithm."""
    if count <= most:
        return list(range(count))
    return sorted({round(x) - 1 for x in np.geomspace(1, count, most)})


def time_ratio(row: dict[str, Any]) -> float:
    """Return the measured over the predicted emergence time of a direction in a summary, NaN without a prediction."""
    predicted: float = row["predicted_emergence_time"]
    return row["emergence_time"] / predicted if predicted else math.nan


def time_text(value: float, digits: int = 5) -> str:
    """Return a time as text: "-" where it is unknown, "never" where it is infinite."""
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else f"{value:.{digits}g}"


def jsonable(value: Any) -> Any:
    """Return plain values as JSON takes them: what is not finite becomes None."""
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [jsonable(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value
