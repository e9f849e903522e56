"""Records of the runs: overlaps and loss at the recorded steps, times of emergence and learning, and blow-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynamics.equations import population_loss, squared_error, teacher_term
from dynamics.problem import is_correlation, is_frame, is_homogeneous, is_network, is_spherical
from hermite.arrays import Array
from sgd_check.engines import NetworkEngine
from sgd_check.engines.problem_forms import network_of

if TYPE_CHECKING:
    from dynamics.problem import Problem
    from sgd_check.engines import Engine
    from sgd_check.runs.plan import Plan


class CrossingTracker:
    """Remember, for every entry of an array, when it first reached its threshold.

    Between two looks the quantity is taken as linear in log time (in time from a look at time 0). An entry that is past
    its threshold at the first look crossed then. NaN never crosses. Thresholds broadcast with values of the shape;
    `time` is that of the first crossing, NaN where there was none.

    Examples
    --------
    >>> tracker = CrossingTracker(np.array(0.5), (1,))
    >>> for t, value in [(1.0, 0.0), (100.0, 1.0)]:
    ...     tracker.observe(t, np.array([value]))
    >>> tracker.time.round(6).tolist()
    [10.0]
    """

    def __init__(self, threshold: Array, shape: tuple[int, ...]) -> None:
        self.time: Array = np.full(shape, np.nan)
        self._threshold = np.broadcast_to(threshold, shape)
        self._last: tuple[float, Array] = np.nan, np.full(shape, np.nan)

    def observe(self, time: float, values: Array) -> None:
        """Take the values at a later time than the last look."""
        new = np.isnan(self.time) & (values >= self._threshold)
        before, old = self._last
        if new.any() and np.isnan(before):
            self.time[new] = time
        elif new.any():
            fraction = (self._threshold[new] - old[new]) / (values[new] - old[new])
            self.time[new] = before * (time / before) ** fraction if before > 0 else fraction * time
        self._last = (time, values.copy())

    def state(self) -> dict[str, Array]:
        """Return all that later looks depend on."""
        return {"time": self.time.copy(), "last_time": np.array(self._last[0]), "last_values": self._last[1].copy()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from arrays that `state` returned."""
        self.time[...] = state["time"]
        self._last = float(state["last_time"]), np.array(state["last_values"], dtype=np.float64)


class Observables(NamedTuple):
    """Loss and learned mass of runs, of C (…, m, P) and n (…, m), of a network by axes, and of its v and b (…, m).

    A quantity is learned from a mass of `thresholds` on, at times that are the variable `learned_time`. `learned` gives
    the masses of every run, (runs, thresholds), of C (runs, m, P) and n (runs, m). `loss` is E(f − f*)² of one run, of
    C, of G (m, m) or spherical neurons (m, d), and of n; NaN if it is not known in closed form.
    """

    loss: Callable[..., float]
    learned: Callable[..., Array]
    thresholds: Array
    learned_time: str = "learned_time"


def keeps_vectors(problem: Problem) -> bool:
    """Return whether neurons in R^d are recorded, of which the loss is computed; a lone one has no need of them."""
    return is_spherical(problem) and not is_correlation(problem)


def observables_of(problem: Problem) -> Observables:
    """Return the observables of a problem's student: half of each a_p is to be learned, or of each component."""
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
    """Return the observables of f = Σ σ(w_i·x), without loss and mass where the link's means have no closed form."""
    from dynamics.equations import CommitteeSystem

    try:
        system = CommitteeSystem(problem)
    except ValueError:
        return _unknown(half)

    def loss(C: Array, G: Array, n: Array) -> float:
        length = np.sqrt(n)
        return system.loss(C * length[:, None], G * np.outer(length, length))

    def learned(C: Array, n: Array) -> Array:
        found = [system.learned_mass(c * np.sqrt(k)[:, None], k) for c, k in zip(C, n, strict=True)]
        return np.array(found).reshape(len(C), half.size)

    return Observables(loss, learned, half)


