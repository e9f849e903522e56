"""Units: compiled functions that others call by address, so that each is compiled once, by itself.

Numba optimises what a function calls again in every function above it. So a function that takes a second to compile is
a unit: `numba.cfunc` compiles it for one signature, which its annotations give, into a file of its own, and those that
call it find its address in a cell, eight bytes with a name that the linker knows. So machine code on disk, which has
the name alone, holds in every process. The cell is filled before a function that can reach the unit is made; that of a
`choice` only for systems that name it in `Functions.choices`, so that a problem compiles the branches that it takes,
and for those that name none.

In Python a call of a unit raises NotImplementedError. Where ``NUMBA_DISABLE_JIT`` leaves all functions to Python,
a unit is the function itself.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import cast

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, is_jitted

from dynamics.kernels.cache import MAKING, Cached, is_interpreted, named_in
from dynamics.kernels.options import ADDRESSED, AnyFunction, Function, Untyped
from hermite.text.messages import refuse

#: Numba's types of what annotations of units name.
VECTOR, INTEGERS, MATRIX = types.float64[::1], types.int64[::1], types.float64[:, ::1]
CUBE = types.float64[:, :, ::1]
KINDS: dict[str, Untyped] = {
    "float": types.float64,
    "int": types.int64,
    "bool": types.boolean,
    "None": types.void,
    "Vector": VECTOR,
    "Integers": INTEGERS,
    "Matrix": MATRIX,
    "Cube": CUBE,
}

#: Units by the identity of what stands for them in compiled code.
_units: dict[int, CompiledUnit] = {}


class CompiledUnit:
    """A function, its signature, and the cell with the address of its machine code, 0 until it is made."""

    def __init__(self, function: AnyFunction, signature: Untyped, *, is_choice: bool) -> None:
        """Register a module's function as a unit of this signature, without compiling it.

        `is_choice` says that it is made only for systems that name it in `Functions.choices`. Its symbol stands for a
        cell that holds 0 until `make` writes the address of the machine code, and `stand_in` is what other compiled
        code calls. TypeError is raised for functions inside functions.
        """
        self.function, self.signature, self.is_choice = function, signature, is_choice
        self.symbol = f"{function.__module__}.{function.__qualname__}"
        if "<" in self.symbol:
            refuse(
                f"Units must be functions of a module, since callers know them by name, but {self.symbol} is not.",
                error=TypeError,
            )
        #: The result of `numba.cfunc`, once the unit is made.
        self.compiled: Untyped = None
        self._cell = ctypes.c_int64(0)
        binding.add_symbol(self.symbol, ctypes.addressof(self._cell))
        self.stand_in = intrinsic(self._definition())
        _units[id(self.stand_in)] = self

    def make(self) -> Untyped:
        """Compile or load the unit and those that it can reach, once per process; return what `numba.cfunc` does."""
        with MAKING:
            if self.compiled is None:
                compiled = addressed(self.function, self.signature)
                self._cell.value = compiled.address
                self.compiled = compiled
        return self.compiled

    def _definition(self) -> AnyFunction:
        """Return the function by which Numba learns the type of a call and its instructions."""

        def generate(context: Untyped, builder: Untyped, _: Untyped, values: Untyped) -> Untyped:
            """Return the instruction that calls the address in the cell."""
            kinds = [context.get_value_type(kind) for kind in self.signature.args]
            function = ir.FunctionType(context.get_value_type(self.signature.return_type), kinds)
            cell = builder.module.globals.get(self.symbol)
            if cell is None:
                cell = ir.GlobalVariable(builder.module, ir.IntType(64), self.symbol)
            return builder.call(builder.inttoptr(builder.load(cell), function.as_pointer()), values)

        def call(_: Untyped, *arguments: Untyped) -> Untyped:
            del arguments  # Numba casts them to the types of the signature
            return self.signature, generate

        context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_ONLY)
        own = inspect.signature(self.function).parameters.values()
        call.__signature__ = inspect.Signature([context, *own])  # type: ignore[attr-defined]
        call.__name__ = self.function.__name__
        return call


def unit(**kinds: Untyped) -> Callable[[Function], Function]:
    """Return the decorator that makes a unit of a function, which compiled code calls with arguments by position.

    `kinds` are Numba's types of names in its annotations that `KINDS` lacks. TypeError is raised for other names.
    """
    return _decorator(kinds, is_choice=False)


def choice(**kinds: Untyped) -> Callable[[Function], Function]:
    """Return the decorator of a unit that is made only for systems that name it in `Functions.choices`."""
    return _decorator(kinds, is_choice=True)


def _decorator(kinds: dict[str, Untyped], *, is_choice: bool) -> Callable[[Function], Function]:
    """Return the decorator of units, or of choices; `kinds` are further types of annotations."""

    def decorate(function: Function) -> Function:
        """Return what stands for a unit in compiled code, the function itself where nothing is compiled."""
        if is_interpreted():
            return function
        made = CompiledUnit(function, signature_of(function, KINDS | kinds), is_choice=is_choice)
        return cast("Function", made.stand_in)

    return decorate


def tuple_of(*kinds: Untyped) -> Untyped:
    """Return Numba's type of a tuple."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


