"""Tests of the cache of machine code: a second process reads it, an edit drops it, and damaged files are mended."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CALLEE = """
from dynamics.kernels.jit import kernel


@kernel
def twice(x):
    return 2.0 * x
"""
ENTRY = """
from __future__ import annotations
from dynamics.kernels.jit import entry, kernel, callback
from dynamics.kernels.units import unit
from dynamics.probe_callee import twice


@unit()
def doubled(x: float) -> float:
    return twice(x)


@kernel
def fill(x):
    x[0] = twice(x[0])


@entry
def apply(x):
    return doubled(x)


@entry
def apply_to(function, x):
    function(x)
"""
RUN = """
import json, warnings
import numpy as np
from numba import types
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    from dynamics import probe
    from dynamics.kernels.jit import callback
    first = probe.apply(21.0)
    given = np.array([3.0])
    fill = callback(probe.fill, types.void(types.float64[::1]))
    probe.apply_to(fill, given)
hits = [sum(each.function.stats.cache_hits.values()) for each in (probe.apply, probe.apply_to)]
told = [str(each.message) for each in told]
print(json.dumps({"values": [first, given[0]], "hits": [*hits, fill.compiled.cache_hits], "told": told}))
"""


class Tree:
    """A copy of the packages with two small modules in it, run in processes of their own."""

    def __init__(self, folder):
        self.source, self.cache = folder / "source", folder / "cache"
        for package in ("hermite", "dynamics"):
            shutil.copytree(ROOT / package, self.source / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.write("probe_callee", CALLEE)
        self.write("probe", ENTRY)
        self.settings = {"NUMBA_CACHE_DIR": str(self.cache)}

    def write(self, name, text):
        (self.source / "dynamics" / f"{name}.py").write_text(text, encoding="utf-8")

    def run(self):
        kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
        environment = kept | {"PYTHONPATH": str(self.source), "PYTHONDONTWRITEBYTECODE": "1"} | self.settings
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, cwd=self.source, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def files(self):
        return sorted(self.cache.glob("*/*.nb[ic]"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("cache"))
    found = tree.run()
    assert found == {"values": [42.0, 6.0], "hits": [0, 0, 0], "told": []}
    return tree


@pytest.mark.thorough
def test_a_second_process_reads_what_the_first_has_compiled_whatever_no_function_uses(filled):
    path = filled.source / "hermite" / "polynomials.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert filled.run() == {"values": [42.0, 6.0], "hits": [1, 1, 1], "told": []}


def test_an_edit_of_a_callee_in_another_module_is_seen(filled):
    """Numba looks at the file of the function that is called alone, and would go on with the former callee."""
    filled.write("probe_callee", CALLEE.replace("2.0 * x", "3.0 * x"))
    assert filled.run() == {"values": [63.0, 9.0], "hits": [0, 0, 0], "told": []}
    assert filled.run()["hits"] == [1, 1, 1]
    filled.write("probe_callee", CALLEE)
    assert filled.run()["values"] == [42.0, 6.0]


#: Cut, empty, and random bytes.
DAMAGES = (
    lambda content: content[: len(content) // 2],
    lambda content: b"",
    lambda content: bytes(range(256)) * 8,
    lambda content: content[:-1],
)


@pytest.mark.thorough
def test_files_that_cannot_be_read_are_written_again(filled):
    filled.run()
    files = filled.files()
    assert [path.suffix for path in files].count(".nbi") == [path.suffix for path in files].count(".nbc") == 4
    # Numba reads the index first, and the machine code that it names next.
    for path, damage in zip((path for path in files if path.suffix == ".nbc"), DAMAGES, strict=True):
        path.write_bytes(damage(path.read_bytes()))
    assert filled.run()["values"] == [42.0, 6.0]
    for path, damage in zip(filled.files(), 2 * DAMAGES, strict=True):
        path.write_bytes(damage(path.read_bytes()))
    assert filled.run()["values"] == [42.0, 6.0]
    assert filled.run() == {"values": [42.0, 6.0], "hits": [1, 1, 1], "told": []}


def test_without_a_place_to_write_to_functions_stay_in_memory_and_one_sentence_says_so(tmp_path):
    tree = Tree(tmp_path)
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    for folder in (tree.source / "dynamics", tree.source / "dynamics" / "kernels"):
        (folder / "__pycache__").touch()
    tree.settings = {"XDG_CACHE_HOME": str(obstacle), "NUMBA_CACHE_DIR": str(obstacle)}
    found = tree.run()
    assert found["values"] == [42.0, 6.0]
    (sentence,) = found["told"]
    assert sentence.startswith("Compiled code is kept in memory alone, so the next process compiles it again")


def test_the_sources_of_a_module_are_what_it_imports_at_any_depth():
    """Against what Python loads: modules with a compiled function import no other module while they are loaded."""
    listed = "import json, sys, {name}; from dynamics.kernels.cache import sources; from pathlib import Path\n"
    listed += "print(json.dumps([[str(path) for path in sources(Path({name}.__file__))],"
    listed += " [getattr(each, '__file__', None) for name, each in sys.modules.items() if name not in sys.stdlib_module_names]]))"
    for name in ("dynamics.integrators.explicit_kernels", "dynamics.equations.vectors"):
        found, loaded = json.loads(subprocess.check_output([sys.executable, "-c", listed.format(name=name)], text=True))
        packages = [str(ROOT / package) for package in ("hermite", "dynamics", "sgd_check")]
        ours = {path for path in loaded if path is not None and path.startswith(tuple(packages))}
        # Packages that are imported on the way to a module of theirs give it nothing, nor does what finds their names.
        assert {path for path in ours if not path.endswith(("__init__.py", "hermite/unpacked.py"))} <= set(found)
        assert str(ROOT / "dynamics" / "kernels" / "jit.py") in found


def test_compiled_functions_import_from_modules_not_from_rooms():
    """A room imports a name only when it is asked for it, so that its list of sources would lack the name's module."""
    found = []
    for path in (path for package in ("dynamics", "sgd_check") for path in (ROOT / package).rglob("*_kernels.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                room = ROOT.joinpath(*node.module.split("."))
                modules = {each.stem for each in room.glob("*.py")} if room.is_dir() else None
                found += [(path.name, alias.name) for alias in node.names if modules and alias.name not in modules]
    assert found == []


SWITCHED = """
import sys
import numba

numba.config.DISABLE_JIT = "early" in sys.argv
import dynamics

def answer(method):
    problem = dynamics.Problem(activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=16, seed=1)
    save_at = dynamics.SaveAt.at([0.5, 1.0])
    return dynamics.solve_overlaps(problem, save_at=save_at, method=method, progress=False).loss.values.tolist()

print(answer("explicit"))
if "late" in sys.argv:
    numba.config.DISABLE_JIT = True
    try:
        answer("stiff")
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.thorough
def test_numba_may_be_switched_off_in_python_before_the_first_use_alone():
    """As by the variable; later, functions of Python would be mixed with compiled ones, which cannot call them."""
    told = {}
    for when, variable in (("early", "0"), ("late", "0"), ("variable", "1")):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": variable}
        code = (
            SWITCHED if when != "variable" else SWITCHED.replace('numba.config.DISABLE_JIT = "early" in sys.argv', "")
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, when], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told[when] = done.stdout.splitlines()
    assert told["early"] == told["variable"]
    interpreted, compiled = (json.loads(told[when][0]) for when in ("early", "late"))
    assert interpreted == pytest.approx(compiled, rel=1e-13)
    need = "`numba.config.DISABLE_JIT` must be set before dynamics is used and stay as it is"
    assert told["late"][1:] == [f"{need}, but was False at first and is True."]
