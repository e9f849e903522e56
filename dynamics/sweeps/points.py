"""Answers to points of a sweep as the bytes of files, and the directory where such files wait to be merged.

Workers send the file that an answer becomes, a block: a description in JSON, and all numbers. To write netCDF instead
takes thirty times as long.

A study is a function of a problem and options that returns a Dataset: a name in `STUDIES`, an entry point of the group
`feature_emergence.studies`, or a path "package.module:function". To import a path runs code, so it must come from a
caller, never from a file.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import shutil
import tempfile
import threading
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dynamics.cores import one_core
from dynamics.problem.checks import JsonObject, require
from dynamics.problem.saved_times import SaveAt, checked_save_at
from dynamics.runs.file_systems import give_name
from dynamics.runs.result import SolveError
from dynamics.runs.storable import check_storable
from dynamics.runs.storage import StorageError, netcdf_writer, write_file
from dynamics.solve.registry import ANSWERS
from hermite.text.messages import refuse, shown, suggestion, warn

if TYPE_CHECKING:
    import xarray as xr

Study = str | Callable[..., object]
#: Name -> "module:function" of the answers of this package that a sweep can ask for.
STUDIES = {answer.name: answer.function for answer in ANSWERS if answer.sweeps}
ENTRY_POINTS = "feature_emergence.studies"
#: Flow time that the first step of a run passes.
_INSTANT = 1e-9


def study_path(study: object) -> Study:
    """Return a study as workers import it: "module:function" for a name, the callable itself otherwise."""
    if callable(study):
        return study
    if not isinstance(study, str):
        refuse(
            f"Argument `study` must be a name, a path 'module:function' or a callable, but is {shown(study)}.",
            error=TypeError,
        )
    path = registered_path(study) or (study if ":" in study else "")
    if not path:
        names = [*STUDIES, *_installed()]
        refuse(
            f"Argument `study` must be one of {', '.join(map(repr, names))}, a path 'module:function' or a callable, "
            f"but is {shown(study)}.{suggestion(study, names)}"
        )
    return path


def registered_path(name: str) -> str | None:
    """Return the path of a study by its name in this package or an installed one, None if it has none there."""
    return STUDIES[name] if name in STUDIES else _installed().get(name)


def _installed() -> dict[str, str]:
    """Return the studies of installed packages, from name to path "module:function"."""
    return {entry.name: entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}


def find_study(path: Study) -> Callable[..., object]:
    """Return the function of a path, or the callable as it is; raise ValueError if the path leads nowhere."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # a module can end in any way while it is imported
        cause = " ".join(str(error).split()) or type(error).__name__
        refuse(f"Argument `study` must name a function 'module:function' that exists, but is {shown(path)} ({cause}).")
    require(callable(function), f"Argument `study` must name a function, but {path!r} is {type(function).__name__}.")
    return function  # type: ignore[no-any-return]


def name_of_study(study: Study) -> str:
    """Return the name of a study in datasets, the same in every process."""
    if isinstance(study, partial):
        settings = ", ".join([*map(repr, study.args), *(f"{key}={value!r}" for key, value in study.keywords.items())])
        return f"{name_of_study(study.func)}({settings})"
    if isinstance(study, str):
        return next((name for name, path in STUDIES.items() if path == study), study)
    return f"{getattr(study, '__module__', '')}:{getattr(study, '__qualname__', type(study).__qualname__)}"


def check_options(study: Study, options: Mapping[str, object], keys: Iterable[str] = ()) -> None:
    """Raise ValueError if the study lacks one of these options, or needs an option that is absent."""
    function = find_study(study)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    unknown = next((name for name in options if name not in names), None)
    if unknown is not None:
        refuse(
            f"Grid and options must hold what a problem or the study {name_of_study(study)} has, but hold `{unknown}`."
            f"{suggestion(unknown, [*names, *keys], mark='`')}"
        )
    for parameter in parameters:
        require(
            parameter.default is not parameter.empty or parameter.name not in names or parameter.name in options,
            f"Argument `options` must hold `{parameter.name}` for the study {name_of_study(study)}, but does not.",
        )


