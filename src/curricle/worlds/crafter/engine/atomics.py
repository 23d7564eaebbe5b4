"""Atomic operations for threads inside compiled code, so that they can wait for each other without Python.

They work on the integers of an array that several threads share, in one order that all threads see:

- `load(array, at)` and `store(array, at, value)`;
- `fetch_add(array, at, amount)` and `exchange(array, at, value)` change a number and return what it was;
- `pause()` waits for some ten nanoseconds and leaves the core to its other hardware thread, where there is a way to;
- `yield_core()` lets another thread of the system run on this core first;
- `nap()` sleeps for some hundred and fifty microseconds, where the system has a way to.
"""

import os
import platform
from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ORDER: Final = "seq_cst"
_PAUSES: Final = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _emit_load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.load_atomic(_pointer(context, builder, signature.args[0], *arguments), ORDER, 8)


def _emit_store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, at, value = arguments
    builder.store_atomic(value, _pointer(context, builder, signature.args[0], array, at), ORDER, 8)
    return context.get_dummy_value()


def _change_emitter(operation: str) -> Any:
    """Make a function that emits code to change a number and return what it was."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, value = arguments
        return builder.atomic_rmw(operation, _pointer(context, builder, signature.args[0], array, at), value, ORDER)

    return emit


_EMIT_ADD = _change_emitter("add")
_EMIT_EXCHANGE = _change_emitter("xchg")


def _emit_pause(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if name := _PAUSES.get(platform.machine()):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])  # type: ignore[no-untyped-call]
    return context.get_dummy_value()


def _emit_yield(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if os.name == "posix":
        kind = ir.FunctionType(ir.IntType(32), [])
        sched_yield = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")  # type: ignore[no-untyped-call]
        builder.call(sched_yield, [])
    return context.get_dummy_value()


def _emit_nap(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if os.name == "posix":
        number = ir.IntType(32)
        kind = ir.FunctionType(number, [number])
        usleep = cgutils.get_or_insert_function(builder.module, kind, "usleep")  # type: ignore[no-untyped-call]
        builder.call(usleep, [number(100)])
    return context.get_dummy_value()


def _load(typing: Any, array: Any, at: Any) -> Any:
    return types.int64(array, types.int64), _emit_load


def _store(typing: Any, array: Any, at: Any, value: Any) -> Any:
    return types.void(array, types.int64, types.int64), _emit_store


def _fetch_add(typing: Any, array: Any, at: Any, amount: Any) -> Any:
    return types.int64(array, types.int64, types.int64), _EMIT_ADD


def _exchange(typing: Any, array: Any, at: Any, value: Any) -> Any:
    return types.int64(array, types.int64, types.int64), _EMIT_EXCHANGE


def _pause(typing: Any) -> Any:
    return types.void(), _emit_pause


def _yield_core(typing: Any) -> Any:
    return types.void(), _emit_yield


def _nap(typing: Any) -> Any:
    return types.void(), _emit_nap


load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
fetch_add: Any = intrinsic(_fetch_add)
exchange: Any = intrinsic(_exchange)
pause: Any = intrinsic(_pause)
yield_core: Any = intrinsic(_yield_core)
nap: Any = intrinsic(_nap)
