"""The generative exponent against accepted numbers and exact preimages, and the command that tells exponents."""

import json
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from numpy.polynomial import hermite_e
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

import hermite
from hermite import polynomials
from hermite.exponents import __main__ as command
from hermite.exponents.generative import THRESHOLD, interval_moments, sample_laws

#: Link, λ_1² ... λ_4² of arXiv:2403.05529 recomputed, and their tolerance.
ACCEPTED = [
    ("x^2 exp(-x^2)", (0.0, 0.0, 0.0, 0.22996), 1e-3),
    ("he3", (0.66783, 0.62305, 1.0, 0.70664), 1e-3),
    ("sign", (2 / math.pi, 0.0, 1 / (3 * math.pi), 0.0), 1e-4),
    ("heaviside(abs(z) - 1)", (0.0, 0.54057, 0.0, 0.18019), 1e-4),
    ("sign(h4(z))", (0.0, 0.21771, 0.0, 0.33182), 1e-4),
]


@pytest.mark.parametrize(("link", "squares", "tolerance"), ACCEPTED, ids=[case[0] for case in ACCEPTED])
def test_accepted_numbers(link, squares, tolerance):
    found = hermite.label_correlations(link, 4)
    np.testing.assert_allclose(found[1:], squares, rtol=0, atol=tolerance)
    assert found[1:][np.equal(squares, 0.0)].max(initial=0.0) < 1e-12, "a zero leaks"
    exponent, lambda_squared = hermite.generative_exponent(link)
    first = next(k for k, square in enumerate(squares, 1) if square > 0)
    assert exponent == first
    assert lambda_squared == found[first]


def correlation_of_a_fast_fall(k):
    """Return λ_k² of z exp(-z²), k odd, from the two points z > 0 of each label, by quadrature over the smaller one."""
    turn, h = math.sqrt(0.5), hermite_e.HermiteE.basis(k) / math.sqrt(math.factorial(k))

    def integrand(z):
        other = brentq(lambda x: math.log(x / z) - x * x + z * z, turn, 60.0, xtol=1e-14)
        masses = np.exp([0.5 * z * z, 0.5 * other**2]) / np.abs([1.0 - 2.0 * z * z, 1.0 - 2.0 * other**2])
        mean = masses @ h(np.array([z, other]))
        return math.sqrt(2.0 / math.pi) * mean**2 / masses.sum() * (1.0 - 2.0 * z * z) * math.exp(-z * z)

    low = quad(lambda u: integrand(math.exp(-u)) * math.exp(-u), -math.log(0.3), 40.0, limit=500)[0]
    return low + quad(lambda t: integrand(turn - t * t) * 2.0 * t, 1e-6, math.sqrt(turn - 0.3), limit=500)[0]


@pytest.mark.parametrize(("k", "loss"), [(1, 1e-6), (3, 6e-5), (5, 1.5e-3), (7, 0.021)])
def test_a_link_that_falls_fast_has_a_lower_bound_of_the_stated_size(k, loss):
    exact = correlation_of_a_fast_fall(k)
    assert exact - loss <= hermite.label_correlations("z*exp(-z^2)", 7)[k] <= exact


@pytest.mark.parametrize("link", ["sign", "step", "heaviside(abs(z) - 1)", "3*sign(z) - 2"])
def test_a_label_of_two_values_correlates_as_the_link_does(link):
    """λ_k² = c_k²/Var σ exactly, since any function of such a label is linear in it."""
    expansion = hermite.expand(link, order=12)
    variance = expansion.norm_squared - expansion.coefficients[0] ** 2
    shares = expansion.coefficients[1:] ** 2 / variance
    np.testing.assert_allclose(hermite.label_correlations(expansion, 12)[1:], shares, atol=1e-12)


def test_relu_in_closed_form():
    """Y = 0 says z < 0 alone, Y > 0 says z: λ_k² = 2 (∫_-∞^0 h_k γ)² + E h_k² 1{z > 0}, the atom at 0 exact."""
    below = interval_moments(np.array([-np.inf, 0.0]), 6)[:, 0]
    exact = 2 * below**2 + 0.5
    np.testing.assert_allclose(hermite.label_correlations("relu", 6), exact, atol=3e-5)


@pytest.mark.parametrize("link", ["tanh", "exp", "gelu(z) + z", {1: 1.0, 3: 0.01}])
def test_a_label_that_determines_z_has_all_correlations_1(link):
    np.testing.assert_allclose(hermite.label_correlations(link, 6), 1.0, atol=3e-5)