def compile_study(study: Study, problem: Any, options: Mapping[str, object]) -> str:
    """Take the first step of a study, which compiles its kernels.

    Return why it refuses the problem, "" if it does not.
    """
    from dynamics.solve.integration import chosen_method

    answer = next((entry for entry in ANSWERS if entry.sweeps and entry.function == study), None)
    if answer is None:
        return ""
    instant = SaveAt.at([_INSTANT])
    try:
        checked_save_at(options.get("save_at"), instant)
        if answer.resumes:
            unwatched = {name: value for name, value in options.items() if name not in ("trackers", "checkpoint")}
            with warnings.catch_warnings(action="ignore"):
                if answer.integration:
                    # The end of a run decides which method it takes.
                    unwatched["method"] = chosen_method(answer, problem, unwatched)
                find_study(study)(problem, **{**unwatched, "save_at": instant, "progress": False})
    except Exception as error:
        return str(error) if isinstance(error, (TypeError, ValueError, ImportError)) else ""
    return ""


SETTINGS = "sweep.json"
#: Place of the byte that is locked on Windows.
LOCKED_BYTE = 2**30
#: Ending of the files of points.
BLOCK = ".point"
#: A block begins with these bytes, a checksum of all that follows, the length of its description, the description, and
#: all numbers in its order. Blocks of earlier versions have no checksum.
MAGIC, UNCHECKED = b"feature-emergence points 4\n", b"feature-emergence points 3\n"
_CHECKSUM, _LENGTH = 4, 8
#: Numbers of at least this many bytes are compressed.
COMPRESSED_BYTES = 2**23
#: Kinds of numbers.
NUMBERS = "biuf"


class SweepPoint(NamedTuple):
    """One point: its number in row-major order, its problem, and the options of the study."""

    number: int
    #: Of any kind; the study says which it takes.
    problem: Any
    options: JsonObject


class PointAnswer(NamedTuple):
    """The file of a point, the reason of a failure ("" without one), and the warnings."""

    content: bytes | None
    failure: str = ""
    warnings: tuple[str, ...] = ()


def answer_point(study: Study, point: SweepPoint) -> PointAnswer:
    """Answer a point in a worker, on one core; an exception becomes a failure, and its dataset is kept.

    Outside the main thread warnings are shown as usual.
    """
    import xarray as xr

    content, failure = None, ""
    in_main = threading.current_thread() is threading.main_thread()  # to record replaces filters of the whole process
    recording = warnings.catch_warnings(record=True, action="always") if in_main else nullcontext()
    with one_core(), recording as warning_records:
        try:
            function = find_study(study)
            silent = {"progress": False} if "progress" in inspect.signature(function).parameters else {}
            dataset: Any = function(point.problem, **(silent | point.options))
            require(
                isinstance(dataset, xr.Dataset),
                f"A study must return a Dataset, but returned {type(dataset).__name__}.",
                error=TypeError,
            )
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            dataset = error.dataset if isinstance(error, SolveError) else None
        try:
            content = None if dataset is None else packed_point(dataset)
        except Exception as error:
            failure = failure or f"{type(error).__name__}: {error}"
    return PointAnswer(content, failure, tuple(dict.fromkeys(str(entry.message) for entry in warning_records or ())))


