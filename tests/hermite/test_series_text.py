"""Series as text: printed, read back exactly."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermite.text.formulas import format_series, read_series, series_as_text

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
