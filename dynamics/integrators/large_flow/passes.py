"""The compiled passes over rows for one link, from two files that are compiled beside each other."""

from __future__ import annotations

import time as clock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.compiler.compilation import Piece, compiling_beside, kernel_pieces, load
from dynamics.equations.pairs.link_kernels import render

if TYPE_CHECKING:
    from dynamics.compiler.compilation import CompiledModule
    from dynamics.problem import Problem

_PAIRS, _HERE = "dynamics.equations.pairs", "dynamics.integrators.large_flow"
_COMMON = (f"{_PAIRS}.array_kernels", f"{_PAIRS}.rounding_kernels")
_STEP = (
    *_COMMON,
    f"{_HERE}.partial_kernels",
    "dynamics.integrators.explicit.dop853_tableau",
    f"{_HERE}.row_kernels",
    f"{_HERE}.step_kernels",
)
_OTHERS = (
    *_COMMON,
    f"{_PAIRS}.field_kernels",
    f"{_HERE}.partial_kernels",
    f"{_HERE}.pause_kernels",
    f"{_HERE}.landing_kernels",
    f"{_HERE}.event_kernels",
)
_SINGLE = (*_COMMON, f"{_PAIRS}.field_kernels", f"{_PAIRS}.single_field_kernels")


class Passes(NamedTuple):
    """The compiled passes by name, and the wall-clock seconds it took to compile or load them."""

    namespace: Any
    compile_seconds: float


def compile_passes(problem: Problem, *, rounds: bool = False) -> Passes:
    """Compile the passes over rows for the link of a problem, or load them from the cache.

    The step is as much work for the compiler as all other passes together, so a second process compiles it. With
    `rounds` it can read fast sources in single precision.
    """
    link = render(problem.activation.coefficients)
    began = clock.perf_counter()
    step = (link, _rounds(rounds), *kernel_pieces(*_STEP))
    with compiling_beside(step):
        others = load((link, _rounds(rounds), *kernel_pieces(*_OTHERS)))
    both = load(step)
    namespace = SimpleNamespace(**{**vars(others.namespace), **vars(both.namespace)})
    return Passes(namespace, clock.perf_counter() - began)


def _rounds(rounds: bool) -> Piece:
    return Piece("rounds", f"ROUNDS = {rounds}")


def compile_moved(problem: Problem) -> CompiledModule:
    """Compile the change of the field when a few neurons have moved, for flows of many."""
    return load((render(problem.activation.coefficients), *kernel_pieces(f"{_HERE}.moved_kernels")))


def compile_single(problem: Problem) -> CompiledModule:
    """Compile the full field in single precision: apart, since only flows that take a minute need it."""
    return load((render(problem.activation.coefficients), *kernel_pieces(*_SINGLE)))
