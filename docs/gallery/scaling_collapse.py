"""Emergence takes a time ~ d^(k/2 - 1): in rescaled time the losses of all dimensions are one curve."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import dynamics

problem = dynamics.Problem(
    activation="he4",
    teacher=dynamics.Teacher.power_law(64, beta=1.0),
    width=256,
    dimension=1024,
)
exponent = problem.information_exponent / 2 - 1
dimensions = [2**10, 2**13, 2**16, 2**19]

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
mean_times = []
for dimension, colour in zip(dimensions, plt.get_cmap("viridis")(np.linspace(0, 0.85, 4)), strict=True):
    # Matched pairs of neuron and direction, each alone: exact, and without time stepping.
    answer = dynamics.solve_decoupled(replace(problem, dimension=dimension))
    mean_times.append(float(answer.emergence_time.mean()))
    left.loglog(answer.time, answer.loss, color=colour, label=f"$d = {dimension}$")
    right.loglog(answer.time / dimension**exponent, answer.loss, color=colour)

slope = np.polyfit(np.log(dimensions), np.log(mean_times), 1)[0]
print(f"mean emergence time ~ d^{slope:.2f}; theory: d^{exponent:.2f}")

left.set(xlabel="flow time $t$", ylabel="loss", ylim=(1e-3, 2))
left.legend(frameon=False)
right.set(xlabel=r"rescaled time $t\,/\,d^{k/2 - 1}$", xlim=(1e-3, 3))
figure.savefig("scaling_collapse.png")
