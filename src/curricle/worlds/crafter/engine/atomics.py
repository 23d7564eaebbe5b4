"""Signals: how threads inside compiled code wait for each other, without Python in between.

Numbers of an array that several threads read and write, in one order that all of them see:

- `read(array, at)` and `write(array, at, value)`;
- `add(array, at, amount)` and `swap(array, at, value)`: add or write; what stood there before is returned;
- `pause()`: wait for some ten nanoseconds and leave the core to its other thread, where it has a way to say so;
- `rest()`: let another thread of this core go first;
- `nap()`: sleep for some hundred and fifty microseconds, where the system has a way to say so.
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


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _reading(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.load_atomic(_place(context, builder, signature.args[0], *arguments), ORDER, 8)


def _writing(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array, at, value = arguments
    builder.store_atomic(value, _place(context, builder, signature.args[0], array, at), ORDER, 8)
    return context.get_dummy_value()


def _changing(operation: str) -> Any:
    """Code that changes a number and returns what it was."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, value = arguments
        return builder.atomic_rmw(operation, _place(context, builder, signature.args[0], array, at), value, ORDER)

    return codegen


_ADDING = _changing("add")
_SWAPPING = _changing("xchg")


def _pausing(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if name := _PAUSES.get(platform.machine()):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])  # type: ignore[no-untyped-call]
    return context.get_dummy_value()


def _resting(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if os.name == "posix":
        kind = ir.FunctionType(ir.IntType(32), [])
        yielding = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")  # type: ignore[no-untyped-call]
        builder.call(yielding, [])
    return context.get_dummy_value()


def _napping(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    if os.name == "posix":
        number = ir.IntType(32)
        sleeping = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number]), "usleep")  # type: ignore[no-untyped-call]
        builder.call(sleeping, [number(100)])
    return context.get_dummy_value()


def _read(typing: Any, array: Any, at: Any) -> Any:
    return types.int64(array, types.int64), _reading


def _write(typing: Any, array: Any, at: Any, value: Any) -> Any:
    return types.void(array, types.int64, types.int64), _writing


def _add(typing: Any, array: Any, at: Any, amount: Any) -> Any:
    return types.int64(array, types.int64, types.int64), _ADDING


def _swap(typing: Any, array: Any, at: Any, value: Any) -> Any:
    return types.int64(array, types.int64, types.int64), _SWAPPING


def _pause(typing: Any) -> Any:
    return types.void(), _pausing


def _rest(typing: Any) -> Any:
    return types.void(), _resting


def _nap(typing: Any) -> Any:
    return types.void(), _napping


read: Any = intrinsic(_read)
write: Any = intrinsic(_write)
add: Any = intrinsic(_add)
swap: Any = intrinsic(_swap)
pause: Any = intrinsic(_pause)
rest: Any = intrinsic(_rest)
nap: Any = intrinsic(_nap)
