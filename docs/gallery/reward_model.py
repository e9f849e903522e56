"""A reward model that ranks two actions wrongly teaches faster than one that ranks all well but varies little."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
from dynamics import tokens

true, times = [1.0, 0.8, 0.3, 0.0], dynamics.SaveAt.geometric(0.02, 3000.0, 600)
teachers = {
    "truth": true,
    "two ranks exchanged": [0.8, 1.0, 0.3, 0.0],
    "all ranks right, small": [0.05, 0.04, 0.015, 0.0],
}

with dynamics.figure_style():
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, rewards in teachers.items():
    problem = tokens.PolicyGradient(group_sizes=[1, 1, 6, 24], rewards=rewards, true_rewards=true)
    found = tokens.solve(problem, times, progress=False)
    variance, accuracy = problem.reward_variance, problem.accuracy
    taught = np.interp(0.7, found.true_reward, found.time)
    print(f"{name}: accuracy {accuracy:.3f}, variance {variance:.2g}, true reward 0.7 at t = {taught:.0f}")
    ax.semilogx(found.time, found.true_reward, label=f"{name}: variance {variance:.2g}")
ax.set(xlabel="time = learning rate · steps", ylabel="true reward")
ax.legend(loc="upper left")
figure.savefig("reward_model.png")
