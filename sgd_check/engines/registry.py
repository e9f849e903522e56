"""The interface of engines, and the one table of them: a further engine is one module and one line here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hermite.text.messages import not_a_choice, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from dynamics.problem import Problem
    from hermite.arrays import Array


class Measurement(NamedTuple):
    """Overlaps of every run in float64: C (seed, neuron, direction), G (seed, neuron, neuron_2), n (seed, neuron).

    Of the spherical student the neurons w (seed, neuron, d) take the place of G. Both are None where only C and n were
    asked for. The directions of a network's teacher are its axes.
    """

    teacher_overlap: Array
    student_overlap: Array | None
    squared_norm: Array
    neuron_vector: Array | None = None


def measured(weights: Array, span: int, directions: Array | None, *, student: bool) -> Measurement:
    """Return the overlaps of weights (runs, m, D) with directions on the first `span` axes, or with these axes."""
    squared_norm = np.sum(weights**2, axis=2)
    unit = weights / np.sqrt(squared_norm)[:, :, None]
    on_axes = unit[:, :, :span]
    overlap = np.ascontiguousarray(on_axes) if directions is None else on_axes @ directions.T
    return Measurement(overlap, unit @ unit.transpose(0, 2, 1) if student else None, squared_norm)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of an engine: how to sample and compute; "auto" leaves a choice to the engine.

    `starts` are seeds of `dynamics.coupled_problem`, one per run, in place of the problem's own start, for the
    spherical student; `training_samples` is the number of samples that a run reuses, for this and the committee.
    """

    seeds: tuple[int, ...]
    batch_size: int = 1
    starts: tuple[int, ...] | None = None
    training_samples: int | None = None
    device: str = "auto"
    dtype: str = "auto"


class Stepper(Protocol):
    """What takes steps of independent runs side by side: any engine, and models on tokens."""

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which steps are taken and runs measured."""

    def advance(self, rates: Array) -> None:
        """Take one step per entry of `rates`, the learning rates η of the steps, shape (steps,)."""

    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the runs marked in `stopped`, shape (seeds,), to NaN for good; the others are not touched."""


class Engine(Stepper, Protocol):
    """A batch of independent SGD runs, one per seed, from one common start: advances them, measures their overlaps."""

    attributes: dict[str, str | int | float]
    """What to write down about the run: device, dtype, versions, the link that was simulated."""

    def measure(self, *, student: bool) -> Measurement:
        """Return the overlaps of all runs; the student's own, or its neurons, only if `student`."""


@runtime_checkable
class NetworkEngine(Engine, Protocol):
    """An engine that takes the steps of networks too."""

    def layers(self) -> Array:
        """Return second layer v and biases b of every run of a network, in float64, shape (seeds, 2, neurons)."""


@runtime_checkable
class SpanEngine(Engine, Protocol):
    """An engine that takes many steps at once. How it is cut may change bits, so it is cut at looks alone."""

    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at the learning rates given, one for each or one for all.

        Return False if `given_up`, called from any thread several times a second, says on the way that the span is no
        longer wanted; the state is then not to be used.
        """

    def caution(self, peak_rate: float, steps: int) -> str | None:
        """Return one sentence if the engine's assumptions fail at the start, for this learning rate and many steps."""


@runtime_checkable
class ResumableEngine(Protocol):
    """An engine, or other runs, that go on, bit for bit, from arrays that can be kept in a file."""

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the later steps depend on, generators included."""

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a state of an engine for the same problem and options."""


class Declaration(NamedTuple):
    """One engine: its maker, and the problems and options that it takes; the first precision is its own.

    `fields` are those of a problem that it knows beyond those that all engines take.
    """

    maker: str
    dtypes: tuple[str, ...] = ("float64",)
    devices: tuple[str, ...] = ("auto", "cpu")
    students: tuple[str, ...] = ("homogeneous",)
    fields: tuple[str, ...] = ()
    objective: str = "squared"

    def takes(self, problem: Problem) -> bool:
        """Return whether the engine simulates problems of this kind."""
        known = problem.kind in self.students and set(problem.declared_fields) <= set(self.fields)
        return known and problem.objective == self.objective


# Modules load when asked for.
ENGINES: dict[str, Declaration] = {
    "projected": Declaration(
        "sgd_check.engines.projected:ProjectedEngine",
        students=("homogeneous", "network", "stiefel"),
        fields=("inputs",),
    ),
    "torch": Declaration(
        "sgd_check.engines.torch.engine:make_engine",
        ("float32", "float64"),
        ("auto", "cpu", "cuda"),
        ("homogeneous", "committee", "spherical", "network", "stiefel"),
        ("inputs",),
    ),
    "diffusion": Declaration("sgd_check.engines.diffusion:make_engine", students=("homogeneous", "stiefel")),
    "scalar": Declaration(
        "sgd_check.engines.scalar:ScalarEngine",
        students=("spherical",),
        fields=("objective", "smoothing"),
        objective="correlation",
    ),
}
DEFAULT_ENGINE = "projected"


def engine_of(problem: Problem) -> str:
    """Return the engine that "auto" stands for: the first that takes a problem, `DEFAULT_ENGINE` where none does."""
    return next((name for name, declared in ENGINES.items() if declared.takes(problem)), DEFAULT_ENGINE)


def make_engine(name: str, problem: Problem, options: EngineOptions) -> Engine:
    """Return the engine of that name, or refuse with the menu."""
    if not isinstance(name, str) or name not in ENGINES:
        raise ValueError(not_a_choice("Argument `engine`", name, ENGINES))
    declared = ENGINES[name]
    if options.dtype == "auto":
        options = replace(options, dtype=declared.dtypes[0])
    try:
        make = resolve_name(declared.maker)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        msg = f'Argument `engine` = {name!r} needs an extra package: pip install "feature-emergence[torch]".'
        raise ImportError(msg) from error
    for argument, given, taken in (
        ("device", options.device, declared.devices),
        ("dtype", options.dtype, declared.dtypes),
    ):
        if given not in taken:
            names = list(map(repr, taken))
            choice = f"one of {', '.join(names)}" if len(names) > 2 or name == "torch" else " or ".join(names)
            where = "" if name == "torch" else f" for engine {name!r}"
            msg = f"Argument `{argument}` must be {choice}{where}, but is {shown(given)}."
            raise ValueError(msg)
    engine: Engine = make(problem, options)
    return engine
