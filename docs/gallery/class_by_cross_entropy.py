"""A class learned by cross-entropy: loss above its floor and test error above Bayes against samples, theory and SGD."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

# Labels are the signs of x_1, of which a tenth is flipped; no function has a loss below .325 or an error below .1.
d = 400
student = dynamics.Student(activation="erf", width=4, initial_second_layer=[0.5, 0.5, -0.5, -0.5])
problem = dynamics.Problem(
    student=student,
    teacher=dynamics.Teacher([1.0], links=["he1"]),
    dimension=d,
    objective="logistic",
    labels="sign",
    flip=0.1,
    seed=3,
)
rate, steps = 0.8 / d, 16_000
times = dynamics.SaveAt.at(rate * np.unique(np.rint(np.geomspace(20, steps, 60))))
theory = dynamics.solve_network(problem, learning_rate=rate, save_at=times, progress=False)
runs = sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=16, save_at=times, progress=False)

with dynamics.figure_style():
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
pairs = (
    ("loss", "loss_floor", "cross-entropy above its floor"),
    ("test_error", "bayes_error", "test error above Bayes"),
)
for ax, (name, least, label) in zip(axes, pairs, strict=True):
    floor = float(theory[least])
    last, mean = float(theory[name][-1]), float(runs[name][:, -1].mean())
    print(f"{name}: {last:.3f} at the end, runs {mean:.3f}, at least {floor:.3f} for any function")
    ax.loglog(runs.time / rate, (runs[name] - floor).T, color="0.7", lw=0.8, label=["SGD, d = 400"] + 15 * ["_"])
    ax.loglog(theory.time / rate, theory[name] - floor, color="C3", label="theory")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.set(xlabel="samples", ylabel=label)
    ax.legend()
figure.savefig("class_by_cross_entropy.png")
