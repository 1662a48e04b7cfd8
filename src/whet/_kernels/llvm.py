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
_WHOLE = ir.IntType(32)
_ELEMENTS = {"int32": _WHOLE, "float32": ir.FloatType(), "float64": ir.DoubleType()}
_OF_ARRAY = {types.uint32: INTS, types.int32: INTS, types.float32: FLOATS, types.float64: DOUBLES}


def _vector(kind: VectorType) -> ir.VectorType:
    return ir.VectorType(_ELEMENTS[kind.element], SIMD_WIDTH)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, _vector(kind))


def _written(signature: Any, write: Callable[..., Any]) -> Any:
    """What numba takes for an intrinsic: its signature, and code that `write` writes from the builder and arguments."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = write(builder, *arguments)
        return context.get_dummy_value() if signature.return_type == types.void else value

    return signature, generate


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """The address of the first entry of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def load_scalar(typing: Any, address: Any, index: Any) -> Any:
    """The entry at an index."""
    return _written(address.dtype(address, types.intp), lambda builder, at, i: builder.load(builder.gep(at, [i])))


@intrinsic
def load_pair(typing: Any, address: Any, index: Any) -> Any:
    """Two int32 as one int64, the first in its lower half."""

    def write(builder: Any, at: Any, i: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(at, [i]), ir.IntType(64).as_pointer()), align=4)

    return _written(types.int64(address, types.intp), write)


def _eight(builder: Any, address: Any, index: Any, kind: VectorType) -> Any:
    """Pointer to eight entries."""
    return builder.bitcast(builder.gep(address, [index]), _vector(kind).as_pointer())


@intrinsic
def load(typing: Any, address: Any, index: Any) -> Any:
    """Eight entries from an index on."""
    kind = _OF_ARRAY[address.dtype]
    return _written(
        kind(address, types.intp), lambda builder, at, i: builder.load(_eight(builder, at, i, kind), align=4)
    )


@intrinsic
def store(typing: Any, address: Any, index: Any, vector: Any) -> Any:
    """Write eight entries from an index on."""
    return _written(
        types.void(address, types.intp, vector),
        lambda builder, at, i, entries: builder.store(entries, _eight(builder, at, i, vector), align=4),
    )


@intrinsic
def broadcast(typing: Any, number: Any) -> Any:
    """A number in all eight places."""
    kind = {types.float32: FLOATS, types.float64: DOUBLES}.get(number, INTS)
    argument = types.int32 if kind is INTS else number
    return _written(kind(argument), lambda builder, value: _repeated(builder, value, kind))


def _binary(name: str) -> Any:
    """An operation of LLVM on two vectors, by its names for whole numbers and for others."""

    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        prefix = "" if a == INTS or name in ("and_", "lshr") else "f"
        return _written(a(a, b), lambda builder, *pair: getattr(builder, prefix + name)(*pair))

    return operation


def _comparison(sign: str) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def write(builder: Any, *pair: Any) -> Any:
            compare = builder.icmp_signed if a == INTS else builder.fcmp_ordered
            return builder.sext(compare(sign, *pair), _vector(INTS))

        return _written(INTS(a, b), write)

    return operation


def _conversion(name: str, source: VectorType, target: VectorType) -> Any:
    @intrinsic
    def operation(typing: Any, vector: Any) -> Any:
        written = _written(target(source), lambda builder, value: getattr(builder, name)(value, _vector(target)))
        return written if vector == source else None

    return operation


@intrinsic
def select(typing: Any, mask: Any, a: Any, b: Any) -> Any:
    """Entries of a where the mask is set, of b elsewhere."""
    return _written(a(INTS, a, a), lambda builder, chosen, *pair: builder.select(_is_negative(builder, chosen), *pair))


def _is_negative(builder: Any, mask: Any) -> Any:
    return builder.icmp_signed("<", mask, ir.Constant(_vector(INTS), None))


@intrinsic
def mask_bits(typing: Any, mask: Any) -> Any:
    """One bit for each entry of a mask, the first in the lowest bit."""

    def write(builder: Any, chosen: Any) -> Any:
        bits = builder.bitcast(_is_negative(builder, chosen), ir.IntType(SIMD_WIDTH))
        return builder.zext(bits, ir.IntType(64))

    return _written(types.int64(INTS), write)


@intrinsic
def square_root(typing: Any, vector: Any) -> Any:
    """Square roots of float64."""

    def write(builder: Any, value: Any) -> Any:
        kind = ir.FunctionType(_vector(DOUBLES), [_vector(DOUBLES)])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{SIMD_WIDTH}f64")
        return builder.call(function, [value])

    return _written(DOUBLES(DOUBLES), write)


_EIGHT_BYTES = ir.VectorType(ir.IntType(8), SIMD_WIDTH)


def _bytes_at(builder: Any, address: Any, index: Any) -> Any:
    return builder.bitcast(builder.gep(address, [index]), _EIGHT_BYTES.as_pointer())


@intrinsic
def load_bytes(typing: Any, address: Any, index: Any) -> Any:
    """Eight bytes from an index on, as int32."""

    def write(builder: Any, at: Any, i: Any) -> Any:
        return builder.zext(builder.load(_bytes_at(builder, at, i), align=1), _vector(INTS))

    return _written(INTS(address, types.intp), write)


