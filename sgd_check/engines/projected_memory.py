"""Momentum and averages of weights in the projected engine: more columns, turned as before (`docs/engines.md`).

The state has k columns per neuron, u_i, w_i and a_i without those that are not asked for: an array (k, D, m), with
D = r + k m; of a network (k, 2, m) beside it. A *move* is one row of numbers per step: those that u and ∇ are
multiplied by for u, then for w, and α.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from dynamics.kernels.jit import entry, inlined_kernel, kernel, matrix, row_part
from dynamics.problem import SGD, Problem, is_frame, is_network
from hermite.arrays import Array, Matrix, Vector
from hermite.text.messages import require
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.projected import (
    Axes,
    Buffers,
    Draws,
    ProjectedEngine,
    SampledAxes,
    Student,
    StudentMotion,
    factor_batch,
    make_motion,
    rows_of,
    turn_batch,
    weigh,
)
from sgd_check.engines.registry import EngineOptions, Measurement
from sgd_check.engines.sampled_links import scratch_size

#: k matrices, of u, w and a.
Columns = Array
#: Factors of a sample for each of k m columns, a row that sweeps carry, and a factor, its columns in order.
Memory = tuple[Matrix, Matrix, Matrix]


def moves_of(optimizer: SGD, first: int, rates: Array) -> Array:
    """Return the five factors of each step n = first, first + 1, … of SGD with momentum β, shape (steps, 5).

    With the velocity u, the weights w, the average a and the gradient ∇ at w, a step is u ← row[0] u + row[1] ∇, then w
    ← w + row[2] u + row[3] ∇ with the u of before, and a ← a + row[4] (w − a). `rates` (steps,) are learning rates η
    per batch. Step 0 has no dampening, since the velocity then begins with the gradient.
    """
    steps = first + np.arange(rates.size)
    beta = np.full(rates.size, optimizer.momentum)
    push = np.where(steps == 0, 1.0, 1.0 - optimizer.dampening)
    of_u, of_gradient = (beta * beta, 1.0 + beta * push) if optimizer.nesterov else (beta, push)
    average = optimizer.average or 0.0
    alpha = 1.0 / (steps + 2.0) if average == "polyak" else np.full(rates.size, average)
    return np.stack([beta, push, -rates * of_u, -rates * of_gradient, alpha], axis=1)


class Slots(NamedTuple):
    """How many columns a neuron has, and which of them is w: those before and after it are u and a."""

    columns: int
    weights: int


@inlined_kernel
def write_pushes(move: Vector, H: Matrix, slots: Slots, pushes: Matrix) -> None:
    """Write the factor of each sample of a batch in the velocity u, the weights w and the average a of each neuron.

    `move` (5,) is one row of `moves_of`, H (B, m) the factor of each sample in the gradient of each neuron. Row b of
    `pushes` (B, k m) receives m numbers for each of the k columns that are kept, in the order u, w, a.
    """
    k, slot = slots
    m = H.shape[1]
    for b in range(H.shape[0]):
        for i in range(m):
            pushes[b, slot * m + i] = move[3] * H[b, i]
        for i in range(m if slot > 0 else 0):
            pushes[b, i] = move[1] * H[b, i]
        for i in range(m if k > slot + 1 else 0):
            pushes[b, (slot + 1) * m + i] = move[4] * move[3] * H[b, i]


@inlined_kernel
def mix(C: Columns, c: int, first: int, move: Vector, s: float, G: Vector, slots: Slots) -> None:
    """Apply the part of a step that multiplies the neurons' own columns, on axis c, to neurons `first`, `first` + 1, ….

    C (k, D, m) holds velocity u, weights w and average a, those that are kept. With the gradient s G_i w_i, s the
    variance of the inputs on axis c, `move` (5,) of `moves_of` gives the new u, w and a; the parts along samples are
    added later.
    """
    k, slot = slots
    m = C.shape[2]
    if slot > 0:
        for i in range(first, m):
            u, w, gain = C[0, c, i], C[1, c, i], s * G[i]
            C[0, c, i] = move[0] * u + move[1] * gain * w
            C[1, c, i] = move[2] * u + (1.0 + move[3] * gain) * w
    else:
        for i in range(first, m):
            C[0, c, i] *= 1.0 + move[3] * s * G[i]
    if k > slot + 1:
        for i in range(first, m):
            C[slot + 1, c, i] += move[4] * (C[slot, c, i] - C[slot + 1, c, i])


@inlined_kernel
def turn_lower(C: Columns, c: int, neuron: int, x: Vector) -> None:
    """Turn axes c and c + 1 so that the velocity u of a neuron has no part on the second; C and x are overwritten.

    C (k, D, m) holds the columns u, w and a of all neurons, x (D,) a sample on the same axes; all are turned alike.
    """
    k, _, m = C.shape
    upper, lower = C[0, c, neuron], C[0, c + 1, neuron]
    if lower != 0.0:
        length = np.sqrt(upper * upper + lower * lower)
        cos, sin = upper / length, lower / length
        for j in range(k):
            for i in range(neuron, m):
                upper, lower = C[j, c, i], C[j, c + 1, i]
                C[j, c, i] = cos * upper + sin * lower
                C[j, c + 1, i] = cos * lower - sin * upper
        C[0, c + 1, neuron] = 0.0
        x[c], x[c + 1] = cos * x[c] + sin * x[c + 1], cos * x[c + 1] - sin * x[c]


@inlined_kernel
def sweep_up(
    C: Columns, first: int, x: Vector, new: float, move: Vector, of_g: float, G: Vector, slots: Slots, carry: Matrix
) -> tuple[float, float]:
    """Mix the columns of a factor for one step, and turn a sample onto one axis by Givens rotations.

    The factor has k m rows of C (k, D, m) from row `first` on; x (D,) is the sample on these axes, `new` its length on
    all others, `of_g` the variance of the inputs on the factor's axes. The row of the columns on the axis of the sample
    is written to `carry` (k, m). Return the length of the sample, and the part of the last column on the new axis.
    """
    k, _, m = C.shape
    square, before, beyond = new * new, abs(new), 0.0
    carry[:, :] = 0.0
    for q in range(m - 1, -1, -1):
        for j in range(k):
            mix(C, first + k * q + j, q, move, of_g, G, slots)
        if slots.weights > 0:
            turn_lower(C, first + k * q, q, x)
        for slot in range(k - 1, -1, -1):
            c = first + k * q + slot
            square += x[c] * x[c]
            length = np.sqrt(square)
            cos, sin = (x[c] / length, before / length) if length > 0.0 else (1.0, 0.0)
            if c == first + k * m - 1:
                beyond = -sin * C[slot, c, q]
                carry[slot, q] = cos * C[slot, c, q]
            else:
                for j in range(k):
                    for i in range(q, m):
                        upper, lower = C[j, c, i], carry[j, i]
                        carry[j, i] = cos * upper + sin * lower
                        C[j, c + 1, i] = cos * lower - sin * upper
            before = length
    return before, beyond


@inlined_kernel
def sweep_down(C: Columns, first: int, carry: Matrix, beyond: float) -> None:
    """Remove the entries below the diagonal that `sweep_up` left; `carry` is its row, `beyond` its second result."""
    k, _, m = C.shape
    last = first + k * m - 1
    for q in range(m):
        for slot in range(k if q < m - 1 else k - 1):
            c = first + k * q + slot
            upper, lower = carry[slot, q], C[slot, c + 1, q]
            length = np.sqrt(upper * upper + lower * lower)
            cos, sin = (upper / length, lower / length) if length > 0.0 else (1.0, 0.0)
            for j in range(k):
                for i in range(q, m):
                    upper, lower = carry[j, i], C[j, c + 1, i]
                    C[j, c, i] = cos * upper + sin * lower
                    carry[j, i] = cos * lower - sin * upper
            carry[slot, q] = 0.0
            C[slot, c + 1, q] = 0.0
    for j in range(k):
        C[j, last, m - 1] = 0.0
    C[k - 1, last, m - 1] = np.sqrt(carry[k - 1, m - 1] * carry[k - 1, m - 1] + beyond * beyond)


@inlined_kernel
def turn_batch_columns(
    C: Columns, first: int, s: float, gammas: Vector, below: Vector, buffers: Buffers, memory: Memory
) -> None:
    """Add the movement of a batch on new axes to the factor of all k m columns, and turn these axes away.

    The factor has k m rows of C (k, D, m) from row `first` on, which have taken the step on all older axes, and is
    overwritten. `s` is the variance of the inputs there, `gammas` and `below` are the Bartlett factor of the samples on
    new axes as `projected.turn_batch` takes it, and `buffers` and `memory` are scratch, with the pushes of
    `write_pushes`.
    """
    k, _, m = C.shape
    work, _, _, scaled, stack = buffers
    pushes, _, factor = memory
    for j in range(k):
        for i in range(m):
            for c in range(k * m):
                factor[c, k * i + j] = C[j, first + c, i]
            for b in range(scaled.shape[0]):
                scaled[b, k * i + j] = s * pushes[b, j * m + i]
    turn_batch(factor, 0, scaled, gammas, below, stack, rows_of(work, k * m).column)
    for j in range(k):
        for c in range(k * m):
            for i in range(m):
                C[j, first + c, i] = factor[c, k * i + j]


@inlined_kernel
def move_columns(
    C: Columns, move: Vector, slots: Slots, axes: Axes, draws: Draws, t: int, buffers: Buffers, memory: Memory,
    decays: bool,
) -> None:  # fmt: skip
    """Take the step of batch t for velocities, weights and averages C (k, D, m), and turn its new axes away.

    `move` (5,) is the row of `moves_of` for the step, `axes` holds the variance (D,) of each row, the first row of each
    triangular factor and its number of new axes; `work` and H hold what `weigh` wrote for the batch. With `decays`,
    as for networks, the gradient's part along w is the same on every axis; otherwise it has the variance as a factor.
    """
    s, factors, new_axes = axes
    samples, gammas, _ = draws
    work, _, H, scaled, _ = buffers
    pushes, carry, _ = memory
    k, rows, m = C.shape
    batch = H.shape[0]
    _, _, G, _, keep, _, column = rows_of(work, m)
    for i in range(m):
        G[i] = 1.0 - keep[i]
    write_pushes(move, H, slots, pushes)
    for c in range(rows if batch > 1 or factors.size == 0 else factors[0]):
        mix(C, c, 0, move, 1.0 if decays else s[c], G, slots)
        for b in range(batch):
            coordinate = s[c] * samples[t, b * rows + c]
            for j in range(k):
                for i in range(m):
                    C[j, c, i] += coordinate * pushes[b, j * m + i]
    if batch > m and factors.size > 0:
        factor_batch(H, column)
        write_pushes(move, H, slots, pushes)
    first_gamma, cursor = 0, batch * rows
    for q in range(factors.size):
        first, count = factors[q], new_axes[q]
        if batch == 1:
            new = np.sqrt(2.0 * gammas[t, first_gamma]) if count > 0 else 0.0
            on_axes = row_part(samples, t, 0, rows)
            length, beyond = sweep_up(C, first, on_axes, new, move, 1.0 if decays else s[first], G, slots, carry)
            for j in range(k):
                for i in range(m):
                    carry[j, i] += s[first] * length * pushes[0, j * m + i]
            sweep_down(C, first, carry, beyond)
        else:
            drawn = row_part(samples, t, cursor, samples.shape[1] - cursor)
            turn_batch_columns(C, first, s[first], row_part(gammas, t, first_gamma, count), drawn, buffers, memory)
            for b in range(scaled.shape[0]):
                cursor += min(b, count)
        first_gamma += count


@kernel
def move_layer(layers: Columns, row: int, gradient: Vector, move: Vector, slots: Slots) -> None:
    """Take the step of one row of `layers` (k, 2, m), 0 for the second layer v and 1 for the biases b, in place.

    `gradient` (m,) is that of the row, and `move` (5,) the row of `moves_of` that updates velocity, value and average.
    """
    k, slot = slots
    for i in range(gradient.size):
        moved = layers[slot, row, i] + move[3] * gradient[i]
        if slot > 0:
            moved += move[2] * layers[0, row, i]
            layers[0, row, i] = move[0] * layers[0, row, i] + move[1] * gradient[i]
        layers[slot, row, i] = moved
        if k > slot + 1:
            layers[slot + 1, row, i] += move[4] * (moved - layers[slot + 1, row, i])


@entry
def take_remembered_steps(
    C: Columns, layers: Columns | None, moves: Matrix, constants: tuple[Slots, Student], axes: Axes, draws: Draws
) -> int:
    """Take one step of SGD with momentum or averages per row of `moves`; return how many were taken before one failed.

    C (k, D, m) and, for a network, `layers` (k, 2, m) hold velocity, value and average, and are overwritten. `moves`
    (steps, 5) are those of `moves_of`, `draws` the samples, gammas and labels of all steps. A step fails if an error is
    infinite or not a number.
    """
    slots, student = constants
    link, motion, _ = student
    k, rows, m = C.shape
    batch, slot, size = draws[2].shape[1], slots.weights, k * m
    work, stack = np.empty((7, size)), np.empty((size + np.append(axes[2], 0).max(), size))
    buffers = (work, np.empty(scratch_size(link, m)), np.empty((batch, m)), np.empty((min(batch, m), size)), stack)
    memory = (np.empty((batch, size)), np.empty((k, m)), np.empty((size, size)))
    W = matrix(C, slot * rows * m, rows, m)
    trained_layers = None if layers is None else matrix(layers, slot * 2 * m, 2, m)
    sums, of_v, of_b = rows_of(work, m), np.empty(m), np.empty(m)
    for t in range(len(moves)):
        if not weigh(W, trained_layers, 1.0 / batch, student, draws, t, buffers):
            return t
        move = row_part(moves, t, 0, 5)
        if layers is not None:
            for i in range(m):
                of_v[i] = motion[5] * layers[slot, 0, i] + motion[2] * motion[0] * sums.of_v[i]
                of_b[i] = motion[3] * motion[0] * layers[slot, 0, i] * sums.of_b[i]
            move_layer(layers, 0, of_v, move, slots)
            move_layer(layers, 1, of_b, move, slots)
        move_columns(C, move, slots, axes, draws, t, buffers, memory, layers is not None)
    return len(moves)


class RememberingEngine(ProjectedEngine):
    """Runs with momentum or averages: "weights" (seeds, k, D, m), "layers" (seeds, k, 2, m) and "steps" (seeds, 1)."""

    def _steps_of(self, problem: Problem, options: EngineOptions) -> tuple[SampledAxes, StudentMotion]:
        """Return the draws of a step, and its kernel; refuse neurons that are not free."""
        self._optimizer = optimizer = cast("SGD", options.optimizer)
        is_free = not is_frame(problem) and (not is_network(problem) or network_of(problem).lengths is None)
        require(
            is_free,
            "Argument `optimizer` must be plain SGD for neurons of kept length, since a buffer has no one meaning for "
            f"a neuron that is brought back to the sphere, but is {optimizer}.",
        )
        slot = int(optimizer.momentum > 0.0)
        self._slots = slots = Slots(slot + 1 + int(optimizer.average is not None), slot)
        axes = SampledAxes(problem, options.batch_size, *slots)
        motion = make_motion(problem, axes)
        start = {name: np.zeros((slots.columns, *array.shape)) for name, array in motion.start.items()}
        for name, array in motion.start.items():  # no buffer, and the weights as their own average
            start[name][slot:] = array
        start["steps"] = np.zeros(1)
        return axes, motion._replace(start=start, take=take_remembered_steps, student=(slots, motion.student))

    def _now(self, name: str) -> Array:
        """Return the current weights or layers of all runs, without their velocity and average."""
        return self._state[name][:, self._slots.weights]

    def measure_average(self) -> tuple[Measurement, Array | None]:
        """Return overlaps of the averages of the weights, and of a network the averages of v and b."""
        if self._optimizer.average is None:
            return super().measure_average()
        layers = self._state.get("layers")
        measurement = self._measured(self._state["weights"][:, -1], student=True)
        return measurement, None if layers is None else layers[:, -1].copy()

    def _take(self, state: list[Array], rates: Array, draws: Draws) -> int:
        """Take steps at the rates η/B (steps,) with one run's arrays, and count them; return how many were taken."""
        *arrays, steps = state
        moves = moves_of(self._optimizer, int(steps[0]), rates * self._axes.batch)
        taken = super()._take(arrays, moves, draws)
        steps += taken
        return taken
