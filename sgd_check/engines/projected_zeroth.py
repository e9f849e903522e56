"""Zeroth-order SGD that never sees d: exact in law, in projections of the samples and of the directions alone.

`docs/engines.md` has the equations. A layer whose rate is 0 has no direction, a layer of rate ε moves by ε η, and w_i
and v_i shrink by their decays beside the step. A row of `samples` has B samples of r + m numbers, the entries of their
factor below the diagonal, K directions, each axis by axis and, if v or b is trained, on those of v and of b, and the
entries of T below the diagonal; `gammas` are half the squares on the diagonals of the factor and of T. Rates are η/B.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from dynamics.kernels.jit import entry, inlined_kernel, kernel, row_part, vector
from dynamics.problem import Problem, is_frame, is_network
from dynamics.problem.checks import check_memory, require
from dynamics.problem.optimizers import ZerothOrder
from hermite.arrays import Integers, Matrix, Vector
from sgd_check.engines.problem_forms import check_smoothing, network_of
from sgd_check.engines.projected import (
    Buffers,
    Draws,
    Layers,
    ProjectedEngine,
    SampledAxes,
    Student,
    StudentMotion,
    factor_batch,
    make_motion,
    rows_of,
    triangular_factor,
    weigh,
)
from sgd_check.engines.registry import EngineOptions
from sgd_check.engines.sampled_links import scratch_size, write_link
from sgd_check.engines.seeded_runs import StepDraws

#: The student, its motion s, whether w, v and b are trained, and no decays; their rates, the decays of w and v, and ε.
Constants = tuple[Student, Vector]
#: Places in the layout of the draws: K, n, columns of T, numbers of v and b, the first number of the directions.
DIRECTIONS, NEW, LEFT, LAYER_NUMBERS, FIRST = range(5)


@kernel
def write_factor(N: Matrix, draws: Draws, t: int, cursor: int) -> None:
    """Write the Bartlett factor N (rows, new) of the samples of step t on axes that no neuron had before.

    N is lower-trapezoidal: √(2 gamma) on its diagonal, and below it N(0, 1) numbers, row by row, from column `cursor`
    of row t of the samples on.
    """
    samples, gammas, _ = draws
    for b in range(N.shape[0]):
        for q in range(N.shape[1]):
            N[b, q] = np.sqrt(2.0 * gammas[t, q]) if b == q else 0.0
            if q < b:
                N[b, q] = samples[t, cursor]
                cursor += 1


@inlined_kernel
def write_gradient(W: Matrix, N: Matrix, samples: Matrix, t: int, buffers: Buffers, gradient: Matrix) -> None:
    """Write the gradient of the batch loss times the learning rate, column i for the weights of neuron i.

    `gradient` (axes + new, m) has the axes of W (axes, m) first, then the new axes, on which the samples are N (B,
    new). `work` and H (B, m) hold what `projected.weigh` wrote for batch t; H is overwritten.
    """
    work, _, H, _, _ = buffers
    axes, m = W.shape
    rows = rows_of(work, m)
    for c in range(axes):
        for i in range(m):
            gradient[c, i] = (1.0 - rows.keep[i]) * W[c, i]
        for b in range(H.shape[0]):
            for i in range(m):
                gradient[c, i] += samples[t, b * axes + c] * H[b, i]
    factor_batch(H, rows.column)
    for q in range(N.shape[1]):
        for i in range(m):
            gradient[axes + q, i] = 0.0
        for b in range(q, N.shape[0]):
            for i in range(m):
                gradient[axes + q, i] += N[b, q] * H[b, i]


@inlined_kernel
def write_slopes(gradient: Matrix, layout: Integers, samples: Matrix, t: int, slopes: Vector) -> None:
    """Write η ∇·z_k, the learning rate times the slope of the loss along each random direction z_k, to `slopes`.

    `gradient` (axes + new, m) is η ∇, and `layout` tells where the directions begin in row t of `samples`.
    """
    size = gradient.size
    flat = vector(gradient, 0, size)
    for k in range(slopes.size):
        z = row_part(samples, t, layout[FIRST] + k * (size + layout[LAYER_NUMBERS]), size)
        total = 0.0
        for j in range(size):
            total += flat[j] * z[j]
        slopes[k] = total


@kernel
def write_quotients(  # noqa: PLR0912 (loops over entries)
    W: Matrix, layers: Matrix, N: Matrix, rate: float, constants: Constants, layout: Integers, draws: Draws, t: int,
    buffers: Buffers, slopes: Vector,
) -> None:  # fmt: skip
    """Write η [ℓ(w + εz_k) − ℓ(w − εz_k)]/2ε of a network for each direction z_k to `slopes` (directions,).

    ℓ is the mean over batch t of half the squared error, w all trained weights, ε the smoothing, `rate` η/B. W (axes,
    m) are the weights of the first layer and `layers` (2, m) the second layer v and the biases b; N (B, new) holds the
    samples on new axes. `layout` tells where the directions lie in a row of samples.
    """
    (link, motion, _), motions = constants
    samples, _, labels = draws
    work, scratch, _, _, _ = buffers
    axes, m = W.shape
    new, epsilon, empty = N.shape[1], motions[5], vector(scratch, 0, 0)
    inside, along, shifted = row_part(work, 0, 0, m), row_part(work, 1, 0, m), row_part(work, 2, 0, m)
    value = row_part(work, 3, 0, m)
    size = (axes + new) * m
    slopes[:] = 0.0
    for b in range(labels.shape[1]):
        for i in range(m):
            inside[i] = layers[1, i]
        for c in range(axes):
            for i in range(m):
                inside[i] += W[c, i] * samples[t, b * axes + c]
        for k in range(slopes.size):
            z = row_part(samples, t, layout[FIRST] + k * (size + layout[LAYER_NUMBERS]), size + layout[LAYER_NUMBERS])
            along[:] = 0.0
            for c in range(axes + new):
                coordinate = samples[t, b * axes + c] if c < axes else N[b, c - axes]
                for i in range(m):
                    along[i] += motion[1] * coordinate * z[c * m + i]
            if layout[LAYER_NUMBERS] > 0:
                for i in range(m):
                    along[i] += motion[3] * z[size + m + i]
            error_sum, error_difference = 0.0, 0.0
            for sign in (1.0, -1.0):
                for i in range(m):
                    shifted[i] = inside[i] + sign * epsilon * along[i]
                write_link(link, shifted, value, empty, scratch)
                output = 0.0
                for i in range(m):
                    v = layers[0, i]
                    if layout[LAYER_NUMBERS] > 0:
                        v += sign * epsilon * motion[2] * z[size + i]
                    output += v * value[i]
                error = motion[0] * output - labels[t, b]
                error_sum += error
                error_difference += sign * error
            slopes[k] += rate * error_sum * error_difference / (4.0 * epsilon)


@inlined_kernel
def move_along(  # noqa: PLR0912 (loops over entries)
    W: Matrix, slopes: Vector, rate: float, keep: float, layout: Integers, draws: Draws, t: int, moved: Matrix,
    stack: Matrix, products: Vector,
) -> bool:  # fmt: skip
    """Take the step W ← keep W − (rate/K) Σ_k slope_k z_k, in turned axes; return whether all slopes are finite.

    K is the number of random directions z_k and `slopes` (K,) are η times the slopes of the loss along them; `rate` is
    the rate of the first layer over that of the step, `keep` 1 less the decay of the step. W (axes, m) is overwritten,
    its last m rows by a triangular factor. `moved` (axes + new, m) receives (rate/K) Σ_k slope_k z_k; `stack` and
    `products` are scratch.
    """
    samples, gammas, _ = draws
    axes, m = W.shape
    new, left, size = layout[NEW], layout[LEFT], moved.size
    r, flat, square = axes - m, vector(moved, 0, moved.size), 0.0
    flat[:] = 0.0
    for k in range(slopes.size):
        z = row_part(samples, t, layout[FIRST] + k * (size + layout[LAYER_NUMBERS]), size)
        step = rate * slopes[k] / slopes.size
        square += step * step
        for j in range(size):
            flat[j] += step * z[j]
    if not square < np.inf:
        return False
    for c in range(r):
        for i in range(m):
            W[c, i] = keep * W[c, i] - moved[c, i]
    for j in range(m):
        for i in range(m):
            stack[j, i] = keep * W[r + j, i] - moved[r + j, i]
    for j in range(new):
        for i in range(m):
            stack[m + j, i] = moved[axes + j, i]
    length = np.sqrt(square)
    cursor = layout[FIRST] + slopes.size * (size + layout[LAYER_NUMBERS])
    for i in range(m):
        for j in range(left):
            stack[m + new + j, i] = length * np.sqrt(2.0 * gammas[t, new + j]) if i == j else 0.0
            if j < i:
                stack[m + new + j, i] = length * samples[t, cursor]
                cursor += 1
    # The sign of the new axes is free, as that of T is.
    triangular_factor(stack, stack.shape[0], products)
    for j in range(m):
        for i in range(m):
            W[r + j, i] = stack[j, i] if i >= j else 0.0
    return True


@entry
def take_zeroth_steps(
    W: Matrix, layers: Layers, rates: Vector, constants: Constants, layout: Integers, draws: Draws
) -> int:
    """Take one zeroth-order step per learning rate; return how many were taken before one failed.

    W (axes, m) and, for a network, `layers` (2, m) with second layer and biases are overwritten. `rates` (steps,) are
    η/B, `layout` tells where the random directions lie in a row of samples (`DirectionAxes`). A step fails if an error
    or a slope is infinite or not a number.
    """
    student, motions = constants
    link, motion, _ = student
    samples, _, labels = draws
    (axes, m), batch = W.shape, labels.shape[1]
    work, H, stack = np.empty((7, m)), np.empty((batch, m)), np.empty((m + layout[NEW] + layout[LEFT], m))
    buffers = (work, np.empty(scratch_size(link, m)), H, H, stack)
    moved, slopes = np.empty((axes + layout[NEW], m)), np.empty(layout[DIRECTIONS])  # Σ_k q_k z_k, and q_k
    rows, N = rows_of(work, m), np.empty((batch if motions[5] > 0.0 else min(batch, m), layout[NEW]))
    length = moved.size + layout[LAYER_NUMBERS]
    for t in range(rates.size):
        write_factor(N, draws, t, batch * axes)
        if layers is not None and motions[5] > 0.0:
            write_quotients(W, layers, N, rates[t], constants, layout, draws, t, buffers, slopes)
        elif not weigh(W, layers, rates[t], student, draws, t, buffers):
            return t
        else:
            write_gradient(W, N, samples, t, buffers, moved)
            write_slopes(moved, layout, samples, t, slopes)
            if layers is not None:
                for k in range(slopes.size if layout[LAYER_NUMBERS] > 0 else 0):
                    layer_direction = row_part(samples, t, layout[FIRST] + k * length + moved.size, 2 * m)
                    for i in range(m):
                        slopes[k] += motion[2] * motion[0] * rows.of_v[i] * layer_direction[i]
                        slopes[k] += motion[3] * motion[0] * layers[0, i] * rows.of_b[i] * layer_direction[m + i]
        keep = 1.0 - batch * rates[t] * motions[3]
        if not move_along(W, slopes, motions[0], keep, layout, draws, t, moved, stack, rows.column):
            return t
        if layers is not None:
            for i in range(m):
                layers[0, i] *= 1.0 - batch * rates[t] * motions[4]
            for k in range(slopes.size if layout[LAYER_NUMBERS] > 0 else 0):
                layer_direction = row_part(samples, t, layout[FIRST] + k * length + moved.size, 2 * m)
                for i in range(m):
                    layers[0, i] -= motions[1] * slopes[k] / slopes.size * layer_direction[i]
                    layers[1, i] -= motions[2] * slopes[k] / slopes.size * layer_direction[m + i]
    return rates.size


class DirectionAxes(SampledAxes):
    """The axes on which a step draws samples and directions, and its draws, `drawn`; `axes` is their layout."""

    def __init__(
        self, problem: Problem, batch: int, directions: int, layer_numbers: int, *, every_sample: bool
    ) -> None:
        """Count the axes and the random numbers of a step of `batch` samples along `directions` random directions.

        `layer_numbers` is the number of further normal numbers per direction, for second layer and biases, and
        `every_sample` says that all samples are kept rather than min(B, m) combinations of them. `axes` becomes
        (directions, new axes of samples, new axes of directions, layer_numbers, place of the first direction among the
        normal numbers). ValueError is raised if the numbers do not fit in memory.
        """
        super().__init__(problem, batch)
        m, size = problem.width, self.size
        beyond, rows = problem.dimension - size, batch if every_sample else min(batch, m)
        new = min(rows, beyond)
        left = min(m, beyond - new)
        first = batch * size + _below(rows, new)
        numbers = first + directions * (m * (size + new) + layer_numbers) + _below(m, left)
        # SteppedRuns draws at least 16 steps at a time.
        name, asked = ("directions", directions) if numbers > 2 * first else ("batch_size", batch)
        check_memory(name, asked, 16 * numbers)
        self.axes = np.array([directions, new, left, layer_numbers, first], dtype=np.int64)
        shapes = 0.5 * np.concatenate([beyond - np.arange(new), beyond - new - np.arange(left)]).astype(np.float64)
        sample_operations = 4 * batch * m * size if not every_sample else 2 * batch * directions * m * (size + new)
        operations = sample_operations + 4 * directions * m * (size + new) + 2 * m * m * (m + new + left)
        self.drawn = StepDraws(batch, numbers, shapes, gammas=shapes.size, operations=operations)


def _below(rows: int, columns: int) -> int:
    """Return the number of entries of a lower-trapezoidal matrix below its diagonal."""
    return sum(min(row, columns) for row in range(rows))


class DirectionsEngine(ProjectedEngine):
    """Runs with steps along random directions; their state is that of plain SGD."""

    def _steps_of(self, problem: Problem, options: EngineOptions) -> tuple[DirectionAxes, StudentMotion]:
        """Return the draws of a step, and its kernel; raise ValueError for problems that this engine cannot take."""
        optimizer = cast("ZerothOrder", options.optimizer)
        is_finite = optimizer.smoothing > 0.0
        require(
            problem.inputs is None,
            f"Argument `engine` must be 'torch' for {optimizer} and inputs that are not isotropic, but is 'projected'.",
        )
        network = network_of(problem) if is_network(problem) else None
        require(
            not is_frame(problem) and (network is None or network.lengths is None),
            "Argument `optimizer` must be plain SGD for neurons that keep their length, since directions are not "
            f"tangent to the sphere, but is {optimizer}.",
        )
        if network is None:
            require(
                not is_finite,
                f"Argument `engine` must be 'torch' for {optimizer} and homogeneous neurons, since the lengths of "
                "directions on all axes enter the losses there, but is 'projected'.",
            )
            scale, rates, decay = 1.0, (1.0, 0.0, 0.0), (0.0, 0.0)
        else:
            check_smoothing(optimizer, "float64")
            scale, rates, decay = network.scale, network.rates, network.decay
        trained = np.sign(rates)
        layer_numbers = 2 * problem.width if trained[1:].any() else 0
        axes = DirectionAxes(problem, options.batch_size, optimizer.directions, layer_numbers, every_sample=is_finite)
        motion = make_motion(problem, axes)
        # No decay, which the steps take apart, and the squared loss.
        student = (motion.student[0], np.array([scale, *trained, 0.0, 0.0, 0.0]), np.empty(0))
        motions = np.array([*rates, *decay, optimizer.smoothing / np.sqrt(problem.dimension)])
        return axes, motion._replace(take=take_zeroth_steps, student=(student, motions))