@intrinsic
def store_bytes(typing: Any, address: Any, index: Any, vector: Any) -> Any:
    """Write eight int32 from 0 to 255 as bytes from an index on."""

    def write(builder: Any, at: Any, i: Any, entries: Any) -> Any:
        return builder.store(builder.trunc(entries, _EIGHT_BYTES), _bytes_at(builder, at, i), align=1)

    return _written(types.void(address, types.intp, INTS), write)


@intrinsic
def transpose_bytes(typing: Any, source: Any, first: Any, line: Any, target: Any, start: Any, width: Any) -> Any:
    """Write the bytes of 8 x 8 places, `line` a row from `first` on, as columns, `width` a row from `start` on.

    Pairs of rows are interleaved three times: what is four rows apart, then two, then one.
    """
    wide = ir.VectorType(_WHOLE, SIMD_WIDTH)
    lower = ir.Constant(wide, [i // 2 + SIMD_WIDTH * (i % 2) for i in range(SIMD_WIDTH)])
    upper = ir.Constant(wide, [SIMD_WIDTH // 2 + i // 2 + SIMD_WIDTH * (i % 2) for i in range(SIMD_WIDTH)])

    def write(
        builder: Any, from_at: Any, from_first: Any, from_line: Any, to_at: Any, to_first: Any, to_line: Any
    ) -> None:
        def place(address: Any, begin: Any, stride: Any, i: int) -> Any:
            return _bytes_at(builder, address, builder.add(begin, builder.mul(stride, ir.Constant(ir.IntType(64), i))))

        rows = [builder.load(place(from_at, from_first, from_line, i), align=1) for i in range(SIMD_WIDTH)]
        for _ in range(3):
            pairs = [(rows[i], rows[i + SIMD_WIDTH // 2]) for i in range(SIMD_WIDTH // 2)]
            rows = [builder.shuffle_vector(*pair, half) for pair in pairs for half in (lower, upper)]
        for i, row in enumerate(rows):
            builder.store(row, place(to_at, to_first, to_line, i), align=1)

    return _written(types.void(source, types.intp, types.intp, target, types.intp, types.intp), write)


def _rearranged(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """Entries at these places of two vectors side by side."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WHOLE, SIMD_WIDTH), places))


@intrinsic
def prefix_sum(typing: Any, vector: Any) -> Any:
    """Each entry plus all before it."""

    def write(builder: Any, total: Any) -> Any:
        for shift in (1, 2, 4):
            places = [i - shift if i >= shift else SIMD_WIDTH for i in range(SIMD_WIDTH)]
            total = builder.add(total, _rearranged(builder, total, ir.Constant(_vector(INTS), None), places))
        return total

    return _written(INTS(INTS), write)


def _arrangement(places: list[int]) -> Any:
    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        return _written(INTS(INTS, INTS), lambda builder, a, b: _rearranged(builder, a, b, places))

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
    first = builder.insert_element(undefined, number, ir.Constant(_WHOLE, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_WHOLE, SIMD_WIDTH), None))


def _constant(number: int) -> Any:
    return ir.Constant(_vector(INTS), [number] * SIMD_WIDTH)


@intrinsic
def weighted_corners(typing: Any, sums: Any, place: Any, nodes: Any, corners: Any, weights: Any) -> Any:
    """Weighted sum of three corners, modulo 2^32: places in columns from `corners` on, weights from `weights` on."""

    def write(builder: Any, at: Any, first: Any, rows: Any, corners_at: Any, weights_at: Any) -> Any:
        node = _Node(builder, at, first, rows)
        terms = [builder.mul(node.corner(corners_at, k), node.repeated(weights_at, k)) for k in range(3)]
        return builder.add(builder.add(terms[0], terms[1]), terms[2])

    return _written(INTS(sums, types.intp, nodes, types.intp, types.intp), write)


@intrinsic
def has_code(typing: Any, sums: Any, place: Any, nodes: Any, corners: Any, subset: Any) -> Any:
    """Where the code of 3 x 3 blocks is in the subset: three bits choose one of eight words, five a bit of it.

    Places of 4 x 4 corners are in columns from `corners` on, the words from `subset` on.
    """

    def write(builder: Any, at: Any, first: Any, rows: Any, corners_at: Any, subset_at: Any) -> Any:
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
        is_in = builder.and_(builder.lshr(words[0], number), _constant(1))
        return builder.sub(_constant(0), is_in)

    return _written(INTS(sums, types.intp, nodes, types.intp, types.intp), write)


@intrinsic
def popcount(typing: Any, word: Any) -> Any:
    """The number of ones in a word: the processor's own instruction, or vectors of them in a loop."""
    return _written(types.uint64(types.uint64), lambda builder, value: builder.ctpop(value))


@intrinsic
def as_float(typing: Any, number: Any) -> Any:
    """A count 0 <= n < 2^52 as a float64; a float64 as it is.

    AVX2 has no conversion from 64-bit integers. But the bits of n, laid over those of 2^52, are the float
    2^52 + n: an OR and a subtraction. Products with co-occurrences become 1.7 times faster.
    """

    def write(builder: Any, value: Any) -> Any:
        if number == types.float64:
            return value
        bits = builder.or_(value, value.type(0x4330000000000000))
        return builder.fsub(builder.bitcast(bits, ir.DoubleType()), ir.DoubleType()(2.0**52))

    return _written(types.float64(number), write)


@intrinsic
def take(typing: Any, counter: Any) -> Any:
    """The value of a counter (1,) of int64, which is then one more; threads never get the same value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