def _of_network(problem: Problem) -> Observables:
    """Return the observables of f = s Σ v_i σ(w_i·x + b_i); without loss and components where means are refused."""
    from dynamics.equations import NetworkSystem

    values = np.array([component.value for component in problem.teacher.components])
    half = np.full(values.size, 0.5)
    try:
        system = NetworkSystem(problem)
    except ValueError:
        return _unknown(half)._replace(learned_time="component_learned_time")

    def packed(C: Array, G: Array, n: Array, v: Array, b: Array) -> Array:
        length = np.sqrt(n)
        return system.pack(v, b, C * length[:, None], G * np.outer(length, length))

    def learned(C: Array, *others: Array) -> Array:
        if not values.size:
            return np.empty((len(C), 0))
        apart = np.eye(C.shape[1])  # overlaps of two neurons are not in f_α
        states = [packed(own, apart, *rest) for own, *rest in zip(C, *others, strict=True)]
        return np.array([system.summarise(state)["component"] / values for state in states]).reshape(
            len(C), values.size
        )

    return Observables(lambda *given: system.loss(packed(*given)), learned, half, "component_learned_time")


def _unknown(thresholds: Array) -> Observables:
    return Observables(lambda *_: np.nan, lambda C, *_: np.full((len(C), thresholds.size), np.nan), thresholds)


# A run has blown up when a squared norm exceeds this many times the weight of teacher and start together.
BLOW_UP_FACTOR = 1e3


class Watch:
    """Says which runs are sound, and when (runs, P) directions emerge: at max_i C_ip² = ½, and for odd k with C > 0.

    Of a network the directions are the teacher's axes, of either sign, at the teacher's `emergence_level`; of a frame
    of orthogonal neurons the alignment Σ_i C_ip² takes the place of the largest square.
    """

    def __init__(self, problem: Problem, runs: int) -> None:
        network = is_network(problem)
        self._odd = not network and bool(problem.information_exponent % 2)
        self._cap = BLOW_UP_FACTOR * _weight(problem)
        self._total: Callable[..., Array] = np.sum if is_frame(problem) else np.max
        level = np.array(problem.teacher.emergence_level)
        self.emergence = CrossingTracker(level, (runs, problem.num_directions))

    def observe(self, time: float, overlap: Array, norm: Array, *layers: Array) -> NDArray[np.bool_]:
        """Return which runs have not blown up, by C (runs, m, P), n (runs, m) and a network's v and b (runs, m)."""
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.sum(sum((layer**2 for layer in layers), norm), axis=1)
            sound: NDArray[np.bool_] = np.isfinite(size) & (size <= self._cap)
            seen = np.maximum(overlap, 0.0) if self._odd else overlap
            self.emergence.observe(time, np.where(sound[:, None], self._total(seen**2, axis=1), np.nan))
        return sound


def _weight(problem: Problem) -> float:
    """Return the weight of teacher and start together, in squared norms.

    Of a network that is Σ |w_i|² + v_i² + b_i² at the start, and the weight that s Σ v_i |w_i| has to reach.
    """
    if is_network(problem):
        target = np.sum(np.abs(problem.teacher.coefficients)) / network_of(problem).scale
        return float(target + sum(np.sum(part**2) for part in problem.network_start()))
    return float(np.sum(problem.teacher.coefficients) + np.sum(problem.start().squared_norm))


