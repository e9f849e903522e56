"""What Numba's front end asks itself over and over while kernels are compiled, answered once: a tenth of the time.

Numba types each operation by trying the rules of all numbers and arrays in turn, finds the variables of each statement
some nine times, and tells listeners of each call of LLVM. Passes for what no kernel contains (closures, contexts,
objects that are inlined) are left out. As in `inner_functions` these are steps of Numba that are not public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from llvmlite.binding import ffi  # type: ignore[import-untyped]
from numba.core import ir, types
from numba.core.compiler import DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.types.functions import BaseFunction

# Numba publishes no types.
Untyped = Any

#: Passes that change nothing in a kernel.
_LEFT_OUT = frozenset({
    "WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables",
    "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass", "InlineOverloads",
    "NoPythonSupportedFeatureValidation", "DumpParforDiagnostics", "RewriteSemanticConstants",
})  # fmt: skip


def passes(state: Untyped) -> PassManager:
    """Return Numba's passes without those that change nothing in a kernel; branches are pruned once."""
    chosen = PassManager("kernel")  # type: ignore[no-untyped-call]
    whole = DefaultPassBuilder.define_nopython_pipeline(state)  # type: ignore[no-untyped-call]
    for kind, purpose in dict(whole.passes).items():
        if kind.__name__ not in _LEFT_OUT:
            chosen.add_pass(kind, purpose)  # type: ignore[no-untyped-call]
    chosen.finalize()  # type: ignore[no-untyped-call]
    return chosen


@contextmanager
def answered_once() -> Iterator[None]:
    """Let Numba remember the types of operations, find variables directly, and tell nobody of calls of LLVM."""
    with (
        patch.object(BaseFunction, "get_call_type", _remembering(BaseFunction.get_call_type)),
        patch.object(ir.Inst, "_rec_list_vars", _variables),
        patch.object(ffi.lib._lock, "_cblist", []),
    ):
        yield


def _remembering(get_call_type: Callable[..., Untyped]) -> Callable[..., Untyped]:
    """Return `BaseFunction.get_call_type` which remembers the signatures of operations on numbers and arrays.

    Those whose implementation depends on options, such as whether sums may be reordered, are found by another key than
    the operation, and looked up again.
    """
    known: dict[Untyped, Untyped] = {}

    def remembered(function: Untyped, context: Untyped, args: Untyped, kws: Untyped) -> Untyped:
        if kws or not all(isinstance(kind, types.Number | types.Boolean | types.Array) for kind in args):
            return get_call_type(function, context, args, kws)
        key = (context, function, args)
        signature = known.get(key)
        if signature is None:
            signature = get_call_type(function, context, args, kws)
            if function.get_impl_key(signature) == function.typing_key:
                known[key] = signature
        else:
            function._impl_keys[signature.args] = function.typing_key
        return signature

    return remembered


def _variables(statement: Untyped, value: Untyped) -> list[ir.Var]:
    """Return the variables in a part of a statement, in order."""
    del statement
    found: list[ir.Var] = []
    _add_variables([value], found)
    return found


def _add_variables(values: Iterable[Untyped], found: list[ir.Var]) -> None:
    for value in values:
        kind = type(value)
        if kind is ir.Var:
            found.append(value)
        elif kind is ir.Expr:
            _add_variables(value._kws.values(), found)
        elif kind is dict:
            _add_variables(value.values(), found)
        elif kind is list or kind is tuple:
            _add_variables(value, found)
        elif isinstance(value, ir.Inst):
            found += value.list_vars()  # type: ignore[no-untyped-call]
