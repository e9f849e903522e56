"""Clusters of neurons that have learned one direction, which steps slow: in the large and the small flow.

Neurons with C_ip² > 0.9 form the group of direction p. It is accepted as a cluster when it has learned the direction:
mass within 5 % of a_p, ‖Σ n σ(u·) − a σ(e·)‖² below 1e-3 a² g(1), and the mean velocities of its two stiff modes as far
from the drift of the last step as a displacement of `STILL` would make them: they follow their slow manifold. Their
rates are a_p g'(1) for the direction and 4 a_p g(1) for the norm. A cluster is left when it fails by wide factors.
"""

from __future__ import annotations

import numpy as np

from dynamics.equations.link import g0, g1, g2
from dynamics.kernels.jit import kernel, pasted_kernel, row_part, vector
from dynamics.kernels.units import INTEGERS, MATRIX, VECTOR, tuple_of, unit
from hermite.arrays import Integers, Matrix, Vector

# (order, first, direction, pole): cluster c holds the rows order[first[c]:first[c + 1]], each at its pole, +1 or −1, of
# direction[c].
Groups = tuple[Integers, Integers, Integers, Integers]
# Unit vectors and ln n, and the same with the field F and growth: u' = F − (F·u) u, (ln n)' = 4 growth.
State = tuple[Matrix, Vector]
Whole = tuple[Matrix, Vector, Matrix, Vector]
#: Numba's types of these.
KINDS = {
    "Groups": tuple_of(INTEGERS, INTEGERS, INTEGERS, INTEGERS),
    "State": tuple_of(MATRIX, VECTOR),
    "Whole": tuple_of(MATRIX, VECTOR, MATRIX, VECTOR),
}

#: Squared overlap with a direction above which a neuron belongs to its group.
GROUP = 0.9
#: Tests of a cluster: relative mass, relative squared distance, displacement from the slow manifold.
MASS, DISTANCE, STILL = 0.05, 1e-3, 1e-6
#: Factors by which an accepted cluster may exceed the last two bounds before it is left.
LEAVE_DISTANCE, LEAVE_STILL = 3.0, 100.0
#: A slowed mode relaxes by e^(−κ) in a step; DOP853 is stable to 6.1, and damps best between 3 and 5.
KAPPA = 4.0
#: Mean distance of a slowed mode from where it belongs, in units of that at the end of the step. With x = M at its
#: beginning and the velocity of the last step, x − M grows like s/κ + (1 − e^(−κ s)) (1/(2 κ) − 1/κ²) in the fraction s
#: of a step, κ = 4. Measured: at 0.50 and 0.62 the overlap of a light neuron is ten times as wrong as at 0.56.
DISPLACED_SHARE = 0.553
#: Step control: safety factors of the embedded error and of the lag, growth of a step. The estimate misses part of the
#: error of single steps in which a neuron escapes: at 0.8, errors of the standard problem with 64 directions were 15 to
#: 40 times as large for a third fewer steps, and those of random problems up to 13 rtol κ instead of 1.
SAFETY, LAG_SAFETY, LARGEST_FACTOR, SMALLEST_FACTOR = 0.5, 0.9, 2.0, 0.2
#: A run that in this many steps gains less than this factor of time is held up by a stiffness that is not slowed.
STALL_STEPS, STALL_GAIN = 1500, 1.05
#: The correction of the lag may be this many tolerances, and this many times that before a step is rejected: the
#: error left after it is an order of h smaller. With 30 tolerances errors on random problems were twice as large for a
#: tenth fewer steps, and up to 17 rtol κ.
LAG_TOLERANCE, LAG_REJECTION = 10.0, 4.0
#: Clusters are moved, and the field evaluated again, where the change of another neuron's velocity times h exceeds this
#: part of the lag's tolerance. At 0.1 the overlap of a light neuron was wrong by up to 110 rtol, at 0.01 by 6, at 0.003
#: by 5, at 0 by 6; at 0.003 a fifth of the steps with 64 directions do so.
NOTICED = 0.003


@kernel
def along(u: Vector, v: Vector) -> float:
    """Return (u·v)/(u·u), the part of v along u in units of u."""
    product = length = 0.0
    for k in range(u.size):
        product += u[k] * v[k]
        length += u[k] * u[k]
    return product / length


@kernel
def make_tangent(u: Vector, v: Vector) -> None:
    """Remove the part of v along u, in place.

    In long steps a radial rounding of 1e-16 grows to errors of 1e-6 in ln n, the logarithm of a squared norm.
    """
    w = along(u, v)
    for k in range(u.size):
        v[k] -= w * u[k]


