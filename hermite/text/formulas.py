"""Links and polynomials as text: formulas, read without evaluating them, and Hermite series, read and printed.

Python's parser builds a tree, and an allow-list walks it into a sympy expression. Degrees, exponents and numbers are
bounded while walking, so that a formula can neither run code nor exhaust the machine. sympy is loaded at first use.

Polynomials in several variables x1 ... x9 are walked alike into a table of monomials, of bounded degree and number of
terms.

Hermite series are text such as "0.8 h4 + 0.6 h6". A notebook shows a value as a caption over two columns, with every
given text escaped.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from hermite.polynomials import MAX_DEGREE
from hermite.text.messages import shown, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermite.arrays import Array


Expression: TypeAlias = Any
"""A sympy expression; the alias keeps sympy out of the import of this module."""

MAX_LENGTH = 500
"""Longest formula read from text, in characters."""

# sympy's name of every function a formula may contain, by the name it has in text.
FUNCTIONS = {
    "exp": "exp", "log": "log", "ln": "log", "sqrt": "sqrt",
    "sin": "sin", "cos": "cos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "erf": "erf", "erfc": "erfc",
    "abs": "Abs", "max": "Max", "min": "Min", "heaviside": "Heaviside", "sign": "sign",
}  # fmt: skip

_MAX_DEPTH = 40
_MAX_NUMBER = 1e100
_VARIABLES = ("z", "x")
_INDEXED = re.compile(r"[zx]([1-3])")
_CONSTANTS = ("pi", "e")
_SEVERAL = ("max", "min")
_PRODUCTS = "; write products with a sign, 3*z."

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


def variable() -> Expression:
    """Return the real sympy symbol z, in which every expression of the package is written."""
    import sympy

    return sympy.Symbol("z", real=True)


def refuse(what: str, end: str = ".") -> NoReturn:
    """Raise the ValueError of a formula that is not accepted, from a clause and the end of the sentence."""
    msg = f"Argument `x` must be a formula, but {what}{end}"
    raise ValueError(msg) from None


def check_degree(degree: int | None) -> None:
    """Raise ValueError for a polynomial of degree beyond 300; a degree of None stands for other functions."""
    if degree is not None and degree > MAX_DEGREE:
        refuse(f"has degree {degree}, beyond {MAX_DEGREE}")


def hermite_polynomial(degree: int, kind: str = "h") -> Expression:
    """Return h_k(z), He_k(z) or H_k(z) as a sympy polynomial, from its explicit coefficients.

    He_k = Σ_i (-1)^i k! / (2^i i! (k - 2i)!) z^(k - 2i) is the probabilists' polynomial, h_k = He_k / sqrt(k!) the
    orthonormal one, and H_k(z) = 2^(k/2) He_k(sqrt(2) z) the physicists'. They are the kinds "He", "h" and "H".

    Examples
    --------
    >>> hermite_polynomial(3), hermite_polynomial(3, "He"), hermite_polynomial(3, "H")
    (sqrt(6)*(z**3 - 3*z)/6, z**3 - 3*z, 8*z**3 - 12*z)
    """
    import sympy

    z = variable()
    terms = []
    for i in range(degree // 2 + 1):
        power = degree - 2 * i
        pairs = math.factorial(degree) // (math.factorial(i) * math.factorial(power))
        terms.append(sympy.Integer((-1) ** i * (pairs * 2**power if kind == "H" else pairs // 2**i)) * z**power)
    total = sympy.Add(*terms)
    return total / sympy.sqrt(math.factorial(degree)) if kind == "h" else total


def normalise(expression: Expression) -> Expression:
    """Return a user's sympy expression in exactly one symbol, rewritten in the real symbol z.

    Floats are read as their shortest decimal, as in text. TypeError is raised for a sympy object that is no scalar
    expression, ValueError for any other number of symbols, unknown functions or a polynomial of degree beyond 300.

    Examples
    --------
    >>> import sympy
    >>> normalise(0.5 * sympy.Symbol("t") ** 2)
    z**2/2
    """
    import sympy

    if not isinstance(expression, sympy.Expr):
        msg = f"Argument `x` must be a scalar sympy expression, but is {shown(expression)}."
        raise TypeError(msg)
    symbols = sorted(map(str, expression.free_symbols))
    if len(symbols) != 1:
        msg = f"Argument `x` must have exactly one symbol, but has {len(symbols)}: {', '.join(symbols) or 'none'}."
        raise ValueError(msg)
    known = tuple(getattr(sympy, name) for name in FUNCTIONS.values() if name != "sqrt")
    plain = (sympy.Symbol, sympy.Rational, sympy.Float, sympy.Add, sympy.Mul, sympy.Pow)
    for part in sympy.preorder_traversal(expression):
        if not isinstance(part, (*plain, *known)) and part not in (sympy.pi, sympy.E):
            name = type(part).__name__ if part.args else str(part)
            hint = suggestion(name, list(FUNCTIONS))
            refuse(f"contains {name}, which is not one of {', '.join(FUNCTIONS)}, pi and e", "." + hint)
    floats = {value: sympy.Rational(repr(float(value))) for value in expression.atoms(sympy.Float)}
    result = expression.xreplace(floats).subs(next(iter(expression.free_symbols)), variable())
    if result.is_polynomial(variable()):
        check_degree(int(sympy.degree(result, variable())))
    return result


def parse(text: str) -> Expression:
    """Return the sympy expression in the real symbol z of a formula in z or x of at most 500 characters.

    Numbers are exact: `0.1` is one tenth. `h4(z)` and `he4(z)` are the orthonormal h_4, `He4(z)` the probabilists' and
    `H4(z)` the physicists' polynomial. Names of links other than functions of the list (relu, sigmoid, ...) may be
    used as functions; `erf(z)` in a formula is the plain error function. ValueError is raised for anything but a
    formula in one variable made of the listed functions.

    Examples
    --------
    >>> parse("x^3 - 3*x")
    z**3 - 3*z
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ...
    ValueError: Argument `x` must be a formula, but contains a call of '__import__', which is not a known function.
    """
    expression = _walked(text, _Walker())
    if not expression.free_symbols:
        msg = f"Argument `x` must contain the variable z, but is {shown(text)}{_name_hint(text)}"
        raise ValueError(msg)
    return expression


def parse_several(text: str) -> Expression:
    """Return the sympy expression of a formula in z1, z2 and z3 (or x1, x2 and x3), read as `parse` reads one in z.

    Examples
    --------
    >>> parse_several("sign(z1) + h2(z3)")
    sqrt(2)*(z3**2 - 1)/2 + sign(z1)
    """
    expression = _walked(text, _SeveralWalker())
    if not expression.free_symbols:
        msg = f"Argument `f` must contain one of the variables z1, z2 and z3, but is {shown(text)}."
        raise ValueError(msg)
    return expression


def named_axes(text: str) -> set[int]:
    """Return the indices of the variables z1, z2 and z3 (or x1, x2 and x3) that a text names.

    Examples
    --------
    >>> named_axes("sign(z1) + 0*x3"), named_axes("z^2")
    ({1, 3}, set())
    """
    return set(map(int, re.findall(rf"\b{_INDEXED.pattern}\b", text.lower())))


def _walked(text: str, walker: _Walker) -> Expression:
    """Return the expression that a walker builds of a text."""
    if len(text) > MAX_LENGTH:
        msg = f"Argument `x` must have at most {MAX_LENGTH} characters, but has {len(text)}."
        raise ValueError(msg)
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        msg = f"Argument `x` must be a name or a formula such as 'tanh(z)', but is {shown(text)}{_name_hint(text)}"
        raise ValueError(msg) from None
    try:
        return walker.walk(tree.body, 0).expression
    except RecursionError:
        refuse(f"is nested more than {_MAX_DEPTH} deep")


def _name_hint(text: str) -> str:
    """Return the end of a sentence: the link that the text may have meant, or the fault of its brackets or products."""
    if text.count("(") != text.count(")"):
        return "; its brackets do not match."
    # A digit at the end of a name is no factor.
    if re.search(r"(?<![\w.])[0-9.]+\s*[A-Za-z(]|\)\s*\w", text):
        return _PRODUCTS
    return "." + suggestion(text.strip(), [*FORMULAS, *ALIASES, "he4"])


def _refuse_node(node: ast.expr) -> NoReturn:
    """Raise ValueError for a syntax node that formulas do not have, with a hint for functions of modules."""
    text = repr(ast.unparse(node))
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if _is_function(name):
            refuse(f"contains {text}", f"; write {name}(z), without a module in front.")
        case ast.Call(func=ast.BinOp() | ast.UnaryOp() | ast.Call() | ast.Constant()):
            refuse(f"contains {text}", _PRODUCTS)
    refuse(f"contains {text}, which is no number, variable, operator or function")


def _is_function(name: str) -> bool:
    """Return whether a name may be called in a formula."""
    known = (*FUNCTIONS, *FORMULAS, *ALIASES)
    return name.lower() in known or hermite_name(name) is not None


@dataclass(frozen=True)
class _Node:
    """A piece of a formula: its float if constant, its degree if polynomial (a constant has degree 0)."""

    expression: Expression
    number: float | None
    degree: int | None


class _Walker:
    """Builds the expression of a syntax tree and refuses whatever is not on the list."""

    #: Names of the one variable, and how messages tell them.
    variables: tuple[str, ...] = _VARIABLES
    menu = "z, x"

    def __init__(self) -> None:
        import sympy

        self.sympy = sympy
        self.variable: str | None = None

    def walk(self, node: ast.expr, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            refuse(f"is nested more than {_MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=int() | float() as value):
                return self._number(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                inner = self.walk(operand, depth + 1)
                return self._arithmetic("*", self._number(-1), inner) if isinstance(node.op, ast.USub) else inner
            case ast.BinOp(left=left, op=operator, right=right):
                symbol = _OPERATORS.get(type(operator))
                if symbol is None:
                    refuse(f"contains the operator {type(operator).__name__}, which is not one of + - * / **")
                # Chains such as a + b + c lean left and cost no depth.
                first, second = self.walk(left, depth), self.walk(right, depth + 1)
                return self._power(first, second) if symbol == "**" else self._arithmetic(symbol, first, second)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, arguments, depth)
            case _:
                return _refuse_node(node)

    def _number(self, value: float) -> _Node:
        if isinstance(value, bool):
            refuse(f"contains {value}, which is not a number")
        if not abs(value) <= _MAX_NUMBER or (value != 0 and abs(value) < 1.0 / _MAX_NUMBER):
            refuse(f"contains a number outside {1.0 / _MAX_NUMBER:g} ... {_MAX_NUMBER:g}")
        # The shortest decimal of the float is the text of the user, and is read exactly.
        exact = self.sympy.Integer(value) if isinstance(value, int) else self.sympy.Rational(repr(value))
        return _Node(exact, float(value), 0)

    def _name(self, name: str) -> _Node:
        lower = name.lower()
        if lower in self.variables:
            if self.variable not in (None, lower):
                refuse("has two variables, z and x")
            self.variable = lower
            return _Node(variable(), None, 1)
        if lower in _CONSTANTS:
            return _Node(self.sympy.pi if lower == "pi" else self.sympy.E, math.pi if lower == "pi" else math.e, 0)
        if _is_function(name):
            refuse(f"contains {name!r} without an argument", f"; write {name}({self.menu.partition(',')[0]}).")
        hint = suggestion(name, [*FUNCTIONS, *FORMULAS, *ALIASES])
        return refuse(f"contains the name {name!r}, which is not {self.menu}, pi or e", "." + hint)

    def _arithmetic(self, symbol: str, first: _Node, second: _Node) -> _Node:
        a, b = first.expression, second.expression
        if symbol == "/" and b.is_zero:
            refuse("divides by zero")
        number = None
        if first.number is not None and second.number is not None:
            number = _bounded(_ARITHMETIC[symbol], first.number, second.number)
        degree = None
        if first.degree is not None and second.degree is not None and (symbol != "/" or second.number is not None):
            degree = max(first.degree, second.degree) if symbol in "+-" else first.degree + second.degree
        check_degree(degree)
        return _Node(_ARITHMETIC[symbol](a, b), number, degree)

    def _power(self, base: _Node, exponent: _Node) -> _Node:
        if exponent.number is None:
            if base.number is None or base.number <= 0.0:
                refuse("has z in an exponent whose base is not a positive number")
            return _Node(self.sympy.exp(self.sympy.log(base.expression) * exponent.expression), None, None)
        if abs(exponent.number) > MAX_DEGREE:
            refuse(f"has an exponent beyond {MAX_DEGREE}")
        number = None
        if base.number is not None:
            if base.number < 0.0 and not exponent.expression.is_integer:
                refuse("has a root of a negative number")
            number = _bounded(lambda u, v: u**v, base.number, exponent.number)
        degree = None
        if base.degree is not None and exponent.expression.is_Integer and exponent.number >= 0:
            degree = base.degree * int(exponent.number)
        check_degree(degree)
        return _Node(base.expression**exponent.expression, number, degree)

    def _call(self, name: str, arguments: list[ast.expr], depth: int) -> _Node:
        lower = ALIASES.get(name.lower(), name.lower())
        hermite = hermite_name(name)
        if not _is_function(name):
            hint = suggestion(name, [*FUNCTIONS, *FORMULAS, *ALIASES])
            refuse(f"contains a call of {name!r}, which is not a known function", "." + hint)
        if lower in _SEVERAL and len(arguments) < 2:
            refuse(f"gives {len(arguments)} arguments to {name!r}, which takes at least 2")
        if lower not in _SEVERAL and len(arguments) != 1:
            refuse(f"gives {len(arguments)} arguments to {name!r}, which takes 1")
        nodes = [self.walk(argument, depth + 1) for argument in arguments]
        if hermite is not None:
            return self._hermite(hermite.checked(), nodes[0])
        if lower == "sqrt":
            return self._power(nodes[0], _Node(self.sympy.Rational(1, 2), 0.5, 0))
        values = [node.expression for node in nodes]
        degree = None
        if lower in FUNCTIONS:
            function = getattr(self.sympy, FUNCTIONS[lower])
        else:
            formula = parse(FORMULAS[lower])
            function = lambda value: formula.subs(variable(), value)  # noqa: E731
            if formula.is_polynomial() and nodes[0].degree is not None:
                degree = int(self.sympy.degree(formula)) * nodes[0].degree
                check_degree(degree)
        if all(node.number is not None for node in nodes):
            if any(abs(node.number or 0.0) > 100.0 for node in nodes):
                refuse(f"contains a constant argument of {name!r} beyond 100")
            expression = function(*values)
            return _Node(expression, _constant(expression), 0)
        return _Node(function(*values), None, degree)

    def _hermite(self, name: HermiteName, argument: _Node) -> _Node:
        if argument.number is not None:
            refuse("contains a Hermite polynomial of a number")
        total = None if argument.degree is None else name.degree * argument.degree
        check_degree(total)
        return _Node(hermite_polynomial(name.degree, name.kind).subs(variable(), argument.expression), None, total)


class _SeveralWalker(_Walker):
    """The same with the variables z1, z2 and z3."""

    variables = ()
    menu = "z1, z2, z3"

    def _name(self, name: str) -> _Node:
        found = _INDEXED.fullmatch(name.lower())
        return _Node(self.sympy.Symbol(f"z{found[1]}", real=True), None, 1) if found else super()._name(name)


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _bounded(operation: Callable[[float, float], float], first: float, second: float) -> float:
    """Compute a constant in floats before sympy computes it exactly, so that huge numbers are never built."""
    try:
        value = operation(first, second)
    except (OverflowError, ZeroDivisionError):
        refuse("contains an infinite or enormous constant")
    if abs(value) > _MAX_NUMBER:
        refuse("contains an infinite or enormous constant")
    return value


def _constant(expression: Expression) -> float:
    """Return the float of a constant expression; raise ValueError unless it is finite and real."""
    value = complex(expression.evalf())
    if value.imag != 0.0 or not math.isfinite(value.real) or abs(value.real) > _MAX_NUMBER:
        refuse(f"contains {expression}, which is not a finite real number of moderate size")
    return value.real


MOST_DEGREE = 12
MAX_TERMS = 200
_COUNT = 9
_AXIS = re.compile(rf"x([1-{_COUNT}])", flags=re.IGNORECASE)

Monomials: TypeAlias = dict[tuple[int, ...], Any]
"""Exact sympy coefficient of each monomial, by the exponents of x1 ... x9; no coefficient is zero."""

_ONE = (0,) * _COUNT


def parse_polynomial(text: object) -> Monomials:
    """Return the monomials of a polynomial in x1 ... x9, of total degree at most 12 and with at most 200 terms.

    Numbers are exact: `0.1` is one tenth. `h2(x1)` is the orthonormal h_2, of any polynomial, `He2(x1)` the
    probabilists' and `H2(x1)` the physicists' polynomial. The exponents are as long as the largest index in the text.
    ValueError is raised for anything else.

    Examples
    --------
    >>> parse_polynomial("x1 + 2*x1*x2^2")
    {(1, 0): 1, (1, 2): 2}
    >>> parse_polynomial("h2(x1)")
    {(0,): -sqrt(2)/2, (2,): sqrt(2)/2}
    """
    if not isinstance(text, str):
        msg = f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}."
        raise TypeError(msg)
    if len(text) > MAX_LENGTH:
        _refuse_polynomial(f"has {len(text)} characters, more than {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        msg = f"Argument `text` must be a polynomial such as 'x1 + x1*x2', but is {shown(text)}."
        raise ValueError(msg) from None
    try:
        found = _walked_table(tree.body, 0)
    except RecursionError:
        _refuse_polynomial(f"is nested more than {_MAX_DEPTH} deep")
    span = max((a + 1 for powers in found for a in range(_COUNT) if powers[a]), default=0)
    if span == 0:
        _refuse_polynomial("depends on none of x1 ... x9")
    return {powers[:span]: found[powers] for powers in sorted(found, key=lambda powers: (sum(powers), powers[::-1]))}


def _refuse_polynomial(what: str) -> NoReturn:
    msg = f"Argument `text` must be a polynomial in x1 ... x9, but {what}."
    raise ValueError(msg) from None


def _walked_table(node: ast.expr, depth: int) -> Monomials:
    """Return the monomials of a syntax tree; raise ValueError unless it is a polynomial."""
    if depth > _MAX_DEPTH:
        _refuse_polynomial(f"is nested more than {_MAX_DEPTH} deep")
    match node:
        case ast.Constant(value=int() | float() as value):
            return _constant_table(value)
        case ast.Name(id=name):
            found = _AXIS.fullmatch(name)
            if found is None:
                _refuse_polynomial(f"contains the name {name!r}")
            return {tuple(int(a + 1 == int(found[1])) for a in range(_COUNT)): _number(1)}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            inner = _walked_table(operand, depth + 1)
            return _product(inner, _constant_table(-1)) if isinstance(sign, ast.USub) else inner
        case ast.BinOp(left=left, op=operator, right=right):
            # Chains such as a + b + c lean left and cost no depth.
            return _combined(operator, _walked_table(left, depth), _walked_table(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if named := hermite_name(name):
            return _hermite(named, _walked_table(argument, depth + 1))
        case _:
            _refuse_polynomial(f"contains {ast.unparse(node)!r}")


def _number(value: float) -> Any:
    import sympy

    # The shortest decimal of the float is the text of the user, and is read exactly.
    return sympy.Integer(value) if isinstance(value, int) else sympy.Rational(repr(value))


def _constant_table(value: float) -> Monomials:
    if isinstance(value, bool):
        _refuse_polynomial(f"contains {value}, which is not a number")
    if not abs(value) <= _MAX_NUMBER or (value != 0 and abs(value) < 1.0 / _MAX_NUMBER):
        _refuse_polynomial(f"contains a number outside {1.0 / _MAX_NUMBER:g} ... {_MAX_NUMBER:g}")
    return {} if value == 0 else {_ONE: _number(value)}


def _combined(operator: ast.operator, first: Monomials, second: Monomials) -> Monomials:
    match operator:
        case ast.Add():
            return _sum(first, second)
        case ast.Sub():
            return _sum(first, _product(second, _constant_table(-1)))
        case ast.Mult():
            return _product(first, second)
        case ast.Div():
            divisor = _as_constant(second)
            if not divisor:
                _refuse_polynomial("divides by what is no number, or is zero")
            return {powers: value / divisor for powers, value in first.items()}
        case ast.Pow():
            exponent = _as_constant(second)
            if exponent is None or not exponent.is_Integer or not 0 <= exponent <= MOST_DEGREE:
                _refuse_polynomial(f"has an exponent that is no integer from 0 to {MOST_DEGREE}")
            found = _constant_table(1)
            for _ in range(int(exponent)):
                found = _product(found, first)
            return found
        case _:
            _refuse_polynomial(f"contains the operator {type(operator).__name__}, which is not one of + - * / **")


def _as_constant(found: Monomials) -> Any:
    """Return the number that a polynomial is, None if it is none."""
    return _number(0) if not found else found[_ONE] if list(found) == [_ONE] else None


def _sum(first: Monomials, second: Monomials) -> Monomials:
    found = dict(first)
    for powers, value in second.items():
        found[powers] = found.get(powers, 0) + value
    return _bounded_table(found)


def _product(first: Monomials, second: Monomials) -> Monomials:
    import sympy

    found: Monomials = {}
    for left, a in first.items():
        for right, b in second.items():
            powers = tuple(map(int.__add__, left, right))
            if sum(powers) > MOST_DEGREE:
                _refuse_polynomial(f"has a total degree above {MOST_DEGREE}")
            found[powers] = found.get(powers, 0) + sympy.expand(a * b)
    return _bounded_table(found)


def _bounded_table(found: Monomials) -> Monomials:
    """Return the monomials whose coefficients are not zero; refuse more than there may be, and huge numbers."""
    kept = {powers: value for powers, value in found.items() if value != 0}
    if len(kept) > MAX_TERMS:
        _refuse_polynomial(f"has more than {MAX_TERMS} terms")
    if any(not abs(float(value)) <= _MAX_NUMBER for value in kept.values()):
        _refuse_polynomial(f"contains a number beyond {_MAX_NUMBER:g}")
    return kept


def _hermite(name: HermiteName, argument: Monomials) -> Monomials:
    """Return a Hermite polynomial of a polynomial, by He_(j+1) = z He_j − j He_(j−1), for H_k with all terms doubled.

    h_k is He_k/√(k!).
    """
    import sympy

    kind, degree = name
    factor = 2 if kind == "H" else 1
    if degree > MOST_DEGREE:
        _refuse_polynomial(f"contains a Hermite polynomial of degree above {MOST_DEGREE}")
    before: Monomials = {}
    now = _constant_table(1)
    for j in range(degree):
        lower = {powers: -j * value for powers, value in before.items()} if j else {}
        total = _sum(_product(argument, now), lower)
        before, now = now, {powers: factor * value for powers, value in total.items()}
    root = sympy.sqrt(math.factorial(degree)) if kind == "h" else 1
    return {powers: sympy.expand(value / root) for powers, value in now.items()}


#: Characters that HTML forbids: those of control, and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
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

    Examples
    --------
    >>> format_series({0: 2.0, 4: 0.8, 6: -1.0})
    '2 + 0.8 h4 - h6'
    >>> format_series({0: 2.0, 4: 0.8}, formal=True)
    '2*h0(z) + 0.8*h4(z)'
    """
    pieces: list[str] = []
    for count, degree in enumerate(sorted(terms)):
        if count == limit:
            pieces.append(" + …")
            break
        number = str(terms[degree]).removesuffix(".0")
        compound = any(mark in number[1:] for mark in "+- ") and "e" not in number
        negative = number.startswith("-") and not compound
        number = f"({number})" if compound else number.removeprefix("-") if negative else number
        sign = (" - " if negative else " + ") if pieces else ("-" if negative else "")
        pieces.append(sign + _one(number, degree, formal=formal))
    return "".join(pieces) or "0"


