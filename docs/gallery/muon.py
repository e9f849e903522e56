"""A million items in a memory: a staircase by frequency for gradient descent, all at once for Muon."""

import matplotlib.pyplot as plt

import dynamics
from dynamics import tokens

sizes = [10, 90, 900, 9000, 90_000, 900_000]
plain = tokens.AssociativeMemory(group_sizes=sizes, frequency_exponent=1.5)
rarest = float(plain.group_frequencies[-1])
muon = tokens.AssociativeMemory(
    group_sizes=sizes, frequency_exponent=1.5, optimizer="spectral", smoothing=0.01 * rarest
)

with dynamics.figure_style():
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, problem, name in ((axes[0], plain, "gradient descent"), (axes[1], muon, "Muon")):
    found = tokens.solve(problem, progress=False)
    first, last = found.learned_time.values[[0, -1]]
    closed = found.predicted_learned_time.values[[0, -1]]
    print(f"{name}: first group at {first:.5g}, last at {last:.5g}; closed {closed[0]:.5g}, {closed[1]:.5g}")
    dynamics.plot_progress(found, ax=ax)
    ax.set_title(name)
figure.savefig("muon.png")
