"""The interface of engines, and the one table of them: a further engine is one module and one line here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Literal, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from dynamics.problem import Problem, Student, is_frame, is_homogeneous, needs_points
from dynamics.problem.optimizers import OPTIMIZERS, PLAIN, SGD, Optimizer, ZerothOrder
from dynamics.problem.rows import Rows
from hermite.arrays import Array
from hermite.text.messages import not_a_choice, refuse, require, shown
from sgd_check.engines.class_labels import is_projected

#: Names of the engines that `simulate` takes, "auto" among them.
EngineName = Literal["auto", "projected", "torch", "diffusion", "scalar"]


class Measurement(NamedTuple):
    """C (seed, neuron, direction), G (seed, neuron, neuron_2) and n (seed, neuron) of every run in float64.

    Of the spherical student the neurons w (seed, neuron, d) take the place of G; both are only measured if asked for.
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
    overlap = on_axes.copy() if directions is None else on_axes @ directions.T
    return Measurement(overlap, unit @ unit.transpose(0, 2, 1) if student else None, squared_norm)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of an engine as `simulate` has them."""

    seeds: tuple[int, ...]
    batch_size: int = 1
    starts: tuple[int, ...] | None = None
    training_samples: int | None = None
    reshuffle: bool = True
    device: str = "auto"
    dtype: str = "auto"
    optimizer: Optimizer = PLAIN
    #: Source of samples that are not Gaussian.
    rows: Rows | None = None


class RunBatch(ABC):
    """Independent runs side by side: any engine, and models on tokens."""

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which steps are taken and runs measured."""
        return nullcontext()

    @abstractmethod
    def advance(self, rates: Array) -> None:
        """Take one step per entry of `rates`, the learning rates η of the steps, shape (steps,)."""

    @abstractmethod
    def freeze(self, stopped: NDArray[np.bool_]) -> None:
        """Turn the runs marked in `stopped`, shape (seeds,), to NaN for good; the others are not touched."""

    @property
    def resumable(self) -> bool:
        """Whether runs can go on from a state, which a class with methods `state` and `restore` allows."""
        return type(self).state is not RunBatch.state

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that the later steps depend on, bit for bit."""
        self._refuse_state()

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:  # noqa: ARG002
        """Go on from a state of the same problem and options; raise KeyError or ValueError for another."""
        self._refuse_state()

    def _refuse_state(self) -> NoReturn:
        """Raise NotImplementedError: runs of this engine have no state from which they could go on."""
        refuse(f"runs of {type(self).__name__} have no state from which they could go on", error=NotImplementedError)


class Engine(RunBatch):
    """A batch of independent SGD runs, one per seed, from one common start: advances them, measures their overlaps."""

    attributes: dict[str, str | int | float]
    """What to write down about the run: device, dtype, versions, the link that was simulated."""

    @abstractmethod
    def measure(self, *, student: bool) -> Measurement:
        """Return the overlaps of all runs in float64; the student's own, or its neurons, only if `student`."""

    def layers(self) -> Array:
        """Return second layer v and biases b of every run of a network, in float64, shape (seeds, 2, neurons)."""
        raise NotImplementedError

    def enter(self, problem: Problem) -> None:
        """Go on with the rates of another phase of layer-wise training, whose problem differs in them alone."""
        raise NotImplementedError

    def train_loss(self) -> Array:
        """Return the mean of (f − y)² over the samples that are used again, of every run, shape (seeds,)."""
        raise NotImplementedError

    def row_loss(self) -> Array:
        """Return the mean of (f − f*)² over a fixed set of rows that are not Gaussian, of every run, shape (seeds,)."""
        raise NotImplementedError

    def measure_average(self) -> tuple[Measurement, Array | None]:
        """Return `measure`, and for a network `layers`, of the averages of the weights."""
        raise NotImplementedError


