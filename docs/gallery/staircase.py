"""A staircase: x1 helps to find x1*x2, and that x1*x2*x3, all in times that do not grow with the dimension."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

student = dynamics.Student(
    activation="h3(z)",
    width=8,
    second_layer="fixed",
    initial_second_layer=[1.0, -1.0] * 4,
    biases="trained",
    initial_biases=np.sin(1.0 + np.arange(8)),
)
teacher = dynamics.Teacher.polynomial("x1 + x1*x2 + x1*x2*x3")
problem = dynamics.Problem(student=student, teacher=teacher, dimension=100, initial_norm=0.5, seed=6)
tree = sgd_check.check(problem, learning_rate=2e-5, steps=300_000, seeds=32, progress=False)
print("verdict:", tree["comparison"].attrs["verdict"], "leap:", teacher.leap)

for name, time in zip(teacher.order, tree["prediction"]["component_learned_time"].values, strict=True):
    print(f"{name} is learned at {time:.2f}")

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
figure.savefig("staircase.png")
