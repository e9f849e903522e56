"""What the first eigenvector of a reused sample finds, in three dimensions, on one curve."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

link, multiples = "min(z**2, 3)", np.array([0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])
with dynamics.figure_style():
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")

for dimension, marker in ((50, "v"), (150, "s"), (450, "o")):
    problem = dynamics.Problem(activation=link, teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension)
    threshold = dynamics.predict_recovery(problem, samples=dimension, degree=2).attrs["threshold_samples"]
    runs = [
        sgd_check.estimate_direction(problem, samples=round(x * threshold), seeds=12, degree=2, progress=False)
        for x in multiples
    ]
    mean = [float(each.overlap_squared.mean()) for each in runs]
    error = [2 * float(each.overlap_squared.std(ddof=1)) / 12**0.5 for each in runs]
    axes.errorbar(multiples, mean, yerr=error, fmt=marker, ms=5, capsize=3, label=f"$d = {dimension}$")

fine = np.geomspace(0.5, 8.0, 100)
law = dynamics.predict_recovery(link, dimension=10**6, samples=np.rint(fine * threshold / 450 * 1e6).tolist(), degree=2)
axes.plot(fine, law.predicted_overlap_squared, "k", label=r"law, $d \to \infty$")
print(f"threshold at n/d = {law.attrs['threshold_ratio']:.4f}")

axes.set(
    xscale="log",
    xlabel="$n$ over the threshold",
    ylabel="squared overlap",
    title=r"$y = \min(z^2, 3)$, bars: twice the s.e.",
)
axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
axes.minorticks_off()
axes.legend(frameon=False)
figure.savefig("recovery_law.png")
