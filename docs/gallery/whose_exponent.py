"""The inverse problem: the exponent that made the losses of four runs of SGD."""

import dynamics
import sgd_check
from dynamics import laws

# Eight directions with a_p ∝ 1/p; four runs from one start, at a tenth of the largest stable step.
problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher.power_law(8, 1.0), width=24, dimension=64)
runs = sgd_check.simulate(problem, learning_rate="0.1x", steps=300_000, seeds=4, engine="projected", progress=False)

# Losses over time alone, without β: the answer knows the width and the dimension of the runs, and is told P.
answer = laws.infer(runs, k=3, directions=8, progress=False)
beta, low, high = (float(answer[name]) for name in ("beta", "beta_low", "beta_high"))
print(f"beta = {beta:.1f}, from {low:.1f} to {high:.1f}; it was 1")

figure = dynamics.plot(answer)
figure.savefig("whose_exponent.png")
