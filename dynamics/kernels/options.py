"""Options with which Numba compiles functions, and types of its objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

#: Objects of Numba: types, signatures, contexts of code generation. It publishes no types of them.
Untyped: TypeAlias = Any
#: A Python function, or what Numba makes of it, of any arguments.
AnyFunction: TypeAlias = Callable[..., Untyped]
Function = TypeVar("Function", bound=AnyFunction)

#: Sums may be reordered and fused; not-a-number and infinity keep their meaning, since steppers test for them.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})
OPTIONS: dict[str, Untyped] = {"error_model": "numpy", "fastmath": set(FASTMATH), "nogil": True}
#: Those of functions with one signature, which `numba.cfunc` makes.
ADDRESSED: dict[str, Untyped] = {name: value for name, value in OPTIONS.items() if name != "nogil"}
#: Those of functions that compiled functions call: without what else calls them, half of the time of a small one.
BARE: dict[str, Untyped] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
