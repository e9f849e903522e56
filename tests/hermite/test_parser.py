"""Text: formulas that are read or refused, series that survive text, and words of a command that begin with a minus."""

import re
import time
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import hermite
from hermite.program import PlainParser, UsageError, command_parser
from hermite.text import formulas
from hermite.text.formulas import (
    format_series,
    hermite_polynomial,
    normalise,
    parse,
    read_series,
    series_as_text,
    variable,
)

z = variable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tanh(z)", sympy.tanh(z)),
        ("TANH(Z)", sympy.tanh(z)),
        ("x^3 - 3*x", z**3 - 3 * z),
        ("+z - -2", z + 2),
        ("0.1*z", z / 10),
        ("e^(-z^2)", sympy.exp(-(z**2))),
        ("2**z", sympy.exp(z * sympy.log(2))),
        ("relu(z - 0.3)", sympy.Max(z - sympy.Rational(3, 10), 0)),
        ("max(0, z, z**2)", sympy.Max(0, z, z**2)),
        ("gelu(2*z)", z * (1 + sympy.erf(sympy.sqrt(2) * z))),
        ("ln(1 + exp(z))", sympy.log(1 + sympy.exp(z))),
        ("sqrt(2)*z + pi", sympy.sqrt(2) * z + sympy.pi),
        ("sin(1)*z", sympy.sin(1) * z),
        ("h3(2*z)", hermite_polynomial(3).subs(z, 2 * z)),
        ("abs(z)**0.5", sympy.sqrt(sympy.Abs(z))),
        (" + ".join(["z"] * 100), 100 * z),
    ],
)
def test_formula_is_read(text, expected):
    assert sympy.simplify(parse(text) - expected) == 0


FORMULA = "Argument `x` must be a formula, but "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("__import__('os')", FORMULA + "contains a call of '__import__', which is not a known function."),
        ("z.__class__", FORMULA + "contains 'z.__class__', which is no number, variable, operator or function."),
        ("(1).real*z", FORMULA + "contains '1 .real', which is no number, variable, operator or function."),
        ("lambda z: z", FORMULA + "contains 'lambda z: z', which is no number, variable, operator or function."),
        ("z = 1", "Argument `x` must be a name or a formula such as 'tanh(z)', but is 'z = 1'."),
        ("9**9**9", FORMULA + "has an exponent beyond 300."),
        ("9**299*z", FORMULA + "contains an infinite or enormous constant."),
        ("exp(exp(exp(100)))*z", FORMULA + "contains a constant argument of 'exp' beyond 100."),
        ("1e400*z", FORMULA + "contains a number outside 1e-100 ... 1e+100."),
        ("z**301", FORMULA + "has an exponent beyond 300."),
        ("(z**300)**2", FORMULA + "has degree 600, beyond 300."),
        ("h20(z**20)", FORMULA + "has degree 400, beyond 300."),
        ("h4(1)*z", FORMULA + "contains a Hermite polynomial of a number."),
        ("h301(z)", "Argument `x` must have a degree of at most 300, but is 'he301'."),
        ("x + z", FORMULA + "has two variables, z and x."),
        ("y", FORMULA + "contains the name 'y', which is not z, x, pi or e."),
        ("tahn(z)", FORMULA + "contains a call of 'tahn', which is not a known function. Did you mean 'tanh'?"),
        ("np.tanh(z)", FORMULA + "contains 'np.tanh(z)'; write tanh(z), without a module in front."),
        ("relu + z", FORMULA + "contains 'relu' without an argument; write relu(z)."),
        ("h4*z", FORMULA + "contains 'h4' without an argument; write h4(z)."),
        ("exp()", FORMULA + "gives 0 arguments to 'exp', which takes 1."),
        ("max(z)", FORMULA + "gives 1 arguments to 'max', which takes at least 2."),
        ("exp(x=z)", FORMULA + "contains 'exp(x=z)', which is no number, variable, operator or function."),
        ("z//2", FORMULA + "contains the operator FloorDiv, which is not one of + - * / **."),
        ("~z", FORMULA + "contains '~z', which is no number, variable, operator or function."),
        ("True*z", FORMULA + "contains True, which is not a number."),
        ("z/(1 - 1)", FORMULA + "divides by zero."),
        ("0**(-1)*z", FORMULA + "contains an infinite or enormous constant."),
        ("sqrt(-1)*z", FORMULA + "has a root of a negative number."),
        ("log(0)*z", FORMULA + "contains zoo, which is not a finite real number of moderate size."),
        ("z**z", FORMULA + "has z in an exponent whose base is not a positive number."),
        ("exp(" * 60 + "z" + ")" * 60, FORMULA + "is nested more than 40 deep."),
        ("3", "Argument `x` must contain the variable z, but is '3'."),
        ("z+" * 300 + "z", "Argument `x` must have at most 500 characters, but has 601."),
    ],
)
def test_everything_else_is_refused_at_once_in_one_sentence(text, sentence):
    start = time.process_time()  # which a busy machine does not lengthen
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse(text)
    assert time.process_time() - start < 2.0


