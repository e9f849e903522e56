"""Any link will do: here cos z without the first two terms of its Hermite series, so that k = 4."""

import matplotlib.pyplot as plt
import numpy as np

import dynamics
import hermite

link = hermite.expand("8*(cos(z) - exp(-1/2)*(3 - z**2)/2)")
print("information exponent:", link.information_exponent, "parity:", link.parity, "c_4 =", link.exact[4])

problem = dynamics.Problem(
    activation=link,
    teacher=dynamics.Teacher([1.0, 0.7, 0.5]),
    width=9,
    dimension=32,
)
flow = dynamics.solve_overlaps(problem, rtol=1e-6, progress=False)

with dynamics.figure_style():
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
z = np.linspace(-4.0, 4.0, 400)
left.plot(z, link.value(z))
left.set(xlabel="$z$", ylabel=r"$\sigma(z)$", title="link")
degrees = np.arange(4, 13, 2)
middle.bar(degrees, link.coefficients[degrees] ** 2)
middle.set(yscale="log", xlabel="degree $j$", ylabel="squared Hermite coefficient", title="expansion")
dynamics.plot_emergence(flow, ax=right)
right.set_title("emergence")
figure.savefig("own_activation.png")
