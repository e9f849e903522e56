"""The overlap flow as the docstring of `dynamics.equations.overlaps` writes it, in plain numpy."""

import numpy as np


def overlap_rates(problem, y):
    """Rates of a state [C | G | ln n], real or complex."""
    m, P = problem.width, problem.num_directions
    a, T = problem.teacher.coefficients, problem.teacher.gram()
    kernel = np.polynomial.Polynomial(problem.activation.coefficients**2)
    slope = kernel.deriv()
    C, G, n = y[: m * P].reshape(m, P), y[m * P : m * P + m * m].reshape(m, m), np.exp(y[m * P + m * m :])
    A, B = a * slope(C), slope(G) * n
    X = A @ C.T - B @ G
    r = np.diag(X)
    dC = A @ T - B @ C - r[:, None] * C
    dG = X + X.T - r[:, None] * G - G * r
    dl = 4 * (kernel(C) @ a - kernel(G) @ n)
    return np.concatenate([dC.ravel(), dG.ravel(), dl])


def field(link, a, rows, U, n):
    """The force on unit vectors and their growth, for complex states too; the force of a neuron on itself is left out."""
    g = np.polynomial.Polynomial(link.coefficients**2)
    C, G, others = U @ rows.T, U @ U.T, 1.0 - np.eye(len(U))
    force = (a * g.deriv()(C)) @ rows - (n * g.deriv()(G) * others) @ U
    return force, g(C) @ a - (g(G) * others) @ n - n * g(1.0)


def across(force, U):
    """The part of a force that turns unit vectors."""
    return force - np.sum(force * U, axis=1)[:, None] * U
