"""The named links, each a formula in z, and how a name that the user typed is matched with them."""

from __future__ import annotations

import re
from typing import NamedTuple

from hermite.polynomials import MAX_DEGREE

FORMULAS: dict[str, str] = {
    "relu": "Max(z, 0)",
    "erf": "erf(z/sqrt(2))",
    "tanh": "tanh(z)",
    "gelu": "z*(1 + erf(z/sqrt(2)))/2",
    "sin": "sin(z)",
    "cos": "cos(z)",
    "exp": "exp(z)",
    "sigmoid": "(1 + tanh(z/2))/2",
    "softplus": "log(1 + exp(z))",
    "silu": "z*(1 + tanh(z/2))/2",
    "elu": "Max(z, 0) + exp(Min(z, 0)) - 1",
    "selu": "1.0507009873554805*(Max(z, 0) + 1.6732632423543772*(exp(Min(z, 0)) - 1))",
    "leaky_relu": "Max(z, 0) + Min(z, 0)/100",
    "mish": "z*tanh(log(1 + exp(z)))",
    "abs": "Abs(z)",
    "quadratic": "z**2",
    "step": "Heaviside(z)",
    "sign": "sign(z)",
    "gaussian": "exp(-z**2)",
    "x^2 exp(-x^2)": "z**2*exp(-z**2) - sqrt(3)/9",
}
"""Name -> formula. Plain functions, none rescaled; `erf` is erf(z/√2) and the last link is centred."""

#: Another name -> the table's, for links and for functions in formulas.
ALIASES = {
    "swish": "silu",
    "logistic": "sigmoid",
    "leakyrelu": "leaky_relu",
    "leaky-relu": "leaky_relu",
}


def canonical_name(text: str) -> str | None:
    """Return the table's name of a link, whatever the case, blanks or alias; None where the text is no name.

    Examples
    --------
    >>> canonical_name(" ReLU "), canonical_name("Leaky ReLU"), canonical_name("X^2 exp(-x^2)"), canonical_name("z**2")
    ('relu', 'leaky_relu', 'x^2 exp(-x^2)', None)
    """
    bare = "".join(text.lower().split())
    return next((name for name in FORMULAS if name.replace(" ", "") == bare), ALIASES.get(bare))


class HermiteName(NamedTuple):
    """A Hermite polynomial by name: "h" is the orthonormal one, "He" the probabilists', "H" the physicists'."""

    kind: str
    degree: int

    def checked(self) -> HermiteName:
        """Return this polynomial, or raise ValueError for a degree above 300."""
        if self.degree > MAX_DEGREE:
            shown = f"{'he' if self.kind == 'h' else self.kind}{self.degree}"
            msg = f"Argument `x` must have a degree of at most {MAX_DEGREE}, but is {shown!r}."
            raise ValueError(msg)
        return self


def hermite_name(text: str) -> HermiteName | None:
    """Return the Hermite polynomial that a text names, None where it names none.

    `He<k>` and `H<k>` are the classical polynomials; `he<k>` and `h<k>`, in any other case, the orthonormal h_k.

    Examples
    --------
    >>> hermite_name("he4"), hermite_name("He4"), hermite_name("tanh")
    (HermiteName(kind='h', degree=4), HermiteName(kind='He', degree=4), None)
    """
    match = re.fullmatch(r"\s*(he?)\s*([0-9]{1,9})\s*", text, flags=re.IGNORECASE)
    if match is None:
        return None
    return HermiteName(match[1] if match[1] in ("He", "H") else "h", int(match[2]))