@kernel
def nearest_direction(u: Vector, both_poles: bool, active: Vector) -> tuple[int, float]:
    """Return the number of the direction with which a unit vector overlaps most, and the overlap; 0 and 0 for none.

    Overlaps are the first entries of `u`; directions count where `active` (P,) is above 0. With `both_poles` negative
    overlaps count by their size.
    """
    best = overlap = 0.0
    nearest = 0
    for p in range(active.size):
        size = abs(u[p]) if both_poles else u[p]
        if size > best and active[p] > 0.0:
            best, nearest, overlap = size, p, u[p]
    return nearest, overlap


@kernel
def group_rows(U: Matrix, both_poles: bool, a: Vector, groups: Groups) -> int:
    """Group neurons by the direction that they are near, with squared overlap above 0.9; return the number of groups.

    `U` (m, D) are unit vectors whose first entries are overlaps with the directions, and `a` (P,) the coefficients. The
    members of each group, in the order of directions and neurons, are written to `groups`.
    """
    order, first, direction, pole = groups
    m, P, count = U.shape[0], a.size, 0
    near, place = np.full(m, -1), np.zeros(P + 1, np.int64)
    for i in range(m):
        p, overlap = nearest_direction(U[i], both_poles, a)
        if overlap * overlap > GROUP:
            near[i], pole[i] = p, -1 if overlap < 0.0 else 1
            place[p + 1] += 1
    first[0] = 0
    for p in range(P):
        if place[p + 1] > 0:
            direction[count] = p
            count += 1
            first[count] = place[p] + place[p + 1]
        place[p + 1] += place[p]
    for i in range(m):
        if near[i] >= 0:
            order[place[near[i]]] = i
            place[near[i]] += 1
    return count


@pasted_kernel
def weigh_group(
    p: int,
    a: float,
    h: float,
    link: Vector,
    members: Integers,
    pole: Integers,
    before: State,
    now: Whole,
    drift: Vector,
    mean: Vector,
) -> tuple[float, float, float, float]:
    """Write the mean velocity of a group near direction p over the last step, of length h, to `drift` (D + 1,).

    Its first D entries are of the mean direction, the last is of the mean of ln n; means are weighted by squared norms
    n. Returned are the mass Σ n, the squared distance ‖Σ n σ(u·) − a σ(e·)‖² from the teacher's part, and the distances
    of both mean velocities at the end of the step from those over it. `before` and `now` are the states at the ends of
    the step; `mean` (D,) is scratch, allocated once for all groups because that takes a notable part of small steps.
    """
    (U_before, log_before), (U, log_n, F, growth) = before, now
    kernel_at_one, D = g0(link, 1.0), drift.size - 1
    mass = rise = square = 0.0
    distance = a * a * kernel_at_one
    drift[D] = 0.0
    for k in range(D):
        mean[k] = drift[k] = 0.0
    for x in range(members.size):
        i = members[x]
        n = np.exp(log_n[i])
        mass += n
        rise += n * 4.0 * growth[i]
        distance += n * n * kernel_at_one - 2.0 * a * n * g0(link, U[i, p])
        for z in range(x):
            j = members[z]
            s = 0.0
            for k in range(D):
                s += U[i, k] * U[j, k]
            distance += 2.0 * n * np.exp(log_n[j]) * g0(link, s)
        w, radial = n * pole[i], along(U[i], F[i])
        for k in range(D):
            mean[k] += w * (F[i, k] - radial * U[i, k])
            drift[k] += w * (U[i, k] - U_before[i, k])
        drift[D] += n * (log_n[i] - log_before[i])
    for k in range(D + 1):
        drift[k] /= mass * h
    for k in range(D):
        square += (mean[k] / mass - drift[k]) ** 2
    return mass, distance, np.sqrt(square), abs(rise / mass - drift[D])


@kernel
def patience(rate: float, h: float, slow: float) -> float:
    """Return how fast the mean of a mode may move for a cluster to be accepted, in units of `STILL`.

    `rate` is the rate of relaxation of the mode, and h the step length. Modes that relax fewer than `slow` times in a
    step may move faster, by the fourth power.
    """
    factor = max(1.0, slow / (h * rate))
    return rate * factor * factor * factor * factor


