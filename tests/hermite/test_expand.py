"""The entrance: every kind of argument, every refusal."""

import math
import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy.special
import sympy
from hypothesis import given
from hypothesis import strategies as st

import hermite
from hermite.text.formulas import FORMULAS

PLAIN = {
    "relu": lambda z: np.maximum(z, 0),
    "erf": lambda z: scipy.special.erf(z / math.sqrt(2)),
    "tanh": np.tanh,
    "gelu": lambda z: z * scipy.special.ndtr(z),
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "sigmoid": scipy.special.expit,
    "softplus": lambda z: np.logaddexp(0, z),
    "silu": lambda z: z * scipy.special.expit(z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(z)),
    "selu": lambda z: 1.0507009873554805 * np.where(z > 0, z, 1.6732632423543772 * np.expm1(z)),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "mish": lambda z: z * np.tanh(np.logaddexp(0, z)),
    "abs": np.abs,
    "quadratic": np.square,
    "step": lambda z: (z > 0).astype(float),
    "sign": np.sign,
    "gaussian": lambda z: np.exp(-(z**2)),
    "x^2 exp(-x^2)": lambda z: z**2 * np.exp(-(z**2)) - math.sqrt(3) / 9,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_named_link_is_the_plain_function_and_quadrature_finds_its_coefficients(name):
    link = hermite.expand(name, order=20)
    z = np.linspace(-4.03, 4.0, 50)
    np.testing.assert_allclose(link.value(z), PLAIN[name](z), rtol=1e-13, atol=1e-15)
    by_quadrature = hermite.expand(PLAIN[name], order=20)
    np.testing.assert_allclose(link.coefficients, by_quadrature.coefficients, atol=by_quadrature.coefficient_error)
    assert link.name == link.text == name


@pytest.mark.parametrize("order", [4, 20, 60])
def test_a_callable_and_the_named_link_have_the_same_zeros(order):
    """The callable's mean is 2e-17 by quadrature, its odd coefficients likewise, and c_42 on fall below 1e-10."""
    named = hermite.expand("x^2 exp(-x^2)", order=order)
    opaque = hermite.expand(lambda z: z**2 * np.exp(-(z**2)) - 3**0.5 / 9, order=order)
    counted = np.abs(named.coefficients) > opaque.tolerance
    np.testing.assert_array_equal(opaque.coefficients != 0.0, counted)
    if order <= 20:
        np.testing.assert_array_equal(counted, named.coefficients != 0.0)
    assert opaque.coefficients[0] == named.coefficients[0] == 0.0
    assert opaque.information_exponent == named.information_exponent == 4
    assert opaque.parity == named.parity == "even"


def test_new_activations_in_closed_form():
    """leaky_relu is relu and a line, selu has mean 0 and variance 1 (1706.02515), z² is 1 + √2 h_2."""
    relu, leaky = hermite.expand("relu", order=9).coefficients, hermite.expand("leaky_relu", order=9)
    np.testing.assert_allclose(leaky.coefficients, 0.99 * relu + 0.01 * np.eye(10)[1], atol=1e-16)
    assert leaky.exact is not None
    selu = hermite.expand("selu")
    assert abs(selu.coefficients[0]) < 1e-10
    assert selu.norm_squared == pytest.approx(1.0, abs=1e-10)
    assert hermite.expand("quadratic").exact == (1, 0, sympy.sqrt(2))
    assert hermite.expand("quadratic").information_exponent == 2


@pytest.mark.parametrize(
    ("typo", "meant"), [("swsh", "swish"), ("leaky_rlu", "leaky_relu"), ("mis", "mish"), ("2*swissh(z)", "swish")]
)
def test_a_typo_gets_the_nearest_name(typo, meant):
    with pytest.raises(ValueError, match=rf"Did you mean '{meant}'\?$"):
        hermite.expand(typo)


def test_orthonormal_h4_has_many_spellings():
    for spelling in ("he4", " HE4 ", "h4", "he 4", "h4(z)", "h4(x)", "HE4(z)", {4: 1}, {4: 1.0}, {4.0: 1},
                     [0, 0, 0, 0, 1], (0.0, 0, 0, 0, 1.0), np.eye(5)[4]):  # fmt: skip
        link = hermite.expand(spelling)
        assert link == hermite.expand("he4")
        assert link.coefficients.tolist() == [0, 0, 0, 0, 1]
        assert str(link) == "h4"


@pytest.mark.parametrize(
    ("letters", "reference"), [("He", np.polynomial.hermite_e.hermeval), ("H", np.polynomial.hermite.hermval)]
)
def test_a_capital_names_the_classical_polynomials(letters, reference):
    z = np.linspace(-3.0, 3.0, 13)
    for degree, form in product((1, 4, 7), ("{0}", "{0}(z)", "0*x + {0}(x)")):
        link = hermite.expand(form.format(f"{letters}{degree}"))
        np.testing.assert_allclose(link.value(z), reference(z, np.eye(degree + 1)[degree]), rtol=1e-12, atol=1e-10)
        assert hermite.expand(link.text) == link


def test_default_order_is_the_degree_or_sixty():
    assert hermite.expand("he7").order == 7
    assert hermite.expand("z**3").order == 3
    assert hermite.expand({0: 1.0, 9: 2.0}).order == 9
    assert hermite.expand("relu").order == hermite.expand(np.tanh).order == 60


@pytest.mark.parametrize("given", ["z**3", {3: 1.0, 1: 2.0}, "relu", "tanh(z)", np.tanh])
@pytest.mark.parametrize("order", [2, 7])
def test_order_cuts_and_pads_and_an_expansion_can_be_cut_again(given, order):
    link = hermite.expand(given, order=order)
    assert link.order == order
    assert hermite.expand(hermite.expand(given), order=order) == link
    assert hermite.expand(link) is link
    assert hermite.expand(link, order=order) is link


def test_polynomial_cut_below_its_degree_keeps_the_function_and_reports_the_rest():
    link = hermite.expand({1: 3.0, 4: 4.0}, order=2)
    assert link.norm_squared == 25.0
    assert link.truncation_error == 4.0
    assert link.value(0.0) == hermite.expand({1: 3.0, 4: 4.0}).value(0.0)
    assert link.truncated().truncation_error == 0.0
    assert link.truncated().norm_squared == 9.0


def test_exact_coefficients_of_polynomials():
    assert hermite.expand("z**3").exact == (0, 3, 0, sympy.sqrt(6))
    assert hermite.expand("he3").exact == (0, 0, 0, 1)
    assert hermite.expand({2: Fraction(1, 3), 3: np.int64(2)}).exact == (0, 0, sympy.Rational(1, 3), 2)
    assert hermite.expand({1: sympy.sqrt(2)}).exact == (0, sympy.sqrt(2))
    assert hermite.expand({1: sympy.Float(0.5)}).exact is None
    assert hermite.expand({2: 0.5}).exact is None
    assert hermite.expand("0.5*h2(z)").exact == (0, 0, sympy.Rational(1, 2))


@pytest.mark.parametrize(
    "given",
    [
        "he4",
        {4: 0.8, 6: 0.6},
        {4: Fraction(4, 5)},
        {2: sympy.sqrt(3) / 2},
        "relu",
        "erf",
        "x^2 exp(-x^2)",
        "tanh(z)",
        "z**3 - 3*z",
        "h4(z) + 0.5*h6(z)",
        "exp(-z**2/3 + z/7)",
        "log(1 + abs(z))",
        "max(0, z, 2*z - 1)",
        "sqrt(2)*h2(z)",
        "sign(z - 1)*z",
    ],
)
def test_text_and_pickle_give_the_same_expansion(given):
    link = hermite.expand(given)
    again = hermite.expand(link.text)
    assert again == link
    assert again.name == hermite.expand(again.text).name
    copy = pickle.loads(pickle.dumps(link))
    assert copy == link
    assert hash(copy) == hash(link)
    assert copy.text == link.text
    assert not copy.coefficients.flags.writeable
    z = np.array([-1.3, 0.2, 2.0])
    np.testing.assert_array_equal(copy.value(z), link.value(z))
    np.testing.assert_array_equal(copy.derivative(z), link.derivative(z))


def test_callable_has_no_text_and_pickles_if_it_can():
    link = hermite.expand(np.tanh)
    assert (link.text, link.name, link.expression) == (None, "tanh", None)
    assert pickle.loads(pickle.dumps(link)) == link
    with pytest.raises(pickle.PicklingError, match=r"^An expansion of a callable can be pickled only if .* '<lambda>'"):
        pickle.dumps(hermite.expand(lambda z: z**2))


@given(
    st.dictionaries(
        st.integers(0, 40), st.floats(-10, 10).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=6
    )
)
def test_random_series_satisfy_parseval_and_survive_text(terms):
    link = hermite.expand(terms)
    nodes = np.linspace(-30.0, 30.0, 2401)
    weights = np.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])
    assert weights @ link.value(nodes) ** 2 == pytest.approx(link.norm_squared, rel=1e-12)
    assert link.kernel(1.0) == pytest.approx(link.norm_squared, rel=1e-13)
    assert hermite.expand(link.text) == link
    found = hermite.expand(link.value, order=link.order)
    np.testing.assert_allclose(found.coefficients, link.coefficients, rtol=0, atol=found.coefficient_error)


