"""Selection of three tokens: with too few heads the loss stays on a plateau; the length that works grows with time."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
from dynamics import tokens

with dynamics.figure_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
times = dynamics.SaveAt.geometric(100.0, 1e5, 200)
for heads in (1, 2, 3):
    problem = tokens.Selection(tokens=64, selected=3, heads=heads, initial_scale=0.1)
    found = tokens.solve(problem, times, progress=False)
    print(f"H = {heads}: loss {float(found.loss[-1]):.3f}, plateau {(3 - heads) / 2:g}")
    left.semilogx(found.time, found.loss, label=f"H = {heads}")
    left.axhline((3 - heads) / 2, color="0.7", ls=":", zorder=0)
left.set(xlabel="flow time t", ylabel="loss", title="64 tokens, 3 selected")
left.legend()
lengths = np.geomspace(2, 1e4, 200)
one = tokens.solve(
    tokens.Selection(tokens=64, selected=1, heads=1), dynamics.SaveAt.at([1e3, 1e4, 1e5]), progress=False
)
for time, length in zip(one.time.values, one.length_at_half.values, strict=True):
    print(f"t = {time:g}: half of the attention up to {length:.0f} tokens")
    right.semilogx(lengths, (length - 1) / (length + lengths - 2), label=f"t = {time:g}")
right.axvline(64, color="0.7", ls=":", zorder=0)
right.set(xlabel="tokens at the test", ylabel="attention to the wanted one", title="1 selected, trained at 64 tokens")
right.legend()
figure.savefig("selection.png")