def exact_of_polynomial(powers, degree):
    """λ_k² of a polynomial by its limit: ζ_k = Σ h_k γ/|σ'| / Σ γ/|σ'| over roots, integrated over z."""
    slope = np.polynomial.polynomial.polyder(powers)
    critical = [np.polynomial.polynomial.polyval(z.real, powers) for z in roots_of(slope) if abs(z.imag) < 1e-9]
    ends = sorted({-9.0, 9.0, *(float(z) for value in critical for z in pre_images(powers, value) if abs(z) < 9)})
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = np.zeros(degree + 1)
    for left, right in pairwise(ends):
        # z = ... cos: the integrand has square roots at critical values.
        angle = 0.5 * np.pi * (nodes + 1)
        for z, w in zip(
            0.5 * (left + right) - 0.5 * (right - left) * np.cos(angle),
            0.25 * np.pi * (right - left) * np.sin(angle) * weights,
            strict=True,
        ):
            every = pre_images(powers, np.polynomial.polynomial.polyval(z, powers))
            mass = np.exp(-(every**2) / 2) / np.abs(np.polynomial.polynomial.polyval(every, slope))
            zeta = polynomials.evaluate(degree, every) @ mass / mass.sum()
            total += w * polynomials.evaluate(degree, z) * zeta * np.exp(-(z**2) / 2) / math.sqrt(2 * np.pi)
    return total


def roots_of(powers):
    return np.polynomial.polynomial.polyroots(powers)


def pre_images(powers, value):
    found = roots_of([powers[0] - value, *powers[1:]])
    return found.real[np.abs(found.imag) < 1e-6]


@pytest.mark.parametrize("degree", [3, 4])
def test_polynomials_approach_their_limit_from_below(degree):
    """For He_3 and He_4, against roots found by the companion matrix."""
    powers = hermite_e.herme2poly([0.0] * degree + [1.0])
    exact = exact_of_polynomial(powers, 4)
    found = hermite.label_correlations(f"he{degree}", 4)
    np.testing.assert_allclose(found, exact, atol=3e-5)
    assert (found <= exact + 1e-6).all()


@pytest.mark.statistical
def test_monte_carlo_of_the_conditional_mean():
    """E[h_k(Z) | Y in bin] of sin over 4e5 draws in 40 bins; the bound is 4 deviations of a sum of 40 squares.

    With n draws a bin of n/40 adds Var(h_k | bin)/n to λ_k² on average; a correct program fails once in 10^4 seeds.
    """
    rng, n, bins = np.random.default_rng(5), 400_000, 40
    z = rng.standard_normal(n)
    order = np.argsort(np.sin(z))
    means = polynomials.evaluate(4, z[order]).reshape(5, bins, -1).mean(axis=2)
    sampled = np.mean(means**2, axis=1)
    found = hermite.label_correlations("sin", 4)
    # 40 bins lose up to 5e-3 of the bound that 4096 cells give.
    assert (np.abs(sampled - found)[1:] < 5e-3 + bins / n + 4 * np.sqrt(24.0 / n)).all()


def noisy_correlations(link, noise, degree):
    """λ_k² of Y = σ(Z) + noise·N(0, 1) by quadrature: ζ_k(y) = ∫ h_k γ(z) N(y - σ(z)) dz / ∫ γ(z) N(y - σ(z)) dz."""
    z = np.linspace(-9.0, 9.0, 1801)
    values = hermite.expand(link).value(z)
    y = np.linspace(values.min() - 8 * noise, values.max() + 8 * noise, 1201)
    joint = np.exp(-0.5 * ((y[:, None] - values) / noise) ** 2 - 0.5 * z**2)
    density = joint.sum(axis=1)
    seen = density > 1e-12 * density.max()
    numerator = joint[seen] @ polynomials.evaluate(degree, z).T
    return (numerator**2 / density[seen, None]).sum(axis=0) / density.sum()


@pytest.mark.parametrize(("link", "exponent"), [("x^2 exp(-x^2)", 4), ("sin", 1), ("gaussian", 2)])
def test_additive_noise_keeps_the_exponent(link, exponent):
    squares = noisy_correlations(link, 0.1, 4)
    assert squares[0] == pytest.approx(1.0, abs=1e-9)
    assert next(k for k in range(1, 5) if squares[k] > THRESHOLD) == exponent
    assert hermite.generative_exponent(link).exponent == exponent
    assert (squares[1:] <= hermite.label_correlations(link, 4)[1:] + 1e-6).all(), "noise tells something"