def test_sympy_expression_in_any_symbol_is_rewritten_in_z():
    t = sympy.Symbol("t", positive=True)
    assert normalise(0.1 * t**2 + sympy.Abs(t)) == z**2 / 10 + t.subs(t, 1) * z
    assert normalise(sympy.tanh(sympy.Symbol("u"))) == sympy.tanh(z)


@pytest.mark.parametrize(
    ("expression", "kind", "sentence"),
    [
        (sympy.Symbol("a") * sympy.Symbol("b"), ValueError, "Argument `x` must have exactly one symbol, but has 2: a, b."),
        (sympy.Integer(3), ValueError, "Argument `x` must have exactly one symbol, but has 0: none."),
        (sympy.Eq(sympy.Symbol("a"), 1), TypeError, "Argument `x` must be a scalar sympy expression, but is Eq(a, 1)."),
        (z**301, ValueError, "Argument `x` must be a formula, but has degree 301, beyond 300."),
    ],
)  # fmt: skip
def test_unsuitable_sympy_objects_are_refused(expression, kind, sentence):
    with pytest.raises(kind) as caught:
        normalise(expression)
    assert str(caught.value) == sentence


def test_unknown_sympy_function_is_refused_with_the_menu():
    with pytest.raises(ValueError, match=r"contains gamma, which is not one of exp, log, .*, pi and e\.$"):
        normalise(sympy.gamma(z))
    with pytest.raises(ValueError, match=r"contains I, which is not one of"):
        normalise(sympy.I * z)


finite = st.floats(min_value=-1e20, max_value=1e20, allow_nan=False).filter(lambda value: abs(value) > 1e-20)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({4: 0.8, 6: 0.6}, "0.8 h4 + 0.6 h6"),
        ({0: -1.5, 1: -1, 3: 1}, "-1.5 - h1 + h3"),
        ({2: Fraction(4, 5)}, "4/5 h2"),
        ({3: "1 + sqrt(2)"}, "(1 + sqrt(2)) h3"),
        ({3: "1e-05", 4: "-2e-07"}, "1e-05 h3 - 2e-07 h4"),
        ({}, "0"),
    ],
)
def test_series_is_written_as_mathematics(terms, expected):
    assert format_series(terms) == expected


@given(st.dictionaries(st.integers(0, 300), finite, min_size=1, max_size=8))
def test_floats_survive_the_round_trip_through_text(terms):
    coefficients = np.zeros(max(terms) + 1)
    for degree, value in terms.items():
        coefficients[degree] = value
    text = series_as_text(coefficients)
    assert {degree: float(value) for degree, value in read_series(text).items()} == terms


def test_series_too_long_for_text_is_none():
    assert series_as_text(np.full(301, 0.1)) is None
    assert series_as_text(np.zeros(3)) is None


