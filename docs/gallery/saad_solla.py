"""Saad and Solla's committee: two erf neurons wait on a symmetric plateau, then each takes a teacher's unit."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check

student = dynamics.Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
problem = dynamics.Problem(
    student=student, teacher=dynamics.Teacher([1.0, 1.0]), dimension=400, initial_norm=0.5, seed=1
)
tree = sgd_check.check(problem, learning_rate=5e-4, steps=300_000, seeds=32, progress=False)
print("verdict:", tree["comparison"].attrs["verdict"])

plateau = float(tree["prediction"]["loss"].sel(time=15.0, method="nearest"))
print(f"loss on the plateau: {plateau:.4f}; where both neurons are alike and d is infinite: 0.0232")

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
figure.savefig("saad_solla.png")
