"""An induction head forms token by token; in a tree the first layer finds the parents of all tokens."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check.tokens
from dynamics import tokens

chain, tree = [None, 0, 1, 2, 3, 4], [None, 0, 0, 1, 1, 2]
with dynamics.figure_style():
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, parents, name in ((axes[0], chain, "chain"), (axes[1], tree, "tree")):
    problem = tokens.CausalGraph(parents=parents, vocabulary=4, persistence=0.9)
    prediction = tokens.solve(problem, progress=False)
    runs = sgd_check.tokens.simulate(problem, learning_rate=1.0, steps=480, batch_size=256, seeds=4, progress=False)
    closed = prediction.predicted_learned_time.values.round().tolist()
    print(f"{name}: learned at {prediction.learned_time.values.round().tolist()}, closed {closed}")
    dynamics.plot_progress(prediction, runs, ax)
    ax.set_title(name)
figure.savefig("induction_head.png")
