"""The best width grows with the compute m·t, and the least loss falls as a power of it."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics

beta = 1.0
widths = [8, 16, 32, 64, 128, 256, 512]
compute = np.geomspace(1e3, 2e6, 200)

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
losses = []
for width in widths:
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(512, beta), width=width, dimension=2048
    )
    answer = dynamics.solve_decoupled(problem, save_at=dynamics.SaveAt.at(compute / width))
    losses.append(answer.loss.values)
    axes.loglog(compute, answer.loss, color="0.7", linewidth=1)

frontier = np.min(losses, axis=0)
best = np.argmin(losses, axis=0)
inside = (best > 0) & (best < len(widths) - 2)
fit = dynamics.fit_power_law(compute, frontier, window=(compute[inside][0], compute[inside][-1]))
asymptotic = (1 - 2 * beta) / (1 + beta)
print(f"frontier ~ compute^{fit.exponent:.2f}; asymptotic exponent {asymptotic:.2f}")

axes.loglog(compute, frontier, label="least loss over widths 8 to 512")
guide = fit.prefactor * compute[inside] ** fit.exponent
axes.loglog(compute[inside], guide, "k--", label=f"fit: compute^{fit.exponent:.2f}")
axes.set(xlabel="compute m·t", ylabel="loss", ylim=(1e-3, 2))
axes.legend()
figure.savefig("compute_frontier.png")
