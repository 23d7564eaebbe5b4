"""Vector instructions: LLVM code for eight numbers or up to 64 bytes at a time, for the innermost loops.

numba unrolls short loops before LLVM can vectorize them, so these loops are written in LLVM's terms. None of them
checks bounds:

- `sum_lanes(weight, vertex, gradient, first, last, sums, unit, row)`: sums[row] = unit times the sum of
  gradient[vertex[e], axis] * weight[e, axis] over entries e in first..last - 1 and three axes, as whole numbers;
- `compare_lanes(values, at, bar, slack)`: eight bits for values[at : at + 8] above the bar, eight more for those within
  slack of it;
- `move8(target, at, source, start)`, `move16` and `move32`: copy so many bytes between flat arrays;
- `paint(row, mask, value)`: row[y] = value for 64 bytes, where bit y of the mask is set;
- `lowest(mask)` and `count_bits(mask)`: number of the lowest bit that is set, and how many are;
- `transpose(target, at, step, pixels, start, stride)`: write 8 x 8 pixels, words at start + column * stride + row, as
  three bytes each to at + row * step + 3 * column.
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


def _splat(builder: Any, scalar: Any, kind: Any = _VECTOR) -> Any:
    """The same number in every lane."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), lanes)


def _emit_sum(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the loop over entries; sums of whole numbers stay below 2**24, so the float is exact."""
    first = arguments[3]
    last = arguments[4]
    unit = arguments[6]
    row = arguments[7]
    weight, vertex, gradient, sums = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 1, 2, 5))
    short = ir.VectorType(ir.IntType(16), LANES)
    whole = ir.VectorType(ir.IntType(32), LANES)
    total = cgutils.alloca_once_value(builder, ir.Constant(whole, [0] * LANES))  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, last, start=first, intp=_INDEX) as loop:
        which = builder.mul(builder.sext(builder.load(builder.gep(vertex, [loop.index])), _INDEX), _INDEX(4))
        for axis in range(3):
            component = builder.load(builder.gep(gradient, [builder.add(which, _INDEX(axis))]))
            at = builder.mul(builder.add(builder.mul(loop.index, _INDEX(3)), _INDEX(axis)), _INDEX(LANES))
            factor = builder.load(builder.bitcast(builder.gep(weight, [at]), short.as_pointer()), align=2)
            product = builder.mul(_splat(builder, component, whole), builder.sext(factor, whole))
            builder.store(builder.add(builder.load(total), product), total)
    result = builder.fmul(builder.sitofp(builder.load(total), _VECTOR), _splat(builder, unit))
    target = builder.gep(sums, [builder.mul(row, _INDEX(LANES))])
    builder.store(result, builder.bitcast(target, _VECTOR.as_pointer()), align=4)
    return context.get_dummy_value()


def _emit_compare(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit two comparisons of eight lanes, and pack their bits."""
    values = _data(context, builder, signature.args[0], arguments[0])
    (_, at, bar, slack) = arguments
    lanes = builder.load(builder.bitcast(builder.gep(values, [at]), _VECTOR.as_pointer()), align=4)
    rest = builder.fsub(lanes, _splat(builder, bar))
    wide = _splat(builder, slack)
    above = builder.fcmp_ordered(">", rest, ir.Constant(_VECTOR, [0.0] * LANES))
    near = builder.and_(builder.fcmp_ordered("<", rest, wide), builder.fcmp_ordered(">", rest, builder.fneg(wide)))
    bits = [builder.zext(builder.bitcast(b, ir.IntType(LANES)), _INDEX) for b in (above, near)]
    return builder.or_(bits[0], builder.shl(bits[1], _INDEX(LANES)))


def _sum_lanes(
    typing: Any, weight: Any, vertex: Any, gradient: Any, first: Any, last: Any, sums: Any, unit: Any, row: Any
) -> Any:
    return types.void(weight, vertex, gradient, types.int64, types.int64, sums, types.float32, types.int64), _emit_sum


def _compare_lanes(typing: Any, values: Any, at: Any, bar: Any, slack: Any) -> Any:
    return types.int64(values, types.int64, types.float32, types.float32), _emit_compare


def _move_emitter(bits: int) -> Any:
    """Make a function that emits code to copy so many bits between flat arrays."""
    word = ir.IntType(bits)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 2))
        value = builder.load(builder.bitcast(builder.gep(source, [arguments[3]]), word.as_pointer()), align=1)
        builder.store(value, builder.bitcast(builder.gep(target, [arguments[1]]), word.as_pointer()), align=1)
        return context.get_dummy_value()

    return emit


