"""What SGD sees of a link, what its labels tell, and the samples that follow, for six links."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import hermite
from hermite.exponents.generative import sample_laws

links = {
    "relu(z)": "relu",
    "sign(z)": "sign",
    "1(|z| > 1)": "heaviside(abs(z) - 1)",
    "$h_3(z)$": "he3",
    "$h_4(z)$": "he4",
    "$z^2 e^{-z^2}$": "z^2*exp(-z^2)",
}
degrees = np.arange(1, 7)
with dynamics.figure_style():
    figure, axes = plt.subplot_mosaic("abcg;defg", figsize=(12, 5), layout="constrained")
powers = axes.pop("g")
styles = {"online": ("#d55e00", "o"), "smoothed": ("#009e73", "s"), "transformed": ("#0072b2", "D")}
for row, (panel, (name, text)) in enumerate(zip(axes.values(), links.items(), strict=True)):
    link = hermite.expand(text)
    exponent, lambda_squared = hermite.generative_exponent(link)
    shares = link.coefficients**2 / (link.norm_squared - link.coefficients[0] ** 2)
    shares = np.append(shares, np.zeros(7))[degrees]  # a polynomial ends at its degree
    panel.bar(degrees - 0.2, shares, 0.4, color="0.65", label=r"$c_k^2$ / Var $\sigma$: seen by SGD")
    panel.bar(
        degrees + 0.2,
        hermite.label_correlations(link, 6)[1:],
        0.4,
        label=r"$\lambda_k^2$: told by the label",
        color="#0072b2",
    )
    panel.set(title=f"{name}: $k$ = {link.information_exponent}, $k^*$ = {exponent}", ylim=(0, 1.05), xticks=degrees)

    laws = sample_laws(link.information_exponent, exponent)
    for shift, (key, (color, marker)) in zip((0.2, 0.0, -0.2), styles.items(), strict=True):
        label = laws[key].algorithm if row == 0 else None
        powers.plot(laws[key].power, row + shift, color=color, marker=marker, ls="", label=label)
    print(
        f"{text}: k = {link.information_exponent}, k* = {exponent}, samples",
        ", ".join(str(laws[key]) for key in styles),
    )
axes["e"].set_xlabel("degree $k$")
axes["a"].legend(fontsize="small")
powers.set(yticks=range(6), yticklabels=list(links), ylim=(5.5, -1.7), xlim=(0.7, 3.3), xticks=[1, 2, 3])
powers.set(xlabel="power of $d$", title="samples ~ $d^{\\,power}$")
powers.grid(axis="x", alpha=0.4)
powers.legend(fontsize="x-small", loc="upper center")
figure.savefig("exponents.png")
