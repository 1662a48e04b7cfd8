"""Vector operations and single instructions for kernels, written for LLVM. The one file that uses numba's internals.

Vectors are of int32, float32 or float64, compiled for what the processor has (one AVX2 register, two of NEON).
Comparisons give masks: int32, all bits set where true. Nothing is checked: loads and stores need eight entries of a
contiguous array from `index` on. Kernels import these names from `whet._kernels.jit`.
"""

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

# numba and llvmlite have no types of their own, and numba fixes the arguments of a generator.
# ruff: noqa: ANN401, ARG001
# mypy: disable-error-code="no-untyped-call, misc"


SIMD_WIDTH = 8


class VectorType(types.Type):
    """The type of vectors in numba."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(name=f"vector({element})")


INTS, FLOATS, DOUBLES = VectorType("int32"), VectorType("float32"), VectorType("float64")
_WHOLE, _BITS = ir.IntType(32), ir.IntType(1)
_ELEMENTS = {"int32": _WHOLE, "float32": ir.FloatType(), "float64": ir.DoubleType()}
_OF_ARRAY = {types.uint32: INTS, types.int32: INTS, types.float32: FLOATS, types.float64: DOUBLES}


def _vector(kind: VectorType) -> ir.VectorType:
    return ir.VectorType(_ELEMENTS[kind.element], SIMD_WIDTH)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, _vector(kind))


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """The address of the first entry of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def load_scalar(typing: Any, address: Any, index: Any) -> Any:
    """The entry at an index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(arguments[0], [arguments[1]]))

    return address.dtype(address, types.intp), generate


@intrinsic
def load_pair(typing: Any, address: Any, index: Any) -> Any:
    """Two int32 as one int64, the first in its lower half."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=4)

    return types.int64(address, types.intp), generate


def _eight(builder: Any, address: Any, index: Any, kind: VectorType) -> Any:
    """Pointer to eight entries."""
    return builder.bitcast(builder.gep(address, [index]), _vector(kind).as_pointer())


@intrinsic
def load(typing: Any, address: Any, index: Any) -> Any:
    """Eight entries from an index on."""
    kind = _OF_ARRAY[address.dtype]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_eight(builder, arguments[0], arguments[1], kind), align=4)

    return kind(address, types.intp), generate


@intrinsic
def store(typing: Any, address: Any, index: Any, vector: Any) -> Any:
    """Write eight entries from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _eight(builder, arguments[0], arguments[1], signature.args[2]), align=4)
        return context.get_dummy_value()

    return types.void(address, types.intp, vector), generate


@intrinsic
def broadcast(typing: Any, number: Any) -> Any:
    """A number in all eight places."""
    kind = {types.float32: FLOATS, types.float64: DOUBLES}.get(number, INTS)
    whole = kind is INTS

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _repeated(builder, arguments[0], kind)

    return kind(types.int32 if whole else number), generate


def _binary(name: str) -> Any:
    """An operation of LLVM on two vectors, by its names for whole numbers and for others."""

    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            prefix = "" if signature.args[0] == INTS or name in ("and_", "lshr") else "f"
            return getattr(builder, prefix + name)(*arguments)

        return a(a, b), generate

    return operation


def _comparison(sign: str) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            compare = builder.icmp_signed if signature.args[0] == INTS else builder.fcmp_ordered
            return builder.sext(compare(sign, *arguments), _vector(INTS))

        return INTS(a, b), generate

    return operation


def _conversion(name: str, source: VectorType, target: VectorType) -> Any:
    @intrinsic
    def operation(typing: Any, vector: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(arguments[0], _vector(target))

        return (target(source), generate) if vector == source else None

    return operation


@intrinsic
def select(typing: Any, mask: Any, a: Any, b: Any) -> Any:
    """Entries of a where the mask is set, of b elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.icmp_signed("<", arguments[0], ir.Constant(_vector(INTS), None))
        return builder.select(chosen, *arguments[1:])

    return a(INTS, a, a), generate


@intrinsic
def mask_bits(typing: Any, mask: Any) -> Any:
    """One bit for each entry of a mask, the first in the lowest bit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.icmp_signed("<", arguments[0], ir.Constant(_vector(INTS), None))
        return builder.zext(builder.bitcast(chosen, ir.IntType(SIMD_WIDTH)), ir.IntType(64))

    return types.int64(INTS), generate


@intrinsic
def square_root(typing: Any, vector: Any) -> Any:
    """Square roots of float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_vector(DOUBLES), [_vector(DOUBLES)])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{SIMD_WIDTH}f64")
        return builder.call(function, arguments)

    return DOUBLES(DOUBLES), generate


