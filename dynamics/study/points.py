"""Answers to points of a sweep as the bytes of files, and the directory where such files wait to be merged.

An answer travels as the file that it becomes, so that workers need no file system in common with the process
that keeps the files, and that process writes without looking inside. A file is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dynamics.runs.storage import StorageError
from dynamics.study.point_file import is_block, packed_point, packed_together
from dynamics.study.studies import answer_of_many, contents_of_answer, find_study, takes_option
from dynamics.threads.cores import one_core

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import xarray as xr

    from dynamics.problem.question import Question
    from dynamics.runs.dataset import Contents
    from dynamics.study.grid import SweepPoint
    from dynamics.study.studies import Study

SETTINGS = "sweep.json"
#: Of the file of a point: netCDF, or a block.
SUFFIXES = (".nc", ".point")
#: Seconds after which a worker begins none of the points that it was given together: more than small flows need. What
#: takes longer, such as many steps of gradient descent, is neither lost together nor waited for by idle workers.
PATIENCE = 0.5


class PointAnswer(NamedTuple):
    """What came of a point or of some consecutive ones: a file, why it failed ("" if it did not), what it warned of."""

    content: bytes | None
    failure: str = ""
    warnings: tuple[str, ...] = ()
    #: How many points it answers.
    points: int = 1


def answer_points(study: Study, points: Sequence[SweepPoint]) -> list[PointAnswer]:
    """Return one answer for points that can share a file, otherwise one for each; this runs in a worker.

    Of points that take longer than `PATIENCE` only the first are answered.
    """
    until = time.monotonic() + PATIENCE
    together, warned = answered_together(study, points, until) if len(points) > 1 else ([None], ())
    found = [contents for contents in together if contents is not None]
    if len(found) == len(together):
        with suppress(Exception):  # alone each has its own
            content = packed_together(found)
            if content is not None:
                return [PointAnswer(content, "", warned, len(found))]
    answers: list[PointAnswer] = []
    for point, contents in zip(points, together, strict=False):
        if contents is not None:
            answers.append(_packed_alone(contents, warned))
        elif not answers or time.monotonic() <= until:
            answers.append(answer_point(study, point.problem, point.options))
        else:
            break
    return answers


def answered_together(
    study: Study, points: Sequence[SweepPoint], until: float
) -> tuple[list[Contents | None], tuple[str, ...]]:
    """Return what the datasets of points hold, None for those to be asked alone, and what they warned of; on one core.

    These are the first of the points, none but the first begun after `until`.
    What takes longest for a small flow besides its steps are its dataset, which none of them makes, and its prediction,
    which is made for all at once.
    """
    answer = answer_of_many(study)
    if answer is None:
        return [None] * len(points), ()
    from dynamics.solve.ensemble import contents_together

    build, prepare = resolve_name(answer.build), resolve_name(answer.prepare)
    found: list[Contents | None] = [None] * len(points)
    with one_core(), _recorded_warnings() as caught, suppress(Exception):  # asked again alone, a point says what failed
        prepared = prepare([point.problem for point in points])
        usual = answer.defaults() | {"progress": False}
        calls = [
            {**usual, "problem": point.problem, **point.options, **known}
            for point, known in zip(points, prepared, strict=True)
        ]
        found = contents_together(answer, build, calls, until)
    return found, tuple(dict.fromkeys(caught))


def _packed_alone(contents: Contents, warned: tuple[str, ...]) -> PointAnswer:
    """Return the file of a point that was answered with others but cannot share theirs."""
    try:
        content = packed_point(contents)
    except Exception as error:
        return PointAnswer(None, f"{type(error).__name__}: {error}", warned)
    return PointAnswer(content, "", warned)


def answer_point(study: Study, problem: Question, options: Mapping[str, Any]) -> PointAnswer:
    """Answer one point on one core.

    Its own progress bar is left out. An exception becomes the reason of a failure, beside what the exception says was
    computed before.
    """
    found: Any = None
    failure = ""
    with one_core(), _recorded_warnings() as caught:
        try:
            found = _answer(study, problem, options)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            found = getattr(error, "dataset", None)
        content = None
        if found is not None:
            try:
                content = packed_point(found)
            except Exception as error:
                failure = failure or f"{type(error).__name__}: {error}"
    return PointAnswer(content, failure, tuple(dict.fromkeys(caught)))


def _answer(study: Study, problem: Question, options: Mapping[str, Any]) -> Contents | xr.Dataset:
    """Return the answer to one point, as a dataset only where the study makes one."""
    answer = answer_of_many(study)
    if answer is not None:
        return contents_of_answer(answer, problem, {"progress": False, **options})
    import xarray as xr

    silent = {"progress": False} if takes_option(study, "progress") else {}
    dataset: object = find_study(study)(problem, **(silent | dict(options)))
    if not isinstance(dataset, xr.Dataset):
        msg = f"A study must return a Dataset, but returned {type(dataset).__name__}."
        raise TypeError(msg)
    return dataset


@contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """Yield a list that holds the warnings of the body after it; outside the main thread they are shown as usual.

    Recording them replaces filters of the whole process, which other threads may be using.
    """
    messages: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield messages
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
        messages += [str(entry.message) for entry in caught]


class PointDirectory:
    """The directory of a running sweep: files of its points, and a description of the sweep.

    `<number>.point`, a block, or `<number>.nc` is what was computed, and `<number>.failed` says why it is not all
    that was asked. A point is done when it has the first alone, so that failed points are tried again. The block of
    points that were answered together is `<first>-<last>.point`.

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
            msg = f"Directory {str(path)!r} could not be written: {error}."
            raise StorageError(msg) from error

    def _open(self, digest: str, settings: Mapping[str, Any], *, overwrite: bool) -> None:
        """Make and lock the directory, and drop what is to be asked again."""
        description = self.path / SETTINGS
        self.path.mkdir(exist_ok=True)
        if not description.exists() and any(self.path.iterdir()):
            msg = f"Directory {str(self.path)!r} must hold the points of a sweep or be absent, but holds other files."
            raise StorageError(msg)
        self._lock = description.open("a+", encoding="utf-8")
        _lock_file(self._lock, self.path)
        stored = description.read_text(encoding="utf-8")
        if stored and _digest_in(stored) != digest:
            if not overwrite:
                self._lock.close()
                msg = (
                    f"Directory {str(self.path)!r} must hold points of this sweep, but holds those of another one "
                    "(allow it to be emptied with overwrite)."
                )
                raise StorageError(msg)
            for file in self.files().values():
                file.unlink()
            stored = ""
        if not stored:
            self._lock.truncate(0)
            self._lock.write(json.dumps({"digest": digest, **settings}, indent=1) + "\n")
            self._lock.flush()
        for failed in self.path.glob("*.failed"):
            for suffix in SUFFIXES:
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
            _write(path.with_suffix(SUFFIXES[is_block(answer.content)]), answer.content)

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path)


def answered_points(path: Path) -> dict[range, Path]:
    """Return which points the files of a directory answer, in the order of their numbers."""
    found = {}
    for suffix in SUFFIXES:
        for file in path.glob(f"[0-9]*{suffix}"):
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
        msg = f"File {str(path)!r} could not be written: {error}."
        raise StorageError(msg) from error


def _digest_in(stored: str) -> str | None:
    """Return the digest in the description of a sweep, None where there is none."""
    try:
        found: str | None = json.loads(stored).get("digest")
    except (ValueError, AttributeError):
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
        msg = f"Directory {str(path)!r} must not be in use by another process, but is."
        raise StorageError(msg) from None
    except OSError:  # a file system without locks
        return
