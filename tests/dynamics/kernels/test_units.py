"""Tests of units: what they call and return, when they are made, and that Python calls no kernel."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba import types

from dynamics import Problem, Student, Teacher
from dynamics.equations.network.system import NetworkSystem, own_threshold_values, write_shares
from dynamics.kernels import units
from dynamics.kernels.cache import is_interpreted
from dynamics.kernels.jit import callback, entry, kernel
from dynamics.kernels.units import choice, unit, unit_of
from hermite.arrays import Integers, Matrix, Vector

ROOT = Path(__file__).parents[3]
#: Modules that have kernels, in what imports from them.
ROOMS = re.compile("(kernels|equations|integrators|engines|tokens)")
#: Decorators of functions that only compiled code may call, and of other compiled functions.
BARE = {"kernel", "inlined_kernel", "exact_kernel", "unit", "choice"}
COMPILED = BARE | {"pasted_kernel", "entry", "njit", "jit", "cfunc", "register_jitable", "overload", "intrinsic"}


def decorators(function):
    """Return the last names of what decorates a function."""
    names = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in names}


def module_name(path):
    """Return the name by which a source is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions_in(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


class Calls(ast.NodeVisitor):
    """Calls of kernels outside of compiled functions: of names, or of attributes of modules."""

    def __init__(self, names, modules, kernels):
        self.names, self.modules, self.kernels, self.found = names, modules, kernels, []

    def visit_FunctionDef(self, node):
        if not decorators(node) & COMPILED:
            self.generic_visit(node)

    def visit_Call(self, node):
        function = node.func
        if isinstance(function, ast.Name) and function.id in self.names:
            self.found.append((node.lineno, function.id))
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            module = self.modules.get(function.value.id)
            if function.attr in self.kernels.get(module, ()):
                self.found.append((node.lineno, f"{function.value.id}.{function.attr}"))
        self.generic_visit(node)


def calls_of_kernels(trees):
    """Return (module, line, name) of calls of kernels by Python, given the syntax trees of modules by name."""
    kernels = {
        name: {each.name for each in functions_in(tree) if decorators(each) & BARE} for name, tree in trees.items()
    }
    found = []
    for name, tree in trees.items():
        names, modules = set(kernels[name]), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if alias.name in kernels.get(node.module, ()):
                        names.add(alias.asname or alias.name)
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        calls = Calls(names, modules, kernels)
        calls.visit(tree)
        found += [(name, *call) for call in calls.found]
    return found


@kernel
def doubled(x):
    return 2.0 * x


@unit()
def largest(values: Vector, factor: float) -> float:
    found = 0.0
    for i in range(values.size):
        found = max(found, doubled(values[i]) * factor)
    return found


@unit()
def both(pair: tuple[Vector, Matrix], counts: Integers, adds: bool) -> tuple[float, float]:
    """Return the largest of the numbers, through another unit, and a number of the matrix."""
    numbers, whole = pair
    counts[0] += 1 if adds else 0
    return largest(numbers, 1.0), whole[1, 0]


@choice()
def taken(values: Vector) -> None:
    values[0] = 7.0


@entry
def use(values, whole, counts):
    # Literals and whole numbers are cast to what the signature says.
    first, second = both((values, whole), counts, counts[0] < 5)
    if counts[0] > 1:
        taken(values)
    return first + second + largest(values, 3)


@pytest.mark.kernels
def test_units_call_each_other_with_their_signatures():
    values, whole, counts = np.array([1.0, 4.0]), np.array([[1.0, 2.0], [0.25, 3.0]]), np.array([0])
    assert use(values, whole, counts) == 8.0 + 0.25 + 24.0
    assert counts[0] == 1
    units.make_choices([taken])
    use(values, whole, counts)
    assert (counts[0], values[0]) == (2, 7.0)


@pytest.mark.skipif(is_interpreted(), reason="units are functions of Python")
def test_units_are_made_with_what_calls_them_and_choices_where_they_are_named():
    use(np.ones(2), np.ones((2, 2)), np.array([0]))
    made = [unit_of(function).compiled is not None for function in (both, largest)]
    assert made == [True, True]
    compiled = callback(largest, types.float64(types.float64[::1], types.float64)).compiled
    assert compiled is unit_of(largest).compiled
    stand_in = largest
    with pytest.raises(NotImplementedError):
        stand_in(np.ones(2), 1.0)


@pytest.mark.skipif(is_interpreted(), reason="units are functions of Python")
def test_a_network_makes_the_units_of_its_links_alone():
    """A teacher of units has no components, whose shares another unit writes."""
    student = Student(activation="relu", width=3)
    problem = Problem(student=student, teacher=Teacher([1.0, -0.6], links=["relu", "relu"]), dimension=12)
    of_units = NetworkSystem(problem).functions.choices
    of_polynomial = NetworkSystem(replace(problem, teacher=Teacher.polynomial("x1 + x1*x2"))).functions.choices
    assert write_shares not in of_units
    assert write_shares in of_polynomial
    # A lined link and erf with biases alone have a mean square that is long to compile, where the second layer moves.
    links = {"relu": False, "erf": True, "2*erf(z/sqrt(2)) + 0.1 - z": True}
    for link, is_long in links.items():
        for layer in ("trained", "fixed"):
            biased = Student(activation=link, width=3, biases="trained", second_layer=layer)
            system = NetworkSystem(Problem(student=biased, teacher=problem.teacher, dimension=12))
            is_made = is_long and (layer == "trained" or link != "erf")
            assert (own_threshold_values in system.functions.choices) == is_made
    assert all(unit_of(each).is_choice for each in {*of_units, *of_polynomial})


def test_what_is_no_unit_is_refused():
    def local(x: float) -> float:
        return x

    if not is_interpreted():
        with pytest.raises(TypeError, match="must be functions of a module"):
            unit()(local)
    with pytest.raises(TypeError, match="one is Any"):
        units.signature_of(wrongly_annotated, units.KINDS)
    assert units.signature_of(takes_system, {**units.KINDS, "System": types.int64}) == types.void(types.int64)


def wrongly_annotated(x: Any) -> None:  # noqa: F821
    return x


def takes_system(system: System) -> None:  # noqa: F821
    return system


def test_calls_of_kernels_by_python_are_noticed():
    rates = ast.parse("@kernel\ndef rate(x): return x\n\n@entry\ndef whole(x): return rate(x)")
    wrong = (
        "from a import rate\nimport a as b\n\ndef f(): return rate(1.0) + b.rate(2.0)\n\n@kernel\ndef g(): rate(3.0)"
    )
    assert calls_of_kernels({"a": rates, "c": ast.parse(wrong)}) == [("c", 4, "rate"), ("c", 4, "b.rate")]


def test_python_calls_no_kernel():
    """Kernels have no wrapper for Python: a call ends the process."""
    folders = ("dynamics", "sgd_check", "tests", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    texts = {module_name(path): path.read_text(encoding="utf-8") for path in paths}
    assert calls_of_kernels({name: ast.parse(text) for name, text in texts.items() if ROOMS.search(text)}) == []
