"""Power laws of an answer along teacher directions: fitted, of the sum formula at its size, and asymptotic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.report.figures.flows import predicted_loss
from dynamics.report.findings import Table, renamed
from dynamics.runs.dataset import stored_exponents
from dynamics.theory.fits import default_window, fit_power_law
from hermite.text.messages import with_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from hermite.arrays import Array

#: Least number of emergence times whose power law in the direction is fitted.
FEWEST_TIMES = 8
#: Column with the exponent that is expected at the size of the problem, and the name of its value in a law.
SUM_FORMULA = {"x, sum formula at this size": "sum_formula"}
#: What must be known of every fit.
WINDOW_ALONE = "The fit uses the window alone; the asymptotic exponent stands beside it and is no part of it."


def exponent_table(
    laws: Sequence[Mapping[str, Any]],
    in_words: list[str],
    expected: Mapping[str, str] = SUM_FORMULA,
    note: str = WINDOW_ALONE,
) -> list[Table]:
    """Return the table of fitted laws, beside what is expected of them as {column: key}; none if there is no law."""
    if not laws:
        return []
    columns = {"law": "what", "x, fitted": "fitted", "standard error": "standard_error", "from": "from", "to": "to"}
    rows = [{**law, "from": law["window"][0], "to": law["window"][1]} for law in laws]
    return [
        Table(
            caption="Exponents",
            rows=renamed(rows, columns | dict(expected) | {"x, asymptotic": "asymptotic"}),
            note=note,
            errors={"x, fitted": "standard error"},
            in_words=in_words,
        )
    ]


def exponents(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Return fitted exponents beside those of the sum formula at this size and the asymptotic ones."""
    window = default_window(dataset)
    if window is None:
        return []
    laws = stored_exponents(dataset)
    time, loss = dataset["time"].values, dataset["loss"].values
    found = [_law("loss ~ t^x", time, loss, window, laws.loss_time, predicted_loss(dataset))]
    emerged = dataset["emergence_time"].values
    seen = np.isfinite(emerged) & (emerged > 0)
    if seen.sum() >= FEWEST_TIMES and np.isfinite(laws.emergence_time_direction):
        p = dataset["direction"].values[seen].astype(float)
        asymptotic = laws.emergence_time_direction
        found.append(_law("T_p ~ p^x", p, emerged[seen], (float(p[0]), float(p[-1])), asymptotic, None))
    return found


def limits_in_words(laws: Sequence[Mapping[str, Any]], count: int) -> list[str]:
    """Say why fits to one start and `count` directions differ from the asymptotic exponents; nothing without those."""
    if not any(math.isfinite(law["asymptotic"]) for law in laws):
        return []
    return [
        f"x is of one start, whose loss falls in {count} steps, one per direction: another seed gives another x.",
        "The asymptotic x is the limit of many directions P and a large dimension d, where the steps are a power law.",
    ]


def _law(
    what: str, x: Array, y: Array, window: tuple[float, float], asymptotic: float, predicted: Array | None
) -> dict[str, Any]:
    """Return the power law of y in x, of the sum formula for y where it is predicted, and the asymptotic one."""
    good = np.isfinite(y) & (y > 0) & (x > 0)
    fit = fit_power_law(x[good], y[good], window=window)
    text = f"x = {with_error(fit.exponent, fit.standard_error)} on [{fit.window[0]:.3g}, {fit.window[1]:.3g}]"
    finite_size = None
    if predicted is not None:
        good &= predicted > 0
        finite_size = fit_power_law(x[good], predicted[good], window=window).exponent
        text += f"; sum formula at this size {finite_size:.3f}"
    text += f"; asymptotic {asymptotic:.3f}" if math.isfinite(asymptotic) else "; no asymptotic law"
    return {
        "what": what,
        "fitted": fit.exponent,
        "standard_error": fit.standard_error,
        "window": list(fit.window),
        "asymptotic": asymptotic,
        "sum_formula": finite_size,
        "text": text,
    }
