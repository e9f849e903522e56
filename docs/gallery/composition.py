"""Attention composes hidden permutations hop by hop: three numbers per layer predict when, and full models agree."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check.tokens
from dynamics import tokens

problem = tokens.Composition(vocabulary=6, hops=4, data="mixture")
prediction = tokens.solve(problem, progress=False)
runs = sgd_check.tokens.simulate(problem, learning_rate=1.0, steps=425, batch_size=4, seeds=4, progress=False)
tree = sgd_check.tokens.compare(prediction, runs)
print("verdict:", tree["comparison"].attrs["verdict"])
print("learned at:", prediction.learned_time.values.round(1).tolist())

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
dynamics.plot_progress(prediction, runs, left)
left.set_title("all hops at once")
alone = tokens.Composition(vocabulary=6, hops=4, data="curriculum", stage_time=150.0)
dynamics.plot_progress(tokens.solve(alone, progress=False), ax=right)
right.set_title("a curriculum, each hop in a stage of 150")
figure.savefig("composition.png")
