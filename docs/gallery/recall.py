"""A model recalls facts in two stages: the relation first, or with few subjects the subject."""

import matplotlib.pyplot as plt

import dynamics
import sgd_check.tokens
from dynamics import tokens

with dynamics.figure_style():
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, relations, subjects, steps in ((axes[0], 4, 32, 620), (axes[1], 16, 4, 260)):
    problem = tokens.FactualRecall(relations=relations, subjects=subjects, answers=4, initial_scale=0.02)
    prediction = tokens.solve(problem, progress=False)
    runs = sgd_check.tokens.simulate(problem, learning_rate=0.5, steps=steps, batch_size=16, seeds=8, progress=False)
    tree = sgd_check.tokens.compare(prediction, runs)
    closed = prediction.predicted_learned_time.values.round(1).tolist()
    print(f"{relations} relations, {subjects} subjects: {tree['comparison'].attrs['verdict']}; closed times {closed}")
    dynamics.plot_progress(prediction, runs, ax)
    ax.set_title(f"{relations} relations, {subjects} subjects")
figure.savefig("recall.png")
