"""The explicit method: the Runge-Kutta pair of order 8(5,3) by Dormand and Prince.

Stage i is k_i = f(t + c_i h, y + h Σ_j w_ij k_j), c = DOP853_C and w = DOP853_WEIGHTS.  Rows 1 to 11 give the stages,
row 12 the step, y_new = y + h Σ_j w_12,j k_j, whose derivative is stage 12; rows 13 to 15 give the additional stages
of the dense output of order 7, rows 16 and 17 the error estimates of order 5 and 3, rows 18 to 21 the four highest
coefficients of the dense output.  All weights are one array because each further array argument is compiled again.

References
----------
E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, second edition, sections II.4 (step
control), II.5 (the pair) and II.6 (dense output), and the program DOP853.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynamics.integrators import step_kernels as slots
from dynamics.integrators.step_kernels import (
    STATISTICS,
    Layout,
    copy_row,
    event_recorder,
    events_passed,
    saving_steps,
)
from dynamics.integrators.system_calls import EXPLICIT, SIZES, System, normalise, rhs
from dynamics.kernels.jit import entry, kernel, pasted_kernel, row_part, vector
from dynamics.kernels.options import AnyFunction
from dynamics.kernels.stopping import is_stopped
from dynamics.kernels.units import unit

if TYPE_CHECKING:
    from dynamics.integrators.step_kernels import Arrays
    from hermite.arrays import Integers, Matrix, Vector


# Rows after the common ones: new state, the 16 stages, of which END is the derivative at the end of the step, the 7
# dense coefficients, zeros. Slot of `counters`: accepted steps whose length stability limits.
ROW_NEW, ROW_STAGES, ROW_END, ROW_DENSE, ROW_ZERO = 3, 4, 16, 20, 27
STABILITY_LIMITED = 6
LAYOUT = Layout(
    rows=ROW_ZERO + 1,
    scalars=8,
    counters=8,
    kept=(slots.ROW_STATE, slots.ROW_START, *range(ROW_STAGES, ROW_END + 1), *range(ROW_DENSE, ROW_ZERO)),
    statistics=STATISTICS | {"steps_limited_by_stability": STABILITY_LIMITED},
)

#: Error of the dense output in units of its last coefficient: for y' = −λ y the two are as 1.2e-3 to 1 at every h λ
#: from 1 to 30. From h λ = 5 on, where steps damp a mode that their polynomials do not, it is up to 400 times the error
#: of the step.
DOP853_DENSE_ERROR = 1.25e-3

# fmt: off
DOP853_C = np.array([
    0.0, 0.05260015195876773, 0.0789002279381516, 0.1183503419072274, 0.2816496580927726, 0.3333333333333333, 0.25,
    0.3076923076923077, 0.6512820512820513, 0.6, 0.8571428571428571, 1.0, 1.0, 0.1, 0.2, 0.7777777777777778,
])
# Stages of which each row has weights, and these, row after row.
_STAGES = [
    [], [0], [0, 1], [0, 2], [0, 2, 3], [0, 3, 4], [0, 3, 4, 5], *([0, *range(3, row)] for row in range(7, 12)),
    [0, *range(5, 12)], [0, *range(6, 13)], [0, *range(5, 8), *range(10, 14)], [0, *range(5, 9), *range(12, 15)],
    *[[0, *range(5, 12)]] * 2, *[[0, *range(5, 16)]] * 4,
]
_NUMBERS = [
    0.05260015195876773, 0.0197250569845379, 0.0591751709536137, 0.02958758547680685, 0.08876275643042054,
    0.2413651341592667, -0.8845494793282861, 0.924834003261792, 0.037037037037037035, 0.17082860872947386,
    0.12546768756682242, 0.037109375, 0.17025221101954405, 0.06021653898045596, -0.017578125, 0.03709200011850479,
    0.17038392571223998, 0.10726203044637328, -0.015319437748624402, 0.008273789163814023, 0.6241109587160757,
    -3.3608926294469414, -0.868219346841726, 27.59209969944671, 20.154067550477894, -43.48988418106996,
    0.47766253643826434, -2.4881146199716677, -0.590290826836843, 21.230051448181193, 15.279233632882423,
    -33.28821096898486, -0.020331201708508627, -0.9371424300859873, 5.186372428844064, 1.0914373489967295,
    -8.149787010746927, -18.52006565999696, 22.739487099350505, 2.4936055526796523, -3.0467644718982196,
    2.273310147516538, -10.53449546673725, -2.0008720582248625, -17.9589318631188, 27.94888452941996,
    -2.8589982771350235, -8.87285693353063, 12.360567175794303, 0.6433927460157636, 0.054293734116568765,
    4.450312892752409, 1.8915178993145003, -5.801203960010585, 0.3111643669578199, -0.1521609496625161,
    0.20136540080403034, 0.04471061572777259, 0.056167502283047954, 0.25350021021662483, -0.2462390374708025,
    -0.12419142326381637, 0.15329179827876568, 0.00820105229563469, 0.007567897660545699, -0.008298,
    0.03183464816350214, 0.028300909672366776, 0.053541988307438566, -0.05492374857139099, -0.00010834732869724932,
    0.0003825710908356584, -0.00034046500868740456, 0.1413124436746325, -0.42889630158379194, -4.697621415361164,
    7.683421196062599, 4.06898981839711, 0.3567271874552811, -0.0013990241651590145, 2.9475147891527724,
    -9.15095847217987, 0.01312004499419488, -1.2251564463762044, -0.4957589496572502, 1.6643771824549864,
    -0.35032884874997366, 0.3341791187130175, 0.08192320648511571, -0.022355307863886294, -0.18980075407240762,
    4.450312892752409, 1.8915178993145003, -5.801203960010585, -0.4226823213237919, -0.1521609496625161,
    0.20136540080403034, 0.02265179219836082, -8.428938276109013, 0.5667149535193777, -3.0689499459498917,
    2.38466765651207, 2.117034582445028, -0.871391583777973, 2.2404374302607883, 0.6315787787694688,
    -0.08899033645133331, 18.148505520854727, -9.194632392478356, -4.436036387594894, 10.427508642579134,
    242.28349177525817, 165.20045171727028, -374.5467547226902, -22.113666853125306, 7.733432668472264,
    -30.674084731089398, -9.332130526430229, 15.697238121770845, -31.139403219565178, -9.35292435884448,
    35.81684148639408, 19.985053242002433, -387.0373087493518, -189.17813819516758, 527.8081592054236,
    -11.57390253995963, 6.8812326946963, -1.0006050966910838, 0.7777137798053443, -2.778205752353508,
    -60.19669523126412, 84.32040550667716, 11.99229113618279, -25.69393346270375, -154.18974869023643,
    -231.5293791760455, 357.6391179106141, 93.40532418362432, -37.45832313645163, 104.0996495089623, 29.8402934266605,
    -43.53345659001114, 96.32455395918828, -39.17726167561544, -149.72683625798564,
]
# fmt: on
DOP853_WEIGHTS = np.zeros((22, 16))
for _row, _stages in enumerate(_STAGES):
    DOP853_WEIGHTS[_row, _stages], _NUMBERS = _NUMBERS[: len(_stages)], _NUMBERS[len(_stages) :]
# Stages of which a row has a weight, in front, and how many they are.
DOP853_COUNTS = np.count_nonzero(DOP853_WEIGHTS, axis=1)
DOP853_PLACES = np.argsort(DOP853_WEIGHTS == 0.0, axis=1, kind="stable")


# Columns summed at a time, so that the target of a sum stays in the fastest cache.
COLUMN_BLOCK = 512


@unit()
def add_stages(base: Vector, stages: Matrix, row: int, h: float, size: int, out: Vector, at: int) -> None:
    """Write base + h Σ_j w_j k_j to `out`: w is a row of weights of the pair and k_j the stages, rows of `stages`.

    `size` columns of the stages count, from column `at` on, four stages in a pass. Loops run over slices from 0 on: an
    index that might be negative keeps them out of vector instructions.
    """
    places, count = DOP853_PLACES[row], DOP853_COUNTS[row]
    for start in range(0, size, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, size)
        part, base_part = vector(out, start, stop - start), vector(base, start, stop - start)
        for i in range(part.size if count == 0 else 0):
            part[i] = base_part[i]
        for j in range(0, count, 4):
            # Where fewer than four are left, the last of them takes the place of those missing, with weight 0.
            a, last = places[j], count - 1
            b, c, d = places[min(j + 1, last)], places[min(j + 2, last)], places[min(j + 3, last)]
            v, w = h * DOP853_WEIGHTS[row, a], h * DOP853_WEIGHTS[row, b] if j + 1 <= last else 0.0
            x = h * DOP853_WEIGHTS[row, c] if j + 2 <= last else 0.0
            y = h * DOP853_WEIGHTS[row, d] if j + 3 <= last else 0.0
            k_a, k_b = row_part(stages, a, at + start, part.size), row_part(stages, b, at + start, part.size)
            k_c, k_d = row_part(stages, c, at + start, part.size), row_part(stages, d, at + start, part.size)
            for i in range(part.size if j == 0 else 0):
                part[i] = base_part[i] + ((v * k_a[i] + w * k_b[i]) + (x * k_c[i] + y * k_d[i]))
            for i in range(part.size if j > 0 else 0):
                part[i] += (v * k_a[i] + w * k_b[i]) + (x * k_c[i] + y * k_d[i])


@pasted_kernel
def bits_of(number: float) -> int:
    """Return the bits, as an integer, of a number that is at least 0 or not a number.

    They are ordered as such numbers are, with not-a-number on top.
    """
    return int(np.float64(number).view(np.int64))


@pasted_kernel
def number_of(bits: int) -> float:
    """Return the number that has these bits."""
    return float(np.int64(bits).view(np.float64))


@kernel
def largest_ratio(v: Vector, before: Vector, after: Vector, atol: Vector, rtol: float, size: int) -> float:
    """Return max_i |v_i| / (atol_i + rtol max(|before_i|, |after_i|)), or infinity if any v_i is not finite.

    By bits: a maximum of ratios is not found in vector instructions, since every comparison with not-a-number fails.
    """
    worst = 0
    for i in range(size):
        worst = max(worst, bits_of(abs(v[i] / (atol[i] + rtol * max(abs(before[i]), abs(after[i]))))))
    return number_of(worst) if worst < bits_of(np.inf) else np.inf


# Rows of DOP853_WEIGHTS.
WEIGHTS_ERROR_5, WEIGHTS_DENSE = 16, 18

SAFETY, SMALLEST_FACTOR, LARGEST_FACTOR, NOT_FINITE_FACTOR = 0.9, 1.0 / 3.0, 6.0, 0.2
# The estimate is multiplied by this: where stability limits the step it misses most of the error of the stiff modes
# (without it, errors of 400 times the tolerance were measured), and at order 8 the caution costs a fifth more steps.
CAUTION = 20.0
# |h λ| on the negative real axis above which the step counts as limited by stability (DOP853, NSTIFF test).
STABILITY_BOUND = 6.1


@pasted_kernel
def attempt(t: float, h: float, vectors: Matrix, atol: Vector, rtol: float, system: System) -> float:
    """Write the state at t + h to ROW_NEW and return the error of the step in units of the tolerance.

    The first stage is in place already. The estimate |e_5|² / √(|e_5|² + 0.01 |e_3|²) combines both embedded formulas,
    of orders 5 and 3, in the largest-component norm.
    """
    y, new, error = vectors[slots.ROW_STATE], vectors[ROW_NEW], vectors[ROW_END]
    stages = vectors[ROW_STAGES:ROW_DENSE]
    for s in range(1, 13):
        # The twelfth sum is the step itself; ROW_NEW follows ROW_TRIAL.
        add_stages(y, stages, s, h, y.size, vectors[slots.ROW_TRIAL + s // 12], 0)
        if s < 12:
            rhs(t + DOP853_C[s] * h, vectors[slots.ROW_TRIAL], vectors[ROW_STAGES + s], system)
            if is_stopped(system[SIZES]):
                return np.inf
    five = three = 0.0
    for row in range(WEIGHTS_ERROR_5, WEIGHTS_ERROR_5 + 2):
        # The row of the derivative at the end is free until the step is accepted.
        add_stages(vectors[ROW_ZERO], stages, row, h, y.size, error, 0)
        five = three
        three = CAUTION * largest_ratio(error, y, new, atol, rtol, y.size)
    # Far below, the squares are zero and their ratio is not a number.
    if five < 1e-100 or not five + three < np.inf:
        return five + three
    return float(five * five / np.sqrt(five * five + 0.01 * three * three))


@pasted_kernel
def stability_product(vectors: Matrix, h: float) -> float:
    """Return an estimate of |h λ|, λ the fastest rate of relaxation; infinity if it is not finite.

    It is h |f(y_1) − f(Y_12)| / |y_1 − Y_12|, with the state y_1 at the end of the step and Y_12 at its last stage.
    """
    change = distance = 0.0
    for i in range(vectors.shape[1]):
        rise, run = vectors[ROW_END, i] - vectors[ROW_STAGES + 11, i], vectors[ROW_NEW, i] - vectors[slots.ROW_TRIAL, i]
        change += rise * rise
        distance += run * run
    if not change < np.inf:
        return np.inf
    return float(h * np.sqrt(change / distance)) if distance > 0.0 else 0.0


@unit(**EXPLICIT)
def take_steps(target: float, max_steps: int, arrays: Arrays, system: System) -> int:
    """Take steps until the time reaches `target`, an event is passed, `max_steps` were tried, or none succeeds.

    Return the status, one of `STATUS_…` of the module `step_kernels`. The derivative at the end of a step is taken
    after the state is back on its constraints, so that it serves as the first stage of the next step.
    """
    vectors, scalars, counters, atol, events = arrays
    y, new, end = vectors[slots.ROW_STATE], vectors[ROW_NEW], vectors[ROW_END]
    t, rtol, fixed = scalars[slots.TIME], scalars[slots.RTOL], scalars[slots.FIXED_STEP]
    if counters[slots.READY] == 0:
        rhs(t, y, end, system)
        counters[slots.EVALUATIONS] += 1
        speed = largest_ratio(end, y, y, atol, rtol, y.size)
        if not speed < np.inf:
            return slots.STATUS_NOT_FINITE
        copy_row(vectors[slots.ROW_START], y)
        # A step that changes the state by a hundredth; the growth factor corrects a careful guess in a few steps.
        size = largest_ratio(y, y, y, atol, rtol, y.size)
        scalars[slots.STEP] = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 1e-6
        counters[slots.READY] = 1
        if events_passed(t, y, events, system):
            return slots.STATUS_EVENT
    status = slots.STATUS_REACHED
    tried = 0
    while t < target and status == slots.STATUS_REACHED:
        if tried >= max_steps:
            return slots.STATUS_MAX_STEPS
        tried += 1
        h = fixed if fixed > 0.0 else min(scalars[slots.STEP], scalars[slots.LARGEST_STEP])
        if counters[slots.FAILURES] == 0:
            copy_row(vectors[ROW_STAGES], end)
        error = attempt(t, h, vectors, atol, rtol, system)
        counters[slots.EVALUATIONS] += 11
        product = np.inf
        if error <= 1.0 or (fixed > 0.0 and error < np.inf):
            normalise(new, system)
            rhs(t + h, new, end, system)
            counters[slots.EVALUATIONS] += 1
            product = stability_product(vectors, h)
        factor = NOT_FINITE_FACTOR
        if error < np.inf:
            factor = min(LARGEST_FACTOR, max(SMALLEST_FACTOR, SAFETY * (error + 1e-300) ** -0.125))
        if product < np.inf:
            copy_row(vectors[slots.ROW_START], y)
            copy_row(y, new)
            scalars[slots.TIME_START], scalars[slots.TIME] = t, t + h
            t += h
            scalars[slots.STEP] = h * (factor if counters[slots.FAILURES] == 0 else min(factor, 1.0))
            counters[slots.FAILURES] = counters[slots.DENSE_READY] = 0
            counters[slots.ACCEPTED] += 1
            counters[STABILITY_LIMITED] += 1 if product > STABILITY_BOUND else 0
            if events_passed(t, y, events, system):
                status = slots.STATUS_EVENT
        else:
            counters[slots.FAILURES] += 1
            counters[slots.REJECTED] += 1
            scalars[slots.STEP] = h * min(factor, NOT_FINITE_FACTOR if error <= 1.0 else 1.0)
            if fixed > 0.0 or scalars[slots.STEP] <= slots.SMALLEST_STEP * abs(t) + slots.SMALLEST_STEP_AT_ZERO:
                status = slots.STATUS_STEP_TOO_SMALL if 1.0 < error < np.inf else slots.STATUS_NOT_FINITE
    return status


@kernel
def write_coefficients(h: float, vectors: Matrix) -> None:
    """Write the seven coefficients of the dense output of the last step, of length h, from its 16 stages."""
    start, stages, dense = vectors[slots.ROW_START], vectors[ROW_STAGES:ROW_DENSE], vectors[ROW_DENSE:ROW_ZERO]
    for i in range(start.size):
        change = vectors[slots.ROW_STATE, i] - start[i]
        dense[0, i] = change
        dense[1, i] = h * stages[0, i] - change
        dense[2, i] = 2.0 * change - h * (stages[12, i] + stages[0, i])
    for row in range(3, 7):
        add_stages(vectors[ROW_ZERO], stages, WEIGHTS_DENSE + row - 3, h, start.size, dense[row], 0)


@kernel
def write_polynomial(x: float, out: Vector, vectors: Matrix) -> None:
    """Write the state at the fraction x, from 0 to 1, of the last step to `out`.

    It is y_0 + x (Δ + (1−x)(b_1 + x (b_2 + (1−x)(b_3 + …)))) with the state y_0 at its start, the change Δ and
    coefficients b of the dense output.
    """
    for i in range(out.size):
        value = vectors[ROW_DENSE + 6, i]
        for row in range(5, -1, -1):
            value = value * (x if row % 2 == 1 else 1.0 - x) + vectors[ROW_DENSE + row, i]
        out[i] = value * x + vectors[slots.ROW_START, i]


@pasted_kernel
def prepare_dense(vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Compute the coefficients of the dense output of the last step, with three more evaluations."""
    t, start, trial = scalars[slots.TIME_START], vectors[slots.ROW_START], vectors[slots.ROW_TRIAL]
    stages, h = vectors[ROW_STAGES:ROW_DENSE], scalars[slots.TIME] - t
    for s in range(13, 16):
        add_stages(start, stages, s, h, start.size, trial, 0)
        rhs(t + DOP853_C[s] * h, trial, stages[s], system)
    write_coefficients(h, vectors)
    counters[slots.DENSE_READY] = 1
    counters[slots.EVALUATIONS] += 3


