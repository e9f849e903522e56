"""The compiled passes over rows for one link, from two files that are compiled beside each other."""

from __future__ import annotations

import time as clock
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.compilation import Piece, compiling_beside, load, read_piece
from dynamics.systems.link_kernels import render

if TYPE_CHECKING:
    from dynamics.problem import Problem

__all__ = ["Passes", "compile_passes", "compile_single"]

_SYSTEMS = Path(__file__).parent.parent / "systems"
_TABLEAU = Path(__file__).parent.parent / "integrators" / "dop853_tableau.py"


class Passes(NamedTuple):
    """The compiled passes by name, and the wall-clock seconds it took to compile or load them."""

    namespace: Any
    compile_seconds: float


def compile_passes(problem: Problem, *, rounds: bool = False) -> Passes:
    """Compile the passes over rows for the link of a problem, or load them from the cache.

    The step is as much work for the compiler as all other passes together, so a second process compiles it. With
    `rounds` it can read fast sources in single precision.
    """
    here = Path(__file__).parent
    link = render(problem.activation.coefficients)
    common = (_SYSTEMS / "array_kernels.py", _SYSTEMS / "rounding_kernels.py")
    step_files = (*common, here / "partial_kernels.py", _TABLEAU, here / "row_kernels.py", here / "step_kernels.py")
    other_files = (
        *common,
        _SYSTEMS / "field_kernels.py",
        here / "partial_kernels.py",
        here / "pause_kernels.py",
        here / "landing_kernels.py",
        here / "event_kernels.py",
    )
    began = clock.perf_counter()
    step = (link, _rounds(rounds), *map(read_piece, step_files))
    with compiling_beside(step):
        others = load((link, _rounds(False), *map(read_piece, other_files)))
    both = load(step)
    namespace = SimpleNamespace(**{**vars(others.namespace), **vars(both.namespace)})
    return Passes(namespace, clock.perf_counter() - began)


def _rounds(rounds: bool) -> Piece:
    return Piece("rounds", f"ROUNDS = {rounds}")


def compile_single(problem: Problem) -> Passes:
    """Compile the full field in single precision: apart, since only flows that take a minute need it."""
    files = [_SYSTEMS / f"{name}_kernels.py" for name in ("array", "rounding", "field", "single_field")]
    found = load((render(problem.activation.coefficients), *map(read_piece, files)))
    return Passes(found.namespace, found.compile_seconds)
