"""Networks in weight space: the loss as torch differentiates it, by quadrature over x, with nothing of the overlaps."""

import math

import numpy as np
import torch
from gaussian_rules import gauss_grid, grid_of

torch.set_default_dtype(torch.float64)

LINKS = {
    "erf": lambda z: torch.erf(z / math.sqrt(2.0)),
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sign": torch.sign,
    "step": lambda z: 0.5 + 0.5 * torch.sign(z),
}


def value_of(link):
    """Return a link as a function of tensors: a name, or powers {n: coefficient}."""
    if isinstance(link, str):
        return LINKS[link]
    return lambda z: sum(c * z**n for n, c in link.items())


def as_expansion(link):
    if isinstance(link, str):
        return link
    return " + ".join(f"({c})*z**{n}" for n, c in link.items())


REACH = 9.0


def space(axes, step=0.3, reach=8.7):
    """Return nodes and weights of the trapezoidal rule for x ~ N(0, I), which is exact for entire functions."""
    nodes = np.arange(-reach, reach + step, step)
    x, measure = grid_of([(nodes, np.exp(-0.5 * nodes**2) * step / math.sqrt(2.0 * math.pi))] * axes)
    return torch.tensor(x), torch.tensor(measure)


def rule(kink, pieces=5, nodes=14):
    """Return nodes (…, n) and weights of E over N(0, 1), in pieces that end at a kink (…), differentiable in it."""
    x, w = (torch.tensor(part) for part in np.polynomial.legendre.leggauss(nodes))
    share = (torch.arange(pieces)[:, None] + 0.5 * (1.0 + x)).reshape(-1) / pieces
    kink = torch.clamp(kink, -REACH, REACH)[..., None]
    found, weights = [], []
    for end in (-REACH, REACH):
        at = kink + (end - kink) * share
        found.append(at)
        length = torch.abs(end - kink) * (w.repeat(pieces) * 0.5 / pieces)
        weights.append(length * torch.exp(-0.5 * at**2) / math.sqrt(2.0 * math.pi))
    return torch.cat(found, -1), torch.cat(weights, -1)


def pair_mean(first, q_a, b_a, second, q_b, b_b, c):
    """Return E σ_a(λ_a + b_a) σ_b(λ_b + b_b) of projections with these variances and this covariance."""
    length = torch.sqrt(q_a)
    z, weight = rule(-b_a / length, 9)
    mean, rest = c / length * z, torch.sqrt(q_b - c**2 / q_a)
    y, inner = rule(-(b_b + mean) / rest)
    conditional = (inner * second(mean[:, None] + rest * y + b_b)).sum(-1)
    return (weight * first(length * z + b_a) * conditional).sum()


def polynomial_mean(link, w, b, target, order):
    """Return E σ(w·x + b) f*(x): x along w in pieces, across it on Gauss–Hermite nodes, exact for a polynomial."""
    length = torch.linalg.norm(w)
    u = w / length
    z, weight = rule(-b / length)
    g, across = map(torch.tensor, gauss_grid(order + 1, len(w)))
    x = z[:, None, None] * u + (g - (g @ u)[:, None] * u)
    values = evaluate(target, x) @ across
    return (weight * link(length * z + b) * values).sum()


def evaluate(target, x):
    """Return a polynomial of `Teacher.polynomial` at points (…, D)."""
    total = torch.zeros(x.shape[:-1])
    for exponents, power in zip(target.exponents.tolist(), target.powers.tolist(), strict=True):
        term = torch.full(x.shape[:-1], power)
        for axis, exponent in enumerate(exponents):
            term = term * x[..., axis] ** exponent
        total = total + term
    return total


def smooth_loss(problem, link, unit_links, v, b, W):
    """Return E(f − f*)² over nodes in all of space."""
    x, measure = space(W.shape[1])
    f = problem.student.output_scale * value_of(link)(x @ W.T + b) @ v
    teacher = problem.teacher
    if teacher.is_polynomial:
        target = evaluate(teacher.target, x[:, : teacher.span])
    else:
        units = teacher.units(problem.teacher_link)
        target = sum(
            u.coefficient * value_of(each)(x[:, : teacher.span] @ torch.tensor(u.direction) + u.bias)
            for u, each in zip(units, unit_links, strict=True)
        )
    return measure @ (f - target) ** 2


def paired_loss(problem, link, unit_links, v, b, W):
    """Return E(f − f*)² without E f*², pair by pair."""
    student, teacher, sigma = problem.student, problem.teacher, value_of(link)
    weights, Q = student.output_scale * v, W @ W.T
    total = torch.tensor(0.0)
    for i in range(len(v)):
        length = torch.sqrt(Q[i, i])
        z, measure = rule(-b[i] / length)
        total = total + weights[i] ** 2 * (measure * sigma(length * z + b[i]) ** 2).sum()
        for j in range(i):
            mean = pair_mean(sigma, Q[i, i], b[i], sigma, Q[j, j], b[j], Q[i, j])
            total = total + 2.0 * weights[i] * weights[j] * mean
        if teacher.is_polynomial:
            degree = int(teacher.target.exponents.sum(axis=1).max())
            total = total - 2.0 * weights[i] * polynomial_mean(sigma, W[i], b[i], teacher.target, degree)
            continue
        for u, each in zip(teacher.units(problem.teacher_link), unit_links, strict=True):
            c = W[i, : teacher.span] @ torch.tensor(u.direction)
            one, bias = torch.tensor(1.0), torch.tensor(u.bias)
            mean = pair_mean(sigma, Q[i, i], b[i], value_of(each), one, bias, c)
            total = total - 2.0 * weights[i] * u.coefficient * mean
    return total


def is_smooth(link, unit_links):
    return not {"relu", "sign", "step"} & {each for each in (link, *unit_links) if isinstance(each, str)}


def velocities(problem, link, unit_links=()):
    """Return v', b', W' of the flow of ½ E(f − f*)² by autograd, and the loss where it is whole."""
    student, start = problem.student, problem.network_start()
    v, b, W = (torch.tensor(np.array(part), requires_grad=True) for part in start)
    loss = smooth_loss if is_smooth(link, unit_links) else paired_loss
    value = loss(problem, link, unit_links, v, b, W)
    gradients = torch.autograd.grad(0.5 * value, (v, b, W))
    (rate_w, rate_v, rate_b), (decay_w, decay_v) = student.learning_rates, student.decay
    dv = -rate_v * gradients[0] - decay_v * v
    db = -rate_b * gradients[1]
    dW = -rate_w * gradients[2] - decay_w * W
    if student.first_layer == "sphere":
        dW = dW - W * ((dW * W).sum(1) / (W * W).sum(1))[:, None]
    return tuple(part.detach().numpy() for part in (dv, db, dW)), float(value.detach())


def rates_of_state(problem, link, unit_links=()):
    """Return (v', b', M', Q') of the same, and the loss."""
    (dv, db, dW), loss = velocities(problem, link, unit_links)
    W, r = problem.network_start().weights, problem.teacher.span
    return (dv, db, dW[:, :r], dW @ W.T + W @ dW.T), loss
