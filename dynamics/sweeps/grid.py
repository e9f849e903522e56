"""The points of a sweep: axes with names and labels, and the problem and options of every point."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import Inputs, Problem
from dynamics.problem.checks import checked_integer, require
from dynamics.problem.question import Question, check_question
from dynamics.problem.saved_times import SaveAt
from dynamics.problem.student import Student
from dynamics.problem.teacher import Teacher
from dynamics.runs.storable import check_name
from dynamics.signals import stop_if_heard
from dynamics.sweeps.points import MAGIC, Study, SweepPoint, check_options, name_of_study, study_path
from hermite import expand
from hermite.arrays import Matrix, as_scalar
from hermite.text.messages import refuse, shown
from hermite.version import __version__

#: Largest number of points of a sweep.
MOST_POINTS = 10**6
#: Keys that are no fields of a problem with Gaussian inputs, each with the field that it sets.
DERIVED_KEYS = {"k": "activation", "beta": "teacher", "num_directions": "teacher", "alpha": "inputs"}


@dataclass(frozen=True)
class Axis:
    """One key of the grid: its values, arguments of the problem or the study, and their labels in a dataset."""

    name: str
    values: tuple[object, ...]
    labels: NDArray[np.generic]


class Surveyed(NamedTuple):
    """Common properties of all points of a grid."""

    #: Number of overlaps and dimension of every point, (points, 2), 0 where inputs are not Gaussian; the largest points
    #: run first.
    sizes: Matrix
    #: The first and the last point of each link.
    ends: tuple[SweepPoint, ...]
    #: Hash of everything that the answers depend on.
    digest: str


@dataclass(frozen=True)
class Grid:
    """All combinations of the axes' values, in row-major order; the points share problem and options."""

    problem: Question
    axes: tuple[Axis, ...]
    #: Study, as `study_path` gives it.
    study: Study
    options: dict[str, object]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def position(self, index: int) -> tuple[int, ...]:
        """Return the position of a point on every axis."""
        return tuple(map(int, np.unravel_index(index, self.shape)))

    def describe(self, index: int) -> str:
        """Return the labels of a point as text, such as "beta=1.0, seed=0"."""
        at = self.position(index)
        return ", ".join(f"{axis.name}={axis.labels[i]}" for axis, i in zip(self.axes, at, strict=True))

    def point(self, index: int) -> SweepPoint:
        """Return one point; raise TypeError or ValueError that names the point if its values make no problem."""
        values = {axis.name: axis.values[i] for axis, i in zip(self.axes, self.position(index), strict=True)}
        changes = {name: values.pop(name) for name in self._keys & values.keys()}
        try:
            return SweepPoint(index, changed_problem(self.problem, changes), self.options | values)
        except (TypeError, ValueError) as error:
            refuse(f"Point {self.describe(index)} of the grid must be a problem, but is none: {error}", type(error))

    @cached_property
    def _keys(self) -> frozenset[str]:
        """The keys that change the problem; all other keys are options of the study."""
        return frozenset(keys_of(self.problem))

    def __iter__(self) -> Iterator[SweepPoint]:
        """Return all points one by one, each made when it is asked for."""
        return map(self.point, range(len(self)))

    @cached_property
    def surveyed(self) -> Surveyed:
        """The sizes, the ends and a digest of all points; each point is made once, and so checked.

        `sizes` (points, 2) are estimates of the work of a point and its dimension; `ends` holds the first and the last
        point of each link; `digest` is a text that changes with anything on which the answers depend.
        """
        shared = {name: _plain(value) for name, value in self.options.items()}
        common = f"{__version__} {name_of_study(self.study)} {MAGIC!r} {json.dumps(shared, sort_keys=True)}"
        digest = hashlib.sha256(common.encode())
        sizes = np.zeros((len(self), 2))  # floats, since products of large widths are no 64-bit integers
        ends: dict[bytes, list[SweepPoint]] = {}
        for point in self:
            stop_if_heard()
            problem, code = point.problem, point.problem.kind.encode()
            if isinstance(problem, Problem):
                sizes[point.number] = problem.width * (problem.width + problem.num_directions), problem.dimension
                code = problem.activation.coefficients.tobytes() + problem.teacher_link.coefficients.tobytes()
            ends[code] = [*ends.get(code, [])[:1], point]
            point_options = {
                axis.name: _plain(point.options[axis.name]) for axis in self.axes if axis.name not in self._keys
            }
            digest.update(json.dumps([problem.parameters(), point_options]).encode())
            for name, (_, array) in sorted(problem.arrays().items()):
                digest.update(name.encode() + array.tobytes())
        return Surveyed(sizes, tuple(point for pair in ends.values() for point in pair), digest.hexdigest()[:32])

    def thinned(self, most: int) -> Grid:
        """Return a grid with at most `most` of the points: evenly spaced values of each axis, with both ends."""
        count = max(self.shape)
        while math.prod(min(size, count) for size in self.shape) > most:
            count //= 2
        kept = [np.unique(np.linspace(0, size - 1, min(count, size)).round().astype(int)) for size in self.shape]
        axes = tuple(
            Axis(axis.name, tuple(axis.values[at] for at in places), axis.labels[places])
            for axis, places in zip(self.axes, kept, strict=True)
        )
        return replace(self, axes=axes)

    def settings(self) -> dict[str, object]:
        """Return study, axes and options, JSON-ready, for the attributes of a dataset."""
        return {
            "study": name_of_study(self.study),
            "axes": {axis.name: axis.labels.tolist() for axis in self.axes},
            "options": {name: _plain(value) for name, value in self.options.items()},
        }


