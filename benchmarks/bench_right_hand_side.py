"""The right-hand side against its floor: the matrix products that it consists of, alone, by the same BLAS.

One evaluation is 4 m² P + 2 m³ operations in three products, and has to read and write a state at least. All on one
BLAS thread. `dgemm peak` and `copy` measure what this machine gives at best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.packed import PackedFlow
from benchmarks.problems import standard_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (16, 32, 64, 128, 256, 512)
PEAK_ROWS = 1024
COPIED_BYTES = 1 << 27


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def operations(size: int) -> int:
    """Return the operations in matrix products of one evaluation."""
    return 6 * size**3


def program(size: int) -> Callable[[], object]:
    """Return one evaluation by the program's own compiled right-hand side."""
    from dynamics.equations.overlaps import OverlapSystem
    from dynamics.integrators.system_calls import BoundSystem

    system = OverlapSystem(standard_problem(size))
    bound = BoundSystem(system)
    y, out = system.initial_state, np.empty_like(system.initial_state)
    return lambda: bound.rhs(0.0, y, out)


def packed(size: int) -> Callable[[], object]:
    """Return one evaluation by the packed right-hand side that the libraries get."""
    flow = PackedFlow(standard_problem(size))
    out = np.empty_like(flow.initial_state)
    return lambda: flow.rhs(flow.initial_state, out)


def products(size: int) -> Callable[[], object]:
    """Return the three products A Cᵀ, B G, B C alone."""
    rng = np.random.default_rng(0)
    A, B, C, G, out = rng.standard_normal((5, size, size))

    def multiply() -> None:
        np.matmul(A, C.T, out=out)
        np.matmul(B, G, out=out)
        np.matmul(B, C, out=out)

    return multiply


WAYS = {"program": program, "packed": packed, "three dgemm": products}


@pytest.mark.benchmark(group="right-hand side")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_evaluation(benchmark: Any, way: str, size: int) -> None:
    benchmark.extra_info.update(
        name=way, size=size, operations=operations(size), bytes=2 * 8 * (2 * size * size + size)
    )
    evaluate = WAYS[way](size)
    evaluate()
    benchmark(evaluate)


@pytest.mark.benchmark(group="machine")
def test_dgemm_peak(benchmark: Any) -> None:
    A, B, out = np.random.default_rng(0).standard_normal((3, PEAK_ROWS, PEAK_ROWS))
    benchmark.extra_info.update(name="dgemm peak", operations=2 * PEAK_ROWS**3)
    benchmark(np.matmul, A, B, out=out)


@pytest.mark.benchmark(group="machine")
def test_copy(benchmark: Any) -> None:
    source = np.ones(COPIED_BYTES // 8)
    target = np.empty_like(source)
    benchmark.extra_info.update(name="copy", bytes=2 * COPIED_BYTES)
    benchmark(np.copyto, target, source)
