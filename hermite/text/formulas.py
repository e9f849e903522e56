"""Links and polynomials as text: formulas, read without evaluating them, and Hermite series, read and printed.

Python's parser builds a tree, and an allow-list walks it into a sympy expression, or polynomials in x1 ... x9 into a
table of monomials. Degrees, exponents, numbers and terms are bounded while walking, so that a formula can neither run
code nor exhaust the machine. sympy is loaded at first use.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from html import escape
from typing import Any, NamedTuple, NoReturn, TypeAlias

from hermite.arrays import Array
from hermite.polynomials import MAX_DEGREE
from hermite.text.messages import refuse, require, shown, suggestion
from hermite.text.signs import keyboard_text, odd_character

#: A sympy expression; the alias keeps sympy out of the import of this module.
Expression: TypeAlias = Any
#: Exact sympy coefficient of each monomial, by the exponents of x1 ... x9; no coefficient is zero.
Monomials: TypeAlias = dict[tuple[int, ...], Expression]

#: Longest formula read from text, in characters.
MAX_LENGTH = 500
#: Bounds of polynomials in several variables.
MOST_DEGREE, MAX_TERMS = 12, 200
#: sympy's name of every function a formula may contain, by the name it has in text.
FUNCTIONS = {
    "exp": "exp", "log": "log", "ln": "log", "sqrt": "sqrt",
    "sin": "sin", "cos": "cos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "erf": "erf", "erfc": "erfc",
    "abs": "Abs", "max": "Max", "min": "Min", "heaviside": "Heaviside", "sign": "sign",
}  # fmt: skip

_MAX_DEPTH = 40
_MAX_NUMBER = 1e100
_INDEXED = re.compile(r"[zx]([1-3])")
_COUNT = 9
_AXIS = re.compile(rf"[zx]([1-{_COUNT}])", flags=re.IGNORECASE)
_PRODUCTS = "; write products with a sign, 3*z."
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow}

#: Name -> formula. Plain functions, none rescaled; `erf` is erf(z/√2) and the last link is centred.
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

#: Another name -> the table's, for links and for functions in formulas.
ALIASES = {"swish": "silu", "logistic": "sigmoid", "leakyrelu": "leaky_relu", "leaky-relu": "leaky_relu"}


def canonical_name(text: str) -> str | None:
    """Return the table's name of a link, whatever the case, blanks or alias; None where the text is no name.

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
        name = f"{'he' if self.kind == 'h' else self.kind}{self.degree}"
        require(self.degree <= MAX_DEGREE, f"Argument `x` must have a degree of at most {MAX_DEGREE}, but is {name!r}.")
        return self


def hermite_name(text: str) -> HermiteName | None:
    """Return the Hermite polynomial that a text names, None where it names none.

    `He<k>` and `H<k>` are the classical polynomials; `he<k>` and `h<k>`, in any other case, the orthonormal h_k.

    >>> hermite_name("he4"), hermite_name("He4"), hermite_name("tanh")
    (HermiteName(kind='h', degree=4), HermiteName(kind='He', degree=4), None)
    """
    match = re.fullmatch(r"\s*(he?)\s*([0-9]{1,9})\s*", text, flags=re.IGNORECASE)
    return None if match is None else HermiteName(match[1] if match[1] in ("He", "H") else "h", int(match[2]))


def variable() -> Expression:
    """Return the real sympy symbol z, in which every expression of the package is written."""
    import sympy

    return sympy.Symbol("z", real=True)


def hermite_polynomial(degree: int, kind: str = "h") -> Expression:
    """Return h_k(z), He_k(z) or H_k(z) as a sympy polynomial, of the kind "h", "He" or "H".

    He_k is the probabilists' polynomial, h_k = He_k / sqrt(k!) the orthonormal one, and
    H_k(z) = 2^(k/2) He_k(sqrt(2) z) the physicists'.

    >>> hermite_polynomial(3), hermite_polynomial(3, "He"), hermite_polynomial(3, "H")
    (sqrt(6)*(z**3 - 3*z)/6, z**3 - 3*z, 8*z**3 - 12*z)
    """
    import sympy

    if kind == "H":
        return sympy.hermite(degree, variable())
    classical = sympy.hermite_prob(degree, variable())
    return classical / sympy.sqrt(math.factorial(degree)) if kind == "h" else classical


