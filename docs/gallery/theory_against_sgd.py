"""Online SGD against the theory of its finite step, from the same start, with a verdict."""

import dynamics
import sgd_check

problem = dynamics.Problem(
    activation="he3",
    teacher=dynamics.Teacher([1.0, 0.8]),
    width=4,
    dimension=16,
    initial_norm=0.1,
    seed=1,
)
# A fiftieth of the step size at which SGD loses stability.
rate = 0.02 * dynamics.learning_rate_limit(problem)
theory = dynamics.solve_overlaps(problem, learning_rate=rate, rtol=1e-5, progress=False)

# Twice the time of the last emergence, 32 runs; no two runs share a sample.
steps = round(2 * float(theory.emergence_time.max()) / rate)
runs = sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=32, progress=False)

tree = sgd_check.compare(theory, runs)
attributes = tree["comparison"].attrs
print("verdict:", attributes["verdict"], "at a rate of false alarms of", attributes["false_alarm_rate"])

figure = sgd_check.plot_comparison(tree)
figure.savefig("theory_against_sgd.png")
