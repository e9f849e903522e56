"""Leaps 1, 2 and 3 side by side: the larger the leap, the more the last time grows with the dimension."""

import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

polynomial, signs = dynamics.Teacher.polynomial, np.array([1.0, -1.0, 1.0, -1.0])
stairs = dynamics.Student(
    activation="h3(z)",
    width=8,
    second_layer="fixed",
    initial_second_layer=np.tile(signs, 2),
    biases="trained",
    initial_biases=np.sin(1.0 + np.arange(8)),
)
pairs = dynamics.Student(activation="h2(z)", width=4, second_layer="fixed", initial_second_layer=signs)
# Four neurons of this weight, one on each diagonal of the cube, are x1*x2*x3.
cubes = dynamics.Student(
    activation="h3(z)",
    width=4,
    second_layer="fixed",
    initial_second_layer=signs * np.sqrt(27 / 96),
    first_layer="sphere",
)
leap_1 = dynamics.Problem(
    student=stairs, teacher=polynomial("x1 + x1*x2 + x1*x2*x3"), dimension=100, initial_norm=0.5, seed=6
)
leap_2 = dynamics.Problem(student=pairs, teacher=polynomial("x1*x2"), dimension=100, initial_norm=0.5, seed=1)
leap_3 = dynamics.Problem(student=cubes, teacher=polynomial("x1*x2*x3"), dimension=50, seed=3)
cases = [(leap_1, 2e-5, 6.0, "1"), (leap_2, 2e-4, 8.0, "$\\ln d$"), (leap_3, 4e-5, 13.0, "$d^{1/2}$")]

dimensions = [100, 1000, 10_000, 100_000]
with dynamics.figure_style():
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
warnings.simplefilter("ignore", UserWarning)  # on the sphere no finite-step equation is exact: the flow is tested
for (upper, lower), (problem, rate, end, law) in zip(axes.T, cases, strict=True):
    tree = sgd_check.check(problem, learning_rate=rate, steps=round(end / rate), seeds=24, progress=False)
    sgd_check.plot_learning(tree, upper, quantity="loss")
    sgd_check.plot_learning(tree, lower)
    upper.set_title(f"leap {problem.teacher.leap}: time ~ {law}")
    lower.set_title("")

    flows = [dynamics.solve_problem(replace(problem, dimension=d), rtol=1e-5, progress=False) for d in dimensions]
    last = [float(flow.component_learned_time.max()) for flow in flows]
    inset = upper.inset_axes((0.14, 0.12, 0.34, 0.34))
    inset.loglog(dimensions, last, "o-", ms=3)
    inset.set_title("last time against $d$", fontsize="small")
    inset.set_ylim(1, 1000)
    inset.tick_params(labelsize="small")
    print(
        f"leap {problem.teacher.leap}:", tree["comparison"].attrs["verdict"], "last times", np.round(last, 1).tolist()
    )
figure.savefig("leaps.png")
