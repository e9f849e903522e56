"""Online SGD that never sees d: exact in law, in the projections of the samples alone (`docs/engines.md`).

*A teacher* f* is (a, β, θ, groups, links): coefficients a (units,), biases β (units,) and directions θ (units, r) of
units that are sorted by their links; θ has no row where unit p looks at axis p. Row l of `groups` holds the first unit
of link l and the place of that link in `links`, the last row the numbers of units and of entries of `links`. Of a
polynomial there are no units, and `links` is its program.

*State*: W (D, m), column i the whitened coordinates of neuron i: on the teacher's axes, on those of classes with at
most m more, then for every other class on the m rows of its factor, so that W[first + j, i] = 0 for j > i; of a network
v and b, the rows of `layers`. A step w_i ← g_i w_i − Σ_b h_ib x_b draws the sample in those axes and in new ones, which
`move` turns away. `axes` holds the eigenvalues (D,) of the rows, the first row of each factor, and their new axes.

*Draws* are `samples`, `gammas` and `labels` (steps, B), first their noise. A row of samples has B samples of D numbers
N(0, 1), then for B > 1 and every factor the entries of its Bartlett factor below the diagonal; gammas are half the
squares of those on it, for B = 1 half the squared length in all other axes of the class. `buffers` are `work` (7, m),
which holds `WorkRows`, scratch of links, H (B, m), memory of its shape, and `stack`. `motion` holds s, ε_w, ε_v, ε_b,
κ_w, κ_v; `radii` (m,) are lengths to go back to. All rates are η/B. An entry returns how many steps were taken before
one was not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dynamics.equations.network.points import loss_at
from dynamics.kernels.jit import entry, inlined_kernel, kernel, row_part, vector
from dynamics.problem import Problem, is_frame, is_network
from dynamics.problem.losses import OBJECTIVES, VALUE
from hermite.arrays import Array, Integers, Matrix, Vector
from hermite.text.messages import require
from sgd_check.engines.class_labels import draws_labels, write_classes
from sgd_check.engines.problem_forms import network_of
from sgd_check.engines.programs import FIRST, REGISTERS, polynomial_program
from sgd_check.engines.registry import EngineOptions, Measurement, SampleReplay, measured
from sgd_check.engines.sampled_links import both_at, run_program, sampled_link, scratch_size, write_link
from sgd_check.engines.seeded_runs import AXES, LABEL_NOISE, StepDraws, SteppedRuns, generators

Teacher = tuple[Vector, Vector, Matrix, Integers, Vector]

# Samples that are labelled at a time.
CHUNK = 256
# Steps whose samples are drawn again at a time.
REPLAYED_STEPS = 2**13


def teacher_of(problem: Problem) -> Teacher:
    """Return the teacher of a problem as arrays (a, β, θ, groups, links) for compiled code.

    The teacher is f*(x) = Σ_p a_p σ_p(θ_p·x + β_p) with its units sorted by link: a and β (units,), θ (units, r), or
    (0, r) if unit p looks at axis p and all have one link. Row l of `groups` (links + 1, 2) holds the first unit of
    link l and where its data begin in the flat array `links`; the last row holds the numbers of units and of entries of
    `links`. A polynomial teacher has no units, no groups, and `links` is the program that evaluates it.
    """
    teacher, network = problem.teacher, is_network(problem)
    if teacher.target is not None:
        empty, program = np.empty(0), polynomial_program(teacher.target.exponents, teacher.target.powers)
        return empty, empty, np.empty((0, teacher.span)), np.zeros((0, 2), dtype=np.int64), np.array(program)
    units_of_teacher = teacher.units(problem.teacher_link)
    links = list(dict.fromkeys(unit.link for unit in units_of_teacher))
    units = sorted(units_of_teacher, key=lambda unit: links.index(unit.link))
    data = [sampled_link(link, anywhere=network, slope=not network)[0] for link in links]
    first = [[unit.link for unit in units].index(link) for link in links]
    groups = np.stack([[*first, len(units)], np.cumsum([0, *(link.size for link in data)])], axis=1)
    a, biases = np.array([(unit.coefficient, unit.bias) for unit in units]).T.copy()
    axes_alone = teacher.directions is None and len(links) == 1
    directions = np.empty((0, teacher.span)) if axes_alone else np.array([unit.direction for unit in units])
    return a, biases, directions, groups.astype(np.int64), np.concatenate(data)


@entry
def write_labels(teacher: Teacher, axes: int, samples: Matrix, labels: Vector, batch: int) -> None:
    """Add the teacher's output f*(x) to every entry of `labels`, in place.

    `samples` has one row per step, in which the r teacher coordinates of sample b begin in column b · axes, where
    `axes` is the number of coordinates of a sample. `labels` (steps · B,) has the B = `batch` samples of one step after
    another; before the call it holds their noise. `teacher` is the result of `teacher_of`.
    """
    a, biases, directions, groups, links = teacher
    r = directions.shape[1]
    rows = max(CHUNK // batch, 1)
    z, values, empty = np.empty(rows * batch), np.empty(rows * batch), np.empty(0)
    registers = np.empty(rows * batch * (int(links[REGISTERS]) if a.size == 0 else r))
    for first in range(0, samples.shape[0], rows):
        last, begin = min(first + rows, samples.shape[0]), first * batch
        size = (last - first) * batch
        for t in range(first, last):
            for b in range(batch):
                for c in range(r):
                    registers[c * size + (t - first) * batch + b] = samples[t, b * axes + c]
        if a.size == 0:
            run_program(links, 0, registers, size)
            result = size * int(links[FIRST])
            for n in range(size):
                labels[begin + n] += registers[result + n]
        for g in range(groups.shape[0] - 1):
            link = vector(links, groups[g, 1], groups[g + 1, 1] - groups[g, 1])
            scratch = np.empty(scratch_size(link, size))
            for p in range(groups[g, 0], groups[g + 1, 0]):
                for n in range(size):
                    z[n] = biases[p] + (registers[p * size + n] if directions.shape[0] == 0 else 0.0)
                    for c in range(r if directions.shape[0] > 0 else 0):
                        z[n] += directions[p, c] * registers[c * size + n]
                write_link(link, vector(z, 0, size), values, empty, scratch)
                for n in range(size):
                    labels[begin + n] += a[p] * values[n]


Draws = tuple[Matrix, Matrix, Matrix]
Buffers = tuple[Matrix, Vector, Matrix, Matrix, Matrix]
Axes = tuple[Vector, Integers, Integers]
#: Link, `motion` and `radii`, the last without entries if neurons are free, both for homogeneous ones.
Student = tuple[Vector, Vector, Vector]
#: Rows v and b of a network.
Layers = Matrix | None


class WorkRows(NamedTuple):
    """Rows (m,) of `work`."""

    #: w·x, of homogeneous neurons over |w|.
    along: Vector
    #: Of networks Σ_b σ e and Σ_b σ' e times η/B; of homogeneous neurons |w| and σ. The latter then holds plain g.
    of_v: Vector
    of_b: Vector
    #: σ'.
    slope: Vector
    #: g, and h; before it, of networks, w·x + b.
    keep: Vector
    push: Vector
    #: Carries columns; before it, of networks, σ.
    column: Vector


@inlined_kernel
def rows_of(work: Matrix, m: int) -> WorkRows:
    """Return views of the first m numbers of the seven rows of `work`, under their names in `WorkRows`."""
    return WorkRows(
        row_part(work, 0, 0, m), row_part(work, 1, 0, m), row_part(work, 2, 0, m), row_part(work, 3, 0, m),
        row_part(work, 4, 0, m), row_part(work, 5, 0, m), row_part(work, 6, 0, m),
    )  # fmt: skip


@inlined_kernel
def weigh_homogeneous(W: Matrix, rate: float, link: Vector, draws: Draws, t: int, buffers: Buffers) -> bool:
    """Write how strongly each sample of batch t pushes each homogeneous neuron; return whether every error is finite.

    The student is f(x) = Σ_i |w_i|² σ(z_i), z_i = w_i·x/|w_i|. With the error e_b of sample b and `rate` = η/B, the
    push of neuron i along sample b is H[b, i] = (η/B) e_b |w_i| σ'(z_i), and the factor of its own weights in the step
    is g_i = 1 − (η/B) Σ_b e_b (2 σ(z_i) − z_i σ'(z_i)), in the row `keep` of `work`. Both are overwritten.
    """
    samples, _, labels = draws
    work, scratch, H, _, _ = buffers
    axes, m = W.shape
    z, rho, value, slope, g, _, _ = rows_of(work, m)
    rho[:] = 0.0
    for c in range(axes):
        for i in range(m):
            rho[i] += W[c, i] * W[c, i]
    for i in range(m):
        rho[i] = np.sqrt(rho[i])
        g[i] = 1.0
    for b in range(labels.shape[1]):
        z[:] = 0.0
        for c in range(axes):
            coordinate = samples[t, b * axes + c]
            for i in range(m):
                z[i] += W[c, i] * coordinate
        for i in range(m):
            z[i] /= rho[i]
        write_link(link, z, value, slope, scratch)
        output = 0.0
        for i in range(m):
            output += rho[i] * rho[i] * value[i]
        step = rate * (output - labels[t, b])
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            g[i] -= step * (2.0 * value[i] - z[i] * slope[i])
            H[b, i] = step * rho[i] * slope[i]
    return True


@kernel
def turn_back(W: Matrix, first: int, samples: Matrix, t: int, new: float, work: Matrix) -> None:
    """Bring the factor of [g L − h (x | new)] back to lower-triangular form by two sweeps of Givens rotations.

    L is the m x m lower-triangular factor of the m neurons in one eigenvalue class of the inputs, g and h (m,) are the
    factors of a step of one sample, x holds the sample on the m axes of L, and `new` is its length on all other axes of
    the class. L begins in row `first` of W, x in column `first` of row t of `samples`. The first sweep, from the last
    axis on, turns (x | new) into a multiple of the first axis, which leaves one entry above the diagonal of L per row;
    the second removes it. The column that both share is carried along in the last row of `work`, after g and h.
    """
    m = W.shape[1]
    _, _, _, _, g, h, column = rows_of(work, m)
    for i in range(m):
        column[i] = 0.0
    square, before, beyond = new * new, abs(new), 0.0
    for j in range(m - 1, -1, -1):
        k = first + j
        y = samples[t, k]
        square += y * y
        length = np.sqrt(square)
        cos, sin = (y / length, before / length) if length > 0.0 else (1.0, 0.0)
        if j == m - 1:
            entry_of_last = g[j] * W[k, j]
            beyond = -sin * entry_of_last
            column[j] = cos * entry_of_last
        else:
            for i in range(j, m):
                ours = g[i] * W[k, i]
                theirs = column[i]
                column[i] = cos * ours + sin * theirs
                W[k + 1, i] = cos * theirs - sin * ours
        before = length
    for i in range(m):
        column[i] -= h[i] * before
    for j in range(m - 1):
        k = first + j
        ours, theirs = column[j], W[k + 1, j]
        length = np.sqrt(ours * ours + theirs * theirs)
        cos, sin = (ours / length, theirs / length) if length > 0.0 else (1.0, 0.0)
        W[k, j] = length
        W[k + 1, j] = 0.0
        for i in range(j + 1, m):
            ours, theirs = column[i], W[k + 1, i]
            W[k, i] = cos * ours + sin * theirs
            column[i] = cos * theirs - sin * ours
    W[first + m - 1, m - 1] = np.sqrt(column[m - 1] * column[m - 1] + beyond * beyond)


@kernel
def triangular_factor(A: Matrix, rows: int, products: Vector) -> None:
    """Overwrite the first m of `rows` rows of A (·, m) by the triangle R of A = Q R, by Householder reflections.

    Entries on and above the diagonal are R; those below it are left without meaning. `products` is scratch of m
    numbers.
    """
    m = A.shape[1]
    for j in range(m):
        square = 0.0
        for k in range(j, rows):
            square += A[k, j] * A[k, j]
        if square == 0.0:
            continue
        length = np.sqrt(square)
        diagonal = -length if A[j, j] > 0.0 else length
        A[j, j] -= diagonal
        scale = -1.0 / (diagonal * A[j, j])
        for i in range(j + 1, m):
            products[i] = 0.0
        for k in range(j, rows):
            v = A[k, j]
            for i in range(j + 1, m):
                products[i] += v * A[k, i]
        for k in range(j, rows):
            v = scale * A[k, j]
            for i in range(j + 1, m):
                A[k, i] -= v * products[i]
        A[j, j] = diagonal


@kernel
def factor_batch(H: Matrix, products: Vector) -> None:
    """Overwrite H (B, m), if it has more samples than neurons, by its triangular factor, with zeros below."""
    batch, m = H.shape
    if batch > m:
        triangular_factor(H, batch, products)
        for j in range(m):
            for i in range(j):
                H[j, i] = 0.0


@kernel
def turn_batch(
    W: Matrix, first: int, H: Matrix, gammas: Vector, below: Vector, stack: Matrix, products: Vector
) -> None:
    """Add the movement of a batch on new axes to a triangular factor, and turn these axes away again.

    The m neurons have a triangular factor (m, m) that begins in row `first` of W and is overwritten. On axes that no
    neuron had before, the batch moves them by Hᵀ N, where H (B, m) holds the push of each sample on each neuron and is
    overwritten, and N (min(B, m), count) is the lower-trapezoidal Bartlett factor of the samples on these axes: √(2
    gammas) on its diagonal, with `gammas` (count,), and `below`, row by row, under it. `stack` (m + count, m) and
    `products` (m,) are scratch.
    """
    batch, m = H.shape
    count = gammas.size
    for j in range(m):
        for i in range(m):
            stack[j, i] = W[first + j, i]
    if count > 0:
        factor_batch(H, products)
    for q in range(count):
        for i in range(m):
            stack[m + q, i] = 0.0
    cursor = 0
    for b in range(min(batch, m)):
        for q in range(min(b + 1, count)):
            if q == b:
                factor = np.sqrt(2.0 * gammas[b])
            else:
                factor = below[cursor]
                cursor += 1
            for i in range(m):
                stack[m + q, i] += factor * H[b, i]
    triangular_factor(stack, m + count, products)
    for j in range(m):
        for i in range(m):
            W[first + j, i] = stack[j, i] if i >= j else 0.0


@inlined_kernel
def weigh_class(s: float, plain: Vector, g: Vector) -> None:
    """Write the factors g_i = 1 − s + s · plain_i of the weights on axes whose inputs have variance s.

    `plain` (m,) are the factors for inputs of variance 1.
    """
    for i in range(g.size):
        g[i] = (1.0 - s) + s * plain[i]


@inlined_kernel
def move(  # noqa: PLR0912 (loops over entries)
    W: Matrix, axes: Axes, draws: Draws, t: int, buffers: Buffers, decays: bool
) -> None:
    """Take the step of batch t, w_i ← g_i w_i − Σ_b h_ib x_b, and turn its new axes away so that W keeps its form.

    On an axis of variance s, h_ib is s H[b, i] and g_i is `weigh_class`(s) of the factors in `work`; with `decays`, as
    for networks, g is the same on every axis. W (D, m) is overwritten. `axes` holds the variance (D,) of each row of W,
    the first row of each triangular factor, and the number of new axes of each; `draws` the samples, gammas and labels
    of all steps.
    """
    s, factors, new_axes = axes
    samples, gammas, _ = draws
    work, _, H, pushes, stack = buffers
    rows, m = W.shape
    batch = H.shape[0]
    _, _, plain, _, g, h, products = rows_of(work, m)
    for i in range(m):
        plain[i] = g[i]
    # The rows of factors are moved while they are turned if there is one sample.
    for c in range(rows if batch > 1 or factors.size == 0 else factors[0]):
        if c == 0 or s[c] != s[c - 1]:
            weigh_class(1.0 if decays else s[c], plain, g)
        coordinate = s[c] * samples[t, c]
        for i in range(m):
            W[c, i] = g[i] * W[c, i] - coordinate * H[0, i]
        for b in range(1, batch):
            coordinate = s[c] * samples[t, b * rows + c]
            for i in range(m):
                W[c, i] -= coordinate * H[b, i]
    first_gamma, cursor = 0, batch * rows
    for q in range(factors.size):
        first, count = factors[q], new_axes[q]
        if batch == 1:
            weigh_class(1.0 if decays else s[first], plain, g)
            for i in range(m):
                h[i] = s[first] * H[0, i]
            turn_back(W, first, samples, t, np.sqrt(2.0 * gammas[t, first_gamma]) if count > 0 else 0.0, work)
        else:
            for b in range(batch):
                for i in range(m):
                    pushes[b, i] = s[first] * H[b, i]
            drawn = row_part(samples, t, cursor, samples.shape[1] - cursor)
            turn_batch(W, first, pushes, row_part(gammas, t, first_gamma, count), drawn, stack, products)
            for b in range(min(batch, m)):
                cursor += min(b, count)
        first_gamma += count


@entry
def take_lone_steps(W: Matrix, _layers: Layers, rates: Vector, student: Student, axes: Axes, draws: Draws) -> int:
    """Take the steps of one homogeneous neuron against one teacher axis, in a third of the time of `take_steps`.

    W (2, 1) holds the coordinate of the neuron on the teacher's axis and the length of its rest, and is overwritten;
    `rates` (steps,) are the learning rates of batches of one sample. Return how many steps were taken before one
    failed.
    """
    link, (samples, gammas, labels) = student[0], draws
    scratch = np.empty(scratch_size(link, 1))
    w1, w2 = W[0, 0], W[1, 0]
    for t in range(rates.size):
        x, y = samples[t, 0], samples[t, 1]
        square = w1 * w1 + w2 * w2
        rho = np.sqrt(square)
        z = (w1 * x + w2 * y) / rho
        value, slope = both_at(link, z, scratch)
        step = rates[t] * (square * value - labels[t, 0])
        if not abs(step) < np.inf:
            return t
        g, h = 1.0 - step * (2.0 * value - z * slope), step * rho * slope
        w1 = g * w1 - h * x
        new_w2 = g * w2 - h * y
        w2 = np.sqrt(new_w2 * new_w2 + 2.0 * h * h * gammas[t, 0]) if gammas.shape[1] > 0 else abs(new_w2)
    W[0, 0], W[1, 0] = w1, w2
    return rates.size


@inlined_kernel
def weigh_network(
    W: Matrix, layers: Matrix, rate: float, student: Student, draws: Draws, t: int, buffers: Buffers
) -> bool:
    """Write how strongly each sample of batch t pushes each neuron of a network; return whether every error is finite.

    The student is f(x) = s Σ_i v_i σ(w_i·x + b_i), with rows v and b of `layers` (2, m). With the error e of a sample,
    under another loss its slope ∂ℓ/∂f, and `rate` = η/B, H[b, i] = (η/B) ε_w s e v_i σ'_i is the push on w_i along
    sample b, ε_w the relative rate of the first layer. Rows of `work` receive the sums (η/B) Σ e σ_i (`of_v`) and
    (η/B) Σ e σ'_i (`of_b`) over the batch, and the factor g_i of the weights (`keep`): 1 less their decay, or, for
    neurons of kept length, the one that makes the step tangent.
    """
    link, motion, radii = student
    samples, _, labels = draws
    work, scratch, H, _, _ = buffers
    axes, m = W.shape
    batch = labels.shape[1]
    along, of_v, of_b, slope, g, inside, value = rows_of(work, m)
    for i in range(m):
        of_v[i] = 0.0
        of_b[i] = 0.0
        g[i] = 1.0 if radii.size > 0 else 1.0 - batch * rate * motion[4]
    for b in range(batch):
        along[:] = 0.0
        for c in range(axes):
            coordinate = samples[t, b * axes + c]
            for i in range(m):
                along[i] += W[c, i] * coordinate
        for i in range(m):
            inside[i] = along[i] + layers[1, i]
        write_link(link, inside, value, slope, scratch)
        output = 0.0
        for i in range(m):
            output += layers[0, i] * value[i]
        step = rate * (motion[0] * output - labels[t, b])
        if motion[6] > 0.0:
            step = rate * loss_at(int(motion[6]), motion[0] * output, labels[t, b], motion, 0, 0)[1]
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            of_v[i] += step * value[i]
            of_b[i] += step * slope[i]
            H[b, i] = motion[1] * motion[0] * step * layers[0, i] * slope[i]
        for i in range(radii.size):
            g[i] += H[b, i] * along[i] / (radii[i] * radii[i])
    return True


@kernel
def put_back(W: Matrix, radii: Vector, factors: Vector) -> None:
    """Scale the columns of W (D, m) in place, one per neuron, to the lengths `radii`; do nothing if `radii` is empty.

    `factors` is scratch of m numbers.
    """
    factors[:] = 0.0
    for c in range(W.shape[0]):
        for i in range(radii.size):
            factors[i] += W[c, i] * W[c, i]
    for i in range(radii.size):
        factors[i] = radii[i] / np.sqrt(factors[i])
    for c in range(W.shape[0]):
        for i in range(radii.size):
            W[c, i] *= factors[i]


@inlined_kernel
def weigh(W: Matrix, layers: Layers, rate: float, student: Student, draws: Draws, t: int, buffers: Buffers) -> bool:
    """Write the pushes H and factors g of the student for batch t into `buffers`; return whether every error is finite.

    `layers` (2, m) are second layer and biases of a network (`weigh_network`), None for homogeneous neurons
    (`weigh_homogeneous`). `rate` is η/B.
    """
    if layers is None:  # the other branch is not compiled then
        return weigh_homogeneous(W, rate, student[0], draws, t, buffers)
    return weigh_network(W, layers, rate, student, draws, t, buffers)


@entry
def take_steps(W: Matrix, layers: Layers, rates: Vector, student: Student, axes: Axes, draws: Draws) -> int:
    """Take one SGD step per entry of `rates` (steps,), η/B each; return how many were taken before one failed.

    W (D, m) and, for a network, `layers` (2, m) with second layer and biases are overwritten. `draws` are the samples,
    gammas and labels of all steps. A step fails if an error is infinite or not a number. A sample costs O(m² + m r)
    operations, with m neurons and r teacher axes.
    """
    link, motion, radii = student
    batch, m = draws[2].shape[1], W.shape[1]
    work, stack = np.empty((7, m)), np.empty((m + np.append(axes[2], 0).max(), m))
    buffers = (work, np.empty(scratch_size(link, m)), np.empty((batch, m)), np.empty((batch, m)), stack)
    rows = rows_of(work, m)
    for t in range(rates.size):
        if not weigh(W, layers, rates[t], student, draws, t, buffers):
            return t
        if layers is not None:
            for i in range(m):
                layers[1, i] -= motion[3] * motion[0] * layers[0, i] * rows.of_b[i]
                layers[0, i] = (1.0 - batch * rates[t] * motion[5]) * layers[0, i]
                layers[0, i] -= motion[2] * motion[0] * rows.of_v[i]
        move(W, axes, draws, t, buffers, layers is not None)
        if layers is not None:
            put_back(W, radii, rows.column)
    return rates.size


@entry
def take_frame_steps(
    W: Matrix, _layers: Layers, rates: Vector, frame: tuple[Vector, Vector], axes: Axes, draws: Draws
) -> int:
    """Take one step of a frame, orthogonal neurons of one length, per learning rate; return how many were taken.

    W (r + m, m) is overwritten, and so are the samples. `frame` is the teacher's coefficients a (P,) and the length
    (1,) of every neuron; links are h_2(z) = (z² − 1)/√2, and the step keeps the neurons orthogonal. The third part of
    `draws` is the noise of the labels, not the labels.
    """
    a, radius = frame
    samples, gammas, noise = draws
    m = W.shape[1]
    work = np.empty((7, m))
    r = W.shape[0] - m
    sigma = radius[0]
    z, _, _, _, keep, carry, _ = rows_of(work, m)
    for t in range(rates.size):
        x = row_part(samples, t, 0, r + m)
        new = 2.0 * gammas[t, 0] if gammas.shape[1] > 0 else 0.0
        z[:] = 0.0
        square = new
        for c in range(r + m):
            coordinate = x[c]
            square += coordinate * coordinate
            for i in range(m):
                z[i] += W[c, i] * coordinate
        inside = 0.0
        for i in range(m):
            z[i] /= sigma
            inside += z[i] * z[i]
        error = sigma * sigma * (inside - m)
        for p in range(a.size):
            error -= a[p] * (x[p] * x[p] - 1.0)
        b = rates[t] * (error - np.sqrt(2.0) * noise[t, 0])
        outside = max(square - inside, 0.0)
        growth = b * b * outside * inside
        if not growth < np.inf:
            return t
        root = np.sqrt(1.0 + growth)
        beta = b / root
        along = beta - b * b * outside / (root * (1.0 + root))
        for c in range(r + m):
            on_span = 0.0
            for i in range(m):
                on_span += W[c, i] * z[i]
            x[c] = along * on_span / sigma - beta * x[c]
        for i in range(m):
            keep[i], carry[i] = 1.0, -sigma * z[i]
        for c in range(r):
            coordinate = x[c]
            for i in range(m):
                W[c, i] -= carry[i] * coordinate
        # The sign of the new axis is free.
        turn_back(W, r, samples, t, abs(beta) * np.sqrt(new), work)
    return rates.size


class StudentMotion(NamedTuple):
    """The steps of one kind of student: `take` of weights, layers, rates, `student`, axes and draws.

    `teacher` makes the labels, unless the steps do. Overlaps are those with `directions`, or with the axes if None.
    """

    start: dict[str, Array]
    take: Callable[..., int]
    student: Any
    teacher: Teacher | None
    directions: Array | None
    link_name: str


def make_motion(problem: Problem, axes: SampledAxes) -> StudentMotion:
    """Return the start of a problem's student, and the kernel that takes its steps on draws along `axes`."""
    if is_frame(problem):
        frame = (np.array(problem.teacher.coefficients), np.sqrt(problem.start().squared_norm[:1]))
        start = {"weights": axes.start(problem.reduced_weights())}
        return StudentMotion(start, take_frame_steps, frame, None, None, problem.activation.name)
    link, link_name = sampled_link(problem.activation, anywhere=is_network(problem))
    teacher, student = teacher_of(problem), (link, np.empty(0), np.empty(0))
    if is_network(problem):
        network = network_of(problem)
        start = {"weights": axes.start(network.weights), "layers": np.array([network.second_layer, network.bias])}
        loss = OBJECTIVES.index(str(problem.objective))
        motion = np.array([network.scale, *network.rates, *network.decay, loss])
        student = (link, motion, np.empty(0) if network.lengths is None else network.lengths)
        return StudentMotion(start, take_steps, student, teacher, None, link_name)
    start = {"weights": axes.start(problem.reduced_weights())}
    is_lone = axes.batch == 1 and axes.size == 2 and problem.inputs is None and teacher[2].size == 0
    take: Callable[..., int] = take_lone_steps if is_lone else take_steps
    return StudentMotion(start, take, student, teacher, problem.teacher.directions, link_name)


def reduced_factor(weights: Array, span: int) -> Array:
    """Return weights (m, D) as columns (r + m, m), turned beyond the teacher's axes to triangular form."""
    m = weights.shape[0]
    columns = np.zeros((span + m, m))
    columns[:span] = weights[:, :span].T
    factor = np.linalg.qr(weights[:, span:].T).R
    # The sign of an axis is free; a positive diagonal makes the factor unique.
    factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
    columns[span : span + factor.shape[0]] = factor
    return columns


class SampledAxes:
    """The axes on which a step draws samples, and its draws, `drawn`; `count` columns a neuron, weights at `place`."""

    def __init__(self, problem: Problem, batch: int, count: int = 1, place: int = 0) -> None:
        """Count the axes that a step of `batch` samples of a problem needs, and the random numbers that it draws.

        On isotropic inputs rows are the r axes of the teacher, then `count` m axes that hold the rest of all weights; a
        sample has one normal number per row, and its part on the d − r − count m further axes enters by lengths alone,
        square roots of gamma numbers. A neuron has `count` columns, such as weights and a buffer, with the weights in
        column `place`. On inputs of a spectrum each eigenvalue with more than `count` m axes beyond the teacher's has
        that many rows, a factor, which hold the rest; of the other eigenvalues all axes are kept. ValueError is raised
        if the dimension is smaller than the rows.

        Set are `axes` (eigenvalues of the rows, first row of each factor, new axes that a batch adds to each), `size`,
        the number D of rows, and `drawn`, the random numbers of a step.
        """
        m, r, axes = problem.width, problem.teacher.span, problem.input_axes()
        columns, self.batch, self._span, self._whitened = count * m, batch, r, axes is not None
        if axes is None:
            left, first = np.array([problem.dimension - r - columns]), r
            width = "width" if count == 1 else f"{count} · width"
            require(
                left[0] >= 0,
                f"Argument `engine` must be 'torch' for a dimension below {width} + teacher axes = {r + columns}, but "
                f"is 'projected' with dimension {problem.dimension}.",
            )
            eigenvalues = np.ones(r + columns)
            #: Rows of the weights of the start, −1 where these are 0.
            self._rows = np.full(r + columns, -1)
            self._rows[:r], self._rows[r + place :: count] = np.arange(r), r + np.arange(m)
        else:
            beyond = axes.sizes - np.bincount(axes.kind[:r], minlength=axes.sizes.size)
            large = np.flatnonzero(beyond > columns)
            of_factor = np.isin(axes.kind, large)
            of_factor[:r] = False
            plain_axes = np.flatnonzero(~of_factor)
            # Classes without a factor keep all their axes, and the weights of the start have m of them.
            further = np.repeat(np.arange(beyond.size), np.where(beyond > columns, 0, np.maximum(beyond - m, 0)))
            of_factors = np.full((large.size, columns), -1)
            for q, kind in enumerate(large):
                of_factors[q, place::count] = axes.columns(int(kind), r)
            self._rows = np.concatenate([plain_axes, np.full(further.size, -1), of_factors.ravel()])
            kinds = np.concatenate([axes.kind[plain_axes], further, np.repeat(large, columns)])
            left, eigenvalues, first = beyond[large] - columns, axes.eigenvalue[kinds], plain_axes.size + further.size
        samples = min(batch, m)
        new = np.minimum(samples, left).astype(np.int64)
        #: Eigenvalues of the rows, first rows of the factors, new axes of each.
        self.axes: Axes | Integers = (eigenvalues, first + columns * np.arange(left.size, dtype=np.int64), new)
        self.size = eigenvalues.size
        # chi(s − b) is the root of twice a gamma variable of shape (s − b)/2. A lone number is drawn in half the time.
        shapes = [0.5 * (rest - np.arange(count, dtype=np.float64)) for rest, count in zip(left, new, strict=True)]
        gammas = np.concatenate([np.empty(0), *shapes])
        below = sum(min(b, int(count)) for count in new for b in range(samples))
        turning = 6 * columns**2 if batch == 1 else 2 * columns**2 * (columns + samples)
        self.drawn = StepDraws(
            batch,
            numbers=batch * self.size + (below if batch > 1 else 0),
            shapes=float(gammas[0]) if gammas.size == 1 else gammas,
            gammas=gammas.size,
            operations=(4 if axes is None else 8) * batch * columns * self.size + turning * left.size,
        )

    def start(self, reduced: Array) -> Array:
        """Return weights at the start, (D, m), given those that a problem reduces to, (m, axes)."""
        weights = reduced.T if self._whitened else reduced_factor(reduced, self._span)
        return np.where(self._rows[:, None] < 0, 0.0, weights[self._rows])


class ProjectedEngine(SteppedRuns):
    """Runs whose state is "weights" (seeds, D, neurons), and of a network "layers" (seeds, 2, neurons), v and b."""

    def __init__(self, problem: Problem, options: EngineOptions) -> None:
        """Choose axes and kernel for a problem, and put the runs of all seeds at their start.

        Where labels are drawn, given the input, the noise has variance 1, and each label is drawn from its normal
        number.
        """
        self._span = problem.teacher.span
        self._axes, self._motion = axes, motion = self._steps_of(problem, options)
        self._problem = problem
        noise = 1.0 if draws_labels(problem) else problem.label_noise
        super().__init__(options.seeds, motion.start, axes.drawn, noise, motion.link_name)

    def _steps_of(self, problem: Problem, options: EngineOptions) -> tuple[Any, StudentMotion]:
        """Return the draws of a step, and its kernel."""
        axes = SampledAxes(problem, options.batch_size)
        return axes, make_motion(problem, axes)

    def enter(self, problem: Problem) -> None:
        """Go on with the rates of another phase of layer-wise training, those of `problem`."""
        self._motion = make_motion(problem, self._axes)

    def measure(self, *, student: bool) -> Measurement:
        """Return overlaps of all runs in float64; with `student` also those among the neurons."""
        return self._measured(self._now("weights"), student=student)

    def _now(self, name: str) -> Array:
        """Return an array of the weights themselves, of all runs."""
        return self._state[name]

    def _measured(self, weights: Array, *, student: bool) -> Measurement:
        """Return the overlaps of the neurons `weights` (seeds, D, m) with the teacher's directions, and squared norms.

        The first r of the D rows are the teacher's axes. With `student` the overlaps of neurons with each other (seeds,
        m, m) are computed too, which take m² D operations a run; without, that field is None. Weights that overflow
        give inf or NaN.
        """
        # The recorder finds runs that are not finite, such as those whose weights overflow here.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return measured(weights.transpose(0, 2, 1), self._span, self._motion.directions, student=student)

    def layers(self) -> Array:
        """Return the second layer v and the biases b of all runs of a network, shape (seeds, 2, m)."""
        return self._now("layers").copy()

    def _take(self, arrays: list[Array], rates: Array, draws: Draws) -> int:
        """Take steps at `rates` (steps,) with the arrays of one run, on these draws; return how many were taken.

        The labels in `draws` hold their noise before the call, and the teacher's output is added.
        """
        motion, axes = self._motion, self._axes
        samples, _, labels = draws
        if self._problem.labels != VALUE and motion.teacher is not None:
            normals = labels.copy()
            labels[...] = 0.0
            write_labels(motion.teacher, axes.size, samples, labels.ravel(), axes.batch)
            write_classes(self._problem, labels, normals)
        elif motion.teacher is not None:
            write_labels(motion.teacher, axes.size, samples, labels.ravel(), axes.batch)
        weights, layers = arrays if len(arrays) > 1 else (arrays[0], None)
        return int(motion.take(weights, layers, rates, motion.student, axes.axes, draws))


def make_replay(problem: Problem) -> SampleReplay:
    """Return the samples of runs of plain SGD on isotropic inputs, with batches of one, as they are drawn from a seed.

    `start` of the result holds the weights at the start as columns (r + m, m); `draws(seed, steps)` yields, block by
    block, the coordinates of samples (block, r + m) on the same axes and the noise of their labels (block,).
    """
    start = reduced_factor(problem.reduced_weights(), problem.teacher.span)

    def draws(seed: int, steps: int) -> Iterator[tuple[Array, Array]]:
        """Yield samples on the kept axes (block, axes) and label noise (block,) of a run, in the order of its steps."""
        axes, labels = generators(seed, (AXES, LABEL_NOISE))
        for begin in range(0, steps, REPLAYED_STEPS):
            block = min(REPLAYED_STEPS, steps - begin)
            samples = axes.standard_normal((block, len(start)))
            yield samples, problem.label_noise * labels.standard_normal(block)

    return SampleReplay(start, draws)
