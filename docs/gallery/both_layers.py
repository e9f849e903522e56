"""Three erf neurons with both layers trained, more than the teacher has."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check

student = dynamics.Student(activation="erf", width=3, second_layer="trained", initial_second_layer=[0.5, 0.6, 0.7])
problem = dynamics.Problem(
    student=student, teacher=dynamics.Teacher([1.0, 1.0]), dimension=100, initial_norm=0.5, seed=1
)
tree = sgd_check.check(problem, learning_rate=2e-3, steps=250_000, seeds=32, progress=False)
print("verdict:", tree["comparison"].attrs["verdict"])
print("second layer at the end:", tree["prediction"]["second_layer"][-1].round(2).values.tolist())

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
figure.savefig("both_layers.png")