class Recorder:
    """Collect records of all runs, the times at which directions emerge, and which runs (seeds,) have blown up."""

    #: Variables whose own dims have the seed.
    OF_RUNS = ("blown_up", "censored")

    def __init__(self, problem: Problem, plan: Plan, seeds: int) -> None:
        self._observables = observables_of(problem)
        self.blown_up: NDArray[np.bool_] = np.zeros(seeds, dtype=bool)
        self._watch, thresholds = Watch(problem, seeds), self._observables.thresholds
        self._learned = CrossingTracker(thresholds, (seeds, thresholds.size))
        # The loss needs C, n, and overlaps among neurons, or the neurons themselves of the spherical student.
        self._vectors, self._layered = keeps_vectors(problem), is_network(problem)
        self._frame = is_frame(problem)
        self._components = np.array([component.value for component in problem.teacher.components])
        #: Variable that the loss needs with C and n.
        self._among = "neuron_vector" if self._vectors else "student_overlap"
        shapes, records = _shapes(problem, self._watch.emergence.time.shape[1]), plan.recorded.size
        self._records = {name: np.full((seeds, records, *shape), np.nan) for name, shape in shapes.items()}
        # For a tabulated learning rate the times are a running sum: taken once, not at every look.
        self._time_of = dict(zip(plan.observed.tolist(), plan.times(plan.observed).tolist(), strict=True))
        self._record_of = {step: index for index, step in enumerate(plan.recorded.tolist())}

    def observe(self, step: int, engine: Engine) -> NDArray[np.bool_]:
        """Measure the runs after `step` steps; return which of them have just blown up."""
        index = self._record_of.get(step)
        found = engine.measure(student=index is not None)
        among = found.neuron_vector if self._vectors else found.student_overlap
        seen = [found.teacher_overlap, found.squared_norm]
        if self._layered and isinstance(engine, NetworkEngine):
            seen += list(engine.layers().swapaxes(0, 1))
        for array in seen:
            array[self.blown_up] = np.nan
        sound = self._watch.observe(self._time_of[step], *seen)
        fresh: NDArray[np.bool_] = ~sound & ~self.blown_up
        self.blown_up |= ~sound
        for array in seen:
            array[~sound] = np.nan
        mass = np.full(self._learned.time.shape, np.nan)
        mass[sound] = self._observables.learned(*(array[sound] for array in seen))
        self._learned.observe(self._time_of[step], mass)
        if index is not None and among is not None:
            among[~sound] = np.nan
            self._keep(index, seen, among, mass)
        return fresh

    def _keep(self, index: int, seen: list[Array], among: Array, mass: Array) -> None:
        """Write a record; the loss of runs that blew up is NaN."""
        C, n, *layers = seen
        # Single neurons of a frame mean nothing.
        neurons = {"teacher_overlap": C, "squared_norm": n, self._among: among}
        record = {"alignment": np.sum(C**2, axis=1)} if self._frame else neurons
        record |= dict(zip(("second_layer", "bias"), layers, strict=False))
        record |= {"component": mass * self._components} if self._components.size else {}
        for name, values in record.items():
            self._records[name][:, index] = values
        for s in np.flatnonzero(~self.blown_up):
            own = (each[s] for each in (C, among, n, *layers))
            self._records["loss"][s, index] = self._observables.loss(*own)

    def values(self) -> dict[str, Any]:
        """Return the recorded variables by name."""
        learned = {self._observables.learned_time: self._learned.time} if self._learned.time.size else {}
        return {
            **self._records,
            "aligned_time" if self._frame else "emergence_time": self._watch.emergence.time,
            **learned,
            "blown_up": self.blown_up.copy(),
            "censored": np.isnan(self._watch.emergence.time),
        }

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all that later observations depend on, except the records."""
        states = {prefix + name: array for prefix, one in self._trackers() for name, array in one.state().items()}
        return {"blown_up": self.blown_up.copy(), **states}

    def restore(self, state: Mapping[str, NDArray[np.generic]], records: Mapping[str, Any]) -> None:
        """Go on from what `state` and `values` returned."""
        self.blown_up[:] = state["blown_up"]
        for prefix, tracker in self._trackers():
            own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            tracker.restore(own)
        for name, array in self._records.items():
            array[...] = records[name]

    def _trackers(self) -> list[tuple[str, CrossingTracker]]:
        """Return the trackers that have something to track: a network whose teacher is units learns no components."""
        learned = [("learned_", self._learned)] if self._learned.time.size else []
        return [("emergence_", self._watch.emergence), *learned]


def _shapes(problem: Problem, directions: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of one record of one run, for every variable."""
    if is_frame(problem):
        return {"alignment": (directions,), "loss": ()}
    m, components = problem.width, len(problem.teacher.components)
    return {
        "teacher_overlap": (m, directions),
        **({"neuron_vector": (m, problem.dimension)} if keeps_vectors(problem) else {"student_overlap": (m, m)}),
        "squared_norm": (m,),
        "loss": (),
        **({"second_layer": (m,), "bias": (m,)} if is_network(problem) else {}),
        **({"component": (components,)} if components else {}),
    }
