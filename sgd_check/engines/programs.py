"""Formulas and polynomials in several variables as programs: elementary operations on arrays, in the order given.

A program works on registers, each of which holds one number for every sample. The first ones are the inputs; every
operation writes the register `to` from the registers `left` and `right` and the numbers a and b. In a flat array it is
[registers, operations, register of the first result, of the second, (code, to, left, right, a, b) of each operation …].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

from hermite.arrays import Array, Integers
from hermite.text.messages import require

# Codes of operations, and how many registers those read that do not read one.
NUMBER, LINE, SUM, PRODUCT, INVERSE, ROOT, POWER, LARGER, SMALLER, ABSOLUTE, SIGN = range(11)
EXP, LOG, SIN, COS, SINH, COSH, TANH, ATAN, ERF, ERFC = range(11, 21)
READS = {NUMBER: 0, SUM: 2, PRODUCT: 2, POWER: 2, LARGER: 2, SMALLER: 2}

# Functions of one argument by their names in sympy, in the order of their codes.
FUNCTIONS = ("Abs", "sign", "exp", "log", "sin", "cos", "sinh", "cosh", "tanh", "atan", "erf", "erfc")

# Places in the data of a program, and the numbers of an operation.
REGISTERS, OPERATIONS, FIRST, SECOND, HEAD = 0, 1, 2, 3, 4
WIDTH = 6


class Operation(NamedTuple):
    """One operation on the registers numbered in the order in which they are written, inputs first."""

    code: int
    left: int = 0
    right: int = 0
    a: float = 0.0
    b: float = 0.0

    @property
    def reads(self) -> tuple[int, ...]:
        """Registers that are read."""
        return (self.left, self.right)[: READS.get(self.code, 1)]


class Program:
    """A program that is being written, each operation once; each method returns the register of a result."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self._numbered: dict[Operation, int] = {}
        self._operations: list[Operation] = []

    def apply(self, code: int, left: int = 0, right: int = 0, a: float = 0.0, b: float = 0.0) -> int:
        """Append an operation unless the program has it already, and return the register of its result."""
        operation = Operation(code, left, right, a, b)
        if operation not in self._numbered:
            self._numbered[operation] = self._inputs + len(self._operations)
            self._operations.append(operation)
        return self._numbered[operation]

    def number(self, value: float) -> int:
        """Return the register of a constant."""
        return self.apply(NUMBER, a=value)

    def line(self, x: int, a: float, b: float) -> int:
        """Return the register of a x + b, for x in register `x`."""
        operation = self._made(x)
        if (a, b) == (1.0, 0.0):
            return x
        if operation.code == NUMBER or a == 0.0:
            return self.number(a * operation.a + b)
        if operation.code in (LINE, PRODUCT):
            return self.apply(operation.code, operation.left, operation.right, a * operation.a, a * operation.b + b)
        if operation.code == SUM and a == 1.0:
            return self.apply(SUM, operation.left, operation.right, operation.a, operation.b + b)
        return self.apply(LINE, x, a=a, b=b)

    def total(self, x: int, y: int) -> int:
        """Return the register of the sum of two registers."""
        pairs = ((x, self._made(y)), (y, self._made(x)))
        for register, operation in pairs:
            if operation.code == NUMBER:
                return self.line(register, 1.0, operation.a)
        for register, operation in pairs:
            if operation.code == LINE:
                return self.apply(SUM, register, operation.left, operation.a, operation.b)
        return self.apply(SUM, x, y, 1.0)

    def product(self, x: int, y: int) -> int:
        """Return the register of the product of two registers."""
        for first, second in ((x, y), (y, x)):
            operation = self._made(second)
            if operation.code == NUMBER:
                return self.line(first, operation.a, 0.0)
        return self.apply(PRODUCT, x, y, 1.0)

    def power(self, x: int, exponent: int) -> int:
        """Return the register of x^exponent, for x in register `x` and any integer exponent."""
        if exponent < 0:
            return self.apply(INVERSE, self.power(x, -exponent))
        if exponent < 2:
            return x if exponent else self.number(1.0)
        half = self.power(x, exponent // 2)
        square = self.product(half, half)
        return self.product(square, x) if exponent % 2 else square

    def data(self, *results: int) -> list[float]:
        """Return the program that writes one or two results: the operations that they need, in few registers."""
        needed = set(results)
        numbered = list(enumerate(self._operations, self._inputs))
        for number, operation in reversed(numbered):
            needed.update(operation.reads if number in needed else ())
        kept = [pair for pair in numbered if pair[0] in needed]
        last = {register: index for index, (_, operation) in enumerate(kept) for register in operation.reads}
        place = {register: register for register in range(self._inputs)}
        free: list[int] = []
        count, rows = self._inputs, list[float]()
        for index, (number, operation) in enumerate(kept):
            if not free:
                free.append(count)
                count += 1
            place[number] = free.pop()
            read = [place[register] for register in (*operation.reads, 0, 0)[:2]]
            rows += [*map(float, (operation.code, place[number], *read)), operation.a, operation.b]
            spent = {register for register in operation.reads if last[register] == index and register >= self._inputs}
            free += [place[register] for register in spent - set(results)]
        return [*map(float, (count, len(kept), place[results[0]], place[results[-1]])), *rows]

    def _made(self, register: int) -> Operation:
        """Return the operation that writes a register; of an input, one that is never folded."""
        return self._operations[register - self._inputs] if register >= self._inputs else Operation(-1)


def in_z(formula: Any) -> object:
    """Return a sympy formula in one variable as one in the real z."""
    import sympy

    return formula.xreplace(dict.fromkeys(formula.free_symbols, sympy.Symbol("z", real=True)))


def formula_program(value: Any, *, slope: bool) -> list[float]:
    """Return the program of a sympy formula in one variable, and of its derivative if `slope`.

    Raises NotImplementedError for a function that is not in `FUNCTIONS`, as the derivative of a jump.
    """
    import sympy

    value, z = in_z(value), sympy.Symbol("z", real=True)
    names = sympy.numbered_symbols("t", real=True)
    shared, wanted = sympy.cse([value, value.diff(z)] if slope else [value], symbols=names)
    program, registers = Program(1), {z: 0}
    for symbol, part in shared:
        registers[symbol] = _written(part, program, registers)
    return program.data(*(_written(part, program, registers) for part in wanted))


def _written(node: Any, program: Program, registers: dict[object, int]) -> int:  # noqa: PLR0911 (one for each kind)
    """Append the operations of a sympy node and its parts to a program, and return the register of its value.

    `registers` has those of symbols.
    """
    if node.is_Symbol:
        return registers[node]
    if not node.free_symbols:
        return program.number(float(node))
    head = type(node).__name__
    parts = [_written(part, program, registers) for part in (node.args[:1] if head == "Heaviside" else node.args)]
    pairs: dict[str, Callable[[int, int], int]] = {
        "Add": program.total,
        "Mul": program.product,
        "Max": partial(program.apply, LARGER),
        "Min": partial(program.apply, SMALLER),
    }
    if head in pairs:
        return reduce(pairs[head], parts)
    if head in FUNCTIONS:
        return program.apply(ABSOLUTE + FUNCTIONS.index(head), parts[0])
    if head == "Heaviside":
        return program.line(program.apply(SIGN, parts[0]), 0.5, 0.5)
    require(head == "Pow", f"no compiled form of {head}", error=NotImplementedError)
    if node.exp.is_Integer:
        return program.power(parts[0], int(node.exp))
    if 2 * node.exp in (1, -1):
        return program.power(program.apply(ROOT, parts[0]), int(2 * node.exp))
    return program.apply(POWER, *parts)


def series_program(*rows: Array) -> list[float]:
    """Return the program of one or two series Σ_j c_j h_j, by h_(j+1) = (z h_j − √j h_(j−1))/√(j+1)."""
    program = Program(1)
    before, now, sums = program.number(0.0), program.number(1.0), [program.number(0.0) for _ in rows]
    for j in range(rows[0].size):
        sums = [program.total(s, program.line(now, float(c[j]), 0.0)) for s, c in zip(sums, rows, strict=True)]
        raised = program.line(program.product(0, now), (j + 1) ** -0.5, 0.0)
        before, now = now, program.total(raised, program.line(before, -((j / (j + 1)) ** 0.5), 0.0))
    return program.data(*sums)


def polynomial_program(exponents: Integers, coefficients: Array) -> list[float]:
    """Return the program of Σ_t c_t Π_a x_a^exponents_ta by Horner's rule, one variable after the other."""
    program = Program(exponents.shape[1])

    def nested(terms: Sequence[int], axis: int) -> int:
        """Append the polynomial of these terms in the variables from `axis` on; return its register."""
        if axis == exponents.shape[1]:
            return program.number(float(coefficients[terms[0]]))
        degrees = sorted({int(exponents[term, axis]) for term in terms}, reverse=True)
        total = program.number(0.0)
        for degree, following in zip(degrees, [*degrees[1:], 0], strict=True):
            part = nested([term for term in terms if exponents[term, axis] == degree], axis + 1)
            total = program.product(program.total(part, total), program.power(axis, degree - following))
        return total

    return program.data(nested(range(len(exponents)), 0))
