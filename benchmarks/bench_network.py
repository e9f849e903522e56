"""One right-hand side of a network of 128 neurons beside its matrix product N C, 2m²(m + r) operations, on one thread.

Neurons of 400 dimensions are nearly orthogonal; those of 6 are not, so that many pairs are beyond Mehler's series.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dynamics import Problem, Student, Teacher
from dynamics.equations.network.system import NetworkSystem
from dynamics.integrators.system_calls import BoundSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH = 128
TEACHER = Teacher.polynomial("x1 + x1*x2 + x1*x2*x3")
NETWORKS = [
    *(
        (link, biases, second)
        for link in ("erf", "relu")
        for biases in ("none", "trained")
        for second in ("fixed", "trained")
    ),
    ("z + 0.3*z**3", "trained", "trained"),
    ("tanh", "trained", "trained"),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def right_hand_side(link: str, biases: str, second_layer: str, dimension: int) -> Callable[[], object]:
    start = {} if biases == "none" else {"initial_biases": 0.5 * np.random.default_rng(0).standard_normal(WIDTH)}
    student = Student(activation=link, width=WIDTH, biases=biases, second_layer=second_layer, **start)
    system = NetworkSystem(Problem(student=student, teacher=TEACHER, dimension=dimension, seed=0))
    bound = BoundSystem(system)
    y, out = system.initial_state, np.empty_like(system.initial_state)
    return lambda: bound.rhs(0.0, y, out)


@pytest.mark.benchmark(group="network right-hand side")
@pytest.mark.parametrize("dimension", [400, 6])
@pytest.mark.parametrize("network", NETWORKS, ids=" ".join)
def test_evaluation(benchmark: Any, network: tuple[str, str, str], dimension: int) -> None:
    evaluate = right_hand_side(*network, dimension)
    evaluate()
    benchmark.extra_info.update(name=" ".join(network), size=WIDTH, dimension=dimension)
    benchmark(evaluate)


@pytest.mark.benchmark(group="network right-hand side")
def test_product(benchmark: Any) -> None:
    rng, columns = np.random.default_rng(0), WIDTH + TEACHER.span
    N, C, out = rng.normal(size=(WIDTH, columns)), rng.normal(size=(columns, columns)), np.empty((WIDTH, columns))
    benchmark.extra_info.update(name="product", operations=2 * WIDTH * columns**2)
    benchmark(np.matmul, N, C, out=out)
