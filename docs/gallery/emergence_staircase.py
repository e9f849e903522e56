"""Directions of a teacher emerge one after the other, and the loss goes down a staircase."""

import matplotlib.pyplot as plt

import dynamics

# Eight orthonormal directions of weights a_p ~ 1/p, learned by 32 neurons in 256 dimensions.
problem = dynamics.Problem(
    activation="he4",
    teacher=dynamics.Teacher.power_law(8, beta=1.0),
    width=32,
    dimension=256,
    seed=2,
)
flow = dynamics.solve_overlaps(problem, rtol=1e-6, progress=False)

ratio = flow.emergence_time / flow.predicted_emergence_time
print("measured over predicted emergence times:", ratio.round(1).values.tolist())

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
dynamics.plot_emergence(flow, ax=left)
dynamics.plot_loss(flow, ax=right)
figure.savefig("emergence_staircase.png")