def test_every_kind_of_link_is_taken():
    expected = hermite.generative_exponent("he3")
    assert hermite.generative_exponent({3: 1}) == expected
    assert hermite.generative_exponent(hermite.expand("he3")) == expected
    assert hermite.generative_exponent("z^3 - 3*z") == pytest.approx(expected, abs=1e-9)
    assert hermite.generative_exponent(lambda z: z**3 - 3 * z) == pytest.approx(expected, abs=1e-9)
    assert expected.exponent == 1
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.thorough
def test_jumps_kinks_and_many_branches():
    """floor: λ_k² = Σ (∫ h_k γ)²/p over unit intervals; sin(8 z) repeats over and over; he60 has 60 branches."""
    moments = interval_moments(np.arange(-9.0, 10.0), 4)
    exact = np.sum(moments**2 / moments[0], axis=1)
    np.testing.assert_allclose(hermite.label_correlations(np.floor, 4), exact, atol=1e-10)
    assert hermite.label_correlations("sin(8*z)", 2)[1] < 1e-12
    even = hermite.label_correlations("he60", 4)
    assert max(even[1], even[3]) < 1e-10
    assert hermite.generative_exponent("he60").exponent == 2


def test_interval_moments_are_integrals():
    ends = np.array([-np.inf, -2.0, 0.3, 1.1, np.inf])
    moments = interval_moments(ends, 5)
    for k in range(6):
        hermite_k = lambda z, k=k: polynomials.evaluate(k, z)[k] * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
        exact = [quad(hermite_k, max(a, -12), min(b, 12), epsabs=1e-13)[0] for a, b in pairwise(ends)]
        np.testing.assert_allclose(moments[k], exact, atol=1e-12)
    assert interval_moments(np.array([9.0, 9.1]), 1)[0, 0] == pytest.approx(ndtr(-9.0) - ndtr(-9.1), rel=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match=r"^Argument `link` must have a generative exponent of at most 24, but .*'1'"):
        hermite.generative_exponent({0: 1.0})
    with pytest.raises(ValueError, match=r"^Argument `link` must have a generative exponent of at most 24"):
        hermite.generative_exponent("sin(40*z)")
    with pytest.raises(TypeError, match=r"^Argument `x` must be a name, a dict"):
        hermite.generative_exponent(3)
    with pytest.raises(ValueError, match=r"must be finite for every real z, but is inf near z = -0"):
        hermite.generative_exponent(lambda z: np.where(np.abs(z) < 0.5, np.inf, z))
    for wrong, error in ((0, ValueError), (25, ValueError), (True, ValueError), (2.5, TypeError), ("2", TypeError)):
        with pytest.raises(error, match=r"^Argument `degree` must be an integer from 1 to 24, but is "):
            hermite.label_correlations("he3", wrong)


HE3 = """\
link                  he3
information exponent  3
generative exponent   1, λ_1² = 0.66783

   k  c_k²/Var σ       λ_k²
   1           0    0.66783
   2           0    0.62304
   3     1.00000    1.00000

samples in d dimensions
  kernel                                d^3
  kernel of relu                        never
  online SGD                            d^2
  SGD on the smoothed landscape         d^1.5
  transformed labels, spectral or SGD   d
"""


def test_text(capsys):
    assert command.main(["he3", "--degrees", "3"]) == 0
    assert capsys.readouterr() == (HE3, "")