class SpanEngine(Engine):
    """An engine that takes spans of many steps; spans end at looks alone, since other ends may change the last bits."""

    def advance(self, rates: Array) -> None:
        """Take one step of SGD per learning rate."""
        self.advance_span(rates.size, rates, lambda: False)

    @abstractmethod
    def advance_span(self, steps: int, rates: Array | float, given_up: Callable[[], bool]) -> bool:
        """Take `steps` steps at the learning rates given, one for each or one for all.

        Return False if `given_up`, called from any thread several times a second, says on the way that the span is no
        longer wanted; the state is then not to be used.
        """

    @abstractmethod
    def caution(self, peak_rate: float, steps: int) -> str | None:
        """Return one sentence if the engine's assumptions fail at the start, for this learning rate and many steps."""


class SampleReplay(NamedTuple):
    """The samples of runs once more, for engines that can draw them from the seed alone.

    `start` (axes, m) has the neurons at the start on the axes of the samples, first those of the teacher.
    `draws(seed, steps)` yields, block by block, samples (block, axes) and label noise (block,) of so many first steps.
    """

    start: Array
    draws: Callable[[int, int], Iterator[tuple[Array, Array]]]


class Declaration(NamedTuple):
    """One engine: its maker, and the options, problems and `fields` that it takes; its first dtype is the default."""

    maker: str
    dtypes: tuple[str, ...] = ("float64",)
    devices: tuple[str, ...] = ("auto", "cpu")
    students: tuple[str, ...] = ("homogeneous",)
    fields: tuple[str, ...] = ()
    objective: str = "squared"
    #: Name of each optimizer that it takes, other than plain SGD -> the maker of its engine.
    optimizers: Mapping[str, str] = MappingProxyType({})
    #: Whether it knows the steps of an optimizer that it takes on a problem that it takes.
    knows: Callable[[Problem, Optimizer], bool] = lambda problem, optimizer: True  # noqa: ARG005
    #: Whether it simulates a problem of a kind and with fields that it takes.
    fits: Callable[[Problem], bool] = lambda problem: True  # noqa: ARG005
    #: Maker of the `SampleReplay` of runs of plain SGD with batches of one; "" where samples are not drawn again.
    replay: str = ""

    def takes(self, problem: Problem) -> bool:
        """Return whether the engine simulates problems of this kind."""
        is_known = problem.kind in self.students and set(problem.declared_fields) <= set(self.fields)
        return is_known and (problem.objective == self.objective or needs_points(problem)) and self.fits(problem)

    def steps(self, problem: Problem, optimizer: Optimizer) -> bool:
        """Return whether the engine simulates problems of this kind with this optimizer."""
        named = optimizer.is_plain or (optimizer.name in self.optimizers and not is_frame(problem))
        return named and self.takes(problem) and self.knows(problem, optimizer)


def _projections_suffice(problem: Problem, optimizer: Optimizer) -> bool:
    """Return whether the projected engine can take the steps: all but some of zeroth order."""
    if needs_points(problem):
        return optimizer.is_plain
    if not isinstance(optimizer, ZerothOrder):
        return True
    return problem.inputs is None and not (is_homogeneous(problem) and optimizer.smoothing > 0.0)


ENGINES: dict[str, Declaration] = {
    "projected": Declaration("sgd_check.engines.projected:ProjectedEngine",
                             students=("homogeneous", "network", "stiefel"),
                             fields=("inputs", "objective", "labels", "flip", "threshold"), fits=is_projected,
                             optimizers={"sgd": "sgd_check.engines.projected_memory:RememberingEngine",
                                         "zeroth-order": "sgd_check.engines.projected_zeroth:DirectionsEngine"},
                             knows=_projections_suffice, replay="sgd_check.engines.projected:make_replay"),
    "torch": Declaration("sgd_check.engines.torch.engine:make_engine", ("float32", "float64"), ("auto", "cpu", "cuda"),
                         ("homogeneous", "committee", "spherical", "network", "stiefel"),
                         ("inputs", "objective", "labels", "flip", "threshold", "mixture"),
                         optimizers=dict.fromkeys(OPTIMIZERS, "sgd_check.engines.torch.engine:make_engine"),
                         knows=lambda problem, optimizer: not needs_points(problem) or isinstance(optimizer, SGD)),
    "diffusion": Declaration("sgd_check.engines.diffusion:make_engine", students=("homogeneous", "stiefel")),
    "scalar": Declaration("sgd_check.engines.scalar:ScalarEngine", students=("spherical",),
                          fields=("objective", "smoothing"), objective="correlation",
                          optimizers={"zeroth-order": "sgd_check.engines.scalar:ScalarEngine"}),
}  # fmt: skip
DEFAULT_ENGINE = "projected"
#: Maker of runs in two phases, from those of the first, the problem of the second, and the time of the switch.
LAYERWISE = "sgd_check.engines.layerwise:LayerwiseEngine"


