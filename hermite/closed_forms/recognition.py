"""Formulas taken apart into terms a z^n f(z) whose coefficients are known in closed form.

relu, |z|, sign, gelu, sinh and products of these with polynomials are sums of such terms.
"""

from __future__ import annotations

import math

from hermite.closed_forms.closed_forms import ClosedForm, Term
from hermite.polynomials import MAX_DEGREE
from hermite.text.expressions import Expression, variable

_MAX_TERMS = 400


def closed_form(expression: Expression, *, moment: int = 2) -> ClosedForm | None:
    """Return the closed form of a formula in the real symbol z, or None where some part of it is of no known kind.

    `moment` is the moment that must be finite: 2 for links, 1 for their squares. ValueError is raised where a Gaussian
    factor grows too fast for that.

    Examples
    --------
    >>> from hermite.text.parser import parse
    >>> closed_form(parse("relu(z)")).exact(2)
    (sqrt(2)/(2*sqrt(pi)), 1/2, 1/(2*sqrt(pi)))
    >>> closed_form(parse("tanh(z)")) is None
    True
    """
    import sympy

    z = variable()
    if expression.is_polynomial(z):
        monomials = sympy.Poly(expression, z).terms()
        return ClosedForm(tuple(Term(value, power, "one", ()) for (power,), value in monomials if value != 0))
    rewritten = _with_steps(expression)
    if _count_terms(rewritten) > _MAX_TERMS:
        return None
    terms = []
    for part in sympy.Add.make_args(sympy.expand(rewritten)):
        term = _term(part, moment)
        if term is None:
            return None
        terms.append(term)
    return ClosedForm(tuple(terms))


def _with_steps(expression: Expression) -> Expression:
    """Return a formula with relu, |z|, sign, Max, Min, sinh, cosh and erfc written by steps, exponentials and erf."""
    import sympy

    z, half = variable(), sympy.Rational(1, 2)

    def step(argument: Expression) -> Expression:
        # H(a z + b) is the unit step at -b/a, from below where a < 0; its value at the point does not matter.
        line = _quadratic(argument)
        if line is None or line[0] != 0 or line[1] == 0:
            return sympy.Heaviside(argument, half)
        place = sympy.Heaviside(z + line[2] / line[1], half)
        return place if line[1].is_positive else 1 - place

    def maximum(*arguments: Expression) -> Expression:
        result = arguments[0]
        for other in arguments[1:]:
            result = other + (result - other) * step(result - other)
        return result

    rules = [
        (sympy.Max, maximum),
        (sympy.Min, lambda *arguments: -maximum(*[-argument for argument in arguments])),
        (sympy.Abs, lambda argument: argument * (2 * step(argument) - 1)),
        (sympy.sign, lambda argument: 2 * step(argument) - 1),
        (sympy.Heaviside, lambda argument, *_: step(argument)),
        (sympy.sinh, lambda argument: (sympy.exp(argument) - sympy.exp(-argument)) / 2),
        (sympy.cosh, lambda argument: (sympy.exp(argument) + sympy.exp(-argument)) / 2),
        (sympy.erfc, lambda argument: 1 - sympy.erf(argument)),
    ]
    for kind, rule in rules:
        expression = expression.replace(kind, rule)
    return expression


def _count_terms(expression: Expression) -> int:
    """Return a bound on the number of terms of the expanded expression, so that expanding it stays cheap."""
    import sympy

    if isinstance(expression, sympy.Add):
        return sum(_count_terms(part) for part in expression.args)
    if isinstance(expression, sympy.Mul):
        return math.prod(_count_terms(part) for part in expression.args)
    if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
        terms, power = _count_terms(expression.base), int(expression.exp)
        return 1 if terms == 1 else math.comb(power + terms - 1, power)
    return 1


def _quadratic(argument: Expression) -> tuple[Expression, Expression, Expression] | None:
    """Return (q, b, c) of q z² + b z + c, or None where the argument is of another form."""
    import sympy

    z = variable()
    if not argument.is_polynomial(z):
        return None
    polynomial = sympy.Poly(argument, z)
    if polynomial.degree() > 2:
        return None
    return polynomial.nth(2), polynomial.nth(1), polynomial.nth(0)


def _term(part: Expression, moment: int) -> Term | None:
    """Return one product a z^n f(z) as a term, None where f is of no known kind."""
    import sympy

    z = variable()
    coefficient, power, exponent, others = sympy.Integer(1), 0, sympy.Integer(0), set()
    for factor in sympy.Mul.make_args(part):
        base, times = factor.as_base_exp()
        if not factor.has(z):
            coefficient *= factor
        elif base == z and times.is_Integer and times > 0:
            power += int(times)
        elif isinstance(factor, sympy.exp):
            exponent += factor.args[0]
        elif isinstance(base, sympy.Heaviside) and times.is_positive:
            others.add(base)  # H^n = H almost everywhere
        elif times == 1:
            others.add(factor)
        else:
            return None
    if power > MAX_DEGREE or len(others) > 1 or (others and exponent != 0):
        return None
    if others:
        return _atom(coefficient, power, others.pop())
    shape = _quadratic(sympy.expand(exponent))
    if shape is None:
        return None
    if (1 - 2 * moment * shape[0]).is_positive is not True:
        msg = f"Argument `x` must have a finite second moment under N(0, 1), but contains exp({exponent})."
        raise ValueError(msg)
    coefficient *= sympy.exp(shape[2])
    if shape[:2] == (0, 0):
        return Term(coefficient, power, "one", ())
    return Term(coefficient, power, "gaussian", shape[:2])


def _atom(coefficient: Expression, power: int, factor: Expression) -> Term | None:
    """Return the term of a sine, cosine, error function or step of a linear argument, None for anything else."""
    import sympy

    kinds = {sympy.sin: "sin", sympy.cos: "cos", sympy.erf: "erf", sympy.Heaviside: "step"}
    line = _quadratic(factor.args[0]) if factor.args else None
    if factor.func not in kinds or line is None or line[0] != 0:
        return None
    kind = kinds[factor.func]
    if kind == "step":
        return Term(coefficient, power, kind, (-line[2],)) if line[1] == 1 else None
    return Term(coefficient, power, kind, line[1:])