def _one(number: str, degree: int, *, formal: bool) -> str:
    """Return one term without its sign."""
    if degree == 0 and not formal:
        return number
    symbol = f"h{degree}(z)" if formal else f"h{degree}"
    if number == "1":
        return symbol
    return f"{number}*{symbol}" if formal else f"{number} {symbol}"


def read_series(text: str) -> dict[int, Fraction] | None:
    """Return the exact coefficients by degree of a sum of numbers times h_k(z), or h_k as printed; None for other text.

    A short cut past the general parser: it needs no sympy and does not multiply polynomials out.

    Examples
    --------
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

    Examples
    --------
    >>> latex_series({4: "0.8", 10: "1"}, limit=8)
    '0.8\\,h_{4} + h_{10}'
    """
    plain = format_series(terms, limit=limit).replace("…", r"\dots")
    powers = re.sub(r"e([+-])0*([0-9]+)", lambda m: rf"\cdot10^{{{m[1].strip('+')}{m[2]}}}", plain)
    spaced = re.sub(r"([0-9}]) h", r"\1\\,h", powers)
    return re.sub(r"h([0-9]+)", r"h_{\1}", spaced)


def series_as_text(coefficients: Array) -> str | None:
    """Return text that reads back to exactly these floats, or None where it would be too long.

    Examples
    --------
    >>> import numpy as np
    >>> series_as_text(np.array([0.0, 0.1]))
    '0.1*h1(z)'
    """
    terms = {j: repr(float(c)) for j, c in enumerate(coefficients) if c != 0.0}
    text = format_series(terms, formal=True)
    return text if terms and len(text) <= MAX_LENGTH else None


