"""Four optimizers on one problem: the mean motion of each, and runs of it."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

d, runs = 200, 8
student = dynamics.Student(activation="erf", width=2, second_layer="fixed", initial_second_layer=[1.0, 1.0])
problem = dynamics.Problem(
    student=student, teacher=dynamics.Teacher([1.0, 1.0]), dimension=d, label_noise=0.3, initial_norm=0.5, seed=1
)
optimizers = {
    "plain SGD": (dynamics.SGD(), 0.5 / d, 24 * d),
    "momentum 0.9, at a tenth of the rate": (dynamics.SGD(momentum=0.9), 0.05 / d, 24 * d),
    "average over $2d$ steps": (dynamics.SGD(average=1 / (2 * d)), 0.5 / d, 24 * d),
    "Adam, $\\beta_2 = 1 - 2/d$": (dynamics.Adam(beta2=1 - 2 / d), 0.1 / d, 24 * d),
}
with dynamics.figure_style():
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
for (name, (optimizer, rate, steps)), colour in zip(optimizers.items(), colours, strict=True):
    asked = {"learning_rate": rate, "optimizer": optimizer, "progress": False}
    times = rate * np.unique(np.geomspace(d / 4, steps, 60).astype(int))
    theory = dynamics.solve_problem(problem, save_at=dynamics.SaveAt.at(times), **asked)
    found = sgd_check.simulate(problem, steps=steps, seeds=runs, save_at=dynamics.SaveAt.at(times[::6]), **asked)
    loss = "average_loss" if "average_loss" in theory else "loss"
    mean, error = found[loss].mean("seed"), found[loss].std("seed") / runs**0.5
    axes.loglog(theory.step / d, theory[loss], color=colour)
    axes.errorbar(found.step / d, mean, yerr=2 * error, fmt="o", color=colour, capsize=2, label=name)
    ratio = (mean / theory[loss].interp(time=found.time)).values
    print(f"{name}: runs over theory {ratio.min():.1f} to {ratio.max():.1f}, floor {float(theory[loss][-1]):.3f}")
axes.set(xlabel="samples over $d$", ylabel="loss", title="Four optimizers, one problem (lines: mean motion)")
axes.legend()
figure.savefig("optimizers.png")
