"""Parts of flat arrays that kernels return to each other, and the rule that keeps arrays from being lost by them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import python

import dynamics
import sgd_check
from dynamics.compiler.compilation import Piece, compiler_is_off, load

TEXT = """
from dynamics.compiler.compilation import counting_kernel, entry, kernel
from dynamics.compiler.views import matrix, vector

@counting_kernel
def row(flat, start, count):
    return vector(flat, start, count)

@kernel
def fill(flat):
    part = row(flat, 2, 3)
    for k in range(part.size):
        part[k] = k
    whole = matrix(flat, 6, 2, 3)
    for i in range(whole.shape[0]):
        for j in range(whole.shape[1]):
            whole[i, j] = 10 * i + j

@entry("void(TYPE[::1], i8)")
def fill_often(flat, times):
    for _ in range(times):
        fill(flat)
"""
FOLDERS = [Path(package.__file__).parent for package in (dynamics, sgd_check)]
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*_kernels.py"))
ARRAYS = {
    "Vector",
    "Matrix",
    "Cube",
    "Integers",
    "Switches",
    "NDArray",
    "Vectors",
    "Bench",
    "SingleVector",
    "SingleMatrix",
}
VIEWS = {"vector", "matrix"}


@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["f8", "f4", "i8"])
def test_parts_are_those_of_numpy_and_leave_no_reference(kind):
    flat = np.full(15, -1, dtype=kind)
    fill_often = load([Piece("views", TEXT.replace("TYPE", kind))]).namespace.fill_often
    before = sys.getrefcount(flat)
    fill_often(flat, 1000)
    assert sys.getrefcount(flat) == before
    assert flat.tolist() == [-1, -1, 0, 1, 2, -1, 0, 1, 2, 10, 11, 12, -1, -1, -1]


OWNER = """
import numpy as np
from dynamics.compiler.compilation import entry, kernel

@kernel
def owner(x):
    BODY

@entry("void(f8[:,::1])")
def call(x):
    owner(x)
"""


TOLD = f"""
from numba.core.errors import NumbaError
from dynamics.compiler.compilation import Piece, load
for body in ("np.empty(3)", "np.dot(x, x, x)", "x[0].max()", "x[:1] = x[1:2]", "return x[0]"):
    try:
        load([Piece("owner", {OWNER!r}.replace("BODY", body))])
    except NumbaError as error:
        print(error.__notes__[0].endswith("must be a `counting_kernel`."))
"""


@pytest.mark.skipif(compiler_is_off(), reason="nothing is compiled")
def test_who_must_count_is_told_so(tmp_path):
    """In a process of its own: what another kernel has compiled of Numba's functions, which counts, is used again."""
    done = python("-c", TOLD, FEATURE_EMERGENCE_CACHE=str(tmp_path))
    assert done.stdout == 5 * "True\n", done.stderr


def kernels(path):
    """Yield every kernel of a file and the name of its decorator."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            names = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
            for kind in names & {"kernel", "inlined_kernel", "exact_kernel", "counting_kernel", "entry"}:
                yield node, kind


def names_in(node):
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def returns_views_alone(function):
    """Whether all that a kernel returns are parts of what it was given."""
    made = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target, value in [*zip_assigned(node)]
        if isinstance(target, ast.Name) and is_view(value)
    }
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    returned = [each for value in values for each in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return all(is_view(value) or (isinstance(value, ast.Name) and value.id in made) for value in returned)


def zip_assigned(node):
    """Yield each target of an assignment with its value, of tuples one by one."""
    (target,) = node.targets
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        yield from zip(target.elts, node.value.elts, strict=True)
    else:
        yield target, node.value


def is_view(value):
    return isinstance(value, ast.Call) and ast.unparse(value.func) in VIEWS


def test_kernels_that_do_not_count_get_no_array_that_has_an_owner():
    """What owns memory, and is returned to a kernel that counts no references, would never be freed."""
    owning, callers = set(), []
    for path in FILES:
        for node, kind in kernels(path):
            if node.returns is not None and names_in(node.returns) & ARRAYS:
                assert kind == "counting_kernel", f"{path.name}: {node.name}"
                if not returns_views_alone(node):
                    owning.add(node.name)
            if kind not in {"counting_kernel", "entry"}:
                callers.append((path.name, node))
    assert owning == {"make_vectors", "make_bench"}
    for name, node in callers:
        assert not names_in(node) & owning, f"{name}: {node.name}"
