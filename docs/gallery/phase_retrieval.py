"""Phase retrieval: one neuron h_2(w·x) finds x_1 up to its sign, after a time ~ ln d."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check

student = dynamics.Student(activation="h2(z)", width=1, second_layer="fixed", initial_second_layer=[1.0])
problem = dynamics.Problem(student=student, teacher=dynamics.Teacher.polynomial("h2(x1)"), dimension=100, seed=1)
tree = sgd_check.check(problem, learning_rate=4e-5, steps=150_000, seeds=32, progress=False)
print("verdict:", tree["comparison"].attrs["verdict"])

theory, runs = (float(tree[part]["emergence_time"].mean()) for part in ("prediction", "simulation"))
print(f"emergence by theory: {theory:.2f}, by SGD: {runs:.2f}")

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
figure.savefig("phase_retrieval.png")
