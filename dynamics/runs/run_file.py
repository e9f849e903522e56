"""The file of a run: its group "checkpoint" is kept up to date while the run goes on and lets it be continued."""

from __future__ import annotations

import hashlib
import json
import time as clock
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dynamics.problem.checks import JsonObject, check_switch, checked_number
from dynamics.problem.question import stored_question
from dynamics.problem.saved_times import SaveAt
from dynamics.runs import storage
from dynamics.runs.result import Records, RunResult, Snapshot, StopReason
from dynamics.runs.storage import fingerprint, remove_torn, write_somewhere
from dynamics.runs.trackers import Tracker
from hermite.text.messages import refuse, require, warn
from hermite.version import PROGRAM

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import xarray as xr

    from dynamics.runs.trackers import Run

    Parts = Mapping[str, xr.Dataset]


DEFAULT_SECONDS = 30.0
#: Writing takes at most about this part of the time.
LARGEST_SHARE = 0.1
#: Prefixes of the names of arrays: of the state of a stepper, and of records that only the checkpoint holds.
STATE, RECORD = "state_", "record_"
#: Seconds that a run has cost, which go on to be counted.
COSTS = ("solve_seconds", "tracker_seconds")


class Checkpoint(Tracker):
    """A tracker that hands a snapshot of the run to `write` every so many seconds, more rarely if that takes long."""

    patient = True

    def __init__(self, write: Callable[[object], None], every: float) -> None:
        self._write, self._every = write, every

    def start(self, view: Run) -> None:  # noqa: ARG002
        """Start the clock."""
        self._next = clock.monotonic() + self._every

    def check(self, view: Run) -> StopReason | None:
        """Write when it is time."""
        if (began := clock.monotonic()) >= self._next:
            self._write(view.snapshot())
            ended = clock.monotonic()
            self._next = ended + max(self._every, (ended - began) / LARGEST_SHARE)
        return None


def labelled_arrays(arrays: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[list[str], Any]]:
    """Return arrays as variables of a dataset, (dims, array) by name; no two share a dimension.

    `prefix` is put in front of all names.
    """
    return {
        f"{prefix}{name}": ([f"{prefix}{name}_{axis}" for axis in range(np.ndim(array))], np.asarray(array))
        for name, array in arrays.items()
    }


def packed(snapshot: Snapshot, *, records: bool = True) -> xr.Dataset | None:
    """Return a snapshot as a dataset, without records if `records` is false; None if its run cannot continue."""
    import xarray as xr

    if snapshot.state is None:
        return None
    result = snapshot.result
    count, columns = len(result.records), result.records.columns
    stored_columns = {name: column[:count] for name, column in columns.items()} if records else {}
    variables = labelled_arrays(snapshot.state, STATE) | labelled_arrays(stored_columns, RECORD)
    costs = {"solve_seconds": result.solve_seconds, "tracker_seconds": result.tracker_seconds}
    return xr.Dataset(variables, attrs={"records": count, "observables": " ".join(columns), **costs})


def unpacked(dataset: xr.Dataset, held: xr.Dataset | None = None) -> Snapshot:
    """Return the snapshot that `packed` made a dataset of; KeyError or ValueError is raised for any other dataset."""
    arrays = {str(name): array.to_numpy() for name, array in dataset.data_vars.items()}
    records = {name: arrays[f"{RECORD}{name}"] if held is None else held[name].to_numpy()
               for name in dataset.attrs["observables"].split()}  # fmt: skip
    count = int(dataset.attrs["records"])
    result = RunResult(Records.of({name: column[:count] for name, column in records.items()}, count))
    state = {name.removeprefix(STATE): array for name, array in arrays.items() if name.startswith(STATE)}
    for name in COSTS:
        setattr(result, name, float(dataset.attrs[name]))
    return Snapshot(result, state)


#: A temporary file that has not changed for so many seconds was left by a process that has died.
IDLE_SECONDS = 600.0


@dataclass(frozen=True)
class Begun:
    """A run that has not ended: the call that began it, its dataset so far, and the arrays from which it goes on."""

    answer: str
    #: A problem of any kind; the answer says which it takes.
    problem: Any
    save_at: SaveAt
    settings: JsonObject
    dataset: xr.Dataset
    parts: dict[str, xr.Dataset]


