"""Gaussian theory on images of digits: times along random directions, against what the images say before any run."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

start = ([[0.45]], [[1.0]], [1e-8])
problem = dynamics.Problem(
    activation="he3",
    teacher=dynamics.Teacher([1.0]),
    width=1,
    dimension=16,
    initial_overlaps=start,
)
options = {"learning_rate": 2e-4, "steps": 7000, "seeds": 12, "batch_size": 4, "progress": False}

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")


runs = {"Gaussian inputs": sgd_check.simulate(problem, engine="torch", **options)}
rows = [dynamics.Rows("digits", components=16, seed=seed) for seed in range(8)]
for seed, source in enumerate(rows):
    label = "whitened digits, 8 directions" if seed == 0 else f"_{seed}"
    runs[label] = sgd_check.simulate(problem, inputs_from=source, **options)
means, errors = [], []
for label, sample in runs.items():
    squares = sample.teacher_overlap[:, 1:, 0, 0] ** 2
    style = {"color": "#0072b2", "lw": 1} if means else {"color": "k", "lw": 2.5, "zorder": 3}
    right.semilogx(sample.time[1:], squares.median("seed"), label=label, **style)
    times = sample.emergence_time[:, 0]
    means.append(float(times.mean()))
    errors.append(float(times.std(ddof=1)) / times.size**0.5 / means[-1])
inside = {"Gaussian theory": 0, "fourth cumulants": 0, "path meter": 0}
styles = {"fourth cumulants": ("s", "0.6"), "path meter": ("o", "#d55e00")}
for seed, source in enumerate(rows):
    measured = dynamics.universality(problem, source)
    ratio, error = means[seed + 1] / means[0], np.hypot(errors[0], errors[seed + 1])
    theory = float(measured.emergence_time[0])
    said = {
        "Gaussian theory": 1.0,
        "fourth cumulants": float(measured.corrected_emergence_time[0]) / theory,
        "path meter": float(measured.path_emergence_time[0]) / theory,
    }
    for name, value in said.items():
        inside[name] += abs(np.log(ratio / value)) < np.log(1.07) + 2 * error
        if name in styles:
            (mark, colour), label = styles[name], name if seed == 0 else "_"
            left.errorbar(value, ratio, 2 * ratio * error, fmt=mark, color=colour, ms=5, label=label)
for name, count in inside.items():
    print(f"{name}: {count} of 8 directions within 7 % and two standard errors of the runs")
ends = np.array([0.6, 7.0])
left.fill_between(ends, ends / 1.07, ends * 1.07, color="0.85", lw=0, label=r"equal, $\pm$ 7 %")
left.axhline(1.0, color="k", lw=1, ls=":", label="Gaussian theory")
left.set(xscale="log", yscale="log", xlim=ends, ylim=(0.6, 2.6))
for axis, ticks in ((left.xaxis, [0.7, 1, 2, 4, 6]), (left.yaxis, [0.7, 1, 1.5, 2])):
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(plt.NullLocator())
left.set(xlabel="time that the images say / Gaussian theory", ylabel="runs on images / Gaussian runs, two s.e.")
left.legend(fontsize=8, loc="lower right")
right.axhline(0.5, color="0.6", lw=1, ls=":")
right.set(xlabel="flow time", ylabel="squared overlap, median of 12 runs")
right.legend(fontsize=8)
figure.savefig("digits.png")
