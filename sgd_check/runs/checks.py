"""What the arguments of `simulate` must be, one sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynamics.problem import (
    Problem,
    check_fields,
    check_memory,
    checked_integer,
    checked_integers,
    checked_number,
    checked_seeds,
    is_correlation,
)
from dynamics.theory import check_quadratic
from sgd_check.engines import ENGINES, EngineOptions, engine_of
from sgd_check.runs.observables import keeps_vectors

if TYPE_CHECKING:
    from sgd_check.engines.registry import Declaration

RECORD_LIMIT = 16 * 2**30


def checked_engine(problem: object, engine: str) -> str:
    """Return the name of an engine, with "auto" replaced by what it stands for; refuse what it does not simulate.

    That is anything but a problem, a student or a field of the problem that the engine does not know.
    """
    if not isinstance(problem, Problem):
        msg = f"Argument `problem` must be a Problem, but is {type(problem).__name__}."
        raise TypeError(msg)
    name = engine_of(problem) if isinstance(engine, str) and engine == "auto" else engine
    declared = ENGINES.get(name) if isinstance(name, str) else None
    if declared is not None:
        _check_declared(problem, name, declared)
    if problem.kind not in (declared.students if declared else ("homogeneous",)):
        names = [repr(name) for name, other in ENGINES.items() if other.takes(problem)]
        which = f"engine {names[0]} simulates" if len(names) == 1 else f"engines {' and '.join(names)} simulate"
        msg = (
            f"Argument `problem` must have the homogeneous student for engine {engine!r}, but has the "
            f"{problem.kind} student, which {which}."
        )
        raise ValueError(msg)
    return name


def _check_declared(problem: Problem, name: str, declared: Declaration) -> None:
    """Refuse a problem with a field, or another objective, that an engine does not know."""
    check_fields(problem, declared.fields, f"for engine {name!r}")
    if problem.objective != declared.objective:
        msg = (
            f"Argument `problem` must have `objective` {declared.objective!r} for engine {name!r}, "
            f"but has {problem.objective!r}."
        )
        raise ValueError(msg)


def checked_options(
    problem: Problem,
    *,
    seeds: object,
    batch_size: int,
    device: str,
    dtype: str,
    starts: Sequence[int] | None = None,
    training_samples: int | None = None,
) -> EngineOptions:
    """Return what an engine needs beyond the problem; names of devices and precisions are the engine's to check."""
    chosen = checked_seeds(seeds)
    samples = checked_integer(batch_size, "batch_size", minimum=1)
    if problem.kind == "stiefel":
        check_quadratic(problem)
        if samples != 1:
            msg = f"Argument `batch_size` must be 1 for the stiefel student, but is {samples}."
            raise ValueError(msg)
    check_memory("batch_size", samples, samples * (problem.width + problem.teacher.span))
    return EngineOptions(
        seeds=chosen,
        batch_size=samples,
        device=device,
        dtype=dtype,
        starts=checked_starts(starts, problem, len(chosen)),
        training_samples=checked_training_samples(training_samples, problem, samples),
    )


def checked_budget(max_runtime: object) -> float:
    """Return the seconds of a budget, infinite if there is none."""
    return float("inf") if max_runtime is None else checked_number(max_runtime, "max_runtime", positive=True)


def checked_starts(starts: Sequence[int] | None, problem: Problem, runs: int) -> tuple[int, ...] | None:
    """Return the seeds of the starts, one per run, or None if all runs start from the problem's own."""
    if starts is None:
        return None
    _check_kind("starts", problem, ("spherical",))
    if not problem.start_is_random:
        msg = "Argument `starts` must be None for a problem with a given start, but is not."
        raise ValueError(msg)
    chosen = checked_integers(starts, "starts", "a sequence of integers")
    if len(chosen) != runs:
        msg = f"Argument `starts` must have one entry for each of the {runs} runs, but has {len(chosen)}."
        raise ValueError(msg)
    return chosen


def checked_training_samples(training_samples: object, problem: Problem, batch_size: int) -> int | None:
    """Return the number of samples that a run reuses, or None if every step has fresh ones."""
    if training_samples is None:
        return None
    _check_kind("training_samples", problem, ("spherical", "committee"))
    if is_correlation(problem):
        msg = "Argument `training_samples` must be None for the objective 'correlation', but is not."
        raise ValueError(msg)
    count = checked_integer(training_samples, "training_samples", minimum=1)
    if count % batch_size:
        msg = f"Argument `training_samples` must be a multiple of `batch_size`, {batch_size}, but is {count}."
        raise ValueError(msg)
    return count


def check_records(problem: Problem, runs: int, records: int) -> None:
    """Refuse runs whose records do not fit into memory."""
    beside = problem.dimension if keeps_vectors(problem) else problem.width
    need = 8 * runs * records * problem.width * (problem.num_directions + beside + 1)
    if need > RECORD_LIMIT:
        msg = (
            f"Argument `save_at` must have records that fit in {RECORD_LIMIT / 2**30:.0f} GiB, but {records} times of "
            f"{runs} runs need {need / 2**30:.1f} GiB."
        )
        raise ValueError(msg)


def _check_kind(name: str, problem: Problem, kinds: tuple[str, ...]) -> None:
    if problem.kind not in kinds:
        msg = f"Argument `{name}` must be None for the {problem.kind} student, but is not."
        raise ValueError(msg)
