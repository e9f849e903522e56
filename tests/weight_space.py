"""The same learning problem in weight space, by torch autograd: independent of every overlap equation."""

import numpy as np
import torch
from scipy.integrate import solve_ivp


def theta_of(problem, columns=None):
    """Return the teacher's directions as rows in R^d, or in so many columns."""
    rows = np.eye(problem.teacher.span) if problem.teacher.directions is None else problem.teacher.directions
    return np.pad(rows, ((0, 0), (0, (columns or problem.dimension) - rows.shape[1])))


def population_loss(weights, problem):
    squares = torch.tensor(problem.activation.coefficients**2)
    directions = torch.tensor(theta_of(problem, weights.shape[1]))
    a = torch.tensor(problem.teacher.coefficients)
    norms = (weights**2).sum(dim=1)
    unit = weights / norms.sqrt()[:, None]
    every = torch.cat([unit, directions])
    mass = torch.cat([norms, -a])
    gram = every @ every.T
    kernel = sum(square * gram**j for j, square in enumerate(squares) if square != 0)
    return mass @ kernel @ mass


def gradient_flow(problem, weights, times):
    """Integrate w' = −½ ∇ E(f − f*)² from `weights`; return the weights at `times`."""
    shape = weights.shape

    def velocity(_t, flat):
        w = torch.tensor(flat.reshape(shape), requires_grad=True)
        (gradient,) = torch.autograd.grad(0.5 * population_loss(w, problem), w)
        return -gradient.numpy().ravel()

    found = solve_ivp(
        velocity, (0.0, times[-1]), weights.ravel(), method="DOP853", t_eval=times, rtol=1e-12, atol=1e-14
    )
    assert found.success, found.message
    return [column.reshape(shape) for column in found.y.T]
