"""Compiled steps of gradient descent; executed after the rendered link kernels and `equations.pairs.field_kernels`.

One step in unit vectors u_i and squared norms n_i, with F and growth of `field_rows`:

    v_i = u_i + η (F_i − (F_i·u_i) u_i + 2 growth_i u_i),   u_i ← v_i / |v_i|,   n_i ← n_i |v_i|²

The state after step s is slot s mod 3 of `units` and `norms`: the last two states are kept, the third slot is written.
"""

from typing import TYPE_CHECKING

import numpy as np

from dynamics.compiler.arrays import Cube, Integers, Matrix, Vector
from dynamics.compiler.compilation import entry

if TYPE_CHECKING:
    from dynamics.equations.pairs.field_kernels import FIELD_BLOCK, field_rows, pair_products
    from dynamics.equations.pairs.link_kernels import learned_kernel


GOING_ON, BLOWN_UP, EVENT = 0, 3, 4
# Products of two such norms, as the loss has them, are still numbers.
LARGEST_SQUARED_NORM = 1e150


@entry("b1(i8, f8, f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1])")
def move_rows(step: int, eta: float, units: Cube, norms: Matrix, F: Matrix, growth: Vector) -> bool:
    """Write the state after the next step into the free slot; return whether it is finite and no neuron vanished."""
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


@entry("void(f8[:,::1], f8[::1], f8[::1], f8[:,::1], b1, f8[:,::1], f8[:,::1])")
def watch(U: Matrix, n: Vector, a: Vector, teacher: Matrix, sign_matters: bool, events: Matrix, C: Matrix) -> None:
    """Write the values of the events that have not passed: max_i C_ip² − ½, then Σ_i n_i g_3(C_ip)/g_3(1) − a_p/2.

    `events` has rows time, value, value before; `C` (m, P) is scratch.
    """
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
    for i in range(m):
        share = n[i] / learned_kernel(1.0)
        for p in range(P):
            c = C[i, p]
            if np.isnan(events[0, p]) and (c > 0.0 or not sign_matters):
                events[1, p] = max(events[1, p], c * c - 0.5)
            if np.isnan(events[0, P + p]):
                events[1, P + p] += share * learned_kernel(c)


@entry("i8(i8, f8, f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[:,::1], b1, f8[:,::1], f8[:,::1])")
def finish_step(
    step: int,
    eta: float,
    units: Cube,
    norms: Matrix,
    F: Matrix,
    growth: Vector,
    a: Vector,
    teacher: Matrix,
    sign_matters: bool,
    events: Matrix,
    C: Matrix,
) -> int:
    """Move along a gradient already computed; return whether that blew up or passed an event."""
    if not move_rows(step, eta, units, norms, F, growth):
        return BLOWN_UP
    for event in range(events.shape[1]):
        events[2, event] = events[1, event]
    watch(units[(step + 1) % 3], norms[(step + 1) % 3], a, teacher, sign_matters, events, C)
    for event in range(events.shape[1]):
        if np.isnan(events[0, event]) and events[1, event] >= 0.0:
            return EVENT
    return GOING_ON


@entry(
    "i8(i8, i8[::1], f8, f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[:,::1], b1, f8[:,::1], f8[:,::1],"
    " f8[::1], f8[::1])"
)
def descend(
    count: int,
    step: Integers,
    eta: float,
    units: Cube,
    norms: Matrix,
    F: Matrix,
    growth: Vector,
    a: Vector,
    teacher: Matrix,
    sign_matters: bool,
    events: Matrix,
    C: Matrix,
    pairs: Vector,
    work: Vector,
) -> int:
    """Take `count` steps, fewer if one blows up, which is then not taken, or passes an event."""
    halves = ((F.shape[0] + FIELD_BLOCK - 1) // FIELD_BLOCK + 1) // 2
    for _ in range(count):
        now = step[0] % 3
        pair_products(0, halves, units[now], pairs)
        field_rows(0, F.shape[0], units[now], norms[now], a, teacher, pairs, F, growth, work)
        status = finish_step(step[0], eta, units, norms, F, growth, a, teacher, sign_matters, events, C)
        if status == BLOWN_UP:
            return BLOWN_UP
        step[0] += 1
        if status == EVENT:
            return EVENT
    return GOING_ON