def test_json(capsys):
    assert command.main(["heaviside(abs(z) - 1)", "--json", "--degrees", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["information_exponent"], found["generative_exponent"]) == (2, 2)
    assert found["lambda_squared"] == pytest.approx(0.54057, abs=1e-4)
    np.testing.assert_allclose(found["coefficient_shares"], found["label_correlations"], atol=1e-12)
    assert found["samples"]["online"] == {"power": 1.0, "logarithm": True}
    assert found["samples"]["relu"] == {"power": 2.0, "logarithm": False}
    assert command.main(["he3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"]["relu"] == {"power": None, "logarithm": False}


LEAPS = """\
function              z1*z2*z3
information leap      3: 3 {z1, z2, z3}
generative leap       2: 2 {z1, z2, z3}

samples in d dimensions
  online SGD                            d^2
  transformed labels, spectral or SGD   d
"""


def test_a_function_of_several_directions(capsys):
    assert command.main(["z1*z2*z3"]) == 0
    assert capsys.readouterr() == (LEAPS, "")
    assert command.main(["z1 + h2(z2)", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    steps = found["information_leap"]["flag"]
    assert [step["degree"] for step in steps] == [1, 2]
    np.testing.assert_allclose(np.abs([step["directions"][0] for step in steps]), np.eye(2), atol=1e-12)
    assert found["information_leap"]["complete"] is True
    assert found["samples"] == {
        "online": {"power": 1.0, "logarithm": True},
        "transformed": {"power": 1.0, "logarithm": False},
    }


@pytest.mark.parametrize(
    ("exponents", "told"),
    [
        ((1, 1), ["d", "d", "d", "d", "d"]),
        ((2, 2), ["d^2", "d^2", "d log d", "d", "d"]),
        ((3, 1), ["d^3", "never", "d^2", "d^1.5", "d"]),
        ((4, 4), ["d^4", "d^4", "d^3", "d^2", "d^2"]),
    ],
)
def test_sample_laws(exponents, told):
    """Of a kernel, of that of relu, of online SGD, of the smoothed landscape, and of transformed labels."""
    assert [str(law) for law in sample_laws(*exponents).values()] == told


def test_a_mean_that_dwarfs_the_rest_leaves_the_shares(capsys):
    assert command.main(["z + 1e10", "--json", "--degrees", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["coefficient_shares"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: LINK"),
        (["tahn"], "Argument LINK must be a formula, but contains the name 'tahn', which is not z, x, pi or e. Did you mean"),
        (["he3", "--degrees", "0"], "Option --degrees must be an integer from 1 to 24, but is '0'."),
        (["he3", "--degrees", "9" * 5000], "Option --degrees must be an integer from 1 to 24, but is '999"),
        (["he3", "--degree", "3"], "unrecognized arguments: --degree 3. Did you mean '--degrees'?"),
        (["h2(z) - h2(z) + 0*z"], "Argument LINK must contain the variable z, but is "),
        (["sin(40*z)"], "Argument LINK must have a generative exponent of at most 24, but "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(arguments, sentence, capsys):
    assert command.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {sentence}")
    assert err.count("\n") == 1


PAIRS_OF_LINKS = [("tanh(z) + 0.3*z^2", "sin(z) + 0.2*z^2"), ("he3", "he3"), ("relu", "erf"), ("h2 + h4", "gelu")]


@pytest.mark.parametrize(("teacher", "student"), PAIRS_OF_LINKS)
def test_the_signal_is_the_mean_of_the_product_of_slopes(teacher, student):
    """E[σ*'(u) σ'(v)] at correlation s, by a product rule in two dimensions; the noise by one in one dimension."""
    first, second, s = hermite.expand(teacher), hermite.expand(student), 0.4
    found = hermite.gradient_signal(teacher, student, overlap=s)
    z = np.linspace(-12.0, 12.0, 4801)
    measure = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    nodes, weights = hermite_e.hermegauss(80)
    along = s * z[:, None] + math.sqrt(1.0 - s * s) * nodes
    inner = second.derivative(along) @ weights / weights.sum()
    assert found.signal == pytest.approx(
        measure @ (first.derivative(z) * inner), rel=3e-3 if teacher == "relu" else 1e-9
    )
    noise = (measure @ first.value(z) ** 2) * (measure @ second.derivative(z) ** 2)
    assert found.noise == pytest.approx(math.sqrt(noise), rel=1e-6)
    assert found.samples == pytest.approx((found.noise / found.signal) ** 2)


def test_the_accepted_signal_is_that_of_orthonormal_coefficients():
    """Accepted: .481473; with the printed factor (j+1)^2 it would be .6146."""
    teacher, student = PAIRS_OF_LINKS[0]
    assert hermite.gradient_signal(teacher, student, overlap=0.4).signal == pytest.approx(0.481473, abs=5e-7)


def test_the_command_tells_signal_and_noise(capsys):
    assert command.main(["tanh(z) + 0.3*z^2", "--activation", "sin(z) + 0.2*z^2", "--dimension", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["gradient"]
    assert (told["dimension"], len(told["by_degree"])) == (100, 8)
    expected = hermite.gradient_signal(*PAIRS_OF_LINKS[0], overlap=0.1)
    assert told["signal"] == pytest.approx(expected.signal)
    assert told["by_degree"] == pytest.approx(expected.by_degree[1:9].tolist())
    assert command.main(["he3", "--activation", "he4", "--dimension", "1e6", "--degrees", "3"]) == 0
    assert "noise of their mean: inf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["he3", "--activation", "he4"], "Option --activation must stand beside --dimension, which is missing."),
        (["z1*z2", "--dimension", "9"], "Option --dimension must stand beside a link in z, but LINK is 'z1*z2'."),
        (["he3", "--dimension", "0"], "Option --dimension must be an integer of at least 1, but is '0'."),
        (
            ["he3", "--dimension", "9", "--activation", "sign"],
            "Argument of --activation must be a link without jumps, ",
        ),
    ],
)
def test_the_command_refuses_a_signal_that_it_cannot_tell(arguments, sentence, capsys):
    assert command.main(arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("overlap", [1.5, float("nan"), "0.1", True, None])
def test_a_signal_needs_an_overlap(overlap):
    with pytest.raises((TypeError, ValueError), match=r"^Argument `overlap` must be a number from -1 to 1, but is "):
        hermite.gradient_signal("he3", overlap=overlap)
