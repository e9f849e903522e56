"""Records of the runs: overlaps and loss at the recorded steps, times of emergence and learning, and blow-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynamics.equations import population_loss, squared_error, teacher_term
from dynamics.problem import Problem, is_correlation, is_frame, is_homogeneous, is_network, is_spherical, needs_points
from dynamics.problem.losses import VALUE
from hermite.arrays import Array, Integers
from sgd_check.engines import Engine
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.registry import Measurement
from sgd_check.simulations.plan import Plan


class CrossingTracker:
    """The `time` at which each entry of an array first reached its threshold, NaN before that.

    Between two looks the quantity is linear in log time, or in time after a look at time 0. An entry that is past its
    threshold at the first look has the time of this look; NaN never crosses. Thresholds broadcast to the shape.
    """

    def __init__(self, threshold: Array, shape: tuple[int, ...]) -> None:
        """Track an array of this shape, none of whose entries has crossed its `threshold` yet."""
        self.time: Array = np.full(shape, np.nan)
        self._threshold = np.broadcast_to(threshold, shape)
        self._last: tuple[float, Array] = np.nan, np.full(shape, np.nan)

    def observe(self, time: float, values: Array) -> None:
        """Note the values at a time after the last look."""
        new = np.isnan(self.time) & (values >= self._threshold)
        before, old = self._last
        if new.any() and np.isnan(before):
            self.time[new] = time
        elif new.any():
            fraction = (self._threshold[new] - old[new]) / (values[new] - old[new])
            self.time[new] = before * (time / before) ** fraction if before > 0 else fraction * time
        self._last = (time, values.copy())

    def state(self) -> dict[str, Array]:
        """Return the arrays that later looks depend on."""
        return {"time": self.time.copy(), "last_time": np.array(self._last[0]), "last_values": self._last[1].copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore the arrays that `state` returned."""
        self.time[...] = state["time"]
        self._last = float(state["last_time"]), np.array(state["last_values"], dtype=np.float64)


class Observables(NamedTuple):
    """Functions that return loss and learned masses; NaN if they have no closed form.

    `loss` returns E(f − f*)² of one run, from C, G (m, m) or spherical neurons (m, d), and n. `learned` returns the
    masses of every run (runs, thresholds), from C (runs, m, P) and n (runs, m); a quantity above its threshold is
    learned. The arguments of a network end with v and b (…, m).
    """

    loss: Callable[..., float]
    learned: Callable[..., Array]
    thresholds: Array
    learned_time: str = "learned_time"
    #: Loss and test error of one run, where labels are classes.
    losses: Callable[..., tuple[float, float]] | None = None


def keeps_vectors(problem: Problem) -> bool:
    """Return whether neurons in R^d are recorded: those of the spherical student, unless it learns by correlation."""
    return is_spherical(problem) and not is_correlation(problem)


def observables_of(problem: Problem) -> Observables:
    """Return the observables of a problem's student; learned means half of a coefficient a_p, or of a component."""
    if is_network(problem):
        return _of_network(problem)
    half, part = problem.teacher.coefficients / 2, problem.learned_part
    if is_spherical(problem):

        def mean_mass(C: Array, _n: Array) -> Array:
            return np.asarray(part.kernel(C).mean(axis=1) / part.kernel_at_one)

        return Observables(lambda C, w, _: squared_error(problem, w, C), mean_mass, half)
    if not (is_homogeneous(problem) or is_frame(problem)):
        return _of_committee(problem, half)
    link, constant, a = problem.activation, teacher_term(problem), problem.teacher.coefficients

    def mass(C: Array, n: Array) -> Array:
        # A row vector per run, so that the product over neurons is a matrix product for all runs at once.
        return part.mass(C, n[:, None, :])[:, 0]

    return Observables(lambda C, G, n: float(population_loss(link, constant, a, C, G, n)), mass, half)


