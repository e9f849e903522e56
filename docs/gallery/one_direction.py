"""How many samples does one direction of h_3 need? Five algorithms, measured points on the theory's lines."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import sgd_check

link, dimensions, runs = "he3", np.array([24, 48, 96]), 12


def question(dimension: int, smoothing: float = 0.0) -> dynamics.Problem:
    """Return the problem of h_3 in so many dimensions, from C = 2/√d."""
    start = ([[2.0 * dimension**-0.5]], [[1.0]], [1.0])
    return dynamics.Problem(
        activation=link, teacher=dynamics.Teacher([1.0]), width=1, dimension=dimension, student="spherical",
        objective="correlation", smoothing=smoothing, initial_overlaps=start,
    )  # fmt: skip


def by_descent(dimension: int, smoothing: float, optimizer: object = None) -> tuple[float, float, float]:
    """Return the steps to C² = ½ by the mean of a step, and of the runs with twice their standard error."""
    problem = question(dimension, smoothing)
    rate = 0.03 * dimension**-1.5 * max(smoothing, 1.0) ** 4 / (1 if optimizer is None else dimension)
    asked = {"learning_rate": rate, "optimizer": optimizer, "progress": False}
    mean = dynamics.solve_correlation(problem, keep="summary", **asked)
    steps = float(mean.emergence_time[0]) / rate
    found = sgd_check.simulate(problem, steps=round(2 * steps), seeds=runs, **asked)
    needed = found.emergence_time.values[:, 0] / rate
    return steps, np.nanmean(needed), 2 * np.nanstd(needed, ddof=1) / runs**0.5


def by_estimator(dimension: int, degree: int, transform: object) -> tuple[float, float, float]:
    """Return the samples to a squared overlap of ½ by the law, and of estimates, read off at three sizes about it."""
    problem, asked = question(dimension), {"degree": degree, "transform": transform}
    grid = np.rint(np.geomspace(0.5 * dimension, 5 * dimension**1.5, 200)).tolist()
    law = dynamics.predict_recovery(problem, samples=grid, **asked).predicted_overlap_squared
    half = float(np.interp(0.5, law, grid))
    sizes = np.rint(half * np.array([0.8, 1.2, 1.8])).astype(int)
    found = [sgd_check.estimate_direction(problem, samples=n, seeds=runs, progress=False, **asked) for n in sizes]
    mean = np.array([float(each.overlap_squared.mean()) for each in found])
    spread = max(float(each.overlap_squared.std(ddof=1)) for each in found)
    slope, level = np.polyfit(np.log(sizes), mean, 1)
    needed = np.exp((0.5 - level) / slope)
    return half, needed, 2 * needed * spread / (slope * (len(sizes) * runs) ** 0.5)


algorithms = {
    "online SGD": lambda d: by_descent(d, 0.0),
    "zeroth order, one direction a step": lambda d: by_descent(d, 0.0, dynamics.ZerothOrder()),
    "SGD on the smoothed landscape, $\\lambda = d^{1/4}$": lambda d: by_descent(d, d**0.25),
    "spectral, degree 3, $T$ = sign $y$": lambda d: by_estimator(d, 3, np.sign),
    "transformed labels, degree 1, $T = \\zeta_1(y)$": lambda d: by_estimator(d, 1, "optimal"),
}
with dynamics.figure_style():
    figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
styles = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#56b4e9", "v"))
for (name, algorithm), (colour, marker) in zip(algorithms.items(), styles, strict=True):
    theory, measured, error = np.array([algorithm(int(d)) for d in dimensions]).T
    slope = np.polyfit(np.log(dimensions), np.log(measured), 1)[0]
    axes.loglog(dimensions, theory, "-", color=colour)
    label = f"{name}: $d^{{{slope:.1f}}}$"
    axes.errorbar(dimensions, measured, yerr=error, fmt=marker, color=colour, capsize=3, label=label)
    print(f"{name.split(',')[0]}: measured over theory {(measured / theory).round(1).tolist()}")
axes.set(
    xlabel="dimension $d$",
    ylabel="samples until a squared overlap of ½",
    title="One direction of $h_3$ (lines: theory)",
)
axes.set_xticks(dimensions, [str(d) for d in dimensions])
axes.minorticks_off()
axes.set_ylim(20, 5e8)
axes.legend(loc="upper left")
figure.savefig("one_direction.png")
