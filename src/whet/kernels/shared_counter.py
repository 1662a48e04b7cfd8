"""A counter that kernels in several threads take numbers from, each number once."""

# numba fixes the arguments of a generator, and has no types.
# ruff: noqa: ANN401, ARG001
# mypy: disable-error-code="no-untyped-call, misc"

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


@intrinsic
def _take(typing: Any, counter: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate


# The value of a counter (1,) of int64, which is then one more.
take = cast(Callable[[NDArray[np.int64]], int], _take)