MENU = (
    "Argument `x` must be a name, a dict {degree: coefficient}, a formula, a vectorised callable or an expansion, "
    "but is of type "
)
NAME = "Argument `x` must be a formula, but contains the name 'tahn', which is not z, x, pi or e. "
RULE = "Argument `x` must be a vectorised callable (array in, real array of the same shape out), but "


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "order", "kind", "sentence"),
    [
        (3, None, TypeError, MENU + "int."),
        ("tahn", None, ValueError, NAME + "Did you mean 'tanh'?"),
        ("he301", None, ValueError, "Argument `x` must have a degree of at most 300, but is 'he301'."),
        ("he4", 301, ValueError, "Argument `order` must be from 0 to 300, but is 301."),
        ("he4", 2.5, TypeError, "Argument `order` must be an integer or None, but is 2.5."),
        ({}, None, ValueError, "Argument `x` must have at least one nonzero coefficient, but is {}."),
        ([], None, ValueError, "Argument `x` must have at least one nonzero coefficient, but is empty."),
        (np.eye(3), None, ValueError, "Argument `x` must be a one-dimensional array of coefficients, but has shape (3, 3)."),
        ([0.0] * 400, None, ValueError, "Argument `x` must have at most 301 coefficients, but has 400."),
        ([1.0, "a"], None, TypeError, "Argument `x` must have real numbers as coefficients, but has 'a' at degree 1."),
        ({2.5: 1.0}, None, ValueError, "Argument `x` must have degrees from 0 to 300 as keys, but has 2.5."),
        ("exp(26*z)", None, ValueError, "Argument `x` must have a norm within float64, but E σ(z)² of 'exp(26*z)' is not."),
        ("H300", None, ValueError, "Argument `x` must have Hermite coefficients within float64, but c_0 of 'H300' is inf."),
        ({301: 1.0}, None, ValueError, "Argument `x` must have degrees from 0 to 300 as keys, but has 301."),
        ({2: math.nan}, None, ValueError, "Argument `x` must have finite real coefficients, but has nan at degree 2."),
        ({2: 1j}, None, TypeError, "Argument `x` must have real numbers as coefficients, but has 1j at degree 2."),
        (lambda z: z[:3], None, ValueError, RULE + "'<lambda>' returns shape (3,) for shape (400,)."),
        (lambda z: 1.0, None, ValueError, RULE + "'<lambda>' returns shape () for shape (400,)."),
        (lambda z: z * 1j, None, TypeError, RULE + "'<lambda>' returns dtype complex128."),
        ("z^3 - 3z", None, ValueError, "Argument `x` must be a name or a formula such as 'tanh(z)', but is 'z^3 - 3z'; write products with a sign, 3*z."),
        ("h4(z", None, ValueError, "Argument `x` must be a name or a formula such as 'tanh(z)', but is 'h4(z'; its brackets do not match."),
        ("(z + 1)(z - 1)", None, ValueError, "Argument `x` must be a formula, but contains '(z + 1)(z - 1)'; write products with a sign, 3*z."),
        ("heaviside", None, ValueError, "Argument `x` must be a formula, but contains 'heaviside' without an argument; write heaviside(z)."),
        (np.log, None, ValueError, "Argument `x` must be finite for every real z, but is nan near z = -0.0001754."),
    ],
)  # fmt: skip
def test_refusals_are_single_sentences(given, order, kind, sentence):
    with pytest.raises(kind) as caught:
        hermite.expand(given, order=order)
    assert str(caught.value) == sentence


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["abs(z)**(-0.5)", "abs(z)**(-0.51)", "abs(z - 1)**(-0.45)", "1/abs(z)", "1/z"])
def test_a_norm_that_is_infinite_or_cannot_be_resolved_is_refused(link):
    """Floats near 1 are 1e-16 apart: they leave out a third of the square of |z - 1|^(-0.45)."""
    with pytest.raises(
        ValueError, match=r"must be (square-integrable under N\(0, 1\), but (the integral|its)|finite) "
    ):
        hermite.expand(link)


