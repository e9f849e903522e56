"""Three relu neurons learn two: no finite-step equation is closed, so the step size is extrapolated away."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check

student = dynamics.Student(activation="relu", width=3, second_layer="fixed", initial_second_layer=[1.0, 1.0, 1.0])
problem = dynamics.Problem(
    student=student, teacher=dynamics.Teacher([1.0, 1.0]), dimension=200, initial_norm=0.5, seed=1
)
flow = dynamics.solve_problem(problem, rtol=1e-6, progress=False)
runs = [
    sgd_check.simulate(problem, learning_rate=rate, steps=round(40 / rate), seeds=32, progress=False)
    for rate in (4e-4, 2e-4)
]
tree = sgd_check.compare(flow, runs)
print("verdict:", tree["comparison"].attrs["verdict"])

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
sgd_check.plot_learning(tree, left, quantity="loss")
sgd_check.plot_learning(tree, right)
figure.savefig("relu_committee.png")
