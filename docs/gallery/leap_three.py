"""Leap 3: nothing helps to find x1*x2*x3, and a neuron leaves the saddle at a time ~ d^(1/2) that theory gives."""

import warnings

import matplotlib.pyplot as plt

import dynamics
import sgd_check

student = dynamics.Student(
    activation="h3(z)", width=1, second_layer="fixed", initial_second_layer=[1.2], first_layer="sphere"
)
problem = dynamics.Problem(student=student, teacher=dynamics.Teacher.polynomial("x1*x2*x3"), dimension=50, seed=3)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # on the sphere no finite-step equation is exact: the flow is tested
    tree = sgd_check.check(problem, learning_rate=2e-5, steps=250_000, seeds=32, progress=False)
print("verdict:", tree["comparison"].attrs["verdict"])

escape = float(tree["prediction"]["predicted_component_time"][0])
learned = [float(tree[part]["component_learned_time"].mean()) for part in ("prediction", "finer")]
print(f"escape from the saddle: {escape:.1f}; learned by the flow: {learned[0]:.1f}, by SGD: {learned[1]:.1f}")

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
right.axvline(escape, color="grey", ls=":")
figure.savefig("leap_three.png")
