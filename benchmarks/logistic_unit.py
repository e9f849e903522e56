"""One logistic unit on labels sign(x_1): our points beside the usual code, at equal error, in one run.

The other code takes each mean over the unit's field and x_1 by `scipy.integrate.dblquad`, and steps by `odeint`, with
their default tolerances and with looser ones. `python -m benchmarks.logistic_unit` prints processor times, and the
largest error of overlap and norm against means by Gauss-Legendre times Gauss-Hermite quadrature, solved to 1e-10; and
at each number of points how many times as long the fastest of the other runs takes that is as exact.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.integrate import dblquad, odeint, solve_ivp
from scipy.special import expit, roots_hermitenorm, roots_legendre

import dynamics

END, RATE, FAR = 5.0, 1.0, 10**9
#: Start: no overlap, and norm 1.
START = (0.0, 1.0)
#: Half-widths of the Gaussian integrals, in standard deviations.
WIDTH = 10.0
POINTS = (2**10, 2**12, 2**14, 2**16)
#: Of our steps, below the error of the points.
OUR_TOLERANCE = 1e-5
#: Tolerances, absolute and relative alike, of the double integrals and of the steps; 1.49e-8 is the default of both.
TOLERANCES = (3e-1, 1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1.49e-8)
REPEATS = 3


def rates(mean: Callable[[Callable[[float, float], float], float, float], float], M: float, Q: float) -> list[float]:
    """Return M' and Q' at c = 1 from a function that returns the mean of g(x_1, λ) at M and Q."""

    def slope(x: float, field: float) -> float:
        y = np.sign(x)
        return -y * expit(-y * field)

    along = mean(lambda x, field: slope(x, field) * x, M, Q)
    radial = mean(lambda x, field: slope(x, field) * field, M, Q)
    square = mean(lambda x, field: slope(x, field) ** 2, M, Q)
    return [-RATE * along, -2.0 * RATE * radial + RATE**2 * square]


def by_dblquad(function: Callable[[float, float], float], M: float, Q: float, *, tolerance: float) -> float:
    """Return the mean of a function of x_1 and λ by adaptive quadrature over both, to a tolerance."""
    spread = np.sqrt(max(Q - M * M, 1e-14))

    def weighted(z: float, x: float) -> float:
        return float(function(x, M * x + spread * z) * np.exp(-0.5 * (x * x + z * z)) / (2.0 * np.pi))

    halves = ((-WIDTH, 0.0), (0.0, WIDTH))
    return sum(dblquad(weighted, *half, -WIDTH, WIDTH, epsabs=tolerance, epsrel=tolerance)[0] for half in halves)


def by_tensor(function: Callable[[float, float], float], M: float, Q: float) -> float:
    """Return the same mean on 120 × 80 nodes, split at x_1 = 0."""
    nodes, weights = roots_legendre(120)
    half = 0.5 * WIDTH * (nodes + 1.0)
    x = np.concatenate([-half, half])
    p = np.tile(0.5 * WIDTH * weights * np.exp(-0.5 * half**2) / np.sqrt(2.0 * np.pi), 2)
    z, q = roots_hermitenorm(80)
    fields = M * x[:, None] + np.sqrt(max(Q - M * M, 1e-14)) * z
    values = function(np.broadcast_to(x[:, None], fields.shape), fields)
    return float(p @ values @ q / q.sum())


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the least processor seconds of some repeats, after one that compiles, and the result."""
    work()
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        result = work()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def ours(points: int) -> np.ndarray:
    """Return overlap and norm at the end by Sobol points."""
    student = dynamics.Student(
        activation="he1", width=1, second_layer="fixed", initial_second_layer=[1.0], biases="none"
    )
    problem = dynamics.Problem(
        student=student,
        teacher=dynamics.Teacher([1.0], links=["he1"]),
        dimension=FAR,
        initial_weights=[[START[0], np.sqrt(START[1])]],
        objective="logistic",
        labels="sign",
    )
    answer = dynamics.solve_network(
        problem,
        learning_rate=RATE / FAR,
        step_theory="infinite-d",
        save_at=dynamics.SaveAt.at([0.0, END]),
        points=points,
        rtol=OUR_TOLERANCE,
        atol=OUR_TOLERANCE,
        error_estimate=False,
        progress=False,
    )
    norm = float(answer.squared_norm[-1, 0])
    return np.array([float(answer.teacher_overlap[-1, 0, 0]) * np.sqrt(norm), norm])


def theirs(tolerance: float) -> np.ndarray:
    """Return overlap and norm at the end by adaptive double integrals, all to a tolerance."""
    mean = partial(by_dblquad, tolerance=tolerance)
    return odeint(lambda y, _: rates(mean, *y), START, [0.0, END], rtol=tolerance, atol=tolerance)[-1]


def main() -> int:
    """Print times and errors of both, and the ratios of times at equal error."""
    exact = solve_ivp(lambda _, y: rates(by_tensor, *y), (0.0, END), START, method="DOP853", rtol=1e-10, atol=1e-12)
    expected = exact.y[:, -1]
    print(f"exact at t = {END:g}: M = {expected[0]:.6f}, Q = {expected[1]:.6f}")
    others = []
    for tolerance in TOLERANCES:
        seconds, answer = timed(partial(theirs, tolerance))
        others.append((float(np.abs(answer - expected).max()), seconds))
        print(f"dblquad and odeint to {tolerance:.0e}: {seconds:.2f} s, error {others[-1][0]:.1e}")
    for points in POINTS:
        seconds, answer = timed(partial(ours, points))
        error = float(np.abs(answer - expected).max())
        least = min((other for reached, other in others if reached <= error), default=np.nan)
        ratio = f"the fastest as exact takes {least / seconds:.1f} times as long"
        print(f"{points} points: {seconds:.3f} s, error {error:.1e}; {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