def engine_of(problem: Problem, optimizer: Optimizer = PLAIN) -> str:
    """Return the engine for "auto": the first that takes a problem and an optimizer, or `DEFAULT_ENGINE`."""
    takers = [name for name, declared in ENGINES.items() if declared.takes(problem)]
    stepping = [name for name in takers if ENGINES[name].steps(problem, optimizer)]
    return next(iter([*stepping, *takers]), DEFAULT_ENGINE)


def replay_of(name: str, problem: Problem) -> SampleReplay | None:
    """Return the samples of runs by the engine of that name, with batches of one; None if it cannot draw them again."""
    declared = ENGINES.get(name)
    return cast("SampleReplay", resolve_name(declared.replay)(problem)) if declared and declared.replay else None


def make_engine(name: str, problem: Problem, options: EngineOptions) -> Engine:
    """Return the engine `name` for a problem, at the start of its runs.

    ValueError, in one sentence, is raised for an unknown name, for an optimizer, a loss, labels or inputs that the
    engine does not take, and for a device or dtype that it has not; ImportError where torch is needed and missing. The
    dtype "auto" becomes the first of the engine's. A student that is trained layer by layer gets an engine that goes
    through both phases, for plain SGD alone.
    """
    if not isinstance(name, str) or name not in ENGINES:
        refuse(not_a_choice("Argument `engine`", name, ENGINES))
    declared = ENGINES[name]
    able_engines = [
        repr(engine_name) for engine_name, engine in ENGINES.items() if engine.steps(problem, options.optimizer)
    ]
    takers = "no engine takes for this problem"
    if able_engines:
        takers = f"{' and '.join(able_engines)} {'takes' if len(able_engines) == 1 else 'take'}"
    require(
        declared.knows(problem, options.optimizer) or not needs_points(problem),
        f"Argument `optimizer` must be {'SGD' if name == 'torch' else 'plain SGD'} for engine {name!r} under another "
        f"loss than the squared one, labels that are classes, or a Mixture, but is {options.optimizer}, which "
        f"{takers}.",
    )
    maker = declared.maker if options.optimizer.is_plain else declared.optimizers.get(options.optimizer.name)
    if maker is None:
        refuse(
            f"Argument `optimizer` must be plain SGD for engine {name!r}, but is {options.optimizer}, which {takers}."
        )
    if options.dtype == "auto":
        options = replace(options, dtype=declared.dtypes[0])
    try:
        make = resolve_name(maker)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        refuse(
            f'Argument `engine` = {name!r} needs an extra package: pip install "feature-emergence[torch]".',
            error=ImportError,
        )
    choices = (("device", options.device, declared.devices), ("dtype", options.dtype, declared.dtypes))
    for argument, asked, taken in choices:
        if asked not in taken:
            names = list(map(repr, taken))
            choice = f"one of {', '.join(names)}" if len(names) > 2 or name == "torch" else " or ".join(names)
            value = shown(asked)
            if name == "torch":
                refuse(f"Argument `{argument}` must be {choice}, but is {value}.")
            refuse(f"Argument `{argument}` must be {choice} for engine {name!r}, but is {value}.")
    if len(phases := problem.phases()) == 1:
        return cast("Engine", make(problem, options))
    require(
        options.optimizer.is_plain,
        f"Argument `optimizer` must be plain SGD where `layer_wise` is given, but is {options.optimizer}.",
    )
    first, second = phases
    in_phases = resolve_name(LAYERWISE)
    return cast("Engine", in_phases(make(first, options), second, cast("Student", problem.student).switch_time()))