@pytest.mark.parametrize(
    "text", ["", "tanh(z)", "h4^2", "3", "h4 h6", "He4", "0.8*h4(z) 0.6*h6(z)", "h4(z)*2", "1/0*h2(z)", "h4(z) +"]
)
def test_anything_else_is_left_to_the_parser(text):
    assert read_series(text) is None


@pytest.fixture
def parser():
    parser = command_parser("hermite.exponents", "about", "", PlainParser)
    parser.add_argument("link")
    parser.add_argument("--weights")
    parser.add_argument("--plot", nargs="?", const="shown")
    parser.add_argument("--json", action="store_true")
    return parser


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-h4(z)"], {"link": "-h4(z)"}),
        (["--weights", "-1,0.5", "relu"], {"link": "relu", "weights": "-1,0.5"}),
        (["relu", "--weights", "-,0,1"], {"link": "relu", "weights": "-,0,1"}),
        (["--weights", "-z", "relu"], {"link": "relu", "weights": "-z"}),
        (["--weights", "-", "relu"], {"link": "relu", "weights": "-"}),
        (["--json", "-2*h3(z)", "--weights", "-x1+x2"], {"link": "-2*h3(z)", "json": True, "weights": "-x1+x2"}),
        (["relu", "--plot", "-1.png"], {"link": "relu", "plot": "-1.png"}),
        (["--weights=-1", "--", "-z"], {"link": "-z", "weights": "-1"}),
        (["relu", "--plot"], {"link": "relu", "plot": "shown"}),
    ],
)
def test_a_word_with_a_minus_that_is_no_flag_is_a_value(parser, words, found):
    empty = {"link": None, "weights": None, "plot": None, "json": False, "version": None}
    assert vars(parser.parse_args(words)) == empty | found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["relu", "-o"], "unrecognized arguments: -o"),
        (["relu", "--wieghts", "1"], "Did you mean '--weights'"),
        (["relu", "--weights", "--json"], "argument --weights: expected one argument"),
        (["relu", "-3"], "unrecognized arguments: -3"),
    ],
)
def test_what_is_no_value_is_refused(parser, words, sentence):
    with pytest.raises(UsageError, match=sentence.replace("?", "[?]")):
        parser.parse_args(words)


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("z² − 1", "z^2 - 1"),
        ("z³ – 3·z", "z^3 - 3*z"),
        ("2×z ÷ 3", "2*z/3"),
        ("½⋅tanh(π*z)", "tanh(pi*z)/2"),
        ("√2·z − √(z²\u00a0+\u20091)", "sqrt(2)*z - sqrt(z^2 + 1)"),
        ("exp(−z²/2)", "exp(-z^2/2)"),
        ("1/(1 + z⁴)⁻¹", "1/(1 + z^4)^(-1)"),
        ("x² exp(−x²)", "x^2 exp(-x^2)"),
        ("0.8·h4(z) − 0.6·h6(z)", "0.8*h4(z) - 0.6*h6(z)"),
        ("−h3", "-h3"),
        ("(z²)¹⁰", "z^20"),
    ],
)
def test_signs_of_a_pdf_are_read_as_those_of_a_keyboard(printed, typed):
    assert hermite.expand(printed) == hermite.expand(typed)


def test_signs_of_a_pdf_in_several_variables():
    assert formulas.parse_polynomial("x1² − ½·x2×x3") == formulas.parse_polynomial("x1^2 - x2*x3/2")
    assert formulas.parse_several("z1²·z2 − z3") == formulas.parse_several("z1^2*z2 - z3")
    assert formulas.named_axes("z1²·z2 − z3") == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "character"),
    [("z ∞", "'∞' (INFINITY)"), ("tanh(z) ≥ 0", "'≥' (GREATER-THAN OR EQUAL TO)"), ("h₄(z)", "'₄' (SUBSCRIPT FOUR)")],
)
def test_other_characters_are_named(text, character):
    with pytest.raises(
        ValueError, match=re.escape(f"but is {text!r}; its character {character} is none of a formula.")
    ):
        hermite.expand(text)