_EMIT_MOVE8 = _move_emitter(64)
_EMIT_MOVE16 = _move_emitter(128)
_EMIT_MOVE32 = _move_emitter(256)


def _emit_paint(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit a choice between old and new for each byte of a row."""
    row = _data(context, builder, signature.args[0], arguments[0])
    kind = ir.VectorType(ir.IntType(8), 64)
    place = builder.bitcast(row, kind.as_pointer())
    where = builder.bitcast(arguments[1], ir.VectorType(ir.IntType(1), 64))
    painted = builder.select(where, _splat(builder, arguments[2], kind), builder.load(place, align=1))
    builder.store(painted, place, align=1)
    return context.get_dummy_value()


def _emit_lowest(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.cttz(arguments[0], ir.IntType(1)(1))


def _emit_count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.ctpop(arguments[0])


def _shuffle(builder: Any, first: Any, second: Any, order: list[int]) -> Any:
    """Lanes picked from two vectors."""
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


def _emit_transpose(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the transposition of 8 x 8 words in three rounds, and 24 bytes of each row."""
    _, at, step, _, start, stride = arguments
    target, pixels = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 3))
    words = ir.VectorType(ir.IntType(32), LANES)
    half = ir.VectorType(_INDEX, 2)
    lines = []
    for i in range(LANES):
        place = builder.gep(pixels, [builder.add(start, builder.mul(stride, _INDEX(i)))])
        lines.append(builder.load(builder.bitcast(place, words.as_pointer()), align=4))
    for _ in range(3):  # interleaving line i with line i + 4, three times, is a transposition
        evens = [0, 8, 1, 9, 2, 10, 3, 11]
        odds = [4, 12, 5, 13, 6, 14, 7, 15]
        lines = [_shuffle(builder, lines[i // 2], lines[i // 2 + 4], odds if i % 2 else evens) for i in range(LANES)]
    for i, line in enumerate(lines):
        octets = builder.bitcast(line, ir.VectorType(ir.IntType(8), 4 * LANES))
        packed = _shuffle(builder, octets, octets, [4 * (k // 3) + k % 3 for k in range(24)] + [0] * 8)
        quarters = builder.bitcast(packed, ir.VectorType(_INDEX, 4))
        place = builder.gep(target, [builder.add(at, builder.mul(step, _INDEX(i)))])
        builder.store(_shuffle(builder, quarters, quarters, [0, 1]), builder.bitcast(place, half.as_pointer()), align=1)
        rest = builder.bitcast(builder.gep(place, [_INDEX(16)]), _INDEX.as_pointer())
        builder.store(builder.extract_element(quarters, ir.IntType(32)(2)), rest, align=1)
    return context.get_dummy_value()


def _move8(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    return types.void(target, types.int64, source, types.int64), _EMIT_MOVE8


def _move16(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    return types.void(target, types.int64, source, types.int64), _EMIT_MOVE16


def _move32(typing: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    return types.void(target, types.int64, source, types.int64), _EMIT_MOVE32


def _paint(typing: Any, row: Any, mask: Any, value: Any) -> Any:
    return types.void(row, types.uint64, types.uint8), _emit_paint


def _lowest(typing: Any, mask: Any) -> Any:
    return types.int64(types.uint64), _emit_lowest


def _count_bits(typing: Any, mask: Any) -> Any:
    return types.int64(types.uint64), _emit_count


def _transpose(typing: Any, target: Any, at: Any, step: Any, pixels: Any, start: Any, stride: Any) -> Any:
    return types.void(target, types.int64, types.int64, pixels, types.int64, types.int64), _emit_transpose


sum_lanes: Any = intrinsic(_sum_lanes)
compare_lanes: Any = intrinsic(_compare_lanes)
move8: Any = intrinsic(_move8)
move16: Any = intrinsic(_move16)
move32: Any = intrinsic(_move32)
transpose: Any = intrinsic(_transpose)
paint: Any = intrinsic(_paint)
lowest: Any = intrinsic(_lowest)
count_bits: Any = intrinsic(_count_bits)