def normalise(expression: Expression) -> Expression:
    """Return a user's sympy expression in exactly one symbol, rewritten in the real symbol z.

    Floats are read as their shortest decimal, as in text. TypeError is raised for a sympy object that is no scalar
    expression, ValueError for any other number of symbols, unknown functions or a polynomial of degree beyond 300.

    >>> import sympy
    >>> normalise(0.5 * sympy.Symbol("t") ** 2)
    z**2/2
    """
    import sympy

    is_scalar = isinstance(expression, sympy.Expr)
    require(is_scalar, f"Argument `x` must be a scalar sympy expression, but is {shown(expression)}.", TypeError)
    symbols = sorted(map(str, expression.free_symbols))
    require(
        len(symbols) == 1,
        f"Argument `x` must have exactly one symbol, but has {len(symbols)}: {', '.join(symbols) or 'none'}.",
    )
    types = [getattr(sympy, name) for name in FUNCTIONS.values() if name != "sqrt"]
    types += [sympy.Symbol, sympy.Rational, sympy.Float, sympy.Add, sympy.Mul, sympy.Pow]
    for part in sympy.preorder_traversal(expression):
        if not isinstance(part, tuple(types)) and part not in (sympy.pi, sympy.E):
            name = type(part).__name__ if part.args else str(part)
            refuse(
                f"Argument `x` must be a formula, but contains {name}, which is not one of {', '.join(FUNCTIONS)}, pi "
                f"and e.{suggestion(name, FUNCTIONS)}"
            )
    floats = {value: sympy.Rational(repr(float(value))) for value in expression.atoms(sympy.Float)}
    [symbol] = expression.free_symbols
    result = expression.xreplace(floats).subs(symbol, variable())
    if result.is_polynomial(variable()):
        _checked_degree(int(sympy.degree(result, variable())))
    return result


def parse(text: str) -> Expression:
    """Return the sympy expression in the real symbol z of a formula in z or x of at most 500 characters.

    Numbers are exact: `0.1` is one tenth. Functions are those of `FUNCTIONS`, Hermite polynomials by the names of
    `hermite_name` and links of `FORMULAS`; `erf(z)` is the plain error function, not the link of this name. ValueError
    is raised for anything else.

    >>> parse("x^3 - 3*x")
    z**3 - 3*z
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ...
    ValueError: Argument `x` must be a formula, but contains a call of '__import__', which is not a known function.
    """
    expression = _Walker().read(text).expression
    if not expression.free_symbols:
        refuse(f"Argument `x` must contain the variable z, but is {shown(text)}{_Walker.hint(text)}")
    return expression


def parse_several(text: str) -> Expression:
    """Return the sympy expression of a formula in z1, z2 and z3 (or x1, x2 and x3), read as `parse` reads one in z.

    >>> parse_several("sign(z1) + h2(z3)")
    sqrt(2)*(z3**2 - 1)/2 + sign(z1)
    """
    expression = _SeveralWalker().read(text).expression
    require(
        expression.free_symbols, f"Argument `f` must contain one of the variables z1, z2 and z3, but is {shown(text)}."
    )
    return expression


def named_axes(text: str) -> set[int]:
    """Return the indices of the variables z1, z2 and z3 (or x1, x2 and x3) that a text names.

    >>> named_axes("sign(z1) + 0*x3"), named_axes("z^2")
    ({1, 3}, set())
    """
    return set(map(int, re.findall(rf"\b{_INDEXED.pattern}\b", keyboard_text(text).lower())))


def parse_polynomial(text: object) -> Monomials:
    """Return the exact coefficient of each monomial of a polynomial in x1 ... x9, by its exponents.

    The total degree is at most 12, and there are at most 200 terms.

    z1 ... z9 are other names of the same variables.
    Numbers are exact: `0.1` is one tenth. The argument of a Hermite polynomial, `h2(x1)`, may be any polynomial. The
    exponents are as long as the largest index in the text. ValueError is raised for anything else.

    >>> parse_polynomial("x1 + 2*x1*x2^2")
    {(1, 0): 1, (1, 2): 2}
    >>> parse_polynomial("z1 + 2*z1*z2^2") == parse_polynomial("x1 + 2*x1*x2^2")
    True
    >>> parse_polynomial("h2(x1)")
    {(0,): -sqrt(2)/2, (2,): sqrt(2)/2}
    """
    if not isinstance(text, str):
        refuse(f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}.", TypeError)
    monomials = {powers: value for powers, value in _PolynomialWalker().read(text).terms() if value != 0}
    if (span := max((a + 1 for powers in monomials for a in range(_COUNT) if powers[a]), default=0)) == 0:
        refuse("Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but depends on none of x1 ... x9.")
    in_order = sorted(monomials, key=lambda powers: (sum(powers), powers[::-1]))
    return {powers[:span]: monomials[powers] for powers in in_order}


