"""Products of four Hermite series: Wick diagrams against rational arithmetic by Isserlis' recursion, and by quadrature."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from hermite import polynomials
from hermite.polynomials import contracted_pair, count_diagrams, diagrams, mean_derivatives

# Unit vectors with rational coordinates: a, b run over all four; i, j are the last two.
VECTORS = [[Fraction(n, 21) for n in row] for row in ([21, 0, 0], [7, 14, 14], [6, 9, 18], [-14, 7, 14])]
GRAM = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in VECTORS] for u in VECTORS]
MASS = [Fraction(2), Fraction(-1, 2), Fraction(1), Fraction(-3, 4)]

# Polynomials as rational coefficients of He_k, which are f̂_k / k!.
SERIES = {
    "single": [[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 1], [0, 0, 1]],
    "one parity": [[0, 1, 0, 2], [0, 3], [1, 0, -1], [0, 0, 2]],
    "both parities": [[1, -1, 2, 1], [0, 2, -1], [1, 2, 0, 1], [3, -1, 1]],
    "second of higher degree": [[0, 1, 1], [1, 0, 1, 2], [0, 1], [0, 0, 1]],
    "constants": [[2], [3], [1], [-1]],
}


@cache
def isserlis(exponents):
    """E[Π z_v^n_v]: the first factor is joined to each of the others in turn."""
    first = next((v for v, n in enumerate(exponents) if n), None)
    if first is None:
        return Fraction(1)
    rest = [n - (v == first) for v, n in enumerate(exponents)]
    total = Fraction(0)
    for v, n in enumerate(rest):
        if n:
            total += n * GRAM[first][v] * isserlis(tuple(n2 - (v2 == v) for v2, n2 in enumerate(rest)))
    return total


def powers_of_z(series):
    """Coefficients of z^n of Σ_k s_k He_k, from He_(k+1) = z He_k − k He_(k−1)."""
    basis = [[Fraction(1)], [Fraction(0), Fraction(1)]]
    for k in range(1, len(series)):
        shifted = [Fraction(0), *basis[k]]
        basis.append([s - k * (basis[k - 1][n] if n < k else 0) for n, s in enumerate(shifted)])
    total = [Fraction(0)] * len(series)
    for weight, row in zip(series, basis, strict=False):
        for n, x in enumerate(row):
            total[n] += weight * x
    return total


def expectation(vectors, series):
    """E[Π_v s_v(z_v)], term by term in powers of z."""
    total = Fraction(0)
    for terms in product(*(list(enumerate(powers_of_z(s))) for s in series)):
        weight = math.prod(x for _, x in terms)
        if weight:
            exponents = [0] * len(VECTORS)
            for v, (n, _) in zip(vectors, terms, strict=True):
                exponents[v] += n
            total += weight * isserlis(tuple(exponents))
    return total


def hats(series):
    return np.array([float(s) * math.factorial(k) for k, s in enumerate(series)])


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("pair", [(2, 3), (3, 3), (0, 2)])
def test_diagrams_sum_to_isserlis(name, pair):
    f, g, phi, psi = SERIES[name]
    i, j = pair
    wanted = [
        sum(
            MASS[a] * MASS[b] * expectation((a, b, i, j), (f, second, phi, psi))
            for a in range(len(VECTORS))
            for b in range(len(VECTORS))
        )
        for second in (f, g)
    ]
    Q, w = np.array(GRAM, dtype=float), np.array(MASS, dtype=float)
    factor = contracted_pair(hats(phi), hats(psi), 5)
    table = diagrams(hats(f), hats(g), np.any(factor, axis=2))
    found = np.zeros(2)
    for (e, r, s, r2, s2), weights in zip(table.edges.tolist(), table.weights, strict=True):
        form = (w * Q[i] ** r * Q[j] ** s) @ Q**e @ (w * Q[i] ** r2 * Q[j] ** s2)
        found += weights * form * (factor[r + r2, s + s2] @ Q[i, j] ** np.arange(5))
    # Measured: 4e-15 relative to the larger of the two.
    np.testing.assert_allclose(
        found, np.array(wanted, dtype=float), rtol=0, atol=2e-14 * max(map(abs, wanted), default=1)
    )


def test_mean_derivatives_are_means_of_derivatives():
    c = np.array([0.3, -1.0, 0.5, 0.25, 2.0])
    z, weights = np.polynomial.hermite_e.hermegauss(8)
    series = c
    for mean in mean_derivatives(c):
        assert weights @ polynomials.series_value(series, z) / math.sqrt(2 * math.pi) == pytest.approx(mean, abs=1e-14)
        series = polynomials.differentiate(series)


@pytest.mark.parametrize("degrees", [[4], [3, 4], [1, 2, 3, 4, 5], [0, 2]])
def test_a_table_lists_each_diagram_once_and_cheap_halves_first(degrees):
    f, g = np.zeros(6), np.zeros(6)
    f[degrees] = 1.0
    g[[k for k in range(6) if k in degrees or k + 2 in degrees]] = 1.0
    size = 7
    table = diagrams(f, g, np.ones((size, size), dtype=bool))
    rows = table.edges.tolist()
    assert len(rows) <= count_diagrams(f, g)
    unordered = {(e, *sorted([(r, s), (r2, s2)])) for e, r, s, r2, s2 in rows}
    assert len(unordered) == len(rows)
    for e, r, s, r2, s2 in rows:
        assert f[e + r + s] != 0
        exchangeable = f[e + r2 + s2] != 0
        assert r * s == 0 or not exchangeable or r2 * s2 > 0
