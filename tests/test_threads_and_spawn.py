"""Solves beside each other, in threads and in processes that are started anew, give the bits of one after the other."""

import ast
import contextlib
import dataclasses
import importlib
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from processes import ROOT, python
from threadpoolctl import threadpool_info

import dynamics
import sgd_check
from dynamics.cores import find_blas, one_blas_thread
from dynamics.integrators.large_flow.rows import SMALLEST_PASS

SEEDS = (0, 1, 2)
WIDE = 320
AT = dynamics.SaveAt.at([0.5, 1.0, 2.0])


def problem(seed):
    teacher = dynamics.Teacher([1.0, 0.5])
    return dynamics.Problem(activation="he3", teacher=teacher, width=3, dimension=64, seed=seed)


def small_flow(seed):
    return dynamics.solve_overlaps(problem(seed), save_at=AT, progress=False)


def large_flow(seed):
    """A flow of so many neurons that threads of its own share its passes."""
    wide = dataclasses.replace(problem(seed), activation="he4", order=None, width=WIDE, dimension=2 * WIDE)
    assert WIDE * (WIDE + 2) >= SMALLEST_PASS
    return dynamics.solve_overlaps(wide, save_at=AT, method="stiff", error_estimate=False, progress=False)


def runs_of_sgd(seed):
    return sgd_check.simulate(problem(seed), learning_rate=1e-4, steps=200, seeds=2, progress=False)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.drop_attrs().identical(other.drop_attrs())
        assert one.attrs["stop_reason"] == other.attrs["stop_reason"] == "reached_end"


@pytest.mark.thorough
@pytest.mark.parametrize("answer", [small_flow, large_flow, runs_of_sgd])
def test_threads_give_the_bits_of_one_after_the_other(answer):
    with ThreadPoolExecutor(len(SEEDS)) as pool:
        together = list(pool.map(answer, SEEDS))  # first, so that on a new machine threads compile side by side
    assert_same(together, map(answer, SEEDS))


def test_different_answers_at_once_do_not_meet():
    answers = (small_flow, runs_of_sgd, large_flow)
    with ThreadPoolExecutor(len(answers)) as pool:
        begun = [pool.submit(answer, 0) for answer in answers]
    assert_same([each.result() for each in begun], [answer(0) for answer in answers])


@pytest.mark.thorough
def test_processes_that_are_spawned_give_the_same_bits():
    """Problems and answers travel, and a process that starts with nothing finds the compiled code."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_same(pool.map(small_flow, SEEDS[:2]), map(small_flow, SEEDS[:2]))
        assert pool.submit(problem, 0).result() == problem(0)


def explicit_flow(width):
    wide = dataclasses.replace(problem(0), width=width, dimension=2 * width)
    return dynamics.solve_overlaps(
        wide, method="explicit", save_at=AT, error_estimate=False, keep="summary", progress=False
    )


def threads_of_blas():
    return sorted((each["filepath"], each["num_threads"]) for each in threadpool_info() if each["user_api"] == "blas")


def test_runs_in_threads_give_the_bits_of_runs_alone_and_restore_blas():
    """Each run set and restored the limit alone: it freed the others from theirs, and left the process with one thread."""
    widths = (3, 60, 250) * 3
    alone, before = {width: explicit_flow(width) for width in set(widths)}, threads_of_blas()
    with ThreadPoolExecutor(len(widths)) as pool:
        together = list(pool.map(explicit_flow, widths))
    assert_same(together, [alone[width] for width in widths])
    assert threads_of_blas() == before


def test_any_thread_holds_blas_to_one_thread_and_any_other_one_ends_it():
    find_blas()
    with contextlib.suppress(ImportError):
        importlib.import_module("sksundae.cvode")  # has a BLAS of its own
    before, inside, first_left = threads_of_blas(), threading.Barrier(2), threading.Event()

    def held(leaves_first):
        with one_blas_thread():
            inside.wait(30)
            found = threads_of_blas()
            assert leaves_first or first_left.wait(30)
        if leaves_first:
            first_left.set()
        return found

    with one_blas_thread():
        assert {count for _, count in threads_of_blas()} == {1}
    assert threads_of_blas() == before
    for first_leaves_first in (True, False):
        first_left.clear()
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(held, (first_leaves_first, not first_leaves_first)))
        assert {count for each in found for _, count in each} == {1}
        assert threads_of_blas() == before


COMPILES = """
import threading, time
import numpy as np
stop = threading.Event()
a = np.random.default_rng(0).normal(size=(1000, 1000))
def multiply():
    while not stop.is_set():
        a @ a
beside = threading.Thread(target=multiply)
beside.start()
from numba import types
from dynamics.kernels.jit import callback, kernel
from dynamics.kernels.products import product
def scaled(factor):
    @kernel
    def multiply(x):
        product(x, x, x.copy())
        x[0, 0] *= factor
    return multiply
for number in range(3):
    callback(scaled(number), types.void(types.float64[:, ::1]))
stop.set()
beside.join()
print("ended", threading.active_count())
"""


@pytest.mark.thorough
def test_compiling_beside_a_thread_that_multiplies_matrices_does_not_hang(tmp_path):
    """A fork would hang: the handler of forks in OpenBLAS joins threads that do not run in the copy."""
    done = python("-c", COMPILES, NUMBA_CACHE_DIR=str(tmp_path), OPENBLAS_NUM_THREADS="2", timeout=100)
    assert (done.stdout, done.returncode) == ("ended 1\n", 0), done.stderr


def test_nothing_forks():
    """No process is copied beside threads, and every pool of processes says how its workers start."""
    found = []
    for folder in ("hermite", "dynamics", "sgd_check", "benchmarks", "tests", "docs"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
                if name in ("os.fork", "os.forkpty", "pty.fork") or (
                    isinstance(node, ast.keyword) and node.arg == "preexec_fn"
                ):
                    found.append((path, name))
                if not isinstance(node, ast.Call):
                    continue
                called, given = ast.unparse(node.func).rpartition(".")[2], {word.arg for word in node.keywords}
                words = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if called in ("get_context", "set_start_method") and (not node.args or words == ["fork"]):
                    found.append((path, called))
                if called == "ProcessPoolExecutor" and len(node.args) < 2 and "mp_context" not in given:
                    found.append((path, called))
                if ast.unparse(node.func) in ("multiprocessing.Pool", "multiprocessing.Process"):
                    found.append((path, called))
    assert found == []
