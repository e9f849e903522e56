"""How Numba compiles kernels, without what it does for all functions and they do not need.

Inner functions have no machine code of their own, which saves a third of the time that compilation takes.

Numba optimises each function by itself and makes machine code of it, although only entry points are ever called by
their address: what they call is linked into them and optimised there once more. Here an inner function ends with the
optimised code of its own body, and each entry point links all that it reaches, once. (Bodies that are not optimised
before they are put into a loop keep it from doing several numbers at once: twice the time of a network's evaluation.)

Passes are left out as Numba's developers describe (`define_pipelines`). Libraries replace steps of Numba that are not
public. So both are for versions that are known; others compile as usual.
"""

from __future__ import annotations

import operator
from functools import cache, partial
from types import CodeType
from typing import Any

import numba
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import NopythonRewrites
from numba.core.typing.context import Context
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
)

#: Versions of Numba whose libraries of code, and what its compiler asks of them, are as is assumed here.
KNOWN_VERSIONS = ("0.68.",)

#: Passes of Numba's compiler for what no kernel has: functions that are inlined by Numba itself, loops over types, and
#: literal numbers that are asked for.
UNNEEDED = (InlineInlinables, FindLiterallyCalls, LiteralUnroll, LiteralPropagationSubPipelinePass)
#: Those for closures and comprehensions.
OF_INNER_CODE = (InlineClosureLikes, MakeFunctionToJitFunction)
#: Those for expressions of whole arrays, which make new ones: only a function that counts references may.
OF_NEW_ARRAYS = (NopythonRewrites,)

#: Operators whose signatures for arguments of these types are kept: Numba compiles no function of their own for them.
OPERATORS = {each for each in vars(operator).values() if callable(each)} - {operator.pow, operator.ipow} | {bool}
PLAIN_TYPES = (types.Number, types.Boolean, types.Array)

# Numba publishes no types.
Untyped = Any


class _Remembering(Context):
    """Numba's typing context, which keeps what operators return for which types.

    Numba tries some eight templates in turn for each of them, each time, in a sixteenth of the time that it compiles.
    """

    __slots__ = ("of_operators",)

    def __init__(self, context: Context) -> None:
        # All but the method below is done by the context itself, with everything it holds.
        self.__dict__ = context.__dict__
        self.of_operators = dict[Any, Untyped]()

    def resolve_function_type(self, func: Untyped, args: Untyped, kws: Untyped) -> Untyped:
        """Return the signature of a function for types of arguments, as the context does."""
        plain = all(isinstance(each, PLAIN_TYPES) for each in args)
        if not plain or getattr(func, "typing_key", func) not in OPERATORS:
            return super().resolve_function_type(func, args, kws)  # type: ignore[no-untyped-call]
        key = func, tuple(args)
        if key not in self.of_operators:
            self.of_operators[key] = super().resolve_function_type(func, args, kws)  # type: ignore[no-untyped-call]
        return self.of_operators[key]


_remembering = cache(_Remembering)


class _InnerLibrary(JITCodeLibrary):
    """The code of one inner function, optimised, but not linked with what it calls."""

    def finalize(self) -> None:
        self._optimize_final_module()  # type: ignore[no-untyped-call]
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


class _EntryLibrary(JITCodeLibrary):
    """The code of an entry point, with that of all inner functions that it reaches."""

    def finalize(self) -> None:
        reached = list(dict.fromkeys(self._linking_libraries))
        for library in reached:
            if isinstance(library, _InnerLibrary):
                reached += [called for called in library._linking_libraries if called not in reached]
        self._linking_libraries = reached
        super().finalize()  # type: ignore[no-untyped-call]


def _compiler_into(kind: type[JITCodeLibrary]) -> type[Compiler]:
    """Return Numba's compiler, which puts the code of a function into a library of this kind."""

    class IntoLibrary(Compiler):
        def __init__(self, typing_context: Untyped, target: Untyped, library: Untyped, *rest: Untyped) -> None:
            if library is None:
                library = kind(target.codegen(), kind.__name__)
                # As Numba does with its own, so that an entry point can be stored.
                library.enable_object_caching()
            super().__init__(typing_context, target, library, *rest)  # type: ignore[no-untyped-call]
            self.state.typingctx, target = _remembering(typing_context), self.state.targetctx
            # Both contexts have just been refreshed. Numba does it again wherever a function uses an array, and has
            # LLVM parse a module for the size of each number.
            target.refresh, target.get_abi_sizeof = lambda: None, partial(_size, data=target.target_data)
            if kind is _InnerLibrary:
                target.get_executable = _without_machine_code

        def define_pipelines(self) -> list[PassManager]:
            (pipeline,) = super().define_pipelines()  # type: ignore[no-untyped-call]
            code = self.state.func_id.code
            has_inner_code = any(isinstance(each, CodeType) for each in code.co_consts)
            unneeded = UNNEEDED + OF_INNER_CODE * (not has_inner_code) + OF_NEW_ARRAYS * (not self.state.flags.nrt)
            passes = [each for each in pipeline.passes if each[0] not in unneeded]
            # Branches on constants are pruned once, before the first of the passes that would make more of them.
            pipeline.passes = [each for i, each in enumerate(passes) if each not in passes[:i]]
            pipeline.finalize()
            return [pipeline]

    return IntoLibrary


@cache
def _size(kind: Untyped, *, data: Untyped) -> int:
    """Return the bytes of a type of LLVM's."""
    return int(kind.get_abi_size(data))


def _without_machine_code(library: Untyped, description: Untyped, environment: Untyped) -> Untyped:
    """Stand for a function that compiled code alone can call; it keeps its library alive."""
    module, name = description.lookup_module(), description.qualname.rpartition(".")[2]
    return _dynfunc.make_function(module, name, "", 0, environment, (library,))


_known = numba.__version__.startswith(KNOWN_VERSIONS)
#: Options of `numba.njit` for inner functions, and of `njit` and `cfunc` for what is called by its address.
INNER: dict[str, Any] = {"pipeline_class": _compiler_into(_InnerLibrary)} if _known else {}
ENTRY: dict[str, Any] = {"pipeline_class": _compiler_into(_EntryLibrary)} if _known else {}
