"""The compiled passes over rows for one link, from three files, one of them for all links."""

from __future__ import annotations

import time as clock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamics.compiler.compilation import Piece, kernel_pieces, load
from dynamics.equations.pairs.link_kernels import render

if TYPE_CHECKING:
    from dynamics.problem import Problem

_PAIRS, _HERE = "dynamics.equations.pairs", "dynamics.integrators.large_flow"
_ARRAYS, _ROUNDING, _FIELD = (f"{_PAIRS}.{name}_kernels" for name in ("array", "rounding", "field"))
#: Passes with the partial field, after the products of a few rows; the whole one in double and in both precisions, and
#: groups and events after it; and passes that know no link.
_STEP = (
    *(_ROUNDING, "dynamics.integrators.explicit.dop853_tableau"),
    f"{_HERE}.plan",
    *(f"{_HERE}.{name}_kernels" for name in ("plan", "partial", "partial_rows", "node", "row")),
    *(f"{_HERE}.{name}_kernels" for name in ("slowing", "source", "exponential", "step")),
)
_FIELDS = (_ARRAYS, _FIELD)
_FIELDS_OF_BOTH = (_ARRAYS, _ROUNDING, _FIELD, f"{_PAIRS}.single_field_kernels")
_WHOLE = (f"{_HERE}.pause_kernels", f"{_HERE}.event_kernels")
_PLAIN = tuple(
    f"{_HERE}.{name}" for name in ("plan", "plan_kernels", "settle_kernels", "division_kernels", "landing_kernels")
)


class Passes(NamedTuple):
    """The compiled passes by name, and the wall-clock seconds it took to compile or load them."""

    namespace: Any
    compile_seconds: float


def few_rows() -> tuple[str, ...]:
    """Return the modules that multiply blocks of a few rows fastest on this processor."""
    from dynamics.compiler.cores import has_kernels_for_small_matrices

    name = "few_rows_by_blas" if has_kernels_for_small_matrices() else "few_rows"
    return _ARRAYS, f"{_PAIRS}.{name}_kernels"


def whole_field(problem: Problem, *, rounds: bool) -> tuple[Piece, ...]:
    """Return the source of the passes with the whole field; with `rounds` also in single precision."""
    fields = _FIELDS_OF_BOTH if rounds else _FIELDS
    return render(problem.activation.coefficients), *kernel_pieces(*fields, *_WHOLE)


def compile_passes(problem: Problem, *, rounds: bool = False, follows: bool = False) -> Passes:
    """Compile the passes over rows for the link of a problem, or load them from the cache.

    With `rounds` they can read fast sources in single precision, and the whole field in single precision is among them;
    with `follows` the change of the field when a few neurons have moved is, for flows of many.
    """
    link = render(problem.activation.coefficients)
    began = clock.perf_counter()
    precision = Piece("precision", f'REAL = "{"f4" if rounds else "f8"}"')
    step = (link, precision, *kernel_pieces(*few_rows(), *_STEP))
    sources = [whole_field(problem, rounds=rounds), (precision, *kernel_pieces(*_PLAIN))]
    if follows:
        sources.append((link, *kernel_pieces(_ARRAYS, f"{_HERE}.moved_kernels")))
    passes: dict[str, Any] = {}
    for pieces in (*sources, step):
        passes |= vars(load(pieces).namespace)
    return Passes(SimpleNamespace(**passes), clock.perf_counter() - began)
