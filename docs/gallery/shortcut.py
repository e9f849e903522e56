"""A positional shortcut beats an induction head out of distribution where kappa R is above 1."""

import matplotlib.pyplot as plt

import dynamics
from dynamics import tokens

times = dynamics.SaveAt.geometric(1.0, 20000.0, 300)
with dynamics.figure_style():
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
for ax, triggers in zip(axes, (4, 8, 16), strict=True):
    problem = tokens.TriggerTask(symbols=50, gaps=range(6, 14), triggers=triggers, shift=2)
    found = tokens.solve(problem, times, progress=False)
    moved, kappa_R = found.moved_attention.sel(gap=8), float(found.kappa_R[-1])
    print(f"{triggers} triggers: kappa R = {kappa_R:.2f}, attention {moved.values[-1].round(3).tolist()}")
    ax.semilogx(found.time, moved.sel(moved_key="right"), label="right key")
    ax.semilogx(found.time, moved.sel(moved_key="shortcut"), label="place of training")
    ax.set(title=f"{triggers} triggers, κR = {kappa_R:.2f}", xlabel="time = learning rate · steps")
axes[0].set_ylabel("attention, trigger shifted by 2")
axes[0].legend(loc="center left")
figure.savefig("shortcut.png")
