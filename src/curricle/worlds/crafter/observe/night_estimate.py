"""Sixteen dark pixels at once, in float32, with a note of those that float32 cannot settle.

Only whole numbers come out of a night frame, so estimates do wherever they are clear of a whole number. Here a value v
from 0 to 255 is held as 256 + v: such floats have fifteen bits behind the point, so that a mask cuts off the fraction
and a test of its bits finds what is within `BIAS` of a whole number. `BIAS` is four of the last bit's steps; values are
off by less than 3.5: half a step for each of two sums beyond 256, 1.3 for the mask (3 * 2**-24 of at most 223), 1.2 for
the draw (its first word alone), for 1 - mask and for products. `night.py` computes the pixels in doubt exactly.

- `shade_lanes(words, view, vignette, at, scale, pixels)`: write pixels[at : at + 16], return a bit for each in doubt.
  `words` are untempered, two a pixel; `view` and `pixels` hold red, green and blue in the bytes of a word; `scale` is
  (vignette's factor, light, half of dark, and what is added to red, green and blue), see `night.py`.
"""

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

PIXELS: Final = 16
BIAS: Final = 4 * 2.0**-15
"""Values are lifted by this much, so that one test finds what is too close to a whole number from either side."""
_DOUBT: Final = 0x7FF8  # bits of the fraction; all zero within 2 * BIAS above a whole number
_WHOLE: Final = ~0x7FFF
_LUMA: Final = (19595.0, 38470.0, 7471.0)
_WORD = ir.IntType(32)
_FLOAT = ir.FloatType()
_WORDS = ir.VectorType(_WORD, PIXELS)
_FLOATS = ir.VectorType(_FLOAT, PIXELS)


class Lanes:
    """Sixteen words or floats, with operators that emit code."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _with(self, emit: str, other: "Lanes | int") -> "Lanes":
        if isinstance(other, int):
            other = Lanes(self.builder, ir.Constant(_WORDS, [other % 2**32] * PIXELS))
        return Lanes(self.builder, getattr(self.builder, emit)(self.value, other.value))

    def __and__(self, other: "Lanes | int") -> "Lanes":
        return self._with("and_", other)

    def __or__(self, other: "Lanes | int") -> "Lanes":
        return self._with("or_", other)

    def __xor__(self, other: "Lanes | int") -> "Lanes":
        return self._with("xor", other)

    def __lshift__(self, bits: int) -> "Lanes":
        return self._with("shl", bits)

    def __rshift__(self, bits: int) -> "Lanes":
        return self._with("lshr", bits)

    def to_float(self) -> "Lanes":
        """The words' values as floats."""
        return Lanes(self.builder, self.builder.uitofp(self.value, _FLOATS))

    def to_word(self) -> "Lanes":
        """The floats' values as whole numbers, rounded down."""
        return Lanes(self.builder, self.builder.fptosi(self.value, _WORDS))

    def as_word(self) -> "Lanes":
        """The floats' bits."""
        return Lanes(self.builder, self.builder.bitcast(self.value, _WORDS))

    def as_float(self) -> "Lanes":
        """The floats that have these bits."""
        return Lanes(self.builder, self.builder.bitcast(self.value, _FLOATS))

    def times(self, factor: "Lanes | float", term: "Lanes | float") -> "Lanes":
        """Multiply and add, with one rounding or two."""
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        name = f"llvm.fmuladd.v{PIXELS}f32"
        code = cgutils.get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]
        return Lanes(self.builder, self.builder.call(code, [self.value, _floats(factor), _floats(term)]))


def _floats(value: Lanes | float) -> Any:
    """Lanes of floats, or the same number in all of them."""
    return value.value if isinstance(value, Lanes) else ir.Constant(_FLOATS, [value] * PIXELS)