@dataclass
class RunFile:
    """A netCDF file that holds the answer of a run and, until the run has ended, the state from which it goes on.

    It replaces nothing that appears under its name meanwhile: it then takes the first free name beside it, or another
    directory if this one is out of reach. A warning and `trouble` say so, and `target` is that place.

    Parameters
    ----------
    path : path, optional
        File to write; without one nothing is written.
    every : float, default 30
        Seconds of wall-clock time between two versions; longer where writing takes more than a tenth of that.
    overwrite : bool, default False
        Replace the file that has the name now.
    keeps_result : bool, default True
        Write the finished dataset too. A caller who does it says no.

    Raises
    ------
    StorageError
        If the path may not be written.

    Examples
    --------
    >>> import tempfile
    >>> from dynamics import Problem, Teacher, load, solve_overlaps
    >>> problem = Problem(activation="he4", teacher=Teacher([1.0]), width=2, dimension=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = RunFile(f"{folder}/run.nc", every=5.0)
    ...     flow = solve_overlaps(problem, checkpoint=file, progress=False)
    ...     load(file.target).identical(flow)
    True
    """

    path: InitVar[str | os.PathLike[str] | None]
    every: float = DEFAULT_SECONDS
    overwrite: bool = False
    keeps_result: bool = True
    #: Arrays among the arguments of the call by name; scalars are in the attribute `parameters`.
    arguments: dict[str, object] = field(default_factory=dict)
    begun: Begun | None = None
    #: Whether the file, as it stands, can be continued.
    unfinished: bool = False
    #: One sentence that says why the file has another place than asked for, and which; "" if it has not.
    trouble: str = field(default="", init=False)

    def __post_init__(self, path: str | os.PathLike[str] | None) -> None:
        checked_number(self.every, "every", positive=True)
        check_switch("overwrite", self.overwrite)
        check_switch("keeps_result", self.keeps_result)
        self._target = None if path is None else storage.check_target(path, overwrite=self.overwrite)
        #: Fingerprint of the file that this run has written, goes on from or may replace; no other one of its name is
        #: replaced, such as that of a second run to which the same was allowed.
        self._own: tuple[int, ...] | None = None
        if self._target is not None:
            remove_torn(self._target, idle=IDLE_SECONDS)
            self._own = fingerprint(self._target) if self.overwrite else None

    @property
    def target(self) -> Path:
        """Path of the file, another one than requested if that could not be written; ValueError without a file."""
        if self._target is None:
            refuse("Argument `path` must be given for a file to be written, but is None.")
        return self._target

    @property
    def has_path(self) -> bool:
        """Whether anything is written at all."""
        return self._target is not None

    def part(self, name: str) -> xr.Dataset | None:
        """Return the arrays from which a part of the run continues, None for a new run."""
        return None if self.begun is None else self.begun.parts.get(name)

    def trackers(self, contents: Callable[[Any], tuple[xr.Dataset, Parts]]) -> list[Tracker]:
        """Return trackers that update the file; `contents` returns dataset and checkpoint parts of a snapshot."""
        return [Checkpoint(lambda snapshot: self.keep(*contents(snapshot)), self.every)] if self.has_path else []

    def keep(self, dataset: xr.Dataset, parts: Parts) -> None:
        """Write a run that has not ended, or without `parts` its dataset alone; warn if that is impossible."""
        import xarray as xr

        groups: dict[str, xr.Dataset] = {"/": dataset}
        if parts:
            checkpoint = xr.Dataset(labelled_arrays(self.arguments), attrs={"digest": _digest(self.arguments, parts)})
            groups |= {f"/{storage.CHECKPOINT}": checkpoint}
            groups |= {f"/{storage.CHECKPOINT}/{name}": part for name, part in parts.items()}
        if self._written(xr.DataTree.from_dict(groups), compress=False):
            self.unfinished = bool(parts)

    def close(self, dataset: xr.Dataset, parts: Parts, *, resumable: bool) -> None:
        """Write how a run has ended.

        Where it could be resumed but has no parts, since it was torn out of a step, the last checkpoint is kept.
        """
        if not self.has_path:
            return
        if resumable and parts:
            self.keep(dataset, parts)
        elif not (resumable and self.unfinished) and (not self.keeps_result or self._written(dataset)):
            self.unfinished = False

    def store(self, result: xr.Dataset | xr.DataTree, *, compress: bool = True) -> None:
        """Write the file, under another name if its own cannot be written; raise StorageError if no place can."""
        writer = storage.netcdf_writer(result, compress=compress)
        self._target, trouble = write_somewhere(self.target, writer, replaces=self._replaces())
        self._own = fingerprint(self.target)
        self.trouble = trouble or self.trouble

    def remove(self) -> None:
        """Remove the file, unless another one has taken its name."""
        if self._replaces():
            self.target.unlink(missing_ok=True)

    def _replaces(self) -> bool:
        """Return whether the file of that name is the one that this run may replace."""
        return self._own is not None and self._own == fingerprint(self.target)

    def _written(self, result: xr.Dataset | xr.DataTree, *, compress: bool = True) -> bool:
        """Write a result and return whether that succeeded; warn of failure or another place."""
        trouble = self.trouble
        try:
            self.store(result, compress=compress)
        except storage.StorageError as error:
            warn(str(error), category=RuntimeWarning)
            return False
        if self.trouble != trouble:
            warn(self.trouble, category=RuntimeWarning)
        return True