def _of_committee(problem: Problem, half: Array) -> Observables:
    """Return the observables of a committee; loss and mass are NaN if the link's means have no closed form."""
    from dynamics.equations import CommitteeSystem

    try:
        system = CommitteeSystem(problem)
    except ValueError:
        return _unknown(half)

    def learned(C: Array, n: Array) -> Array:
        """Return the learned masses of the directions, (runs, P), from overlaps C and squared norms n."""
        masses = [system.learned_mass(c * np.sqrt(k)[:, None], k) for c, k in zip(C, n, strict=True)]
        return np.array(masses).reshape(len(C), half.size)

    return Observables(lambda *overlaps: system.loss(*_scaled(*overlaps)), learned, half)


def _scaled(C: Array, G: Array, n: Array) -> tuple[Array, Array]:
    """Return the overlaps of neurons, from the overlaps C and G of their directions and squared norms n."""
    length = np.sqrt(n)
    return C * length[:, None], G * np.outer(length, length)


def _of_network(problem: Problem) -> Observables:
    """Return the observables of a network; loss and components are NaN if its means have no closed form."""
    if needs_points(problem):
        return _of_points(problem)
    from dynamics.equations import NetworkSystem

    values = np.array([component.value for component in problem.teacher.components])
    half = np.full(values.size, 0.5)
    try:
        system = NetworkSystem(problem)
    except ValueError:
        return _unknown(half)._replace(learned_time="component_learned_time")

    def packed(C: Array, G: Array, n: Array, v: Array, b: Array) -> Array:
        return system.pack(v, b, *_scaled(C, G, n))

    def learned(C: Array, *arrays: Array) -> Array:
        """Return the learned shares of the components, (runs, components), none for a teacher of units."""
        if not values.size:
            return np.empty((len(C), 0))
        apart = np.eye(C.shape[1])  # overlaps of two neurons are not in f_α
        states = [packed(overlap, apart, *rest) for overlap, *rest in zip(C, *arrays, strict=True)]
        return np.array([system.summarise(state)["component"] / values for state in states]).reshape(-1, values.size)

    return Observables(lambda *overlaps: system.loss(packed(*overlaps)), learned, half, "component_learned_time")


def _of_points(problem: Problem) -> Observables:
    """Return the observables of a network whose means are taken over points; it has no components."""
    from dynamics.equations.network.points import PointSystem

    system = PointSystem(problem)

    def losses(C: Array, G: Array, n: Array, *layers: Array) -> tuple[float, float]:
        return system.losses(system.pack(np.array(layers[:-1]), layers[-1], *_scaled(C, G, n)))

    def learned(C: Array, *_: Array) -> Array:
        return np.empty((len(C), 0))

    has_error = problem.labels != VALUE
    return Observables(
        lambda *overlaps: losses(*overlaps)[0], learned, np.empty(0), "component_learned_time",
        losses if has_error else None,
    )  # fmt: skip


def _unknown(thresholds: Array) -> Observables:
    """Return observables whose loss and learned masses are NaN."""
    return Observables(lambda *_: np.nan, lambda C, *_: np.full((len(C), thresholds.size), np.nan), thresholds)


# A run has blown up when a squared norm exceeds this many times the weight of teacher and start together.
BLOW_UP_FACTOR = 1e3


class Watch:
    """Sound runs, and times (runs, P) of emergence, at which max_i C_ip² reaches the level of the problem.

    For odd k only neurons with C > 0 count, but in a network neurons of either sign. In a frame the alignment
    Σ_i C_ip² replaces the largest square.
    """

    def __init__(self, problem: Problem, runs: int) -> None:
        """Set the level of emergence and the squared norm beyond which a run counts as blown up, for `runs` runs."""
        self._odd = not is_network(problem) and bool(problem.information_exponent % 2)
        self._cap = BLOW_UP_FACTOR * _weight(problem)
        self._total: Callable[..., Array] = np.sum if is_frame(problem) else np.max
        self.emergence = CrossingTracker(np.array(problem.emergence_level), (runs, problem.num_directions))

    def observe(self, time: float, overlap: Array, norm: Array, *layers: Array) -> NDArray[np.bool_]:
        """Return which runs are sound, from C (runs, m, P), n (runs, m) and the v and b (runs, m) of a network."""
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.sum(sum((layer**2 for layer in layers), norm), axis=1)
            sound: NDArray[np.bool_] = np.isfinite(size) & (size <= self._cap)
            seen = np.maximum(overlap, 0.0) if self._odd else overlap
            self.emergence.observe(time, np.where(sound[:, None], self._total(seen**2, axis=1), np.nan))
        return sound


