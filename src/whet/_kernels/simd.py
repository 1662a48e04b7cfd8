"""Eight numbers at once, for kernels whose loops the compiler does not vectorise by itself.

`Lanes` are vectors of LLVM: int32, float32 or float64, compiled for what the processor has (one AVX2 register, two of
NEON). Comparisons give masks: int32, all bits set where true. They exist inside kernels only. Nothing is checked:
loads and stores need eight entries of a contiguous array from `index` on.
"""

import operator
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray

# numba and llvmlite have no types of their own, and numba fixes the arguments of a generator.
# ruff: noqa: ANN401, ARG001
# mypy: disable-error-code="no-untyped-call, misc"


LANES = 8


class Lanes(Protocol):
    """Eight numbers of one type, or a mask, as kernels see them."""

    def __add__(self, other: "Lanes") -> "Lanes": ...
    def __sub__(self, other: "Lanes") -> "Lanes": ...
    def __mul__(self, other: "Lanes") -> "Lanes": ...
    def __truediv__(self, other: "Lanes") -> "Lanes": ...
    def __and__(self, other: "Lanes") -> "Lanes": ...
    def __or__(self, other: "Lanes") -> "Lanes": ...
    def __lt__(self, other: "Lanes") -> "Lanes": ...
    def __ge__(self, other: "Lanes") -> "Lanes": ...
    def __rshift__(self, other: "Lanes") -> "Lanes": ...


class Address(Protocol):
    """Where the entries of an array begin. The array has to outlive it.

    numba counts references to arrays that are passed on; at a stage a call, that took a third of the time.
    """


class LanesType(types.Type):
    """The type of lanes in numba."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(name=f"lanes({element})")


INTS, FLOATS, DOUBLES = LanesType("int32"), LanesType("float32"), LanesType("float64")
_WHOLE, _BITS = ir.IntType(32), ir.IntType(1)
_ELEMENTS = {"int32": _WHOLE, "float32": ir.FloatType(), "float64": ir.DoubleType()}
_OF_ARRAY = {types.uint32: INTS, types.int32: INTS, types.float32: FLOATS, types.float64: DOUBLES}


def _vector(kind: LanesType) -> ir.VectorType:
    return ir.VectorType(_ELEMENTS[kind.element], LANES)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: LanesType) -> None:
        super().__init__(manager, kind, _vector(kind))


@intrinsic
def _address(typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def _item(typing: Any, address: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(arguments[0], [arguments[1]]))

    return address.dtype(address, types.intp), generate


@intrinsic
def _pair(typing: Any, address: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=4)

    return types.int64(address, types.intp), generate


def _eight(builder: Any, address: Any, index: Any, kind: LanesType) -> Any:
    """Pointer to eight entries."""
    return builder.bitcast(builder.gep(address, [index]), _vector(kind).as_pointer())


@intrinsic
def _load(typing: Any, address: Any, index: Any) -> Any:
    kind = _OF_ARRAY[address.dtype]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_eight(builder, arguments[0], arguments[1], kind), align=4)

    return kind(address, types.intp), generate


@intrinsic
def _store(typing: Any, address: Any, index: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _eight(builder, arguments[0], arguments[1], signature.args[2]), align=4)
        return context.get_dummy_value()

    return types.void(address, types.intp, lanes), generate


@intrinsic
def _spread(typing: Any, number: Any) -> Any:
    kind = {types.float32: FLOATS, types.float64: DOUBLES}.get(number, INTS)
    whole = kind is INTS

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _vector(kind)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[0], ir.Constant(_WHOLE, 0))
        return builder.shuffle_vector(
            one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(_WHOLE, LANES), None)
        )

    return kind(types.int32 if whole else number), generate


def _binary(name: str) -> Any:
    """An operation of LLVM on two lanes, by its names for whole numbers and for others."""

    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            prefix = "" if signature.args[0] == INTS or name in ("and_", "or_", "lshr") else "f"
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


def _conversion(name: str, source: LanesType, target: LanesType) -> Any:
    @intrinsic
    def operation(typing: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(arguments[0], _vector(target))

        return (target(source), generate) if lanes == source else None

    return operation


@intrinsic
def _select(typing: Any, mask: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.icmp_signed("<", arguments[0], ir.Constant(_vector(INTS), None))
        return builder.select(chosen, *arguments[1:])

    return a(INTS, a, a), generate


@intrinsic
def _bits(typing: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.icmp_signed("<", arguments[0], ir.Constant(_vector(INTS), None))
        return builder.zext(builder.bitcast(chosen, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(INTS), generate


@intrinsic
def _mask(typing: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.bitcast(builder.trunc(arguments[0], ir.IntType(LANES)), ir.VectorType(_BITS, LANES))
        return builder.sext(chosen, _vector(INTS))

    return INTS(types.int64), generate


@intrinsic
def _square_root(typing: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_vector(DOUBLES), [_vector(DOUBLES)])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f64")
        return builder.call(function, arguments)

    return DOUBLES(DOUBLES), generate


@intrinsic
def _load_bytes(typing: Any, address: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        few = ir.VectorType(ir.IntType(8), LANES)
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), few.as_pointer())
        return builder.zext(builder.load(place, align=1), _vector(INTS))

    return INTS(address, types.intp), generate


def _rearranged(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """Entries at these places of two lanes side by side."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_WHOLE, LANES), places))


