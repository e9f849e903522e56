"""Kernels of pairs of units, against conditional quadrature in mpmath, two-dimensional quadrature, and their bounds."""

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from from_python import from_python
from gaussian_means import DIGITS, joint_normal, pair_mean, smoothed

import hermite
from dynamics.equations.network import system as pair_kernels
from dynamics.equations.network.families import ERF, RELU
from dynamics.equations.network.normal_kernels import joint_excess
from dynamics.equations.network.series import (
    HEADER,
    HEADS,
    LIST,
    TERMS,
    pair_source,
    polynomial_list,
    read_table,
    write_derivatives,
    write_list_row,
)
from dynamics.kernels.jit import entry
from dynamics.kernels.units import make_choices

NAMES = ("pair", "own", "derivatives", "mutual")
SIZES = dict(zip(NAMES, (4, 4, 12, 6), strict=True))
#: A polynomial in powers of z, and its text.
POWERS = [0.3, -0.5, 0.0, 0.2, 0.1]
TEXT = "0.3 - 0.5*z + 0.2*z**3 + 0.1*z**4"
SOURCES = {
    "erf": ["erf", "relu", "sign", TEXT],
    "relu": ["relu", "erf", "sign", TEXT],
    TEXT: [TEXT, "erf", "relu", "sign"],
}
PAIRS = [(student, teacher) for student, teachers in SOURCES.items() for teacher in teachers]
#: All of them and their products are exact in float64, so that the kernels and mpmath are given the same numbers.
LENGTHS = (2.0**-20, 0.5, 1.0, 32.0)
NEAR_ONE = 1.0 - 2.0**-27
CORRELATIONS = (0.0, 0.3125, -0.75, 0.92578125, 0.9248046875, -0.9375, 1 - 2.0**-10, NEAR_ONE, -NEAR_ONE, 1.0, -1.0)


@entry
def call(which, link, c, unit, numbers, out):
    """One entry point for all kernels: every further one would cost seconds of compiling."""
    rows, own = np.full((2, LIST + 3 * int(numbers[TERMS]) + 2), np.nan), int(numbers[HEADS])
    head = own + HEADER * link
    if which != 2:
        pair_kernels.write_row(own, unit[0], unit[1], numbers, rows[0])
        pair_kernels.write_row(head, unit[2], unit[3], numbers, rows[1])
    if which == 0:
        out[0], out[1], out[2], out[3] = pair_kernels.pair_values(head, c, rows[0], rows[1], numbers)
    elif which == 1:
        out[0], out[1], out[2], out[3] = pair_kernels.own_values(rows[0], numbers)
    elif which == 2:
        write_derivatives(unit[0], unit[1], numbers, out)
    else:
        means = pair_kernels.threshold_values(own, c, rows[0], rows[1], numbers)
        out[0], out[1], out[2], out[3], out[4], out[5] = means


class Kernels:
    """The kernels of pairs of some links; scratch holds nothing at first."""

    def __init__(self, student, teachers=(), **given):
        self.source = pair_source(hermite.expand(student), [hermite.expand(t) for t in teachers], **given)
        self.teachers = list(teachers)
        self.has_threshold = self.source.links[0].family in (ERF, RELU)

    def __call__(self, name, c=0.0, a=(1.0, 0.0), b=None, link=0):
        if name == "mutual" and not self.has_threshold:
            # Two neurons are a pair in both orders.
            one, other = self("pair", c, a, b), self("pair", c, b, a)
            return np.array([one[0], one[1], other[1], one[2], one[3], other[3]])
        out = np.full(12, np.nan)
        unit = np.array([*a, *(a if b is None else b)])
        make_choices([read_table, polynomial_list, write_list_row, pair_kernels.lined_values])
        make_choices([pair_kernels.own_threshold_values])
        call(NAMES.index(name), link, c, unit, self.source.numbers, out)
        return out[: SIZES[name]]


@cache
def kernels(student, *, centred=False):
    given = {"biases": (0.0,)} if centred else {}
    return Kernels(student, SOURCES[student], **given)


def of(name):
    return POWERS if name == TEXT else name


