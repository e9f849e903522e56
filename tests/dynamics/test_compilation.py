"""Source pieces become one cached module."""

import ctypes
import itertools
import operator
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numba.core.registry
import numpy as np
import pytest
from processes import python

import dynamics
from dynamics.compiler import compilation, inner_functions, kernel_cache, machine_code
from dynamics.compiler.compilation import Piece, load, read_piece
from dynamics.compiler.kernel_cache import cache_directory

ROOT = Path(dynamics.__file__).parent.parent
DOUBLE = """
from dynamics.compiler.compilation import entry, kernel

@kernel
def factor():
    return FACTOR

@entry("f8(f8)")
def multiply(x):
    return factor() * x
"""
CALLBACK = """
def fill(out):
    for i in range(out.size):
        out[i] = 3.0
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEATURE_EMERGENCE_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(compilation, "_memo", {})
    monkeypatch.setattr(kernel_cache, "_fallback", {})
    return tmp_path / "kernels"


def pieces(factor):
    return (Piece("constants", f"FACTOR = {factor}\n"), Piece("functions", DOUBLE))


def test_later_pieces_see_the_names_of_earlier_ones(cache):
    assert load(pieces(2.0)).namespace.multiply(21.0) == 42.0


NESTED = """
import numpy as np
from dynamics.compiler.compilation import entry, exact_kernel, inlined_kernel, kernel

@kernel
def square(x):
    return x * x

@inlined_kernel
def shifted(x):
    return square(x) + SHIFT

@exact_kernel
def shift_all(x, out):
    for i in range(x.size):
        out[i] = shifted(x[i])

@entry("f8(f8[::1])")
def norm(x):
    out = np.empty(x.size)
    shift_all(x, out)
    return np.dot(out, x) + square(2.0)

def last(x):
    return square(shifted(x))
