"""Quadratic networks: directions align one after the other, at times that grow as ln(d/m)."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
from dynamics.theory.quadratic import power_window

width = 64
with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for dimension, marker in ((10**4, "o"), (10**6, "s"), (10**9, "^")):
    problem = dynamics.Problem(
        activation="he2",
        teacher=dynamics.Teacher.power_law(512, beta=1.0),
        width=width,
        dimension=dimension,
        initial_norm=width**-0.25,
    )
    # Exact, and without time stepping: the cost does not depend on d.
    answer = dynamics.solve_quadratic(problem)
    unit = np.log(dimension / width) / (4 * problem.teacher.coefficients[0])
    window = power_window(problem.teacher, width, dimension)
    law = dynamics.fit_power_law(answer.time, answer.loss, window=window)
    print(f"d = {dimension:.0e}: loss ~ t^({law.exponent:.2f} ± {law.standard_error:.2f})")
    left.loglog(answer.time / unit, answer.loss, label=f"$d = 10^{{{np.log10(dimension):.0f}}}$")
    right.loglog(answer.predicted_aligned_time / unit, answer.aligned_time / unit, marker, ms=4, mfc="none")

left.loglog([3, 20], [0.6, 0.09], "k:", label="asymptotic: $1/t$")
left.set(xlabel=r"scaled time $4 a_1 t / \ln(d/m)$", ylabel="loss $|Q - A|^2$")
left.legend(frameon=False)
right.loglog([0.7, 90], [0.7, 90], "k", lw=0.8)
right.set(xlabel="predicted time of alignment, scaled", ylabel="exact time, scaled")
figure.savefig("quadratic.png")
