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
