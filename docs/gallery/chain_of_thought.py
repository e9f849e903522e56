"""Linear attention learns one step of gradient descent first, and the chain of steps later."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check.tokens
from dynamics import tokens

problem = tokens.ChainOfThought(dimension=6, examples=12, steps=4, rate=0.3)
prediction = tokens.solve(problem, progress=False)
runs = sgd_check.tokens.simulate(problem, learning_rate=0.1, steps=600, batch_size=32, seeds=4, progress=False)
with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
dynamics.plot_progress(prediction, runs, left)
for steps in (1, 2, 4, 8):
    right.semilogy(prediction.time, prediction.chain_error.sel(steps=steps), label=f"{steps} step{'s' * (steps > 1)}")
right.set(xlabel=r"time, $\eta \times$ steps", ylabel="error of the model's own chain")
right.legend(title="chain of")
learned, plateaus = (prediction[name].values.round(3).tolist() for name in ("learned_time", "plateau"))
print(f"learned at {learned}; plateaus {plateaus}")
print(f"stable below a learning rate of {prediction.learning_rate_limit:.3f}")
figure.savefig("chain_of_thought.png")
