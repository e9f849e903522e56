"""The same samples again, in full batches and in four, against fresh samples: theory and runs."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

d, ratio, steps, runs = 800, 1.5, 16, 24
student = dynamics.Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0])
problem = dynamics.Problem(
    student=student, teacher=dynamics.Teacher([1.0]), dimension=d, label_noise=0.4, initial_weights=[[0.2, 0.46**0.5]]
)
# Name: learning rate, samples over d, batches in an epoch. On fresh samples no batch comes again.
cases = {
    "fresh samples, $n$ each step": (2.0, ratio * steps, steps),
    "full batch": (2.0, ratio, 1),
    "four batches an epoch": (0.7, ratio, 4),
}
with dynamics.figure_style("talk"):
    figure, (test, train) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
for (name, (rate, samples, batches)), colour in zip(cases.items(), ("#009e73", "#0072b2", "#d55e00"), strict=True):
    theory = dynamics.solve_reused_data(
        problem, samples=f"{samples}d", learning_rate=rate, steps=steps, batches_per_epoch=batches
    )
    asked = {"learning_rate": rate, "seeds": runs, "save_at": dynamics.SaveAt.at(theory.time.values), "progress": False}
    if batches == steps:
        found = sgd_check.simulate(problem, steps=steps, batch_size=round(ratio * d), engine="torch", **asked)
    else:
        count, epochs = round(samples * d), steps // batches
        found = sgd_check.simulate(
            problem, training_samples=count, batch_size=count // batches, passes=epochs, reshuffle=False, **asked
        )
    off = []
    for ax, loss in ((test, "loss"), (train, "train_loss")):
        if loss in found:
            mean, error = found[loss].mean("seed"), found[loss].std("seed", ddof=1) / runs**0.5
            off.append(float(np.abs(mean / theory[loss].values - 1).max()))
            ax.plot(theory.step, theory[loss], color=colour)
            ax.errorbar(found.step, mean, yerr=2 * error, fmt="o", color=colour, ms=5, capsize=2, label=name)
    test_loss = theory.loss.values
    least = int(np.argmin(test_loss))
    print(f"{name}: least test loss {test_loss[least]:.3f} after step {least}, {test_loss[-1]:.3f} at the end")
    print(f"    runs off theory by {max(off):.0%} at most")
test.set(xlabel="steps", ylabel="test loss", title=f"$n = {ratio}d$ samples, noise 0.4 (lines: theory)")
train.set(xlabel="steps", ylabel="training loss", ylim=(0, None), title=f"dots: {runs} runs at $d = {d}$")
train.axhline(0.16, color="grey", ls=":", label="variance of the noise")
for ax in (test, train):
    ax.legend(frameon=False)
figure.savefig("reused_data.png")