"""


@pytest.mark.skipif(compilation.compiler_is_off(), reason="nothing is compiled")
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "in memory"])
@pytest.mark.parametrize("plain", [True, False], ids=["as Numba does", "entry points alone"])
def test_functions_that_call_others_are_compiled_by_known_and_by_other_versions(cache, monkeypatch, stored, plain):
    if not stored:
        monkeypatch.setattr(compilation, "cache_directory", lambda: None)
    if plain:
        monkeypatch.setattr(inner_functions, "INNER", {})
        monkeypatch.setattr(inner_functions, "ENTRY", {})
        monkeypatch.setattr(machine_code, "ENTRY", {})
    pieces = Piece("constants", f"SHIFT = {1.0 + stored + 2.0 * plain}\n"), Piece("nested", NESTED)
    compiled = load(pieces, {"last": "f8(f8)"})
    x = np.array([1.0, 2.0, -3.0])
    shift = compiled.namespace.SHIFT
    assert compiled.namespace.norm(x) == (x**2 + shift) @ x + 4.0
    last = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(compiled.functions["last"].address)
    assert last(3.0) == (9.0 + shift) ** 2
    inner = compiled.namespace.square.overloads.values()
    if not stored:
        kind = inner_functions._InnerLibrary
        assert {isinstance(each.library, kind) for each in inner} == {bool(inner_functions.INNER)}


def test_the_pinned_version_of_the_compiler_is_known():
    """When the pin moves, what `inner_functions` replaces is looked through and the new version is added."""
    (pinned,) = re.findall(r"^numba==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned.startswith(inner_functions.KNOWN_VERSIONS)
    assert bool(inner_functions.INNER) == numba.__version__.startswith(inner_functions.KNOWN_VERSIONS)


@pytest.mark.parametrize("asked", ["operators", "types of their functions"])
def test_operators_have_the_signatures_that_numba_finds(asked):
    context = numba.core.registry.cpu_target.typing_context
    machine_code.load_compiler()
    remembering = inner_functions._remembering(context)
    vector, matrix = numba.types.Array(numba.float64, 1, "C"), numba.types.Array(numba.float32, 2, "C")
    plain = [numba.float64, numba.float32, numba.int64, numba.types.literal(3), numba.boolean, vector, matrix]
    found = 0
    for each in (operator.add, operator.mul, operator.truediv, operator.lt, operator.eq, operator.pow, bool):
        function = each if asked == "operators" else context.resolve_value_type(each)
        for arguments in itertools.product(plain, repeat=1 if each is bool else 2):
            try:
                expected = context.resolve_function_type(function, arguments, {})
            except numba.core.errors.TypingError:
                with pytest.raises(numba.core.errors.TypingError):
                    remembering.resolve_function_type(function, arguments, {})
                continue
            first, second = (remembering.resolve_function_type(function, arguments, {}) for _ in range(2))
            assert first == second == expected
            if expected is not None and each is not operator.pow:
                found += 1
                assert first is second
                assert remembering.of_operators[function, arguments] is first
    assert found > 100
    assert not hasattr(context, "of_operators")
    assert not any(operator.pow in (key, getattr(key, "typing_key", None)) for key, _ in remembering.of_operators)


UNLOADED = """
import sys
import numba
from dynamics.compiler.machine_code import load_compiler
load_compiler()
assert "scipy.linalg" not in sys.modules and "scipy.linalg.cython_blas" not in sys.modules
import numpy as np
print(numba.njit(lambda a: np.dot(a, a))(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist())
"""


@pytest.mark.skipif(compilation.compiler_is_off(), reason="Numba loads nothing")
def test_products_need_no_linear_algebra_of_scipy_until_there_is_one():
    ended = python("-c", UNLOADED)
    assert not ended.stderr
    assert ended.stdout == "[[7.0, 10.0], [15.0, 22.0]]\n"


def test_same_pieces_are_loaded_once_per_process(cache):
    assert load(pieces(2.0)) is load(pieces(2.0))


def test_different_text_goes_to_a_different_file(cache):
    first, second = load(pieces(2.0)), load(pieces(3.0))
    assert first.namespace.multiply(1.0) == 2.0
    assert second.namespace.multiply(1.0) == 3.0
    if first.path is not None:
        assert first.path != second.path


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is written without the compiler")
def test_cache_directory_is_private_and_file_is_never_rewritten(cache):
    path = load(pieces(2.0)).path
    assert path.parent == cache
    assert cache.stat().st_mode & 0o077 == 0
    before = path.stat()
    compilation._memo.clear()
    load(pieces(2.0))
    assert path.stat().st_ino == before.st_ino
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not list(cache.glob("*.partial"))


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is written without the compiler")
def test_a_file_with_other_content_is_replaced_not_executed(cache):
    path = load(pieces(2.0)).path
    path.write_text("raise SystemError('tampered')\n")
    compilation._memo.clear()
    sys.modules.pop(f"_feature_emergence_{path.stem.removeprefix('kernels_')}")
    assert load(pieces(2.0)).namespace.multiply(1.0) == 2.0


RELOAD = """
import sys
from dynamics.compiler.compilation import Piece, load
first = Piece("constants", "FACTOR = 5.0\\n")
second = Piece("functions", open(sys.argv[1]).read())
module = load((first, second), {"fill": "void(f8[::1])"})
print(module.namespace.multiply(2.0), module.from_cache)
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is cached without the compiler")
def test_second_process_loads_from_the_cache(cache, tmp_path):
    source = tmp_path / "functions.txt"
    source.write_text(DOUBLE + CALLBACK)
    command = [sys.executable, "-c", RELOAD, str(source)]
    answers = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert answers == ["10.0 False\n", "10.0 True\n"]


def test_without_compiler_pieces_keep_their_file_names(cache, tmp_path):
    source = tmp_path / "functions.py"
    source.write_text(DOUBLE + CALLBACK)
    script = (
        "import sys; from dynamics.compiler.compilation import *;"
        "m = load([Piece('constants', 'FACTOR = 5.0'), read_piece(sys.argv[1])], {'fill': 'void(f8[::1])'});"
        "print(m.namespace.multiply.__code__.co_filename == sys.argv[1], m.path, m.functions['fill'].__name__)"
    )
    answer = python("-c", script, str(source), NUMBA_DISABLE_JIT="1")
    assert answer.stdout == "True None fill\n"
    assert not cache.exists()


def test_exported_functions_must_be_defined(cache):
    with pytest.raises(ValueError, match="must define the function `fill`, but has none of that name"):
        load(pieces(2.0), {"fill": "void(f8[::1])"})


def test_unwritable_cache_falls_back_with_one_warning(cache, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("FEATURE_EMERGENCE_CACHE", str(blocked / "kernels"))
    with pytest.warns(RuntimeWarning, match="cannot be written, so compiled code is kept in"):
        directory = cache_directory()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache_directory() == directory
    assert directory.is_dir()


@pytest.mark.parametrize(
    ("mode", "owner", "words"),
    [
        (0o770, None, "can be written by others"),
        (0o707, None, "can be written by others"),
        (0o700, 12345, "another user"),
    ],
)
def test_a_cache_that_others_may_have_written_is_refused(cache, monkeypatch, mode, owner, words):
    cache.mkdir()
    cache.chmod(mode)
    if owner is not None:
        monkeypatch.setattr(os, "getuid", lambda: owner)
        cache.chmod(mode)
        monkeypatch.setattr(kernel_cache, "_ROOT", -1)
    monkeypatch.setattr(kernel_cache, "_fallback", {})
    with pytest.warns(RuntimeWarning, match=words):
        assert cache_directory() != cache


def test_a_file_that_others_can_write_is_neither_kept_nor_imported(cache):
    cache.mkdir(mode=0o700)
    path = kernel_cache.write_once(cache / "kernels_x.py", "value = 1\n")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.raises(ImportError, match="can be written by others, so it is not imported"):
        kernel_cache.import_file(path, "kernels_x")
    kernel_cache.write_once(path, "value = 1\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert kernel_cache.import_file(path, "kernels_x").value == 1
    del sys.modules["kernels_x"]


def test_without_the_variable_the_user_cache_is_used(monkeypatch, tmp_path):
    monkeypatch.delenv("FEATURE_EMERGENCE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory().name == "feature-emergence"


def test_a_piece_that_fails_leaves_no_module_behind(cache):
    load([Piece("sound", "value = 1\n")])  # the compiler imports modules of its own once
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        load([Piece("broken", "1 / 0\n")])
    assert set(sys.modules) == before


def test_read_piece_keeps_origin_and_text(tmp_path):
    source = tmp_path / "piece.py"
    source.write_text("x = 1\n")
    assert read_piece(source) == Piece(str(source), "x = 1\n")


def test_compiled_callback_runs_by_address(cache):
    compiled = load([Piece("callback", "def halve(x):\n    return 0.5 * x\n")], {"halve": "f8(f8)"})
    function = compiled.functions["halve"]
    if compiled.path is not None:
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(function.address)
    assert np.isclose(function(3.0), 1.5, rtol=0, atol=0)


def test_the_blas_of_kernels_is_held_to_one_thread_before_any_kernel_is_loaded():
    """Kernels call the BLAS of scipy, which comes with the first of them: what is not loaded yet cannot be held."""
    script = """
from threadpoolctl import threadpool_info
from dynamics.compiler.threads import blas_threads_for
with blas_threads_for(8):
    import scipy.linalg
    found = [(each["filepath"], each["num_threads"]) for each in threadpool_info() if each["user_api"] == "blas"]
print(len(found), {threads for _, threads in found})
print(any("scipy" in path for path, _ in found) or len(found) == 1)
print({each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"})
"""
    found = python("-c", script, OPENBLAS_NUM_THREADS="2").stdout.splitlines()
    assert found[0].endswith("{1}")
    assert found[1] == "True"
    assert found[2] == "{2}"
