"""The best width grows with the compute m·t, and the least loss falls as a power of it."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics

beta = 1.0
widths = [8, 16, 32, 64, 128, 256, 512]
compute = np.geomspace(1e3, 2e6, 200)

with dynamics.figure_style():
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
losses = np.empty((4, len(widths), compute.size))
for at, width in enumerate(widths):
    for start in range(4):
        problem = dynamics.Problem(
            activation="he4", teacher=dynamics.Teacher.power_law(512, beta), width=width, dimension=2048, seed=start
        )
        losses[start, at] = dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.at(compute / width)).loss
    axes.loglog(compute, losses[0, at], color="0.7", linewidth=1)

logs = np.log(losses.min(axis=1))
frontier, error = np.exp(logs.mean(axis=0)), logs.std(axis=0, ddof=1) / 2
best = np.argmin(np.log(losses).mean(axis=0), axis=0)
inside = (best > 0) & (best < len(widths) - 2)
fit = dynamics.fit_power_law(compute, frontier, window=(compute[inside][0], compute[inside][-1]))
asymptotic = (1 - 2 * beta) / (1 + beta)
print(f"frontier ~ compute^{fit.exponent:.2f}; asymptotic exponent {asymptotic:.2f}")

axes.loglog(compute, frontier, label="least loss over widths 8 to 512, four starts, two s.e.")
axes.fill_between(compute, frontier * np.exp(-2 * error), frontier * np.exp(2 * error), alpha=0.3, lw=0)
guide = fit.prefactor * compute[inside] ** fit.exponent
axes.loglog(compute[inside], guide, "k--", label=f"fit: compute$^{{{fit.exponent:.2f}}}$")
axes.set(xlabel="compute $m t$", ylabel="loss", ylim=(1e-3, 2))
axes.legend(frameon=False)
figure.savefig("compute_frontier.png")
