"""Numbers as text, rounded by their errors: one rule for tables, figures, pages and verdicts."""

from __future__ import annotations

import math

#: Errors that begin with less than this keep two digits.
TWO_DIGITS = 3.55
#: Powers of ten between which numbers are written without an exponent.
SMALLEST_PLAIN, LARGEST_PLAIN = -4, 5


def rounded(value: float, error: float) -> tuple[str, str]:
    """Return a value and its standard error as text, with the decimals that the error leaves.

    Two digits of an error are kept from 10 to 35, one elsewhere, as the Particle Data Group does; a value whose error
    is unknown keeps three significant digits.
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0.0):
        return _short(value, 3), _short(error, 2)
    places, power = _places(value, error)
    exponent = f"e{power:+03d}" if power else ""
    mantissas = (round(number * 10.0**-power, places) for number in (value, error))
    value_text, error_text = (f"{mantissa:.{max(places, 0)}f}{exponent}" for mantissa in mantissas)
    return value_text, error_text


def with_error(value: float, error: float = math.nan) -> str:
    """Return "value ± error", both rounded by the error: 1.0262, 0.039245 -> "1.03 ± 0.04"; see `rounded`."""
    value_text, error_text = rounded(value, error)
    if not (math.isfinite(value) and math.isfinite(error) and error > 0.0):
        return value_text
    mantissa, letter, power = value_text.partition("e")
    return f"({mantissa} ± {error_text.partition('e')[0]})e{power}" if letter else f"{value_text} ± {error_text}"


def _places(value: float, error: float) -> tuple[int, int]:
    """Return the decimals that an error leaves, and the power of ten that both numbers are divided by, mostly 0."""
    lead = math.floor(math.log10(error))
    places = -lead + (error < TWO_DIGITS * 10.0**lead)
    largest = math.floor(math.log10(max(abs(value), error)))
    return (places, 0) if SMALLEST_PLAIN <= largest <= LARGEST_PLAIN else (places + largest, largest)


def _short(value: float, digits: int) -> str:
    """Return a number with so many significant digits, "-" where it is unknown."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"