@intrinsic
def _running_sum(typing: Any, lanes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, zero = arguments[0], ir.Constant(_vector(INTS), None)
        for shift in (1, 2, 4):
            places = [lane - shift if lane >= shift else LANES for lane in range(LANES)]
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
    operator.or_: _binary("or_"),
    operator.rshift: _binary("lshr"),
    operator.lt: _comparison("<"),
    operator.ge: _comparison(">="),
}


def _on_lanes(function: Callable[..., Any], generated: Any) -> None:
    @overload(function)
    def choose(a: Any, b: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            return generated(a, b)

        return call if isinstance(a, LanesType) and a == b else None


for _function, _generated in _OPERATORS.items():
    _on_lanes(_function, _generated)

# It keeps nothing alive: only arguments of a kernel outlast what is done with their addresses.
address_of = cast(Callable[[NDArray[Any]], Address], _address)
item = cast(Callable[[Address, int], int], _item)
# Two int32 as one int64, the first in its lower half.
pair = cast(Callable[[Address, int], int], _pair)
load = cast(Callable[[Address, int], Lanes], _load)
load_bytes = cast(Callable[[Address, int], Lanes], _load_bytes)
store = cast(Callable[[Address, int, Lanes], None], _store)
spread = cast(Callable[[int | float | np.number[Any]], Lanes], _spread)
select = cast(Callable[[Lanes, Lanes, Lanes], Lanes], _select)
# One bit a lane, the first in the lowest, of a mask, and the way back.
bits_of = cast(Callable[[Lanes], int], _bits)
mask_of = cast(Callable[[int], Lanes], _mask)
square_root = cast(Callable[[Lanes], Lanes], _square_root)
# The float32 of these bits.
as_floats = cast(Callable[[Lanes], Lanes], _conversion("bitcast", INTS, FLOATS))
to_floats = cast(Callable[[Lanes], Lanes], _conversion("sitofp", INTS, FLOATS))
# Whole numbers taken for unsigned ones.
to_doubles = cast(Callable[[Lanes], Lanes], _conversion("uitofp", INTS, DOUBLES))
rounded = cast(Callable[[Lanes], Lanes], _conversion("fptrunc", DOUBLES, FLOATS))
widened = cast(Callable[[Lanes], Lanes], _conversion("fpext", FLOATS, DOUBLES))
# Each lane plus all before it.
running_sum = cast(Callable[[Lanes], Lanes], _running_sum)
# Of two lanes side by side: every second entry from the first or from the second on; the last of the first, in all.
evens = cast(Callable[[Lanes, Lanes], Lanes], _arrangement(list(range(0, 2 * LANES, 2))))
odds = cast(Callable[[Lanes, Lanes], Lanes], _arrangement(list(range(1, 2 * LANES, 2))))
last_of = cast(Callable[[Lanes, Lanes], Lanes], _arrangement([LANES - 1] * LANES))