def _temper(a: Lanes) -> Lanes:
    """The twister's scrambling, as `rng.temper`."""
    a = a ^ (a >> 11)
    a = a ^ ((a << 7) & 0x9D2C5680)
    a = a ^ ((a << 15) & 0xEFC60000)
    return a ^ (a >> 18)


def _shade(draw: Lanes, view: Lanes, vignette: Lanes, scale: list[Lanes]) -> tuple[Lanes, list[Lanes]]:
    """The pixels, and the bits whose absence means doubt."""
    mask = vignette.times(scale[0], 0.0)
    noise = mask.times(draw.times(95 * 2.0**-32, 32.0), 256 + BIAS)
    clear = mask.times(-1.0, 1.0)
    colours = [((view >> shift) & 255).to_float() for shift in (0, 8, 16)]
    noisy = [colour.times(clear, noise).as_word() for colour in colours]
    mixed = [(value & _WHOLE).as_float() for value in noisy]
    luma: Lanes | float = 32768.0 - 256 * 65536  # whole numbers below 2**24 all the way: exact
    for channel in (1, 0, 2):
        luma = mixed[channel].times(_LUMA[channel], luma)
    assert isinstance(luma, Lanes)
    grey = (luma.to_word() >> 16).to_float()
    base = grey.times(0.6, 256 - 0.4 * 256 + 0.1)  # PIL's blend is (6 * grey + 4 * mixed) // 10, see the tests
    dull = [(value.times(0.4, base).as_word() & _WHOLE).as_float() for value in mixed]
    faded = [colours[c].times(scale[1], dull[c].times(scale[2], scale[3 + c])).as_word() for c in range(3)]
    red = (faded[0] >> 15) & 0xFF
    green = (faded[1] >> 7) & 0xFF00
    blue = (faded[2] << 1) & 0xFF0000
    return red | green | blue, [*noisy, *faded]


def _shading(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit loads, arithmetic, the store and the bits of doubt."""
    pointers = [context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 1, 2, 5)]
    at = arguments[3]

    def place(pointer: Any, index: Any, kind: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())

    pairs_kind = ir.VectorType(_WORD, 2 * PIXELS)
    pairs = builder.load(place(pointers[0], builder.shl(at, ir.IntType(64)(1)), pairs_kind), align=4)
    evens = ir.Constant(_WORDS, list(range(0, 2 * PIXELS, 2)))
    first = Lanes(builder, builder.shuffle_vector(pairs, ir.Constant(pairs_kind, ir.Undefined), evens))
    view = Lanes(builder, builder.load(place(pointers[1], at, _WORDS), align=4))
    vignette = Lanes(builder, builder.load(place(pointers[2], at, _FLOATS), align=4))
    scale = []
    for number in cgutils.unpack_tuple(builder, arguments[4]):  # type: ignore[no-untyped-call]
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), number, _WORD(0))
        everywhere = ir.Constant(_WORDS, [0] * PIXELS)
        scale.append(Lanes(builder, builder.shuffle_vector(one, ir.Constant(_FLOATS, ir.Undefined), everywhere)))
    shaded, values = _shade(_temper(first).to_float(), view, vignette, scale)
    builder.store(shaded.value, place(pointers[3], at, _WORDS), align=4)
    doubt = ir.Constant(ir.VectorType(ir.IntType(1), PIXELS), [0] * PIXELS)
    for value in values:
        close = builder.icmp_unsigned("==", (value & _DOUBT).value, ir.Constant(_WORDS, [0] * PIXELS))
        doubt = builder.or_(doubt, close)
    return builder.zext(builder.bitcast(doubt, ir.IntType(PIXELS)), ir.IntType(64))


def _shade_lanes(typing: Any, words: Any, view: Any, vignette: Any, at: Any, scale: Any, pixels: Any) -> Any:
    six = types.UniTuple(types.float32, 6)  # type: ignore[no-untyped-call]
    return types.int64(words, view, vignette, types.int64, six, pixels), _shading


shade_lanes: Any = intrinsic(_shade_lanes)
