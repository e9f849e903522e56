"""A learned direction with three neurons that lean to different sides: what slowing its mean must do to each of them."""

import numpy as np

import dynamics

#: Teacher coefficient, length of a step, and κ of the solver.
A, H, KAPPA = 0.7, 100.0, 4.0
SHARES = np.array([0.6, 0.3, 0.1])
SIDES = np.array([[0.3, -1.0, 0.2], [0.4, 0.9, -1.1], [0.0, 0.0, 0.0]])
SIDES[2] = -(SHARES[:2] @ SIDES[:2]) / SHARES[2]
#: How far the means are from rest: less than what an accepted cluster may be.
TILT, EXCESS = 3e-7 * np.array([0.6, 0.64, 0.48]), 4e-7


def question(link, lean, sign):
    """Return the problem that starts with the cluster; its four dimensions are the coordinates of the solver."""
    u = np.column_stack([np.ones(3), lean * SIDES + TILT])
    weights = (sign * np.sqrt(A * SHARES * np.exp(EXCESS)) / np.linalg.norm(u, axis=1))[:, None] * u
    teacher = dynamics.Teacher([A])
    return dynamics.Problem(activation=link, teacher=teacher, width=3, dimension=4, initial_weights=weights)


def rates(link, U, log_norm):
    """Return u' and (ln n)' of neurons and one direction, the first axis."""
    G, n = U @ U.T, np.exp(log_norm)
    F = -(n * link.kernel_derivative(G)) @ U
    F[:, 0] += A * link.kernel_derivative(U[:, 0])
    growth = A * link.kernel(U[:, 0]) - link.kernel(G) @ n
    return F - np.sum(F * U, axis=1)[:, None] * U, 4.0 * growth


def first_order_error(link, sign, lean, slowed):
    """Return the error of the members' velocities in units of that of the mean; `slowed` returns u' and (ln n)'."""
    asked = question(link, lean, sign)
    link = asked.activation
    W = asked.initial_weights
    n = np.sum(W**2, axis=1)
    U, log_norm = W / np.sqrt(n)[:, None], np.log(n)
    velocity, growth = rates(link, U, log_norm)
    share = n / n.sum()
    rate = A * float(link.kernel_derivative(1.0)), 4.0 * A * float(link.kernel(1.0))
    held = [1.0 - KAPPA / (H * each) for each in rate]
    assert min(held) > 0.9
    mean = (share * sign) @ velocity, share @ growth
    moved = U + sign[:, None] * held[0] / rate[0] * mean[0]
    moved /= np.linalg.norm(moved, axis=1)[:, None]
    expected = rates(link, moved, log_norm + held[1] / rate[1] * mean[1])
    found = slowed(asked, sign, H)
    scale = max(np.abs(mean[0]).max(), abs(mean[1]))
    return max(np.abs(f - e).max() for f, e in zip(found, expected, strict=True)) / scale


def check(link, sign, slowed):
    """Assert that the error is of second order in how far members lean, 5 `lean` at most."""
    leans = 2e-3, 1e-3
    errors = [first_order_error(link, np.array(sign), lean, slowed) for lean in leans]
    assert errors[0] < 70.0 * leans[0] ** 2
    assert 3.7 < errors[0] / errors[1] < 4.3


def beside_a_waiting_neuron():
    """Return a problem with such a cluster on a strong direction, and a neuron that needs 3e6 to learn a weak one."""
    u = np.zeros((4, 8))
    u[:3, 0] = 1.0, -1.0, 1.0
    u[:3, 2:5] = 3e-3 * SIDES
    u[3, 1], u[3, 6] = 0.02, 1.0
    u /= np.linalg.norm(u, axis=1)[:, None]
    weights = np.sqrt([[0.6], [0.37], [0.03], [1e-7]]) * u
    teacher = dynamics.Teacher([1.0, 1e-4])
    return dynamics.Problem(activation="he4", teacher=teacher, width=4, dimension=8, initial_weights=weights)
