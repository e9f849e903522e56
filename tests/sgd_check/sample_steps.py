"""Steps of SGD in weight space, by automatic differentiation of the loss of samples: what every engine must do."""

import numpy as np
import torch
from engine_state import batches_of, engine_of, states_of

#: Links by hand; polynomials are sums of Hermite polynomials.
NAMED = {
    "erf": lambda z: torch.erf(z / 2**0.5),
    "relu": torch.relu,
    "gelu": lambda z: z * (1 + torch.erf(z / 2**0.5)) / 2,
    "tanh": torch.tanh,
    "tanh(z)": torch.tanh,
    "sign": torch.sign,
    "sqrt(2)*(z**2 - 1)/4 + tanh(z)": lambda z: torch.tanh(z) + 0.5 * (z**2 - 1) / 2**0.5,
}


def he(k, z):
    before, now = torch.zeros_like(z), torch.ones_like(z)
    for j in range(k):
        before, now = now, (z * now - j**0.5 * before) / (j + 1) ** 0.5
    return now


def link_of(link):
    if link.is_polynomial:
        return lambda z: sum(float(c) * he(j, z) for j, c in enumerate(link.coefficients) if c)
    return NAMED[link.name]


def output(problem, w, x, v=None, b=None):
    """f (…, B) by its definition: w (…, m, d), x (…, B, d), and of a network v and b (…, m); tensors in float64."""
    z, n, link = w @ x.swapaxes(-1, -2), torch.sum(w**2, dim=-1, keepdim=True), link_of(problem.activation)
    if problem.kind == "network":
        return problem.student.output_scale * torch.sum(v[..., None] * link(z + b[..., None]), dim=-2)
    if problem.kind == "homogeneous":
        return torch.sum(n * link(z / n.sqrt()), dim=-2)
    if problem.kind == "stiefel":  # unit vectors, of the squared norm of the problem
        return problem.initial_norm**2 * torch.sum(link(z), dim=-2)
    return torch.sum(link(z), dim=-2) / (w.shape[-2] if problem.kind == "spherical" else 1)


def step(problem, state, x, labels, rate, root=1.0):
    """Return the state after a step on half the mean squared error of B samples, of many runs if all have one more axis.

    The state is w, or (v, b, w) of a network. Of inputs that are not isotropic w and x are whitened, and the step is that
    of Σ^-½ w, with the roots of the eigenvalues as `root`.
    """
    is_network, student = problem.kind == "network", problem.student
    parts = [*state] if is_network else [state]
    parts[-1] = parts[-1] / root
    tensors = [torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in parts]
    f = output(problem, tensors[-1] * torch.tensor(root), torch.tensor(x), *tensors[:-1])
    loss = 0.5 * torch.sum(torch.mean((f - torch.tensor(labels)) ** 2, dim=-1))
    gradients = [gradient.numpy() for gradient in torch.autograd.grad(loss, tensors)]
    rates, decays = [1.0], [0.0]
    if is_network:
        (rate_w, *others), (decay_w, decay_v) = student.learning_rates, student.decay
        rates, decays = [*others, rate_w], [decay_v, 0.0, decay_w]
    w, length = parts[-1], np.linalg.norm(parts[-1], axis=-1, keepdims=True)
    keeps_length = problem.kind == "spherical" or (is_network and student.first_layer == "sphere")
    if keeps_length:
        gradients[-1] = gradients[-1] - np.sum(gradients[-1] * w, axis=-1, keepdims=True) * w / length**2
        rates[-1], decays[-1] = rates[-1] if is_network else w.shape[-2], 0.0
    moved = [
        (1 - rate * decay) * part - rate * share * gradient
        for part, gradient, share, decay in zip(parts, gradients, rates, decays, strict=True)
    ]
    if keeps_length:
        moved[-1] *= length / np.linalg.norm(moved[-1], axis=-1, keepdims=True)
    moved[-1] = moved[-1] * root
    return tuple(moved) if is_network else moved[0]


def parts_of(problem, state):
    return state if problem.kind == "network" else (state,)


def assert_autograds_steps(problem, rates, seeds=(0, 1, 2), tolerance=1e-12, **options):
    """The torch engine takes these steps on its own samples; return its runs, and their states before and after."""
    run, twin = (engine_of("torch", problem, seeds, **{"dtype": "float64"} | options) for _ in range(2))
    root = 1.0 if problem.inputs is None else np.sqrt(problem.inputs.eigenvalues_of_axes(problem.dimension))
    start = state = states_of(run, problem)
    with twin.running():
        batches = batches_of(twin, len(rates))
    with run.running():
        run.advance(np.array(rates))
    for (x, labels), rate in zip(batches, rates, strict=True):
        state = step(problem, state, x, labels, rate, root)
    found = states_of(run, problem)
    for ours, theirs in zip(parts_of(problem, found), parts_of(problem, state), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
    return run, start, found
