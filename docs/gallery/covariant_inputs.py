"""Inputs of a power-law covariance: directions on weak axes emerge later, T_p ~ p^(beta + alpha k / 2)."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import dynamics

beta, k = 1.0, 4
problem = dynamics.Problem(
    activation=f"he{k}",
    teacher=dynamics.Teacher.power_law(8, beta),
    width=32,
    dimension=512,
)
p = np.arange(1, 9)

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for alpha, colour, marker in ((0.0, "#0072b2", "o"), (0.25, "#d55e00", "s"), (0.5, "#009e73", "^")):
    inputs = dynamics.Inputs.power_law(alpha)
    # Matched pairs, each alone and exact, from eight starts; the coupled flow of all neurons from two of them.
    starts = [replace(problem, inputs=inputs, seed=seed) for seed in range(8)]
    pairs = np.array([dynamics.predict_emergence(start).predicted_emergence_time for start in starts])
    options = {"rtol": 1e-6, "keep": "summary", "error_estimate": False, "progress": False}
    flows = [dynamics.solve_overlaps(start, **options) for start in starts[:2]]
    for flow in flows:
        left.loglog(flow.predicted_emergence_time, flow.emergence_time, marker, ms=4, color=colour)
        right.loglog(p, flow.emergence_time, marker, ms=4, color=colour)
    slope, expected = np.polyfit(np.log(p), np.log(pairs).mean(axis=0), 1)[0], beta + alpha * k / 2
    share = 1.0 / np.sum(np.arange(1, problem.dimension + 1) ** -alpha)
    print(f"alpha = {alpha:g}: T_p ~ p^{slope:.2f}, asymptotically p^{expected:.2f}; s_1 / tr Sigma = {share:.4f}")
    mean, error = np.exp(np.log(pairs).mean(axis=0)), np.log(pairs).std(axis=0, ddof=1) / 8**0.5
    right.loglog(p, mean, color=colour, label=rf"$\alpha = {alpha:g}$: {slope:.2f}, limit {expected:.2f}")
    right.fill_between(p, mean * np.exp(-2 * error), mean * np.exp(2 * error), color=colour, alpha=0.15, lw=0)
    right.loglog(p, mean[0] * p**expected, "--", color=colour, lw=1)
ends = left.get_xlim()
left.loglog(ends, ends, color="0.6", lw=1, zorder=0)
left.set(xlabel="time of the pair alone, exact", ylabel="time in the coupled flow")
right.set(xlabel="direction $p$", ylabel="emergence time")
title = r"dashed: $p^{\beta + \alpha k/2}$, for $s_1/\mathrm{tr}\,\Sigma \lesssim 0.01$ and $m \gg P$"
right.set_title(title, fontsize=10)
right.set_xticks(p, p)
right.minorticks_off()
right.set_ylim(bottom=0.15)  # room for the legend below the points
right.legend(title="pairs, mean of 8 starts, two s.e.; points: coupled flow", fontsize=8, title_fontsize=8)
figure.savefig("covariant_inputs.png")