def _is_function(name: str) -> bool:
    return name.lower() in (*FUNCTIONS, *FORMULAS, *ALIASES) or hermite_name(name) is not None


@dataclass(frozen=True)
class _Node:
    """A piece of a formula: its float if constant, its degree if polynomial (a constant has degree 0)."""

    expression: Expression
    number: float | None
    degree: int | None


def _checked_degree(degree: int | None) -> int | None:
    """Return a degree, None for a function that is no polynomial; raise ValueError beyond 300."""
    if degree is not None and degree > MAX_DEGREE:
        refuse(f"Argument `x` must be a formula, but has degree {degree}, beyond {MAX_DEGREE}.")
    return degree


class _Walker:
    """Builds a sympy expression of the syntax tree of a formula; ValueError for any part that is not on the list."""

    #: Name of the argument and kind of text, in messages that formulas and polynomials share.
    argument, kind = "x", "a formula"
    #: Names of the one variable, and their list in messages.
    variables: tuple[str, ...] = ("z", "x")
    menu = "z, x"
    variable: str | None = None

    def __init__(self) -> None:
        import sympy

        self.sympy = sympy

    def check_length(self, text: str) -> None:
        """Raise ValueError for a text of more than 500 characters."""
        length = len(text)
        require(length <= MAX_LENGTH, f"Argument `x` must have at most {MAX_LENGTH} characters, but has {length}.")

    def refuse_text(self, text: str, end: str) -> NoReturn:
        """Raise ValueError for a text that Python's parser does not read; `end` ends the sentence."""
        refuse(f"Argument `x` must be a name or a formula such as 'tanh(z)', but is {shown(text)}{end}")

    def refuse_depth(self) -> NoReturn:
        """Raise ValueError for a text that is nested too deep."""
        refuse(f"Argument `{self.argument}` must be {self.kind}, but is nested more than {_MAX_DEPTH} deep.")

    @staticmethod
    def meant(name: str) -> str:
        """Return the suggestion of a known name, or "" if none is near."""
        return suggestion(name, [*FUNCTIONS, *FORMULAS, *ALIASES])

    @staticmethod
    def hint(text: str) -> str:
        """Return the end of a message: the nearest link, or the fault of brackets or products."""
        if text.count("(") != text.count(")"):
            return "; its brackets do not match."
        # A digit at the end of a name is no factor.
        if re.search(r"(?<![\w.])[0-9.]+\s*[A-Za-z(]|\)\s*\w", text):
            return _PRODUCTS
        return "." + suggestion(text.strip(), [*FORMULAS, *ALIASES, "he4"])

    def read(self, text: str) -> Any:
        """Return the value of a text, such as a formula or a polynomial; ValueError where it is none."""
        self.check_length(text)
        try:
            tree = ast.parse(keyboard_text(text).strip().replace("^", "**"), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.refuse_text(text, odd_character(text) or self.hint(keyboard_text(text)))
        try:
            return self.walk(tree.body, 0)
        except RecursionError:
            self.refuse_depth()

    def walk(self, node: ast.expr, depth: int) -> object:
        """Return the value of a node of the syntax tree, whose `depth` is the number of nodes around it.

        ValueError is raised for nodes that are neither numbers, names, + − * / ** nor calls of known functions, and
        beyond the greatest depth.
        """
        if depth > _MAX_DEPTH:
            self.refuse_depth()
        match node:
            case ast.Constant(value=int() | float() as value):
                return self.number(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                inner = self.walk(operand, depth + 1)
                return self.combined("*", self.number(-1), inner) if isinstance(sign, ast.USub) else inner
            case ast.BinOp(left=left, op=operation, right=right):
                if (symbol := _OPERATORS.get(type(operation))) is None:
                    refuse(
                        f"Argument `{self.argument}` must be {self.kind}, but contains the operator "
                        f"{type(operation).__name__}, which is not one of + - * / **."
                    )
                # Chains such as a + b + c lean left and cost no depth.
                return self.combined(symbol, self.walk(left, depth), self.walk(right, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if self.can_call(name, arguments):
                return self.called(name, [self.walk(argument, depth + 1) for argument in arguments])
            case _:
                return self.refuse_node(node)

    def exact(self, value: float) -> object:
        """Return a number of the text as an exact number of sympy, from the shortest decimal of a float."""
        if isinstance(value, bool):
            refuse(f"Argument `{self.argument}` must be {self.kind}, but contains {value}, which is not a number.")
        if not abs(value) <= _MAX_NUMBER or (value != 0 and abs(value) < 1.0 / _MAX_NUMBER):
            refuse(
                f"Argument `{self.argument}` must be {self.kind}, but contains a number outside "
                f"{1.0 / _MAX_NUMBER:g} ... {_MAX_NUMBER:g}."
            )
        return self.sympy.Integer(value) if isinstance(value, int) else self.sympy.Rational(repr(value))

    def number(self, value: float) -> object:
        return _Node(self.exact(value), float(value), 0)

    def name(self, name: str) -> Any:
        """Return the value of a variable, pi or e; ValueError for any other name."""
        lower = name.lower()
        if lower in self.variables:
            if self.variable not in (None, lower):
                refuse("Argument `x` must be a formula, but has two variables, z and x.")
            self.variable = lower
            return _Node(variable(), None, 1)
        if lower in ("pi", "e"):
            return _Node(self.sympy.pi, math.pi, 0) if lower == "pi" else _Node(self.sympy.E, math.e, 0)
        if _is_function(name):
            refuse(
                f"Argument `x` must be a formula, but contains {name!r} without an argument; write "
                f"{name}({self.menu.partition(',')[0]})."
            )
        return refuse(
            f"Argument `x` must be a formula, but contains the name {name!r}, which is not {self.menu}, pi or e."
            f"{self.meant(name)}"
        )

    def combined(self, symbol: str, first: Any, second: Any) -> object:
        """Return the value of two operands and an operator; ValueError beyond the bounds of degrees and numbers."""
        if symbol == "**":
            return self._power(first, second)
        if symbol == "/" and second.expression.is_zero:
            refuse("Argument `x` must be a formula, but divides by zero.")
        number = degree = None
        if first.number is not None and second.number is not None:
            number = self._bounded(symbol, first.number, second.number)
        if first.degree is not None and second.degree is not None and (symbol != "/" or second.number is not None):
            degree = max(first.degree, second.degree) if symbol in "+-" else first.degree + second.degree
        _checked_degree(degree)
        return _Node(_ARITHMETIC[symbol](first.expression, second.expression), number, degree)

    def _power(self, base: _Node, exponent: _Node) -> _Node:
        """Return base ** exponent as a node.

        ValueError is raised where it would not be real (a root of a negative number, or z in the exponent of a base
        that is not positive), and for exponents, degrees and numbers beyond their bounds.
        """
        if exponent.number is None:
            if base.number is None or base.number <= 0.0:
                refuse("Argument `x` must be a formula, but has z in an exponent whose base is not a positive number.")
            return _Node(self.sympy.exp(self.sympy.log(base.expression) * exponent.expression), None, None)
        if abs(exponent.number) > MAX_DEGREE:
            refuse(f"Argument `x` must be a formula, but has an exponent beyond {MAX_DEGREE}.")
        number = degree = None
        if base.number is not None:
            if base.number < 0.0 and not exponent.expression.is_integer:
                refuse("Argument `x` must be a formula, but has a root of a negative number.")
            number = self._bounded("**", base.number, exponent.number)
        if base.degree is not None and exponent.expression.is_Integer and exponent.number >= 0:
            degree = _checked_degree(base.degree * int(exponent.number))
        return _Node(base.expression**exponent.expression, number, degree)

    def _bounded(self, symbol: str, first: float, second: float) -> float:
        """Return a constant as a float; ValueError if it is huge, so that sympy never computes it exactly."""
        with suppress(OverflowError, ZeroDivisionError):
            value: float = _ARITHMETIC[symbol](first, second)
            if abs(value) <= _MAX_NUMBER:
                return value
        return refuse("Argument `x` must be a formula, but contains an infinite or enormous constant.")

    def can_call(self, name: str, arguments: list[ast.expr]) -> bool:
        """Return True for a known function with the right number of arguments; ValueError for any other call."""
        if not _is_function(name):
            refuse(
                f"Argument `x` must be a formula, but contains a call of {name!r}, which is not a known function."
                f"{self.meant(name)}"
            )
        count, takes_several = len(arguments), name.lower() in ("max", "min")
        if takes_several and count < 2:
            refuse(f"Argument `x` must be a formula, but gives {count} arguments to {name!r}, which takes at least 2.")
        if not takes_several and count != 1:
            refuse(f"Argument `x` must be a formula, but gives {count} arguments to {name!r}, which takes 1.")
        return True

    def called(self, name: str, values: list[Any]) -> object:
        """Return the node of a call such as exp(z), he4(z) or relu(z): a function, a Hermite polynomial or a link.

        `values` are the nodes of the arguments. ValueError is raised for degrees and numbers beyond their bounds, and
        for a Hermite polynomial of a number.
        """
        lower, hermite, argument = ALIASES.get(name.lower(), name.lower()), hermite_name(name), values[0]
        if lower == "sqrt":
            return self._power(argument, _Node(self.sympy.Rational(1, 2), 0.5, 0))
        degree = None
        if lower in FUNCTIONS:
            expression = getattr(self.sympy, FUNCTIONS[lower])(*(value.expression for value in values))
        else:
            if hermite is None:
                formula = parse(FORMULAS[lower])
            elif argument.number is None:
                formula = hermite_polynomial(hermite.checked().degree, hermite.kind)
            else:
                hermite.checked()
                refuse("Argument `x` must be a formula, but contains a Hermite polynomial of a number.")
            if argument.degree is not None and formula.is_polynomial():
                degree = _checked_degree(int(self.sympy.degree(formula, variable())) * argument.degree)
            expression = formula.subs(variable(), argument.expression)
        if any(value.number is None for value in values):
            return _Node(expression, None, degree)
        if any(abs(value.number) > 100.0 for value in values):
            refuse(f"Argument `x` must be a formula, but contains a constant argument of {name!r} beyond 100.")
        number = complex(expression.evalf())
        if number.imag != 0.0 or not math.isfinite(number.real) or abs(number.real) > _MAX_NUMBER:
            refuse(
                f"Argument `x` must be a formula, but contains {expression}, which is not a finite real number of "
                "moderate size."
            )
        return _Node(expression, number.real, 0)

    def refuse_node(self, node: ast.expr) -> NoReturn:
        """Raise ValueError for a part of a formula that is not on the list."""
        text = repr(ast.unparse(node))
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if _is_function(name):
                refuse(
                    f"Argument `x` must be a formula, but contains {text}; write {name}(z), without a module in front."
                )
            case ast.Call(func=ast.BinOp() | ast.UnaryOp() | ast.Call() | ast.Constant()):
                refuse(f"Argument `x` must be a formula, but contains {text}{_PRODUCTS}")
        refuse(
            f"Argument `x` must be a formula, but contains {text}, which is no number, variable, operator or function."
        )


class _SeveralWalker(_Walker):
    """Builds a sympy expression in the variables z1, z2 and z3."""

    variables = ()
    menu = "z1, z2, z3"

    def name(self, name: str) -> _Node:
        match = _INDEXED.fullmatch(name.lower())
        return _Node(self.sympy.Symbol(f"z{match[1]}", real=True), None, 1) if match else super().name(name)


class _PolynomialWalker(_Walker):
    """Builds a sympy polynomial in x1 ... x9 (or z1 ... z9) instead."""

    argument, kind = "text", "a polynomial in x1 ... x9 (or z1 ... z9)"

    def check_length(self, text: str) -> None:
        """Raise ValueError for a text of more than 500 characters."""
        length = len(text)
        require(
            length <= MAX_LENGTH,
            f"Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but has {length} characters, more than "
            f"{MAX_LENGTH}.",
        )

    def refuse_text(self, text: str, end: str) -> NoReturn:
        """Raise ValueError for a text that Python's parser does not read; `end` ends the sentence."""
        refuse(f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}{end}")

    @staticmethod
    def hint(_text: str) -> str:
        return "."

    def polynomial(self, value: Expression) -> Expression:
        axes = self.sympy.symbols(f"x1:{_COUNT + 1}")
        return self.sympy.Poly(value, *axes, domain="EX")

    def number(self, value: float) -> Expression:
        return self.polynomial(self.exact(value))

    def name(self, name: str) -> Expression:
        """Return the polynomial that a variable is; ValueError for any other name."""
        if (match := _AXIS.fullmatch(name)) is None:
            refuse(f"Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but contains the name {name!r}.")
        return self.polynomial(self.sympy.Symbol(f"x{match[1]}"))

    def combined(self, symbol: str, first: Expression, second: Expression) -> Expression:
        """Return the polynomial `first` symbol `second`, where the symbol is one of + − * / **.

        ValueError is raised for division by all but numbers, for exponents that are no integers from 0 to
        `MOST_DEGREE`, and for degrees, numbers of terms and coefficients beyond their bounds.
        """
        number = second.as_expr() if second.is_ground else None
        if symbol == "**":
            if number is None or not number.is_Integer or not 0 <= number <= MOST_DEGREE:
                refuse(
                    "Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but has an exponent that is no "
                    f"integer from 0 to {MOST_DEGREE}."
                )
            return reduce(partial(self.combined, "*"), [first] * int(number), self.number(1))
        if symbol == "/":
            if not number:
                refuse(
                    "Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but divides by what is no "
                    "number, or is zero."
                )
            return first.mul_ground(1 / number)
        if symbol == "*" and first.total_degree() + second.total_degree() > MOST_DEGREE:
            refuse(
                "Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but has a total degree above "
                f"{MOST_DEGREE}."
            )
        result = _ARITHMETIC[symbol](first, second)
        if len(result.coeffs()) > MAX_TERMS:
            refuse(
                f"Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but has more than {MAX_TERMS} "
                "terms."
            )
        if any(not abs(float(value)) <= _MAX_NUMBER for value in result.coeffs()):
            refuse(
                "Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but contains a number beyond "
                f"{_MAX_NUMBER:g}."
            )
        return result

    def refuse_node(self, node: ast.expr) -> NoReturn:
        refuse(f"Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but contains {ast.unparse(node)!r}.")

    def can_call(self, name: str, arguments: list[ast.expr]) -> bool:
        return hermite_name(name) is not None and len(arguments) == 1

    def called(self, name: str, values: list[object]) -> Expression:
        """Return a Hermite polynomial of a polynomial, by Horner's rule for its coefficients."""
        named = hermite_name(name)
        if named is None or named.degree > MOST_DEGREE:
            refuse(
                "Argument `text` must be a polynomial in x1 ... x9 (or z1 ... z9), but contains a Hermite polynomial "
                f"of degree above {MOST_DEGREE}."
            )
        total = self.number(0)
        for value in self.sympy.Poly(hermite_polynomial(named.degree, named.kind), variable()).all_coeffs():
            total = self.combined("+", self.combined("*", total, values[0]), self.polynomial(value))
        return total


# --- series and values in notebooks -----------------------------------------------------------------------------------

#: Characters that HTML forbids: control characters, halves of surrogate pairs, code points without a character.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LEFT = "text-align:left;vertical-align:top"
#: Entries of a list that are shown.
_MOST_ENTRIES = 12
_TERM = re.compile(
    r"\s*(?P<sign>[+-]?)\s*(?:(?P<number>[0-9]+(?:/[0-9]+|(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?))\s*(?:\*\s*)?)?"
    # A capital names a classical polynomial, which is no term of the series; h4^2 and h4(2*z) are none either.
    r"(?:he?(?P<degree>[0-9]{1,9})(?:\([zxZX]\))?)?\s*(?=[+-]|$)"
)


def format_series(terms: Mapping[int, object], *, formal: bool = False, limit: int | None = None) -> str:
    """Return Σ c_j h_j as text, "0" without terms.

    Nonzero coefficients by degree print as their `str`. `formal` writes "0.8*h4(z)", which can be read back, instead of
    "0.8 h4"; `limit` is the number of terms before "…".

    >>> format_series({0: 2.0, 4: 0.8, 6: -1.0})
    '2 + 0.8 h4 - h6'
    >>> format_series({0: 2.0, 4: 0.8}, formal=True)
    '2*h0(z) + 0.8*h4(z)'
    """
    pieces: list[str] = []
    for degree in sorted(terms)[:limit]:
        number = str(terms[degree]).removesuffix(".0")
        compound = any(mark in number[1:] for mark in "+- ") and "e" not in number
        negative = number.startswith("-") and not compound
        number = f"({number})" if compound else number.removeprefix("-") if negative else number
        sign = (" - " if negative else " + ") if pieces else ("-" if negative else "")
        if formal:
            term = f"h{degree}(z)" if number == "1" else f"{number}*h{degree}(z)"
        else:
            term = number if degree == 0 else f"h{degree}" if number == "1" else f"{number} h{degree}"
        pieces.append(sign + term)
    rest = " + …" if len(pieces) < len(terms) else ""
    return "".join(pieces) + rest or "0"


def read_series(text: str) -> dict[int, Fraction] | None:
    """Return the exact coefficients by degree of a sum of numbers times h_k(z), or h_k as printed; None for other text.

    A short cut past the general parser: it needs no sympy and does not multiply polynomials out.

    >>> read_series("0.8*h4(z) - h6(z)")
    {4: Fraction(4, 5), 6: Fraction(-1, 1)}
    >>> read_series("2 + 4/5 h4")
    {0: Fraction(2, 1), 4: Fraction(4, 5)}
    >>> read_series("tanh(z)") is None
    True
    """
    terms: dict[int, Fraction] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _TERM.match(text, position)
        if match is None or match["number"] is match["degree"] is None or (position > 0 and not match["sign"]):
            return None
        try:
            number = Fraction(match["number"] or 1)
        except ZeroDivisionError:
            return None
        degree = int(match["degree"] or 0)
        terms[degree] = terms.get(degree, Fraction(0)) + (-number if match["sign"] == "-" else number)
        position = match.end()
    return terms if "h" in text else None


def latex_series(terms: dict[int, str], limit: int) -> str:
    r"""Return printed coefficients by degree as a series in LaTeX without dollar signs, cut after `limit` terms.

    >>> latex_series({4: "0.8", 10: "1"}, limit=8)
    '0.8\\,h_{4} + h_{10}'
    """
    plain = format_series(terms, limit=limit).replace("…", r"\dots")
    powers = re.sub(r"e([+-])0*([0-9]+)", lambda m: rf"\cdot10^{{{m[1].strip('+')}{m[2]}}}", plain)
    spaced = re.sub(r"([0-9}]) h", r"\1\\,h", powers)
    return re.sub(r"h([0-9]+)", r"h_{\1}", spaced)


def series_as_text(coefficients: Array) -> str | None:
    """Return text that reads back to exactly these floats, or None where it would be too long.

    >>> import numpy as np
    >>> series_as_text(np.array([0.0, 0.1]))
    '0.1*h1(z)'
    """
    text = format_series({j: repr(float(c)) for j, c in enumerate(coefficients) if c != 0.0}, formal=True)
    return text if text != "0" and len(text) <= MAX_LENGTH else None


def legal(text: str) -> str:
    """Return text without the characters that HTML forbids."""
    return _FORBIDDEN.sub("\ufffd", text)


def clean(text: str) -> str:
    """Return text escaped for HTML."""
    return escape(legal(text))


def series_as_html(terms: Mapping[int, str], limit: int) -> str:
    """Return printed coefficients by degree as a series with subscripts, cut after `limit` terms.

    >>> series_as_html({4: "-0.8", 10: "2e-07"}, limit=8)
    '−0.8 h<sub>4</sub> + 2·10<sup>−7</sup> h<sub>10</sub>'
    """
    plain = clean(format_series(terms, limit=limit))
    powers = re.sub(r"e\+?(-?)0*([0-9]+)", r"·10<sup>\1\2</sup>", plain)
    return re.sub(r"h([0-9]+)", r"h<sub>\1</sub>", powers).replace("-", "−")


def table_of_pairs(caption: str, rows: Mapping[str, str]) -> str:
    """Return a table with a row per name and value; caption and values are HTML already, and names are not.

    >>> table_of_pairs("<b>Link</b>", {"a < b": "yes"}).count("a &lt; b")
    1
    """
    body = "".join(
        f'<tr><th scope="row" style="{_LEFT}">{clean(name)}</th><td style="{_LEFT}">{value}</td></tr>'
        for name, value in rows.items()
    )
    head = f'<caption style="{_LEFT}">{caption}</caption>'
    return f"<table>{head}<tbody>{body}</tbody></table>"


def first_of(entries: Sequence[object]) -> str:
    """Return the first entries of a list in a line, numbers with four digits; texts are HTML already.

    >>> first_of([1.0, -0.5, None]), first_of(range(30))[-9:]
    ('1, −0.5, None', '10, 11, …')
    """
    few = entries[:_MOST_ENTRIES]
    shown = [f"{entry:.4g}".replace("-", "−") if isinstance(entry, float) else str(entry) for entry in few]
    return ", ".join([*shown, "…"] if len(entries) > len(few) else shown)