def make_grid(
    problem: Question, grid: Mapping[str, Iterable[object]], study: Study, options: Mapping[str, object]
) -> Grid:
    """Return the grid of a sweep; refuse an unknown study and unsuitable keys and options; see `dynamics.sweep`."""
    study = study_path(study)
    check_question(problem)
    for name, argument in (("grid", grid), ("options", options)):
        require(
            isinstance(argument, Mapping) and all(isinstance(key, str) for key in argument),
            f"Argument `{name}` must be a dict with names as keys, but is {shown(argument)}.",
            error=TypeError,
        )
    require(grid, "Argument `grid` must have at least one key, but is empty.")
    for name in grid:
        check_name("grid keys", name)
        require(
            name != "failure",
            "Argument `grid` must have other keys than 'failure', which says why a point failed, but has it.",
        )
    axes = tuple(_axis(name, values) for name, values in grid.items())
    count = math.prod(len(axis.values) for axis in axes)
    require(count <= MOST_POINTS, f"Argument `grid` must have at most {MOST_POINTS} points, but has {count}.")
    setters: dict[str, list[str]] = {}
    for name in grid:
        setters.setdefault(DERIVED_KEYS.get(name, name), []).append(name)
    for setting, names in setters.items():
        both = " and ".join(f"`{name}`" for name in names)
        may_be = len(names) == 1 or set(names) == {"beta", "num_directions"}
        require(may_be, f"Grid keys {both} must not both be given: each sets `{setting}`.")
    keys = keys_of(problem)
    for name in options:
        require(name not in grid, f"Grid key `{name}` must be absent from the options, but is in both.")
        require(
            name not in keys,
            f"Argument `options` must hold options of the study, but holds `{name}` of the problem.",
        )
    of_study = {axis.name: axis.values[0] for axis in axes if axis.name not in keys}
    check_options(study, {**options, **of_study}, keys)
    return Grid(problem, axes, study, dict(options))


def keys_of(problem: Question) -> tuple[str, ...]:
    """Return the keys of a grid that change a problem; a label of `inputs`, which "alpha" sets, is no number."""
    names = tuple(f.name for f in fields(cast("Any", problem)))
    if isinstance(problem, Problem):
        return (*(name for name in names if name != "inputs"), *DERIVED_KEYS)
    return names


def changed_problem(problem: Question, changes: Mapping[str, Any]) -> object:
    """Return a problem with fields replaced; of one with Gaussian inputs also k, beta, num_directions or alpha.

    A new link comes with its own order of truncation unless `order` is changed too.
    """
    values = dict(changes)
    if not isinstance(problem, Problem):
        changed = getattr(problem, "changed", partial(replace, cast("Any", problem)))
        return changed(**values)
    if "k" in values:
        values["activation"] = f"he{checked_integer(values.pop('k'), 'k', minimum=1)}"
    if "beta" in values or "num_directions" in values:
        count = values.pop("num_directions", problem.num_directions)
        beta = values.pop("beta", problem.teacher.beta)
        require(
            beta is not None,
            "Grid key `num_directions` must come with `beta` unless the teacher is a power law, but does not.",
        )
        values["teacher"] = Teacher.power_law(count, beta)
    if "alpha" in values:
        values["inputs"] = Inputs.power_law(values.pop("alpha"))
    if "activation" in values:
        values.setdefault("order", None)
    if isinstance(problem.student, Student):
        student_values = {name: values.pop(name) for name in ("activation", "width", "order") if name in values}
        values.setdefault("student", replace(problem.student, **student_values))
    if isinstance(values.get("student"), Student):
        values |= {"activation": None, "width": None, "order": None}
    if problem.emergence_level == problem.teacher.emergence_level:
        values.setdefault("emergence_level", None)  # that of the new teacher
    return replace(problem, **values)


def _axis(name: str, values: Any) -> Axis:
    """Return the axis of a key of the grid.

    Raise TypeError or ValueError unless `values` is a list of distinct values.
    """
    is_list = hasattr(values, "__iter__") and not isinstance(values, (str, bytes))
    require(is_list, f"Grid key `{name}` must hold a list of values, but holds {shown(values)}.", error=TypeError)
    count = len(values) if isinstance(values, Sized) else 0
    require(count <= MOST_POINTS, f"Grid key `{name}` must hold at most {MOST_POINTS} values, but holds {count}.")
    axis_values = tuple(map(as_scalar, values))
    require(axis_values, f"Grid key `{name}` must hold at least one value, but holds none.")
    labels = _labels(name, axis_values)
    require(
        len(set(labels.tolist())) >= len(axis_values),
        f"Grid key `{name}` must hold distinct values, but holds {shown(list(axis_values))}.",
    )
    return Axis(name, axis_values, labels)


def _labels(name: str, values: tuple[object, ...]) -> NDArray[np.generic]:
    """Return the labels of values: numbers as they are, text, links by text or name, otherwise places in the list."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return np.array(values)
    if all(value is None or isinstance(value, (bool, str, int, float)) for value in values):
        return np.array([str(value) for value in values], dtype=object)
    if name in ("activation", "teacher_activation"):
        names = [link.text or link.name for link in map(expand, values)]
    else:
        names = [repr(value) for value in values]
    plain = len(set(names)) == len(values) and not any("\n" in text or " at 0x" in text for text in names)
    return np.array(names, dtype=object) if plain else np.arange(len(values))


def _plain(value: object) -> object:
    """Return an option as JSON-ready values, different for different options."""
    if isinstance(value, SaveAt):
        return {"times": value.times.tolist()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if callable(value):
        return name_of_study(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
