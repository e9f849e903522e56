r"""Fits of the loss over width and samples: a sum of two power laws and a floor, or the larger of the two and a floor.

.. math:: L = E + A m^{-\alpha} + B n^{-\beta}, \qquad L = E + \max(A m^{-\alpha}, B n^{-\beta})

The corollary of arXiv:2504.19983 has the maximum: a direction is learned if there is a neuron for it *and* time for it.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from dynamics.commands.catalogue import study_function
from dynamics.problem.checks import check_choice, checked_integer
from dynamics.runs.dataset import make_dataset
from dynamics.runs.storage import load_answer
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.runs.variables import Variable
from dynamics.signals import stop_if_heard
from hermite.arrays import Array, real_column
from hermite.text.messages import refuse, require, shown

Form = Literal["sum", "max"]
FORMS: tuple[Form, ...] = ("sum", "max")
ANSWER = "surface-fit"
#: Exponents of the first grid, and how many of its best points are refined.
GRID, REFINED = np.linspace(0.1, 3.0, 15), 4
#: Fewest different widths and samples, and rows.
FEWEST, FEWEST_ROWS = 3, 8
#: Largest width, number of samples or loss, and 1 over the least, so that their powers stay within float64.
LARGEST = 1e30
#: Bounds of ln A and ln B, and of the exponents α and β; a parameter as near to one as this part of it is at it.
LOG_PREFACTORS, EXPONENTS, NEAR = (-60.0, 120.0), (1e-3, 20.0), 0.03
#: Dims of a loss that is averaged: seeds of starts, and of the samples at each point of a sweep.
SEEDS = ("seed", "point_seed")
#: Floors below this share of the least loss are none.
LEAST_FLOOR = 1e-12
PARAMETERS = ("floor", "width_prefactor", "width_exponent", "samples_prefactor", "samples_exponent")
SURFACE_VARIABLES = {
    "width": Variable(("row",), "number of neurons", "m"),
    "samples": Variable(("row",), "number of samples", "n"),
    "loss": Variable(("row",), "loss", "L"),
    "parameter": Variable(("parameter",), "parameter of the fit", "q"),
    "form": Variable(("form",), "how the two power laws are joined", r"\circ"),
    "fitted": Variable(("form", "parameter"), "value of the parameter", "q"),
    "fitted_error": Variable(("form", "parameter"), "standard error of the parameter, by drawn rows", r"\delta q"),
    "fitted_loss": Variable(("form", "row"), "loss by the fit", r"\hat L"),
    "residual": Variable(("form",), "root mean square of ln L minus its fit", r"\epsilon"),
}


def fit_surface(
    table: xr.Dataset | Mapping[str, ArrayLike] | str | PathLike[str],
    form: Form = "sum",
    *,
    bootstrap: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    r"""Fit the loss over width m and samples n by a floor and two power laws, added, or the larger of the two.

    .. math:: \min_{E, A, \alpha, B, \beta} \sum_r \big(\ln L_r - \ln \hat L(m_r, n_r)\big)^2

    `form` "sum" is E + A m^(−α) + B n^(−β), "max" is E + max(A m^(−α), B n^(−β)), with E, A, B ≥ 0. The fit starts from
    the best exponents of a grid, at each of which E, A and B are non-negative least squares of relative residuals.

    Parameters
    ----------
    table : Dataset, mapping of columns, or path of a CSV
        With `width`, `samples` and `loss`, all positive: columns of one length, or a dataset such as a sweep's whose
        `loss` has the dims `width` and `samples`, or `width` and `step`, `time` or `time_index`, whose steps or times
        after 0 then stand for samples, and perhaps `seed`. Losses at the same times are averaged over seeds. Rows that
        are not finite are left out.
    form : "sum" or "max"
    bootstrap : int, default 100
        Number of fits to rows drawn with replacement, whose scatter is the error; 0 leaves errors out (NaN).
    seed : int
        Seed of these draws.

    Returns
    -------
    Dataset
        `fitted(parameter)` and `fitted_error(parameter)`, of the parameters "floor", "width_prefactor",
        "width_exponent", "samples_prefactor" and "samples_exponent"; `loss`, `fitted_loss`, `width`, `samples` (row);
        and `residual`, the root mean square of ln L − ln L̂. All are dimensionless. Attribute `notes` names the
        exponents and prefactors that end at a bound of the fit; it is empty where there are none.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, not of real numbers or not between 1e-30 and 1e30, a dataset's loss is over other dims,
        or there are fewer than 8 rows, or 3 widths or numbers of samples.

    Examples
    --------
    >>> m, n = (axis.ravel() for axis in np.meshgrid([8.0, 16, 32, 64], [1e3, 1e4, 1e5, 1e6]))
    >>> fit = fit_surface({"width": m, "samples": n, "loss": 0.1 + 2 / m + 30 / n**0.5}, bootstrap=0)
    >>> fit.fitted.values.round(6).tolist(), bool(fit.residual < 1e-9)
    ([0.1, 2.0, 1.0, 30.0, 0.5], True)
    """
    check_choice("form", form, FORMS)
    draws = checked_integer(bootstrap, "bootstrap", minimum=0)
    seed = checked_integer(seed, "seed", minimum=0)
    return PreparedFit(Surface(*_checked_rows(*_columns(table))), (form,), draws, seed, progress).run().isel(form=0)


@study_function  # returns what `run` of the prepared study returns, a dataset
def surface_fits(
    *,
    table: xr.Dataset | Mapping[str, ArrayLike] | str | PathLike[str],
    bootstrap: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> PreparedFit:
    """Fit both forms of `fit_surface` to one table, beside each other.

    Parameters
    ----------
    table : Dataset, mapping of columns, or path of a CSV or netCDF
        As of `fit_surface`.
    bootstrap, seed : int
        Number of fits to rows drawn with replacement, and their seed.

    Returns
    -------
    Dataset
        As of `fit_surface`, with the dim `form` in front of what is fitted: "sum", "max".

    Examples
    --------
    >>> m, n = (axis.ravel() for axis in np.meshgrid([8.0, 16, 32, 64], [1e3, 1e4, 1e5, 1e6]))
    >>> table = {"width": m, "samples": n, "loss": np.maximum(2 / m, 30 / n**0.5)}
    >>> fits = surface_fits(table=table, bootstrap=0, progress=False)
    >>> bool(fits.residual.sel(form="max") < 1e-6 < fits.residual.sel(form="sum"))
    True
    """
    draws = checked_integer(bootstrap, "bootstrap", minimum=0)
    seed = checked_integer(seed, "seed", minimum=0)
    return PreparedFit(Surface(*_checked_rows(*_columns(table))), FORMS, draws, seed, progress)


class Surface(NamedTuple):
    """Rows of width m, samples n and loss, shape (N,) each: what a fit answers, in the place of a problem."""

    width: Array
    samples: Array
    loss: Array

    @property
    def kind(self) -> str:
        """Its name in files."""
        return "surface"

    def parameters(self) -> dict[str, object]:
        """Return its scalars, of which it has none."""
        return {"kind": self.kind}

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """Return its columns, which are in the dataset."""
        return {name: (("row",), column) for name, column in self._asdict().items()}


@dataclass(frozen=True)
class PreparedFit:
    """A checked table and the forms to be fitted to it."""

    surface: Surface
    forms: Sequence[Form]
    draws: int
    seed: int
    progress: bool | None

    def work(self) -> str:
        """Return the expected work in words."""
        rows, forms = self.surface.loss.size, " and ".join(self.forms)
        return f"{rows} rows, fitted by {forms}, and {self.draws} times each with drawn rows: seconds."

    def run(self) -> xr.Dataset:
        """Return the fits; an interruption ends them without a result."""
        started, rows = clock.perf_counter(), self.surface
        shape = (len(self.forms), len(PARAMETERS))
        fitted, errors = np.full((2, *shape), np.nan)
        curves = np.full((len(self.forms), rows.loss.size), np.nan)
        residuals = np.full(len(self.forms), np.nan)
        with open_bar(bar_settings(self.progress), total=len(self.forms) * (self.draws + 1), unit="fit") as bar:
            notes = []
            for at, form in enumerate(self.forms):
                best = _fit(*rows, form)
                notes += [f"The fit by {form!r} has {text}." for text in _at_bounds(best)]
                bar.update()
                fitted[at], errors[at] = _values(best), self._errors(form, best, bar)
                curves[at] = np.exp(_log_loss(best, np.log(rows.width), np.log(rows.samples), form))
                residuals[at] = np.sqrt(np.mean(np.log(rows.loss / curves[at]) ** 2))
        values = {"fitted": fitted, "fitted_error": errors, "fitted_loss": curves, "residual": residuals}
        return make_dataset(
            values,
            problem=self.surface,
            title="Loss over width and samples by a floor and two power laws",
            coords={"parameter": list(PARAMETERS), "form": list(self.forms)},
            solver={"answer": ANSWER, "bootstrap": self.draws, "seed": self.seed},
            attributes={
                "answer": ANSWER,
                "stop_reason": "reached_end",
                "wall_seconds": clock.perf_counter() - started,
                "notes": " ".join(notes),
            },
            variables=SURFACE_VARIABLES,
        )

    def _errors(self, form: Form, best: Array, bar: Any) -> Array:
        """Return the standard deviations of the parameters over fits to drawn rows, NaN if there are too few."""
        rng, fits, rows = np.random.default_rng(self.seed), [], np.array(self.surface)
        for _ in range(self.draws):
            stop_if_heard()
            drawn = Surface(*rows[:, rng.integers(rows.shape[1], size=rows.shape[1])])
            if min(np.unique(drawn.width).size, np.unique(drawn.samples).size) >= FEWEST:
                fits.append(_values(_refined(*drawn, form, best)[0]))
            bar.update()
        return np.std(fits, axis=0, ddof=1) if len(fits) > 1 else np.full(len(PARAMETERS), np.nan)


def _columns(table: Any) -> tuple[Array, Array, Array]:
    """Return width, samples and loss of every row of a table."""
    if isinstance(table, str | PathLike):
        path = Path(table)
        require(path.is_file(), f"Argument `table` must name a file, but is {shown(str(path))}.")
        if path.suffix == ".nc":
            return _columns(load_answer(path))
        table = _read_rows(path)
        names = tuple(table)
    elif isinstance(table, xr.Dataset):
        table = _rows_of_dataset(table)
        names = tuple(str(name) for name in table)
    else:
        kind = type(table).__name__
        require(
            isinstance(table, Mapping),
            f"Argument `table` must be a dataset, columns or a path, but is of type {kind}.",
            TypeError,
        )
        names = tuple(table)
    missing = [name for name in ("width", "samples", "loss") if name not in names]
    require(
        not missing,
        f"Argument `table` must have columns width, samples and loss, but has no {' and no '.join(missing)}.",
    )
    width, samples, loss = (
        np.atleast_1d(real_column(table[name], f"table[{name!r}]")) for name in ("width", "samples", "loss")
    )
    return width, samples, loss


def _rows_of_dataset(table: xr.Dataset) -> Mapping[str, Any]:
    """Return the columns of a dataset, one row for each entry of its loss, which is averaged over seeds.

    Where it has no samples, they are its steps or times, without the start at 0.
    """
    columns: dict[str, Any] = {str(name): table[name] for name in table.variables}
    by_samples = "samples" in columns
    axis = "samples" if by_samples else "step" if "step" in table.dims else "time"
    if not {"width", "loss", axis} <= set(columns):
        return columns | ({"samples": table[axis]} if axis in columns else {})
    # Default saved times are other ones at every point of a sweep: (width, time_index).
    taken = {axis, "time_index", *SEEDS, *table["width"].dims, *(table[axis].dims if by_samples else ())}
    width, samples, loss = xr.broadcast(table["width"], table[axis], table["loss"])
    others = ", ".join(str(dim) for dim in loss.dims if dim not in taken)
    require(
        not others,
        "Argument `table` must have a loss over width, samples (or step, or time) and seed alone, but its loss is also "
        f"over {others}: select one value of it.",
    )
    averaged = [dim for dim in SEEDS if dim in loss.dims and dim not in (*table["width"].dims, *table[axis].dims)]
    width, samples, loss = (values.mean(averaged) for values in (width, samples, loss))
    rows = {"width": width.values.ravel(), "samples": samples.values.ravel(), "loss": loss.values.ravel()}
    return rows if by_samples else {name: column[rows["samples"] != 0.0] for name, column in rows.items()}


def _read_rows(path: Path) -> dict[str, Array]:
    """Return the columns of numbers of a CSV by the names in its first line; raise ValueError for any other file."""
    import pandas as pd

    try:
        rows = pd.read_csv(path, skipinitialspace=True)
        return {str(name): rows[name].to_numpy(np.float64) for name in rows if name in ("width", "samples", "loss")}
    except ValueError as error:  # those of pandas, and of text that is no number or not in UTF-8, are such too
        reason = " ".join(str(error).split())
        refuse(
            f"Argument `table` must name a CSV of numbers below their names, but {shown(str(path))} is none ({reason})."
        )


def _checked_rows(m: Array, n: Array, loss: Array) -> tuple[Array, Array, Array]:
    """Return the finite rows, which must be positive and enough."""
    require(
        m.shape == n.shape == loss.shape and m.ndim == 1,
        f"Columns of argument `table` must have one length, but have shapes {m.shape}, {n.shape} and {loss.shape}.",
    )
    is_finite = np.isfinite(m) & np.isfinite(n) & np.isfinite(loss)
    m, n, loss = m[is_finite], n[is_finite], loss[is_finite]
    for name, column in (("width", m), ("samples", n), ("loss", loss)):
        least = column.min(initial=np.inf)
        require(least > 0.0, f"Column {name} of argument `table` must be positive, but its least number is {least:g}.")
        largest = column.max(initial=1.0)
        require(
            least >= 1.0 / LARGEST and largest <= LARGEST,
            f"Column {name} of argument `table` must be between {1.0 / LARGEST:g} and {LARGEST:g}, but is from "
            f"{least:g} to {largest:g}.",
        )
    widths, samples = np.unique(m).size, np.unique(n).size
    require(
        loss.size >= FEWEST_ROWS and widths >= FEWEST and samples >= FEWEST,
        f"Argument `table` must have {FEWEST_ROWS} rows or more, of {FEWEST} widths and numbers of samples or more, "
        f"but has {loss.size}, of {widths} and {samples}.",
    )
    return m, n, loss


def _fit(m: Array, n: Array, loss: Array, form: Form) -> Array:
    """Return ln E, ln A, α, ln B, β of the best fit."""
    from scipy.optimize import nnls

    starts, fits = [], []
    for alpha in GRID:
        stop_if_heard()
        for beta in GRID:
            design = np.stack([np.ones(loss.size), m**-alpha, n**-beta], axis=1) / loss[:, None]
            scale = design.max(axis=0)
            values, misfit = nnls(design / scale, np.ones(loss.size))
            floor, A, B = np.maximum(values / scale, LEAST_FLOOR * loss.min())
            starts.append((misfit, np.array([np.log(floor), np.log(A), alpha, np.log(B), beta])))
    starts.sort(key=lambda start: start[0])
    # Of the larger of two laws the best sum may be far from the best fit: some other starts too.
    chosen = starts[:REFINED] + starts[REFINED :: len(starts) // REFINED]
    for _, start in chosen:
        stop_if_heard()
        fits.append(_refined(m, n, loss, form, start))
    return min(fits, key=lambda fit: fit[1])[0]


def _refined(m: Array, n: Array, loss: Array, form: Form, start: Array) -> tuple[Array, float]:
    """Return parameters that are a local minimum from a start on, and half the sum of squares there."""
    from scipy.optimize import least_squares

    log_m, log_n, log_loss = np.log(m), np.log(n), np.log(loss)
    least, highest = float(np.log(LEAST_FLOOR * loss.min())), float(log_loss.min())
    ends = zip((least, highest), LOG_PREFACTORS, EXPONENTS, strict=True)
    low, high = [(floor, prefactor, exponent, prefactor, exponent) for floor, prefactor, exponent in ends]

    def misfit(q: Array) -> Array:
        return _log_loss(q, log_m, log_n, form) - log_loss

    fit = least_squares(
        misfit,
        np.clip(start, np.array(low) + 1e-9, np.array(high) - 1e-9),
        bounds=(low, high),
        x_scale=[1.0, 1.0, 0.1, 1.0, 0.1],
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
        max_nfev=2000,
    )
    return fit.x, float(fit.cost)


def _log_loss(q: Array, log_m: Array, log_n: Array, form: Form) -> Array:
    """Return ln of the fitted loss at ln m and ln n."""
    width, samples = q[1] - q[2] * log_m, q[3] - q[4] * log_n
    joined = np.logaddexp(width, samples) if form == "sum" else np.maximum(width, samples)
    return np.asarray(np.logaddexp(q[0], joined))


def _at_bounds(q: Array) -> list[str]:
    """Return sentences' ends that name the exponents and prefactors that are at a bound of the fit."""
    told = []
    for name, value, (low, high) in zip(PARAMETERS[1:], q[1:], (LOG_PREFACTORS, EXPONENTS) * 2, strict=True):
        for end in (low, high):
            if abs(value - end) <= NEAR * abs(end):
                bound = f"ln {name}" if (low, high) == LOG_PREFACTORS else name
                told.append(f"{bound.replace('_', ' ')} at its bound {end:g}, so that the table does not determine it")
    return told


def _values(q: Array) -> Array:
    """Return E, A, α, B, β from their logarithms."""
    return np.array([np.exp(q[0]), np.exp(q[1]), q[2], np.exp(q[3]), q[4]])