@unit(**KINDS)
def find_clusters(
    h: float,
    slow: float,
    link: Vector,
    a: Vector,
    both_poles: bool,
    before: State,
    now: Whole,
    groups: Groups,
    cluster: Integers,
    drift: Matrix,
) -> int:
    """Find the clusters of the next step, neurons that sit at a learned direction together; return their number.

    A group of neurons near direction p, of coefficient a_p, is a cluster if all hold: its mass, the sum of squared
    norms, is a_p to the share `MASS`; the squared distance of its output from the teacher's part is at most `DISTANCE`
    a_p² g(1), g being the kernel of the link; and the velocities of its mean direction and of its mean ln n differ from
    the drift by at most `STILL` times `patience`. For the cluster of the last step the last two bounds are wider by the
    factors `LEAVE_DISTANCE` and `LEAVE_STILL`.

    `h` is the length of the last step, `slow` that of `patience`, `link` the data of g, and `a` (P,) the coefficients;
    `both_poles` says that −θ_p is as good as θ_p. `before` is (U, ln n) at the start of the last step and `now` (U, ln
    n, F, growth) at its end. Written are `groups` (members in order, first place of each cluster, direction, pole of
    each neuron); the rows of `drift`, D + 1 numbers each, the mean velocity of each cluster over the last step, or 0
    where members have changed; and `cluster` (m,), the direction of the cluster of each neuron, −1 for none, which
    holds those of the last step before.
    """
    order, first, direction, pole = groups
    m, value, slope = cluster.size, g0(link, 1.0), g1(link, 1.0)
    new, was, changed = np.full(m, -1), np.zeros(a.size + 1, np.bool_), np.zeros(a.size + 1, np.bool_)
    for i in range(m):
        was[cluster[i]] = True  # of none the last
    count, room = group_rows(now[0], both_poles, a, groups), np.empty(drift.shape[1] - 1)
    accepted = filled = begin = 0
    for c in range(count):
        p, end = direction[c], first[c + 1]
        members, mean = vector(order, begin, end - begin), row_part(drift, accepted, 0, drift.shape[1])
        mass, distance, off, off_norm = weigh_group(p, a[p], h, link, members, pole, before, now, mean, room)
        reach = DISTANCE * a[p] * a[p] * value * (LEAVE_DISTANCE if was[p] else 1.0)
        still = STILL * (LEAVE_STILL if was[p] else 1.0)
        if (
            abs(mass - a[p]) <= MASS * a[p]
            and distance <= reach
            and off <= still * patience(a[p] * slope, h, slow)
            and off_norm <= still * patience(4.0 * a[p] * value, h, slow)
        ):
            for x in range(begin, end):
                new[order[x]] = p
                order[filled] = order[x]
                filled += 1
            direction[accepted] = p
            accepted += 1
            first[accepted] = filled
        begin = end
    # A mean velocity over a step is one of the members it had then.
    for i in range(m):
        if new[i] != cluster[i]:
            changed[new[i]] = changed[cluster[i]] = True
            cluster[i] = new[i]
    for c in range(accepted):
        if changed[direction[c]]:
            drift[c, :] = 0.0
    return accepted


@pasted_kernel
def slow_cluster(
    held: float,
    held_norm: float,
    lever: float,
    places: Integers,
    rows: Integers,
    pole: Integers,
    state: State,
    velocity: State,
    drift: Vector,
    means: tuple[Vector, Vector],
) -> None:
    """Replace the mean velocity v of a cluster by θ v + (1 − θ) drift, `held` being 1 − θ: its only stiff modes.

    So b of the mean direction and β of mean ln n are taken away, what the cluster would lose if it sat b/λ and β/λ'
    farther, λ = a g'(1) and λ' = 4 a g(1). Members that lean by δ_i from the mean, s_i u_i = ū + δ_i, then have other
    velocities: 4 δ_i·b less of ln n, β (λ/λ') δ_i more of the direction, λ/λ' being `lever`. Without that the lag of
    their mean would drive them apart at h λ δ ~ 1. Every row moves tangentially, by T_i = 1 − u_i u_iᵀ; the x whose
    mean Σ n T x / Σ n is b is b + Σ n u (u·b) / Σ n up to fourth order in δ. A row that is alone has no δ.
    The members are `rows`, at `places` of the state (u, ln n) and of the velocity; `means` takes two vectors.
    """
    (u, log_n), (du, dl), (mean, shift) = state, velocity, means
    D = mean.size
    if rows.size == 1:
        z, s = places[0], pole[rows[0]]
        dl[z] += held_norm * (drift[D] - dl[z])
        for k in range(D):
            du[z, k] += held * (s * drift[k] - du[z, k])
        make_tangent(row_part(u, z, 0, D), row_part(du, z, 0, D))
        return
    total = mean_growth = mean_lean = 0.0
    for k in range(D):
        mean[k] = 0.0
    for x in range(rows.size):
        z = places[x]
        n = np.exp(log_n[z])
        total += n
        mean_growth += n * dl[z]
        w = n * pole[rows[x]]
        for k in range(D):
            mean[k] += w * du[z, k]
    for k in range(D):
        mean[k] = held * (mean[k] / total - drift[k])
        shift[k] = mean[k]
    mean_growth = held_norm * (mean_growth / total - drift[D])
    for x in range(rows.size):
        z, s = places[x], pole[rows[x]]
        share = np.exp(log_n[z]) / total
        lean = s * along(u[z], mean)
        mean_lean += share * lean
        dl[z] -= mean_growth + 4.0 * lean
        # T_i δ_i is −T_i ū.
        w = share * s * (lean + lever * mean_growth)
        for k in range(D):
            shift[k] += w * u[z, k]
    for x in range(rows.size):
        z, s = places[x], pole[rows[x]]
        dl[z] += 4.0 * mean_lean
        for k in range(D):
            du[z, k] -= s * shift[k]
        make_tangent(row_part(u, z, 0, D), row_part(du, z, 0, D))


