"""The same teacher, learned by a network that finds its direction and by the kernel of a wide one, online."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

with dynamics.figure_style():
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")

teacher = dynamics.Teacher([1.0])
for dimension, color in ((16, "#56b4e9"), (64, "#0072b2"), (256, "#222255")):
    problem = dynamics.Problem(activation="he3", teacher=teacher, width=4, dimension=dimension, seed=1)
    rich = dynamics.solve_decoupled(problem)
    rate = dynamics.learning_rate_limit(problem) / 10
    samples = rich.time.values / rate
    axes.plot(samples, rich.loss / rich.loss[0], color=color, lw=2, label=f"network, $d = {dimension}$")

    lazy = dynamics.predict_kernel("he3", dimension=dimension, student="erf")
    whole = float(lazy.teacher_by_degree.sum())
    axes.plot(lazy.samples, lazy.test_error / whole, "--", color=color, lw=2, label=f"kernel, $d = {dimension}$")
    half = float(lazy.samples_to_level.sel(loss_level=0.5))
    network = float(samples[np.argmax(rich.loss.values <= 0.5 * float(rich.loss[0]))])
    print(f"d = {dimension}: half is left after {network:.2g} samples of SGD, {half:.2g} of the kernel")

    if dimension == 16:
        counts = [30, 100, 300, 1000, 3000]
        draws = sgd_check.estimate_kernel(
            "he3", dimension=dimension, student="erf", samples=counts, seeds=12, progress=False
        ).test_error
        error = 2 * draws.std("seed", ddof=1) / 12**0.5 / whole
        axes.errorbar(counts, draws.mean("seed") / whole, yerr=error, fmt="o", color=color, capsize=3)

axes.set(xscale="log", yscale="log", ylim=(0.01, 3), xlabel="samples $n$", ylabel="error, share of its start")
axes.set_title("teacher $h_3$; kernel: tangent kernel of erf, on the sphere; dots: drawn")
axes.legend(frameon=False, fontsize="small")
figure.savefig("lazy_and_rich.png")
