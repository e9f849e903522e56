"""Compiled steps of the projected engine for a network f = s Σ_i v_i σ(w_i·x + b_i).

State: W as in `projected_kernels`, and the rows
v, b of `layers`. With λ_ib = w_i·x_b, e the error of a sample, all taken before the step, and η/B its rate, a step is

    w_i ← g_i w_i − Σ_b h_ib x_b,   h_ib = (η/B) ε_w s v_i σ'_ib e_b,   g_i = 1 − ηκ_w,
    v_i ← (1 − ηκ_v) v_i − (η/B) ε_v s Σ_b σ_ib e_b,   b_i ← b_i − (η/B) ε_b s v_i Σ_b σ'_ib e_b.

On the sphere the step is along it, g_i = 1 + Σ_b h_ib λ_ib/|w_i|², and w_i is brought back to its length. Rows of
`work`: λ, Σ_b σ e and Σ_b σ' e times η/B, σ', g, λ + b and then h, and one for σ and to carry columns. `motion` holds
s, ε_w, ε_v, ε_b, κ_w, κ_v; `radii` (m,) are lengths to go back to, without entries where the neurons are free.
"""

import numpy as np

from dynamics.kernels.arrays import Matrix, Vector
from dynamics.kernels.jit import entry, kernel
from dynamics.kernels.views import row_part
from sgd_check.engines.projected.links import write_both
from sgd_check.engines.projected.projected_kernels import Buffers, Draws, give_up
from sgd_check.engines.projected.turning_kernels import turn_back, turn_batch

Constants = tuple[Vector, Vector, Vector]


@kernel
def network_output(
    W: Matrix, layers: Matrix, samples: Matrix, t: int, first: int, link: Vector, work: Matrix, scratch: Vector
) -> float:
    """Return Σ_i v_i σ(λ_i + b_i) of the sample in row t, from column `first` on; write λ, σ' and σ."""
    m = W.shape[1]
    along, inside = row_part(work, 0, 0, m), row_part(work, 5, 0, m)
    value, slope = row_part(work, 6, 0, m), row_part(work, 3, 0, m)
    for i in range(m):
        along[i] = 0.0
    for c in range(W.shape[0]):
        coordinate = samples[t, first + c]
        for i in range(m):
            along[i] += W[c, i] * coordinate
    for i in range(m):
        inside[i] = along[i] + layers[1, i]
    write_both(link, inside, value, slope, scratch)
    total = 0.0
    for i in range(m):
        total += layers[0, i] * value[i]
    return total


@kernel
def weigh_samples(
    W: Matrix, layers: Matrix, rate: float, constants: Constants, samples: Matrix, labels: Matrix, t: int, H: Matrix,
    work: Matrix, scratch: Vector
) -> bool:  # fmt: skip
    """Write H, g and the two sums over batch t, for the rate η/B; return whether every error is finite."""
    link, motion, radii = constants
    axes, m = W.shape
    batch = labels.shape[1]
    for i in range(m):
        work[1, i] = 0.0
        work[2, i] = 0.0
        work[4, i] = 1.0 if radii.size > 0 else 1.0 - batch * rate * motion[4]
    for b in range(batch):
        found = network_output(W, layers, samples, t, b * axes, link, work, scratch)
        step = rate * (motion[0] * found - labels[t, b])
        if not abs(step) < np.inf:
            return False
        for i in range(m):
            work[1, i] += step * work[6, i]
            work[2, i] += step * work[3, i]
            H[b, i] = motion[1] * motion[0] * step * layers[0, i] * work[3, i]
        for i in range(radii.size):
            work[4, i] += H[b, i] * work[0, i] / (radii[i] * radii[i])
    return True


@kernel
def move_layers(layers: Matrix, eta: float, motion: Vector, work: Matrix) -> None:
    """Move v and b, both from the v before the step."""
    for i in range(layers.shape[1]):
        layers[1, i] -= motion[3] * motion[0] * layers[0, i] * work[2, i]
        layers[0, i] = (1.0 - eta * motion[5]) * layers[0, i] - motion[2] * motion[0] * work[1, i]


@kernel
def put_back(W: Matrix, radii: Vector, work: Matrix) -> None:
    """Scale the neurons to the lengths given."""
    for i in range(radii.size):
        work[6, i] = 0.0
    for c in range(W.shape[0]):
        for i in range(radii.size):
            work[6, i] += W[c, i] * W[c, i]
    for i in range(radii.size):
        work[6, i] = radii[i] / np.sqrt(work[6, i])
    for c in range(W.shape[0]):
        for i in range(radii.size):
            W[c, i] *= work[6, i]


@entry
def take_network_steps(
    W: Matrix, layers: Matrix, rates: Vector, constants: Constants, draws: Draws, buffers: Buffers
) -> int:
    """Take one step per rate η/B, on B samples each; return how many were taken before the state was not finite.

    `constants` are the link and the numbers `motion` and `radii` of the module's docstring. Draws are
    those of `take_batch_steps`, and for B = 1 of `take_single_steps`.
    """
    _, motion, radii = constants
    samples, gammas, labels = draws
    work, scratch, H, stack = buffers
    axes, m = W.shape
    batch, new = labels.shape[1], gammas.shape[1]
    products = row_part(work, 6, 0, m)
    for t in range(rates.size):
        if not weigh_samples(W, layers, rates[t], constants, samples, labels, t, H, work, scratch):
            give_up(W)
            give_up(layers)
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
            below = row_part(samples, t, batch * axes, samples.shape[1] - batch * axes)
            turn_batch(W, axes - m, H, row_part(gammas, t, 0, new), below, stack, products)
        else:
            for i in range(m):
                work[5, i] = H[0, i]
            turn_back(W, axes - m, samples, t, np.sqrt(2.0 * gammas[t, 0]) if new > 0 else 0.0, work)
        put_back(W, radii, work)
    return rates.size
