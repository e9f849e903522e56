"""Answers to points of a sweep as the bytes of files, and the directory where such files wait to be merged.

Workers send the file that an answer becomes, a block: a description in JSON, and all numbers. The process that keeps
the files writes it without reading it. netCDF, which earlier versions wrote too, takes thirty times as long.

A study is a function of a problem and options that returns a Dataset. The names of this package are in `STUDIES`; other
installed packages add theirs as entry points of the group `feature_emergence.studies`. A path
"package.module:function" names any other; to import it runs code, so it must come from a caller, never from a file.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dynamics.cores import one_core
from dynamics.problem.checks import check_that, require
from dynamics.problem.schedule import SaveAt, checked_schedule
from dynamics.runs.dataset import DatasetArrays, Labelled
from dynamics.runs.storage import StorageError, check_attributes, save
from dynamics.solve.registry import ANSWERS, Answer, answers_that
from hermite.text.messages import refuse, shown, suggestion

if TYPE_CHECKING:
    import xarray as xr

    from dynamics.problem.question import Question

Study = str | Callable[..., Any]
#: Name -> "module:function" of the answers of this package that a sweep can ask for.
STUDIES = {answer.name: answer.function for answer in answers_that("sweep")}
ENTRY_POINTS = "feature_emergence.studies"
#: Flow time that the first step of a run passes.
_INSTANT = 1e-9


def study_path(study: object) -> Study:
    """Return a study as what workers can find: "module:function" for a name, the callable itself otherwise."""
    if callable(study):
        return study
    path = "a path 'module:function' or a callable"
    if not isinstance(study, str):
        refuse(f"Argument `study` must be a name, {path}, but is {shown(study)}.", TypeError)
    found = registered_path(study) or (study if ":" in study else "")
    if not found:
        names = [*STUDIES, *_installed()]
        menu = f"one of {', '.join(map(repr, names))}, {path}"
        refuse(f"Argument `study` must be {menu}, but is {shown(study)}.{suggestion(study, names)}")
    return found


def registered_path(name: str) -> str | None:
    """Return the path of a study by its name in this package or an installed one, None if it has none there."""
    return STUDIES[name] if name in STUDIES else _installed().get(name)


def _installed() -> dict[str, str]:
    return {entry.name: entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}


def find_study(path: Study) -> Callable[..., Any]:
    """Return the function of a path, or the callable as it is; raise ValueError if the path leads nowhere."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # a module can end in any way while it is imported
        why = " ".join(str(error).split()) or type(error).__name__
        refuse(f"Argument `study` must name a function 'module:function' that exists, but is {shown(path)} ({why}).")
    require(callable(found), f"Argument `study` must name a function, but {path!r} is {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def name_of_study(study: Study) -> str:
    """Return the name of a study in datasets, the same in every process."""
    if isinstance(study, partial):
        settings = ", ".join([*map(repr, study.args), *(f"{key}={value!r}" for key, value in study.keywords.items())])
        return f"{name_of_study(study.func)}({settings})"
    if isinstance(study, str):
        return next((name for name, path in STUDIES.items() if path == study), study)
    return f"{getattr(study, '__module__', '')}:{getattr(study, '__qualname__', type(study).__qualname__)}"


def answer_of_many(study: Study) -> Answer | None:
    """Return the answer that a study is, if its points can be answered together."""
    return next((answer for answer in ANSWERS if answer.function == study and answer.prepare), None)


def check_options(study: Study, options: Mapping[str, Any], keys: Iterable[str] = ()) -> None:
    """Raise ValueError if the study does not take one of these options, or needs one that is absent.

    `keys` are the keys of the problem, one of which may have been meant.
    """
    function = find_study(study)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        need = f"what a problem or the study {name_of_study(study)} has, but hold `{unknown}`."
        refuse(f"Grid and options must hold {need}{suggestion(unknown, [*known, *keys], mark='`')}")
    for each in parameters:
        has_value = each.default is not each.empty or each.name not in known or each.name in options
        check_that(has_value, "options", f"hold `{each.name}` for the study {name_of_study(study)}", "does not")


def compile_study(study: Study, problem: Any, options: Mapping[str, Any]) -> str:
    """Take the first step of a study, so that its kernels are compiled; return why it refuses to, "" if it does not.

    Studies of other packages take no step. Errors in the step itself are told by the point later.
    """
    from dynamics.solve.integration import Run

    if study not in list(STUDIES.values()):
        return ""
    instant = SaveAt.at([_INSTANT])
    try:
        checked_schedule(options.get("save_at"), instant)
        if study in [answer.function for answer in answers_that("resume")]:
            unwatched = {name: value for name, value in options.items() if name not in ("trackers", "checkpoint")}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if answer := answer_of_many(study):
                    # The end of a run decides which method it takes.
                    unwatched["method"] = Run.of(answer, problem, unwatched).built().method.name
                find_study(study)(problem, **{**unwatched, "save_at": instant, "progress": False})
    except Exception as error:
        return str(error) if isinstance(error, (TypeError, ValueError, ImportError)) else ""
    return ""


SETTINGS = "sweep.json"
#: Ending of the files of points, and that of files that earlier versions wrote.
BLOCK, NETCDF = ".point", ".nc"
#: A worker begins no further point of a bundle after this many seconds. Small flows need less. Longer points, such as
#: many steps of gradient descent, are answered one at a time: few are lost with a worker, and none waits for another.
BUNDLE_SECONDS = 0.5
#: A block begins with these bytes, the length of its description, the description, and all numbers in its order.
MAGIC = b"feature-emergence points 2\n"
_LENGTH = 8
#: So many bytes of numbers are compressed.
COMPRESSED_BYTES = 2**23
#: Kinds of numbers.
NUMBERS = "biuf"


class SweepPoint(NamedTuple):
    """One point: its number in row-major order, its problem, and the options of the study."""

    number: int
    #: Of any kind; the study says which it takes.
    problem: Any
    options: dict[str, Any]


class PointAnswer(NamedTuple):
    """The file of a point or of consecutive points, the reason of a failure ("" without one), and the warnings."""

    content: bytes | None
    failure: str = ""
    warnings: tuple[str, ...] = ()
    #: How many points it answers.
    points: int = 1


def answer_points(study: Study, points: Sequence[SweepPoint]) -> list[PointAnswer]:
    """Return one answer for points that can share a file, otherwise one for each; this runs in a worker.

    Of points that take longer than `BUNDLE_SECONDS` only the first are answered.
    """
    until = time.monotonic() + BUNDLE_SECONDS
    found, warned = answered_together(study, points, until) if len(points) > 1 else ([], ())
    answers: list[PointAnswer] = []
    if found:
        try:
            answers.append(PointAnswer(packed_points(found), "", warned, len(found)))
        except Exception:  # the files of single points tell the error
            answers += [_packed(contents, warned) for contents in found]
    for point in points[len(found) :]:
        if answers and time.monotonic() > until:
            break
        answers.append(answer_point(study, point.problem, point.options))
    return answers


def answered_together(
    study: Study, points: Sequence[SweepPoint], until: float
) -> tuple[list[DatasetArrays], tuple[str, ...]]:
    """Return the contents of the first points, until one fails or is late, and their warnings; on one core.

    Predictions, which take long in a small flow, are made together.
    """
    found: list[DatasetArrays] = []
    answer = answer_of_many(study)
    if answer is None:
        return found, ()
    from dynamics.solve.integration import Run

    with one_core(), _recorded_warnings() as caught, suppress(Exception):  # a point that is asked alone tells the error
        prepared = resolve_name(answer.prepare)([point.problem for point in points])
        for point, known in zip(points, prepared, strict=True):
            if found and time.monotonic() > until:
                break
            found.append(Run.of(answer, point.problem, {"progress": False, **point.options}, known).contents())
    return found, tuple(dict.fromkeys(caught))


def answer_point(study: Study, problem: Question, options: Mapping[str, Any]) -> PointAnswer:
    """Answer one point on one core; an exception becomes the reason of a failure, and its dataset is kept."""
    found: Any = None
    failure = ""
    with one_core(), _recorded_warnings() as caught:
        try:
            found = _answer(study, problem, options)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            found = getattr(error, "dataset", None)
        answer = PointAnswer(None) if found is None else _packed(found)
    return answer._replace(failure=failure or answer.failure, warnings=tuple(dict.fromkeys(caught)))


def _packed(found: DatasetArrays | xr.Dataset, warned: tuple[str, ...] = ()) -> PointAnswer:
    try:
        return PointAnswer(
            packed_points([found if isinstance(found, DatasetArrays) else plain_contents(found)]), "", warned
        )
    except Exception as error:
        return PointAnswer(None, f"{type(error).__name__}: {error}", warned)


def _answer(study: Study, problem: Question, options: Mapping[str, Any]) -> DatasetArrays | xr.Dataset:
    """Return the answer to one point, as a dataset only where the study makes one."""
    answer = answer_of_many(study)
    if answer is not None:
        from dynamics.solve.integration import Run

        return Run.of(answer, problem, {"progress": False, **options}).contents()
    import xarray as xr

    function = find_study(study)
    silent = {"progress": False} if "progress" in inspect.signature(function).parameters else {}
    dataset: object = function(problem, **(silent | dict(options)))
    if not isinstance(dataset, xr.Dataset):
        refuse(f"A study must return a Dataset, but returned {type(dataset).__name__}.", TypeError)
    return dataset


@contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """Yield a list that holds the warnings of the body after it; outside the main thread they are shown as usual."""
    messages: list[str] = []
    if threading.current_thread() is not threading.main_thread():  # recording replaces filters of the whole process
        yield messages
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
        messages += [str(entry.message) for entry in caught]


class PointDirectory:
    """The directory of a running sweep: files of its points, and a description of the sweep.

    `<number>.point` is what was computed, and `<number>.failed` says why it is not all that was asked. A point is done
    when it has the first alone, so that failed points are tried again. The file of points that were answered together
    is `<first>-<last>.point`.

    The directory is made if it does not exist. `digest` tells what the answers depend on, and `settings` tells it to a
    reader. StorageError is raised if the directory cannot be written, is in use by another process, or is that of
    another sweep, which `overwrite` empties instead.
    """

    def __init__(self, path: Path, digest: str, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        self.path = path
        try:
            self._open(digest, settings, overwrite=overwrite)
        except StorageError:
            raise
        except OSError as error:
            refuse(f"Directory {str(path)!r} could not be written: {error}.", StorageError)

    def _open(self, digest: str, settings: Mapping[str, Any], *, overwrite: bool) -> None:
        """Make and lock the directory, and drop the files of points that are to be asked again."""
        description = self.path / SETTINGS
        self.path.mkdir(exist_ok=True)
        need = f"Directory {str(self.path)!r} must hold the points of a sweep or be absent, but holds other files."
        require(description.exists() or not any(self.path.iterdir()), need, StorageError)
        self._lock = description.open("a+", encoding="utf-8")
        _lock_file(self._lock, self.path)
        stored = description.read_text(encoding="utf-8")
        if stored and digest_of(self.path) != digest:
            if not overwrite:
                self._lock.close()
                but = "holds those of another one (allow it to be emptied with overwrite)"
                refuse(f"Directory {str(self.path)!r} must hold points of this sweep, but {but}.", StorageError)
            for file in self.files().values():
                file.unlink()
            stored = ""
        if not stored:
            self._lock.truncate(0)
            self._lock.write(json.dumps({"digest": digest, **settings}, indent=1) + "\n")
            self._lock.flush()
        for failed in self.path.glob("*.failed"):
            for suffix in (BLOCK, NETCDF):
                failed.with_suffix(suffix).unlink(missing_ok=True)
            failed.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the directory."""
        self._lock.close()

    def files(self) -> dict[range, Path]:
        """Return where the answers of points are, in the order of their numbers."""
        return answered_points(self.path)

    def done(self) -> set[int]:
        """Return the points that need not be asked again."""
        return {index for bundle in self.files() for index in bundle} - self.failures().keys()

    def failures(self) -> dict[int, str]:
        """Return why points failed."""
        return {int(path.stem): path.read_text(encoding="utf-8") for path in self.path.glob("[0-9]*.failed")}

    def keep(self, bundle: range, answer: PointAnswer) -> None:
        """Write down what came of points; the reason of a failure first, so that its file never passes for done."""
        path = self.path / "-".join(f"{index:06d}" for index in sorted({bundle[0], bundle[-1]}))
        if answer.failure:
            _write(path.with_suffix(".failed"), answer.failure.encode())
        if answer.content is not None:
            _write(path.with_suffix(BLOCK), answer.content)

    def remove(self) -> None:
        """Delete the directory, its description last: a removal that was cut short leaves it alone."""
        for file in self.path.iterdir():
            if file.name != SETTINGS and not file.is_dir():
                file.unlink()
        shutil.rmtree(self.path)


def answered_points(path: Path) -> dict[range, Path]:
    """Return which points the files of a directory answer, in the order of their numbers."""
    found = {}
    for file in path.glob("[0-9]*"):
        if file.suffix in (BLOCK, NETCDF):
            first, _, last = file.stem.partition("-")
            found[range(int(first), int(last or first) + 1)] = file
    return dict(sorted(found.items(), key=lambda each: each[0].start))


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_suffix(f"{path.suffix}.partial")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        refuse(f"File {str(path)!r} could not be written: {error}.", StorageError)


def digest_of(path: Path) -> str | None:
    """Return the digest in the description of the sweep whose points are in a directory, None if it has none."""
    try:
        found: str | None = json.loads((path / SETTINGS).read_text(encoding="utf-8")).get("digest")
    except (OSError, ValueError, AttributeError):
        return None
    return found


def _lock_file(handle: Any, path: Path) -> None:
    """Hold the directory until the handle is closed or the process ends, however it ends."""
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        refuse(f"Directory {str(path)!r} must not be in use by another process, but is.", StorageError)
    except OSError:  # a file system without locks
        return


class PointsVariable(NamedTuple):
    """A variable of some points: dims and attributes of one of them, and values with the points in front."""

    dims: tuple[str, ...]
    attributes: dict[str, Any]
    #: Numbers, or objects that are text.
    values: NDArray[Any]


class Points(NamedTuple):
    """The points in a file."""

    sizes: dict[str, int]
    variables: dict[str, PointsVariable]
    #: Coordinates that are not those of a dim.
    auxiliary: frozenset[str]
    #: Name -> one value per point, None where it has none.
    attributes: dict[str, list[Any]]


def plain_contents(dataset: xr.Dataset) -> DatasetArrays:
    """Return a dataset as numbers and text; with anything else in it, such as dates, as netCDF holds it."""
    # Text and numbers of any size can be told per point; netCDF has integers of 64 bits.
    huge = {k: float(v) for k, v in dataset.attrs.items() if isinstance(v, int) and np.asarray(v).dtype == object}
    dataset = dataset.assign_attrs(huge)
    check_attributes(dataset)
    others = (v.to_numpy() for v in dataset.variables.values() if v.dtype.kind not in NUMBERS)
    if all(isinstance(each, str) for array in others for each in array.flat):
        return _contents_of(dataset)
    with tempfile.TemporaryDirectory(prefix="sweep-point-") as folder:
        return _of_netcdf(save(dataset, Path(folder) / "point.nc"))


def _of_netcdf(path: Path) -> DatasetArrays:
    import xarray as xr

    with xr.open_dataset(path, engine="netcdf4", decode_times=False, mask_and_scale=False) as stored:
        return _contents_of(stored)


def _contents_of(dataset: xr.Dataset) -> DatasetArrays:
    held: dict[str, Labelled] = {
        str(name): (tuple(map(str, v.dims)), v.to_numpy(), v.attrs) for name, v in dataset.variables.items()
    }
    coords = {name: held.pop(name) for name in map(str, dataset.coords)}
    return DatasetArrays(held, coords, {str(name): value for name, value in dataset.attrs.items()})


def packed_points(points: Sequence[DatasetArrays]) -> bytes:
    """Return points of numbers and text as the bytes of one file; TypeError unless they have the same variables."""
    arrays = [{**point.variables, **point.coords} for point in points]
    described = _described(arrays[0])
    are_alike = all(_described(other) == described for other in arrays[1:])
    require(are_alike, "Points in one file must have the same variables, but have not.", TypeError)
    sizes = {dim: n for dims, array, _ in arrays[0].values() for dim, n in zip(dims, array.shape, strict=True)}
    names = dict.fromkeys(name for point in points for name in point.attributes)
    said = {
        "points": len(points),
        "sizes": sizes,
        "auxiliary": [name for name in points[0].coords if name not in sizes],
        "attributes": {name: [_plain(point.attributes.get(name)) for point in points] for name in names},
        "variables": described,
    }
    numbers = b"".join(
        np.stack([other[name][1] for other in arrays]).tobytes() for name, entry in described.items() if "kind" in entry
    )
    if len(numbers) >= COMPRESSED_BYTES:
        said["compressed"], numbers = True, zlib.compress(numbers, level=1)
    header = json.dumps(said).encode()
    return b"".join([MAGIC, len(header).to_bytes(_LENGTH, "little"), header, numbers])


def _described(arrays: Mapping[str, Labelled]) -> dict[str, Any]:
    """Return all of some variables but their numbers, ready for JSON."""
    variables: dict[str, Any] = {}
    for name, (dims, array, labels) in arrays.items():
        is_number = array.dtype.kind in NUMBERS
        held = {"kind": array.dtype.str} if is_number else {"text": array.ravel().tolist()}
        attributes = {str(key): _plain(value) for key, value in labels.items()}
        variables[name] = {"dims": dims, "shape": array.shape, **held, "attributes": attributes}
    return variables


def _plain(value: Any) -> Any:
    """Return an attribute as netCDF gives it back, ready for JSON; a list of one value is that value."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    values = np.asarray(value)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return values.item() if values.size == 1 else values.tolist()


def read_points(path: Path) -> Points:
    """Return the points in a file."""
    content = packed_points([_of_netcdf(path)]) if path.suffix == NETCDF else path.read_bytes()
    first = len(MAGIC) + _LENGTH
    end = first + int.from_bytes(content[len(MAGIC) : first], "little")
    said = json.loads(content[first:end])
    if said.get("compressed"):
        content, end = zlib.decompress(memoryview(content)[end:]), 0
    count, variables = said["points"], {}
    for name, described in said["variables"].items():
        shape = (count, *described["shape"])
        if "text" in described:
            values = np.array(described["text"] * count, dtype=object)
        else:
            values = np.frombuffer(content, described["kind"], int(np.prod(shape, dtype=np.int64)), end)
            end += values.nbytes
        variables[name] = PointsVariable(tuple(described["dims"]), described["attributes"], values.reshape(shape))
    return Points(said["sizes"], variables, frozenset(said["auxiliary"]), said["attributes"])