@unit(**EXPLICIT)
def write_inside(t: float, out: Vector, vectors: Matrix, scalars: Vector, counters: Integers, system: System) -> None:
    """Write the state at a time t strictly within the last step to `out`."""
    if counters[slots.DENSE_READY] == 0:
        prepare_dense(vectors, scalars, counters, system)
    write_polynomial((t - scalars[slots.TIME_START]) / (scalars[slots.TIME] - scalars[slots.TIME_START]), out, vectors)
    normalise(out, system)


_record_events = event_recorder(write_inside)


@unit(**EXPLICIT)
def record_events(arrays: Arrays, system: System) -> None:
    """Write the times of the events that the last step passed to their row of the events."""
    _record_events(arrays, system)


save_through = saving_steps(take_steps, write_inside, record_events)


@entry
def advance_through(
    targets: Vector,
    max_steps: int,
    states: Matrix,
    arrays: Arrays,
    rhs: AnyFunction,
    event_values: AnyFunction,
    normalise: AnyFunction,
) -> int:
    """Advance to the last of some increasing `targets`, writing the state at each to a row of `states`.

    Return status + 8 · number of targets passed, the status being one of `STATUS_…` of the module `step_kernels`.
    `max_steps` bounds the steps of the whole call.

    `arrays` are, in this order, five of the method, changed in place: vectors (rows, n), whose rows 0 and 1 are the
    states now and at the start of the last step, scalars, counters, absolute tolerances (n,) and events (3, events),
    rows being time of passing, value now and value at the start of the step; then three of the system: `parameters`,
    `sizes` and `work`. The functions that follow are the system's.
    """
    system = (arrays[5], arrays[6], arrays[7], rhs, event_values, normalise)
    return save_through(targets, max_steps, states, arrays[:5], system)