def scales(name, q, b):
    """Sizes of σ, σ' and σ'' at variance q and bias b, by which errors of their means are measured."""
    rho = math.sqrt(q)
    if name == TEXT:
        return [
            math.sqrt(sum(abs(float(smoothed(POWERS, j + k, q, b))) ** 2 * q**k for k in range(5))) for j in range(3)
        ]
    slope = {"relu": 1.0, "sign": 1.0 / rho, "erf": 1.0 / math.sqrt(1.0 + q)}[name]
    width = math.sqrt(1.0 + q) if name == "erf" else rho
    return [abs(float(smoothed(name, 0, q, b))) + rho * slope, slope, slope / width]


@pytest.mark.parametrize("places", [range(1), pytest.param(range(1, 4), marks=pytest.mark.long)], ids=["one", "others"])
def test_the_joint_normal_distribution_is_right_to_rounding(places):
    rng = np.random.default_rng(3)
    correlations = (0.1, 0.29, 0.31, -0.5, 0.74, 0.76, 0.9, 0.924, 0.926, -0.926, 0.99, 1 - 1e-6, NEAR_ONE, -NEAR_ONE)
    for number, r in enumerate(correlations):
        for place in places:
            h, k = rng.normal(size=2) * 2.0
            k = (k, h + 1e-3 * k, -h, -h + 1e-3 * k)[(number + place) % 4]
            with mp.workdps(DIGITS):
                lack = float((1 - mp.mpf(r)) * (1 + mp.mpf(r)))
                exact = joint_normal(h, k, r) - mp.ncdf(h) * mp.ncdf(k)
            # Genz states 5e-16 for his rule; probabilities are at most 1.
            assert abs(from_python(joint_excess)(h, k, r, lack) - float(exact)) < 3e-16
    for h, k in ((0.3, 0.5), (0.3, 0.3), (-0.2, 0.1), (0.0, 0.0)):
        product = float(mp.ncdf(h) * mp.ncdf(k))
        assert abs(from_python(joint_excess)(h, k, 1.0, 0.0) + product - float(mp.ncdf(min(h, k)))) < 3e-16
        assert (
            abs(from_python(joint_excess)(h, k, -1.0, 0.0) + product - max(0.0, float(mp.ncdf(h) + mp.ncdf(k) - 1)))
            < 3e-16
        )


@pytest.mark.slow_to_compile
@pytest.mark.parametrize(("student", "teacher"), PAIRS)
@pytest.mark.parametrize("biased", [True, False])
def test_closed_means_are_those_of_conditional_quadrature(student, teacher, biased):
    compute, link = kernels(student), SOURCES[student].index(teacher) + 1
    rng = np.random.default_rng(len(student) + 7 * len(teacher) + biased)
    for n, s in enumerate(CORRELATIONS):
        rho_a, rho_b = (LENGTHS[(n + k) % 4] for k in ((1, 2), (0, 1), (2, 2), (3, 1), (1, 0))[n % 5])
        b_a, b_b = np.round(rng.normal(size=2) * 64.0) / 64.0 * biased * np.array([rho_a, rho_b])
        q_a, q_b, c = rho_a**2, rho_b**2, s * rho_a * rho_b
        found = compute("pair", c, (q_a, b_a), (q_b, b_b), link)
        size_a, size_b = scales(student, q_a, b_a), scales(teacher, q_b, b_b)
        for value, (p, q) in zip(found, ((0, 0), (1, 0), (1, 1), (2, 0)), strict=True):
            exact = float(pair_mean(of(student), p, of(teacher), q, c, q_a, b_a, q_b, b_b))
            # Inputs are the same numbers in both, so that rounding of s near ±1 does not enter.
            assert abs(value - exact) <= 1e-13 * size_a[p] * size_b[q], (s, rho_a, rho_b, p, q)


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("student", SOURCES)
def test_two_neurons_are_a_pair_in_both_orders_and_one_a_pair_with_itself(student):
    compute, link = kernels(student), 1
    for c, a, b in ((0.4, (1.3, 0.2), (0.8, -0.5)), (-0.9, (1.0, 0.1), (1.0, 0.3)), (0.03, (2.0, 0.0), (0.01, 0.0))):
        one, other = compute("pair", c, a, b, link), compute("pair", c, b, a, link)
        expected = [one[0], one[1], other[1], one[2], one[3], other[3]]
        if compute.has_threshold:
            # The same sums in another order.
            np.testing.assert_allclose(compute("mutual", c, a, b), expected, rtol=1e-13, atol=1e-15)
        own = [pair_mean(of(student), p, of(student), q, a[0], *a, *a) for p, q in ((0, 0), (1, 0), (1, 1), (2, 0))]
        np.testing.assert_allclose(compute("own", a=a), own, rtol=1e-13, atol=1e-15)