@intrinsic
def load_bytes(typing: Any, address: Any, index: Any) -> Any:
    """Eight bytes from an index on, as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        few = ir.VectorType(ir.IntType(8), SIMD_WIDTH)
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), few.as_pointer())
        return builder.zext(builder.load(place, align=1), _vector(INTS))

    return INTS(address, types.intp), generate


@intrinsic
def store_bytes(typing: Any, address: Any, index: Any, vector: Any) -> Any:
    """Write eight int32 from 0 to 255 as bytes from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        few = ir.VectorType(ir.IntType(8), SIMD_WIDTH)
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), few.as_pointer())
        builder.store(builder.trunc(arguments[2], few), place, align=1)
        return context.get_dummy_value()

    return types.void(address, types.intp, INTS), generate


@intrinsic
def transpose_bytes(typing: Any, source: Any, first: Any, line: Any, target: Any, start: Any, width: Any) -> Any:
    """Write the bytes of 8 x 8 places, `line` a row from `first` on, as columns, `width` a row from `start` on.

    Pairs of rows are interleaved three times: what is four rows apart, then two, then one.
    """
    few, wide = ir.VectorType(ir.IntType(8), SIMD_WIDTH), ir.VectorType(_WHOLE, SIMD_WIDTH)
    lower = ir.Constant(wide, [i // 2 + SIMD_WIDTH * (i % 2) for i in range(SIMD_WIDTH)])
    upper = ir.Constant(wide, [SIMD_WIDTH // 2 + i // 2 + SIMD_WIDTH * (i % 2) for i in range(SIMD_WIDTH)])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(address: Any, begin: Any, stride: Any, i: int) -> Any:
            index = builder.add(begin, builder.mul(stride, ir.Constant(ir.IntType(64), i)))
            return builder.bitcast(builder.gep(address, [index]), few.as_pointer())

        from_address, from_first, from_line, to_address, to_first, to_line = arguments
        rows = [builder.load(place(from_address, from_first, from_line, i), align=1) for i in range(SIMD_WIDTH)]
        for _ in range(3):
            pairs = [(rows[i], rows[i + SIMD_WIDTH // 2]) for i in range(SIMD_WIDTH // 2)]
            rows = [builder.shuffle_vector(*pair, half) for pair in pairs for half in (lower, upper)]
        for i, row in enumerate(rows):
            builder.store(row, place(to_address, to_first, to_line, i), align=1)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), generate


def _rearranged(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """Entries at these places of two vectors side by side."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WHOLE, SIMD_WIDTH), places))


@intrinsic
def prefix_sum(typing: Any, vector: Any) -> Any:
    """Each entry plus all before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, zero = arguments[0], ir.Constant(_vector(INTS), None)
        for shift in (1, 2, 4):
            places = [i - shift if i >= shift else SIMD_WIDTH for i in range(SIMD_WIDTH)]
            total = builder.add(total, _rearranged(builder, total, zero, places))
        return total

    return INTS(INTS), generate


def _arrangement(places: list[int]) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _rearranged(builder, arguments[0], arguments[1], places)

        return INTS(INTS, INTS), generate

    return operation


_OPERATORS: dict[Callable[..., Any], Any] = {
    operator.add: _binary("add"),
    operator.sub: _binary("sub"),
    operator.mul: _binary("mul"),
    operator.truediv: _binary("div"),
    operator.and_: _binary("and_"),
    operator.rshift: _binary("lshr"),
    operator.lt: _comparison("<"),
    operator.ge: _comparison(">="),
}


def _overload_operator(function: Callable[..., Any], generated: Any) -> None:
    @overload(function)
    def choose(a: Any, b: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            return generated(a, b)

        return call if isinstance(a, VectorType) and a == b else None


for _function, _generated in _OPERATORS.items():
    _overload_operator(_function, _generated)

# The float32 of these bits.
as_floats = _conversion("bitcast", INTS, FLOATS)
to_floats = _conversion("sitofp", INTS, FLOATS)
# Whole numbers taken for unsigned ones.
to_doubles = _conversion("uitofp", INTS, DOUBLES)
rounded = _conversion("fptrunc", DOUBLES, FLOATS)
widened = _conversion("fpext", FLOATS, DOUBLES)
# Of two vectors side by side: every second entry from the first or from the second on; the last of the first, in all.
evens = _arrangement(list(range(0, 2 * SIMD_WIDTH, 2)))
odds = _arrangement(list(range(1, 2 * SIMD_WIDTH, 2)))
broadcast_last = _arrangement([SIMD_WIDTH - 1] * SIMD_WIDTH)


# --- Weak learners ----------------------------------------------------------------------------------------------------
# Written as instructions: numba takes 20 ms to infer the types of one operation on vectors, and there are a hundred.


class _Node:
    """A weak learner, or a node of an OpenCV tree, while code for it is written: a row of whole numbers."""

    def __init__(self, builder: Any, sums: Any, place: Any, nodes: Any) -> None:
        self._builder, self._sums, self._place, self._nodes = builder, sums, place, nodes

    def _number(self, column: Any, k: int) -> Any:
        index = self._builder.add(column, ir.Constant(ir.IntType(64), k))
        return self._builder.load(self._builder.gep(self._nodes, [index]))

    def corner(self, column: Any, k: int) -> Any:
        """Integrals of eight windows at the corner in column + k."""
        place = self._builder.add(self._place, self._builder.sext(self._number(column, k), ir.IntType(64)))
        return self._builder.load(_eight(self._builder, self._sums, place, INTS), align=4)

    def repeated(self, column: Any, k: int) -> Any:
        """The number in column + k, in all eight places."""
        return _repeated(self._builder, self._number(column, k), INTS)


def _repeated(builder: Any, number: Any, kind: VectorType) -> Any:
    """A number in all eight places."""
    undefined = ir.Constant(_vector(kind), ir.Undefined)
    one = builder.insert_element(undefined, number, ir.Constant(_WHOLE, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_WHOLE, SIMD_WIDTH), None))


def _constant(number: int) -> Any:
    return ir.Constant(_vector(INTS), [number] * SIMD_WIDTH)


@intrinsic
def weighted_corners(typing: Any, sums: Any, place: Any, nodes: Any, corners: Any, weights: Any) -> Any:
    """Weighted sum of three corners, modulo 2^32: places in columns from `corners` on, weights from `weights` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, first, rows, corners_at, weights_at = arguments
        node = _Node(builder, at, first, rows)
        terms = [builder.mul(node.corner(corners_at, k), node.repeated(weights_at, k)) for k in range(3)]
        return builder.add(builder.add(terms[0], terms[1]), terms[2])

    return INTS(sums, types.intp, nodes, types.intp, types.intp), generate


@intrinsic
def has_code(typing: Any, sums: Any, place: Any, nodes: Any, corners: Any, subset: Any) -> Any:
    """Where the code of 3 x 3 blocks is in the subset: three bits choose one of eight words, five a bit of it.

    Places of 4 x 4 corners are in columns from `corners` on, the words from `subset` on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, first, rows, corners_at, subset_at = arguments
        node = _Node(builder, at, first, rows)
        lines = [[node.corner(corners_at, 4 * i + j) for j in range(4)] for i in range(4)]
        strips = [[builder.sub(low, high) for high, low in zip(*pair, strict=True)] for pair in pairwise(lines)]
        above, beside, below = ([builder.sub(right, left) for left, right in pairwise(strip)] for strip in strips)
        words = [node.repeated(subset_at, k) for k in range(8)]
        for block in reversed(above):
            is_set = builder.icmp_signed(">=", block, beside[1])
            words = [builder.select(is_set, odd, even) for even, odd in zip(words[::2], words[1::2], strict=True)]
        number = _constant(0)
        for bit, block in enumerate((beside[0], below[0], below[1], below[2], beside[2])):
            is_set = builder.icmp_signed(">=", block, beside[1])
            number = builder.or_(number, builder.select(is_set, _constant(1 << bit), _constant(0)))
        found = builder.and_(builder.lshr(words[0], number), _constant(1))
        return builder.sub(_constant(0), found)

    return INTS(sums, types.intp, nodes, types.intp, types.intp), generate


@intrinsic
def popcount(typing: Any, word: Any) -> Any:
    """The number of ones in a word: the processor's own instruction, or vectors of them in a loop."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def as_float(typing: Any, number: Any) -> Any:
    """A count 0 <= n < 2^52 as a float64; a float64 as it is.

    AVX2 has no conversion from 64-bit integers. But the bits of n, laid over those of 2^52, are the float
    2^52 + n: an OR and a subtraction. Products with co-occurrences become 1.7 times faster.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        if number == types.float64:
            return value
        bits = builder.or_(value, value.type(0x4330000000000000))
        return builder.fsub(builder.bitcast(bits, ir.DoubleType()), ir.DoubleType()(2.0**52))

    return types.float64(number), generate


@intrinsic
def take(typing: Any, counter: Any) -> Any:
    """The value of a counter (1,) of int64, which is then one more; threads never get the same value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
