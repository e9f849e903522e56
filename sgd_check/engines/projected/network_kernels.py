"""Compiled steps of the projected engine for a network f = s Σ_i v_i σ(w_i·x + b_i).

Executed after `turning_kernels` and the text of `network_source`. State: W as in `projected_kernels`, and the rows
v, b of `layers`. With λ_ib = w_i·x_b, e the error of a sample, all taken before the step, and η/B its rate, a step is

    w_i ← g_i w_i − Σ_b h_ib x_b,   h_ib = (η/B) ε_w s v_i σ'_ib e_b,   g_i = 1 − ηκ_w,
    v_i ← (1 − ηκ_v) v_i − (η/B) ε_v s Σ_b σ_ib e_b,   b_i ← b_i − (η/B) ε_b s v_i Σ_b σ'_ib e_b.

On the sphere the step is along it, g_i = 1 + Σ_b h_ib λ_ib/|w_i|², and w_i is brought back to its length. Rows of
`work`: λ, Σ_b σ e and Σ_b σ' e times η/B, σ', g, h, and one for σ and to carry columns. `motion` holds s, ε_w, ε_v,
ε_b, κ_w, κ_v; `lengths` (m,) are those to go back to, without entries where the neurons are free. Loops index whole
arrays: a view counts its references, which costs as much as the step.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynamics.compiler.compilation import entry, kernel

if TYPE_CHECKING:
    from sgd_check.engines.projected.links import sigma_and_slope
    from sgd_check.engines.projected.network_source import target
    from sgd_check.engines.projected.turning_kernels import turn_back, turn_batch

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def output(W: Matrix, layers: Matrix, samples: Matrix, t: int, first: int, work: Matrix) -> float:
    """Return Σ_i v_i σ(λ_i + b_i) of the sample in row t, from column `first` on; write λ, σ' and σ."""
    m = W.shape[1]
    for i in range(m):
        work[0, i] = 0.0
    for c in range(W.shape[0]):
        coordinate = samples[t, first + c]
        for i in range(m):
            work[0, i] += W[c, i] * coordinate
    total = 0.0
    for i in range(m):
        work[6, i], work[3, i] = sigma_and_slope(work[0, i] + layers[1, i])
        total += layers[0, i] * work[6, i]
    return total


@kernel
def weigh_samples(
    W: Matrix,
    layers: Matrix,
    rate: float,
    motion: Vector,
    lengths: Vector,
    teacher: Matrix,
    ends: Integers,
    samples: Matrix,
    noise: Matrix,
    t: int,
    work: Matrix,
    H: Matrix,
) -> bool:
    """Write H, g and the two sums over batch t, for the rate η/B; return whether every error is finite."""
    axes, m = W.shape
    batch = noise.shape[1]
    for i in range(m):
        work[1, i] = 0.0
        work[2, i] = 0.0
        work[4, i] = 1.0 if lengths.size > 0 else 1.0 - batch * rate * motion[4]
    for b in range(batch):
        label = target(samples, t, b * axes, teacher, ends) + noise[t, b]
        step = rate * (motion[0] * output(W, layers, samples, t, b * axes, work) - label)
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            work[1, i] += step * work[6, i]
            work[2, i] += step * work[3, i]
            H[b, i] = motion[1] * motion[0] * step * layers[0, i] * work[3, i]
        for i in range(lengths.size):
            work[4, i] += H[b, i] * work[0, i] / (lengths[i] * lengths[i])
    return True


@kernel
def move_layers(layers: Matrix, eta: float, motion: Vector, work: Matrix) -> None:
    """Move v and b, both from the v before the step."""
    for i in range(layers.shape[1]):
        layers[1, i] -= motion[3] * motion[0] * layers[0, i] * work[2, i]
        layers[0, i] = (1.0 - eta * motion[5]) * layers[0, i] - motion[2] * motion[0] * work[1, i]


@kernel
def put_back(W: Matrix, lengths: Vector, work: Matrix) -> None:
    """Scale the neurons to the lengths given."""
    for i in range(lengths.size):
        work[6, i] = 0.0
    for c in range(W.shape[0]):
        for i in range(lengths.size):
            work[6, i] += W[c, i] * W[c, i]
    for i in range(lengths.size):
        work[6, i] = lengths[i] / np.sqrt(work[6, i])
    for c in range(W.shape[0]):
        for i in range(lengths.size):
            W[c, i] *= work[6, i]


@entry(
    "i8(f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1], f8[:,::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], "
    "f8[:,::1], f8[:,::1], f8[:,::1])"
)
def take_network_steps(
    W: Matrix,
    layers: Matrix,
    rates: Vector,
    motion: Vector,
    lengths: Vector,
    teacher: Matrix,
    ends: Integers,
    samples: Matrix,
    gammas: Matrix,
    noise: Matrix,
    work: Matrix,
    H: Matrix,
    stack: Matrix,
) -> int:
    """Take one step per rate η/B, on B samples each; return how many were taken before the state was not finite.

    `teacher` and `ends` are the numbers of `target`. Samples, gammas, noise, `H` and `stack` are those of
    `take_batch_steps`, and for B = 1 of `take_single_steps`.
    """
    axes, m = W.shape
    batch = noise.shape[1]
    for t in range(rates.size):
        if not weigh_samples(W, layers, rates[t], motion, lengths, teacher, ends, samples, noise, t, work, H):
            W[:] = np.nan
            layers[:] = np.nan
            return t
        move_layers(layers, batch * rates[t], motion, work)
        for c in range(axes if batch > 1 else axes - m):
            for i in range(m):
                W[c, i] *= work[4, i]
            for b in range(batch):
                coordinate = samples[t, b * axes + c]
                for i in range(m):
                    W[c, i] -= coordinate * H[b, i]
        if batch > 1:
            turn_batch(W, H, gammas[t], samples[t, batch * axes :], stack, work[6])
        else:
            for i in range(m):
                work[5, i] = H[0, i]
            turn_back(W, samples, t, np.sqrt(2.0 * gammas[t, 0]) if gammas.shape[1] > 0 else 0.0, work)
        put_back(W, lengths, work)
    return rates.size