def plane_mean(first, second, c, a, b):
    """E first(x + b_a) second(y + b_b) by Gauss–Legendre on panels that end at the kinks, for any functions."""
    nodes, weights = np.polynomial.legendre.leggauss(48)

    def panels(kink):
        ends = np.unique(np.clip([-11, -6, -3, -1.5, 0, 1.5, 3, 6, 11, kink], -11, 11))
        half = 0.5 * np.diff(ends)[:, None]
        z = 0.5 * (ends[1:] + ends[:-1])[:, None] + half * nodes
        return z.ravel(), (half * weights * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)).ravel()

    (q_a, b_a), (q_b, b_b) = a, b
    x, measure = panels(-b_a / math.sqrt(q_a))
    rest = math.sqrt(q_b - c * c / q_a)
    means = []
    for u in x:
        middle = b_b + c / math.sqrt(q_a) * u
        y, weight = panels(-middle / rest)
        means.append(weight @ second(middle + rest * y))
    return float(measure @ (first(math.sqrt(q_a) * x + b_a) * np.array(means)))


OTHER_PAIRS = [
    ("abs", "abs"),
    ("relu(z) - 0.1*relu(-z)", "step"),
    ("2*erf(z/sqrt(2)) + 0.1 - z", "2*relu(z) - 3"),
    ("erf", "step"),
    ("relu", "abs"),
    ("z**3 - z", "step"),
    ("abs", "tanh"),
    ("erf", "gelu"),
    ("tanh", "step"),
    pytest.param("gelu", "tanh", marks=pytest.mark.long),
    ("silu", "z**3 - z"),
    ("z**3 - z", "tanh"),
    ("softplus", "erf"),
    ("exp", "sin"),
    pytest.param("elu", "relu", marks=pytest.mark.long),
]


@cache
def other_kernels(student, teacher, trained):
    known = {"biases": None if trained else (0.3,), "teacher_biases": [(-0.4,)]}
    return Kernels(student, [teacher], **known)


@pytest.mark.slow_to_compile
@pytest.mark.parametrize(("student", "teacher"), OTHER_PAIRS)
def test_other_links_are_scaled_closed_ones_or_a_series_that_is_bounded(student, teacher):
    compute = other_kernels(student, teacher, trained=False)
    first, second = hermite.expand(student), hermite.expand(teacher)
    for c, q in ((0.5, 1.3), (-1.2, 2.0), (0.9, 0.9)):
        a, b = (q, 0.3), (1.0, -0.4)
        exact = [plane_mean(f, g, c, a, b) for f, g in ((first.value, second.value), (first.derivative, second.value))]
        if teacher != "step":
            exact.append(plane_mean(first.derivative, second.derivative, c, a, b))
        found = compute("pair", c, a, b, 1)
        gram = np.array([[q, c], [c, 1.0]])
        bound = compute.source.series_error(np.array([0, 1]), np.diag(gram), np.array([0.3, -0.4]), gram)
        # Quadrature on 500² nodes rounds at 1e-14 of values up to 20; tables were fitted to 2e-11 where links have kinks.
        rounding = 1e-10 if student == "elu" else 3e-13 * max(1.0, *np.abs(exact))
        assert np.all(np.abs(found[: len(exact)] - exact) <= bound + rounding)
        # K2 from Stein's lemma, E x σ'_a σ_b = q K2 + c K12.
        if teacher != "step" and student not in ("abs", "relu", "elu") and "relu" not in student:
            stein = plane_mean(lambda z: (z - 0.3) * first.derivative(z), second.value, c, a, b)
            assert abs(q * found[3] + c * found[2] - stein) <= 3.0 * bound + 10.0 * rounding