def clean(text: str) -> str:
    """Return text escaped for HTML."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def series_as_html(terms: Mapping[int, str], limit: int) -> str:
    """Return printed coefficients by degree as a series with subscripts, cut after `limit` terms.

    Examples
    --------
    >>> series_as_html({4: "-0.8", 10: "2e-07"}, limit=8)
    '−0.8 h<sub>4</sub> + 2·10<sup>−7</sup> h<sub>10</sub>'
    """
    plain = clean(format_series(terms, limit=limit))
    powers = re.sub(r"e\+?(-?)0*([0-9]+)", r"·10<sup>\1\2</sup>", plain)
    return re.sub(r"h([0-9]+)", r"h<sub>\1</sub>", powers).replace("-", "−")


def table_of_pairs(caption: str, rows: Mapping[str, str]) -> str:
    """Return a table with a row per name and value; caption and values are HTML already, and names are not.

    Examples
    --------
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

    Examples
    --------
    >>> first_of([1.0, -0.5, None]), first_of(range(30))[-9:]
    ('1, −0.5, None', '10, 11, …')
    """
    few = entries[:_MOST_ENTRIES]
    shown = [f"{entry:.4g}".replace("-", "−") if isinstance(entry, float) else str(entry) for entry in few]
    return ", ".join([*shown, "…"] if len(entries) > len(few) else shown)
