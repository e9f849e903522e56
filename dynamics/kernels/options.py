"""Options with which Numba compiles functions."""

from __future__ import annotations

from typing import Any

#: Sums may be reordered and fused; not-a-number and infinity keep their meaning, since steppers test for them.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": set(FASTMATH), "nogil": True}
#: Those of functions with one signature, which `numba.cfunc` makes.
ADDRESSED: dict[str, Any] = {name: value for name, value in OPTIONS.items() if name != "nogil"}
#: Those of functions that compiled functions call: without what else calls them, half of the time of a small one.
BARE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