@pytest.mark.slow_to_compile
@pytest.mark.parametrize(
    "student", ["abs", "2*erf(z/sqrt(2)) + 0.1 - z", "tanh", pytest.param("gelu", marks=pytest.mark.long)]
)
def test_two_neurons_of_other_links_are_a_pair_in_both_orders(student):
    compute = other_kernels(student, student, trained=True)
    first = hermite.expand(student)
    c, a, b = 0.5, (1.3, 0.3), (0.9, -0.6)
    value, slope, both = (
        plane_mean(*f, c, a, b)
        for f in ((first.value, first.value), (first.derivative, first.value), (first.derivative, first.derivative))
    )
    other = plane_mean(first.derivative, first.value, c, b, a)
    found = compute("mutual", c, a, b)
    np.testing.assert_allclose(found[:4], [value, slope, other, both], rtol=1e-12, atol=1e-13)
    swapped = compute("mutual", c, b, a)
    np.testing.assert_allclose(swapped, found[[0, 2, 1, 3, 5, 4]], rtol=1e-12)
    # With itself: x is the only variable, a plane's second axis is left over.
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    if student != "abs":
        z, weights = math.sqrt(a[0]) * nodes + a[1], weights / weights.sum()
        squares = [first.value(z) ** 2, first.value(z) * first.derivative(z), first.derivative(z) ** 2]
        own = compute("own", a=a)
        np.testing.assert_allclose(own[:3], [weights @ f for f in squares], rtol=1e-8)
        stein = weights @ (nodes * first.value(z) * first.derivative(z)) / math.sqrt(a[0])
        np.testing.assert_allclose(own[2] + own[3], stein, rtol=1e-8)


@pytest.mark.thorough
def test_the_pair_of_tanh_has_its_accepted_value():
    for trained in (False, True):
        compute = Kernels("tanh", biases=None if trained else (0.0,))
        # Given to 5e-13; the series of 241 terms at s = 0.9 leaves out 1e-21.
        assert abs(compute("mutual", 3.6, (4.0, 0.0), (4.0, 0.0))[0] - 0.544248308012) < 6e-13


@pytest.mark.thorough
def test_the_certificate_bounds_the_error_and_is_no_empty_bound():
    compute = Kernels("tanh", biases=(0.0,))
    tanh = hermite.expand("tanh")
    ratios = []
    for rho, s in ((4.0, 0.99), (5.0, 0.98), (6.0, -0.985), (8.0, 0.97), (2.5, 0.999)):
        q = rho * rho
        c, a = s * q, (q, 0.0)
        found = compute("mutual", c, a, a)
        # The plane's panels do not resolve steep links, its own error is measured with half as many nodes.
        exact = [steep_mean(f, s, rho) for f in (tanh.value, tanh.derivative)]
        bound = compute.source.series_error(
            np.zeros(2, dtype=int), np.full(2, q), np.zeros(2), np.array([[q, c], [c, q]])
        )
        errors = np.abs(found[[0, 3]] - exact)
        assert errors.max() <= bound + 1e-12
        ratios.append(errors.max() / bound)
    # Neither is it more than some ten times too large where the series is far from rounding.
    assert max(ratios) > 0.02


def steep_mean(f, s, rho):
    """E f(ρx) f(ρy) at correlation s, by the trapezoidal rule, which is exact to e^(-π²/(ρh)) for tanh."""
    h = 0.01
    z = np.arange(-9.0, 9.0 + h / 2, h)
    weights = h * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    root = math.sqrt(1.0 - s * s)
    inner = np.array([weights @ f(rho * (s * x + root * z)) for x in z])
    return float(weights @ (f(rho * z) * inner))


def test_links_without_means_are_refused():
    for name in ("sign", "step", "2*sign(z) + z"):
        with pytest.raises(ValueError, match="Argument `student` must have a link without jumps, whose gradient"):
            pair_source(hermite.expand(name))
    with pytest.raises(ValueError, match="must have a smooth link where biases are trained, or more than 48 differ"):
        pair_source(hermite.expand("elu"))
    with pytest.raises(ValueError, match="of degree at most 150, but one is of degree 151"):
        pair_source(hermite.expand("he151"))
