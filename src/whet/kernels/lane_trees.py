"""Stages of trees on eight neighbouring windows at once.

Neighbours read neighbouring integrals, so that a node on eight windows takes no more loads than on one: it pays to go
on with all eight as long as one of them is left. Leaves are rounded to multiples of a power of two and summed in whole
numbers. That decides all but the windows whose sum is within rounding of the threshold.
"""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import inlined
from whet.kernels.lanes import LANES, Address, Lanes, as_floats, item, load, select, spread, store, to_floats

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]

# A node is a row of 32 whole numbers, two lines of the cache. Numbers of float32 are there by their bits.
NODE = 32
CORNERS = 0  # 12 of three rectangles, or 16 of 3 x 3 blocks
WEIGHTS = 12  # 3
THRESHOLD = 15
SUBSET = 16  # 8 words of 32 bits
LEFT, RIGHT = 24, 25  # leaves; 0 where the child is a node. Of a stump, LEFT is what going left adds
SHARES_TREE = 26  # 0 for a stump
SLOT, LEFT_SLOT, RIGHT_SLOT = 27, 28, 29  # numbers of the node and its children in their tree; 0 for root and leaves


@inlined
def sum_haar(
    sums: Address, place: int, factors: Lanes, nodes: Address, first: int, last: int, total: Lanes, asked: Address
) -> Lanes:
    """Add nodes `first` to `last` to the sums of the eight windows from `place` on.

    `asked` has room for eight numbers for every node of the largest tree.
    """
    for node in range(NODE * first, NODE * last, NODE):
        value = to_floats(_difference(sums, place, nodes, node, 0)) * real(nodes, node, WEIGHTS)
        value = value + to_floats(_difference(sums, place, nodes, node, 4)) * real(nodes, node, WEIGHTS + 1)
        if item(nodes, node + WEIGHTS + 2) != 0:
            value = value + to_floats(_difference(sums, place, nodes, node, 8)) * real(nodes, node, WEIGHTS + 2)
        goes_left = value * factors < real(nodes, node, THRESHOLD)
        total = total + _added(nodes, node, goes_left, asked)
    return total


@inlined
def sum_patterns(
    sums: Address, place: int, nodes: Address, first: int, last: int, total: Lanes, asked: Address
) -> Lanes:
    """As `sum_haar`, for nodes with patterns."""
    for node in range(NODE * first, NODE * last, NODE):
        total = total + _added(nodes, node, has_code(sums, place, nodes, node), asked)
    return total


@inlined
def real(nodes: Address, node: int, k: int) -> Lanes:
    """Number k of a node, which is a float32."""
    return as_floats(spread(item(nodes, node + k)))


@inlined
def _added(nodes: Address, node: int, goes_left: Lanes, asked: Address) -> Lanes:
    """What a node adds to the sums."""
    if item(nodes, node + SHARES_TREE) == 0:
        return goes_left & spread(item(nodes, node + LEFT))
    return _leaf(nodes, node, goes_left, asked)


@inlined
def _leaf(nodes: Address, node: int, answers: Lanes, asked: Address) -> Lanes:
    """What a node of a larger tree adds: a leaf, where it is asked and the child is one. Masks are -1 and 0."""
    here = answers >= answers
    if item(nodes, node + SLOT) > 0:
        here = load(asked, LANES * item(nodes, node + SLOT))
    goes_left = answers & here
    goes_right = here - goes_left
    if item(nodes, node + LEFT_SLOT) > 0:
        store(asked, LANES * item(nodes, node + LEFT_SLOT), goes_left)
    if item(nodes, node + RIGHT_SLOT) > 0:
        store(asked, LANES * item(nodes, node + RIGHT_SLOT), goes_right)
    return (goes_left & spread(item(nodes, node + LEFT))) + (goes_right & spread(item(nodes, node + RIGHT)))


@inlined
def corner(sums: Address, place: int, nodes: Address, node: int, k: int) -> Lanes:
    """Corner k of a node."""
    return load(sums, place + item(nodes, node + CORNERS + k))


@inlined
def _difference(sums: Address, place: int, nodes: Address, node: int, k: int) -> Lanes:
    """The pixels of a rectangle, modulo 2^32."""
    upper = corner(sums, place, nodes, node, k) - corner(sums, place, nodes, node, k + 1)
    return upper - corner(sums, place, nodes, node, k + 2) + corner(sums, place, nodes, node, k + 3)


@inlined
def has_code(sums: Address, place: int, nodes: Address, node: int) -> Lanes:
    """Where the code of 3 x 3 blocks is in the subset: three bits choose one of eight words, five a bit of it."""
    a0, a1, a2 = _blocks(sums, place, nodes, node, 0)
    b0, b1, b2 = _blocks(sums, place, nodes, node, 4)
    c0, c1, c2 = _blocks(sums, place, nodes, node, 8)
    low, middle, high = a2 >= b1, a1 >= b1, a0 >= b1
    word = select(high, _choose(low, middle, nodes, node, SUBSET + 4), _choose(low, middle, nodes, node, SUBSET))
    bit = (b2 >= b1) & spread(np.int32(16)) | (c2 >= b1) & spread(np.int32(8))
    bit = bit | (c1 >= b1) & spread(np.int32(4)) | (c0 >= b1) & spread(np.int32(2))
    bit = bit | (b0 >= b1) & spread(np.int32(1))
    return spread(np.int32(0)) - (word >> bit & spread(np.int32(1)))


@inlined
def _choose(low: Lanes, middle: Lanes, nodes: Address, node: int, k: int) -> Lanes:
    """One of four words."""
    without = select(low, spread(item(nodes, node + k + 1)), spread(item(nodes, node + k)))
    return select(middle, select(low, spread(item(nodes, node + k + 3)), spread(item(nodes, node + k + 2))), without)


@inlined
def _blocks(sums: Address, place: int, nodes: Address, node: int, k: int) -> tuple[Lanes, Lanes, Lanes]:
    """Sums of the three blocks between a row of four corners and the next."""
    edge0 = corner(sums, place, nodes, node, k + 4) - corner(sums, place, nodes, node, k)
    edge1 = corner(sums, place, nodes, node, k + 5) - corner(sums, place, nodes, node, k + 1)
    edge2 = corner(sums, place, nodes, node, k + 6) - corner(sums, place, nodes, node, k + 2)
    edge3 = corner(sums, place, nodes, node, k + 7) - corner(sums, place, nodes, node, k + 3)
    return edge1 - edge0, edge2 - edge1, edge3 - edge2