@pasted_kernel
def weigh_shift(
    h: float,
    ratio: float,
    rates: tuple[float, float],
    members: Integers,
    pole: Integers,
    start: State,
    now: Whole,
    drift: Vector,
    shift: Vector,
    velocity: Vector,
) -> None:
    """Write how far the means of a cluster are from where they belong at the end of a step of length h.

    A mean x relaxes as x' = λ (M − x), so its velocity v at the end says how far M is. With Δ its move in this step,
    w its velocity over the last and ρ = h/(h + h_last) the given `ratio`, the quadratic through three ends of steps
    moves by (1 + ρ) Δ/h − ρ w there, and v − λ b = (1 + ρ)(Δ + b)/h − ρ w gives b: BDF of order 2 for this mode. Modes
    that relax less than κ within a step are not slowed, and followed by the stages themselves. `velocity` (D + 1,) is
    scratch.
    """
    (U_begin, log_begin), (U, log_n, F, growth) = start, now
    D = shift.size - 1
    total = rho = 0.0
    for k in range(D + 1):
        # The drift of a cluster whose members have just changed is unknown, and 0.
        if drift[k] != 0.0:
            rho = ratio
        velocity[k] = shift[k] = 0.0
    for x in range(members.size):
        i = members[x]
        n = np.exp(log_n[i])
        w, radial = n * pole[i], along(U[i], F[i])
        total += n
        velocity[D] += n * 4.0 * growth[i]
        shift[D] += n * (log_n[i] - log_begin[i])
        for k in range(D):
            velocity[k] += w * (F[i, k] - radial * U[i, k])
            shift[k] += w * (U[i, k] - U_begin[i, k])
    forward = (1.0 + rho) / h
    for mode in range(2):
        follows = -np.expm1(-max(h * rates[mode] - KAPPA, 0.0)) / (rates[mode] + forward)
        for k in range(mode * D, D + mode):
            shift[k] = follows * ((velocity[k] - forward * shift[k]) / total + rho * drift[k])


@kernel
def size_of_shift(shift: Vector) -> tuple[float, float]:
    """Return the length of the shift of a mean direction, the first D entries, and |shift of mean ln n|, the last."""
    square, D = 0.0, shift.size - 1
    for k in range(D):
        square += shift[k] * shift[k]
    return np.sqrt(square), abs(shift[D])


@kernel
def write_forces_on_others(a: Vector, link: Vector, U: Matrix, cluster: Integers, forces: Vector) -> None:
    """Write to `forces` (P,) how strongly a shift of each cluster changes velocities of other neurons.

    It is a_p |g''(C)|, C the largest overlap of a neuron outside of cluster p: a shift by s changes the velocity of
    that neuron by s times this. `cluster` (m,) is the direction of the cluster of each neuron, −1 for none.
    """
    forces.fill(0.0)
    for i in range(cluster.size):
        cluster_of_row = cluster[i]
        previous = forces[cluster_of_row]  # of none the last, which is then computed anew
        for p in range(forces.size):
            forces[p] = max(forces[p], abs(U[i, p]))
        if cluster_of_row >= 0:
            forces[cluster_of_row] = previous
    for p in range(forces.size):
        forces[p] = a[p] * abs(g2(link, forces[p]))


@kernel
def shift_row(s: int, b: Vector, u: Vector) -> None:
    """Add the tangential part of the shift b of a direction to the unit vector u at its pole s, +1 or −1, in place."""
    w = along(u, b)
    for k in range(u.size):
        u[k] += s * (b[k] - w * u[k])
