"""The files of the points merged to one file, the axes of the grid in front of the dims of every variable.

Files are read one by one, twice: memory holds one of them at a time, what is one number or text per point, and
variables that are small.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np

from dynamics.runs.dataset import own_attributes, stamp_of
from dynamics.runs.storage import COMPRESSION, ONE_THREAD, remove_torn, write_file
from dynamics.runs.variables import VARIABLES
from dynamics.sweeps.points import opened_points

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dynamics.sweeps.grid import Grid
    from dynamics.sweeps.points import PointDirectory, Points, PointsVariable

#: Attributes that say where a result comes from; all others become variables over the grid.
PROVENANCE = frozenset(
    ("Conventions", "title", "source", "history", "references", "date_created", "schema_version", "parameters",
     "environment", "coordinates")
)  # fmt: skip
#: Axes that mean something else than the variable of the same name.
AXIS_LABELS = {
    "seed": {"long_name": "seed of the random start"},
    "alpha": {"long_name": "decay of the eigenvalues of the inputs", "symbol": r"\alpha"},
}
#: Above so many bytes a variable is stored in chunks of one point each, of at most this size.
CHUNK_BYTES = 1 << 22
#: Bytes of all variables together up to which they are gathered in memory before they are written.
GATHERED_BYTES = 1 << 26


@dataclass
class Merged:
    """One variable of the result, by the points that were seen so far."""

    #: Without those of the grid.
    dims: tuple[str, ...]
    #: Whether it holds text rather than numbers.
    text: bool
    attributes: dict[str, Any]
    #: Values of a coordinate, the longest seen, as long as all points agree on it.
    shared: NDArray[Any] | None = None


@dataclass
class Survey:
    """Sizes of dims, variables, and attributes of the points, the last as one array over all points each."""

    sizes: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Merged] = field(default_factory=dict)
    scalars: dict[str, NDArray[Any]] = field(default_factory=dict)


def merge_points(grid: Grid, points: PointDirectory, target: Path, *, overwrite: bool = False) -> None:
    """Write the answers of a sweep to one netCDF file, which is there when all is written; see `dynamics.sweep`.

    StorageError is raised if it cannot be written; the points are kept.
    """

    def write(path: Path) -> None:
        with ONE_THREAD:
            _write_file(grid, points, path)

    remove_torn(target)
    write_file(target, write, replaces=overwrite)


def _write_file(grid: Grid, points: PointDirectory, target: Path) -> None:
    """Write the file: first what all points tell together, then the values of each."""
    files = points.files()
    survey = _survey(grid, files)
    with netCDF4.Dataset(target, "w") as merged:
        _write_frame(merged, grid, survey, points.failures())
        gathered = _gathered(merged, survey)
        for bundle, path in files.items():
            with opened_points(path) as points_of_file:
                _write_points(gathered, grid, survey, bundle, points_of_file)
        for name, values in gathered.items():
            if isinstance(values, np.ndarray):
                merged.variables[name][...] = values


def _gathered(merged: Any, survey: Survey) -> dict[str, Any]:
    """Return what takes the values of points, by variable: an array, written at the end, as long as all are small."""
    gathered: dict[str, Any] = {}
    left = GATHERED_BYTES
    for name, entry in survey.variables.items():
        variable = merged.variables[name]
        size = np.dtype("f8").itemsize * variable.size
        if entry.shared is None and 0 < size <= left:
            left -= size
            gathered[name] = np.full(variable.shape, *(("", object) if entry.text else (np.nan,)))
        elif entry.shared is None:
            gathered[name] = variable
    return gathered


def _survey(grid: Grid, files: dict[range, Path]) -> Survey:
    """Return the survey of all files."""
    survey = Survey()
    for bundle, path in files.items():
        with opened_points(path) as points:
            for name, size in points.sizes.items():
                name = _clear_of(grid, name)  # noqa: PLW2901
                survey.sizes[name] = max(survey.sizes.get(name, 0), size)
            for name, variable in points.variables.items():
                is_coordinate = name in points.sizes or name in points.auxiliary
                _survey_variable(grid, survey, name, variable, is_coordinate=is_coordinate)
            for name, values in points.attributes.items():
                if name not in PROVENANCE:
                    _survey_attribute(grid, survey, bundle, name, values)
    for name in [name for name in survey.scalars if name in survey.variables]:
        survey.scalars[f"point_{name}"] = survey.scalars.pop(name)
    return survey


def _survey_variable(grid: Grid, survey: Survey, name: str, variable: PointsVariable, *, is_coordinate: bool) -> None:
    """Note a variable of points, and whether a coordinate still agrees with those seen before."""
    clear = _clear_of(grid, name)
    shared = _agreed(variable.values()) if is_coordinate else None
    seen = survey.variables.get(clear)
    if seen is None:
        hidden = ("_FillValue", "coordinates", "dtype")
        attributes = {key: value for key, value in variable.attributes.items() if key not in hidden}
        dims = tuple(_clear_of(grid, dim) for dim in variable.dims)
        survey.variables[clear] = Merged(dims, variable.text, attributes, shared)
        return
    # Attributes that a variable has at some points alone are left out.
    seen.attributes = {key: value for key, value in seen.attributes.items() if variable.attributes.get(key) == value}
    if seen.shared is not None:
        seen.shared = None if shared is None else _common(seen.shared, shared)


def _agreed(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return the values on which all points agree, None if they do not."""
    first: NDArray[Any] = values[0, ...]
    return first if all(np.array_equal(first, other) for other in values[1:]) else None


