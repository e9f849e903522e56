"""A sweep from a TOML file: tables [problem], [grid], [study] and [output] to the arguments of `dynamics.sweep`.

A file asks for studies by registered names alone: to import what a file names would run code that came with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import fields
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np

from dynamics.commands.options import MOST_TIMES, OPTIONS, natural_number, neurons, positive_integer
from dynamics.commands.parsing import UsageError, read_toml, require_usage
from dynamics.problem import Problem
from dynamics.problem.checks import JsonObject, require
from dynamics.problem.inputs import Inputs
from dynamics.problem.question import KINDS, OF_TOKENS, Question
from dynamics.problem.saved_times import SaveAt
from dynamics.problem.student import Student
from dynamics.problem.teacher import Teacher
from dynamics.sweeps.grid import MOST_POINTS
from dynamics.sweeps.points import registered_path
from hermite.arrays import Array
from hermite.text.messages import refuse, shown, suggestion

TABLES = ("problem", "grid", "study", "output")
#: Fields of a problem that are plain values in a file.
PLAIN_KEYS = ("activation", "width", "dimension", "initial_norm", "seed", "label_noise", "student",
              "teacher_activation", "order", "emergence_level")  # fmt: skip
#: Text for None in a problem on tokens, as on the command line: TOML has no such value.
NOTHING = "-"
PROBLEM_KEYS = (*PLAIN_KEYS, "k", "coefficients", "beta", "num_directions", "alpha")
#: Symbols of the equations for some of them.
SYMBOLS = {"d": "dimension", "m": "width", "P": "num_directions"}
#: Keys of which a grid is rounded: the integers of the command line, and the settings of SGD.
INTEGER_KEYS = {option.key for option in OPTIONS if option.read in (natural_number, neurons, positive_integer)} | {
    "num_directions",
    "samples",
    "steps",
}
SPACINGS: dict[str, Callable[..., Array]] = {"geometric": np.geomspace, "linear": np.linspace}
SAVE_AT: dict[str, Callable[..., SaveAt]] = {
    "geometric": SaveAt.geometric,
    "linear": SaveAt.linear,
    "at": lambda *times: SaveAt.at(times),
}


class StudyFile(NamedTuple):
    """The arguments of `dynamics.sweep` in a study file, and the file of the result."""

    problem: Question
    #: Key -> list of values.
    grid: dict[str, list[object]]
    study: str
    options: dict[str, object]
    output: Path


def read_study_file(path: str, trusted: str | None = None) -> StudyFile:
    """Read and check a study file, except what only the study itself can check; raise UsageError with one sentence.

    `trusted` is a study that the user has named; the file may ask for it though its name is not registered.
    """
    tables = _tables(path)
    problem, asked_kind = tables["problem"], _kind(tables["problem"])
    study = {"name": trusted or ("tokens" if asked_kind else "overlaps"), **tables["study"]}
    integers = INTEGER_KEYS
    if asked_kind is not None:
        integers = {field.name for field in fields(asked_kind) if str(field.type).startswith("int")}
    grid = {
        key: [_option(key, entry) for entry in _values(key, value, integers)] for key, value in tables["grid"].items()
    }
    if asked_kind is not None:
        problem, grid = _with_none(problem), _with_none(grid)
    require_usage(grid, "Table [grid] must have at least one key, but has none.")
    for key in grid:
        require_usage(key not in problem, f"Key `{key}` must be in [problem] or in [grid], but is in both.")
    _check_name(study["name"], trusted)
    options = {key: _option(key, value) for key, value in study.items() if key != "name"}
    output = {"path": f"{Path(path).stem}.nc", **tables["output"]}
    _refuse_others("output", output, ("path",))
    require_usage(
        isinstance(output["path"], str), f"Key `path` of [output] must be text, but is {shown(output['path'])}."
    )
    question = _problem(problem, grid) if asked_kind is None else _token_problem(asked_kind, problem, grid)
    return StudyFile(question, grid, study["name"], options, Path(output["path"]))


def _kind(table: JsonObject) -> Any:
    """Return the class of the problems of the kind that a table names, None for Gaussian inputs, which name none."""
    kind = table.get("kind")
    require_usage(
        kind is None or kind in OF_TOKENS,
        f"Key `kind` of [problem] must be one of {', '.join(map(repr, OF_TOKENS))}, or absent, but is {shown(kind)}."
        f"{suggestion(kind, OF_TOKENS)}",
    )
    return None if kind is None else resolve_name(KINDS[kind])


def _with_none(value: object) -> Any:
    """Return a value with every `NOTHING` in it replaced by None."""
    if isinstance(value, dict):
        return {key: _with_none(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_none(entry) for entry in value]
    return None if isinstance(value, str) and value == NOTHING else value


def _token_problem(kind: Any, table: dict[str, object], grid: dict[str, list[object]]) -> Question:
    """Return the problem that the points have in common, which is that of the first valid point."""
    names, refused = [field.name for field in fields(kind)], ""
    _refuse_others("problem", table, ("kind", *names))
    of_grid = [key for key in grid if key in names]
    for values in product(*(grid[key] for key in of_grid)):
        values_of_point = table | dict(zip(of_grid, values, strict=True))
        try:
            question: Question = kind(**{key: value for key, value in values_of_point.items() if key != "kind"})
            return question
        except (TypeError, ValueError) as error:
            refused = str(error)
    return refuse(f"Table [problem] must describe a problem, but does not: {refused}", error=UsageError)


def _check_name(name: object, trusted: str | None) -> None:
    """Refuse a name that is not registered and that the user has not trusted."""
    if not isinstance(name, str):
        refuse(f"Key `name` of [study] must be text, but is {shown(name)}.", error=UsageError)
    require_usage(
        trusted is None or name == trusted,
        f"Option --study must be the `name` of [study], {shown(name)}, but is {shown(trusted)}.",
    )
    require_usage(
        trusted is not None or ":" not in name or registered_path(name) is not None,
        f"Key `name` of [study] must be the name of a registered study, but is {shown(name)}: code that this command "
        f"imports only where it is named by --study {shown(name)} too.",
    )


def _tables(path: str) -> dict[str, JsonObject]:
    """Return the tables of a study file by name, {} for missing ones.

    Raise UsageError for entries that are no known table.
    """
    stored = read_toml(path, "Argument FILE")
    for name, table in stored.items():
        if name in TABLES and not isinstance(table, dict):
            refuse(f"File {path!r} must hold {name!r} as the table [{name}], but has {shown(table)}.", error=UsageError)
        if name not in TABLES:
            refuse(
                f"File {path!r} must hold the tables {', '.join(f'[{table_name}]' for table_name in TABLES)}, but has "
                f"{name!r}.{suggestion(name, TABLES)}",
                error=UsageError,
            )
    return {name: stored.get(name, {}) for name in TABLES}


def _refuse_others(table: str, entries: dict[str, object], allowed: tuple[str, ...]) -> None:
    """Raise UsageError if the entries of a table have a key that is not allowed."""
    menu = f"one of {', '.join(allowed)}" if len(allowed) > 1 else f"`{allowed[0]}`"
    for key in entries:
        if key not in allowed:
            refuse(f"Key `{key}` of [{table}] must be {menu}, but is not.{suggestion(key, allowed)}", error=UsageError)


def _problem(table: dict[str, object], grid: dict[str, list[Any]]) -> Problem:
    """Return the problem that the points have in common; keys of the grid alone have the values of its first point."""
    _refuse_others("problem", table, PROBLEM_KEYS)
    entries = {key: values[0] for key, values in grid.items() if key in PROBLEM_KEYS} | table
    for key, needless in (("coefficients", "beta"), ("coefficients", "num_directions"), ("k", "activation")):
        require_usage(
            key not in entries or needless not in entries,
            f"Key `{needless}` must be absent when `{key}` is given, but is {entries.get(needless)!r}.",
        )
    fields = {key: value for key, value in entries.items() if key in PLAIN_KEYS}
    if "k" in entries:
        fields["activation"] = f"he{entries['k']}"
    for key, key_text in (("activation", "`k` or `activation`"), ("width", "`width`"), ("dimension", "`dimension`")):
        if key not in fields:
            unknown = [name for name in grid if name not in PROBLEM_KEYS]
            misspelt = [name for name in unknown if SYMBOLS.get(name) == key or suggestion(name, [key])]
            hint = f" Did you mean it by {misspelt[0]!r}?" if misspelt else ""
            refuse(f"Table [problem] or [grid] must have {key_text}, but neither does.{hint}", error=UsageError)
    try:
        if isinstance(student := fields.get("student"), dict):
            shared = {name: fields.pop(name) for name in ("activation", "width", "order") if name in fields}
            fields["student"] = Student(**shared, **student)
        inputs = Inputs.power_law(entries["alpha"]) if "alpha" in entries else None
        return Problem(teacher=_teacher(entries), inputs=inputs, **fields)
    except (TypeError, ValueError) as error:
        refuse(f"Table [problem] must describe a problem, but does not: {error}", error=UsageError)


def _teacher(entries: JsonObject) -> Teacher:
    """Return the teacher that entries of a study file describe, by coefficients or by a power law."""
    if "coefficients" in entries:
        return Teacher(entries["coefficients"])
    require("num_directions" in entries, "`coefficients` or `num_directions` must be given, but neither is.")
    beta = entries.get("beta", 1.0)
    require(
        not isinstance(beta, bool) and isinstance(beta, (int, float)),
        f"`beta` must be a number, but is {shown(beta)}.",
        error=TypeError,
    )
    return Teacher.power_law(entries["num_directions"], beta)


def _values(key: str, value: object, integers: Collection[str]) -> list[object]:
    """Return the values of a key of the grid: a list, or a table {range = […]}, {geometric = […]}, {linear = […]}."""
    if isinstance(value, list) and value:
        return value
    kind, numbers = _only_entry(value)
    with suppress(KeyError, IndexError, TypeError, ValueError, OverflowError):
        count = len(range(*numbers)) if kind == "range" else int(numbers[2])
        if 1 <= count <= MOST_POINTS:
            values = np.arange(*numbers) if kind == "range" else SPACINGS[kind](*numbers)
            if key in integers:
                return list(dict.fromkeys(values.round().astype(int).tolist()))
            return list(values.tolist())
    return refuse(
        f"Key `{key}` of [grid] must be a list of values, {{range = [first, end]}}, {{geometric = [first, last, "
        f"count]}} or {{linear = [first, last, count]}}, of at most {MOST_POINTS} values, but is {shown(value)}."
        f"{_hint(kind, ('range', *SPACINGS))}",
        error=UsageError,
    )


def _option(key: str, value: object) -> object:
    """Return an option as the study takes it: `save_at` is {geometric = […]}, {linear = […]} or {at = […]}."""
    if key != "save_at":
        return value
    kind, numbers = _only_entry(value)
    if kind in SAVE_AT and isinstance(numbers, list):
        count = numbers[2] if kind != "at" and len(numbers) == 3 else 0
        require_usage(
            not isinstance(count, int | float) or count <= MOST_TIMES,
            f"Key `save_at` must have at most {MOST_TIMES} times, but has {shown(count)}.",
        )
        try:
            return SAVE_AT[kind](*numbers)
        except (TypeError, ValueError) as error:
            refuse(f"Key `save_at` must be a schedule, but is none: {error}", error=UsageError)
    return refuse(
        "Key `save_at` must be {geometric = [first, last, count]}, {linear = [first, last, count]} or {at = [times]}, "
        f"but is {shown(value)}.{_hint(kind, SAVE_AT)}",
        error=UsageError,
    )


def _only_entry(value: object) -> tuple[str, Any]:
    """Return the key and the value of a table with one key, ("", None) for any other value."""
    return next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)


def _hint(kind: str, kinds: Collection[str]) -> str:
    """Return a question that suggests the nearest kind to a misspelt one, "" if none is near."""
    return "" if kind in kinds else suggestion(kind, kinds)