def unit_of(function: object) -> CompiledUnit | None:
    """Return the unit that an object stands for in compiled code, or None."""
    return _units.get(id(function))


def addressed(function: AnyFunction, signature: Untyped) -> Untyped:
    """Return what `numba.cfunc` makes of a Python function, compiled or loaded, and make all units that it reaches."""
    prepare(function)
    return Cached(function, lambda cache: numba.cfunc(signature, cache=cache, **ADDRESSED)(function)).function


def prepare(function: AnyFunction) -> None:
    """Make all units but choices that a Python function calls, itself or through kernels."""
    seen, waiting = {function}, [function]
    while waiting:
        units, kernels = _called_by(waiting.pop())
        for each in units:
            each.make()
        waiting += [each for each in kernels if each not in seen]
        seen.update(kernels)


def make_choices(choices: Sequence[AnyFunction]) -> None:
    """Make units that a system chooses."""
    for each in choices:
        made = unit_of(each)
        if made is not None:
            made.make()


def make_all_choices(functions: Sequence[AnyFunction]) -> None:
    """Make all choices that compiled functions can reach."""
    seen, waiting = set[AnyFunction](), [each.py_func for each in functions if is_jitted(each)]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        units, kernels = _named_by(function)
        for each in units:
            if each.is_choice:
                each.make()
        waiting += [*kernels, *(each.function for each in units)]


@functools.cache
def _named_by(function: AnyFunction) -> tuple[list[CompiledUnit], list[AnyFunction]]:
    """Return the units that a Python function names, and the Python functions of kernels."""
    named = named_in(function)
    units = [made for each in named if (made := unit_of(each)) is not None]
    return units, [each.py_func for each in named if is_jitted(each)]


def _called_by(function: AnyFunction) -> tuple[list[CompiledUnit], list[AnyFunction]]:
    """Return the units but choices that a Python function names, and the Python functions of kernels."""
    units, kernels = _named_by(function)
    return [each for each in units if not each.is_choice], kernels


def signature_of(function: AnyFunction, kinds: dict[str, Untyped]) -> Untyped:
    """Return Numba's signature of a function from the names in its annotations, which are text."""
    annotations = inspect.get_annotations(function)
    names = [*inspect.signature(function).parameters, "return"]
    *arguments, result = (_kind_of(annotations[name], kinds) for name in names)
    return result(*arguments)


def _kind_of(annotation: str, kinds: dict[str, Untyped]) -> Untyped:
    """Return Numba's type of a name or of a tuple of names."""
    tree = ast.parse(annotation, mode="eval").body
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Tuple):
        return tuple_of(*(_kind_of(ast.unparse(part), kinds) for part in tree.slice.elts))
    if annotation not in kinds:
        refuse(
            f"Annotations of units must be {', '.join(kinds)} or tuples of these, but one is {annotation}.",
            error=TypeError,
        )
    return kinds[annotation]