class PointDirectory:
    """The directory of a running sweep, locked: files of its points, and a description of the sweep.

    `<number>.point` is what was computed, and `<number>.failed` says why it is not all that was asked; such a point is
    asked again, as is one whose file is damaged. `digest` tells what the answers depend on, and `settings` tells it to
    a reader. StorageError is raised if the directory cannot be written, is in use, or is that of another sweep, which
    `overwrite` empties instead.
    """

    def __init__(self, path: Path, digest: str, settings: Mapping[str, object], *, overwrite: bool = False) -> None:
        """Make or open the directory `path`, lock it, and remove the files of failed and damaged points.

        `digest`, `settings` and `overwrite` are described above; a warning says how many points were damaged.
        """
        self.path, description = path, path / SETTINGS
        try:
            path.mkdir(exist_ok=True)
            require(
                description.exists() or not any(path.iterdir()),
                f"Directory {str(path)!r} must hold the points of a sweep or be absent, but holds other files.",
                error=StorageError,
            )
            self._lock = description.open("a+", encoding="utf-8")
            _lock_file(self._lock, path)
            stored = description.stat().st_size > 0
            if (stored or answered_points(path)) and digest_of(path) != digest:
                if not overwrite:
                    self._lock.close()
                    refuse(
                        f"Directory {str(path)!r} must hold points of this sweep, but holds those of another one "
                        "(allow it to be emptied with overwrite).",
                        error=StorageError,
                    )
                for file in path.glob("[0-9]*"):
                    file.unlink()
                stored = False
            if not stored:
                description.write_text(json.dumps({"digest": digest, **settings}, indent=1) + "\n", encoding="utf-8")
            for failed in path.glob("*.failed"):
                failed.with_suffix(BLOCK).unlink(missing_ok=True)
                failed.unlink()
            damaged = [file for file in answered_points(path).values() if not _is_whole(file.read_bytes())]
            for file in damaged:
                file.unlink()
        except StorageError:
            raise
        except OSError as error:
            refuse(f"Directory {str(path)!r} could not be written: {error}.", error=StorageError)
        if damaged:
            warn(f"{len(damaged)} files of points in {str(path)!r} are damaged, so these points are asked again.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the directory."""
        self._lock.close()

    def files(self) -> dict[int, Path]:
        """Return the files of answered points by number, in order."""
        return answered_points(self.path)

    def done(self) -> set[int]:
        """Return the points that need not be asked again."""
        return self.files().keys() - self.failures().keys()

    def failures(self) -> dict[int, str]:
        """Return the reasons of failed points by number."""
        return {int(path.stem): path.read_text(encoding="utf-8") for path in self.path.glob("[0-9]*.failed")}

    def keep(self, index: int, answer: PointAnswer) -> None:
        """Write the answer of a point, the reason of a failure first, so that no failed point looks done."""
        path = self.path / f"{index:06d}"
        if answer.failure:
            _write(path.with_suffix(".failed"), answer.failure.encode())
        if answer.content is not None:
            _write(path.with_suffix(BLOCK), answer.content)

    def remove(self) -> None:
        """Delete the directory, its description last: a removal that was cut short leaves it alone."""
        for file in self.path.iterdir():
            if file.name != SETTINGS and not file.is_dir():
                file.unlink()
        try:
            shutil.rmtree(self.path)
        except PermissionError:  # Windows removes no file that is open, such as the locked one
            self._lock.close()
            shutil.rmtree(self.path)


def answered_points(path: Path) -> dict[int, Path]:
    """Return the files of answered points in a directory by number, in order."""
    files = {int(file.stem): file for file in path.glob(f"[0-9]*{BLOCK}")}
    return dict(sorted(files.items()))


def _write(path: Path, content: bytes) -> None:
    """Write a file completely, or leave the path as it was."""
    temporary = path.with_suffix(f"{path.suffix}.partial")
    try:
        temporary.write_bytes(content)
        give_name(temporary, path, replaces=True)
    except OSError as error:
        refuse(f"File {str(path)!r} could not be written: {error}.", error=StorageError)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def digest_of(path: Path) -> str | None:
    """Return the digest in the description of the sweep whose points are in a directory, None if it has none."""
    try:
        digest: str | None = json.loads((path / SETTINGS).read_text(encoding="utf-8")).get("digest")
    except (OSError, ValueError, AttributeError):
        return None
    return digest


def _lock_file(handle: Any, path: Path) -> None:
    """Hold the directory until the handle is closed or the process ends, however it ends."""
    try:
        is_free = _lock(handle)
    except OSError:  # a file system without locks
        return
    if not is_free:
        handle.close()
        refuse(f"Directory {str(path)!r} must not be in use by another process, but is.", error=StorageError)


def _lock(handle: Any) -> bool:
    """Lock a file for this process, and return whether no other one has it; raise OSError where there are no locks."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return _lock_byte(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_byte(handle: Any) -> bool:
    """Lock a byte far behind the end of a file, as Windows can; it forbids others to read what is locked."""
    system: Any = import_module("msvcrt")  # whose functions types know on Windows alone
    os.lseek(handle.fileno(), LOCKED_BYTE, os.SEEK_SET)
    try:
        system.locking(handle.fileno(), system.LK_NBLCK, 1)
    except PermissionError:  # another process has it
        return False
    return True


class PointVariable(NamedTuple):
    """A variable of a point."""

    dims: tuple[str, ...]
    attributes: dict[str, object]
    #: Numbers, or objects that are text.
    values: NDArray[np.generic]


class Point(NamedTuple):
    """The point in a file."""

    sizes: dict[str, int]
    variables: dict[str, PointVariable]
    #: Coordinates that are not those of a dim.
    auxiliary: frozenset[str]
    attributes: dict[str, object]


def packed_point(dataset: xr.Dataset) -> bytes:
    """Return a dataset as the bytes of a file: a mark, a checksum, a description in JSON, and the numbers.

    A dataset with anything but numbers and text, such as dates, is converted as netCDF would hold it.
    """
    import xarray as xr

    # Text and numbers of any size can be told per point; netCDF has integers of 64 bits.
    huge = {k: float(v) for k, v in dataset.attrs.items() if isinstance(v, int) and np.asarray(v).dtype == object}
    coded = {k: _plain(v) for k, v in dataset.attrs.items() if np.asarray(v).dtype.kind == "S"}
    dataset = dataset.assign_attrs(huge | coded)
    check_storable(dataset)
    not_numbers = (v.to_numpy() for v in dataset.variables.values() if v.dtype.kind not in NUMBERS)
    if not all(isinstance(entry, str) for array in not_numbers for entry in array.flat):
        with tempfile.TemporaryDirectory(prefix="sweep-point-") as folder:  # such as dates
            path = Path(folder) / "point.nc"
            write_file(path, netcdf_writer(dataset), replaces=False)
            with xr.open_dataset(path, engine="netcdf4", decode_times=False, mask_and_scale=False) as stored:
                dataset = stored.load()
    description: JsonObject = {
        "sizes": {str(dim): size for dim, size in dataset.sizes.items()},
        "auxiliary": [str(name) for name in dataset.coords if name not in dataset.sizes],
        "attributes": {str(name): _plain(value) for name, value in dataset.attrs.items()},
        "variables": {},
    }
    arrays = []
    for name, variable in [*dataset.data_vars.items(), *dataset.coords.items()]:
        array = variable.to_numpy()
        if array.dtype.kind in NUMBERS:
            held: dict[str, object] = {"kind": array.dtype.str}
            arrays.append(array.tobytes())
        else:
            held = {"text": array.ravel().tolist()}
        attributes = {str(key): _plain(value) for key, value in variable.attrs.items()}
        held |= {"dims": list(map(str, variable.dims)), "shape": array.shape, "attributes": attributes}
        description["variables"][str(name)] = held
    numbers = b"".join(arrays)
    if len(numbers) >= COMPRESSED_BYTES:
        description["compressed"], numbers = True, zlib.compress(numbers, level=1)
    header = json.dumps(description).encode()
    header = len(header).to_bytes(_LENGTH, "little") + header
    checksum = zlib.crc32(numbers, zlib.crc32(header)).to_bytes(_CHECKSUM, "little")
    return b"".join([MAGIC, checksum, header, numbers])


def _is_whole(content: bytes) -> bool:
    """Return whether the bytes of a block match its checksum; blocks of earlier versions have none and pass."""
    if not content.startswith(MAGIC):
        return content.startswith(UNCHECKED)
    first = len(MAGIC) + _CHECKSUM
    return zlib.crc32(memoryview(content)[first:]) == int.from_bytes(content[len(MAGIC) : first], "little")


def _plain(value: object) -> object:
    """Return an attribute as netCDF gives it back, ready for JSON; a list of one value is that value."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    values = np.asarray(value)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return values.item() if values.size == 1 else values.tolist()


def read_point(path: Path) -> Point:
    """Return the point in a file; raise StorageError if the file is damaged."""
    content = path.read_bytes()
    require(
        _is_whole(content),
        f"File {str(path)!r} must hold the point that was written to it, but does not: it is damaged; without it the "
        "same sweep asks the point again.",
        error=StorageError,
    )
    start = len(MAGIC) + (_CHECKSUM if content.startswith(MAGIC) else 0)
    first = start + _LENGTH
    end = first + int.from_bytes(content[start:first], "little")
    description = json.loads(content[first:end])
    if description.get("compressed"):
        content, end = zlib.decompress(memoryview(content)[end:]), 0
    variables = {}
    for name, described in description["variables"].items():
        if "text" in described:
            values = np.array(described["text"], dtype=object)
        else:
            values = np.frombuffer(content, described["kind"], math.prod(described["shape"]), end)
            end += values.nbytes
        values = values.reshape(described["shape"])
        variables[name] = PointVariable(tuple(described["dims"]), described["attributes"], values)
    return Point(description["sizes"], variables, frozenset(description["auxiliary"]), description["attributes"])
