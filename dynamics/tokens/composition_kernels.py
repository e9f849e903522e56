"""Compiled kernels of composition by attention: three scores per layer.

State y = [w_1, w_2, w_3 of layer 1 | … of layer L]: right key, the other N − 1 of its block, the other blocks; sizes =
[L, whether the loss is cross-entropy, number of stages, stage, −1 if the time tells it]; parameters = [N | k | time of
a stage | ω (stages, L)]. Row l of the scratch holds s of the layer before, u, u_a, u_b and u_3 of
`dynamics.tokens.composition`.
"""

import numpy as np

from dynamics.kernels.arrays import Integers, Vector
from dynamics.kernels.jit import kernel


@kernel
def write_layers(y: Vector, parameters: Vector, sizes: Integers, work: Vector) -> float:
    """Write s of the layer before, u, u_a, u_b, u_3 of every layer; return s of the last."""
    N, k = parameters[0], parameters[1]
    s = 1.0
    for layer in range(sizes[0]):
        w1, w2, w3 = y[3 * layer], y[3 * layer + 1], y[3 * layer + 2]
        m = (w1 + (N - 1.0) * w2) / N
        a, b = s * w1 + (1.0 - s) * m, s * w2 + (1.0 - s) * m
        top = max(a, b, w3)
        ea, eb, ec = np.exp(a - top), np.exp(b - top), np.exp(w3 - top)
        Z = ea + (N - 1.0) * eb + N * (k - 1.0) * ec
        u = (ea - eb) / Z
        work[5 * layer] = s
        work[5 * layer + 1] = u
        work[5 * layer + 2] = ea / Z * (1.0 - u)
        work[5 * layer + 3] = -eb / Z * (1.0 + (N - 1.0) * u)
        work[5 * layer + 4] = -N * (k - 1.0) * ec / Z * u
        s *= u
    return s


@kernel
def rhs(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """w_c' = (1 − 1/N) λ_l s (∂u/∂w_c)/μ_c, with λ carried down from the last layer."""
    N, k, L = parameters[0], parameters[1], sizes[0]
    stage = sizes[3]
    if stage < 0:
        # A step that begins at the end of a stage belongs to the next, however its time was rounded.
        stage = min(int(t / parameters[2] + 1e-9), sizes[2] - 1)
    s_next, slope, force = write_layers(y, parameters, sizes, work), 0.0, 0.0
    for layer in range(L - 1, -1, -1):
        w1, w2 = y[3 * layer], y[3 * layer + 1]
        s, u, ua, ub, u3 = (
            work[5 * layer],
            work[5 * layer + 1],
            work[5 * layer + 2],
            work[5 * layer + 3],
            work[5 * layer + 4],
        )
        own = parameters[3 + stage * L + layer]
        if sizes[1] == 1:
            own /= s_next + (1.0 - s_next) / N
        force = own + force * slope
        rate, far = (1.0 - 1.0 / N) * force * s, (1.0 - s) / N
        out[3 * layer] = rate * (ua * (s + far) + ub * far)
        out[3 * layer + 1] = rate * (ua * far * (N - 1.0) + ub * (s + far * (N - 1.0))) / (N - 1.0)
        out[3 * layer + 2] = rate * u3 / (N * (k - 1.0))
        m = (w1 + (N - 1.0) * w2) / N
        slope = u + s * (ua * (w1 - m) + ub * (w2 - m))
        s_next = s


@kernel
def event_values(t: float, y: Vector, out: Vector, parameters: Vector, sizes: Integers, work: Vector) -> None:
    """s_l − ½ of every layer."""
    last = write_layers(y, parameters, sizes, work)
    for layer in range(sizes[0]):
        out[layer] = (work[5 * (layer + 1)] if layer + 1 < sizes[0] else last) - 0.5


@kernel
def normalise(y: Vector, parameters: Vector, sizes: Integers) -> None:
    """Leave the state as it is."""
