"""The common part of all steps of a fixed length: counting them, the states between two, and resuming.

One step in unit vectors u_i and squared norms n_i, with F and growth of `dynamics.equations.field`:

    v_i = u_i + η (F_i − (F_i·u_i) u_i + 2 growth_i u_i),   u_i ← v_i / |v_i|,   n_i ← n_i |v_i|²

The state after step s is slot s mod 3 of `units` (3, m, D) and `norms` (3, m): the last two states are kept, the third
slot is written. Everywhere `states` is (units, norms), `field` (F, growth), `target` (a, teacher) as for `field_rows`,
and `watched` (events, C): `events` (3, 2 P) has rows time, value, value before, and C (m, P) is scratch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.field import FIELD_BLOCK, UnitField, multiply_pairs, write_field
from dynamics.equations.link import EMERGENCE, link_data
from dynamics.equations.losses import events_of_directions
from dynamics.equations.vectors import overlap_state, teacher_rows, unit_vectors, write_events
from dynamics.integrators.step_kernels import STATUS_EVENT, STATUS_NOT_FINITE, STATUS_REACHED, events_passed, is_passed
from dynamics.integrators.stepper import Status, UndoneSteps, check_inside, check_stored, record_crossings
from dynamics.integrators.system_calls import BoundSystem, normalise, rhs
from dynamics.kernels.jit import entry, kernel
from dynamics.problem.checks import checked_number
from dynamics.threads import Workers
from hermite.arrays import Cube, Integers, Matrix, Vector, aligned
from hermite.text.messages import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dynamics.equations import interface
    from dynamics.problem import Problem
    from hermite.arrays import Array

# Products of two such norms or components, as the loss has them, are still numbers.
LARGEST_NUMBER = 1e150

States = tuple[Cube, Matrix]
Field = tuple[Matrix, Vector]
Target = tuple[Vector, Matrix]
Watched = tuple[Matrix, Matrix, int]


@kernel
def move(step: int, eta: float, states: States, field: Field) -> bool:
    """Write the state after the next step of size η to the free slot; return whether it is finite and no norm is 0.

    `states` holds unit vectors (3, m, D) and squared norms (3, m), of which slot `step` mod 3 is the present one, and
    `field` the force F (m, D) and growth (m,) of each neuron there.
    """
    (units, norms), (F, growth) = states, field
    m, D = F.shape
    U, V = units[step % 3], units[(step + 1) % 3]
    n, n_next = norms[step % 3], norms[(step + 1) % 3]
    finite = True
    for i in range(m):
        along = 0.0
        for k in range(D):
            along += F[i, k] * U[i, k]
        stretch = 1.0 + eta * (2.0 * growth[i] - along)
        square = 0.0
        for k in range(D):
            v = stretch * U[i, k] + eta * F[i, k]
            V[i, k] = v
            square += v * v
        n_next[i] = n[i] * square
        # Written so that not-a-number fails too.
        finite = finite and square < LARGEST_NUMBER and 0.0 < n_next[i] < LARGEST_NUMBER
        shrink = 1.0 / np.sqrt(square)
        for k in range(D):
            V[i, k] *= shrink
    return finite


@kernel
def passes_event(link: Vector, U: Matrix, n: Vector, target: Target, watched: Watched) -> bool:
    """Write the values of all events at a state; return whether one that has not passed is at or above 0.

    U (m, D) and n (m,) are unit vectors and squared norms, `target` the coefficients and directions of the teacher, and
    `watched` (events, C, sign_matters) as at the top of this module. Once all events have passed, nothing is evaluated.
    """
    (a, teacher), (events, C, sign_matters) = target, watched
    m, P = C.shape
    waiting = False
    for event in range(2 * P):
        events[2, event] = events[1, event]
        waiting = waiting or np.isnan(events[0, event])
    if not waiting:
        return False
    if teacher.shape[0] > 0:
        np.dot(U, teacher.T, C)
    else:
        for i in range(m):
            for p in range(P):
                C[i, p] = U[i, p]
    write_events(C.reshape(m * P), n, a, link, sign_matters, np.empty(m * P), events[1])
    return is_passed(events)


@entry
def descend(
    count: int,
    step: Integers,
    has_field: bool,
    eta: float,
    link: Vector,
    states: States,
    field: Field,
    target: Target,
    watched: Watched,
    scratch: tuple[Vector, Vector],
) -> int:
    """Take `count` steps of gradient descent of size η, fewer if one passes an event; return the status.

    It is one of `STATUS_…` of the module `step_kernels`. A step after which the state is not finite is not taken. The
    number of the step, `step` (1,), the states and the events change in place. With `has_field` the field is known
    already, for one step. `scratch` is what `multiply_pairs` writes, and the work space of `write_field`.
    """
    (units, norms), m = states, field[0].shape[0]
    halves = ((m + FIELD_BLOCK - 1) // FIELD_BLOCK + 1) // 2
    for _ in range(count):
        now, then = step[0] % 3, (step[0] + 1) % 3
        if not has_field:
            multiply_pairs(range(halves), units[now], scratch[0])
            write_field(range(0, m, FIELD_BLOCK), link, (units[now], norms[now]), target, scratch[0], field, scratch[1])
        if not move(step[0], eta, states, field):
            return STATUS_NOT_FINITE
        step[0] += 1
        if passes_event(link, units[then], norms[then], target, watched):
            return STATUS_EVENT
    return STATUS_REACHED


@entry
def descend_by_field(
    count: int,
    step: Integers,
    events: Matrix,
    eta: float,
    states: Matrix,
    numbers: tuple[Vector, Integers, Vector],
    rhs_: Callable[..., None],
    event_values: Callable[..., None],
    normalise_: Callable[..., None],
) -> int:
    """Take `count` Euler steps y + η f(y) of any system, each put back on its constraints; return the status.

    It ends early after an event, or before a step whose state is not finite. `states` (3, n) holds the last states,
    that of step s in row s mod 3, `numbers` the parameters, sizes and work space of the system, and the functions are
    its own.
    """
    system = (numbers[0], numbers[1], numbers[2], rhs_, event_values, normalise_)
    for _ in range(count):
        y, new = states[step[0] % 3], states[(step[0] + 1) % 3]
        rhs(eta * step[0], y, new, system)
        for i in range(y.size):
            new[i] = y[i] + eta * new[i]
        normalise(new, system)
        largest = 0.0
        for i in range(y.size):
            # Written so that not-a-number is kept.
            largest = largest if abs(new[i]) <= largest else abs(new[i])
        if not largest < LARGEST_NUMBER:
            return STATUS_NOT_FINITE
        step[0] += 1
        if events_passed(eta * step[0], new, events, system):
            return STATUS_EVENT
    return STATUS_REACHED


class FixedSteps(UndoneSteps):
    """Steps of a fixed length η > 0; time is η · step.

    The state after step s is in slot s mod 3 of a subclass' arrays. Between two steps it is interpolated linearly, a
    choice of order η² that keeps overlaps realisable, since that is convex. Events are located on this interpolant.
    """

    #: Whether there is `advance_through`.
    leaps = True

    def __init__(self, learning_rate: float, num_events: int) -> None:
        """Begin at step 0 with steps of length η = `learning_rate`, a positive number, and `num_events` events."""
        self._eta = checked_number(learning_rate, "learning_rate", positive=True)
        self._step = np.zeros(1, dtype=np.int64)
        self._events = np.full((3, num_events), np.nan)
        #: Number of steps in one call of `advance`.
        self._most_steps: float = math.inf
        self._slot = np.zeros(1, dtype=np.int64)

    @abstractmethod
    def _take(self, count: int, step: Integers, events: Matrix) -> int:
        """Take `count` steps, fewer if one passes an event or its state is not finite; return the status.

        `step` (1,), the number of the last step, and `events` (3, events), times, values now and before, change in
        place.
        """

    @abstractmethod
    def _state_after(self, step: int) -> Array:
        """Return the state after one of the last two steps."""

    def _watched_after(self, step: int) -> Array:
        """Return the part of that state that `_event_values` reads."""
        return self._state_after(step)

    @abstractmethod
    def _event_values(self, t: float, state: Array, which: NDArray[np.intp]) -> Array:
        """Return an array for all events, in which the entries `which` are the values at a state."""

    @abstractmethod
    def _states(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that hold the states."""

    @property
    def time(self) -> float:
        """Flow time η · step of the last step."""
        return float(self._eta * self._step[0])

    @property
    def start(self) -> float:
        """Flow time before the last step."""
        return float(self._eta * max(self._step[0] - 1, 0))

    @property
    def event_times(self) -> Array:
        """Time at which each event was passed; not-a-number until then; the start if passed there."""
        return np.array(self._events[0])

    def advance_through(self, times: Array, max_steps: int) -> tuple[Status, Array]:
        """Advance to the last of increasing times; return also the states at those that were passed, (count, n)."""
        last, status, states = int(self._step[0]) + max_steps, Status.REACHED, []
        for t in times.tolist():
            status = self._advance(t, last - int(self._step[0]))
            if status != Status.REACHED:
                break
            states.append(self.interpolate(t))
        return status, np.array(states)

    def _advance(self, target: float, max_steps: int) -> Status:
        """Take at most `max_steps` steps until the time reaches `target`; return the status."""
        # With several threads a call may end earlier, as if `max_steps` were reached, to give way to the run loop.
        target_step = max(math.ceil(target / self._eta) - 2, 0)
        while self._eta * target_step < target:
            target_step += 1
        last = min(target_step, int(self._step[0]) + int(min(max_steps, self._most_steps)))
        while self._step[0] < last:
            status = self._take(last - int(self._step[0]), self._step, self._events)
            if status == Status.NOT_FINITE:
                return Status.NOT_FINITE
            if status == STATUS_EVENT:
                self._record_events()
        return Status.REACHED if last >= target_step else Status.MAX_STEPS

    def interpolate(self, t: float, out: Array | None = None) -> Array:
        """Return the state at a time within the last step."""
        check_inside(t, self.start, self.time)
        step = int(self._step[0])
        if t in (self.start, self.time):
            state = self._state_after(step if t == self.time else step - 1)
        else:
            state = self._between(t, self._state_after(step - 1), self._state_after(step))
        if out is None:
            return state
        out[...] = state
        return out

    def _between(self, t: float, before: Array, after: Array) -> Array:
        """Return the state at a time t between two steps, by linear interpolation."""
        share = min(max(t / self._eta - (int(self._step[0]) - 1), 0.0), 1.0)
        # In this order entries that are equal in both states, such as ones on a diagonal, stay exact.
        return after + (1.0 - share) * (before - after)

    def _begin_events(self) -> None:
        """Evaluate the events at the start, and record those that are passed there."""
        values = self._events[1] = self._event_values(0.0, self._watched_after(0), np.arange(self._events.shape[1]))
        record_crossings(self._events[0], values, values, (0.0, 0.0), lambda _: values)

    def _record_events(self) -> None:
        """Locate the events that the last step passed."""
        before, after = (self._watched_after(int(self._step[0]) - back) for back in (1, 0))
        times, now, values_before = self._events
        pending = np.flatnonzero(np.isnan(times) & (now >= 0.0))

        def values_at(t: float) -> Array:
            """Return the values of the events at a time t within the last step; only those of pending events count."""
            return self._event_values(t, self._between(t, before, after), pending)

        record_crossings(times, values_before, now, (self.start, self.time), values_at)

    def derivative(self, t: float) -> Array:
        """Return the change of the state over the last step, or over the first before it is taken, divided by η."""
        check_inside(t, self.start, self.time)
        step = int(self._step[0])
        if step == 0:
            # The next slot is written, but the step is not taken.
            self._take(1, self._step.copy(), self._events.copy())
            step = 1
        change: Array = self._state_after(step) - self._state_after(step - 1)
        return change / self._eta

    def statistics(self) -> dict[str, int]:
        """Return the number of steps, each with one gradient."""
        return {"steps_accepted": int(self._step[0]), "rhs_evaluations": int(self._step[0])}

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of the arrays from which a run continues."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from the arrays of a stepper of the same problem and learning rate."""
        for name, array in self._arrays().items():
            check_stored(state, name, array.shape)
        if state["learning_rate"] != self._eta:
            refuse(f"Argument `state` must have learning rate {self._eta}, but has {state['learning_rate']}.")
        for name, array in self._arrays().items():
            array[...] = state[name]

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays from which a run continues, by name."""
        return {**self._states(), "step": self._step, "events": self._events, "learning_rate": np.array(self._eta)}


class EulerStepper(FixedSteps):
    """Steps y ← y + η f(y) of a system, put back on its constraints; a component above 1e150 counts as not finite."""

    def __init__(self, system: interface.EquationSystem, learning_rate: float) -> None:
        """Put the initial state of a system in a ring (3, n), and look at the events there."""
        super().__init__(learning_rate, system.num_events)
        self._system = BoundSystem(system)
        self._slot = self._system.slot
        self._arguments = self._system.numbers, *self._system.functions
        self._ring = aligned(3, system.initial_state.size)
        self._ring[...] = 0.0
        self._ring[0] = system.initial_state
        self._begin_events()

    @property
    def step(self) -> int:
        """Number of the last step."""
        return int(self._step[0])

    @property
    def rate(self) -> float:
        """Length η of a step in time."""
        return self._eta

    def state_now(self) -> Array:
        """Return the state after the last step."""
        return self._state_after(self.step)

    def write_change(self, t: float, y: Array, out: Array) -> None:
        """Write f(t, y); a step changes the state by η f."""
        self._system.rhs(t, y, out)

    def go_to(self, step: int, states: Sequence[Array], event_times: Array) -> None:
        """Continue from a step, given the states before and after it and the times of the events so far."""
        self._step[0] = step
        for number, state in zip((step - 1, step), states, strict=True):
            self._ring[number % 3] = state
        self._events[0] = np.where(event_times <= self.time, event_times, np.nan)
        self._events[1] = self._event_values(self.time, states[-1], np.arange(event_times.size))

    def _take(self, count: int, step: Integers, events: Matrix) -> int:
        """Take `count` steps in compiled code; return the status."""
        return int(descend_by_field(count, step, events, self._eta, self._ring, *self._arguments))

    def _state_after(self, step: int) -> Array:
        """Return a copy of the state after one of the last two steps."""
        state: Array = self._ring[step % 3].copy()
        return state

    def _event_values(self, t: float, state: Array, which: NDArray[np.intp]) -> Array:
        del which
        values = np.empty(self._events.shape[1])
        self._system.event_values(t, state, values)
        return values

    def _states(self) -> dict[str, NDArray[np.generic]]:
        return {"states": self._ring}


#: Operations in one call of `advance` with several threads, less than a tenth of a second: a chunk of the run loop
#: should not take longer, but its first one has 64 steps.
OPERATIONS_PER_CALL = 3e9


class DescentStepper(FixedSteps):
    """Steps of population gradient descent with η > 0, for any information exponent and any teacher.

    The overlap flow is their limit η → 0. The weights themselves are carried, in the D = min(d, r + m) coordinates that
    a gradient never leaves: the overlaps W Θᵀ and W Wᵀ are exact for every d ≥ r, and vectors that have them exist at
    every step. Between two steps C, G and ln n are interpolated linearly, since realisability is convex in (C, G).

    One step costs 4 m² D operations, in parallel over rows: hold BLAS to one thread. Memory is 4 m D + m P numbers. A
    step after which an n would exceed 1e150, or be zero, counts as not finite and is not taken.
    """

    def __init__(self, problem: Problem, learning_rate: float, *, threads: int | None = None) -> None:
        """Put the weights of the start in a ring of three states, and evaluate the events there.

        The ring holds unit vectors (3, m, D) and squared norms (3, m); the state after step k is in slot k modulo 3.
        `learning_rate` is η and `threads` the number of threads that share rows, by default one per core.
        """
        a = np.array(problem.teacher.coefficients, dtype=np.float64)
        super().__init__(learning_rate, 2 * a.size)
        self._link = link_data(problem)
        self._part = problem.learned_part
        self._a = a
        self._sign_matters = problem.information_exponent % 2
        U, log_norm = unit_vectors(problem)
        m, D = U.shape
        self._teacher = teacher_rows(problem, D)
        self._units, self._norms = aligned(3, m, D), aligned(3, m)
        self._units[...] = self._norms[...] = 0.0
        self._units[0], self._norms[0] = U, np.exp(log_norm)
        self._F, self._growth = aligned(m, D), aligned(m)
        self._C = aligned(m, self._a.size)
        self._workers = Workers(m, D, threads)
        self._unit_field = UnitField(self._link, self._workers, self._a, self._teacher, m)
        self._work = aligned(self._unit_field.work_size)
        if self._workers.count > 1:
            self._most_steps = max(1, int(OPERATIONS_PER_CALL / (4 * m * m * D)))
        self._take(0, self._step, self._events)  # compiled or loaded here
        self._begin_events()

    def close(self) -> None:
        """End the threads that share rows."""
        self._workers.close()

    def _take(self, count: int, step: Integers, events: Matrix) -> int:
        """Take `count` steps, in compiled code or with threads that share rows; return the status."""
        has_field = self._workers.count > 1
        states, field, target = (self._units, self._norms), (self._F, self._growth), (self._a, self._teacher)
        scratch, watched = (self._unit_field.pairs, self._work), (events, self._C, self._sign_matters)
        arguments = has_field, self._eta, self._link, states, field, target, watched, scratch
        if not has_field:
            return int(descend(count, step, *arguments))
        for _ in range(count):
            slot = step[0] % 3
            self._unit_field.write(self._units[slot], self._norms[slot], self._F, self._growth)
            status = int(descend(1, step, *arguments))
            if status != STATUS_REACHED:
                return status
        return STATUS_REACHED

    def _state_after(self, step: int) -> Array:
        """Return [C | G | ln n], flattened, after one of the last two steps.

        These are overlaps with directions and of neurons with each other, and logarithms of squared norms.
        """
        slot = step % 3
        return overlap_state(self._units[slot], np.log(self._norms[slot]), self._teacher, self._a.size)

    def _watched_after(self, step: int) -> Array:
        """Return C and ln n after a step, flattened, without the overlaps G of neurons, which are m² numbers."""
        U, norms = self._units[step % 3], self._norms[step % 3]
        C = U @ self._teacher.T if self._teacher.shape[0] > 0 else U[:, : self._a.size]
        return np.concatenate([C.ravel(), np.log(norms)])

    def _event_values(self, t: float, state: Array, which: NDArray[np.intp]) -> Array:
        del t
        (m, P), values = self._C.shape, np.full(self._events.shape[1], np.nan)
        directions = np.unique(which % P)
        C, n = state[: m * P].reshape(m, P)[:, directions], np.exp(state[-m:])
        values[directions], values[P + directions] = events_of_directions(
            self._part,
            self._a[directions],
            C,
            n,
            sign_matters=bool(self._sign_matters),
            level=float(self._link[EMERGENCE]),
        )
        return values

    def _states(self) -> dict[str, NDArray[np.generic]]:
        return {"unit_vectors": self._units, "squared_norms": self._norms}