def _common(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any] | None:
    """Return the longer of two coordinates if the shorter is its beginning, else None."""
    if first.ndim != 1 or second.ndim != 1:
        return first if np.array_equal(first, second) else None
    short, long = sorted((first, second), key=len)
    return long if np.array_equal(short, long[: len(short)]) else None


def _survey_attribute(grid: Grid, survey: Survey, bundle: range, name: str, values: list[Any]) -> None:
    """Note an attribute of points as numbers or text of the grid."""
    name = _clear_of(grid, name)
    for index, value in zip(bundle, values, strict=True):
        if value is None:
            continue
        number = isinstance(value, (int, float, np.number))
        if name not in survey.scalars:
            survey.scalars[name] = np.full(len(grid), *((np.nan,) if number else ("", object)))
        array = survey.scalars[name]
        if array.dtype == object:
            array[index] = str(value)
        elif number:
            array[index] = value


def _write_frame(merged: Any, grid: Grid, survey: Survey, failures: dict[int, str]) -> None:
    """Write axes, shared coordinates and variables of one value per point; create all other variables."""
    axes = tuple(axis.name for axis in grid.axes)
    for axis in grid.axes:
        merged.createDimension(axis.name, len(axis.values))
        _write_whole(
            merged, axis.name, (axis.name,), axis.labels, _labels_of(axis.name) | AXIS_LABELS.get(axis.name, {})
        )
    apart = {name for name, entry in survey.variables.items() if entry.shared is None and name in survey.sizes}
    for name, size in survey.sizes.items():
        merged.createDimension(f"{name}_index" if name in apart else name, size)
    auxiliary = []
    for name, entry in survey.variables.items():
        dims = tuple(f"{dim}_index" if dim in apart else dim for dim in entry.dims)
        if entry.shared is not None:
            _write_whole(merged, name, dims, entry.shared, entry.attributes)
            auxiliary += [name] if name not in dims else []
        else:
            shape = [survey.sizes[dim] for dim in entry.dims]
            _create(
                merged, name, (*axes, *dims), text=entry.text, chunks=_chunks(grid, shape), attributes=entry.attributes
            )
    for name, array in survey.scalars.items():
        _write_whole(merged, name, axes, array.reshape(grid.shape), _labels_of(name))
    failure = np.full(len(grid), "", dtype=object)
    for index, reason in failures.items():
        failure[index] = reason
    _write_whole(merged, "failure", axes, failure.reshape(grid.shape), _labels_of("failure"))
    names = ", ".join(axes)
    attributes = stamp_of(grid.problem, f"Sweep over {names}", {"answer": "sweep", **grid.settings()})
    attributes |= own_attributes(grid.problem, {"answer": "sweep", "sweep": json.dumps(grid.settings())})
    merged.setncatts(attributes)
    if auxiliary:
        merged.setncattr("coordinates", " ".join(auxiliary))


def _write_points(gathered: dict[str, Any], grid: Grid, survey: Survey, bundle: range, points: Points) -> None:
    """Write the values of the points of a file."""
    places: Any = np.unravel_index(np.array(bundle), grid.shape)
    for name, variable in points.variables.items():
        clear = _clear_of(grid, name)
        if survey.variables[clear].shared is not None or 0 in variable.shape:
            continue
        values, part = variable.values(), tuple(slice(size) for size in variable.shape)
        target: Any = gathered[clear]
        if isinstance(target, np.ndarray):
            target[(*places, *part)] = values
            continue
        for index, value in zip(bundle, values, strict=True):
            target[(*grid.position(index), *part)] = value


def _write_whole(
    merged: Any, name: str, dims: tuple[str, ...], values: NDArray[Any], attributes: dict[str, Any]
) -> None:
    """Write a variable that needs no look at the points."""
    text = values.dtype.kind in "OUS"
    dtype = None if text or values.dtype.kind == "f" else values.dtype
    variable = _create(merged, name, dims, text=text, chunks=None, attributes=attributes, dtype=dtype)
    if text and values.ndim == 0:
        variable[...] = str(values)
    elif values.size > 0:
        variable[...] = values


def _create(
    merged: Any,
    name: str,
    dims: tuple[str, ...],
    *,
    text: bool,
    chunks: tuple[int, ...] | None,
    attributes: dict[str, Any],
    dtype: Any = None,
) -> Any:
    """Create a variable, compressed where it has dims; where points lack entries, numbers are NaN."""
    if text:
        variable = merged.createVariable(name, str, dims)
    else:
        fill = np.nan if dtype is None else False
        packing = COMPRESSION if dims else {}
        variable = merged.createVariable(name, dtype or "f8", dims, chunksizes=chunks, fill_value=fill, **packing)
    variable.setncatts(attributes)
    return variable


def _chunks(grid: Grid, shape: list[int]) -> tuple[int, ...] | None:
    """Return chunks of one point for a large variable, None where the library may choose."""
    item = np.dtype("f8").itemsize
    if item * len(grid) * np.prod(shape, dtype=float) <= CHUNK_BYTES:
        return None
    own = list(shape)
    for at, size in enumerate(shape):
        rest = item * np.prod(own, dtype=float) / size
        own[at] = int(np.clip(CHUNK_BYTES // rest, 1, size))
    return (1,) * len(grid.shape) + tuple(own)


def _clear_of(grid: Grid, name: str) -> str:
    """Return the name of a dim, variable or attribute of a point, changed if the result has its own of that name."""
    return f"point_{name}" if name == "failure" or any(axis.name == name for axis in grid.axes) else name


def _labels_of(name: str) -> dict[str, str]:
    """Return name, units and symbol of a variable, from the table of variables where it has them."""
    return VARIABLES[name].labels if name in VARIABLES else {"long_name": name.replace("_", " "), "units": "1"}