@pytest.mark.thorough
@pytest.mark.parametrize("power", [0.3, 0.45, 0.49])
def test_norm_of_a_singular_link(power):
    """E |z|^(-2a) = 2^(-a) Γ(1/2 - a) / √π, by text and by a callable."""
    exact = 2.0**-power * math.gamma(0.5 - power) / math.sqrt(math.pi)
    for link in (f"abs(z)**(-{power})", lambda z: np.abs(z) ** -power):
        assert hermite.expand(link).norm_squared == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "centre", "width"), [("exp(-1e8*z^2)", 0.0, 1e-4), ("exp(-(z-0.3)^2*1e12)", 0.3, 1e-6)]
)
def test_norm_of_a_spike_that_no_node_meets(text, centre, width):
    """E exp(-2 ((z - c)/s)²) = s √(π/2) φ(c) to first order in s."""
    link = hermite.expand(text)
    assert link.norm_squared == pytest.approx(width * math.exp(-(centre**2) / 2.0) / 2.0, rel=1e-4)
    assert link.truncation_error**2 == pytest.approx(link.norm_squared - np.sum(link.coefficients**2))


def test_a_callable_of_single_numbers_is_refused():
    with pytest.raises(TypeError, match=r"^Argument `x` must be a vectorised callable .* but 'tanh' failed"):
        hermite.expand(math.tanh)


def test_a_callable_may_fill_one_array_again_and_again():
    """A derivative by differences asks for two values of one function, which must not be one array."""
    buffer = {}

    def reused(z):
        return np.sin(z, out=buffer.setdefault(np.shape(z), np.empty(np.shape(z))))

    z = np.array([0.3, -0.7])
    link = hermite.expand(reused, order=5)
    np.testing.assert_allclose(link.derivative(z), np.cos(z), atol=1e-6)