def _weight(problem: Problem) -> float:
    """Return the weight of teacher and start together, in squared norms."""
    if is_network(problem):  # s Σ v_i |w_i| has to reach the teacher's
        target = np.sum(np.abs(problem.teacher.coefficients)) / network_of(problem).scale
        return float(target + sum(np.sum(part**2) for part in problem.network_start()))
    return float(np.sum(problem.teacher.coefficients) + np.sum(problem.start().squared_norm))


class Looks:
    """Records of runs, arrays (runs, records, …) by name, and the runs that have blown up (runs,)."""

    def __init__(self, runs: int, recorded: Integers, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Allocate records of `runs` runs at the steps `recorded`, all NaN, of these shapes by name."""
        self.blown_up: NDArray[np.bool_] = np.zeros(runs, dtype=bool)
        self.records = {name: np.full((runs, recorded.size, *shape), np.nan) for name, shape in shapes.items()}
        #: Place of the record at a step.
        self.places = {step: place for place, step in enumerate(recorded.tolist())}

    def observe(self, step: int, engine: Any) -> NDArray[np.bool_]:
        """Measure the runs after `step` steps; return which of them have just blown up."""
        raise NotImplementedError

    def lost(self, sound: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which runs (runs,) have blown up since the last look, and mark them as blown up."""
        fresh: NDArray[np.bool_] = ~sound & ~self.blown_up
        self.blown_up |= fresh
        return fresh

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the state that later looks depend on, without the records."""
        return {"blown_up": self.blown_up.copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, object]) -> None:
        """Restore the state that `state` returned, and the records of a dataset."""
        self.blown_up[:] = state["blown_up"]
        for name, array in self.records.items():
            array[...] = records[name]


class Recorder(Looks):
    """The records of all runs, with `others` "average_loss" and "train_loss", and times of emergence and learning."""

    #: Variables whose own dims have the seed.
    OF_RUNS = ("blown_up", "censored")

    def __init__(
        self, problem: Problem, plan: Plan, seeds: int, *, others: Sequence[str] = (), by_rows: bool = False
    ) -> None:
        """Allocate the records of `seeds` runs at the recorded steps of `plan`, and the trackers of times.

        `others` names further records, "average_loss" and "train_loss". Emergence is watched for every direction, and
        learning for every threshold of the problem, at all observed steps of `plan`. With `by_rows` the loss is the one
        that the engine measures on rows.
        """
        self._by_rows = by_rows
        super().__init__(seeds, plan.recorded, _shapes(problem) | dict.fromkeys(others, ()))
        self._observables, self._watch = observables_of(problem), Watch(problem, seeds)
        thresholds = self._observables.thresholds
        self._learned = CrossingTracker(thresholds, (seeds, thresholds.size))
        self._layered, self._frame = is_network(problem), is_frame(problem)
        components = () if needs_points(problem) else problem.teacher.components
        self._components = np.array([component.value for component in components])
        #: Variable that the loss needs with C and n: overlaps among neurons, or the neurons of the spherical student.
        self._among = "neuron_vector" if keeps_vectors(problem) else "student_overlap"
        self._time_of = dict(zip(plan.observed.tolist(), plan.times(plan.observed).tolist(), strict=True))
        #: Trackers with something to track: a network with units as its teacher learns no components.
        self._trackers = {"emergence_": self._watch.emergence}
        if thresholds.size:
            self._trackers["learned_"] = self._learned

    def observe(self, step: int, engine: Engine) -> NDArray[np.bool_]:
        """Measure the runs after `step` steps; return which of them have just blown up."""
        place = self.places.get(step)
        measured = engine.measure(student=place is not None)
        seen = [measured.teacher_overlap, measured.squared_norm]
        if self._layered:
            seen += list(engine.layers().swapaxes(0, 1))
        for array in seen:
            array[self.blown_up] = np.nan
        sound = self._watch.observe(self._time_of[step], *seen)
        for array in seen:
            array[~sound] = np.nan
        mass = np.full(self._learned.time.shape, np.nan)
        mass[sound] = self._observables.learned(*(array[sound] for array in seen))
        self._learned.observe(self._time_of[step], mass)
        fresh, among = self.lost(sound), self._among_neurons(measured)
        if place is not None:
            among[~sound] = np.nan
            self._keep(place, seen, among, mass)
            if self._by_rows:
                self.records["loss"][:, place] = np.where(self.blown_up, np.nan, engine.row_loss())
            if "average_loss" in self.records:
                average, layers = engine.measure_average()
                rest = [] if layers is None else list(layers.swapaxes(0, 1))
                arguments = [average.teacher_overlap, self._among_neurons(average), average.squared_norm, *rest]
                self._keep_loss("average_loss", place, arguments)
            if "train_loss" in self.records:
                self.records["train_loss"][:, place] = np.where(self.blown_up, np.nan, engine.train_loss())
        return fresh

    def _among_neurons(self, measured: Measurement) -> Array:
        """Return the variable that the loss needs with C and n, empty if it was not measured."""
        values = measured.neuron_vector if self._among == "neuron_vector" else measured.student_overlap
        return np.empty(0) if values is None else values

    def _keep(self, place: int, seen: list[Array], among: Array, mass: Array) -> None:
        """Write the record of all runs at a place."""
        C, n, *layers = seen
        # A frame is known by its span, so single neurons are not recorded.
        neurons = {"teacher_overlap": C, "squared_norm": n, self._among: among}
        record = {"alignment": np.sum(C**2, axis=1)} if self._frame else neurons
        if len(layers) > 2:
            record |= {"output_layer": np.stack(layers[:-1], axis=1), "bias": layers[-1]}
        else:
            record |= dict(zip(("second_layer", "bias"), layers, strict=False))
        record |= {"component": mass * self._components} if self._components.size else {}
        for name, values in record.items():
            self.records[name][:, place] = values
        if not self._by_rows:
            self._keep_loss("loss", place, [C, among, n, *layers])

    def _keep_loss(self, name: str, place: int, arguments: list[Array]) -> None:
        """Write the losses of sound runs, from the arguments (runs, …) of the loss."""
        losses = self._observables.losses
        for s in np.flatnonzero(~self.blown_up):
            if losses is not None and name == "loss":
                both = losses(*(array[s] for array in arguments))
                self.records["loss"][s, place], self.records["test_error"][s, place] = both
                continue
            self.records[name][s, place] = self._observables.loss(*(array[s] for array in arguments))

    def values(self) -> dict[str, object]:
        """Return the recorded variables by name."""
        emergence = self._watch.emergence.time
        return {
            **self.records,
            "aligned_time" if self._frame else "emergence_time": emergence,
            **({self._observables.learned_time: self._learned.time} if "learned_" in self._trackers else {}),
            "blown_up": self.blown_up.copy(),
            "censored": np.isnan(emergence),
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the state that later looks depend on, without the records."""
        states = {prefix: tracker.state() for prefix, tracker in self._trackers.items()}
        arrays = {prefix + name: array for prefix, state in states.items() for name, array in state.items()}
        return super().state() | arrays

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, object]) -> None:
        """Restore the state that `state` returned, and the records of a dataset."""
        super().restore(state, records)
        for prefix, tracker in self._trackers.items():
            tracker.restore({name: state[prefix + name] for name in tracker.state()})


def _shapes_of_layers(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the records of a network's layers, and of its test error if its labels are classes."""
    m, C = problem.width, problem.num_outputs
    second: dict[str, tuple[int, ...]] = {"second_layer": (m,)} if C == 1 else {"output_layer": (C, m)}
    return second | {"bias": (m,)} | ({"test_error": ()} if problem.labels != VALUE else {})


def _shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the shape of one record of one run, by variable."""
    m, directions, components = problem.width, problem.num_directions, len(problem.teacher.components)
    if is_frame(problem):
        return {"alignment": (directions,), "loss": ()}
    return {
        "teacher_overlap": (m, directions),
        **({"neuron_vector": (m, problem.dimension)} if keeps_vectors(problem) else {"student_overlap": (m, m)}),
        "squared_norm": (m,),
        "loss": (),
        **(_shapes_of_layers(problem) if is_network(problem) else {}),
        **({"component": (components,)} if components and not needs_points(problem) else {}),
    }
