"""Smoothing: how many samples one neuron needs to find one direction, in a landscape smoothed by a power of d."""

import sgd_check

found = sgd_check.sample_complexity(
    information_exponents=[3],
    smoothing_exponents=[0, 0.125, 0.25],
    dimensions=[64, 128, 256],
    seeds=32,
    progress=False,
)
for e in (0, 0.125, 0.25):
    sgd, equation, _, limit = found["exponent"].sel(information_exponent=3, smoothing_exponent=e).values
    print(f"lambda = d^{e:g}: samples ~ d^{sgd:.2f} by SGD, d^{equation:.2f} by the equation, limit d^{limit:.2f}")

sgd_check.plot_study(found).savefig("smoothing.png", dpi=80)
