"""Compiled steps of gradient descent.

One step in unit vectors u_i and squared norms n_i, with F and growth of `dynamics.equations.field`:

    v_i = u_i + η (F_i − (F_i·u_i) u_i + 2 growth_i u_i),   u_i ← v_i / |v_i|,   n_i ← n_i |v_i|²

The state after step s is slot s mod 3 of `units` (3, m, D) and `norms` (3, m): the last two states are kept, the third
slot is written. Everywhere `states` is (units, norms), `field` (F, growth), `target` (a, teacher) as for `field_rows`,
and `watched` (events, C): `events` (3, 2 P) has rows time, value, value before, and C (m, P) is scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.equations.field import FIELD_BLOCK, multiply_pairs, write_field
from dynamics.equations.link import learned_kernel, write_learned
from dynamics.integrators.step_kernels import STATUS_EVENT, STATUS_NOT_FINITE, STATUS_REACHED, events_passed
from dynamics.integrators.system_calls import System, normalise, rhs
from dynamics.kernels.arrays import Cube, Integers, Matrix, Vector
from dynamics.kernels.jit import entry, kernel

if TYPE_CHECKING:
    from collections.abc import Callable


GOING_ON, BLOWN_UP, EVENT = 0, 3, 4
# Products of two such norms, as the loss has them, are still numbers.
LARGEST_SQUARED_NORM = 1e150

States = tuple[Cube, Matrix]
Field = tuple[Matrix, Vector]
Target = tuple[Vector, Matrix]
Watched = tuple[Matrix, Matrix]


@kernel
def move(step: int, eta: float, states: States, field: Field) -> bool:
    """Write the state after the next step into the free slot; return whether it is finite and no neuron vanished."""
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
        finite = finite and square < LARGEST_SQUARED_NORM and 0.0 < n_next[i] < LARGEST_SQUARED_NORM
        shrink = 1.0 / np.sqrt(square)
        for k in range(D):
            V[i, k] *= shrink
    return finite


@kernel
def value_events(link: Vector, U: Matrix, n: Vector, target: Target, sign_matters: bool, watched: Watched) -> None:
    """Write the values of the events that have not passed: max_i C_ip² − ½, then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2."""
    (a, teacher), (events, C) = target, watched
    m, P = C.shape
    waiting = 0
    for event in range(2 * P):
        if np.isnan(events[0, event]):
            waiting += 1
            events[1, event] = -0.5 if event < P else -0.5 * a[event - P]
    if waiting == 0:
        return
    if teacher.shape[0] > 0:
        np.dot(U, teacher.T, C)
    else:
        for i in range(m):
            for p in range(P):
                C[i, p] = U[i, p]
    whole, learned = learned_kernel(link, 1.0), np.empty(m * P)
    write_learned(link, C.reshape(m * P), learned)
    for i in range(m):
        share = n[i] / whole
        for p in range(P):
            c = C[i, p]
            if np.isnan(events[0, p]) and (c > 0.0 or not sign_matters):
                events[1, p] = max(events[1, p], c * c - 0.5)
            if np.isnan(events[0, P + p]):
                events[1, P + p] += share * learned[i * P + p]


@kernel
def finish(
    step: int,
    eta: float,
    link: Vector,
    states: States,
    field: Field,
    target: Target,
    sign_matters: bool,
    watched: Watched,
) -> int:
    """Move along a gradient already computed; return whether that blew up or passed an event."""
    if not move(step, eta, states, field):
        return BLOWN_UP
    events, (units, norms) = watched[0], states
    for event in range(events.shape[1]):
        events[2, event] = events[1, event]
    value_events(link, units[(step + 1) % 3], norms[(step + 1) % 3], target, sign_matters, watched)
    for event in range(events.shape[1]):
        if np.isnan(events[0, event]) and events[1, event] >= 0.0:
            return EVENT
    return GOING_ON


@entry
def move_rows(step: int, eta: float, states: States, field: Field) -> bool:
    """Write the state after the next step into the free slot; return whether it is finite and no neuron vanished."""
    return move(step, eta, states, field)


@entry
def watch(link: Vector, U: Matrix, n: Vector, target: Target, sign_matters: bool, watched: Watched) -> None:
    """Write the values of the events at one state."""
    value_events(link, U, n, target, sign_matters, watched)


@entry
def finish_step(
    step: int,
    eta: float,
    link: Vector,
    states: States,
    field: Field,
    target: Target,
    sign_matters: bool,
    watched: Watched,
) -> int:
    """Move along a gradient already computed; return whether that blew up or passed an event."""
    return finish(step, eta, link, states, field, target, sign_matters, watched)


@entry
def descend(
    count: int,
    step: Integers,
    eta: float,
    link: Vector,
    states: States,
    field: Field,
    target: Target,
    sign_matters: bool,
    watched: Watched,
    scratch: tuple[Vector, Vector],
) -> int:
    """Take `count` steps, fewer if one blows up, which is then not taken, or passes an event.

    `scratch` is what `pair_products` writes and the work space of `field_rows`.
    """
    (units, norms), m = states, field[0].shape[0]
    halves = ((m + FIELD_BLOCK - 1) // FIELD_BLOCK + 1) // 2
    for _ in range(count):
        now = step[0] % 3
        multiply_pairs(range(halves), units[now], scratch[0])
        write_field(range(0, m, FIELD_BLOCK), link, (units[now], norms[now]), target, scratch[0], field, scratch[1])
        status = finish(step[0], eta, link, states, field, target, sign_matters, watched)
        if status == BLOWN_UP:
            return BLOWN_UP
        step[0] += 1
        if status == EVENT:
            return EVENT
    return GOING_ON


# Compiled Euler steps of any system.


# Products of two such numbers, as a loss has them, are still numbers.
LARGEST_NUMBER = 1e150


@kernel
def take_step(step: int, eta: float, states: Matrix, system: System) -> int:
    """Write y + η f(y), back on its constraints, into the free slot; return whether that is not finite."""
    y, new = states[step % 3], states[(step + 1) % 3]
    rhs(eta * step, y, new, system)
    for i in range(y.size):
        new[i] = y[i] + eta * new[i]
    normalise(new, system)
    largest = 0.0
    for i in range(y.size):
        # Written so that not-a-number is kept.
        largest = largest if abs(new[i]) <= largest else abs(new[i])
    return STATUS_REACHED if largest < LARGEST_NUMBER else STATUS_NOT_FINITE


@kernel
def take_steps(count: int, step: Integers, eta: float, states: Matrix, events: Matrix, system: System) -> int:
    """Take `count` steps, fewer if one blows up, which is then not taken, or passes an event."""
    for _ in range(count):
        if take_step(step[0], eta, states, system) != STATUS_REACHED:
            return STATUS_NOT_FINITE
        step[0] += 1
        if events_passed(eta * step[0], states[step[0] % 3], events, system):
            return STATUS_EVENT
    return STATUS_REACHED


@entry
def write_next(
    step: int,
    eta: float,
    states: Matrix,
    numbers: tuple[Vector, Integers, Vector],
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Write the state after the next step into the free slot; return whether that is not finite."""
    return take_step(step, eta, states, (numbers[0], numbers[1], numbers[2], rhs, event_values, normalise))


@entry
def descend_by_field(
    count: int,
    step: Integers,
    eta: float,
    states: Matrix,
    events: Matrix,
    numbers: tuple[Vector, Integers, Vector],
    rhs: Callable[..., None],
    event_values: Callable[..., None],
    normalise: Callable[..., None],
) -> int:
    """Take steps as `take_steps` does; return its status."""
    return take_steps(
        count, step, eta, states, events, (numbers[0], numbers[1], numbers[2], rhs, event_values, normalise)
    )
