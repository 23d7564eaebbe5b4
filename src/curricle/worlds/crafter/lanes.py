"""Eight numbers at once: the one place where the compiler is told to use wide instructions.

numba unrolls short loops before LLVM could turn them into vector code, so inner loops are written in LLVM's own terms.
Each works on eight numbers, or on a word of bytes, and none of them checks bounds:

- `sum_lanes(weight, vertex, gradient, first, last, sums, row)`: sums[row] = the sum of
  gradient[vertex[e], axis] * weight[e, axis] over entries e in first..last - 1 and three axes, in float32;
- `compare_lanes(values, at, bar, slack)`: eight bits for values[at : at + 8] above the bar, eight more for those within
  slack of it;
- `move8(target, at, source, start)` and `move4`: copy eight or four bytes between flat arrays of bytes.
"""

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES: Final = 8
_FLOAT: Final = ir.FloatType()
_VECTOR: Final = ir.VectorType(_FLOAT, LANES)
_INDEX: Final = ir.IntType(64)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Pointer to an array's first element."""
    return context.make_array(kind)(context, builder, value).data


def _splat(builder: Any, scalar: Any) -> Any:
    """The same number in every lane."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), lanes)


def _summing(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the loop over entries."""
    first, last, row = arguments[3], arguments[4], arguments[6]
    weight, vertex, gradient, sums = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 1, 2, 5))
    total = cgutils.alloca_once_value(  # type: ignore[no-untyped-call]
        builder, ir.Constant(_VECTOR, [0.0] * LANES)
    )
    with cgutils.for_range(builder, last, start=first, intp=_INDEX) as loop:
        which = builder.sext(builder.load(builder.gep(vertex, [loop.index])), _INDEX)
        for axis in range(3):
            at = builder.add(builder.mul(loop.index, _INDEX(3)), _INDEX(axis))
            slope = builder.load(builder.gep(gradient, [builder.add(builder.mul(which, _INDEX(3)), _INDEX(axis))]))
            pull = builder.gep(weight, [builder.mul(at, _INDEX(LANES))])
            lanes = builder.load(builder.bitcast(pull, _VECTOR.as_pointer()), align=4)
            product = builder.fmul(_splat(builder, slope), lanes)
            builder.store(builder.fadd(builder.load(total), product), total)
    target = builder.gep(sums, [builder.mul(row, _INDEX(LANES))])
    builder.store(builder.load(total), builder.bitcast(target, _VECTOR.as_pointer()), align=4)
    return context.get_dummy_value()


def _comparing(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit two comparisons of eight lanes, and pack their bits."""
    values, (_, at, bar, slack) = _data(context, builder, signature.args[0], arguments[0]), arguments
    lanes = builder.load(builder.bitcast(builder.gep(values, [at]), _VECTOR.as_pointer()), align=4)
    rest, wide = builder.fsub(lanes, _splat(builder, bar)), _splat(builder, slack)
    above = builder.fcmp_ordered(">", rest, ir.Constant(_VECTOR, [0.0] * LANES))
    near = builder.and_(builder.fcmp_ordered("<", rest, wide), builder.fcmp_ordered(">", rest, builder.fneg(wide)))
    bits = [builder.zext(builder.bitcast(b, ir.IntType(LANES)), _INDEX) for b in (above, near)]
    return builder.or_(bits[0], builder.shl(bits[1], _INDEX(LANES)))


def _sum_lanes(typing: Any, weight: Any, vertex: Any, gradient: Any, first: Any, last: Any, sums: Any, row: Any) -> Any:
    return types.void(weight, vertex, gradient, types.int64, types.int64, sums, types.int64), _summing


def _compare_lanes(typing: Any, values: Any, at: Any, bar: Any, slack: Any) -> Any:
    return types.int64(values, types.int64, types.float32, types.float32), _comparing


def _moving(bits: int) -> Any:
    """Code that copies one word of so many bits between flat arrays of bytes."""
    word = ir.IntType(bits)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 2))
        value = builder.load(builder.bitcast(builder.gep(source, [arguments[3]]), word.as_pointer()), align=1)
        builder.store(value, builder.bitcast(builder.gep(target, [arguments[1]]), word.as_pointer()), align=1)
        return context.get_dummy_value()

    return codegen


_MOVE4, _MOVE8 = _moving(32), _moving(64)


def _move4(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    return types.void(target, types.int64, source, types.int64), _MOVE4


def _move8(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    return types.void(target, types.int64, source, types.int64), _MOVE8


sum_lanes: Any = intrinsic(_sum_lanes)
compare_lanes: Any = intrinsic(_compare_lanes)
move4: Any = intrinsic(_move4)
move8: Any = intrinsic(_move8)
