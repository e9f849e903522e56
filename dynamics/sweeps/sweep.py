"""`dynamics.sweep`: a grid of problems, each answered by the same study, as one dataset.

Points that have no answer yet are run, the largest first, and all are merged to one file. The files of points are read
one by one, twice: memory holds one of them at a time, one number or text of every point, and small variables.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dynamics.cores import one_core
from dynamics.problem.checks import check_switch, require
from dynamics.runs.dataset import own_attributes, stamp_of
from dynamics.runs.result import SolveInterrupted
from dynamics.runs.storage import COMPRESSION, check_target, load, opened, remove_torn, write_file, write_netcdf
from dynamics.runs.trackers import bar_settings, open_bar
from dynamics.runs.variables import VARIABLES
from dynamics.sweeps.grid import Grid, make_grid
from dynamics.sweeps.points import (
    Point,
    PointAnswer,
    PointDirectory,
    PointVariable,
    answered_points,
    compile_study,
    digest_of,
    name_of_study,
    read_point,
)
from dynamics.sweeps.workers import CallingThread, GivenExecutor, WorkerPool, begin_workers, checked_workers, run_points
from hermite.text.messages import refuse, shown, warn

if TYPE_CHECKING:
    import xarray as xr
    from netCDF4 import Dataset

    from dynamics.problem.question import Question


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
    """One variable of the result, as the points that were read so far have it."""

    #: Without those of the grid.
    dims: tuple[str, ...]
    #: Whether it holds text rather than numbers.
    text: bool
    attributes: dict[str, object]
    #: Values of a coordinate, the longest seen, as long as all points agree on it.
    shared: NDArray[np.generic] | None


@dataclass
class Survey:
    """Sizes of dims, variables, and attributes of the points; each attribute is one array over all points."""

    grid: Grid
    sizes: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Merged] = field(default_factory=dict)
    scalars: dict[str, NDArray[Any]] = field(default_factory=dict)

    def renamed(self, name: str) -> str:
        """Return the name of a dim, variable or attribute of a point, "point_" in front if the result has that name."""
        taken = name == "failure" or any(axis.name == name for axis in self.grid.axes)
        return f"point_{name}" if taken else name

    def add(self, index: int, point: Point) -> None:
        """Record the sizes, variables and attributes of the point with number `index`."""
        for name, size in point.sizes.items():
            merged_name = self.renamed(name)
            self.sizes[merged_name] = max(self.sizes.get(merged_name, 0), size)
        for name, variable in point.variables.items():
            self._add_variable(name, variable, is_coordinate=name in point.sizes or name in point.auxiliary)
        for name, value in point.attributes.items():
            if name not in PROVENANCE:
                self._add_attribute(self.renamed(name), index, value)

    def _add_variable(self, name: str, variable: PointVariable, *, is_coordinate: bool) -> None:
        """Record a variable of a point; a coordinate stays shared while it agrees with those of earlier points."""
        shared = variable.values if is_coordinate else None
        merged_name = self.renamed(name)
        merged = self.variables.get(merged_name)
        if merged is None:
            attributes = {
                k: v for k, v in variable.attributes.items() if k not in ("_FillValue", "coordinates", "dtype")
            }
            dims = tuple(map(self.renamed, variable.dims))
            self.variables[merged_name] = Merged(dims, variable.values.dtype == object, attributes, shared)
            return
        # Attributes that a variable has at some points alone are left out.
        merged.attributes = {k: v for k, v in merged.attributes.items() if variable.attributes.get(k) == v}
        merged.shared = None if shared is None or merged.shared is None else _common(merged.shared, shared)

    def _add_attribute(self, name: str, index: int, value: object) -> None:
        """Record an attribute of the point with number `index` in an array over all points, of numbers or of text."""
        number = isinstance(value, (int, float))
        if isinstance(value, list) and not any(isinstance(entry, str) for entry in value):
            value = np.array(value)  # as netCDF gives it back
        if name not in self.scalars:
            self.scalars[name] = np.full(len(self.grid), *((np.nan,) if number else ("", object)))
        array = self.scalars[name]
        if number or array.dtype == object:
            array[index] = str(value) if array.dtype == object else value


def _common(first: NDArray[np.generic], second: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """Return the longer of two coordinates if it begins with the shorter one, None otherwise."""
    if first.ndim != 1 or second.ndim != 1:
        return first if np.array_equal(first, second) else None
    short, long = sorted((first, second), key=len)
    return long if np.array_equal(short, long[: len(short)]) else None


def merge_points(grid: Grid, points: PointDirectory, target: Path, *, overwrite: bool = False) -> None:
    """Write the answers of a sweep to one netCDF file, which is there when all is written; see `dynamics.sweep`."""
    remove_torn(target)
    write_file(target, lambda path: write_netcdf(path, partial(_fill, grid, points)), replaces=overwrite)


def _fill(grid: Grid, points: PointDirectory, merged: Dataset) -> None:
    """Write the answers of all points to the open netCDF file `merged`."""
    files, survey = points.files(), Survey(grid)
    for index, path in files.items():
        survey.add(index, read_point(path))
    for name in [name for name in survey.scalars if name in survey.variables]:
        survey.scalars[f"point_{name}"] = survey.scalars.pop(name)
    _write_frame(merged, survey, points.failures())
    bytes_left, targets = GATHERED_BYTES, dict[str, Any]()
    for name in [name for name, entry in survey.variables.items() if entry.shared is None]:
        # Small variables are gathered in memory, since writing each point takes long.
        created = targets[name] = merged.variables[name]
        size = np.dtype("f8").itemsize * created.size
        if 0 < size <= bytes_left:
            bytes_left -= size
            targets[name] = np.full(created.shape, *(("", object) if survey.variables[name].text else (np.nan,)))
    for index, path in files.items():
        for name, variable in read_point(path).variables.items():
            array = targets.get(survey.renamed(name))
            if array is not None and variable.values.size > 0:
                array[(*grid.position(index), *map(slice, variable.values.shape))] = variable.values[()]
    for name, values in targets.items():
        if isinstance(values, np.ndarray):
            merged.variables[name][...] = values


def _write_frame(merged: Dataset, survey: Survey, failures: dict[int, str]) -> None:
    """Write axes, shared coordinates and variables of one value per point to the file.

    Create the others without values. `failures` maps the number of a failed point to its reason.
    """
    grid = survey.grid
    axes = tuple(axis.name for axis in grid.axes)
    for axis in grid.axes:
        merged.createDimension(axis.name, len(axis.values))
        labels = _labels_of(axis.name) | AXIS_LABELS.get(axis.name, {})
        _write_whole(merged, axis.name, (axis.name,), axis.labels, labels)
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
            chunks = _chunks(grid, [survey.sizes[dim] for dim in entry.dims])
            _create(merged, name, (*axes, *dims), entry.attributes, str if entry.text else "f8", chunks)
    failure = np.full(len(grid), "", dtype=object)
    failure[list(failures)] = list(failures.values())
    for name, array in {**survey.scalars, "failure": failure}.items():
        _write_whole(merged, name, axes, array.reshape(grid.shape), _labels_of(name))
    attributes = stamp_of(grid.problem, f"Sweep over {', '.join(axes)}", {"answer": "sweep", **grid.settings()})
    attributes |= own_attributes(grid.problem, {"answer": "sweep", "sweep": json.dumps(grid.settings())})
    merged.setncatts(attributes | ({"coordinates": " ".join(auxiliary)} if auxiliary else {}))


def _write_whole(
    merged: Dataset, name: str, dims: tuple[str, ...], values: NDArray[np.generic], labels: dict[str, Any]
) -> None:
    """Write a variable whose values are all known."""
    text = values.dtype.kind in "OUS"
    variable = _create(merged, name, dims, labels, "f8" if values.dtype.kind == "f" else str if text else values.dtype)
    if text and values.ndim == 0:
        variable[...] = str(values)
    elif values.size > 0:
        variable[...] = values


def _create(
    merged: Any, name: str, dims: tuple[str, ...], labels: dict[str, object], dtype: object, chunks: object = None
) -> Any:
    """Create a variable, compressed where it has dims; where points lack entries, numbers are NaN."""
    if dtype is str:
        variable = merged.createVariable(name, str, dims)
    else:
        settings = {"fill_value": np.nan if dtype == "f8" else False, **(COMPRESSION if dims else {})}
        variable = merged.createVariable(name, dtype, dims, chunksizes=chunks, **settings)
    variable.setncatts(labels)
    return variable


def _chunks(grid: Grid, shape: list[int]) -> tuple[int, ...] | None:
    """Return the chunks of a large variable, one point each and cut to at most `CHUNK_BYTES`.

    None lets the library choose. `shape` is that of the variable at one point.
    """
    item = np.dtype("f8").itemsize
    if item * len(grid) * np.prod(shape, dtype=float) <= CHUNK_BYTES:
        return None
    chunk = list(shape)
    for at, size in enumerate(shape):
        rest = item * np.prod(chunk, dtype=float) / size
        chunk[at] = int(np.clip(CHUNK_BYTES // rest, 1, size))
    return (1,) * len(grid.shape) + tuple(chunk)


def _labels_of(name: str) -> dict[str, str]:
    """Return name, units and symbol of a variable, from the table of variables where it has them."""
    return VARIABLES[name].labels if name in VARIABLES else {"long_name": name.replace("_", " "), "units": "1"}


def sweep(
    problem: Question,
    grid: Mapping[str, Iterable[object]],
    *,
    study: str | Callable[..., xr.Dataset] = "overlaps",
    options: Mapping[str, object] | None = None,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    r"""Answer every problem of a grid, in parallel, as one dataset with the axes of the grid in front.

    Parameters
    ----------
    problem : Problem
        What the points have in common.
    grid : mapping of str to sequence
        Key -> distinct values; every combination is one point. A key is a field of the problem; "k", which makes the
        link the Hermite polynomial h_k; "beta" or "num_directions", which make the teacher a power law; "alpha", which
        makes the covariance of the inputs one; or an option of the study, such as "learning_rate". A new link brings
        its own order of truncation.
    study : str or callable
        What is asked at every point, called as ``study(problem, **options)``, which returns a Dataset: the name of an
        answer, such as "overlaps", "prediction", "mean-field" or "tokens" ("system" takes a `System` instead of a
        problem); a name that an installed package adds, as "projected-sgd", "diffusion-sgd" and "torch-sgd" of
        `sgd_check`; a path "package.module:function"; or a callable.
    options : mapping, optional
        Keyword arguments of the study, the same at every point.
    output : path, optional
        netCDF file to write. While the sweep runs, a directory of the same name ending in ``.points`` holds the points
        that are answered: called again after an interruption, the sweep asks the missing points only.
    overwrite : bool, default False
        Replace an existing output, and empty the points of another sweep beside it.
    executor : concurrent.futures.Executor, optional
        Where points run: threads, processes, or ``client.get_executor()`` of a dask cluster.
    workers : int, optional
        Number of processes on this machine if there is no `executor`, each on one thread; by default one per core. 0
        runs one point after the other in this process. So does the default, with a warning, where this process can have
        no others: one that is daemonic, of a script from stdin, or without semaphores.
    progress : bool, optional
        Progress bar over points on stderr; by default if stderr is a terminal.

    Returns
    -------
    Dataset
        Every variable of the study with the dims of the grid, in the order of its keys, in front. Numbers are float64,
        and NaN where a point has no such entry. A coordinate on which all points agree, as far as each has it, stays
        one; any other, such as `time` without a common `save_at`, becomes a variable, and its dim takes the name
        ``time_index``. Attributes of the points, such as `stop_reason`, become variables over the grid; what has the
        name of a key is called ``point_<name>``. `failure` says why a point failed, "" if it did not. Values that are
        no numbers or text are labelled by name or place. With `output` the values are read when they are used.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, a point whose problem is none, or options that the study refuses for the first point and for
        the last, before any work.
    StorageError
        If the output exists, or the directory beside it belongs to another sweep, which may still be running.
    RuntimeError
        If the workers cannot start, or a worker of `executor` died and broke it.
    SolveInterrupted
        A KeyboardInterrupt, after Ctrl-C, without `output`; its `dataset` has the points that were answered. With
        `output` they wait in the directory, which a KeyboardInterrupt names.

    Warns
    -----
    RuntimeWarning
        If points failed; then the directory of points stays, and the same call with `overwrite` asks these again.
    UserWarning
        What the points warned of, each once.

    Notes
    -----
    Kernels are compiled in this process before the points run. Results do not depend on executor or interruptions, bit
    for bit, apart from the measured seconds, on machines of one kind. A script must make the call below
    ``if __name__ == "__main__":``, because worker processes import it.

    Examples
    --------
    >>> from dynamics import Problem, Teacher
    >>> problem = Problem(activation="he4", teacher=Teacher.power_law(8, 1.0), width=32, dimension=64)
    >>> found = sweep(problem, {"beta": [0.8, 1.2], "seed": range(3)}, study="prediction", workers=0)
    >>> dict(found.predicted_emergence_time.sizes)
    {'beta': 2, 'seed': 3, 'direction': 8}
    """
    # === check
    check_switch("progress", progress, optional=True)
    check_switch("overwrite", overwrite)
    unchecked: object = executor
    require(
        unchecked is None or isinstance(unchecked, futures.Executor),
        f"Argument `executor` must be a concurrent.futures.Executor, but is {shown(unchecked)}.",
        error=TypeError,
    )
    require(
        executor is None or workers is None,
        f"Argument `workers` must be None when an executor is given, but is {shown(workers)}.",
    )
    count = 0 if executor is not None else checked_workers(workers, alone=0)
    points = make_grid(problem, grid, study, options or {})
    merged_before = not overwrite and isinstance(output, (str, os.PathLike)) and is_merged(points, Path(output))
    target = None if output is None else check_target(output, overwrite=overwrite or merged_before)
    if target is not None and merged_before:
        with _directory(points, target) as directory:
            directory.remove()
        return opened(target)
    if executor is None and count > 0:
        _check_pickles(points)
        begin_workers()  # they load their libraries while this process does the same
    begin_points(points)

    # === run, merge, return
    with tempfile.TemporaryDirectory(prefix="sweep-") if target is None else nullcontext("") as folder:
        merged = Path(folder) / "sweep.nc" if target is None else target
        try:
            _answer(points, merged, executor, count, progress, overwrite=overwrite)
        except KeyboardInterrupt:
            folder_of_points = points_directory(merged)
            answered = len(answered_points(folder_of_points))
            if target is not None:
                refuse(
                    f"The sweep was interrupted after {answered} of {len(points)} points, which are kept in "
                    f"{str(folder_of_points)!r}: the same call goes on.",
                    error=KeyboardInterrupt,
                )
            with _directory(points, merged) as directory:
                if merged.exists() or not directory.files():
                    raise
                merge_points(points, directory, merged)
            msg = f"The sweep was interrupted after {answered} of {len(points)} points"
            raise SolveInterrupted(msg, load(merged)) from None
        # Of a file of the caller values are read when they are used.
        dataset: xr.Dataset = load(merged) if target is None else opened(merged)
        return dataset


def is_merged(grid: Grid, output: Path) -> bool:
    """Return whether a sweep was killed after it had merged its points to `output`, before it had removed them.

    The file is then newer than all in the directory of this sweep, and no point has failed.
    """
    try:
        folder = points_directory(output)
        merged = output.stat().st_mtime_ns
        return digest_of(folder) == grid.surveyed.digest and all(
            file.stat().st_mtime_ns <= merged and file.suffix != ".failed" for file in folder.iterdir()
        )
    except (OSError, ValueError):  # one of them is not there, or has a name that no file can have
        return False


def points_directory(output: Path) -> Path:
    """Return where the points of a sweep wait to be merged."""
    return output.with_name(f"{output.name}.points")


def _directory(grid: Grid, output: Path, *, overwrite: bool = False) -> PointDirectory:
    """Open the directory of a sweep, next to its output."""
    return PointDirectory(points_directory(output), grid.surveyed.digest, grid.settings(), overwrite=overwrite)


def _answer(
    grid: Grid, target: Path, executor: Executor | None, workers: int, progress: bool | None, *, overwrite: bool
) -> None:
    """Ask all points that have no answer yet, merge the answers into `target`, and warn of points that failed.

    Points are asked by the `executor` if there is one, else by `workers` processes, or in this process for 0.
    """
    pool: GivenExecutor | WorkerPool
    with _directory(grid, target, overwrite=overwrite) as directory:
        missing = sorted(set(range(len(grid))) - directory.done())
        if executor is not None:
            pool = GivenExecutor(executor)
        elif workers > 0 and missing:
            pool = WorkerPool(min(workers, len(missing)), grid.study)
        else:
            pool = GivenExecutor(CallingThread(), window=1)
        warned: dict[str, None] = {}
        failed = 0
        bar_of_points = {"total": len(grid), "initial": len(grid) - len(missing), "unit": "point"}
        with open_bar(bar_settings(progress), **bar_of_points) as bar, one_core(), pool:

            def keep(index: int, answer: PointAnswer) -> None:
                """Keep the answer of a point, and show it on the bar."""
                nonlocal failed
                directory.keep(index, answer)
                warned.update(dict.fromkeys(answer.warnings))
                failed += bool(answer.failure)
                if failed:
                    bar.set_postfix_str(f"{failed} failed", refresh=False)
                bar.update()

            missing.sort(key=lambda index: tuple(grid.surveyed.sizes[index]), reverse=True)
            run_points(missing, grid.point, grid.study, pool, keep)
        merge_points(grid, directory, target, overwrite=overwrite)
        failures = directory.failures()
        if not failures:
            directory.remove()
    for message in warned:
        warn(message)
    if failures:
        first = min(failures)
        warn(
            f"{len(failures)} of {len(grid)} points failed, the first at {grid.describe(first)}: {failures[first]} The "
            "variable `failure` has them all.",
            category=RuntimeWarning,
        )


def begin_points(grid: Grid) -> None:
    """Take the first step of the first and the last point of each link, which compiles the kernels."""
    with one_core():
        refusals = {compile_study(grid.study, point.problem, point.options) for point in grid.surveyed.ends}
    if len(refusals) == 1 and (refusal := refusals.pop()):
        refuse(f"Problem and options must suit the study {name_of_study(grid.study)}, but do not: {refusal}")


def _check_pickles(grid: Grid) -> None:
    """Raise ValueError unless study, problem and options can be pickled, as worker processes need."""
    point = grid.point(0)
    try:
        pickle.dumps((grid.study, point.problem, point.options))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        refuse(
            "Study, problem and options must be such that they can be pickled for worker processes, a study a function "
            f"at the top of a module, but are not ({error}); with workers=0 or threads as executor they need not be."
        )