def as_run_file(checkpoint: str | os.PathLike[str] | RunFile | None) -> RunFile:
    """Return the argument `checkpoint` of a solve as a `RunFile`."""
    return checkpoint if isinstance(checkpoint, RunFile) else RunFile(checkpoint)


def reopened(path: str | os.PathLike[str], *, every: float = DEFAULT_SECONDS, keeps_result: bool = True) -> RunFile:
    """Return the file of a run that has not ended, with the state from which the run goes on.

    StorageError is raised if the file cannot be read or written, or holds no run that can be continued. UserWarning
    says if another version of the program wrote it, so that the last bits of the results may differ.
    """
    output = str(path).removesuffix(".points")
    is_file = True
    with suppress(OSError):  # a name that is too long
        is_file = not storage.as_path(path).is_dir()
    require(
        is_file,
        f"Argument `path` must name the file of a run, but {str(path)!r} is a directory: a sweep goes on when it is "
        f"called again as it was, `dynamics.sweep(…, output={output!r})` or `python -m dynamics.study FILE`.",
        error=storage.StorageError,
    )
    tree, file = storage.load_tree(path), repr(str(path))
    dataset = tree.to_dataset()
    reason, method = dataset.attrs.get("stop_reason"), dataset.attrs.get("method", dataset.attrs.get("engine"))
    has_checkpoint = storage.CHECKPOINT in tree.children
    require(
        has_checkpoint or any(reason == stop and stop.resumable for stop in StopReason),
        f"File {file} must hold a run that can be resumed, but it holds a finished one.",
        error=storage.StorageError,
    )
    require(
        has_checkpoint,
        f"File {file} must hold a run that can be resumed, but it stopped ({reason}) by a method that cannot go on, "
        f"{method!r}.",
        error=storage.StorageError,
    )
    group = tree.children[storage.CHECKPOINT]
    parts = {name: node.to_dataset(inherit=False) for name, node in group.children.items()}
    arguments = {str(name): array.to_numpy() for name, array in group.to_dataset(inherit=False).data_vars.items()}
    try:
        if group.attrs["digest"] != _digest(arguments, parts):
            raise ValueError
        settings = dict(json.loads(dataset.attrs["parameters"])["solver"])
        answer, times = str(settings.pop("answer")), SaveAt.at(dataset["time"].to_numpy())
        begun = Begun(answer, stored_question(dataset), times, settings | arguments, dataset, parts)
    except (KeyError, ValueError, TypeError, RecursionError):  # the last of endless JSON
        refuse(f"File {file} must hold a whole checkpoint of this program, but does not.", error=storage.StorageError)
    lacking = _lacking_record(dataset, parts)
    require(
        lacking is None,
        f"File {file} must hold every record of its run, to go on with it, but lacks those of {lacking!r}.",
        error=storage.StorageError,
    )
    if (source := dataset.attrs.get("source")) != PROGRAM:
        warn(f"File {file} was begun by {source}, so {PROGRAM} may give results that differ in their last bits.")
    run_file = RunFile(path, every, overwrite=True, keeps_result=keeps_result, begun=begun, unfinished=True)
    remove_torn(run_file.target)
    return run_file


def _lacking_record(dataset: xr.Dataset, parts: Parts) -> str | None:
    """Return the first variable of which neither dataset nor checkpoint holds all records, or None."""
    times = dataset.sizes.get("time", 0)
    held = ["time"]
    for part in parts.values():
        names = str(part.attrs.get("observables", "")).split()
        held += [name for name in names if f"{RECORD}{name}" not in part.variables]
    recorded = {str(name) for name, variable in dataset.variables.items() if variable.dims[:1] == ("time",) and times}
    return next((name for name in held if name not in recorded), None)


def _digest(arguments: Mapping[str, object], parts: Parts) -> str:
    """Return a hash of all arrays of a checkpoint, which shows whether it is damaged."""
    digest, arrays = hashlib.sha256(), {name: np.asarray(array) for name, array in arguments.items()}
    for part, dataset in parts.items():
        digest.update(f"{part} {sorted((name, str(value)) for name, value in dataset.attrs.items())}".encode())
        arrays |= {f"{part}/{name}": array.to_numpy() for name, array in dataset.data_vars.items()}
    for name, array in sorted(arrays.items(), key=lambda named: named[0]):
        text = array.dtype.kind in "OU"
        digest.update(f"{name} {array.shape}".encode())
        digest.update(str(array).encode() if text else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
